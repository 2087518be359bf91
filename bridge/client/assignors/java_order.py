"""The iteration order of Java's hash tables.  Pure.

Two leaders with the same members must compute the same assignment; otherwise every change of the leader would move
partitions.  In Kafka's assignors some choices depend on the iteration order of a ``HashMap``: which of several members
keeps one partition more, which of several partitions moves back.  So this module computes that order, for keys only:

    bucket = (hash ^ hash >>> 16) & (buckets - 1)     16 buckets at first, twice as many when 3/4 are exceeded
    iterated from the first bucket to the last, each in the order of insertion; a resize does not change that order

Java converts a bucket of more than eight keys to a tree, which may change its order; this is very rare without intent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from zkconsumer.types import TopicPartition
from zkconsumer.wire.java_hash import java_hash

K = TypeVar("K")

BUCKETS_FIRST = 16
"""The buckets of a table that was created without a size."""

_MASK = 0xFFFF_FFFF


def partition_hash(tp: TopicPartition) -> int:
    """``TopicPartition.hashCode`` of Kafka's clients (0.8.2 and later), before it is reduced to 32 bits."""
    return 31 * (31 + tp.partition) + java_hash(tp.topic)


def text_order(text: str) -> bytes:
    """A key that sorts as ``String.compareTo`` does: by UTF-16 code units, which is not always by characters."""
    return text.encode("utf-16-be", "surrogatepass")


def hash_order(keys: Iterable[K], hashed: Callable[[K], int], buckets: int = BUCKETS_FIRST) -> list[K]:
    """The iteration order of a ``HashMap`` or ``HashSet`` with these keys, inserted in this order.

    ``buckets``: its size before the first insertion; a power of two.
    """
    inserted = list(dict.fromkeys(keys))
    mask = buckets_for(len(inserted), buckets) - 1
    return sorted(inserted, key=lambda key: _bucket(hashed(key), mask))


def first_of(keys: Iterable[K], hashed: Callable[[K], int], buckets: int) -> K:
    """The first key in the iteration order of a table of this size; ``keys`` is not empty."""
    return min(keys, key=lambda key: _bucket(hashed(key), buckets - 1))


def buckets_for(keys: int, buckets: int = BUCKETS_FIRST) -> int:
    """The size of a table that has contained so many keys."""
    while keys * 4 > buckets * 3:
        buckets *= 2
    return buckets


def _bucket(hashed: int, mask: int) -> int:
    hashed &= _MASK
    return (hashed ^ hashed >> 16) & mask
