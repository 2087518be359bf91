"""The identity of a pipeline, from its program to its source: two files in the folder of ``batchRangesPath``.

    the program            expect_pipeline, start the query       announce_pipeline
    the source                                  before its first call to the group: await_pipeline

Spark gives the id of a query to the program that has started it, and not to a Python source; and it may call the source
before the program has the id.  So the source waits for it, if the program has announced before the start that it comes.
Without that the query is not the one of a pipeline, and any number of them may read a group.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.migration.plan.atomic_file import write_atomically
from bridge.migration.plan.json_object_reader import InvalidJsonError
from bridge.spark.group_pipeline import GroupPipeline, format_pipeline, parse_pipeline
from zkconsumer.errors import InternalError, UnavailableError

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock

EXPECTED_FILE, PIPELINE_FILE = "pipeline-expected", "pipeline.json"

ANNOUNCE_TIMEOUT_MS = 60_000
"""How long Spark may take from the start of a query until the program has its id."""

POLL_MS = 20


def expect_pipeline(folder: str | Path) -> None:
    """Before the query is started: its source must wait for ``announce_pipeline``.  Raises ``OSError``."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / PIPELINE_FILE).unlink(missing_ok=True)
    (Path(folder) / EXPECTED_FILE).touch()


def announce_pipeline(folder: str | Path, pipeline: GroupPipeline) -> None:
    """The query was started.  Raises ``OSError``."""
    write_atomically(Path(folder) / PIPELINE_FILE, [format_pipeline(pipeline) + "\n"], replace=True)


def await_pipeline(folder: str | Path, clock: Clock, pause: Callable[[int], object]) -> GroupPipeline | None:
    """The pipeline of this query; None: it is not the query of a pipeline.  ``pause``: waits for so many ms.

    Raises ``UnavailableError`` if the program does not announce it in time.
    """
    root = Path(folder)
    if not (root / EXPECTED_FILE).exists():
        return None
    until_ms = clock.now_ms() + ANNOUNCE_TIMEOUT_MS
    while True:
        try:
            return parse_pipeline((root / PIPELINE_FILE).read_text("ascii"), str(root / PIPELINE_FILE))
        except FileNotFoundError:
            if clock.now_ms() >= until_ms:
                raise UnavailableError(
                    f"{root}: the program has not announced its query within {ANNOUNCE_TIMEOUT_MS // 1000} s; it "
                    "ended after it had started the query, or the folder is not shared with it: start it again"
                ) from None
            pause(POLL_MS)
        except (InvalidJsonError, ValueError) as error:
            raise InternalError(f"{error}: the file of another release") from error
