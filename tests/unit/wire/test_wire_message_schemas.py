"""What the tables promise: versions, defaults, null, tags, and what cannot be written."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire_message_samples import EVERY_VERSION, EVERY_VERSION_IDS, filled
from zkconsumer.errors import UsageError
from zkconsumer.wire.field_types import int32, text
from zkconsumer.wire.primitives import MessageReader
from zkconsumer.wire.request_frames import SIZE_BYTES, decode_request, decode_response, encode_request, encode_response
from zkconsumer.wire.schemas import (
    API_VERSIONS,
    APIS,
    FETCH,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    Api,
)
from zkconsumer.wire.schemas.fetch import (
    EpochEndOffset,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    ForgottenTopic,
)
from zkconsumer.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from zkconsumer.wire.schemas.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    LeavingMemberResponse,
)
from zkconsumer.wire.schemas.list_offsets import ListOffsetsRequest
from zkconsumer.wire.schemas.message_schema import array, decoder, encoder, f, fields, message, parse_versions
from zkconsumer.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic

every_version = pytest.mark.parametrize(("api", "version"), EVERY_VERSION, ids=EVERY_VERSION_IDS)


@every_version
def test_every_field_of_every_version_survives(api: Api[Any, Any], version: int) -> None:
    request, response = filled(api.request, version), filled(api.response, version)
    assert decode_request(encode_request(api, version, 1, "c", request)[SIZE_BYTES:]).body == request
    assert decode_response(api, version, encode_response(api, version, 1, response)[SIZE_BYTES:]) == (1, response)


def test_the_versions_are_those_that_were_promised() -> None:
    assert {api.name: (api.lowest, api.highest, api.client_highest) for api in APIS.values()} == {
        "Produce": (0, 13, 9),
        "Fetch": (0, 18, 12),
        "ListOffsets": (0, 11, 7),
        "Metadata": (0, 13, 12),
        "OffsetCommit": (0, 10, 9),
        "OffsetFetch": (0, 10, 9),
        "FindCoordinator": (0, 6, 6),
        "JoinGroup": (0, 9, 9),
        "Heartbeat": (0, 4, 4),
        "LeaveGroup": (0, 5, 5),
        "SyncGroup": (0, 5, 5),
        "DescribeGroups": (0, 6, 5),
        "ListGroups": (0, 5, 4),
        "SaslHandshake": (0, 1, 1),
        "ApiVersions": (0, 4, 3),
        "CreateTopics": (0, 7, 7),
        "DeleteTopics": (0, 6, 6),
        "InitProducerId": (0, 6, 6),
        "OffsetForLeaderEpoch": (0, 4, 4),
        "DescribeConfigs": (0, 4, 4),
        "SaslAuthenticate": (0, 2, 2),
        "DeleteGroups": (0, 2, 2),
        "OffsetDelete": (0, 0, 0),
        "DescribeCluster": (0, 2, 2),
    }


@pytest.mark.parametrize(
    ("span", "inside", "outside"), [("0+", [0, 99], []), ("3-5", [3, 5], [2, 6]), ("0", [0], [1]), ("", [], [0, 1])]
)
def test_a_span_of_versions(span: str, inside: list[int], outside: list[int]) -> None:
    assert all(version in parse_versions(span) for version in inside)
    assert not any(version in parse_versions(span) for version in outside)


def test_a_field_that_the_version_lacks_has_its_default() -> None:
    body = FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=5, topics=[], rack_id="r")
    read = decode_request(encode_request(FETCH, 2, 1, None, body)[SIZE_BYTES:]).body
    assert (read.max_bytes, read.rack_id, read.session_epoch) == (0x7FFFFFFF, "", -1)


def test_defaults_that_are_lists_are_not_shared() -> None:
    frame = encode_request(FETCH, 0, 1, None, FetchRequest(max_wait_ms=1, min_bytes=1, topics=[]))[SIZE_BYTES:]
    one, two = decode_request(frame).body, decode_request(frame).body
    one.forgotten_topics_data.append("mine")
    assert two.forgotten_topics_data == []


@pytest.mark.parametrize(
    ("api", "version", "body", "field"),
    [
        (
            FETCH,
            6,
            FetchRequest(
                max_wait_ms=1,
                min_bytes=1,
                topics=[],
                forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[1])],
            ),
            "forgotten_topics_data",
        ),
        (LIST_OFFSETS, 1, ListOffsetsRequest(topics=[], isolation_level=1), "isolation_level"),
        (
            JOIN_GROUP,
            4,
            JoinGroupRequest(
                group_id="g", session_timeout_ms=1, protocol_type="consumer", protocols=[], group_instance_id="i"
            ),
            "group_instance_id",
        ),
        (LEAVE_GROUP, 2, LeaveGroupRequest(group_id="g", members=[LeavingMember(member_id="m")]), "members"),
        (LEAVE_GROUP, 3, LeaveGroupRequest(group_id="g", member_id="m"), "member_id"),
        (FETCH, 15, FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], replica_id=1), "replica_id"),
    ],
)
def test_what_a_version_cannot_say_is_refused(api: Api[Any, Any], version: int, body: Any, field: str) -> None:
    with pytest.raises(UsageError, match=f"{field} .* version {version} cannot contain"):
        encode_request(api, version, 1, None, body)


@pytest.mark.parametrize(
    ("api", "version", "body", "field"),
    [
        (JOIN_GROUP, 8, JoinGroupResponse(skip_assignment=True), "skip_assignment"),
        (LEAVE_GROUP, 2, LeaveGroupResponse(members=[LeavingMemberResponse(member_id="m")]), "members"),
    ],
)
def test_a_server_cannot_answer_what_the_asked_version_cannot_say(
    api: Api[Any, Any], version: int, body: Any, field: str
) -> None:
    with pytest.raises(UsageError, match=f"{field} .* version {version} cannot contain"):
        encode_response(api, version, 1, body)


def test_no_protocol_is_null_from_join_group_7_on_and_no_text_before() -> None:
    encode_response(JOIN_GROUP, 7, 1, JoinGroupResponse(protocol_name=None))
    with pytest.raises(UsageError, match="field protocol_name cannot be null"):
        encode_response(JOIN_GROUP, 6, 1, JoinGroupResponse(protocol_name=None))


@pytest.mark.parametrize(
    ("body", "text_"),
    [
        (FetchRequest(max_wait_ms=2**31, min_bytes=1, topics=[]), "field max_wait_ms cannot be 2147483648"),
        (FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], rack_id="x" * 0x8000), "field rack_id has 32768 bytes"),
        (FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], rack_id="\ud800"), "field rack_id cannot be"),
        (FetchRequest(max_wait_ms=1, min_bytes=1, topics=None), "field topics cannot be null"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_does_not_fit_is_named(body: FetchRequest, text_: str) -> None:
    with pytest.raises(UsageError, match=text_):
        encode_request(FETCH, 11, 1, None, body)


def test_a_partition_number_that_does_not_fit_is_named() -> None:
    body = FetchRequest(
        max_wait_ms=1,
        min_bytes=1,
        topics=[],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[1, 2**40])],
    )
    with pytest.raises(UsageError, match="field partitions cannot be"):
        encode_request(FETCH, 11, 1, None, body)


def test_null_is_written_only_where_the_version_has_it() -> None:
    encode_request(METADATA, 1, 1, None, MetadataRequest(topics=None))
    with pytest.raises(UsageError, match="field topics cannot be null"):
        encode_request(METADATA, 0, 1, None, MetadataRequest(topics=None))
    with pytest.raises(UsageError, match="field name cannot be null"):
        encode_request(METADATA, 9, 1, None, MetadataRequest(topics=[MetadataRequestTopic(name=None)]))


@pytest.mark.parametrize("version", [-1, 14])
def test_a_version_that_is_not_in_the_tables_is_a_usage_error(version: int) -> None:
    with pytest.raises(UsageError, match=f"Produce v{version} is not spoken here, only v0 to v13"):
        encode_response(PRODUCE, version, 1, PRODUCE.response(responses=[]))


def one_partition(**tags: Any) -> FetchResponse:
    partition = FetchPartitionResponse(partition_index=0, high_watermark=1, records=None, **tags)
    return FetchResponse(responses=[FetchTopicResponse(topic="t", partitions=[partition])])


def test_a_tagged_field_is_written_only_when_it_differs_from_its_default() -> None:
    without = encode_response(FETCH, 12, 1, one_partition())
    with_ = encode_response(FETCH, 12, 1, one_partition(diverging_epoch=EpochEndOffset(epoch=3, end_offset=9)))
    assert len(with_) - len(without) == 2 + 4 + 8 + 1, "tag, size, two numbers, no tags inside"
    assert decode_response(FETCH, 12, with_[SIZE_BYTES:])[1].responses[0].partitions[0].diverging_epoch == (
        EpochEndOffset(epoch=3, end_offset=9)
    )


def test_an_unknown_tagged_field_is_skipped() -> None:
    plain = encode_response(API_VERSIONS, 3, 1, API_VERSIONS.response(api_keys=[]))[SIZE_BYTES:]
    assert plain.endswith(b"\0")
    newer = plain[:-1] + b"\x01\x64\x03new"
    assert decode_response(API_VERSIONS, 3, newer) == decode_response(API_VERSIONS, 3, plain)


def test_tags_of_the_headers_are_skipped() -> None:
    request = encode_request(FETCH, 12, 1, "c", FetchRequest(max_wait_ms=1, min_bytes=1, topics=[]))[SIZE_BYTES:]
    header = 2 + 2 + 4 + 2 + 1
    assert request[header] == 0
    tagged = request[:header] + b"\x01\x05\x02hi" + request[header + 1 :]
    assert decode_request(tagged).body == decode_request(request).body


def test_every_table_has_a_sentence() -> None:
    """The docstring of a message says what its fields do not."""
    classes = {api.request for api in APIS.values()} | {api.response for api in APIS.values()}
    assert all(cls.__doc__ and not cls.__doc__.startswith(cls.__name__ + "(") for cls in classes)


def test_a_new_api_is_a_table() -> None:
    @message
    class Row:
        """A row."""

        key: str = f(text)
        count: int = f(int32, "1+", default=-1)

    @message
    class Rows:
        """Rows."""

        rows: list[Row] = f(array(Row))

    assert [field.name for field in fields(Row)] == ["key", "count"]
    for version, flexible in ((0, False), (1, False), (1, True)):
        out = bytearray()
        body = Rows(rows=[Row(key="a", count=-1), Row(key="b", count=-1 if version == 0 else 2)])
        encoder(Rows, version, flexible)(out, body)
        assert decoder(Rows, version, flexible)(MessageReader(out)) == body


def test_a_field_that_some_version_lacks_must_have_a_default() -> None:
    with pytest.raises(AssertionError, match="needs a default"):
        f(int32, "1+")
