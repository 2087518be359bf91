"""The fetcher of ``poll`` over real sockets, with brokers in memory of each release."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from bridge.coordinator.release_features import RELEASES
from bridge.testing.fake_cluster import FakeCluster
from tests.transactional_records import ABORT, COMMIT, batch, marker
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.timer import Timer
from zkconsumer.errors import UnsupportedVersionException
from zkconsumer.kafka.api_versions_deny_list import ApiVersionsDenyList
from zkconsumer.kafka.broker_security import BrokerSecurity, SecureConnectionFactory
from zkconsumer.kafka.fetch.fetch_config import FetchConfig
from zkconsumer.kafka.fetch.fetcher import Fetcher
from zkconsumer.kafka.fetch.list_offsets_requests import OffsetAndTimestamp
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.fetch.subscription_state import SubscriptionState
from zkconsumer.kafka.metadata.consumer_metadata import ConsumerMetadata
from zkconsumer.kafka.metadata.default_metadata_updater import DefaultMetadataUpdater
from zkconsumer.kafka.net.consumer_network_client import ConsumerNetworkClient
from zkconsumer.kafka.net.network_client import NetworkClient
from zkconsumer.kafka.net.network_machine import NetworkMachine, NetworkSettings
from zkconsumer.kafka.net.selector import Selector
from zkconsumer.types import TopicPartition
from zkconsumer.wire.isolation_level import IsolationLevel
from zkconsumer.wire.schemas import FETCH

TOPIC = "clicks"
TP0, TP1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
DEADLINE_S = 30
RETRY_MS, REQUEST_MS = 10, 30_000


class PollingReader:
    """The calls of ``KafkaConsumer.poll`` in their order: positions, buffered records, next fetches."""

    def __init__(self, cluster: FakeCluster, isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> None:
        self.subscriptions = SubscriptionState(OffsetResetStrategy.EARLIEST)
        self.metadata = ConsumerMetadata(RETRY_MS, 300_000, self.subscriptions)
        self.metadata.bootstrap([cluster.address(0)[1:]])
        machine = NetworkMachine(
            NetworkSettings(client_id="reader", reconnect_backoff_ms=1, reconnect_backoff_max_ms=20),
            DefaultMetadataUpdater(self.metadata, REQUEST_MS),
            uniform=lambda: 0.5,
            deny_list=ApiVersionsDenyList(),
        )
        channels = SecureConnectionFactory(BrokerSecurity("PLAINTEXT"), SYSTEM_CLOCK)
        selector = Selector(channels.new_channel, SYSTEM_CLOCK, receive_buffer_bytes=65_536)
        network = NetworkClient(machine, selector, SYSTEM_CLOCK)
        self.network = ConsumerNetworkClient(
            network, self.metadata, SYSTEM_CLOCK, retry_backoff_ms=RETRY_MS, request_timeout_ms=REQUEST_MS
        )
        config = FetchConfig(
            max_wait_ms=50, max_poll_records=7, isolation_level=isolation_level, retry_backoff_ms=RETRY_MS
        )
        self.fetcher = Fetcher(self.network, self.metadata, self.subscriptions, config, SYSTEM_CLOCK)
        self.found: dict[TopicPartition, list[int]] = {}

    def timer(self, timeout_ms: int = DEADLINE_S * 1000) -> Timer:
        return Timer(SYSTEM_CLOCK, timeout_ms)

    def assign(self, *partitions: TopicPartition) -> None:
        self.subscriptions.assign_from_user(partitions)
        self.metadata.request_update_for_new_topics()
        for tp in partitions:
            self.subscriptions.request_offset_reset(tp)

    def poll(self) -> None:
        self.fetcher.validate_offsets_if_needed()
        self.fetcher.reset_offsets_if_needed()
        for tp, records in self.fetcher.fetched_records().items():
            assert len(records) <= 7
            self.found.setdefault(tp, []).extend(records.offsets)
        self.fetcher.send_fetches()
        self.network.poll(self.timer(20))

    def poll_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"it does not happen: {self.found}"
            self.poll()

    def position(self, tp: TopicPartition) -> int:
        position = self.subscriptions.position(tp)
        return -1 if position is None else position.offset


@contextlib.contextmanager
def reading(
    release: str = "3.9.1", isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED, brokers: int = 1
) -> Iterator[tuple[FakeCluster, PollingReader]]:
    cluster = FakeCluster(brokers=range(brokers), release=release)
    cluster.create_topic(TOPIC, 2)
    with cluster.serve():
        reader = PollingReader(cluster, isolation_level)
        try:
            yield cluster, reader
        finally:
            reader.fetcher.close()
            reader.network.close()


@pytest.mark.parametrize("release", RELEASES)
def test_all_records_are_read_once_from_brokers_of_each_release(release: str) -> None:
    with reading(release) as (cluster, reader):
        for _ in range(20):
            cluster.append(TOPIC, 0, [b"a"])
            cluster.append(TOPIC, 1, [b"b"])
        reader.assign(TP0, TP1)
        reader.poll_until(lambda: sum(map(len, reader.found.values())) >= 40)
        assert reader.found == {TP0: list(range(20)), TP1: list(range(20))}
        assert reader.fetcher.beginning_offsets([TP0], reader.timer()) == {TP0: 0}
        assert reader.fetcher.end_offsets([TP0, TP1], reader.timer()) == {TP0: 20, TP1: 20}
        assert list(reader.fetcher.get_all_topic_metadata(reader.timer())) == [TOPIC]


def test_a_time_behind_the_last_record_has_no_offset() -> None:
    with reading("1.1.1") as (cluster, reader):
        cluster.append(TOPIC, 0, [b"a"], timestamp_ms=1_000)
        cluster.append(TOPIC, 0, [b"b"], timestamp_ms=2_000)
        found = reader.fetcher.offsets_for_times({TP0: 1_500, TP1: 0}, reader.timer())
        assert found == {TP0: OffsetAndTimestamp(1, 2_000), TP1: None}
        assert reader.fetcher.offsets_for_times({TP0: 2_001}, reader.timer()) == {TP0: None}


def test_a_search_by_time_names_the_missing_version_of_old_brokers() -> None:
    with reading("0.9.0.1") as (_, reader):
        reader.assign(TP0)
        with pytest.raises(UnsupportedVersionException):
            reader.fetcher.offsets_for_times({TP0: 5}, reader.timer())


def test_brokers_with_topic_ids_are_asked_by_ids() -> None:
    with reading("4.1.1") as (cluster, reader):
        cluster.append(TOPIC, 0, [b"a"])
        reader.assign(TP0)
        reader.poll_until(lambda: reader.found == {TP0: [0]})
        assert {each.version for each in cluster.requests if each.api is FETCH} == {13}


def test_records_of_aborted_transactions_are_not_read() -> None:
    with reading("1.1.1", IsolationLevel.READ_COMMITTED) as (cluster, reader):
        log = [
            (batch(0, 2, 7), 2), (batch(2, 2, 8), 4), (marker(4, 7, ABORT), 5), (marker(5, 8, COMMIT), 6),
            (batch(6, 1, 7), 7), (marker(7, 7, ABORT), 8),
        ]  # fmt: skip
        for data, end in log:
            cluster.append_raw(TOPIC, 0, data, end)
        reader.assign(TP0)
        reader.poll_until(lambda: reader.position(TP0) == 8)
        assert reader.found == {TP0: [2, 3]}


def test_reading_continues_after_a_restart_a_lost_session_and_a_new_leader() -> None:
    with reading(brokers=2) as (cluster, reader):
        reader.assign(TP0, TP1)

        def read_more(number: int) -> None:
            cluster.append(TOPIC, 0, [b"a"] * 3)
            cluster.append(TOPIC, 1, [b"b"] * 3)
            wanted = {tp: list(range(3 * number)) for tp in (TP0, TP1)}
            reader.poll_until(lambda: reader.found == wanted)

        read_more(1)
        cluster.drop_fetch_sessions(0)
        cluster.drop_fetch_sessions(1)
        read_more(2)
        cluster.move_leader(TOPIC, 0, 1)
        cluster.move_leader(TOPIC, 1, 0)
        read_more(3)
        cluster.stop_broker(1)
        cluster.start_broker(1)
        read_more(4)


def test_a_position_below_the_begin_of_the_log_is_reset() -> None:
    with reading() as (cluster, reader):
        cluster.append(TOPIC, 0, [b"a"] * 9)
        cluster.delete_before(TOPIC, 0, 5)
        reader.assign(TP0)
        reader.subscriptions.seek(TP0, 2)
        reader.poll_until(lambda: reader.found == {TP0: [5, 6, 7, 8]})


def test_a_topic_that_is_deleted_and_created_again_is_read_from_its_begin() -> None:
    with reading("4.1.1") as (cluster, reader):
        cluster.append(TOPIC, 0, [b"old"] * 5)
        reader.assign(TP0)
        reader.poll_until(lambda: reader.found == {TP0: [0, 1, 2, 3, 4]})
        cluster.delete_topic(TOPIC)
        for _ in range(5):
            reader.poll()
        cluster.create_topic(TOPIC, 2)
        cluster.append(TOPIC, 0, [b"new"] * 2)
        reader.found.clear()
        reader.poll_until(lambda: reader.found == {TP0: [0, 1]})
