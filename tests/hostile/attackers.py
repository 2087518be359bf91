"""The broker as a process of its own, and those who attack it; see ``test_coordinator_hostile``."""

from __future__ import annotations

import os
import random
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.hostile.fuzzed_frames import Frames
from tests.interop.probe import CHECKS, Probe, Server
from tests.interop.probe.probed_broker import PARTITIONS, SETTINGS, wait_coordinating
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.testing.sandbox.waiting import HOST
from zkconsumer.wire.request_frames import SIZE_BYTES, decode_request_header, decode_response
from zkconsumer.wire.schemas import API_VERSIONS, APIS

SEED = int(os.environ.get("ZKCONSUMER_FUZZ_SEED", "20160523"))
TOPIC = "probed"
ROOT = Path(__file__).resolve().parents[2]

ATTACKERS = 3
FRAMES_A_CONNECTION_MAX = 20
ANSWER_S = 0.02
"""A parked JoinGroup is not waited for."""

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
            start = exactly(connection, SIZE_BYTES)
        except TimeoutError:
            self.seen["silence"] += 1
            return False
        except ConnectionError:
            self.seen["closed"] += 1
            return False
        (size,) = struct.unpack(">i", start)
        assert 4 <= size <= RESPONSE_BYTES_MAX, f"an answer of {size} bytes to {asked.hex()}"
        connection.settimeout(5)
        answer = exactly(connection, size)
        connection.settimeout(ANSWER_S)
        self._judge(asked, answer)
        return True

    def _judge(self, asked: bytes, answer: bytes) -> None:
        header = decode_request_header(asked[SIZE_BYTES:])
        api = APIS.get(header.api_key)
        assert api is not None, f"an answer to an unknown API: {asked.hex()}"
        if not self.target.server.ranges.supports(api, header.api_version) and api is not API_VERSIONS:
            # Brokers of 0.9 read and answer such a request in the layout of the highest version that they know.
            assert self.target.server.ranges.is_assumed, f"an answer to a version that it does not speak: {asked.hex()}"
            self.seen["answered in another layout"] += 1
            return
        version = header.api_version if api.supports(header.api_version) else 0
        correlation_id, _ = decode_response(api, version, answer)
        assert correlation_id == header.correlation_id, asked.hex()
        self.seen["answered"] += 1


def exactly(connection: socket.socket, count: int) -> bytes:
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
