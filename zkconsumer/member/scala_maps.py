"""In which order Scala's hash maps give back their keys.  Pure.

``roundrobin`` sorts the partitions of a group by a hash, and where two hashes are equal the sort keeps the order of
its input.  That input is the iteration order of a Scala map which was filled from another map, which was filled
from a third.  Members agree about such *ties* only when they walk the same chain, so it is rebuilt here: two kinds
of map, keys only, and nothing of them but the order.

What is rebuilt is Scala 2.10 to 2.12 (Kafka 0.8.2 to 1.1 as published for 2.10 and later).

    immutable map   up to four keys: as inserted.  More: a trie over five bits of the improved hash at a time, from
                    the low end, walked in ascending order; keys of equal hash as inserted.
    mutable map     a table of chained buckets, 16 at first.  A new key goes to the head of its bucket.  The table
                    doubles when it holds more than 3/4 of its size; then the old buckets are emptied from the last
                    to the first, head to tail, each key to the head of its new bucket.  Walked from the last bucket
                    to the first, head to tail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.wire.java_hash import java_hash

if TYPE_CHECKING:
    from collections.abc import Iterable

SMALL_MAP_KEYS_MAX = 4
"""Scala has classes of their own for maps of one to four keys; they keep the order of insertion."""

TABLE_SIZE_FIRST = 16
"""Buckets of a fresh mutable map."""

_MASK = 0xFFFFFFFF
_SPREAD = 0x9E3775CD
_SEED_BITS = TABLE_SIZE_FIRST.bit_length() - 1
"""How far a mutable map turns the hash: log2 of the *first* size of the table, also after it has grown."""


def immutable_map_order(keys: Iterable[str]) -> list[str]:
    """The order in which an immutable Scala map walks these keys, put in one after the other.

    A key that comes twice keeps its first place, in Scala as here.
    """
    inserted = list(dict.fromkeys(keys))
    if len(inserted) <= SMALL_MAP_KEYS_MAX:
        return inserted
    # The sort is stable: keys of one hash, which share a leaf of the trie, stay as inserted.
    return sorted(inserted, key=_trie_path)


def mutable_map_order(keys: Iterable[str]) -> list[str]:
    """The order in which a mutable Scala map walks these keys, put in one after the other into an empty one.

    Putting a key again changes nothing but its value, so only the first time counts.
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
    """The hash whose top bits choose the bucket of a mutable map: spread, bytes reversed, spread, turned right."""
    h = (java_hash(key) * _SPREAD) & _MASK
    h = int.from_bytes(h.to_bytes(4, "little"), "big")
    h = (h * _SPREAD) & _MASK
    return (h >> _SEED_BITS | h << (32 - _SEED_BITS)) & _MASK
