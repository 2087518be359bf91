"""The page ``migration_docs/reference/command-outcomes.md``, from the file of ``tests.commands.record_outcomes``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "data" / "command-outcomes.json"

HEAD = """\
# How commands end when something is missing

<!-- Generated: python tests/generate_docs.py --write -->

The exit code and the error of every command that connects to a cluster, in seven situations. `python -m
tests.commands.record_outcomes` records them with servers in memory, and `tests/commands` compares them.

A cell is the exit code; `-`: the situation is not possible for the command. *No right*: ZooKeeper does not let us read
the nodes of the group. *Brokers alone*: called with `--bootstrap-server`, else with `--zookeeper`. Commands that change
something are called without `--execute`.

A command never shows an unknown value as empty, zero or absent. If a required server does not answer, the command
ends with an error, and shows `?` for each unknown value (null in JSON, with `not_known` or `error`). With `-o json` a
command that ends with an error before it has shown anything prints a document with `schema` zkconsumer/error/1,
`error`, `exit_code` and `next_steps`.

| code | meaning |
|---|---|
| 0 | done, shown, or nothing to do |
| 1 | a server does not answer, the group or topic does not exist, or something could not be read |
| 2 | the options or arguments are wrong |
| 3 | something was found, differs, or would be changed with `--execute` |
| 4 | refused: a precondition is not met, or the right is missing; nothing was changed |

This page does not contain commands that connect to no cluster: `assign`, `check`, `demo`, `health` (4: no member
answers), `sandbox` (1: a part does not answer, 3: none is running), and `broker`, nor `web`, which
serves until a signal and shows what is unknown on its page. `migrate restore` reads only
ZooKeeper: 1 if it is not available.
"""


def render() -> str:
    """The whole page."""
    recorded: dict[str, dict[str, dict[str, Any]]] = json.loads(FILE.read_text("utf-8"))
    situations = list(dict.fromkeys(situation for row in recorded.values() for situation in row))
    order = ["no broker", "one of two brokers away", "ZooKeeper away", "unknown host", "no such group", "no such topic"]
    situations.sort(key=lambda one: order.index(one) if one in order else len(order))
    lines = [HEAD, f"| command | {' | '.join(situations)} |", f"|---|{'---|' * len(situations)}"]
    for name, row in recorded.items():
        codes = " | ".join(_cell(row.get(situation)) for situation in situations)
        lines.append(f"| {_named(name)} | {codes} |")
    lines += ["", "## Error texts", "", "The first error of each cell; ports and folders are replaced by names.", ""]
    lines += ["| command | situation | shows something | error |", "|---|---|---|---|"]
    for name, row in recorded.items():
        for situation, cell in row.items():
            if cell["errors"]:
                shows = "yes" if cell["shows"] else "no"
                lines.append(f"| {_named(name)} | {situation} | {shows} | {_text(cell['errors'][0])} |")
    return "\n".join(lines) + "\n"


def _cell(cell: dict[str, Any] | None) -> str:
    return "-" if cell is None else str(cell["exit_code"])


def _named(name: str) -> str:
    words, alone, _ = name.partition(", brokers alone")
    return f"`{words}`{alone}"


def _text(error: str) -> str:
    return error.removeprefix("zkconsumer: ").replace("|", "\\|")
