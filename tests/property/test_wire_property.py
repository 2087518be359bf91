"""Every API and version, both directions: what is written is read again, and kafka-python reads and writes the same.

RequestResponseSerializationTest of the original, for every version.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

import kafka.protocol.admin.cluster as oracle_cluster
import kafka.protocol.admin.configs as oracle_configs
import kafka.protocol.admin.groups as oracle_admin
import kafka.protocol.admin.topics as oracle_topics
import kafka.protocol.consumer.fetch as oracle_fetch
import kafka.protocol.consumer.group as oracle_group
import kafka.protocol.consumer.metadata as oracle_members
import kafka.protocol.consumer.offsets as oracle_offsets
import kafka.protocol.metadata as oracle_metadata
import kafka.protocol.producer.produce as oracle_produce
import kafka.protocol.producer.transaction as oracle_transaction
import kafka.protocol.sasl as oracle_sasl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage

from tests.wire_message_samples import EVERY_VERSION, EVERY_VERSION_IDS, messages
from zkconsumer.types import TopicPartition
from zkconsumer.wire import group_records
from zkconsumer.wire.consumer_protocol import (
    HIGHEST_VERSION,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from zkconsumer.wire.field_types import NO_UUID
from zkconsumer.wire.primitives import MessageReader, put_uvarint
from zkconsumer.wire.request_frames import (
    SIZE_BYTES,
    UNSUPPORTED_VERSION,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_header_version,
    response_header_version,
)
from zkconsumer.wire.schemas import API_VERSIONS, Api
from zkconsumer.wire.schemas.message_schema import encoder, fields

every_version = pytest.mark.parametrize(("api", "version"), EVERY_VERSION, ids=EVERY_VERSION_IDS)
both_directions = pytest.mark.parametrize("direction", ["request", "response"])
correlation_ids = st.integers(-(2**31), 2**31 - 1)
clients = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=10)

EXAMPLES = 5
"""Of each version of each request and response; Hypothesis draws other ones in each run."""

ORACLES = {
    "Produce": (oracle_produce.ProduceRequest, oracle_produce.ProduceResponse),
    "Fetch": (oracle_fetch.FetchRequest, oracle_fetch.FetchResponse),
    "ListOffsets": (oracle_offsets.ListOffsetsRequest, oracle_offsets.ListOffsetsResponse),
    "Metadata": (oracle_metadata.MetadataRequest, oracle_metadata.MetadataResponse),
    "OffsetCommit": (oracle_group.OffsetCommitRequest, oracle_group.OffsetCommitResponse),
    "OffsetFetch": (oracle_group.OffsetFetchRequest, oracle_group.OffsetFetchResponse),
    "FindCoordinator": (oracle_metadata.FindCoordinatorRequest, oracle_metadata.FindCoordinatorResponse),
    "DescribeGroups": (oracle_admin.DescribeGroupsRequest, oracle_admin.DescribeGroupsResponse),
    "ListGroups": (oracle_admin.ListGroupsRequest, oracle_admin.ListGroupsResponse),
    "SaslHandshake": (oracle_sasl.SaslHandshakeRequest, oracle_sasl.SaslHandshakeResponse),
    "SaslAuthenticate": (oracle_sasl.SaslAuthenticateRequest, oracle_sasl.SaslAuthenticateResponse),
    "ApiVersions": (oracle_metadata.ApiVersionsRequest, oracle_metadata.ApiVersionsResponse),
    "OffsetDelete": (oracle_group.OffsetDeleteRequest, oracle_group.OffsetDeleteResponse),
    "JoinGroup": (oracle_group.JoinGroupRequest, oracle_group.JoinGroupResponse),
    "Heartbeat": (oracle_group.HeartbeatRequest, oracle_group.HeartbeatResponse),
    "LeaveGroup": (oracle_group.LeaveGroupRequest, oracle_group.LeaveGroupResponse),
    "SyncGroup": (oracle_group.SyncGroupRequest, oracle_group.SyncGroupResponse),
    "DeleteGroups": (oracle_admin.DeleteGroupsRequest, oracle_admin.DeleteGroupsResponse),
    "CreateTopics": (oracle_topics.CreateTopicsRequest, oracle_topics.CreateTopicsResponse),
    "DeleteTopics": (oracle_topics.DeleteTopicsRequest, oracle_topics.DeleteTopicsResponse),
    "InitProducerId": (oracle_transaction.InitProducerIdRequest, oracle_transaction.InitProducerIdResponse),
    "OffsetForLeaderEpoch": (oracle_offsets.OffsetForLeaderEpochRequest, oracle_offsets.OffsetForLeaderEpochResponse),
    "DescribeCluster": (oracle_cluster.DescribeClusterRequest, oracle_cluster.DescribeClusterResponse),
    "DescribeConfigs": (oracle_configs.DescribeConfigsRequest, oracle_configs.DescribeConfigsResponse),
}


@every_version
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_a_request_is_read_as_it_was_written(api: Api[Any, Any], version: int, data: st.DataObject) -> None:
    body = data.draw(messages(api.request, version))
    correlation_id, client_id = data.draw(correlation_ids), data.draw(clients)
    frame = encode_request(api, version, correlation_id, client_id, body)
    assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES
    request = decode_request(frame[SIZE_BYTES:])
    assert (request.api, request.body) == (api, body)
    assert (request.header.api_key, request.header.api_version) == (api.key, version)
    assert (request.header.correlation_id, request.header.client_id) == (correlation_id, client_id)


@every_version
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_an_answer_is_read_as_it_was_written(api: Api[Any, Any], version: int, data: st.DataObject) -> None:
    body = data.draw(messages(api.response, version))
    if api is API_VERSIONS and body.error_code == UNSUPPORTED_VERSION:
        body.error_code = 0
    correlation_id = data.draw(correlation_ids)
    frame = encode_response(api, version, correlation_id, body)
    assert decode_response(api, version, frame[SIZE_BYTES:]) == (correlation_id, body)


@both_directions
@every_version
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_the_bytes_are_those_of_kafka_python(
    direction: str, api: Api[Any, Any], version: int, data: st.DataObject
) -> None:
    cls = api.request if direction == "request" else api.response
    body = data.draw(messages(cls, version))
    if cls is API_VERSIONS.response:
        body.error_code = 0  # the oracle takes any error for the fallback to version 0
    ours = _encoded(api, cls, version, body)
    theirs = ORACLES[api.name][direction == "response"].decode(ours, version=version)
    # Some of its messages have an encode() of their own that fails on what was decoded.
    assert ApiMessage.encode(theirs) == ours
    _same_values(body, theirs, version)


def _encoded(api: Api[Any, Any], cls: type, version: int, body: Any) -> bytes:
    out = bytearray()
    encoder(cls, version, api.is_flexible(version))(out, body)
    return bytes(out)


def _same_values(ours: Any, theirs: Any, version: int) -> None:
    for field in fields(type(ours)):
        if version not in field.spec.versions:
            continue
        mine = getattr(ours, field.name)
        if mine is None and field.spec.tag is not None:
            continue  # the oracle makes an empty message where there is none
        if field.name.endswith("authorized_operations"):
            continue  # the oracle makes a set of bits of it, under another name; the bytes were compared
        _same(mine, getattr(theirs, field.name), version)


def _same(mine: Any, other: Any, version: int) -> None:
    if is_dataclass(mine):
        _same_values(mine, other, version)
    elif isinstance(mine, list):
        assert len(mine) == len(other)
        for left, right in zip(mine, other, strict=True):
            _same(left, right, version)
    elif isinstance(mine, bytes) and hasattr(other, "bytes"):
        assert mine == other.bytes
    elif mine == NO_UUID:
        assert other is None
    else:
        assert mine == other or (mine is not None and bytes(mine) == bytes(other))


@given(value=st.integers(0, 2**32 - 1))
def test_a_variable_length_number_is_read_as_it_was_written(value: int) -> None:
    out = bytearray()
    put_uvarint(out, value)
    reader = MessageReader(bytes(out))
    assert reader.uvarint("number") == value
    reader.check_end()


@every_version
def test_header_versions_follow_the_flexibility_of_the_api(api: Api[Any, Any], version: int) -> None:
    flexible = api.is_flexible(version)
    assert request_header_version(api.key, flexible) == (2 if flexible else 1)
    assert response_header_version(api.key, flexible) == (1 if flexible and api is not API_VERSIONS else 0)
    oracle = ORACLES[api.name][0]
    assert oracle.flexible_version_q(version) == flexible


# --- what members tell each other, and what coordinators keep -----------------------------------------------------

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
partition_numbers = st.integers(0, 2**31 - 1)
partitions = st.lists(st.builds(TopicPartition, names, partition_numbers), max_size=6).map(tuple)
user_data = st.none() | st.binary(max_size=20)
subscriptions = st.builds(
    Subscription,
    topics=st.lists(names, max_size=4).map(tuple),
    user_data=user_data,
    owned_partitions=partitions,
    generation_id=st.integers(-(2**31), 2**31 - 1),
    rack_id=st.none() | names.filter(bool),
)
member_versions = st.integers(0, HIGHEST_VERSION)


def java_order(word: str) -> bytes:
    return word.encode("utf-16-be", "surrogatepass")


@given(subscription=subscriptions, version=member_versions)
def test_a_subscription_is_read_as_it_was_written(subscription: Subscription, version: int) -> None:
    read = decode_subscription(encode_subscription(subscription, version))
    assert read.topics == tuple(sorted(subscription.topics, key=java_order))
    assert read.user_data == subscription.user_data
    owned = tuple(sorted(subscription.owned_partitions, key=lambda at: (java_order(at.topic), at.partition)))
    assert read.owned_partitions == (owned if version >= 1 else ())
    assert read.generation_id == (subscription.generation_id if version >= 2 else -1)
    assert read.rack_id == (subscription.rack_id if version >= 3 else None)


@given(subscription=subscriptions, version=member_versions)
def test_the_bytes_of_a_subscription_are_those_of_kafka_python(subscription: Subscription, version: int) -> None:
    ours = encode_subscription(subscription, version)
    theirs = oracle_members.ConsumerProtocolSubscription.decode(ours)
    assert theirs.encode() == ours
    assert tuple(theirs.topics) == subscribed_topics(ours)


@given(shares=partitions, data=user_data, version=member_versions)
def test_an_assignment_is_read_as_it_was_written_and_as_kafka_python_writes_it(
    shares: tuple[TopicPartition, ...], data: bytes | None, version: int
) -> None:
    ours = encode_assignment(Assignment(shares, data), version)
    read = decode_assignment(ours)
    assert (sorted(read.partitions), read.user_data) == (sorted(shares), data)
    assert encode_assignment(read, version) == ours
    assert oracle_members.ConsumerProtocolAssignment.decode(ours).encode() == ours


keys = st.builds(group_records.OffsetCommitKey, names, names, partition_numbers) | st.builds(
    group_records.GroupMetadataKey, names
)
value_versions = st.integers(0, group_records.VALUE_HIGHEST)


@given(key=keys)
def test_a_record_key_is_read_as_it_was_written(
    key: group_records.OffsetCommitKey | group_records.GroupMetadataKey,
) -> None:
    assert group_records.read_key(group_records.write_key(key)) == key


@given(version=value_versions, data=st.data())
def test_a_stored_offset_is_read_as_it_was_written(version: int, data: st.DataObject) -> None:
    value = data.draw(messages(group_records.OffsetCommitValue, version))
    assert group_records.read_offset_value(group_records.write_offset_value(value, version)) == value


@given(version=value_versions, data=st.data())
def test_a_stored_group_is_read_as_it_was_written(version: int, data: st.DataObject) -> None:
    value = data.draw(messages(group_records.GroupMetadataValue, version))
    assert group_records.read_group_value(group_records.write_group_value(value, version)) == value
