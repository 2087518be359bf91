"""A Spark session for each kind of source, each with its JVM in a process of its own.

Sources that share one also share its Python workers and the garbage of its JVM: one would pay for what another left
behind (threads of librdkafka, classes that Java's compiler has seen too much of), and no program reads so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from spark_runs import Source, session

P = ParamSpec("P")
R = TypeVar("R")

_open = ExitStack()
_spark: Any = None
"""Of this process, where it is one of those."""


class Sessions:
    """``run`` has work done in the session of a source; the others are idle meanwhile."""

    def __init__(self, processes: dict[str, ProcessPoolExecutor]) -> None:
        self._processes = processes

    def run(self, source: Source, work: Callable[Concatenate[Any, P], R], *rest: P.args, **named: P.kwargs) -> R:
        """``work(spark, *rest, **named)``, a function of a module."""
        return self._processes[source.format].submit(_in_session, work, *rest, **named).result()


@contextmanager
def sessions(sources: tuple[Source, ...], folder: Path, jars: list[Path]) -> Iterator[Sessions]:
    """One for each format of the sources.  All end with it."""
    formats = sorted({source.format for source in sources})
    with ExitStack() as stack:
        # Each begins anew: a JVM does not live through a fork.
        made = {
            name: stack.enter_context(ProcessPoolExecutor(1, get_context("spawn"), _begin, (folder / name, jars)))
            for name in formats
        }
        try:
            yield Sessions(made)
        finally:
            for process in made.values():
                process.submit(_end).result()


def _begin(folder: Path, jars: list[Path]) -> None:
    global _spark
    _spark = _open.enter_context(session(folder, jars))


def _end() -> None:
    _open.close()


def _in_session(work: Callable[..., R], *rest: Any, **named: Any) -> R:
    return work(_spark, *rest, **named)
