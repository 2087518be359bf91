"""Bytes written by hand from the specification, and bytes that real brokers sent."""

from __future__ import annotations

import pytest

from zkconsumer.wire.records import iter_records
from zkconsumer.wire.request_frames import (
    SIZE_BYTES,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_header_version,
)
from zkconsumer.wire.schemas import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, PRODUCE
from zkconsumer.wire.schemas.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from zkconsumer.wire.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from zkconsumer.wire.schemas.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from zkconsumer.wire.schemas.produce import ProduceRequest


def hexed(text: str) -> bytes:
    """Bytes from hexadecimal; words in brackets are text."""
    parts = [part[1:].encode() if part.startswith("'") else bytes.fromhex(part) for part in text.split()]
    return b"".join(parts)


FETCH_BODY = FetchRequest(
    max_wait_ms=100,
    min_bytes=1,
    topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=2, fetch_offset=5, partition_max_bytes=1024)])],
)


def test_fetch_v0_as_the_scala_consumer_writes_it() -> None:
    expected = hexed(
        "0000003a 0001 0000 00000007 0003 'abc "
        "ffffffff 00000064 00000001 00000001 0001 't 00000001 00000002 0000000000000005 00000400"
    )
    expected = (len(expected) - SIZE_BYTES).to_bytes(4, "big") + expected[4:]
    assert encode_request(FETCH, 0, 7, "abc", FETCH_BODY) == expected
    assert decode_request(expected[SIZE_BYTES:]).body == FETCH_BODY


def test_fetch_v3_says_no_total_limit_by_default() -> None:
    frame = encode_request(FETCH, 3, 7, None, FETCH_BODY)
    assert frame[SIZE_BYTES : SIZE_BYTES + 10] == hexed("0001 0003 00000007 ffff")
    assert frame[SIZE_BYTES + 10 : SIZE_BYTES + 26] == hexed("ffffffff 00000064 00000001 7fffffff")


def test_fetch_v12_is_flexible() -> None:
    frame = encode_request(FETCH, 12, 7, "abc", FETCH_BODY)
    assert frame[SIZE_BYTES:] == hexed(
        "0001 000c 00000007 0003 'abc 00 "
        "ffffffff 00000064 00000001 7fffffff 00 00000000 ffffffff "
        "02 02 't 02 00000002 ffffffff 0000000000000005 ffffffff ffffffffffffffff 00000400 00 00 01 01 00"
    )


def test_a_fetch_answer_of_a_real_broker_0_8_2_2() -> None:
    data = hexed(
        "00000007 00000001 0005 'plain 00000001 00000000 0000 000000000000000a 00000038 "
        "0000000000000000 00000010 3b986b54 0000 ffffffff 00000002 'v0 "
        "0000000000000001 00000010 4c9f5bc2 0000 ffffffff 00000002 'v1"
    )
    correlation_id, body = decode_response(FETCH, 0, data)
    [partition] = body.responses[0].partitions
    assert (correlation_id, body.responses[0].topic, partition.high_watermark) == (7, "plain", 10)
    assert partition.records is not None
    assert [(r.offset, r.value) for r in iter_records(partition.records)] == [(0, b"v0"), (1, b"v1")]
    assert encode_response(FETCH, 0, 7, body)[SIZE_BYTES:] == data


def test_a_null_record_set_is_that_partitions_matter_alone() -> None:
    """Brokers answer so, beside error 76, when zstd records would have to be converted for an old version."""
    data = hexed(
        "00000007 00000001 0001 't 00000002 "
        "00000000 004c ffffffffffffffff ffffffff "
        "00000001 0000 0000000000000001 00000000"
    )
    _, body = decode_response(FETCH, 0, data)
    null, empty = body.responses[0].partitions
    assert (null.error_code, null.records) == (76, None)
    assert (empty.error_code, empty.records) == (0, b"")
    assert encode_response(FETCH, 0, 7, body)[SIZE_BYTES:] == data


def test_record_sets_are_views_of_the_frame() -> None:
    data = bytearray(hexed("00000007 00000001 0001 't 00000001 00000000 0000 0000000000000001 00000003 'abc"))
    _, body = decode_response(FETCH, 0, memoryview(data))
    records = body.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.readonly
    data[-3:] = b"xyz"
    assert bytes(records) == b"xyz", "a copy was made"


METADATA_BODY = MetadataResponse(
    brokers=[MetadataBroker(node_id=1, host="h", port=9092)],
    topics=[
        MetadataTopic(
            name="t", partitions=[MetadataPartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])]
        )
    ],
)


def test_metadata_v0() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert encode_request(METADATA, 0, 1, "", request)[SIZE_BYTES:] == hexed("0003 0000 00000001 0000 00000001 0001 't")
    data = hexed(
        "00000001 00000001 00000001 0001 'h 00002384 "
        "00000001 0000 0001 't 00000001 0000 00000000 00000001 00000001 00000001 00000001 00000001"
    )
    assert encode_response(METADATA, 0, 1, METADATA_BODY)[SIZE_BYTES:] == data
    assert decode_response(METADATA, 0, data) == (1, METADATA_BODY)


def test_all_topics_is_an_empty_list_in_v0_and_null_from_v1() -> None:
    assert encode_request(METADATA, 0, 1, "", MetadataRequest(topics=[])).endswith(hexed("00000000"))
    assert encode_request(METADATA, 1, 1, "", MetadataRequest(topics=None)).endswith(hexed("ffffffff"))
    assert encode_request(METADATA, 9, 1, "", MetadataRequest(topics=None)).endswith(hexed("00 01 00 00 00"))


def test_list_offsets_v0_and_v1() -> None:
    request = ListOffsetsRequest(
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-2)])]
    )
    start = "0002 000{} 00000001 0000 ffffffff 00000001 0001 't 00000001 00000000 fffffffffffffffe "
    assert encode_request(LIST_OFFSETS, 0, 1, "", request)[SIZE_BYTES:] == hexed(start.format(0) + "00000001")
    assert encode_request(LIST_OFFSETS, 1, 1, "", request)[SIZE_BYTES:] == hexed(start.format(1))
    topic = "00000001 00000001 0001 't 00000001 00000000 0000 "
    old = ListOffsetsPartitionResponse(partition_index=0, old_style_offsets=[10, 0])
    new = ListOffsetsPartitionResponse(partition_index=0, timestamp=-1, offset=10)
    for version, row, bytes_ in (
        (0, old, topic + "00000002 000000000000000a 0000000000000000"),
        (1, new, topic + "ffffffffffffffff 000000000000000a"),
    ):
        body = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])
        assert decode_response(LIST_OFFSETS, version, hexed(bytes_)) == (1, body)
        assert encode_response(LIST_OFFSETS, version, 1, body)[SIZE_BYTES:] == hexed(bytes_)


def test_api_versions_v3_has_a_flexible_request_and_a_plain_answer_header() -> None:
    request = ApiVersionsRequest(client_software_name="zk", client_software_version="1")
    assert encode_request(API_VERSIONS, 3, 1, "c", request)[SIZE_BYTES:] == hexed(
        "0012 0003 00000001 0001 'c 00 03 'zk 02 '1 00"
    )
    data = hexed("00000001 0000 02 0012 0000 0003 00 00000000 00")
    body = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=3)])
    assert decode_response(API_VERSIONS, 3, data) == (1, body)
    assert encode_response(API_VERSIONS, 3, 1, body)[SIZE_BYTES:] == data


@pytest.mark.parametrize(
    ("sent_by", "data", "api_keys"),
    [
        ("0.10.2.2", "00000007 0023 00000000", []),
        ("3.9.1", "00000007 0023 00000001 0012 0000 0004", [ApiVersion(api_key=18, min_version=0, max_version=4)]),
    ],
)
def test_a_refused_api_versions_is_in_the_layout_of_version_0(
    sent_by: str, data: str, api_keys: list[ApiVersion]
) -> None:
    answer = (7, ApiVersionsResponse(error_code=35, api_keys=api_keys))
    for version in range(API_VERSIONS.highest + 1):
        assert decode_response(API_VERSIONS, version, hexed(data)) == answer


def test_controlled_shutdown_v0_alone_has_no_client_id() -> None:
    assert request_header_version(7, flexible=False) == 0
    assert request_header_version(PRODUCE.key, flexible=False) == 1
    assert request_header_version(PRODUCE.key, flexible=True) == 2


def test_produce_v9_is_flexible() -> None:
    body = ProduceRequest(acks=-1, timeout_ms=5, topic_data=[])
    assert encode_request(PRODUCE, 9, 1, None, body)[SIZE_BYTES:] == hexed(
        "0000 0009 00000001 ffff 00 00 ffff 00000005 01 00"
    )
