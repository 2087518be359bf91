"""A process of ours was paused for longer than its session: another member owns the partitions in its queues by now."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from bridge import CoordinatorConsumerConnector
from bridge.testing.embedded_broker import EmbeddedBroker
from tests.lab.coordinator_member import OURS, CoordinatorMember
from zkconsumer import ConsumerConfig
from zkconsumer.errors import ConsumerTimeoutException
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

PARTITIONS, RECORDS = 2, 2_000
SESSION = {"session.timeout.ms": "1500", "heartbeat.interval.ms": "200"}
IN_HAND = 1
"""One record may have been returned before the pause, and be written down after it."""


def handed(member: CoordinatorMember) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in member.delivered]


def test_a_resumed_process_delivers_nothing_that_another_has_read(tmp_path: Path) -> None:
    with EmbeddedBroker(properties={"offsets.topic.num.partitions": "5"}) as broker, Sandbox() as sandbox:
        broker.create_topic("t", PARTITIONS)
        for number in range(PARTITIONS):
            broker.append("t", number, [b"x"] * RECORDS)
        member = CoordinatorMember(
            sandbox.run, OURS, broker.bootstrap, "g", ["t"], name="sleeper", settings=SESSION, handle_ms=5
        )
        try:
            member.start(wait=False)
            wait_until(lambda: len(handed(member)) > 50, "it reads", 60_000)
            member.pause()
            before = handed(member)
            taken = read_for_a_while(broker)
            member.resume()
            wait_until(lambda: len(handed(member)) > len(before) + 50, "it reads again, as a member", 30_000)
            after = handed(member)[len(before) :]
        finally:
            member.close()
    assert len(taken) > 100
    assert len(set(after) & taken) <= IN_HAND


def read_for_a_while(broker: EmbeddedBroker) -> set[tuple[int, int]]:
    """Another member acquires everything once the session has ended, reads on, and leaves."""
    config = ConsumerConfig(
        group_id="g",
        zookeeper_connect="nowhere:2181",
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="smallest",
        consumer_timeout_ms=200,
    )
    taken: set[tuple[int, int]] = set()
    with CoordinatorConsumerConnector(config, SESSION) as connector:
        [stream] = connector.create_message_streams({"t": 1})["t"]
        wait_until(lambda: len(connector.assignment) == PARTITIONS, "all of it", 60_000)
        with suppress(ConsumerTimeoutException):
            for message in stream:
                taken.add((message.partition, message.offset))
                if len(taken) == RECORDS:
                    break
    return taken
