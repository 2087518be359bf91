"""What a Python worker of Spark has loaded is not looked through any more for what can be freed.

Spark's workers collect garbage after every task and every plan (``pyspark.daemon``, 4.3).  With pandas, numpy and
pyarrow loaded that takes as long as reading some 100,000 rows, finds nothing, and leaves cold caches.
"""

from __future__ import annotations

import gc
import os
import sys

WORKER_IS_KEPT = "SPARK_REUSE_WORKER"
"""Spark sets it for the processes that it uses again, and for these alone is garbage collected."""


_loaded = 0
"""Modules at the last time."""


def gc_freeze_worker() -> None:
    """To be called when a task or a plan begins, in a process that Spark has started to keep; does nothing elsewhere.

    Counts when something was loaded since the last time: the first task of a worker loads a part of it, when its rows
    are sent.
    """
    global _loaded
    if os.environ.get(WORKER_IS_KEPT) and len(sys.modules) != _loaded:
        _loaded = len(sys.modules)
        gc.freeze()
