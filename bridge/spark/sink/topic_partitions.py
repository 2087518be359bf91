"""The partitions of a topic, as the sink needs them.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.types import BrokerAddress


class PartitionCounts(NamedTuple):
    """``total``: of all partitions.  ``with_leader``: ascending; empty if none has a leader."""

    total: int
    with_leader: tuple[int, ...]


class TopicLeaders(NamedTuple):
    """What a broker answers about a topic.

    ``leaders``: partition -> its leader, or why it has none; empty for a topic that does not exist.  ``error``: of the
    topic, if any; ``is_final``: a repeated request is useless.
    """

    leaders: Mapping[int, BrokerAddress | ErrorCode]
    error: ErrorCode | None = None
    is_final: bool = False
