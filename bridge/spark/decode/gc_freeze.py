"""Excludes the modules that a Python worker of Spark has loaded from garbage collection.

Spark's workers collect garbage after every task and every plan (``pyspark.daemon``, 4.3).  With pandas, numpy and
pyarrow loaded that takes as long as reading some 100,000 rows, frees nothing, and removes useful data from CPU caches.
"""

from __future__ import annotations

import gc
import os
import sys

WORKER_IS_KEPT = "SPARK_REUSE_WORKER"
"""Spark sets it for the processes that it reuses, and collects garbage only in these."""


_loaded = 0
"""The number of loaded modules at the last call."""


def gc_freeze_worker() -> None:
    """Call it when a task or a plan begins, in a process that Spark reuses; it has no effect in others.

    It freezes again when modules were loaded since the last call: the first task of a worker loads some of them only
    when its rows are sent.
    """
    global _loaded
    if os.environ.get(WORKER_IS_KEPT) and len(sys.modules) != _loaded:
        _loaded = len(sys.modules)
        gc.freeze()
