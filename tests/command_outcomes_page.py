"""The page ``migration_docs/reference/command-outcomes.md``, from what ``tests.commands.record_outcomes`` recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent / "data" / "command-outcomes.json"

HEAD = """\
# How commands end when something is missing

<!-- Generated: python tests/generate_docs.py --write -->

Every command that reaches a cluster, in seven situations; recorded with `python -m tests.commands.record_outcomes` on
servers in memory, and held by `tests/commands`. *No right*: ZooKeeper does not let us read the nodes of the group. A
cell is the exit code; `-`: the situation means nothing for the command. *Brokers alone*: called with
`--bootstrap-server`, else with `--zookeeper`. Commands that change something are called without `--execute`.

What is not known is never shown as empty, zero or absent. Where a server that is needed does not answer, a command
ends with an error, and what it shows of the rest has `?` (null in JSON, with `not_known` or `error`) in the place of
what is not known. With `-o json` a command that ends with an error before it has shown anything prints a document with
`schema` zkconsumer/error/1, `error`, `exit_code` and `next_steps`.

| code | what it says |
|---|---|
| 0 | done, shown, or nothing to do |
| 1 | a server does not answer, there is no such group or topic, or not everything could be learnt |
| 2 | the call is wrong |
| 3 | something was found, differs, or would be changed with `--execute` |
| 4 | refused: what must hold does not hold, or the right is missing; nothing was changed |

Commands that reach no cluster are not here: `assign`, `check`, `demo`, `health` (4: no member answers), `sandbox` (1:
a part does not answer, 3: none is up), and `broker`. `migrate restore` asks ZooKeeper alone: 1 where it is away.
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
    lines += ["", "## What they say", "", "The first error of each cell; ports and folders have names here.", ""]
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
