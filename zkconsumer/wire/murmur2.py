"""The hash of keys in Kafka's producers.  Pure.

``Utils.murmur2`` of the Java client: its default partitioner puts a record with a key into the partition
``to_positive(murmur2(key)) % partitions``, in every release from 0.8.2 on.  A producer with another hash would put the
records of one key into another partition than a Java producer of the same topic does.  (The Scala producer of 0.8 has
``hashCode`` of the key object instead.)
"""

from __future__ import annotations

from struct import Struct

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF

_WORD = Struct("<I")


def murmur2(data: bytes) -> int:
    """The hash of ``data`` as an unsigned 32-bit integer; Java has the same bits as a signed one."""
    size = len(data)
    hashed = _SEED ^ size
    tail = size & ~3
    for (word,) in _WORD.iter_unpack(memoryview(data)[:tail]):
        word = word * _M & _MASK
        hashed = (hashed * _M ^ (word ^ word >> 24) * _M) & _MASK
    if size > tail:
        hashed = (hashed ^ int.from_bytes(data[tail:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition that Java's default partitioner chooses among ``partitions``, whether or not they have a leader."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
