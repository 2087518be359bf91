"""``SubscriptionState``: subscription, assignment and positions (Kafka's SubscriptionStateTest), and late answers."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkconsumer.errors import NoOffsetForPartitionException, UsageError
from zkconsumer.kafka.fetch.fetch_position import FetchPosition, LogTruncation
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.fetch.partition_positions import LOG_EVENTS_MAX
from zkconsumer.kafka.fetch.subscription_state import SubscriptionState
from zkconsumer.kafka.fetch.topic_partition_state import TopicPartitionState
from zkconsumer.kafka.metadata.leader_and_epoch import LeaderAndEpoch
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.kafka.supported_versions import SupportedVersions, VersionRange
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, TopicPartition
from zkconsumer.wire.isolation_level import IsolationLevel
from zkconsumer.wire.schemas import OFFSET_FOR_LEADER_EPOCH
from zkconsumer.wire.schemas.fetch import EpochEndOffset

TOPIC, TOPIC1 = "test", "test1"
TP0, TP1, T1P0 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1), TopicPartition(TOPIC1, 0)
BROKER = Node(1, "localhost", 9092)
NEW_VERSIONS = SupportedVersions({OFFSET_FOR_LEADER_EPOCH.key: VersionRange(0, 4)})
OLD_VERSIONS = SupportedVersions({OFFSET_FOR_LEADER_EPOCH.key: VersionRange(0, 2)})
EARLIEST, LATEST, NONE = OffsetResetStrategy.EARLIEST, OffsetResetStrategy.LATEST, OffsetResetStrategy.NONE


def leader(epoch: int | None, node: Node | None = BROKER) -> LeaderAndEpoch:
    return LeaderAndEpoch(node, epoch)


def position(offset: int, offset_epoch: int | None = None, leader_epoch: int | None = 10) -> FetchPosition:
    return FetchPosition(offset, offset_epoch, leader(leader_epoch))


POSITION = position(10, 5)
"""A position that must be validated."""


@pytest.fixture
def state() -> SubscriptionState:
    return SubscriptionState(EARLIEST)


@pytest.fixture
def assigned(state: SubscriptionState) -> SubscriptionState:
    """TP0 is assigned by the program."""
    state.assign_from_user([TP0])
    return state


def check_assigned(state: SubscriptionState, *partitions: TopicPartition) -> None:
    assert state.assigned_partitions() == set(partitions)
    assert state.num_assigned_partitions() == len(partitions)


def check_valid(state: SubscriptionState, *, is_valid: bool) -> None:
    """Whether TP0 has a valid position, or one that must be validated."""
    assert state.has_valid_position(TP0) is is_valid
    assert state.awaiting_validation(TP0) is not is_valid
    assert (state.valid_position(TP0) is not None) is is_valid


# --- subscription and assignment --------------------------------------------------------------------------------------


def test_assigned_partitions_are_fetched_after_a_seek_until_they_are_unassigned(assigned: SubscriptionState) -> None:
    check_assigned(assigned, TP0)
    assert not assigned.has_all_fetch_positions()
    assigned.seek(TP0, 1)
    assert assigned.has_all_fetch_positions()
    assert assigned.is_fetchable(TP0)
    assert assigned.position(TP0) == FetchPosition(1)
    assigned.assign_from_user([])
    check_assigned(assigned)
    assert not assigned.is_assigned(TP0)
    assert not assigned.is_fetchable(TP0)
    assert not assigned.has_valid_position(TP0)


def test_a_subscription_changes_the_assignment_only_with_the_groups_answer(state: SubscriptionState) -> None:
    state.assign_from_user([TP0, TP1])
    check_assigned(state, TP0, TP1)
    state.unsubscribe()
    check_assigned(state)
    state.subscribe({TOPIC1})
    check_assigned(state)
    assert state.check_assignment_matched_subscription([T1P0])
    state.assign_from_subscribed([T1P0])
    check_assigned(state, T1P0)
    state.subscribe({TOPIC})
    check_assigned(state, T1P0)
    state.unsubscribe()
    check_assigned(state)


def test_the_topics_of_the_group_are_those_of_the_last_call_and_the_own_ones(state: SubscriptionState) -> None:
    state.subscribe({TOPIC1})
    assert state.metadata_topics() == {TOPIC1}
    assert not state.group_subscribe({TOPIC1})
    assert state.metadata_topics() == {TOPIC1}
    assert state.group_subscribe({TOPIC, TOPIC1})
    assert state.metadata_topics() == {TOPIC, TOPIC1}
    assert state.needs_metadata(TOPIC)
    assert not state.group_subscribe({TOPIC1})
    assert state.metadata_topics() == {TOPIC1}
    state.subscribe({"another"})
    assert state.metadata_topics() == {TOPIC1, "another"}
    assert not state.group_subscribe({"another"})
    assert state.metadata_topics() == {"another"}
    state.group_subscribe({TOPIC})
    state.reset_group_subscription()
    assert state.metadata_topics() == {"another"}
    assert not state.needs_metadata(TOPIC)


def test_a_pattern_changes_the_assignment_only_with_the_groups_answer(state: SubscriptionState) -> None:
    state.subscribe_pattern(re.compile(".*"))
    check_assigned(state)
    assert state.subscribe_from_pattern({TOPIC})
    assert not state.subscribe_from_pattern({TOPIC}), "the same topics"
    check_assigned(state)
    for tp in (TP1, T1P0):
        assert state.check_assignment_matched_subscription([tp])
        state.assign_from_subscribed([tp])
        check_assigned(state, tp)
        assert state.subscription() == {TOPIC}
    state.subscribe_pattern(re.compile(".*t"))
    check_assigned(state, T1P0)
    state.subscribe_from_pattern({TOPIC})
    check_assigned(state, T1P0)
    assert state.check_assignment_matched_subscription([TP0])
    state.assign_from_subscribed([TP0])
    check_assigned(state, TP0)
    assert state.subscription() == {TOPIC}
    state.unsubscribe()
    check_assigned(state)
    assert not state.matches_subscribed_pattern(TOPIC)


def test_each_change_of_the_assignment_has_another_id(state: SubscriptionState) -> None:
    assert state.assignment_id == 0
    state.assign_from_user([TP0, TP1])
    assert state.assignment_id == 1
    state.assign_from_user([TP1, TP0])
    assert state.assignment_id == 1, "the same partitions"
    state.unsubscribe()
    assert state.assignment_id == 2
    state.subscribe({TOPIC1})
    state.assign_from_subscribed([T1P0])
    assert state.assignment_id == 3
    check_assigned(state, T1P0)


def test_topics_are_subscribed_and_a_new_assignment_has_no_positions(state: SubscriptionState) -> None:
    assert state.has_no_subscription_or_user_assignment
    assert state.subscribe({TOPIC})
    assert not state.subscribe({TOPIC}), "the same topics"
    assert state.subscription() == {TOPIC}
    check_assigned(state)
    assert state.has_auto_assigned_partitions
    assert not state.has_no_subscription_or_user_assignment
    state.assign_from_subscribed([TP0])
    state.seek(TP0, 1)
    assert state.position(TP0) == FetchPosition(1)
    state.assign_from_subscribed([TP1])
    assert state.is_assigned(TP1)
    assert not state.is_assigned(TP0)
    assert not state.is_fetchable(TP1)
    check_assigned(state, TP1)


def test_a_partition_that_stays_assigned_keeps_its_position(state: SubscriptionState) -> None:
    state.subscribe({TOPIC})
    state.assign_from_subscribed([TP0])
    state.seek(TP0, 5)
    state.assign_from_subscribed([TP1, TP0])
    assert state.position(TP0) == FetchPosition(5)
    assert state.initializing_partitions() == {TP1}


def test_a_position_can_be_moved_only_from_a_valid_one(state: SubscriptionState) -> None:
    state.subscribe({TOPIC})
    state.assign_from_subscribed([TP0])
    with pytest.raises(UsageError, match="only from a valid one"):
        state.set_position(TP0, FetchPosition(0))
    state.seek(TP0, 0)
    state.set_position(TP0, FetchPosition(7))
    assert state.position(TP0) == FetchPosition(7)


@pytest.mark.parametrize(
    "call",
    [
        lambda state: state.set_position(TP0, FetchPosition(1)),
        lambda state: state.position(TP0),
        lambda state: state.seek(TP0, 1),
        lambda state: state.pause(TP0),
        lambda state: state.request_offset_reset(TP0),
        lambda state: state.request_offset_resets([TP0], EARLIEST),
        lambda state: state.position_lookup(TP0),
        lambda state: state.update_high_watermark(TP0, 1),
    ],
)
def test_a_partition_that_is_not_assigned_has_no_position(
    state: SubscriptionState, call: Callable[[SubscriptionState], object]
) -> None:
    with pytest.raises(UsageError, match="test/0 is not assigned"):
        call(state)


def test_an_assignment_of_a_topic_that_is_not_subscribed_is_found_and_logged(state: SubscriptionState) -> None:
    state.subscribe({TOPIC})
    assert not state.check_assignment_matched_subscription([TP0, T1P0])
    assert [str(line) for line in state.log_events] == [
        "assigned-partition-not-subscribed partition=test1/0 subscription=Subscribe(test)"
    ]


def test_an_assignment_of_a_topic_that_the_pattern_does_not_match_is_found_and_logged(
    state: SubscriptionState,
) -> None:
    state.subscribe_pattern(re.compile(".*t"))
    state.subscribe_from_pattern({TOPIC})
    assert not state.check_assignment_matched_subscription([T1P0])
    assert [str(line) for line in state.log_events] == [
        "assigned-partition-not-subscribed partition=test1/0 subscription=Subscribe(.*t)"
    ]


def by_topics(state: SubscriptionState) -> None:
    state.subscribe({TOPIC})


def by_pattern(state: SubscriptionState) -> None:
    state.subscribe_pattern(re.compile(".*"))


def by_assignment(state: SubscriptionState) -> None:
    state.assign_from_user([TP0])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (by_topics, by_pattern),
        (by_topics, by_assignment),
        (by_pattern, by_topics),
        (by_pattern, by_assignment),
        (by_assignment, by_topics),
        (by_assignment, by_pattern),
    ],
)
def test_topics_pattern_and_assignment_exclude_each_other(
    state: SubscriptionState, first: Callable[[SubscriptionState], None], second: Callable[[SubscriptionState], None]
) -> None:
    first(state)
    before = str(state)
    with pytest.raises(UsageError, match="exclude each other"):
        second(state)
    assert str(state) == before
    state.unsubscribe()
    second(state)


def test_what_belongs_to_a_subscription_of_another_kind_is_an_error(state: SubscriptionState) -> None:
    with pytest.raises(UsageError, match="not none"):
        state.subscribe_from_pattern({TOPIC})
    with pytest.raises(UsageError, match="not none"):
        state.group_subscribe({TOPIC})
    state.assign_from_user([TP0])
    with pytest.raises(UsageError, match="not to user-assigned"):
        state.assign_from_subscribed([TP0])


def test_the_topics_of_a_pattern_are_the_subscription(state: SubscriptionState) -> None:
    state.subscribe_pattern(re.compile(".*"))
    assert state.has_pattern_subscription
    state.subscribe_from_pattern({TOPIC, TOPIC1})
    assert state.subscription() == {TOPIC, TOPIC1}


def test_a_pattern_matches_the_whole_name(state: SubscriptionState) -> None:
    assert not state.matches_subscribed_pattern(TOPIC)
    state.subscribe_pattern(re.compile("te"))
    assert not state.matches_subscribed_pattern(TOPIC)
    state.subscribe_pattern(re.compile("te.*"))
    assert state.matches_subscribed_pattern(TOPIC)


def test_after_unsubscribe_from_an_assignment_topics_can_be_subscribed(state: SubscriptionState) -> None:
    state.assign_from_user([TP0, TP1])
    assert state.subscription() == set()
    assert state.metadata_topics() == {TOPIC}
    state.unsubscribe()
    state.subscribe({TOPIC})
    assert state.subscription() == {TOPIC}


def test_after_unsubscribe_from_topics_partitions_can_be_assigned(state: SubscriptionState) -> None:
    state.subscribe({TOPIC})
    state.unsubscribe()
    state.assign_from_user([TP0])
    check_assigned(state, TP0)


def test_unsubscribe_removes_subscription_and_assignment(state: SubscriptionState) -> None:
    state.subscribe_pattern(re.compile(".*"))
    state.subscribe_from_pattern({TOPIC, TOPIC1})
    state.assign_from_subscribed([TP1])
    check_assigned(state, TP1)
    state.unsubscribe()
    assert state.subscription() == set()
    check_assigned(state)
    state.assign_from_user([TP0])
    check_assigned(state, TP0)
    state.unsubscribe()
    assert state.metadata_topics() == set()
    check_assigned(state)
    assert str(state) == "None"


def test_the_listener_is_that_of_the_last_subscription(state: SubscriptionState) -> None:
    first, second = object(), object()
    state.subscribe({TOPIC}, first)
    assert state.rebalance_listener is first
    state.subscribe({TOPIC}, second)
    assert state.rebalance_listener is second
    state.subscribe({TOPIC})
    assert state.rebalance_listener is None


# --- fetching -----------------------------------------------------------------------------------------------------


def test_a_paused_partition_is_not_fetched(assigned: SubscriptionState) -> None:
    assigned.seek(TP0, 100)
    assert assigned.is_fetchable(TP0)
    assigned.pause(TP0)
    assert not assigned.is_fetchable(TP0)
    assert (assigned.is_paused(TP0), assigned.paused_partitions()) == (True, {TP0})
    assert assigned.fetchable_partitions(lambda tp: True) == []
    assigned.resume(TP0)
    assert assigned.is_fetchable(TP0)
    assert (assigned.is_paused(TP0), assigned.paused_partitions()) == (False, set())


def test_a_partition_that_is_being_revoked_is_not_fetched_and_not_lost_from_the_commit(
    state: SubscriptionState,
) -> None:
    state.subscribe({TOPIC})
    state.assign_from_subscribed([TP0, TP1])
    for tp in (TP0, TP1):
        state.seek(tp, 1)
    state.mark_pending_revocation([TP0])
    assert state.fetchable_partitions(lambda tp: True) == [TP1]
    assert not state.is_fetchable(TP0)
    assert set(state.all_consumed()) == {TP0, TP1}
    state.assign_from_subscribed([TP0, TP1])
    assert state.is_fetchable(TP0), "it was assigned again"


def test_the_partitions_to_fetch_are_in_order_and_available(state: SubscriptionState) -> None:
    state.assign_from_user([TP0, T1P0, TP1])
    assert state.assigned_partitions_list() == [TP0, TP1, T1P0], "the partitions of a topic follow each other"
    for tp in (TP0, TP1, T1P0):
        state.seek(tp, 0)
    state.move_partition_to_end(TP0)
    state.move_partition_to_end(TopicPartition("unknown", 0))
    assert state.fetchable_partitions(lambda tp: True) == [TP1, T1P0, TP0]
    assert state.fetchable_partitions(lambda tp: tp != T1P0) == [TP1, TP0]
    asked: list[TopicPartition] = []
    state.pause(TP1)
    state.fetchable_partitions(lambda tp: asked.append(tp) is None)
    assert asked == [T1P0, TP0], "availability is asked only for those that can be fetched"


def test_a_preferred_replica_is_used_until_its_lease_expires(assigned: SubscriptionState) -> None:
    assert assigned.preferred_read_replica(TP0, 0) is None
    assigned.update_preferred_read_replica(TP0, 42, 10)
    assert [assigned.preferred_read_replica(TP0, now_ms) for now_ms in (9, 10, 11)] == [42, 42, None]
    assert assigned.clear_preferred_read_replica(TP0) is None
    assert [assigned.preferred_read_replica(TP0, now_ms) for now_ms in (9, 11)] == [None, None]
    assigned.update_preferred_read_replica(TP0, 43, 20)
    assert [assigned.preferred_read_replica(TP0, now_ms) for now_ms in (11, 20, 21)] == [43, 43, None]
    assigned.update_preferred_read_replica(TP0, 44, 30)
    assert [assigned.preferred_read_replica(TP0, now_ms) for now_ms in (30, 31)] == [44, None]
    assert assigned.preferred_read_replica(TP1, 0) is None, "it is not assigned"


def test_the_same_preferred_replica_does_not_extend_its_lease(assigned: SubscriptionState) -> None:
    assigned.update_preferred_read_replica(TP0, 42, 10)
    assigned.update_preferred_read_replica(TP0, 42, 20)
    assert assigned.preferred_read_replica(TP0, 11) is None
    assigned.update_preferred_read_replica(TP0, 42, 30)
    assert assigned.clear_preferred_read_replica(TP0) == 42


def test_another_leader_ends_the_use_of_the_preferred_replica(assigned: SubscriptionState) -> None:
    assigned.seek_validated(TP0, position(1))
    assigned.update_preferred_read_replica(TP0, 42, 10)
    assigned.maybe_validate_position_for_current_leader(NEW_VERSIONS, TP0, leader(10))
    assert assigned.preferred_read_replica(TP0, 0) == 42
    assigned.maybe_validate_position_for_current_leader(NEW_VERSIONS, TP0, leader(11))
    assert assigned.preferred_read_replica(TP0, 0) is None


# --- positions ------------------------------------------------------------------------------------------------------


def test_a_reset_removes_the_position_and_a_seek_ends_the_reset(assigned: SubscriptionState) -> None:
    assigned.seek(TP0, 5)
    assigned.request_offset_reset(TP0)
    assert not assigned.is_fetchable(TP0)
    assert assigned.is_offset_reset_needed(TP0)
    assert assigned.position(TP0) is None
    assigned.seek(TP0, 0)
    assert assigned.is_fetchable(TP0)
    assert not assigned.is_offset_reset_needed(TP0)
    assert assigned.reset_strategy(TP0) is None


def test_a_seek_without_an_epoch_needs_no_validation_at_any_leader(assigned: SubscriptionState) -> None:
    assigned.seek_unvalidated(TP0, position(0, None, 5))
    check_valid(assigned, is_valid=True)
    for epoch in (None, 10):
        assert not assigned.maybe_validate_position_for_current_leader(NEW_VERSIONS, TP0, leader(epoch))
        check_valid(assigned, is_valid=True)


def test_a_seek_without_an_epoch_ends_a_validation(assigned: SubscriptionState) -> None:
    assigned.seek_unvalidated(TP0, position(0, 2, 5))
    check_valid(assigned, is_valid=False)
    assigned.seek_unvalidated(TP0, position(0, None, 5))
    check_valid(assigned, is_valid=True)


def test_a_seek_with_an_epoch_is_validated_until_the_leader_has_no_epoch(assigned: SubscriptionState) -> None:
    assigned.seek_unvalidated(TP0, position(0, 2, 5))
    check_valid(assigned, is_valid=False)
    for epoch in (5, 15):
        assert assigned.maybe_validate_position_for_current_leader(NEW_VERSIONS, TP0, leader(epoch))
        check_valid(assigned, is_valid=False)
    assert not assigned.maybe_validate_position_for_current_leader(NEW_VERSIONS, TP0, leader(None))
    check_valid(assigned, is_valid=True)


def test_an_unknown_leader_leaves_the_position_as_it_is(assigned: SubscriptionState) -> None:
    assigned.seek_validated(TP0, position(0, 2, 5))
    assert not assigned.maybe_validate_position_for_current_leader(NEW_VERSIONS, TP0, leader(6, node=None))
    assert assigned.valid_position(TP0) == position(0, 2, 5)


def test_a_validated_seek_ends_a_validation(assigned: SubscriptionState) -> None:
    assigned.seek_unvalidated(TP0, POSITION)
    check_valid(assigned, is_valid=False)
    assert assigned.position(TP0) == POSITION
    assigned.seek_validated(TP0, position(8, 4))
    check_valid(assigned, is_valid=True)
    assert assigned.position(TP0) == position(8, 4)


def test_a_completed_validation_keeps_the_position(assigned: SubscriptionState) -> None:
    assigned.complete_validation(TP0)
    assert assigned.initializing_partitions() == {TP0}, "there is no position to validate"
    assigned.seek_unvalidated(TP0, POSITION)
    check_valid(assigned, is_valid=False)
    assigned.complete_validation(TP0)
    check_valid(assigned, is_valid=True)
    assert assigned.position(TP0) == POSITION


def test_a_reset_ends_a_validation(assigned: SubscriptionState) -> None:
    assigned.seek_unvalidated(TP0, POSITION)
    assigned.request_offset_reset(TP0, EARLIEST)
    assert not assigned.awaiting_validation(TP0)
    assert assigned.is_offset_reset_needed(TP0)


@pytest.mark.parametrize("end_offset", [10, 15])
def test_a_position_up_to_the_end_of_its_epoch_is_valid(assigned: SubscriptionState, end_offset: int) -> None:
    assigned.seek_unvalidated(TP0, POSITION)
    lookup = assigned.position_lookup(TP0)
    assert assigned.maybe_complete_validation(lookup, EpochEndOffset(epoch=4, end_offset=end_offset)) is None
    check_valid(assigned, is_valid=True)
    assert assigned.position(TP0) == POSITION
    assert not assigned.log_events


def test_a_leader_of_an_old_release_is_not_asked_for_a_validation(assigned: SubscriptionState) -> None:
    assigned.seek_unvalidated(TP0, POSITION)
    assert not assigned.maybe_validate_position_for_current_leader(OLD_VERSIONS, TP0, leader(10))
    check_valid(assigned, is_valid=True)
    for versions in (NEW_VERSIONS, None):
        assigned.seek_unvalidated(TP0, POSITION)
        assert assigned.maybe_validate_position_for_current_leader(versions, TP0, leader(10))
        check_valid(assigned, is_valid=False)


def test_a_truncation_moves_the_position_to_the_end_of_the_common_part(assigned: SubscriptionState) -> None:
    assigned.seek_unvalidated(TP0, POSITION)
    lookup = assigned.position_lookup(TP0)
    assert assigned.maybe_complete_validation(lookup, EpochEndOffset(epoch=7, end_offset=5)) is None
    check_valid(assigned, is_valid=True)
    assert assigned.position(TP0) == position(5, 7)
    (line,) = assigned.log_events
    assert (line.level, str(line)) == ("INFO", "log-truncated partition=test/0 offset=10 divergent_offset=5")


def test_a_truncation_without_a_reset_policy_is_returned_and_nothing_is_fetched() -> None:
    state = SubscriptionState(NONE)
    state.assign_from_user([TP0])
    state.seek_unvalidated(TP0, POSITION)
    found = state.maybe_complete_validation(state.position_lookup(TP0), EpochEndOffset(epoch=7, end_offset=5))
    assert found == LogTruncation(TP0, POSITION, OffsetAndMetadata(5, leader_epoch=7))
    assert state.awaiting_validation(TP0)
    assert state.fetchable_partitions(lambda tp: True) == []
    assert state.log_events[0].level == "WARNING"


@pytest.mark.parametrize("end", [(-1, -1), (-1, 5), (7, -1)])
def test_a_truncation_at_an_unknown_offset_is_a_reset(assigned: SubscriptionState, end: tuple[int, int]) -> None:
    assigned.seek_unvalidated(TP0, POSITION)
    lookup = assigned.position_lookup(TP0)
    assert assigned.maybe_complete_validation(lookup, EpochEndOffset(epoch=end[0], end_offset=end[1])) is None
    assert not assigned.awaiting_validation(TP0)
    assert assigned.is_offset_reset_needed(TP0)
    assert assigned.reset_strategy(TP0) is EARLIEST


def test_a_truncation_at_an_unknown_offset_without_a_reset_policy_is_returned() -> None:
    state = SubscriptionState(NONE)
    state.assign_from_user([TP0])
    state.seek_unvalidated(TP0, POSITION)
    found = state.maybe_complete_validation(state.position_lookup(TP0), EpochEndOffset(epoch=-1, end_offset=-1))
    assert found == LogTruncation(TP0, POSITION, None)
    assert state.awaiting_validation(TP0)


def test_a_reset_works_at_leaders_of_old_releases(assigned: SubscriptionState) -> None:
    assigned.request_offset_reset(TP0, EARLIEST)
    assert not assigned.maybe_validate_position_for_current_leader(OLD_VERSIONS, TP0, leader(None))
    assert not assigned.has_valid_position(TP0)
    assert not assigned.awaiting_validation(TP0)
    assert assigned.is_offset_reset_needed(TP0)

    assigned.seek_unvalidated(TP0, FetchPosition(10))
    for _ in range(2):
        check_valid(assigned, is_valid=True)
        assert not assigned.is_offset_reset_needed(TP0)
        assert not assigned.maybe_validate_position_for_current_leader(OLD_VERSIONS, TP0, leader(None))

    assigned.request_offset_reset(TP0, EARLIEST)
    assigned.seek_unvalidated(TP0, position(10, 10, 2))
    check_valid(assigned, is_valid=False)
    assert not assigned.is_offset_reset_needed(TP0)
    assert not assigned.maybe_validate_position_for_current_leader(OLD_VERSIONS, TP0, leader(2))
    check_valid(assigned, is_valid=True)


def test_a_reset_in_progress_has_no_position_to_validate(assigned: SubscriptionState) -> None:
    assigned.request_offset_reset(TP0)
    assert not assigned.maybe_validate_position_for_current_leader(NEW_VERSIONS, TP0, leader(3))
    assert assigned.is_offset_reset_needed(TP0)


# --- late answers -----------------------------------------------------------------------------------------------------


def test_a_committed_offset_is_used_while_the_partition_initializes(assigned: SubscriptionState) -> None:
    assert assigned.initializing_partitions() == {TP0}
    assert assigned.maybe_seek_to_committed(assigned.position_lookup(TP0), POSITION)
    assert assigned.position(TP0) == POSITION
    assert assigned.awaiting_validation(TP0)


def test_a_committed_offset_that_arrives_after_a_seek_does_not_undo_it(assigned: SubscriptionState) -> None:
    lookup = assigned.position_lookup(TP0)
    assigned.seek(TP0, 99)
    assert not assigned.maybe_seek_to_committed(lookup, POSITION)
    assert assigned.position(TP0) == FetchPosition(99)
    assert [line.name for line in assigned.log_events] == ["late-position-lookup-ignored"]


def test_a_committed_offset_of_an_earlier_assignment_is_ignored(state: SubscriptionState) -> None:
    """The partition belonged to another member meanwhile, so the offset may be old."""
    state.subscribe({TOPIC})
    state.assign_from_subscribed([TP0])
    lookup = state.position_lookup(TP0)
    state.assign_from_subscribed([])
    assert not state.maybe_seek_to_committed(lookup, POSITION), "it is not assigned"
    state.assign_from_subscribed([TP0])
    assert not state.maybe_seek_to_committed(lookup, POSITION)
    assert state.initializing_partitions() == {TP0}
    state.unsubscribe()
    state.assign_from_user([TP0])
    assert not state.maybe_seek_to_committed(lookup, POSITION)


def test_only_partitions_whose_load_found_no_offset_are_reset(state: SubscriptionState) -> None:
    state.assign_from_user([TP0, TP1])
    lookups = [state.position_lookup(TP0), state.position_lookup(TP1)]
    state.seek(TP1, 7)
    state.assign_from_user([TP0, TP1, T1P0])
    state.reset_initializing_positions(lookups)
    assert state.is_offset_reset_needed(TP0)
    assert state.position(TP1) == FetchPosition(7), "the program has set its position"
    assert state.initializing_partitions() == {T1P0}, "its committed offset was not loaded yet"
    state.reset_initializing_positions()
    assert state.initializing_partitions() == set()


def test_without_a_reset_policy_a_partition_without_an_offset_is_an_error_and_nothing_changes() -> None:
    state = SubscriptionState(NONE)
    state.assign_from_user([TP0, TP1])
    state.seek(TP1, 0)
    with pytest.raises(NoOffsetForPartitionException, match="test/0") as caught:
        state.reset_initializing_positions()
    assert caught.value.partitions == {TP0}
    assert state.initializing_partitions() == {TP0}
    state.seek(TP0, 0)
    state.reset_initializing_positions()


def test_the_offset_of_a_reset_is_used(assigned: SubscriptionState) -> None:
    assigned.request_offset_reset(TP0, LATEST)
    lookup = assigned.position_lookup(TP0)
    assert not assigned.maybe_seek_unvalidated(lookup, FetchPosition(0), EARLIEST), "another policy"
    assert assigned.maybe_seek_unvalidated(lookup, FetchPosition(44), LATEST)
    assert assigned.position(TP0) == FetchPosition(44)


def test_the_offset_of_a_reset_that_arrives_after_a_seek_does_not_undo_it(assigned: SubscriptionState) -> None:
    assigned.request_offset_reset(TP0, LATEST)
    lookup = assigned.position_lookup(TP0)
    assigned.seek(TP0, 99)
    assert not assigned.maybe_seek_unvalidated(lookup, FetchPosition(44), LATEST)
    assert assigned.position(TP0) == FetchPosition(99)


def test_the_offset_of_a_reset_before_a_seek_and_another_reset_is_ignored(assigned: SubscriptionState) -> None:
    """Java compares the policies only: the end of an hour ago would be the end that was requested now."""
    assigned.request_offset_resets([TP0], LATEST)
    old = assigned.position_lookup(TP0)
    assigned.seek(TP0, 99)
    assigned.request_offset_resets([TP0], LATEST)
    assert not assigned.maybe_seek_unvalidated(old, FetchPosition(44), LATEST)
    assert assigned.maybe_seek_unvalidated(assigned.position_lookup(TP0), FetchPosition(88), LATEST)
    assert assigned.position(TP0) == FetchPosition(88)


def test_a_validation_of_another_position_changes_nothing(assigned: SubscriptionState) -> None:
    assigned.seek_unvalidated(TP0, POSITION)
    lookup = assigned.position_lookup(TP0)
    assigned.seek_unvalidated(TP0, position(20, 8))
    assert assigned.maybe_complete_validation(lookup, EpochEndOffset(epoch=5, end_offset=15)) is None
    assert assigned.awaiting_validation(TP0)
    assert assigned.position(TP0) == position(20, 8)


def test_a_validation_that_arrives_after_a_reset_was_requested_changes_nothing(assigned: SubscriptionState) -> None:
    assigned.seek_unvalidated(TP0, POSITION)
    lookup = assigned.position_lookup(TP0)
    assigned.request_offset_reset(TP0)
    assert assigned.maybe_complete_validation(lookup, EpochEndOffset(epoch=5, end_offset=15)) is None
    assert not assigned.awaiting_validation(TP0)
    assert assigned.is_offset_reset_needed(TP0)
    assert assigned.position(TP0) is None


def test_a_validation_from_before_a_seek_away_and_back_changes_nothing(assigned: SubscriptionState) -> None:
    """Java compares the positions only, and would take the truncation that the old leader has reported."""
    assigned.seek_unvalidated(TP0, POSITION)
    lookup = assigned.position_lookup(TP0)
    assigned.seek(TP0, 99)
    assigned.seek_unvalidated(TP0, POSITION)
    assert assigned.maybe_complete_validation(lookup, EpochEndOffset(epoch=5, end_offset=3)) is None
    assert assigned.awaiting_validation(TP0)
    assert assigned.position(TP0) == POSITION


def test_a_validation_by_an_old_leader_changes_nothing(assigned: SubscriptionState) -> None:
    assigned.seek_unvalidated(TP0, POSITION)
    lookup = assigned.position_lookup(TP0)
    assert assigned.maybe_validate_position_for_current_leader(NEW_VERSIONS, TP0, leader(11))
    assert assigned.maybe_complete_validation(lookup, EpochEndOffset(epoch=5, end_offset=15)) is None
    check_valid(assigned, is_valid=False)


def test_a_lookup_is_due_again_when_it_has_failed_and_the_backoff_is_over(assigned: SubscriptionState) -> None:
    assigned.request_offset_reset(TP0)
    assert assigned.partitions_needing_reset(0) == {TP0}
    lookup = assigned.position_lookup(TP0)
    assigned.set_next_allowed_retry([TP0], 30_000)
    assert assigned.partitions_needing_reset(29_999) == set()
    assert assigned.partitions_needing_reset(30_000) == {TP0}, "also if no answer came"
    assigned.request_failed([lookup], 100)
    assert assigned.partitions_needing_reset(99) == set()
    assert assigned.partitions_needing_reset(100) == {TP0}

    assigned.seek_unvalidated(TP0, POSITION)
    assert assigned.partitions_needing_reset(100) == set()
    assert assigned.partitions_needing_validation(0) == {TP0}
    assigned.set_next_allowed_retry([TP0], 50)
    assert assigned.partitions_needing_validation(49) == set()
    assert assigned.partitions_needing_validation(50) == {TP0}


def test_the_failure_of_an_older_lookup_does_not_delay_the_newer_one(assigned: SubscriptionState) -> None:
    assigned.request_offset_reset(TP0)
    old = assigned.position_lookup(TP0)
    assigned.request_offset_reset(TP0)
    assigned.request_failed([old], 1_000)
    assert assigned.partitions_needing_reset(0) == {TP0}
    assigned.assign_from_user([TP1])
    assigned.request_failed([old], 1_000)


def test_a_lookup_has_the_position_that_it_validates(assigned: SubscriptionState) -> None:
    assert assigned.position_lookup(TP0).position is None
    assigned.seek_unvalidated(TP0, POSITION)
    assert assigned.position_lookup(TP0).position == POSITION
    assert assigned.position_lookup(TP0) == assigned.position_lookup(TP0)


def test_a_lookup_that_was_taken_while_nothing_was_looked_up_answers_nothing(assigned: SubscriptionState) -> None:
    assigned.seek(TP0, 1)
    lookup = assigned.position_lookup(TP0)
    assert not assigned.maybe_seek_to_committed(lookup, POSITION)
    assert not assigned.maybe_seek_unvalidated(lookup, POSITION, EARLIEST)
    assert assigned.maybe_complete_validation(lookup, EpochEndOffset(epoch=-1, end_offset=-1)) is None
    assert assigned.position(TP0) == FetchPosition(1)


def test_returned_records_do_not_end_a_lookup(assigned: SubscriptionState) -> None:
    assigned.seek(TP0, 1)
    lookup = assigned.position_lookup(TP0)
    assigned.set_position(TP0, FetchPosition(2))
    assert assigned.position_lookup(TP0).state_id == lookup.state_id


steps = st.one_of(
    st.tuples(st.sampled_from(["seek", "unvalidated seek", "leader"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["earliest", "latest", "reassign", "validate", "records"]), st.just(0)),
    st.tuples(st.sampled_from(["ask", "committed", "reset", "no offset", "end of epoch"]), st.integers(0, 20)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=25))
def test_no_answer_changes_a_position_that_was_set_after_the_question(actions: list[tuple[str, int]]) -> None:
    """Any order of questions, answers, seeks, resets, changes of the leader and of the assignment."""
    state = SubscriptionState(EARLIEST)
    state.assign_from_user([TP0])
    changes = 0
    asked = [(changes, state.position_lookup(TP0))]

    for action, number in actions:
        before = (state.position(TP0), state.initializing_partitions(), state.is_offset_reset_needed(TP0))
        asked_at, lookup = asked[number % len(asked)]
        is_change = True
        match action:
            case "seek":
                state.seek(TP0, number)
            case "unvalidated seek":
                state.seek_unvalidated(TP0, position(number, 5))
            case "leader":
                state.maybe_validate_position_for_current_leader(NEW_VERSIONS, TP0, leader(number))
                is_change = state.position(TP0) != before[0]
            case "earliest" | "latest":
                state.request_offset_resets([TP0], OffsetResetStrategy(action))
            case "reassign":
                state.assign_from_user([])
                state.assign_from_user([TP0])
            case "validate":
                is_change = state.awaiting_validation(TP0)
                state.complete_validation(TP0)
            case "records":
                is_change = False
                if state.has_valid_position(TP0):
                    state.set_position(TP0, position(number + 1, 5))
            case "ask":
                is_change = False
                asked.append((changes, state.position_lookup(TP0)))
            case "committed":
                is_change = state.maybe_seek_to_committed(lookup, position(number, 5))
            case "reset":
                is_change = any(
                    state.maybe_seek_unvalidated(lookup, position(number), strategy) for strategy in (EARLIEST, LATEST)
                )
            case "no offset":
                state.reset_initializing_positions([lookup])
                is_change = before[1] != state.initializing_partitions()
            case "end of epoch":
                was_awaiting = state.awaiting_validation(TP0)
                state.maybe_complete_validation(lookup, EpochEndOffset(epoch=5, end_offset=number))
                is_change = was_awaiting and not state.awaiting_validation(TP0)
        if action in ("committed", "reset", "no offset", "end of epoch"):
            after = (state.position(TP0), state.initializing_partitions(), state.is_offset_reset_needed(TP0))
            assert is_change or after == before
            assert not is_change or asked_at == changes, "the answer to an older question was used"
        changes += is_change
        assert state.has_all_fetch_positions() == state.has_valid_position(TP0)
        assert state.partitions_needing_validation(0) == ({TP0} if state.awaiting_validation(TP0) else set())


def test_partitions_are_looked_at_one_by_one_only_after_a_change(
    assigned: SubscriptionState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program with a thousand partitions asks some hundred times in a second."""
    assigned.seek(TP0, 1)
    assert assigned.has_all_fetch_positions()
    looks: list[TopicPartitionState] = []
    monkeypatch.setattr(TopicPartitionState, "has_valid_position", property(lambda each: looks.append(each) is None))
    assigned.set_position(TP0, FetchPosition(2))
    assert assigned.has_all_fetch_positions()
    assert assigned.partitions_needing_validation(0) == set()
    assert looks == []
    assigned.seek(TP0, 3)
    assert assigned.has_all_fetch_positions()
    assert len(looks) == 1


# --- lag and commits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation_level", IsolationLevel)
def test_without_a_position_there_is_no_lag(assigned: SubscriptionState, isolation_level: IsolationLevel) -> None:
    assert assigned.partition_lag(TP0, isolation_level) is None
    assigned.update_high_watermark(TP0, 1)
    assigned.update_last_stable_offset(TP0, 1)
    assert assigned.partition_lag(TP0, isolation_level) is None
    assert assigned.partition_lead(TP0) is None


def test_the_lag_is_up_to_the_end_that_the_isolation_level_lets_read(assigned: SubscriptionState) -> None:
    assigned.seek(TP0, 5)
    assert assigned.partition_lag(TP0, IsolationLevel.READ_COMMITTED) is None
    assigned.update_high_watermark(TP0, 20)
    assigned.update_last_stable_offset(TP0, 15)
    assigned.update_log_start_offset(TP0, 2)
    assert assigned.partition_lag(TP0, IsolationLevel.READ_UNCOMMITTED) == 15
    assert assigned.partition_lag(TP0, IsolationLevel.READ_COMMITTED) == 10
    assert assigned.partition_end_offset(TP0, IsolationLevel.READ_COMMITTED) == 15
    assert assigned.partition_lead(TP0) == 3


@pytest.mark.parametrize(
    "update", [SubscriptionState.update_high_watermark, SubscriptionState.update_last_stable_offset]
)
def test_the_end_is_requested_once_until_a_response_shows_it(
    assigned: SubscriptionState, update: Callable[[SubscriptionState, TopicPartition, int], None]
) -> None:
    assert not assigned.partition_end_offset_requested(TP0)
    assigned.request_partition_end_offset(TP0)
    assert assigned.partition_end_offset_requested(TP0)
    update(assigned, TP0, 9)
    assert not assigned.partition_end_offset_requested(TP0)


def test_what_was_consumed_are_the_valid_positions_with_their_epochs(state: SubscriptionState) -> None:
    state.assign_from_user([TP0, TP1, T1P0])
    state.seek_validated(TP0, position(5, 3))
    state.seek(TP1, 6)
    assert state.all_consumed() == {TP0: OffsetAndMetadata(5, leader_epoch=3), TP1: OffsetAndMetadata(6)}
    state.seek_unvalidated(T1P0, POSITION)
    assert T1P0 not in state.all_consumed()


def test_log_lines_that_are_not_taken_are_limited(assigned: SubscriptionState) -> None:
    for _ in range(LOG_EVENTS_MAX + 1):
        assigned.request_offset_resets([TP0], EARLIEST)
    assert len(assigned.log_events) == LOG_EVENTS_MAX


def test_the_timestamps_of_the_policies_are_those_of_list_offsets() -> None:
    assert [each.timestamp for each in (EARLIEST, LATEST, NONE)] == [EARLIEST_TIME, LATEST_TIME, None]


def test_a_subscription_is_named_in_log_lines(state: SubscriptionState) -> None:
    assert str(state) == "None"
    state.subscribe({TOPIC1, TOPIC})
    assert str(state) == "Subscribe(test,test1)"
    state.unsubscribe()
    state.assign_from_user([TP0, TP1])
    assert str(state) == "Assign(test/0,test/1, id=2)"
