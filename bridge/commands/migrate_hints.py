"""Completes ``migrate`` commands in hints with the options that ``hints`` does not copy from this command."""

from __future__ import annotations

from collections.abc import Sequence

import click

from bridge.migration.control.phases import Phase
from zkconsumer.cli.command_hints import command_text

_DIGEST = "bridge.commands.plan_digest"
"""Key in ``click.Context.meta``: the digest of the plan that the operator gave or confirmed, for the next commands."""


class MigrateCommand(click.Command):
    """A command of ``migrate``: its hints name the file of ``plan``, and the confirmed digest of ``apply --resume``."""

    def complete_hint(self, context: click.Context, words: list[str], carried: set[str]) -> list[str]:
        """See ``hints.HintCompleter``."""
        if self.name == "plan" and words and not {"-f", "--file"}.intersection(words):
            return ["-f", f"{words[0]}.plan"]
        is_resumed = self.name == "apply" and {"--resume", "--execute"}.issubset(words)
        if is_resumed and "--plan-digest" not in words and _DIGEST in context.meta:
            return ["--plan-digest", str(context.meta[_DIGEST])]
        return []


def remember_plan_digest(context: click.Context, digest: str) -> None:
    """Store the digest of the operator's plan, for commands that continue with the plan in ZooKeeper."""
    context.meta[_DIGEST] = digest


def next_command_lines(phase: Phase | None, steps: Sequence[str]) -> list[str]:
    """The lines about the next commands; ``steps`` has the most likely one first.

    A switched group has two, and neither is urgent, so no line invites the operator to run one at once.
    """
    if phase is Phase.SWITCHED and len(steps) > 1 and steps[0].startswith("zkconsumer migrate complete "):
        return [f"To roll back: {steps[1]}", f"When no rollback is needed any more: {steps[0]}"]
    return [f"Next: {step}" for step in steps[:1]]


def migrate_command(context: click.Context, *words: str) -> str:
    """A command of ``migrate`` with the cluster and login options of this command."""
    return command_text(context, "migrate", *words)
