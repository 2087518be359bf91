"""What a stream remembers of brokers from batch to batch."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from bridge.spark.source import log_reader
from bridge.spark.source.log_reader import BrokerLogReader
from zkconsumer.admin.broker_client import BrokerClient
from zkconsumer.admin.log_ranges import LogRange
from zkconsumer.config import ConsumerConfig
from zkconsumer.kafka.metadata_client import LeaderMetadata
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import BrokerAddress, TopicPartition

BROKER = BrokerAddress(1, "b", 9092)
CONFIG = ConsumerConfig.from_properties({"group.id": "g", "zookeeper.connect": "z:2181"})


def test_leaders_are_remembered_until_the_topic_grows_or_they_are_old(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {TopicPartition("t", 0): BROKER}
    asked: list[int] = []

    def leaders(self: BrokerClient, topics: Collection[str] | None) -> LeaderMetadata:
        asked.append(len(there))
        return LeaderMetadata({1: BROKER}, dict(there), {})

    def log_ranges(
        brokers: BrokerClient, partitions: list[TopicPartition], time_ms: int | None, *, isolation_level: int
    ) -> dict[TopicPartition, Any]:
        led = brokers.leaders({tp.topic for tp in partitions}).with_leader
        return {tp: LogRange(0, 9) if tp in led else "nobody leads it" for tp in partitions}

    monkeypatch.setattr(BrokerClient, "leaders", leaders)
    monkeypatch.setattr(log_reader, "log_ranges", log_ranges)
    clock = ManualClock()
    some = BrokerLogReader(CONFIG, lambda: [BROKER], clock)
    some.read_bounds(list(there), {})
    some.read_bounds(list(there), {})
    assert asked == [1], "a batch later they are known"
    there[TopicPartition("t", 1)] = BROKER
    found = some.read_bounds(list(there), {})
    assert asked == [1, 2]
    assert not any(isinstance(told, str) for told in found.values()), "a new partition is read at once"
    some.read_bounds(list(there), {})
    assert asked == [1, 2]
    clock.move(log_reader.LEADERS_AGE_MAX_MS)
    some.read_bounds(list(there), {})
    assert asked == [1, 2, 2]
