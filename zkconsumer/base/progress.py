"""How far a long operation is: the code that works starts a task and counts, and a listener shows it.

    with progress_task("reading znodes", total=5_000, unit="znodes") as task:
        for some in chunks(...):
            ...
            task.advance(len(some))

Without a listener (a library, a pipe, another thread than the command's) a task costs two assignments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True, eq=False)
class ProgressTask:
    """One operation.  ``total``: None if it is not known.  ``unit``: what is counted; ``s``: seconds that pass.

    ``is_step``: one of the steps of a run, which is shown from its start, and as finished after its end.
    ``done`` only grows; a listener may read it on another thread.
    """

    name: str
    total: int | None = None
    unit: str = ""
    is_step: bool = False
    done: int = 0

    def advance(self, count: int = 1) -> None:
        """More is done."""
        self.done += count


class ProgressListener(Protocol):
    """Receives the tasks of the thread that set it."""

    def on_task_started(self, task: ProgressTask) -> None:
        """Called before the work."""

    def on_task_ended(self, task: ProgressTask, *, is_done: bool) -> None:
        """Called after the work; ``is_done`` is False if it ended with an exception."""


_listener: ContextVar[ProgressListener | None] = ContextVar("zkconsumer-progress", default=None)


@contextmanager
def progress_listener(listener: ProgressListener | None) -> Iterator[None]:
    """Report the tasks of this thread to ``listener`` in the block; None: to no one."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def has_progress_listener() -> bool:
    """Whether the tasks of this thread are shown."""
    return _listener.get() is not None


@contextmanager
def progress_task(
    name: str, total: int | None = None, unit: str = "", *, is_step: bool = False
) -> Iterator[ProgressTask]:
    """Report that this operation is in progress in the block."""
    task, listener = ProgressTask(name, total, unit, is_step), _listener.get()
    if listener is None:
        yield task
        return
    listener.on_task_started(task)
    try:
        yield task
    except BaseException:
        listener.on_task_ended(task, is_done=False)
        raise
    listener.on_task_ended(task, is_done=True)
