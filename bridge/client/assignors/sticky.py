"""``sticky`` and ``cooperative-sticky``: balanced assignments that change as little as possible.  Pure.

    sticky                revokes all partitions first, and reports the owned ones in its user data
    cooperative-sticky    keeps its partitions; one that moves has no owner in the first generation.  The member that
                          revokes it requests the next generation, which assigns it to its new owner (2.4, KIP-429)

Kafka's ``AbstractStickyAssignor`` of 3.9: the results are the same, partition by partition and in the same order, so
the leader may be a Java client or this one (from 3.8 on; older ones keep other partitions of a member that must lose
some). This module deviates where Kafka's assigns a partition to two members, to none, or to one without a subscription,
or fails:

- a member reports a partition that no longer exists, because its topic was created again with fewer
- the owner of a partition in an earlier generation no longer subscribes to its topic, or can get no more partitions
- one member subscribes to no topic (a pattern without a match), and all others have the same subscription
- assignments that the assignor itself remembers are ignored; only the reports of the members count
"""

from __future__ import annotations

from collections.abc import Mapping

from bridge.client.assignors.assignor_group import PartitionsByMember, assignor_group, to_assignments
from bridge.client.assignors.constrained import ConstrainedAssignment
from bridge.client.assignors.general import GeneralAssignment
from bridge.client.assignors.owned import MemberData, MemberDataReader, owned_partitions_of
from bridge.client.assignors.racks import Racks
from bridge.client.assignors.user_data import decode_generation, decode_previous, encode_generation, encode_previous
from zkconsumer.kafka.group.partition_assignor import NO_GENERATION, Assignment, RebalanceProtocol, Subscription
from zkconsumer.types import TopicPartition

PartitionRacks = Mapping[TopicPartition, frozenset[str]]


class StickyAssignor:
    """Kafka's ``StickyAssignor`` (0.11, KIP-54); a ``ConsumerPartitionAssignor``."""

    name = "sticky"
    supported_protocols = frozenset({RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._previous: tuple[tuple[TopicPartition, ...], int] | None = None

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """The owned partitions and their generation; None before the first assignment."""
        if self._previous is None:
            return None
        return encode_previous(*self._previous)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Remember it for the next generation."""
        self._previous = assignment.partitions, generation

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Mapping[TopicPartition, frozenset[str]] | None = None,
    ) -> dict[str, Assignment]:
        """See ``ConsumerPartitionAssignor``."""
        shares, _ = _assign(partitions, subscriptions, racks, sticky_member_data)
        return to_assignments(shares)


class CooperativeStickyAssignor:
    """Kafka's ``CooperativeStickyAssignor`` (2.4); a ``ConsumerPartitionAssignor``."""

    name = "cooperative-sticky"
    supported_protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """The last generation of this member (3.0 and later); version 2 of the metadata also contains it."""
        return encode_generation(self._generation)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Remember the generation; the metadata contains the owned partitions."""
        self._generation = generation

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Mapping[TopicPartition, frozenset[str]] | None = None,
    ) -> dict[str, Assignment]:
        """See ``ConsumerPartitionAssignor``; a partition that its old owner must still revoke is in no assignment."""
        shares, moving = _assign(partitions, subscriptions, racks, cooperative_member_data)
        for tp, member in (_moving(subscriptions, shares) if moving is None else moving).items():
            shares[member].remove(tp)
        return to_assignments(shares)


def sticky_member_data(each: Subscription) -> MemberData:
    """What a member of ``sticky`` reports as owned."""
    return decode_previous(each.user_data)


def cooperative_member_data(each: Subscription) -> MemberData:
    """What a member of ``cooperative-sticky`` reports as owned."""
    if each.generation_id > NO_GENERATION:
        return MemberData(each.owned_partitions, each.generation_id)
    return MemberData(each.owned_partitions, decode_generation(each.user_data))


def _assign(
    partitions: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
    racks: PartitionRacks | None,
    claims_of: MemberDataReader,
) -> tuple[PartitionsByMember, dict[TopicPartition, str] | None]:
    """The assignment, and the partitions that move, where they are known already."""
    group = assignor_group(partitions, subscriptions, racks or {})
    owned, near = owned_partitions_of(group, claims_of), Racks.of(group)
    if len({frozenset(each.topics) for each in group.members.values()}) == 1:
        constrained = ConstrainedAssignment(group, owned, near)
        return constrained.build(), constrained.moving
    return GeneralAssignment(group, owned, near).build(), None


def _moving(subscriptions: Mapping[str, Subscription], shares: PartitionsByMember) -> dict[TopicPartition, str]:
    """Partitions that are new for their member and that another one reports as owned."""
    added: dict[TopicPartition, str] = {}
    taken: set[TopicPartition] = set()
    for member, share in shares.items():
        owned = set(subscriptions[member].owned_partitions)
        added.update((tp, member) for tp in share if tp not in owned)
        taken |= owned.difference(share)
    return {tp: member for tp, member in added.items() if tp in taken}
