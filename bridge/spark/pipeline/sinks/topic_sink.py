"""``TopicSink``: rows or dead letters as records of a topic, at least once.

A topic has no commit of a batch.  So a batch counts when its lineage is in a folder beside the checkpoint
(``LineageFolder``), and that file is written after the brokers have acknowledged all records:

    write    1  compute the records, and keep them in the executors: memory, else disk       no topic has them
    commit   2  the batch has a lineage: compare ranges, send nothing
             3  tasks send the kept records; each ends when its records are acknowledged
             4  create the lineage file, if there is none                                    the batch counts

The records are computed before the first is sent: an error of the SQL, a dead letter without a place and a lost schema
registry end the batch in ``write`` or before ``commit``, so they send nothing.  And dead letters are there before the
rows are.  If an executor with kept records is lost, Spark computes them again: the ranges of the batch are fixed.

What a crash does, or a driver that was stopped and continues while a second driver went on:

    before 3            nothing was sent; the next attempt sends the batch
    in 3, or before 4   records were sent, and the next attempt sends all of the batch again: at least once
    after 4             no attempt sends anything; other ranges are an error

Spark repeats a failed task, and brokers may have records whose acknowledgement was lost: these are sent twice, too.  A
record that is sent twice has the same header ``zkconsumer.source`` (brokers from 0.11 on).

``_facts``: of the topic, from the first call that needs them; they do not change while a pipeline runs, since both
readings of a batch must reject the same rows.  None: not asked yet, or each row has its topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from bridge.spark.pipeline.lineage import BatchAttempt, BatchLineage, require_same_ranges
from bridge.spark.pipeline.pipeline_spec import TopicTarget
from bridge.spark.pipeline.sinks.lineage_folder import LineageFolder
from bridge.spark.pipeline.sinks.row_rejection import RowRejection
from bridge.spark.pipeline.sinks.sink import (
    LEFTOVER_AGE_MS,
    MESSAGE_PLACE_COLUMN,
    CommitOutcome,
    SinkUnavailableError,
    StagedBatch,
    check_staged,
)
from bridge.spark.pipeline.sinks.topic_records import (
    TopicFacts,
    columns_of,
    dead_letter_expressions,
    row_problems,
    row_rejections,
)
from bridge.spark.pipeline.sinks.topic_sending import ReadFacts, SendRows, read_topic_facts, send_frame, sink_task
from bridge.spark.sink.sink_columns import SOURCE
from zkconsumer.errors import PreconditionFailed, ZkConsumerError
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

KeptRecords: TypeAlias = "DataFrame"
"""A persisted frame of records; ``commit`` ends that."""


class TopicSink:
    """A ``Sink`` of records.  ``lineages``: the folder beside the checkpoint."""

    def __init__(
        self,
        lineages: LineageFolder,
        target: TopicTarget,
        send: SendRows = send_frame,
        read_facts: ReadFacts = read_topic_facts,
    ) -> None:
        self._lineages = lineages
        self._target = target
        self._send = send
        self._read_facts = read_facts
        self._facts: TopicFacts | None = None

    @property
    def needs_message_time(self) -> bool:
        return False

    @property
    def needs_message_place(self) -> bool:
        return not self._target.holds_dead_letters

    def check(self, schema: StructType) -> list[str]:
        problems: list[str] = []
        if not self._target.holds_dead_letters:
            problems += row_problems(columns_of(schema), schema.fieldNames(), self._target.topic)
        if (problem := self._lineages.access_problem()) is not None:
            problems.append(f"the lineage of a topic is beside the checkpoint: {problem}")
        try:
            found = self._topic_facts()
            self._facts = self._facts or found
        except ZkConsumerError as error:
            problems += str(error).splitlines()
        return problems

    def prepare(self, schema: StructType) -> None:
        if problems := self.check(schema):
            raise PreconditionFailed("\n".join(problems))

    def rejections(self, schema: StructType) -> tuple[RowRejection, ...]:
        if self._target.holds_dead_letters:
            return ()
        if self._facts is None and self._target.topic is not None:
            self._facts = self._topic_facts()
        return row_rejections(columns_of(schema), self._target.topic, self._target.compression, self._facts)

    def committed(self, query: str, batch: int) -> BatchLineage | None:
        return self._lineages.committed(query, batch)

    def write(self, frame: DataFrame, attempt: BatchAttempt) -> StagedBatch[KeptRecords]:
        from pyspark import StorageLevel

        records = self._records(frame).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            return StagedBatch(attempt, records.count(), records)
        except BaseException:
            records.unpersist()
            raise

    def commit(self, staged: StagedBatch[KeptRecords], lineage: BatchLineage) -> CommitOutcome:
        check_staged(staged, lineage)
        try:
            stored = self.committed(*lineage.key)
            if stored is None:
                self._send_all(staged)
                stored = self._lineages.add(lineage)
        finally:
            staged.content.unpersist()
        if stored.attempt == lineage.attempt:
            return CommitOutcome.COMMITTED
        require_same_ranges(stored, lineage)
        return CommitOutcome.ALREADY_COMMITTED

    def commit_without_rows(self, lineage: BatchLineage) -> BatchLineage:
        return self._lineages.add(lineage)

    def lineages(self) -> Iterator[BatchLineage]:
        return self._lineages.lineages()

    def reservations(self) -> Iterator[BatchLineage]:
        return self._lineages.reservations()

    def reserve(self, wanted: BatchLineage, positions: Mapping[TopicPartition, int]) -> None:
        self._lineages.reserve(wanted, positions)

    def release(self, query: str, batch: int) -> None:
        self._lineages.release(query, batch)

    def remove_leftovers(self, now_ms: int, age_ms: int = LEFTOVER_AGE_MS) -> int:
        """0: records that a dead attempt has sent cannot be removed, and kept ones end with their Spark session."""
        return 0

    def _send_all(self, staged: StagedBatch[KeptRecords]) -> None:
        if not staged.rows:
            return
        sent = self._send(staged.content, sink_task(self._target, *staged.attempt.key))
        if sent != staged.rows:
            raise SinkUnavailableError(
                f"the batch had {staged.rows} records, and {sent} when an executor was lost and they were computed "
                "again; the lineage was not written. If a schema registry was not reachable for a time, start the "
                "pipeline again: the batch is repeated"
            )

    def _records(self, frame: DataFrame) -> DataFrame:
        """The columns of the records.  A column ``source`` of the user wins over the place of the message."""
        if self._target.holds_dead_letters:
            return frame.selectExpr(*(f"{sql} AS `{name}`" for name, sql in dead_letter_expressions().items()))
        if SOURCE in frame.columns:
            return frame.drop(MESSAGE_PLACE_COLUMN)
        return frame.withColumnRenamed(MESSAGE_PLACE_COLUMN, SOURCE)

    def _topic_facts(self) -> TopicFacts | None:
        """Raises as ``ReadFacts``, and for secrets."""
        return self._read_facts(sink_task(self._target).address, self._target.topic)
