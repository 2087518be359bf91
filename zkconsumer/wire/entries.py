"""The shallow entries of a record set, one after the other.  Pure.

    entry of formats 0 and 1      int64 offset, int32 size | uint32 crc, int8 magic, int8 attributes, ...
    entry of format 2 (a batch)   int64 base offset, int32 size | int32 leader epoch, int8 magic, uint32 crc, ...

An entry is one message, one compressed message that contains a set of others (a *wrapper*), or one batch.  The magic
is the 17th byte in every format, so entries of several formats can follow each other (they do, in a topic whose
format was changed).  This file has the iteration over headers, the record, and the errors that name a place.
Neither checksums nor payloads are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple, TypeVar

from zkconsumer.errors import InvalidMessageException, PeerError, UnsupportedCodec

OFFSET_MAX = 2**63 - 2
"""The last offset that has a next one in 64 bits."""

NO_END = 2**63 - 1
"""An end offset after every record."""

ENTRY_PREFIX_BYTES = 12
"""Offset and size, which the size itself does not count."""

MESSAGE_BYTES_MIN = 14
"""The size below which an entry of formats 0 and 1 is corrupt, in every release: checksum to lengths, format 0."""

BATCH_BYTES_MIN = 49
"""The size of a batch of format 2 that holds no record."""

MAGIC_POSITION = 16
"""The position of the magic, from the start of the entry."""

_ATTRIBUTES_POSITION = 17
_ATTRIBUTES_POSITION_V2 = 22
"""The position of the attributes' low byte: formats 0 and 1, and format 2."""

_CODEC_MASK = 0x07

OFFSET_AND_SIZE = Struct(">qi")
_INT32 = Struct(">i")
_LAST_OFFSET_DELTA_POSITION = 23


class Record(NamedTuple):
    """One record, of any format; a tuple, because there is one for each message if the C modules are missing.

    ``timestamp`` is in milliseconds since 1970, -1 when there is none (format 0).  ``timestamp_type`` is 0 when the
    producer gave it, 1 when the broker did (log append), -1 when there is none.  ``headers`` exist in format 2 only.
    """

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(slots=True)
class DecompressionBudget:
    """The remaining limit for decompressed entries, all entries of one request together.  It counts down.

    ``expanded_bytes``: bytes after decompression; 0 after a decompression that failed, since its work was done.
    ``items``: records, and headers of records; below 0: too many.
    """

    decompressed_bytes: int
    items: int


class LogEntry(NamedTuple):
    """A complete shallow entry: its bytes are ``[position:end]`` of the record set.

    ``offset`` is the one in its header: the offset of a message, of the last message of a wrapper, the base
    offset of a batch.  ``last_offset`` is the last offset that it covers, even if no record has it any more.
    """

    position: int
    end: int
    magic: int
    offset: int
    last_offset: int


E = TypeVar("E", bound=PeerError)


def entry_error(kind: type[E], what: str, offset: int, position: int, next_position: int, next_offset: int = -1) -> E:
    """An error of class ``kind`` whose text names ``offset`` and which carries four numbers.

    Its attributes are ``offset`` (as in the entry's header), ``position`` (the byte at which the entry starts: the
    bytes before are valid), ``next_position`` and ``next_offset`` (the byte and the offset from which reading skips
    the bad entry and nothing else, -1 if unknown).
    """
    error = kind(f"record set entry with offset {offset} at byte {position}: {what}")
    vars(error).update(offset=offset, position=position, next_position=next_position, next_offset=next_offset)
    return error


def invalid_entry_error(kind: type[E], entry: LogEntry, what: str) -> E:
    """``entry_error`` for an entry whose header was sound."""
    return entry_error(kind, what, entry.offset, entry.position, entry.end, entry.last_offset + 1)


def corrupt_entry_error(entry: LogEntry, what: str) -> InvalidMessageException:
    """``invalid_entry_error`` for what is damaged."""
    return invalid_entry_error(InvalidMessageException, entry, what)


def corrupt_record_error(entry: LogEntry, what: str, offset: int) -> InvalidMessageException:
    """The message with this offset is damaged, and nothing else of the entry."""
    if offset == entry.last_offset:
        return corrupt_entry_error(entry, what)
    return entry_error(InvalidMessageException, what, entry.offset, entry.position, entry.position, offset + 1)


class LogEntryHeader(NamedTuple):
    """The size of an entry and the offset after it, from its first bytes."""

    size_bytes: int
    next_offset: int


def read_entry_header(record_set: bytes | memoryview) -> LogEntryHeader | None:
    """The header of the first entry, which may be cut off after it; None if not even the header is complete."""
    if len(record_set) < ENTRY_PREFIX_BYTES:
        return None
    offset, size = OFFSET_AND_SIZE.unpack_from(record_set)
    last_offset = offset
    has_delta = len(record_set) >= _LAST_OFFSET_DELTA_POSITION + _INT32.size
    if has_delta and record_set[MAGIC_POSITION] == 2:
        last_offset += _INT32.unpack_from(record_set, _LAST_OFFSET_DELTA_POSITION)[0]
    return LogEntryHeader(ENTRY_PREFIX_BYTES + size, last_offset + 1)


def iter_entries(record_set: bytes | memoryview, position: int = 0, offset_before: int = -1) -> Iterator[LogEntry]:
    """The complete entries of ``record_set``, in order; a tail that is cut off is legal and ends the walk.

    ``position``: the byte at which an entry begins, after one that covers ``offset_before``.

    Raises ``InvalidMessageException`` for an impossible size and for offsets that do not increase (no
    checksum covers them), and ``UnsupportedCodec`` for a format above 2.  Both as soon as the bytes show it, also
    in a cut-off tail, as the Scala consumer does.
    """
    bytes_total = len(record_set)
    while position + ENTRY_PREFIX_BYTES <= bytes_total:
        offset, size = OFFSET_AND_SIZE.unpack_from(record_set, position)
        if size < MESSAGE_BYTES_MIN:
            what = f"a size of {size} bytes is less than a message header's {MESSAGE_BYTES_MIN}"
            raise entry_error(InvalidMessageException, what, offset, position, -1)
        end = position + ENTRY_PREFIX_BYTES + size
        if position + MAGIC_POSITION >= bytes_total:
            return
        magic = record_set[position + MAGIC_POSITION]
        if magic > 2:
            what = f"record format {magic} is not known here, 0 to 2 are (a newer broker, or damaged bytes)"
            raise entry_error(UnsupportedCodec, what, offset, position, end if end <= bytes_total else -1)
        if magic == 2 and size < BATCH_BYTES_MIN:
            what = f"a size of {size} bytes is less than a batch header's {BATCH_BYTES_MIN}"
            raise entry_error(InvalidMessageException, what, offset, position, -1)
        if end > bytes_total:
            return
        last_offset = offset
        if magic == 2:
            last_offset += _INT32.unpack_from(record_set, position + _LAST_OFFSET_DELTA_POSITION)[0]
        if not offset_before < offset <= last_offset <= OFFSET_MAX:
            what = f"offsets {offset} to {last_offset} do not follow offset {offset_before}"
            raise entry_error(InvalidMessageException, what, offset, position, end)
        yield LogEntry(position, end, magic, offset, last_offset)
        position = end
        offset_before = last_offset


def codec_of(record_set: bytes | memoryview, entry: LogEntry) -> int:
    """The number of the codec that the entry names (``wire.compression``); it need not exist."""
    at = _ATTRIBUTES_POSITION_V2 if entry.magic == 2 else _ATTRIBUTES_POSITION
    return record_set[entry.position + at] & _CODEC_MASK
