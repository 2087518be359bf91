"""The ways back of ``dual``, in which no member stops either.

    before switched   undoing: one write, because ZooKeeper never stopped being right · members leave the coordinator's
                      group · fences away · undone
    after it          returning: fences away, members claim what they read · each commit goes to Kafka, then to
                      ZooKeeper · what nobody holds is written by the tool · compared · all there still ·
                      returned (the authority moves) · members act by it, and Kafka's values have our provenance ·
                      what no member wrote so is recorded (``returned``) · nudge · undone

Where no member is left behind the switch, nobody claims and nobody commits: the group is taken back as one that was
copied (``rollback``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control_steps import ControlTo
from bridge.migration.copies import pending_zookeeper_writes
from bridge.migration.decisions import OffsetConvention
from bridge.migration.dual.comparing import CompareStores, is_in_zookeeper
from bridge.migration.dual.following import MembersFollow, MembersHold, consumed_partitions
from bridge.migration.dual.roster import read_participants_by_id
from bridge.migration.errors import PartlyDone
from bridge.migration.fences.lifting import LiftOwnerFences
from bridge.migration.fences.list_of_made import acl_of_new_offsets
from bridge.migration.fences.owner_nodes import read_owner_nodes
from bridge.migration.moving import WriteDown
from bridge.migration.phases import Phase
from bridge.migration.seat_steps import LeaveSeat
from bridge.migration.step import Done, Refused, Standing, Todo
from zkconsumer.admin.groups import read_group
from zkconsumer.admin.stores import registered_members
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from bridge.migration.moving import Moving
    from bridge.migration.step import Step
    from zkconsumer.admin.stores import OffsetWrite


def has_registered_members(moving: Moving) -> bool:
    """Whether members are there who take the group back themselves."""
    return moving.plan.strategy == "dual" and bool(registered_members(moving.session, moving.group))


def has_non_acknowledging_members(moving: Moving) -> bool:
    """Whether somebody is registered who does not follow, and may have given up behind a fence."""
    session, group = moving.session, moving.group
    followers = read_participants_by_id(session, group, lambda: read_owner_nodes(session, group))
    return any(one.acknowledgement is None for one in followers.values())


def dual_return_steps(moving: Moving) -> Iterator[Step]:
    """From ``switched`` to ``returned``."""
    authority, stores = moving.control_znode, moving.stores
    yield ControlTo(authority, Phase.RETURNING)
    yield WriteDown(moving, "rollback", {})
    # Of a run that found no member, before some came.
    yield LeaveSeat(moving.placeholder)
    yield LiftOwnerFences(authority, moving.parents_to_keep)
    yield MembersFollow(authority, stores, Phase.RETURNING)
    yield MembersHold(authority, stores, Phase.RETURNING)
    yield ReturnUnheld(moving)
    yield CompareStores(moving, Phase.RETURNING)
    # The comparison takes time, and a member that registered meanwhile has not acknowledged.
    yield MembersFollow(authority, stores, Phase.RETURNING)
    yield ControlTo(authority, Phase.RETURNED)


@dataclass(frozen=True, slots=True)
class ReturnUnheld:
    """ZooKeeper says what Kafka says of what no member reads or owns; what members hold they write themselves."""

    context: Moving

    name = "write Kafka's offsets of what nobody holds to ZooKeeper"
    changes = True

    def describe(self) -> list[str]:
        """See ``Step``."""
        return [
            f"write to {paths.offsets(self.context.group)} what was committed of partitions that no member reads now"
        ]

    def check(self) -> Standing:
        """See ``Step``."""
        held = self.context.control_znode.check_phase(Phase.RETURNING)
        if isinstance(held, Refused):
            return held
        return Todo() if held is None or self._pending() else Done()

    def do(self) -> None:
        """See ``Step``.  Raises ``PartlyDone`` when something stands in the way; Kafka has the authority still."""
        authority = self.context.control_znode
        held = authority.require_phase(Phase.RETURNING)
        acl = acl_of_new_offsets(authority, self.context.plan)
        stopped_by = authority.write_offsets(held, self._pending(), acl, allow_members=True)
        if stopped_by:
            raise PartlyDone(
                f"offsets of group {authority.group} are written to ZooKeeper in part, and Kafka has the authority "
                f"still: {stopped_by}. See to it, then run the same command again"
            )

    def _pending(self) -> list[OffsetWrite]:
        moving = self.context
        state = read_group(moving.session, moving.group)
        owned = read_owner_nodes(moving.session, moving.group).keys()
        held = owned if state is None else owned | consumed_partitions(state)
        nodes = moving.stores.read_zookeeper()
        kafka = {
            tp: value
            for tp, value in moving.stores.read_kafka().items()
            if tp not in held
            and not is_in_zookeeper(value, nodes[tp].offset if tp in nodes else None, moving.control_znode.migration_id)
        }
        return pending_zookeeper_writes(kafka, nodes, OffsetConvention.NEXT)
