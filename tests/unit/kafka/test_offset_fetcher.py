"""Resets, validations and searches of offsets, as FetcherTest of Kafka requires them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.metadata_responses import metadata_update
from tests.poll_fetcher_fixtures import (
    ALL_VERSIONS,
    EARLIEST,
    LATEST_OFFSET,
    OLD_EPOCH_VERSIONS,
    RECORDS,
    REQUEST_MS,
    RETRY_MS,
    TOPIC,
    TP0,
    TP1,
    TP2,
    TP3,
    PollFetcher,
    epoch_end_response,
    full_fetch_response,
    list_offsets_response,
    offsets_of,
    record_set,
)
from zkconsumer.base.timer import FOREVER_MS
from zkconsumer.errors import (
    LogTruncationException,
    RemoteProtocolError,
    SaslAuthenticationException,
    TimeoutException,
    TopicAuthorizationException,
    UnsupportedVersionException,
)
from zkconsumer.kafka.error_codes import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_NOT_AVAILABLE,
    REPLICA_NOT_AVAILABLE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode,
    error_code,
)
from zkconsumer.kafka.fetch.fetch_position import FetchPosition
from zkconsumer.kafka.fetch.list_offsets_requests import OffsetAndTimestamp
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.metadata.leader_and_epoch import LeaderAndEpoch
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.kafka.supported_versions import VersionRange
from zkconsumer.types import TopicPartition
from zkconsumer.wire.isolation_level import IsolationLevel
from zkconsumer.wire.schemas import LIST_OFFSETS
from zkconsumer.wire.schemas.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from zkconsumer.wire.schemas.offset_for_leader_epoch import NO_EPOCH, OffsetForLeaderEpochRequest

BROKER_NOT_AVAILABLE = error_code(8)
UNDEFINED_OFFSET = -1
OTHER = TopicPartition("another-topic", 0)
LATEST, NONE = OffsetResetStrategy.LATEST, OffsetResetStrategy.NONE
RETRIABLE = [
    NOT_LEADER_OR_FOLLOWER, REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR, OFFSET_NOT_AVAILABLE, LEADER_NOT_AVAILABLE,
    FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
]  # fmt: skip


def resetting(strategy: OffsetResetStrategy | None = None, **fields: Any) -> PollFetcher:
    """A fetcher whose ``TP0`` waits for a reset."""
    made = PollFetcher(**fields)
    made.assign(TP0)
    made.subscriptions.request_offset_reset(TP0, strategy)
    return made


def reset(made: PollFetcher) -> None:
    """One round of resets, with the prepared response."""
    made.fetcher.reset_offsets_if_needed()
    made.poll()


def rows_of(body: ListOffsetsRequest | OffsetForLeaderEpochRequest) -> dict[TopicPartition, Any]:
    """The partitions of a request, as a broker reads them."""
    if isinstance(body, ListOffsetsRequest):
        return {TopicPartition(t.name, row.partition_index): row for t in body.topics for row in t.partitions}
    return {TopicPartition(t.topic, row.partition): row for t in body.topics for row in t.partitions}


# --- resets ---------------------------------------------------------------------------------------------------------


def test_a_partition_with_a_position_is_not_reset() -> None:
    made = PollFetcher()
    made.assign(TP0)
    made.subscriptions.seek(TP0, 5)
    reset(made)
    assert not made.kafka.requests
    assert made.position() == 5


@pytest.mark.parametrize(
    ("strategy", "timestamp"),
    [(None, EARLIEST), (OffsetResetStrategy.EARLIEST, EARLIEST), (LATEST, LATEST_OFFSET)],
    ids=["default", "earliest", "latest"],
)
def test_a_reset_takes_the_offset_of_its_policy_from_the_leader(
    strategy: OffsetResetStrategy | None, timestamp: int
) -> None:
    made = resetting(strategy)
    reset(made)
    assert [(tp, row.timestamp) for tp, row in rows_of(made.kafka.requests[0].body).items()] == [(TP0, timestamp)]
    made.kafka.respond(list_offsets_response({TP0: 5}))
    made.poll()
    assert not made.subscriptions.is_offset_reset_needed(TP0)
    assert made.subscriptions.is_fetchable(TP0)
    assert made.position() == 5


def test_a_reset_is_repeated_after_the_backoff_while_the_leader_has_no_offset() -> None:
    made = resetting(LATEST)
    for error in (OFFSET_NOT_AVAILABLE, LEADER_NOT_AVAILABLE):
        made.kafka.prepare(list_offsets_response({TP0: 5}, {TP0: error}))
        reset(made)
        assert not made.subscriptions.has_valid_position(TP0)
        assert made.subscriptions.is_offset_reset_needed(TP0)
        reset(made)
        assert not made.kafka.requests, "not before the back-off is over"
        made.clock.move(RETRY_MS)
    made.kafka.prepare(list_offsets_response({TP0: 5}))
    reset(made)
    assert made.position() == 5


@pytest.mark.parametrize("isolation_level", list(IsolationLevel))
def test_a_request_has_the_isolation_level(isolation_level: IsolationLevel) -> None:
    made = resetting(LATEST, isolation_level=isolation_level)
    reset(made)
    assert made.kafka.requests[0].body.isolation_level == isolation_level
    made.kafka.respond(list_offsets_response({TP0: 5}))
    made.poll()
    assert made.position() == 5


def test_read_committed_needs_brokers_that_have_transactions() -> None:
    made = resetting(LATEST, isolation_level=IsolationLevel.READ_COMMITTED)
    made.kafka.limits[LIST_OFFSETS.key] = VersionRange(0, 1)
    reset(made)
    with pytest.raises(UnsupportedVersionException):
        made.fetcher.reset_offsets_if_needed()


def test_a_reset_waits_for_the_reconnect_backoff_of_the_leader() -> None:
    made = resetting()
    made.kafka.backoff(0, 500)
    reset(made)
    assert made.network.pending_request_count() == 0
    assert made.subscriptions.reset_strategy(TP0) is OffsetResetStrategy.EARLIEST
    made.clock.move(500)
    made.kafka.prepare(list_offsets_response({TP0: 5}))
    reset(made)
    assert made.position() == 5


def test_the_failed_login_at_the_leader_is_raised() -> None:
    made = resetting()
    made.kafka.backoff(0, 500)
    made.kafka.authentication_errors[0] = SaslAuthenticationException("wrong password")
    with pytest.raises(SaslAuthenticationException):
        made.fetcher.reset_offsets_if_needed()


def test_a_reset_at_a_former_leader_requests_metadata_and_is_repeated() -> None:
    made = resetting(LATEST)
    made.kafka.prepare(list_offsets_response({TP0: 5}, {TP0: NOT_LEADER_OR_FOLLOWER}))
    reset(made)
    assert not made.subscriptions.has_valid_position(TP0)
    assert made.metadata.update_requested
    made.kafka.metadata_updates.append(metadata_update({TOPIC: 4}))
    made.poll()
    assert not made.metadata.update_requested
    made.clock.move(RETRY_MS)
    made.kafka.prepare(list_offsets_response({TP0: 5}))
    reset(made)
    assert made.position() == 5


@pytest.mark.parametrize("error", [FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH], ids=str)
def test_an_error_of_the_leader_epoch_requests_metadata(error: ErrorCode) -> None:
    made = resetting(LATEST)
    made.kafka.prepare(list_offsets_response({TP0: 5}, {TP0: error}))
    reset(made)
    assert made.subscriptions.is_offset_reset_needed(TP0)
    assert not made.subscriptions.has_valid_position(TP0)
    assert made.metadata.time_to_next_update(made.clock.now_ms()) == 0


def test_a_leader_epoch_of_brokers_without_reliable_epochs_is_ignored() -> None:
    made = PollFetcher()
    made.subscriptions.assign_from_user([TP0])
    made.update_metadata()
    made.subscriptions.request_offset_reset(TP0, LATEST)
    made.kafka.prepare(list_offsets_response({TP0: 5}, epoch=1))
    reset(made)
    assert made.position() == 5
    assert not made.metadata.update_requested
    assert made.metadata.last_seen_leader_epoch(TP0) is None


def test_a_newer_leader_epoch_requests_metadata() -> None:
    made = PollFetcher()
    made.assign(TP0, epoch=1)
    made.subscriptions.request_offset_reset(TP0, LATEST)
    made.kafka.prepare(list_offsets_response({TP0: 5}, epoch=2))
    reset(made)
    assert not made.subscriptions.is_offset_reset_needed(TP0)
    assert made.metadata.update_requested
    assert made.metadata.last_seen_leader_epoch(TP0) == 2


def test_a_request_contains_the_leader_epoch() -> None:
    made = PollFetcher()
    made.assign(TP0, epoch=99)
    made.subscriptions.request_offset_reset(TP0)
    reset(made)
    [row] = rows_of(made.kafka.requests[0].body).values()
    assert row.current_leader_epoch == 99


def test_a_reset_is_repeated_after_a_disconnect_and_the_backoff() -> None:
    made = resetting(LATEST)
    made.kafka.prepare(None, was_disconnected=True)
    reset(made)
    assert not made.subscriptions.has_valid_position(TP0)
    made.poll()
    assert not made.metadata.update_requested, "the update has arrived"
    reset(made)
    assert not made.kafka.requests
    made.clock.move(RETRY_MS)
    made.kafka.prepare(list_offsets_response({TP0: 5}))
    reset(made)
    assert made.position() == 5


def test_a_reset_without_a_response_is_repeated_after_the_request_timeout() -> None:
    made = resetting(LATEST)
    reset(made)
    assert len(made.kafka.requests) == 1
    made.clock.move(REQUEST_MS - 1)
    reset(made)
    assert len(made.kafka.requests) == 1
    made.clock.move(1)
    reset(made)
    assert len(made.kafka.requests) == 2


def in_flight() -> PollFetcher:
    """A reset of ``TP0`` to the end is in flight."""
    made = resetting(LATEST)
    reset(made)
    assert made.kafka.requests
    return made


def answered(made: PollFetcher, offset: int = 5) -> PollFetcher:
    made.kafka.respond(list_offsets_response({TP0: offset}))
    made.poll()
    assert not made.kafka.requests
    return made


def test_a_reset_of_a_former_assignment_is_ignored() -> None:
    made = in_flight()
    made.assign(TP1)
    answered(made)
    assert not made.subscriptions.is_assigned(TP0)


def test_a_reset_that_arrives_after_a_seek_does_not_undo_it() -> None:
    made = in_flight()
    made.subscriptions.seek(TP0, 237)
    answered(made)
    assert made.position() == 237


def test_a_reset_to_the_begin_that_arrives_after_one_to_the_end_is_ignored() -> None:
    made = resetting(OffsetResetStrategy.EARLIEST)
    reset(made)
    made.subscriptions.request_offset_reset(TP0, LATEST)
    answered(made, 0)
    assert made.subscriptions.is_offset_reset_needed(TP0)
    assert made.subscriptions.reset_strategy(TP0) is LATEST
    reset(made)
    answered(made, 10)
    assert made.position() == 10


def test_a_reset_to_the_end_that_arrives_after_one_to_the_begin_is_ignored() -> None:
    made = in_flight()
    made.subscriptions.request_offset_reset(TP0, OffsetResetStrategy.EARLIEST)
    answered(made)
    assert made.subscriptions.is_offset_reset_needed(TP0)
    assert made.subscriptions.reset_strategy(TP0) is OffsetResetStrategy.EARLIEST


def test_the_same_reset_once_more_needs_its_own_answer() -> None:
    """Java takes the first answer; between the two calls the program may have sought elsewhere."""
    made = in_flight()
    made.subscriptions.request_offset_reset(TP0, LATEST)
    answered(made)
    assert made.subscriptions.is_offset_reset_needed(TP0)
    reset(made)
    answered(made)
    assert made.position() == 5


def test_a_missing_permission_is_raised_once_and_the_reset_is_repeated() -> None:
    made = resetting(LATEST)
    made.kafka.prepare(list_offsets_response({TP0: -1}, {TP0: TOPIC_AUTHORIZATION_FAILED}))
    reset(made)
    assert not made.subscriptions.has_valid_position(TP0)
    with pytest.raises(TopicAuthorizationException) as raised:
        made.fetcher.reset_offsets_if_needed()
    assert raised.value.unauthorized_topics == {TOPIC}
    reset(made)
    assert not made.kafka.requests, "no request before the back-off is over"
    made.clock.move(RETRY_MS)
    made.kafka.prepare(list_offsets_response({TP0: 5}))
    reset(made)
    assert made.position() == 5


def test_one_unauthorized_topic_does_not_stop_the_resets_of_the_others() -> None:
    made = PollFetcher()
    made.subscriptions.assign_from_user([TP0, OTHER])
    made.update_metadata({TOPIC: 1, OTHER.topic: 1}, epoch=0)
    for tp in (TP0, OTHER):
        made.subscriptions.request_offset_reset(tp)
    made.kafka.prepare(list_offsets_response({TP0: 5, OTHER: -1}, {OTHER: TOPIC_AUTHORIZATION_FAILED}))
    reset(made)
    assert made.position() == 5
    with pytest.raises(TopicAuthorizationException) as raised:
        made.fetcher.reset_offsets_if_needed()
    assert raised.value.unauthorized_topics == {OTHER.topic}


def test_a_second_error_is_logged_while_the_first_is_pending() -> None:
    made = PollFetcher()
    made.assign(TP0, TP1, nodes=2)
    for tp in (TP0, TP1):
        made.subscriptions.request_offset_reset(tp)
        made.kafka.prepare(list_offsets_response({tp: -1}, {tp: TOPIC_AUTHORIZATION_FAILED}), node_id=tp.partition)
    reset(made)
    assert made.log_names() == ["offset-reset-error-dropped"]


def test_several_offsets_for_one_request_are_an_error() -> None:
    made = resetting()
    made.kafka.limits[LIST_OFFSETS.key] = VersionRange(0, 0)
    reset(made)
    made.kafka.respond(old_response([3, 2]))
    made.poll()
    with pytest.raises(RemoteProtocolError, match="2 offsets"):
        made.fetcher.reset_offsets_if_needed()


def test_a_reset_at_an_old_broker_takes_its_only_offset() -> None:
    made = resetting()
    made.kafka.limits[LIST_OFFSETS.key] = VersionRange(0, 0)
    reset(made)
    made.kafka.respond(old_response([3]))
    made.poll()
    assert made.position() == 3


def test_a_paused_partition_is_reset_and_stays_paused() -> None:
    made = PollFetcher()
    made.assign(TP0)
    made.subscriptions.pause(TP0)
    made.subscriptions.request_offset_reset(TP0, LATEST)
    made.kafka.prepare(list_offsets_response({TP0: 10}))
    reset(made)
    assert not made.subscriptions.is_offset_reset_needed(TP0)
    assert not made.subscriptions.is_fetchable(TP0)
    assert made.subscriptions.has_valid_position(TP0)
    assert made.position() == 10


def test_a_paused_partition_without_an_answer_has_no_position() -> None:
    made = PollFetcher()
    made.assign(TP0)
    made.subscriptions.request_offset_reset(TP0)
    made.subscriptions.pause(TP0)
    reset(made)
    assert made.subscriptions.is_offset_reset_needed(TP0)
    assert not made.subscriptions.is_fetchable(TP0)
    assert not made.subscriptions.has_valid_position(TP0)


def test_a_paused_partition_with_a_position_keeps_it() -> None:
    made = PollFetcher()
    made.assign(TP0)
    made.subscriptions.seek(TP0, 10)
    made.subscriptions.pause(TP0)
    reset(made)
    assert not made.kafka.requests
    assert not made.subscriptions.is_fetchable(TP0)
    assert made.position() == 10


# --- searches -------------------------------------------------------------------------------------------------------


def old_response(offsets: list[int], tp: TopicPartition = TP0) -> ListOffsetsResponse:
    """Version 0."""
    row = ListOffsetsPartitionResponse(partition_index=tp.partition, old_style_offsets=offsets)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=tp.topic, partitions=[row])])


def test_a_search_ends_with_its_timer() -> None:
    made = PollFetcher()
    with pytest.raises(TimeoutException):
        made.fetcher.offsets_for_times({TP2: 1000}, made.timer(100))


def test_a_search_for_nothing_asks_nobody() -> None:
    made = PollFetcher()
    assert made.fetcher.offsets_for_times({}, made.timer(100)) == {}
    assert made.fetcher.beginning_offsets([], made.timer(100)) == {}
    assert made.fetcher.end_offsets([], made.timer(100)) == {}
    assert made.kafka.completed == made.kafka.requests


def two_leaders() -> PollFetcher:
    made = PollFetcher()
    made.assign(TP0, TP1, nodes=2)
    return made


@pytest.mark.parametrize(
    ("error_0", "error_1", "offset_0", "found_0"),
    [
        (None, None, -1, None),
        (None, None, 10, 10),
        (NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST, 10, 10),
        (None, NOT_LEADER_OR_FOLLOWER, 10, 10),
        (NOT_LEADER_OR_FOLLOWER, None, 10, 10),
        (UNKNOWN_TOPIC_OR_PARTITION, None, 10, 10),
        (UNSUPPORTED_FOR_MESSAGE_FORMAT, None, 10, None),
        (BROKER_NOT_AVAILABLE, None, 10, 10),
    ],
)
def test_a_search_is_repeated_after_transient_errors(
    error_0: ErrorCode | None, error_1: ErrorCode | None, offset_0: int, found_0: int | None
) -> None:
    made = two_leaders()
    for tp, error in ((TP0, error_0), (TP1, error_1)):
        offset = {TP0: offset_0, TP1: 100}[tp]
        if error is not None:
            made.kafka.prepare(list_offsets_response({tp: offset}, {tp: error}), node_id=tp.partition)
        made.kafka.prepare(list_offsets_response({tp: offset}, timestamp=7), node_id=tp.partition)
    found = made.fetcher.offsets_for_times({TP0: 0, TP1: 0}, made.timer(60_000))
    assert found == {
        TP0: None if found_0 is None else OffsetAndTimestamp(found_0, 7, None),
        TP1: OffsetAndTimestamp(100, 7, None),
    }


@pytest.mark.parametrize("error", RETRIABLE, ids=str)
def test_a_search_is_repeated_at_the_new_leader_and_only_for_what_is_missing(error: ErrorCode) -> None:
    made = PollFetcher()
    made.subscriptions.assign_from_user([TP0, TP1])
    made.update_metadata()
    asked: list[Any] = []
    made.kafka.prepare(
        list_offsets_response({TP0: 4, TP1: -1}, {TP1: error}, timestamp=10), node_id=0, check=asked.append
    )
    made.kafka.metadata_updates.append(metadata_update({TOPIC: 4}, nodes=3, epoch=3))
    made.kafka.prepare(list_offsets_response({TP1: 5}, {TP1: NOT_LEADER_OR_FOLLOWER}), node_id=0)
    made.kafka.prepare(list_offsets_response({TP1: 5}, timestamp=10), node_id=1, check=asked.append)
    found = made.fetcher.offsets_for_times({TP0: 10, TP1: 10}, made.timer(1_000_000))
    assert found == {TP0: OffsetAndTimestamp(4, 10), TP1: OffsetAndTimestamp(5, 10)}
    first, second = map(rows_of, asked)
    assert {tp: (row.timestamp, row.current_leader_epoch) for tp, row in first.items()} == dict.fromkeys(
        (TP0, TP1), (10, -1)
    )
    assert {tp: (row.timestamp, row.current_leader_epoch) for tp, row in second.items()} == {TP1: (10, 3)}
    assert len(made.kafka.prepared) == 1, "the former leader was not asked again"


def test_a_search_waits_for_leaders_that_are_not_known_yet() -> None:
    made = PollFetcher()
    made.subscriptions.assign_from_user([TP0, TP1])
    made.update_metadata({TOPIC: 2}, nodes=3)
    made.kafka.metadata_updates.append(metadata_update({TOPIC: 2}, nodes=3))
    made.kafka.metadata_updates.append(metadata_update({TOPIC: 2, OTHER.topic: 1}, nodes=3))
    made.kafka.prepare(list_offsets_response({TP1: 32}), node_id=1)
    made.kafka.prepare(list_offsets_response({TP0: 11}), node_id=0)
    made.kafka.prepare(list_offsets_response({OTHER: 54}), node_id=0)
    found = made.fetcher.offsets_for_times(dict.fromkeys((TP0, TP1, OTHER), -1), made.timer(1_000_000))
    assert {tp: row and row.offset for tp, row in found.items()} == {TP0: 11, TP1: 32, OTHER: 54}


def test_a_search_is_repeated_after_a_disconnect() -> None:
    made = PollFetcher()
    made.subscriptions.assign_from_user([TP0])
    made.update_metadata({TOPIC: 1})
    made.kafka.prepare(None, was_disconnected=True)
    made.kafka.prepare(list_offsets_response({TP0: 11}))
    found = made.fetcher.offsets_for_times({TP0: -1}, made.timer(FOREVER_MS))
    assert found[TP0] == OffsetAndTimestamp(11, 1)


def test_what_one_leader_has_answered_is_kept_when_another_fails() -> None:
    made = two_leaders()
    made.kafka.prepare(None, node_id=0, was_disconnected=True)
    made.kafka.prepare(list_offsets_response({TP1: 7}), node_id=1)
    made.kafka.prepare(list_offsets_response({TP0: 5}), node_id=0)
    assert made.fetcher.end_offsets([TP0, TP1], made.timer(1_000_000)) == {TP0: 5, TP1: 7}
    assert not made.kafka.prepared


def test_a_search_without_a_timeout_waits_for_nothing() -> None:
    made = PollFetcher()
    made.assign(TP0, TP1)
    times = {TP0: EARLIEST, TP1: EARLIEST}
    assert made.fetcher.offsets_for_times(times, made.timer(0)) == {TP0: None, TP1: None}


def test_the_end_offset_of_a_search_without_a_timeout_arrives_later() -> None:
    for isolation_level in IsolationLevel:
        made = PollFetcher(isolation_level=isolation_level)
        made.assign(TP0)
        made.subscriptions.seek(TP0, 1)
        assert made.fetcher.end_offsets([TP0], made.timer(0)) == {}
        made.kafka.prepare(list_offsets_response({TP0: 9}))
        made.poll()
        assert made.subscriptions.partition_lag(TP0, isolation_level) == 8


def test_a_search_for_the_begin_does_not_change_the_end() -> None:
    made = PollFetcher()
    made.assign(TP0)
    made.subscriptions.seek(TP0, 1)
    made.kafka.prepare(list_offsets_response({TP0: 0}))
    assert made.fetcher.beginning_offsets([TP0], made.timer(1000)) == {TP0: 0}
    assert made.subscriptions.partition_lag(TP0, IsolationLevel.READ_UNCOMMITTED) is None
    made.kafka.prepare(list_offsets_response({TP0: 9}))
    assert made.fetcher.end_offsets([TP0], made.timer(1000)) == {TP0: 9}
    assert made.subscriptions.partition_lag(TP0, IsolationLevel.READ_UNCOMMITTED) == 8


def test_a_search_whose_partitions_all_fail_ends_with_its_timer() -> None:
    made = PollFetcher()
    made.assign(TP0, TP1)
    errors = {TP0: NOT_LEADER_OR_FOLLOWER, TP1: UNKNOWN_TOPIC_OR_PARTITION}
    made.kafka.prepare(list_offsets_response({TP0: -1, TP1: -1}, errors))
    with pytest.raises(TimeoutException):
        made.fetcher.offsets_for_times({TP0: EARLIEST, TP1: EARLIEST}, made.timer(1))


def test_a_search_in_an_unauthorized_topic_raises() -> None:
    made = PollFetcher()
    made.assign(TP0)
    made.kafka.prepare(list_offsets_response({TP0: -1}, {TP0: TOPIC_AUTHORIZATION_FAILED}))
    with pytest.raises(TopicAuthorizationException):
        made.fetcher.end_offsets([TP0], made.timer(1000))


def test_a_search_by_time_needs_brokers_from_0_10_1() -> None:
    made = PollFetcher()
    made.assign(TP0)
    made.kafka.limits[LIST_OFFSETS.key] = VersionRange(0, 0)
    with pytest.raises(UnsupportedVersionException):
        made.fetcher.offsets_for_times({TP0: 5}, made.timer(1000))
    made.kafka.prepare(old_response([]))
    assert made.fetcher.end_offsets([TP0], made.timer(1000)) == {}, "a broker without an offset"
    made.kafka.prepare(old_response([-1]))
    assert made.fetcher.end_offsets([TP0], made.timer(1000)) == {}
    made.kafka.prepare(old_response([4]))
    assert made.fetcher.end_offsets([TP0], made.timer(1000)) == {TP0: 4}


@pytest.mark.parametrize("is_end", [False, True])
def test_begin_and_end_of_partitions_are_found_each_once(is_end: bool) -> None:
    made = PollFetcher()
    made.assign(TP0, TP1, TP2)
    search = made.fetcher.end_offsets if is_end else made.fetcher.beginning_offsets
    asked: list[Any] = []
    wanted = {TP0: 2, TP1: 4, TP2: 6}
    made.kafka.prepare(list_offsets_response(wanted), check=asked.append)
    assert search([TP0, TP1, TP2], made.timer(5000)) == wanted
    assert {row.timestamp for row in rows_of(asked[0]).values()} == {LATEST_OFFSET if is_end else EARLIEST}
    made.kafka.prepare(list_offsets_response({TP0: 2}), check=asked.append)
    assert search([TP0, TP0], made.timer(5000)) == {TP0: 2}
    assert list(rows_of(asked[1])) == [TP0]
    made.kafka.prepare(list_offsets_response({TP0: 2}))
    assert search([TP0], made.timer(5000)) == {TP0: 2}


def test_the_metadata_of_a_searched_topic_is_read_only_during_the_search() -> None:
    made = PollFetcher()
    made.assign(TP0)
    made.kafka.metadata_updates.append(metadata_update({TOPIC: 4, OTHER.topic: 1}))
    made.kafka.prepare(list_offsets_response({OTHER: 3}))
    assert made.fetcher.end_offsets([OTHER], made.timer(5000)) == {OTHER: 3}
    assert not made.metadata.retain_topic(OTHER.topic, False, made.clock.now_ms())


# --- validation -----------------------------------------------------------------------------------------------------


def validating(epoch: int = 1, offset: int = 0, *, versions: Any = ALL_VERSIONS, **fields: Any) -> PollFetcher:
    """The position of ``TP0`` awaits its validation at node 0."""
    made = PollFetcher(**fields)
    made.assign(TP0, epoch=epoch)
    if versions is not None:
        made.kafka.versions[0] = versions
    seek(made, offset, epoch)
    return made


def seek(made: PollFetcher, offset: int, epoch: int, tp: TopicPartition = TP0) -> None:
    leader = LeaderAndEpoch(made.metadata.current_leader(tp).leader, epoch)
    made.subscriptions.seek_unvalidated(tp, FetchPosition(offset, epoch, leader))


def validate(made: PollFetcher) -> None:
    made.fetcher.validate_offsets_if_needed()
    made.poll()


def test_each_leader_gets_one_request_with_its_partitions() -> None:
    made = PollFetcher()
    partitions = [TP0, TP1, TP2, TP3]
    made.assign(*partitions, epoch=5, nodes=3)
    asked: dict[int, set[TopicPartition]] = {}
    for node in made.metadata.fetch().nodes:
        made.kafka.versions[node.id] = ALL_VERSIONS
        of_node = [tp for tp in partitions if made.metadata.current_leader(tp).leader == node]
        made.kafka.prepare(
            epoch_end_response(dict.fromkeys(of_node, (4, 0))),
            node_id=node.id,
            check=lambda body, node=node: asked.setdefault(node.id, set(rows_of(body))),
        )
    for tp in partitions:
        seek(made, 0, 4, tp)
    validate(made)
    assert asked == {0: {TP0, TP3}, 1: {TP1}, 2: {TP2}}
    assert not any(map(made.subscriptions.awaiting_validation, partitions))


def test_a_validation_waits_for_the_versions_of_the_leader() -> None:
    made = validating(offset=20, versions=None)
    assert made.subscriptions.awaiting_validation(TP0)
    assert not made.kafka.connected
    validate(made)
    assert made.subscriptions.awaiting_validation(TP0)
    assert made.kafka.connected == {0}
    assert not made.kafka.requests
    made.kafka.versions[0] = ALL_VERSIONS
    made.kafka.prepare(epoch_end_response({TP0: (1, 30)}))
    validate(made)
    assert not made.subscriptions.awaiting_validation(TP0)
    assert made.position() == 20


def test_a_leader_that_needs_cluster_permissions_is_not_asked() -> None:
    made = validating(versions=OLD_EPOCH_VERSIONS)
    made.update_metadata(epoch=2)
    validate(made)
    assert not made.subscriptions.awaiting_validation(TP0)
    seek(made, 0, 1)
    made.update_metadata(epoch=2)
    assert made.fetcher.send_fetches() == 1
    assert not made.subscriptions.awaiting_validation(TP0)
    seek(made, 0, 1)
    made.fetcher.validate_offsets_if_needed()
    assert not made.subscriptions.awaiting_validation(TP0), "also without an update of the metadata"


def test_metadata_without_reliable_epochs_ends_the_validation() -> None:
    made = validating(offset=20, versions=None)
    made.kafka.update_metadata(metadata_update({TOPIC: 4}, epoch=1), version=8)
    validate(made)
    assert not made.subscriptions.awaiting_validation(TP0)


def ended(made: PollFetcher, epoch: int, end_offset: int) -> PollFetcher:
    """The leader answers the end of the epoch."""
    validate(made)
    assert made.subscriptions.awaiting_validation(TP0)
    [row] = rows_of(made.kafka.requests[0].body).values()
    assert (row.current_leader_epoch, row.leader_epoch) == (1, 1)
    made.kafka.respond(epoch_end_response({TP0: (epoch, end_offset)}))
    made.poll()
    return made


@pytest.mark.parametrize(("epoch", "end_offset"), [(NO_EPOCH, 0), (2, UNDEFINED_OFFSET)], ids=["epoch", "offset"])
def test_an_unknown_end_of_the_epoch_resets_the_position(epoch: int, end_offset: int) -> None:
    made = ended(validating(offset=5), epoch, end_offset)
    made.fetcher.validate_offsets_if_needed()
    assert not made.subscriptions.awaiting_validation(TP0)
    assert made.subscriptions.is_offset_reset_needed(TP0)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "divergent"),
    [
        (NO_EPOCH, 0, {}),
        (2, UNDEFINED_OFFSET, {}),
        (1, 1, {TP0: OffsetAndMetadata(1, leader_epoch=1)}),
    ],
    ids=["epoch", "offset", "divergent"],
)
def test_without_a_reset_policy_a_truncated_log_raises(
    epoch: int, end_offset: int, divergent: dict[TopicPartition, OffsetAndMetadata]
) -> None:
    made = ended(validating(offset=5, strategy=NONE), epoch, end_offset)
    with pytest.raises(LogTruncationException, match="truncated") as raised:
        made.fetcher.validate_offsets_if_needed()
    assert raised.value.offset_out_of_range_partitions == {TP0: 5}
    assert raised.value.divergent_offsets == divergent
    assert made.subscriptions.awaiting_validation(TP0)


def test_without_a_reset_policy_a_truncated_log_raises_again_until_a_seek() -> None:
    made = validating(offset=5, strategy=NONE)
    for _ in range(3):
        ended(made, 1, 1)
        with pytest.raises(LogTruncationException, match="truncated"):
            made.fetcher.validate_offsets_if_needed()
        made.clock.move(RETRY_MS)
    made.subscriptions.seek(TP0, 1)
    made.fetcher.validate_offsets_if_needed()
    assert not made.kafka.requests


def test_a_validation_that_arrives_after_a_seek_is_ignored() -> None:
    made = validating()
    validate(made)
    assert made.kafka.requests
    seek(made, 5, 1)
    made.kafka.respond(epoch_end_response({TP0: (0, 0)}))
    made.poll()
    assert made.subscriptions.awaiting_validation(TP0)


def test_a_validation_that_arrives_after_another_change_of_the_leader_is_ignored() -> None:
    made = PollFetcher()
    made.assign(TP0, epoch=1)
    made.kafka.versions[0] = ALL_VERSIONS
    leader = made.metadata.current_leader(TP0)
    made.subscriptions.seek_validated(TP0, FetchPosition(0, 1, leader))
    made.update_metadata(epoch=2)
    made.fetcher.validate_offsets_if_needed()
    assert made.subscriptions.awaiting_validation(TP0)
    made.subscriptions.complete_validation(TP0)
    made.subscriptions.set_position(TP0, FetchPosition(10, 2, leader._replace(epoch=2)))
    made.subscriptions.maybe_validate_position_for_current_leader(ALL_VERSIONS, TP0, leader._replace(epoch=3))
    made.kafka.prepare(epoch_end_response({TP0: (2, 10)}))
    made.poll()
    assert made.subscriptions.awaiting_validation(TP0)
    made.kafka.prepare(epoch_end_response({TP0: (3, 10)}))
    validate(made)
    assert not made.subscriptions.awaiting_validation(TP0)


def test_a_partition_in_reset_is_not_fetched_because_its_leader_is_old() -> None:
    made = PollFetcher()
    made.assign(TP0, epoch=1)
    made.kafka.versions[0] = OLD_EPOCH_VERSIONS
    made.subscriptions.request_offset_reset(TP0, LATEST)
    assert made.fetcher.send_fetches() == 0
    assert made.fetcher.send_fetches() == 0
    made.kafka.prepare(list_offsets_response({TP0: 100}))
    reset(made)
    assert made.fetcher.send_fetches() == 1


def test_a_validated_position_is_fetched() -> None:
    made = PollFetcher()
    made.assign(TP0, epoch=2)
    made.kafka.versions[0] = ALL_VERSIONS
    leader = made.metadata.current_leader(TP0)
    made.subscriptions.seek_validated(TP0, FetchPosition(0, 1, leader._replace(epoch=1)))
    made.fetcher.validate_offsets_if_needed()
    assert made.fetcher.send_fetches() == 0
    assert made.subscriptions.awaiting_validation(TP0)
    made.kafka.prepare(epoch_end_response({TP0: (1, 10)}))
    made.poll()
    assert not made.subscriptions.awaiting_validation(TP0)
    found = made.fetch(full_fetch_response(TP0, record_set(0, 3, epoch=1)))
    assert offsets_of(found[TP0]) == [0, 1, 2]
    position = made.subscriptions.position(TP0)
    assert position is not None
    assert (position.offset, position.offset_epoch) == (3, 1)


def test_a_failed_validation_is_repeated_after_the_backoff() -> None:
    made = validating(offset=5)
    made.kafka.prepare(None, was_disconnected=True)
    validate(made)
    assert made.metadata.update_requested
    validate(made)
    assert not made.kafka.requests
    made.clock.move(RETRY_MS)
    made.kafka.prepare(epoch_end_response({TP0: (1, 9)}, {TP0: UNKNOWN_LEADER_EPOCH}))
    validate(made)
    assert made.subscriptions.awaiting_validation(TP0)
    made.clock.move(RETRY_MS)
    made.kafka.prepare(epoch_end_response({TP0: (1, 9)}))
    validate(made)
    assert made.position() == 5
    assert not made.subscriptions.awaiting_validation(TP0)


def test_an_unauthorized_topic_does_not_stop_the_validation_of_the_others() -> None:
    made = PollFetcher()
    made.subscriptions.assign_from_user([TP0, OTHER])
    made.update_metadata({TOPIC: 1, OTHER.topic: 1}, epoch=1)
    made.kafka.versions[0] = ALL_VERSIONS
    for tp in (TP0, OTHER):
        seek(made, 0, 1, tp)
    made.kafka.prepare(epoch_end_response({TP0: (1, 10), OTHER: (-1, -1)}, {OTHER: TOPIC_AUTHORIZATION_FAILED}))
    validate(made)
    assert not made.subscriptions.awaiting_validation(TP0)
    assert made.subscriptions.awaiting_validation(OTHER)
    with pytest.raises(TopicAuthorizationException):
        made.fetcher.validate_offsets_if_needed()
    assert made.fetcher.send_fetches() == 1
    made.kafka.prepare(full_fetch_response(TP0, RECORDS))
    made.poll()
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [1, 2, 3]
