"""What brokers of each release do with the offsets of groups: the same tests for the fake ones and the real ones."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from bridge.coordinator.config import GroupCoordinatorConfig
from bridge.coordinator.release_features import BrokerRelease
from tests.conformance.brokers_under_test import TIMEOUT_MS, BrokerUnderTest
from zkconsumer.errors import KafkaException
from zkconsumer.kafka import error_codes as codes
from zkconsumer.kafka.coordinator_groups import describe_coordinator_group
from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.kafka.group_offsets import (
    OffsetFetchResult,
    commit_offsets,
    delete_offsets,
    fetch_offsets,
    find_coordinator,
)
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.kafka.supported_versions import SupportedVersions, VersionRange
from zkconsumer.testing.sandbox.waiting import wait_until
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.schemas import (
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    Api,
)
from zkconsumer.wire.schemas.list_groups import STATES_FROM, ListGroupsRequest
from zkconsumer.wire.schemas.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from zkconsumer.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from zkconsumer.zk import paths

METADATA_CHARS_MAX = GroupCoordinatorConfig().offset_metadata_max_chars

_numbers = itertools.count()


def a_group() -> str:
    return f"conformance-group-{next(_numbers)}"


def versions_of(broker: BrokerUnderTest, api: Api[Any, Any], at_least: int = 0) -> list[int]:
    """The versions that both sides support; of a release without ApiVersions those that are known."""
    there = broker.release.range_of(api)
    if there is None:
        return []
    return list(range(max(there.lowest, at_least), min(there.highest, api.client_highest) + 1))


def only(api: Api[Any, Any], version: int) -> SupportedVersions:
    return SupportedVersions({api.key: VersionRange(version, version)})


def has_groups(broker: BrokerUnderTest) -> bool:
    return broker.release.range_of(FIND_COORDINATOR) is not None


def coordinator(broker: BrokerUnderTest, group: str, version: int = 0) -> BrokerAddress:
    """The first question makes the topic of the offsets, and is answered by error 15 until it has leaders."""
    found: list[BrokerAddress | ErrorCode] = []

    def is_found() -> bool:
        found[:] = [find_coordinator(broker.connection(), only(FIND_COORDINATOR, version), group, TIMEOUT_MS)]
        assert isinstance(found[0], BrokerAddress) or found[0] == codes.COORDINATOR_NOT_AVAILABLE
        return isinstance(found[0], BrokerAddress)

    wait_until(is_found, f"group {group} has a coordinator", TIMEOUT_MS)
    assert isinstance(found[0], BrokerAddress)
    return found[0]


def ready_group(broker: BrokerUnderTest) -> str:
    """A group whose coordinator has loaded what it keeps."""
    group = a_group()
    coordinator(broker, group)
    version = max(versions_of(broker, OFFSET_FETCH))

    def is_loaded() -> bool:
        answer = fetch(broker, group, TopicPartition("no-such-topic", 0), version)
        assert answer.error in (codes.NONE, codes.COORDINATOR_LOAD_IN_PROGRESS, codes.NOT_COORDINATOR)
        return answer.error == codes.NONE

    wait_until(is_loaded, f"the offsets of group {group} are loaded", TIMEOUT_MS)
    return group


def fetch(broker: BrokerUnderTest, group: str, tp: TopicPartition, version: int) -> OffsetFetchResult:
    return fetch_offsets(broker.connection(), only(OFFSET_FETCH, version), group, [tp], TIMEOUT_MS)


def commit(
    broker: BrokerUnderTest, group: str, tp: TopicPartition, version: int, offset: int, metadata: str = ""
) -> ErrorCode:
    offsets = {tp: OffsetAndMetadata(offset, metadata)}
    return commit_offsets(
        broker.connection(), only(OFFSET_COMMIT, version), group, offsets=offsets, timeout_ms=TIMEOUT_MS
    )[tp]


def commit_v0(broker: BrokerUnderTest, group: str, tp: TopicPartition, offset: int, metadata: str = "") -> int:
    row = OffsetCommitPartition(partition_index=tp.partition, committed_offset=offset, committed_metadata=metadata)
    body = OffsetCommitRequest(group_id=group, topics=[OffsetCommitTopic(name=tp.topic, partitions=[row])])
    response = broker.connection().request(OFFSET_COMMIT, 0, body, TIMEOUT_MS)
    return int(response.topics[0].partitions[0].error_code)


def fetch_v0(broker: BrokerUnderTest, group: str, tp: TopicPartition) -> tuple[int, str | None, int]:
    body = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchTopic(name=tp.topic, partition_indexes=[tp.partition])]
    )
    row = broker.connection().request(OFFSET_FETCH, 0, body, TIMEOUT_MS).topics[0].partitions[0]
    return row.committed_offset, row.metadata, row.error_code


def test_the_coordinator_in_every_version(broker_under_test: BrokerUnderTest) -> None:
    for version in versions_of(broker_under_test, FIND_COORDINATOR):
        found = coordinator(broker_under_test, a_group(), version)
        assert found[1:] == (broker_under_test.host, broker_under_test.port)


def test_a_broker_without_groups_closes_the_connection(broker_under_test: BrokerUnderTest) -> None:
    if has_groups(broker_under_test):
        return
    with pytest.raises(BrokerConnectionError):
        find_coordinator(broker_under_test.connection(), broker_under_test.ranges, a_group(), TIMEOUT_MS)


def test_committed_offsets_are_fetched_in_every_version(broker_under_test: BrokerUnderTest) -> None:
    if not has_groups(broker_under_test):
        return
    tp = TopicPartition(broker_under_test.topic(), 0)
    group = ready_group(broker_under_test)
    for version in versions_of(broker_under_test, OFFSET_COMMIT, 1):
        assert commit(broker_under_test, group, tp, version, 100 + version, f"by v{version}") == codes.NONE
        for fetching in versions_of(broker_under_test, OFFSET_FETCH, 1):
            answer = fetch(broker_under_test, group, tp, fetching)
            assert answer == OffsetFetchResult(codes.NONE, {tp: OffsetAndMetadata(100 + version, f"by v{version}")})


def test_a_partition_without_an_offset(broker_under_test: BrokerUnderTest) -> None:
    """Every version but 0 answers that no offset is stored, also for unknown topics; only 0.8.2 has error 3 for those.

    So error 3 never means "no offset": a broker of 0.8.2 that was just restarted may not have read its topics yet.
    """
    if not has_groups(broker_under_test):
        return
    known, unknown = TopicPartition(broker_under_test.topic(), 0), TopicPartition("no-such-topic", 0)
    group = ready_group(broker_under_test)
    for version in versions_of(broker_under_test, OFFSET_FETCH, 1):
        assert fetch(broker_under_test, group, known, version) == OffsetFetchResult(codes.NONE, {known: None})
        stored = codes.UNKNOWN_TOPIC_OR_PARTITION if broker_under_test.release.checks_partitions_of_fetches else None
        assert fetch(broker_under_test, group, unknown, version) == OffsetFetchResult(codes.NONE, {unknown: stored})
    body = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchTopic(name=tp.topic, partition_indexes=[0]) for tp in (known, unknown)]
    )
    answered = broker_under_test.connection().request(OFFSET_FETCH, 1, body, TIMEOUT_MS)
    rows = {topic.name: topic.partitions[0] for topic in answered.topics}
    error = codes.UNKNOWN_TOPIC_OR_PARTITION if broker_under_test.release.checks_partitions_of_fetches else codes.NONE
    assert (rows[known.topic].committed_offset, rows[known.topic].error_code) == (-1, 0)
    assert (rows[unknown.topic].committed_offset, rows[unknown.topic].error_code) == (-1, error.code)


def test_all_that_a_group_has_stored(broker_under_test: BrokerUnderTest) -> None:
    if not has_groups(broker_under_test):
        return
    group = ready_group(broker_under_test)
    stored = {TopicPartition(broker_under_test.topic(), 0): OffsetAndMetadata(number, "") for number in (3, 4)}
    version = max(versions_of(broker_under_test, OFFSET_COMMIT))
    commit_offsets(
        broker_under_test.connection(), only(OFFSET_COMMIT, version), group, offsets=stored, timeout_ms=TIMEOUT_MS
    )
    for fetching in versions_of(broker_under_test, OFFSET_FETCH, 1):
        ranges = only(OFFSET_FETCH, fetching)
        if fetching < 2:
            with pytest.raises(KafkaException, match="no common version"):
                fetch_offsets(broker_under_test.connection(), ranges, group, None, TIMEOUT_MS)
        else:
            answer = fetch_offsets(broker_under_test.connection(), ranges, group, None, TIMEOUT_MS)
            assert answer == OffsetFetchResult(codes.NONE, stored)
            nothing = fetch_offsets(broker_under_test.connection(), ranges, a_group_of(group), None, TIMEOUT_MS)
            assert nothing == OffsetFetchResult(codes.NONE, {})


def a_group_of(group: str) -> str:
    """Another group, which has stored nothing."""
    return f"{group}-empty"


def test_commits_for_partitions_that_do_not_exist(broker_under_test: BrokerUnderTest) -> None:
    if not has_groups(broker_under_test):
        return
    topic = broker_under_test.topic()
    group = ready_group(broker_under_test)
    error, release = codes.UNKNOWN_TOPIC_OR_PARTITION, broker_under_test.release
    for version in versions_of(broker_under_test, OFFSET_COMMIT, 1):
        expected = error if release.checks_topics_of_commits else codes.NONE
        assert commit(broker_under_test, group, TopicPartition("nowhere", 0), version, 1) == expected
        expected = error if release.checks_partitions_of_commits else codes.NONE
        assert commit(broker_under_test, group, TopicPartition(topic, 77), version, 1) == expected


def test_a_note_that_is_too_long(broker_under_test: BrokerUnderTest) -> None:
    if not has_groups(broker_under_test):
        return
    tp = TopicPartition(broker_under_test.topic(), 0)
    group = ready_group(broker_under_test)
    for version in versions_of(broker_under_test, OFFSET_COMMIT, 1):
        assert commit(broker_under_test, group, tp, version, 1, "ä" * METADATA_CHARS_MAX) == codes.NONE
        too_long = commit(broker_under_test, group, tp, version, 2, "x" * (METADATA_CHARS_MAX + 1))
        assert too_long == codes.OFFSET_METADATA_TOO_LARGE


def test_while_a_coordinator_group_of_the_name_is_alive(broker_under_test: BrokerUnderTest) -> None:
    """Only its members may commit to Kafka's store; every client may read."""
    if not has_groups(broker_under_test) or not broker_under_test.release.supports_group_members:
        return
    tp = TopicPartition(broker_under_test.topic(b"a"), 0)
    group = ready_group(broker_under_test)
    newest = max(versions_of(broker_under_test, OFFSET_COMMIT))
    assert commit(broker_under_test, group, tp, newest, 5) == codes.NONE
    with broker_under_test.topics.modern_member(group, tp.topic):
        for version in versions_of(broker_under_test, OFFSET_COMMIT, 1):
            assert commit(broker_under_test, group, tp, version, 6) == codes.UNKNOWN_MEMBER_ID
        for version in versions_of(broker_under_test, OFFSET_FETCH, 1):
            answer = fetch(broker_under_test, group, tp, version)
            assert answer == OffsetFetchResult(codes.NONE, {tp: OffsetAndMetadata(5)})
    assert commit(broker_under_test, group, tp, newest, 7) == codes.NONE


def test_offsets_can_be_deleted_except_those_of_a_live_group(
    broker_under_test: BrokerUnderTest,
) -> None:
    if not versions_of(broker_under_test, OFFSET_DELETE):
        return
    topic = broker_under_test.topic(b"a")
    tp, unknown = TopicPartition(topic, 0), TopicPartition("no-such-topic", 0)
    group = ready_group(broker_under_test)
    newest = max(versions_of(broker_under_test, OFFSET_COMMIT))
    reading = max(versions_of(broker_under_test, OFFSET_FETCH))

    def delete(*partitions: TopicPartition) -> list[ErrorCode]:
        ranges = only(OFFSET_DELETE, 0)
        return list(delete_offsets(broker_under_test.connection(), ranges, group, partitions, TIMEOUT_MS).values())

    assert delete(tp, unknown) == [codes.GROUP_ID_NOT_FOUND] * 2
    assert commit(broker_under_test, group, tp, newest, 5) == codes.NONE
    with broker_under_test.topics.modern_member(group, tp.topic):
        assert delete(tp) == [codes.GROUP_SUBSCRIBED_TO_TOPIC]
    assert fetch(broker_under_test, group, tp, reading).partitions == {tp: OffsetAndMetadata(5)}
    assert delete(tp, unknown) == [codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION]
    assert fetch(broker_under_test, group, tp, reading).partitions == {tp: None}
    # Brokers before 4.0 forget a group that has nothing left at once, later ones some time after.
    assert delete(tp) in ([codes.GROUP_ID_NOT_FOUND], [codes.NONE])


def speaks_version_0(release: BrokerRelease) -> bool:
    commits = release.range_of(OFFSET_COMMIT)
    return commits is not None and commits.lowest == 0


def test_version_0_is_zookeeper(broker_under_test: BrokerUnderTest) -> None:
    """The note is dropped: Kafka's own store has no such field, and ZooKeeper does not have that store's contents."""
    if not speaks_version_0(broker_under_test.release):
        return
    tp = TopicPartition(broker_under_test.topic(), 0)
    group = ready_group(broker_under_test) if has_groups(broker_under_test) else a_group()
    path = paths.offset(group, tp)
    assert fetch_v0(broker_under_test, group, tp) == (-1, "", codes.UNKNOWN_TOPIC_OR_PARTITION.code)
    assert commit_v0(broker_under_test, group, tp, 42, "note") == 0
    assert broker_under_test.topics.znode(path) == b"42"
    assert fetch_v0(broker_under_test, group, tp) == (42, "", 0)
    unknown = TopicPartition("no-such-topic", 0)
    assert commit_v0(broker_under_test, group, unknown, 1) == codes.UNKNOWN_TOPIC_OR_PARTITION.code
    assert fetch_v0(broker_under_test, group, unknown) == (-1, "", codes.UNKNOWN_TOPIC_OR_PARTITION.code)
    too_long = commit_v0(broker_under_test, group, tp, 43, "x" * (METADATA_CHARS_MAX + 1))
    assert too_long == codes.OFFSET_METADATA_TOO_LARGE.code
    if has_groups(broker_under_test):
        version = max(versions_of(broker_under_test, OFFSET_FETCH))
        assert fetch(broker_under_test, group, tp, version) == OffsetFetchResult(codes.NONE, {tp: None})
        assert commit(broker_under_test, group, tp, max(versions_of(broker_under_test, OFFSET_COMMIT)), 9) == codes.NONE
        assert broker_under_test.topics.znode(path) == b"42"


def test_an_unknown_coordinator_group_is_dead_and_one_with_offsets_only_is_empty(
    broker_under_test: BrokerUnderTest,
) -> None:
    versions = versions_of(broker_under_test, DESCRIBE_GROUPS)
    if not versions:
        return
    group = ready_group(broker_under_test)
    for version in versions:
        ranges = SupportedVersions({DESCRIBE_GROUPS.key: VersionRange(version, version)})
        unknown = describe_coordinator_group(broker_under_test.connection(), ranges, group, TIMEOUT_MS)
        assert (unknown.state, unknown.members, unknown.has_members) == ("Dead", (), False)
    if broker_under_test.release.version < (1,):
        return  # until then offsets alone make no group that anybody describes
    tp = TopicPartition(broker_under_test.topic(), 0)
    newest = max(versions_of(broker_under_test, OFFSET_COMMIT))
    assert commit(broker_under_test, group, tp, newest, 5) == codes.NONE
    for version in versions:
        ranges = SupportedVersions({DESCRIBE_GROUPS.key: VersionRange(version, version)})
        known = describe_coordinator_group(broker_under_test.connection(), ranges, group, TIMEOUT_MS)
        assert (known.state, known.has_members) == ("Empty", False)
    for version in versions_of(broker_under_test, LIST_GROUPS):
        listed = broker_under_test.connection().request(LIST_GROUPS, version, ListGroupsRequest(), TIMEOUT_MS)
        [row] = [one for one in listed.groups if one.group_id == group]
        assert (row.protocol_type, row.group_state) == ("", "Empty" if version >= STATES_FROM else "")
