"""What is lost is stopped when that is known, and not when something else that is waited for has come."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.coordinator.client_harness import (
    HEARTBEAT_MS,
    POLL_MS,
    CooperativeDealer,
    Member,
    T,
    every,
    group_member,
    only,
)
from zkconsumer.kafka.group import commands as do
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.commands import Callback
from zkconsumer.member import ownership
from zkconsumer.wire.schemas import HEARTBEAT, JOIN_GROUP, OFFSET_COMMIT
from zkconsumer.wire.schemas.heartbeat import HeartbeatResponse

ILLEGAL_GENERATION, UNKNOWN_MEMBER = 22, 25
BOTH = pytest.mark.parametrize("error", [ILLEGAL_GENERATION, UNKNOWN_MEMBER])


def keeping_two() -> Member:
    """A cooperative member that keeps two partitions while its group forms anew, its JoinGroup answered."""
    member = Member(CooperativeDealer())
    member.join(T[:2])
    member.beat(27)
    member.joined(2)
    return member


@BOTH
def test_what_is_kept_is_stopped_when_it_is_lost_during_a_callback(error: int) -> None:
    member = keeping_two()
    told = only(member.synced(T[:3]), do.Invoke)
    assert told.partitions == frozenset(T[2:3])
    member.wait(HEARTBEAT_MS)
    said = member.answer(HEARTBEAT, HeartbeatResponse(error_code=error))
    assert only(said, ownership.Drain).partitions == tuple(T[:3]), "the program may take long to return"
    said = member.returned()
    assert not every(said, do.StartPartitions)
    lost = only(said, do.Invoke)
    assert (lost.callback, lost.partitions) == (Callback.LOST, frozenset(T[:3]))


@BOTH
def test_what_is_kept_is_stopped_when_it_is_lost_while_the_leader_is_waited_for(error: int) -> None:
    member = keeping_two()
    member.wait(HEARTBEAT_MS)
    said = member.answer(HEARTBEAT, HeartbeatResponse(error_code=error))
    assert only(said, ownership.Drain).partitions == tuple(T[:2])


@BOTH
def test_what_is_kept_is_stopped_when_it_is_lost_while_something_else_is_handed_back(error: int) -> None:
    member = Member(CooperativeDealer(), auto_commit=True)
    member.join(T[:2])
    member.beat(27)
    member.hear(ownership.PositionsCollected({T[0]: 5, T[1]: 7}))
    member.committed()
    member.joined(2)
    assert only(member.synced(T[:1]), ownership.Drain).partitions == tuple(T[1:2])
    member.hear(ownership.PositionsCollected({T[0]: 5, T[1]: 7}))
    assert member.has_open(OFFSET_COMMIT)
    said = member.committed(error)
    assert only(said, ownership.Drain).partitions == tuple(T[:2])


def test_a_close_that_is_late_stops_everything_as_it_leaves() -> None:
    member = keeping_two()
    member.synced(T[:3])
    member.hear(ev.Closed(timeout_ms=100))
    said = member.wait(100)
    assert every(said, do.MemberStopped)
    assert only(said, ownership.Drain).partitions == tuple(T[:3])
    calls = [call for call in (*member.calls, *every(said, do.Invoke)) if call.callback is not Callback.ASSIGNED]
    assert frozenset().union(*(call.partitions for call in calls)) == frozenset(T[:3]), "each is revoked or lost"


def test_a_close_that_is_late_calls_the_program_for_what_it_was_not_revoking_too() -> None:
    """The member was committing before a rebalance, in which it would have kept its partitions (cooperative)."""
    member = Member(CooperativeDealer(), auto_commit=True)
    member.join(T[:2])
    member.hear(ev.RejoinAsked("test"))
    assert not every(member.said, ownership.Drain)
    member.hear(ev.Closed(timeout_ms=0))
    assert only(member.said, ownership.Drain).partitions == tuple(T[:2])
    (call,) = [call for call in member.calls if call.callback is not Callback.ASSIGNED]
    assert call.partitions == frozenset(T[:2])
    assert every(member.said, do.MemberStopped)


def leave_in_join(member: Member) -> int:
    """Unsubscribe while JoinGroup is unanswered; the next generation forms all the same."""
    member.hear(ev.Unsubscribed())
    member.returned()
    member.joined(2)  # the answer to the member id of before: it is ignored
    member.subscribe()
    return 2


def leave_in_sync(member: Member) -> int:
    """Unsubscribe before the assignment is known."""
    member.joined(2)
    member.hear(ev.Unsubscribed())
    member.returned()
    member.synced(T[:2])  # as above
    member.subscribe()
    return 2


def leave_before_the_assignment_comes(member: Member) -> int:
    """The assignment comes while what the member owns is revoked because of the unsubscription."""
    member.joined(2)
    member.hear(ev.Unsubscribed())
    member.synced(T[:2])
    member.subscribe()
    member.returned()
    return 2


def leave_as_a_leader_before_the_assignment_comes(member: Member) -> int:
    """The same for the leader, to which the coordinator says nothing new when it is back."""
    member.joined(2, "me", leader="me", members=[group_member("me", "t", owned_partitions=tuple(T[:4]))])
    member.hear(ev.Unsubscribed())
    member.synced(T[:2])
    member.subscribe()
    member.returned()
    return 2


def leave_after_the_revocation(member: Member) -> int:
    """Unsubscribe while the program hears of the assignment, of which the rest is revoked."""
    member.joined(2)
    member.synced(T[:2])
    member.hear(ev.Unsubscribed())
    while member.calls:
        member.returned()
    member.subscribe()
    return 2


def leave_twice(member: Member) -> int:
    """Unsubscribe once more after the return, before JoinGroup is sent again."""
    generation = leave_after_the_revocation(member)
    member.joined(generation, "me, once more")
    member.synced(T[:2])
    member.hear(ev.Unsubscribed())
    while member.calls:
        member.returned()
    member.subscribe()
    return generation


def hang_in_sync(member: Member) -> int:
    """Work on one record for too long while the assignment is awaited."""
    member.joined(2)
    hang(member)
    member.synced(T[:2])  # as above
    return 2


def hang_in_the_revocation(member: Member) -> int:
    """Work on one record for too long, and revoke what the assignment leaves out only then."""
    member.joined(2)
    member.synced(T[:2])
    hang(member)
    return 2


def hang(member: Member) -> None:
    for _ in range(POLL_MS // HEARTBEAT_MS):
        member.wait(HEARTBEAT_MS)
        if member.has_open(HEARTBEAT):
            member.beat()
    assert any(note.name == "poll-timeout-expired" for note in every(member.said, do.LogMemberEvent))
    while member.calls:
        member.returned()
    member.poll()


@pytest.mark.parametrize(
    "leave",
    [
        leave_in_join, leave_in_sync, leave_before_the_assignment_comes, leave_as_a_leader_before_the_assignment_comes,
        leave_after_the_revocation, leave_twice, hang_in_sync, hang_in_the_revocation,
    ],
)  # fmt: skip
def test_a_static_member_that_lost_its_generation_in_a_cooperative_rebalance_joins_twice(
    leave: Callable[[Member], int],
) -> None:
    """It gets the same generation again, in which no member has the partitions that it was to revoke."""
    member = Member(CooperativeDealer(), group_instance_id="here")
    member.join(T[:4])
    member.beat(27)
    generation = leave(member)
    while member.calls:
        member.returned()
    assert member.sent(JOIN_GROUP).member_id == ""
    member.joined(generation, "me again")
    member.synced(T[:2])
    while member.calls:
        member.returned()
    assert member.sent(JOIN_GROUP).reason == "need to revoke partitions and re-join"
    member.rejoin(T[:2], generation)
    assert not member.has_open(JOIN_GROUP), "once is enough"


@pytest.mark.parametrize("generation", [3, 4])
def test_a_static_member_that_returns_in_a_later_generation_joins_once(generation: int) -> None:
    """The leader divided when the member had nothing any more, so there is nothing to revoke."""
    member = Member(CooperativeDealer(), group_instance_id="here")
    member.join(T[:4])
    member.beat(27)
    leave_before_the_assignment_comes(member)
    member.rejoin(T[:2], generation, "me again")
    assert not member.has_open(JOIN_GROUP)


def test_a_static_member_that_revoked_everything_before_it_joined_joins_once() -> None:
    """By an eager protocol each generation divides all partitions."""
    member = Member(group_instance_id="here")
    member.join(T[:4])
    member.beat(27)
    member.returned()
    member.joined(2)
    member.hear(ev.Unsubscribed())
    member.synced(T[:2])  # the answer to the member id of before: it is ignored
    member.subscribe()
    member.rejoin(T[:2], 2, "me again")
    assert not member.has_open(JOIN_GROUP)
