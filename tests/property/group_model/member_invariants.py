"""Invariants after every event (``check_invariants``) and of each list of commands (``check_command_order``).

``ownership``               a member works only on partitions whose owner node belongs to its live session
``lease``                   without a session no record may be delivered
``offsets``                 a commit never makes a stored offset smaller; without auto commit no positions are requested
``assignment``              a member acquires only partitions of its assignment in the present view
``release before acquire``  owner nodes are created only after all revoked partitions are released, if they can be
``registration``            a request about the registration is under way only while the membership expects its answer
``order``                   for each partition, the commands are in the order of ``member.commands``

The transcripts and the simulator of groups call both functions after every step.  The product does not: in a large
group they cost more than the decision, and the machines assert what is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member import ownership
from zkconsumer.member.membership_state_machine import MembershipState
from zkconsumer.member.partition_state_machine import PartitionState
from zkconsumer.member.rebalance_state_machine import RebalanceState
from zkconsumer.member.registration_state_machine import RegistrationState
from zkconsumer.member.session_state_machine import NO_LEASE_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkconsumer.member.commands import Command
    from zkconsumer.member.member_state_machine import MemberStateMachine
    from zkconsumer.types import TopicPartition


class InvariantBroken(AssertionError):
    """An invariant of a member is violated."""


def _require(holds: bool, rule: str, why: str) -> None:
    if not holds:
        raise InvariantBroken(f"{rule}: {why}")


def check_invariants(group: MemberStateMachine) -> None:
    """Raise ``InvariantBroken`` when a safety rule does not hold for this member now."""
    live = group.session.live
    _require(live is not None or not group.partitions, "ownership", "partitions are owned without a session")
    _require(
        live is not None or group.session.lease_until_ms == NO_LEASE_MS, "lease", "a lease exists without a session"
    )
    _require(
        group.membership.state in (MembershipState.REGISTERED, MembershipState.LEAVING)
        or all(held.is_leaving and held.state is not PartitionState.DRAINING for held in group.partitions.values()),
        "ownership",
        f"partitions are owned while the membership is {group.membership.state.value}",
    )
    _require(
        group.rebalance.state is RebalanceState.IDLE or group.membership.state is MembershipState.REGISTERED,
        "ownership",
        "an attempt is under way without membership",
    )
    for tp, held in group.partitions.items():
        _require(held.state is not PartitionState.NOT_OWNED, "ownership", f"{tp} is not owned and still in the table")
        if held.state is PartitionState.FETCHING:
            _require(held.czxid != 0, "ownership", f"{tp} is fetched without an owner node")
        if held.state is PartitionState.DRAINED and held.position >= 0 and not held.was_reset_since_write:
            _require(held.position >= held.stored.offset, "offsets", f"{tp} would be committed below the stored offset")
        if held.state is PartitionState.RELEASING:
            _require(group.listener.may_release(held), "order", f"{tp} is released before the listener was called")
    _require(
        not group.commit_on_change.is_collecting or (live is not None and group.settings.auto_commit),
        "offsets",
        "positions are requested for a commit that is not allowed",
    )
    _require(
        group.registration.state is not RegistrationState.CREATING
        or group.membership.state in (MembershipState.REGISTERING, MembershipState.LEAVING),
        "registration",
        f"the registration is being created while the membership is {group.membership.state.value}",
    )
    _require(
        group.registration.state not in (RegistrationState.DELETING, RegistrationState.DELETE_FAILED)
        or group.membership.state is MembershipState.LEAVING
        or group.is_leaving,
        "registration",
        f"the registration is being deleted while the membership is {group.membership.state.value}",
    )
    _require(
        group.membership.state is not MembershipState.REGISTERED
        or group.registration.state is RegistrationState.POSSIBLE,
        "registration",
        f"the member is registered, and its registration is {group.registration.state.value}",
    )
    _check_acquisitions(group)


def _check_acquisitions(group: MemberStateMachine) -> None:
    claiming = [tp for tp, held in group.partitions.items() if held.state is PartitionState.ACQUIRING]
    _require(
        not claiming or group.rebalance.state in (RebalanceState.ACQUIRING, RebalanceState.IDLE),
        "release before acquire",
        "owner nodes are being created outside the acquire step",
    )
    if group.rebalance.state is RebalanceState.ACQUIRING:
        unreleased = [
            tp
            for tp, held in group.partitions.items()
            if held.is_leaving and not held.is_ownership_unknown and tp not in group.releaser.unreleasable
        ]
        _require(
            not unreleased, "release before acquire", f"owner nodes were created before the release of {unreleased[:3]}"
        )
    for tp in claiming:
        _require(
            group.membership.state is not MembershipState.REGISTERED or tp in group.assignment.own_partitions,
            "assignment",
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
