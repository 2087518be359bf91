"""Leaders and offsets, in every version that answers them."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.testing.fake_cluster import CLUSTER_ID, FakeCluster
from bridge.testing.fake_faults import PartitionError
from zkconsumer.errors import RemoteProtocolError
from zkconsumer.kafka import error_codes
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.kafka.error_codes import ERROR_CODES, ErrorCode, error_code
from zkconsumer.kafka.metadata_client import fetch_cluster_id, fetch_leaders, list_offsets
from zkconsumer.kafka.supported_versions import SupportedVersions, VersionRange
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, BrokerAddress, TopicPartition
from zkconsumer.wire.schemas import LIST_OFFSETS, METADATA
from zkconsumer.wire.schemas.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

TIMEOUT_MS = 5_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

metadata_versions = pytest.mark.parametrize("version", range(METADATA.client_highest + 1))
offset_versions = pytest.mark.parametrize("version", range(LIST_OFFSETS.client_highest + 1))


def only(version: int) -> SupportedVersions:
    """Ranges that leave no choice."""
    return SupportedVersions({api.key: VersionRange(version, version) for api in (METADATA, LIST_OFFSETS)})


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster([1, 2], release="3.9.1")
    made.create_topic("t", 2)
    made.create_topic("other")
    return made


@pytest.fixture
def connection(cluster: FakeCluster) -> Connection:
    return cluster.connect(*cluster.address(1)[1:])


@metadata_versions
def test_leaders(cluster: FakeCluster, connection: Connection, version: int) -> None:
    leaders = fetch_leaders(connection, only(version), ["t"], TIMEOUT_MS)
    one, two = cluster.addresses
    assert dict(leaders.brokers) == {1: one, 2: two}
    assert leaders.with_leader == dict(leaders.partitions) == {T0: one, T1: two}
    assert dict(leaders.topic_errors) == {}


@metadata_versions
def test_the_id_of_a_cluster(connection: Connection, version: int) -> None:
    """No broker before 0.10.1 has one."""
    assert fetch_cluster_id(connection, only(version), TIMEOUT_MS) == (CLUSTER_ID if version >= 2 else None)


@metadata_versions
def test_no_topics_is_never_all_topics(connection: Connection, version: int) -> None:
    """Version 0 has no way to ask for none: what it answers beyond the question is left out."""
    leaders = fetch_leaders(connection, only(version), [], TIMEOUT_MS)
    assert len(leaders.brokers) == 2
    assert not leaders.partitions
    assert not leaders.topic_errors


@metadata_versions
def test_all_topics(connection: Connection, version: int) -> None:
    leaders = fetch_leaders(connection, only(version), None, TIMEOUT_MS)
    assert {tp.topic for tp in leaders.partitions} == {"t", "other"}


@metadata_versions
def test_a_topic_that_does_not_exist(connection: Connection, version: int) -> None:
    leaders = fetch_leaders(connection, only(version), ["t", "nope"], TIMEOUT_MS)
    assert dict(leaders.topic_errors) == {"nope": error_codes.UNKNOWN_TOPIC_OR_PARTITION}
    assert set(leaders.partitions) == {T0, T1}


def test_asking_does_not_create_a_topic_where_that_can_be_said() -> None:
    cluster = FakeCluster(auto_create_partitions=1)
    connection = cluster.connect(*cluster.address(0)[1:])
    for _ in range(2):
        leaders = fetch_leaders(connection, only(4), ["nope"], TIMEOUT_MS)
        assert dict(leaders.topic_errors) == {"nope": error_codes.UNKNOWN_TOPIC_OR_PARTITION}
    first, second = (fetch_leaders(connection, only(3), ["made"], TIMEOUT_MS) for _ in range(2))
    assert dict(first.topic_errors) == {"made": error_codes.LEADER_NOT_AVAILABLE}
    assert TopicPartition("made", 0) in second.with_leader


def test_a_partition_without_a_leader(cluster: FakeCluster, connection: Connection) -> None:
    cluster.move_leader("t", 0, None)
    leaders = fetch_leaders(connection, only(1), ["t"], TIMEOUT_MS)
    assert leaders.partitions[T0] == error_codes.LEADER_NOT_AVAILABLE
    assert set(leaders.with_leader) == {T1}


def test_a_partition_whose_leader_is_dead(cluster: FakeCluster, connection: Connection) -> None:
    cluster.stop_broker(2)
    leaders = fetch_leaders(connection, only(1), ["t"], TIMEOUT_MS)
    assert set(leaders.brokers) == {1}
    assert leaders.partitions[T1] == error_codes.LEADER_NOT_AVAILABLE


def test_a_live_leader_counts_whatever_error_stands_beside_it(cluster: FakeCluster, connection: Connection) -> None:
    """Error 9 says that a replica is down; the original reads from the leader all the same."""
    cluster.inject(PartitionError(T0, error_codes.REPLICA_NOT_AVAILABLE.code), api=METADATA)
    assert fetch_leaders(connection, only(1), ["t"], TIMEOUT_MS).partitions[T0] == cluster.address(1)


def test_a_leader_that_no_broker_list_names_is_no_leader(cluster: FakeCluster, connection: Connection) -> None:
    cluster.inject(PartitionError(T1, error_codes.NOT_LEADER_OR_FOLLOWER.code), api=METADATA)
    cluster.stop_broker(2)
    assert fetch_leaders(connection, only(1), ["t"], TIMEOUT_MS).partitions[T1] == error_codes.NOT_LEADER_OR_FOLLOWER


@offset_versions
def test_the_start_and_the_end_of_a_log(cluster: FakeCluster, connection: Connection, version: int) -> None:
    cluster.append("t", 0, [b"a", b"b", b"c"])
    cluster.append("t", 0, [b"d"])
    cluster.delete_before("t", 0, 3)
    assert list_offsets(connection, only(version), {T0: EARLIEST_TIME}, TIMEOUT_MS) == {T0: 3}
    assert list_offsets(connection, only(version), {T0: LATEST_TIME}, TIMEOUT_MS) == {T0: 4}


@offset_versions
def test_a_time_that_was_never_reached(cluster: FakeCluster, connection: Connection, version: int) -> None:
    cluster.append("t", 0, [b"a"], timestamp_ms=2000)
    time_ms = 5 if version == 0 else 3000
    assert list_offsets(connection, only(version), {T0: time_ms}, TIMEOUT_MS) == {T0: -1}


@pytest.mark.parametrize("version", range(1, LIST_OFFSETS.client_highest + 1))
def test_the_first_offset_at_or_after_a_time(cluster: FakeCluster, connection: Connection, version: int) -> None:
    cluster.append("t", 0, [b"a"], timestamp_ms=1000)
    cluster.append("t", 0, [b"b", b"c"], timestamp_ms=2000)
    assert list_offsets(connection, only(version), {T0: 1001}, TIMEOUT_MS) == {T0: 1}


@offset_versions
def test_an_error_carries_its_code(cluster: FakeCluster, connection: Connection, version: int) -> None:
    cluster.move_leader("t", 0, 2)
    found = list_offsets(connection, only(version), {T0: LATEST_TIME}, TIMEOUT_MS)
    assert found == {T0: error_codes.NOT_LEADER_OR_FOLLOWER}


@offset_versions
def test_an_error_stays_with_its_partition(cluster: FakeCluster, connection: Connection, version: int) -> None:
    cluster.append("t", 0, [b"a"])
    asked = {T0: LATEST_TIME, T1: LATEST_TIME, TopicPartition("nope", 0): EARLIEST_TIME}
    assert list_offsets(connection, only(version), asked, TIMEOUT_MS) == {
        T0: 1,
        T1: error_codes.NOT_LEADER_OR_FOLLOWER,
        TopicPartition("nope", 0): error_codes.UNKNOWN_TOPIC_OR_PARTITION,
    }


class Answering:
    """A connection that gives one answer, whatever is asked."""

    host, port = "h", 1

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def request(self, *_: object, **__: object) -> Any:
        return self._answer


@pytest.mark.parametrize(
    ("version", "row", "time", "text"),
    [
        (0, None, LATEST_TIME, "was not answered for t/0"),
        (0, ListOffsetsPartitionResponse(partition_index=0), LATEST_TIME, "answered offset -1 for t/0 at time -1"),
        (1, ListOffsetsPartitionResponse(partition_index=0), EARLIEST_TIME, "answered offset -1 for t/0 at time -2"),
        (1, ListOffsetsPartitionResponse(partition_index=0, offset=-7), 5, "answered offset -7"),
    ],
)
def test_an_answer_that_cannot_be_right(
    version: int, row: ListOffsetsPartitionResponse | None, time: int, text: str
) -> None:
    topics = [] if row is None else [ListOffsetsTopicResponse(name="t", partitions=[row])]
    connection: Any = Answering(ListOffsetsResponse(topics=topics))
    with pytest.raises(RemoteProtocolError, match=text):
        list_offsets(connection, only(version), {T0: time}, TIMEOUT_MS)


def test_addresses_are_those_that_the_broker_told(cluster: FakeCluster, connection: Connection) -> None:
    with cluster.serve():
        told = fetch_leaders(cluster.connect(*cluster.address(1)[1:]), only(1), ["t"], TIMEOUT_MS).brokers
        assert told[2] == BrokerAddress(2, "127.0.0.1", cluster.address(2).port)


# --- error codes ------------------------------------------------------------------------------------------------


def test_the_codes_are_numbered_without_a_gap() -> None:
    assert sorted(ERROR_CODES) == list(range(-1, 134))


@pytest.mark.parametrize(
    ("code", "name", "is_retriable", "is_stale_metadata"),
    [
        (0, "NONE", False, False),
        (1, "OFFSET_OUT_OF_RANGE", False, False),
        (3, "UNKNOWN_TOPIC_OR_PARTITION", True, True),
        (6, "NOT_LEADER_OR_FOLLOWER", True, True),
        (7, "REQUEST_TIMED_OUT", True, False),
        (27, "REBALANCE_IN_PROGRESS", False, False),
        (76, "UNSUPPORTED_COMPRESSION_TYPE", False, False),
    ],
)
def test_what_is_known_of_a_code(code: int, name: str, is_retriable: bool, is_stale_metadata: bool) -> None:
    assert error_code(code) == ErrorCode(code, name, is_retriable, is_stale_metadata)
    assert str(error_code(code)) == f"{name} ({code})"


def test_a_code_of_a_newer_broker_keeps_its_number() -> None:
    assert error_code(999) == ErrorCode(999, "UNKNOWN_CODE_999", False, False)


def test_the_codes_are_those_of_kafka_python() -> None:
    import kafka.errors

    for theirs in vars(kafka.errors).values():
        code = getattr(theirs, "errno", None)
        # It calls a few codes retriable, or not, against the Java client; numbers are what must agree.
        if isinstance(code, int) and isinstance(theirs, type):
            assert code in ERROR_CODES, theirs
