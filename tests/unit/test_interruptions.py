"""An exception at any bytecode of a call that gives records (Ctrl-C, a signal handler that raises): no record is lost.

It comes at each opcode in turn (``tests.interruptions``), which is more places than CPython has for signal handlers.
The program catches it and goes on: it reads on, or it closes.  ``interrupted_program.py`` does the same with real
signals.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.in_memory_fixtures import run_in_thread
from tests.interruptions import CALLS_MAX, Interrupted, Trace, every_opcode
from zkconsumer import javaapi
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.errors import ConsumerTimeoutException, InvalidMessageException
from zkconsumer.javaapi_simple import ByteBufferMessageSet, MessageAndOffset, MessageSetIterator
from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk, PartitionTopicInfo, ShutdownMarker
from zkconsumer.kafka.fetcher_manager import ConsumerFetcherManager
from zkconsumer.kafka.fetcher_thread import FetchSettings
from zkconsumer.simple_requests import MessageSet
from zkconsumer.streams import KafkaStream
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import scan_record_set

BASES = {0: 1_000_000, 1: 5}
"""The first offset of each partition: so far apart that the position of one cannot be taken for that of the other."""

Call = Callable[[], Any]
"""One call of the program; gives a message, or None.  What is done with the message afterwards is not traced."""


class World:
    """One stream with two partitions: one record of the first, then two of the second in one batch."""

    def __init__(
        self, timeout_ms: int = 0, *, codec: int = compression.NONE, magic: int = 2, is_filled: bool = True
    ) -> None:
        self.clock = ManualClock()
        self.lease = Lease(self.clock)
        self.lease.set_until(self.clock.now_ms() + 1_000)
        self.queue = ChunkQueue(10)
        self.stream: KafkaStream[bytes, bytes] = KafkaStream("c-0", self.queue, self.lease, timeout_ms=timeout_ms)
        self.iterator = self.stream.iterator()
        self.infos = {
            n: PartitionTopicInfo(TopicPartition("t", n), "c-0", self.queue, offset=at) for n, at in BASES.items()
        }
        self.sets = {0: records_of([BASES[0]], magic, codec), 1: records_of([BASES[1], BASES[1] + 1], magic, codec)}
        self.got: list[tuple[int, int]] = []
        self.skipped = 0
        self.expected = [(0, BASES[0]), (1, BASES[1]), (1, BASES[1] + 1)]
        if is_filled:
            self.fill()

    def fill(self) -> None:
        """Offer the chunks, as a fetcher does."""
        for number, data in self.sets.items():
            info, found = self.infos[number], scan_record_set(data)
            chunk = FetchedDataChunk(data, info, info.fetch_offset, found.next_offset, found.complete_bytes, 0)
            self.queue.offer(chunk)

    def positions(self) -> dict[int, int]:
        """The next offset of each partition, going by what the program has."""
        return {n: max([at, *(offset + 1 for number, offset in self.got if number == n)]) for n, at in BASES.items()}

    def consumed(self) -> dict[int, int]:
        return {n: info.consumed_offset for n, info in self.infos.items()}

    def in_hand(self) -> set[int]:
        return {n for n, info in self.infos.items() if info.unacknowledged_offset >= 0}

    def check_after_interruption(self, where: str) -> None:
        """Nothing that the program does not have counts, or is said to be in its hands."""
        consumed, positions = self.consumed(), self.positions()
        floor = {n: at + self.skipped for n, at in BASES.items()}
        assert all(consumed[n] <= max(positions[n], floor[n]) for n in BASES), (
            f"{where}: {consumed} counts, and the program is at {positions}"
        )
        last = {number for number, _ in self.got[-1:]}
        assert self.in_hand() <= last or where.endswith("RETURN_VALUE"), (
            f"{where}: {self.in_hand()} is in hand, and a release would wait for it"
        )

    def check_closed(self, where: str) -> None:
        """``close`` in the thread that iterates: exactly what the program has counts."""
        self.iterator.acknowledge()
        assert self.consumed() == self.positions(), where
        assert self.in_hand() == set(), f"{where}: a release would wait for {self.in_hand()}"


def records_of(offsets: Sequence[int], magic: int = 2, codec: int = compression.NONE) -> bytes:
    return build_record_set([Record(offset, 1_000, 0, b"key", b"value") for offset in offsets], magic, codec)


def place(message: Any) -> tuple[int, int]:
    if isinstance(message, javaapi.MessageAndMetadata):
        return message.partition(), message.offset()
    return message.partition, message.offset


def read_all(
    world: World,
    call: Call,
    trace: Trace,
    *,
    closes: bool = False,
    on_timeout: Callable[[], bool] = bool,
    on_got: Callable[[tuple[int, int]], None] = lambda _: None,
) -> None:
    """What a program does that catches the exception; ``on_timeout`` says whether it goes on after a time-out."""
    for _ in range(CALLS_MAX):
        try:
            with trace:
                got = call()
        except ConsumerTimeoutException:
            if not on_timeout():
                return
        except Interrupted:
            world.check_after_interruption(trace.last)
            if closes:
                return
        else:
            if got is not None:
                world.got.append(place(got))
                on_got(world.got[-1])
    pytest.fail(f"{trace.last}: no progress, {world.got}")


def by_builtin(world: World) -> Call:
    return lambda: next(world.iterator)


def by_method(world: World) -> Call:
    return world.iterator.next


def by_for(world: World) -> Call:
    def call() -> Any:
        for message in world.stream:
            return message
        pytest.fail("the stream has not ended")

    return call


def by_has_next(world: World) -> Call:
    return lambda: next(world.iterator) if world.iterator.has_next() else None


def by_peek(world: World) -> Call:
    def call() -> Any:
        peeked = world.iterator.peek()
        message = next(world.iterator)
        assert peeked is not None
        assert place(peeked) == place(message)
        return message

    return call


def by_java(world: World) -> Call:
    iterator = javaapi.KafkaStream(world.stream).iterator()
    return lambda: next(iterator) if iterator.hasNext() else None


def by_java_method(world: World) -> Call:
    iterator = javaapi.KafkaStream(world.stream).iterator()
    return iterator.next


pytestmark = pytest.mark.filterwarnings(
    # An exception in the ``finally`` of a generator that is thrown away: Python itself ignores it, and says so.
    "ignore::pytest.PytestUnraisableExceptionWarning"
)

WAYS = [by_builtin, by_method, by_for, by_has_next, by_peek, by_java, by_java_method]


@pytest.mark.parametrize("way", WAYS)
def test_interrupted_anywhere_a_program_that_reads_on_gets_each_record_once(way: Callable[[World], Call]) -> None:
    worlds: list[World] = []

    def run(trace: Trace) -> None:
        worlds[:] = [World()]
        read_all(worlds[0], way(worlds[0]), trace)

    for trace in every_opcode(run):
        [world] = worlds
        assert world.got == world.expected, trace.last
        world.check_closed(trace.last)


@pytest.mark.parametrize("way", [by_builtin, by_java_method])
def test_interrupted_anywhere_a_program_that_closes_has_exactly_what_counts(way: Callable[[World], Call]) -> None:
    worlds: list[World] = []

    def run(trace: Trace) -> None:
        worlds[:] = [World()]
        read_all(worlds[0], way(worlds[0]), trace, closes=True)

    for trace in every_opcode(run):
        worlds[0].check_closed(trace.last)


@pytest.mark.parametrize(
    ("magic", "codec"), [(0, compression.NONE), (1, compression.GZIP), (2, compression.GZIP)], ids=str
)
def test_interrupted_while_any_format_is_decoded_nothing_is_lost(magic: int, codec: int) -> None:
    worlds: list[World] = []

    def run(trace: Trace) -> None:
        worlds[:] = [World(magic=magic, codec=codec)]
        read_all(worlds[0], by_builtin(worlds[0]), trace)

    for trace in every_opcode(run):
        assert worlds[0].got == worlds[0].expected, trace.last


def test_interrupted_twice_nothing_is_lost() -> None:
    """In a call and in the one after it, which settles what the first one left."""
    for call in range(1, 4):
        for at in range(1, 700, 3):
            world, trace = World(), Trace([call, call + 1], at)
            read_all(world, by_builtin(world), trace)
            assert world.got == world.expected, trace.last
            world.check_closed(trace.last)


def test_interrupted_while_it_waits_for_a_chunk_nothing_is_lost() -> None:
    worlds: list[World] = []

    def run(trace: Trace) -> None:
        world = World(timeout_ms=1, is_filled=False)
        worlds[:] = [world]

        def comes() -> bool:
            if is_late := not len(world.queue) and not world.got:
                world.fill()
            return is_late

        read_all(world, by_builtin(world), trace, on_timeout=comes)

    for trace in every_opcode(run):
        assert worlds[0].got == worlds[0].expected, trace.last
        worlds[0].check_closed(trace.last)


@pytest.mark.parametrize("way", [by_builtin, by_peek])
def test_interrupted_while_it_waits_for_the_lease_nothing_is_lost(way: Callable[[World], Call]) -> None:
    worlds: list[World] = []

    def run(trace: Trace) -> None:
        world = World(timeout_ms=1)
        world.lease.set_until(0)
        worlds[:] = [world]

        def renewed() -> bool:
            was_doubtful = not world.lease.is_valid
            world.lease.set_until(world.clock.now_ms() + 1_000)
            return was_doubtful

        read_all(world, way(world), trace, on_timeout=renewed)

    for trace in every_opcode(run):
        assert worlds[0].got == worlds[0].expected, trace.last
        worlds[0].check_closed(trace.last)


def test_interrupted_around_a_message_that_cannot_be_read_what_is_sound_comes_once() -> None:
    worlds: list[World] = []

    def run(trace: Trace) -> None:
        world = World(is_filled=False)
        worlds[:] = [world]
        damaged = bytearray(records_of([BASES[0]]))
        damaged[-1] ^= 0x55
        world.sets[0] = bytes(damaged) + records_of([BASES[0] + 1])
        world.fill()

        world.skipped = 1

        def call() -> Any:
            try:
                return next(world.iterator)
            except InvalidMessageException:
                world.iterator.skip_poison()
                return None

        read_all(world, call, trace)

    # The position moves past the message that is skipped, which the program does not get.
    for trace in every_opcode(run):
        [world] = worlds
        assert world.got == [(0, BASES[0] + 1), (1, BASES[1]), (1, BASES[1] + 1)], trace.last
        world.check_closed(trace.last)


def test_interrupted_on_the_way_back_a_partition_that_leaves_is_released_at_the_right_position() -> None:
    worlds: list[World] = []
    backs: list[int] = []

    def run(trace: Trace) -> None:
        world = World()
        worlds[:] = [world]
        backs.clear()

        def leaves(got: tuple[int, int]) -> None:
            if got == (1, BASES[1]):
                world.infos[1].stop(lambda info: backs.append(info.consumed_offset))

        read_all(world, by_builtin(world), trace, on_got=leaves)

    for trace in every_opcode(run):
        [world] = worlds
        assert world.got == world.expected[:2], trace.last
        assert set(backs) == {BASES[1] + 1}, f"{trace.last}: the release was told {backs}"
        [rest] = {chunk.fetch_offset for chunk in world.infos[1].undelivered_chunks()}
        assert rest == BASES[1], "the chunk goes to the next stream"


@pytest.mark.parametrize("way", ["next", "for", "hasNext"])
def test_interrupted_anywhere_a_message_set_of_the_simple_consumer_is_given_once(way: str) -> None:
    got: list[int] = []
    data = records_of(range(3)) + records_of(range(3, 5))

    def run(trace: Trace) -> None:
        got.clear()
        iterator = ByteBufferMessageSet(MessageSet(data)).iterator()
        for _ in range(CALLS_MAX):
            try:
                with trace:
                    message = take(iterator, way)
            except Interrupted:
                continue
            if message is None:
                return
            got.append(message.offset())
        pytest.fail(f"{trace.last}: no progress, {got}")

    for trace in every_opcode(run):
        assert got == list(range(5)), trace.last


def take(iterator: MessageSetIterator, way: str) -> MessageAndOffset | None:
    if way == "for":
        for message in iterator:
            return message
        return None
    if way == "hasNext":
        return iterator.next() if iterator.hasNext() else None
    return next(iterator, None)


def test_a_thread_that_iterates_needs_no_lock_of_the_fetchers() -> None:
    """An exception in ``with condition`` may leave the lock taken, so nothing that this thread calls may take one."""
    settings = FetchSettings("c", queued_max_bytes=1)
    manager = ConsumerFetcherManager(  # nothing of it is used but ``feed``
        "c",
        settings,
        1,
        connect=Any,
        brokers=Any,
        clock=ManualClock(),
        on_reset=Any,
        on_position_missing=Any,
        on_thread_error=Any,
        on_authentication_error=Any,  # type: ignore[arg-type]
    )
    world = World()
    manager.add_queue(world.queue)
    budget = manager.budget
    assert not budget.reserve(budget.add_reservation(), 1, 1)
    locks = [lock for lock in vars(manager).values() if isinstance(lock, type(threading.Condition()))]
    locks += [lock for lock in vars(budget).values() if isinstance(lock, type(threading.Lock()))]
    assert len(locks) == 2
    with locks[0], locks[1]:
        got = run_in_thread(lambda: place(next(world.iterator)))
        assert got(2_000) == world.expected[0]


def test_an_exception_of_a_signal_handler_loses_no_record() -> None:
    """With real signals, a fixed number of them; also two in quick succession; the program prints what it got, and what
    would be committed."""
    program = [sys.executable, str(Path(__file__).with_name("interrupted_program.py"))]
    done = subprocess.run([*program, "300"], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["interruptions"] >= 300
    assert (report["lost"], report["twice"], report["errors"]) == (0, 0, []), report


def test_a_signal_handler_may_close_the_connector_while_a_record_is_on_its_way() -> None:
    """``SIGTERM`` handlers call ``shutdown`` in the thread that iterates; here wherever CPython runs handlers."""
    worlds: list[World] = []

    def run(trace: Trace) -> None:
        world = World()
        worlds[:] = [world]

        def close() -> None:
            world.iterator.acknowledge()
            world.queue.end(ShutdownMarker())

        trace.handler = close
        with trace, contextlib.suppress(ConsumerTimeoutException):
            world.got += [place(message) for message in [next(world.iterator, None)] if message is not None]

    for trace in every_opcode(run):
        assert worlds[0].consumed() == dict(BASES), f"{trace.last}: what the handler does not know of does not count"
        worlds[0].check_closed(trace.last)
