"""Offset commits that are being written to the log: Kafka's ``pendingOffsetCommits``.  Pure.

Such an offset is not stable yet (88), does not expire, and prevents the deletion of its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bridge.coordinator.events import Token
from zkconsumer.types import TopicPartition


class PendingOffsetCommits:
    """Partition → the appends in flight that contain an offset of it."""

    __slots__ = ("_tokens",)

    def __init__(self) -> None:
        self._tokens: dict[TopicPartition, set[Token]] = {}

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._tokens

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._tokens)

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def stage(self, token: Token, partitions: Iterable[TopicPartition]) -> None:
        """An append was commanded."""
        for partition in partitions:
            self._tokens.setdefault(partition, set()).add(token)

    def complete(self, token: Token, partitions: Iterable[TopicPartition]) -> None:
        """The append succeeded, or failed."""
        for partition in partitions:
            tokens = self._tokens[partition]
            tokens.discard(token)
            if not tokens:
                del self._tokens[partition]
