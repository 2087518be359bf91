"""The page ``migration_docs/reference/migration-exit-codes.md``: the codes of ``zkconsumer migrate``.

The commands and the errors of a code are found where they are: in the help texts, and in the classes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module

import click

from bridge.commands.migrate import MIGRATE_COMMANDS
from bridge.migration import errors
from bridge.migration.errors import EXIT_PARTIAL, EXIT_VERIFICATION, EXIT_WAIT_TIMEOUT
from zkconsumer.cli.common import EXIT_DIFFERS
from zkconsumer.cli.main import EXIT_INTERRUPTED
from zkconsumer.errors import PreconditionFailed, UsageError, ZkConsumerError, ZkReadNotAuthorized

_PAGE = """\
# Exit codes of zkconsumer migrate

<!-- Generated: python tests/generate_docs.py --write -->

What a script, or whoever is woken by one, needs to know: whether anything was changed, and what comes next. The text on
standard error names the very command; with `-o json` it is in `next_steps`, beside `exit_code` and `error`.

| code | what it says | what to do |
|---|---|---|
{codes}

Whatever the code, `zkconsumer migrate status G` changes nothing and says where the group stands. What to look at, code
by code: [a cut-over stopped half-way](../how-to/a-cut-over-stopped-half-way.md).

## Which command ends how

Every one ends with 1, 2 or 130 where that is due, as all of `zkconsumer` does. Beyond that, as its `--help` has it:

| command | codes of its own |
|---|---|
{commands}

## Errors of a code

| code | errors |
|---|---|
{errors}

Every other error of [the list](errors.md) is code 1.
"""

EXIT_CODES: Mapping[int, tuple[str, str]] = {
    0: ("Shown, done, or nothing to do. Of `plan`: it can be applied.", "The text has the next command."),
    ZkConsumerError.exit_code: (
        "A server did not answer (ZooKeeper while the command connects; without `--execute` brokers, too: with it, "
        "they and a ZooKeeper that goes away later are waited for, `--timeout` long), there is no such group, or a "
        "file cannot be written.",
        "See to what the text names; then the same command. Whatever was done before stands.",
    ),
    UsageError.exit_code: ("The call is wrong. Nothing was changed.", "Correct it: `--help`."),
    EXIT_DIFFERS: ("It would change something, and `--execute` is missing.", "Read the steps; then give `--execute`."),
    PreconditionFailed.exit_code: (
        "Something stops it, and nothing was changed: a refused or old plan, another migration or another run, access "
        "lists, znodes that may not be read, a program of `--hooks-dir` that cannot be run.",
        "Do what the text says; then the same command.",
    ),
    EXIT_VERIFICATION: (
        "What was written is not what is there, or somebody else committed. Nothing of theirs was written over.",
        "Find out who writes; then `rollback`, or the same command again.",
    ),
    EXIT_PARTIAL: (
        "Part of it is done, and what is done stands. Also whatever would be 2 or 4, once this run has changed "
        "something, and a program of `--hooks-dir` that vetoed: the fences and the seat stand.",
        "See to what the text names; then the same command, on any machine: it looks at what is there, and goes on. Or "
        "roll back.",
    ),
    EXIT_WAIT_TIMEOUT: (
        "Waited longer than `--timeout` before anything was changed: with `copy` for members of the modern group (old "
        "ones are waited for when the control znode is there: 6), with `dual` for original members.",
        "See to whom the text names; then the same command.",
    ),
    EXIT_INTERRUPTED: ("Ctrl-C, or a signal. What is done stands.", "The same command, or `rollback`."),
}
"""Code -> what it says, and what to do."""


MIGRATION_ERRORS = [
    ZkReadNotAuthorized,
    PreconditionFailed,
    UsageError,
    *(kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__),
]
"""What ``bridge.migration`` ends a command with."""


def render() -> str:
    """The whole page."""
    return _PAGE.format(
        codes="\n".join(f"| {code} | {what} | {then} |" for code, (what, then) in EXIT_CODES.items()),
        commands="\n".join(
            f"| `zkconsumer migrate {name}` | {words} |" for name, words in sorted(exit_code_texts().items())
        ),
        errors="\n".join(f"| {code} | {', '.join(names)} |" for code in EXIT_CODES if (names := _names(code))),
    )


def exit_code_texts() -> dict[str, str]:
    """Command -> what its help says behind ``Exit codes:``."""
    found = {}
    for name, where in MIGRATE_COMMANDS.items():
        module, _, attribute = where.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        words = re.search(r"(?s)Exit codes: (.*)\.", command.help or "")
        found[name] = "" if words is None else " ".join(words[1].split())
    return found


def _names(code: int) -> list[str]:
    kinds = {kind for kind in MIGRATION_ERRORS if issubclass(kind, ZkConsumerError) and kind.exit_code == code}
    return sorted(f"`{kind.__name__}`" for kind in kinds)
