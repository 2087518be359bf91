"""The few values that everything else speaks of.  Pure.

What may live here: small immutable values without behaviour, and the Protocols that let a lower layer call an
upper one (hooks).  What may not: anything with a life of its own.
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
    """Where a broker listens: its id (-1: not known yet), and host and port of one of its listeners."""

    broker_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.broker_id})"


class Hooks:
    """What a program may be told of its member, for its own alerts: override what you need, and give an object of your
    class to the connector.

    The calls come in their order on a thread of their own, after the fact; they are for telling others, not for
    deciding anything (a rebalance listener is asked beforehand).  When one is slow those behind it wait, and when too
    many wait they are dropped and counted.  What one raises is logged once, and harms nobody.
    """

    def session_connected(self, session_id: int, timeout_ms: int) -> None:
        """ZooKeeper answers, in this session, with this negotiated time-out; also after a short disconnect."""

    def session_suspended(self) -> None:
        """The connection to ZooKeeper broke; the session may still live."""

    def session_lost(self, session_id: int) -> None:
        """The session expired, and with it everything that was held; ``partitions_lost`` names it."""

    def assignment_complete(self, assignment: dict[TopicPartition, str]) -> None:
        """Everything that falls to this member is read: partition -> thread id.  When it changed, or came back."""

    def partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """These were given back while they were this member's; ``commit_completed`` says what was committed of them."""

    def partitions_lost(self, partitions: tuple[TopicPartition, ...], why: str) -> None:
        """These are lost, and were not given back: what was read since the last commit comes again.

        ``why``: the session, the group, or the error that ended the member.
        """

    def drain_timed_out(self, partitions: tuple[TopicPartition, ...]) -> None:
        """The program did not come back in time for these: its message in hand comes again."""

    def commit_completed(
        self, store: str, written: dict[TopicPartition, int], refused: dict[TopicPartition, str]
    ) -> None:
        """``zookeeper`` or ``kafka`` answered a commit: next offsets that were written, and why others were not."""

    def offset_reset(self, partition: TopicPartition, stored: int, offset: int) -> None:
        """The stored offset was out of range at the broker, and ``auto.offset.reset`` chose another."""

    def offset_rewound(self, partition: TopicPartition, found: int, written: int) -> None:
        """Somebody who does not own the partition had stored a smaller offset; ours was written again."""

    def fetch_failed(self, broker: BrokerAddress, partitions: tuple[TopicPartition, ...], why: str) -> None:
        """A broker cannot be asked, or, with ``partitions``, some of what it leads cannot be read; once a reason."""

    def poison_record_found(self, partition: TopicPartition, why: str) -> None:
        """A stream has met a message that it cannot hand out; its iterator raises the error as well."""

    def thread_died(self, name: str, error: BaseException) -> None:
        """A thread of the connector ended by an error, and every stream with it."""

    def member_failed(self, error: Exception) -> None:
        """The member cannot go on (``MigrationError``, ``ConsumerIdInUse`` …); every stream raises this."""

    def warning_logged(self, level: str, event: str, words: str) -> None:
        """The group logged this at WARNING or above: the event names of the log lines, for whatever has no hook."""


class RecordSetPosition:
    """How far the records of one record set were read; a second reading of the same record set continues there.

    ``at``: the position of a batch in the record set, and of the next record in the batch's body; how many of its
    records come before; the offset of the last of those.  None: begin at the beginning.
    """

    __slots__ = ("cursor",)

    def __init__(self) -> None:
        self.cursor: tuple[int, int, int, int] | None = None


class RecordCounter:
    """A count that one thread raises without a lock, and that others read.

    ``place``: where the reader of a record set notes how far it is, for a reader that may be interrupted; a new one for
    each record set.  None: it notes nothing.  ``expanded_bytes``: what the entry that is read was decompressed to; 0:
    it is not compressed.
    """

    __slots__ = ("count", "expanded_bytes", "position")

    def __init__(self) -> None:
        self.count = 0
        self.expanded_bytes = 0
        self.position: RecordSetPosition | None = None


EARLIEST_TIME = -2
LATEST_TIME = -1
"""The two times that ListOffsets understands besides milliseconds (Kafka 0.8)."""
