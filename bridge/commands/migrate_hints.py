"""``migrate`` commands in hints: what they need besides what ``hints`` carries over."""

from __future__ import annotations

from collections.abc import Sequence

import click

from bridge.migration.control.phases import Phase
from zkconsumer.cli.command_hints import command_text

_DIGEST = "bridge.commands.plan_digest"
"""Where a context keeps the digest of the plan that the operator gave or confirmed, for the commands that come next."""


class MigrateCommand(click.Command):
    """A command of ``migrate``: ``plan`` is named with a file, ``apply --resume`` with the digest that is confirmed."""

    def complete_hint(self, context: click.Context, words: list[str], carried: set[str]) -> list[str]:
        """See ``hints.HintCompleter``."""
        if self.name == "plan" and words and not {"-f", "--file"}.intersection(words):
            return ["-f", f"{words[0]}.plan"]
        is_resumed = self.name == "apply" and {"--resume", "--execute"}.issubset(words)
        if is_resumed and "--plan-digest" not in words and _DIGEST in context.meta:
            return ["--plan-digest", str(context.meta[_DIGEST])]
        return []


def remember_plan_digest(context: click.Context, digest: str) -> None:
    """Commands that go on with the plan in ZooKeeper are given the digest of the plan that the operator knows."""
    context.meta[_DIGEST] = digest


def next_command_lines(phase: Phase | None, steps: Sequence[str]) -> list[str]:
    """What is said of the commands that may come next; ``steps`` has the likeliest one first.

    A group that is switched has two, and both can wait: none of them is to be pasted at once.
    """
    if phase is Phase.SWITCHED and len(steps) > 1 and steps[0].startswith("zkconsumer migrate complete "):
        return [f"The way back: {steps[1]}", f"When the way back is not needed any more: {steps[0]}"]
    return [f"Next: {step}" for step in steps[:1]]


def migrate_command(context: click.Context, *words: str) -> str:
    """A command of ``migrate`` on the same cluster, as whoever was given."""
    return command_text(context, "migrate", *words)
