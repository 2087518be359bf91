"""The partition of ``__consumer_offsets`` for a group.  Pure."""

from __future__ import annotations

from zkconsumer.wire.java_hash import java_hash

_INT_MIN = -(2**31)


def partition_for(group_id: str, partitions: int) -> int:
    """The partition of a group, of ``partitions``; its leader coordinates the group.

    Kafka's ``partitionFor``, all releases: the absolute value of Java's hash, and 0 for the one hash that has none.
    """
    hashed = java_hash(group_id)
    return (0 if hashed == _INT_MIN else abs(hashed)) % partitions
