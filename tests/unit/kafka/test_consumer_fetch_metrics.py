"""What the fetcher of ``poll`` measures, as FetcherTest of Kafka requires it."""

from __future__ import annotations

import pytest

from tests.poll_fetcher_fixtures import (
    RECORDS,
    TP0,
    TP1,
    PollFetcher,
    fetch_response,
    full_fetch_response,
    partition_response,
    record_set,
)
from zkconsumer.kafka.error_codes import OFFSET_OUT_OF_RANGE
from zkconsumer.types import TopicPartition
from zkconsumer.wire.isolation_level import IsolationLevel

FOO, BAR = TopicPartition("foo", 0), TopicPartition("bar", 0)
RECORD_BYTES = len(b"keyvalue-0")


@pytest.fixture
def made() -> PollFetcher:
    found = PollFetcher()
    found.assign(TP0)
    found.subscriptions.seek(TP0, 0)
    return found


def about(size_bytes: int, records: int) -> bool:
    """Whether this is about the size of so many records: keys, values, and at most 10 bytes more for each."""
    return records * RECORD_BYTES <= size_bytes <= records * (RECORD_BYTES + 10)


def test_throttle_times_and_latencies_are_measured(made: PollFetcher) -> None:
    for throttle_ms in (100, 200, 300):
        made.kafka.prepare(full_fetch_response(TP0, throttle_ms=throttle_ms))
        assert made.fetcher.send_fetches() == 1
        made.clock.move(5)
        made.poll()
        made.fetcher.fetched_records()
    throttle = made.fetcher.metrics.fetch_throttle_ms
    assert (throttle.average, throttle.highest, throttle.count) == (200, 300, 3)
    assert made.fetcher.metrics.fetch_latency_ms.average == 5


def test_the_lag_counts_from_the_position_to_the_high_watermark(made: PollFetcher) -> None:
    metrics = made.fetcher.metrics
    assert metrics.records_lag_max is None
    made.fetch(full_fetch_response(TP0, high_watermark=100))
    assert metrics.records_lag_max == 100
    assert metrics.partitions[TP0].lag.last == 100
    made.fetch(full_fetch_response(TP0, record_set(0, 3), high_watermark=200))
    assert metrics.records_lag_max == 197
    assert metrics.partitions[TP0].lag.last == 197
    made.subscriptions.unsubscribe()
    made.fetcher.send_fetches()
    assert metrics.partitions == {}


def test_the_lead_counts_from_the_begin_of_the_log_to_the_position(made: PollFetcher) -> None:
    metrics = made.fetcher.metrics
    assert metrics.records_lead_min is None
    made.fetch(full_fetch_response(TP0, log_start_offset=0))
    assert (metrics.records_lead_min, metrics.partitions[TP0].lead.last) == (0, 0)
    made.fetch(full_fetch_response(TP0, record_set(0, 3), log_start_offset=0))
    assert (metrics.records_lead_min, metrics.partitions[TP0].lead.last) == (0, 3)
    made.subscriptions.unsubscribe()
    made.fetcher.send_fetches()
    assert metrics.partitions == {}


def test_each_list_of_a_fetch_changes_the_lag_and_the_lead() -> None:
    made = PollFetcher(max_poll_records=2)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 0)
    made.receive(full_fetch_response(TP0, record_set(0, 7), high_watermark=10, log_start_offset=0))
    found = []
    while made.fetcher.fetched_records():
        distances = made.fetcher.metrics.partitions[TP0]
        found.append((distances.lag.last, distances.lead.last))
    assert found == [(8, 2), (6, 4), (4, 6), (3, 7)]
    assert (distances.lag.highest, distances.lag.lowest, distances.lag.count) == (8, 3, 4)


def test_the_lag_of_committed_records_counts_to_the_last_stable_offset() -> None:
    made = PollFetcher(isolation_level=IsolationLevel.READ_COMMITTED)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 0)
    made.fetch(full_fetch_response(TP0, high_watermark=100, last_stable_offset=50))
    assert made.fetcher.metrics.records_lag_max == 50
    made.fetch(full_fetch_response(TP0, record_set(0, 3), high_watermark=200, last_stable_offset=150))
    assert made.fetcher.metrics.partitions[TP0].lag.last == 147


def test_a_fetch_is_measured_with_all_of_its_topics() -> None:
    made = PollFetcher()
    made.subscriptions.assign_from_user([FOO, BAR])
    made.update_metadata({"foo": 1, "bar": 1}, epoch=0)
    for tp in (FOO, BAR):
        made.subscriptions.seek(tp, 0)
    rows = [(tp, partition_response(tp, record_set(0, 3), high_watermark=15)) for tp in (FOO, BAR)]
    found = made.fetch(fetch_response(*rows))
    assert {tp: len(records) for tp, records in found.items()} == {FOO: 3, BAR: 3}
    metrics = made.fetcher.metrics
    assert metrics.all_topics.records_per_request.average == 6
    assert about(metrics.all_topics.fetch_size.total, 6)
    assert {topic: amounts.records_per_request.total for topic, amounts in metrics.topics.items()} == {
        "foo": 3,
        "bar": 3,
    }


def test_records_before_the_position_are_not_measured(made: PollFetcher) -> None:
    made.subscriptions.seek(TP0, 1)
    made.fetch(full_fetch_response(TP0, record_set(0, 3)))
    amounts = made.fetcher.metrics.all_topics
    assert amounts.records_per_request.average == 2
    assert about(amounts.fetch_size.total, 2)


def two_partitions() -> PollFetcher:
    made = PollFetcher()
    made.assign(TP0, TP1)
    for tp in (TP0, TP1):
        made.subscriptions.seek(tp, 0)
    return made


def test_a_partition_with_an_error_counts_as_read() -> None:
    made = two_partitions()
    rows = [
        (TP0, partition_response(TP0, record_set(0, 3))),
        (TP1, partition_response(TP1, b"", OFFSET_OUT_OF_RANGE)),
    ]
    made.fetch(fetch_response(*rows))
    assert made.fetcher.metrics.all_topics.records_per_request.average == 3
    assert about(made.fetcher.metrics.all_topics.fetch_size.total, 3)


def test_a_partition_at_another_position_counts_as_read() -> None:
    made = two_partitions()
    assert made.fetcher.send_fetches() == 1
    made.subscriptions.seek(TP1, 5)
    rows = [(TP0, partition_response(TP0, record_set(0, 3))), (TP1, partition_response(TP1, record_set(0, 1)))]
    made.kafka.prepare(fetch_response(*rows))
    made.poll()
    made.fetcher.fetched_records()
    assert made.fetcher.metrics.all_topics.records_per_request.average == 3


def test_a_fetch_is_measured_when_its_last_record_was_returned() -> None:
    made = PollFetcher(max_poll_records=2)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 1)
    made.fetch(full_fetch_response(TP0, RECORDS))
    assert made.fetcher.metrics.all_topics.fetch_size.count == 0
    made.fetcher.fetched_records()
    assert made.fetcher.metrics.all_topics.fetch_size.count == 1
    assert about(made.fetcher.metrics.all_topics.fetch_size.total, 3)
