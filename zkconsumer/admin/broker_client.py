"""The brokers as a tool needs them: who leads what, and one negotiated connection a broker.

Nothing is connected before it is asked for.  Each wait has a limit, and a search among brokers has one in all, so a
cluster that is gone costs ``SEARCH_TIMEOUT_MS`` and a sentence, not a hanging tool.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from zkconsumer.errors import BrokerUnreachable, KafkaException, RemoteProtocolError
from zkconsumer.kafka.metadata_client import LeaderMetadata, fetch_leaders
from zkconsumer.kafka.version_negotiation import NO_RESPONSE_MS, SupportedVersions, negotiate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.broker_connection import Connection, ConnectionFactory
    from zkconsumer.types import BrokerAddress

CONNECT_TIMEOUT_MS = 3_000
"""How long a TCP connection of a tool may take to come up."""

REQUEST_TIMEOUT_MS = 6_000
"""How long a broker may take to answer a tool: ``--socket.timeout.ms`` of ConsumerOffsetChecker (0.8 to 0.11)."""

SEARCH_TIMEOUT_MS = 15_000
"""How long brokers are tried one after the other until one answers."""

BROKER_TIMEOUT_MS_MIN = 1_000
"""Less of that is no chance to answer: with less left, nobody else is tried."""

BROKER_REQUEST_ERRORS = (BrokerUnreachable, RemoteProtocolError, KafkaException)
BrokerRequestError: TypeAlias = BrokerUnreachable | RemoteProtocolError | KafkaException

T = TypeVar("T")


class BrokerClient:
    """The brokers of one cluster.  One thread."""

    def __init__(
        self,
        find: Callable[[], Sequence[BrokerAddress]],
        connect: ConnectionFactory,
        clock: Clock,
        *,
        client_id: str,
        no_broker_message: str = "no broker is known: start one, or correct the chroot",
    ) -> None:
        self._find = find
        self._connect = connect
        self._clock = clock
        self._client_id = client_id
        self._no_broker_message = no_broker_message
        self._open: dict[tuple[str, int], tuple[Connection, SupportedVersions]] = {}

    def connection_to(self, host: str, port: int) -> tuple[Connection, SupportedVersions]:
        """A connection and what the broker speaks; the same ones as before if it still holds.

        Raises ``BrokerUnreachable``, ``RemoteProtocolError``, ``KafkaException``.
        """
        return self._at(host, port, CONNECT_TIMEOUT_MS, REQUEST_TIMEOUT_MS)

    def _at(self, host: str, port: int, connect_ms: int, negotiate_ms: int) -> tuple[Connection, SupportedVersions]:
        known = self._open.get((host, port))
        if known is not None:
            return known
        connection = self._connect(host, port, client_id=self._client_id, connect_timeout_ms=connect_ms)
        try:
            made = connection, negotiate(connection, negotiate_ms)
        except BaseException:
            connection.close()
            raise
        self._open[host, port] = made
        return made

    def execute(self, broker: BrokerAddress, operation: Callable[[Connection, SupportedVersions], T]) -> T:
        """Ask one broker; a connection that broke meanwhile is made anew, once.

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

        The answer of the last one where all of them answer and none tells.  Each has its share of
        ``SEARCH_TIMEOUT_MS``, so that one which swallows packets leaves time for the others.  Raises
        ``BrokerUnreachable`` when none tells by then and one of them was not heard, or none is registered.
        """
        brokers = self._find()
        if not brokers:
            raise BrokerUnreachable(self._no_broker_message)
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

        All of them have ``SEARCH_TIMEOUT_MS``, and each its share; who is left over by then is not asked.
        """
        why = f"it was not asked, since others that do not answer took {SEARCH_TIMEOUT_MS} ms; start those"
        told: dict[BrokerAddress, T | BrokerRequestError] = {
            broker: BrokerUnreachable(f"{broker.host}:{broker.port}: {why}") for broker in brokers
        }
        told.update(self._results(brokers, operation))
        return told

    def _results(
        self, brokers: Sequence[BrokerAddress], operation: Callable[[Connection, SupportedVersions, int], T]
    ) -> Iterator[tuple[BrokerAddress, T | BrokerRequestError]]:
        """One after the other, those first that answered before, until the time is up."""
        until_ms = self._clock.now_ms() + SEARCH_TIMEOUT_MS
        for number, broker in enumerate(sorted(brokers, key=lambda each: (each.host, each.port) not in self._open)):
            left_ms = until_ms - self._clock.now_ms()
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
        """To be found takes no more than the share; an answer may take what is left for all."""
        connect_ms, negotiate_ms = (
            min(CONNECT_TIMEOUT_MS, broker_timeout_ms),
            min(REQUEST_TIMEOUT_MS, broker_timeout_ms - NO_RESPONSE_MS),
        )
        connection, ranges = self._at(broker.host, broker.port, connect_ms, negotiate_ms)
        return operation(connection, ranges, max(1, min(REQUEST_TIMEOUT_MS, until_ms - self._clock.now_ms())))

    def all(self) -> list[BrokerAddress]:
        """The registered brokers, by id.  Raises ``UnavailableError`` when ZooKeeper does not tell."""
        return sorted(self._find())

    def leaders(self, topics: Collection[str] | None) -> LeaderMetadata:
        """Who leads the partitions of these topics (None: of all).

        Ask for topics that exist: a broker before 0.11 may create what it is asked for.  Raises ``BrokerUnreachable``
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
        """End the connection to a broker; the next question opens another and negotiates again."""
        known = self._open.pop((host, port), None)
        if known is not None:
            known[0].close()


def _no_answer_text(brokers: int, tried: int, heard: int, trouble: str) -> str:
    why = f"the last one: {trouble}" if trouble else f"the search ended after {SEARCH_TIMEOUT_MS} ms"
    if heard:
        return f"{brokers - heard} of {brokers} brokers did not answer, and the others do not tell; {why}"
    among = str(tried) if tried == brokers else f"the first {tried} of {brokers}"
    return f"none of {among} brokers answers; {why}"
