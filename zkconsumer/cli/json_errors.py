"""The JSON document of a command that was called with ``-o json`` and ends with an error before it printed a document.

A program that reads standard output always receives a document: the command's own, or this one.
    {"schema": "zkconsumer/error/1", "error": sentences, "exit_code": code, "next_steps": commands}
"""

from __future__ import annotations

import json

import click

from zkconsumer.cli.command_hints import commands_in

SCHEMA = "zkconsumer/error/1"

_WANTED = "zkconsumer.cli.json_is_wanted"
_SHOWN = "zkconsumer.cli.json_was_shown"
_ERRORS = "zkconsumer.cli.errors"


def expect_json(context: click.Context) -> None:
    """Record that the command was called with ``-o json``."""
    context.meta[_WANTED] = True


def mark_json_printed() -> None:
    """Record that the command has printed a document."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_SHOWN] = True


def record_error(words: str) -> None:
    """Record the text of an error that was printed to standard error."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta.setdefault(_ERRORS, []).append(words)


def print_json_error(context: click.Context, exit_code: int) -> None:
    """Print the document of the recorded errors, if the command was called with ``-o json`` and has printed none."""
    errors: list[str] = context.meta.get(_ERRORS, [])
    if not errors or not context.meta.get(_WANTED) or context.meta.get(_SHOWN):
        return
    steps = [command for words in errors for command in commands_in(context, words)]
    report = {"schema": SCHEMA, "error": "\n".join(errors), "exit_code": exit_code, "next_steps": steps}
    click.echo(json.dumps(report, indent=2))
