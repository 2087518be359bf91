"""What members had before, as a sticky leader believes it.  Pure.

Two members that claim the same partition cannot both be right: the one of the later generation is, and of the same
generation neither (KAFKA-12984, KAFKA-13406: 2.8.1, 3.0 and later).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bridge.client.assignors.assignor_group import AssignorGroup
from bridge.client.partition_assignor import NO_GENERATION, Subscription
from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberData:
    """What one member says it had; ``generation`` is None when it does not say since when."""

    partitions: tuple[TopicPartition, ...]
    generation: int | None


MemberDataReader = Callable[[Subscription], MemberData]


@dataclass(frozen=True, slots=True)
class OwnedPartitions:
    """``by_member``: what is taken for true, every member included.  ``disputed``: claimed twice in one generation.

    ``earlier``: partition -> the member that had it in an earlier generation than the latest.
    """

    by_member: dict[str, dict[TopicPartition, None]]
    disputed: frozenset[TopicPartition]
    earlier: dict[TopicPartition, str]


def owned_partitions_of(group: AssignorGroup, claims_of: MemberDataReader) -> OwnedPartitions:
    """Sort the claims of all members.

    A partition that there is not (the topic was made again with fewer) is not claimed.  Kafka takes it for owned as
    long as the topic exists, and then may give other partitions to two members, or leave them to nobody.
    """
    claims = {member: claims_of(each) for member, each in group.members.items()}
    by_member: dict[str, dict[TopicPartition, None]] = {}
    owner_of: dict[TopicPartition, str] = {}
    disputed: set[TopicPartition] = set()
    for member, claimed in claims.items():
        mine = by_member[member] = {}
        generation = _generation(claimed)
        for tp in claimed.partitions:
            if not group.has(tp):
                continue
            other = owner_of.get(tp)
            if other is None:
                owner_of[tp] = member
                mine[tp] = None
                continue
            # As Kafka has it: of the other, what stands in its metadata counts, not what stands in its user data.
            others_generation = max(NO_GENERATION, group.members[other].generation_id)
            if generation < others_generation:
                continue
            owner_of[tp] = member
            by_member[other].pop(tp, None)
            if generation == others_generation:
                disputed.add(tp)
            else:
                mine[tp] = None
    return OwnedPartitions(by_member, frozenset(disputed), _earlier(claims))


def _generation(claims: MemberData) -> int:
    return NO_GENERATION if claims.generation is None else claims.generation


def _earlier(claims: dict[str, MemberData]) -> dict[TopicPartition, str]:
    """Of several earlier owners the latest; of equal ones the first."""
    latest = max(NO_GENERATION, *(_generation(each) for each in claims.values()))
    found: dict[TopicPartition, tuple[int, str]] = {}
    for member, each in claims.items():
        generation = _generation(each)
        if generation >= latest:
            continue
        for tp in each.partitions:
            if tp not in found or generation > found[tp][0]:
                found[tp] = generation, member
    return {tp: member for tp, (_, member) in found.items()}
