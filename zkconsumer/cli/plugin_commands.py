"""Commands of other distributions: entry points of the group ``zkconsumer.commands``.

The name of an entry point is the name of the command; ``groups.top`` is a command of ``zkconsumer groups``.  Its value
is ``module:attribute`` of a click command.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

import click

from zkconsumer.errors import UsageError

PLUGIN_ENTRY_POINTS = "zkconsumer.commands"


def plugins(parent: str = "") -> dict[str, EntryPoint]:
    """Name -> entry point of the plug-in commands of ``parent``; "": those of ``zkconsumer`` itself."""
    found = {entry.name.rpartition(".")[::2]: entry for entry in _entries()}
    return {name: entry for (its_parent, name), entry in found.items() if its_parent == parent}


@cache
def _entries() -> tuple[EntryPoint, ...]:
    """Read once: it opens a file of each package that is installed, and a command asks several times."""
    return tuple(entry_points(group=PLUGIN_ENTRY_POINTS))


def load_plugin(plug_in: EntryPoint) -> click.Command:
    """Load the command of a plug-in.  Raises ``UsageError``: a broken plug-in must not disable the others."""
    try:
        command = plug_in.load()
    except Exception as error:
        raise UsageError(f"the plug-in {plug_in.value} cannot be loaded: {error}") from error
    if not isinstance(command, click.Command):
        raise UsageError(f"the plug-in {plug_in.value} is not a click command")
    return command
