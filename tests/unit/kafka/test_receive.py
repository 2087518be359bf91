"""``receive`` of ``zkconsumer.base._sockets``: the rest of a response in one call."""

from __future__ import annotations

import signal
import socket
import struct
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
