"""Hostile frames against the embedded broker: a reasoned close or an error code, bounded memory, nothing else.

    attackers --garbage, flipped bits, huge sizes, half frames, trickles--> broker (a process of its own, measured)
    a well-behaved member <--answers as ever--'

Seeded: a run that failed says its seed, and ``SEED`` repeats the frames (not their timing).
"""

from __future__ import annotations

import os
import random
import select
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.hostile.attackers import ATTACKERS, SEED, Target, attack, broker_process, exactly
from tests.hostile.fuzzed_frames import Frames
from zkconsumer.wire.primitives import MalformedMessage
from zkconsumer.wire.request_frames import SIZE_BYTES, decode_request_header, decode_response, encode_request
from zkconsumer.wire.schemas import API_VERSIONS, APIS
from zkconsumer.wire.schemas.api_versions import ApiVersionsRequest

CONNECTIONS_HELD = 300
DEAF_BYTES_MAX = 100 * 1024 * 1024
"""More than lies in the buffers between a client that reads no answers and a broker that has stopped reading."""

RSS_GROWTH_BYTES_MAX = 150 * 1024 * 1024
"""What groups, offsets and topics of a fuzzer may take at most: its names are few."""

ATTACKS_MAX = 10


def survives(release: str, folder: Path, duration_ms: int, seed: int) -> None:
    with broker_process(release, folder) as target:
        attack(target, min(5_000, duration_ms // 4), seed)  # caches and tables fill up
        before = target.rss_bytes()
        # 0.9 passes over what it cannot read, and the answers to whatever follows with it.
        answered_min, closed_min = (5, -1) if release.startswith("0.9") else (100, 10)
        seen: Counter[str] = Counter()
        for number in range(1, ATTACKS_MAX):  # one is enough where nothing else uses the processor
            seen += attack(target, duration_ms, seed + number * ATTACKERS)
            if seen["answered"] > answered_min and seen["closed"] > closed_min:
                break
        target.check_unharmed()
        grown = target.rss_bytes() - before
        print(f"\n{release}, seed {seed}: {dict(seen)}; memory grew by {grown / 2**20:.1f} MiB")
        assert grown < RSS_GROWTH_BYTES_MAX, f"seed {seed}: {grown} bytes more"
        assert seen["answered"] > answered_min, seen
        assert seen["closed"] > closed_min, seen
        for name in ("a_member_commits_and_reads_it_back", "a_newcomer_makes_the_group_rebalance"):
            target.check_serves(name)


@pytest.mark.fuzz
@pytest.mark.timeout(150)
@pytest.mark.parametrize(("release", "duration_ms"), [("3.9.1", 4_000), ("0.9.0.1", 2_000), ("4.1.1", 2_000)])
def test_seconds_of_hostile_frames(release: str, duration_ms: int, tmp_path: Path) -> None:
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
        # Until it has read nothing for a while.
        while sent < DEAF_BYTES_MAX and select.select([], [connection], [], 0.5)[1]:
            sent += connection.send(question * 1_000)
        assert sent < DEAF_BYTES_MAX
        assert target.rss_bytes() - before < 50 * 1024 * 1024
        target.check_serves("the_first_member_is_the_leader_in_generation_1")


def test_a_frame_that_comes_byte_by_byte_is_answered(target: Target) -> None:
    question = encode_request(API_VERSIONS, 0, 7, "slow", ApiVersionsRequest())
    with socket.create_connection(target.address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in question:
            connection.sendall(bytes([byte]))
        connection.settimeout(5)
        (size,) = struct.unpack(">i", exactly(connection, 4))
        assert decode_response(API_VERSIONS, 0, exactly(connection, size))[0] == 7


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
