"""What the driver asks the brokers of a topic, and what a task gets: options of the file, and secrets nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs the extra [spark]")

from bridge.spark.decode.cluster_connections import ClusterConnections
from bridge.spark.pipeline.option_keys import CONNECTION_OPTIONS
from bridge.spark.pipeline.pipeline_spec import TopicTarget
from bridge.spark.pipeline.secret_reference import SecretReference, SecretUnavailableError
from bridge.spark.pipeline.sinks.sink import SinkUnavailableError
from bridge.spark.pipeline.sinks.topic_records import RECORD_BYTES_LIMIT, TopicFacts
from bridge.spark.pipeline.sinks.topic_sending import TopicRefusedError, read_topic_facts, sink_task, task_error
from bridge.spark.sink.sink_option_table import SINK_BROKER_OPTIONS
from bridge.testing.fake_cluster import FakeCluster
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import BrokerAddress
from zkconsumer.wire import compression

PASSWORD = "not-in-any-plan"
LOGIN: Mapping[str, Any] = {
    "kafka.bootstrap.servers": "k1:9092,k2:9092", "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u",
}  # fmt: skip


def target(connection: Mapping[str, Any] = LOGIN, **others: Any) -> TopicTarget:
    values = {"topic": "rows", "compression": "lz4", "acks": "1", "lineage_path": "/l", "holds_dead_letters": False}
    return TopicTarget(connection=connection, **{**values, **others})


def test_a_task_has_the_values_of_the_file_and_the_headers_of_the_batch(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    secret = SecretReference("file", str(tmp_path / "password"))
    task = sink_task(target({**LOGIN, "kafka.sasl.password": secret}), "q-1", 7)
    assert (task.topic, task.acks, task.codec, task.query, task.batch) == ("rows", 1, compression.LZ4, "q-1", "7")
    assert [each.host for each in task.address.brokers] == ["k1", "k2"]
    assert task.record_bytes_max == RECORD_BYTES_LIMIT
    assert PASSWORD not in repr(task)


def test_rows_with_topics_of_their_own_have_no_default_topic() -> None:
    assert sink_task(target({"kafka.bootstrap.servers": "k1:9092"}, topic=None, acks="all")).topic is None


def test_a_secret_that_is_not_there_is_named() -> None:
    secret = SecretReference("env", "ZKCONSUMER_TEST_NO_SUCH_VARIABLE")
    with pytest.raises(SecretUnavailableError, match=r"kafka\.sasl\.password=env:ZKCONSUMER_TEST_NO_SUCH_VARIABLE"):
        sink_task(target({**LOGIN, "kafka.sasl.password": secret}))


def test_every_option_of_a_connection_is_one_of_the_sink() -> None:
    assert set(SINK_BROKER_OPTIONS) >= CONNECTION_OPTIONS


def test_the_error_of_a_task_is_one_line_and_says_who_must_act() -> None:
    passing = task_error("TimeoutException", "rows/0: records were not acknowledged for 9 ms. ")
    assert isinstance(passing, SinkUnavailableError)
    assert str(passing) == (
        "rows/0: records were not acknowledged for 9 ms. The batch is repeated when the pipeline is started again"
    )
    assert isinstance(task_error("RecordsNotWritten", "no"), TopicRefusedError)


class FakeAddress:
    """A ``ClusterAddress`` of a cluster in memory."""

    def __init__(self, fake: FakeCluster, clock: ManualClock) -> None:
        self.brokers: tuple[BrokerAddress, ...] = tuple(fake.addresses)
        self._fake, self._clock = fake, clock

    def open(self) -> ClusterConnections:
        return ClusterConnections(lambda: self.brokers, self._fake.connect, "sink", self._clock)


def facts(release: str, topic: str | None, *, is_stopped: bool = False) -> TopicFacts | None:
    clock = ManualClock()
    fake = FakeCluster(1, release=release, clock=clock)
    fake.create_topic("rows", 3)
    address: Any = FakeAddress(fake, clock)
    if is_stopped:
        fake.stop_broker(0)
    return read_topic_facts(address, topic)


@pytest.mark.parametrize(("release", "limit"), [("0.8.2.2", None), ("0.10.2.2", None), ("3.9.1", 1_048_588)])
def test_brokers_from_0_11_on_say_how_large_a_record_may_be(release: str, limit: int | None) -> None:
    assert facts(release, "rows") == TopicFacts(3, limit)


@pytest.mark.parametrize("release", ["0.8.2.2", "3.9.1"])
def test_a_topic_that_does_not_exist_is_not_created_and_must_be_by_the_operator(release: str) -> None:
    with pytest.raises(TopicRefusedError, match=r"topic other: UNKNOWN_TOPIC_OR_PARTITION .*Create the topic"):
        facts(release, "other")


def test_without_a_topic_the_brokers_need_only_answer() -> None:
    assert facts("3.9.1", None) is None
    with pytest.raises(SinkUnavailableError, match=r"the brokers .* do not answer: .*; the operator must start them"):
        facts("3.9.1", None, is_stopped=True)
