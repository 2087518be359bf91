"""Many varints at once: positions in, values and the positions behind them out.  Pure; numpy only.

A varint of a record is zigzag and has one to ten bytes, the high bit of each saying that another follows.  Almost all
have one or two: those are looked up in a table of all pairs of bytes, the others read one byte at a time, only where
they are.

Nothing is compared with the end of ``data``: a position outside of it reads the nearest byte that there is, so that
damaged input gives wrong numbers and never an error.  Whoever calls holds the outcome against what must be true.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int64]

LAST_SHIFT = 56
"""Nine bytes fill 63 bits.  What has more is no number that belongs into a record, or one of more than 64 bits."""

TOO_LARGE = 1 << 61
"""Stands for every number that has a tenth byte; nothing of a record is as large as that."""


def _table_of_two_bytes() -> tuple[Ints, Ints]:
    """For every pair of bytes the varint that begins with it, and of how many bytes it is: 0 for more than two."""
    pair = np.arange(1 << 16)
    first, second = pair & 0xFF, pair >> 8
    is_short, is_known = first < 0x80, second < 0x80
    raw = np.where(is_short, first, first & 0x7F | (second & 0x7F) << 7)
    value = (raw >> 1) ^ -(raw & 1)
    return value, np.where(is_short, 1, np.where(is_known, 2, 0))


_VALUES, _BYTES = _table_of_two_bytes()
_KNOWN = (_VALUES << 2 | _BYTES).astype(np.int32)
"""Value and number of bytes in one number, so that one look-up gives both."""

_ONE_BYTE = _VALUES[:0x80].copy()


def read_varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The numbers that start at the positions ``at``, and the positions of what follows them."""
    first = data.take(at, mode="clip")
    behind: Ints = at + 1
    if first.size and int(first.max()) < 0x80:
        return _ONE_BYTE.take(first), behind
    second = data.take(behind, mode="clip")
    known = _KNOWN.take(first | second.astype(np.uint16) << 8)
    size = known & 3
    value: Ints = (known >> 2).astype(np.int64)
    behind = at + size
    if not size.all():
        longer = np.flatnonzero(size == 0)
        _read_longer(data, at, value, behind, longer)
    return value, behind


def _read_longer(data: Bytes, at: Ints, value: Ints, behind: Ints, longer: NDArray[np.intp]) -> None:
    """Those of three bytes and more."""
    position = at[longer]
    raw = np.zeros(len(longer), np.int64)
    more = np.arange(len(longer))
    shift = 0
    while more.size and shift <= LAST_SHIFT:
        byte = data.take(position[more], mode="clip")
        raw[more] |= (byte & 0x7F).astype(np.int64) << shift
        position[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    raw[more] = 2 * TOO_LARGE
    value[longer] = _unzigzag(raw)
    behind[longer] = position


def _unzigzag(raw: Ints) -> Ints:
    unsigned = raw.view(np.uint64)
    return (unsigned >> np.uint64(1)).view(np.int64) ^ -(raw & 1)
