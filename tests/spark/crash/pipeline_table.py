"""The table of the crashes of pipelines, from the results of runs.

ZKC_PIPELINE_CRASH_RESULTS=/tmp/results.jsonl pytest -m nightly tests/spark/crash/test_pipeline_crash_matrix.py
python -m tests.spark.crash.pipeline_table /tmp/results.jsonl
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.spark.crash.pipeline_cases import COMMANDS, FAULTS, POINTS_OF, SINKS

DONE = {"kill": "killed", "stop": "stopped"}


def pipeline_table(results: Iterable[dict[str, Any]]) -> str:
    """A row a command and point, a column a sink: how many crashes, and what was lost or there twice."""
    cells: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        cells[result["command"], result["point"], result["sink"]].append(result)
    lines = ["| command, point | " + " | ".join(SINKS) + " |", "|---" * (len(SINKS) + 1) + "|"]
    for command in COMMANDS:
        for point in POINTS_OF[command]:
            found = [cells[command, point, sink] for sink in SINKS]
            if any(found):
                lines.append(f"| {command}, {point} | " + " | ".join(map(_cell, found)) + " |")
    return "\n".join(lines)


def _cell(found: list[dict[str, Any]]) -> str:
    if not found:
        return ""
    faults = Counter(result["fault"] for result in found)
    done = ", ".join(f"{faults[fault]} {DONE[fault]}" for fault in FAULTS if faults[fault])
    lost, twice = (sum(result[name] for result in found) for name in ("lost", "twice"))
    wrong = sum(bool(result["findings"]) for result in found)
    return f"{done}: lost {lost}, twice {twice}" + (f", WRONG {wrong}" if wrong else "")


def main() -> None:
    """Print the table, and what was wrong."""
    results = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    print(pipeline_table(results))
    print(f"{len(results)} crashes")
    for result in results:
        for finding in result["findings"]:
            print(f"{result['text']}: {finding}", file=sys.stderr)


if __name__ == "__main__":
    main()
