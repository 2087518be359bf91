"""Encodes and decodes Fetch for the readers of records, faster than ``schemas/fetch.py``.  Pure.

    encoded rows --FetchRequestBody--> request               (a reader encodes a partition's row once for each offset)
    response --FetchResponseBody--> one tuple for each partition, with the next offset to fetch

It creates no object for a partition that has not changed.  ``schemas/fetch.py`` is the reference: both write the same
bytes.  A response that the compiled reader does not accept is read with that schema, which raises the errors.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from struct import Struct
from typing import Any, NamedTuple, Protocol, TypeAlias

from zkconsumer.errors import InvalidMessageException, UnsupportedCodec, UsageError
from zkconsumer.wire import compiled
from zkconsumer.wire.field_types import FieldWriter, text, uuid
from zkconsumer.wire.isolation_level import READ_UNCOMMITTED
from zkconsumer.wire.primitives import MessageReader, RecordSet, put_uvarint
from zkconsumer.wire.records import scan_record_set
from zkconsumer.wire.schemas.fetch import FETCH, FetchResponse
from zkconsumer.wire.schemas.message_schema import Api, decoder
from zkconsumer.wire.transactions import write_aborted_transactions

TOPIC_IDS_FROM = 13
"""The version (3.1, KIP-516) from which topics are identified by ids of 16 bytes instead of by names."""

TOPIC_NAMES_VERSION_MAX = TOPIC_IDS_FROM - 1
"""The highest version for a reader that has only the names of topics."""

VERSION_MAX = 13
"""The highest version that this codec supports."""

NO_REPLICA = -1
UNKNOWN_VALUE = -1
CORRUPT_HEADERS = -1
"""``FetchedPartition.entries`` of a record set with damaged headers; ``records.scan_record_set`` raises the error."""


class FetchRequestBody(NamedTuple):
    """The body of a request.

    ``topics``: topic -> encoded rows (``partition_encoder``).  ``forgotten``: topic -> partitions that leave the
    session; must be empty before version 7.  A topic is its name, or from version 13 on its id.  ``isolation_level``:
    is not in requests before version 4 (0.11); brokers that have no version 4 have no transactions either.
    ``rack_id``: the rack of the reader, is not in requests before version 11 (2.4, KIP-392).
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    topics: Mapping[str, Sequence[bytes]] | Mapping[bytes, Sequence[bytes]]
    forgotten: Mapping[str, Sequence[int]] | Mapping[bytes, Sequence[int]]
    isolation_level: int = READ_UNCOMMITTED
    rack_id: str = ""


class FetchedPartition(NamedTuple):
    """One partition of a response.  ``topic``: the name, or from version 13 on the id as bytes.  ``records``: a view of
    the response; None: a null record set.

    ``complete_bytes``, ``entries`` (or ``CORRUPT_HEADERS``) and ``next_offset`` are results of
    ``records.scan_record_set``.  ``last_stable_offset``: -1 before version 4, and from brokers that do not return it to
    this reader.  ``aborted``: the aborted transactions, as ``transactions.read_aborted_transactions`` reads them.
    ``log_start_offset``: -1 before version 5.  ``preferred_read_replica``: the id of the node to fetch from instead;
    -1: none, and before version 11.
    """

    topic: Any
    partition: int
    error_code: int
    high_watermark: int
    records: RecordSet | None
    complete_bytes: int
    entries: int
    next_offset: int
    last_stable_offset: int
    aborted: bytes
    log_start_offset: int = UNKNOWN_VALUE
    preferred_read_replica: int = NO_REPLICA


FetchedPartitionRow: TypeAlias = (
    FetchedPartition | tuple[Any, int, int, int, RecordSet | None, int, int, int, int, bytes, int, int]
)
"""The compiled reader returns plain tuples."""


class FetchResponseBody(NamedTuple):
    """The body of a response.  ``session_id``: 0 without a session.  Fields that the version does not have are 0."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    rows: Sequence[FetchedPartitionRow]


class PartitionEncoder(Protocol):
    """Returns the row of a partition in a request.

    ``leader_epoch``: of the leader, as the reader last saw it (2.1, KIP-320); -1: unknown.
    """

    def __call__(
        self, partition: int, fetch_offset: int, bytes_max: int, leader_epoch: int = UNKNOWN_VALUE, /
    ) -> bytes: ...


@cache
def partition_encoder(version: int) -> PartitionEncoder:
    """The encoder for requests of this version."""
    layout = "i"
    layout += "i" if version >= 9 else ""  # current leader epoch
    layout += "q"
    layout += "i" if version >= 12 else ""  # last fetched epoch: unknown
    layout += "q" if version >= 5 else ""  # log start offset of a follower: unknown
    layout += "i"
    layout += "b" if version >= 12 else ""  # no tagged fields
    pack = Struct(">" + layout).pack
    behind_offset = (UNKNOWN_VALUE,) * ((version >= 12) + (version >= 5))
    tags = (0,) if version >= 12 else ()

    def encode(partition: int, fetch_offset: int, bytes_max: int, leader_epoch: int = UNKNOWN_VALUE, /) -> bytes:
        behind_partition = (leader_epoch,) if version >= 9 else ()
        try:
            return pack(partition, *behind_partition, fetch_offset, *behind_offset, bytes_max, *tags)
        except struct.error as misfit:
            values = f"partition {partition}, offset {fetch_offset}, bytes {bytes_max}, epoch {leader_epoch}"
            raise UsageError(f"a row of Fetch v{version} cannot hold {values}: {misfit}") from misfit

    return encode


class _FetchCodec:
    """The ``message_schema.MessageCodec`` of ``FAST_FETCH``; ``schemas/fetch.py`` names the fields of each version."""

    def write(self, out: bytearray, body: FetchRequestBody, version: int) -> None:
        flexible = FETCH.is_flexible(version)
        write_text, put_count = _TEXT[flexible], put_uvarint if flexible else _put_int32
        write_topic = _UUID if version >= TOPIC_IDS_FROM else write_text
        plus = 1 if flexible else 0
        numbers = [NO_REPLICA, body.max_wait_ms, body.min_bytes]
        if version >= 3:
            numbers.append(body.max_bytes)
        if version >= 4:
            numbers.append(body.isolation_level)
        if version >= 7:
            numbers += [body.session_id, body.session_epoch]
        try:
            out += _HEADS[version].pack(*numbers)
        except struct.error as misfit:
            raise UsageError(f"Fetch v{version} cannot hold {numbers}: {misfit}") from misfit
        put_count(out, len(body.topics) + plus)
        for topic, rows in body.topics.items():
            write_topic(out, topic)
            put_count(out, len(rows) + plus)
            out += b"".join(rows)
            if flexible:
                out.append(0)
        if version >= 7:
            put_count(out, len(body.forgotten) + plus)
            for topic, partitions in body.forgotten.items():
                write_topic(out, topic)
                put_count(out, len(partitions) + plus)
                out += Struct(f">{len(partitions)}i").pack(*partitions)
                if flexible:
                    out.append(0)
        elif body.forgotten:
            raise UsageError(f"Fetch v{version} knows no sessions, so nothing can be forgotten")
        if version >= 11:
            write_text(out, body.rack_id)
        if flexible:
            out.append(0)

    def read(self, reader: MessageReader, version: int) -> FetchResponseBody:
        if compiled.RECORD_DECODER is not None:
            found = compiled.RECORD_DECODER.fetched(reader.data.toreadonly(), reader.pos, version)
            if found is not None:
                reader.pos = reader.end
                return FetchResponseBody(*found)
        return response_body_of(decoder(FetchResponse, version, FETCH.is_flexible(version))(reader), version)


def response_body_of(response: FetchResponse, version: int) -> FetchResponseBody:
    """Convert a response that was read with the schema in this version."""
    rows = []
    for topic in response.responses:
        for part in topic.partitions:
            scanned = _scanned(part.records) if part.records else (0, 0, UNKNOWN_VALUE)
            records = b"" if part.records is not None and not len(part.records) else part.records
            aborted = write_aborted_transactions(part.aborted_transactions or ())
            identity = topic.topic if version < TOPIC_IDS_FROM else topic.topic_id
            row = (identity, part.partition_index, part.error_code, part.high_watermark, records, *scanned)
            ends = part.last_stable_offset, aborted, part.log_start_offset, part.preferred_read_replica
            rows.append(FetchedPartition(*row, *ends))
    return FetchResponseBody(response.throttle_time_ms, response.error_code, response.session_id, rows)


def _scanned(records: RecordSet) -> tuple[int, int, int]:
    try:
        found = scan_record_set(records)
    except (InvalidMessageException, UnsupportedCodec) as error:
        return vars(error).get("position", 0), CORRUPT_HEADERS, UNKNOWN_VALUE
    return found.complete_bytes, found.entries, found.next_offset


def _put_int32(out: bytearray, value: int) -> None:
    out += value.to_bytes(4, "big")


def _head(version: int) -> Struct:
    layout = ">iii" + ("i" if version >= 3 else "") + ("b" if version >= 4 else "") + ("ii" if version >= 7 else "")
    return Struct(layout)


_HEADS = {version: _head(version) for version in range(VERSION_MAX + 1)}
_TEXT: tuple[FieldWriter, FieldWriter] = (text.writer("topic", 0, False, False), text.writer("topic", 12, True, False))
_UUID: FieldWriter = uuid.writer("topic_id", TOPIC_IDS_FROM, True, False)

FAST_FETCH = Api(
    FETCH.key, FETCH.name, FetchRequestBody, FetchResponseBody, highest=VERSION_MAX, flexible_from=FETCH.flexible_from,
    codec=_FetchCodec(),
)  # fmt: skip
"""``FETCH`` with this codec.  A reader without topic ids chooses a version up to ``TOPIC_NAMES_VERSION_MAX``."""
