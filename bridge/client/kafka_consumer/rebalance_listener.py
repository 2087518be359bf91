"""``ConsumerRebalanceListener``: the program's callbacks of a rebalance, as in Java.

They are called in the thread of the program, inside of ``poll``, ``unsubscribe`` or ``close``, and may call the
consumer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, runtime_checkable

from zkconsumer.types import TopicPartition


@runtime_checkable
class ConsumerRebalanceListener(Protocol):
    """A method ``on_partitions_lost(partitions)`` is optional; without it ``on_partitions_revoked`` is called."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These go to other members when this returns; their offsets can still be committed."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These are assigned in addition; none of their records was returned.  ``seek`` is possible."""
