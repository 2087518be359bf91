"""``OffsetsCoordinatorClient``: finds the broker that keeps a group's offsets, and holds the conversation with it.

    any broker --FindCoordinator--> the coordinator --negotiate--> Coordinator (address, connection, versions)

One thread looks and talks; ``interrupt`` may come from any other, and ends whatever that one is blocked in.  How long
it may take, and how to wait, is the ``RetryBudget``'s: the original looks without end, and without a pause between its
rounds.
"""

from __future__ import annotations

import logging
import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from zkconsumer.errors import ConnectorClosed, UnavailableError
from zkconsumer.kafka.broker_connection import BROKER_ERRORS, BrokerConnectionError, ConnectionFailureReason
from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.kafka.group_offsets import find_coordinator
from zkconsumer.kafka.offset_errors import FINAL_FETCH_ERRORS, describe_error
from zkconsumer.kafka.version_negotiation import SupportedVersions, negotiate
from zkconsumer.types import BrokerAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zkconsumer.kafka.broker_connection import Connection, ConnectionFactory

LOOKUP_TIMEOUT_MS = 3_000
"""How long one broker may take to say who the coordinator is; the original's fixed time-out of this channel."""

LOOKUP_TIMEOUT_MS_MIN = 250
"""The least that each broker gets when the time is divided among them."""

LOG_FROM_ROUND = 2
"""From which round of a job on trouble is told: the first group that ever commits finds no coordinator, because the
brokers make the topic of the offsets only then."""

UNSUPPORTED_MESSAGE = (
    "offsets.storage=kafka needs brokers from 0.8.2 on, and none of the {} brokers of this cluster knows "
    "FindCoordinator: set offsets.storage=zookeeper for every member, or upgrade the brokers"
)

log = logging.getLogger("zkconsumer.offsets")


class RetryBudget(Protocol):
    """Whoever looks now."""

    def remaining_ms(self) -> int:
        """How long it may still take; raises what ends it."""

    def pause(self, why: str) -> None:
        """Wait before the next try; ``why`` is told if there is none.  Raises what ends it."""


@dataclass(frozen=True, slots=True)
class OffsetsChannelSettings:
    """How a group's coordinator is asked; times in ms."""

    group: str
    client_id: str
    socket_timeout_ms: int
    backoff_ms: int


class DeadlineExceededError(Exception):
    """The turn's time is over; the text says what stood in its way last."""


class CoordinatorUnsupportedError(Exception):
    """No broker of the cluster knows what a coordinator is."""


class GroupRejectedError(Exception):
    """The coordinator refuses the whole group, and will go on doing so."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(describe_error(code))
        self.code = code


@dataclass(slots=True)
class CoordinatorConnection:
    """An open conversation with the coordinator."""

    address: BrokerAddress
    connection: Connection
    ranges: SupportedVersions = field(repr=False)


class OffsetsCoordinatorClient:
    """The conversation with the coordinator, as long as there is one."""

    def __init__(
        self,
        settings: OffsetsChannelSettings,
        connect: ConnectionFactory,
        find_brokers: Callable[[], Sequence[BrokerAddress]],
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._find_brokers = find_brokers
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        """Under the lock: what the thread may be blocked in."""
        self._coordinator: CoordinatorConnection | None = None
        self._unresponsive: set[BrokerAddress] = set()
        self._logged_coordinator: BrokerAddress | None = None
        self._logged_failure = ""

    def interrupt(self) -> None:
        """End whatever the thread is blocked in; from any thread."""
        with self._lock:
            connection = self._connection
        if connection is not None:
            connection.close()

    def connect(self, budget: RetryBudget) -> CoordinatorConnection:
        """The conversation with the coordinator; looks for it as long as the turn lasts.

        One that the broker has ended meanwhile (it went down, or nothing was said for long) costs no attempt.
        """
        if self._coordinator is not None and is_closed_by_peer(self._coordinator.connection):
            self.disconnect()
        rounds = 0
        while self._coordinator is None:
            budget.remaining_ms()
            try:
                brokers = list(self._find_brokers())
            except UnavailableError as error:
                budget.pause(f"the brokers cannot be looked up: {error}")
                continue
            # Whoever did not answer the last time is asked last.
            brokers.sort(key=lambda broker: (broker in self._unresponsive, random.random()))
            last_error = self._find_coordinator(budget, brokers)
            if self._coordinator is None:
                rounds += 1
                if rounds >= LOG_FROM_ROUND:
                    self._log_failure(last_error)
                budget.pause(last_error)
        return self._coordinator

    def _find_coordinator(self, budget: RetryBudget, brokers: Sequence[BrokerAddress]) -> str:
        """Ask one broker after the other who the coordinator is, and connect to that; why not, if that failed."""
        last_error = "no broker is registered in ZooKeeper (/brokers/ids)"
        too_old = 0
        for number, broker in enumerate(brokers):
            # One that swallows packets must leave time for the others.
            share_ms = max(LOOKUP_TIMEOUT_MS_MIN, budget.remaining_ms() // (len(brokers) - number))
            try:
                found = self._find_coordinator_from(budget, broker, min(LOOKUP_TIMEOUT_MS, share_ms))
                self._unresponsive.discard(broker)
            except BROKER_ERRORS as error:
                self.disconnect()
                self._unresponsive.add(broker)
                last_error = f"none of {len(brokers)} brokers names the group's coordinator; the last one: {error}"
                continue
            if found is None:
                too_old += 1
                last_error = f"{broker} is older than 0.8.2, and keeps no offsets"
            elif isinstance(found, ErrorCode):
                if found in FINAL_FETCH_ERRORS:
                    raise GroupRejectedError(found)
                return f"{broker} was asked for the coordinator of group {self._settings.group}: {found}"
            else:
                return self._connect_to(budget, found, broker)
        if brokers and too_old == len(brokers):
            raise CoordinatorUnsupportedError(UNSUPPORTED_MESSAGE.format(len(brokers)))
        return last_error

    def _find_coordinator_from(
        self, budget: RetryBudget, broker: BrokerAddress, timeout_ms: int
    ) -> BrokerAddress | ErrorCode | None:
        """Who the coordinator is; None when the broker does not know such a question (0.8.0, 0.8.1)."""
        for _ in range(2):
            connection = self._open(budget, broker, timeout_ms)
            ranges = negotiate(connection, timeout_ms)
            self._coordinator = CoordinatorConnection(broker, connection, ranges)
            try:
                found = find_coordinator(connection, ranges, self._settings.group, timeout_ms)
            except BrokerConnectionError as error:
                # Before 0.8.2 a broker closes the connection on a question that it does not know; so does one that
                # is just going down: it is asked twice.
                if not ranges.is_assumed or error.reason is not ConnectionFailureReason.CLOSED:
                    raise
                self.disconnect()
            else:
                if not isinstance(found, BrokerAddress) or found[1:] != broker[1:]:
                    self.disconnect()
                return found
        return None

    def _connect_to(self, budget: RetryBudget, found: BrokerAddress, asked: BrokerAddress) -> str:
        """Connect to the coordinator, unless it is the one that was asked."""
        if self._coordinator is None:
            timeout_ms = min(self._settings.socket_timeout_ms, budget.remaining_ms())
            try:
                connection = self._open(budget, found, timeout_ms)
                self._coordinator = CoordinatorConnection(found, connection, negotiate(connection, timeout_ms))
            except BROKER_ERRORS as error:
                self.disconnect()
                return f"{asked} named {found} as the coordinator: {error}"
        self._logged_failure = ""
        if found != self._logged_coordinator:
            self._logged_coordinator = found
            log.info("coordinator-found group=%s broker=%s", self._settings.group, found)
        return ""

    def _open(self, budget: RetryBudget, broker: BrokerAddress, timeout_ms: int) -> Connection:
        self.disconnect()
        connection = self._connect(
            broker.host, broker.port, client_id=self._settings.client_id, connect_timeout_ms=timeout_ms
        )
        with self._lock:
            self._connection = connection
        # Whoever cancelled it may have come before there was a connection to close.
        budget.remaining_ms()
        return connection

    def disconnect(self) -> None:
        """End the conversation: the coordinator is looked for anew."""
        with self._lock:
            connection, self._connection = self._connection, None
        self._coordinator = None
        if connection is not None:
            connection.close()

    def _log_failure(self, why: str) -> None:
        shape = "".join(char for char in why if not char.isdigit())
        if shape != self._logged_failure:
            self._logged_failure = shape
            log.warning("coordinator-lookup-failed group=%s reason=%r", self._settings.group, why)


def is_closed_by_peer(connection: Connection) -> bool:
    """Whether the other side has ended a conversation in which no answer is due."""
    try:
        return connection.has_response(0)
    except (*BROKER_ERRORS, ConnectorClosed):
        return True
