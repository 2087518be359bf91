"""The brokers as a tool needs them: who leads what, and one negotiated connection a broker.

Nothing is connected before it is asked for.  Each wait has a limit, and a search among brokers has one in all, so a
cluster that is gone costs ``SEARCH_TIMEOUT_MS`` and a sentence, not a hanging tool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from zkconsumer.errors import BrokerUnreachable, KafkaException, RemoteProtocolError
from zkconsumer.kafka.metadata import Leaders, fetch_leaders
from zkconsumer.kafka.versions import ApiRanges, negotiate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.connection import Connect, Connection
    from zkconsumer.types import BrokerAddress

CONNECT_TIMEOUT_MS = 3_000
"""How long a TCP connection of a tool may take to come up."""

REQUEST_TIMEOUT_MS = 6_000
"""How long a broker may take to answer a tool: ``--socket.timeout.ms`` of ConsumerOffsetChecker (0.8 to 0.11)."""

SEARCH_TIMEOUT_MS = 15_000
"""How long brokers are tried one after the other until one answers."""

PeerTrouble = (BrokerUnreachable, RemoteProtocolError, KafkaException)

T = TypeVar("T")


class Brokers:
    """The brokers of one cluster.  One thread."""

    def __init__(
        self,
        find: Callable[[], Sequence[BrokerAddress]],
        connect: Connect,
        clock: Clock,
        *,
        client_id: str,
        nobody: str = "no broker is known: start one, or correct the chroot",
    ) -> None:
        self._find = find
        self._connect = connect
        self._clock = clock
        self._client_id = client_id
        self._nobody = nobody
        self._open: dict[tuple[str, int], tuple[Connection, ApiRanges]] = {}

    def at(self, host: str, port: int) -> tuple[Connection, ApiRanges]:
        """A connection and what the broker speaks; the same ones as before if it still holds.

        Raises ``BrokerUnreachable``, ``RemoteProtocolError``, ``KafkaException``.
        """
        known = self._open.get((host, port))
        if known is not None:
            return known
        connection = self._connect(
            host, port, client_id=self._client_id, connect_timeout_ms=CONNECT_TIMEOUT_MS
        )
        try:
            made = connection, negotiate(connection, REQUEST_TIMEOUT_MS)
        except BaseException:
            connection.close()
            raise
        self._open[host, port] = made
        return made

    def ask(self, broker: BrokerAddress, question: Callable[[Connection, ApiRanges], T]) -> T:
        """Ask one broker; a connection that broke meanwhile is made anew, once.

        Raises ``BrokerUnreachable``, ``RemoteProtocolError``, ``KafkaException``.
        """
        was_open = (broker.host, broker.port) in self._open
        try:
            return question(*self.at(broker.host, broker.port))
        except (BrokerUnreachable, RemoteProtocolError):
            self.forget(broker.host, broker.port)
            if not was_open:
                raise
        try:
            return question(*self.at(broker.host, broker.port))
        except (BrokerUnreachable, RemoteProtocolError):
            self.forget(broker.host, broker.port)
            raise

    def ask_any(self, question: Callable[[Connection, ApiRanges], T]) -> T:
        """Ask the registered brokers until one answers.

        Raises ``BrokerUnreachable`` when none does within ``SEARCH_TIMEOUT_MS`` or none is registered.
        """
        brokers = self._find()
        if not brokers:
            raise BrokerUnreachable(self._nobody)
        give_up_ms = self._clock.now_ms() + SEARCH_TIMEOUT_MS
        trouble = ""
        tried = 0
        for broker in sorted(brokers, key=lambda each: (each.host, each.port) not in self._open):
            if tried and self._clock.now_ms() >= give_up_ms:
                break
            tried += 1
            try:
                return self.ask(broker, question)
            except PeerTrouble as error:
                trouble = str(error)
        among = str(tried) if tried == len(brokers) else f"the first {tried} of {len(brokers)}"
        raise BrokerUnreachable(f"none of {among} brokers answers; the last one: {trouble}")

    def all(self) -> list[BrokerAddress]:
        """The registered brokers, by id.  Raises ``WorldError`` when ZooKeeper does not tell."""
        return sorted(self._find())

    def leaders(self, topics: Collection[str] | None) -> Leaders:
        """Who leads the partitions of these topics (None: of all).

        Ask for topics that exist: a broker before 0.11 may create what it is asked for.  Raises ``BrokerUnreachable``
        when no broker answers.
        """
        if topics is not None and not topics:
            return Leaders({}, {}, {})
        return self.ask_any(lambda connection, ranges: fetch_leaders(connection, ranges, topics, REQUEST_TIMEOUT_MS))

    def close(self) -> None:
        """Close every connection."""
        for connection, _ in self._open.values():
            connection.close()
        self._open.clear()

    def forget(self, host: str, port: int) -> None:
        """End the connection to a broker; the next question opens another and negotiates again."""
        known = self._open.pop((host, port), None)
        if known is not None:
            known[0].close()
