"""Fences of a ``dual`` migration: after the switch, each released partition gets its fence.

The members own every partition in ZooKeeper until the switch, and release all after it.  Then a late Scala consumer
would find unowned partitions; a fence blocks it.  The step changes no existing owner node: it names a Scala
consumer that was faster, and fences its partitions after it has released them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_znode import TRIES_MAX, ControlZnode, VersionedControl
from bridge.migration.control.phases import FORWARD, Phase
from bridge.migration.errors import PartiallyDoneError
from bridge.migration.fences.fence_record import FenceRecord, parse_fence_record
from bridge.migration.fences.owner_fences import CHUNK_PARTITIONS_MAX, create_fence_ops, repair_fence_ops
from bridge.migration.fences.owner_nodes import (
    SIZE_OF_CONTROL_CHECK,
    format_partitions,
    multi_error_text,
    read_group_partitions,
    read_some_owner_nodes,
)
from bridge.migration.steps.step import StepDone, StepPending, StepStatus
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import pack_multis
from zkconsumer.zk.requests import Create, MultiFailed, MultiOk, NoAuth, NoNode, Op

if TYPE_CHECKING:
    from zkconsumer.types import TopicPartition

POST_SWITCH_PHASES = FORWARD["dual"][FORWARD["dual"].index(Phase.SWITCHED) :]


@dataclass(slots=True)
class FenceUnownedPartitions:
    """Sets a fence for every partition of the group that has no owner.

    ``topics``: those of the plan.  A step that is done does not look at the group again; a second step, after the Scala
    consumers have released their partitions, fences those.
    """

    control_znode: ControlZnode
    topics: Collection[str]
    _is_done: bool = False

    name = "owner fences for unowned partitions"
    changes = True

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"create a fence in {paths.owners(self.control_znode.group)} for each partition that members released"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        held = self.control_znode.check_phase(*POST_SWITCH_PHASES)
        if not isinstance(held, VersionedControl):
            return held or StepPending()
        is_over = self._is_done or held.phase is not Phase.SWITCHED
        return StepDone() if is_over or not self.unfenced(held) else StepPending()

    def unfenced(self, held: VersionedControl) -> list[tuple[TopicPartition, list[Op]]]:
        """The partitions without fence and owner, each with the operations that create the fence."""
        session, group, acl = self.control_znode.session, self.control_znode.group, self.control_znode.acl_policy.acl
        partitions = read_group_partitions(session, group, self.topics)
        nodes = read_some_owner_nodes(session, group, partitions)
        mark = FenceRecord(self.control_znode.migration_id, held.control.epoch)
        ops: list[tuple[TopicPartition, list[Op]]] = []
        for tp in partitions:
            node = nodes.get(tp)
            found = None if node is None or node.stat.ephemeral_owner else parse_fence_record(node.data)
            if node is None:
                ops.append((tp, create_fence_ops(group, tp, mark, acl)))
            elif found is not None and found.migration_id == mark.migration_id:
                ops.append((tp, repair_fence_ops(group, tp, node, mark, acl)))
        return [(tp, some) for tp, some in ops if some]

    def do(self) -> None:
        """See ``MigrationStep``.  Raises ``PartiallyDoneError`` with what blocks the fences."""
        answer: object = None
        for _ in range(TRIES_MAX + 1):
            left = self.unfenced(self.control_znode.require_phase(Phase.SWITCHED))
            if not left:
                self._is_done = True
                return
            for plan in pack_multis(left, [SIZE_OF_CONTROL_CHECK], one_by_one=False):
                for at in range(0, len(plan), CHUNK_PARTITIONS_MAX):
                    chunk = plan[at : at + CHUNK_PARTITIONS_MAX]
                    held = self.control_znode.require_phase(Phase.SWITCHED)
                    answer = self.control_znode.transact(held, [op for _, ops in chunk for op in ops])
                    if isinstance(answer, MultiFailed) and isinstance(answer.error, NoNode):
                        self._make_parents({tp.topic for tp, _ in chunk})
                    if isinstance(answer, MultiFailed) and isinstance(answer.error, NoAuth):
                        raise self._not_fenced_error(left, answer)
        if isinstance(answer, MultiOk) and not self.unfenced(self.control_znode.require_phase(Phase.SWITCHED)):
            self._is_done = True
            return
        raise self._not_fenced_error(left, answer)

    def _make_parents(self, topics: Collection[str]) -> None:
        group = self.control_znode.group
        owners = paths.owners(group)
        made = [*paths.parents(owners), owners, *(paths.owners_of_topic(group, topic) for topic in sorted(topics))]
        self.control_znode.write(list(map(Create, made)))

    def _not_fenced_error(self, left: list[tuple[TopicPartition, list[Op]]], answer: object) -> PartiallyDoneError:
        return PartiallyDoneError(
            f"Kafka has the authority, and {format_partitions([tp for tp, _ in left])} have no fence against old "
            "members: "
            f"{multi_error_text(answer)}. Run the same command again"
        )
