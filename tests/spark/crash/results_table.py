"""The table of ``migration_docs/explanation/spark-guarantees.md`` from the results of runs.

ZKC_CRASH_RESULTS=/tmp/results.jsonl pytest -m nightly tests/spark/crash/test_crash_matrix.py
python -m tests.spark.crash.results_table /tmp/results.jsonl
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.spark.crash.crash_cases import MODES, POINTS

MEANING = {
    "after_wal": "after Spark has logged a batch, before its ranges are claimed",
    "after_claim": "after the claim, before anything is read",
    "after_sink": "after the sink was written, before Spark's commit log",
    "after_commitlog": "after the commit log, before the group's offsets are written",
    "random": "at any time",
}


def table(results: list[dict[str, Any]]) -> str:
    """A row a point, two columns a mode: how many crashes, and what was in the sink and with a member."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        cells[result["point"], result["mode"]].append(result)
    lines = ["| all processes of Spark die | " + " | ".join(f"`{mode}`" for mode in MODES) + " |"]
    lines.append("|---" * (len(MODES) + 1) + "|")
    for point in POINTS:
        words = []
        for mode in MODES:
            found = cells[point, mode]
            lost = sum(result["missing"] for result in found)
            some = sorted(result["overlap"] for result in found if result["overlap"])
            most = max((result["overlap_of_a_partition"] for result in found), default=0)
            both = f"in {len(some)} of {len(found)}, up to {most} records of a partition" if some else "0"
            words.append(f"{len(found)} crash{'' if len(found) == 1 else 'es'}: lost {lost}, twice {both}")
        lines.append(f"| {MEANING[point]} | " + " | ".join(words) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table, and what was wrong."""
    results = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    print(table(results))
    for result in results:
        for finding in result["findings"]:
            print(f"seed {result['seed']}: {finding}", file=sys.stderr)


if __name__ == "__main__":
    main()
