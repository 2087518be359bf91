"""``receive`` of ``zkconsumer.base._sockets``: the rest of a response in one call."""

from __future__ import annotations

import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from zkconsumer import extensions

SOCKETS = extensions.load("zkconsumer.base._sockets")

pytestmark = pytest.mark.skipif(SOCKETS is None, reason="the compiled module is not in use")

LONG_MS = 60_000


class Connection:
    """Our end, the end of the broker, and the two ends of the wake-ups."""

    def __init__(self) -> None:
        server = socket.create_server(("127.0.0.1", 0))
        self.ours = socket.create_connection(server.getsockname())
        self.ours.setblocking(False)
        self.peer, _ = server.accept()
        server.close()
        self.wake_up_reader, self.wake_up_writer = socket.socketpair()

    def close(self) -> None:
        for each in (self.ours, self.peer, self.wake_up_reader, self.wake_up_writer):
            each.close()

    def receive(self, buffer: bytearray | memoryview, wait_ms: int = LONG_MS) -> int:
        assert SOCKETS is not None
        received: int = SOCKETS.receive(self.ours.fileno(), self.wake_up_reader.fileno(), wait_ms, memoryview(buffer))
        return received


@pytest.fixture
def connection() -> Iterator[Connection]:
    made = Connection()
    yield made
    made.close()


def later(work: object, *args: object) -> threading.Thread:
    """Do this after a moment, while the test waits."""
    assert callable(work)
    thread = threading.Timer(0.05, work, args)
    thread.start()
    return thread


def test_it_waits_for_all_bytes(connection: Connection) -> None:
    data = bytes(range(256)) * 4_000
    buffer = bytearray(len(data))

    def send_in_parts() -> None:
        for begin in range(0, len(data), 100_000):
            connection.peer.sendall(data[begin : begin + 100_000])
            time.sleep(0.005)

    sender = threading.Thread(target=send_in_parts)
    sender.start()
    assert connection.receive(buffer) == len(data)
    sender.join()
    assert buffer == data


def readable_from(connection: Connection) -> int:
    """How many bytes must have arrived before a wait for the socket ends."""
    return connection.ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


LARGE_BUFFER_BYTES = 128 * 1024
"""Linux doubles it."""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit the option in their own ways")
def test_a_wait_is_for_a_quarter_of_a_large_receive_buffer_and_at_the_end_for_the_rest(connection: Connection) -> None:
    """A wait for each packet costs as much as the copy of its bytes."""
    connection.ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LARGE_BUFFER_BYTES)
    quarter = connection.ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 4
    buffer = bytearray(quarter + 1_000)
    seen: set[int] = set()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            seen.add(readable_from(connection))

    def send_in_parts() -> None:
        for part in (1, quarter, 999):
            connection.peer.sendall(bytes(part))
            time.sleep(0.001)

    def is_seen() -> bool:
        """Each state lasts for a millisecond or two; the watcher may have missed it."""
        return quarter in seen and any(1 < each < 1_000 for each in seen)

    watcher = threading.Thread(target=watch)
    watcher.start()
    until = time.monotonic() + LONG_MS / 1_000
    while not is_seen() and time.monotonic() < until:
        sender = threading.Thread(target=send_in_parts)
        sender.start()
        assert connection.receive(buffer) == len(buffer)
        sender.join()
    is_over.set()
    watcher.join()
    assert is_seen()
    assert max(seen) == quarter


def test_many_small_packets_are_not_waited_for_in_vain(connection: Connection) -> None:
    """They take more room than their bytes; a system may run out of it before there are as many as the wait is for."""
    connection.ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LARGE_BUFFER_BYTES)
    connection.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = bytearray(300_000)

    def send_one_by_one() -> None:
        for _ in range(len(buffer) // 20):
            connection.peer.sendall(bytes(20))

    sender = threading.Thread(target=send_one_by_one)
    sender.start()
    assert connection.receive(buffer) == len(buffer)
    sender.join()


def test_bytes_that_stop_before_as_many_as_the_wait_is_for_are_received(connection: Connection) -> None:
    connection.ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LARGE_BUFFER_BYTES)
    connection.peer.sendall(b"a")
    thread = later(connection.peer.sendall, b"bc")
    buffer = bytearray(100_000)
    assert connection.receive(buffer, 200) == 3
    thread.join()
    assert buffer[:3] == b"abc"


def test_after_a_wait_one_byte_makes_the_socket_readable(connection: Connection) -> None:
    with pytest.raises(BlockingIOError):
        connection.receive(bytearray(1_000), 10)
    assert readable_from(connection) == 1
    thread = later(connection.wake_up_writer.send, b"\0")
    with pytest.raises(BlockingIOError):
        connection.receive(bytearray(1_000))
    thread.join()
    assert connection.wake_up_reader.recv(1) == b"\0"
    assert readable_from(connection) == 1
    thread = later(connection.peer.close)
    assert connection.receive(bytearray(1_000)) == 0
    thread.join()
    assert readable_from(connection) == 1


def test_nothing_in_time_is_the_error_of_a_socket(connection: Connection) -> None:
    with pytest.raises(BlockingIOError):
        connection.receive(bytearray(10), 30)


def test_the_wait_ends_with_its_time(connection: Connection) -> None:
    connection.peer.sendall(b"abc")
    buffer = bytearray(10)
    assert connection.receive(buffer, 30) == 3
    assert buffer == b"abc" + bytes(7)
    connection.peer.sendall(b"d")
    assert connection.receive(buffer, 0) == 1


def test_a_wake_up_ends_the_wait_and_stays(connection: Connection) -> None:
    connection.peer.sendall(b"abc")
    thread = later(connection.wake_up_writer.send, b"\0")
    assert connection.receive(bytearray(10)) == 3
    thread.join()
    assert connection.wake_up_reader.recv(10) == b"\0"


def test_the_end_of_the_connection_follows_the_bytes_before_it(connection: Connection) -> None:
    connection.peer.sendall(b"abc")
    thread = later(connection.peer.close)
    assert connection.receive(bytearray(10)) == 3
    thread.join()
    assert connection.receive(bytearray(10)) == 0


def test_a_reset_follows_the_bytes_before_it(connection: Connection) -> None:
    connection.peer.sendall(b"abc")
    connection.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    thread = later(connection.peer.close)
    assert connection.receive(bytearray(10)) == 3
    thread.join()
    with pytest.raises(ConnectionResetError):
        connection.receive(bytearray(10))


def test_an_exception_of_a_signal_handler_ends_the_wait(connection: Connection) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    connection.peer.sendall(b"abc")
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupted):
            connection.receive(bytearray(10))
            time.sleep(1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
