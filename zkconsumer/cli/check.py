"""``zkconsumer check``: checks histories of a group under test.

Exit codes: 0 no finding, 5 findings, 2 a history cannot be read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NoReturn

import click

from zkconsumer.cli.console import print_error
from zkconsumer.testing.checker import (
    HistoryError,
    StateSnapshot,
    Verdict,
    check_history,
    end_state,
    read_history,
    render_text,
)

EXIT_FINDINGS = 5
EXIT_UNREADABLE = 2


@click.command(name="check")
@click.argument(
    "histories",
    metavar="HISTORY...",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    nargs=-1,
    required=True,
)
@click.option(
    "--reference",
    "reference",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The history of the same migration without a killed process: each HISTORY must end like it or be rolled back.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The output format.",
)
@click.pass_context
def check(
    context: click.Context, histories: tuple[str, ...], reference: Path | None, output: Literal["text", "json"]
) -> None:
    """Check each HISTORY of a group under test (JSON lines; - reads from standard input).

    Reports records that were lost, skipped, repeated without a reason, or delivered by two members, and offsets that
    were committed too far; for a group that was migrated, the broken promises of the migration (M1 to M6). Shows for
    each finding the lines of the history that prove it. Exit codes: 0 no finding, 5 findings, 2 a history cannot be
    read.
    """
    as_if = None if reference is None else _end_of(context, reference)
    verdicts = [(name, _check_history(context, name, as_if)) for name in histories]
    if output == "json":
        shown: list[dict[str, Any]] = [verdict.to_json() for _, verdict in verdicts]
        if len(shown) > 1:
            shown = [{"history": name, **verdict} for (name, _), verdict in zip(verdicts, shown, strict=True)]
        click.echo(json.dumps(shown if len(shown) > 1 else shown[0], indent=2, ensure_ascii=False))
    else:
        for name, verdict in verdicts:
            if len(verdicts) > 1:
                click.echo(f"== {name}")
            for line in render_text(verdict):
                click.echo(line)
    context.exit(0 if all(verdict.ok for _, verdict in verdicts) else EXIT_FINDINGS)


def _check_history(context: click.Context, name: str, as_if: StateSnapshot | None) -> Verdict:
    try:
        with click.open_file(name, "rb") as history:
            return check_history(read_history(history), expected_end=as_if)
    except (HistoryError, OSError) as problem:
        _exit_unreadable(context, "standard input" if name == "-" else name, str(problem))


def _end_of(context: click.Context, reference: Path) -> StateSnapshot:
    try:
        found = end_state(read_history(reference))
    except (HistoryError, OSError) as problem:
        _exit_unreadable(context, str(reference), str(problem))
    if found is None:
        _exit_unreadable(context, str(reference), "no state line says what there was in the end")
    return found


def _exit_unreadable(context: click.Context, name: str, problem: str) -> NoReturn:
    print_error(f"{name}: {problem}")
    context.exit(EXIT_UNREADABLE)
