"""Pickles the source's classes so that a Spark worker that cannot load them reports the reason.

Spark pickles the data source's class and its readers by name: a worker without this package fails on an unknown name,
deep in a stack trace.  Classes with the metaclass ``LoaderPickledMeta`` are pickled as a call of ``load_in_worker``.
That function is sent with its code (``pickled_by_value``), and its error names the interpreter, the machine and the
remedy.

Executors only call ``read`` of a reader: ``ExecutorReaderMixin`` keeps the rest (options, plans, the membership, and
every package that those need) on the driver.
"""

from __future__ import annotations

import copyreg
from abc import ABCMeta
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bridge.spark.source.pickled_by_value import load_in_worker
from zkconsumer.version import __version__


class LoaderPickledMeta(ABCMeta):
    """The metaclass of the classes that Spark sends to workers: see the head of this file."""


class ExecutorReaderMixin(metaclass=LoaderPickledMeta):
    """The executor part of a reader; must precede Spark's class in the bases.  Only this part is pickled."""

    def read(self, partition: Any) -> Iterator[Any]:
        """The record batches of a ``RangePartition``; errors and start as in
        ``bridge.spark.decode.range_partition``."""
        from bridge.spark.decode.range_partition import read_partition
        from bridge.spark.source.error_rendering import iterate_sentence_before_traceback

        return iterate_sentence_before_traceback(read_partition(partition))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[()]]:
        return ExecutorReaderMixin, ()


def _by_load_here(shipped: type) -> tuple[Callable[..., Any], tuple[str, str, str, str]]:
    return load_in_worker, (shipped.__module__, shipped.__qualname__, __version__, _archive())


def _archive() -> str:
    """The path of the zip that contains this package in this process; empty without a zip."""
    home = Path(__file__).parents[3]
    return str(home) if home.is_file() else ""


copyreg.pickle(LoaderPickledMeta, _by_load_here)
