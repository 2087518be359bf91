"""What Spark sends to its Python workers says who it is, before it fails to load there.

Spark pickles the data source's class and its readers by name: a worker that lacks this package meets a name that it
does not know, deep in a stack trace.  Classes with the metaclass ``LoaderPickledMeta`` travel as a call of
``load_in_worker``, which travels with its code (``pickled_by_value``), and names the interpreter, the machine and the
cure.

A reader travels to executors alone, and all that it does there is to read: ``ExecutorReaderMixin`` leaves the rest
(options, plans, the membership, and every package that those need) on the driver.
"""

from __future__ import annotations

import copyreg
from abc import ABCMeta
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bridge.spark.source.pickled_by_value import load_in_worker
from zkconsumer.kafka.version_negotiation import CLIENT_SOFTWARE_VERSION


class LoaderPickledMeta(ABCMeta):
    """The metaclass of what Spark sends to workers: see the head of this file."""


class ExecutorReaderMixin(metaclass=LoaderPickledMeta):
    """The executors' half of a reader, to be named before Spark's own class; pickled, nothing else of it is left."""

    def read(self, partition: Any) -> Iterator[Any]:
        """The record batches of a ``RangePartition``; raises, and begins, as ``bridge.spark.decode.range_partition``
        says.
        """
        from bridge.spark.decode.range_partition import read_partition
        from bridge.spark.source.error_rendering import iterate_sentence_before_traceback

        return iterate_sentence_before_traceback(read_partition(partition))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[()]]:
        return ExecutorReaderMixin, ()


def _by_load_here(shipped: type) -> tuple[Callable[..., Any], tuple[str, str, str, str]]:
    return load_in_worker, (shipped.__module__, shipped.__qualname__, CLIENT_SOFTWARE_VERSION, _archive())


def _archive() -> str:
    """The zip that holds this package here, or nothing."""
    home = Path(__file__).parents[3]
    return str(home) if home.is_file() else ""


copyreg.pickle(LoaderPickledMeta, _by_load_here)
