"""``skipOffsets``: exactly these offsets are not read, also on a checkpoint; they are counted, logged and committed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("pyspark", reason="the data source needs the extra [spark]")

from bridge.spark.decode import range_reader
from bridge.spark.decode.arrow_decoder import ArrowDecoder
from bridge.spark.decode.arrow_schema import SCHEMA, ArrowBatchSpec
from bridge.spark.decode.cluster_connections import ClusterConnections
from bridge.spark.decode.offset_ranges import (
    FetchStalled,
    OffsetRange,
    merge_offset_ranges,
    skip_option,
    without_skipped,
)
from bridge.spark.decode.range_partition import RangePartition
from bridge.spark.decode.range_reader import read_range
from bridge.spark.group_membership import CommitMode
from bridge.spark.monitoring.query_lag import lag
from bridge.spark.offset_range_limits import parse_skip_offsets
from bridge.spark.options import read_options
from bridge.spark.source.micro_batch_plan import LogBounds
from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_faults import SlowTieredStorage
from tests.fake_spark_group import FakeScalaMember
from tests.micro_batch_engine import AFTER_CLAIM, AFTER_WAL, MicroBatchEngine
from tests.unit.spark.test_spark_stream import A, B, Query, rows_of
from zkconsumer.errors import InvalidConfigException, InvalidMessageException
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set

MODES = list(CommitMode)


# --- the option -----------------------------------------------------------------------------------------------------


def test_ranges_are_sorted_and_joined_and_their_ends_are_exclusive() -> None:
    skips = parse_skip_offsets('{"t": {"0": [[7, 9], [1, 2], [2, 4], [8, 12]], "1": [[0, 1]]}}')
    assert skips == {A: ((1, 4), (7, 12)), B: ((0, 1),)}
    assert without_skipped(OffsetRange(A, 0, 10), skips) == (
        [OffsetRange(A, 0, 1), OffsetRange(A, 4, 7)],
        [OffsetRange(A, 1, 4), OffsetRange(A, 7, 10)],
    )
    assert without_skipped(OffsetRange(A, 8, 12), skips) == ([], [OffsetRange(A, 8, 12)])
    assert without_skipped(OffsetRange(A, 12, 20), skips) == ([OffsetRange(A, 12, 20)], [])
    assert skip_option(skips, OffsetRange(B, 1, 5)) == (
        """.option("skipOffsets", '{"t":{"0":[[1,4],[7,12]],"1":[[0,5]]}}')"""
    )


def test_every_offset_is_either_read_or_skipped() -> None:
    """All pairs of ranges below 8, and all ranges to read."""
    pairs = [(first, end) for first in range(8) for end in range(first + 1, 9)]
    for one in pairs:
        for other in pairs:
            skips = {A: merge_offset_ranges([other, one])}
            expected = {*range(*one), *range(*other)}
            for first, end in pairs:
                kept, skipped = without_skipped(OffsetRange(A, first, end), skips)
                assert [o for each in kept for o in range(each.first, each.end)] == [
                    o for o in range(first, end) if o not in expected
                ]
                assert [o for each in skipped for o in range(each.first, each.end)] == [
                    o for o in range(first, end) if o in expected
                ]


@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "batch"])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("5", "it is not a JSON object"),
        ("{}", "it names no partition"),
        ('{"t": [[1, 2]]}', "'t' has [[1, 2]], which is not a JSON object of partitions"),
        ('{"t": {"0": []}}', "t/0 has [], which is not a list of ranges [[first, end], ...]"),
        ('{"t": {"0": [1, 2]}}', "t/0 has 1, which is not a range [first, end] of two offsets"),
        ('{"t": {"0": [[1, 2, 3]]}}', "t/0 has [1, 2, 3], which is not a range [first, end] of two offsets"),
        ('{"t": {"0": [[1, true]]}}', "t/0 has [1, true], which is not a range"),
        (
            '{"t": {"0": [[2, 2]]}}',
            "t/0 has [2, 2]: first must be 0 or more and less than end, since",
        ),
        ('{"t": {"0": [[-1, 2]]}}', "t/0 has [-1, 2]: first must be 0 or more"),
        ('{"t": {"x": [[1, 2]]}}', "'t' has \"x\", which is not a partition number"),
        ('{"t": {"0": [[1, 2]]}, "t": {"1": [[1, 2]]}}', "it contains a name twice"),
        ('{"u": {"0": [[1, 2]]}}', "skipOffsets: names u/0, which this query does not read"),
    ],
)
def test_what_is_no_such_option_is_refused_with_the_reason(given: str, words: str, is_stream: bool) -> None:
    least = {"zookeeper.connect": "zk:1", "group.id": "g", "subscribe": "t", "skipoffsets": given}
    with pytest.raises(InvalidConfigException) as caught:
        read_options(least, is_stream=is_stream)
    assert words in str(caught.value)


def test_a_batch_names_partitions_that_it_is_assigned_and_a_pattern_any_topic() -> None:
    least = {"zookeeper.connect": "zk:1", "group.id": "g"}
    given = least | {"assign": '{"t": [0]}', "skipOffsets": '{"t": {"1": [[1, 2]]}}'}
    with pytest.raises(InvalidConfigException, match="skipOffsets: names t/1, which this query does not read"):
        read_options(given, is_stream=False)
    read = read_options(least | {"subscribePattern": "t.*", "skipOffsets": '{"tea": {"1": [[1, 2]]}}'}, is_stream=True)
    assert read.skip_offsets == {TopicPartition("tea", 1): ((1, 2),)}


# --- a stream -------------------------------------------------------------------------------------------------------


def skipped_lines(text: str) -> list[str]:
    return re.findall(r"offsets-skipped (.*)", text)


@pytest.mark.parametrize("mode", MODES)
def test_exactly_the_offsets_of_the_option_are_not_read_and_the_group_goes_past_them(
    mode: CommitMode, caplog: pytest.LogCaptureFixture
) -> None:
    skips = '{"t": {"0": [[3, 6], [9, 50]]}}'
    query = Query(group__offsets__commit=mode.value, skipOffsets=skips, maxOffsetsPerTrigger=8)
    engine = query.start()
    engine.run()
    query.logs.append(A, 50)
    engine.run()
    assert query.rows == [*rows_of(A, 0, 3), *rows_of(A, 6, 9), *rows_of(A, 50, 60), *rows_of(B, 0, 10)]
    assert query.group.offsets == ({} if mode is CommitMode.NONE else {A: 60, B: 10})
    assert engine.last_planned_offset()["s"]["skippedOffsets"] == 3 + 41
    # Each range of a batch has one line.
    lines = skipped_lines(caplog.text)
    assert sum(int(line.rpartition("=")[2]) for line in lines) == 3 + 41
    assert len(lines) == len(set(lines))
    counted = json.dumps(engine.last_planned_offset())
    progress = {"id": "i", "runId": "r", "batchId": 1, "timestamp": "", "sources": [{"endOffset": counted}]}
    assert lag(progress).metrics["skippedOffsets"] == 44


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("available_now", [True, False])
def test_a_batch_that_was_planned_without_the_option_is_repeated_with_it(
    mode: CommitMode, available_now: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The way past a failure: the end of the batch is in the checkpoint already."""
    query = Query(group__offsets__commit=mode.value)
    for point in query.start().trigger():
        if point == AFTER_CLAIM:
            break
    query.options = Query(group__offsets__commit=mode.value, skipOffsets='{"t": {"1": [[4, 6]]}}').options
    engine = query.start(available_now=available_now)
    engine.run()
    assert query.rows == [*rows_of(A, 0, 10), *rows_of(B, 0, 4), *rows_of(B, 6, 10)]
    assert query.group.offsets == ({} if mode is CommitMode.NONE else {A: 10, B: 10})
    assert engine.last_planned_offset()["s"]["skippedOffsets"] == 2, "counted in a batch of its own"
    assert skipped_lines(caplog.text) == ["partition=t/1 first=4 end=6 skipped_offsets=2"]
    # Without the option again: what was skipped is over.
    query.options = Query(group__offsets__commit=mode.value).options
    query.logs.append(B, 1)
    engine = query.start(available_now=available_now)
    engine.run()
    assert query.rows == [*rows_of(A, 0, 10), *rows_of(B, 0, 4), *rows_of(B, 6, 11)]
    assert engine.last_planned_offset()["s"]["skippedOffsets"] == 2


def test_a_range_that_is_skipped_whole_makes_a_batch_without_tasks() -> None:
    query = Query(skipOffsets='{"t": {"0": [[0, 10]], "1": [[0, 10]]}}')
    engine = query.start()
    assert engine.run() == 2, "an empty batch, and one that counts"
    assert query.rows == []
    assert query.group.offsets == {A: 10, B: 10}
    assert engine.last_planned_offset()["s"]["skippedOffsets"] == 20


def test_a_claim_that_is_refused_skips_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Another member read the range: its offsets were not left out by this query."""
    query = Query(group__offsets__commit="claim", skipOffsets='{"t": {"0": [[2, 4]]}}')
    peer = FakeScalaMember(query.group, "peer")
    engine = query.start()
    trigger = engine.trigger()
    next(trigger)
    query.group.assign({A: "peer"})
    query.group.remove_member("query")
    peer.read(query.logs, 10)
    engine = query.start()
    engine.run()
    assert [row for row in query.rows if row[0] == A] == []
    assert "skippedOffsets" not in engine.last_planned_offset()["s"]
    assert skipped_lines(caplog.text) == []


def test_the_ranges_of_a_claim_that_was_narrowed_are_skipped_where_they_are_claimed() -> None:
    query = Query(group__offsets__commit="claim", skipOffsets='{"t": {"0": [[2, 8]]}}')
    engine = query.start()
    for point in engine.trigger():
        if point == AFTER_WAL:
            query.group.offsets[A] = 5
            break
    engine = query.start()
    engine.run()
    assert [row for row in query.rows if row[0] == A] == rows_of(A, 8, 10)
    assert engine.last_planned_offset()["s"]["skippedOffsets"] == 3


# --- to the end -----------------------------------------------------------------------------------------------------


class Stream(Query):
    """A query whose tasks read from brokers in memory; the clock moves while a task waits."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.given = options
        self.broker = FakeCluster(1)
        self.broker.create_topic("t", 2)
        self.reading = ManualClock()
        self.cluster = ClusterConnections(lambda: self.broker.addresses, self.broker.connect, "task", self.reading)

    def produce_real(self, tp: TopicPartition, batches: int) -> None:
        """So many batches of five records."""
        for _ in range(batches):
            self.broker.append(tp.topic, tp.partition, [b"v" * 30] * 5)
        self.logs.ranges[tp] = LogBounds(0, self.broker.log_end(tp.topic, tp.partition))

    def damage(self, tp: TopicPartition) -> None:
        """The next batch of five records does not match its checksum; nothing else is wrong."""
        first = self.broker.log_end(tp.topic, tp.partition)
        batch = bytearray(build_record_set([Record(first + at, 1, 0, None, b"v" * 30) for at in range(5)], 2))
        batch[-3] ^= 0xFF
        self.broker.append_raw(tp.topic, tp.partition, bytes(batch), first + 5)
        self.logs.ranges[tp] = LogBounds(0, first + 5)

    def with_option(self, error: BaseException) -> None:
        """What a user does: set the option that the error names, besides those of before."""
        [option] = re.findall(r"""\.option\("skipOffsets", '(\S+)'\)""", str(error))
        self.options = Query(**{**self.given, "skipOffsets": option}).options

    def start(self, *, available_now: bool = False) -> MicroBatchEngine:
        self.group.remove_member("query")
        return MicroBatchEngine(self.reader, self.checkpoint, available_now=available_now, read=self._offsets)

    def _offsets(self, task: RangePartition) -> Iterator[int]:
        settings = replace(task.settings, give_up_ms=5_000)
        decode = ArrowDecoder(ArrowBatchSpec(task.wanted.tp.topic, task.wanted.tp.partition, SCHEMA)).batches
        batches = read_range(
            self.cluster, task.wanted, settings, lambda _: self.reading.move(1_000), decode, clock=self.reading
        )  # fmt: skip
        for batch in batches:
            yield from batch.column("offset").to_pylist()


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "FETCH_WAIT_MS", 1)


@pytest.mark.parametrize("mode", MODES)
def test_the_advice_of_a_corrupt_batch_leads_a_query_with_a_checkpoint_to_the_end(mode: CommitMode) -> None:
    """Two corrupt batches in one batch of the query: each error names the option for both."""
    query = Stream(group__offsets__commit=mode.value)
    query.produce_real(A, 4)
    query.produce_real(B, 2)
    query.start().run()
    assert query.rows == rows_of(A, 0, 20) + rows_of(B, 0, 10)
    query.produce_real(A, 1)
    query.damage(A)
    query.produce_real(A, 1)
    query.damage(A)
    query.produce_real(A, 1)
    for attempt in range(2):
        with pytest.raises(InvalidMessageException, match=r"t/0: .*checksum.*on the same checkpoint") as raised:
            query.start(available_now=True).run()
        query.with_option(raised.value)
        assert len(query.options.skip_offsets[A]) == attempt + 1
    engine = query.start(available_now=True)
    engine.run()
    assert query.rows == [*rows_of(A, 0, 25), *rows_of(A, 30, 35), *rows_of(A, 40, 45), *rows_of(B, 0, 10)]
    assert query.group.offsets == ({} if mode is CommitMode.NONE else {A: 45, B: 10})
    assert engine.last_planned_offset()["s"]["skippedOffsets"] == 10


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_stalled_fetch_fails_the_query_and_its_advice_leads_to_the_end(fails: str) -> None:
    query = Stream(failOnDataLoss=fails)
    query.produce_real(A, 2)
    query.produce_real(B, 2)
    slow = query.broker.inject(SlowTieredStorage(A), times=None)
    with pytest.raises(FetchStalled) as raised:
        query.start().run()
    assert query.checkpoint.rows == []
    query.with_option(raised.value)
    engine = query.start()
    engine.run()
    assert query.rows == rows_of(B, 0, 10)
    query.broker.lift(slow)
    query.produce_real(A, 1)
    engine.run()
    assert query.rows == rows_of(A, 10, 15) + rows_of(B, 0, 10)
