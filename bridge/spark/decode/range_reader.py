"""Reads one range of one partition from its leader, decoded.

    fetch ---> leader        the next fetch is sent before the answer to the last one is decoded
    pieces <-- answer <----  and again, until the range is read

A plan promised the range: the reader returns every record of it, or raises an error, or (``fail_on_data_loss`` off)
reports the missing ones.  By default it also returns records of aborted transactions, as the Scala consumer does.  With
``read_committed`` it leaves them out; a plan then ends before the first open transaction.

Offsets without a record (removed by compaction, control records) are skipped when an answer proves that they have none:
it contains a later complete entry.  An entry is a proof from the fetched offset up to the last offset in its header,
because a log is in order, and a batch keeps its last offset when compaction removes its records.  The leader answers
with the next entry that exists, also after the end of the range.  Nothing else is a proof:

    an answer without a record     a broker of 3.6 and later with slow tiered storage sends it for records that exist,
                                   without an error and with its true high watermark (``DelayedRemoteFetch``)
    a truncated entry              it is fetched again, with a larger limit
    a later log start offset       it proves that records were deleted: they are lost, and were not a gap

    the leader's answer                             the reaction
    no longer the leader, or no answer              another search, after a pause; it fails after ``give_up_ms``
    out of range, the log starts later              ``DataLost`` / continue at the start of the log
    out of range, or empty, the log ends before     wait (a replica may catch up); then ``DataLost`` / the end
    out of range, or empty, the log continues       wait; then ``FetchStalled``, also with ``fail_on_data_loss`` off
    empty because of a quota                        fetch again

The bounds of a log are requested (ListOffsets) before records count as lost.

Records that cannot be decoded count as corrupt after a second fetch, over a new connection, gave the same bytes: else
the network damaged them, and the reader continues with the good ones.

    decoder, scan of headers, CORRUPT_MESSAGE --> Damage -- not in the earlier answer --> fetch again from there
                                                       '- the same bytes --> fail: raise
                                                                         --> skip, deadLetter: continue at the end
    the end is not known --CorruptEndSearch--> one fetch for each probe --> the end

The header of a damaged entry gives the end where it is plausible.  Several damaged entries in a row are compared with
the same earlier answer.  Sound ranges cost nothing of this: no byte is kept or compared before an error.

The offsets at the start of an entry have no checksum.  An offset after the end of the log, and one that does not follow
the offset before it, is damage; another wrong one cannot be distinguished from a gap, as in every consumer.

The log may also have been truncated and have grown again past the position: no release before 2.1 reports that, and the
reader does not detect it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from typing import Generic, Protocol, TypeVar

from bridge.spark.decode.cluster_connections import ClusterConnections
from bridge.spark.decode.corrupt_end_search import CorruptEndSearch
from bridge.spark.decode.corrupt_ranges import (
    CorruptRange,
    Damage,
    EarlierAnswer,
    beyond_log_error,
    bytes_before_damage,
    damage_of,
    damage_of_headers,
    head_of,
    skip_advice,
)
from bridge.spark.decode.offset_ranges import (
    FETCH_BYTES,
    DataLost,
    FetchStalled,
    OffsetRange,
    OnCorruptRecord,
    ReadSettings,
)
from bridge.spark.decode.response_buffers import RESPONSE_BUFFERS
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.errors import (
    BrokerUnreachable,
    InvalidMessageException,
    MessageSizeTooLargeException,
    RemoteProtocolError,
    UnsupportedCodec,
)
from zkconsumer.kafka.broker_connection import Connection, PendingRequest
from zkconsumer.kafka.error_codes import (
    CORRUPT_MESSAGE,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_SERVER_ERROR,
    UNSUPPORTED_COMPRESSION_TYPE,
    BrokerError,
    ErrorCode,
    error_code,
)
from zkconsumer.kafka.metadata_client import list_offsets
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, BrokerAddress, TopicPartition
from zkconsumer.wire.entries import read_entry_header
from zkconsumer.wire.primitives import RecordSet
from zkconsumer.wire.records import scan_record_set
from zkconsumer.wire.schemas import FETCH
from zkconsumer.wire.schemas.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from zkconsumer.wire.transactions import aborted_batches

FETCH_BYTES_MIN = 64 * 1024
"""The minimum size of a fetch, however short the rest of the range seems."""

FETCH_BYTES_MAX = 1 << 30
"""The largest message that is read (brokers before 0.10.1 truncate it, and it is fetched again with this limit)."""

INITIAL_BYTES_PER_OFFSET = 1024
"""The assumed bytes of one offset before the first answer."""

FETCH_WAIT_MS = 500
"""How long a broker may wait for records."""

BACKOFF_MS = 200

DIFFERENT_ANSWERS_MAX = 5
"""How many fetches from one offset may give different damaged bytes."""

_CONNECTION_ERRORS = (BrokerUnreachable, RemoteProtocolError)

P_co = TypeVar("P_co", covariant=True)


class Decode(Protocol[P_co]):
    """Decodes the records of a record set with ``first_offset`` <= offset < ``end_offset``, in pieces that are not
    empty; none of the batches at the positions ``excluded_batches``.

    Raises ``InvalidMessageException`` and ``UnsupportedCodec`` as ``wire.records.iter_records`` does.
    """

    def __call__(
        self,
        record_set: bytes | memoryview,
        first_offset: int,
        end_offset: int,
        *,
        check_crcs: bool,
        excluded_batches: Collection[int],
    ) -> Iterator[P_co]: ...


def read_range(
    cluster: ClusterConnections,
    wanted: OffsetRange,
    settings: ReadSettings,
    pause: Callable[[int], object],
    decode: Decode[P_co],
    *,
    on_lost: Callable[[OffsetRange], object] = lambda lost: None,
    on_corrupt: Callable[[CorruptRange], P_co | None] = lambda corrupt: None,
    clock: Clock = SYSTEM_CLOCK,
) -> Generator[P_co, None, None]:
    """The records of the range, in the pieces that ``decode`` returns.

    ``pause`` waits for so many ms.  ``on_lost`` receives the lost ranges, when ``fail_on_data_loss`` is off.
    ``on_corrupt`` receives each range of offsets that is passed over, unless ``on_corrupt_record`` is ``FAIL``; what it
    returns is a piece of the result.

    Raises ``DataLost``; ``FetchStalled`` when a leader sends no record for ``settings.give_up_ms`` although its log
    continues; ``BrokerUnreachable`` or ``RemoteProtocolError`` when no leader could be read for
    ``settings.give_up_ms``; ``BrokerError`` for an error that lasts longer than that;
    ``MessageSizeTooLargeException``, ``InvalidMessageException`` and ``UnsupportedCodec`` for records in the log that
    cannot be decoded, unless they are passed over; ``AuthenticationException``.
    """
    reader = _RangeReader(
        cluster, wanted, settings, pause=pause, decode=decode, on_lost=on_lost, on_corrupt=on_corrupt, clock=clock
    )  # fmt: skip
    tries = 0
    while not reader.is_done:
        before = reader.position
        try:
            with closing(reader.read()) as pieces:
                yield from pieces
        except _RefetchRequired:
            if reader.passed_over is not None:
                yield from reader.corrupt_pieces(reader.passed_over)
                reader.passed_over = None
        except (*_CONNECTION_ERRORS, BrokerError) as error:
            if isinstance(error, BrokerError) and not error.code.is_retriable:
                raise
            if reader.is_deadline_exceeded and not isinstance(error, _BeyondLogEnd):
                raise
            tries = 1 if reader.position > before else tries + 1
            # The first connection may be from an earlier task, and the broker may have closed it since.
            if tries > 1:
                pause(BACKOFF_MS)


class _BeyondLogEnd(BrokerUnreachable):
    """The log currently ends before the position; a replica that lags may have become the leader."""


class _RefetchRequired(Exception):
    """The reader continues with a fetch from its position, over a new connection."""


@dataclass(eq=False, repr=False)
class _RangeReader(Generic[P_co]):
    """The progress of one range."""

    cluster: ClusterConnections
    wanted: OffsetRange
    settings: ReadSettings
    _: KW_ONLY
    pause: Callable[[int], object]
    decode: Decode[P_co]
    on_lost: Callable[[OffsetRange], object]
    on_corrupt: Callable[[CorruptRange], P_co | None]
    clock: Clock

    def __post_init__(self) -> None:
        self._fetch_bytes = min(self.settings.fetch_bytes, FETCH_BYTES_MAX)
        self._bytes_an_offset = INITIAL_BYTES_PER_OFFSET
        self._message_bytes = 0
        self._progress_ms = self.clock.now_ms()
        self.position = self.wanted.first
        self.passed_over: CorruptRange | None = None
        """What was passed over before a ``_RefetchRequired``; the caller takes it."""
        self._earlier: EarlierAnswer | None = None
        """What the next answer with records must have, if the log has it: from the position on.  None: no damage."""
        self._different_answers = 0
        """How many answers in succession had damage at the position that the answer before did not have."""
        self._search: tuple[Damage, CorruptEndSearch] | None = None
        """The search for the end of a confirmed damage, which begins at the position."""

    @property
    def is_done(self) -> bool:
        return self.position >= self.wanted.end

    @property
    def is_deadline_exceeded(self) -> bool:
        return self.clock.now_ms() - self._progress_ms >= self.settings.give_up_ms

    def read(self) -> Generator[P_co, None, None]:
        """Read from one leader, to the end of the range or to the first error."""
        tp = self.wanted.tp
        leader = self.cluster.leader(tp)
        pending: PendingRequest[FetchResponse] | None = None
        try:
            connection, ranges = self.cluster.connection_to(leader)
            self._find_corrupt_end(connection, ranges, leader)
            pending = self._ask(connection, ranges)
            while pending is not None:
                asked, pending = pending, None
                part = self._part(self._receive(connection, asked), leader)
                first = self.position
                records = None if part is None else self._process_response(connection, ranges, leader, part)
                if not self.is_done:
                    pending = self._ask(connection, ranges)
                if part is not None and records is not None:
                    yield from self._pieces(records, first, part)
                    self._progress_ms = self.clock.now_ms()
        except (*_CONNECTION_ERRORS, BrokerError, _RefetchRequired):
            self.cluster.drop(leader)
            self.cluster.forget_leader(tp)
            raise
        finally:
            if pending is not None:
                # An unread answer must not be taken for the answer to the next request.
                self.cluster.drop(leader)

    # --- one request and its answer -----------------------------------------------------------------------------

    def _ask(self, connection: Connection, ranges: SupportedVersions) -> PendingRequest[FetchResponse]:
        tp = self.wanted.tp
        likely = (self.wanted.end - self.position) * self._bytes_an_offset
        self._fetch_bytes = max(min(self.settings.fetch_bytes, max(likely, FETCH_BYTES_MIN)), self._message_bytes)
        row = FetchPartition(partition=tp.partition, fetch_offset=self.position, partition_max_bytes=self._fetch_bytes)
        body = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS, min_bytes=1, max_bytes=self._fetch_bytes,
            isolation_level=self.settings.isolation_level,
            topics=[FetchTopic(topic=tp.topic, partitions=[row])],
        )  # fmt: skip
        return connection.send(FETCH, ranges.pick(FETCH), body, self.settings.request_timeout_ms)

    def _receive(self, connection: Connection, pending: PendingRequest[FetchResponse]) -> FetchResponse:
        answer = connection.receive(
            pending, self.settings.request_timeout_ms, response_bytes_max=FETCH_BYTES + FETCH_BYTES_MAX,
            new_buffer=RESPONSE_BUFFERS.allocate,
        )  # fmt: skip
        if answer.error_code != NONE.code:
            raise BrokerError(error_code(answer.error_code), f"{self.wanted.tp}: Fetch")
        return answer

    def _part(self, answer: FetchResponse, leader: BrokerAddress) -> FetchPartitionResponse | None:
        """The answer for our partition; None: it is empty, because a quota is exhausted (KIP-219, 2.0 and later)."""
        parts = [(TopicPartition(t.topic, p.partition_index), p) for t in answer.responses for p in t.partitions]
        if not parts:
            if self.is_deadline_exceeded:
                raise BrokerUnreachable(
                    f"{self.wanted}: {leader} sends no records at offset {self.position} for "
                    f"{self.settings.give_up_ms} ms, because of a quota. Raise the quota of this client"
                )
            return None
        [(tp, part), *others] = parts
        if others or tp != self.wanted.tp:
            raise RemoteProtocolError(f"{leader}: a Fetch of {self.wanted.tp} was answered with {tp}")
        return part

    def _process_response(
        self, connection: Connection, ranges: SupportedVersions, leader: BrokerAddress, part: FetchPartitionResponse
    ) -> RecordSet | None:
        """Continue after this answer; returns its complete entries, None without any."""
        code = error_code(part.error_code)
        if code == OFFSET_OUT_OF_RANGE:
            self._check_log_bounds(connection, ranges, leader, f"with {code}")
            return None
        if code == CORRUPT_MESSAGE and self._passes_over:
            raise self._handled(Damage(self.position, None, f"the broker answers {code}", self._error(code)))
        if code != NONE:
            raise self._error(code)
        records = part.records or b""
        if not len(records):
            self._handle_empty_response(connection, ranges, leader, part)
            return None
        try:
            # Only up to the entry with the end of the range: later ones may be damaged, or not.
            scanned = scan_record_set(records, self.wanted.end)
            if scanned.next_offset > part.high_watermark >= self.wanted.end:
                raise beyond_log_error(records, scanned.complete_bytes, part.high_watermark)
        except (InvalidMessageException, UnsupportedCodec) as error:
            sound_bytes = bytes_before_damage(records, error, self.position)
            scanned = scan_record_set(records[:sound_bytes], self.wanted.end)
            if scanned.next_offset <= self.position:
                damage = damage_of_headers(
                    records, error, self.position, self.wanted, self.settings, sound_bytes
                )  # fmt: skip
                raise self._handled(damage) from error
            # The next answer begins with the damage.
            records = records[:sound_bytes]
        if scanned.next_offset < 0:
            self._ask_for_more(records)
            return None
        if scanned.next_offset <= self.position:
            raise RemoteProtocolError(f"{self.wanted.tp}: offset {self.position} was requested, but older ones arrived")
        # The header of a wrapper has the offset of its last message, so its first offset is not known.
        begins_later = scanned.first_offset > self.position and not scanned.starts_with_compressed_wrapper
        if part.log_start_offset > self.position and begins_later:
            self._check_log_bounds(connection, ranges, leader, "with later records only")
            return None
        self._message_bytes = 0
        self._advance(scanned.next_offset, len(records))
        return records

    def _advance(self, to: int, record_bytes: int = 0) -> None:
        if record_bytes:
            self._bytes_an_offset = 1 + 9 * record_bytes // (8 * (to - self.position))
        self.position = to
        self._progress_ms = self.clock.now_ms()

    def _ask_for_more(self, records: RecordSet) -> None:
        """Not even one message is complete: the next request has a limit of the size of that message."""
        head = read_entry_header(records)
        needs = 2 * self._fetch_bytes if head is None else head.size_bytes
        tp, end = self.wanted.tp, self.wanted.end
        failure: Exception
        if needs > FETCH_BYTES_MAX:
            after = end if head is None else head.next_offset
            reason = f"the message at offset {self.position} has {needs} bytes, but the maximum is {FETCH_BYTES_MAX}"
            bad = OffsetRange(tp, self.position, max(after, self.position + 1))
            failure = MessageSizeTooLargeException(f"{tp}: {reason}. {skip_advice(bad, self.settings)}")
            raise self._handled(Damage(self.position, None, reason, failure, records))
        if self._fetch_bytes >= needs:
            reason = (
                f"the message at offset {self.position} has a header with {needs} bytes, but the broker sends only "
                f"{len(records)} of them"
            )
            failure = InvalidMessageException(
                f"{tp}: {reason}. Its log is damaged there, up to an offset that is not known. "
                f"{skip_advice(OffsetRange(tp, self.position, end), self.settings)}"
            )
            raise self._handled(Damage(self.position, None, reason, failure, records))
        self._message_bytes = needs

    def _pieces(self, records: RecordSet, first: int, part: FetchPartitionResponse) -> Generator[P_co, None, None]:
        excluded: Sequence[int] = ()
        if part.aborted_transactions:
            records = records[: scan_record_set(records, self.wanted.end).complete_bytes]
            excluded = aborted_batches(records, part.aborted_transactions)
        answer: RecordSet = part.records or b""
        while True:
            try:
                yield from self.decode(
                    records, first, self.wanted.end, check_crcs=self.settings.check_crcs, excluded_batches=excluded
                )
                break
            except (InvalidMessageException, UnsupportedCodec) as error:
                damage = damage_of(
                    answer, error, first, self.wanted, self.settings,
                    high_watermark=part.high_watermark, excluded_batches=excluded,
                )  # fmt: skip
                confirmed = self._confirmed_before_next_entry(damage, part)
                if damage.end is None or confirmed is None:
                    raise self._handled(damage) from error
            yield from self.corrupt_pieces(damage.corrupt_range(self.wanted.tp, damage.end))
            after = damage.position + damage.extent
            answer, records, first = answer[after:], records[after:], damage.end
            self._earlier = EarlierAnswer(confirmed[damage.extent :])
        self._earlier = None
        self._different_answers = 0

    # --- records that cannot be decoded -------------------------------------------------------------------------

    @property
    def _passes_over(self) -> bool:
        return self.settings.on_corrupt_record is not OnCorruptRecord.FAIL

    def corrupt_pieces(self, passed_over: CorruptRange) -> Generator[P_co, None, None]:
        """What the caller makes of offsets that were passed over; no offset may be left of them."""
        piece = self.on_corrupt(passed_over) if passed_over.first < passed_over.end else None
        if piece is not None:
            yield piece

    def _confirmed_before_next_entry(self, damage: Damage, part: FetchPartitionResponse) -> memoryview | None:
        """The earlier answer from the damaged entry on, if the rest of this answer can be decoded: the damage is
        confirmed and is passed over, and the next entry is known.

        A damaged marker may have ended an aborted transaction: the next answer has those that are still needed.
        """
        if self._earlier is None or not self._passes_over or part.aborted_transactions:
            return None
        return damage.same_bytes(self._earlier) if damage.extent and damage.is_whole else None

    def _handled(self, damage: Damage) -> Exception:
        """What is raised: a request to fetch again, or the error of a damage that is confirmed or never the same."""
        earlier, self._earlier = self._earlier, None
        self.position = damage.first
        self._message_bytes = 0
        if earlier is None or not damage.is_in(earlier):
            self._different_answers += 1
            if self._different_answers > DIFFERENT_ANSWERS_MAX:
                return damage.failure
            self._earlier = damage.suspected
            return _RefetchRequired()
        self._different_answers = 0
        if not self._passes_over:
            return damage.failure
        if damage.end is None:
            self._search = damage, CorruptEndSearch(damage.first, self.wanted.end)
        else:
            self._pass_over(damage, damage.end)
        return _RefetchRequired()

    def _pass_over(self, damage: Damage, end: int) -> None:
        self.passed_over = damage.corrupt_range(self.wanted.tp, end)
        self._advance(end)
        self._earlier = damage.following

    def _find_corrupt_end(self, connection: Connection, ranges: SupportedVersions, leader: BrokerAddress) -> None:
        """Continue the search for the end of a damage.  Raises ``_RefetchRequired`` when it is found."""
        if self._search is None:
            return
        damage, search = self._search
        while (probe := search.next_probe) is not None:
            part = self._part(self._receive(connection, self._ask_at(connection, ranges, probe)), leader)
            if part is None:
                self.pause(BACKOFF_MS)
                continue
            search.record(is_readable=self._is_readable(part, damage, probe))
            self._progress_ms = self.clock.now_ms()
        self._search = None
        self._pass_over(damage, search.end)
        raise _RefetchRequired

    def _ask_at(self, connection: Connection, ranges: SupportedVersions, probe: int) -> PendingRequest[FetchResponse]:
        tp = self.wanted.tp
        row = FetchPartition(partition=tp.partition, fetch_offset=probe, partition_max_bytes=FETCH_BYTES_MIN)
        body = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES_MIN, isolation_level=self.settings.isolation_level,
            topics=[FetchTopic(topic=tp.topic, partitions=[row])],
        )  # fmt: skip
        return connection.send(FETCH, ranges.pick(FETCH), body, self.settings.request_timeout_ms)

    def _is_readable(self, part: FetchPartitionResponse, damage: Damage, probe: int) -> bool:
        """Whether the broker has sent another entry than the damaged one for the offset ``probe``."""
        code = error_code(part.error_code)
        if code in (CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR):
            return False
        if code != NONE:
            raise self._error(code)
        records = part.records or b""
        if damage.records is not None and head_of(records) == head_of(damage.records):
            return False
        try:
            scan_record_set(records, probe + 1)
        except (InvalidMessageException, UnsupportedCodec):
            return False
        head = read_entry_header(records)  # of an entry that may be cut off
        return head is not None and probe < head.next_offset <= max(part.high_watermark, self.wanted.end)

    # --- missing records ----------------------------------------------------------------------------------------

    def _check_log_bounds(
        self, connection: Connection, ranges: SupportedVersions, leader: BrokerAddress, answer: str
    ) -> None:
        """Whether the records at the position were deleted, or do not exist yet, or should have been sent: by the
        bounds of the leader's log."""
        tp = self.wanted.tp
        bounds = []
        for time in (EARLIEST_TIME, LATEST_TIME):
            bound = list_offsets(connection, ranges, {tp: time}, self.settings.request_timeout_ms)[tp]
            if isinstance(bound, ErrorCode):
                raise BrokerError(bound, f"{tp}: the start and the end of the log")
            bounds.append(bound)
        log_first, log_end = bounds
        if self.position < log_first:
            self._skip_lost_records(min(log_first, self.wanted.end), log_first, log_end)
        elif not self.is_deadline_exceeded:
            raise _BeyondLogEnd(f"{self.wanted}: {leader} answers {answer}; its log has {log_first} to {log_end - 1}")
        elif self.position < log_end:
            raise self._stalled(leader, log_end, answer)
        else:
            self._skip_lost_records(self.wanted.end, log_first, log_end)

    def _handle_empty_response(
        self, connection: Connection, ranges: SupportedVersions, leader: BrokerAddress, part: FetchPartitionResponse
    ) -> None:
        """The leader sends no record, which is no proof."""
        answer = "without a record"
        if part.log_start_offset > self.position:
            self._check_log_bounds(connection, ranges, leader, answer)
        elif not self.is_deadline_exceeded:
            self.pause(BACKOFF_MS)
        elif part.high_watermark > self.position:
            raise self._stalled(leader, part.high_watermark, answer)
        else:
            self._check_log_bounds(connection, ranges, leader, answer)

    def _stalled(self, leader: BrokerAddress, log_end: int, answer: str) -> FetchStalled:
        rest = OffsetRange(self.wanted.tp, self.position, self.wanted.end)
        return FetchStalled(rest, log_end, str(leader), answer, self.settings)

    def _skip_lost_records(self, to: int, log_first: int, log_end: int) -> None:
        """The records between the position and ``to`` are lost."""
        lost = OffsetRange(self.wanted.tp, self.position, to)
        if self.settings.fail_on_data_loss:
            raise DataLost(lost, log_first, log_end)
        self.on_lost(lost)
        self._advance(to)

    def _error(self, code: ErrorCode) -> Exception:
        if code == UNSUPPORTED_COMPRESSION_TYPE:
            return UnsupportedCodec(
                f"{self.wanted.tp}: the broker does not convert the zstd records at offset {self.position} for the "
                "versions of Fetch that it has in common with this program"
            )
        return BrokerError(code, f"{self.wanted.tp}: Fetch at offset {self.position}")
