"""``KafkaStream`` and its one iterator, which deliver records to the program.

                       next, has_next, peek
   NOT_READY -> READING ---------------------> a record is decoded --next--> NOT_READY
       ^   |     |  a timeout, a message that      |
       |   |     |  cannot be delivered            +-- the partition is revoked: its prefetched record is dropped
       +---|-----+
       |   +-- an exception of a signal handler: the next call reads on at the first record that was not delivered
       |
       +------------> FAILED (permanently): the connector could not continue
       +------------> DONE (permanently): the connector is closed

A message that cannot be delivered (a *poison* message: corrupt, of an unknown codec, too large) raises an error each
time the iterator reaches it, until the program skips it with ``skip_poison``.  (In the Scala consumer it ends the
iterator.)

The consumed offset advances when the iterating thread asks for the next record, so that an automatic commit never
includes a record that the program has not processed.  (The Scala consumer advances it when ``next`` returns.)
``kafka.record_delivery`` defines this, also for exceptions of signal handlers, which may occur at any bytecode.

Before each delivery two conditions are checked, in this order: the member still owns the partition, and the lease is
valid (by the clock, so that a process that was paused delivers no records of an expired session).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from zkconsumer.errors import UsageError
from zkconsumer.kafka import table_delivery
from zkconsumer.kafka.chunk_reader import PoisonMessage
from zkconsumer.kafka.record_batch import RECORD_BATCH_BYTES_MAX, RECORD_BATCH_RECORDS_MAX, RecordBatch
from zkconsumer.kafka.record_delivery import RecordDelivery, RecordIterator
from zkconsumer.kafka.record_delivery import calling_thread as _calling_thread

if TYPE_CHECKING:
    from zkconsumer.base.delivery_lease import Lease
    from zkconsumer.kafka.chunks import ChunkQueue, PartitionTopicInfo
    from zkconsumer.wire.records import Record

__all__ = [
    "ConsumerIterator",
    "Decoder",
    "DeliveringIterator",
    "KafkaStream",
    "MessageAndMetadata",
    "RecordBatch",
    "calling_thread",
    "default_decoder",
    "string_decoder",
]

K = TypeVar("K")
V = TypeVar("V")
Decoder = Callable[[bytes], Any]


def default_decoder(data: bytes) -> bytes:
    """The unchanged bytes (``kafka.serializer.DefaultDecoder``)."""
    return data


def string_decoder(data: bytes) -> str:
    """UTF-8 text (``kafka.serializer.StringDecoder``)."""
    return data.decode("utf-8")


class MessageAndMetadata(Generic[K, V]):
    """One record.  ``key`` and ``value`` are decoded on each access, and None stays None (a tombstone).

    ``timestamp``: ms since 1970, -1 in message format 0.  ``headers``: name and bytes, from format 2 on.
    The access raises the error of a decoder; the iterator is not affected (0.8.1 and later).
    """

    __slots__ = ("_key_decoder", "_record", "_value_decoder", "offset", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        record: Record,
        key_decoder: Decoder | None = None,
        value_decoder: Decoder | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = record.offset
        self._record = record
        self._key_decoder: Decoder = key_decoder or default_decoder
        self._value_decoder: Decoder = value_decoder or default_decoder

    def __reduce__(self) -> tuple[Any, ...]:
        decoders = [None if each is default_decoder else each for each in (self._key_decoder, self._value_decoder)]
        return MessageAndMetadata, (self.topic, self.partition, self._record, *decoders)

    @property
    def key(self) -> K | None:
        raw = self._record.key
        return None if raw is None else self._key_decoder(raw)

    @property
    def value(self) -> V | None:
        raw = self._record.value
        return None if raw is None else self._value_decoder(raw)

    @property
    def timestamp(self) -> int:
        return self._record.timestamp

    @property
    def timestamp_type(self) -> int:
        return self._record.timestamp_type

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return self._record.headers

    def __repr__(self) -> str:
        return f"MessageAndMetadata({self.topic}/{self.partition} offset {self.offset})"


if table_delivery.AVAILABLE and not TYPE_CHECKING:
    MessageAndMetadata = table_delivery._delivery.MessageAndMetadata
    DeliveringIterator = table_delivery.TableIterator
    calling_thread = table_delivery._delivery.calling_thread
else:
    DeliveringIterator = RecordIterator
    calling_thread = _calling_thread


def _new_delivery(
    queue: ChunkQueue, lease: Lease, timeout_ms: int, key_decoder: Decoder, value_decoder: Decoder
) -> RecordDelivery:
    """The compiled delivery, or the one in Python."""
    if table_delivery.AVAILABLE and not TYPE_CHECKING:
        decoders = [None if each is default_decoder else each for each in (key_decoder, value_decoder)]
        return table_delivery.TableDelivery(queue, lease, timeout_ms, *decoders)
    return RecordDelivery(
        queue, lease, timeout_ms, make=MessageAndMetadata, key_decoder=key_decoder, value_decoder=value_decoder
    )


class ConsumerIterator(DeliveringIterator[MessageAndMetadata[K, V]], Generic[K, V]):
    """The iterator of one stream; only one thread at a time may call it (``UsageError`` for a second one).

    Raises ``ConsumerTimeoutException`` when no record arrives within ``consumer.timeout.ms``, and
    ``InvalidMessageException``, ``MessageSizeTooLargeException`` and ``UnsupportedCodec`` for a message that cannot be
    delivered: the text and ``poison`` have its topic, partition and offset, and ``skip_poison`` skips it.  After these
    errors the iteration may continue.  ``ThreadFailedError``, ``MigrationError`` and ``ConsumerIdInUse`` mean that the
    connector could not continue.  ``StopIteration``: the connector is closed.

    An exception of a signal handler (Ctrl-C, an alarm) may end any call, and the iteration may continue after it: a
    record that the program did not receive is delivered again, and does not count as consumed.
    """

    def __new__(
        cls, queue: ChunkQueue, lease: Lease, timeout_ms: int, key_decoder: Decoder, value_decoder: Decoder
    ) -> Self:
        return super().__new__(cls, _new_delivery(queue, lease, timeout_ms, key_decoder, value_decoder))

    def has_next(self) -> bool:
        """Whether a record can be delivered; waits for one, at most ``consumer.timeout.ms``."""
        return self.delivery.peek(False) is not None

    def peek(self) -> MessageAndMetadata[K, V] | None:
        """The record that ``next`` returns, or None at the end; it may be another if its partition is revoked."""
        found: MessageAndMetadata[K, V] | None = self.delivery.peek(True)
        return found

    @property
    def poison(self) -> PoisonMessage | None:
        """The message that cannot be delivered, after its error was raised; else None."""
        return self.delivery.poison

    def skip_poison(self) -> PoisonMessage | None:
        """Skip the message that the last call could not deliver: it counts as consumed and is not delivered again.

        Returns the skipped message; None if its partition was revoked meanwhile (its next owner reaches the message).
        Raises ``UsageError`` if no such error was raised.
        """
        return self.delivery.skip_poison()

    def clear_current_chunk(self) -> None:
        """Discard prefetched records; undelivered records of partitions that we still own are delivered again."""
        self.delivery.clear_current_chunk()

    def acknowledge(self) -> None:
        """Count the delivered record as consumed, as a call for the next one does (for ``close`` in this thread)."""
        self.delivery.acknowledge()

    def undeliver(self) -> None:
        """Count the delivered record as not consumed: it is delivered again, here or at another member."""
        self.delivery.undeliver()

    def fail(self, error: BaseException) -> None:
        """Raise this error from now on; takes no lock, so that it can be called in a forked child."""
        self.delivery.fail(error)

    def unacknowledged_position(self) -> tuple[PartitionTopicInfo, int] | None:
        """The ownership and next offset of the unacknowledged record; None without one, or if it was revoked."""
        return self.delivery.unacknowledged_position()

    @property
    def thread_id(self) -> int:
        """The number (``calling_thread``) of the thread that called last; 0: no call yet."""
        return self.delivery.thread_id

    @property
    def delivered_at_ms(self) -> int | None:
        """When the last record was delivered, in ms of the lease's clock; None: no record yet."""
        return self.delivery.delivered_at_ms


class KafkaStream(Generic[K, V]):
    """The messages for one thread of the program; ``iterator()`` returns the same iterator every time."""

    def __init__(
        self,
        thread: str,
        queue: ChunkQueue,
        lease: Lease,
        *,
        timeout_ms: int,
        key_decoder: Decoder = default_decoder,
        value_decoder: Decoder = default_decoder,
    ) -> None:
        self.thread = thread
        self.queue = queue
        self._key_decoder = key_decoder
        self._value_decoder = value_decoder
        self._iterator: ConsumerIterator[K, V] = ConsumerIterator(queue, lease, timeout_ms, key_decoder, value_decoder)

    def iterator(self) -> ConsumerIterator[K, V]:
        """The stream's one iterator."""
        return self._iterator

    def __iter__(self) -> ConsumerIterator[K, V]:
        return self._iterator

    def batches(
        self, max_records: int = RECORD_BATCH_RECORDS_MAX, max_bytes: int = RECORD_BATCH_BYTES_MAX
    ) -> Iterator[RecordBatch]:
        """Iterate over batches of records: one object for many records of one partition.

        A batch has at most ``max_records`` records, whose keys and values have at most ``max_bytes`` bytes (one record
        may be larger), and is often smaller: it ends where a chunk, or a batch of the log, ends.  It counts as consumed
        when the program asks for more; see ``RecordBatch``.  Ownership and lease are checked at its delivery.
        ``next`` and ``batches`` may be mixed: each continues at the position of the other.

        Raises the errors of the iterator: a message that cannot be delivered ends the batch before it, and the next
        call raises its error.  ``UsageError`` for limits below 1.
        """
        if max_records < 1 or max_bytes < 1:
            raise UsageError(f"batches(max_records={max_records}, max_bytes={max_bytes}): both must be 1 or more")
        return self._iterator.delivery.batches(max_records, max_bytes, self._make_message)

    def _make_message(self, topic: str, partition: int, record: Record) -> MessageAndMetadata[K, V]:
        return MessageAndMetadata(topic, partition, record, self._key_decoder, self._value_decoder)

    def clear(self) -> None:
        """Drop the chunk that is being read (the Scala consumer does so in rebalances; ours only stop revoked ones)."""
        self._iterator.clear_current_chunk()

    def __repr__(self) -> str:
        return f"{self.thread} kafka stream"
