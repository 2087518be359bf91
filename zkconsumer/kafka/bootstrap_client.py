"""``BootstrapClient``: sends a request that any broker can answer to one broker after the other until one answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, TypeVar

from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.errors import (
    AuthenticationException,
    BrokerUnreachable,
    ConnectorClosed,
    KafkaException,
    RemoteProtocolError,
)
from zkconsumer.kafka.version_negotiation import negotiate

if TYPE_CHECKING:
    from zkconsumer.kafka.broker_connection import Connection, ConnectionFactory
    from zkconsumer.kafka.net.connection_errors import PortDiagnosis
    from zkconsumer.kafka.supported_versions import SupportedVersions
    from zkconsumer.types import BrokerAddress

T = TypeVar("T")


class NoBrokerAvailableError(BrokerUnreachable):
    """None of the brokers answered; the text has the error of the last one.

    ``authentication_error``: the first permanent authentication failure, of either side; None if there was none.
    """

    def __init__(self, message: str, refused: AuthenticationException | None = None) -> None:
        super().__init__(message)
        self.authentication_error = refused


@dataclass(eq=False, repr=False)
class BootstrapClient:
    """Asks the brokers that ``find_brokers`` returns, in random order; for one thread at a time.

    Only ``interrupt`` may be called from any thread: it ends the request in progress.
    """

    connect: ConnectionFactory
    find_brokers: Callable[[], Sequence[BrokerAddress]]
    client_id: str
    timeout_ms: int
    _: KW_ONLY
    diagnose: PortDiagnosis | None = None
    no_broker_message: str = "there is no broker to ask"
    clock: Clock = SYSTEM_CLOCK
    _connection: Connection | None = field(default=None, init=False)
    _has_answered: bool = field(default=False, init=False)

    @property
    def has_succeeded(self) -> bool:
        """Whether any broker has answered a request of this client."""
        return self._has_answered

    def interrupt(self) -> None:
        """End the request in progress with ``ConnectorClosed``."""
        connection = self._connection
        if connection is not None:
            connection.close()

    def execute(
        self,
        operation: Callable[[Connection, SupportedVersions, int], T],
        is_stopped: Callable[[], bool] = lambda: False,
        *,
        total_timeout_ms: int | None = None,
    ) -> T:
        """Return ``question(connection, ranges, timeout_ms)`` of the first broker that answers it.

        ``total_timeout_ms``: after that time no further broker is asked, and none has longer to answer.  Raises what
        ``find_brokers`` raises (``UnavailableError``), ``NoBrokerAvailableError``, and ``ConnectorClosed`` when it was
        interrupted or ``is_stopped``.
        """
        brokers = list(self.find_brokers())
        if not brokers:
            raise NoBrokerAvailableError(self.no_broker_message)
        random.shuffle(brokers)
        deadline_ms = None if total_timeout_ms is None else self.clock.now_ms() + total_timeout_ms
        last_error = ""
        refused: AuthenticationException | None = None
        for broker in brokers:
            if is_stopped():
                raise ConnectorClosed("the question was taken back")
            timeout_ms = self.timeout_ms
            if deadline_ms is not None:
                timeout_ms = min(timeout_ms, deadline_ms - self.clock.now_ms())
                if timeout_ms <= 0:
                    break
            try:
                answer = self._execute_on(broker, operation, is_stopped, timeout_ms)
            except ConnectorClosed:
                raise
            except AuthenticationException as error:
                last_error, refused = str(error), refused or self._diagnose_error(broker, error) or error
            except (BrokerUnreachable, RemoteProtocolError, KafkaException) as error:
                last_error, refused = str(error), refused or self._diagnose_error(broker, error)
            else:
                self._has_answered = True
                return answer
        raise NoBrokerAvailableError(
            f"none of {len(brokers)} brokers answers; the last one: {refused or last_error}", refused
        )

    def _execute_on(
        self,
        broker: BrokerAddress,
        operation: Callable[[Connection, SupportedVersions, int], T],
        is_stopped: Callable[[], bool],
        timeout_ms: int,
    ) -> T:
        connection = self.connect(broker.host, broker.port, client_id=self.client_id, connect_timeout_ms=timeout_ms)
        self._connection = connection
        try:
            if is_stopped():
                # The interrupt may have come before there was a connection to close.
                raise ConnectorClosed("the question was taken back")
            return operation(connection, negotiate(connection, timeout_ms), timeout_ms)
        finally:
            self._connection = None
            connection.close()

    def _diagnose_error(self, broker: BrokerAddress, error: Exception) -> AuthenticationException | None:
        """After a broker has answered, the settings are right: then a closed connection means that a broker stops."""
        if self.diagnose is None or self._has_answered:
            return None
        return self.diagnose(broker.host, broker.port, error)
