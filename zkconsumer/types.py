"""Small values that all packages use.  Pure.

This module has small values without behaviour, counters, and the interface through which a lower layer calls an upper
one (``Hooks``).  Nothing in it has threads or I/O.
"""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as ``topic/partition``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class BrokerAddress(NamedTuple):
    """The address of a broker: its id (-1: not known yet), and host and port of one of its listeners."""

    broker_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.broker_id})"


class Hooks:
    """Callbacks for events of a member, for alerts: override what you need, and pass an object of your class to the
    connector.

    The calls are made in order, on a separate thread, after the event; so they cannot influence it (a rebalance
    listener is called before).  A slow call delays the later ones; when too many wait, further calls are dropped and
    counted.  An exception is logged once for each hook, and has no other effect.
    """

    def session_connected(self, session_id: int, timeout_ms: int) -> None:
        """ZooKeeper is connected, in this session, with this negotiated timeout; also after a short disconnect."""

    def session_suspended(self) -> None:
        """The connection to ZooKeeper broke; the session may still live."""

    def session_lost(self, session_id: int) -> None:
        """The session expired, and the member lost all partitions; ``partitions_lost`` names them."""

    def assignment_complete(self, assignment: dict[TopicPartition, str]) -> None:
        """The member owns its whole assignment: partition -> thread id.  Called when that changes or is regained."""

    def partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """The member released these partitions; ``commit_completed`` reports what was committed for them."""

    def partitions_lost(self, partitions: tuple[TopicPartition, ...], why: str) -> None:
        """The member lost these without a release: records read since the last commit are delivered again.

        ``why``: the session, the group, or the error that ended the member.
        """

    def drain_timed_out(self, partitions: tuple[TopicPartition, ...]) -> None:
        """The program did not acknowledge a record of these in time: that record is delivered again."""

    def commit_completed(
        self, store: str, written: dict[TopicPartition, int], refused: dict[TopicPartition, str]
    ) -> None:
        """``zookeeper`` or ``kafka`` answered a commit: the next offsets that were written, and why others were not."""

    def offset_reset(self, partition: TopicPartition, stored: int, offset: int) -> None:
        """The stored offset was out of range at the broker, and ``auto.offset.reset`` chose another."""

    def offset_rewound(self, partition: TopicPartition, found: int, written: int) -> None:
        """A client that does not own the partition had stored a smaller offset; ours was written again."""

    def fetch_failed(self, broker: BrokerAddress, partitions: tuple[TopicPartition, ...], why: str) -> None:
        """A broker is unavailable, or (with ``partitions``) some of its partitions cannot be read; once per reason."""

    def poison_record_found(self, partition: TopicPartition, why: str) -> None:
        """A stream cannot deliver a message; its iterator raises the error, too."""

    def thread_died(self, name: str, error: BaseException) -> None:
        """A thread of the connector ended with an error; every stream ends, too."""

    def member_failed(self, error: Exception) -> None:
        """The member cannot continue (``MigrationError``, ``ConsumerIdInUse`` …); every stream raises this."""

    def warning_logged(self, level: str, event: str, words: str) -> None:
        """The member logged this at WARNING or above: event name and text, for events without another hook."""


class RecordSetPosition:
    """How far the records of one record set were read; a second read of the same record set continues there.

    ``cursor``: (byte position of the batch in the record set, byte position of the next record in the batch's body,
    number of records of the batch before it, offset of the last of these).  None: start at the beginning.
    """

    __slots__ = ("cursor",)

    def __init__(self) -> None:
        self.cursor: tuple[int, int, int, int] | None = None


class RecordCounter:
    """A counter that one thread increments without a lock, and that other threads read.

    ``position``: the object in which a reader that may be interrupted stores its progress; a new one for each record
    set.  None: the reader stores no progress.  ``expanded_bytes``: the decompressed size of the entry that is being
    read; 0: it is not compressed.
    """

    __slots__ = ("count", "expanded_bytes", "position")

    def __init__(self) -> None:
        self.count = 0
        self.expanded_bytes = 0
        self.position: RecordSetPosition | None = None


EARLIEST_TIME = -2
LATEST_TIME = -1
"""The two special times of ListOffsets, besides milliseconds (Kafka 0.8)."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""Kafka's own topics.  Members up to 0.10.2 only exclude the first; brokers have the second from 0.11 on."""
