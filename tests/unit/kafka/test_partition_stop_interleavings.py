"""Every interleaving of two threads that agree without a lock: one iterates, the other one stops the partition.

``PartitionTopicInfo`` describes the agreement.  Two threads run the two sides line by line; a schedule says after which
steps the other one continues.  With up to three such changes, from each thread first, these are all schedules.

The compiled hand-out is tested in the same way: ``_delivery.c`` is built with a step between any two accesses of what
the threads share.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import pytest

from tests.extension_builder import build, load
from zkconsumer.base import delivery_state
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.kafka import chunks
from zkconsumer.kafka.chunks import ChunkQueue, PartitionTopicInfo
from zkconsumer.types import TopicPartition
from zkconsumer.wire.record_tables import ROW

SIDES = {"begin_delivery", "undeliver", "acknowledge", "mark_consumed", "stop"}
assert all(hasattr(PartitionTopicInfo, name) for name in SIDES)
FILES = (chunks.__file__, delivery_state.__file__)
STEPS_MAX = 24
"""More lines than both threads have together."""

DEADLINE_S = 20
"""A thread waits at most so long for the other one; none does unless the schedule itself is broken."""

OFFSET = 7

Side = Callable[[], None]


class Schedule:
    """Lets one of two threads run at a time; at the steps in ``changes`` the other one continues."""

    def __init__(self, changes: tuple[int, ...], first: int) -> None:
        self.steps = 0
        self._changes = set(changes)
        self._runs = first
        self._has_ended = [False, False]
        self._changed = threading.Condition()

    def tracer(self, thread: int) -> Callable[[FrameType, str, Any], Any]:
        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            if frame.f_code.co_name in SIDES and frame.f_code.co_filename in FILES:
                if event == "line":
                    self._step(thread)
                return trace
            return None

        return trace

    def begin(self, thread: int) -> None:
        with self._changed:
            self._wait(thread)

    def end(self, thread: int) -> None:
        with self._changed:
            self._has_ended[thread] = True
            self._runs = 1 - thread
            self._changed.notify_all()

    def _step(self, thread: int) -> None:
        with self._changed:
            self.steps += 1
            if self.steps in self._changes and not self._has_ended[1 - thread]:
                self._runs = 1 - thread
                self._changed.notify_all()
            self._wait(thread)

    def _wait(self, thread: int) -> None:
        assert self._changed.wait_for(lambda: self._runs == thread or self._has_ended[1 - thread], DEADLINE_S)


def run_both(schedule: Schedule, sides: tuple[Side, Side], here: threading.local | None = None) -> None:
    """Run the sides in two threads, as the schedule says.  ``here.thread`` gets the number of each thread."""

    def run(thread: int, side: Side) -> None:
        if here is not None:
            here.thread = thread
        sys.settrace(schedule.tracer(thread))
        schedule.begin(thread)
        try:
            side()
        finally:
            sys.settrace(None)
            schedule.end(thread)

    threads = [threading.Thread(target=run, args=args, daemon=True) for args in enumerate(sides)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def both_sides(changes: tuple[int, ...], first: int) -> tuple[bool, list[int], int]:
    """Whether the record was handed out, the positions that the stop was given, and the steps."""
    info = PartitionTopicInfo(TopicPartition("t", 0), "c-0", ChunkQueue(3), offset=OFFSET)
    schedule = Schedule(changes, first)
    handed: list[bool] = []
    backs: list[int] = []

    def iterate() -> None:
        handed.append(info.begin_delivery(OFFSET))
        if handed[0]:
            info.acknowledge(OFFSET + 1, 0)

    def stop() -> None:
        info.stop(lambda stopped: backs.append(stopped.consumed_offset))

    run_both(schedule, (iterate, stop))
    return handed[0], backs, schedule.steps


@pytest.mark.parametrize("changes", [0, 1, 2, 3])
def test_in_every_interleaving_a_stop_learns_of_the_record_that_was_handed_out(changes: int) -> None:
    """The first position that the stop is given is the right one: it is committed, and the partition released."""
    seen: set[bool] = set()
    for at in itertools.combinations(range(1, STEPS_MAX), changes):
        for first in (0, 1):
            handed, backs, steps = both_sides(at, first)
            assert 0 < steps < STEPS_MAX, "this test makes all interleavings of the lines, and no line is left out"
            seen.add(handed)
            assert backs, f"{at}, thread {first} first: the stop is never given a position (handed out: {handed})"
            right = OFFSET + 1 if handed else OFFSET
            assert backs[0] == right, f"{at}, thread {first} first: given {backs[0]}, {right} is right"
    assert seen == {True, False}, "the schedules make a difference"


# --- the compiled hand-out ------------------------------------------------------------------------------------------


class OneRecord:
    """A delivery of the module that was built with steps, with one record, and its ownership."""

    def __init__(self, built: ModuleType) -> None:
        row = ROW.pack(OFFSET, 0, 0, -1, 0, -1, 0, 0, 0, 0)
        queue, lease = built.QueueState(), built.LeaseState(SYSTEM_CLOCK, True)
        lease.until_ms = SYSTEM_CLOCK.now_ms() + 1_000_000

        class Ownership(built.OwnershipState):  # type: ignore[name-defined, misc]
            stop = PartitionTopicInfo.stop
            queue = ChunkQueue(3)

        class Delivery(built.Delivery):  # type: ignore[name-defined, misc]
            def _refill(self) -> bool:
                return False

            def _raise_ended(self) -> None:
                raise StopIteration

        self.info = Ownership()
        self.info.start_at(OFFSET)
        self.delivery = Delivery(queue, lease, None, None)
        self.delivery.load(self.info, 0, "t", 0, b"", row, 1)
        self.iterator = built.Iterator(self.delivery, None)


def both_compiled_sides(built: ModuleType, changes: tuple[int, ...], first: int) -> tuple[bool, list[int], int]:
    one = OneRecord(built)
    schedule = Schedule(changes, first)
    handed: list[bool] = []
    backs: list[int] = []
    here = threading.local()

    def step() -> None:
        schedule._step(here.thread)

    def iterate() -> None:
        handed.append(next(one.iterator, None) is not None)
        if handed[0]:
            one.delivery.acknowledge()

    def stop() -> None:
        one.info.stop(lambda stopped: backs.append(stopped.consumed_offset))

    built.set_step(step)
    run_both(schedule, (iterate, stop), here)
    built.set_step(None)
    return handed[0], backs, schedule.steps


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    to = tmp_path_factory.mktemp("built") / "_delivery.so"
    return load(build("zkconsumer/base/_delivery.c", to, "-O1", "-DZKCONSUMER_TEST_STEPS"), "steps._delivery")


@pytest.mark.parametrize("changes", [0, 1, 2, 3])
def test_in_every_interleaving_a_stop_learns_of_the_record_that_the_compiled_hand_out_gave(
    built: ModuleType, changes: int
) -> None:
    seen: set[tuple[bool, int]] = set()
    for at in itertools.combinations(range(1, STEPS_MAX), changes):
        for first in (0, 1):
            handed, backs, steps = both_compiled_sides(built, at, first)
            assert steps < STEPS_MAX, "there are more interleavings than this test makes"
            assert backs, f"{at}, thread {first} first: the stop is never given a position (handed out: {handed})"
            right = OFFSET + 1 if handed else OFFSET
            assert backs[0] == right, f"{at}, thread {first} first: given {backs[0]}, {right} is right"
            seen.add((handed, len(backs)))
    if changes:
        assert {handed for handed, _ in seen} == {True, False}, "the schedules make a difference"
