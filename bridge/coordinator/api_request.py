"""A request with its callback, and the services of the broker that the coordinator uses.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeAlias

from bridge.coordinator.release_features import BrokerRelease
from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.schemas import Api
from zkconsumer.wire.schemas.fetch import FetchPartitionResponse

ResponseCallback: TypeAlias = Callable[[Any], None]
ApiHandler: TypeAlias = Callable[["ApiRequest"], None]

NO_TRANSACTIONS = "this development broker has no transactions"


@dataclass(frozen=True, slots=True)
class InjectedErrors:
    """Errors that a test puts into the answer to one request; see ``bridge.testing.fake_faults``.

    By partition, by topic (Metadata only), by group.  ``on_fetched`` changes a row of a Fetch response.
    """

    partitions: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
    topics: Mapping[str, ErrorCode] = field(default_factory=dict)
    groups: Mapping[str, ErrorCode] = field(default_factory=dict)
    on_fetched: Callable[[TopicPartition, FetchPartitionResponse], FetchPartitionResponse] = lambda tp, row: row


NO_INJECTED_ERRORS = InjectedErrors()


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request, and the destination of its answer: ``reply`` is called once, now or later, with a response of its
    API.

    ``on_disconnect(forget)``: a handler that delays the answer registers here what happens when the client disconnects
    first.
    """

    api: Api[Any, Any]
    version: int
    body: Any
    client_id: str
    client_host: str
    principal: str
    listener: str
    reply: ResponseCallback
    on_disconnect: Callable[[Callable[[], object]], None] = lambda cancel: None
    injected: InjectedErrors = NO_INJECTED_ERRORS


class AclOperation(Enum):
    """An operation on a group or a topic."""

    READ = "Read"
    WRITE = "Write"
    DESCRIBE = "Describe"
    DELETE = "Delete"
    CREATE = "Create"


class Authorizer(Protocol):
    """Decides which principal may do which operation."""

    def __call__(self, principal: str, operation: AclOperation, resource: str, name: str) -> bool:
        """``resource`` is ``group`` or ``topic``."""


ZooKeeperOffset: TypeAlias = int | ErrorCode | None
"""The offset of a partition in ZooKeeper, None without one, or why it is not known."""


class LegacyOffsetStore(Protocol):
    """The store of OffsetCommit and OffsetFetch v0: ``/consumers/G/offsets/T/P``, decimal text."""

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], done: Callable[[dict[TopicPartition, int]], None]
    ) -> None:
        """Write; calls ``done`` with an error code for each."""

    def fetch(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        done: Callable[[dict[TopicPartition, ZooKeeperOffset]], None],
    ) -> None:
        """Read; calls ``done`` with the result for each."""


class BrokerServices(Protocol):
    """The services of the broker that the coordinator uses."""

    def partition_count(self, topic: str) -> int | None:
        """The number of partitions of a topic; None: it does not exist."""

    def ensure_offsets_topic(self) -> int | None:
        """The number of partitions of ``__consumer_offsets``; None: it is being created now."""

    def coordinator_address(self, partition: int, listener: str) -> BrokerAddress | None:
        """The leader of a partition of ``__consumer_offsets``, at its address for clients of this listener."""

    def submit_to_coordinator(self, request: ApiRequest, body: Any, reply: ResponseCallback) -> None:
        """Pass a request to this broker's ``GroupCoordinator``."""

    @property
    def legacy_offset_store(self) -> LegacyOffsetStore | None:
        """None: there is no ZooKeeper."""

    @property
    def release(self) -> BrokerRelease:
        """The release that this broker emulates."""

    @property
    def offset_metadata_max_chars(self) -> int:
        """The greatest length of the metadata of a committed offset."""

    def group_error(self, call: ApiRequest, operation: AclOperation, group: str) -> ErrorCode:
        """``NONE``, or the error for a client that may not do this with a group."""

    def topic_error(self, call: ApiRequest, operation: AclOperation, topic: str) -> ErrorCode:
        """``NONE``, or the error for a client that may not do this with a topic."""
