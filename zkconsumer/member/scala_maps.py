"""The iteration order of the keys of Scala's hash maps.  Pure.

``roundrobin`` sorts the partitions of a group by a hash; for equal hashes the sort keeps the order of its input.  That
input is the iteration order of a Scala map which was filled from another map, which was filled from a third.  Members
agree on such *ties* only if they iterate the same chain of maps.  So this module computes the order of two kinds of map
from their keys.

The order is that of Scala 2.10 to 2.12 (Kafka 0.8.2 to 1.1 as published for 2.10 and later).

    immutable map   up to four keys: as inserted.  More: a trie over five bits of the improved hash at a time, from
                    the low end, walked in ascending order; keys of equal hash as inserted.
    mutable map     a table of chained buckets, 16 at first.  A new key becomes the head of its bucket.  The table
                    doubles when it contains more than 3/4 of its size; then the old buckets are emptied from the last
                    to the first, head to tail, each key to the head of its new bucket.  Iterated from the last bucket
                    to the first, head to tail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.wire.java_hash import java_hash

if TYPE_CHECKING:
    from collections.abc import Iterable

SMALL_MAP_KEYS_MAX = 4
"""Scala has special classes for maps of one to four keys; they keep the order of insertion."""

TABLE_SIZE_FIRST = 16
"""Number of buckets of a new mutable map."""

_MASK = 0xFFFFFFFF
_SPREAD = 0x9E3775CD
_SEED_BITS = TABLE_SIZE_FIRST.bit_length() - 1
"""By how many bits a mutable map rotates the hash: log2 of the *first* table size, also after the table has grown."""


def immutable_map_order(keys: Iterable[str]) -> list[str]:
    """The iteration order of an immutable Scala map into which these keys were inserted one after the other.

    A key that is inserted twice keeps its first place, as in Scala.
    """
    inserted = list(dict.fromkeys(keys))
    if len(inserted) <= SMALL_MAP_KEYS_MAX:
        return inserted
    # The sort is stable: keys of equal hash, which are in one leaf of the trie, stay as inserted.
    return sorted(inserted, key=_trie_path)


def mutable_map_order(keys: Iterable[str]) -> list[str]:
    """The iteration order of a mutable Scala map into which these keys were inserted one after the other.

    Inserting a key again only changes its value, so only the first time counts.
    """
    hashes: dict[str, int] = {}
    bits = _SEED_BITS
    table: list[list[str]] = [[] for _ in range(1 << bits)]
    for key in keys:
        if key in hashes:
            continue
        hashes[key] = bucket_hash = _bucket_hash(key)
        # The last element of a list is the head of its bucket, because adding to the end is cheap.
        table[bucket_hash >> (32 - bits)].append(key)
        if len(hashes) * 4 > len(table) * 3:
            bits += 1
            larger: list[list[str]] = [[] for _ in range(1 << bits)]
            for bucket in reversed(table):
                for moved in reversed(bucket):
                    larger[hashes[moved] >> (32 - bits)].append(moved)
            table = larger
    return [key for bucket in reversed(table) for key in reversed(bucket)]


def _trie_path(key: str) -> tuple[int, ...]:
    """The branches from the root of the trie to a key: the improved hash, five bits at a time from the low end."""
    h = java_hash(key) & _MASK
    h = (h + ~(h << 9)) & _MASK
    h ^= h >> 14
    h = (h + (h << 4)) & _MASK
    h ^= h >> 10
    return tuple(h >> shift & 0x1F for shift in range(0, 32, 5))


def _bucket_hash(key: str) -> int:
    """The hash whose top bits select the bucket of a mutable map: spread, bytes reversed, spread, rotated right."""
    h = (java_hash(key) * _SPREAD) & _MASK
    h = int.from_bytes(h.to_bytes(4, "little"), "big")
    h = (h * _SPREAD) & _MASK
    return (h >> _SEED_BITS | h << (32 - _SEED_BITS)) & _MASK
