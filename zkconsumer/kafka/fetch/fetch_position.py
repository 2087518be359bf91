"""``FetchPosition``, ``LogTruncation`` and ``PositionLookup``: values of ``SubscriptionState`` (Kafka 3.0).  Pure."""

from __future__ import annotations

from typing import NamedTuple

from zkconsumer.kafka.metadata.leader_and_epoch import NO_LEADER_OR_EPOCH, LeaderAndEpoch
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.types import TopicPartition


class FetchPosition(NamedTuple):
    """The next record to read.

    ``offset_epoch``: the leader epoch of the record before it, None if unknown.  ``current_leader``: the leader when
    the position was set or last validated.
    """

    offset: int
    offset_epoch: int | None = None
    current_leader: LeaderAndEpoch = NO_LEADER_OR_EPOCH


class PositionLookup(NamedTuple):
    """The identity of one lookup: a load of the committed offset, a reset, or a validation.

    The caller takes it when it sends the request, and passes it with the response.  ``state_id`` changes with each
    seek, reset, validation and assignment of the partition, so the response to an older lookup changes nothing.
    ``position``: the position to validate; None in a load or a reset.
    """

    partition: TopicPartition
    state_id: int
    position: FetchPosition | None = None


class LogTruncation(NamedTuple):
    """The leader does not have the record before ``fetch_position``: the log has lost records that were read.

    ``divergent_offset``: the end of the common part of what was read and the log, None if unknown.
    """

    partition: TopicPartition
    fetch_position: FetchPosition
    divergent_offset: OffsetAndMetadata | None = None
