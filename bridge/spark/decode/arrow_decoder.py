"""Decodes record sets of one partition to Arrow batches: with the compiled decoder, or without it in Python.

    compiled    zkconsumer.wire.record_tables    positions of the fields of many records; no object for each record
    Python      zkconsumer.wire.records   an object for each record, at twenty times the cost and more

Both give the same rows and raise the same errors.  Where the compiled decoder is missing, each process logs that once.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

import pyarrow as pa

from bridge.spark.decode.arrow_records import batches_of_records
from bridge.spark.decode.arrow_schema import ArrowBatchSpec
from bridge.spark.decode.arrow_tables import batches_of_table
from zkconsumer import extensions
from zkconsumer.wire import compiled
from zkconsumer.wire.entries import NO_END
from zkconsumer.wire.record_tables import ROW, TableReader
from zkconsumer.wire.records import DECOMPRESSED_BYTES_MAX, iter_records

PAGE = "migration_docs/how-to/tune-a-spark-query.md"

log = logging.getLogger("zkconsumer.spark")

_is_logged = False


def python_decoder_reason() -> str | None:
    """Why this process decodes records in Python; None: it uses the compiled decoder."""
    return None if compiled.RECORD_DECODER is not None else extensions.missing_reason(compiled.MODULE_NAME)


def warn_if_not_compiled() -> None:
    """Log a warning if the compiled decoder is missing; once in a process."""
    global _is_logged
    why = python_decoder_reason()
    if why is not None and not _is_logged:
        _is_logged = True
        log.warning("decoder-not-compiled reason=%r: records are decoded in Python, which is slow: see %s", why, PAGE)


class ArrowDecoder:
    """Converts record sets of one partition to batches for ``target``.  One thread; one record set at a time."""

    def __init__(self, target: ArrowBatchSpec) -> None:
        self._target = target
        self._decoder = compiled.RECORD_DECODER
        if self._decoder is not None:
            self._rows = bytearray(target.max_rows * ROW.size)

    def batches(
        self,
        record_set: bytes | memoryview,
        first_offset: int = 0,
        end_offset: int = NO_END,
        *,
        check_crcs: bool = True,
        excluded_batches: Collection[int] = (),
        decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    ) -> Iterator[pa.RecordBatch]:
        """The records with ``first_offset`` <= offset < ``end_offset``, in batches that are not empty.

        Bytes at or after ``end_offset`` are not read, except for the checksum of the batch that contains it.
        ``excluded_batches``: the positions of batches whose records are left out.

        Raises ``InvalidMessageException`` and ``UnsupportedCodec`` as ``wire.records.iter_records`` does, after the
        records before the damage.
        """
        decoder, target = self._decoder, self._target
        if decoder is None:
            records = iter_records(
                record_set, first_offset, check_crcs, end_offset=end_offset, excluded_batches=excluded_batches,
                decompressed_bytes_max=decompressed_bytes_max,
            )  # fmt: skip
            yield from batches_of_records(records, target)
            return
        reader = TableReader(
            decoder, record_set, first_offset, check_crcs, end_offset=end_offset, excluded_batches=excluded_batches,
            max_bytes=target.max_bytes, joined_bytes_max=target.max_bytes,
            decompressed_bytes_max=decompressed_bytes_max,
        )  # fmt: skip
        for table in reader.tables(self._rows):
            yield from batches_of_table(decoder, table, target)
            del table  # free the decompressed entry before the next one is decompressed
