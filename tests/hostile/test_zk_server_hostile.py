"""A ZooKeeper server that is deaf, rude or mad: the store suspends, connects again, and every request settles."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import ForkedError, UnavailableError, ZkTimeoutException
from zkconsumer.member.events import SessionConnected, SessionLost, SessionSuspended
from zkconsumer.testing.sandbox import wait_until
from zkconsumer.zk import kazoo_connection
from zkconsumer.zk.frame_buffer import FrameBuffer
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.pipeline import WINDOW_PACKETS
from zkconsumer.zk.requests import (
    ConnectionLost,
    Exists,
    GetMany,
    NoNode,
    SessionEnded,
)

pytestmark = pytest.mark.timeout(60)

SESSION_MS = 1_200
WAIT_MS = 20_000
SRVR_38 = b"Zookeeper version: 3.8.4-0, built on 2024\nLatency min/avg/max: 0/0/0\n"

Answer = Callable[["Wire", int, int, bytes], None]


class Wire:
    """One connection of the store, seen from the server: frames in, frames out."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected

    def read(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def frame(self) -> bytes:
        return self.read(struct.unpack("!i", self.read(4))[0])

    def send(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack("!i", len(frame)) + frame)

    def reply(self, xid: int, error: int = 0, body: bytes = b"", zxid: int = 7) -> None:
        self.send(struct.pack("!iqi", xid, zxid, error) + body)


def no_node(wire: Wire, xid: int, opcode: int, body: bytes) -> None:
    wire.reply(xid, 0 if opcode < 0 or opcode == 11 else -101)


class Server:
    """Accepts, answers ``srvr``, gives a session, and then does to each packet what ``answer`` says."""

    def __init__(self, answer: Answer = no_node, srvr: bytes | None = SRVR_38, is_deaf: bool = False) -> None:
        self.answer = answer
        self.srvr = srvr
        self.is_deaf = is_deaf
        self.sessions = 0
        self.expire_next = False
        self.wires: list[Wire] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listening.getsockname()[1]  # noqa: UP031
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Nobody listens and answers from now on.  A socket that a thread waits for is open until ``shutdown``."""
        for each in (self._listening, *(wire.socket for wire in self.wires)):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                wire = Wire(self._listening.accept()[0])
                self.wires.append(wire)
                threading.Thread(target=self._serve, args=(wire,), daemon=True).start()

    def _serve(self, wire: Wire) -> None:
        with suppress(OSError, struct.error):
            first = wire.read(4)
            if first == b"srvr":
                if self.srvr is not None:
                    wire.socket.sendall(self.srvr)
                    wire.socket.close()
                return
            connect = wire.read(struct.unpack("!i", first)[0])
            if self.is_deaf:
                return
            session_id = struct.unpack_from("!q", connect, 16)[0]
            timeout_ms = SESSION_MS
            if self.expire_next and session_id:
                self.expire_next, session_id, timeout_ms = False, 0, 0
            elif not session_id:
                self.sessions += 1
                session_id = self.sessions
            wire.send(struct.pack("!iiqi", 0, timeout_ms, session_id, 16) + bytes(17))
            while True:
                packet = wire.frame()
                xid, opcode = struct.unpack_from("!ii", packet)
                if opcode == 11:
                    wire.reply(xid)
                else:
                    self.answer(wire, xid, opcode, packet[8:])


class Asker:
    """A started store, and what it was told."""

    def __init__(self, server: Server) -> None:
        self.told: list[Any] = []
        self.store = KazooStore(server.address, SESSION_MS)
        self.store.listen(self.told.append)
        self.store.start(WAIT_MS)
        self.heard(1)
        self.told.clear()

    def heard(self, count: int) -> list[Any]:
        wait_until(lambda: len(self.told) >= count, f"{count} of {self.told}", WAIT_MS)
        return self.told

    def ask(self, *requests: Any, session_id: int | None = None) -> None:
        self.store.submit(session_id, requests, self.told.append)


Start = Callable[..., tuple[Server, Asker]]


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[tuple[Server, Asker]] = []

    def start(answer: Answer = no_node, **options: Any) -> tuple[Server, Asker]:
        server = Server(answer, **options)
        made.append((server, Asker(server)))
        return made[-1]

    yield start
    for server, asker in made:
        asker.store.close(1_000)
        server.close()


def silence(wire: Wire, xid: int, opcode: int, body: bytes) -> None:
    """No answer to anything but pings."""


SUSPENDED_AND_BACK = [SessionSuspended(), SessionConnected(1, SESSION_MS, False)]


def test_a_server_that_answers_pings_only_is_left_after_two_thirds_of_the_session(start: Start) -> None:
    _, asker = start(silence)
    began_ms = SYSTEM_CLOCK.now_ms()
    asker.ask(Exists("/a"))
    assert asker.heard(3) == [[ConnectionLost("/a")], *SUSPENDED_AND_BACK]
    assert SESSION_MS * 2 // 3 <= SYSTEM_CLOCK.now_ms() - began_ms <= SESSION_MS * 3


def test_a_server_that_went_silent_is_left_however_often_it_is_asked(start: Start) -> None:
    _, asker = start(silence)
    began_ms = SYSTEM_CLOCK.now_ms()

    def ask_and_look() -> bool:
        asker.ask(Exists("/a"))
        return SessionSuspended() in asker.told

    wait_until(ask_and_look, "leaving a silent server", WAIT_MS, poll_ms=20)
    assert SYSTEM_CLOCK.now_ms() - began_ms <= SESSION_MS * 2


def test_answers_that_come_one_byte_at_a_time_are_answers(start: Start) -> None:
    def slicer(wire: Wire, xid: int, opcode: int, body: bytes) -> None:
        for byte in struct.pack("!iiqi", 16, xid, 7, -101):
            wire.socket.sendall(bytes([byte]))

    _, asker = start(slicer)
    asker.ask(Exists("/a"), GetMany(("/b",)))
    assert asker.heard(1)[0][0] is None


def test_what_waits_is_sent_in_one_piece_and_what_came_is_read_in_one(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two system calls for a window of packets, not for each: what a hundred thousand single reads rest on."""
    answers = bytearray()

    def together(wire: Wire, xid: int, opcode: int, body: bytes) -> None:
        answers.extend(struct.pack("!iiqi", 16, xid, 7, -101 if opcode > 0 else 0))
        if opcode < 0 or len(answers) == WINDOW_PACKETS * 20:
            wire.socket.sendall(bytes(answers))
            answers.clear()

    _, asker = start(together)
    pieces = {"sent": 0, "received": 0}
    write, add = kazoo_connection._KazooConnection._write, FrameBuffer.add

    def counted_write(connection: Any, data: bytes, timeout: float) -> None:
        pieces["sent"] += 1
        write(connection, data, timeout)

    def counted_add(frames: FrameBuffer, data: bytes) -> None:
        pieces["received"] += 1
        add(frames, data)

    monkeypatch.setattr(kazoo_connection._KazooConnection, "_write", counted_write)
    monkeypatch.setattr(FrameBuffer, "add", counted_add)
    asker.ask(*map(Exists, [f"/{n}" for n in range(5 * WINDOW_PACKETS)]))
    assert asker.heard(1) == [[None] * 5 * WINDOW_PACKETS]
    assert max(pieces.values()) <= 10, pieces


def test_whoever_waits_makes_no_selector(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """kazoo makes one for each wait and closes it again, which was half of what a single answer cost."""
    made: list[int] = []
    monkeypatch.setattr("selectors.DefaultSelector", lambda: made.append(1))
    _, asker = start()
    asker.ask(*map(Exists, ["/a", "/b"]))
    assert asker.heard(1) == [[None, None]]
    assert made == []


@pytest.mark.parametrize("cut", [1, 3, 4, 19, 20, 21, 39])
def test_answers_that_come_cut_anywhere_are_answers(start: Start, cut: int) -> None:
    held: list[bytes] = []

    def halves(wire: Wire, xid: int, opcode: int, body: bytes) -> None:
        held.append(struct.pack("!iiqi", 16, xid, 7, -101 if opcode > 0 else 0))
        if opcode < 0 or len(held) == 2:
            both = b"".join(held)
            held.clear()
            for part in (both[:cut], both[cut:]):
                wire.socket.sendall(part)

    _, asker = start(halves)
    asker.ask(Exists("/a"), Exists("/b"))
    assert asker.heard(1) == [[None, None]]


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("!i", -1),
        struct.pack("!i", 2**31 - 1),
        struct.pack("!i", 0),
        struct.pack("!i", 3) + b"abc",
        struct.pack("!iiqi", 16, 4711, 7, 0),
        struct.pack("!iiqi", 16, -1, 7, 0),
        struct.pack("!iiqi", 16, -1, 7, 0) + b"\xff" * 40,
        struct.pack("!iiqiiii", 28, -1, 7, 0, 1, 3, 2**31 - 1),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
    ],
    ids=[
        "a negative length",
        "a length of two gigabytes",
        "a frame of nothing",
        "a frame shorter than its header",
        "an answer to another request",
        "an event of nothing",
        "an event of nonsense",
        "an event with an endless path",
        "another protocol",
        "the end of the connection",
    ],
)
def test_a_server_that_sends_nonsense_is_left_and_asked_again(start: Start, frame: bytes) -> None:
    rude = [True]

    def once(wire: Wire, xid: int, opcode: int, body: bytes) -> None:
        if rude and rude.pop():
            wire.socket.sendall(frame)
            wire.socket.close()
        else:
            no_node(wire, xid, opcode, body)

    _, asker = start(once)
    asker.ask(Exists("/a"))
    assert asker.heard(3) == [[ConnectionLost("/a")], *SUSPENDED_AND_BACK]
    asker.ask(Exists("/a"))
    assert asker.heard(4)[3] == [None]


def test_an_answer_nobody_waits_for_ends_the_connection_only(start: Start) -> None:
    server, asker = start()
    server.wires[-1].reply(1)
    assert asker.heard(2) == SUSPENDED_AND_BACK


def test_an_unknown_error_code_is_an_answer(start: Start) -> None:
    _, asker = start(lambda wire, xid, opcode, body: wire.reply(xid, -4711 if opcode > 0 else 0))
    asker.ask(Exists("/a"))
    [[result]] = asker.heard(1)
    assert (result.name, result.code) == ("Unknown", -4711)


def test_a_session_that_ended_behind_a_broken_connection_executes_nothing_of_the_old_one(start: Start) -> None:
    seen: list[int] = []

    def note(wire: Wire, xid: int, opcode: int, body: bytes) -> None:
        seen.append(opcode)
        no_node(wire, xid, opcode, body)

    server, asker = start(note)
    server.expire_next = True
    asker.store.bounce()
    asker.heard(1)
    for _ in range(300):
        asker.ask(Exists("/old"), session_id=1)
    told = asker.heard(303)
    assert told[0] == SessionSuspended()
    assert told[1] == SessionLost(1)
    assert told.count([SessionEnded("/old")]) + told.count([ConnectionLost("/old")]) == 300
    assert SessionConnected(2, SESSION_MS, True) in told
    assert seen == []


def test_hundreds_of_requests_behind_a_broken_connection_block_nobody(start: Start) -> None:
    server, asker = start()
    server.is_deaf = True
    asker.store.bounce()
    asker.heard(1)
    began_ms = SYSTEM_CLOCK.now_ms()
    for _ in range(2_000):
        asker.ask(Exists("/a"))
    assert SYSTEM_CLOCK.now_ms() - began_ms < 2_000
    assert len(asker.told) == 1, "they wait"
    server.is_deaf = False
    assert asker.heard(2_002).count([None]) == 2_000


def test_a_server_that_ends_every_multi_read_is_read_one_by_one(start: Start) -> None:
    def old(wire: Wire, xid: int, opcode: int, body: bytes) -> None:
        if opcode == 22:
            wire.socket.close()
        else:
            no_node(wire, xid, opcode, body)

    _, asker = start(old)
    for _ in range(2):
        asker.told.clear()
        asker.ask(GetMany(("/a", "/b")))
        assert asker.heard(3) == [[[ConnectionLost("/a"), ConnectionLost("/b")]], *SUSPENDED_AND_BACK]
    asker.ask(GetMany(("/a", "/b")))
    assert asker.heard(4)[3] == [[NoNode("/a"), NoNode("/b")]]


@pytest.mark.parametrize("srvr", [None, b"", b"srvr is not executed because it is not in the whitelist.\n"])
def test_a_server_that_does_not_tell_its_version_is_never_sent_a_multi_read(start: Start, srvr: bytes | None) -> None:
    seen: list[int] = []

    def note(wire: Wire, xid: int, opcode: int, body: bytes) -> None:
        seen.append(opcode)
        no_node(wire, xid, opcode, body)

    _, asker = start(note, srvr=srvr)
    asker.ask(GetMany(("/a", "/b")))
    assert asker.heard(1) == [[[NoNode("/a"), NoNode("/b")]]]
    assert seen == [4, 4]


def test_a_chroot_that_one_may_not_look_at_is_there() -> None:
    server = Server(lambda wire, xid, opcode, body: wire.reply(xid, 0 if opcode < 0 else -102))
    store = KazooStore(server.address + "/kafka", SESSION_MS)
    store.start(WAIT_MS)
    assert store.close(WAIT_MS)
    server.close()


def test_a_server_that_cannot_look_at_the_chroot_is_named() -> None:
    server = Server(lambda wire, xid, opcode, body: wire.reply(xid, 0 if opcode < 0 else -1))
    with pytest.raises(UnavailableError, match="SystemError"):
        KazooStore(server.address + "/kafka", SESSION_MS).start(WAIT_MS)
    server.close()


def test_a_server_older_than_3_4_is_named() -> None:
    server = Server(srvr=b"Zookeeper version: 3.3.6-1366786, built on 07/29/2012 06:22 GMT\n")
    with pytest.raises(UnavailableError, match=r"ZooKeeper 3\.3\.6"):
        KazooStore(server.address, SESSION_MS).start(WAIT_MS)
    server.close()


def test_a_server_that_takes_the_connection_and_gives_no_session_is_named() -> None:
    server = Server(is_deaf=True)
    with pytest.raises(ZkTimeoutException, match=rf"{server.address}.*accepted the connection"):
        KazooStore(server.address, SESSION_MS).start(500)
    server.close()


def test_a_handshake_that_is_lost_is_made_again_while_the_session_lives(start: Start) -> None:
    # What a server does that is just starting: it takes the connection, and loses what comes.
    server, asker = start()
    server.is_deaf = True
    before = len(server.wires)
    server.wires[-1].socket.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: len(server.wires) >= before + 2, "a second handshake", SESSION_MS * 9 // 10, poll_ms=10)
    server.is_deaf = False
    assert asker.heard(2) == SUSPENDED_AND_BACK


def test_closing_on_a_silent_server_takes_its_time_and_no_more(start: Start) -> None:
    _, asker = start(silence)
    asker.ask(Exists("/a"))
    began_ms = SYSTEM_CLOCK.now_ms()
    assert not asker.store.close(300)
    assert 300 <= SYSTEM_CLOCK.now_ms() - began_ms < 1_500
    assert asker.told == [[SessionEnded("/a")]]


def test_closing_while_nobody_listens_ends_the_thread(start: Start) -> None:
    server, asker = start()
    server.close()
    asker.heard(1)
    began_ms = SYSTEM_CLOCK.now_ms()
    assert not asker.store.close(WAIT_MS)
    assert SYSTEM_CLOCK.now_ms() - began_ms < 0.75 * WAIT_MS, "it does not wait for the end of its time"
    assert not any(thread.name == "zkconsumer-zookeeper" for thread in threading.enumerate())


def test_closing_leaves_no_descriptor(start: Start) -> None:
    server, asker = start()
    asker.store.close(WAIT_MS)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        store = KazooStore(server.address, SESSION_MS)
        store.start(WAIT_MS)
        store.close(WAIT_MS)
    for wire in server.wires:
        wire.socket.close()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_listener_that_raises_is_reported_and_the_session_lives_on(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    _, asker = start()

    def bad(_: object) -> None:
        raise LookupError("of the test")

    asker.store.listen(bad)
    asker.store.bounce()
    wait_until(lambda: caplog.text.count("of the test") >= 2, "two events", WAIT_MS)
    asker.ask(Exists("/a"))
    assert asker.heard(1) == [[None]]


def test_a_forked_child_cannot_use_the_session_and_does_not_end_it(start: Start) -> None:
    _, asker = start()
    child = os.fork()
    if child == 0:
        try:
            asker.ask(Exists("/a"))
        except ForkedError:
            os._exit(7 if asker.store.close(100) is False else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    asker.ask(Exists("/a"))
    assert asker.heard(1) == [[None]]
