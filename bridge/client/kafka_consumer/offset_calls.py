"""Commits and look-ups of committed offsets that the program waits for, or gets a callback of.

Each is a ``PollCondition``, so a poll of the network waits until it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from zkconsumer.errors import ZkConsumerError
from zkconsumer.kafka.group.events import Offset
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.types import TopicPartition

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]

OffsetCommitCallback: TypeAlias = Callable[[Offsets, ZkConsumerError | None], None]
"""``callback(offsets, error)``: the result of ``commit_async``; called in the thread of the program."""


@dataclass(slots=True, eq=False)
class CommitOffsetsCall:
    """One commit.  ``error``: why it failed, or the error of the first partition that was refused."""

    offsets: Offsets
    callback: OffsetCommitCallback | None = None
    is_done: bool = False
    error: ZkConsumerError | None = None

    def should_block(self) -> bool:
        """Whether the result is still to come."""
        return not self.is_done

    def end(self, error: ZkConsumerError | None) -> None:
        """The result."""
        self.error = error
        self.is_done = True

    def fail(self, error: ZkConsumerError) -> None:
        """There will be no result."""
        self.end(error)


@dataclass(slots=True, eq=False)
class CommittedOffsetsCall:
    """One look-up.  ``offsets``: None for a partition without a committed offset."""

    partitions: frozenset[TopicPartition]
    is_done: bool = False
    offsets: Mapping[TopicPartition, Offset | None] = field(default_factory=dict)
    error: ZkConsumerError | None = None

    def should_block(self) -> bool:
        """Whether the result is still to come."""
        return not self.is_done

    def end(self, offsets: Mapping[TopicPartition, Offset | None], error: ZkConsumerError | None) -> None:
        """The result."""
        self.offsets = offsets
        self.error = error
        self.is_done = True

    def fail(self, error: ZkConsumerError) -> None:
        """There will be no result."""
        self.end({}, error)


def to_offset(offset: OffsetAndMetadata) -> Offset:
    """The value of the group's machine."""
    return Offset(offset.offset, offset.leader_epoch, offset.metadata)


def to_offset_and_metadata(offset: Offset) -> OffsetAndMetadata:
    """The value of the program."""
    return OffsetAndMetadata(offset.offset, offset.metadata, offset.leader_epoch)
