"""``admin.kafka_offsets``: a coordinator that moves, loads, dies or refuses; brokers that cannot list."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from bridge.testing.fake_faults import CloseConnection, GroupError
from tests.admin_fixtures import doors
from zkconsumer.admin import kafka_offsets as module
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS
from zkconsumer.admin.coordinator_client import CoordinatorRetryPolicy
from zkconsumer.admin.coordinator_lookups import OFFSETS_TOPIC
from zkconsumer.admin.group_offset_stores import GroupOffsetStores
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.admin.zookeeper_offset_writes import StoreWriteReport
from zkconsumer.errors import BrokerUnreachable, KafkaException
from zkconsumer.kafka import pipelining
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH

T0, T1, V0 = TopicPartition("clicks", 0), TopicPartition("clicks", 1), TopicPartition("views", 0)


class Desk:
    """A world with offsets in Kafka, a store of group g1, and the pauses that it made."""

    def __init__(self, release: str = "3.9.1", brokers: int = 2) -> None:
        self.world = FakeEnvironment(brokers, release=release)
        for topic, partitions in (("clicks", 2), ("views", 1), (OFFSETS_TOPIC, 1)):
            self.world.create_topic(topic, partitions)
        self.cluster = self.world.cluster
        self.cluster.commit("g1", "clicks", 0, 42)
        self.session = AdminSession.open(ADDRESS, None, doors(self.world))
        self.pauses: list[int] = []
        self.store = KafkaOffsetAdmin(self.session, "g1", self.pauses.append)

    def read_offsets(self) -> dict[TopicPartition, int]:
        return {tp: stored.offset for tp, stored in self.store.read_offsets().items()}

    def write_offsets(
        self, offsets: dict[TopicPartition, int], known: dict[TopicPartition, int | None]
    ) -> StoreWriteReport:
        report = StoreWriteReport()
        self.store.write_offsets(offsets, known, report)
        return report

    def asked(self, api: object) -> int:
        return sum(seen.api is api for seen in self.cluster.requests)

    def close(self) -> None:
        self.session.close()
        self.world.stop()


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.close()


@pytest.mark.parametrize("release", ["0.8.2.2", "0.9.0.1", "0.10.2.2", "1.1.1", "3.9.1"])
def test_everything_is_read_also_from_brokers_that_cannot_list(release: str) -> None:
    desk = Desk(release)
    try:
        assert desk.read_offsets() == {T0: 42}
        assert desk.write_offsets({V0: 7, T0: 43}, {V0: None, T0: 42}) == StoreWriteReport(written=[V0, T0])
        assert desk.read_offsets() == {T0: 43, V0: 7}
    finally:
        desk.close()


@pytest.mark.parametrize("release", ["0.9.0.1", "1.1.1", "3.9.1"])
def test_many_partitions_are_asked_for_in_several_questions(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelining, "PARTITIONS_BYTES_MAX", 20)
    desk = Desk(release)
    try:
        desk.write_offsets({T1: 5}, {T1: None})
        before = desk.asked(OFFSET_FETCH)
        assert {tp: one.offset for tp, one in desk.store.read_some([V0, T0, T1]).items()} == {T0: 42, T1: 5}
        assert desk.asked(OFFSET_FETCH) - before == 2
        assert desk.store.read_some([T1]).keys() == {T1}, "nothing else is given"
    finally:
        desk.close()


@pytest.mark.parametrize("code", [14, 16])
def test_what_one_of_several_answers_says_of_the_group_is_what_counts(
    desk: Desk, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelining, "PARTITIONS_BYTES_MAX", 1)
    desk.cluster.inject(GroupError("g1", code), api=OFFSET_FETCH, times=1)
    assert desk.store.read_some([T0, T1, V0]).keys() == {T0}
    assert len(desk.pauses) == 1
    assert desk.asked(OFFSET_FETCH) == 6, "all three again"


def test_a_coordinator_that_moved_is_found_again(desk: Desk) -> None:
    assert desk.read_offsets() == {T0: 42}
    desk.cluster.move_coordinator("g1", 1 - (desk.cluster.coordinator("g1") or 0))
    assert desk.read_offsets() == {T0: 42}
    assert desk.asked(FIND_COORDINATOR) == 2


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_is_not_ready_is_waited_for(desk: Desk, code: int) -> None:
    desk.cluster.inject(GroupError("g1", code), api=OFFSET_FETCH, times=2)
    assert desk.read_offsets() == {T0: 42}
    assert len(desk.pauses) == 2


def test_a_coordinator_that_is_never_ready_is_given_up(desk: Desk) -> None:
    desk.cluster.inject(GroupError("g1", 14), api=OFFSET_FETCH, times=None)
    with pytest.raises(KafkaException, match=r"g1 has no coordinator that answers .*: COORDINATOR_LOAD_IN_PROGRESS"):
        desk.read_offsets()
    assert len(desk.pauses) == CoordinatorRetryPolicy().attempts_max - 1


def test_a_right_that_is_missing_is_no_reason_to_wait(desk: Desk) -> None:
    desk.cluster.inject(GroupError("g1", 30), api=OFFSET_FETCH, times=None)
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        desk.read_offsets()
    assert desk.pauses == []


def test_no_broker_at_all_is_told_soon(desk: Desk) -> None:
    for broker_id in (0, 1):
        desk.cluster.stop_broker(broker_id)
    with pytest.raises(BrokerUnreachable):
        desk.read_offsets()
    assert len(desk.pauses) == CoordinatorRetryPolicy().unreachable_attempts_max - 1


def test_a_commit_whose_answer_is_lost_is_sent_again(desk: Desk) -> None:
    desk.read_offsets()
    desk.cluster.inject(CloseConnection(), api=OFFSET_COMMIT)
    assert desk.write_offsets({T0: 50}, {T0: 42}) == StoreWriteReport(written=[T0])
    assert desk.asked(OFFSET_COMMIT) == 2
    assert desk.read_offsets() == {T0: 50}


def test_a_commit_that_never_gets_through_is_unknown(desk: Desk) -> None:
    desk.read_offsets()
    desk.cluster.inject(CloseConnection(), api=OFFSET_COMMIT, times=None)
    report = desk.write_offsets({T0: 50}, {T0: 42})
    assert report.unknown == [T0]
    assert "the connection was closed" in report.stopped_by


def test_what_somebody_else_committed_is_not_written_over(desk: Desk) -> None:
    desk.cluster.commit("g1", "clicks", 0, 99)
    report = desk.write_offsets({T1: 1, T0: 50}, {T1: None, T0: 42})
    assert report == StoreWriteReport(
        stopped_by="the offset of clicks/0 was changed by another program after it was read"
    )
    assert desk.read_offsets() == {T0: 99}


def test_an_original_member_that_comes_in_the_middle_stops_the_rest(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OFFSETS_PER_COMMIT_MAX", 1)
    read_some = desk.store.read_some

    def joins_before_the_second(partitions: Collection[TopicPartition]) -> object:
        if list(partitions) == [T1]:
            return read_some(partitions)
        desk.world.zookeeper.ensure("/consumers/g1/ids/g1_late")
        return read_some(partitions)

    monkeypatch.setattr(desk.store, "read_some", joins_before_the_second)
    report = desk.write_offsets({T1: 1, T0: 50, V0: 3}, {T1: None, T0: 42, V0: None})
    assert report == StoreWriteReport(written=[T1, T0], stopped_by="g1_late is in the group now (1 registered)")


def test_a_topic_that_is_gone_is_refused_alone(desk: Desk) -> None:
    gone = TopicPartition("gone", 0)
    report = desk.write_offsets({T0: 50, gone: 1}, {T0: 42, gone: None})
    assert report.written == [T0]
    assert report.stopped_by == "the coordinator answers UNKNOWN_TOPIC_OR_PARTITION (3) for gone/0"


def test_many_offsets_are_committed_in_batches(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OFFSETS_PER_COMMIT_MAX", 2)
    monkeypatch.setattr(module, "OFFSETS_PER_DELETE_MAX", 1)
    report = desk.write_offsets({T0: 1, T1: 2, V0: 3}, {T0: 42, T1: None, V0: None})
    assert report == StoreWriteReport(written=[T0, T1, V0])
    assert desk.asked(OFFSET_COMMIT) == 2
    assert desk.read_offsets() == {T0: 1, T1: 2, V0: 3}


def test_offsets_are_deleted_and_deleting_them_twice_is_no_error(desk: Desk) -> None:
    assert desk.store.can_delete()
    for known in ({T0: 42}, {T0: None}):
        report = StoreWriteReport()
        desk.store.delete([T0], known, report)
        assert report == StoreWriteReport(written=[T0])
    assert desk.read_offsets() == {}
    assert desk.asked(OFFSET_DELETE) == 2


@pytest.mark.parametrize(("release", "can"), [("0.8.2.2", False), ("2.0.1", False), ("3.9.1", True)])
def test_whether_brokers_can_delete(release: str, can: bool) -> None:
    desk = Desk(release)
    try:
        assert desk.store.can_delete() is can
    finally:
        desk.close()


def test_a_modern_group_is_seen_where_brokers_tell(desk: Desk) -> None:
    assert not desk.store.coordinator_group().has_members
    desk.cluster.set_coordinator_members("g1", True)
    assert desk.store.coordinator_group().has_members


def test_brokers_without_modern_groups_say_so_and_are_no_trouble_to_whoever_looks_at_both_stores() -> None:
    desk = Desk("0.8.2.2")
    try:
        with pytest.raises(BROKER_REQUEST_ERRORS, match="DescribeGroups"):
            desk.store.coordinator_group()
        assert GroupOffsetStores(desk.session, "g1").read(["kafka"]).coordinator_group is None
    finally:
        desk.close()
