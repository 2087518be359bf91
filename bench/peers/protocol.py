"""The protocol of the peers of ``bench/streams.py`` on standard input and output, for peers in Python.

The commands, one on each line, with words separated by blanks:

    read TOPIC GROUP MESSAGES CHECK TIMEOUT_S
    tail TOPIC GROUP SETTLE_S WINDOW_S TIMEOUT_S

``read`` joins the group, reads MESSAGES messages from the beginning, and leaves; the window is the whole reading.  With
CHECK 1 it sums offsets and lengths of values.  ``tail`` joins at the end of the topic, and begins its window SETTLE_S
seconds after the first message.  The answer to each command is one line of JSON:

    {"messages": 5, "offsets": 10, "bytes": 500, "window_messages": 3, "window_cpu_s": .1, "window_s": .1, "cpu_s": .5}

``offsets`` and ``bytes`` are null without CHECK; ``cpu_s`` is the CPU time of the process since its start; ``tail``
adds ``latencies_us``, one number for each stamped message of the window.  A failure is ``{"failed": "why"}``.  The
first line is ``{"ready": {...}}`` with the peer's description of itself.  The process ends at the end of its input,
also during a reading, because then the benchmark has ended.

A stamped message has a value of STAMPED_BYTES that begins with the time of sending, microseconds since 1970, as 8
bytes in big-endian.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import struct
import sys
import threading
import time
from collections.abc import Collection
from typing import Any, Protocol

STAMPED_BYTES = 101
STAMP = struct.Struct(">q")


class Peer(Protocol):
    """The methods of a peer in Python; both raise any exception for a failure."""

    def read(self, read: Read) -> None: ...
    def tail(self, tail: Tail) -> None: ...


def cpu_s() -> float:
    """User and system time of this process with all its threads, and of its children that have ended."""
    used = [resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class Window:
    """CPU and time between two marks."""

    def __init__(self) -> None:
        self.messages = 0
        self._cpu_s = self._s = 0.0

    def begin(self) -> None:
        """Begin the window now."""
        self._cpu_s, self._s = cpu_s(), time.monotonic()

    def end(self, messages: int) -> None:
        """End the window now; ``messages``: the number of messages read since ``begin``."""
        self.messages, self._cpu_s, self._s = messages, cpu_s() - self._cpu_s, time.monotonic() - self._s

    def figures(self) -> dict[str, Any]:
        return {"window_messages": self.messages, "window_cpu_s": self._cpu_s, "window_s": self._s}


class Read:
    """One ``read``: its arguments, and its results."""

    def __init__(self, words: list[str]) -> None:
        self.topic, self.group = words[:2]
        self.messages, check, self.timeout_s = map(int, words[2:])
        self.is_checked = check == 1
        self.count = self.offsets = self.bytes = 0
        self.window = Window()

    def loop(self, records: Collection[Any]) -> None:
        """What a program of ``poll()`` does with a list of records; sums are computed only with CHECK."""
        if self.is_checked:
            for record in records:
                record.key  # noqa: B018
                self.offsets += record.offset
                self.bytes += len(record.value)
        else:
            for record in records:
                record.key  # noqa: B018
                record.value  # noqa: B018
                record.offset  # noqa: B018
        self.count += len(records)

    def answer(self) -> dict[str, Any]:
        sums = (self.offsets, self.bytes) if self.is_checked else (None, None)
        return {"messages": self.count, "offsets": sums[0], "bytes": sums[1], **self.window.figures()}


class Tail:
    """One ``tail``: ``stamped`` is called with the value of each stamped message, and is true at the end."""

    def __init__(self, words: list[str]) -> None:
        self.topic, self.group = words[:2]
        self.settle_s, self.window_s, self.timeout_s = map(int, words[2:])
        self.count = 0
        self._at_begin = 0
        self._latencies_us: list[int] = []
        self._begin_us = self._end_us = 0
        self.window = Window()

    def stamped(self, value: bytes, count: int) -> bool:
        """``count``: the number of messages read so far."""
        now_us = time.time_ns() // 1000
        if not self._begin_us:
            self._begin_us = now_us + self.settle_s * 1_000_000
        if now_us < self._begin_us:
            return False
        if not self._end_us:
            self._end_us = now_us + self.window_s * 1_000_000
            self._at_begin = count
            self.window.begin()
        self._latencies_us.append(now_us - STAMP.unpack_from(value)[0])
        if now_us < self._end_us:
            return False
        self.count = count
        self.window.end(count - self._at_begin)
        return True

    def answer(self) -> dict[str, Any]:
        return {"messages": self.count, **self.window.figures(), "latencies_us": self._latencies_us}


def serve(peer: Peer, about: dict[str, Any]) -> None:
    """Execute commands until the end of the input, which ends this process."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    say({"ready": about})
    while True:
        word, *rest = lines.get().split()
        try:
            work: Read | Tail = Read(rest) if word == "read" else Tail(rest)
            if isinstance(work, Read):
                work.window.begin()
                peer.read(work)
                work.window.end(work.count)
            else:
                peer.tail(work)
            say({**work.answer(), "cpu_s": cpu_s()})
        except Exception as error:  # noqa: BLE001
            say({"failed": f"{type(error).__name__}: {error}"})


def _listen(lines: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def say(line: dict[str, Any]) -> None:
    """Print one line of JSON."""
    print(json.dumps(line), flush=True)


def settings(path: str) -> dict[str, str]:
    """Read a file of ``key=value`` lines."""
    with open(path, encoding="utf-8") as lines:
        return dict(line.rstrip("\n").split("=", 1) for line in lines if "=" in line)
