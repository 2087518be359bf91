"""The non-blocking sockets of the network client, with channels that a test plays."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import InvalidConfigException, SaslAuthenticationException
from zkconsumer.kafka.net import selector
from zkconsumer.kafka.net.broker_channel import BrokerChannel
from zkconsumer.kafka.net.frame_receiver import FrameReceiver
from zkconsumer.kafka.net.network_messages import (
    DisconnectReason,
    FrameReceived,
    NetworkEvent,
    NodeConnected,
    NodeDisconnected,
    RequestWritten,
)
from zkconsumer.kafka.net.selector import ReceivedParts, Selector
from zkconsumer.testing.manual_clock import ManualClock

DEADLINE_S = 20
FRAME = b"\x00\x00\x00\x03abc"


class PlayedChannel(BrokerChannel):
    """A plain channel; ``on_received`` and the fields are what a test plays."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._frames = PlayedFrames(self)
        self.on_received: Callable[[], None] = lambda: None
        self.plays_renewal = False
        self.renewal_deadline_ms: int | None = None
        self.plays_reconnect = False
        self.successor: PlayedChannel | None = None
        self.alert = b""

    @property
    def missing_bytes(self) -> int:
        return self._frames.missing_bytes

    @property
    def is_renewing(self) -> bool:
        return self.plays_renewal

    @property
    def has_login(self) -> bool:
        return True

    @property
    def response_frames(self) -> FrameReceiver | None:
        return None if self.plays_renewal or self.plays_reconnect else super().response_frames

    @property
    def handshake_deadline_ms(self) -> int | None:
        return self.renewal_deadline_ms

    @property
    def handshake_step(self) -> str:
        return "the renewal"

    @property
    def needs_reconnect(self) -> bool:
        return self.plays_reconnect

    def after_reconnect(self) -> BrokerChannel:
        assert self.successor is not None
        return self.successor

    def bytes_to_write(self) -> bytes | memoryview:
        return self.alert or super().bytes_to_write()

    def bytes_written(self, count: int) -> None:
        if self.alert:
            self.alert = self.alert[count:]
        else:
            super().bytes_written(count)


class PlayedFrames(FrameReceiver):
    """Those of a channel that calls ``on_received`` after each receive."""

    __slots__ = ("_channel",)

    def __init__(self, channel: PlayedChannel) -> None:
        super().__init__()
        self._channel = channel

    def filled(self, count: int) -> None:
        super().filled(count)
        self._channel.on_received()

    def receive(self, recv_into: Callable[[memoryview], int]) -> int:
        count = super().receive(recv_into)
        self._channel.on_received()
        return count


class Place:
    """A selector, and a port on which the test accepts."""

    def __init__(self) -> None:
        self.channels: list[PlayedChannel] = []
        self.selector = Selector(self.new_channel, SYSTEM_CLOCK)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.accepted: list[socket.socket] = []

    def new_channel(self, host: str, port: int) -> BrokerChannel:
        self.channels.append(PlayedChannel(host, port))
        return self.channels[-1]

    def events(self, wanted: type[Any]) -> list[NetworkEvent]:
        """Poll until an event of this kind arrives; returns all of them."""
        seen: list[NetworkEvent] = []
        deadline = time.monotonic() + DEADLINE_S
        while not any(isinstance(event, wanted) for event in seen):
            assert time.monotonic() < deadline
            seen += self.selector.poll(20)
        return seen

    def connect(self) -> tuple[socket.socket, PlayedChannel]:
        self.selector.connect(7, "localhost", self.port, "127.0.0.1")
        assert self.events(NodeConnected) == [NodeConnected(7)]
        return self.accept(), self.channels[-1]

    def accept(self) -> socket.socket:
        self.server.settimeout(DEADLINE_S)
        accepted, _ = self.server.accept()
        accepted.settimeout(DEADLINE_S)
        self.accepted.append(accepted)
        return accepted

    def end(self) -> NodeDisconnected:
        """The event with which the connection ends, once."""
        seen = self.events(NodeDisconnected)
        ends = [event for event in seen if isinstance(event, NodeDisconnected)]
        assert len(ends) == 1
        assert self.selector.poll(0) == []
        return ends[0]

    def close(self) -> None:
        self.selector.close()
        for each in (self.server, *self.accepted):
            each.close()


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.close()


def test_a_poll_goes_on_to_wait_when_a_part_of_a_response_has_arrived(place: Place) -> None:
    peer, channel = place.connect()
    parts: list[bool] = []

    def send_the_rest() -> None:
        parts.append(channel.is_in_response)
        channel.on_received = lambda: None
        peer.sendall(FRAME[5:])

    channel.on_received = send_the_rest
    peer.sendall(FRAME[:5])
    assert [type(event) for event in place.selector.poll(1000 * DEADLINE_S)] == [FrameReceived]
    assert parts == [False], "the size was not known before"


def test_a_poll_for_a_response_that_stays_incomplete_ends_in_time(place: Place) -> None:
    peer, _ = place.connect()
    peer.sendall(FRAME[:5])
    start = time.monotonic()
    assert place.selector.poll(50) == []
    assert time.monotonic() - start >= 0.045


def test_parts_that_keep_arriving_do_not_prolong_a_poll(place: Place) -> None:
    peer, channel = place.connect()
    clock = ManualClock()
    place.selector._clock = clock
    received: list[int] = []

    def send_another() -> None:
        received.append(clock.now_ms())
        clock.move(30)
        peer.sendall(b"x")

    channel.on_received = send_another
    peer.sendall(b"\x00\x00\x10\x00x")
    assert place.selector.poll(50) == []
    assert len(received) <= 3


def begun_response(place: Place) -> tuple[socket.socket, PlayedChannel]:
    """A connection on which the size and one byte of a response have arrived."""
    peer, channel = place.connect()
    peer.sendall(FRAME[:5])
    assert place.selector.poll(50) == []
    assert channel.is_in_response
    return peer, channel


def test_more_of_a_response_is_received_without_an_event(place: Place) -> None:
    peer, channel = begun_response(place)
    assert place.selector.receive_more() is ReceivedParts.SOME, "nothing more has arrived"
    peer.sendall(FRAME[5:6])
    while channel.missing_bytes == 2:
        assert place.selector.receive_more() is ReceivedParts.SOME
    peer.sendall(FRAME[6:])
    while channel.is_in_response:
        found = place.selector.receive_more()
    assert found is ReceivedParts.EVENT
    (event,) = place.selector.poll(0)
    assert isinstance(event, FrameReceived)
    assert bytes(event.frame) == b"abc"
    assert place.selector.receive_more() is ReceivedParts.NONE, "no response has begun"


def test_the_rest_of_a_response_is_received_while_the_poll_waits(place: Place) -> None:
    peer, channel = place.connect()
    size = 3_000_000
    peer.sendall(struct.pack(">i", size))
    sender = threading.Thread(target=peer.sendall, args=(bytes(size),))
    sender.start()
    (event,) = place.events(FrameReceived)
    sender.join()
    assert isinstance(event, FrameReceived)
    assert len(event.frame) == size
    assert not channel.is_in_response


@pytest.mark.skipif(selector.SOCKETS is None, reason="the compiled module is not in use")
def test_a_complete_response_does_not_wait_for_the_rest_of_the_next_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, _ = place.connect()
    events_before: list[list[NetworkEvent]] = []
    compiled = selector.SOCKETS
    assert compiled is not None

    def receive(fd: int, wake_fd: int, wait_ms: int, view: memoryview) -> int:
        events_before.append(list(place.selector._events))
        received: int = compiled.receive(fd, wake_fd, wait_ms, view)
        return received

    monkeypatch.setattr(selector, "SOCKETS", SimpleNamespace(receive=receive))
    frame = struct.pack(">i", 600_000) + bytes(600_000)
    sender = threading.Thread(target=peer.sendall, args=(frame * 3,))
    sender.start()
    found = 0
    while found < 3:
        found += len(place.events(FrameReceived))
    sender.join()
    assert events_before
    assert not any(events_before)


def test_a_wake_up_ends_the_wait_for_the_rest_of_a_response(place: Place) -> None:
    peer, channel = begun_response(place)
    peer.sendall(FRAME[5:6])
    timer = threading.Timer(0.05, place.selector.wakeup)
    timer.start()
    assert place.selector.poll(1000 * DEADLINE_S) == []
    timer.join()
    assert channel.missing_bytes == 1


def test_another_connection_has_its_turn_while_a_response_is_incomplete(place: Place) -> None:
    peer, _ = begun_response(place)
    place.selector.connect(8, "localhost", place.port, "127.0.0.1")
    assert place.events(NodeConnected) == [NodeConnected(8)]
    other = place.accept()
    is_over = threading.Event()

    def send_slowly() -> None:
        while not is_over.wait(0.001):
            peer.sendall(b"x")

    peer.sendall(FRAME[5:])
    (event,) = place.events(FrameReceived)
    peer.sendall(struct.pack(">i", 1_000_000))
    sender = threading.Thread(target=send_slowly)
    sender.start()
    other.sendall(FRAME)
    (event,) = place.events(FrameReceived)
    is_over.set()
    sender.join()
    assert isinstance(event, FrameReceived)
    assert event.node_id == 8


def test_a_connection_that_ends_in_a_response_needs_a_poll(place: Place) -> None:
    peer, _ = begun_response(place)
    peer.close()
    deadline = time.monotonic() + DEADLINE_S
    while place.selector.receive_more() is not ReceivedParts.EVENT:
        assert time.monotonic() < deadline
    assert place.end().reason is DisconnectReason.CLOSED


def test_a_reset_in_a_response_needs_a_poll(place: Place) -> None:
    peer, _ = begun_response(place)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    deadline = time.monotonic() + DEADLINE_S
    while place.selector.receive_more() is not ReceivedParts.EVENT:
        assert time.monotonic() < deadline
    assert place.end().reason is DisconnectReason.CLOSED


def test_bytes_to_write_need_a_poll(place: Place) -> None:
    begun_response(place)
    place.selector.send(7, bytes(64 * 1024 * 1024))
    assert place.selector.receive_more() is ReceivedParts.EVENT


def test_frames_are_sent_and_received(place: Place) -> None:
    peer, _ = place.connect()
    place.selector.send(7, FRAME)
    assert place.events(RequestWritten) == [RequestWritten(7)]
    assert peer.recv(100) == FRAME
    peer.sendall(FRAME + FRAME[:5])
    (event,) = place.events(FrameReceived)
    assert isinstance(event, FrameReceived)
    assert bytes(event.frame) == b"abc"
    peer.sendall(FRAME[5:])
    assert len(place.events(FrameReceived)) == 1


def test_the_responses_before_the_end_arrive_before_it(place: Place) -> None:
    peer, _ = place.connect()
    peer.sendall(FRAME)
    peer.close()
    seen = place.events(NodeDisconnected)
    assert [type(event) for event in seen] == [FrameReceived, NodeDisconnected]
    assert seen[-1] == NodeDisconnected(7, DisconnectReason.CLOSED)


def test_a_refused_address_is_an_event_with_its_reason(place: Place) -> None:
    place.server.close()
    place.selector.connect(7, "localhost", place.port, "127.0.0.1")
    end = place.end()
    assert end.reason is DisconnectReason.NOT_CONNECTED
    assert f"127.0.0.1:{place.port}: ECONNREFUSED" in end.detail


def test_an_address_that_is_none_is_an_event(place: Place) -> None:
    place.selector.connect(7, "localhost", place.port, "not an address")
    assert place.end().reason is DisconnectReason.NOT_CONNECTED


@pytest.mark.parametrize("port", [-1, 65_536, 2**31 - 1])
def test_a_port_that_does_not_exist_is_an_event(place: Place, port: int) -> None:
    """A broker advertises any number."""
    place.selector.connect(7, "localhost", port, "127.0.0.1")
    assert place.end().reason is DisconnectReason.NOT_CONNECTED


def test_a_process_without_free_descriptors_is_an_event(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_socket(*_: object) -> socket.socket:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("zkconsumer.kafka.net.selector.socket.socket", no_socket)
        place.selector.connect(7, "localhost", place.port, "127.0.0.1")
    end = place.end()
    assert end.reason is DisconnectReason.NOT_CONNECTED
    assert "Too many open files" in end.detail


def test_a_dropped_connection_causes_no_event(place: Place) -> None:
    peer, _ = place.connect()
    place.selector.send(7, FRAME)
    place.selector.drop(7)
    place.selector.drop(7)
    assert place.selector.poll(0) == []
    assert peer.recv(100) == FRAME
    assert peer.recv(100) == b""
    place.selector.send(7, FRAME)
    assert place.selector.poll(0) == []


def test_a_connection_after_a_drop_is_a_new_one(place: Place) -> None:
    place.connect()
    place.selector.drop(7)
    peer, _ = place.connect()
    place.selector.send(7, FRAME)
    assert peer.recv(100) == FRAME


def test_an_error_of_the_login_is_an_event_and_its_alert_is_sent(place: Place) -> None:
    peer, channel = place.connect()
    error = SaslAuthenticationException("bad password")

    def fail() -> None:
        channel.alert = b"alert"
        raise error

    channel.on_received = fail
    peer.sendall(b"x")
    assert place.end() == NodeDisconnected(7, DisconnectReason.AUTHENTICATION_FAILED, "bad password", error)
    assert peer.recv(100) == b"alert"
    assert peer.recv(100) == b""


def test_a_setting_that_the_login_cannot_use_is_an_authentication_error(place: Place) -> None:
    peer, channel = place.connect()

    def fail() -> None:
        raise InvalidConfigException("no token")

    channel.on_received = fail
    peer.sendall(b"x")
    end = place.end()
    assert end.reason is DisconnectReason.AUTHENTICATION_FAILED
    assert isinstance(end.error.__cause__ if end.error else None, InvalidConfigException)


def test_a_frame_that_is_too_long_ends_the_connection(place: Place) -> None:
    peer, _ = place.connect()
    peer.sendall(b"\x7f\xff\xff\xff")
    assert place.end().reason is DisconnectReason.INVALID_RESPONSE


def test_a_request_that_waits_for_a_renewal_of_the_login_is_not_written(place: Place) -> None:
    peer, channel = place.connect()
    channel.plays_renewal = True
    place.selector.send(7, FRAME)
    assert place.selector.poll(0) == []

    def end_renewal() -> None:
        channel.plays_renewal = False

    channel.on_received = end_renewal
    peer.sendall(FRAME)
    assert [type(event) for event in place.events(FrameReceived)] == [FrameReceived, RequestWritten]


def test_a_renewal_that_is_not_answered_in_time_ends_the_connection(place: Place) -> None:
    _, channel = place.connect()
    channel.plays_renewal = True
    channel.renewal_deadline_ms = SYSTEM_CLOCK.now_ms() + 30
    started = time.monotonic()
    end = NodeDisconnected(7, DisconnectReason.CLOSED_IN_HANDSHAKE, "the renewal: no answer in time")
    assert place.selector.poll(60_000) == [end]
    assert time.monotonic() - started < DEADLINE_S, "the wait ends with the deadline"


def test_a_login_may_continue_on_another_connection(place: Place) -> None:
    """GSSAPI at a broker of 0.9 needs a connection without ApiVersions; the network machine does not notice."""
    peer, channel = place.connect()
    channel.plays_reconnect = True
    channel.successor = PlayedChannel("localhost", place.port)
    peer.sendall(FRAME[:1])
    assert place.events(NodeConnected)[-1] == NodeConnected(7)
    again = place.accept()
    assert peer.recv(100) == b""
    place.selector.send(7, FRAME)
    assert again.recv(100) == FRAME


def test_an_exception_in_the_middle_of_a_receive_ends_the_connection_at_the_next_poll(place: Place) -> None:
    """Ctrl-C between the system call and the channel loses bytes; what follows would be misread."""
    peer, channel = place.connect()

    def interrupt() -> None:
        raise KeyboardInterrupt

    channel.on_received = interrupt
    peer.sendall(FRAME)
    with pytest.raises(KeyboardInterrupt):
        place.events(FrameReceived)
    assert place.end() == NodeDisconnected(7, DisconnectReason.LOCAL_CLOSE, "interrupted")


def test_a_wakeup_ends_one_poll(place: Place) -> None:
    for _ in range(3):
        place.selector.wakeup()
    started = time.monotonic()
    assert place.selector.poll(60_000) == []
    assert time.monotonic() - started < DEADLINE_S
    before = time.monotonic()
    place.selector.poll(30)
    assert time.monotonic() - before >= 0.02, "all wake-ups were one"


def test_a_peer_that_resets_the_connection_is_an_event(place: Place) -> None:
    peer, _ = place.connect()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    peer.close()
    assert place.end().reason is DisconnectReason.CLOSED


def test_a_reset_that_a_write_finds_is_an_event(place: Place) -> None:
    peer, _ = place.connect()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    peer.close()
    place.selector.send(7, FRAME)  # before a poll reads the reset
    assert place.end().reason is DisconnectReason.CLOSED


def test_the_buffers_of_a_socket_have_the_configured_sizes() -> None:
    made = Place()
    made.selector.close()
    made.selector = Selector(made.new_channel, SYSTEM_CLOCK, send_buffer_bytes=20_000, receive_buffer_bytes=30_000)
    made.connect()
    (connection,) = made.selector._sockets.values()
    sizes = [connection.socket.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
    assert [size in (wanted, 2 * wanted) for size, wanted in zip(sizes, (20_000, 30_000), strict=True)] == [True] * 2
    made.close()
