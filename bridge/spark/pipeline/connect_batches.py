"""The batches of a pipeline whose session is a client of Spark Connect.

Spark Connect pickles the function of ``foreachBatch`` and calls it in a Python process beside the driver, which is the
server; the program has only the query.  So the two sides have a folder in common:

    the program                      the process of foreachBatch
    request_stop      --> ranges/stop        --> the source plans no batch any more
    ServerBatches     <-- batches.jsonl      <-- ServerBatchWriter: a line for each batch in the sink
                      <-- error.json         <-- the error of the batch that failed

``require_shared_path`` refuses a server that does not see the folder.  What the server does with a batch is the same as
in a classic session (``BatchWriter``); a secret is read there, so ``env:`` and ``file:`` are those of the server.

``ServerBatchWriter._writer``: None until the first batch, also while it is pickled: it has a session, which cannot be.
``ServerBatches._lines``: the number of lines of the file that were delivered.

If the program ends, the server stops the query when the session has expired, or the query runs until then: the next
start continues from the checkpoint as after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.spark.pipeline.batch_writer import BatchParts, BatchWriter, WrittenBatch
from bridge.spark.pipeline.lineage import from_json, to_json
from bridge.spark.pipeline.task_errors import base_with
from zkconsumer.errors import UsageError, ZkConsumerError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES_FILE, ERROR_FILE, PROBE_FILE = "batches.jsonl", "error.json", "probe"


@dataclass(slots=True)
class ServerBatchWriter:
    """The function for ``foreachBatch``.  ``make_parts``: with the session of a batch; it must be picklable."""

    make_parts: Callable[[SparkSession], BatchParts]
    folder: Path
    _writer: BatchWriter | None = field(default=None, init=False)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if self._writer is None:
            self._writer = BatchWriter(self.make_parts(frame.sparkSession), self._report)
        try:
            self._writer(frame, batch)
        except ZkConsumerError as error:
            members = {"text": str(error), "exit_code": error.exit_code}
            (self.folder / ERROR_FILE).write_text(json.dumps(members), "utf-8")
            raise

    def _report(self, written: WrittenBatch) -> None:
        members = {"lineage": to_json(written.lineage), "is_repeated": written.is_repeated}
        with (self.folder / BATCHES_FILE).open("a", encoding="utf-8") as out:
            out.write(f"{json.dumps(members)}\n")


class ServerBatches:
    """What the program sees of the batches: ``deliver`` calls ``on_batch`` with each one that is new."""

    def __init__(self, folder: Path, on_batch: Callable[[WrittenBatch], None]) -> None:
        self._folder = folder
        self._on_batch = on_batch
        self._lines = 0

    @property
    def error(self) -> Exception | None:
        """The error of the batch that failed, if it is one of this project."""
        file = self._folder / ERROR_FILE
        if not file.exists():
            return None
        members = json.loads(file.read_text("utf-8"))
        return base_with(members["exit_code"])(members["text"])

    def deliver(self) -> None:
        """Without a new batch it does nothing.  A line that is not complete is delivered the next time."""
        file = self._folder / BATCHES_FILE
        if not file.exists():
            return
        lines = file.read_text("utf-8").split("\n")[:-1]
        for line in lines[self._lines :]:
            members = json.loads(line)
            self._lines += 1
            self._on_batch(WrittenBatch(from_json(members["lineage"], str(file)), members["is_repeated"]))


def require_shared_folder(spark: SparkSession, folder: Path) -> None:
    """``UsageError``: the server does not see this folder of the program."""
    probe = folder / PROBE_FILE
    probe.touch()
    require_shared_path(spark, probe, f"the folder {folder} of this machine", "set TMPDIR to a folder of both")


def require_shared_path(spark: SparkSession, path: Path, what: str, action: str) -> None:
    """``UsageError``: the server does not see a file or folder that exists in the file system of the program.

    Spark's analysis looks for the path on the driver; no task runs.
    """
    from pyspark.errors import AnalysisException

    try:
        spark.read.text(f"file://{path}").schema  # noqa: B018  (the analysis)
    except AnalysisException as error:
        raise UsageError(
            f"the Spark Connect server does not see {what}. The program and the server must have one file system: "
            f"{action}, or start the pipeline on the server's machine, or with spark-submit"
        ) from error
