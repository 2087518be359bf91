"""``OffsetsCoordinatorClient``: finds the broker that keeps a group's offsets, and keeps a connection to it.

    any broker --FindCoordinator--> the coordinator --negotiate--> CoordinatorConnection (address, connection, versions)

One thread uses it; ``interrupt`` may be called from any other, and ends its blocked call.  The ``RetryBudget`` sets the
time limit and the pauses: the Scala consumer searches without a limit, and without a pause between its
rounds.
"""

from __future__ import annotations

import logging
import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from zkconsumer.errors import ConnectorClosed, UnavailableError
from zkconsumer.kafka.broker_connection import BROKER_ERRORS
from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.kafka.group_offsets import find_coordinator
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError, ConnectionFailureReason
from zkconsumer.kafka.offset_errors import FINAL_FETCH_ERRORS, describe_error
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.member.log_rate_limiter import LoggedReason
from zkconsumer.types import BrokerAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zkconsumer.kafka.broker_connection import Connection, ConnectionFactory

LOOKUP_TIMEOUT_MS = 3_000
"""How long one broker may take to answer FindCoordinator; the fixed timeout of this channel in the Scala consumer."""

LOOKUP_TIMEOUT_MS_MIN = 250
"""The minimum for each broker when the time is divided among them."""

LOG_FROM_ROUND = 2
"""From which round of a job on a failure is logged: the first commit of a cluster finds no coordinator, because the
brokers create the topic of the offsets only then."""

UNSUPPORTED_MESSAGE = (
    "offsets.storage=kafka needs brokers from 0.8.2 on, and none of the {} brokers of this cluster knows "
    "FindCoordinator: set offsets.storage=zookeeper for every member, or upgrade the brokers"
)

log = logging.getLogger("zkconsumer.offsets")


class RetryBudget(Protocol):
    """The limits of the running job."""

    def remaining_ms(self) -> int:
        """The time that is left; raises an exception when the job must end."""

    def pause(self, why: str) -> None:
        """Wait before the next attempt; ``why`` is reported if there is none.

        Raises an exception when the job must end.
        """


@dataclass(frozen=True, slots=True)
class OffsetsChannelSettings:
    """The settings of requests to a group's coordinator; times in ms."""

    group: str
    client_id: str
    socket_timeout_ms: int
    backoff_ms: int


class DeadlineExceededError(Exception):
    """The job's time is over; the text has the last error."""


class CoordinatorUnsupportedError(Exception):
    """No broker of the cluster supports coordinators."""


class GroupRejectedError(Exception):
    """The coordinator rejects the whole group permanently."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(describe_error(code))
        self.code = code


@dataclass(slots=True)
class CoordinatorConnection:
    """An open connection to the coordinator."""

    address: BrokerAddress
    connection: Connection
    ranges: SupportedVersions = field(repr=False)


class OffsetsCoordinatorClient:
    """The connection to the coordinator, while there is one."""

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
        """Under the lock: the connection in which the thread may be blocked."""
        self._coordinator: CoordinatorConnection | None = None
        self._unresponsive: set[BrokerAddress] = set()
        self._logged_coordinator: BrokerAddress | None = None
        self._logged_failure = LoggedReason()

    def interrupt(self) -> None:
        """End the thread's blocked call; from any thread."""
        with self._lock:
            connection = self._connection
        if connection is not None:
            connection.close()

    def connect(self, budget: RetryBudget) -> CoordinatorConnection:
        """Return the connection to the coordinator; search for it within the job's time.

        A connection that the broker has closed meanwhile (it stopped, or the connection was idle) costs no attempt.
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
            # A broker that did not answer the last time is asked last.
            brokers.sort(key=lambda broker: (broker in self._unresponsive, random.random()))
            last_error = self._find_coordinator(budget, brokers)
            if self._coordinator is None:
                rounds += 1
                if rounds >= LOG_FROM_ROUND:
                    self._log_failure(last_error)
                budget.pause(last_error)
        return self._coordinator

    def _find_coordinator(self, budget: RetryBudget, brokers: Sequence[BrokerAddress]) -> str:
        """Ask one broker after the other for the coordinator, and connect to it; return the error if that failed."""
        last_error = "no broker is registered in ZooKeeper (/brokers/ids)"
        too_old = 0
        for number, broker in enumerate(brokers):
            # A broker that drops packets must leave time for the others.
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
        """Return the coordinator; None if the broker does not support the request (0.8.0, 0.8.1)."""
        for _ in range(2):
            connection = self._open(budget, broker, timeout_ms)
            ranges = negotiate(connection, timeout_ms)
            self._coordinator = CoordinatorConnection(broker, connection, ranges)
            try:
                found = find_coordinator(connection, ranges, self._settings.group, timeout_ms)
            except BrokerConnectionError as error:
                # Before 0.8.2 a broker closes the connection at an unknown request; so does a broker that is stopping.
                # So it is asked twice.
                if not ranges.is_assumed or error.reason is not ConnectionFailureReason.CLOSED:
                    raise
                self.disconnect()
            else:
                if not isinstance(found, BrokerAddress) or found[1:] != broker[1:]:
                    self.disconnect()
                return found
        return None

    def _connect_to(self, budget: RetryBudget, found: BrokerAddress, asked: BrokerAddress) -> str:
        """Connect to the coordinator, reusing the connection if it is the broker that was asked."""
        if self._coordinator is None:
            timeout_ms = min(self._settings.socket_timeout_ms, budget.remaining_ms())
            try:
                connection = self._open(budget, found, timeout_ms)
                self._coordinator = CoordinatorConnection(found, connection, negotiate(connection, timeout_ms))
            except BROKER_ERRORS as error:
                self.disconnect()
                return f"{asked} named {found} as the coordinator: {error}"
        self._logged_failure.clear()
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
        # The cancel may have come before there was a connection to close.
        budget.remaining_ms()
        return connection

    def disconnect(self) -> None:
        """Close the connection: the coordinator is searched for again."""
        with self._lock:
            connection, self._connection = self._connection, None
        self._coordinator = None
        if connection is not None:
            connection.close()

    def _log_failure(self, why: str) -> None:
        if self._logged_failure.is_new(why):
            log.warning("coordinator-lookup-failed group=%s reason=%r", self._settings.group, why)


def is_closed_by_peer(connection: Connection) -> bool:
    """Whether the other side has closed a connection on which no response is pending."""
    try:
        return connection.has_response(0)
    except (*BROKER_ERRORS, ConnectorClosed):
        return True
