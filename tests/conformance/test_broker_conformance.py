"""What brokers of each release do on the wire: the same tests for the fake ones and the real ones."""

from __future__ import annotations

import pytest

from bridge.broker.apis.fetch import max_magic_of_fetch as newest_magic
from tests.conformance.brokers_under_test import (
    PLENTY,
    TIMEOUT_MS,
    BrokerUnderTest,
    RealTopics,
    asking,
    fetched,
    versions_of,
)
from tests.fetch_session_cases import walk_through
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import spawn
from zkconsumer.kafka import error_codes as codes
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.kafka.fetch.fetch_session import FetchSessionHandler
from zkconsumer.kafka.metadata_client import fetch_leaders, list_offsets
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError, ConnectionFailureReason
from zkconsumer.kafka.supported_versions import SupportedVersions, VersionRange
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, BrokerAddress, TopicPartition
from zkconsumer.wire.entries import iter_entries
from zkconsumer.wire.fetch_codec import (
    FAST_FETCH,
    TOPIC_NAMES_VERSION_MAX,
    FetchedPartition,
    FetchRequestBody,
    partition_encoder,
)
from zkconsumer.wire.records import iter_records, scan_record_set
from zkconsumer.wire.schemas import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA
from zkconsumer.wire.schemas.api_versions import ApiVersionsRequest
from zkconsumer.wire.schemas.fetch import FetchPartitionResponse, FetchRequest
from zkconsumer.wire.schemas.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from zkconsumer.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic

FETCHES_MAX = 20
TEN = [b"value %d" % number for number in range(10)]
BIG = [bytes([65 + number]) * 200 for number in range(10)]


def values(row: FetchPartitionResponse) -> list[tuple[int, bytes | None]]:
    assert row.records is not None
    return [(record.offset, record.value) for record in iter_records(row.records)]


def everything(connection: Connection, version: int, topic: str, offset: int = 0) -> list[tuple[int, bytes | None]]:
    """All records from ``offset`` to the end, by as many fetches as it takes (a converted answer may be cut short)."""
    found: list[tuple[int, bytes | None]] = []
    for _ in range(FETCHES_MAX):
        [row] = fetched(connection, version, asking(topic, offset))
        assert row.error_code == 0
        if row.high_watermark == offset:
            return found
        assert row.records is not None
        assert scan_record_set(row.records).next_offset > offset, "a fetch without progress"
        found += [(record.offset, record.value) for record in iter_records(row.records, offset)]
        offset = scan_record_set(row.records).next_offset
    raise AssertionError(f"the end was not reached by {FETCHES_MAX} fetches")


def size(row: FetchPartitionResponse) -> int:
    assert row.records is not None
    return len(row.records)


# --- what it speaks ---------------------------------------------------------------------------------------------


def test_its_ranges_are_those_of_the_table(broker_under_test: BrokerUnderTest) -> None:
    ranges, release = broker_under_test.ranges, broker_under_test.release
    assert ranges.is_assumed == (not release.has_api_versions)
    if not ranges.is_assumed:
        told = {
            key: VersionRange(ranges.ranges[key].lowest, min(ranges.ranges[key].highest, there.highest))
            for key, there in release.ranges.items()
        }
        assert told == release.ranges


def test_a_refused_api_versions_is_answered_in_version_0(broker_under_test: BrokerUnderTest) -> None:
    release = broker_under_test.release
    known = release.range_of(API_VERSIONS)
    if known is None or known.highest >= API_VERSIONS.client_highest:
        return  # nothing that can be written here is refused
    response = broker_under_test.connection().request(
        API_VERSIONS, API_VERSIONS.client_highest, ApiVersionsRequest(), TIMEOUT_MS
    )
    assert response.error_code == codes.UNSUPPORTED_VERSION.code
    assert bool(response.api_keys) == release.reports_api_versions_range


def test_a_request_that_it_does_not_know(broker_under_test: BrokerUnderTest) -> None:
    """0.9 passes over it in silence, the others close the connection; later ones know this one."""
    if broker_under_test.release.has_api_versions:
        return
    connection = broker_under_test.connection()
    unknown = connection.send(API_VERSIONS, 0, ApiVersionsRequest(), TIMEOUT_MS)
    if broker_under_test.release.ignores_invalid_frames:
        asked = connection.send(LIST_OFFSETS, 0, ListOffsetsRequest(topics=[]), TIMEOUT_MS)
        assert connection.receive_next(TIMEOUT_MS)[0] is asked
    else:
        with pytest.raises(BrokerConnectionError) as caught:
            connection.receive(unknown, TIMEOUT_MS)
        assert caught.value.reason is ConnectionFailureReason.CLOSED


def test_a_version_above_its_range(broker_under_test: BrokerUnderTest) -> None:
    """Before 0.10 it is read and answered in the layout of the highest known one; later it closes the connection."""
    release = broker_under_test.release
    known = release.range_of(METADATA)
    assert known is not None
    if known.highest >= METADATA.client_highest:
        return
    connection = broker_under_test.connection()
    topic = broker_under_test.topic()
    body = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    asked = connection.send(METADATA, known.highest + 1, body, TIMEOUT_MS)
    if release.accepts_newer_versions:
        with pytest.raises(Exception, match="Metadata v1 response"):
            connection.receive(asked, TIMEOUT_MS)
    else:
        with pytest.raises(BrokerConnectionError) as caught:
            connection.receive(asked, TIMEOUT_MS)
        assert caught.value.reason is ConnectionFailureReason.CLOSED


def test_answers_come_in_the_order_of_the_requests(broker_under_test: BrokerUnderTest) -> None:
    """Even when the first has to wait."""
    connection = broker_under_test.connection()
    topic = broker_under_test.topic()
    version = broker_under_test.ranges.pick(FETCH)
    body = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[asking(topic)])
    first = connection.send(FETCH, version, body, TIMEOUT_MS)
    second = connection.send(METADATA, 0, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), TIMEOUT_MS)
    assert connection.receive(first, TIMEOUT_MS).responses
    assert connection.receive(second, TIMEOUT_MS).topics[0].name == topic


# --- leaders, start and end of logs ------------------------------------------------------------------------------


def test_leaders_in_every_version(broker_under_test: BrokerUnderTest) -> None:
    topic = broker_under_test.topic()
    connection = broker_under_test.connection()
    for version in versions_of(broker_under_test, METADATA):
        only = SupportedVersions({METADATA.key: VersionRange(version, version)})
        leaders = fetch_leaders(connection, only, [topic, "no-such-topic"], TIMEOUT_MS)
        [leader] = leaders.partitions.values()
        assert isinstance(leader, BrokerAddress)
        assert leader[1:] == (broker_under_test.host, broker_under_test.port)
        assert dict(leaders.topic_errors) == {"no-such-topic": codes.UNKNOWN_TOPIC_OR_PARTITION}


def test_the_start_and_the_end_in_every_version(broker_under_test: BrokerUnderTest) -> None:
    tp = TopicPartition(broker_under_test.topic(*TEN), 0)
    connection = broker_under_test.connection()
    for version in versions_of(broker_under_test, LIST_OFFSETS):
        only = SupportedVersions({LIST_OFFSETS.key: VersionRange(version, version)})
        assert list_offsets(connection, only, {tp: EARLIEST_TIME}, TIMEOUT_MS) == {tp: 0}
        assert list_offsets(connection, only, {tp: LATEST_TIME}, TIMEOUT_MS) == {tp: 10}
        nowhere = TopicPartition("no-such-topic", 0)
        asked = list_offsets(connection, only, {tp: LATEST_TIME, nowhere: LATEST_TIME}, TIMEOUT_MS)
        assert asked == {tp: 10, nowhere: codes.UNKNOWN_TOPIC_OR_PARTITION}


def test_version_0_of_list_offsets_gives_segment_starts(broker_under_test: BrokerUnderTest) -> None:
    if 0 not in versions_of(broker_under_test, LIST_OFFSETS):
        return
    topic = broker_under_test.topic(*TEN)
    future_ms = SYSTEM_CLOCK.wall_ms() * 2
    expected = {EARLIEST_TIME: [0], LATEST_TIME: [10, 0], future_ms: [10, 0], 0: []}
    for time, offsets in expected.items():
        row = ListOffsetsPartition(partition_index=0, timestamp=time, max_num_offsets=5)
        body = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[row])])
        response = broker_under_test.connection().request(LIST_OFFSETS, 0, body, TIMEOUT_MS)
        assert response.topics[0].partitions[0].old_style_offsets == offsets


# --- fetching ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_records_are_read_in_every_version(broker_under_test: BrokerUnderTest, codec: str) -> None:
    is_real = isinstance(broker_under_test.topics, RealTopics)
    if is_real and broker_under_test.release.name == "0.8.1.1" and codec in ("snappy", "lz4"):
        pytest.skip("0.8.1 does not know lz4, and its snappy does not load on Java 17")
    topic = broker_under_test.topic(*TEN, codec=codec)
    connection = broker_under_test.connection()
    for version in versions_of(broker_under_test, FETCH):
        assert everything(connection, version, topic) == list(enumerate(TEN))
        [row] = fetched(connection, version, asking(topic))
        assert row.high_watermark == 10
        assert row.records is not None
        expected = min(broker_under_test.release.magic, newest_magic(version))
        assert {entry.magic for entry in iter_entries(row.records)} == {expected}


def test_a_fetch_may_begin_inside_a_batch(broker_under_test: BrokerUnderTest) -> None:
    topic = broker_under_test.topic(*TEN, codec="gzip")
    connection = broker_under_test.connection()
    for version in versions_of(broker_under_test, FETCH):
        assert everything(connection, version, topic, 7) == list(enumerate(TEN))[7:]


def test_offsets_that_are_out_of_range(broker_under_test: BrokerUnderTest) -> None:
    topic = broker_under_test.topic(*TEN)
    connection = broker_under_test.connection()
    for version in versions_of(broker_under_test, FETCH):
        for offset in (11, -1):
            [row] = fetched(connection, version, asking(topic, offset))
            assert (row.error_code, row.high_watermark, row.records) == (codes.OFFSET_OUT_OF_RANGE.code, -1, b"")


def test_a_topic_that_does_not_exist(broker_under_test: BrokerUnderTest) -> None:
    connection = broker_under_test.connection()
    for version in versions_of(broker_under_test, FETCH):
        [row] = fetched(connection, version, asking("no-such-topic"))
        assert (row.error_code, row.records) == (codes.UNKNOWN_TOPIC_OR_PARTITION.code, b"")


def test_the_last_stable_offset(broker_under_test: BrokerUnderTest) -> None:
    topic = broker_under_test.topic(*TEN)
    connection = broker_under_test.connection()
    for version in versions_of(broker_under_test, FETCH):
        if version < 4:
            continue
        [row] = fetched(connection, version, asking(topic))
        told = 10 if broker_under_test.release.returns_last_stable_offset else -1
        assert (row.last_stable_offset, row.aborted_transactions) == (told, None)
        [row] = fetched(connection, version, asking(topic), isolation_level=1)
        assert (row.last_stable_offset, row.aborted_transactions) == (10, [])


def test_a_fetch_at_the_end_waits_until_its_time_is_over(broker_under_test: BrokerUnderTest) -> None:
    topic = broker_under_test.topic(*TEN)
    connection = broker_under_test.connection()
    version = broker_under_test.ranges.pick(FETCH)
    started_ms = SYSTEM_CLOCK.now_ms()
    [row] = fetched(connection, version, asking(topic, 10), wait_ms=200)
    assert (row.error_code, row.high_watermark, row.records) == (0, 10, b"")
    assert SYSTEM_CLOCK.now_ms() - started_ms >= 199


def test_a_fetch_at_the_end_ends_when_records_arrive(broker_under_test: BrokerUnderTest) -> None:
    topic = broker_under_test.topic(*TEN)
    connection = broker_under_test.connection()
    version = broker_under_test.ranges.pick(FETCH)
    body = FetchRequest(max_wait_ms=TIMEOUT_MS, min_bytes=1, topics=[asking(topic, 10)])
    pending = connection.send(FETCH, version, body, TIMEOUT_MS)
    deaths: list[BaseException] = []
    producer = spawn(
        "producer",
        lambda stop: broker_under_test.topics.produce(topic, [b"new"], "none"),
        lambda _, error: deaths.append(error),
    )
    [row] = connection.receive(pending, 2 * TIMEOUT_MS).responses[0].partitions
    assert values(row) == [(10, b"new")]
    assert producer.join(TIMEOUT_MS)
    assert deaths == []


def first_entry_bytes(connection: Connection, version: int, topic: str) -> int:
    [row] = fetched(connection, version, asking(topic))
    assert row.records is not None
    return next(iter_entries(row.records)).end


def test_a_first_entry_that_does_not_fit(broker_under_test: BrokerUnderTest) -> None:
    """From version 3 on it comes whole.  Before, it is cut off, or left out if it would have to be converted."""
    release = broker_under_test.release
    topic = broker_under_test.topic(*BIG, codec="gzip")
    connection = broker_under_test.connection()
    for version in versions_of(broker_under_test, FETCH):
        [row] = fetched(connection, version, asking(topic, bytes_max=40))
        assert row.error_code == 0
        assert row.records is not None
        if version >= 3:
            assert scan_record_set(row.records).entries == 1
        else:
            is_hidden = release.omits_unconvertible_entry and release.magic > newest_magic(version)
            assert (size(row), scan_record_set(row.records).entries) == (0 if is_hidden else 40, 0)


def test_the_limit_of_the_whole_answer(broker_under_test: BrokerUnderTest) -> None:
    """One entry comes at least, and what has no room any more comes not even in part."""
    first, second = (broker_under_test.topic(*BIG) for _ in range(2))
    connection = broker_under_test.connection()
    for version in versions_of(broker_under_test, FETCH):
        if version < 3:
            continue
        rows = fetched(connection, version, asking(first), asking(second), max_bytes=1)
        if broker_under_test.release.magic > newest_magic(version):
            assert values(rows[0])[0] == (0, BIG[0]), "one stored entry may have become several"
        else:
            assert scan_record_set(rows[0].records or b"").entries == 1
        assert [row.records for row in rows[1:]] == [b""]
        rows = fetched(connection, version, asking(first), asking(second, bytes_max=20))
        assert values(rows[0])[0] == (0, BIG[0])
        assert rows[1].records == b"", "an entry that is not the first of the answer is not cut in front"


def test_a_last_entry_may_be_cut_off(broker_under_test: BrokerUnderTest) -> None:
    topic = broker_under_test.topic(BIG[0])
    broker_under_test.topics.produce(topic, [BIG[1]], "none")
    connection = broker_under_test.connection()
    for version in versions_of(broker_under_test, FETCH):
        if broker_under_test.release.magic > newest_magic(version):
            continue
        whole = first_entry_bytes(connection, version, topic)
        [row] = fetched(connection, version, asking(topic, bytes_max=whole + 20))
        assert row.records is not None
        found = scan_record_set(row.records)
        assert (len(row.records), found.complete_bytes, found.truncated) == (whole + 20, whole, True)


def test_a_converted_answer_is_as_long_as_was_promised(broker_under_test: BrokerUnderTest) -> None:
    """From 2.0 on its length is fixed before anything is converted: it is cut there, or filled up."""
    release = broker_under_test.release
    convertible = [v for v in versions_of(broker_under_test, FETCH) if newest_magic(v) < release.magic]
    as_stored = [v for v in versions_of(broker_under_test, FETCH) if newest_magic(v) >= release.magic]
    if not release.converts_lazily or not convertible:
        return
    topic = broker_under_test.topic(*BIG, codec="gzip")
    connection = broker_under_test.connection()
    [stored] = fetched(connection, as_stored[0], asking(topic))
    for version in convertible:
        assert everything(connection, version, topic) == list(enumerate(BIG))
        [row] = fetched(connection, version, asking(topic))
        assert size(row) >= size(stored)
        assert row.records is not None
        filler = bytes(row.records[scan_record_set(row.records).complete_bytes :])
        assert filler == b"" or filler.startswith(b"\xff" * min(8, len(filler)))


def test_zstd_that_would_have_to_be_converted_is_no_record_set(broker_under_test: BrokerUnderTest) -> None:
    """The other partitions of the same answer are whole; versions that need no conversion get the records."""
    release = broker_under_test.release
    if release.version < (2, 1):
        return
    no_records = None if release.returns_null_records_for_unsupported_codec else b""
    topic = broker_under_test.topic(*TEN, codec="zstd")
    plain = broker_under_test.topic(*TEN)
    connection = broker_under_test.connection()
    for version in versions_of(broker_under_test, FETCH):
        if newest_magic(version) < 2:
            zstd, other = fetched(connection, version, asking(topic), asking(plain))
            assert (zstd.error_code, zstd.records) == (codes.UNSUPPORTED_COMPRESSION_TYPE.code, no_records)
            assert values(other)[0] == (0, TEN[0])
        else:
            assert everything(connection, version, topic) == list(enumerate(TEN))


def test_an_unknown_fetch_session_is_refused(broker_under_test: BrokerUnderTest) -> None:
    connection = broker_under_test.connection()
    for version in versions_of(broker_under_test, FETCH):
        if version >= 7:
            body = FetchRequest(max_wait_ms=1, min_bytes=1, session_id=77, session_epoch=1, topics=[])
            response = connection.request(FETCH, version, body, TIMEOUT_MS)
            assert response.error_code == codes.FETCH_SESSION_ID_NOT_FOUND.code


def test_a_fetch_session(broker_under_test: BrokerUnderTest) -> None:
    connection = broker_under_test.connection()
    for version in versions_of(broker_under_test, FETCH):
        if version >= 7:
            walk_through(
                lambda body, version=version: connection.request(FETCH, version, body, TIMEOUT_MS),  # type: ignore[misc]
                lambda topic, value: broker_under_test.topics.produce(topic, [value], "none"),
                broker_under_test.topic(),
                broker_under_test.topic(),
            )


def test_a_reader_with_fetch_sessions_reads_what_one_without_reads(broker_under_test: BrokerUnderTest) -> None:
    """A fetcher thread against the broker: values come whole and in order, also when the session is lost on the way."""
    topics = [broker_under_test.topic(), broker_under_test.topic()]
    version = broker_under_test.ranges.pick(FETCH, TOPIC_NAMES_VERSION_MAX)
    connection, encode = broker_under_test.connection(), partition_encoder(version)
    session: FetchSessionHandler[bytes] = FetchSessionHandler()
    offsets = {TopicPartition(topic, 0): 0 for topic in topics}
    found: dict[str, list[bytes | None]] = {topic: [] for topic in topics}
    for number in range(6):
        broker_under_test.topics.produce(topics[number % 2], [b"%d" % number], "none")
        if number == 3:
            session.handle_error()
        while sum(map(len, found.values())) <= number:
            for tp, offset in offsets.items():
                session.set_partition(tp, encode(0, offset, PLENTY))
            asked = session.next_request()
            rows = {tp.topic: [row] for tp, row in asked.rows.items()}
            question = FetchRequestBody(100, 1, PLENTY, asked.session_id, asked.epoch, rows, {})
            answer = connection.request(FAST_FETCH, version, question, TIMEOUT_MS)
            parts = [FetchedPartition(*row) for row in answer.rows]
            refused = session.handle_response(
                answer.error_code, answer.session_id, [TopicPartition(part.topic, part.partition) for part in parts]
            )
            assert (answer.error_code, refused) == (0, None)
            for part in parts:
                if part.records:
                    found[part.topic] += [record.value for record in iter_records(part.records)]
                    offsets[TopicPartition(part.topic, 0)] = part.next_offset
    assert found == {topics[0]: [b"0", b"2", b"4"], topics[1]: [b"1", b"3", b"5"]}
    assert session.is_open is (version >= 7)
