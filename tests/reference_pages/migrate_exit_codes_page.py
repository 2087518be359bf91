"""The page ``migration_docs/reference/migration-exit-codes.md``: the codes of ``zkconsumer migrate``.

The commands of a code come from the help texts, its errors from the classes.
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

A code shows whether anything was changed, and what comes next. The text on standard error contains the next command;
with `-o json` it is in `next_steps`, beside `exit_code` and `error`.

| code | meaning | what to do |
|---|---|---|
{codes}

After any code, `zkconsumer migrate status G` shows the phase of the group and changes nothing. What to check for each
code: [a cut-over stopped half-way](../how-to/continue-a-stopped-migration.md).

## Codes of each command

Every command can end with 1, 2 or 130, as all commands of `zkconsumer`. In addition, from its `--help`:

| command | codes |
|---|---|
{commands}

## Errors of a code

| code | errors |
|---|---|
{errors}

Every other error of [the list](errors.md) is code 1.
"""

EXIT_CODES: Mapping[int, tuple[str, str]] = {
    0: ("Shown, done, or nothing to do. From `plan`: the plan can be applied.", "The text has the next command."),
    ZkConsumerError.exit_code: (
        "A server did not answer (ZooKeeper while the command connects; without `--execute` also a broker. With "
        "`--execute` the run waits up to `--timeout` for brokers, and for a ZooKeeper that becomes unavailable later), "
        "the group does not exist, or a file cannot be written.",
        "Repair what the text names; then the same command. Earlier steps remain done.",
    ),
    UsageError.exit_code: ("An option or argument is wrong. Nothing was changed.", "Correct it: `--help`."),
    EXIT_DIFFERS: ("It would change something, and `--execute` is missing.", "Read the steps; then give `--execute`."),
    PreconditionFailed.exit_code: (
        "A precondition is not met, and nothing was changed: a refused or old plan, another migration or another run, "
        "access lists, znodes without permission to read, a program of `--hooks-dir` that cannot be run.",
        "Do what the text demands; then the same command.",
    ),
    EXIT_VERIFICATION: (
        "A value differs from what the migration wrote, or another client committed. The migration did not overwrite "
        "a foreign value.",
        "Find the client that writes; then `rollback`, or the same command again.",
    ),
    EXIT_PARTIAL: (
        "Part of it is done and remains done. Also in place of 2 or 4 after this run changed something, and when a "
        "program of `--hooks-dir` vetoed: the fences and the placeholder member remain.",
        "Repair what the text names; then the same command, on any machine: it reads the current state and continues. "
        "Or roll back.",
    ),
    EXIT_WAIT_TIMEOUT: (
        "Waited longer than `--timeout` before anything was changed: with `copy` for members of the coordinator group "
        "(a run waits for old members after it created the control znode: 6), with `dual` for Scala consumers.",
        "Stop the members that the text names; then the same command.",
    ),
    EXIT_INTERRUPTED: ("Ctrl-C, or a signal. The completed steps remain.", "The same command, or `rollback`."),
}
"""Code -> its meaning, and what to do."""


MIGRATION_ERRORS = [
    ZkReadNotAuthorized,
    PreconditionFailed,
    UsageError,
    *(kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__),
]
"""The errors of ``bridge.migration`` that end a command."""


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
    """Command -> the text after ``Exit codes:`` in its help."""
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
