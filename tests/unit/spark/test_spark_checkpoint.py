"""What is read of a checkpoint, and what is refused; the bytes are those that Spark 4.3 wrote."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.spark.handoff.checkpoint_files import BadCheckpoint, read_checkpoint
from tests.spark_checkpoint_files import METADATA, QUERY, CheckpointFolder, envelope, kafka
from zkconsumer.types import TopicPartition

P0, P1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)

COMMIT_OF_SPARK = b'v1\n{"nextBatchWatermarkMs":0}'
COMMIT_CRC_OF_SPARK = base64.b64decode("Y3JjAAAAAgDzKr/d")


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "checkpoint")


def refuses(folder: CheckpointFolder, words: str) -> None:
    with pytest.raises(BadCheckpoint, match=words):
        read_checkpoint(folder.root)


def test_the_last_batch_in_both_logs_is_done_and_what_is_behind_it_is_pending(folder: CheckpointFolder) -> None:
    folder.done(0, envelope(0, {0: 0}, {0: 5}))
    folder.done(1, envelope(1, {0: 5, 1: 0}, {0: 9, 1: 3}))
    folder.logged(2, envelope(2, {0: 9}, {0: 12, 1: 3}))
    found = read_checkpoint(folder.root)
    assert found.query_id == "11111111-2222-3333-4444-555555555555"
    assert found.committed is not None
    [source] = found.committed.sources
    assert (found.committed.number, source.source, source.offsets) == (1, "0", {P0: 9, P1: 3})
    assert source.stream_offset is not None
    assert (source.stream_offset.group, source.stream_offset.query, source.stream_offset.batch) == ("g1", QUERY, 1)
    assert source.stream_offset.first == {P0: 5, P1: 0}
    assert [batch.number for batch in found.pending] == [2]


def test_a_query_that_has_done_nothing(folder: CheckpointFolder) -> None:
    found = read_checkpoint(folder.root)
    assert (found.committed, found.pending) == (None, ())
    folder.logged(0, {"v": 1, "n": -1})
    assert read_checkpoint(folder.root).pending[0].sources == ()


def test_sources_of_several_kinds_each_on_its_line(folder: CheckpointFolder) -> None:
    rate = {"0": {"value": 6, "runTimeMs": 5}}
    folder.done(3, "-", envelope(3, {0: 0}, {0: 5}), "17", rate, kafka({0: 4, 1: 8}), "file:///x/0")
    committed = read_checkpoint(folder.root).committed
    assert committed is not None
    assert [(each.source, each.stream_offset is not None) for each in committed.sources] == [("1", True), ("4", False)]
    assert committed.sources[1].offsets == {P0: 4, P1: 8}
    assert committed.other_sources == ("2", "3", "5")


def test_a_log_of_version_2_names_its_sources(folder: CheckpointFolder) -> None:
    """``spark.sql.streaming.offsetLog.formatVersion=2``; Spark writes the sources in any order."""
    lines = ["orders:" + '{"clicks":{"0":4}}', "1:-", "0:17"]
    folder.done(0, *lines, version="v2")
    committed = read_checkpoint(folder.root).committed
    assert committed is not None
    assert [(each.source, each.offsets) for each in committed.sources] == [("orders", {P0: 4})]
    assert committed.other_sources == ("0",)


@pytest.mark.parametrize("name", ["file:{}", "file://{}", "file://localhost{}", "{}"])
def test_a_folder_by_its_uri(name: str, tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "a b")
    place = name.format(str(folder.root) if name == "{}" else str(folder.root).replace(" ", "%20"))
    assert read_checkpoint(place).folder == folder.root


@pytest.mark.parametrize("place", ["hdfs://nn/x", "s3a://b/x", "abfss://c@d/x", "file://elsewhere/x"])
def test_a_folder_elsewhere_is_to_be_copied_here(place: str) -> None:
    with pytest.raises(BadCheckpoint, match=r"is not on this machine: copy .*hadoop fs -copyToLocal"):
        read_checkpoint(place)


def test_a_path_that_is_no_uri(folder: CheckpointFolder, tmp_path: Path) -> None:
    for name in ("a:b", "[x", "//[x"):
        with pytest.raises(BadCheckpoint, match=r"the folder .* does not exist"):
            read_checkpoint(name)


def test_other_names_in_the_logs_are_let_pass(folder: CheckpointFolder) -> None:
    folder.done(0, kafka({0: 4}))
    for name in ("1.compact.tmp", ".2.5c1e.tmp", "007", "x"):
        folder.write(f"offsets/{name}", "nonsense", checksums=False)
    assert read_checkpoint(folder.root).pending == ()


def test_the_checksums_of_spark_itself(folder: CheckpointFolder) -> None:
    folder.done(0, kafka({0: 4}))
    (folder.root / "commits" / "0").write_bytes(COMMIT_OF_SPARK)
    (folder.root / "commits" / ".0.crc").write_bytes(COMMIT_CRC_OF_SPARK)
    assert read_checkpoint(folder.root).committed is not None


def without(name: str) -> Callable[[CheckpointFolder], None]:
    return lambda folder: (folder.root / name).unlink()


def with_file(name: str, data: str | bytes, *, checksums: bool = True) -> Callable[[CheckpointFolder], None]:
    return lambda folder: folder.write(name, data, checksums=checksums)


def cut_off(folder: CheckpointFolder) -> None:
    file = folder.root / "offsets" / "1"
    file.write_bytes(file.read_bytes()[:-3])


HEAD = f"v1\n{METADATA}\n"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (without("metadata"), "has no file metadata, so it is not the checkpoint"),
        (with_file("metadata", "{"), "cannot be read as Spark writes it; is it truncated"),
        (with_file("metadata", "[1]"), "cannot be read as Spark writes it"),
        (with_file("metadata", '{"ID":1}'), "cannot be read as Spark writes it"),
        (without("offsets/1"), "commits/1 exists but offsets/1 does not"),
        (cut_off, r"offsets/1 does not match its checksums in \.1\.crc: it is truncated, or was edited"),
        (with_file("offsets/1", ""), "begins with '' and no version: it is empty"),
        (with_file("offsets/1", "v1"), "lacks the line of a source: it is truncated"),
        (with_file("offsets/1", HEAD), "lacks the line of a source: it is truncated"),
        (with_file("offsets/1", HEAD + '{"clicks":{"0":1'), "the offset of source 0 is truncated, or not JSON"),
        (with_file("offsets/1", HEAD + '{"clicks":{"0":-5}}'), "-5 is not an offset"),
        (with_file("offsets/1", HEAD + '{"clicks":{"0":1.5}}'), "1.5 is not an offset"),
        (with_file("offsets/1", HEAD + '{"clicks":{"00":1}}'), None),
        (
            with_file("offsets/1", "v3\n{}\n1"),
            "has version 3, but this release supports up to 2: a newer Spark wrote it",
        ),
        (with_file("offsets/1", "v0\n{}\n1"), "has version 0"),
        (with_file("offsets/1", "vx\n{}\n1"), "begins with 'vx' and no version"),
        (with_file("offsets/1", f"v2\n{METADATA}\n17"), "a line without the name of its source"),
        (with_file("commits/1", "v9\n{}"), "commits/1 has version 9"),
        (with_file("commits/1", ""), "commits/1 begins with '' and no version"),
        (with_file("offsets/1", gzip.compress(b"v1"), checksums=False), r"is not text \(it begins with 1f 8b 08 00\)"),
        (with_file("offsets/1", HEAD + '{"v":2,"n":1}'), "by a later release of zkconsumer .version 2 of the offsets"),
        (with_file("offsets/1", HEAD + '{"v":1,"n":1}'), "source 0: an offset in the checkpoint .* is damaged"),
    ],
)
def test_what_spark_would_not_read_either_is_an_error(
    damage: Callable[[CheckpointFolder], None], words: str | None, folder: CheckpointFolder
) -> None:
    folder.done(0, kafka({0: 2}))
    folder.done(1, kafka({0: 4}))
    damage(folder)
    if words is None:
        committed = read_checkpoint(folder.root).committed
        assert committed is not None
        assert committed.other_sources == ("0",), "it is no offset of Kafka"
    else:
        refuses(folder, words)


def test_a_last_newline_of_an_editor_is_let_pass(folder: CheckpointFolder) -> None:
    folder.done(0, kafka({0: 4}))
    folder.write("offsets/0", HEAD + '{"clicks":{"0":4}}\n', checksums=False)
    assert read_checkpoint(folder.root).committed is not None


def test_no_folder_and_the_folder_of_a_source(folder: CheckpointFolder) -> None:
    with pytest.raises(BadCheckpoint, match=r"the folder .*gone does not exist; give the checkpointLocation"):
        read_checkpoint(folder.root / "gone")
    folder.done(0, kafka({0: 4}))
    words = re.escape("(it contains batches of a source; give the folder above)")
    with pytest.raises(BadCheckpoint, match=words):
        read_checkpoint(folder.root / "offsets")
