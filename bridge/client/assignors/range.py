"""``range``: each topic separately, consecutive partitions to the same member.  Pure.

    topic of 7 partitions, members a b c      a: 0 1 2   b: 3 4   c: 5 6

It differs from the Scala consumer's ``range`` (``zkconsumer.member.group_assignment``), which assigns to threads.  With
racks (3.4, KIP-881) a first pass assigns only partitions on the member's rack.  Topics with the same number of
partitions and the same members get the same assignment, so that records of one key in several topics stay together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bridge.client.assignors.assignor_group import (
    AssignorGroup,
    PartitionsByMember,
    assignor_group,
    members_in_order,
    to_assignments,
)
from bridge.client.assignors.racks import NO_RACKS, is_rack_aware_assignment, racks_of_members
from zkconsumer.kafka.group.partition_assignor import Assignment, RebalanceProtocol, Subscription
from zkconsumer.types import TopicPartition


class RangeAssignor:
    """Kafka's ``RangeAssignor``; a ``ConsumerPartitionAssignor``."""

    name = "range"
    supported_protocols = frozenset({RebalanceProtocol.EAGER})

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Nothing."""
        return None

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Does nothing: the assignor has no state."""

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Mapping[TopicPartition, frozenset[str]] | None = None,
    ) -> dict[str, Assignment]:
        """See ``ConsumerPartitionAssignor``."""
        group = assignor_group(partitions, subscriptions, racks or {})
        racks_by_member = racks_of_members(group)
        topics = [_TopicAssignmentState(group, topic, racks_by_member) for topic in group.topics]
        shares: PartitionsByMember = {member: [] for member in group.members}
        near_first = any(topic.needs_racks for topic in topics)
        if near_first:
            _assign_rack_matching(topics, shares)
        for topic in topics:
            topic.give_ranges(lambda member, tp: True, shares)
        if near_first:
            for share in shares.values():
                share.sort()
        return to_assignments(shares)


class _TopicAssignmentState:
    """One topic during its assignment: its unassigned partitions, and the number that each member has got.

    With p partitions and n members each member gets ``_each`` = p // n of them, and ``_extras`` members get one more;
    at the start ``_extras`` = p % n.
    """

    def __init__(self, group: AssignorGroup, topic: str, racks_by_member: Mapping[str, str]) -> None:
        self.name = topic
        self.size = group.topics[topic]
        self.members = members_in_order((m, each) for m, each in group.members.items() if topic in each.topics)
        self._left = dict.fromkeys(group.partitions_of(topic))
        self._given = dict.fromkeys(self.members, 0)
        self._each, self._extras = divmod(self.size, len(self.members))
        self._rack_of = {member: racks_by_member[member] for member in self.members if member in racks_by_member}
        self._racks = {tp: group.racks.get(tp, NO_RACKS) for tp in self._left} if self._rack_of else {}
        all_racks = NO_RACKS.union(*self._racks.values())
        self.needs_racks = is_rack_aware_assignment(self._rack_of.values(), self._racks.values(), all_racks)

    @property
    def kind(self) -> tuple[tuple[tuple[str, str | None], ...], int]:
        """Topics of the same kind get the same assignment."""
        return tuple((member, self._rack_of.get(member)) for member in self.members), len(self._racks)

    def is_near(self, member: str, tp: TopicPartition) -> bool:
        """Whether the member is on a rack of the partition; true for a member without a rack."""
        rack = self._rack_of.get(member)
        return rack is None or rack in self._racks.get(tp, NO_RACKS)

    def room(self, member: str) -> int:
        """How many more partitions this member may get."""
        return max(0, self._each + (self._extras > 0) - self._given[member])

    def give(self, member: str, partitions: Sequence[TopicPartition], shares: PartitionsByMember) -> None:
        """Assign these to the member, in ``shares``."""
        shares[member] += partitions
        self._given[member] += len(partitions)
        if self._given[member] > self._each:
            self._extras -= 1
        for tp in partitions:
            del self._left[tp]

    def give_ranges(self, may_have: Callable[[str, TopicPartition], bool], shares: PartitionsByMember) -> None:
        """Assign to each member, in order, the first free partitions that ``may_have`` permits, up to its room."""
        for member in self.members:
            room = self.room(member)
            fitting: list[TopicPartition] = []
            for tp in self._left:
                if len(fitting) == room:
                    break
                if may_have(member, tp):
                    fitting.append(tp)
            if fitting:
                self.give(member, fitting, shares)


def _assign_rack_matching(topics: Sequence[_TopicAssignmentState], shares: PartitionsByMember) -> None:
    """The first pass: assign partitions only to members on one of their racks."""
    kinds: dict[object, list[_TopicAssignmentState]] = {}
    for topic in topics:
        kinds.setdefault(topic.kind, []).append(topic)
    for alike in kinds.values():
        if len(alike) > 1:
            _assign_co_partitioned(alike, shares)
        elif alike[0].needs_racks:
            alike[0].give_ranges(alike[0].is_near, shares)


def _assign_co_partitioned(topics: Sequence[_TopicAssignmentState], shares: PartitionsByMember) -> None:
    """Assign partition n of all these topics to one member: the first member that is on a rack of each of them and may
    get one more of each topic.  Without such a member the second pass assigns them."""
    remaining = list(topics[0].members)
    for number in range(topics[0].kind[1]):
        row = [(topic, TopicPartition(topic.name, number)) for topic in topics]
        for member in remaining:
            if all(topic.room(member) and topic.is_near(member, tp) for topic, tp in row):
                break
        else:
            continue
        for topic, tp in row:
            topic.give(member, [tp], shares)
        if not any(topic.room(member) for topic in topics):
            remaining.remove(member)
