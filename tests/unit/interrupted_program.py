"""Reads a stream while an alarm goes off again and again, whose handler raises; prints what was lost, as JSON.

    python tests/unit/interrupted_program.py INTERRUPTIONS

The alarm counts CPU time (``ITIMER_VIRTUAL``), so that a busy machine makes no difference.  After each second one
another comes within some microseconds, while the first exception propagates.  The handler raises only while a call of
the stream is running: elsewhere it would say nothing about the library.  A compiled call shows no frame of its own:
there the instruction of the program is the one that calls the iterator.
"""

from __future__ import annotations

import dis
import itertools
import json
import signal
import sys
from types import FrameType
from typing import Any

from zkconsumer.base.delivery_lease import Lease
from zkconsumer.errors import ConsumerTimeoutException
from zkconsumer.kafka import table_delivery
from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk, PartitionTopicInfo
from zkconsumer.streams import KafkaStream
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set

RECORDS = 100_000 if table_delivery.AVAILABLE else 2_000
"""So many take some ten milliseconds."""

EVERY_S = 0.002
FOR_ITER = dis.opmap["FOR_ITER"]
RUNS_MAX = 5_000


class Alarm(BaseException):
    """What the handler raises."""


second_alarm = itertools.cycle([part * 1e-6 if has_second else 0 for part in range(1, 41) for has_second in (1, 0)])
"""Seconds after an alarm at which another comes; 0: none."""


def on_alarm(_: int, frame: FrameType | None) -> None:
    assert frame is not None
    signal.setitimer(signal.ITIMER_REAL, next(second_alarm))
    if frame.f_code is by_for.__code__ and frame.f_code.co_code[frame.f_lasti] == FOR_ITER:
        raise Alarm
    while frame is not None:
        if "/zkconsumer/" in frame.f_code.co_filename:
            raise Alarm
        frame = frame.f_back


def by_for(iterator: Any, seen: list[int]) -> None:
    for message in iterator:
        seen.append(message.offset)  # noqa: PERF401 (what was seen before an interruption counts)


def by_method(iterator: Any, seen: list[int]) -> None:
    while True:
        message = iterator.next()
        seen.append(message.offset)


def by_has_next(iterator: Any, seen: list[int]) -> None:
    while iterator.has_next():
        by_method(iterator, seen)


def main(wanted: int) -> dict[str, Any]:
    """Read until there were so many interruptions; each run has a stream of its own."""
    data = build_record_set([Record(offset, 0, 0, None, b"v") for offset in range(RECORDS)], 2)
    report: dict[str, Any] = {"interruptions": 0, "lost": 0, "twice": 0, "errors": []}
    signal.signal(signal.SIGVTALRM, on_alarm)
    signal.signal(signal.SIGALRM, on_alarm)
    for run in range(RUNS_MAX):
        clock = ManualClock()
        lease = Lease(clock)
        lease.set_until(clock.now_ms() + 1_000)
        queue = ChunkQueue(10)
        info = PartitionTopicInfo(TopicPartition("t", 0), "c-0", queue, offset=0)
        queue.offer(FetchedDataChunk(data, info, 0, RECORDS, len(data), 0))
        iterator: Any = KafkaStream("c-0", queue, lease, timeout_ms=0).iterator()
        read = (by_for, by_method, by_has_next)[run % 3]
        seen: list[int] = []
        signal.setitimer(signal.ITIMER_VIRTUAL, EVERY_S + run % 97 * 7e-6, EVERY_S)
        while True:
            try:
                try:
                    read(iterator, seen)
                except ConsumerTimeoutException:
                    break
            except Alarm:
                report["interruptions"] += 1
            except Exception as error:  # noqa: BLE001 (the test prints it)
                report["errors"].append(f"{type(error).__name__}: {error}")
                break
        for timer in (signal.ITIMER_VIRTUAL, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
        report["lost"] += len(set(range(info.consumed_offset)) - set(seen))
        report["twice"] += len(seen) - len(set(seen))
        if report["interruptions"] >= wanted:
            break
    for number in (signal.SIGVTALRM, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    return report


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
