"""Stops at a chosen point of a chosen batch, so that a test can kill the query there.  Off unless both are set:

    ZKC_SPARK_FAULT        POINT:BATCH      after_wal, after_claim or after_commitlog; the source's number of the batch.
                           GROUP=POINT:BATCH,...   each applies only to the queries of one group
    ZKC_SPARK_FAULT_FILE   FILE             created when the point is reached; for a folder: a file in it, named as the
                           group

    after_wal        the batch is in Spark's offset log; none of its ranges is claimed
    after_claim      its ranges are claimed; none is read
    after_commitlog  it is in Spark's commit log; the group's offsets are not committed yet

Then the query waits to be killed, for at most ``WAIT_MS``.  It continues normally when the file is deleted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from zkconsumer.base.threads import StopSignal
from zkconsumer.errors import UsageError

FAULT = "ZKC_SPARK_FAULT"
FAULT_FILE = "ZKC_SPARK_FAULT_FILE"

AFTER_WAL = "after_wal"
AFTER_CLAIM = "after_claim"
AFTER_COMMIT_LOG = "after_commitlog"
POINTS = (AFTER_WAL, AFTER_CLAIM, AFTER_COMMIT_LOG)

WAIT_MS = 900_000
FILE_POLL_MS = 50
"""How often it checks whether the file still exists."""

log = logging.getLogger("zkconsumer.spark")


@dataclass(frozen=True, slots=True)
class FaultPoint:
    """Where to stop; ``point`` empty: nowhere."""

    point: str = ""
    batch: int = -1
    file: Path = Path()

    def reached(self, point: str, batch: int, pause: Callable[[int], object] | None = None) -> None:
        """Report that a batch is at a point; wait if that is the chosen one."""
        if (point, batch) != (self.point, self.batch):
            return
        log.warning("spark-fault-injected point=%s batch=%d file=%s", point, batch, self.file)
        self.file.touch()
        pause = pause or StopSignal().wait
        for _ in range(WAIT_MS // FILE_POLL_MS):
            if not self.file.exists():
                return
            pause(FILE_POLL_MS)


def fault_point_of(group: str, environment: Mapping[str, str] = os.environ) -> FaultPoint:
    """The fault point that the environment configures.  Raises ``UsageError`` for a text that cannot be parsed."""
    fault, file = environment.get(FAULT), environment.get(FAULT_FILE)
    if not fault or not file:
        return FaultPoint()
    found = FaultPoint()
    for one in fault.split(","):
        of, equals, place = one.rpartition("=")
        point, _, batch = place.partition(":")
        if point not in POINTS or not batch.isdecimal():
            raise UsageError(
                f"{FAULT}={fault}: set it to POINT:BATCH with a point of {', '.join(POINTS)}; put GROUP= before it for "
                "one group only, and separate several with commas; or unset it"
            )
        if not equals or of == group:
            path = Path(file)
            found = FaultPoint(point, int(batch), path / group if path.is_dir() else path)
    return found
