"""A request on its way to its answer, and what is asked of the broker around the coordinator.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.schemas import Api

ResponseCallback: TypeAlias = Callable[[Any], None]
ApiHandler: TypeAlias = Callable[["ApiRequest"], None]

NO_TRANSACTIONS = "this development broker has no transactions"


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request, and where its answer goes: ``reply`` is called once, now or later, with a response of its API.

    ``on_disconnect(forget)``: who lets a request wait says here how it is forgotten when the client is gone before
    that.
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


class AclOperation(Enum):
    """What somebody wants to do with a group or a topic."""

    READ = "Read"
    WRITE = "Write"
    DESCRIBE = "Describe"
    DELETE = "Delete"
    CREATE = "Create"


class Authorizer(Protocol):
    """Who may do what."""

    def __call__(self, principal: str, operation: AclOperation, resource: str, name: str) -> bool:
        """``resource`` is ``group`` or ``topic``."""


ZooKeeperOffset: TypeAlias = int | ErrorCode | None
"""What ZooKeeper says of a partition: an offset, None where there is none, or why that is not known."""


class LegacyOffsetStore(Protocol):
    """The store of OffsetCommit and OffsetFetch v0: ``/consumers/G/offsets/T/P``, decimal text."""

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], done: Callable[[dict[TopicPartition, int]], None]
    ) -> None:
        """Write; ``done`` is given an error code for each."""

    def fetch(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        done: Callable[[dict[TopicPartition, ZooKeeperOffset]], None],
    ) -> None:
        """Read; ``done`` is given what was found of each."""


class BrokerServices(Protocol):
    """What is asked of the broker around the coordinator."""

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None: there is none of this name."""

    def ensure_offsets_topic(self) -> int | None:
        """How many partitions ``__consumer_offsets`` has; None: it is being made now."""

    def coordinator_address(self, partition: int, listener: str) -> BrokerAddress | None:
        """Who leads a partition of ``__consumer_offsets``, where a client of this listener reaches it."""

    def submit_to_coordinator(self, request: ApiRequest, body: Any, reply: ResponseCallback) -> None:
        """Give a request to this broker's ``GroupCoordinator``."""

    @property
    def legacy_offset_store(self) -> LegacyOffsetStore | None:
        """None: there is no ZooKeeper."""

    @property
    def checks_partitions_of_commits(self) -> bool:
        """A partition that there is not is refused (3), else only a topic is; see
        ``zkconsumer.kafka.release_features``.
        """
