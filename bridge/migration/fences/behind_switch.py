"""Fences where members stay: each stands once its claim was given back, when Kafka has the authority.

Members that move without a stop hold every partition in ZooKeeper up to the switch, and give all back behind it.  From
then on an original member that turns up late would find everything free; it meets a fence (K2) instead.  Nobody's claim
is touched: an original member that was quicker is named, and what it gives back is fenced after that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.authority import TRIES_MAX, Authority, Held
from bridge.migration.errors import PartlyDone
from bridge.migration.fences.mark import Mark, parse_mark
from bridge.migration.fences.owner_nodes import CONTROL_CHECK, names_of, partitions_now, read_owners_of, why_not
from bridge.migration.fences.owners import CHUNK_PARTITIONS_MAX, fence_ops, mend_ops
from bridge.migration.phases import FORWARD, Phase
from bridge.migration.step import Done, Standing, Todo
from zkconsumer.zk import paths
from zkconsumer.zk.procedures import packed
from zkconsumer.zk.requests import Create, MultiFailed, MultiOk, NoAuth, NoNode, Op

if TYPE_CHECKING:
    from zkconsumer.types import TopicPartition

BEHIND_SWITCH = FORWARD["dual"][FORWARD["dual"].index(Phase.SWITCHED) :]


@dataclass(slots=True)
class FenceWhatIsFree:
    """Every partition of the group that nobody claims has its fence.

    ``topics``: those of the plan.  Done once: what is given back later is for the next such step.
    """

    authority: Authority
    topics: Collection[str]
    _is_done: bool = False

    name = "owner fences where nobody claims"
    changes = True

    def describe(self) -> list[str]:
        """See ``Step``."""
        return [f"make a fence in {paths.owners(self.authority.group)} for each partition that members gave back"]

    def check(self) -> Standing:
        """See ``Step``."""
        held = self.authority.stands(*BEHIND_SWITCH)
        if not isinstance(held, Held):
            return held or Todo()
        is_over = self._is_done or held.phase is not Phase.SWITCHED
        return Done() if is_over or not self.left(held) else Todo()

    def left(self, held: Held) -> list[tuple[TopicPartition, list[Op]]]:
        """What has no fence and no owner, and what makes the fence."""
        session, group, acl = self.authority.session, self.authority.group, self.authority.access.acl
        partitions = partitions_now(session, group, self.topics)
        nodes = read_owners_of(session, group, partitions)
        mark = Mark(self.authority.migration_id, held.control.epoch)
        ops: list[tuple[TopicPartition, list[Op]]] = []
        for tp in partitions:
            node = nodes.get(tp)
            found = None if node is None or node.stat.ephemeral_owner else parse_mark(node.data)
            if node is None:
                ops.append((tp, fence_ops(group, tp, mark, acl)))
            elif found is not None and found.migration_id == mark.migration_id:
                ops.append((tp, mend_ops(group, tp, node, mark, acl)))
        return [(tp, some) for tp, some in ops if some]

    def do(self) -> None:
        """See ``Step``.  Raises ``PartlyDone`` with what stands in the way."""
        answer: object = None
        for _ in range(TRIES_MAX + 1):
            left = self.left(self.authority.require(Phase.SWITCHED))
            if not left:
                self._is_done = True
                return
            for plan in packed(left, [CONTROL_CHECK], singly=False):
                for at in range(0, len(plan), CHUNK_PARTITIONS_MAX):
                    chunk = plan[at : at + CHUNK_PARTITIONS_MAX]
                    held = self.authority.require(Phase.SWITCHED)
                    answer = self.authority.transact(held, [op for _, ops in chunk for op in ops])
                    if isinstance(answer, MultiFailed) and isinstance(answer.error, NoNode):
                        self._make_parents({tp.topic for tp, _ in chunk})
                    if isinstance(answer, MultiFailed) and isinstance(answer.error, NoAuth):
                        raise self._not_made(left, answer)
        if isinstance(answer, MultiOk) and not self.left(self.authority.require(Phase.SWITCHED)):
            self._is_done = True
            return
        raise self._not_made(left, answer)

    def _make_parents(self, topics: Collection[str]) -> None:
        group = self.authority.group
        owners = paths.owners(group)
        made = [*paths.parents(owners), owners, *(paths.owners_of_topic(group, topic) for topic in sorted(topics))]
        self.authority.write(list(map(Create, made)))

    def _not_made(self, left: list[tuple[TopicPartition, list[Op]]], answer: object) -> PartlyDone:
        return PartlyDone(
            f"Kafka has the authority, and {names_of([tp for tp, _ in left])} have no fence against old members: "
            f"{why_not(answer)}. Run the same command again"
        )
