"""A pipeline in a Spark session: checks everything, starts the query, ends it between two batches.

    prepare_pipeline(spark, spec, …)   resolves schemas, SQL, sinks and secrets  -> PreparedPipeline
    start_pipeline(prepared)           creates the table, starts the query       -> RunningPipeline
    running.wait()                     until the query has ended; raises its error
    running.request_stop()             the batch that runs is finished, and no other one begins

Each of these is an ordinary function that a notebook can call with its own session, classic or Connect.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from os import getpid
from pathlib import Path
from shutil import rmtree
from socket import gethostname
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.errors import PySparkException, StreamingQueryException

from bridge.spark.decode.offset_ranges import OnCorruptRecord
from bridge.spark.group_pipeline import GroupPipeline
from bridge.spark.monitoring.query_lag import lag as query_lag
from bridge.spark.pipeline.batch_writer import BatchParts, BatchWriter, WrittenBatch
from bridge.spark.pipeline.connect_batches import (
    ServerBatches,
    ServerBatchWriter,
    require_shared_folder,
    require_shared_path,
)
from bridge.spark.pipeline.corrupt_rows import corrupt_policy, source_option
from bridge.spark.pipeline.dead_letters import DEAD_LETTER_SCHEMA
from bridge.spark.pipeline.decode.decode_plan import DecodePlan, decode_plan_of
from bridge.spark.pipeline.decode.decoded_frame import decode
from bridge.spark.pipeline.hadoop_session import apply_hadoop_settings
from bridge.spark.pipeline.pipeline_file import PipelineFileError
from bridge.spark.pipeline.pipeline_spec import ParquetTarget, PipelineSpec, SinkTarget
from bridge.spark.pipeline.replay.dead_letter_reader import letter_places
from bridge.spark.pipeline.secret_options import options_with_secret_file
from bridge.spark.pipeline.secret_reference import ReadFile
from bridge.spark.pipeline.sinks.sink import Sink
from bridge.spark.pipeline.sinks.sink_choice import open_sink
from bridge.spark.pipeline.task_errors import error_of_task, errors_of_tasks, failure_line
from bridge.spark.pipeline.toml_values import problem
from bridge.spark.pipeline.transform import TransformPlan, classify, plan_transform, written_rows
from bridge.spark.source.announced_pipeline import announce_pipeline, expect_pipeline
from bridge.spark.source.batch_ranges_file import (
    add_skipped_offsets,
    is_stop_seen,
    read_batch_ranges,
    request_stop,
)
from bridge.spark.source.datasource_registration import NAME, register
from bridge.spark.source.environment_check import is_connect
from zkconsumer.base.threads import StopSignal
from zkconsumer.errors import PreconditionFailed, UnavailableError, ZkConsumerError
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

    from bridge.spark.pipeline.replay.letter_choice import LetterPlace

RANGES_FOLDER = "ranges"


class PipelineFailedError(UnavailableError):
    """The query of a pipeline ended with an error; its next start continues from the checkpoint."""


CONTINUES = "repeat the command, it continues"
"""What an operator does about a backfill or a replay that failed."""

POLL_MS = 100
"""How often a pipeline that ends looks whether its last batch is finished."""


@dataclass(frozen=True, slots=True)
class PreparedPipeline:
    """A pipeline that can be started.  ``schema``: of the rows that are written.  ``options``: of the source, without
    secrets.  ``folder``: of this process, on the driver; ``close`` removes it."""

    spark: SparkSession
    spec: PipelineSpec
    frame: DataFrame
    decoding: DecodePlan
    transform: TransformPlan
    schema: StructType
    sink: Sink[Any]
    dead_letters: Sink[Any] | None
    options: Mapping[str, str]
    folder: Path
    on_corrupt: OnCorruptRecord

    def close(self) -> None:
        """Removes the files of this process, also that with secrets."""
        rmtree(self.folder, ignore_errors=True)


def prepare_pipeline(
    spark: SparkSession, spec: PipelineSpec, environment: Mapping[str, str], read_file: ReadFile
) -> PreparedPipeline:
    """Raises ``PipelineFileError``, ``SecretUnavailableError`` and ``UsageError``; each line says who must act.

    Connects to the sinks and not to the group: the source does that when the query starts.
    """
    apply_hadoop_settings(spark, spec, environment, read_file)
    sink = open_sink(spec.sink, spark)  # before any SQL: each expression fails in a session with half of Delta
    dead_letters = None if spec.dead_letters is None else open_sink(spec.dead_letters, spark)
    register(spark)
    folder = Path(tempfile.mkdtemp(prefix="zkconsumer-pipeline-"))
    try:
        if is_connect(spark):
            require_shared_folder(spark, folder)
        options = options_with_secret_file(spec.source.options, folder, environment, read_file)
        on_corrupt = corrupt_policy(options)
        decoding = decode_plan_of(spec, spark)
        options |= source_option(on_corrupt) | decoding.source_options
        ranges = str(folder / RANGES_FOLDER)
        frame = spark.readStream.format(NAME).options(**options, batchRangesPath=ranges).load()
        decoded = decode(frame, decoding, with_payloads=False)
        transform = plan_transform(decoded, decoding, spec.transform)
        schema = written_rows(classify(decoded, transform), transform).schema
        problems = [problem("sink", "format", line) for line in sink.check(schema)]
        if dead_letters is not None:
            lines = dead_letters.check(dead_letter_schema())
            problems += [problem("dead-letters", "format", line) for line in lines]
        if problems:
            raise PipelineFileError(tuple(f"{spec.file}: {line}" for line in problems))
        return PreparedPipeline(
            spark, spec, frame, decoding, transform, schema, sink, dead_letters, options, folder, on_corrupt
        )  # fmt: skip
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise


def dead_letter_schema() -> StructType:
    """The columns of dead letters, as Spark has them."""
    from pyspark.sql.types import StructType

    return StructType.fromDDL(DEAD_LETTER_SCHEMA)


@dataclass(slots=True)
class RunningPipeline:
    """A pipeline whose query was started."""

    prepared: PreparedPipeline
    query: StreamingQuery
    writer: BatchWriter | ServerBatches

    def wait(self, timeout_ms: int) -> bool:
        """Whether the query has ended.  Raises the error with which it ended: of this project, or
        ``PipelineFailedError``."""
        try:
            has_ended = bool(self.query.awaitTermination(timeout_ms / 1000))
            self._deliver()
            return has_ended
        except StreamingQueryException as error:
            self._deliver()
            cause = self.writer.error
            found = error_of_task(error) if cause is None else cause
            if isinstance(found, ZkConsumerError):
                raise found from error
            words = failure_line(error if cause is None else f"{type(cause).__name__}: {cause}")
            raise PipelineFailedError(
                f"{self.prepared.spec.name}: {words.rstrip('. ')}; when the cause is removed, start the "
                "pipeline again, it continues from its checkpoint"
            ) from error

    def request_stop(self) -> None:
        """Let the batch that runs be the last one."""
        request_stop(self.prepared.folder / RANGES_FOLDER)

    def stop(
        self, grace_ms: int, monotonic_ms: Callable[[], int], *, on_wait: Callable[[], object] = lambda: None
    ) -> bool:
        """``request_stop``, and end the query when no batch runs.  False: it still ran after ``grace_ms``.

        Then it is ended as if the process had crashed; its next start repeats the batch.  Raises as ``wait`` if the
        query has ended with an error.  ``on_wait``: called every ``POLL_MS`` while the batch runs.
        """
        self.request_stop()
        pause = StopSignal()
        deadline_ms = monotonic_ms() + grace_ms
        # The last answer counts: a trigger that starts after it sees the request, and plans no batch.
        while (has_work := self._has_work()) and monotonic_ms() < deadline_ms:
            pause.wait(POLL_MS)
            on_wait()
        is_clean = not has_work
        self.query.stop()
        if is_clean:
            self.wait(POLL_MS)
        else:
            self._deliver()
        return is_clean

    def lag(self) -> Mapping[TopicPartition, int]:
        """Offsets between the end of the newest planned batch and the end of each log; empty before the first one."""
        progress = self.query.lastProgress
        if progress is None:
            return {}
        return {tp: behind for _, tp, behind in query_lag(progress).offsets_behind_latest}

    def _has_work(self) -> bool:
        """Whether a batch may run.  On a busy machine one trigger follows the other without a pause, so the source is
        asked, too."""
        if not self.query.isActive or is_stop_seen(self.prepared.folder / RANGES_FOLDER):
            return False
        return bool(self.query.status["isTriggerActive"])

    def _deliver(self) -> None:
        if isinstance(self.writer, ServerBatches):
            self.writer.deliver()


@contextmanager
def spark_failures(name: str, action: str = CONTINUES) -> Iterator[None]:
    """Errors of Spark as those that its tasks ended with, or as ``PipelineFailedError``."""
    try:
        with errors_of_tasks():
            yield
    except PySparkException as error:
        raise PipelineFailedError(
            f"{name}: {failure_line(error).rstrip('. ')}; when the cause is removed, {action}"
        ) from error


def prepare_targets(prepared: PreparedPipeline, now_ms: int) -> None:
    """Creates the targets that do not exist, and removes leftovers of dead attempts.  Raises ``PreconditionFailed``."""
    prepared.sink.prepare(prepared.schema)
    prepared.sink.remove_leftovers(now_ms)
    if prepared.dead_letters is not None:
        prepared.dead_letters.prepare(dead_letter_schema())
        prepared.dead_letters.remove_leftovers(now_ms)


def start_pipeline(
    prepared: PreparedPipeline,
    wall_ms: Callable[[], int],
    *,
    on_batch: Callable[[WrittenBatch], None] = lambda _batch: None,
    reached: Callable[[str, int], None] = lambda _point, _batch: None,
) -> RunningPipeline:
    """Starts the query; the target must exist or is created.  Raises ``PreconditionFailed`` and ``UsageError``.

    The source refuses to join the group while another pipeline reads it: ``wait`` raises that.
    """
    spec = prepared.spec
    prepare_targets(prepared, wall_ms())
    if is_connect(prepared.spark):
        _require_shared_targets(prepared)
    make_parts = partial(
        _batch_parts, prepared.decoding, prepared.transform, prepared.sink, prepared.dead_letters,
        name=spec.name, checkpoint=spec.checkpoint.path, ranges=prepared.folder / RANGES_FOLDER, wall_ms=wall_ms,
        reached=reached, on_corrupt=prepared.on_corrupt, places=partial(letter_places, spec),
    )  # fmt: skip
    writer = prepared.frame.writeStream.queryName(spec.name).option("checkpointLocation", spec.checkpoint.path)
    interval_ms = spec.trigger.interval_ms
    if interval_ms is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
    ranges = prepared.folder / RANGES_FOLDER
    since_ms = wall_ms()
    expect_pipeline(ranges)
    batches: BatchWriter | ServerBatches
    if is_connect(prepared.spark):
        batches = ServerBatches(prepared.folder, on_batch)
        query = writer.foreachBatch(ServerBatchWriter(make_parts, prepared.folder)).start()
    else:
        batches = BatchWriter(make_parts(prepared.spark), on_batch)
        query = writer.foreachBatch(batches).start()
    announce_pipeline(ranges, _group_pipeline(spec, str(query.id), since_ms))
    return RunningPipeline(prepared, query, batches)


def _group_pipeline(spec: PipelineSpec, query: str, since_ms: int) -> GroupPipeline:
    """What a second pipeline on the group is shown."""
    return GroupPipeline(query, spec.name, spec.checkpoint.path, gethostname(), getpid(), since_ms)


def _batch_parts(
    decoding: DecodePlan,
    transform: TransformPlan,
    sink: Sink[Any],
    dead_letters: Sink[Any] | None,
    spark: SparkSession,
    *,
    name: str,
    checkpoint: str,
    ranges: Path,
    wall_ms: Callable[[], int],
    reached: Callable[[str, int], None],
    on_corrupt: OnCorruptRecord,
    places: Callable[[SparkSession, str, int], Sequence[LetterPlace] | None],
) -> BatchParts:
    """With the session of the process that runs the batches."""
    return BatchParts(
        pipeline=name,
        decoding=decoding,
        transform=transform,
        sink=sink,
        dead_letters=dead_letters,
        query_id=cache(lambda: query_id_of(spark, checkpoint)),  # Spark writes it before the first batch
        ranges=lambda: read_batch_ranges(ranges),
        wall_ms=wall_ms,
        new_attempt=lambda: uuid4().hex,
        reached=reached,
        on_corrupt=on_corrupt,
        add_skipped=partial(add_skipped_offsets, ranges),
        letter_places=partial(places, spark),
    )


def _require_shared_targets(prepared: PreparedPipeline) -> None:
    """``UsageError``: a folder of the targets, which was created here, does not exist in the Connect server."""
    targets: tuple[SinkTarget | None, ...] = (prepared.spec.sink, prepared.spec.dead_letters)
    for target in targets:
        if isinstance(target, ParquetTarget):
            path = Path(target.path.removeprefix("file://").removeprefix("file:"))
            require_shared_path(prepared.spark, path, f"the folder {path}", "give a path of both")


def query_id_of(spark: SparkSession, checkpoint: str) -> str:
    """The id that Spark has written to the checkpoint.  ``PreconditionFailed``: there is none."""
    place = checkpoint.rstrip("/")
    with suppress(ValueError, KeyError, IndexError):
        line = spark.read.text(f"{place}/metadata").collect()[0][0]
        return str(json.loads(line)["id"])
    raise PreconditionFailed(
        f"{place}/metadata: the checkpoint has no query id; it was damaged while the pipeline was running. The "
        "operator must restore the checkpoint"
    )
