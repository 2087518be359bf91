"""The metadata that consumers exchange through a coordinator, which does not read it: ConsumerProtocol, 0 to 3.  Pure.

    member --Subscription--> JoinGroup metadata --> leader --Assignment--> SyncGroup assignment --> member

    Subscription   0 (0.9)  topics, user data
                   1 (2.4)  + owned partitions          KIP-429, cooperative rebalancing
                   2 (3.4)  + generation of these       KIP-792
                   3 (3.4)  + rack                      KIP-881
    Assignment     partitions, user data: the same in all four but for the number in front

Written as Java writes (2.8 and later): topics of a subscription sorted, owned partitions sorted and then grouped by
topic; an assignment grouped by topic in the order in which topics come first.  Older Java sent topics as they came.

Read as Java reads: a version above 3 is read as 3, and bytes after the last field are ignored in every version, because
a newer member must not stop the whole group.  Everything else is ``MalformedMessage``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from zkconsumer.types import TopicPartition
from zkconsumer.wire.field_types import blob, int32, text
from zkconsumer.wire.primitives import Buffer, MalformedMessage
from zkconsumer.wire.schemas.message_schema import array, f, message
from zkconsumer.wire.versioned import decode_body, encode_versioned, version_of

PROTOCOL_TYPE = "consumer"
"""``protocol_type`` of the groups whose members speak so."""

HIGHEST_VERSION = 3
"""The highest version that is written; higher ones are read as this one."""

NO_GENERATION = -1
"""The generation of a member that was never in one, or of a subscription without the field (before version 2)."""

_SUBSCRIPTION = "ConsumerProtocol subscription"
_ASSIGNMENT = "ConsumerProtocol assignment"


@dataclass(frozen=True, slots=True)
class Subscription:
    """One member's subscription and owned partitions, as the leader receives them.

    ``owned_partitions``, ``generation_id`` and ``rack_id`` come with versions 1, 2 and 3 of the member's metadata, and
    are empty, -1 and None before.  ``group_instance_id`` is not part of it: the coordinator adds it for static
    members (2.3, KIP-345).
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """One member's partitions, and the user data of the leader's assignor."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


@message
class _Partitions:
    """Partitions of one topic; a topic may come more than once."""

    topic: str = f(text)
    partitions: list[int] = f(array(int32))


@message
class _Subscription:
    topics: list[str] = f(array(text))
    user_data: bytes | None = f(blob, nullable="0+", default=None)
    owned_partitions: list[_Partitions] = f(array(_Partitions), "1+", default_factory=list)
    generation_id: int = f(int32, "2+", default=NO_GENERATION)
    rack_id: str | None = f(text, "3+", nullable="3+", default=None)


@message
class _Assignment:
    assigned_partitions: list[_Partitions] = f(array(_Partitions))
    user_data: bytes | None = f(blob, nullable="0+", default=None)


@message
class _Topics:
    topics: list[str] = f(array(text))


def encode_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """A member's metadata, byte for byte as Java's.  Fields that the version does not have are omitted.

    ``UsageError``: the version is not one of 0 to 3, or a value does not fit.
    """
    body = _Subscription(
        topics=sorted(subscription.topics, key=_java_order),
        user_data=subscription.user_data,
        owned_partitions=_grouped(sorted(subscription.owned_partitions, key=lambda at: (_java_order(at[0]), at[1]))),
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    return encode_versioned(_SUBSCRIPTION, body, version, HIGHEST_VERSION)


def decode_subscription(data: Buffer) -> Subscription:
    """A member's metadata, of any version.  An empty rack is none, as in Java."""
    body = decode_body(_SUBSCRIPTION, _Subscription, data, _version(_SUBSCRIPTION, data), may_have_more=True)
    return Subscription(
        topics=tuple(body.topics),
        user_data=body.user_data,
        owned_partitions=tuple(_each(body.owned_partitions)),
        generation_id=body.generation_id,
        rack_id=body.rack_id or None,
    )


def subscribed_topics(data: Buffer) -> tuple[str, ...]:
    """Only the topics, which all versions have in front: as much as a coordinator reads (2.4, KIP-496)."""
    _version(_SUBSCRIPTION, data)
    return tuple(decode_body(_SUBSCRIPTION, _Topics, data, 0, may_have_more=True).topics)


def encode_assignment(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """One member's assignment, byte for byte as Java's.  ``UsageError``: as with ``encode_subscription``.

    A leader sends it to members without partitions too: Java's consumers fail on no bytes at all.
    """
    body = _Assignment(assigned_partitions=_grouped(assignment.partitions), user_data=assignment.user_data)
    return encode_versioned(_ASSIGNMENT, body, version, HIGHEST_VERSION)


def decode_assignment(data: Buffer) -> Assignment:
    """One member's assignment, of any version.

    No bytes at all mean no partitions: a coordinator sends them to a member that the leader omitted.  The caller should
    log a warning, as the leader is wrong.
    """
    if not len(data):
        return Assignment()
    body = decode_body(_ASSIGNMENT, _Assignment, data, _version(_ASSIGNMENT, data), may_have_more=True)
    return Assignment(tuple(_each(body.assigned_partitions)), body.user_data)


def _version(name: str, data: Buffer) -> int:
    version = version_of(name, data)
    if version < 0:
        raise MalformedMessage(name, "version", 0, f"negative version {version}")
    return min(version, HIGHEST_VERSION)


def _java_order(word: str) -> bytes:
    """Java compares texts by their UTF-16 units: a character outside the basic plane comes before U+E000."""
    return word.encode("utf-16-be", "surrogatepass")


def _grouped(partitions: Iterable[TopicPartition]) -> list[_Partitions]:
    topics: dict[str, _Partitions] = {}
    for topic, partition in partitions:
        if topic not in topics:
            topics[topic] = _Partitions(topic=topic, partitions=[])
        topics[topic].partitions.append(partition)
    return list(topics.values())


def _each(topics: list[_Partitions]) -> Iterator[TopicPartition]:
    return (TopicPartition(row.topic, partition) for row in topics for partition in row.partitions)
