"""What stands in the records of uncompressed batches: positions and numbers of all of them.  Pure.

Compiled where that is there; otherwise in numpy, which goes over the records in many steps:

    batches --chains--> where records begin --varints--> fields

Both give the same numbers, or None where something does not fit together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bridge.spark import compiled
from bridge.spark.batch_runs import BatchRun, Fact
from bridge.spark.chains import walk_chains
from bridge.spark.spans import Raw
from bridge.spark.varints import TOO_LARGE, Ints, read_varints

LOG_APPEND_TIME = 0x08

OFFSET_DELTA_END = 1 << 31
"""Offsets of records are 32 bits behind the one of their batch."""


def rows_of_batches(buffer: Raw, run: BatchRun) -> NDArray[np.int64] | None:
    """A row for each of ``Number``; ``buffer``: in which the records of the batches lie.

    The headers of a record, so many as it has, lie between their start and the end of the record.
    """
    if compiled.is_there():
        return compiled.rows_of_batches(buffer, run.table, int(run.of(Fact.COUNT).sum()))
    return _in_numpy(buffer, run)


def _in_numpy(buffer: Raw, run: BatchRun) -> NDArray[np.int64] | None:
    data = np.frombuffer(buffer, np.uint8)
    count = run.of(Fact.COUNT)
    walked = walk_chains(data, buffer, run.of(Fact.RECORDS_START), run.of(Fact.RECORDS_END), count)
    if walked is None:
        return None
    fields, ends = walked
    last = np.cumsum(count) - 1

    delta_ms, at = read_varints(data, fields + 1)
    delta, at = read_varints(data, at)
    key_length, key_start = read_varints(data, at)
    value_length, value_start = read_varints(data, key_start + np.maximum(key_length, 0))
    header_count, at = read_varints(data, value_start + np.maximum(value_length, 0))
    total = len(data)
    if max(int(key_length.max()), int(value_length.max()), int(header_count.max())) > total:
        return None
    if int(delta.min()) < 0 or int(header_count.min()) < 0 or int(delta.max()) >= OFFSET_DELTA_END:
        return None
    if max(int(delta_ms.max()), -int(delta_ms.min())) >= TOO_LARGE:
        return None
    if bool(header_count.any()):
        if ((at > ends) | ((at != ends) & (header_count == 0))).any():
            return None
    elif (at != ends).any():
        return None
    offsets, base = run.of(Fact.OFFSET), run.of(Fact.BASE_TIMESTAMP)
    if int(offsets[-1]) > TOO_LARGE:
        return None
    offset = np.repeat(offsets, count) + delta
    if (offset[1:] <= offset[:-1]).any() or (offset[last] > run.of(Fact.LAST_OFFSET)).any():
        return None
    if ((base > TOO_LARGE) | (base < -TOO_LARGE)).any():
        return None
    is_append = np.repeat(run.of(Fact.ATTRIBUTES) & LOG_APPEND_TIME != 0, count)
    append_time = np.repeat(run.of(Fact.MAX_TIMESTAMP), count)
    timestamp: Ints = np.where(is_append, append_time, np.repeat(base, count) + delta_ms)
    keys, values = (key_start, key_length), (value_start, value_length)
    return np.vstack([offset, timestamp, is_append, *keys, *values, at, header_count, ends])
