"""``ProgressBoard``: what the progress line of a terminal shows at a time.  Pure.

Tasks can be nested (groups, and the znodes of each): the outermost one that has a total is shown, or else the innermost
one.  A task is shown when it has lasted for ``SHOWN_AFTER_MS``; a step of a run is shown from its start, and its last
line stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zkconsumer.admin.text_format import duration_text
from zkconsumer.base.progress import ProgressTask

SHOWN_AFTER_MS = 2_000
SECONDS = "s"
"""The unit of a task that only waits."""


@dataclass(slots=True)
class ProgressBoard:
    """The tasks in progress, the outermost first, with the time of their start (ms of the clock)."""

    _tasks: list[tuple[ProgressTask, int]] = field(default_factory=list)

    def start(self, task: ProgressTask, now_ms: int) -> None:
        """A task has started, inside those that are in progress."""
        self._tasks.append((task, now_ms))

    def end(self, task: ProgressTask, now_ms: int, *, is_done: bool) -> str | None:
        """A task has ended; return the line that stays, None if its line is removed."""
        started_ms = next(started_ms for one, started_ms in self._tasks if one is task)
        self._tasks = [pair for pair in self._tasks if pair[0] is not task]
        if not task.is_step:
            return None
        passed_ms = now_ms - started_ms
        after = f", {duration_text(passed_ms)}" if passed_ms >= SHOWN_AFTER_MS else ""
        return f"{task.name}: {'done' if is_done else 'not done'}{after}"

    def line(self, now_ms: int) -> str | None:
        """The line at this time; None: no task has lasted long enough."""
        shown = [(task, started_ms) for task, started_ms in self._tasks if _is_shown(task, started_ms, now_ms)]
        if not shown:
            return None
        steps = [task.name for task, _ in shown if task.is_step]
        counted = [pair for pair in shown if not pair[0].is_step and pair[0].total is not None]
        plain = [pair for pair in shown if not pair[0].is_step]
        task, started_ms = counted[0] if counted else plain[-1] if plain else shown[-1]
        text = task_text(task, now_ms - started_ms)
        return text if task.is_step or not steps else f"{steps[-1]}: {text}"


def _is_shown(task: ProgressTask, started_ms: int, now_ms: int) -> bool:
    return task.is_step or now_ms - started_ms >= SHOWN_AFTER_MS


def task_text(task: ProgressTask, passed_ms: int) -> str:
    """Name, how much is done, the rate, and the time that is left if it goes on like this."""
    done, total = task.done, task.total
    if total is None:
        count = f" {done:,} {task.unit}" if done else ""
        passed = duration_text(passed_ms) if passed_ms >= SHOWN_AFTER_MS else ""
        return f"{task.name} …{count}{', ' if count and passed else ' ' if passed else ''}{passed}"
    done = min(done, total)
    text = f"{task.name}: {done:,} of {total:,} {task.unit}".rstrip()
    if task.unit == SECONDS:
        return text
    if not done or passed_ms <= 0:
        return text
    rate = done * 1000 / passed_ms
    left_ms = round((total - done) * 1000 / rate)
    return f"{text}, {_rate_text(rate)}, {duration_text(left_ms + 999)} left"


def _rate_text(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s" if rate >= 0.1 else f"{rate * 60:.1f}/min"
