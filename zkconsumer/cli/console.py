"""What commands write to standard error: sentences, errors with one prefix, and log lines.

The commands that a sentence or an error names are completed, so that they can be pasted (``hints``).
"""

from __future__ import annotations

import logging
import sys

import click

from zkconsumer.cli.command_hints import complete_commands
from zkconsumer.cli.json_errors import record_error

ERROR_PREFIX = "zkconsumer: "
"""In front of every error of every command, click's own among them."""

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def print_message(words: str) -> None:
    """A sentence for the person, on standard error."""
    click.echo(printable(complete_commands(words)), err=True)


def print_error(words: str) -> None:
    """Why the command ends with an exit code other than 0; may have several lines."""
    said = "\n".join(map(printable, complete_commands(words).split("\n")))
    record_error(said)
    click.echo(ERROR_PREFIX + said, err=True)


def log_to_console(level: int = logging.WARNING) -> None:
    """Log lines go to standard error, with time, level and logger; those of kazoo only where they are errors."""
    logging.basicConfig(level=level, stream=sys.stderr, format=LOG_FORMAT)
    logging.getLogger("kazoo").setLevel(logging.ERROR)


def printable(text: str) -> str:
    """What others wrote into a znode must not move the cursor."""
    return "".join(c if c.isprintable() else "?" for c in text)
