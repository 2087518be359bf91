"""``ConsumerFetcherThread``: one thread for each broker (and fetcher number) that reads all its partitions.

    partitions that have room --Fetch--> broker --record sets--> chunks --offer--> the streams' queues
             ^                                        |
             '------------ next offsets --------------'

The next request is sent as soon as the headers of the record sets have given the next offsets, before the chunks are
put into the queues.  At the end of the logs it is sent a moment later (``fetch.pause.ms``): a round costs as much for
one small batch as for several.

A full queue stops only its own partitions: it still accepts the chunks that were requested before (at most two
responses' worth), and its partitions are not in the next request, which then waits only shortly at the broker.  (The
Scala consumer blocks the whole thread, with a lock held, until the slowest stream has read on.)

All fetchers of a connector share a budget of bytes (``byte_budget``).  If it is used up, a fetcher requests only one
chunk for each stream that has nothing to read, so a slow stream never stops another one.

An error of one partition never stops the others, except a missing position with ``auto.offset.reset=none``: only a
program or an operator can set one, so it ends the member (as the exception of ``poll`` does in Java's consumer).

From Fetch 3 on (0.10.1) a broker returns a message larger than ``fetch.message.max.bytes`` whole.  Older brokers return
only its beginning.  It is then requested once more, with as many bytes as its header says, up to
``LARGE_MESSAGE_BYTES_MAX``.  If it is larger than that, its beginning is put into the queue, the stream raises an error
for it, and it is not requested again before the stream has skipped it.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zkconsumer.base.wakeup import WakeUp
from zkconsumer.errors import (
    ConnectorClosed,
    InvalidMessageException,
    KafkaException,
    RemoteProtocolError,
    UnsupportedCodec,
)
from zkconsumer.kafka.broker_connection import BROKER_ERRORS
from zkconsumer.kafka.byte_budget import ByteBudget, retained_bytes
from zkconsumer.kafka.chunks import INVALID_OFFSET, FetchedDataChunk, LastResponseTime, PartitionTopicInfo
from zkconsumer.kafka.error_codes import (
    LEADER_NOT_AVAILABLE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode,
    error_code,
)
from zkconsumer.kafka.fetch.fetch_requests import FetchLimits, fetch_body
from zkconsumer.kafka.fetch.fetch_session import FetchSessionHandler
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.fetch.position_errors import missing_position_error
from zkconsumer.kafka.metadata_client import list_offsets
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.member.ownership import BEGINNING
from zkconsumer.types import EARLIEST_TIME, BrokerAddress, TopicPartition
from zkconsumer.wire.entries import read_entry_header
from zkconsumer.wire.fetch_codec import (
    CORRUPT_HEADERS,
    FAST_FETCH,
    TOPIC_NAMES_VERSION_MAX,
    FetchedPartition,
    FetchResponseBody,
    partition_encoder,
)
from zkconsumer.wire.isolation_level import READ_COMMITTED, READ_UNCOMMITTED
from zkconsumer.wire.records import RecordSetScan, scan_record_set
from zkconsumer.wire.request_frames import RESPONSE_BYTES_MAX
from zkconsumer.wire.schemas import FETCH
from zkconsumer.wire.schemas.fetch import RESPONSE_BYTES_UNLIMITED
from zkconsumer.wire.transactions import aborted_batches, read_aborted_transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from zkconsumer.base.clock import Clock
    from zkconsumer.base.threads import StopSignal
    from zkconsumer.errors import UsageError
    from zkconsumer.kafka.broker_connection import Connection, ConnectionFactory, PendingRequest
    from zkconsumer.kafka.chunks import ChunkQueue
    from zkconsumer.kafka.supported_versions import SupportedVersions
    from zkconsumer.observe.fetch_metrics import FetchMetrics
    from zkconsumer.wire.primitives import RecordSet

FULL_QUEUE_WAIT_MS = 20
"""How long a request may wait at the broker while a partition is omitted because its queue is full."""

MAX_BYTES_FROM = 3
"""The version of Fetch from which a request has a limit for the whole response (0.10.1, KIP-74)."""

IDLE_WAIT_MS = 1_000
"""How long to wait for room in a queue, or for a partition, before the next check."""

BUDGET_WAIT_MS = 100
"""How long to wait for room in the budget before the next check; a stream that takes its next chunk ends the wait."""

PAUSE_BYTES_MAX = 64 * 1024
"""After a response with more than this many bytes of records there is no pause: a round costs little in comparison, and
records beyond its limit may wait at the broker."""

COPY_BELOW_FRACTION = 4
"""If there are several streams, a record set that is a smaller part of its response than this is copied, because
it would keep the whole response in memory while it is in the queue.  A single stream reads a response to its end."""

log = logging.getLogger("zkconsumer.fetcher")

LEADER_MOVED_ERRORS = frozenset(
    str(error) for error in (UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER)
)
"""A broker's errors for a partition that moved to another leader or was deleted; not logged as warnings."""

LARGE_MESSAGE_BYTES_MAX = RESPONSE_BYTES_MAX
"""The largest message that is fetched although it is larger than ``fetch.message.max.bytes``: by how much a response
may exceed the requested size."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The settings for fetching; bytes and ms."""

    client_id: str
    partition_max_bytes: int = 1024 * 1024
    max_bytes: int = RESPONSE_BYTES_UNLIMITED
    queued_max_bytes: int = 100 * 1024 * 1024
    min_bytes: int = 1
    max_wait_ms: int = 100
    pause_ms: int = 0
    socket_timeout_ms: int = 30_000
    receive_buffer_bytes: int = 64 * 1024
    backoff_ms: int = 200
    reset: OffsetResetStrategy = OffsetResetStrategy.LATEST
    isolation_level: int = READ_UNCOMMITTED
    large_message_bytes_max: int = LARGE_MESSAGE_BYTES_MAX

    def partitions_max(self, version: int, room: int) -> int:
        """How many partitions one request may have, so that the response has at most ``room`` bytes, or one chunk.

        From Fetch 3 on (0.10.1) the broker itself obeys a limit for the response.
        """
        if version >= MAX_BYTES_FROM:
            return RESPONSE_BYTES_UNLIMITED
        return max(1, room // self.partition_max_bytes)

    def response_bytes_max(self, partitions: int) -> int:
        """The longest accepted response: the requested bytes, and one message larger than that."""
        return min(RESPONSE_BYTES_UNLIMITED, partitions * self.partition_max_bytes + RESPONSE_BYTES_MAX)


@dataclass(slots=True, eq=False)
class _PartitionFetchState:
    """One partition that is read here.

    ``asked_offset``: the offset in the last request; -1: the partition is not in it.  ``bytes_max``: how many of its
    bytes are requested, if it differs from the setting.
    """

    info: PartitionTopicInfo
    asked_offset: int = INVALID_OFFSET
    bytes_max: int | None = None


@dataclass(slots=True)
class _QueuePartitions:
    """The partitions here whose chunks go into one queue.  ``is_full``: they are not requested."""

    partitions: dict[TopicPartition, _PartitionFetchState]
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class _InFlightFetch:
    """A request without a response."""

    pending: PendingRequest[FetchResponseBody]
    timeout_ms: int
    response_bytes_max: int
    sent_at_ms: int


class ConsumerFetcherThread:
    """Reads the partitions that one broker leads.  Every public method may be called from any thread.

    A round: receive a response, advance the fetch offsets beyond its records, send the next request, and then put the
    chunks into the queues.  So the broker works while the streams receive chunks.  The cost of a round depends on its
    partitions, not on all partitions of this thread: the set to request (``_fetchable``) is kept, and updated for
    partitions that may have changed (``_to_recheck``, and those of queues that became full or have room again).
    Brokers from 1.1 on keep this set too, as a fetch session: then requests and responses contain only changes.

    Attributes without another comment are used only by the thread itself.  ``_partitions`` is changed by it alone and
    under ``_lock``, and ``_added`` by any thread under ``_lock``; any thread sets ``_has_changes`` after its change.
    """

    def __init__(
        self,
        broker: BrokerAddress,
        settings: FetchSettings,
        connect: ConnectionFactory,
        *,
        clock: Clock,
        on_leaderless: Callable[[Iterable[PartitionTopicInfo]], None],
        on_reset: Callable[[PartitionTopicInfo, int], None],
        on_position_missing: Callable[[UsageError], None],
        on_round: Callable[[BrokerAddress, Exception | None], None],
        metrics: FetchMetrics,
        budget: ByteBudget,
        on_trouble: Callable[[BrokerAddress, tuple[TopicPartition, ...], str], None],
        on_topics_refused: Callable[[Mapping[str, ErrorCode]], None],
    ) -> None:
        self._on_trouble = on_trouble
        self._on_topics_refused = on_topics_refused
        self.broker = broker
        self.metrics = metrics
        self._settings = settings
        self._connect = connect
        self._clock = clock
        self._on_leaderless = on_leaderless
        self._on_reset = on_reset
        self._on_position_missing = on_position_missing
        self._on_round = on_round
        self._lock = threading.Lock()
        self._wake_up = WakeUp()
        self._added: list[PartitionTopicInfo] = []
        self._has_changes = False
        self._partitions: dict[TopicPartition, _PartitionFetchState] = {}
        self._queues: dict[ChunkQueue, _QueuePartitions] = {}
        self._to_recheck: dict[TopicPartition, _PartitionFetchState] = {}
        self._fetchable: dict[TopicPartition, _PartitionFetchState] = {}
        """The partitions to request.  All of them are in a queue's partitions, and their queue has room."""
        self._changed: dict[TopicPartition, None] = {}
        """Partitions whose row in ``_session`` may differ from ``_fetchable``."""
        self._session: FetchSessionHandler[bytes] = FetchSessionHandler()
        self._version = -1
        """The version of Fetch in which the rows in ``_session`` are encoded."""
        self._encode_row = partition_encoder(0)
        self._last_response = LastResponseTime()
        self._first_requested: list[_PartitionFetchState] = []
        """Partitions for which the next response is the first one."""
        self._high_watermarks: dict[TopicPartition, int] = {}
        """The last high watermarks of the session's partitions: a broker does not repeat them to a later ownership."""
        self._without_offset: dict[TopicPartition, _PartitionFetchState] = {}
        """Partitions that would be requested but have no fetch offset."""
        self._paused_until: dict[TopicPartition, int] = {}
        self._too_large_at: dict[TopicPartition, int] = {}
        self._raised_fetch_size: dict[TopicPartition, _PartitionFetchState] = {}
        """Partitions with a raised ``bytes_max``.  Only the first one that can be requested is, so that the response
        keeps to its limit."""
        self._logged_errors: dict[TopicPartition, str] = {}
        self._errors_to_log: dict[str, list[TopicPartition]] = {}
        self._budget = budget
        self._reservation = budget.add_reservation()
        """Its ``pending_chunks`` are the received chunks that are not in their queue yet, in order."""
        self._waits_for_budget = False
        """There are partitions to request, but no room in the budget."""
        self._in_flight: _InFlightFetch | None = None
        self._connection: Connection | None = None
        self._ranges: SupportedVersions | None = None

    # --- from outside -------------------------------------------------------------------------------------------

    def add(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Read these partitions too, from their fetch offsets on."""
        with self._lock:
            self._added += infos
        self.wake()

    def wake(self) -> None:
        """A partition was removed, or moved.  Takes no lock: the thread that iterates a stream calls it."""
        self._has_changes = True
        self._wake_up.set()

    def space_available(self) -> None:
        """A queue has room.  Takes no lock: the thread that iterates a stream calls it."""
        self._wake_up.set()

    def interrupt(self) -> None:
        """End a blocked read at once, because the thread must stop."""
        connection = self._connection
        if connection is not None:
            connection.close()
        self.wake()

    @property
    def is_idle(self) -> bool:
        """Whether this thread has no partitions left."""
        with self._lock:
            infos = [*self._added, *(reading.info for reading in self._partitions.values())]
        return not any(info.is_live for info in infos)

    # --- the loop -----------------------------------------------------------------------------------------------

    def run(self, stop: StopSignal) -> None:
        """Fetch until stopped."""
        try:
            while True:
                self._wake_up.clear()  # before the stop signal and the partitions are checked: no change is missed
                if stop.is_set():
                    break
                if not self._round(stop):
                    self._wake_up.wait(self._idle_ms())
        finally:
            self._disconnect()
            self._budget.remove_reservation(self._reservation)
            with self._lock:
                for tp in list(self._partitions):
                    self._forget(tp)

    def _round(self, stop: StopSignal) -> bool:
        """Receive one response, and send the next request; False: there is nothing to request."""
        try:
            if self._in_flight is None and not self._send_fetch(stop):
                return False
            may_pause = self._handle_response() and self._settings.pause_ms > 0
            if not may_pause:
                self._send_fetch(stop)
            self._enqueue_chunks()
            if may_pause:
                self._wake_up.wait(self._settings.pause_ms)
        except ConnectorClosed:
            return True
        except BROKER_ERRORS as error:
            self._disconnect()
            if not stop.is_set():
                self._on_round(self.broker, error)
                self._release_partitions(
                    [reading.info for reading in (*self._fetchable.values(), *self._without_offset.values())]
                )
                stop.wait(self._settings.backoff_ms)
        finally:
            self._log_errors()
        return True

    def _idle_ms(self) -> int:
        """How long to wait for ``wake``: until the pause of the first partition ends."""
        pauses = self._paused_until.values()
        next_ms = min(pauses) - self._clock.now_ms() if pauses else IDLE_WAIT_MS
        return max(1, min(BUDGET_WAIT_MS if self._waits_for_budget else IDLE_WAIT_MS, next_ms))

    # --- what to ask for ----------------------------------------------------------------------------------------

    def _update_fetchable(self) -> bool:
        """Update ``_fetchable`` and ``_without_offset``; False: there is nothing to request."""
        if self._has_changes:
            self._apply_changes()
        full = {queue for queue in self._queues if not queue.check_space()}
        if len(full) == len(self._queues):
            # ``_fetchable`` stays unchanged: with one stream its partitions would be removed and added at every other
            # check.
            return False
        for queue, group in self._queues.items():
            is_full = queue in full
            if is_full != group.is_full:
                group.is_full = is_full
                self._to_recheck.update(group.partitions)
        if self._paused_until:
            now_ms = self._clock.now_ms()
            for tp in [tp for tp, until_ms in self._paused_until.items() if until_ms <= now_ms]:
                del self._paused_until[tp]
                self._mark_changed(tp)
        for tp, offset in list(self._too_large_at.items()):
            if self._partitions[tp].info.fetch_offset != offset:
                del self._too_large_at[tp]
                self._mark_changed(tp)
        self._update_changed()
        return bool(self._fetchable or self._without_offset)

    def _update_changed(self) -> None:
        touched, self._to_recheck = self._to_recheck, {}
        if not self._raised_fetch_size.keys().isdisjoint(touched):
            touched |= self._raised_fetch_size  # which of them is requested may have changed
        for tp, reading in touched.items():
            self._update_partition(tp, reading)

    def _mark_changed(self, tp: TopicPartition) -> None:
        self._to_recheck[tp] = self._partitions[tp]

    def _update_partition(self, tp: TopicPartition, reading: _PartitionFetchState) -> None:
        """Decide whether to request this partition."""
        if self._partitions.get(tp) is not reading:
            return
        self._changed[tp] = None
        is_left_out = not self._may_be_requested(tp, reading)
        if not is_left_out and tp in self._raised_fetch_size:
            raised = self._raised_fetch_size.items()
            is_left_out = tp != next(each for each, other in raised if self._may_be_requested(each, other))
        is_placed = reading.info.fetch_offset >= 0
        _set_membership_in(self._without_offset, tp, reading, is_in=not is_left_out and not is_placed)
        _set_membership_in(self._fetchable, tp, reading, is_in=not is_left_out and is_placed)

    def _may_be_requested(self, tp: TopicPartition, reading: _PartitionFetchState) -> bool:
        """Whether this partition does not wait for a time, for its stream, or for the program."""
        is_waiting = tp in self._paused_until or tp in self._too_large_at
        return not is_waiting and not self._queues[reading.info.queue].is_full

    def _apply_changes(self) -> None:
        """Add the new partitions, and remove those that have left."""
        self._has_changes = False
        with self._lock:
            added, self._added = self._added, []
            gone = [tp for tp, reading in self._partitions.items() if not reading.info.is_live]
            for tp in dict.fromkeys([*gone, *(info.tp for info in added)]):
                self._forget(tp)
            for info in added:
                if info.is_live:
                    reading = self._partitions[info.tp] = self._to_recheck[info.tp] = _PartitionFetchState(info)
                    self._queues.setdefault(info.queue, _QueuePartitions({})).partitions[info.tp] = reading

    def _forget(self, tp: TopicPartition) -> None:
        """Stop reading this partition; called with the lock held."""
        reading = self._partitions.pop(tp, None)
        if reading is None:
            return
        for kept in (self._to_recheck, self._fetchable, self._without_offset, self._paused_until, self._too_large_at):
            kept.pop(tp, None)
        self._changed[tp] = None
        reading.info.detach_response_time()
        self._restore_fetch_size(tp)
        group = self._queues[reading.info.queue]
        del group.partitions[tp]
        if not group.partitions:
            del self._queues[reading.info.queue]

    # --- requests -----------------------------------------------------------------------------------------------

    def _send_fetch(self, stop: StopSignal) -> bool:
        """Send the next request, if there is something to request."""
        self._waits_for_budget = False
        if not self._update_fetchable():
            self._budget.release(self._reservation)
            return False
        if self._without_offset:
            # This sends a request and waits for its response.
            self._enqueue_chunks()
            connection, ranges = self._connected(stop)
            self._reset(connection, ranges, list(self._without_offset.values()))
            if not self._update_fetchable():
                return False
        room = self._reserve_bytes()
        if not room:
            return False
        connection, ranges = self._connected(stop)
        settings, version = self._settings, ranges.pick(FETCH, TOPIC_NAMES_VERSION_MAX)
        self._encode_changes(version)
        partitions_max = settings.partitions_max(version, room)
        is_left_out = len(self._fetchable) > partitions_max or any(group.is_full for group in self._queues.values())
        max_wait_ms = min(settings.max_wait_ms, FULL_QUEUE_WAIT_MS) if is_left_out else settings.max_wait_ms
        asked = self._session.next_request(partitions_max)
        limits = FetchLimits(max_wait_ms, settings.min_bytes, room, settings.isolation_level)
        body = fetch_body(asked, asked.rows, limits)
        timeout_ms = settings.socket_timeout_ms + max_wait_ms
        sent_at_ms = self._clock.now_ms()
        pending = connection.send(FAST_FETCH, version, body, timeout_ms)
        bytes_max = settings.response_bytes_max(len(self._session.requested))
        self._in_flight = _InFlightFetch(pending, timeout_ms, bytes_max, sent_at_ms)
        return True

    def _reserve_bytes(self) -> int:
        """How many bytes the next response may have; 0: there is nothing to request, or no room for it."""
        settings, budget = self._settings, self._budget
        if not self._fetchable:
            budget.release(self._reservation)
            return 0
        room = budget.reserve(self._reservation, settings.partition_max_bytes, settings.max_bytes)
        if room:
            return room
        self._waits_for_budget = True
        coming = {chunk.info.queue for chunk in self._reservation.pending_chunks}
        busy = [queue for queue in self._queues if not queue.is_idle or queue in coming]
        if len(busy) == len(self._queues):
            self.metrics.record_deferred()
            return 0
        for queue in busy:
            group = self._queues[queue]
            if not group.is_full:
                # Until the next check.
                group.is_full = True
                self._to_recheck.update(group.partitions)
        self._update_changed()
        if not self._fetchable:
            self.metrics.record_deferred()
            return 0
        return budget.reserve_over_limit(self._reservation, min(settings.partition_max_bytes, settings.max_bytes))

    def _encode_changes(self, version: int) -> None:
        """Update ``_session``."""
        changed, self._changed = self._changed, {}
        if version != self._version:
            self._version, self._encode_row = version, partition_encoder(version)
            changed = dict.fromkeys([*changed, *self._fetchable])
        for tp in changed:
            reading = self._fetchable.get(tp)
            if reading is None:
                self._session.remove_partition(tp)
                self._high_watermarks.pop(tp, None)
                if tp in self._partitions:
                    self._partitions[tp].asked_offset = INVALID_OFFSET
                    self._partitions[tp].info.detach_response_time()
            else:
                offset = reading.asked_offset = reading.info.fetch_offset
                bytes_max = reading.bytes_max or self._settings.partition_max_bytes
                self._session.set_partition(tp, self._encode_row(tp.partition, offset, bytes_max))
                if reading.info.last_response is None:
                    self._first_requested.append(reading)

    # --- answers ------------------------------------------------------------------------------------------------

    def _handle_response(self) -> bool:
        """Wait for the response to the request in flight, and process it; then its chunks are in
        ``_reservation.pending_chunks``.

        Returns whether it had only a few records, and left none to read.
        """
        in_flight = self._in_flight
        assert in_flight is not None, "a request was sent"
        connection, _ = self._open_connection()
        answer = connection.receive(
            in_flight.pending, in_flight.timeout_ms, response_bytes_max=in_flight.response_bytes_max
        )
        self._in_flight = None
        asked = self._session.requested
        rows = self._session.partitions_of(answer)
        refused = self._session.handle_response(answer.error_code, answer.session_id, rows)
        if refused is not None:
            log.debug("fetch-session-ended broker=%s reason=%s: all partitions are named again", self.broker, refused)
            return False
        if answer.error_code != NONE.code:
            raise KafkaException(f"{self.broker}: Fetch was answered {error_code(answer.error_code)}")
        self._last_response.at_ms = self._clock.now_ms()
        records_bytes = sum(len(row.records) for row in rows.values() if row.records)
        self.metrics.record_response(
            self._last_response.at_ms - in_flight.sent_at_ms, records_bytes, answer.throttle_time_ms
        )
        if not self._session.is_open:
            self._rotate(asked, rows)
        begun, self._first_requested = self._first_requested, []
        for reading in begun:
            if self._fetchable.get(reading.info.tp) is reading:
                known = self._high_watermarks.get(reading.info.tp, INVALID_OFFSET)
                reading.info.attach_response_time(self._last_response, known)
        outcome = _ResponseSummary()
        for tp, row in rows.items():
            if tp not in asked:
                raise RemoteProtocolError(f"{self.broker}: Fetch was answered for {tp}, which was not asked for")
            reading = self._partitions[tp]
            info = reading.info
            if info.fetch_offset != reading.asked_offset:
                # The program skipped a message meanwhile.
                self._mark_changed(tp)
            elif info.is_live:
                self._process_partition(reading, row, outcome)
        self._reservation.reserved_bytes = 0
        self.metrics.record_queued(outcome.complete_bytes)
        if outcome.out_of_range:
            self._enqueue_chunks()
            self._reset(*self._open_connection(), outcome.out_of_range)
        if outcome.leaderless:
            self._release_partitions(outcome.leaderless)
        self._on_round(self.broker, None)
        return 0 < records_bytes <= PAUSE_BYTES_MAX and not outcome.has_more

    def _process_partition(
        self, reading: _PartitionFetchState, row: FetchedPartition, outcome: _ResponseSummary
    ) -> None:
        """Process one partition of a response."""
        info = reading.info
        if row.error_code == OFFSET_OUT_OF_RANGE.code:
            outcome.out_of_range.append(reading)
        elif row.error_code not in (NONE.code, UNSUPPORTED_COMPRESSION_TYPE.code):
            self._handle_partition_error(info, error_code(row.error_code))
            outcome.leaderless.append(info)
        elif row.error_code != NONE.code or row.records is None:
            self._pause(info, f"{error_code(row.error_code)}: the broker returned no record set; {NULL_RECORDS_ADVICE}")
        else:
            info.high_watermark = self._high_watermarks[info.tp] = self._readable_end(row)
            if row.records:
                self._process_records(reading, row, row.records, outcome)

    def _process_records(
        self, reading: _PartitionFetchState, row: FetchedPartition, records: RecordSet, outcome: _ResponseSummary
    ) -> None:
        info = reading.info
        offset = info.fetch_offset
        found: FetchedPartition | RecordSetScan = row
        try:
            if row.entries == CORRUPT_HEADERS:
                found = scan_record_set(records)
            if found.entries and found.next_offset <= offset:
                raise InvalidMessageException(f"the record set ends at {found.next_offset}, before the fetch offset")
        except (InvalidMessageException, UnsupportedCodec) as error:
            self._pause(info, f"corrupt record set at fetch offset {offset}: {error}")
            return
        self._logged_errors.pop(info.tp, None)
        if not found.entries and self._raise_fetch_size(reading, records):
            return
        self._restore_fetch_size(info.tp)
        if len(self._queues) > 1 and len(records) * COPY_BELOW_FRACTION < retained_bytes([records]):
            records = bytes(records)
        next_offset = found.next_offset if found.entries else offset
        excluded = tuple(aborted_batches(records, read_aborted_transactions(row.aborted))) if row.aborted else ()
        chunk = FetchedDataChunk(records, info, offset, next_offset, found.complete_bytes, info.resets, excluded)
        if found.entries:
            info.fetch_offset = next_offset
        else:
            # Larger than any allowed size: the stream raises it, and another request would return the same part.
            self._too_large_at[info.tp] = offset
        self._mark_changed(info.tp)
        outcome.has_more |= next_offset < self._readable_end(row)
        outcome.complete_bytes[info.tp.topic] = outcome.complete_bytes.get(info.tp.topic, 0) + found.complete_bytes
        self._reservation.pending_chunks.append(chunk)

    def _readable_end(self, row: FetchedPartition) -> int:
        """The offset at which this reader waits for the next record: ``read_committed`` ends before open transactions.

        A broker before 0.11 returns no last stable offset, and has no transactions.
        """
        is_committed_only = self._settings.isolation_level == READ_COMMITTED and row.last_stable_offset >= 0
        return row.last_stable_offset if is_committed_only else row.high_watermark

    def _enqueue_chunks(self) -> None:
        """Put the received chunks into the queues."""
        waiting = self._reservation.pending_chunks
        while waiting:
            chunk = waiting[0]
            chunk.info.queue.offer(chunk)
            waiting.popleft()  # now: the budget must see each chunk in one of the two

    def _raise_fetch_size(self, reading: _PartitionFetchState, records: RecordSet) -> bool:
        """Request more bytes of this partition, as its next message needs them; False: they would be too many."""
        tp, limit = reading.info.tp, self._settings.large_message_bytes_max
        size = reading.bytes_max or self._settings.partition_max_bytes
        head = read_entry_header(records)
        needed = head.size_bytes if head is not None and head.size_bytes > size else 2 * size
        if size >= limit or (head is not None and head.size_bytes > limit):
            return False
        reading.bytes_max = min(needed, limit)
        self._raised_fetch_size[tp] = reading
        self._mark_changed(tp)
        log.debug("fetch-size-raised broker=%s partition=%s bytes=%d", self.broker, tp, reading.bytes_max)
        return True

    def _restore_fetch_size(self, tp: TopicPartition) -> None:
        """Its large message was read, or the partition has left: the next such partition may be requested."""
        reading = self._raised_fetch_size.pop(tp, None)
        if reading is not None:
            reading.bytes_max = None
            for other in self._raised_fetch_size:
                self._mark_changed(other)

    def _reset(self, connection: Connection, ranges: SupportedVersions, readings: list[_PartitionFetchState]) -> None:
        """Request the start or the end of the log from the leader, and continue there (``auto.offset.reset``)."""
        policy = self._settings.reset.timestamp
        wanted = {
            reading.info: EARLIEST_TIME if reading.info.fetch_offset == BEGINNING else policy for reading in readings
        }
        times = {info.tp: time for info, time in wanted.items() if time is not None}
        self._report_missing_positions([info for info, time in wanted.items() if time is None])
        if not times:
            return
        infos = [info for info, time in wanted.items() if time is not None]
        settings = self._settings
        offsets = list_offsets(connection, ranges, times, settings.socket_timeout_ms, settings.isolation_level)
        leaderless: list[PartitionTopicInfo] = []
        for info in infos:
            offset = offsets[info.tp]
            if isinstance(offset, ErrorCode):
                self._handle_partition_error(info, offset)
                leaderless.append(info)
            elif info.is_live:
                info.reset(offset)
                self._mark_changed(info.tp)
                self._on_reset(info, offset)
        if leaderless:
            self._release_partitions(leaderless)

    def _report_missing_positions(self, infos: Sequence[PartitionTopicInfo]) -> None:
        """``auto.offset.reset=none``: these are not requested again soon, and the member ends."""
        missing = {info.tp: info.fetch_offset for info in infos if info.is_live}
        for info in infos:
            self._delay(info)
        if missing:
            self._on_position_missing(missing_position_error(missing))

    def _rotate(self, asked: Iterable[TopicPartition], rows: Mapping[TopicPartition, FetchedPartition]) -> None:
        """Move the requested partitions to the end of the order, and those with records to its very end.

        So limits do not omit the same partitions each time.  Only without a session: with one the broker does this.
        """
        if len(self._fetchable) > len(rows):
            for tp in asked:
                self._session.move_to_end(tp)
        for tp, row in rows.items():
            if row.records:
                self._session.move_to_end(tp)

    def _pause(self, info: PartitionTopicInfo, why: str) -> None:
        """Only this partition waits; the others continue."""
        self._note_error(info, why)
        self._delay(info)

    def _delay(self, info: PartitionTopicInfo) -> None:
        """Do not request this partition for ``refresh.leader.backoff.ms``."""
        self._paused_until[info.tp] = self._clock.now_ms() + self._settings.backoff_ms
        self._mark_changed(info.tp)

    def _handle_partition_error(self, info: PartitionTopicInfo, error: ErrorCode) -> None:
        self._note_error(info, str(error))
        if error == TOPIC_AUTHORIZATION_FAILED:
            self._on_topics_refused({info.tp.topic: error})

    def _note_error(self, info: PartitionTopicInfo, why: str) -> None:
        """Log one line for each reason and response, however many partitions it concerns."""
        if self._logged_errors.get(info.tp) != why:
            self._logged_errors[info.tp] = why
            self._errors_to_log.setdefault(why, []).append(info.tp)

    def _log_errors(self) -> None:
        if not self._errors_to_log:
            return
        to_say, self._errors_to_log = self._errors_to_log, {}
        for why, partitions in to_say.items():
            values = (self.broker, len(partitions), partitions[0], why)
            if why in LEADER_MOVED_ERRORS:
                log.info("leader-moved broker=%s partitions=%d first=%s reason=%r", *values)
            else:
                log.warning("partition-error broker=%s partitions=%d first=%s reason=%r", *values)
                self._on_trouble(self.broker, tuple(partitions), why)

    def _release_partitions(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Return these partitions to the leader finder."""
        self._enqueue_chunks()  # before another thread continues with them
        given = set(infos)
        with self._lock:
            for info in given:
                reading = self._partitions.get(info.tp)
                if reading is not None and reading.info is info:
                    self._forget(info.tp)
        self._log_errors()
        self._on_leaderless(given)

    # --- the connection -----------------------------------------------------------------------------------------

    def _connected(self, stop: StopSignal) -> tuple[Connection, SupportedVersions]:
        if self._connection is None or self._ranges is None:
            settings = self._settings
            self._connection = self._connect(
                self.broker.host,
                self.broker.port,
                client_id=settings.client_id,
                connect_timeout_ms=settings.socket_timeout_ms,
                receive_buffer_bytes=settings.receive_buffer_bytes,
            )
            if stop.is_set():
                # The stop may have come before there was a connection to close.
                raise ConnectorClosed("the fetcher is being stopped")
            self._ranges = negotiate(self._connection, settings.socket_timeout_ms)
        return self._connection, self._ranges

    def _open_connection(self) -> tuple[Connection, SupportedVersions]:
        assert self._connection is not None, "a request needs an open connection"
        assert self._ranges is not None, "they come with the connection"
        return self._connection, self._ranges

    def _disconnect(self) -> None:
        connection, self._connection, self._ranges, self._in_flight = self._connection, None, None, None
        self._session.handle_error()
        self._first_requested.clear()
        self._budget.release(self._reservation)
        if connection is not None:
            connection.close()


def _set_membership_in(
    into: dict[TopicPartition, _PartitionFetchState], tp: TopicPartition, reading: _PartitionFetchState, *, is_in: bool
) -> None:
    """Add the item to the set, or remove it."""
    if is_in:
        into[tp] = reading
    else:
        into.pop(tp, None)


@dataclass(slots=True)
class _ResponseSummary:
    """The result of a response.  ``complete_bytes``: of whole entries, by topic.  ``has_more``: the log has more."""

    complete_bytes: dict[str, int] = field(default_factory=dict)
    out_of_range: list[_PartitionFetchState] = field(default_factory=list)
    leaderless: list[PartitionTopicInfo] = field(default_factory=list)
    has_more: bool = False


NULL_RECORDS_ADVICE = (
    "error 76 means records compressed with zstd on a broker or a Fetch version that does not support it: "
    "check compression.type of the topic"
)
