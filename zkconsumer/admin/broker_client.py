"""The brokers as a tool needs them: the leaders of partitions, and one negotiated connection for each broker.

A broker is connected at the first request to it.  Each wait has a limit, and a search among brokers has a total limit,
so with an unreachable cluster a tool fails after ``SEARCH_TIMEOUT_MS`` with an error instead of hanging.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from zkconsumer.errors import BrokerUnreachable, KafkaException, RemoteProtocolError
from zkconsumer.kafka.metadata_client import LeaderMetadata, fetch_leaders
from zkconsumer.kafka.net.api_versions_discovery import NO_RESPONSE_MS
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.kafka.version_negotiation import negotiate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.broker_connection import Connection, ConnectionFactory
    from zkconsumer.types import BrokerAddress

CONNECT_TIMEOUT_MS = 3_000
"""How long a tool waits for a TCP connection."""

REQUEST_TIMEOUT_MS = 6_000
"""How long a broker may take to answer a tool: ``--socket.timeout.ms`` of ConsumerOffsetChecker (0.8 to 0.11)."""

SEARCH_TIMEOUT_MS = 15_000
"""How long brokers are tried one after the other until one answers."""

BROKER_TIMEOUT_MS_MIN = 1_000
"""With less time left than this, no further broker is tried: it could not answer."""

BROKER_REQUEST_ERRORS = (BrokerUnreachable, RemoteProtocolError, KafkaException)
BrokerRequestError: TypeAlias = BrokerUnreachable | RemoteProtocolError | KafkaException

T = TypeVar("T")


@dataclass(eq=False, repr=False)
class BrokerClient:
    """The brokers of one cluster.  One thread."""

    find: Callable[[], Sequence[BrokerAddress]]
    connect: ConnectionFactory
    clock: Clock
    _: KW_ONLY
    client_id: str
    no_broker_message: str = "no broker is registered: start one, or correct the chroot"
    _open: dict[tuple[str, int], tuple[Connection, SupportedVersions]] = field(default_factory=dict, init=False)

    def connection_to(self, host: str, port: int) -> tuple[Connection, SupportedVersions]:
        """Return a connection and the broker's supported versions; the existing connection if it is still open.

        Raises ``BrokerUnreachable``, ``RemoteProtocolError``, ``KafkaException``.
        """
        return self._at(host, port, CONNECT_TIMEOUT_MS, REQUEST_TIMEOUT_MS)

    def _at(self, host: str, port: int, connect_ms: int, negotiate_ms: int) -> tuple[Connection, SupportedVersions]:
        known = self._open.get((host, port))
        if known is not None:
            return known
        connection = self.connect(host, port, client_id=self.client_id, connect_timeout_ms=connect_ms)
        try:
            made = connection, negotiate(connection, negotiate_ms)
        except BaseException:
            connection.close()
            raise
        self._open[host, port] = made
        return made

    def execute(self, broker: BrokerAddress, operation: Callable[[Connection, SupportedVersions], T]) -> T:
        """Send a request to one broker; if the connection broke meanwhile, connect again, once.

        Raises ``BrokerUnreachable``, ``RemoteProtocolError``, ``KafkaException``.
        """
        return self._ask(broker, lambda: operation(*self.connection_to(broker.host, broker.port)))

    def _ask(self, broker: BrokerAddress, operation: Callable[[], T]) -> T:
        was_open = (broker.host, broker.port) in self._open
        try:
            return operation()
        except (BrokerUnreachable, RemoteProtocolError):
            self.disconnect(broker.host, broker.port)
            if not was_open:
                raise
        try:
            return operation()
        except (BrokerUnreachable, RemoteProtocolError):
            self.disconnect(broker.host, broker.port)
            raise

    def execute_on_any(
        self,
        operation: Callable[[Connection, SupportedVersions, int], T],
        is_conclusive: Callable[[T], bool] = lambda answer: True,
    ) -> T:
        """``question(connection, ranges, timeout_ms)`` of the first registered broker whose answer ``is_conclusive``.

        Returns the answer of the last one if all of them answer and none is conclusive.  Each broker gets its part of
        ``SEARCH_TIMEOUT_MS``, so that a broker that drops packets leaves time for the others.  Raises
        ``BrokerUnreachable`` when there is no conclusive answer by then and one of them did not answer, or when none is
        registered.
        """
        brokers = self.find()
        if not brokers:
            raise BrokerUnreachable(self.no_broker_message)
        trouble, tried = "", 0
        heard: list[T] = []
        for _, answer in self._results(brokers, operation):
            tried += 1
            if isinstance(answer, BROKER_REQUEST_ERRORS):
                trouble = str(answer)
            elif is_conclusive(answer):
                return answer
            else:
                heard.append(answer)
        if len(heard) == len(brokers):
            return heard[-1]
        raise BrokerUnreachable(_no_answer_text(len(brokers), tried, len(heard), trouble))

    def execute_on_each(
        self, brokers: Sequence[BrokerAddress], operation: Callable[[Connection, SupportedVersions, int], T]
    ) -> dict[BrokerAddress, T | BrokerRequestError]:
        """What each of these brokers answers to ``question(connection, ranges, timeout_ms)``, or why it does not.

        Together they have ``SEARCH_TIMEOUT_MS``, each an equal part; brokers that are left after that are not asked.
        """
        why = f"it was not asked, because silent brokers used up {SEARCH_TIMEOUT_MS} ms; start those"
        results: dict[BrokerAddress, T | BrokerRequestError] = {
            broker: BrokerUnreachable(f"{broker.host}:{broker.port}: {why}") for broker in brokers
        }
        results.update(self._results(brokers, operation))
        return results

    def _results(
        self, brokers: Sequence[BrokerAddress], operation: Callable[[Connection, SupportedVersions, int], T]
    ) -> Iterator[tuple[BrokerAddress, T | BrokerRequestError]]:
        """Ask one after the other, first those that answered before, until the time is up."""
        until_ms = self.clock.now_ms() + SEARCH_TIMEOUT_MS
        for number, broker in enumerate(sorted(brokers, key=lambda each: (each.host, each.port) not in self._open)):
            left_ms = until_ms - self.clock.now_ms()
            if left_ms < BROKER_TIMEOUT_MS_MIN:
                break
            broker_timeout_ms = max(BROKER_TIMEOUT_MS_MIN, left_ms // (len(brokers) - number))
            answer: T | BrokerRequestError
            try:
                answer = self._ask(
                    broker, partial(self._execute_in_time, broker, operation, broker_timeout_ms, until_ms)
                )
            except BROKER_REQUEST_ERRORS as error:
                answer = error
            yield broker, answer

    def _execute_in_time(
        self,
        broker: BrokerAddress,
        operation: Callable[[Connection, SupportedVersions, int], T],
        broker_timeout_ms: int,
        until_ms: int,
    ) -> T:
        """A search takes at most its part of the time; the answer may take all the remaining time."""
        connect_ms, negotiate_ms = (
            min(CONNECT_TIMEOUT_MS, broker_timeout_ms),
            min(REQUEST_TIMEOUT_MS, broker_timeout_ms - NO_RESPONSE_MS),
        )
        connection, ranges = self._at(broker.host, broker.port, connect_ms, negotiate_ms)
        return operation(connection, ranges, max(1, min(REQUEST_TIMEOUT_MS, until_ms - self.clock.now_ms())))

    def all(self) -> list[BrokerAddress]:
        """The registered brokers, by id.  Raises ``UnavailableError`` if ZooKeeper does not answer."""
        return sorted(self.find())

    def leaders(self, topics: Collection[str] | None) -> LeaderMetadata:
        """The leaders of the partitions of these topics (None: of all topics).

        Name only existing topics: a broker before 0.11 may create a topic that is named.  Raises ``BrokerUnreachable``
        when no broker answers.
        """
        if topics is not None and not topics:
            return LeaderMetadata({}, {}, {})
        return self.execute_on_any(lambda on, ranges, timeout_ms: fetch_leaders(on, ranges, topics, timeout_ms))

    def close(self) -> None:
        """Close every connection."""
        for connection, _ in self._open.values():
            connection.close()
        self._open.clear()

    def disconnect(self, host: str, port: int) -> None:
        """End the connection to a broker; the next request connects and negotiates again."""
        known = self._open.pop((host, port), None)
        if known is not None:
            known[0].close()


def _no_answer_text(brokers: int, tried: int, heard: int, trouble: str) -> str:
    why = f"the last one: {trouble}" if trouble else f"the search ended after {SEARCH_TIMEOUT_MS} ms"
    if heard:
        return f"{brokers - heard} of {brokers} brokers did not answer, and the others have no conclusive answer; {why}"
    among = str(tried) if tried == brokers else f"the first {tried} of {brokers}"
    return f"none of {among} brokers answers; {why}"
