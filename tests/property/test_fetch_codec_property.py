"""The lean codec of the readers says and reads what the table of Fetch says and reads, whatever the bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire_message_samples import messages
from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compiled
from zkconsumer.wire.entries import Record
from zkconsumer.wire.fetch_codec import (
    CORRUPT_HEADERS,
    FAST_FETCH,
    TOPIC_IDS_FROM,
    VERSION_MAX,
    FetchedPartition,
    FetchRequestBody,
    FetchResponseBody,
    partition_encoder,
    response_body_of,
)
from zkconsumer.wire.primitives import MalformedMessage
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import scan_record_set
from zkconsumer.wire.request_frames import SIZE_BYTES, decode_response, encode_request, encode_response
from zkconsumer.wire.schemas import FETCH
from zkconsumer.wire.schemas.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
)
from zkconsumer.wire.transactions import read_aborted_transactions

VERSIONS = st.integers(0, VERSION_MAX)
TOPIC_ID = bytes(range(16))
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def id_of(topic: str) -> bytes:
    """An id for each name."""
    return hashlib.md5(topic.encode(), usedforsecurity=False).digest()


def record_sets() -> st.SearchStrategy[bytes | None]:
    """Sound ones of each format and codec, cut off anywhere or with a byte changed, and any bytes."""

    def made(magic: int, codec: int, count: int, cut: int, at: int) -> bytes:
        records = [Record(3 + offset, 0, 0, None, b"value") for offset in range(count)]
        data = bytearray(build_record_set(records, magic, codec) * 2)
        if at < len(data):
            data[at] ^= 0x55
        return bytes(data[: max(0, len(data) - cut)])

    sound = st.builds(made, st.integers(0, 2), st.integers(0, 3), st.integers(1, 4), st.integers(0, 9), st.just(10**6))
    damaged = st.builds(made, st.integers(0, 2), st.just(0), st.integers(1, 4), st.integers(0, 9), st.integers(0, 99))
    return st.none() | st.just(b"") | sound | damaged | st.binary(max_size=60)


@st.composite
def answers(draw: st.DrawFn, version: int) -> FetchResponse:
    response: FetchResponse = draw(messages(FetchResponse, version))
    for topic in response.responses:
        for part in topic.partitions:
            part.records = draw(record_sets())
    return response


def normal(answer: FetchResponseBody) -> Any:
    """To compare: records as bytes, and of an unsound record set only that it is."""
    rows = [FetchedPartition(*row) for row in answer.rows]
    rows = [
        row._replace(
            records=None if row.records is None else bytes(row.records),
            complete_bytes=0 if row.entries == CORRUPT_HEADERS else row.complete_bytes,
            next_offset=-1 if row.entries == CORRUPT_HEADERS else row.next_offset,
        )
        for row in rows
    ]
    return answer._replace(rows=rows)


def read(frame: bytes, version: int, *, lean: bool) -> Any:
    """What comes of an answer's bytes, or the error."""
    try:
        if lean:
            return normal(decode_response(FAST_FETCH, version, memoryview(bytearray(frame)))[1])
        return normal(response_body_of(decode_response(FETCH, version, frame)[1], version))
    except MalformedMessage as error:
        return str(error)


@settings(max_examples=100, deadline=None)
@given(st.data(), VERSIONS)
def test_an_answer_is_read_as_the_table_reads_it(data: st.DataObject, version: int) -> None:
    frame = encode_response(FETCH, version, 7, data.draw(answers(version)))[SIZE_BYTES:]
    assert read(frame, version, lean=True) == read(frame, version, lean=False)


@settings(max_examples=150, deadline=None)
@given(st.data(), VERSIONS)
def test_a_damaged_answer_is_read_or_refused_as_by_the_table(data: st.DataObject, version: int) -> None:
    frame = bytearray(encode_response(FETCH, version, 7, data.draw(answers(version)))[SIZE_BYTES:])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(4, max(4, len(frame) - 1)))
        match data.draw(st.sampled_from(["change", "cut", "add"])):
            case "change" if at < len(frame):
                frame[at] = data.draw(st.integers(0, 255))
            case "cut":
                del frame[at:]
            case _:
                frame += data.draw(st.binary(max_size=5))
    assert read(bytes(frame), version, lean=True) == read(bytes(frame), version, lean=False)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=100), VERSIONS)
def test_any_bytes_are_read_or_refused_as_by_the_table(noise: bytes, version: int) -> None:
    frame = bytes(4) + noise
    assert read(frame, version, lean=True) == read(frame, version, lean=False)


def test_sound_answers_are_read_by_the_compiled_reader() -> None:
    """Else the tests above compare the table with itself."""
    if compiled.RECORD_DECODER is None:
        pytest.skip("installed without a compiler")
    records = build_record_set([Record(5, 0, 0, None, b"v")], 2)
    part = FetchPartitionResponse(partition_index=3, high_watermark=6, records=records)
    part.last_stable_offset, part.log_start_offset, part.preferred_read_replica = 5, 4, 17
    part.aborted_transactions = [AbortedTransaction(producer_id=9, first_offset=2)]
    for version in range(VERSION_MAX + 1):
        body = FetchResponse(responses=[FetchTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[part])])
        frame = encode_response(FETCH, version, 7, body)[SIZE_BYTES:]
        start = 5 if FETCH.is_flexible(version) else 4
        found = compiled.RECORD_DECODER.fetched(memoryview(frame), start, version)
        assert found is not None, version
        [row] = found[3]
        assert row[:4] == ("t" if version < TOPIC_IDS_FROM else TOPIC_ID, 3, 0, 6)
        assert bytes(row[4]) == records
        assert row[5:8] == (len(records), 1, 6)
        assert row[8] == (5 if version >= 4 else -1)
        assert read_aborted_transactions(row[9]) == (part.aborted_transactions if version >= 4 else [])
        assert row[10:] == (4 if version >= 5 else -1, 17 if version >= 11 else -1)
        assert row[4].readonly


def test_no_object_is_made_for_a_message() -> None:
    """What is read of an answer has the same objects, however many messages its record sets hold."""
    made = []
    for count in (1, 1_000):
        records = build_record_set([Record(offset, 0, 0, None, b"v") for offset in range(count)], 2)
        part = FetchPartitionResponse(partition_index=0, high_watermark=6, records=records * 3)
        body = FetchResponse(responses=[FetchTopicResponse(topic="t", partitions=[part])])
        answer = decode_response(FAST_FETCH, 12, encode_response(FETCH, 12, 7, body)[SIZE_BYTES:])[1]
        made.append([type(value) for row in answer.rows for value in row])
    assert made[0] == made[1]


@settings(max_examples=100, deadline=None)
@given(
    VERSIONS, st.lists(st.tuples(names, st.lists(st.tuples(int32, int64, int32, int32), max_size=3)), max_size=3),
    st.lists(st.tuples(names, st.lists(int32, max_size=3)), max_size=2), st.tuples(*[int32] * 5),
    st.sampled_from([0, 1]), names,
)  # fmt: skip
def test_a_request_is_written_as_the_table_writes_it(
    version: int,
    topics: Sequence[tuple[str, Sequence[tuple[int, int, int, int]]]],
    forgotten: Sequence[tuple[str, Sequence[int]]],
    numbers: tuple[int, ...],
    isolation_level: int,
    rack: str,
) -> None:
    topics, forgotten = list(dict(topics).items()), list(dict(forgotten).items()) if version >= 7 else []
    encode = partition_encoder(version)
    identity = (lambda topic: topic) if version < TOPIC_IDS_FROM else id_of
    lean = FetchRequestBody(
        *numbers,
        {identity(topic): [encode(*row) for row in rows] for topic, rows in topics},
        {identity(topic): list(gone) for topic, gone in forgotten},
        isolation_level,
        rack,
    )
    table = FetchRequest(
        max_wait_ms=numbers[0],
        min_bytes=numbers[1],
        max_bytes=numbers[2],
        isolation_level=isolation_level,
        session_id=numbers[3],
        session_epoch=numbers[4],
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=id_of(topic),
                partitions=[
                    FetchPartition(
                        partition=row[0], fetch_offset=row[1], partition_max_bytes=row[2], current_leader_epoch=row[3]
                    )
                    for row in rows
                ],
            )
            for topic, rows in topics
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic=topic, topic_id=id_of(topic), partitions=list(gone)) for topic, gone in forgotten
        ],
        rack_id=rack,
    )
    assert encode_request(FAST_FETCH, version, 5, "c", lean) == encode_request(FETCH, version, 5, "c", table)


def test_what_does_not_fit_into_a_request_is_named() -> None:
    with pytest.raises(UsageError, match="a row of Fetch v12 cannot hold partition 0, offset"):
        partition_encoder(12)(0, 2**63, 1)
    with pytest.raises(UsageError, match="Fetch v3 cannot hold"):
        encode_request(FAST_FETCH, 3, 0, "c", FetchRequestBody(2**31, 1, 1, 0, 0, {}, {}))
    with pytest.raises(UsageError, match="Fetch v6 knows no sessions"):
        encode_request(FAST_FETCH, 6, 0, "c", FetchRequestBody(1, 1, 1, 0, 0, {}, {"t": [0]}))


def test_a_request_of_a_session_is_small_however_many_partitions_it_has() -> None:
    """512 partitions, one of which has moved on: its row, and a head."""
    encode = partition_encoder(12)
    rows = {TopicPartition("clicks", number): encode(number, 0, 2**20) for number in range(512)}
    full = FetchRequestBody(100, 1, 2**20, 0, 0, {"clicks": list(rows.values())}, {})
    changed = FetchRequestBody(100, 1, 2**20, 77, 5, {"clicks": [encode(3, 17, 2**20)]}, {})
    assert len(encode_request(FAST_FETCH, 12, 1, "group", full)) > 512 * 30
    assert len(encode_request(FAST_FETCH, 12, 1, "group", changed)) < 100


def test_the_scan_of_a_row_is_that_of_its_record_set() -> None:
    records = build_record_set([Record(offset, 0, 0, None, b"v" * 10) for offset in range(9)], 1)
    part = FetchPartitionResponse(partition_index=0, high_watermark=9, records=records[:-3])
    body = FetchResponse(responses=[FetchTopicResponse(topic="t", partitions=[part])])
    [row] = decode_response(FAST_FETCH, 3, encode_response(FETCH, 3, 7, body)[SIZE_BYTES:])[1].rows
    found = scan_record_set(records[:-3])
    assert row[5:8] == (found.complete_bytes, found.entries, found.next_offset)
