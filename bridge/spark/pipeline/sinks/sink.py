"""``Sink``: where a pipeline writes batches, and what all sinks have in common.

    committed(query, batch)    the batch is there: with the same ranges there is nothing to do
    write(frame, attempt)      executors write the rows where no reader sees them; the driver gets a ``StagedBatch``
    commit(staged, lineage)    rows, ranges and counts become visible in one atomic step, or nothing does

Each sink has a create-if-absent of its own for the key (query, batch), so of several attempts exactly one is committed.
Another driver may commit the same batch at any point between ``write`` and ``commit``: ``commit`` then returns
``ALREADY_COMMITTED``, and what was staged is a leftover.  A driver that was stopped and continues is such a late one.

So a batch is written exactly once, except to a topic (``topic_sink``), which has no such step: there ``commit`` sends
the rows and then stores the lineage.  A crash between the two sends them again.

``remove_leftovers`` may run beside live attempts, also of other drivers.  It removes what an attempt has staged if the
batch is committed, or if the attempt is old; in both cases it first makes sure that the attempt cannot be committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from bridge.spark.pipeline.lineage import BatchAttempt, BatchLineage
from bridge.spark.pipeline.sinks.row_rejection import RowRejection
from zkconsumer.errors import UnavailableError
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MESSAGE_TIME_COLUMN = "_zkconsumer_message_time"
"""The column of a frame with the time of the message (timestamp), for a sink that has ``needs_message_time``; the sink
removes it.  Null or -1 ms: the message has no time."""

MESSAGE_PLACE_COLUMN = "_zkconsumer_message_place"
"""The column of a frame with TOPIC/PARTITION/OFFSET of the message, for a sink that has ``needs_message_place``; the
sink removes it."""

LEFTOVER_AGE_MS = 7 * 24 * 3_600_000
"""An attempt of a batch that is not committed is removed after this time: longer than a stopped driver is useful."""


class SinkUnavailableError(UnavailableError):
    """The server or the file system of a sink does not answer, or refuses; the operator must repair the access."""


class AttemptRemovedError(UnavailableError):
    """What this attempt has staged was removed as a leftover; start the query again: the batch gets a new attempt."""


class CommitOutcome(Enum):
    """What a commit did."""

    COMMITTED = "this attempt is committed"
    ALREADY_COMMITTED = "another attempt with the same ranges is committed; nothing was written"


StagedT = TypeVar("StagedT")


@dataclass(frozen=True, slots=True)
class StagedBatch(Generic[StagedT]):
    """Rows that were written and are not visible.  ``content``: of the sink that made it."""

    attempt: BatchAttempt
    rows: int
    content: StagedT


class Sink(Protocol[StagedT]):
    """A target of batches.  A method that needs the server or the file system raises ``SinkUnavailableError``."""

    @property
    def needs_message_time(self) -> bool:
        """Whether frames must have ``MESSAGE_TIME_COLUMN``."""

    @property
    def needs_message_place(self) -> bool:
        """Whether frames of rows must have ``MESSAGE_PLACE_COLUMN``; dead letters have their place as columns."""

    def check(self, schema: StructType) -> list[str]:
        """Why rows of this schema cannot be written, one line each; changes nothing.  ``schema`` is without
        ``MESSAGE_TIME_COLUMN`` and ``MESSAGE_PLACE_COLUMN``."""

    def prepare(self, schema: StructType) -> None:
        """Creates the table, or the folder, if it does not exist.  Raises ``PreconditionFailed`` with the lines of
        ``check``."""

    def rejections(self, schema: StructType) -> tuple[RowRejection, ...]:
        """The rows that must become dead letters of the stage ``sink``."""

    def committed(self, query: str, batch: int) -> BatchLineage | None:
        """The lineage of a batch that is in the sink."""

    def write(self, frame: DataFrame, attempt: BatchAttempt) -> StagedBatch[StagedT]:
        """Writes the rows where no reader sees them.  An error leaves a leftover."""

    def commit(self, staged: StagedBatch[StagedT], lineage: BatchLineage) -> CommitOutcome:
        """Makes the rows visible with their lineage.

        Raises ``LineageConflictError`` if the batch is there with other ranges, and ``AttemptRemovedError`` if
        ``remove_leftovers`` has removed the attempt.
        """

    def commit_without_rows(self, lineage: BatchLineage) -> BatchLineage:
        """Stores the lineage of a batch that has no rows, unless the batch is there; returns the stored one."""

    def lineages(self) -> Iterator[BatchLineage]:
        """All batches of the sink, sorted by key."""

    def reservations(self) -> Iterator[BatchLineage]:
        """All ranges that backfills and replays have reserved and not written, sorted by key."""

    def reserve(self, wanted: BatchLineage, positions: Mapping[TopicPartition, int]) -> None:
        """Reserves the ranges of a backfill, replacement or replay; ``positions`` as in ``lineage.check_reservation``.

        The same key with the same ranges is reserved already, or committed: nothing changes.  Raises
        ``LineageConflictError``.  A commit with this key ends the reservation.
        """

    def release(self, query: str, batch: int) -> None:
        """Ends a reservation whose ranges will not be written: its key gets a lineage without offsets, so an attempt
        that continues later cannot be committed.  Without such a reservation nothing changes."""

    def remove_leftovers(self, now_ms: int, age_ms: int = LEFTOVER_AGE_MS) -> int:
        """Removes what dead attempts have staged; returns the number of attempts.  ``now_ms``: since 1970."""


def check_staged(staged: StagedBatch[StagedT], lineage: BatchLineage) -> None:
    """The lineage is that of the staged rows."""
    same = (staged.attempt.key, staged.attempt.attempt, staged.rows)
    assert same == (lineage.key, lineage.attempt, lineage.counts.rows), (
        f"the staged rows are {same}, and their lineage has {lineage.key}, {lineage.attempt}, {lineage.counts.rows}"
    )
