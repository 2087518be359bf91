"""The leader's part: from everybody's metadata to everybody's share.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bridge.client.errors import AssignorFailed
from bridge.client.partition_assignor import Assignment, ConsumerPartitionAssignor, RebalanceProtocol, Subscription
from zkconsumer.errors import InvalidConfigException, ZkConsumerError
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import decode_subscription, encode_assignment
from zkconsumer.wire.schemas.join_group import JoinGroupMember

COOPERATIVE_STICKY = "cooperative-sticky"
"""The one whose shares are not looked at: it goes by the generations of what members say that they own (KIP-792)."""


def select_rebalance_protocol(assignors: Sequence[ConsumerPartitionAssignor]) -> RebalanceProtocol:
    """The highest protocol that all assignors have in common.  ``InvalidConfigException``: none, or two of one name."""
    names = [assignor.name for assignor in assignors]
    if not names:
        raise InvalidConfigException("no assignor is given: a member needs at least one")
    if len(set(names)) < len(names):
        raise InvalidConfigException(f"two assignors have the same name: {', '.join(names)}; leave one of them out")
    common = frozenset[RebalanceProtocol].intersection(*(assignor.supported_protocols for assignor in assignors))
    if not common:
        raise InvalidConfigException(
            f"the assignors {', '.join(names)} have no rebalance protocol in common; give those alone that have"
        )
    return max(common, key=lambda protocol: protocol.value)


def lookup_assignor(assignors: Sequence[ConsumerPartitionAssignor], name: str, group: str) -> ConsumerPartitionAssignor:
    """The one that the coordinator chose.  ``AssignorFailed``: it is none of ours."""
    for assignor in assignors:
        if assignor.name == name:
            return assignor
    raise AssignorFailed(f"the coordinator of group {group} chose the assignor {name!r}, which is none of ours")


def read_subscriptions(members: Sequence[JoinGroupMember]) -> dict[str, Subscription]:
    """What each member wants and has, by member id.  ``MalformedMessage``: somebody's metadata cannot be read."""
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
    """Everybody's share in bytes; a member that the assignor left out gets an empty one.

    ``AssignorFailed``: it raised, gave to somebody who is no member, or gave away what another still has.
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
            f"the assignor {assignor.name} gave partitions to {unknown_members[0]!r}, which is no member"
        )
    if protocol is RebalanceProtocol.COOPERATIVE and assignor.name != COOPERATIVE_STICKY:
        validate_cooperative_assignment(assignor.name, subscriptions, assignments)
    return {member: encode_assignment(assignments.get(member) or Assignment()) for member in subscriptions}


def validate_cooperative_assignment(
    name: str, subscriptions: Mapping[str, Subscription], assignments: Mapping[str, Assignment]
) -> None:
    """Nothing may go from one member to another in one step: the first one reads it still."""
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
            "cooperative protocol forbids: leave it out of this assignment, and the group forms again"
        )
