"""What commands write to standard error: sentences, errors with one prefix, and log lines.

The commands that a sentence or an error names are completed, so that they can be pasted (``command_hints``).
"""

from __future__ import annotations

import logging
import sys

import click

from zkconsumer.cli.command_hints import complete_commands
from zkconsumer.cli.json_errors import record_error
from zkconsumer.cli.terminal import BAD, before_output, coloured

ERROR_PREFIX = "zkconsumer: "
"""Prefix of every error of every command, also of click's own errors."""

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def print_message(words: str) -> None:
    """Write a sentence for the user to standard error."""
    before_output()
    click.echo(printable(complete_commands(words)), err=True)


def print_error(words: str) -> None:
    """Write why the command ends with an exit code other than 0; may have several lines."""
    printed = "\n".join(map(printable, complete_commands(words).split("\n")))
    record_error(printed)
    before_output()
    click.echo(coloured(ERROR_PREFIX, BAD, sys.stderr) + printed, err=True)


def log_to_console(level: int = logging.WARNING) -> None:
    """Write log lines to standard error, with time, level and logger; of kazoo only errors."""
    logging.basicConfig(level=level, stream=sys.stderr, format=LOG_FORMAT)
    logging.getLogger("kazoo").setLevel(logging.ERROR)


def printable(text: str) -> str:
    """Escape control characters: text from znodes must not move the cursor."""
    return "".join(c if c.isprintable() else "?" for c in text)
