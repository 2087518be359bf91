"""The metrics of ``KafkaConsumer``, and their export to Prometheus."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from bridge.client.kafka_consumer.consumer_metrics import (
    CONSUMER_GROUP,
    COORDINATOR_GROUP,
    FETCH_GROUP,
    ConsumerMetrics,
    MetricName,
    PollMetrics,
)
from bridge.client.kafka_consumer.prometheus import KafkaConsumerCollector, prometheus_name
from tests.kafka_consumer_fixtures import AUTO_COMMIT_MS, HEARTBEAT_MS, T2P0, TP0, RecordingListener, ScriptedConsumer
from zkconsumer.kafka.error_codes import GROUP_AUTHORIZATION_FAILED, REBALANCE_IN_PROGRESS
from zkconsumer.kafka.fetch.consumer_fetch_metrics import ConsumerFetchMetrics
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.wire.schemas import HEARTBEAT, JOIN_GROUP, OFFSET_COMMIT

prometheus_client = pytest.importorskip("prometheus_client")

OF_CONSUMER = {"last-poll-seconds-ago", "time-between-poll-avg", "time-between-poll-max", "poll-idle-ratio-avg"}
OF_COORDINATOR = {
    "assigned-partitions", "commit-latency-avg", "commit-latency-max", "commit-rate", "commit-total",
    "failed-rebalance-rate-per-hour", "failed-rebalance-total", "heartbeat-rate", "heartbeat-response-time-max",
    "heartbeat-total", "join-rate", "join-time-avg", "join-time-max", "join-total", "last-heartbeat-seconds-ago",
    "last-rebalance-seconds-ago", "partition-assigned-latency-avg", "partition-assigned-latency-max",
    "partition-lost-latency-avg", "partition-lost-latency-max", "partition-revoked-latency-avg",
    "partition-revoked-latency-max", "rebalance-latency-avg", "rebalance-latency-max", "rebalance-latency-total",
    "rebalance-rate-per-hour", "rebalance-total", "sync-rate", "sync-time-avg", "sync-time-max", "sync-total",
}  # fmt: skip
OF_TOPICS = {
    "bytes-consumed-rate", "bytes-consumed-total", "fetch-size-avg", "fetch-size-max", "records-consumed-rate",
    "records-consumed-total", "records-per-request-avg",
}  # fmt: skip
OF_FETCHES = OF_TOPICS | {
    "fetch-latency-avg", "fetch-latency-max", "fetch-rate", "fetch-throttle-time-avg", "fetch-throttle-time-max",
    "fetch-total", "records-lag-max", "records-lead-min",
}  # fmt: skip
OF_PARTITIONS = {
    "records-lag", "records-lag-avg", "records-lag-max", "records-lead", "records-lead-avg", "records-lead-min",
}  # fmt: skip
"""The names of Kafka 3.0; ``preferred-read-replica`` is not measured here."""


def values(scripted: ScriptedConsumer, group: str = CONSUMER_GROUP, **tags: str) -> dict[str, float]:
    """The metrics of a group with these tags, besides the client id."""
    found = scripted.consumer.metrics()
    wanted = tuple(tags.items())
    return {name.name: value for name, value in found.items() if name.group == group and name.tags[1:] == wanted}


def used_consumer() -> ScriptedConsumer:
    """A consumer that has done everything that is measured, except losing partitions."""
    scripted = ScriptedConsumer()
    scripted.join(TP0, T2P0)
    scripted.clock.move(30)
    scripted.append(TP0, 5)
    scripted.read(5)
    scripted.clock.move(AUTO_COMMIT_MS)
    scripted.poll()
    scripted.run_heartbeat_thread(HEARTBEAT_MS)
    scripted.consumer.enforce_rebalance()
    scripted.poll_until(lambda: scripted.generation == 2)
    return scripted


# --- names --------------------------------------------------------------------------------------------------------


def test_the_metrics_have_the_names_of_kafka() -> None:
    scripted = used_consumer()
    never = {"partition-lost-latency-avg", "partition-lost-latency-max"}
    assert values(scripted).keys() == OF_CONSUMER
    assert values(scripted, COORDINATOR_GROUP).keys() == OF_COORDINATOR - never
    assert values(scripted, FETCH_GROUP).keys() == OF_FETCHES
    assert values(scripted, FETCH_GROUP, topic="test").keys() == OF_TOPICS
    scripted.poll_until(lambda: scripted.consumer.assignment())
    scripted.append(TP0, 1)
    scripted.read(1)
    assert values(scripted, FETCH_GROUP, topic="test", partition="0").keys() == OF_PARTITIONS


def test_the_metrics_have_the_generated_client_id() -> None:
    scripted = used_consumer()
    client_id = scripted.consumer._parts.client_id
    assert {name.tags[0] for name in scripted.consumer.metrics()} == {("client-id", client_id)}


def test_a_consumer_without_group_has_no_metrics_of_one() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.assign(TP0)
    assert values(scripted, COORDINATOR_GROUP) == {}
    assert values(scripted, FETCH_GROUP)["fetch-total"] == 0


def test_close_removes_all_metrics() -> None:
    scripted = used_consumer()
    assert "last-poll-seconds-ago" in values(scripted)
    scripted.consumer.close()
    assert scripted.consumer.metrics() == {}


# --- poll ---------------------------------------------------------------------------------------------------------


def test_the_time_between_polls_is_measured() -> None:
    scripted = ScriptedConsumer()
    assert values(scripted) == {}
    scripted.consumer.assign([TP0])
    scripted.poll()  # takes 1 ms: the metadata
    began = scripted.clock.now_ms() - 1
    assert values(scripted) == {"last-poll-seconds-ago": 0}
    for seconds, average, maximum in ((5, 5000, 5000), (10, 7500, 10_000), (5, 6666, 10_000)):
        scripted.clock.move(began + 1000 * seconds - scripted.clock.now_ms())
        assert values(scripted)["last-poll-seconds-ago"] == seconds
        began = scripted.clock.now_ms()
        scripted.poll()
        found = values(scripted)
        assert int(found["time-between-poll-avg"]) == average
        assert found["time-between-poll-max"] == maximum


def test_the_part_of_the_time_inside_of_poll_is_measured() -> None:
    poll = PollMetrics()
    metrics = ConsumerMetrics("c", ConsumerFetchMetrics(), None, 0)
    metrics.poll = poll

    def ratio(now_ms: int) -> float | None:
        found = metrics.values(now_ms, 0)
        return found.get(MetricName("poll-idle-ratio-avg", CONSUMER_GROUP, (("client-id", "c"),)))

    assert ratio(0) is None
    poll.record_start(0)
    poll.record_end(50)
    assert ratio(50) is None
    poll.record_start(100)
    assert ratio(100) == 0.5
    poll.record_end(100)
    poll.record_start(125)
    poll.record_end(150)
    assert ratio(150) == (50 + 0 + 25) / 125


# --- the group ----------------------------------------------------------------------------------------------------


def test_the_coordinators_responses_are_counted_and_their_times_measured() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.cluster.hold(JOIN_GROUP)
    scripted.consumer.subscribe(["test"])
    scripted.poll_until(lambda: scripted.in_flight(JOIN_GROUP))
    scripted.clock.move(250)
    scripted.cluster.assignment = (TP0,)
    scripted.answer(JOIN_GROUP)
    scripted.poll_until(scripted.consumer.assignment)
    scripted.cluster.hold(OFFSET_COMMIT)
    scripted.consumer.commit_async({TP0: OffsetAndMetadata(1)})
    scripted.clock.move(40)
    scripted.answer(OFFSET_COMMIT)
    scripted.poll()
    found = values(scripted, COORDINATOR_GROUP)
    assert (found["join-total"], found["join-time-max"]) == (1, 250)
    assert (found["commit-total"], found["commit-latency-avg"]) == (1, 40)
    assert found["assigned-partitions"] == 1
    assert (found["rebalance-total"], found["rebalance-latency-total"]) == (1, 250)
    assert (found["last-heartbeat-seconds-ago"], found["last-rebalance-seconds-ago"]) == (-1, 0)


def test_heartbeats_are_counted() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    for _ in range(3):
        scripted.run_heartbeat_thread()
    scripted.clock.move(2500)
    found = values(scripted, COORDINATOR_GROUP)
    assert (found["heartbeat-total"], found["last-heartbeat-seconds-ago"]) == (3, 2)


def test_failed_joins_are_counted() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.fail_next(JOIN_GROUP, GROUP_AUTHORIZATION_FAILED)
    scripted.consumer.subscribe(["test"])
    with pytest.raises(Exception, match="GROUP_AUTHORIZATION_FAILED"):
        scripted.poll_until(lambda: False)
    assert values(scripted, COORDINATOR_GROUP)["failed-rebalance-total"] == 1


def test_the_time_of_the_listener_is_measured() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    listener.on_call = lambda name: scripted.clock.move({"assigned": 30, "revoked": 70}.get(name, 0))
    scripted.join(TP0, listener=listener)
    scripted.cluster.fail_next(HEARTBEAT, REBALANCE_IN_PROGRESS)
    scripted.run_heartbeat_thread()
    scripted.poll_until(lambda: len(listener.calls) == 3)
    found = values(scripted, COORDINATOR_GROUP)
    assert (found["partition-assigned-latency-avg"], found["partition-revoked-latency-max"]) == (30, 70)


# --- fetches ------------------------------------------------------------------------------------------------------


def test_the_records_of_topics_and_the_lag_of_partitions_are_measured() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.cluster.records_max = 4
    scripted.cluster.append(TP0, 10)
    scripted.consumer.assign([TP0])
    scripted.read(4)
    found = values(scripted, FETCH_GROUP)
    assert (found["records-consumed-total"], found["records-per-request-avg"]) == (4, 4)
    assert found["bytes-consumed-total"] >= 4 * len(b"keyvalue-0")  # about: without C modules only keys and values
    assert values(scripted, FETCH_GROUP, topic="test")["records-consumed-total"] == 4
    of_partition = values(scripted, FETCH_GROUP, topic="test", partition="0")
    assert (of_partition["records-lag"], of_partition["records-lead"]) == (6, 4)


def test_the_metrics_of_a_partition_end_with_its_assignment() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.assign(TP0)
    scripted.append(TP0, 1)
    scripted.read(1)
    assert values(scripted, FETCH_GROUP, topic="test", partition="0")
    scripted.consumer.assign([T2P0])
    scripted.poll()
    assert values(scripted, FETCH_GROUP, topic="test", partition="0") == {}


def test_metrics_can_be_read_while_topics_are_added() -> None:
    fetch = ConsumerFetchMetrics()
    fetch.record_topic("a topic", 10, 1)
    metrics = ConsumerMetrics("c", fetch, None, 0)
    rows = metrics._of_fetches(1.0)
    assert any("a topic" in str(row) for row in rows)  # in the middle of the topics
    fetch.record_topic("another topic", 10, 1)
    assert len(list(rows)) > 1


# --- Prometheus ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (MetricName("last-poll-seconds-ago", CONSUMER_GROUP), "kafka_consumer_last_poll_seconds_ago"),
        (MetricName("commit-latency-avg", COORDINATOR_GROUP), "kafka_consumer_coordinator_commit_latency_avg"),
        (MetricName("fetch-rate", FETCH_GROUP), "kafka_consumer_fetch_fetch_rate"),
        (
            MetricName("records-consumed-total", FETCH_GROUP, (("client-id", "c"), ("topic", "t"))),
            "kafka_consumer_fetch_records_consumed_by_topic_total",
        ),
        (
            MetricName("records-lag", FETCH_GROUP, (("client-id", "c"), ("topic", "t"), ("partition", "0"))),
            "kafka_consumer_fetch_records_lag_by_partition",
        ),
    ],
)
def test_a_metric_has_a_name_for_prometheus(metric: MetricName, expected: str) -> None:
    assert prometheus_name(metric) == expected


def exported(registry: Any) -> str:
    text: str = prometheus_client.generate_latest(registry).decode()
    return text


def test_prometheus_exports_every_metric_with_its_tags() -> None:
    scripted = used_consumer()
    registry = prometheus_client.CollectorRegistry()
    registry.register(KafkaConsumerCollector(scripted.consumer))
    text = exported(registry)
    client_id = scripted.consumer._parts.client_id
    assert f'kafka_consumer_coordinator_join_total{{client_id="{client_id}"}} 2.0' in text
    assert "# TYPE kafka_consumer_coordinator_join_total counter" in text
    assert "# TYPE kafka_consumer_coordinator_join_time_avg gauge" in text
    by_topic = f'kafka_consumer_fetch_records_consumed_by_topic_total{{client_id="{client_id}",topic="test"}} 5.0'
    assert by_topic in text
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(samples) == len(scripted.consumer.metrics())


def test_prometheus_exports_several_consumers_in_one_family() -> None:
    first, second = ScriptedConsumer(client_id="first"), ScriptedConsumer(client_id="second")
    collector = KafkaConsumerCollector(first.consumer)
    collector.add(second.consumer)
    registry = prometheus_client.CollectorRegistry()
    registry.register(collector)
    text = exported(registry)
    assert text.count("# TYPE kafka_consumer_coordinator_join_total counter") == 1
    assert 'kafka_consumer_coordinator_join_total{client_id="second"} 0.0' in text


def test_prometheus_exports_nothing_of_a_consumer_that_is_closed_or_gone() -> None:
    closed, gone = ScriptedConsumer(), ScriptedConsumer()
    registry = prometheus_client.CollectorRegistry()
    registry.register(KafkaConsumerCollector(closed.consumer, gone.consumer))
    closed.consumer.close()
    assert exported(registry).count("kafka_consumer_coordinator_join_total{") == 1
    del gone
    gc.collect()
    assert exported(registry) == ""
