"""``EmbeddedBroker`` in the hands of somebody who gives it what it does not take: an error that says what it takes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.broker.broker_cluster import BrokerCluster
from bridge.broker.topic_store import OFFSETS_TOPIC
from bridge.testing import EmbeddedBroker
from zkconsumer.errors import UsageError


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(nodes=2) as started:
        started.create_topic("clicks", partitions=4)
        yield started


CALLS: list[tuple[Callable[[Any], object], str]] = [
    (lambda b: b.create_topic("a b"), "'a b': a topic's name has 1 to 249 of the characters"),
    (lambda b: b.create_topic("a", partitions=0), "0 partitions; a topic has 1 to 10000"),
    (lambda b: b.create_topic("a", config={"retention.ms": "1"}), "retention.ms cannot be set here"),
    (lambda b: b.append("clicks", 0, ["a"]), r"'a' is not a record: append takes a list of bytes"),
    (lambda b: b.append("clicks", 0, b"abc"), r"97 is not a record: append takes a list of bytes"),
    (lambda b: b.move_leader("clicks", 4, 1), "there is no partition clicks/4"),
    (lambda b: b.move_leader("clicks", 0, 9), "there is no node 9; there are 0, 1"),
    (lambda b: b.start(), "the broker runs already"),
    (lambda b: EmbeddedBroker().bootstrap, "start the broker first"),
    (lambda b: EmbeddedBroker(listeners="PLAINTEXT://127.0.0.1:0"), "listeners is a list of them"),
    (lambda b: EmbeddedBroker(properties={"num.partitions": 3}).start(), "num.partitions is 3: properties are text"),  # type: ignore[dict-item]
    (lambda b: b.create_topic("t", config={"retention.bytes": 1000}), "retention.bytes is 1000: settings are text"),
    (lambda b: b.create_topic("t", config={"retention.ms": "1"}), "retention.ms cannot be set here"),
    (lambda b: EmbeddedBroker(users={"ann": "x"}).start(), "users are given, but no listener requires a login"),
]


@pytest.mark.parametrize(("call", "words"), CALLS, ids=[words for _, words in CALLS])
def test_what_cannot_be_is_refused_in_words(
    call: Callable[[EmbeddedBroker], object], words: str, broker: EmbeddedBroker
) -> None:
    with pytest.raises(UsageError, match=words):
        call(broker)
    assert broker.log_end("clicks", 0) == 0, "nothing was changed, and it still answers"


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("kept", config={"cleanup.policy": "compact"})
        with pytest.raises(UsageError, match=r"kept is compacted, and every record of it needs a key"):
            broker.append("kept", 0, [b"x"])
        assert broker.append("kept", 0, []) == broker.log_end("kept", 0) == 0


def test_the_directory_may_be_given_as_text(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=str(tmp_path)) as broker:
        broker.create_topic("clicks")
        broker.append("clicks", 0, [b"a"])
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        assert broker.log_end("clicks", 0) == 1


def test_fifty_partitions_without_a_group_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def loaded() -> list[int]:
        return [record.levelno for record in caplog.records if record.getMessage().startswith("partition-loaded")]

    with EmbeddedBroker() as broker:
        broker.run_on_broker_thread(lambda cluster: cluster.create_offsets_topic())
        deadline = time.monotonic() + 30
        while len(loaded()) < 50 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert loaded() == [logging.DEBUG] * 50


@pytest.mark.parametrize(("factor", "replicas"), [(None, 1), ("2", 2), ("5", 3)])
def test_the_offsets_topic_is_compacted_and_its_replication_factor_is_at_most_the_number_of_nodes(
    factor: str | None, replicas: int
) -> None:
    """The default factor is 1; Kafka's is 3."""

    def create(cluster: BrokerCluster) -> tuple[int, int, set[int], str | None]:
        cluster.create_offsets_topic()
        topic = cluster.topics.get(OFFSETS_TOPIC)
        assert topic is not None
        factors = {len(partition.replicas) for partition in topic.partitions}
        return len(topic.partitions), cluster.offsets_topic_partitions, factors, topic.config.cleanup_policy

    given = {} if factor is None else {"offsets.topic.replication.factor": factor}
    with EmbeddedBroker(nodes=3, properties={"offsets.topic.num.partitions": "4", **given}) as broker:
        assert broker.run_on_broker_thread(create) == (4, 4, {replicas}, "compact")
