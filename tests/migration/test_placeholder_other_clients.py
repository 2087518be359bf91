"""The answers that other clients get beside the placeholder member: ours, kafka-python and librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Committed
from kafka import KafkaConsumer
from kafka.errors import InconsistentGroupProtocolError

from bridge import CoordinatorConsumerConnector
from bridge.migration.placeholder.placeholder_member import PlaceholderMember
from tests.migration.placeholder_fixtures import GROUP, PlaceholderFixture
from zkconsumer import ConsumerConfig
from zkconsumer.kafka.group.errors import InconsistentGroupProtocolException
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.types import TopicPartition

PATIENCE_S = 20
T0 = TopicPartition("t", 0)


def ours(env: PlaceholderFixture) -> None:
    config = ConsumerConfig(
        group_id=GROUP, zookeeper_connect="nowhere:2181", bootstrap_servers=env.broker.bootstrap
    )  # fmt: skip
    with CoordinatorConsumerConnector(config) as connector, pytest.raises(InconsistentGroupProtocolException):
        next(connector.create_message_streams({"t": 1})["t"][0])


def kafka_python(env: PlaceholderFixture) -> None:
    consumer = KafkaConsumer("t", bootstrap_servers=env.broker.bootstrap, group_id=GROUP)
    try:
        with pytest.raises(InconsistentGroupProtocolError):
            for _ in range(20):
                consumer.poll(timeout_ms=1_000)
    finally:
        consumer.close()


def librdkafka(env: PlaceholderFixture) -> None:
    consumer = Consumer({"bootstrap.servers": env.broker.bootstrap, "group.id": GROUP, "session.timeout.ms": 6_000})
    consumer.subscribe(["t"])
    deadline = time.monotonic() + PATIENCE_S
    while (message := consumer.poll(0.5)) is None or message.error() is None:
        assert time.monotonic() < deadline, "it was told nothing"
    assert message.error().name() == "INCONSISTENT_GROUP_PROTOCOL"
    assert consumer.assignment() == []
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER"):
        consumer.commit(offsets=[Committed("t", 0, 99)], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("start", [ours, kafka_python, librdkafka])
def test_a_client_that_starts_too_early_gets_an_error_and_changes_nothing(
    env: PlaceholderFixture, start: Callable[[PlaceholderFixture], None]
) -> None:
    with env.process() as session:
        seat: PlaceholderMember = env.seat(session)
        seat.join()
        seat.commit({T0: OffsetAndMetadata(42, "ours")})
        env.broker.append("t", 0, [b"x"])
        before = seat.joined
        start(env)
        assert not seat.read_occupants().others
        seat.heartbeat()
        assert seat.joined is not None
        assert before is not None
        assert seat.joined.generation == before.generation, "nobody made the group form anew"
        assert {code.code for code in seat.commit({T0: OffsetAndMetadata(43)}).values()} == {0}
