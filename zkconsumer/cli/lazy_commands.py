"""A group of commands, some of which are loaded when they are called; for a misspelled name it suggests one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

SHORT_HELP_CHARS_MAX = 200
"""Limit for a command's text in the list; click's own limit cuts sentences in the middle."""


class LazyGroup(click.Group):
    """``lazy_commands``: name -> ``module:attribute`` of a click command.  They follow the others."""

    def __init__(self, *args: Any, lazy_commands: Mapping[str, str] | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._later = dict(lazy_commands or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *self._later]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load_command(self._later[cmd_name]) if cmd_name in self._later else super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.described(ctx)))

    def described(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        """Yield each command with its whole first sentence, on as many lines as needed."""
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            assert command is not None, "it is in the list"
            yield name, command.get_short_help_str(SHORT_HELP_CHARS_MAX)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            near = get_close_matches(name, known, 1)
            ctx.fail(f"There is no command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)


def load_command(target: str) -> click.Command:
    """The click command that ``module:attribute`` names."""
    module, _, attribute = target.partition(":")
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command), f"{target} is no click command"
    return command
