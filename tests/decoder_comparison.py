"""The same record set read by the reference and by the compiled decoder, with what a reader sees of an error."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.kafka.fetch.record_set_reader import outline_in_python, outline_of
from zkconsumer.kafka.record_columns import TableColumns
from zkconsumer.wire import compiled
from zkconsumer.wire.entries import NO_END, Record
from zkconsumer.wire.record_tables import NO_LIMIT, ROW, TableReader
from zkconsumer.wire.records import _scan_in_python, iter_records, scan_record_set

DECLARED = InvalidMessageException, UnsupportedCodec

Failure = tuple[type[Exception], str, dict[str, Any]]
"""Kind, text and attributes of an error."""


class Seen(NamedTuple):
    """The records before the error, and the error if there is one."""

    records: list[Record]
    failure: Failure | None


def seen(records: Iterator[Record]) -> Seen:
    """Read to the end or to the first declared error; any other error goes on."""
    found: list[Record] = []
    try:
        for record in records:
            found.append(record)  # noqa: PERF402 (extend would lose what came before the error)
    except DECLARED as error:
        return Seen(found, (type(error), str(error), vars(error)))
    return Seen(found, None)


def by_tables(record_set: bytes, *, rows: int = 8, max_bytes: int = NO_LIMIT, **limits: Any) -> Iterator[Record]:
    """Through the compiled decoder, ``rows`` of a table at a time."""
    assert compiled.RECORD_DECODER is not None, "only where the compiled decoder is in use"
    reader = TableReader(compiled.RECORD_DECODER, record_set, max_bytes=max_bytes, **limits)
    tables = reader.tables(bytearray(rows * ROW.size))
    for data, filled, count in tables:
        yield from TableColumns(data, bytes(filled), count).records(0, count)


def seen_by_both(
    record_set: bytes,
    start_offset: int = 0,
    *,
    check_crcs: bool = True,
    end_offset: int = NO_END,
    excluded_batches: Collection[int] = (),
    rows: int = 8,
    **limits: Any,
) -> Seen:
    """What both decoders see, with and without the processor's instructions for checksums, and what both scans find.

    Without the compiled decoder: what the reference sees.
    """
    same: dict[str, Any] = {
        "start_offset": start_offset, "check_crcs": check_crcs, "end_offset": end_offset,
        "excluded_batches": excluded_batches, **limits,
    }  # fmt: skip
    expected = seen(iter_records(record_set, **same))
    if compiled.RECORD_DECODER is not None:
        for with_instructions in (True, False):
            assert seen(by_tables(record_set, rows=rows, with_instructions=with_instructions, **same)) == expected
        assert seen(by_tables(record_set, rows=rows, max_bytes=64, **same)) == expected
        for joined_bytes_max in (0, 300, 2_000, 100_000):
            assert seen(by_tables(record_set, rows=4 * rows, joined_bytes_max=joined_bytes_max, **same)) == expected
        assert _scanned(scan_record_set, record_set, end_offset) == _scanned(_scan_in_python, record_set, end_offset)
        outlines = outline_of(record_set, start_offset), outline_in_python(record_set, start_offset)
        assert outlines[0].begin == outlines[1].begin
        assert vars(outlines[0].epochs) == vars(outlines[1].epochs)
    return expected


def _scanned(how: Any, record_set: bytes, end_offset: int) -> object:
    try:
        return how(record_set, end_offset)
    except DECLARED as error:
        return type(error), str(error), vars(error)
