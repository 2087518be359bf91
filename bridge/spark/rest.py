"""What a Python worker of Spark has loaded is not looked through any more for what can be freed.

Spark's workers collect garbage after every task and every plan (``pyspark.daemon``, 4.3).  With pandas, numpy and
pyarrow loaded that takes as long as reading some 100,000 rows, and finds nothing.
"""

from __future__ import annotations

import gc
import os
from functools import cache

WORKER_IS_KEPT = "SPARK_REUSE_WORKER"
"""Spark sets it for the processes that it uses again, and for these alone is garbage collected."""


def leave_to_rest() -> None:
    """To be called when everything is loaded; once counts, and only in a process that Spark has started to keep."""
    if os.environ.get(WORKER_IS_KEPT):
        _freeze()


@cache
def _freeze() -> None:
    gc.freeze()
