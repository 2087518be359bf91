"""What is lost is stopped when that is known, and not when something else that is waited for has come."""

from __future__ import annotations

import pytest

from bridge.client import commands as do
from bridge.client import events as ev
from bridge.client.commands import Callback
from bridge.client.events import Offset
from tests.coordinator.client_member import HEARTBEAT_MS, CooperativeDealer, Member, T, every, only
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
    assert only(said, do.StopFetching).partitions == frozenset(T[:3]), "the program may take long to return"
    said = member.returned()
    assert not every(said, do.StartFetching)
    lost = only(said, do.Invoke)
    assert (lost.callback, lost.partitions) == (Callback.LOST, frozenset(T[:3]))


@BOTH
def test_what_is_kept_is_stopped_when_it_is_lost_while_the_leader_is_waited_for(error: int) -> None:
    member = keeping_two()
    member.wait(HEARTBEAT_MS)
    said = member.answer(HEARTBEAT, HeartbeatResponse(error_code=error))
    assert only(said, do.StopFetching).partitions == frozenset(T[:2])


@BOTH
def test_what_is_kept_is_stopped_when_it_is_lost_while_something_else_is_handed_back(error: int) -> None:
    member = Member(CooperativeDealer(), auto_commit=True)
    member.join(T[:2])
    member.beat(27)
    member.hear(ev.PositionsCollected({T[0]: Offset(5), T[1]: Offset(7)}))
    member.committed()
    member.joined(2)
    assert only(member.synced(T[:1]), do.StopFetching).partitions == frozenset(T[1:2])
    member.hear(ev.PositionsCollected({T[0]: Offset(5), T[1]: Offset(7)}))
    assert member.has_open(OFFSET_COMMIT)
    said = member.committed(error)
    assert only(said, do.StopFetching).partitions == frozenset(T[:2])


def test_a_close_that_is_late_stops_everything_as_it_leaves() -> None:
    member = keeping_two()
    member.synced(T[:3])
    member.hear(ev.Closed(timeout_ms=100))
    said = member.wait(100)
    assert every(said, do.Stopped)
    assert only(said, do.StopFetching).partitions == frozenset(T[:3])


def test_a_static_member_that_went_away_before_it_knew_its_share_lets_the_group_form_anew() -> None:
    """It comes back into the same generation, in which nobody has what it was to give back in the second step."""
    member = Member(CooperativeDealer(), group_instance_id="here")
    member.join(T[:4])
    member.beat(27)
    member.joined(2)
    member.hear(ev.Unsubscribed())
    member.returned()
    member.synced(T[:2])  # the answer to who it was; it concerns nobody any more
    member.subscribe()
    member.joined(2, "me again")
    member.synced(T[:2])
    member.returned()
    assert member.sent(JOIN_GROUP).reason == "need to revoke partitions and re-join"
