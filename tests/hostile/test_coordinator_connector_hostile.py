"""A network that flips bits, cuts answers and hangs up, under a whole connector of a coordinator's group.

What is wrong with the bytes is an error of ours, a retry, or a record that its checksum refuses; never a thread that
dies, a call that hangs, or an exception that nobody wrote down.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from functools import partial

import psutil
import pytest

from bridge import CoordinatorConsumerConnector
from bridge.testing.embedded_broker import EmbeddedBroker
from zkconsumer import ConsumerConfig
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.base.threads import live_threads
from zkconsumer.errors import ConsumerTimeoutException, InternalError, ZkConsumerError
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.kafka.transport import SocketTransport

SEED = int(os.environ.get("ZKCONSUMER_FUZZ_SEED", "20160523"))
LIVES_IN_CI, LIVES_AT_NIGHT = 4, 60
FLIPS_MIN = 5
MORE_LIVES_MAX = 5
LIFE_MS = 2_500
CLOSE_MS_MAX = 20_000
COMMIT_EVERY = 20
RSS_GROWTH_BYTES_MAX = 100 * 1024 * 1024
GROUP = {"session.timeout.ms": 2_000, "heartbeat.interval.ms": 100, "retry.backoff.ms": 20, "request.timeout.ms": 2_500}


class HostileNetwork:
    """Makes transports; ``is_hostile`` while they are to do harm."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.is_hostile = True
        self.done: Counter[str] = Counter()

    def __call__(self, host: str, port: int, receive_buffer_bytes: int, clock: Clock) -> HostileTransport:
        return HostileTransport(self, host, port, receive_buffer_bytes, clock)

    def strikes(self, what: str, chance: float) -> bool:
        """Whether this goes wrong now."""
        is_hit = self.is_hostile and self.rng.random() < chance
        self.done[what] += is_hit
        return is_hit


class HostileTransport(SocketTransport):
    """A socket whose bytes are not to be trusted."""

    def __init__(self, network: HostileNetwork, host: str, port: int, receive_buffer_bytes: int, clock: Clock) -> None:
        super().__init__(host, port, receive_buffer_bytes, clock)
        self._network = network

    def send_all(self, data: bytes | memoryview, deadline_ms: int) -> None:
        if self._network.strikes("broke while sending", 0.01):
            super().send_all(data[: len(data) // 2], deadline_ms)
            raise ConnectionResetError("the network")
        super().send_all(data, deadline_ms)

    def receive_into(self, view: memoryview, deadline_ms: int) -> int:
        if self._network.strikes("broke while receiving", 0.005):
            raise ConnectionResetError("the network")
        if self._network.strikes("ended", 0.005):
            return 0
        count = super().receive_into(view, deadline_ms)
        if count and self._network.strikes("flipped", 0.03):
            view[self._network.rng.randrange(count)] ^= 1 << self._network.rng.randrange(8)
        return count


def live(broker: EmbeddedBroker, number: int) -> Counter[str]:
    """One connector on a bad network, then on a good one; what it met."""
    network = HostileNetwork(SEED + number)
    config = ConsumerConfig(
        group_id=f"g{number}",
        zookeeper_connect="nowhere:2181",
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="smallest",
        consumer_timeout_ms=50,
        metadata_max_age_ms=200,
        rebalance_drain_timeout_ms=300,
        rebalance_backoff_ms=500,
        socket_timeout_ms=2_500,
        fetch_wait_max_ms=50,
    )
    met: Counter[str] = Counter()
    connect = partial(BlockingConnection, transport=network)
    try:
        connector = CoordinatorConsumerConnector(config, GROUP, connect=connect)
    except ZkConsumerError as error:
        note(met, error, SEED + number)
        return met + network.done
    try:
        read(connector, met)
    except ZkConsumerError as error:
        note(met, error, SEED + number)
    finally:
        network.is_hostile = False
        began_ms = SYSTEM_CLOCK.now_ms()
        connector.close()
        assert SYSTEM_CLOCK.now_ms() - began_ms < CLOSE_MS_MAX, f"seed {SEED + number}: close() took too long"
    return met + network.done


def read(connector: CoordinatorConsumerConnector, met: Counter[str]) -> None:
    """Until the time is over, or the stream ends with an error."""
    [[stream]] = connector.create_message_streams({"t": 1}).values()
    iterator = iter(stream)
    end_ms = SYSTEM_CLOCK.now_ms() + LIFE_MS
    while SYSTEM_CLOCK.now_ms() < end_ms:
        try:
            next(iterator)
        except ConsumerTimeoutException:
            continue
        met["records"] += 1
        if met["records"] % COMMIT_EVERY == 0:
            try:
                connector.commit_offsets()
            except ZkConsumerError as error:
                note(met, error, SEED)


def note(met: Counter[str], error: ZkConsumerError, seed: int) -> None:
    """Any error of ours but one: the one that says that we did not expect it."""
    met[type(error).__name__] += 1
    assert not isinstance(error, InternalError), f"seed {seed}: {error!r}"


def live_many(count: int) -> Counter[str]:
    """One life after the other, on one broker; more than ``count`` if few bits were flipped, as on a busy machine."""
    before = live_threads()
    total: Counter[str] = Counter()
    own = psutil.Process()
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 3)
        for partition in range(3):
            for _ in range(20):
                broker.append("t", partition, [b"x" * 50] * 10)
        total += live(broker, 0)
        rss = own.memory_info().rss
        for number in range(1, count * MORE_LIVES_MAX):
            if number >= count and total["flipped"] > FLIPS_MIN:
                break
            total += live(broker, number)
        grown = own.memory_info().rss - rss
    assert live_threads() == before
    assert grown < RSS_GROWTH_BYTES_MAX, f"{grown} bytes more"
    print(dict(total))
    return total


@pytest.mark.fuzz
@pytest.mark.timeout(180)
def test_a_connector_survives_a_network_that_lies() -> None:
    met = live_many(LIVES_IN_CI)
    assert met["flipped"] > FLIPS_MIN, met
    assert met["records"] > 100, met


@pytest.mark.nightly
@pytest.mark.fuzz
@pytest.mark.timeout(1_500)
def test_a_connector_survives_a_network_that_lies_all_night() -> None:
    live_many(LIVES_AT_NIGHT)
