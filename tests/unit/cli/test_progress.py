"""The progress line: what it shows at a time, and that it never mixes with other output."""

from __future__ import annotations

import io
import threading

import pytest

from bridge.migration.steps.step_executors import ApplyExecutor
from zkconsumer.base.progress import ProgressTask, has_progress_listener, progress_listener, progress_task
from zkconsumer.cli import terminal
from zkconsumer.cli.console import print_message
from zkconsumer.cli.progress_board import SHOWN_AFTER_MS, ProgressBoard
from zkconsumer.cli.progress_display import CLEAR_LINE, ProgressDisplay
from zkconsumer.testing.manual_clock import ManualClock


def board_with(*tasks: ProgressTask) -> ProgressBoard:
    board = ProgressBoard()
    for task in tasks:
        board.start(task, 0)
    return board


def test_a_task_is_shown_after_two_seconds_with_rate_and_time_left() -> None:
    task = ProgressTask("exporting", 5_000, "groups")
    board = board_with(task)
    task.advance(1_000)
    assert board.line(SHOWN_AFTER_MS - 1) is None
    assert board.line(SHOWN_AFTER_MS) == "exporting: 1,000 of 5,000 groups, 500/s, 8 s left"
    task.advance(4_000)
    assert board.line(10_000) == "exporting: 5,000 of 5,000 groups, 500/s, 0 s left"


@pytest.mark.parametrize(
    ("done", "passed_ms", "rate"), [(1, 2_000, "0.5/s"), (1, 60_000, "1.0/min"), (40, 2_000, "20/s")]
)
def test_a_slow_rate_has_a_unit_in_which_it_is_no_zero(done: int, passed_ms: int, rate: str) -> None:
    task = ProgressTask("reading", 100, "groups", done=done)
    assert f", {rate}, " in (board_with(task).line(passed_ms) or "")


def test_without_a_total_the_line_shows_the_count_and_the_time_that_has_passed() -> None:
    task = ProgressTask("downloading Kafka 1.1.1", unit="files")
    board = board_with(task)
    assert board.line(61_000) == "downloading Kafka 1.1.1 … 1 min 1 s"
    task.advance(12)
    assert board.line(61_000) == "downloading Kafka 1.1.1 … 12 files, 1 min 1 s"


def test_nothing_is_invented_before_the_first_unit_is_done() -> None:
    assert board_with(ProgressTask("reading", 7, "groups")).line(9_000) == "reading: 0 of 7 groups"


def test_a_wait_counts_seconds_and_has_no_rate() -> None:
    assert board_with(ProgressTask("watching", 5, "s", done=3)).line(3_000) == "watching: 3 of 5 s"


def test_of_nested_tasks_the_outermost_with_a_total_is_shown() -> None:
    outer, inner = ProgressTask("reading", 4, "groups", done=2), ProgressTask("reading znodes", 10, "znodes", done=1)
    assert board_with(outer, inner).line(2_000) == "reading: 2 of 4 groups, 1.0/s, 2 s left"
    assert (board_with(ProgressTask("plan"), inner).line(2_000) or "").startswith("reading znodes: 1 of 10 znodes")
    assert board_with(ProgressTask("plan"), ProgressTask("a part")).line(2_000) == "a part … 2 s"


def test_a_step_is_shown_from_its_start_and_stays_as_finished() -> None:
    step, part = ProgressTask("fence", is_step=True), ProgressTask("writing", 10, "offsets", done=5)
    board = board_with(step, part)
    assert board.line(0) == "fence …"
    assert board.line(5_000) == "fence: writing: 5 of 10 offsets, 1.0/s, 5 s left"
    assert board.end(part, 5_000, is_done=True) is None
    assert board.end(step, 5_000, is_done=True) == "fence: done, 5 s"
    assert board.line(9_000) is None


def test_a_step_that_failed_does_not_look_finished() -> None:
    step = ProgressTask("fence", is_step=True)
    assert board_with(step).end(step, 100, is_done=False) == "fence: not done"


# --- the shell --------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_the_line_is_removed_before_a_message_and_at_the_end(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = io.StringIO()
    display = ProgressDisplay(stream, clock)
    remove = terminal.on_output(display.hide)
    try:
        with progress_listener(display), progress_task("a name that is too long for it", 100, "znodes"):
            clock.move(SHOWN_AFTER_MS)
            display.draw()
            assert stream.getvalue().endswith(f"{CLEAR_LINE}a name that is too long for …")
            print_message("something else")
            assert stream.getvalue().endswith(f"for …{CLEAR_LINE}")
            display.draw()
    finally:
        remove()
        display.close()
    assert stream.getvalue().endswith(CLEAR_LINE)
    assert capsys.readouterr().err == "something else\n"


def test_a_short_task_writes_nothing(clock: ManualClock) -> None:
    stream = io.StringIO()
    display = ProgressDisplay(stream, clock)
    with progress_listener(display), progress_task("short", 1):
        display.draw()
    display.close()
    assert stream.getvalue() == ""


def test_an_interrupted_step_says_that_it_is_not_done(clock: ManualClock) -> None:
    stream = io.StringIO()
    display = ProgressDisplay(stream, clock)
    with pytest.raises(KeyboardInterrupt), progress_listener(display), progress_task("fence", is_step=True):
        raise KeyboardInterrupt
    display.close()
    assert stream.getvalue().endswith(f"{CLEAR_LINE}fence: not done\n")


def test_a_terminal_that_was_closed_does_not_end_the_work(clock: ManualClock) -> None:
    stream = io.StringIO()
    display = ProgressDisplay(stream, clock)
    with progress_listener(display), progress_task("fence", is_step=True):
        stream.close()
    display.close()


def test_other_threads_and_other_code_have_no_listener(clock: ManualClock) -> None:
    found: list[bool] = []
    with progress_listener(ProgressDisplay(io.StringIO(), clock)):
        assert has_progress_listener()
        thread = threading.Thread(target=lambda: found.append(has_progress_listener()))
        thread.start()
        thread.join()
    assert found == [False]
    assert not has_progress_listener()


# --- the steps of a migration -----------------------------------------------------------------------------------


class StepOfTheTest:
    """A step of a migration that does nothing."""

    name = "fence the group"

    def do(self) -> None:
        pass


class NoInvariant:
    """Everything holds."""

    def check_before(self, step: object) -> None:
        pass

    def check_after(self, step: object) -> None:
        pass

    def restart(self) -> None:
        pass


def execute_step(clock: ManualClock) -> tuple[list[str], list[str]]:
    """What the executor reports, and the names of the executed steps."""
    reports: list[str] = []
    executor = ApplyExecutor(reports.append, lambda: None, lambda _: None, clock, NoInvariant())
    executor.execute(StepOfTheTest())  # type: ignore[arg-type]
    return reports, executor.executed_steps


def test_a_step_is_reported_in_a_pipe_and_looks_finished_on_a_terminal(clock: ManualClock) -> None:
    assert execute_step(clock) == (["fence the group …"], ["fence the group"])
    stream = io.StringIO()
    display = ProgressDisplay(stream, clock)
    with progress_listener(display):
        assert execute_step(clock) == ([], ["fence the group"])
    display.close()
    assert stream.getvalue() == f"{CLEAR_LINE}fence the group …{CLEAR_LINE}fence the group: done\n"
