"""Invariants after every event (``check_invariants``) and of each list of commands (``check_command_order``).

The numbers (S1, S3, ...) are those of the project's invariants.  Tests and the simulator call both after every step;
``runtime`` does not, because in a large group they cost more than the decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.errors import InternalError
from zkconsumer.member import commands as do
from zkconsumer.member import ownership
from zkconsumer.member.membership_state_machine import MembershipState
from zkconsumer.member.partition_state_machine import PartitionState
from zkconsumer.member.rebalance_state_machine import RebalanceState
from zkconsumer.member.session_state_machine import NO_LEASE_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkconsumer.member.commands import Command
    from zkconsumer.member.member_state_machine import MemberStateMachine
    from zkconsumer.types import TopicPartition


class InvariantBroken(InternalError):
    """An invariant of a member is violated."""


def _require(holds: bool, rule: str, why: str) -> None:
    if not holds:
        raise InvariantBroken(f"{rule}: {why}")


def check_invariants(group: MemberStateMachine) -> None:
    """Raise ``InvariantBroken`` when a safety rule does not hold for this member now."""
    live = group.session.live
    _require(live is not None or not group.partitions, "S1", "partitions are owned without a session")
    _require(live is not None or group.session.lease_until_ms == NO_LEASE_MS, "S3", "a lease exists without a session")
    _require(
        group.membership.state in (MembershipState.REGISTERED, MembershipState.LEAVING)
        or all(held.is_leaving and held.state is not PartitionState.DRAINING for held in group.partitions.values()),
        "S1",
        f"partitions are owned while the membership is {group.membership.state.value}",
    )
    _require(
        group.rebalance.state is RebalanceState.IDLE or group.membership.state is MembershipState.REGISTERED,
        "S1",
        "an attempt is under way without membership",
    )
    for tp, held in group.partitions.items():
        _require(held.state is not PartitionState.NOT_OWNED, "S1", f"{tp} is not owned and still in the table")
        if held.state is PartitionState.FETCHING:
            _require(held.czxid != 0, "S1", f"{tp} is fetched without an owner node")
        if held.state is PartitionState.DRAINED and held.position >= 0 and not held.was_reset_since_write:
            _require(held.position >= held.stored.offset, "S6", f"{tp} would be committed below the stored offset")
        if held.state is PartitionState.RELEASING:
            _require(group.listener.may_release(held), "order", f"{tp} is released before the listener was called")
    _require(
        not group.commit_on_change.is_collecting or (live is not None and group.settings.auto_commit),
        "S6",
        "positions are requested for a commit that is not allowed",
    )
    _check_acquisitions(group)


def _check_acquisitions(group: MemberStateMachine) -> None:
    claiming = [tp for tp, held in group.partitions.items() if held.state is PartitionState.ACQUIRING]
    _require(
        not claiming or group.rebalance.state in (RebalanceState.ACQUIRING, RebalanceState.IDLE),
        "S11",
        "owner nodes are being created outside the acquire step",
    )
    if group.rebalance.state is RebalanceState.ACQUIRING:
        unreleased = [
            tp
            for tp, held in group.partitions.items()
            if held.is_leaving and not held.is_ownership_unknown and tp not in group.releaser.unreleasable
        ]
        _require(not unreleased, "S11", f"owner nodes were created before the release of {unreleased[:3]}")
    for tp in claiming:
        _require(
            group.membership.state is not MembershipState.REGISTERED or tp in group.assignment.own_partitions,
            "S10",
            f"{tp} is acquired and not in the assignment",
        )


COMMAND_ORDER: tuple[tuple[type, ...], ...] = (
    (ownership.Drain, ownership.ForceDrain, ownership.DropPartitions),
    (do.CallBeforeReleasing,),
    (do.CommitToZooKeeper,),
    (do.CommitToKafka,),
    (do.ReleaseOwnership,),
    (do.Deregister,),
    (do.AcquireOwnership,),
    (do.CallBeforeStarting,),
    (do.ReadPositions, do.FetchOffsets),
    (ownership.StartFetching, ownership.MoveToThread),
)


def check_command_order(commands: Sequence[Command]) -> None:
    """Raise ``InvariantBroken`` when, for one partition, a later step is before an earlier one.

    A partition whose fetch starts may be stopped again in the same list: that is the first step of its next round.
    """
    kinds_said = {type(command) for command in commands}
    _require(
        not {do.ReadGroup, ownership.CollectPositions} <= kinds_said,
        "order",
        "the group is read before the commit for which the positions are requested",
    )
    last = len(COMMAND_ORDER) - 1
    reached: dict[TopicPartition, int] = {}
    for command in commands:
        for step, kinds in enumerate(COMMAND_ORDER):
            if isinstance(command, kinds):
                for tp in _partitions_of(command):
                    before = reached.get(tp, step)
                    _require(
                        before <= step or (before == last and step == 0),
                        "order",
                        f"{type(command).__name__} of {tp} is after a later step",
                    )
                    reached[tp] = step


def _partitions_of(command: Command) -> tuple[TopicPartition, ...]:
    match command:
        case ownership.Drain(partitions) | ownership.ForceDrain(partitions) | ownership.DropPartitions(partitions):
            return partitions
        case do.CallBeforeReleasing(partitions=partitions):
            return partitions
        case do.CallBeforeStarting(assignment=assignment):
            return tuple(assignment)
        case do.CommitToZooKeeper(offsets=offsets) | do.CommitToKafka(offsets=offsets):
            return tuple(offsets)
        case do.ReleaseOwnership(partitions=releases):
            return tuple(releases)
        case do.AcquireOwnership(owners=owners):
            return tuple(owners)
        case do.ReadPositions(partitions=partitions) | do.FetchOffsets(partitions=partitions):
            return partitions
        case ownership.StartFetching(threads=threads) | ownership.MoveToThread(threads=threads):
            return tuple(threads)
        case _:
            return ()
