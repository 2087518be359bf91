"""The partitions that members owned before, as a sticky leader evaluates them.  Pure.

When two members report the same partition, the one with the later generation owns it; in the same generation neither
does (KAFKA-12984, KAFKA-13406: 2.8.1, 3.0 and later).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bridge.client.assignors.assignor_group import AssignorGroup
from zkconsumer.kafka.group.partition_assignor import NO_GENERATION, Subscription
from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberData:
    """What one member reports as owned; ``generation`` is None when it reports none."""

    partitions: tuple[TopicPartition, ...]
    generation: int | None


MemberDataReader = Callable[[Subscription], MemberData]


@dataclass(frozen=True, slots=True)
class OwnedPartitions:
    """``by_member``: the accepted ownership, with every member.  ``disputed``: reported twice in one generation.

    ``earlier``: partition -> the member that owned it in an earlier generation than the latest.
    """

    by_member: dict[str, dict[TopicPartition, None]]
    disputed: frozenset[TopicPartition]
    earlier: dict[TopicPartition, str]


def owned_partitions_of(group: AssignorGroup, claims_of: MemberDataReader) -> OwnedPartitions:
    """Evaluate the reports of all members.

    A partition that does not exist (the topic was created again with fewer) is ignored.  Kafka counts it as owned while
    the topic exists, and then may assign other partitions to two members, or to none.
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
            # As in Kafka: for the other member the generation in its metadata counts, not that in its user data.
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
    """Of several earlier owners the latest; with equal generations the first."""
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
