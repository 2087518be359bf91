"""``migrate`` commands in hints: what they need besides what ``hints`` carries over."""

from __future__ import annotations

import click

from zkconsumer.cli.hints import hint

_DIGEST = "bridge.commands.plan_digest"
"""Where a context keeps the digest of the plan that the operator gave or confirmed, for the commands that come next."""


class MigrateCommand(click.Command):
    """A command of ``migrate``: ``plan`` is named with a file, ``apply --resume`` with the digest that is confirmed."""

    def complete_hint(self, context: click.Context, words: list[str], carried: set[str]) -> list[str]:
        """See ``hints.CompletesHints``."""
        if self.name == "plan" and words and not {"-f", "--file"}.intersection(words):
            return ["-f", f"{words[0]}.plan"]
        is_resumed = self.name == "apply" and {"--resume", "--execute"}.issubset(words)
        if is_resumed and "--plan-digest" not in words and _DIGEST in context.meta:
            return ["--plan-digest", str(context.meta[_DIGEST])]
        return []


def confirmed_here(context: click.Context, digest: str) -> None:
    """Commands that go on with the plan in ZooKeeper are given the digest of the plan that the operator knows."""
    context.meta[_DIGEST] = digest


def command_words(context: click.Context, *words: str) -> str:
    """A command of ``migrate`` on the same cluster, as whoever was given."""
    return hint(context, "migrate", *words)
