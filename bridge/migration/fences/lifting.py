"""Deletes the owner fences: on the way back, and after a migration is completed, when the operator asks for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.authority import TRIES_MAX, Authority, Held
from bridge.migration.errors import PartlyDone
from bridge.migration.fences.lists import take_over_fence_acls
from bridge.migration.fences.mark import parse_fence_record
from bridge.migration.fences.owner_nodes import CONTROL_CHECK, read_owner_nodes, foreign_owner_error, multi_error_text
from bridge.migration.phases import Phase
from bridge.migration.step import Done, Refused, Standing, Todo
from zkconsumer.zk import paths
from zkconsumer.zk.procedures import pack_multis
from zkconsumer.zk.requests import Delete, DeleteOp, MultiFailed, MultiOk, NoAuth, Node, Op

if TYPE_CHECKING:
    from zkconsumer.types import TopicPartition

LIFTING = (Phase.UNDOING, Phase.RETURNING, Phase.RETURNED, Phase.COMPLETED)
"""Back before ``switched``, back after it (where members stay: before they claim), and ``complete --lift-fences``.

Never ``switched``: Kafka has the authority there, and an old member would read again from the cut-over.
"""


def fence_removal_status(authority: Authority) -> Standing | None:
    """What a step that lifts fences says without a look at them: refused, or done once the migration is undone."""
    held = authority.check_phase(*LIFTING, Phase.UNDONE)
    if isinstance(held, Refused):
        return held
    if held is None:
        return None
    if held.phase is Phase.UNDONE:
        return Done()
    return None if held.control.is_confirmed else Refused(_unconfirmed(held))


def _unconfirmed(held: Held) -> PartlyDone:
    return PartlyDone(
        f"phase {held.phase.value} is not confirmed, so no fence is lifted: run the same command again, which compares "
        "both stores first"
    )


@dataclass(frozen=True, slots=True)
class LiftOwnerFences:
    """Every fence of this migration away, of whatever epoch; and the parents that were not there before it.

    Also those of a completed migration that this one took over (``Authority.fences_of``).

    ``before``: the paths that the plan saw.
    """

    control_znode: Authority
    before: Collection[str]

    name = "lift the owner fences"
    changes = True

    def describe(self) -> list[str]:
        ours, _ = self._fences()
        return [f"delete the fences of {len(ours)} partitions"]

    def _fences(self) -> tuple[dict[TopicPartition, Node], dict[TopicPartition, Node]]:
        """Ours, and those of other migrations."""
        nodes = read_owner_nodes(self.control_znode.session, self.control_znode.group)
        marks = {tp: parse_fence_record(node.data) for tp, node in nodes.items() if not node.stat.ephemeral_owner}
        ours = {tp for tp, mark in marks.items() if mark and mark.migration_id in self.control_znode.fence_migration_ids}
        others = {tp for tp, mark in marks.items() if mark and tp not in ours}
        return {tp: nodes[tp] for tp in sorted(ours)}, {tp: nodes[tp] for tp in sorted(others)}

    def check(self) -> Standing:
        ended = fence_removal_status(self.control_znode)
        if ended is not None:
            return ended
        ours, others = self._fences()
        if ours or self._created_parents():
            return Todo()
        if others:
            return Refused(foreign_owner_error(self.control_znode.group, others, self.control_znode.migration_id))
        return Done()

    def do(self) -> None:
        owners = paths.owners(self.control_znode.group)
        for _ in range(TRIES_MAX + 1):
            self.control_znode.require_phase(*LIFTING)
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
        raise PartlyDone(
            f"the owner fences of group {self.control_znode.group} are not all gone: they changed, or the connection "
            "broke, again and again. Run the same command again"
        )

    def _delete(self, fences: Mapping[TopicPartition, Node]) -> bool:
        """False: something moved meanwhile; look again."""
        group = self.control_znode.group
        ops = [
            (tp, _delete_ops(group, tp, node)) for tp, node in fences.items()
        ]
        for plan in pack_multis(ops, [CONTROL_CHECK], singly=False):
            held = self.control_znode.require_phase(*LIFTING)
            answer = self.control_znode.transact(held, [op for _, ops in plan for op in ops])
            if isinstance(answer, MultiFailed) and isinstance(answer.error, NoAuth):
                raise PartlyDone(f"the owner fences were not deleted: {multi_error_text(answer)}. Then run the command again")
            if not isinstance(answer, MultiOk):
                return False
        return True

    def _created_parents(self) -> list[str]:
        """Parents without children that were made for the fences, those of topics first."""
        session, owners = self.control_znode.session, paths.owners(self.control_znode.group)
        listed = session.children(owners)
        if listed is None:
            return []
        of_topics = session.children_of_many(f"{owners}/{name}" for name in sorted(listed.names))
        made = [path for path, children in of_topics.items() if not children.names and path not in self.before]
        return [*made, *([owners] if owners not in self.before and len(made) == len(listed.names) else [])]


def _delete_ops(group: str, tp: TopicPartition, node: Node) -> list[Op]:
    child: list[Op] = [DeleteOp(paths.fence_child(group, tp))] if node.stat.num_children else []
    return [*child, DeleteOp(paths.owner(group, tp), node.stat.version)]
