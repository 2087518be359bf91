"""The owner fences: for every partition a persistent owner node with a child.

A Scala consumer finds the partition owned, tries four times, and gives up with an error.  The child makes an
unconditional delete fail.  One multi with a check of the control znode creates all fences of a chunk, or none.  It
fails when a member owns one of the partitions, because a running owner would not detect a fence in its place: it would
continue to read and commit, and delete the fence at its next rebalance.

Where the session that sets the fence owns a partition itself, the same multi replaces its owner node with the fence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bridge.migration.control.control_znode import TRIES_MAX, ControlZnode, VersionedControl
from bridge.migration.control.phases import Phase, has_reached
from bridge.migration.errors import PartiallyDoneError
from bridge.migration.fences.fence_record import FenceRecord, format_fence_record, parse_fence_record
from bridge.migration.fences.owner_nodes import (
    SIZE_OF_CONTROL_CHECK,
    foreign_owner_error,
    format_partitions,
    member_registered_error,
    multi_error_text,
    read_group_partitions,
    read_some_owner_nodes,
)
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepStatus
from zkconsumer.admin.zookeeper_offset_writes import registered_members
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import OUR_OWNER_VERSION, pack_multis
from zkconsumer.zk.requests import (
    Acl,
    CheckOp,
    Create,
    CreateOp,
    DeleteOp,
    MultiFailed,
    MultiOk,
    NoAuth,
    NoNode,
    Op,
    SetOp,
    ZnodeData,
)

CHUNK_PARTITIONS_MAX = 2_000
"""The maximum in one multi; a packet's limits of operations and bytes are mostly lower."""

_LONGEST_FENCE_RECORD = FenceRecord("0" * 64, 10**18 - 1)
_FENCING = (Phase.FENCING, Phase.RETURNING)
"""Also in a rollback: a client may have deleted fences since the switch, and each must name the new epoch."""


def owner_fence_steps(authority: ControlZnode, partitions: Iterable[TopicPartition]) -> list[CreateOwnerFences]:
    """One step for each chunk; the same partitions give the same steps."""
    wanted = sorted(partitions)
    group, acl = authority.group, authority.acl_policy.acl
    ops = [
        (tp, [*create_fence_ops(group, tp, _LONGEST_FENCE_RECORD, acl), DeleteOp(paths.owner(group, tp))])
        for tp in wanted
    ]
    plans = pack_multis(ops, [SIZE_OF_CONTROL_CHECK], one_by_one=False)
    cut = [
        [tp for tp, _ in plan[at : at + CHUNK_PARTITIONS_MAX]]
        for plan in plans
        for at in range(0, len(plan), CHUNK_PARTITIONS_MAX)
    ]
    return [CreateOwnerFences(authority, tuple(chunk), number, len(cut)) for number, chunk in enumerate(cut, 1)]


@dataclass(frozen=True, slots=True)
class CreateOwnerFences:
    """The fences of one chunk, in one multi."""

    control_znode: ControlZnode
    partitions: tuple[TopicPartition, ...]
    number: int = 1
    count: int = 1

    changes = True

    @property
    def name(self) -> str:
        return f"owner fences {self.number} of {self.count}"

    def describe(self) -> list[str]:
        return [f"create the fences of {len(self.partitions)} partitions, {self.partitions[0]} first"]

    def check(self) -> StepStatus:
        held = _fencing_status(self.control_znode)
        if not isinstance(held, VersionedControl):
            return held
        members = registered_members(self.control_znode.session, self.control_znode.group)
        if members:
            return StepRefused(member_registered_error(self.control_znode.group, members))
        try:
            return StepPending() if self._pending_ops(held) else StepDone()
        except PartiallyDoneError as error:
            return StepRefused(error)

    def do(self) -> None:
        answer: object = None
        for _ in range(TRIES_MAX):
            held = self.control_znode.require_phase(*_FENCING)
            todo = self._pending_ops(held)
            if not todo:
                return
            answer = self.control_znode.transact(held, [op for ops in todo.values() for op in ops])
            if isinstance(answer, MultiOk):
                return
            if isinstance(answer, MultiFailed) and isinstance(answer.error, NoNode):
                self._make_parents()
            if isinstance(answer, MultiFailed) and isinstance(answer.error, NoAuth):
                break
        raise PartiallyDoneError(
            f"no fence of {self.name} was created: {multi_error_text(answer)}. The completed steps remain; run the "
            "same command again"
        )

    def _pending_ops(self, held: VersionedControl) -> dict[TopicPartition, list[Op]]:
        """The operations for the partitions without a fence.  Raises ``PartiallyDoneError`` if another client owns
        one.
        """
        group, session, acl = self.control_znode.group, self.control_znode.session, self.control_znode.acl_policy.acl
        nodes = read_some_owner_nodes(session, group, self.partitions)
        mark = FenceRecord(self.control_znode.migration_id, held.control.epoch)
        strangers: dict[TopicPartition, ZnodeData] = {}
        todo: dict[TopicPartition, list[Op]] = {}
        for tp in self.partitions:
            node = nodes.get(tp)
            if node is None:
                todo[tp] = create_fence_ops(group, tp, mark, acl)
                continue
            found = None if node.stat.ephemeral_owner else parse_fence_record(node.data)
            if (
                found is not None
                and found.migration_id in self.control_znode.fence_migration_ids
                and found.epoch <= mark.epoch
            ):
                todo[tp] = repair_fence_ops(group, tp, node, mark, acl)
            elif node.stat.ephemeral_owner == session.session_id and node.stat.version == OUR_OWNER_VERSION:
                todo[tp] = [
                    DeleteOp(paths.owner(group, tp), OUR_OWNER_VERSION),
                    *create_fence_ops(group, tp, mark, acl),
                ]
            else:
                strangers[tp] = node
        if strangers:
            raise foreign_owner_error(group, strangers, self.control_znode.migration_id)
        return {tp: ops for tp, ops in todo.items() if ops}

    def _make_parents(self) -> None:
        group = self.control_znode.group
        tops = paths.parents(paths.owner(group, self.partitions[0]))[:-1]
        topics = sorted({tp.topic for tp in self.partitions})
        self.control_znode.write([
            *map(Create, tops), *(Create(paths.owners_of_topic(group, topic)) for topic in topics)
        ])  # fmt: skip


@dataclass(frozen=True, slots=True)
class CreateLateOwnerFences:
    """The same for partitions and topics of the group that were created after the plan."""

    control_znode: ControlZnode
    planned: Collection[TopicPartition]

    name = "owner fences for late partitions"
    changes = True

    def describe(self) -> list[str]:
        late = self._late()
        return [f"create fences for what came after the plan: {format_partitions(late) if late else 'nothing so far'}"]

    def _late(self) -> list[TopicPartition]:
        planned = set(self.planned)
        now = read_group_partitions(self.control_znode.session, self.control_znode.group, {tp.topic for tp in planned})
        return [tp for tp in now if tp not in planned]

    def check(self) -> StepStatus:
        held = _fencing_status(self.control_znode)
        if not isinstance(held, VersionedControl):
            return held
        for chunk in owner_fence_steps(self.control_znode, self._late()):
            standing = chunk.check()
            if not isinstance(standing, StepDone):
                return standing
        return StepDone()

    def do(self) -> None:
        for chunk in owner_fence_steps(self.control_znode, self._late()):
            chunk.do()


def create_fence_ops(group: str, tp: TopicPartition, mark: FenceRecord, acl: tuple[Acl, ...] | None) -> list[Op]:
    """Create a fence; no node exists.  ``acl``: the access list of both nodes, None: open to the world."""
    return [
        CreateOp(paths.owner(group, tp), format_fence_record(mark), acl=acl),
        CreateOp(paths.fence_child(group, tp), acl=acl),
    ]


def repair_fence_ops(
    group: str, tp: TopicPartition, node: ZnodeData, mark: FenceRecord, acl: tuple[Acl, ...] | None
) -> list[Op]:
    """Make a node a fence of this migration at this epoch, with its child; no operations when it is one already."""
    path = paths.owner(group, tp)
    is_current, has_child = node.data == format_fence_record(mark), node.stat.num_children > 0
    ops: list[Op] = [] if is_current else [SetOp(path, format_fence_record(mark), node.stat.version)]
    if not has_child:
        ops += [CheckOp(path, node.stat.version)] if is_current else []
        ops.append(CreateOp(paths.fence_child(group, tp), acl=acl))
    return ops


def _fencing_status(authority: ControlZnode) -> VersionedControl | StepStatus:
    """The control znode while fences are created; else the status of the step, which the phase decides."""
    fenced = (phase for phase in Phase if has_reached("copy", phase, Phase.FENCING))
    held = authority.check_phase(*fenced, Phase.RETURNING)
    if not isinstance(held, VersionedControl):
        return held or StepPending()
    return StepDone() if has_reached(held.strategy, held.phase, Phase.FENCED) else held
