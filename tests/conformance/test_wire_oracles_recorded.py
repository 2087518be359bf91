"""What real brokers and Java's own clients sent, and what brokers stored: read and written again, byte for byte."""

from __future__ import annotations

import pytest

from tests.sandbox_fixtures import require_releases, require_zookeeper
from tests.wire_oracles import recorded_frames
from tests.wire_oracles.recorded_frames import Frame, OffsetsRecord, Recorded
from tests.wire_oracles.traffic import COMMITS_ONLY, PAIRS, Pair, record
from zkconsumer.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from zkconsumer.wire.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    read_group_value,
    read_key,
    read_offset_value,
    value_version,
    write_group_value,
    write_key,
    write_offset_value,
)
from zkconsumer.wire.versioned import version_of

every_pair = pytest.mark.parametrize("pair", PAIRS, ids=str)
every_broker = pytest.mark.parametrize("pair", [*PAIRS, *COMMITS_ONLY], ids=str)

GROUP_APIS = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch", "FindCoordinator")

AS_WRITTEN = {
    "0.8.2.2": {(0, 0)},
    "0.9.0.1": {(1, 1), (2, 0), (2, None)},
    "0.10.2.2": {(1, 1), (2, 1)},
    "1.1.1": {(1, 1), (1, None), (2, 1), (2, None)},
    "2.0.1": {(1, 1), (1, None), (2, 1), (2, None)},
    "2.8.2": {(1, 1), (1, 3), (1, None), (2, 3), (2, None)},
    "3.9.1": {(1, 1), (1, 3), (1, None), (2, 3), (2, None)},
    "4.1.1": {(1, 1), (1, 4), (1, None), (2, 3), (2, None)},
}
"""Broker → (version of the key, version of the value or None for a tombstone) of the records it wrote.

An offset that was committed with an expiry time of its own is of version 1 in every release.
"""


def kept(pair: Pair) -> Recorded:
    return recorded_frames.read(pair.path)


@every_pair
def test_every_recorded_frame_is_written_as_it_was_read(pair: Pair) -> None:
    for frame in kept(pair).frames:
        assert frame.written_again() == frame.data, frame.kind


@every_broker
def test_every_recorded_record_is_written_as_it_was_read(pair: Pair) -> None:
    for record_ in kept(pair).records:
        check_record(record_)


@every_pair
def test_acknowledgements_can_be_read_and_written_again(pair: Pair) -> None:
    said = [frame for frame in kept(pair).frames if frame.api.name in ("JoinGroup", "SyncGroup", "DescribeGroups")]
    assert said
    for frame in said:
        check_members(frame)


@every_pair
def test_every_group_api_was_recorded_both_ways(pair: Pair) -> None:
    kinds = {(arrow, name) for arrow, name, _ in kept(pair).kinds}
    assert {(arrow, name) for arrow in ("->", "<-") for name in GROUP_APIS} <= kinds
    assert {("->", "ListGroups"), ("<-", "DescribeGroups")} <= kinds


@every_broker
def test_brokers_write_the_record_versions_of_their_release(pair: Pair) -> None:
    assert kept(pair).record_kinds == AS_WRITTEN[pair.broker]


def test_no_recording_is_left_without_a_test() -> None:
    assert {pair.path for pair in (*PAIRS, *COMMITS_ONLY)} == set(recorded_frames.files())


@pytest.mark.real
@pytest.mark.nightly
@pytest.mark.timeout(600)
@every_broker
def test_a_new_recording_contains_the_same_kinds_of_lines(pair: Pair) -> None:
    """Ids, times and ports differ from run to run; the APIs and versions do not, and every byte is read and written."""
    require_releases(*pair.releases)
    if not pair.is_kraft:
        require_zookeeper()
    anew = record(pair)
    for frame in anew.frames:
        assert frame.written_again() == frame.data, frame.kind
        check_members(frame)
    for record_ in anew.records:
        check_record(record_)
    # A consumer that closes does not wait for the answer to LeaveGroup, so its connection may end before it.
    last_answer = {kind for kind in kept(pair).kinds if kind[:2] == ("<-", "LeaveGroup")}
    assert anew.kinds | last_answer == kept(pair).kinds
    assert anew.record_kinds == AS_WRITTEN[pair.broker]


def check_record(stored: OffsetsRecord) -> None:
    """A record of a known kind, byte for byte."""
    key, version = read_key(stored.key), version_of("key", stored.key)
    assert isinstance(key, OffsetCommitKey | GroupMetadataKey)
    assert write_key(key, version) == stored.key
    if stored.value is None:
        return
    version = value_version(stored.value)
    if isinstance(key, OffsetCommitKey):
        assert write_offset_value(read_offset_value(stored.value), version) == stored.value
        return
    group = read_group_value(stored.value)
    assert write_group_value(group, version) == stored.value
    check_stored_members(group)


def check_stored_members(group: GroupMetadataValue) -> None:
    for member in group.members:
        check_subscription(member.subscription)
        check_assignment(member.assignment)


def check_members(frame: Frame) -> None:
    """The bytes of consumers inside the bytes of the protocol."""
    body = frame.body()
    match frame.kind:
        case "->", "JoinGroup", _:
            subscriptions, assignments = [protocol.metadata for protocol in body.protocols], []
        case "<-", "JoinGroup", _:
            subscriptions, assignments = [member.metadata for member in body.members], []
        case "->", "SyncGroup", _:
            subscriptions, assignments = [], [row.assignment for row in body.assignments]
        case "<-", "SyncGroup", _:
            subscriptions, assignments = [], [body.assignment]
        case "<-", "DescribeGroups", _:
            members = [member for group in body.groups for member in group.members]
            subscriptions = [member.member_metadata for member in members]
            assignments = [member.member_assignment for member in members]
        case _:
            return
    for subscription in subscriptions:
        check_subscription(subscription)
    for assignment in assignments:
        check_assignment(assignment)


def check_subscription(data: bytes) -> None:
    if not data:
        return  # a group that is about to form has none yet
    read = decode_subscription(data)
    assert encode_subscription(read, version_of("subscription", data)) == data
    assert subscribed_topics(data) == read.topics


def check_assignment(data: bytes) -> None:
    if data:
        assert encode_assignment(decode_assignment(data), version_of("assignment", data)) == data
