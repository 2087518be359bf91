"""Deletes the owner fences: in a rollback, and after a migration is completed with ``--remove-fences``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_znode import TRIES_MAX, ControlZnode, VersionedControl
from bridge.migration.control.phases import Phase
from bridge.migration.errors import PartiallyDoneError
from bridge.migration.fences.fence_acls import take_over_fence_acls
from bridge.migration.fences.fence_record import parse_fence_record
from bridge.migration.fences.owner_nodes import (
    SIZE_OF_CONTROL_CHECK,
    foreign_owner_error,
    multi_error_text,
    read_owner_nodes,
)
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepStatus
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import pack_multis
from zkconsumer.zk.requests import Delete, DeleteOp, MultiFailed, MultiOk, NoAuth, Op, ZnodeData

if TYPE_CHECKING:
    from zkconsumer.types import TopicPartition

FENCE_REMOVAL_PHASES = (Phase.UNDOING, Phase.RETURNING, Phase.RETURNED, Phase.COMPLETED)
"""Rollback before ``switched``, rollback after it, and ``complete --remove-fences``.  In a rollback after ``switched``
where members stay, the fences are removed before the members acquire ownership.

Never in ``switched``: Kafka has the authority there, and an old member would read again from the cut-over.
"""


def fence_removal_status(authority: ControlZnode) -> StepStatus | None:
    """The status of a step that removes fences, if the phase decides it: refused, or done once the migration is
    undone.
    """
    held = authority.check_phase(*FENCE_REMOVAL_PHASES, Phase.UNDONE)
    if isinstance(held, StepRefused):
        return held
    if held is None:
        return None
    if held.phase is Phase.UNDONE:
        return StepDone()
    return None if held.control.is_confirmed else StepRefused(_unconfirmed(held))


def _unconfirmed(held: VersionedControl) -> PartiallyDoneError:
    return PartiallyDoneError(
        f"phase {held.phase.value} is not confirmed, so no fence is lifted: run the same command again, which compares "
        "both stores first"
    )


@dataclass(frozen=True, slots=True)
class RemoveOwnerFences:
    """Deletes every fence of this migration, of any epoch, and the parents that were created for the fences.

    Also deletes fences of a completed migration that this one took over (``ControlZnode.fences_of``).

    ``before``: the paths in the plan.
    """

    control_znode: ControlZnode
    before: Collection[str]

    name = "lift the owner fences"
    changes = True

    def describe(self) -> list[str]:
        ours, _ = self._fences()
        return [f"delete the fences of {len(ours)} partitions"]

    def _fences(self) -> tuple[dict[TopicPartition, ZnodeData], dict[TopicPartition, ZnodeData]]:
        """The fences of this migration, and those of other migrations."""
        nodes = read_owner_nodes(self.control_znode.session, self.control_znode.group)
        marks = {tp: parse_fence_record(node.data) for tp, node in nodes.items() if not node.stat.ephemeral_owner}
        ours = {
            tp for tp, mark in marks.items() if mark and mark.migration_id in self.control_znode.fence_migration_ids
        }
        others = {tp for tp, mark in marks.items() if mark and tp not in ours}
        return {tp: nodes[tp] for tp in sorted(ours)}, {tp: nodes[tp] for tp in sorted(others)}

    def check(self) -> StepStatus:
        ended = fence_removal_status(self.control_znode)
        if ended is not None:
            return ended
        ours, others = self._fences()
        if ours or self._created_parents():
            return StepPending()
        if others:
            return StepRefused(foreign_owner_error(self.control_znode.group, others, self.control_znode.migration_id))
        return StepDone()

    def do(self) -> None:
        owners = paths.owners(self.control_znode.group)
        for _ in range(TRIES_MAX + 1):
            self.control_znode.require_phase(*FENCE_REMOVAL_PHASES)
            ours, _others = self._fences()
            if ours:
                topics = sorted({tp.topic for tp in ours})
                take_over_fence_acls(self.control_znode, [owners, *(f"{owners}/{topic}" for topic in topics)])
                if not self._delete(ours):
                    continue
            made = self._created_parents()
            if not made:
                return
            take_over_fence_acls(self.control_znode, [path.rpartition("/")[0] for path in made])
            self.control_znode.write([Delete(path) for path in made])
        raise PartiallyDoneError(
            f"some owner fences of group {self.control_znode.group} are not deleted: they changed, or the connection "
            "broke, in every try. Run the same command again"
        )

    def _delete(self, fences: Mapping[TopicPartition, ZnodeData]) -> bool:
        """Delete the fences; False: a node changed meanwhile, read again."""
        group = self.control_znode.group
        ops = [(tp, _delete_ops(group, tp, node)) for tp, node in fences.items()]
        for plan in pack_multis(ops, [SIZE_OF_CONTROL_CHECK], one_by_one=False):
            held = self.control_znode.require_phase(*FENCE_REMOVAL_PHASES)
            answer = self.control_znode.transact(held, [op for _, ops in plan for op in ops])
            if isinstance(answer, MultiFailed) and isinstance(answer.error, NoAuth):
                raise PartiallyDoneError(
                    f"the owner fences were not deleted: {multi_error_text(answer)}. Then run the command again"
                )
            if not isinstance(answer, MultiOk):
                return False
        return True

    def _created_parents(self) -> list[str]:
        """Parents without children that were created for the fences, those of topics first."""
        session, owners = self.control_znode.session, paths.owners(self.control_znode.group)
        listed = session.children(owners)
        if listed is None:
            return []
        of_topics = session.children_of_many(f"{owners}/{name}" for name in sorted(listed.names))
        made = [path for path, children in of_topics.items() if not children.names and path not in self.before]
        return [*made, *([owners] if owners not in self.before and len(made) == len(listed.names) else [])]


def _delete_ops(group: str, tp: TopicPartition, node: ZnodeData) -> list[Op]:
    child: list[Op] = [DeleteOp(paths.fence_child(group, tp))] if node.stat.num_children else []
    return [*child, DeleteOp(paths.owner(group, tp), node.stat.version)]
