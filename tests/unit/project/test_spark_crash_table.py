"""The table of crashes on the page about guarantees, made from results."""

from __future__ import annotations

from typing import Any

from tests.spark.crash.results_table import table


def result(point: str, mode: str, overlap: int = 0) -> dict[str, Any]:
    return {"point": point, "mode": mode, "missing": 0, "overlap": overlap, "overlap_of_a_partition": overlap}


def test_one_crash_is_a_crash_and_none_or_two_are_crashes() -> None:
    rows = table([result("after_sink", "claim"), *[result("after_sink", "afterBatch", n) for n in (0, 30)]])
    [row] = [row for row in rows.splitlines() if row.startswith("| after the sink was written")]
    assert "| 1 crash: lost 0, twice 0 |" in row
    assert "| 2 crashes: lost 0, twice in 1 of 2, up to 30 records of a partition |" in row
    [row] = [row for row in rows.splitlines() if row.startswith("| at any time")]
    assert row.count("| 0 crashes: lost 0, twice 0 ") == 2
