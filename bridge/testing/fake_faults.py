"""The faults of a fake broker.

A fault is a value; ``FakeCluster.inject`` activates it for some requests, and returns a handle to count and lift it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import Api


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close the connection instead of answering, after this many bytes of the response (size included)."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Garbage:
    """Send these bytes instead of the answer."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Delay:
    """Answer this many milliseconds late."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Do not answer before the fault is lifted."""


@dataclass(frozen=True, slots=True)
class WrongCorrelationId:
    """Answer with a correlation id that is off by this much."""

    by: int = 1


@dataclass(frozen=True, slots=True)
class PartitionError:
    """Answer this error code for one partition, without data."""

    tp: TopicPartition
    code: int


@dataclass(frozen=True, slots=True)
class TopicError:
    """Answer this error code for a topic that a Metadata request names: 29 (not authorised), 17 (invalid), 3 ...

    A response with all topics omits it, as real brokers omit topics that the user may not describe.
    """

    topic: str
    code: int


@dataclass(frozen=True, slots=True)
class NullRecords:
    """Answer a Fetch of one partition with a record set of size −1 and this error code."""

    tp: TopicPartition
    code: int


@dataclass(frozen=True, slots=True)
class SlowTieredStorage:
    """Answer a Fetch of one partition with no error, the true high watermark and no record.

    A broker of 3.6 and later answers so when its tiered storage is too slow (KIP-405,
    ``DelayedRemoteFetch``): for existing records.  An offset out of range still gets error 1.
    """

    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class CorruptRecords:
    """Flip all bits of one byte of the record set in the response for one partition."""

    tp: TopicPartition
    at: int


@dataclass(frozen=True, slots=True)
class GroupError:
    """Answer this error code to requests about one group: 14 (loading), 15 (no coordinator), 16 (another broker) ...

    It is where the version of the request has it: for the whole group, or in every partition.
    """

    group: str
    code: int


FrameFault: TypeAlias = CloseConnection | Garbage | Delay | Hold | WrongCorrelationId
PartitionFault: TypeAlias = PartitionError | NullRecords | SlowTieredStorage | CorruptRecords
Fault: TypeAlias = FrameFault | PartitionFault | TopicError | GroupError


class ActiveFault:
    """An active fault."""

    def __init__(self, fault: Fault, api: Api[Any, Any] | None, broker_id: int | None, times: int | None) -> None:
        self.fault = fault
        self.hits = 0
        self._api_key = None if api is None else api.key
        self._broker_id = broker_id
        self._times = times
        self._is_lifted = False

    @property
    def is_in_force(self) -> bool:
        """Whether it applies to another request; a ``Hold`` keeps its requests until it is lifted."""
        return not self._is_lifted and (self._times is None or self.hits < self._times)

    @property
    def is_lifted(self) -> bool:
        """Whether ``lift`` was called."""
        return self._is_lifted

    def lift(self) -> None:
        """Deactivate it.  (``FakeCluster.lift`` also wakes waiting requests.)"""
        self._is_lifted = True

    def applies_to(self, api_key: int, broker_id: int) -> bool:
        """Whether it applies to requests of this API to this broker."""
        return self.is_in_force and self._api_key in (None, api_key) and self._broker_id in (None, broker_id)
