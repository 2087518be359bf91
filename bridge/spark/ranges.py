"""A range of a log that is to be read, how it is to be read, and that it is not there any more: what plans and readers
have in common.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.errors import WorldError
from zkconsumer.types import TopicPartition

FETCH_BYTES = 8 * 1024 * 1024
"""How much is asked for at most: enough to decode many batches at once."""

REQUEST_TIMEOUT_MS = 30_000

GIVE_UP_MS = 120_000
"""How long no progress is made before the range is given up."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of a partition with ``first`` <= offset < ``end``."""

    tp: TopicPartition
    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.tp} [{self.first}, {self.end})"


class DataLost(WorldError):
    """Records that a query was to read are no longer in the log; raise the retention, or set failOnDataLoss=false."""

    def __init__(self, lost: OffsetRange, log_first: int, log_end: int) -> None:
        holds = f"{log_first} to {log_end - 1}" if log_first < log_end else "no record"
        super().__init__(
            f"{lost.tp}: offsets {lost.first} to {lost.end - 1} were to be read, but the log holds {holds}. "
            "Retention, a deletion, or a leader that had not all records took them. Raise the topic's retention, or "
            "set failOnDataLoss=false to go on without them"
        )
        self.lost = lost
        self.log_first = log_first
        self.log_end = log_end


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How to read; bytes and ms.  ``give_up_ms`` counts while no progress is made, not while nobody asks for more."""

    fetch_bytes: int = FETCH_BYTES
    check_crcs: bool = True
    fail_on_data_loss: bool = True
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    give_up_ms: int = GIVE_UP_MS
