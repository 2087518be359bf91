"""The leader's task: from the metadata of all members to their assignments.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from zkconsumer.errors import InvalidConfigException, ZkConsumerError
from zkconsumer.kafka.group.errors import AssignorFailed
from zkconsumer.kafka.group.partition_assignor import (
    Assignment,
    ConsumerPartitionAssignor,
    RebalanceProtocol,
    Subscription,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import decode_subscription, encode_assignment
from zkconsumer.wire.schemas.join_group import JoinGroupMember

COOPERATIVE_STICKY = "cooperative-sticky"
"""The assignor whose assignments are not validated: it uses the generations that members report (KIP-792)."""


def select_rebalance_protocol(assignors: Sequence[ConsumerPartitionAssignor]) -> RebalanceProtocol:
    """The highest protocol that all assignors support.  ``InvalidConfigException``: none, or two with one name."""
    names = [assignor.name for assignor in assignors]
    if not names:
        raise InvalidConfigException("no assignor is given: a member needs at least one")
    if len(set(names)) < len(names):
        raise InvalidConfigException(f"two assignors have the same name: {', '.join(names)}; remove one of them")
    common = frozenset[RebalanceProtocol].intersection(*(assignor.supported_protocols for assignor in assignors))
    if not common:
        raise InvalidConfigException(
            f"the assignors {', '.join(names)} have no rebalance protocol in common; use only assignors that have"
        )
    return max(common, key=lambda protocol: protocol.value)


def lookup_assignor(assignors: Sequence[ConsumerPartitionAssignor], name: str, group: str) -> ConsumerPartitionAssignor:
    """The assignor that the coordinator chose.  ``AssignorFailed``: this member does not have it."""
    for assignor in assignors:
        if assignor.name == name:
            return assignor
    raise AssignorFailed(
        f"the coordinator of group {group} chose the assignor {name!r}, which this member does not have: give all "
        "members the same assignors"
    )


def read_subscriptions(members: Sequence[JoinGroupMember]) -> dict[str, Subscription]:
    """The subscription of each member, by member id.  ``MalformedMessage``: the metadata of one cannot be parsed."""
    return {
        member.member_id: replace(
            decode_subscription(member.metadata), group_instance_id=member.group_instance_id
        )
        for member in members
    }  # fmt: skip


def perform_assignment(
    assignor: ConsumerPartitionAssignor,
    protocol: RebalanceProtocol,
    partitions: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
    racks: Mapping[TopicPartition, frozenset[str]],
) -> dict[str, bytes]:
    """The encoded assignment of each member; one that the assignor omits gets an empty assignment.

    ``AssignorFailed``: the assignor raised, assigned to an unknown member, or assigned a partition that another member
    still owns.
    """
    try:
        assignments = assignor.assign(partitions, subscriptions, racks)
    except ZkConsumerError:
        raise
    except Exception as error:
        raise AssignorFailed(f"the assignor {assignor.name} raised {error!r}") from error
    unknown_members = sorted(assignments.keys() - subscriptions.keys())
    if unknown_members:
        raise AssignorFailed(
            f"the assignor {assignor.name} assigned partitions to {unknown_members[0]!r}, which is not a member"
        )
    if protocol is RebalanceProtocol.COOPERATIVE and assignor.name != COOPERATIVE_STICKY:
        validate_cooperative_assignment(assignor.name, subscriptions, assignments)
    return {member: encode_assignment(assignments.get(member) or Assignment()) for member in subscriptions}


def validate_cooperative_assignment(
    name: str, subscriptions: Mapping[str, Subscription], assignments: Mapping[str, Assignment]
) -> None:
    """No partition may change its owner in one step: the first owner still reads it."""
    revoked: set[TopicPartition] = set()
    added: set[TopicPartition] = set()
    for member, subscription in subscriptions.items():
        owned = set(subscription.owned_partitions)
        given = set(assignments.get(member, Assignment()).partitions)
        revoked |= owned - given
        added |= given - owned
    both = sorted(revoked & added)
    if both:
        raise AssignorFailed(
            f"the assignor {name} moves {', '.join(map(str, both[:5]))} from one member to another at once, which the "
            "cooperative protocol forbids: omit it from this assignment, and the group rebalances again"
        )
