"""Since when a program works on a record, as its group sees it: ``ChunkQueue.unacknowledged_since_ms`` and
``PartitionProcessor.busy_stream``.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.in_memory_fixtures import run_in_thread, wait_until
from tests.unit.test_streams import Lane, records_of
from zkconsumer.errors import ConsumerTimeoutException, InvalidMessageException
from zkconsumer.kafka import table_delivery
from zkconsumer.kafka.chunks import ShutdownMarker
from zkconsumer.member.ownership import BusyStream
from zkconsumer.runtime.stream_fetcher import ANY_TOPIC, StreamFetcher
from zkconsumer.testing.manual_clock import ManualClock


def lane_with(count: int, clock: ManualClock, timeout_ms: int = 0) -> Lane:
    lane = Lane(timeout_ms, clock=clock)
    lane.put(lane.info(), records_of(range(count)))
    return lane


def test_it_counts_from_when_the_record_was_handed_out_until_the_program_asks_on() -> None:
    clock = ManualClock(1_000)
    lane = lane_with(2, clock)
    assert lane.queue.unacknowledged_since_ms is None, "the program has not asked for the first"
    next(lane.iterator)
    clock.move(500)
    assert lane.queue.unacknowledged_since_ms == 1_000
    next(lane.iterator)
    assert lane.queue.unacknowledged_since_ms == 1_500
    with pytest.raises(ConsumerTimeoutException):
        next(lane.iterator)
    assert lane.queue.unacknowledged_since_ms is None, "it asked for one, and got none"


def test_asking_whether_there_is_a_record_counts_as_asking_for_it() -> None:
    clock = ManualClock()
    for ask in (lambda lane: lane.iterator.has_next(), lambda lane: lane.iterator.peek()):
        lane = lane_with(2, clock)
        next(lane.iterator)
        ask(lane)
        assert lane.queue.unacknowledged_since_ms is None


def test_a_program_that_waits_in_the_call_has_none() -> None:
    lane = Lane(-1)
    lane.put(lane.info(), records_of([0]))
    next(lane.iterator)
    assert lane.queue.unacknowledged_since_ms is not None
    waiting = run_in_thread(lambda: next(lane.iterator, None))
    wait_until(lambda: lane.queue.unacknowledged_since_ms is None, "it came back, and waits")
    lane.queue.end(ShutdownMarker())
    assert waiting() is None


@pytest.mark.parametrize("end", ["acknowledge", "undeliver"])
def test_a_record_that_is_given_back_or_counted_is_in_hand_no_more(end: str) -> None:
    lane = lane_with(1, ManualClock())
    next(lane.iterator)
    getattr(lane.iterator, end)()
    assert lane.queue.unacknowledged_since_ms is None


def test_a_message_that_cannot_be_handed_out_is_not_in_hand() -> None:
    lane = Lane(0)
    good = records_of([0])
    lane.put(lane.info(), good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(InvalidMessageException):
        next(lane.iterator)
    assert lane.queue.unacknowledged_since_ms is None


@pytest.mark.skipif(table_delivery.AVAILABLE, reason="the compiled hand-out runs no Python code between the two")
def test_a_record_that_an_exception_keeps_from_the_program_is_not_in_hand() -> None:
    lane = lane_with(1, ManualClock())
    delivery = lane.iterator.delivery
    delivery.prepare_next()
    assert lane.queue.unacknowledged_since_ms is not None
    delivery.acknowledge()  # as the next call does: the record was offered, and never taken out
    assert lane.queue.unacknowledged_since_ms is None
    assert next(lane.iterator).offset == 0


def test_a_member_is_as_busy_as_its_stream_that_has_had_its_record_for_the_longest_time() -> None:
    clock = ManualClock(1_000)
    lanes = [lane_with(2, clock) for _ in range(3)]
    holder = StreamFetcher(cast("Any", None), lanes[0].lease, cast("Any", None), cast("Any", None))
    holder.queues = {("a", "g-0"): lanes[0].queue, ("b", "g-0"): lanes[1].queue, (ANY_TOPIC, "g-1"): lanes[2].queue}
    assert holder.busy_stream is None
    next(lanes[2].iterator)
    clock.move(10)
    next(lanes[1].iterator)
    assert holder.busy_stream == BusyStream(1_000, "g-1")
    next(lanes[2].iterator)
    assert holder.busy_stream in (BusyStream(1_010, "g-0"), BusyStream(1_010, "g-1"))
    with pytest.raises(ConsumerTimeoutException):
        [next(lanes[2].iterator) for _ in range(2)]
    assert holder.busy_stream == BusyStream(1_010, "g-0")
