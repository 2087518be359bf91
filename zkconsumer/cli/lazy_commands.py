"""A group of commands, some of which are loaded when they are called; for a misspelled name it suggests one.

Plug-ins can add commands to a group (``plugin_commands``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from zkconsumer.cli.plugin_commands import load_plugin, plugins

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SHORT_HELP_CHARS_MAX = 200
"""Limit for a command's text in the list; click's own limit cuts sentences in the middle."""


class LazyGroup(click.Group):
    """``lazy_commands``: name -> ``module:attribute`` of a click command.  They follow the others.

    ``plugin_parent``: the name under which plug-ins add commands; they come last.
    """

    def __init__(
        self,
        *args: Any,
        lazy_commands: Mapping[str, str] | None = None,
        plugin_parent: str | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self._later = dict(lazy_commands or {})
        self._plugin_parent = plugin_parent

    def list_commands(self, ctx: click.Context) -> list[str]:
        own = [*super().list_commands(ctx), *self._later]
        return [*own, *sorted(name for name in self._plugins() if name not in own)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._later:
            return load_command(self._later[cmd_name])
        own = super().get_command(ctx, cmd_name)
        plug_in = None if own is not None else self._plugins().get(cmd_name)
        return own if plug_in is None else load_plugin(plug_in)

    def _plugins(self) -> Mapping[str, EntryPoint]:
        return {} if self._plugin_parent is None else plugins(self._plugin_parent)

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
