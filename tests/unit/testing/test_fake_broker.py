"""The fake cluster itself: what it emulates, and the hand that tests have on it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import kafka
import pytest

from bridge.coordinator.release_features import RELEASES
from bridge.testing.fake_cluster import AppendedRange, FakeCluster
from bridge.testing.fake_faults import (
    CloseConnection,
    CorruptRecords,
    Hold,
    NullRecords,
    PartitionError,
    SlowTieredStorage,
)
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import live_threads, spawn
from zkconsumer.errors import InvalidMessageException, UsageError
from zkconsumer.kafka import error_codes as codes
from zkconsumer.kafka.broker_connection import BlockingConnection, Connection, ConnectionFactory
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compression
from zkconsumer.wire.entries import iter_entries
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import Record, iter_records, scan_record_set
from zkconsumer.wire.request_frames import SIZE_BYTES, encode_request
from zkconsumer.wire.schemas import FETCH, LIST_OFFSETS, METADATA, PRODUCE
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchPartitionResponse, FetchRequest, FetchTopic
from zkconsumer.wire.schemas.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from zkconsumer.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic
from zkconsumer.wire.schemas.produce import ProducePartition, ProduceRequest, ProduceTopic

TIMEOUT_MS = 5_000
LONG_POLL_MS = 60_000
PLENTY = 1_000_000

T0 = TopicPartition("t", 0)


def connected(cluster: FakeCluster, broker_id: int = 0) -> Connection:
    return cluster.connect(*cluster.address(broker_id)[1:])


def asking(
    offset: int = 0, bytes_max: int = PLENTY, *, partition: int = 0, wait_ms: int = 0, **more: Any
) -> FetchRequest:
    row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[row])], **more)


def fetched(connection: Connection, version: int, body: FetchRequest) -> FetchPartitionResponse:
    return connection.request(FETCH, version, body, TIMEOUT_MS).responses[0].partitions[0]


def values(row: FetchPartitionResponse, start_offset: int = 0) -> list[tuple[int, bytes | None]]:
    assert row.records is not None
    return [(record.offset, record.value) for record in iter_records(row.records, start_offset)]


def magics(row: FetchPartitionResponse) -> set[int]:
    assert row.records is not None
    return {entry.magic for entry in iter_entries(row.records)}


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.create_topic("t", 2)
    return made


# --- logs -------------------------------------------------------------------------------------------------------


def test_appending_gives_offsets(cluster: FakeCluster) -> None:
    assert cluster.append("t", 0, [b"a", b"b"]) == AppendedRange(0, 1)
    assert cluster.append("t", 0, [b"c"], keys=[b"k"]) == AppendedRange(2, 2)
    assert cluster.append("t", 1, [None]) == AppendedRange(0, 0)
    assert (cluster.log_start("t", 0), cluster.log_end("t", 0)) == (0, 3)
    assert values(fetched(connected(cluster), 12, asking())) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_stores_its_own_format(release: str) -> None:
    cluster = FakeCluster(release=release)
    cluster.create_topic("t")
    cluster.append("t", 0, [b"a"])
    newest = min(12, RELEASES[release].ranges[FETCH.key].highest)
    assert magics(fetched(connected(cluster), newest, asking())) == {RELEASES[release].magic}


def test_records_keep_keys_timestamps_and_headers(cluster: FakeCluster) -> None:
    cluster.append("t", 0, [b"v"], keys=[b"k"], timestamp_ms=77, headers=(("h", b"x"), ("n", None)))
    row = fetched(connected(cluster), 12, asking())
    assert row.records is not None
    [record] = iter_records(row.records)
    assert record == Record(0, 77, 0, b"k", b"v", (("h", b"x"), ("n", None)))


@pytest.mark.parametrize("codec", [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD])
@pytest.mark.parametrize("version", [0, 3, 4, 12])
def test_compressed_batches(cluster: FakeCluster, codec: int, version: int) -> None:
    cluster.append("t", 0, [b"a", b"b"], codec=codec)
    row = fetched(connected(cluster), version, asking())
    if codec == compression.ZSTD and version < 4:
        assert (row.error_code, row.records) == (codes.UNSUPPORTED_COMPRESSION_TYPE.code, None)
    else:
        assert values(row) == [(0, b"a"), (1, b"b")]


@pytest.mark.parametrize("release", ["1.1.1", "3.9.1"])
@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP, compression.SNAPPY, compression.LZ4])
@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)])
def test_records_are_converted_for_old_fetch_versions(release: str, codec: int, version: int, magic: int) -> None:
    cluster = FakeCluster(release=release)
    cluster.create_topic("t")
    cluster.append("t", 0, [b"a", b"b"], codec=codec, headers=(("h", b"x"),), timestamp_ms=5)
    cluster.append("t", 0, [b"c"], codec=codec)
    row = fetched(connected(cluster), version, asking())
    assert magics(row) == {magic}
    assert values(row) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert row.records is not None
    first = next(iter_records(row.records))
    assert first.timestamp == (-1 if magic == 0 else 5)


def test_a_converted_answer_of_2_0_and_later_is_as_long_as_the_stored_bytes() -> None:
    """What is left over is the head of an entry that never comes; readers take it for one that was cut off."""
    cluster = FakeCluster(release="3.9.1")
    cluster.create_topic("t")
    cluster.append("t", 0, [b"x" * 50] * 10, codec=compression.GZIP)
    stored = fetched(connected(cluster), 4, asking()).records
    converted = fetched(connected(cluster), 0, asking()).records
    assert stored is not None
    assert converted is not None
    assert len(converted) == len(stored)
    found = scan_record_set(converted)
    assert (found.entries, found.next_offset, found.truncated) == (1, 10, True)
    assert bytes(converted[found.complete_bytes :])[:8] == b"\xff" * 8


def test_a_batch_that_would_have_to_be_converted_but_does_not_fit() -> None:
    """1.1.1 sends the head of the stored batch, 3.9.1 nothing at all: neither can ever be read."""
    answers = {}
    for release in ("1.1.1", "3.9.1"):
        cluster = FakeCluster(release=release)
        cluster.create_topic("t")
        cluster.append("t", 0, [b"x" * 50] * 10)
        answers[release] = bytes(fetched(connected(cluster), 2, asking(bytes_max=100)).records or b"")
    assert len(answers["1.1.1"]) == 100
    assert scan_record_set(answers["1.1.1"]).entries == 0
    assert answers["3.9.1"] == b""


def test_an_older_format_in_the_middle_of_a_log(cluster: FakeCluster) -> None:
    cluster.append_records("t", 0, [Record(0, -1, -1, None, b"old")], magic=0)
    cluster.append("t", 0, [b"new"])
    assert magics(fetched(connected(cluster), 4, asking())) == {0, 2}
    assert magics(fetched(connected(cluster), 0, asking())) == {0}


def test_compaction_leaves_gaps(cluster: FakeCluster) -> None:
    cluster.append_records("t", 0, [Record(3, 1, 0, None, b"a"), Record(7, 1, 0, None, b"b")])
    assert cluster.log_end("t", 0) == 8
    assert values(fetched(connected(cluster), 4, asking(5)), 5) == [(7, b"b")]
    with pytest.raises(UsageError, match="offset 2 is below the end of the log, 8"):
        cluster.append_records("t", 0, [Record(2, 1, 0, None, b"c")])


def test_retention_moves_the_start(cluster: FakeCluster) -> None:
    cluster.append("t", 0, [b"a", b"b"])
    cluster.append("t", 0, [b"c"])
    cluster.delete_before("t", 0, 2)
    connection = connected(cluster)
    below, at, end, beyond = (fetched(connection, 12, asking(offset)) for offset in (1, 2, 3, 4))
    assert [row.error_code for row in (below, at, end, beyond)] == [1, 0, 0, 1]
    assert (below.high_watermark, below.records) == (-1, b"")
    assert (at.high_watermark, at.log_start_offset, values(at)) == (3, 2, [(2, b"c")])
    assert end.records == b""
    assert fetched(connection, 0, asking(-1)).error_code == codes.OFFSET_OUT_OF_RANGE.code
    with pytest.raises(UsageError, match="the start can move to 2 up to 3, not to 4"):
        cluster.delete_before("t", 0, 4)


def test_an_unclean_election_cuts_the_end(cluster: FakeCluster) -> None:
    cluster.append("t", 0, [b"a"])
    cluster.append("t", 0, [b"b"])
    cluster.truncate("t", 0, 1)
    assert fetched(connected(cluster), 12, asking(2)).error_code == codes.OFFSET_OUT_OF_RANGE.code
    assert cluster.append("t", 0, [b"c"]) == AppendedRange(1, 1)
    assert values(fetched(connected(cluster), 12, asking())) == [(0, b"a"), (1, b"c")]


def test_raw_bytes_stay_as_they_are(cluster: FakeCluster) -> None:
    cluster.append("t", 0, [b"a"])
    cluster.append_raw("t", 0, b"garbage of every kind", 5)
    row = fetched(connected(cluster), 12, asking(1))
    assert row.records == b"garbage of every kind"
    assert cluster.append("t", 0, [b"b"]) == AppendedRange(5, 5)


# --- limits -----------------------------------------------------------------------------------------------------


def entry_bytes(cluster: FakeCluster, version: int) -> int:
    """The size of the first entry of t/0."""
    row = fetched(connected(cluster), version, asking())
    assert row.records is not None
    return next(iter_entries(row.records)).end


@pytest.mark.parametrize(("release", "version"), [("0.8.2.2", 0), ("0.10.2.2", 2)])
def test_before_version_3_a_message_may_be_cut_off(release: str, version: int) -> None:
    cluster = FakeCluster(release=release)
    cluster.create_topic("t")
    cluster.append("t", 0, [b"a" * 100, b"b" * 100])
    row = fetched(connected(cluster), version, asking(bytes_max=30))
    assert row.records is not None
    assert (len(row.records), scan_record_set(row.records).entries) == (30, 0)


@pytest.mark.parametrize(("release", "version"), [("0.10.2.2", 3), ("3.9.1", 4), ("3.9.1", 12)])
def test_from_version_3_the_first_message_always_comes_whole(release: str, version: int) -> None:
    cluster = FakeCluster(release=release)
    cluster.create_topic("t")
    cluster.append("t", 0, [b"a" * 100])
    cluster.append("t", 0, [b"b" * 100])
    size = entry_bytes(cluster, version)
    for body in (asking(bytes_max=1), asking(max_bytes=1), asking(bytes_max=0)):
        row = fetched(connected(cluster), version, body)
        assert row.records is not None
        assert (len(row.records), scan_record_set(row.records).entries) == (size, 1)
    cut = fetched(connected(cluster), version, asking(bytes_max=size + 10))
    assert cut.records is not None
    assert (len(cut.records), scan_record_set(cut.records).entries) == (size + 10, 1)


def test_the_limit_of_the_whole_answer_counts_over_its_partitions(cluster: FakeCluster) -> None:
    for partition in (0, 1):
        cluster.append("t", partition, [b"a" * 100])
    rows = [FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=PLENTY) for p in (1, 0)]
    body = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=rows)], max_bytes=200)
    answered = connected(cluster).request(FETCH, 12, body, TIMEOUT_MS).responses[0].partitions
    assert [(row.partition_index, len(row.records or b"") > 0) for row in answered] == [(1, True), (0, False)]


# --- the long poll ----------------------------------------------------------------------------------------------


def in_thread(what: Callable[[], object]) -> tuple[Any, list[object]]:
    results: list[object] = []
    return spawn("caller", lambda _: results.append(what()), lambda _, error: results.append(error)), results


@pytest.mark.parametrize(
    "happening",
    [
        lambda cluster: cluster.append("t", 0, [b"a"]),
        lambda cluster: cluster.move_leader("t", 0, None),
        lambda cluster: cluster.delete_topic("t"),
    ],
    ids=["records", "leader moves", "topic deleted"],
)
def test_a_waiting_fetch_ends_when_something_happens(
    cluster: FakeCluster, happening: Callable[[FakeCluster], object]
) -> None:
    connection = connected(cluster)
    worker, results = in_thread(lambda: fetched(connection, 12, asking(wait_ms=LONG_POLL_MS)))
    cluster.wait_for_request(lambda seen: seen.api is FETCH, TIMEOUT_MS)
    happening(cluster)
    assert worker.join(TIMEOUT_MS)
    [row] = results
    assert isinstance(row, FetchPartitionResponse)
    assert row.error_code or row.records


def test_a_waiting_fetch_ends_at_its_deadline(cluster: FakeCluster) -> None:
    started_ms = SYSTEM_CLOCK.now_ms()
    assert fetched(connected(cluster), 12, asking(wait_ms=30)).records == b""
    assert SYSTEM_CLOCK.now_ms() - started_ms >= 30


def test_a_deadline_that_falls_between_looking_and_waiting_is_not_missed() -> None:
    class OneStepARead:
        """Each look at the clock finds it a millisecond later, so that every gap between two looks is met."""

        ms = 0

        def now_ms(self) -> int:
            self.ms += 1
            return self.ms

        def wall_ms(self) -> int:
            return self.ms

    for wait_ms in range(20):
        cluster = FakeCluster(clock=OneStepARead())
        cluster.create_topic("t")
        started_ms = SYSTEM_CLOCK.now_ms()
        assert fetched(connected(cluster), 12, asking(wait_ms=wait_ms)).records == b""
        assert SYSTEM_CLOCK.now_ms() - started_ms < TIMEOUT_MS / 2


def test_a_fetch_waits_for_min_bytes(cluster: FakeCluster) -> None:
    cluster.append("t", 0, [b"a"])
    body = asking(wait_ms=LONG_POLL_MS)
    body.min_bytes = entry_bytes(cluster, 12) + 1
    worker, results = in_thread(lambda: values(fetched(connected(cluster), 12, body)))
    cluster.wait_for_request(lambda seen: seen.body == body, TIMEOUT_MS)
    assert results == []
    cluster.append("t", 0, [b"b"])
    assert worker.join(TIMEOUT_MS)
    assert results == [[(0, b"a"), (1, b"b")]]


def test_a_clock_that_is_moved_by_hand_ends_a_fetch_when_it_is_poked() -> None:
    class ByHand:
        ms = 0

        def now_ms(self) -> int:
            return self.ms

        def wall_ms(self) -> int:
            return self.ms

    clock = ByHand()
    cluster = FakeCluster(clock=clock)
    cluster.create_topic("t")
    worker, results = in_thread(lambda: fetched(connected(cluster), 12, asking(wait_ms=LONG_POLL_MS)))
    cluster.wait_for_request(lambda seen: seen.api is FETCH, TIMEOUT_MS)
    clock.ms = LONG_POLL_MS
    cluster.wake_waiting_requests()
    assert worker.join(TIMEOUT_MS)
    assert isinstance(results[0], FetchPartitionResponse)


# --- produce ----------------------------------------------------------------------------------------------------


def producing(record_set: bytes, acks: int = 1) -> ProduceRequest:
    topic = ProduceTopic(name="t", partition_data=[ProducePartition(index=0, records=record_set)])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


@pytest.mark.parametrize(("release", "stored"), [("0.8.2.2", 0), ("0.10.2.2", 1), ("3.9.1", 2)])
@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP])
def test_what_is_produced_is_stored_in_the_logs_own_format(release: str, stored: int, codec: int) -> None:
    cluster = FakeCluster(release=release)
    cluster.create_topic("t")
    cluster.append("t", 0, [b"before"])
    connection = connected(cluster)
    for magic in range(stored + 1):
        sent = [Record(at, 5, 0, b"k", f"{magic}-{at}".encode()) for at in range(2)]
        body = producing(build_record_set(sent, magic, codec))
        version = {0: 0, 1: 2, 2: 3}[magic]
        [row] = connection.request(PRODUCE, version, body, TIMEOUT_MS).responses[0].partition_responses
        assert (row.error_code, row.base_offset) == (0, 1 + 2 * magic)
    newest = min(12, RELEASES[release].ranges[FETCH.key].highest)
    row_ = fetched(connection, newest, asking())
    assert magics(row_) == {stored}
    written = [f"{magic}-{at}".encode() for magic in range(stored + 1) for at in range(2)]
    assert values(row_) == list(enumerate([b"before", *written]))


def test_a_damaged_batch_is_refused_as_a_whole(cluster: FakeCluster) -> None:
    damaged = bytearray(build_record_set([Record(0, 5, 0, None, b"a")], 2))
    damaged[-2] ^= 1
    response = connected(cluster).request(PRODUCE, 3, producing(bytes(damaged)), TIMEOUT_MS)
    assert response.responses[0].partition_responses[0].error_code == codes.CORRUPT_MESSAGE.code
    assert cluster.log_end("t", 0) == 0


def test_acks_that_do_not_exist(cluster: FakeCluster) -> None:
    body = producing(build_record_set([Record(0, 5, 0, None, b"a")], 2), acks=2)
    response = connected(cluster).request(PRODUCE, 3, body, TIMEOUT_MS)
    assert response.responses[0].partition_responses[0].error_code == codes.INVALID_REQUIRED_ACKS.code


def test_acks_0_is_not_answered(cluster: FakeCluster) -> None:
    body = producing(build_record_set([Record(0, 5, 0, None, b"a")], 2), acks=0)
    with cluster.serve(), socket.create_connection(cluster.address(0)[1:], TIMEOUT_MS / 1000) as client:
        client.sendall(encode_request(PRODUCE, 3, 1, None, body))
        client.sendall(encode_request(METADATA, 0, 2, None, MetadataRequest(topics=[])))
        assert client.recv(SIZE_BYTES + 4)[SIZE_BYTES:] == (2).to_bytes(4, "big")
    assert cluster.log_end("t", 0) == 1


# --- leaders, topics, versions ----------------------------------------------------------------------------------


def test_leaders_and_epochs() -> None:
    cluster = FakeCluster([5, 6])
    cluster.create_topic("t", 3, leaders={2: None})
    [topic] = connected(cluster, 5).request(METADATA, 7, MetadataRequest(topics=None), TIMEOUT_MS).topics
    assert [(p.leader_id, p.leader_epoch, p.error_code) for p in topic.partitions] == [(5, 0, 0), (6, 0, 0), (-1, 1, 5)]
    cluster.move_leader("t", 0, 6)
    assert fetched(connected(cluster, 5), 4, asking()).error_code == codes.NOT_LEADER_OR_FOLLOWER.code
    for epoch, code in ((-1, 0), (1, 0), (0, codes.FENCED_LEADER_EPOCH.code), (2, codes.UNKNOWN_LEADER_EPOCH.code)):
        body = asking()
        body.topics[0].partitions[0].current_leader_epoch = epoch
        assert fetched(connected(cluster, 6), 9, body).error_code == code


def test_a_topic_may_be_made_by_asking_for_it() -> None:
    cluster = FakeCluster(auto_create_partitions=2)
    body = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    first, second = (connected(cluster).request(METADATA, 1, body, TIMEOUT_MS).topics[0] for _ in range(2))
    assert (first.error_code, len(first.partitions)) == (codes.LEADER_NOT_AVAILABLE.code, 0)
    assert (second.error_code, len(second.partitions)) == (0, 2)


def test_topics_grow_and_go(cluster: FakeCluster) -> None:
    cluster.add_partitions("t", 4)
    body = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert len(connected(cluster).request(METADATA, 1, body, TIMEOUT_MS).topics[0].partitions) == 4
    with pytest.raises(UsageError, match="topic t exists already"):
        cluster.create_topic("t")
    cluster.delete_topic("t")
    assert fetched(connected(cluster), 4, asking()).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION.code
    with pytest.raises(UsageError, match="there is no partition t/0"):
        cluster.append("t", 0, [b"a"])


def test_brokers_of_several_releases_in_one_cluster() -> None:
    cluster = FakeCluster(2, release={0: "0.8.2.2", 1: "3.9.1"})
    cluster.create_topic("t", 2)
    for partition in (0, 1):
        cluster.append("t", partition, [b"a"])
    assert magics(fetched(connected(cluster, 0), 0, asking())) == {0}
    assert magics(fetched(connected(cluster, 1), 12, asking(partition=1))) == {2}


def test_a_release_that_is_not_known() -> None:
    with pytest.raises(UsageError, match=r"the fake brokers know no release 0\.7; they know 0\.8\.1\.1, "):
        FakeCluster(release="0.7")
    with pytest.raises(UsageError, match="there is no broker 9"):
        FakeCluster().stop_broker(9)


def test_a_fetch_session_that_a_broker_does_not_have_is_refused(cluster: FakeCluster) -> None:
    response = connected(cluster).request(FETCH, 7, asking(session_id=4, session_epoch=1), TIMEOUT_MS)
    assert response.error_code == codes.FETCH_SESSION_ID_NOT_FOUND.code


def test_a_broker_has_so_many_fetch_sessions_and_loses_them_when_it_is_stopped() -> None:
    cluster = FakeCluster(release="3.9.1", fetch_sessions_max=1)
    cluster.create_topic("t")
    first, second = (
        connected(cluster).request(FETCH, 7, asking(session_epoch=0), TIMEOUT_MS).session_id for _ in range(2)
    )
    assert (first != 0, second) == (True, 0)
    cluster.stop_broker(0)
    cluster.start_broker(0)
    response = connected(cluster).request(FETCH, 7, asking(session_id=first, session_epoch=1), TIMEOUT_MS)
    assert response.error_code == codes.FETCH_SESSION_ID_NOT_FOUND.code


def test_a_fault_of_a_partition_hits_a_request_whose_session_has_it(cluster: FakeCluster) -> None:
    connection = connected(cluster)
    session = connection.request(FETCH, 7, asking(session_epoch=0), TIMEOUT_MS).session_id
    fault = cluster.inject(PartitionError(T0, 29))
    body = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=session, session_epoch=1, topics=[])
    assert fetched(connection, 7, body).error_code == 29
    assert fault.hits == 1


def test_committed_records_only(cluster: FakeCluster) -> None:
    row = fetched(connected(cluster), 4, asking(isolation_level=1))
    assert (row.last_stable_offset, row.aborted_transactions) == (0, [])
    assert fetched(connected(cluster), 4, asking()).aborted_transactions is None


def newest(version: int, cluster: FakeCluster) -> tuple[int, int]:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-3)
    body = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    row = connected(cluster).request(LIST_OFFSETS, version, body, TIMEOUT_MS).topics[0].partitions[0]
    return row.error_code, row.offset


def test_the_newest_timestamp(cluster: FakeCluster) -> None:
    for at, timestamp_ms in enumerate((5, 9, 7)):
        assert cluster.append("t", 0, [b"a"], timestamp_ms=timestamp_ms) == AppendedRange(at, at)
    assert newest(7, cluster) == (0, 1)
    assert newest(6, cluster) == (codes.UNSUPPORTED_VERSION.code, -1)


# --- faults -----------------------------------------------------------------------------------------------------


def test_an_error_for_one_partition(cluster: FakeCluster) -> None:
    for partition in (0, 1):
        cluster.append("t", partition, [b"a"])
    fault = cluster.inject(PartitionError(T0, 6), api=FETCH)
    connection = connected(cluster)
    assert fetched(connection, 4, asking(partition=1)).error_code == 0, "it hits requests that name its partition"
    assert fault.hits == 0
    assert fetched(connection, 4, asking()).error_code == 6
    assert fetched(connection, 4, asking()).error_code == 0
    assert (fault.hits, fault.is_in_force) == (1, False)


def test_an_error_for_one_partition_ends_a_long_poll_at_once(cluster: FakeCluster) -> None:
    cluster.inject(PartitionError(T0, 6), api=FETCH)
    assert fetched(connected(cluster), 4, asking(wait_ms=LONG_POLL_MS)).error_code == 6


def test_an_error_when_producing_appends_nothing(cluster: FakeCluster) -> None:
    cluster.inject(PartitionError(T0, 19), api=PRODUCE)
    body = producing(build_record_set([Record(0, 5, 0, None, b"a")], 2))
    response = connected(cluster).request(PRODUCE, 3, body, TIMEOUT_MS)
    assert response.responses[0].partition_responses[0].error_code == 19
    assert cluster.log_end("t", 0) == 0


def test_a_null_record_set(cluster: FakeCluster) -> None:
    cluster.append("t", 0, [b"a"])
    cluster.inject(NullRecords(T0, 76))
    row = fetched(connected(cluster), 0, asking(wait_ms=LONG_POLL_MS))
    assert (row.error_code, row.records) == (76, None)


@pytest.mark.parametrize("version", [0, 5, 12])
def test_slow_tiered_storage_answers_without_a_record_and_with_the_true_high_watermark(version: int) -> None:
    cluster = FakeCluster(1)
    cluster.create_topic("t", 1)
    cluster.append("t", 0, [b"a", b"b"])
    slow = cluster.inject(SlowTieredStorage(T0), times=None)
    row = fetched(connected(cluster), version, asking())
    assert (row.error_code, row.high_watermark, bytes(row.records or b"")) == (0, 2, b"")
    assert fetched(connected(cluster), version, asking(3)).error_code == 1, "the offset is looked at first"
    cluster.lift(slow)
    assert values(fetched(connected(cluster), version, asking())) == [(0, b"a"), (1, b"b")]


def test_corrupt_bytes(cluster: FakeCluster) -> None:
    cluster.append("t", 0, [b"a"])
    cluster.inject(CorruptRecords(T0, at=-1))
    with pytest.raises(InvalidMessageException):
        values(fetched(connected(cluster), 12, asking()))
    assert values(fetched(connected(cluster), 12, asking())) == [(0, b"a")], "the log itself is whole"


def test_a_fault_is_for_one_broker_and_one_api() -> None:
    cluster = FakeCluster(2)
    fault = cluster.inject(CloseConnection(), api=METADATA, broker_id=1, times=None)
    everything = MetadataRequest(topics=None)
    connected(cluster, 0).request(METADATA, 1, everything, TIMEOUT_MS)
    connected(cluster, 1).request(LIST_OFFSETS, 1, ListOffsetsRequest(topics=[]), TIMEOUT_MS)
    for _ in range(3):
        with pytest.raises(BrokerConnectionError):
            connected(cluster, 1).request(METADATA, 1, everything, TIMEOUT_MS)
    cluster.lift(fault)
    cluster.lift(fault)
    connected(cluster, 1).request(METADATA, 1, everything, TIMEOUT_MS)
    assert fault.hits == 3


def test_held_requests_are_answered_in_order_when_the_fault_is_lifted(cluster: FakeCluster) -> None:
    hold = cluster.inject(Hold(), api=METADATA)
    connection = connected(cluster)
    first = connection.send(METADATA, 0, MetadataRequest(topics=[]), TIMEOUT_MS)
    second = connection.send(LIST_OFFSETS, 0, ListOffsetsRequest(topics=[]), TIMEOUT_MS)
    assert not connection.has_response(1)
    cluster.lift(hold)
    assert connection.receive(first, TIMEOUT_MS).brokers
    assert connection.receive(second, TIMEOUT_MS).topics == []


def test_waiting_for_a_request_has_a_deadline(cluster: FakeCluster) -> None:
    with pytest.raises(TimeoutError, match="no such request within 1 ms"):
        cluster.wait_for_request(lambda seen: True, 1)


# --- a client that is not ours ----------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["0.10.2.2", "1.1.1", "3.9.1", "4.1.1"])
def test_kafka_python_writes_and_reads(release: str) -> None:
    cluster = FakeCluster(2, release=release)
    cluster.create_topic("t", 2)
    for partition in (0, 1):
        cluster.append("t", partition, [b"a", b"b"], codec=compression.GZIP)
    with cluster.serve():
        servers = [f"{address.host}:{address.port}" for address in cluster.addresses]
        producer = kafka.KafkaProducer(bootstrap_servers=servers, acks=1, enable_idempotence=False)
        producer.send("t", b"c", key=b"k", partition=1).get(TIMEOUT_MS / 1000)
        producer.close()
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_MS, group_id=None
        )
        consumer.assign([kafka.TopicPartition("t", partition) for partition in (0, 1)])
        read = [next(consumer) for _ in range(5)]
        consumer.close()
    found = sorted((message.partition, message.offset, message.value) for message in read)
    assert found == [(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"a"), (1, 1, b"b"), (1, 2, b"c")]


# --- sockets ----------------------------------------------------------------------------------------------------


def test_both_ways_to_connect_are_a_connect() -> None:
    """Checked by mypy, too."""
    ways: list[ConnectionFactory] = [BlockingConnection, FakeCluster().connect]
    assert len(ways) == 2


def test_serving_opens_ports_and_leaves_no_thread_behind() -> None:
    cluster = FakeCluster(2)
    before = cluster.addresses
    with cluster.serve():
        assert {address.host for address in cluster.addresses} == {"127.0.0.1"}
        connections = [BlockingConnection(host, port) for _, host, port in cluster.addresses]
        for connection in connections:
            told = connection.request(METADATA, 1, MetadataRequest(topics=None), TIMEOUT_MS).brokers
            assert [(b.host, b.port) for b in told] == [(a.host, a.port) for a in cluster.addresses]
        assert live_threads() == [
            f"fake-broker-{broker_id}-{part}" for broker_id in (0, 1) for part in ("accept", "client-0")
        ]
    assert live_threads() == []
    assert cluster.addresses == before


def test_a_stopped_broker_comes_back_on_its_port() -> None:
    cluster = FakeCluster(2)
    with cluster.serve():
        address = cluster.address(1)
        connection = BlockingConnection(address.host, address.port)
        assert connection.request(METADATA, 1, MetadataRequest(topics=None), TIMEOUT_MS).brokers
        cluster.stop_broker(1)
        for _ in range(2):
            with pytest.raises(BrokerConnectionError):
                connection.request(METADATA, 1, MetadataRequest(topics=None), TIMEOUT_MS)
        cluster.start_broker(1)
        assert cluster.address(1) == address
        assert connection.request(METADATA, 1, MetadataRequest(topics=None), TIMEOUT_MS).brokers
        connection.close()


def test_serving_ends_while_a_fetch_waits() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    with cluster.serve():
        _, host, port = cluster.address(0)
        connection = BlockingConnection(host, port)
        worker, results = in_thread(lambda: fetched(connection, 4, asking(wait_ms=LONG_POLL_MS)))
        cluster.wait_for_request(lambda seen: seen.api is FETCH, TIMEOUT_MS)
    assert worker.join(TIMEOUT_MS)
    assert isinstance(results[0], BrokerConnectionError)


def test_a_client_that_sends_garbage_is_hung_up_on(cluster: FakeCluster) -> None:
    with cluster.serve():
        for garbage in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\xff" * 8,
            (0).to_bytes(4, "big"),
            (3).to_bytes(4, "big") + b"abc",
        ):
            with socket.create_connection(cluster.address(0)[1:], TIMEOUT_MS / 1000) as client:
                client.sendall(garbage)
                assert client.recv(100) == b""
