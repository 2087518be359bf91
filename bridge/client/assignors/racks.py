"""Which members are on the racks of which partitions (``client.rack``, KIP-881; range 3.4, both sticky assignors 3.5).
Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bridge.client.assignors.assignor_group import AssignorGroup
from zkconsumer.types import TopicPartition

NO_RACKS: frozenset[str] = frozenset()


def is_rack_aware_assignment(
    member_racks: Collection[str], racks: Iterable[frozenset[str]], all_racks: Collection[str]
) -> bool:
    """Whether racks can influence the assignment: some partition has no replica on one of the racks, and some member is
    on a rack with replicas."""
    return not set(member_racks).isdisjoint(all_racks) and any(each != all_racks for each in racks)


@dataclass(frozen=True, slots=True)
class Racks:
    """The racks of a group: of its members, and of the replicas of each partition.

    ``of_member`` is empty when racks do not influence the assignment.  ``weights``: partition -> the number of members
    on the racks of its replicas; the assignors begin with the partitions that have the fewest.
    """

    of_member: Mapping[str, str]
    of_partition: Mapping[TopicPartition, frozenset[str]]
    weights: Mapping[TopicPartition, int]

    @classmethod
    def of(cls, group: AssignorGroup) -> Racks:
        """The racks of a whole group, as the sticky assignors use them."""
        of_member = racks_of_members(group)
        if not of_member:
            return cls({}, {}, {})
        of_partition = {
            tp: group.racks.get(tp, NO_RACKS) for topic in group.topics for tp in group.partitions_of(topic)
        }
        all_racks = NO_RACKS.union(*of_partition.values())
        members_on = Counter(of_member.values())
        weights = {tp: sum(members_on[rack] for rack in racks) for tp, racks in of_partition.items()}
        if not is_rack_aware_assignment(of_member.values(), of_partition.values(), all_racks):
            return cls({}, {}, weights)
        return cls(of_member, of_partition, weights)

    @property
    def is_rack_aware(self) -> bool:
        """Whether racks influence the assignment."""
        return bool(self.of_member)

    def is_rack_match(self, member: str, tp: TopicPartition) -> bool:
        """Whether the member has a rack, and the partition has a replica there."""
        rack = self.of_member.get(member)
        return rack is not None and rack in self.of_partition.get(tp, NO_RACKS)

    def is_rack_mismatch(self, member: str, tp: TopicPartition) -> bool:
        """Whether the member has a rack, and the partition has no replica there."""
        return member in self.of_member and not self.is_rack_match(member, tp)

    def next_rack_match(self, tp: TopicPartition, members: Sequence[str], start: int) -> int:
        """The index of the first member on a rack of the partition, from ``start`` on and cyclic; -1 without one."""
        for i in range(len(members)):
            place = (start + i) % len(members)
            if self.is_rack_match(members[place], tp):
                return place
        return -1

    def rarest_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Sorted by the number of members on their racks, the smallest first."""
        return sorted(partitions, key=lambda tp: self.weights.get(tp, 0))


def racks_of_members(group: AssignorGroup) -> dict[str, str]:
    """Member id -> rack, for members with a rack."""
    return {member: each.rack_id for member, each in group.members.items() if each.rack_id}
