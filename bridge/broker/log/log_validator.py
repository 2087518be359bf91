"""Checks the records of a producer and prepares them for the log.  Pure.

    record set --check every entry--> bytes with offsets, in the log's own format

A batch of format 2, a message, and a wrapper of format 1 whose inner offsets count from 0 get their offsets in place:
their checksums do not cover the offset.  All others are encoded again: a wrapper of format 0 (its inner offsets are
absolute), and entries in an older format than the log's.

The offsets in a producer's messages are ignored: producers of 0.9 and before correctly write 0 in every message.

The size of an entry is checked before its checksum and before anything is decompressed, as in Kafka
(``UnifiedLog.analyzeAndValidateRecords``).  A ``DecompressionBudget`` limits the decompressed entries of one request:
a few kilobytes can expand to millions of messages, and the broker has one thread for all its
clients.  A request beyond it is answered with 10: a Java producer then splits its batch and sends the halves (1.0,
KIP-126).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bridge.broker.log.batches import (
    CONTROL,
    LEADER_EPOCH,
    LEADER_EPOCH_AT,
    OFFSET,
    TRANSACTIONAL,
    StoredBatch,
    has_valid_checksum,
    read_batch_header,
)
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.kafka.error_codes import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TXN_STATE,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode,
)
from zkconsumer.wire import compression
from zkconsumer.wire.compression import DecompressionLimitError
from zkconsumer.wire.entries import (
    BATCH_BYTES_MIN,
    ENTRY_PREFIX_BYTES,
    MAGIC_POSITION,
    OFFSET_AND_SIZE,
    DecompressionBudget,
    LogEntry,
    Record,
    codec_of,
    corrupt_entry_error,
    iter_entries,
    read_entry_header,
)
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import iter_records
from zkconsumer.wire.records_legacy import open_wrapper

BATCHES_ONLY_FROM = 3
"""The Produce version from which a record set must be one batch of format 2 (0.11)."""

PRODUCE_ZSTD_FROM = 7
"""The Produce version from which zstd may be sent (2.1, KIP-110)."""

EXPANDED_BYTES_MAX = 64 * 1024 * 1024
"""Limit for the decompressed bytes of one request: 64 times the default of ``message.max.bytes``.  To
decompress and check this takes some tenths of a second."""

EXPANDED_ITEMS_MAX = 50_000
"""Limit for records, and headers of records, in the compressed entries of one request.  Each takes about ten
microseconds; a producer of librdkafka sends at most 10,000 records in a batch unless ``batch.num.messages`` is set."""


def new_produce_allowance() -> DecompressionBudget:
    """The decompression budget of one Produce request."""
    return DecompressionBudget(EXPANDED_BYTES_MAX, EXPANDED_ITEMS_MAX)


@dataclass(frozen=True, slots=True)
class RecordValidationRules:
    """The rules of a topic's log.

    ``magic``: the stored format.  ``is_compacted``: every record needs a key.  ``knows_invalid_record``: the
    release has error 87 (2.4, KIP-467); older ones return CORRUPT_MESSAGE for such a record.
    """

    magic: int
    message_bytes_max: int
    is_compacted: bool = False
    knows_invalid_record: bool = True

    @property
    def invalid_record_error(self) -> ErrorCode:
        """The release's error for a valid record that is not allowed."""
        return INVALID_RECORD if self.knows_invalid_record else CORRUPT_MESSAGE


@dataclass(frozen=True, slots=True)
class ProduceRejected:
    """Nothing of it is stored; ``words`` are for the producer's log."""

    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class ValidatedEntry:
    """One entry as received, and its records.  ``assigns_offsets_in_place``: only its header must be written to assign
    offsets.
    """

    data: bytes
    batch: StoredBatch
    codec: int
    records: tuple[Record, ...]
    assigns_offsets_in_place: bool


@dataclass(frozen=True, slots=True)
class ValidatedRecords:
    """A record set that may be stored."""

    entries: tuple[ValidatedEntry, ...]

    @property
    def record_count(self) -> int:
        """How many offsets it takes."""
        return sum(len(entry.records) for entry in self.entries)


def validate_records(
    record_set: bytes | memoryview,
    produce_version: int,
    rules: RecordValidationRules,
    allowance: DecompressionBudget | None = None,
) -> ValidatedRecords | ProduceRejected:
    """Check everything before anything is stored: sizes, checksums, structure, counts, formats, keys.

    Before version 3 a message that is cut off at the end is ignored, and the record set may be empty.
    ``allowance``: the remaining budget of the request with this record set; None: it is alone.
    """
    allowance = new_produce_allowance() if allowance is None else allowance
    entries = []
    end = 0
    head = read_entry_header(record_set)
    if produce_version >= BATCHES_ONLY_FROM and (head is None or head.size_bytes > len(record_set)):
        return ProduceRejected(rules.invalid_record_error, "no whole batch; this version has exactly one")
    try:
        data = _normalize_offsets(bytes(record_set))
        for entry in iter_entries(data):
            size = entry.end - entry.position
            if size > rules.message_bytes_max:
                words = f"{size} bytes; the topic takes {rules.message_bytes_max} (max.message.bytes)"
                return ProduceRejected(MESSAGE_TOO_LARGE, words)
            sent = _read_entry(data, entry, allowance)
            refused = _validate_entry(entry, sent, produce_version, rules)
            if refused is not None:
                return refused
            entries.append(sent)
            end = entry.end
    except DecompressionLimitError as error:
        words = f"{error}; the compressed entries of one request may hold {_ALLOWED}: send smaller batches"
        return ProduceRejected(MESSAGE_TOO_LARGE, words)
    except (InvalidMessageException, UnsupportedCodec) as error:
        return ProduceRejected(CORRUPT_MESSAGE, str(error))
    if produce_version >= BATCHES_ONLY_FROM:
        if len(entries) != 1:
            return ProduceRejected(
                rules.invalid_record_error, f"{len(entries)} batches in one record set; this version has exactly one"
            )
        if end != len(data):
            return ProduceRejected(CORRUPT_MESSAGE, f"{len(data) - end} of {len(data)} bytes are no whole entry")
    return ValidatedRecords(tuple(entries))


def is_one_batch(record_set: bytes | memoryview) -> bool:
    """Whether it looks like one batch of format 2; the content is not checked."""
    head = read_entry_header(record_set)
    if head is None or head.size_bytes != len(record_set) or len(record_set) <= MAGIC_POSITION:
        return False
    return record_set[MAGIC_POSITION] == 2


_ALLOWED = f"{EXPANDED_ITEMS_MAX} records and headers in {EXPANDED_BYTES_MAX} bytes"


def _normalize_offsets(message_set: bytes, allowance: DecompressionBudget | None = None) -> bytes:
    """The entries with offsets from 0 on; invalid bytes stay unchanged, and the iteration reports the error.

    ``allowance``: the budget for each entry; ``DecompressionLimitError``.
    """
    numbered = bytearray(message_set)
    position = offset = 0
    while (head := read_entry_header(message_set[position : position + _HEAD_BYTES])) is not None:
        if head.size_bytes <= ENTRY_PREFIX_BYTES or position + head.size_bytes > len(message_set):
            break
        if allowance is not None:
            allowance.items -= 1
            if allowance.items < 0:
                raise DecompressionLimitError("a compressed message holds too many messages")
        (sent_offset,) = OFFSET.unpack_from(message_set, position)
        OFFSET.pack_into(numbered, position, offset)
        offset += min(max(1, head.next_offset - sent_offset), _OFFSETS_MAX)
        position += head.size_bytes
    return bytes(numbered)


_HEAD_BYTES = 32
"""More bytes than ``read_entry_header`` reads."""

_OFFSETS_MAX = 2**31
"""The maximum number of offsets in one batch."""


def _read_entry(data: bytes, entry: LogEntry, allowance: DecompressionBudget) -> ValidatedEntry:
    codec = codec_of(data, entry)
    batch = read_batch_header(data, entry)
    piece = data[entry.position : entry.end]
    if entry.magic == 2 or codec == compression.NONE:
        return ValidatedEntry(piece, batch, codec, tuple(iter_records(piece, budget=allowance)), True)
    if not has_valid_checksum(data, entry):
        raise corrupt_entry_error(entry, "the checksum does not match")
    # Charge the budget only from here on: an entry that was damaged in transit must not use up the budget of the
    # others.
    limit, allowance.decompressed_bytes = allowance.decompressed_bytes, 0
    inner, _ = open_wrapper(data, entry, False, limit)
    allowance.decompressed_bytes = limit - len(inner)
    numbered = _normalize_offsets(inner, allowance)
    end = 0
    for message in iter_entries(numbered):
        if message.magic > entry.magic or codec_of(numbered, message) != compression.NONE:
            raise InvalidMessageException(f"a wrapper of format {entry.magic} holds what is no plain message of it")
        end = message.end
    messages = list(iter_records(numbered))
    if end != len(numbered):
        raise InvalidMessageException("the message set inside a wrapper is cut off")
    return ValidatedEntry(piece, batch, codec, tuple(messages), entry.magic == 1 and numbered == inner)


def _validate_entry(
    entry: LogEntry, sent: ValidatedEntry, produce_version: int, rules: RecordValidationRules
) -> ProduceRejected | None:
    batch, records = sent.batch, sent.records
    if entry.magic > rules.magic:
        return _unsupported_format(entry.magic, rules)
    if produce_version >= BATCHES_ONLY_FROM and entry.magic < 2:
        return ProduceRejected(
            rules.invalid_record_error, f"a message of format {entry.magic} in a version that has batches of format 2"
        )
    if sent.codec == compression.ZSTD and produce_version < PRODUCE_ZSTD_FROM:
        words = f"zstd in Produce v{produce_version}; v{PRODUCE_ZSTD_FROM} and later have it"
        return ProduceRejected(UNSUPPORTED_COMPRESSION_TYPE, words)
    if entry.magic == 2:
        if batch.attributes & CONTROL:
            return ProduceRejected(rules.invalid_record_error, "a control batch from a client")
        if batch.attributes & TRANSACTIONAL:
            return ProduceRejected(INVALID_TXN_STATE, "a transactional batch, and this broker has no transactions")
        offsets = [record.offset - entry.offset for record in records]
        if offsets != list(range(batch.record_count)) or entry.last_offset - entry.offset + 1 != batch.record_count:
            return ProduceRejected(
                rules.invalid_record_error, "the records of the batch are not numbered from 0 without a gap"
            )
        if batch.producer_id >= 0 and (batch.producer_epoch < 0 or batch.first_sequence < 0):
            return ProduceRejected(rules.invalid_record_error, "a producer id without an epoch or a sequence number")
    if not records:
        return ProduceRejected(rules.invalid_record_error, "an entry without records")
    if rules.is_compacted and any(record.key is None for record in records):
        return ProduceRejected(rules.invalid_record_error, "a record without a key in a compacted topic")
    return None


def _unsupported_format(magic: int, rules: RecordValidationRules) -> ProduceRejected:
    words = f"format {magic}, and this release stores format {rules.magic}"
    # A release before 0.11 expects the checksum where a batch has another field.
    return ProduceRejected(CORRUPT_MESSAGE if magic == 2 else UNSUPPORTED_FOR_MESSAGE_FORMAT, words)


def assign_offsets(sent: ValidatedRecords, first_offset: int, leader_epoch: int, rules: RecordValidationRules) -> bytes:
    """The bytes to store, with offsets from ``first_offset`` on."""
    if any(entry.batch.magic != rules.magic for entry in sent.entries):
        # All records in one entry of the log's format, compressed like the first one.
        records = tuple(record for entry in sent.entries for record in entry.records)
        return build_entries(records, first_offset, leader_epoch, rules.magic, sent.entries[0].codec)
    pieces = []
    for entry in sent.entries:
        pieces.append(_assign_entry_offsets(entry, first_offset, leader_epoch))
        first_offset += len(entry.records)
    return b"".join(pieces)


def _assign_entry_offsets(entry: ValidatedEntry, first_offset: int, leader_epoch: int) -> bytes:
    magic = entry.batch.magic
    if not entry.assigns_offsets_in_place:
        return build_entries(entry.records, first_offset, leader_epoch, magic, entry.codec)
    if magic < 2:
        return OFFSET.pack(first_offset + len(entry.records) - 1) + entry.data[OFFSET.size :]
    return _write_offset_and_epoch(entry.data, first_offset, leader_epoch)


def build_entries(
    records: Iterable[Record], first_offset: int, leader_epoch: int, magic: int, codec: int = compression.NONE
) -> bytes:
    """Records as one entry (without a codec in formats 0 and 1: one each) with offsets from ``first_offset`` on."""
    made = build_record_set(
        [record._replace(offset=first_offset + at) for at, record in enumerate(records)], magic, codec
    )
    return _write_offset_and_epoch(made, first_offset, leader_epoch) if magic == 2 else made


def _write_offset_and_epoch(batch: bytes, first_offset: int, leader_epoch: int) -> bytes:
    stamped = bytearray(batch)
    OFFSET.pack_into(stamped, 0, first_offset)
    LEADER_EPOCH.pack_into(stamped, LEADER_EPOCH_AT, leader_epoch)
    return bytes(stamped)


def down_convert(stored: bytes, magic: int, *, keeps_size: bool) -> bytes:
    """Convert stored entries for a reader that supports formats up to ``magic`` only, at their offsets.

    Headers are lost, and timestamps in format 0.  An entry that is cut off is omitted, unless it is the first one.
    ``keeps_size``: the result has the size of ``stored``, as in brokers from 2.0 on: they fix the size of the response
    before they convert.  Then the end is cut off, or filled up with the head of an entry that never comes; but a first
    entry that has grown is whole.  ``UnsupportedCodec``: zstd, which no broker converts.
    """
    pieces = []
    is_converted = False
    for entry in iter_entries(stored):
        data = stored[entry.position : entry.end]
        if entry.magic > magic:
            codec = codec_of(stored, entry)
            if codec == compression.ZSTD:
                raise UnsupportedCodec("zstd is not converted to an older format")
            data = build_record_set([r._replace(headers=()) for r in iter_records(data)], magic, codec)
            is_converted = True
        pieces.append(data)
    if not is_converted:
        return stored
    converted = b"".join(pieces)
    if not keeps_size:
        return converted
    size = max(len(stored), len(pieces[0]))
    return converted[:size] + _filler(size - len(converted))


def _filler(size: int) -> bytes:
    """The head of an entry that is longer than the rest; readers treat it as cut off."""
    if size <= 0:
        return b""
    head = OFFSET_AND_SIZE.pack(-1, max(size + 1, BATCH_BYTES_MIN + ENTRY_PREFIX_BYTES))
    return head[:size].ljust(size, b"\0")
