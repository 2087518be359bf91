"""Kafka's own offset store, asked of brokers of every age, with what can go wrong."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bridge.coordinator.release_features import RELEASES
from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_faults import GroupError
from zkconsumer.errors import KafkaException, RemoteProtocolError
from zkconsumer.kafka import error_codes as codes
from zkconsumer.kafka import version_negotiation
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.kafka.group_offsets import (
    COORDINATOR_LOADING_ERRORS,
    COORDINATOR_MOVED_ERRORS,
    OffsetFetchResult,
    commit_offsets,
    fetch_offsets,
    find_coordinator,
)
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.kafka.supported_versions import SupportedVersions, VersionRange
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH, Api

TIMEOUT_MS = 5_000
GROUP = "g1"
TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
WITH_GROUPS = [name for name, release in RELEASES.items() if FIND_COORDINATOR.key in release.ranges]

every_release = pytest.mark.parametrize("release", WITH_GROUPS)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_negotiation, "NO_RESPONSE_MS", 20)


def a_cluster(release: str, brokers: int = 2) -> FakeCluster:
    cluster = FakeCluster(brokers, release=release)
    cluster.create_topic("t", 2)
    cluster.move_coordinator(GROUP, 0)
    return cluster


def asking(cluster: FakeCluster, broker_id: int = 0) -> tuple[Connection, SupportedVersions]:
    connection = cluster.connect(*cluster.address(broker_id)[1:])
    return connection, negotiate(connection, TIMEOUT_MS)


@every_release
def test_a_group_from_the_first_question_to_the_last(release: str) -> None:
    cluster = a_cluster(release)
    connection, ranges = asking(cluster, 1)
    assert find_coordinator(connection, ranges, GROUP, TIMEOUT_MS) == cluster.address(0)
    connection, ranges = asking(cluster, 0)
    stored = {TP: OffsetAndMetadata(7, "a note"), OTHER: OffsetAndMetadata(0)}
    assert commit_offsets(connection, ranges, GROUP, offsets=stored, timeout_ms=TIMEOUT_MS) == {
        TP: codes.NONE,
        OTHER: codes.NONE,
    }
    assert fetch_offsets(connection, ranges, GROUP, [TP, OTHER], TIMEOUT_MS) == OffsetFetchResult(codes.NONE, stored)
    assert {tp: row.offset for tp, row in cluster.committed(GROUP).items()} == {TP: 7, OTHER: 0}


@every_release
@pytest.mark.parametrize(
    "error", [*sorted(COORDINATOR_LOADING_ERRORS), codes.NOT_COORDINATOR, codes.GROUP_AUTHORIZATION_FAILED]
)
def test_an_error_of_the_group_is_one_whatever_the_version(release: str, error: ErrorCode) -> None:
    cluster = a_cluster(release)
    cluster.inject(GroupError(GROUP, error.code), times=None)
    connection, ranges = asking(cluster)
    assert fetch_offsets(connection, ranges, GROUP, [TP, OTHER], TIMEOUT_MS) == OffsetFetchResult(error, {})
    assert commit_offsets(connection, ranges, GROUP, offsets={TP: OffsetAndMetadata(1)}, timeout_ms=TIMEOUT_MS) == {
        TP: error
    }
    assert find_coordinator(connection, ranges, GROUP, TIMEOUT_MS) == error
    assert cluster.committed(GROUP) == {}


@every_release
def test_another_broker_than_the_coordinator(release: str) -> None:
    cluster = a_cluster(release)
    connection, ranges = asking(cluster)
    commit_offsets(connection, ranges, GROUP, offsets={TP: OffsetAndMetadata(1)}, timeout_ms=TIMEOUT_MS)
    cluster.move_coordinator(GROUP, 1)
    assert fetch_offsets(connection, ranges, GROUP, [TP], TIMEOUT_MS).error in COORDINATOR_MOVED_ERRORS
    assert (
        commit_offsets(connection, ranges, GROUP, offsets={TP: OffsetAndMetadata(2)}, timeout_ms=TIMEOUT_MS)[TP]
        in COORDINATOR_MOVED_ERRORS
    )
    assert find_coordinator(connection, ranges, GROUP, TIMEOUT_MS) == cluster.address(1)
    connection, ranges = asking(cluster, 1)
    assert fetch_offsets(connection, ranges, GROUP, [TP], TIMEOUT_MS).partitions == {TP: OffsetAndMetadata(1)}


def test_a_coordinator_that_is_down() -> None:
    cluster = a_cluster("3.9.1")
    cluster.stop_broker(0)
    connection, ranges = asking(cluster, 1)
    assert find_coordinator(connection, ranges, GROUP, TIMEOUT_MS) == codes.COORDINATOR_NOT_AVAILABLE


@every_release
def test_a_partition_without_an_offset_is_none(release: str) -> None:
    connection, ranges = asking(a_cluster(release))
    partitions = [TP, TopicPartition("nowhere", 0)]
    answer = fetch_offsets(connection, ranges, GROUP, partitions, TIMEOUT_MS)
    assert answer.error == codes.NONE
    assert answer.partitions[TP] is None
    # A broker that does not know the partition does not know either whether there is an offset.
    looks = RELEASES[release].checks_partitions_of_fetches
    assert answer.partitions[partitions[1]] == (codes.UNKNOWN_TOPIC_OR_PARTITION if looks else None)


class Forgetful:
    """A connection to a broker that answers, but not what it was asked for."""

    def request(self, api: Api[Any, Any], version: int, body: object, timeout_ms: int) -> object:
        return api.response() if version > 7 or api is FIND_COORDINATOR else api.response(topics=[])

    def send(self, api: Api[Any, Any], version: int, body: object, timeout_ms: int) -> object:
        return self.request(api, version, body, timeout_ms)

    def receive(self, pending: object, timeout_ms: int) -> object:
        return pending


@pytest.mark.parametrize("version", [3, 9])
def test_what_was_not_answered_is_named(version: int) -> None:
    ranges = SupportedVersions({api.key: VersionRange(version, version) for api in (FIND_COORDINATOR, OFFSET_FETCH)})
    connection = cast(Connection, Forgetful())
    what = "t/0" if version < 8 else "group g1"
    with pytest.raises(RemoteProtocolError, match=f"OffsetFetch v{version} .*was not answered for {what}"):
        fetch_offsets(connection, ranges, GROUP, [TP], TIMEOUT_MS)
    if version > 3:
        ranges = SupportedVersions({FIND_COORDINATOR.key: VersionRange(4, 6)})
        with pytest.raises(RemoteProtocolError, match="FindCoordinator v6 was not answered for group g1"):
            find_coordinator(connection, ranges, GROUP, TIMEOUT_MS)


def test_a_commit_that_was_not_answered_is_named() -> None:
    ranges = SupportedVersions({OFFSET_COMMIT.key: VersionRange(0, 3)})
    with pytest.raises(RemoteProtocolError, match="OffsetCommit v3 of group g1 was not answered for t/0"):
        commit_offsets(
            cast(Connection, Forgetful()), ranges, GROUP, offsets={TP: OffsetAndMetadata(1)}, timeout_ms=TIMEOUT_MS
        )


def test_everything_of_a_group_needs_a_broker_from_0_10_2_on() -> None:
    connection, ranges = asking(a_cluster("0.9.0.1"))
    with pytest.raises(KafkaException, match="the broker speaks v0 to v1, this program v2 to v9"):
        fetch_offsets(connection, ranges, GROUP, None, TIMEOUT_MS)


def test_a_broker_without_coordinators() -> None:
    connection, ranges = asking(a_cluster("0.8.1.1"))
    with pytest.raises(BrokerConnectionError):
        find_coordinator(connection, ranges, GROUP, TIMEOUT_MS)
