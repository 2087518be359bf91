"""The usual life of a member: join, read, rejoin, commit, leave."""

from __future__ import annotations

from tests.coordinator.client_harness import Member, T, every, only
from zkconsumer.kafka.group import commands as do
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.commands import Callback
from zkconsumer.kafka.group.generation import MemberState
from zkconsumer.member import ownership
from zkconsumer.wire.schemas import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT, SYNC_GROUP


def test_a_member_finds_its_coordinator_joins_leads_and_reads() -> None:
    member = Member()
    only(member.subscribe(), do.NeedMetadata)
    member.metadata(t=4)
    assert only(member.find(), do.ConnectCoordinator).node.id == 1
    member.join_refused(79, "me")
    assert member.sent(JOIN_GROUP).member_id == "me"
    member.joined(leader="me")
    assert [row.member_id for row in member.sent(SYNC_GROUP).assignments] == ["me"]
    told = only(member.synced(T[:4]), do.Invoke)
    assert told.callback is Callback.ASSIGNED
    assert told.partitions == frozenset(T[:4])
    assert only(member.returned(), do.StartPartitions) == do.StartPartitions(frozenset(T[:4]), 1)
    assert member.machine.state is MemberState.STABLE


def test_a_rebalance_stops_commits_tells_and_then_joins() -> None:
    member = Member(auto_commit=True)
    member.join(T[:2])
    said = member.beat(27)
    kinds = [type(command) for command in said if not isinstance(command, do.LogMemberEvent)]
    assert kinds[:2] == [ownership.Drain, ownership.CollectPositions]
    said = member.hear(ownership.PositionsCollected({T[0]: 5, T[1]: 7}))
    assert not every(said, do.Invoke), "the program is told when the commit is through"
    assert only(member.committed(), do.Invoke).callback is Callback.REVOKED
    assert not member.has_open(JOIN_GROUP), "the program has not returned yet"
    member.wait(3000)
    assert member.has_open(HEARTBEAT), "heartbeats go on meanwhile"
    member.returned()
    assert member.sent(JOIN_GROUP).reason == "group is already rebalancing"
    member.rejoin(T[:1])
    assert member.machine.assigned == frozenset(T[:1])


def test_a_close_commits_gives_back_leaves_and_stops() -> None:
    member = Member(auto_commit=True)
    member.join(T[:2])
    assert every(member.hear(ev.Closed()), ownership.Drain)
    member.hear(ownership.PositionsCollected({T[0]: 5}))
    assert member.has_open(OFFSET_COMMIT)
    member.committed()
    member.returned()
    assert member.sent(LEAVE_GROUP).members[0].member_id == "me"
    said = member.left()
    kinds = [type(command) for command in said if not isinstance(command, do.LogMemberEvent)]
    assert kinds[:2] == [do.DisconnectCoordinator, do.MemberStopped]
    assert not member.timers
    assert not member.poll()
