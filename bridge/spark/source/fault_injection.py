"""Stop at a chosen point of a chosen batch, so that a test can kill the query there.  Off unless both are set:

    ZKC_SPARK_FAULT        POINT:BATCH      after_wal, after_claim or after_commitlog; the source's number of the batch.
                           GROUP=POINT:BATCH,...   each for the queries of one group alone
    ZKC_SPARK_FAULT_FILE   FILE             made when the point is reached; a folder: a file in it, named as the group

    after_wal        the batch is in Spark's offset log, nothing is claimed
    after_claim      its ranges are claimed, nothing is read
    after_commitlog  it is in Spark's commit log, and the group does not know

Then the query waits to be killed, for at most ``WAIT_MS``, and goes on as if nothing had been when the file is deleted.
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

WAIT_MS = 120_000
FILE_POLL_MS = 50
"""How often it looks whether the file is still there."""

log = logging.getLogger("zkconsumer.spark")


@dataclass(frozen=True, slots=True)
class FaultPoint:
    """Where to stop; ``point`` empty: nowhere."""

    point: str = ""
    batch: int = -1
    file: Path = Path()

    def reached(self, point: str, batch: int, pause: Callable[[int], object] | None = None) -> None:
        """Tell that a batch is at a point; waits if that is the one."""
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
    """What the environment says.  Raises ``UsageError`` for a text that means nothing."""
    fault, file = environment.get(FAULT), environment.get(FAULT_FILE)
    if not fault or not file:
        return FaultPoint()
    found = FaultPoint()
    for one in fault.split(","):
        of, equals, place = one.rpartition("=")
        point, _, batch = place.partition(":")
        if point not in POINTS or not batch.isdecimal():
            raise UsageError(
                f"{FAULT}={fault}: set it to POINT:BATCH, a point of {', '.join(POINTS)}, with GROUP= in front for one "
                "group alone, and commas between several; or unset it"
            )
        if not equals or of == group:
            path = Path(file)
            found = FaultPoint(point, int(batch), path / group if path.is_dir() else path)
    return found
