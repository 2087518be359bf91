"""What stands in the records of uncompressed batches: positions and numbers of all of them.  Pure.

Compiled where that is there; otherwise in numpy, which goes over the records in many steps:

    batches --chains--> where records begin --varints--> fields

Both give the same numbers, or None where something does not fit together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bridge.spark import compiled
from bridge.spark.batch_runs import BatchRun
from bridge.spark.chains import walk_chains
from bridge.spark.spans import Raw, Spans
from bridge.spark.varints import TOO_LARGE, Ints, read_varints

LOG_APPEND_TIME = 0x08

OFFSET_DELTA_END = 1 << 31
"""Offsets of records are 32 bits behind the one of their batch."""


@dataclass(frozen=True, slots=True)
class BatchRows:
    """One element a record.  Its headers, ``header_count`` of them, lie between ``headers_start`` and ``end``."""

    offset: Ints
    timestamp: Ints
    timestamp_type: NDArray[np.int32]
    key: Spans
    value: Spans
    headers_start: Ints
    header_count: Ints
    end: Ints


def rows_of_batches(buffer: Raw, run: BatchRun, begin: Ints, end: Ints) -> BatchRows | None:
    """``begin``, ``end``: where the records of each batch lie in ``buffer``."""
    make = _compiled if compiled.is_there() else _in_numpy
    return make(buffer, run, begin, end)


def _compiled(buffer: Raw, run: BatchRun, begin: Ints, end: Ints) -> BatchRows | None:
    heads = run.heads
    count = heads["count"]
    rows = int(count.sum(dtype=np.int64))
    is_append = _is_append(run)
    append = None if is_append is None else np.where(is_append, heads["max_timestamp"], compiled.NO_APPEND_TIME)
    says = [begin, end, count, run.offsets, run.last_offsets, heads["base_timestamp"], append]
    out = compiled.rows_of_batches(buffer, says, rows)
    if out is None:
        return None
    offset, timestamp, key_start, key_length, value_start, value_length, headers_start, header_count, ends = out
    kind = np.zeros(rows, np.int32) if is_append is None else np.repeat(is_append, count).astype(np.int32)
    key, value = Spans(key_start, key_length), Spans(value_start, value_length)
    return BatchRows(offset, timestamp, kind, key, value, headers_start, header_count, ends)


def _is_append(run: BatchRun) -> NDArray[np.bool_] | None:
    """Whether the log's time counts, for each batch; None: for none."""
    is_append: NDArray[np.bool_] = run.heads["attributes"] & LOG_APPEND_TIME != 0
    return is_append if is_append.any() else None


def _in_numpy(buffer: Raw, run: BatchRun, begin: Ints, end: Ints) -> BatchRows | None:
    data = np.frombuffer(buffer, np.uint8)
    count = run.heads["count"].astype(np.int64)
    walked = walk_chains(data, buffer, begin, end, count)
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
    if int(run.offsets[-1]) > TOO_LARGE:
        return None
    offset = np.repeat(run.offsets, count) + delta
    if (offset[1:] <= offset[:-1]).any() or (offset[last] > run.last_offsets).any():
        return None
    base = run.heads["base_timestamp"].astype(np.int64)
    if ((base > TOO_LARGE) | (base < -TOO_LARGE)).any():
        return None
    timestamp: Ints = np.repeat(base, count) + delta_ms
    timestamp_type = np.zeros(len(timestamp), np.int32)
    is_append = _is_append(run)
    if is_append is not None:
        is_append = np.repeat(is_append, count)
        timestamp = np.where(is_append, np.repeat(run.heads["max_timestamp"].astype(np.int64), count), timestamp)
        timestamp_type = is_append.astype(np.int32)
    key, value = Spans(key_start, key_length), Spans(value_start, value_length)
    return BatchRows(offset, timestamp, timestamp_type, key, value, at, header_count, ends)
