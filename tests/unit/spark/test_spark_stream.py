"""A stream's reader as Spark calls it, on a group and logs in memory."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from bridge.spark.decode.offset_ranges import DataLost, OnCorruptRecord
from bridge.spark.group_membership import BatchAssignment, BatchEnd, CommitMode
from bridge.spark.membership.process_settings import ALL_THREADS
from bridge.spark.options import SourceOptions, read_options
from bridge.spark.source.dependencies import SourceDependencies, membership_process_settings
from bridge.spark.source.fault_injection import (
    AFTER_CLAIM,
    AFTER_COMMIT_LOG,
    AFTER_WAL,
    WAIT_MS,
    FaultPoint,
    fault_point_of,
)
from bridge.spark.source.micro_batch_plan import LogBounds
from bridge.spark.source.retrying_log_reader import UNREACHABLE_MAX_MS
from bridge.spark.source.stream_offset import INITIAL_OFFSET, ForeignCheckpoint
from bridge.spark.source.stream_planner import (
    AVAILABLE_NOW_ASSIGNMENT_WAIT_MS,
    BEYOND_END_TRIES,
    FIRST_ASSIGNMENT_WAIT_MS,
)
from bridge.spark.source.stream_reader import ZkConsumerStreamReader
from tests.fake_spark_group import FakeLogReader, FakeMembership, FakeScalaMember, FakeSparkGroup
from tests.micro_batch_engine import AFTER_SINK, FakeSparkCheckpoint, MicroBatchEngine
from tests.micro_batch_engine import AFTER_WAL as WAL_WRITTEN
from zkconsumer.errors import BrokerUnreachable, GroupRewound, UnavailableError, UsageError
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Query:
    """One query, its group and its logs; ``options`` as Spark gives them, without those that every query needs."""

    def __init__(self, *, topics: dict[str, int] | None = None, **options: object) -> None:
        least = {"zookeeper.connect": "zk:1", "group.id": "g", "subscribe": "t", "auto.offset.reset": "smallest"}
        given = least | {name.replace("__", "."): str(value) for name, value in options.items()}
        self.options: SourceOptions = read_options(given, is_stream=True)
        self.group = FakeSparkGroup(topics if topics is not None else {"t": 2})
        self.logs = FakeLogReader({tp: LogBounds(0, 10) for tp in self.group.partitions})
        self.checkpoint = FakeSparkCheckpoint()
        self.clock = ManualClock()
        self.pauses: list[int] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.faults = FaultPoint()
        self.wait_ms: list[int] = []
        self.queries = 0
        self.group.assign(dict.fromkeys(self.group.partitions, "query"))

    def reader(self) -> ZkConsumerStreamReader:
        return ZkConsumerStreamReader(self.options, ("value",), self.doors())

    def doors(self) -> SourceDependencies:
        def new_query() -> str:
            self.queries += 1
            return f"{self.queries:032x}"

        return SourceDependencies(
            membership=self._member, logs=lambda *_: self.logs, clock=self.clock, pause=self._pause,
            new_query=new_query, fault_point=lambda _: self.faults,
        )  # fmt: skip

    def _pause(self, ms: int) -> None:
        self.pauses.append(ms)
        self.meanwhile()
        self.clock.move(ms)

    def _member(self, options: SourceOptions) -> FakeMembership:
        query = self

        class Waiting(FakeMembership):
            def begin_batch(self, ended: Any, wait_ms: int) -> Any:
                query.wait_ms.append(wait_ms)
                return super().begin_batch(ended, wait_ms)

        return Waiting(self.group, "query", options.commit_mode)

    def start(self, *, available_now: bool = False) -> MicroBatchEngine:
        """A run from the checkpoint; the run before, if any, is dead."""
        self.group.remove_member("query")
        return MicroBatchEngine(self.reader, self.checkpoint, available_now=available_now)

    @property
    def rows(self) -> list[tuple[TopicPartition, int]]:
        return sorted(self.checkpoint.rows)


def rows_of(tp: TopicPartition, first: int, end: int) -> list[tuple[TopicPartition, int]]:
    return [(tp, offset) for offset in range(first, end)]


def test_spark_sees_admission_control_and_trigger_available_now() -> None:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    reader = Query().reader()
    assert isinstance(reader, SupportsTriggerAvailableNow)
    assert list(inspect.signature(reader.latestOffset).parameters) == ["start", "limit"]


def test_the_beginning_is_a_constant_and_asking_for_it_opens_nothing() -> None:
    query = Query()
    reader = query.reader()
    assert reader.initialOffset() == reader.initialOffset() == INITIAL_OFFSET
    assert query.group.members == {}


PICKLED = """
import sys
from pyspark import cloudpickle
from bridge.spark.source.datasource import ZkConsumerDataSource

given = {"zookeeper.connect": "zk:1", "group.id": "g", "subscribe": "t"}
source = ZkConsumerDataSource(given)
cloudpickle.dumps(source.streamReader(source.schema()).read)
print(*sorted(name for name in sys.modules if name.startswith(("bridge.", "zkconsumer.", "pyarrow"))))
"""
"""What Spark's process does that plans how a stream is read, once for each query."""


def test_the_process_that_pickles_a_reader_imports_nothing_that_plans_or_reads() -> None:
    """These modules take .25 s of CPU."""
    done = subprocess.run([sys.executable, "-c", PICKLED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert {"bridge.spark.options", "bridge.spark.source.stream_reader"} <= loaded
    planning = {"bridge.spark.source.stream_planner", "bridge.spark.source.dependencies"}
    assert loaded.isdisjoint({*planning, "bridge.spark.decode.range_partition", "zkconsumer.wire.schemas", "pyarrow"})


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": 5, "minOffsetsPerTrigger": 2, "maxBytesPerTrigger": 9}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": 9, "minOffsetsPerTrigger": 2}, ReadMaxBytes(9)),
        ({"minOffsetsPerTrigger": 2}, ReadMinRows(2)),
    ],
)
def test_the_limit_that_spark_is_told(options: dict[str, object], wanted: object) -> None:
    assert Query(**options).reader().getDefaultReadLimit() == wanted


@pytest.mark.parametrize("mode", list(CommitMode))
def test_a_query_reads_to_the_end_and_an_idle_trigger_gives_back_its_start(mode: CommitMode) -> None:
    query = Query(group__offsets__commit=mode.value)
    engine = query.start()
    assert engine.run() == 1
    assert query.rows == rows_of(A, 0, 10) + rows_of(B, 0, 10)
    end = engine.last_planned_offset()
    assert engine.reader.latestOffset(end, ReadAllAvailable()) == end
    assert query.group.offsets == ({} if mode is CommitMode.NONE else {A: 10, B: 10})
    assert engine.reader.reportLatestOffset() == {"t": {"0": 10, "1": 10}}


@pytest.mark.parametrize("mode", list(CommitMode))
def test_the_first_batch_is_repeated_as_it_was_planned(mode: CommitMode) -> None:
    query = Query(group__offsets__commit=mode.value, startingOffsets="latest")
    engine = query.start()
    assert engine.run() == 1, "the position is fixed by an empty batch"
    query.logs.append(A, 5)
    for point in engine.trigger():
        if point == WAL_WRITTEN:
            break
    planned = engine.last_planned_offset()
    query.logs.append(A, 90)
    engine = query.start()
    assert next(iter(engine.trigger())) == WAL_WRITTEN, "a restart repeats before it plans"
    engine.run()
    assert query.rows == rows_of(A, 10, 105)
    assert planned["from"] == {"t": {"0": 10, "1": 10}}


def test_batch_0_is_repeated_without_its_start_in_the_log() -> None:
    query = Query(maxOffsetsPerTrigger=4)
    engine = query.start()
    for point in engine.trigger():
        if point == AFTER_SINK:
            break
    query.logs.append(A, 7)
    query.start().run()
    assert query.rows == rows_of(A, 0, 17) + rows_of(B, 0, 10)


def test_a_query_that_begins_at_the_end_begins_there_once() -> None:
    query = Query(startingOffsets="latest")
    engine = query.start()
    engine.run()
    query.logs.append(A, 3)
    engine.run()
    query.logs.append(B, 2)
    query.start().run()
    assert query.rows == rows_of(A, 10, 13) + rows_of(B, 10, 12)


def test_what_another_member_waits_for_is_not_in_the_next_batch_and_comes_back_where_the_group_stands() -> None:
    query = Query(maxOffsetsPerTrigger=4)
    peer = FakeScalaMember(query.group, "peer")
    engine = query.start()
    for point in engine.trigger():
        if point == AFTER_SINK:
            query.group.assign({A: "peer"})
            peer.read(query.logs, 3)
            assert peer.output == [], "the batch has it still"
    list(engine.trigger())
    assert A not in [TopicPartition(t, int(n)) for t, ns in engine.last_planned_offset()["claims"].items() for n in ns]
    peer.read(query.logs, 3)
    assert peer.output == rows_of(A, 2, 5)
    query.group.assign({A: "query"})
    engine.run()
    assert query.rows == rows_of(A, 0, 2) + rows_of(A, 5, 10) + rows_of(B, 0, 10)


def test_after_a_repeated_batch_the_group_hears_of_it_though_nothing_is_new() -> None:
    query = Query()
    for point in query.start().trigger():
        if point == AFTER_SINK:
            break
    assert query.group.offsets == {}
    query.start(available_now=True).run()
    assert query.group.offsets == {A: 10, B: 10}
    assert query.rows == rows_of(A, 0, 10) + rows_of(B, 0, 10)


# --- Trigger.AvailableNow -----------------------------------------------------------------------------------------


def test_available_now_ends_where_the_logs_ended_when_it_began() -> None:
    query = Query(maxOffsetsPerTrigger=4, minOffsetsPerTrigger=4)
    engine = query.start(available_now=True)
    list(engine.trigger())
    query.logs.append(A, 100)
    engine.run()
    assert query.rows == rows_of(A, 0, 10) + rows_of(B, 0, 10)
    assert query.group.offsets == {A: 10, B: 10}


def test_available_now_takes_over_what_a_member_leaves_up_to_the_same_end() -> None:
    query = Query(maxOffsetsPerTrigger=4)
    FakeScalaMember(query.group, "peer")
    query.group.assign({A: "peer"})
    engine = query.start(available_now=True)
    list(engine.trigger())
    query.logs.append(A, 100)
    query.group.assign({A: "query"})
    engine.run()
    assert query.rows == rows_of(A, 0, 10) + rows_of(B, 0, 10)


def test_the_first_batch_waits_for_the_whole_share_and_available_now_longer() -> None:
    query = Query()
    query.start().run()
    assert query.wait_ms == [FIRST_ASSIGNMENT_WAIT_MS, 0]
    query.wait_ms.clear()
    query.start(available_now=True).run()
    assert query.wait_ms[0] == AVAILABLE_NOW_ASSIGNMENT_WAIT_MS


def test_without_its_whole_share_a_stream_begins_and_available_now_does_not(caplog: pytest.LogCaptureFixture) -> None:
    query = Query()
    query.group.owners[A] = ("a dead member", 1)
    query.start().run()
    assert query.rows == rows_of(B, 0, 10)
    assert "assignment-wait-timeout group=g held=1" in caplog.text
    with pytest.raises(UnavailableError, match=r"Trigger\.AvailableNow would leave records unread"):
        query.start(available_now=True).run()


# --- topics and logs ----------------------------------------------------------------------------------------------


def test_a_topic_that_is_not_there_is_named() -> None:
    query = Query(subscribe="t,orders", topics={"t": 2, "orders": 0})
    with pytest.raises(UsageError, match="topic orders does not exist in the cluster of zk:1: create it, correct"):
        query.start().run()


@pytest.mark.parametrize(
    ("more", "silent"),
    [
        ({}, "ZooKeeper at zk:1 did not return the list of topics within 30000 ms"),
        (
            {"kafka__bootstrap__servers": "k:9092"},
            r"the brokers at k:9092 did not return the list of topics within 30000 ms .*\(none of 1 brokers answers\)",
        ),
    ],
)
def test_topics_that_nobody_told_are_not_said_to_be_missing(
    more: dict[str, str], silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_yet(self: FakeMembership, ended: Mapping[TopicPartition, BatchEnd], wait_ms: int) -> BatchAssignment:
        return BatchAssignment({}, False, 0, {})

    monkeypatch.setattr(FakeMembership, "begin_batch", nothing_yet)
    query = Query(**more)
    query.logs.is_unreachable = True
    with pytest.raises(UnavailableError, match=silent):
        query.start().run()


def test_a_membership_process_that_has_read_nothing_yet_does_not_end_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query()
    engine = query.start()
    engine.run()
    real = FakeMembership.begin_batch
    waits: list[int] = []

    def as_after_a_restart(
        self: FakeMembership, ended: Mapping[TopicPartition, BatchEnd], wait_ms: int
    ) -> BatchAssignment:
        waits.append(wait_ms)
        return replace(real(self, ended, wait_ms), partitions={}, is_complete=False, partition_counts={"t": 0})

    with monkeypatch.context() as patch:
        patch.setattr(FakeMembership, "begin_batch", as_after_a_restart)
        engine.run()
    assert waits[0] == 0, "a stream does not wait: the next trigger comes"
    with monkeypatch.context() as patch:
        patch.setattr(FakeMembership, "begin_batch", as_after_a_restart)
        engine = query.start(available_now=True)
        with pytest.raises(UnavailableError, match="complete assignment"):
            engine.run()


def test_a_topic_that_goes_away_fails_the_query_or_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    for fails in ("true", "false"):
        query = Query(failOnDataLoss=fails)
        engine = query.start()
        engine.run()
        query.group.topics, query.group.assignment = {}, {}
        if fails == "true":
            with pytest.raises(
                UnavailableError, match=r"topic t, and the topic was deleted: restore.*failOnDataLoss=false"
            ):
                engine.run()
        else:
            engine.run()
            engine.run()
    assert caplog.text.count("topic-missing") == 1


def test_a_topic_that_the_options_name_no_more_is_not_said_to_be_gone() -> None:
    query = Query()
    query.start().run()
    query.options = Query(subscribe="u", topics={"u": 1}).options
    query.group.topics, query.group.assignment = {"u": 1}, {}
    with pytest.raises(UnavailableError, match=r"topic t, which the options no longer name: name it again, or"):
        query.start().run()
    pattern = {"zookeeper.connect": "zk:1", "group.id": "g", "subscribePattern": "[u-z]"}
    query.options = read_options(pattern, is_stream=True)
    with pytest.raises(
        UnavailableError, match=r"topic t, .* was deleted, or the pattern no longer matches it: restore"
    ):
        query.start().run()


def test_a_new_query_tells_where_it_begins_in_partitions_without_an_offset(caplog: pytest.LogCaptureFixture) -> None:
    query = Query(auto__offset__reset="largest")
    query.group.offsets[B] = 4
    engine = query.start()
    engine.run()
    query.start().run()
    said = "remark='t/0: the group has no offset: read from the end of the log (auto.offset.reset=largest)'"
    assert caplog.text.count("starting-offsets group=g") == 1
    assert said in caplog.text
    assert query.rows == rows_of(B, 4, 10)
    caplog.clear()
    Query(startingOffsets="earliest").start().run()
    assert "starting-offsets" not in caplog.text


def test_an_offset_that_the_options_name_beyond_the_end_of_the_log_is_an_error_of_the_options() -> None:
    query = Query(startingOffsets='{"t": {"0": 99, "1": -1}}')
    with pytest.raises(
        UnavailableError, match=r"t/0: startingOffsets names offset 99, but the log ends at 10: correct"
    ):
        query.start().run()


def test_a_topic_that_grows_is_read_from_the_beginning_of_what_came() -> None:
    query = Query(auto__offset__reset="largest", startingOffsets="earliest")
    engine = query.start()
    engine.run()
    new = TopicPartition("t", 2)
    query.group.topics["t"], query.logs.ranges[new] = 3, LogBounds(0, 4)
    query.group.assign({new: "query"})
    engine.run()
    assert query.rows == rows_of(A, 0, 10) + rows_of(B, 0, 10) + rows_of(new, 0, 4)


@pytest.mark.parametrize("mode", list(CommitMode))
def test_records_that_retention_took_fail_the_query_or_are_counted(
    mode: CommitMode, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(group__offsets__commit=mode.value)
    query.start().run()
    query.logs.ranges[A] = LogBounds(15, 20)
    with pytest.raises(DataLost, match="t/0: offsets 10 to 14 must be read, but the log contains 15 to 19"):
        query.start().run()
    query.options = Query(group__offsets__commit=mode.value, failOnDataLoss="false").options
    engine = query.start()
    engine.run()
    assert query.rows == rows_of(A, 0, 10) + rows_of(A, 15, 20) + rows_of(B, 0, 10)
    assert engine.last_planned_offset()["s"]["lostOffsets"] == 5
    assert "data-lost partition=t/0 wanted=10 first=15 end=20 lost_offsets=5" in caplog.text


def test_a_log_whose_end_went_back_is_asked_again_before_anything_is_lost() -> None:
    query = Query()
    engine = query.start()
    engine.run()
    query.logs.ranges[A] = LogBounds(0, 4)
    with pytest.raises(
        UnavailableError, match=r"t/0: the query is at offset 10, but the log ends at 4\. The topic was del"
    ):
        engine.run()
    assert len(query.pauses) == BEYOND_END_TRIES - 1
    query.logs.ranges[A] = LogBounds(0, 12)
    engine.run()
    assert query.rows == rows_of(A, 0, 12) + rows_of(B, 0, 10)


def test_a_committed_query_ends_each_batch_at_the_last_stable_offset() -> None:
    query = Query()
    query.logs.ranges[A] = LogBounds(0, 10, last_stable=6)
    engine = query.start()
    engine.run()
    assert query.rows == rows_of(A, 0, 6) + rows_of(B, 0, 10)
    query.logs.ranges[A] = LogBounds(0, 12, last_stable=6)
    engine.run()
    query.logs.ranges[A] = LogBounds(0, 12, last_stable=12)
    engine.run()
    assert query.rows == rows_of(A, 0, 12) + rows_of(B, 0, 10)


def test_without_failing_a_log_that_went_back_is_read_on_from_its_end_or_behind_our_claim() -> None:
    for mode, wanted in ((CommitMode.AFTER_BATCH, rows_of(A, 0, 10) + rows_of(A, 4, 14)), (CommitMode.CLAIM, [])):
        query = Query(group__offsets__commit=mode.value, failOnDataLoss="false")
        engine = query.start()
        engine.run()
        query.logs.ranges[A] = LogBounds(0, 4)
        engine.run()
        query.logs.append(A, 10)
        engine.run()
        # With claim the query goes on behind what it claimed.
        assert query.rows == sorted((wanted or rows_of(A, 0, 14)) + rows_of(B, 0, 10))


def test_a_partition_without_a_leader_is_left_out_but_not_of_available_now(caplog: pytest.LogCaptureFixture) -> None:
    query = Query()
    query.logs.unknown[A] = "nobody leads it"
    query.start().run()
    assert query.rows == rows_of(B, 0, 10)
    assert "log-bounds-unknown partition=t/0 reason='nobody leads it'" in caplog.text
    with pytest.raises(BrokerUnreachable, match=r"t/0: nobody leads it, for 120000 ms\. Trigger\."):
        query.start(available_now=True).run()
    assert caplog.text.count("log-bounds-unknown") == 2, "once in each run, however often they asked"


def test_brokers_that_are_silent_for_a_while_do_not_end_a_query() -> None:
    query = Query()
    engine = query.start()
    engine.run()
    query.logs.append(A, 5)
    query.logs.is_unreachable = True
    engine.run()
    query.clock.move(UNREACHABLE_MAX_MS - 1)
    engine.run()
    query.logs.is_unreachable = False
    engine.run()
    assert query.rows == rows_of(A, 0, 15) + rows_of(B, 0, 10)
    query.logs.is_unreachable = True
    engine.run()
    query.clock.move(UNREACHABLE_MAX_MS)
    with pytest.raises(BrokerUnreachable, match=r"no broker has answered for 120000 ms: .*it continues from its"):
        engine.run()


def test_available_now_does_not_need_what_others_read() -> None:
    query = Query()
    FakeScalaMember(query.group, "peer")
    query.group.assign({A: "peer"})
    query.logs.unknown[A] = "nobody leads it"
    query.start(available_now=True).run()
    assert query.rows == rows_of(B, 0, 10)


def test_json_must_name_every_partition() -> None:
    query = Query(startingOffsets='{"t": {"0": 3}}')
    with pytest.raises(UsageError, match=r"startingOffsets must name every partition that is read.*t/1"):
        query.start().run()
    query = Query(startingOffsets='{"t": {"0": 3, "1": -1}}')
    query.start().run()
    assert query.rows == rows_of(A, 3, 10)


def test_a_time_behind_every_record_is_named() -> None:
    query = Query(startingTimestamp=1000)
    with pytest.raises(UsageError, match="no record of t/0, t/1 is as late as the starting time 1000 ms"):
        query.start().run()
    query.logs.times = {A: {1000: 6}, B: {1000: 9}}
    query.start().run()
    assert query.rows == rows_of(A, 6, 10) + rows_of(B, 9, 10)


def test_a_group_that_was_set_back_stops_a_query_that_asked_for_it() -> None:
    query = Query(group__offsets__commit="claim", onGroupRewind="fail")
    query.start().run()
    query.group.offsets[A] = 3
    with pytest.raises(GroupRewound, match="t/0"):
        query.start().run()


def test_the_checkpoint_of_another_group_is_refused_wherever_it_comes() -> None:
    query = Query()
    engine = query.start()
    engine.run()
    other = Query(group__id="h").reader()
    with pytest.raises(ForeignCheckpoint, match="belongs to the group 'g'"):
        other.latestOffset(engine.last_planned_offset(), ReadAllAvailable())
    with pytest.raises(ForeignCheckpoint, match="belongs to the group 'g'"):
        other.partitions(INITIAL_OFFSET, engine.last_planned_offset())


# --- limits -------------------------------------------------------------------------------------------------------


def test_a_batch_waits_for_enough_offsets_but_not_for_ever() -> None:
    query = Query(minOffsetsPerTrigger=5, maxTriggerDelay="10s")
    engine = query.start()
    engine.run()
    query.logs.append(A, 4)
    assert engine.run() == 0
    query.clock.move(10_000)
    assert engine.run() == 1
    query.logs.append(A, 5)
    assert engine.run() == 1


def test_bytes_limit_a_batch_by_the_size_that_is_sampled() -> None:
    query = Query(maxBytesPerTrigger=600)
    query.logs.bytes_per_offset = 100
    engine = query.start()
    list(engine.trigger())
    assert len(query.rows) == 6
    engine.run()
    assert len(query.rows) == 20


def test_all_available_means_all() -> None:
    query = Query(maxOffsetsPerTrigger=1)
    reader = query.reader()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end["to"] == {"t": {"0": 10, "1": 10}}


# --- tasks --------------------------------------------------------------------------------------------------------


def test_a_task_has_all_that_an_executor_needs_and_shows_no_secret() -> None:
    query = Query(
        kafka__security__protocol="SASL_PLAINTEXT", kafka__sasl__mechanism="PLAIN", kafka__sasl__username="me",
        kafka__sasl__password="hush", maxRecordsPerPartition=4, failOnDataLoss="false", client__id="reader",
    )  # fmt: skip
    reader = query.reader()
    tasks = reader.partitions(INITIAL_OFFSET, reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))
    assert [(task.wanted.tp, task.wanted.first, task.wanted.end) for task in tasks[:3]] == [
        (A, 0, 3), (A, 3, 6), (A, 6, 10)
    ]  # fmt: skip
    assert tasks[0].columns == ("value",)
    assert tasks[0].client_id == "reader"
    assert not tasks[0].settings.fail_on_data_loss
    assert cloudpickle.loads(cloudpickle.dumps(tasks[0])).security.sasl.password == "hush"
    assert "hush" not in repr(tasks)


def test_what_executors_get_is_not_the_query() -> None:
    query = Query(kafka__security__protocol="SASL_PLAINTEXT", kafka__sasl__mechanism="PLAIN",
                  kafka__sasl__username="me", kafka__sasl__password="hush")  # fmt: skip
    assert b"hush" not in cloudpickle.dumps(query.reader())


def test_brokers_are_those_of_the_option_when_it_is_given() -> None:
    query = Query(kafka__bootstrap__servers="b1:9092,[::1]:9093")
    reader = query.reader()
    [task, _] = reader.partitions(INITIAL_OFFSET, reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))
    assert [(broker.host, broker.port) for broker in task.brokers] == [("b1", 9092), ("::1", 9093)]


def test_the_membership_process_is_told_what_the_options_say() -> None:
    takeover = membership_process_settings(Query(consumer__threads="all", group__offsets__commit="claim").options)
    assert (takeover.threads, takeover.mode, takeover.topics) == (ALL_THREADS, CommitMode.CLAIM, ("t",))
    assert takeover.config().group_id == "g"
    base = {"zookeeper.connect": "zk:1", "group.id": "g"}
    old = membership_process_settings(read_options({**base, "topics": "orders:2,refunds:1"}, is_stream=True))
    assert old.subscription(old.threads).topics == {"orders": 2, "refunds": 1}
    but_some = {**base, "subscribe.blacklist": "x.*", "consumer.threads": "3"}
    black = membership_process_settings(read_options(but_some, is_stream=True))
    assert black.subscription(black.threads).pattern == "black_list"
    assert black.subscription(black.threads).topics == {"x.*": 3}


def test_options_without_effect_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    query = Query(fetchOffset__numRetries=3)
    query.start().run()
    assert caplog.text.count("option-without-effect option=fetchOffset.numRetries") == 1


# --- faults -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("environment", [{}, {"ZKC_SPARK_FAULT": "after_wal:1"}, {"ZKC_SPARK_FAULT_FILE": "/x"}])
def test_no_fault_unless_both_are_set(environment: dict[str, str]) -> None:
    assert fault_point_of("g", environment) == FaultPoint()


@pytest.mark.parametrize("fault", ["after_wal", "after_wal:x", "before:1", "after_wal:-1"])
def test_a_fault_that_means_nothing_is_refused(fault: str) -> None:
    with pytest.raises(UsageError, match="set it to POINT:BATCH"):
        fault_point_of("g", {"ZKC_SPARK_FAULT": fault, "ZKC_SPARK_FAULT_FILE": "/x"})


def test_a_fault_makes_its_file_and_waits(tmp_path: Path) -> None:
    pauses: list[int] = []
    fault = fault_point_of("g", {"ZKC_SPARK_FAULT": "after_claim:3", "ZKC_SPARK_FAULT_FILE": str(tmp_path)})
    fault.reached(AFTER_WAL, 3, pauses.append)
    fault.reached(AFTER_CLAIM, 2, pauses.append)
    assert (pauses, list(tmp_path.iterdir())) == ([], [])
    fault.reached(AFTER_CLAIM, 3, pauses.append)
    assert (sum(pauses), list(tmp_path.iterdir())) == (WAIT_MS, [tmp_path / "g"])


def test_faults_are_where_they_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(group__offsets__commit="claim", startingOffsets="earliest")
    seen: list[tuple[str, int, dict[TopicPartition, int]]] = []

    def reached(self: FaultPoint, point: str, batch: int, pause: object = None) -> None:
        seen.append((point, batch, dict(query.group.offsets)))

    monkeypatch.setattr(FaultPoint, "reached", reached)
    query.start().run()
    assert seen == [
        (AFTER_WAL, 0, {A: 0, B: 0}),
        (AFTER_CLAIM, 0, {A: 10, B: 10}),
        (AFTER_COMMIT_LOG, 0, {A: 10, B: 10}),
    ]
    seen.clear()
    query = Query()
    query.start().run()
    assert seen[-1] == (AFTER_COMMIT_LOG, 0, {}), "nothing is written before it"
    assert query.group.offsets == {A: 10, B: 10}


def test_a_query_that_begins_before_the_group_reads_on_there_when_it_is_started_again() -> None:
    query = Query(startingOffsets="earliest", maxOffsetsPerTrigger=4)
    query.group.offsets.update({A: 9, B: 1})
    engine = query.start()
    for point in engine.trigger():
        if point == AFTER_SINK:
            break
    query.start().run()
    assert query.rows == rows_of(A, 0, 10) + rows_of(B, 0, 10)
    assert query.group.offsets == {A: 10, B: 10}


def test_a_query_that_begins_before_the_group_reads_on_there_when_the_session_expires_or_a_leader_is_away() -> None:
    query = Query(startingOffsets="earliest", maxOffsetsPerTrigger=4)
    query.group.offsets.update({A: 9, B: 9})
    engine = query.start()
    list(engine.trigger())
    query.logs.unknown[A] = "no leader"
    list(engine.trigger())
    query.logs.unknown.clear()
    member = query.group.members["query"]
    assert isinstance(member, FakeMembership)
    list(engine.trigger())
    member.expire_session()
    engine.run()
    assert query.rows == rows_of(A, 0, 10) + rows_of(B, 0, 10)


def test_a_log_that_went_back_and_grew_again_is_read_on_after_a_restart() -> None:
    query = Query(failOnDataLoss="false")
    engine = query.start()
    engine.run()
    query.logs.ranges[A] = LogBounds(0, 6)
    engine.run()
    query.logs.append(A, 1)
    engine.run()
    query.logs.append(A, 8)
    query.start().run()
    assert [row for row in query.checkpoint.rows if row[0] == A] == rows_of(A, 0, 10) + rows_of(A, 6, 15)


@pytest.mark.parametrize("mode", list(CommitMode))
@pytest.mark.parametrize("reset", ["largest", "smallest"])
def test_a_partition_that_came_while_no_query_ran_is_read_from_its_beginning(mode: CommitMode, reset: str) -> None:
    query = Query(group__offsets__commit=mode.value, auto__offset__reset=reset)
    query.group.offsets.update({A: 0, B: 0})
    query.start().run()
    new = TopicPartition("t", 2)
    query.group.topics["t"] = 3
    query.logs.ranges[new] = LogBounds(0, 7)
    query.group.remove_member("query")
    query.group.assign({new: "query"})
    query.start().run()
    assert query.rows == rows_of(A, 0, 10) + rows_of(B, 0, 10) + rows_of(new, 0, 7)


@pytest.mark.parametrize("before", list(CommitMode))
@pytest.mark.parametrize("now", list(CommitMode))
def test_claims_are_neither_begun_nor_given_up_on_a_checkpoint(before: CommitMode, now: CommitMode) -> None:
    query = Query(group__offsets__commit=before.value)
    engine = query.start()
    engine.run()
    query.options = replace(query.options, commit_mode=now)
    after = query.start()
    if (before is CommitMode.CLAIM) is (now is CommitMode.CLAIM):
        after.run()
        return
    for asked in (
        lambda: after.reader.latestOffset(engine.last_planned_offset(), ReadAllAvailable()),
        lambda: after.reader.partitions(INITIAL_OFFSET, engine.last_planned_offset()),
    ):
        with pytest.raises(ForeignCheckpoint, match=rf"group\.offsets\.commit={before.value} again"):
            asked()


def test_available_now_does_not_end_without_a_partition_whose_beginning_could_not_be_written() -> None:
    query = Query(group__offsets__commit="claim", startingOffsets="earliest")
    engine = query.start(available_now=True)
    member = query._member

    def refusing(options: SourceOptions) -> FakeMembership:
        made = member(options)
        made.seek = lambda offsets: {A: "somebody else wrote 3 at the same time"}  # type: ignore[method-assign]
        return made

    query._member = refusing  # type: ignore[method-assign]
    engine = query.start(available_now=True)
    with pytest.raises(UnavailableError, match=r"t/0.*somebody else wrote 3.*AvailableNow would end without"):
        engine.run()


def test_available_now_reads_what_it_gains_though_nobody_told_its_end_at_the_start() -> None:
    query = Query(maxOffsetsPerTrigger=4)
    FakeScalaMember(query.group, "peer")
    query.group.assign({A: "peer"})
    query.logs.unknown[A] = "no leader"
    engine = query.start(available_now=True)
    list(engine.trigger())
    query.logs.unknown.clear()
    query.group.assign({A: "query"})
    list(engine.trigger())
    query.logs.append(A, 100)
    engine.run()
    assert query.rows == rows_of(A, 0, 10) + rows_of(B, 0, 10)


def test_the_end_of_a_log_is_asked_again_before_the_group_is_set_back_to_it() -> None:
    query = Query()
    query.start().run()
    query.logs.append(A, 10)
    query.group.offsets[A] = 20
    query.logs.ranges[A] = LogBounds(0, 15)
    query.meanwhile = lambda: query.logs.append(A, 20 - query.logs.ranges[A].end)
    query.start().run()
    assert query.group.offsets[A] == 20
    assert query.rows == rows_of(A, 0, 10) + rows_of(B, 0, 10), "a member read on, up to 20"


# --- records that cannot be read ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "store"),
    [({}, "zookeeper"), ({"offsets.storage": "kafka", "dual.commit.enabled": "true"}, "both")],
)
def test_with_claim_the_error_of_a_task_names_the_command_that_gives_the_batch_back(
    options: dict[str, str], store: str
) -> None:
    for mode in CommitMode:
        query = Query(group__offsets__commit=mode.value, onCorruptRecord="SKIP", **options)
        engine = query.start()
        engine.run()
        tasks = engine.reader.partitions({"v": 1, "n": -1}, json.loads(query.checkpoint.offsets[0]))
        [(advice, policy)] = {(task.settings.claim_advice, task.settings.on_corrupt_record) for task in tasks}
        assert policy is OnCorruptRecord.SKIP
        command = f"reconcile --group g --checkpoint DIR --rewind --store {store} --zookeeper zk:1 --execute"
        assert (command in advice) == (mode is CommitMode.CLAIM)
