"""How long the broker waits for a client that reads slowly, and for a disk that does not answer."""

from __future__ import annotations

import asyncio
import errno
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.broker import coordinator_runtime
from bridge.broker.client_connection import SLOW_READER_TIMEOUT_MS, ClientConnection
from bridge.broker.config import BrokerConfig
from bridge.broker.log.partition_log import PartitionLog
from bridge.broker.receive_buffer import RequestMemoryBudget
from bridge.broker.sasl_server_authenticator import SaslServerAuthenticator
from bridge.testing import EmbeddedBroker
from tests.broker.raw_client import RawClient
from zkconsumer.errors import PreconditionFailed
from zkconsumer.wire.entries import Record

IDLE_MS = 600_000
BEGUN = struct.pack(">i", 1_000_000)
"""The first bytes of a request that is never whole here."""


class Socket(asyncio.Transport):
    """What was written and not taken by the client."""

    def __init__(self) -> None:
        super().__init__({"peername": ("c", 1)})
        self.unsent_bytes = 0
        self.is_aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        self.is_aborted = True


class Broker:
    """Its clock, and connections to it with room for a million bytes."""

    def __init__(self) -> None:
        self.now_ms = 0
        cluster = SimpleNamespace(scheduler=SimpleNamespace(now_ms=lambda: self.now_ms), config=BrokerConfig())
        self._node = cast("Any", SimpleNamespace(cluster=cluster))
        self._budget = RequestMemoryBudget(1_000_000)
        self._open_ones: set[ClientConnection] = set()

    def connected(self) -> tuple[ClientConnection, Socket]:
        connection, socket = (
            ClientConnection(self._node, "P", SaslServerAuthenticator(None), self._budget, self._open_ones),
            Socket(),
        )
        connection.connection_made(socket)
        return connection, socket


class Slow(Broker):
    """A connection with a million bytes of an answer before it."""

    def __init__(self) -> None:
        super().__init__()
        self.connection, self.socket = self.connected()
        self.socket.unsent_bytes = 1_000_000
        self.connection.pause_writing()

    def minutes(self, count: int) -> Iterator[None]:
        """Look at it as the server does, more than once in the time that a deaf client has."""
        for _ in range(count * 3):
            self.now_ms += SLOW_READER_TIMEOUT_MS // 3 + 1
            yield
            self.connection.check_timeouts(self.now_ms, IDLE_MS)


def test_a_client_that_sends_and_reads_nothing_is_ended() -> None:
    slow = Slow()
    for _ in slow.minutes(2):
        slow.connection.data_received(b"x")
    assert slow.socket.is_aborted, "one byte a minute would hold the answer for ever"


def test_a_client_that_reads_slowly_gets_its_answer_however_long_that_takes() -> None:
    slow = Slow()
    for _ in slow.minutes(10):
        slow.socket.unsent_bytes -= 1000
    assert not slow.socket.is_aborted
    for _ in slow.minutes(2):
        pass
    assert slow.socket.is_aborted, "it has stopped reading"


def test_a_request_that_trickles_in_is_given_up_when_a_silent_connection_would_be() -> None:
    """One byte a minute would else hold its buffer for as long as the client likes."""
    broker = Broker()
    connection, socket = broker.connected()
    broker.now_ms += IDLE_MS - 1
    connection.data_received(BEGUN)
    for _ in range(10):
        broker.now_ms += IDLE_MS // 10
        connection.check_timeouts(broker.now_ms, IDLE_MS)
        assert not socket.is_aborted, "its time began with its first byte"
        connection.data_received(b"x")
    broker.now_ms += 1
    connection.check_timeouts(broker.now_ms, IDLE_MS)
    assert socket.is_aborted


def test_who_holds_the_most_for_the_longest_goes_and_not_who_comes_next() -> None:
    broker = Broker()
    hoards = [broker.connected() for _ in range(3)]
    for connection, _ in hoards:
        connection.data_received(BEGUN + bytes(320_000))
        broker.now_ms += 1_000
    honest, socket = broker.connected()
    honest.data_received(BEGUN + bytes(400_000))
    assert [hoard.is_aborted for _, hoard in hoards] == [True, True, False]
    assert not socket.is_aborted
    honest.data_received(bytes(200_000))
    assert not socket.is_aborted, "what the others held was free at once"


def test_many_small_hoards_do_not_push_out_a_large_request_that_comes_in_at_once() -> None:
    broker = Broker()
    hoards = [broker.connected() for _ in range(9)]
    for connection, _ in hoards:
        connection.data_received(BEGUN + bytes(100_000))
    broker.now_ms += 60_000
    honest, socket = broker.connected()
    for _ in range(5):
        honest.data_received(BEGUN + bytes(90_000))
        broker.now_ms += 100
    assert not socket.is_aborted
    assert sum(hoard.is_aborted for _, hoard in hoards) == 4


def test_offsets_that_cannot_be_read_now_are_not_told_to_be_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that is told so begins where ``auto.offset.reset`` says; one that is told to wait, waits."""
    with EmbeddedBroker(data_dir=tmp_path) as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t")
        while talk.find_coordinator("g").error_code or talk.commit("g", "t", 0, 5):
            time.sleep(0.01)
    refused: list[PartitionLog] = []
    read = PartitionLog.records

    def records(log: PartitionLog) -> Iterator[Record]:
        if log.size and log not in refused:
            refused.append(log)
            raise OSError(errno.EMFILE, "too many open files")
        return read(log)

    monkeypatch.setattr(PartitionLog, "records", records)
    monkeypatch.setattr(coordinator_runtime, "LOAD_RETRY_MS", 50)
    with EmbeddedBroker(data_dir=tmp_path) as broker, RawClient(broker.addresses()[0]) as talk:
        told = [talk.committed("g", "t", 0)]
        while told[-1] != (5, 0) and len(told) < 1000:
            time.sleep(0.01)
            told.append(talk.committed("g", "t", 0))
    assert set(told) <= {(-1, 14), (5, 0)}
    assert told[-1] == (5, 0)
    assert len(refused) == 1


def test_a_directory_that_cannot_be_written_is_told_and_nothing_is_held(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        broker.create_topic("t")
    (tmp_path / "catalogue.draft").mkdir()
    with pytest.raises(PreconditionFailed, match=r"catalogue.draft cannot be read or written: .*; make room"):
        EmbeddedBroker(data_dir=tmp_path).start()
    (tmp_path / "catalogue.draft").rmdir()
    with EmbeddedBroker(data_dir=tmp_path):
        pass
