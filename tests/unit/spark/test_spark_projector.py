"""``GroupOffsetProjector`` on a world in memory, with events as Spark gives them; no Spark runs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from bridge.spark.handoff.group_offset_writer import GroupOffsetWriter
from bridge.spark.handoff.offset_projector import GroupOffsetProjector
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import doors
from tests.in_memory_fixtures import wait_until
from tests.spark_listener_events import progressed, source_of
from zkconsumer.admin.kafka_offsets import OFFSETS_TOPIC
from zkconsumer.base.threads import live_threads
from zkconsumer.errors import (
    BrokerUnreachable,
    OffsetsNotCommitted,
    PreconditionFailed,
    UsageError,
    ZkConsumerError,
)
from zkconsumer.testing.fake_zookeeper import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create, Delete
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.znode_formats import Authority, ControlRecord, format_control

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
DEADLINE_MS = 30_000
"""Only what does not happen takes so long."""


@pytest.fixture
def world(world: FakeEnvironment) -> FakeEnvironment:
    world.create_topic("t", 2)
    world.create_topic(OFFSETS_TOPIC, 1)
    return world


class Sink:
    """Remembers what is written, and raises what it is told to."""

    def __init__(self) -> None:
        self.writes: list[dict[TopicPartition, int]] = []
        self.errors: list[ZkConsumerError] = []
        self.closed = 0

    def write_offsets(self, offsets: Any) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.writes.append(dict(offsets))

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def projector(sink: Sink) -> Iterator[GroupOffsetProjector]:
    with GroupOffsetProjector(None, "g", writer=sink) as made:
        yield made


def tell(projector: GroupOffsetProjector, *sources: dict[str, Any], **more: Any) -> None:
    projector.onQueryProgress(progressed(*sources, **more))


def at(world: FakeEnvironment, tp: TopicPartition, group: str = "g") -> bytes | None:
    return world.zookeeper.data(paths.offset(group, tp))


# --- which offsets ---


def test_the_end_of_each_batch_goes_into_the_group(projector: GroupOffsetProjector, sink: Sink) -> None:
    tell(projector, source_of({"t": {"0": 3, "1": 4}}))
    projector.flush(DEADLINE_MS)
    tell(projector, source_of('{"t":{"0":5,"1":4}}'), batch=1)
    projector.flush(DEADLINE_MS)
    assert sink.writes == [{A: 3, B: 4}, {A: 5}]
    assert projector.written == {A: 5, B: 4}
    assert projector.counts.projected == 2


def test_nothing_goes_back(projector: GroupOffsetProjector, sink: Sink) -> None:
    tell(projector, source_of({"t": {"0": 7}}))
    projector.flush(DEADLINE_MS)
    tell(projector, source_of({"t": {"0": 3}}), batch=1)
    projector.flush(DEADLINE_MS)
    assert sink.writes == [{A: 7}]


def test_our_own_source_writes_its_group_itself(
    projector: GroupOffsetProjector, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    for batch in range(2):
        tell(projector, source_of({"v": 1, "n": batch, "g": "g", "to": {"t": {"0": 3}}}), batch=batch)
    projector.flush(DEADLINE_MS)
    assert sink.writes == []
    assert projector.counts.ignored == 2
    assert caplog.text.count('projection-ignored group=g query=etl reason=\'it reads format("zkconsumer")') == 1


def test_of_several_sources_one_must_be_meant(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    two = [source_of({"t": {"0": 3}}), source_of({"u": {"0": 9}}, description="KafkaV2[Subscribe[u]]")]
    with GroupOffsetProjector(None, "g", writer=sink) as projector:
        tell(projector, *two)
    assert sink.writes == []
    assert "select the group's source with topics= or source=" in caplog.text
    with GroupOffsetProjector(None, "g", "u", writer=sink) as projector:
        tell(projector, *two)
    with GroupOffsetProjector(None, "g", source="Subscribe[t]", writer=sink) as projector:
        tell(projector, *two)
    assert sink.writes == [{TopicPartition("u", 0): 9}, {A: 3}]


def test_of_a_source_with_more_topics_only_the_groups_own_are_written(sink: Sink) -> None:
    with GroupOffsetProjector(None, "g", ["t"], writer=sink) as projector:
        tell(projector, source_of({"t": {"0": 3}, "u": {"0": 9}}))
    assert sink.writes == [{A: 3}]


def test_where_two_sources_read_a_partition_the_one_behind_counts(sink: Sink) -> None:
    with GroupOffsetProjector(None, "g", "t", writer=sink) as projector:
        tell(projector, source_of({"t": {"0": 8}}), source_of({"t": {"0": 5}}))
    assert sink.writes == [{A: 5}]


def test_one_group_follows_one_query(
    projector: GroupOffsetProjector, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    tell(projector, source_of({"t": {"0": 3}}))
    tell(projector, source_of({"t": {"0": 99}}), name="other", query=uuid.UUID(int=9))
    tell(projector, source_of({"logOffset": 1}), name="files", query=uuid.UUID(int=10))
    projector.flush(DEADLINE_MS)
    assert sink.writes == [{A: 3}]
    assert "projection-ignored group=g query=other reason='the group follows another query" in caplog.text
    assert "files" not in caplog.text


@pytest.mark.parametrize("query", ["mine", str(uuid.UUID(int=9))])
def test_the_query_can_be_named(sink: Sink, query: str) -> None:
    with GroupOffsetProjector(None, "g", query=query, writer=sink) as projector:
        tell(projector, source_of({"t": {"0": 99}}))
        tell(projector, source_of({"t": {"0": 3}}), name="mine", query=uuid.UUID(int=9))
    assert sink.writes == [{A: 3}]


def test_an_unknown_store_is_told() -> None:
    with pytest.raises(UsageError, match=r"store='zk': expected one of 'zookeeper', 'kafka', 'both'"):
        GroupOffsetProjector(ADDRESS, "g", store="zk")  # type: ignore[arg-type]
    assert live_threads() == []


# --- trouble ---


def test_an_error_harms_nobody_is_told_once_and_the_next_batch_tries_again(
    projector: GroupOffsetProjector, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "zkconsumer.spark")
    sink.errors = [BrokerUnreachable("no broker"), BrokerUnreachable("no broker")]
    for batch in range(2):
        tell(projector, source_of({"t": {"0": batch + 1}}), batch=batch)
        wait_until(lambda batch=batch: projector.counts.failures == batch + 1, "a failure was counted")
    assert sink.writes == []
    tell(projector, source_of({"t": {"0": 3}}), batch=2)
    projector.flush(DEADLINE_MS)
    assert sink.writes == [{A: 3}]
    assert projector.counts.failures == 2
    assert caplog.text.count("projection-failed group=g reason='no broker'") == 1
    assert "projection-recovered group=g" in caplog.text


def test_what_was_refused_stays_to_be_done(projector: GroupOffsetProjector, sink: Sink) -> None:
    sink.errors = [OffsetsNotCommitted({B: "its znode contains no number"})]
    tell(projector, source_of({"t": {"0": 1, "1": 2}}))
    wait_until(lambda: projector.counts.failures, "a failure was counted")
    assert projector.written == {A: 1}
    projector.flush(DEADLINE_MS)
    assert sink.writes == [{B: 2}]


def test_settle_says_why_not(sink: Sink) -> None:
    projector = GroupOffsetProjector(None, "g", writer=sink)
    sink.errors = [PreconditionFailed("1 member is registered")] * 4
    tell(projector, source_of({"t": {"0": 1}}))
    with pytest.raises(OffsetsNotCommitted, match="t/0: 1 member is registered"):
        projector.flush(DEADLINE_MS)
    sink.errors = [BrokerUnreachable("no broker")] * 4
    with pytest.raises(OffsetsNotCommitted, match="t/0: no broker"):
        projector.close(50)
    assert sink.closed == 1
    assert live_threads() == []
    projector.close()


# --- both stores ---


def test_zookeeper_gets_what_old_tools_show(world: FakeEnvironment) -> None:
    with GroupOffsetProjector(ADDRESS, "g", "t", dependencies=doors(world)) as projector:
        tell(projector, source_of({"t": {"0": 3, "1": 0}}))
    assert (at(world, A), at(world, B)) == (b"3", b"0")
    assert world.zookeeper.data(paths.owners_of_topic("g", "t")) is not None, "kafka-consumer-groups looks there"
    assert world.cluster.committed("g") == {}


@pytest.mark.parametrize("store", ["kafka", "both"])
def test_kafka_gets_them_as_from_somebody_who_is_no_member(world: FakeEnvironment, store: Any) -> None:
    with GroupOffsetProjector(ADDRESS, "g", "t", store=store, dependencies=doors(world)) as projector:
        tell(projector, source_of({"t": {"0": 3}}))
    assert {tp: one.offset for tp, one in world.cluster.committed("g").items()} == {A: 3}
    assert at(world, A) == (b"3" if store == "both" else None)


def sink_of(world: FakeEnvironment, *stores: Any) -> GroupOffsetWriter:
    return GroupOffsetWriter(ADDRESS, "g", stores or ("zookeeper",), None, doors(world))


def test_where_the_group_stands_further_it_is_left_alone(world: FakeEnvironment) -> None:
    world.zookeeper.ensure(paths.offset("g", A), b"50")
    world.cluster.commit("g", "t", 0, 60)
    made = sink_of(world, "zookeeper", "kafka")
    made.write_offsets({A: 10, B: 10})
    made.close()
    assert (at(world, A), at(world, B)) == (b"50", b"10")
    assert {tp: one.offset for tp, one in world.cluster.committed("g").items()} == {A: 60, B: 10}


def test_an_offset_that_is_no_number_is_left_and_told_the_others_are_written(world: FakeEnvironment) -> None:
    world.zookeeper.ensure(paths.offset("g", A), b"?")
    made = sink_of(world, "zookeeper", "kafka")
    with pytest.raises(OffsetsNotCommitted, match="t/0: its znode contains no number") as caught:
        made.write_offsets({A: 10, B: 10})
    made.close()
    assert set(caught.value.errors) == {A}
    assert (at(world, A), at(world, B)) == (b"?", b"10")
    assert set(world.cluster.committed("g")) == {B}, "Kafka is told what ZooKeeper took"


def test_while_somebody_lives_in_the_group_nothing_is_written(world: FakeEnvironment) -> None:
    store = FakeZkStore(world.zookeeper)
    store.start(1_000)
    world.zookeeper.ensure(paths.ids("g"))
    submit_and_wait(store, [Create(paths.registration("g", "g_a"), b"{}", ephemeral=True)], 1_000)
    made = sink_of(world)
    with pytest.raises(
        PreconditionFailed, match=r"1 member is registered in group g \(g_a\): no offset is written while"
    ):
        made.write_offsets({A: 10})
    assert at(world, A) is None
    submit_and_wait(store, [Delete(paths.registration("g", "g_a"))], 1_000)
    made.write_offsets({A: 10})
    made.close()
    assert at(world, A) == b"10"


@pytest.mark.parametrize("store", ["zookeeper", "kafka"])
def test_a_group_whose_offsets_moved_is_written_where_they_are_and_nowhere_on_the_way(
    world: FakeEnvironment, store: str
) -> None:
    def control(phase: str, authority: Authority) -> bytes:
        return format_control(ControlRecord("m", 1, phase, authority, "copy"))

    world.zookeeper.ensure(paths.control("g"), control("fenced", "zookeeper"))
    made = sink_of(world, store)
    with pytest.raises(PreconditionFailed, match="migrating, and no offset is written meanwhile: migration m"):
        made.write_offsets({A: 10})
    world.zookeeper.ensure(paths.control("g"), control("switched", "kafka"))
    made.write_offsets({A: 10})
    made.close()
    assert set(world.cluster.committed("g")) == {A}
    assert at(world, A) is None


def test_a_modern_group_with_members_is_left_to_them(world: FakeEnvironment) -> None:
    world.cluster.set_coordinator_members("g", True)
    made = sink_of(world, "kafka")
    with pytest.raises(OffsetsNotCommitted, match="the coordinator group of this name has members"):
        made.write_offsets({A: 10})
    made.close()
