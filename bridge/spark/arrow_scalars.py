"""Arrow scalars from bytes, for Python workers that must start quickly.

``pyarrow.scalar`` and ``pyarrow.array`` ask whether a value is of pandas, and import pandas for that where it is
installed: 0.4 s of CPU in each Python worker.  These functions do not.
"""

from __future__ import annotations

import struct

import pyarrow as pa


def integer_scalar(value: int, kind: pa.DataType) -> pa.Scalar:
    """``kind``: ``int32`` or ``int64``.  Raises ``struct.error`` for a value that does not fit."""
    data = struct.pack("=i" if kind == pa.int32() else "=q", value)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])[0]


def text_scalar(value: str, kind: pa.DataType) -> pa.Scalar:
    """``kind``: ``string`` or ``large_string``."""
    data = value.encode()
    ends = struct.pack("=2i" if kind == pa.string() else "=2q", 0, len(data))
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])[0]


def row_of_integers(**values: int) -> pa.RecordBatch:
    """One row, each column an ``int64``."""
    columns = [pa.repeat(integer_scalar(value, pa.int64()), 1) for value in values.values()]
    return pa.RecordBatch.from_arrays(columns, names=list(values))
