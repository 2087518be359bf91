"""The sticky assignment of a group whose members all have the same subscription.  Pure.

Every member gets ``quota`` or ``quota + 1`` partitions; the number of members with one more is known.

    1. every member keeps its partitions up to its quota; those that had more may keep one more, while that is allowed
    2. with racks: partitions without an owner are assigned to members on the same rack, the rarest partition first
    3. the rest is assigned round-robin, first to members below the quota, then one more each to those that may have it

(2.4; steps by racks 3.5, KIP-881; the order of kept partitions 3.8, KAFKA-16277.)
"""

from __future__ import annotations

from collections import deque

from bridge.client.assignors.assignor_group import AssignorGroup, PartitionsByMember
from bridge.client.assignors.java_order import text_order
from bridge.client.assignors.owned import OwnedPartitions
from bridge.client.assignors.racks import Racks
from zkconsumer.types import TopicPartition


class ConstrainedAssignment:
    """One assignment during its computation.  ``moving``: partitions with another earlier owner, and their new
    owner."""

    def __init__(self, group: AssignorGroup, owned: OwnedPartitions, racks: Racks) -> None:
        self.shares: PartitionsByMember = {member: [] for member in owned.by_member}
        self.moving: dict[TopicPartition, str] = {}
        self._group = group
        self._owned = owned
        self._racks = racks
        self._quota, self._larger_most = divmod(sum(group.topics.values()), len(self.shares))
        self._quota_most = self._quota + (self._larger_most > 0)
        self._larger = 0
        self._below: list[str] = []
        """Members below the quota."""
        self._at_quota: deque[str] = deque()
        """Members at the quota that may get one more."""
        self._had: dict[TopicPartition, str] = {}
        self._next_index = 0

    def build(self) -> PartitionsByMember:
        """Assign every partition to exactly one member."""
        kept = self._keep()
        left = [
            tp
            for topic in sorted(self._group.topics, key=text_order)
            for tp in self._group.partitions_of(topic)
            if tp not in kept
        ]
        self._below.sort(key=text_order)
        self._at_quota = deque(sorted(self._at_quota, key=text_order))
        left = self._racks.rarest_first(left)
        if self._racks.is_rack_aware:
            left = [tp for tp in left if not self._give_near(tp)]
        self._give_round(left)
        return self.shares

    def _keep(self) -> set[TopicPartition]:
        kept: set[TopicPartition] = set()
        for member, owned in self._owned.by_member.items():
            far = [tp for tp in owned if self._racks.is_rack_mismatch(member, tp)]
            self._had.update(dict.fromkeys(far, member))
            mine = sorted(owned.keys() - set(far) - self._owned.disputed, key=lambda tp: (tp.partition, tp.topic))
            if len(mine) < self._quota:
                count = len(mine)
                self._below.append(member)
            elif len(mine) >= self._quota_most and self._larger < self._larger_most:
                count = self._quota_most
                self._count_larger()
            else:
                count = self._quota
                if self._larger < self._larger_most:
                    self._at_quota.append(member)
            self.shares[member] += mine[:count]
            kept.update(mine[:count])
            self._had.update(dict.fromkeys(mine[count:], member))
        return kept

    def _count_larger(self) -> None:
        self._larger += 1
        if self._larger == self._larger_most:
            self._at_quota.clear()

    def _give_near(self, tp: TopicPartition) -> bool:
        """Assign it to a member on the same rack that is not full; those below the quota round-robin, then the
        others."""
        place = self._racks.next_rack_match(tp, self._below, self._next_index)
        if place >= 0:
            member = self._below[place]
            count = self._give(tp, member)
            if count >= self._quota:
                self._below.remove(member)
                if count < self._quota_most and self._larger < self._larger_most:
                    self._at_quota.append(member)
            else:
                place += 1
            self._next_index = place % len(self._below) if self._below else 0
            return True
        place = self._racks.next_rack_match(tp, self._at_quota, 0)
        if place < 0:
            return False
        member = self._at_quota[place]
        if self._give(tp, member) == self._quota_most:
            del self._at_quota[place]
            self._count_larger()
        return True

    def _give_round(self, left: list[TopicPartition]) -> None:
        turn = 0
        for tp in left:
            if self._below:
                turn = turn if turn < len(self._below) else 0
                if self._give(tp, self._below[turn]) == self._quota:
                    self._at_quota.append(self._below.pop(turn))
                else:
                    turn += 1
            else:
                self._give(tp, self._at_quota.popleft())

    def _give(self, tp: TopicPartition, member: str) -> int:
        """Returns the member's number of partitions."""
        self.shares[member].append(tp)
        if self._had.get(tp, member) != member or tp in self._owned.disputed:
            self.moving[tp] = member
        return len(self.shares[member])
