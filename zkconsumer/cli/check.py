"""``zkconsumer check``: judge the history of a group under test.

Exit codes: 0 nothing is wrong, 5 findings, 2 the history cannot be read.
"""

from __future__ import annotations

import json
from typing import BinaryIO, Literal

import click

from zkconsumer.testing.checker import HistoryError, judge, read_history, render_text

EXIT_FINDINGS = 5
EXIT_UNREADABLE = 2


@click.command(name="check")
@click.argument("history", type=click.File("rb"))
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print it."
)
@click.pass_context
def check(context: click.Context, history: BinaryIO, output: Literal["text", "json"]) -> None:
    """Judge a HISTORY of a group under test (JSON lines; - reads from standard input).

    Says which records were lost, skipped, repeated without a reason, handed out by two members or stored too far,
    with the lines of the history that show it.  Exits with 0 when nothing is wrong, 5 with findings, 2 when the
    history cannot be read.
    """
    try:
        verdict = judge(read_history(history))
    except (HistoryError, OSError) as problem:
        click.echo(f"{history.name}: {problem}", err=True)
        context.exit(EXIT_UNREADABLE)
    if output == "json":
        click.echo(json.dumps(verdict.to_json(), indent=2, ensure_ascii=False))
    else:
        for line in render_text(verdict):
            click.echo(line)
    context.exit(0 if verdict.ok else EXIT_FINDINGS)
