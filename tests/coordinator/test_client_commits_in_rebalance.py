"""Commits of a member that keeps its partitions while its group rebalances.

The coordinator accepts commits of the generation before until all members have joined, and refuses every commit from
then until the leader's assignment is there (27; 22 for the generation before, from 2.4 on).
"""

from __future__ import annotations

import pytest

from bridge.client.assignors import RangeAssignor
from bridge.migration.dual.connector.migration_assignor import MigrationAssignor
from bridge.migration.dual.connector.protocol_downgrade import DowngradingConsumerCoordinator
from tests.coordinator.client_harness import CooperativeDealer, Member, T, every, group_member, only
from zkconsumer.kafka.group import commands as do
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.errors import CommitFailedException, RebalanceInProgressException
from zkconsumer.kafka.group.generation import MemberState
from zkconsumer.member import ownership
from zkconsumer.wire.schemas import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT, SYNC_GROUP
from zkconsumer.wire.schemas.heartbeat import HeartbeatResponse

ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE = 22, 25, 27
OF_A_GENERATION = [ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE]
INTERVAL_MS = 5000
CLOSE_MS = 3000


def joining(*, auto_commit: bool = True) -> Member:
    """A member that reads t0 and t1 in generation 1, has committed 5 of each, and has sent JoinGroup."""
    member = Member(CooperativeDealer(), auto_commit=auto_commit)
    member.join(T[:2])
    member.beat(REBALANCE)
    if auto_commit:
        collected(member, 5)
        member.committed()
    assert member.has_open(JOIN_GROUP)
    return member


def collected(member: Member, offset: int) -> list[do.Command]:
    """Both partitions are consumed up to there."""
    return member.hear(ownership.PositionsCollected({T[0]: offset, T[1]: offset}))


def offsets(member: Member) -> tuple[int, dict[int, int]]:
    """The generation of the commit on its way, and what it commits."""
    body = member.sent(OFFSET_COMMIT)
    rows = [row for topic in body.topics for row in topic.partitions]
    return body.generation_id_or_member_epoch, {row.partition_index: row.committed_offset for row in rows}


def callbacks(said: list[do.Command]) -> list[do.Callback]:
    return [invoke.callback for invoke in every(said, do.Invoke)]


# --- until all members have joined ------------------------------------------------------------------------------------


def test_automatic_commits_go_on_in_the_generation_before() -> None:
    member = joining()
    for offset in (6, 7):
        assert only(member.wait(INTERVAL_MS), ownership.CollectPositions)
        collected(member, offset)
        assert offsets(member) == (1, {0: offset, 1: offset})
        member.committed()
    assert member.has_open(JOIN_GROUP)


def test_the_program_commits_in_the_generation_before() -> None:
    member = joining(auto_commit=False)
    member.commit(7, t0=9)
    assert offsets(member) == (1, {0: 9})
    assert only(member.committed(), do.CommitDone) == do.CommitDone(7, None, {})


@pytest.mark.parametrize("error", OF_A_GENERATION)
def test_a_refusal_that_comes_before_the_answer_to_the_join_resets_nothing(error: int) -> None:
    """JoinGroup has its own connection: the generation has ended, and whether this member is in the next is not known.

    Before, both were on one connection, and the answer to JoinGroup came first.
    """
    member = joining(auto_commit=False)
    generation = member.machine.generation
    member.commit(7, retried=True, t0=9)
    said = member.committed(error)
    assert isinstance(only(said, do.CommitDone).error, RebalanceInProgressException)
    assert member.machine.generation == generation
    assert not every(said, do.Invoke), "no partition is lost"
    member.rejoin(T[:2])
    member.commit(8, t0=9)
    assert offsets(member) == (2, {0: 9})


@pytest.mark.parametrize("error", OF_A_GENERATION)
def test_a_heartbeat_that_is_refused_after_the_join_was_sent_resets_nothing(error: int) -> None:
    member = Member(CooperativeDealer())
    member.join(T[:2])
    member.wait(3000)
    member.hear(ev.RejoinAsked("the program wants it"))
    assert member.has_open(JOIN_GROUP)
    assert not every(member.answer(HEARTBEAT, HeartbeatResponse(error_code=error)), do.Invoke)
    member.rejoin(T[:2])
    assert member.machine.state is MemberState.STABLE
    assert member.machine.assigned == frozenset(T[:2])


@pytest.mark.parametrize("error", OF_A_GENERATION)
def test_what_is_refused_is_committed_as_soon_as_the_next_generation_is_taken_up(error: int) -> None:
    member = joining()
    member.wait(INTERVAL_MS)
    collected(member, 9)
    said = member.committed(error)
    assert [note.name for note in every(said, do.LogMemberEvent)] == ["auto-commit-deferred"]
    member.joined(2)
    said = member.synced(T[:2])
    assert only(said, ownership.CollectPositions), "without waiting for the interval"
    collected(member, 11)
    assert offsets(member) == (2, {0: 11, 1: 11})


def test_a_late_refusal_of_an_old_generation_does_not_make_the_member_join_again() -> None:
    """Brokers before 2.4 answer 27 to a commit of the generation before, perhaps later than SyncGroup."""
    member = joining()
    member.wait(INTERVAL_MS)
    collected(member, 9)
    member.rejoin(T[:2])
    member.committed(REBALANCE)
    assert not member.has_open(JOIN_GROUP)
    assert not member.machine.rejoin_needed


def test_a_member_whose_join_must_be_sent_again_commits_meanwhile() -> None:
    """14: the coordinator loads its group; the member is in the generation before until it has joined."""
    member = joining()
    member.join_refused(14)
    member.wait(0)
    member.commit(7, t0=9)
    assert offsets(member) == (1, {0: 9})


# --- until the assignment is there ------------------------------------------------------------------------------------


def test_between_join_and_sync_nothing_is_sent_and_what_was_due_is_committed_behind_it() -> None:
    member = joining()
    member.joined(2)
    assert not every(member.wait(2 * INTERVAL_MS), ownership.CollectPositions)
    member.commit(7, retried=True, t0=9)
    assert not member.has_open(OFFSET_COMMIT)
    assert isinstance(every(member.said, do.CommitDone)[-1].error, RebalanceInProgressException)
    assert only(member.synced(T[:2]), ownership.CollectPositions)


def test_an_eager_member_has_nothing_to_commit_while_it_joins() -> None:
    member = Member(auto_commit=True)
    member.join(T[:2])
    member.beat(REBALANCE)
    collected(member, 5)
    member.committed()
    member.returned()
    assert member.has_open(JOIN_GROUP)
    assert isinstance(only(member.commit(7), do.CommitDone).error, RebalanceInProgressException)
    assert not every(member.wait(2 * INTERVAL_MS), ownership.CollectPositions)


# --- leaving meanwhile ------------------------------------------------------------------------------------------------


def leaving(member: Member, offset: int) -> list[do.Command]:
    """The program ends; both partitions come to rest there."""
    said = member.hear(ev.Closed(timeout_ms=CLOSE_MS))
    return said + collected(member, offset)


def test_a_member_that_leaves_while_others_join_commits_first() -> None:
    member = joining()
    assert not every(leaving(member, 9), do.Invoke), "commit before the callback"
    assert offsets(member) == (1, {0: 9, 1: 9})
    assert callbacks(member.committed()) == [do.Callback.REVOKED]
    member.returned()
    assert member.has_open(LEAVE_GROUP)


@pytest.mark.parametrize("is_leader", [False, True])
@pytest.mark.parametrize("error", OF_A_GENERATION)
def test_a_member_that_leaves_follows_into_the_next_generation_to_commit_there(error: int, is_leader: bool) -> None:
    """Its commit arrived when all had joined: only a commit of the next generation is accepted."""
    member = joining()
    leaving(member, 9)
    assert not every(member.committed(error), do.Invoke)
    if is_leader:
        member.joined(2, leader="me", members=[group_member("me", "t", owned_partitions=tuple(T[:2]))])
    else:
        member.joined(2)
    assert member.has_open(SYNC_GROUP)
    assert not member.has_open(OFFSET_COMMIT)
    said = member.synced(T[2:4])
    assert offsets(member) == (2, {0: 9, 1: 9})
    said += member.committed()
    assert callbacks(said) == [do.Callback.REVOKED], "the share of a generation that is left is not taken up"
    member.returned()
    assert member.has_open(LEAVE_GROUP)


def test_a_member_that_leaves_between_join_and_sync_waits_for_the_assignment_to_commit() -> None:
    member = joining()
    member.joined(2)
    leaving(member, 9)
    assert not member.has_open(OFFSET_COMMIT)
    member.synced(T[:2])
    assert offsets(member) == (2, {0: 9, 1: 9})


def test_a_leaving_member_whose_next_generation_fails_gives_back_as_lost() -> None:
    member = joining()
    member.joined(2)
    leaving(member, 9)
    said = member.synced(error=REBALANCE)
    assert callbacks(said) == [do.Callback.LOST]
    assert not member.has_open(OFFSET_COMMIT)


def test_a_leaving_member_waits_no_longer_than_it_may() -> None:
    member = joining()
    leaving(member, 9)
    member.committed(ILLEGAL_GENERATION)
    said = member.wait(CLOSE_MS)
    assert callbacks(said) == [do.Callback.LOST]
    assert member.has_open(LEAVE_GROUP)
    assert every(said, do.MemberStopped)


@pytest.mark.parametrize("is_drained_first", [True, False])
def test_what_others_have_already_is_left_out_of_the_last_commit(is_drained_first: bool) -> None:
    """A generation by ``range`` behind a private one gives partitions to others at once (``protocol_downgrade``)."""
    member = Member(MigrationAssignor("m", "c"), RangeAssignor(), auto_commit=True, kind=DowngradingConsumerCoordinator)
    member.join(T[:2])
    member.beat(REBALANCE)
    collected(member, 5)
    member.committed()
    member.hear(ev.Closed(timeout_ms=CLOSE_MS))
    if is_drained_first:
        collected(member, 9)
        member.committed(ILLEGAL_GENERATION)
    member.joined(2, protocol_name="range")
    member.synced(T[:1])
    if not is_drained_first:
        collected(member, 9)
    assert offsets(member) == (2, {0: 9})


# --- a commit that waits while a rebalance begins and ends ------------------------------------------------------------


def test_a_commit_behind_a_slow_one_is_not_sent_by_the_member_that_replaced_the_lost_one() -> None:
    """Others have its partitions by now, and may have committed larger offsets."""
    member = Member(CooperativeDealer())
    member.join(T[:2])
    member.commit(1, t0=5)
    member.commit(2, t0=6, t1=6)
    member.beat(UNKNOWN_MEMBER)
    member.returned()
    member.joined(2, "other")
    member.synced(T[:1])
    member.returned()
    said = member.committed(UNKNOWN_MEMBER)
    results = {done.number: done.error for done in every(said, do.CommitDone)}
    assert results.keys() == {1, 2}
    assert isinstance(results[2], CommitFailedException)
    assert not member.has_open(OFFSET_COMMIT)


@pytest.mark.parametrize("retried", [False, True])
def test_a_commit_that_is_sent_again_after_a_rebalance_fails_instead(retried: bool) -> None:
    """Its connection ended after the next generation had begun; the program gets the partitions that it still has."""
    member = Member(CooperativeDealer())
    member.join(T[:2])
    member.commit(1, retried=retried, t0=5, t1=5)
    if not retried:
        member.commit(2, t0=6, t1=6)
    member.beat(REBALANCE)
    member.joined(2)
    member.synced(T[:2])
    member.returned()
    assert member.machine.state is MemberState.STABLE
    said = member.fail(OFFSET_COMMIT)
    said += member.wait(1_000)
    if member.has_open(FIND_COORDINATOR):
        said += member.find()
    assert not member.has_open(OFFSET_COMMIT)
    last = every(said, do.CommitDone)[-1]
    assert isinstance(last.error, RebalanceInProgressException)


def test_a_commit_without_a_group_is_sent_again() -> None:
    """The partitions are those of the program: no generation limits it."""
    member = Member()
    member.commit(1, retried=True, t0=5)
    member.find()
    member.fail(OFFSET_COMMIT)
    member.wait(1_000)
    member.find()
    assert member.has_open(OFFSET_COMMIT)
