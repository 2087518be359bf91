"""Arrow batches as CSV for COPY, without Python code for a row.

pyarrow quotes each text and leaves nulls empty, which is how COPY distinguishes an empty text from null.  Types that
pyarrow does not write as PostgreSQL reads them become text before: bytes as ``\\x`` with hexadecimal digits, decimals
with their digits, times in UTC without a zone.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from bridge.spark.arrow_scalars import integer_scalar, text_scalar

_OPTIONS = csv.WriteOptions(include_header=False, quoting_style="needed")


def csv_of(batch: Any, task: int) -> bytes:
    """The rows of a ``RecordBatch``, each with ``task`` as its first value."""
    columns = [pa.repeat(integer_scalar(task, pa.int64()), batch.num_rows), *map(_column, batch.columns)]
    table = pa.Table.from_arrays(columns, names=[str(number) for number in range(len(columns))])
    output = pa.BufferOutputStream()
    csv.write_csv(table, output, _OPTIONS)
    return bytes(output.getvalue())


def _column(array: Any) -> Any:
    type_ = array.type
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return _hexadecimal(array.cast(pa.large_binary()))
    if pa.types.is_decimal(type_):
        return pc.cast(array, pa.string())
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return array.cast(pa.timestamp(type_.unit))  # the same moment in UTC
    return array


def _hexadecimal(array: Any) -> Any:
    """Each value as ``\\x`` and its digits: all bytes of the array are converted at once."""
    if len(array) == 0:
        return pa.nulls(0, pa.large_string())
    array = pa.concat_arrays([array])  # offsets from 0 on, also of a slice
    validity, offsets, data = array.buffers()
    starts = pa.Array.from_buffers(pa.int64(), array.offset + len(array) + 1, [None, offsets])
    digits = (data.to_pybytes() if data is not None else b"").hex().encode()
    doubled = pc.multiply(starts, integer_scalar(2, pa.int64())).buffers()[1]
    texts = pa.Array.from_buffers(
        pa.large_string(), len(array), [validity, doubled, pa.py_buffer(digits)], offset=array.offset
    )
    return pc.binary_join_element_wise(
        text_scalar("\\x", pa.large_string()), texts, text_scalar("", pa.large_string()), null_handling="emit_null"
    )
