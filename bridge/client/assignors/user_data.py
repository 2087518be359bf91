"""The user data that the sticky assignors exchange.  Pure.

    sticky              previous assignment [topic [partition]], and from version 1 (2.3, KIP-341) the generation; the
                        data has no version number
    cooperative-sticky  the generation (3.0, KAFKA-12984)

Another member wrote the data: data that cannot be parsed counts as a member without partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from bridge.client.assignors.java_order import hash_order
from bridge.client.assignors.owned import MemberData
from zkconsumer.kafka.group.partition_assignor import NO_GENERATION
from zkconsumer.types import TopicPartition
from zkconsumer.wire.field_types import int32, text
from zkconsumer.wire.java_hash import java_hash
from zkconsumer.wire.primitives import FieldDecodeError, MessageReader
from zkconsumer.wire.schemas.message_schema import array, decoder, encoder, f, message

M = TypeVar("M")


@message
class PreviousTopic:
    """The partitions of one topic that a member owned."""

    topic: str = f(text)
    partitions: list[int] = f(array(int32))


@message
class StickyUserData:
    """User data of ``sticky``."""

    previous_assignment: list[PreviousTopic] = f(array(PreviousTopic))
    generation: int = f(int32, "1+", default=NO_GENERATION)


@message
class CooperativeStickyUserData:
    """User data of ``cooperative-sticky``."""

    generation: int = f(int32)


def encode_previous(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """Version 1 for ``sticky``; topics in the order in which Java writes them."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    topics = [PreviousTopic(topic=topic, partitions=by_topic[topic]) for topic in hash_order(by_topic, java_hash)]
    out = bytearray()
    encoder(StickyUserData, 1, False)(out, StickyUserData(previous_assignment=topics, generation=generation))
    return bytes(out)


def decode_previous(data: bytes | None) -> MemberData:
    """Parses either version of ``sticky``; None and empty data are a member without partitions."""
    if not data:
        return MemberData((), None)
    for version in (1, 0):
        read = _read(StickyUserData, version, data)
        if read is not None:
            had = tuple(TopicPartition(each.topic, n) for each in read.previous_assignment for n in each.partitions)
            return MemberData(had, read.generation if version else None)
    return MemberData((), NO_GENERATION)


def encode_generation(generation: int) -> bytes:
    """For ``cooperative-sticky``."""
    out = bytearray()
    encoder(CooperativeStickyUserData, 0, False)(out, CooperativeStickyUserData(generation=generation))
    return bytes(out)


def decode_generation(data: bytes | None) -> int | None:
    """The generation in ``cooperative-sticky`` data; None without one (before 3.0)."""
    if data is None:
        return None
    read = _read(CooperativeStickyUserData, 0, data)
    return NO_GENERATION if read is None else read.generation


def _read(cls: type[M], version: int, data: bytes) -> M | None:
    """Parses a structure; following bytes are ignored, as in Java."""
    try:
        return decoder(cls, version, False)(MessageReader(data))
    except FieldDecodeError:
        return None
