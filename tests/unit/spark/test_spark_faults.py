"""The hook of crash tests: nothing unless it is told to, and then exactly there."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.spark.source.fault_injection import (
    AFTER_CLAIM,
    AFTER_COMMIT_LOG,
    AFTER_WAL,
    FAULT,
    FAULT_FILE,
    FILE_POLL_MS,
    WAIT_MS,
    fault_point_of,
)
from zkconsumer.errors import UsageError


def reach(fault: str | None, file: Path | None, group: str, point: str, batch: int) -> int:
    """For how many ms it waited there."""
    environment = {FAULT: fault or "", FAULT_FILE: str(file or "")}
    waited: list[int] = []
    fault_point_of(group, environment).reached(point, batch, waited.append)
    return sum(waited)


def test_without_both_variables_nothing_happens(tmp_path: Path) -> None:
    assert reach(None, tmp_path, "g", AFTER_WAL, 0) == 0
    assert reach("nonsense", None, "g", AFTER_WAL, 0) == 0
    assert list(tmp_path.iterdir()) == []


def test_only_the_named_point_and_batch_stop_and_not_for_ever(tmp_path: Path) -> None:
    file = tmp_path / "here"
    assert reach("after_claim:2", file, "g", AFTER_WAL, 2) == 0
    assert reach("after_claim:2", file, "g", AFTER_CLAIM, 1) == 0
    assert not file.exists()
    assert reach("after_claim:2", file, "g", AFTER_CLAIM, 2) == WAIT_MS
    assert file.exists()


def test_in_a_folder_each_group_has_a_file_and_may_have_a_point_of_its_own(tmp_path: Path) -> None:
    fault = "g=after_wal:0,h=after_commitlog:1"
    assert reach(fault, tmp_path, "g", AFTER_COMMIT_LOG, 1) == 0
    assert reach(fault, tmp_path, "other", AFTER_WAL, 0) == 0
    assert reach(fault, tmp_path, "g", AFTER_WAL, 0) == reach(fault, tmp_path, "h", AFTER_COMMIT_LOG, 1) == WAIT_MS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "h"]


def test_it_goes_on_when_the_file_is_deleted(tmp_path: Path) -> None:
    file = tmp_path / "here"
    waited: list[int] = []

    def pause(duration_ms: int) -> None:
        waited.append(duration_ms)
        if len(waited) == 3:
            file.unlink()

    fault_point_of("g", {FAULT: "after_wal:0", FAULT_FILE: str(file)}).reached(AFTER_WAL, 0, pause)
    assert waited == [FILE_POLL_MS] * 3


@pytest.mark.parametrize("wrong", ["before_wal:0", "after_wal", "after_wal:x", "g=", "after_sink:1"])
def test_a_fault_that_nobody_knows_is_refused(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="POINT:BATCH"):
        reach(wrong, tmp_path, "g", AFTER_WAL, 0)
