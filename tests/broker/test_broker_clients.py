"""The broker with clients that are not ours: kafka-python and librdkafka, over sockets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from bridge.testing import EmbeddedBroker

PATIENCE_S = 60
SOON_MS = 500
"""How soon kafka-python looks at its topics again: one that joined before it knew them has given itself nothing."""


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(properties={"offsets.topic.num.partitions": "4"}) as started:
        yield started


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "this did not happen in time"


def test_kafka_python_produces_and_consumes_in_a_group(broker: EmbeddedBroker) -> None:
    broker.create_topic("t", 2)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    sent = [b"%d" % n for n in range(100)]
    for value in sent:
        producer.send("t", value)
    producer.flush(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        "t",
        bootstrap_servers=broker.bootstrap,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=SOON_MS,
    )
    seen: list[bytes] = []

    def reads() -> bool:
        for messages in consumer.poll(timeout_ms=200).values():
            seen.extend(message.value for message in messages)
        return len(seen) >= len(sent)

    until(reads)
    consumer.commit()
    consumer.close()
    assert sorted(seen) == sorted(sent)
    again = KafkaConsumer(
        "t", bootstrap_servers=broker.bootstrap, group_id="g", auto_offset_reset="earliest", metadata_max_age_ms=SOON_MS
    )
    broker.append("t", 0, [b"later"])
    later: list[bytes] = []

    def reads_later() -> bool:
        for messages in again.poll(timeout_ms=200).values():
            later.extend(message.value for message in messages)
        return bool(later)

    until(reads_later)
    again.close()
    assert later == [b"later"], "the group goes on where it had committed"


def test_librdkafka_members_share_a_topic_and_take_over_from_each_other(broker: EmbeddedBroker) -> None:
    broker.create_topic("t", 4)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for n in range(100):
        producer.produce("t", b"%d" % n, partition=n % 4)
    assert producer.flush(PATIENCE_S) == 0
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 200,
    }
    one, two = Consumer(config), Consumer(config)
    seen: list[bytes] = []

    def poll(consumer: Consumer) -> None:
        for message in consumer.consume(100, 0.1):
            assert message.error() is None, message.error()
            seen.append(message.value())

    one.subscribe(["t"])
    until(lambda: poll(one) or len(one.assignment()) == 4)
    two.subscribe(["t"])
    until(lambda: poll(one) or poll(two) or len(one.assignment()) == len(two.assignment()) == 2)
    one.close()
    until(lambda: poll(two) or len(two.assignment()) == 4)
    until(lambda: poll(two) or len(set(seen)) == 100)
    two.close()
    assert sorted(set(seen), key=int) == [b"%d" % n for n in range(100)]
