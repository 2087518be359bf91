"""Hostile frames against the embedded broker: a reasoned close or an error code, bounded memory, nothing else.

    attackers --garbage, flipped bits, huge sizes, half frames, trickles--> broker (a process of its own, measured)
    a well-behaved member <--answers as ever--'

Seeded: a run that failed says its seed, and ``SEED`` repeats the frames (not their timing).
"""

from __future__ import annotations

import os
import random
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.hostile.frames import Frames
from tests.interop.probe import CHECKS, Probe, Server
from tests.interop.probe.target import PARTITIONS, SETTINGS, wait_coordinating
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.testing.sandbox.waiting import HOST, wait_until
from zkconsumer.wire.frames import SIZE_BYTES, decode_request_header, decode_response, encode_request
from zkconsumer.wire.primitives import MalformedMessage
from zkconsumer.wire.schemas import API_VERSIONS, APIS
from zkconsumer.wire.schemas.api_versions import ApiVersionsRequest

SEED = int(os.environ.get("ZKCONSUMER_FUZZ_SEED", "20160523"))
TOPIC = "probed"
ROOT = Path(__file__).resolve().parents[2]

ATTACKERS = 3
FRAMES_A_CONNECTION_MAX = 20
ANSWER_S = 0.02
"""A parked JoinGroup is not waited for."""

CONNECTIONS_HELD = 300
RSS_GROWTH_BYTES_MAX = 150 * 1024 * 1024
"""What groups, offsets and topics of a fuzzer may take at most: its names are few."""

RESPONSE_BYTES_MAX = 16 * 1024 * 1024

PROGRAM = f"""
import logging, sys
from bridge.testing.embedded_broker import EmbeddedBroker
logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
with EmbeddedBroker(release=sys.argv[1], properties={dict(SETTINGS)!r}) as broker:
    broker.create_topic({TOPIC!r}, {PARTITIONS})
    print(broker.bootstrap, flush=True)
    sys.stdin.read()
"""


@dataclass(slots=True)
class Target:
    """The broker as a process."""

    process: subprocess.Popen[str]
    log: Path
    server: Server

    @property
    def address(self) -> tuple[str, int]:
        return self.server.host, self.server.port

    def rss_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def check_unharmed(self) -> None:
        """It runs, and nothing in it went wrong in a way that it did not expect."""
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        said = self.log.read_text()
        assert "Traceback" not in said, f"seed {SEED}: {said[-6000:]}"
        assert "ERROR" not in said, f"seed {SEED}: {said[-3000:]}"

    def check_serves(self, name: str) -> None:
        """A well-behaved member finds everything as ever."""
        probe = Probe.of(self.server, name)
        try:
            CHECKS[name].run(probe)
        finally:
            probe.close()


@contextmanager
def broker_process(release: str, folder: Path) -> Iterator[Target]:
    log = folder / "broker.log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, release],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env=environment,
        )
    try:
        assert process.stdout is not None
        _, _, port = process.stdout.readline().strip().rpartition(":")
        assert port, log.read_text()
        server = Server(release, HOST, int(port), TOPIC, is_kraft=True, is_real=False)
        wait_coordinating(server)
        yield Target(process, log, server)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@dataclass(slots=True)
class Attacker:
    """One thread of hostility; ``seen`` counts what came back."""

    target: Target
    frames: Frames
    seen: Counter[str] = field(default_factory=Counter)
    trouble: str = ""

    def run(self, end_ms: int) -> None:
        try:
            while SYSTEM_CLOCK.now_ms() < end_ms and not self.trouble:
                with suppress(OSError):
                    self.frames.rng.choice([self.talk, self.talk, self.talk, self.flood, self.trickle, self.lie])()
        except Exception as error:  # noqa: BLE001 (told by whoever joins the thread)
            self.trouble = f"{type(error).__name__}: {error}"

    def connect(self) -> socket.socket:
        made = socket.create_connection(self.target.address, 5)
        made.settimeout(ANSWER_S)
        return made

    def talk(self) -> None:
        """Frames one after the other, good and bad; every answer must be one."""
        rng = self.frames.rng
        with self.connect() as connection:
            for _ in range(rng.randint(1, FRAMES_A_CONNECTION_MAX)):
                frame = self.frames.request() if rng.random() < 0.5 else self.frames.bad()
                connection.sendall(frame)
                if not self._read_answer(connection, frame):
                    return

    def flood(self) -> None:
        """Many frames at once, and nobody reads the answers."""
        with self.connect() as connection:
            connection.sendall(b"".join(self.frames.request() for _ in range(100)))
        self.seen["flooded"] += 1

    def trickle(self) -> None:
        """A frame in small pieces, and its end never comes."""
        frame = self.frames.request()
        with self.connect() as connection:
            for start in range(0, len(frame) - 1, 7):
                connection.sendall(frame[start : min(start + 7, len(frame) - 1)])
        self.seen["trickled"] += 1

    def lie(self) -> None:
        """A size that no frame has, then bytes."""
        size = self.frames.rng.choice([2**31 - 1, -1, -(2**31), 0, 1, 100 * 1024 * 1024 + 1, 50 * 1024 * 1024])
        with self.connect() as connection:
            connection.sendall(struct.pack(">i", size) + self.frames.rng.randbytes(2_000))
            with suppress(TimeoutError):
                self.seen["lie closed" if not connection.recv(1) else "lie answered"] += 1

    def _read_answer(self, connection: socket.socket, asked: bytes) -> bool:
        try:
            start = _exactly(connection, SIZE_BYTES)
        except TimeoutError:
            self.seen["silence"] += 1
            return False
        except ConnectionError:
            self.seen["closed"] += 1
            return False
        (size,) = struct.unpack(">i", start)
        assert 4 <= size <= RESPONSE_BYTES_MAX, f"an answer of {size} bytes to {asked.hex()}"
        connection.settimeout(5)
        answer = _exactly(connection, size)
        connection.settimeout(ANSWER_S)
        self._judge(asked, answer)
        return True

    def _judge(self, asked: bytes, answer: bytes) -> None:
        header = decode_request_header(asked[SIZE_BYTES:])
        api = APIS.get(header.api_key)
        assert api is not None, f"an answer to an unknown API: {asked.hex()}"
        if not self.target.server.ranges.knows(api, header.api_version) and api is not API_VERSIONS:
            # Brokers of 0.9 read and answer such a request in the layout of the highest version that they know.
            assert self.target.server.ranges.is_assumed, f"an answer to a version that it does not speak: {asked.hex()}"
            self.seen["answered in another layout"] += 1
            return
        version = header.api_version if api.knows(header.api_version) else 0
        correlation_id, _ = decode_response(api, version, answer)
        assert correlation_id == header.correlation_id, asked.hex()
        self.seen["answered"] += 1


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("closed")
        data += piece
    return data


def attack(target: Target, duration_ms: int, seed: int) -> Counter[str]:
    """So long, by several at once; gives what they saw."""
    words = ["fuzzed-0", "fuzzed-1", "fuzzed-2", "probe-1", "__consumer_offsets"]
    attackers = [Attacker(target, Frames(random.Random(seed + number), words)) for number in range(ATTACKERS)]
    end_ms = SYSTEM_CLOCK.now_ms() + duration_ms
    threads = [threading.Thread(target=each.run, args=(end_ms,)) for each in attackers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(duration_ms / 1000 + 60)
    troubles = [each.trouble for each in attackers if each.trouble]
    assert not troubles, f"seed {seed}: {troubles}"
    total: Counter[str] = Counter()
    for each in attackers:
        total += each.seen
    return total


def survives(release: str, folder: Path, duration_ms: int, seed: int) -> None:
    with broker_process(release, folder) as target:
        attack(target, min(5_000, duration_ms // 4), seed)  # caches and tables fill up
        before = target.rss_bytes()
        seen = attack(target, duration_ms, seed + ATTACKERS)
        target.check_unharmed()
        grown = target.rss_bytes() - before
        print(f"\n{release}, seed {seed}: {dict(seen)}; memory grew by {grown / 2**20:.1f} MiB")
        assert grown < RSS_GROWTH_BYTES_MAX, f"seed {seed}: {grown} bytes more"
        # 0.9 passes over what it cannot read, and the answers to whatever follows with it.
        assert seen["answered"] > (20 if release.startswith("0.9") else 100), seen
        assert seen["closed"] > 10 or release.startswith("0.9"), seen
        for name in ("a_member_commits_and_reads_it_back", "a_newcomer_makes_the_group_rebalance"):
            target.check_serves(name)


@pytest.mark.fuzz
@pytest.mark.timeout(150)
@pytest.mark.parametrize(("release", "duration_ms"), [("3.9.1", 25_000), ("0.9.0.1", 12_000), ("4.1.1", 12_000)])
def test_a_minute_of_hostile_frames(release: str, duration_ms: int, tmp_path: Path) -> None:
    survives(release, tmp_path, duration_ms, SEED)


@pytest.mark.nightly
@pytest.mark.fuzz
@pytest.mark.timeout(1_000)
def test_ten_minutes_of_hostile_frames(tmp_path: Path) -> None:
    seed = int.from_bytes(os.urandom(4), "big") if "ZKCONSUMER_FUZZ_SEED" not in os.environ else SEED
    for release, minutes in (("3.9.1", 4), ("0.9.0.1", 2), ("1.1.1", 2), ("4.1.1", 2)):
        folder = tmp_path / release
        folder.mkdir()
        survives(release, folder, minutes * 60_000, seed)


# --- one danger each --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with broker_process("3.9.1", tmp_path_factory.mktemp("broker")) as made:
        yield made
        made.check_unharmed()


def is_closed(connection: socket.socket, within_s: float = 5) -> bool:
    connection.settimeout(within_s)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 100 * 1024 * 1024 + 1])
def test_a_size_that_no_request_has_ends_the_connection_at_once(size: int, target: Target) -> None:
    with socket.create_connection(target.address) as connection:
        connection.sendall(struct.pack(">i", size))
        assert is_closed(connection)


def test_a_size_that_is_announced_costs_nothing_until_the_bytes_come(target: Target) -> None:
    before = target.rss_bytes()
    with many(target, 50, lambda connection: connection.sendall(struct.pack(">i", 90 * 1024 * 1024) + b"x")):
        target.check_serves("the_first_member_is_the_leader_in_generation_1")
        assert target.rss_bytes() - before < 20 * 1024 * 1024


def test_many_connections_that_say_nothing_hinder_nobody(target: Target) -> None:
    with many(target, CONNECTIONS_HELD, lambda connection: None):
        target.check_serves("a_newcomer_makes_the_group_rebalance")


def test_half_frames_on_many_connections_hinder_nobody(target: Target) -> None:
    frames = Frames(random.Random(SEED))

    def half(connection: socket.socket) -> None:
        frame = frames.request()
        connection.sendall(frame[: len(frame) // 2])

    with many(target, CONNECTIONS_HELD, half):
        target.check_serves("a_newcomer_makes_the_group_rebalance")


def test_a_client_that_does_not_read_its_answers_is_not_read_any_more(target: Target) -> None:
    before = target.rss_bytes()
    question = encode_request(API_VERSIONS, 0, 1, "deaf", ApiVersionsRequest())
    with socket.create_connection(target.address) as connection:
        connection.setblocking(False)
        sent = 0
        with suppress(BlockingIOError):
            while sent < 200 * 1024 * 1024:
                sent += connection.send(question * 1_000)
        wait_until(lambda: True, "the broker has read what it wants", 1_000)
        assert sent < 200 * 1024 * 1024
        assert target.rss_bytes() - before < 50 * 1024 * 1024
        target.check_serves("the_first_member_is_the_leader_in_generation_1")


def test_a_frame_that_comes_byte_by_byte_is_answered(target: Target) -> None:
    question = encode_request(API_VERSIONS, 0, 7, "slow", ApiVersionsRequest())
    with socket.create_connection(target.address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in question:
            connection.sendall(bytes([byte]))
        connection.settimeout(5)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        assert decode_response(API_VERSIONS, 0, _exactly(connection, size))[0] == 7


def test_a_null_client_id_ends_a_group_call_of_0_9_and_nothing_else(tmp_path: Path) -> None:
    with broker_process("0.9.0.1", tmp_path) as old:
        body = bytes.fromhex("000b 0000 00000001 ffff") + b"\0\1g" + struct.pack(">i", 10_000) + b"\0\0\0\0" + bytes(4)
        with socket.create_connection(old.address) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            assert is_closed(connection)
        old.check_serves("the_first_member_is_the_leader_in_generation_1")
        old.check_unharmed()


@contextmanager
def many(target: Target, count: int, do: Callable[[socket.socket], None]) -> Iterator[None]:
    """So many connections that are held open."""
    held: list[socket.socket] = []
    try:
        for _ in range(count):
            held.append(socket.create_connection(target.address, 5))
            do(held[-1])
        yield
    finally:
        for connection in held:
            connection.close()


def test_the_fuzzer_makes_what_every_rule_allows_and_breaks_it() -> None:
    frames = Frames(random.Random(SEED), ["g"])
    refused = 0
    for _ in range(400):
        good, bad = frames.request(), frames.bad()
        assert decode_request_header(good[SIZE_BYTES:]).api_key in APIS
        with suppress(MalformedMessage):
            decode_request_header(bad[SIZE_BYTES:])
            continue
        refused += 1
    assert refused > 0
