"""What ``zkconsumer`` without arguments shows: the five commands that one needs first."""

from __future__ import annotations

import click

FIRST_COMMANDS = (
    ("zkconsumer demo", "two members, a rebalance and a crash, without a server"),
    ("zkconsumer groups list --zookeeper HOST:2181/chroot", "which groups there are"),
    ("zkconsumer lag GROUP --zookeeper HOST:2181/chroot", "how far a group is behind, in records and seconds"),
    ("zkconsumer groups doctor GROUP --zookeeper HOST:2181/chroot", "what is wrong with a group, and what to do"),
    ("zkconsumer consume --group GROUP --topic TOPIC --zookeeper HOST:2181/chroot", "reads as a member of a group"),
)
ALL_COMMANDS = "zkconsumer --help"


def first_commands_text() -> str:
    """Return the commands with what each does, and how to see all commands."""
    lines = [line for command, what in FIRST_COMMANDS for line in (f"  {command}", f"      {what}")]
    first = "Start with one of these commands; only consume changes offsets:"
    return "\n".join([first, *lines, f"All commands: {ALL_COMMANDS}"])


def print_first_commands() -> None:
    """Write the text to standard error."""
    click.echo(first_commands_text(), err=True)
