"""How answers are read: as many at once as come in a moment, while many are due; and nothing waits for a single one."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from zkconsumer.zk import kazoo_connection
from zkconsumer.zk.kazoo_connection import GATHER_FROM_PACKETS, GATHER_MS, _KazooConnection, _KazooRequest


class Asked:
    """A request under way; ``answers`` are the errors that came for it."""

    opcode, body = 4, b""

    def __init__(self) -> None:
        self.answers: list[int] = []

    def on_response(self, error: int, answer: bytes, at: int) -> None:
        self.answers.append(error)

    def on_failure(self, *, is_session_over: bool) -> None:
        raise AssertionError("no answer was lost")


def answer_to(xid: int) -> bytes:
    return struct.pack("!iiqi", 16, xid, 7, -101)


class Bench:
    """A connection whose server is the test; the server answers while the connection waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = KazooClient("h:1")
        self.connection = _KazooConnection(self.client, lambda *_: None, None, lambda _: None)
        ours, self.server = socket.socketpair()
        ours.setblocking(False)
        self.connection._socket = ours
        self.asked: list[Asked] = []
        self.waited_ms: list[int] = []
        bench = self

        class Poll:
            def poll(self, timeout_ms: int) -> list[Any]:
                bench.waited_ms.append(timeout_ms)
                bench.server.sendall(b"".join(map(answer_to, range(2, len(bench.asked) + 1))))
                return []

        monkeypatch.setattr(kazoo_connection.select, "poll", Poll)

    def ask(self, count: int) -> None:
        for xid in range(1, count + 1):
            self.asked.append(Asked())
            packet: Any = _KazooRequest(self.asked[-1])
            self.client._pending.append((packet, packet, xid))

    @property
    def answered(self) -> int:
        return sum(asked.answers == [-101] for asked in self.asked)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(monkeypatch)
    yield made
    made.connection._socket.close()
    made.server.close()


def test_while_many_answers_are_due_those_of_a_moment_are_read_at_once(bench: Bench) -> None:
    """A server gives them one by one: each would wake a thread that takes a core from it."""
    bench.ask(GATHER_FROM_PACKETS)
    bench.server.sendall(answer_to(1))
    assert bench.connection._read_socket(1.0) is None
    assert bench.waited_ms == [GATHER_MS]
    assert bench.answered == GATHER_FROM_PACKETS


def test_where_few_are_due_none_waits(bench: Bench) -> None:
    bench.ask(GATHER_FROM_PACKETS - 1)
    bench.server.sendall(answer_to(1))
    assert bench.connection._read_socket(1.0) is None
    assert (bench.waited_ms, bench.answered) == ([], 1)
