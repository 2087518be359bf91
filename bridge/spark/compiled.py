"""The compiled loops of ``_rows.c``: arrays in, arrays out.

They stand where the package was installed by a compiler, or as a wheel for this system.  Everywhere else (a zip that
was sent to executors, a machine without a compiler, ``ZKCONSUMER_NO_EXTENSIONS`` set to anything) ``is_there()`` is
false, and numpy gives the same in more passes over the bytes.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bridge.spark.spans import NEAR_BYTES, Columns, Number, Raw, Spans
from bridge.spark.varints import Ints

SWITCH = "ZKCONSUMER_NO_EXTENSIONS"
"""An environment variable: to see whether the compiled part is to blame, or what it saves."""

ENTRY_BYTES_MIN = 26
"""Of a message; a batch has more."""

Gathered: TypeAlias = tuple[bytes, bytes, bytes | None, int]
"""Fields behind each other: where each ends (behind a 0), their bytes, one bit for each that is not null (None: none
is), and how many are null."""

Buffers: TypeAlias = tuple[bytes, bytes, bytes, Gathered | None, Gathered | None]
"""64 bits each of offsets, and of microseconds (what is beyond them is put at their end); 32 bits each of types of
timestamps; keys; values.  None: not asked for."""

_NUMBERS, _COLUMN_NUMBERS = len(Number), Number.VALUE_LENGTH + 1


def _loaded() -> ModuleType | None:
    if os.environ.get(SWITCH):
        return None
    try:
        return import_module("bridge.spark._rows")
    except ImportError:
        return None


_ROWS = _loaded()


def is_there() -> bool:
    """Whether the functions below can be called."""
    return _ROWS is not None


def piece_bytes_max() -> int:
    """How many bytes of entries to decode together.  A call of numpy costs as much as some hundred records."""
    return NEAR_BYTES if is_there() else sys.maxsize // 2


def bounds(raw: Raw, position: int, magic: int, codec: int = -1) -> Ints:
    """Where entries of this magic begin that follow each other from ``position`` on, and where the last one ends.

    ``codec``: of each message; -1: of batches, which have it elsewhere.
    """
    assert _ROWS is not None
    out = np.empty(max(0, len(raw) - position) // ENTRY_BYTES_MIN + 2, np.int64)
    number = _ROWS.bounds(raw, position, magic, codec, out)
    # What is not needed would be kept for as long as the answer.
    return out[:number].copy()


def rows_of_batches(raw: Raw, batches: NDArray[np.int64], rows: int) -> NDArray[np.int64] | None:
    """What stands in the records of uncompressed batches, ``rows`` of them: a row for each of ``Number``.

    ``batches``: the table of a ``BatchRun``, whose records are in ``raw``.  None where something does not fit together.
    """
    assert _ROWS is not None
    out = np.empty((_NUMBERS, rows), np.int64)
    return out if _ROWS.rows_of_batches(raw, batches, out) else None


def headers(raw: Raw, starts: Ints, ends: Ints, counts: Ints, headers_total: int) -> NDArray[np.int64] | None:
    """Four numbers of each header, record after record: start and length of the name, start and length of the value.

    ``starts``, ``ends``, ``counts``: of the headers of each record; ``headers_total``: the sum of the counts.  None
    where something does not fit together.
    """
    assert _ROWS is not None
    out = np.empty((4, headers_total), np.int64)
    return out if _ROWS.headers(raw, starts, ends, counts, out) else None


def rows_of_messages(raw: Raw, starts: Ints, ends: Ints, magic: int, check_crcs: bool) -> NDArray[np.int64] | None:
    """What stands in messages: a row for each of ``Number`` that they have; those of the offset and of the type of the
    timestamp are still to be filled in.  None as above, or a wrong checksum."""
    assert _ROWS is not None
    out = np.empty((_COLUMN_NUMBERS, len(starts)), np.int64)
    return out if _ROWS.rows_of_messages(raw, starts, ends, magic, check_crcs, out) else None


def buffers(columns: Columns, with_key: bool, with_value: bool) -> Buffers:
    """The columns as Arrow has them.  ``ValueError`` for a field outside of the data, or more than 2 GiB of them."""
    assert _ROWS is not None
    numbers = np.ascontiguousarray(columns.numbers)
    found: Buffers = _ROWS.buffers(columns.data, numbers, len(columns), with_key, with_value)
    return found


def gathered(raw: Raw, span: Spans) -> Gathered:
    """The fields of headers behind each other.  Raises as ``buffers``."""
    assert _ROWS is not None
    found: Gathered = _ROWS.gather(raw, span.start, span.length)
    return found
