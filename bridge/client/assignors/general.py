"""The sticky assignment of a group whose members have different subscriptions.  Pure.

    1. every member keeps its partitions, if it still subscribes to them (with racks: and is on the same rack)
    2. partitions without an owner are assigned to the member with the fewest, topics with few subscribers first; with
       racks first to members on the same rack
    3. while a member has two more than another one that could take one, one partition moves: back to its owner of an
       earlier generation, else to the member with the fewest.  First only unowned partitions; then any.
    4. if 3 moved owned partitions and the result is not more balanced, these moves are undone

(2.4, of the ``StickyAssignor`` of 0.11, KIP-54; steps by racks 3.5, KIP-881.)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from itertools import accumulate

from bridge.client.assignors.assignor_group import AssignorGroup, PartitionsByMember
from bridge.client.assignors.java_order import text_order
from bridge.client.assignors.movements import PartitionMovements
from bridge.client.assignors.owned import OwnedPartitions
from bridge.client.assignors.racks import Racks
from zkconsumer.types import TopicPartition

ROUNDS_MAX = 1_000
"""The maximum number of passes over all partitions in step 3; two or three are usual.  The last state is the result."""


class GeneralAssignment:
    """One assignment during its computation."""

    def __init__(self, group: AssignorGroup, owned: OwnedPartitions, racks: Racks) -> None:
        self._racks = racks
        self._earlier = owned.earlier
        self._topics_of = {
            member: frozenset(topic for topic in each.topics if topic in group.topics)
            for member, each in group.members.items()
        }
        self._members_of: dict[str, list[str]] = {topic: [] for topic in group.topics}
        for member, topics in self._topics_of.items():
            for topic in topics:
                self._members_of[topic].append(member)
        few_first = sorted(group.topics, key=lambda topic: (len(self._members_of[topic]), text_order(topic)))
        self._all = [tp for topic in few_first for tp in group.partitions_of(topic)]
        self._sizes = group.topics
        self._owner: dict[TopicPartition, str] = {}
        self._has: dict[str, dict[TopicPartition, None]] = {member: {} for member in group.members}
        self._owned_per_topic: dict[str, Counter[str]] = {topic: Counter() for topic in group.topics}
        """The number of partitions of a topic that each member has."""
        self._is_known_even: bool | None = None
        self._must_move = False
        self._keep(owned)
        self._members_by_size = sorted(self._place(member) for member in self._has)
        """Members by their number of partitions, the smallest first."""
        self._movements = PartitionMovements()

    def build(self) -> PartitionsByMember:
        """Assign every partition with a subscriber to exactly one member."""
        new = [tp for tp in self._all if tp not in self._owner]
        had_nothing = not self._owner
        left = new
        if self._racks.is_rack_aware:
            left = [tp for tp in left if not self._give_least(tp, only_near=True)]
        for tp in left:
            self._give_least(tp, only_near=False)
        self._balance([tp for tp in new if self._can_move(tp.topic)], had_nothing)
        return {member: list(has) for member, has in self._has.items()}

    def _keep(self, owned: OwnedPartitions) -> None:
        for member, partitions in owned.by_member.items():
            for tp in partitions:
                if tp.topic not in self._topics_of[member] or self._racks.is_rack_mismatch(member, tp):
                    self._must_move = True
                else:
                    self._take(member, tp)

    def _take(self, member: str, tp: TopicPartition) -> None:
        self._has[member][tp] = None
        self._owned_per_topic[tp.topic][member] += 1
        self._owner[tp] = member

    def _place(self, member: str) -> tuple[int, bytes, str]:
        return len(self._has[member]), text_order(member), member

    def _remove_from_order(self, member: str) -> None:
        del self._members_by_size[bisect_left(self._members_by_size, self._place(member))]

    def _give_least(self, tp: TopicPartition, *, only_near: bool) -> bool:
        for place in self._members_by_size:
            member = place[2]
            if tp.topic in self._topics_of[member] and not (only_near and self._racks.is_rack_mismatch(member, tp)):
                self._remove_from_order(member)
                self._take(member, tp)
                insort(self._members_by_size, self._place(member))
                return True
        return False

    def _can_move(self, topic: str) -> bool:
        return len(self._members_of[topic]) >= 2

    def _can_change(self, member: str) -> bool:
        most = sum(self._sizes[topic] for topic in self._topics_of[member])
        return len(self._has[member]) < most or any(self._can_move(tp.topic) for tp in self._has[member])

    def _balance(self, new: list[TopicPartition], had_nothing: bool) -> None:
        movable = [tp for tp in self._all if self._can_move(tp.topic)]
        for member in self._topics_of:
            if not self._can_change(member):
                self._remove_from_order(member)
        shared = [topic for topic in self._members_of if self._can_move(topic)]
        before = {member: dict(has) for member, has in self._has.items()}
        if not self._must_move:
            self._even_out(new, shared)
        moved = self._even_out(movable, shared)
        if moved and not had_nothing and self._unevenness(self._has) >= self._unevenness(before):
            self._has = before

    def _unevenness(self, has: dict[str, dict[TopicPartition, None]]) -> int:
        """The sum of the differences over all pairs of members that can change."""
        counts = sorted(len(has[member]) for _, _, member in self._members_by_size)
        sums = [0, *accumulate(counts)]
        return sum(count * i - sums[i] for i, count in enumerate(counts))

    def _is_even(self, shared: list[str]) -> bool:
        """Whether no member with two fewer than another one subscribes to a topic of which the other has partitions."""
        if self._members_by_size[0][0] >= self._members_by_size[-1][0] - 1:
            return True
        if self._is_known_even is None:
            self._is_known_even = all(self._is_even_in(topic) for topic in shared)
        return self._is_known_even

    def _is_even_in(self, topic: str) -> bool:
        most = max((len(self._has[member]) for member in self._owned_per_topic[topic]), default=0)
        return most <= min(len(self._has[member]) for member in self._members_of[topic]) + 1

    def _even_out(self, partitions: list[TopicPartition], shared: list[str]) -> bool:
        """Returns whether a partition moved."""
        has_moved = False
        for _ in range(ROUNDS_MAX):
            moved = False
            for tp in partitions:
                if self._is_even(shared):
                    break
                moved = self._move_one(tp) or moved
            if not moved:
                break
            has_moved = True
        return has_moved

    def _move_one(self, tp: TopicPartition) -> bool:
        member = self._owner[tp]
        earlier = self._earlier.get(tp)
        # Kafka does not check whether the earlier owner still subscribes to the topic, or can get more partitions.
        if earlier is not None and tp.topic in self._topics_of.get(earlier, ()) and self._has_two_less(earlier, member):
            self._move(tp, earlier)
            return True
        if any(self._has_two_less(other, member) for other in self._members_of[tp.topic]):
            self._move(tp, next(other for _, _, other in self._members_by_size if tp.topic in self._topics_of[other]))
            return True
        return False

    def _has_two_less(self, member: str, other: str) -> bool:
        return len(self._has[member]) + 1 < len(self._has[other])

    def _move(self, tp: TopicPartition, target: str) -> None:
        tp = self._movements.to_move(tp, self._owner[tp], target)
        source = self._owner[tp]
        self._remove_from_order(source)
        self._remove_from_order(target)
        self._movements.move(tp, source, target)
        del self._has[source][tp]
        self._owned_per_topic[tp.topic][source] -= 1
        if not self._owned_per_topic[tp.topic][source]:
            del self._owned_per_topic[tp.topic][source]
        self._take(target, tp)
        self._is_known_even = None
        insort(self._members_by_size, self._place(target))
        insort(self._members_by_size, self._place(source))
