"""In which order Java's hash tables give back their keys.  Pure.

Two leaders with the same members must not come to two different assignments, or every change of the leader would move
partitions.  In Kafka's assignors some choices fall to the iteration order of a ``HashMap``: which of several members
keeps one partition more, which of several partitions moves back.  So that order is rebuilt here, keys only:

    bucket = (hash ^ hash >>> 16) & (buckets - 1)     16 buckets at first, twice as many when 3/4 are exceeded
    walked from the first bucket to the last, each in the order of insertion, which growing does not change

Java turns a bucket of more than eight keys into a tree, which may change its order; nobody meets that by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from zkconsumer.types import TopicPartition
from zkconsumer.wire.java_hash import java_hash

K = TypeVar("K")

BUCKETS_FIRST = 16
"""Buckets of a table that nobody gave a size."""

_MASK = 0xFFFF_FFFF


def partition_hash(tp: TopicPartition) -> int:
    """``TopicPartition.hashCode`` of Kafka's clients (0.8.2 and later), before it is cut to 32 bits."""
    return 31 * (31 + tp.partition) + java_hash(tp.topic)


def text_order(text: str) -> bytes:
    """A key that sorts as ``String.compareTo`` does: by UTF-16 code units, which is not always by characters."""
    return text.encode("utf-16-be", "surrogatepass")


def hash_order(keys: Iterable[K], hashed: Callable[[K], int], buckets: int = BUCKETS_FIRST) -> list[K]:
    """The order in which a ``HashMap`` or ``HashSet`` walks these keys, put in one after the other.

    ``buckets``: how many it had before; a power of two.
    """
    inserted = list(dict.fromkeys(keys))
    mask = buckets_for(len(inserted), buckets) - 1
    return sorted(inserted, key=lambda key: _bucket(hashed(key), mask))


def first_of(keys: Iterable[K], hashed: Callable[[K], int], buckets: int) -> K:
    """The first key that a table of so many buckets gives back; there must be one."""
    return min(keys, key=lambda key: _bucket(hashed(key), buckets - 1))


def buckets_for(keys: int, buckets: int = BUCKETS_FIRST) -> int:
    """How many buckets a table has once it has held so many keys."""
    while keys * 4 > buckets * 3:
        buckets *= 2
    return buckets


def _bucket(hashed: int, mask: int) -> int:
    hashed &= _MASK
    return (hashed ^ hashed >> 16) & mask
