"""``batchRangesPath``: the file has the offsets that the batch covers, before any record of it is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the data source needs the extra [spark]")

from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.group_membership import CommitMode
from bridge.spark.options import read_options
from bridge.spark.source.batch_ranges_file import (
    StreamBatchRanges,
    add_skipped_offsets,
    is_stop_seen,
    read_batch_ranges,
    read_skipped_offsets,
    request_stop,
    write_batch_ranges,
)
from tests.fake_spark_group import FakeScalaMember
from tests.micro_batch_engine import AFTER_CLAIM
from tests.unit.spark.test_spark_stream import A, B, Query
from zkconsumer.errors import PreconditionFailed, UsageError

QUERY, OTHER = "0" * 32, "1" * 32
MODES = list(CommitMode)


def ranges(batch: int = 3, query: str = QUERY) -> StreamBatchRanges:
    return StreamBatchRanges("g", query, batch, "claim", (OffsetRange(A, 5, 9), OffsetRange(B, 0, 1)), 2)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert read_batch_ranges(tmp_path / "later") is None
    write_batch_ranges(tmp_path / "later", ranges())
    assert read_batch_ranges(tmp_path / "later") == ranges()


def test_the_newest_batch_is_read_and_two_are_kept(tmp_path: Path) -> None:
    for batch in (8, 9, 10, 11):
        write_batch_ranges(tmp_path, ranges(batch))
    assert read_batch_ranges(tmp_path) == ranges(11)
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"{QUERY}-10.json", f"{QUERY}-11.json"]


def test_a_folder_of_two_queries_is_refused(tmp_path: Path) -> None:
    write_batch_ranges(tmp_path, ranges())
    write_batch_ranges(tmp_path, ranges(query=OTHER))
    with pytest.raises(PreconditionFailed, match="two queries have written their batch ranges here; give each query"):
        read_batch_ranges(tmp_path)


def test_a_folder_that_cannot_be_written_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"batchRangesPath=.*file: .*; give a folder on the driver"):
        write_batch_ranges(tmp_path / "file", ranges())


def change(**members: object) -> str:
    whole = {
        "version": 1, "group": "g", "query": QUERY, "batch": 3, "commit": "claim", "skipped_offsets": 0, "ranges": [],
    }  # fmt: skip
    return json.dumps(whole | members)


@pytest.mark.parametrize(
    "text",
    ["", "{", change(version=2), change(extra=1), change(ranges=[["t", 0, 5]]), change(ranges=[["t", 0, 5, 4]]),
     change(ranges=[["t", -1, 0, 4]]), change(batch=-1), "\xff"],
)  # fmt: skip
def test_a_damaged_file_is_an_error_that_says_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / f"{QUERY}-3.json").write_text(text, "latin-1")
    with pytest.raises(PreconditionFailed, match="remove the file and start the query again"):
        read_batch_ranges(tmp_path)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("x")
    write_batch_ranges(tmp_path, ranges())
    assert read_batch_ranges(tmp_path) == ranges()
    assert (tmp_path / "notes.json").exists()


# --- a stream -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_writes_the_ranges_before_it_reads(mode: CommitMode, tmp_path: Path) -> None:
    skips = '{"t": {"0": [[3, 6]]}}'
    query = Query(group__offsets__commit=mode.value, batchRangesPath=str(tmp_path), skipOffsets=skips)
    for point in query.start().trigger():
        if point == AFTER_CLAIM:
            break
    assert query.rows == []
    found = read_batch_ranges(tmp_path)
    assert found is not None
    assert (found.ranges, found.skipped_offsets) == ((OffsetRange(A, 0, 10), OffsetRange(B, 0, 10)), 3)
    assert (found.batch, found.commit_mode) == (0, mode.value)
    (file,) = tmp_path.iterdir()
    written = file.read_text()
    file.unlink()
    query.start().run()  # the same batch again, and one that counts what was skipped
    assert file.read_text() == written
    query.logs.append(B, 5)
    query.start().run()
    later = read_batch_ranges(tmp_path)
    assert later is not None
    assert later.batch > found.batch
    assert later.ranges == (OffsetRange(B, 10, 15),)


def test_a_range_whose_claim_was_refused_is_not_in_the_file(tmp_path: Path) -> None:
    query = Query(group__offsets__commit="claim", batchRangesPath=str(tmp_path))
    peer = FakeScalaMember(query.group, "peer")
    trigger = query.start().trigger()
    next(trigger)
    query.group.assign({A: "peer"})
    query.group.remove_member("query")
    peer.read(query.logs, 10)
    query.start().run()
    read = {row[0] for row in query.rows}
    found = read_batch_ranges(tmp_path)
    assert A not in read
    assert found is not None
    assert {each.tp for each in found.ranges} == read - {A}


def test_the_option_is_for_streams() -> None:
    given = {"zookeeper.connect": "zk:1", "group.id": "g", "subscribe": "t", "batchRangesPath": "/x"}
    assert read_options(given, is_stream=True).batch_ranges_path == "/x"
    assert "batchrangespath" in str(read_options(given, is_stream=False).warnings).lower()


def test_offsets_that_the_program_skips_are_counted_once_in_the_progress(tmp_path: Path) -> None:
    query = Query(batchRangesPath=str(tmp_path), skipOffsets='{"t": {"1": [[0, 1]]}}')
    engine = query.start()
    for _ in engine.trigger():
        pass
    found = read_batch_ranges(tmp_path)
    assert found is not None
    add_skipped_offsets(tmp_path, found, 3)
    for _ in range(3):
        query.logs.append(A, 5)
        engine.run()
    assert engine.last_planned_offset()["s"]["skippedOffsets"] == 1 + 3


def test_the_file_of_another_batch_counts_nothing(tmp_path: Path) -> None:
    write_batch_ranges(tmp_path, ranges(3))
    assert read_skipped_offsets(tmp_path, QUERY, 3, 7) == 2
    assert read_skipped_offsets(tmp_path, QUERY, 4, 7) == 7
    assert read_skipped_offsets(tmp_path, OTHER, 3, 7) == 7
    assert read_skipped_offsets(tmp_path / "none", QUERY, 3, 7) == 7


def test_after_a_request_to_stop_no_batch_is_planned(tmp_path: Path) -> None:
    query = Query(batchRangesPath=str(tmp_path / "ranges"))
    engine = query.start()
    engine.run()
    read = len(query.rows)
    request_stop(tmp_path / "ranges")
    query.logs.append(A, 50)
    assert not is_stop_seen(tmp_path / "ranges"), "a batch may run"
    engine.run()
    assert len(query.rows) == read == 20
    assert is_stop_seen(tmp_path / "ranges")
