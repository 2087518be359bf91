"""Records of __consumer_offsets: bytes of real brokers, every version, and what cannot be read."""

from __future__ import annotations

import pytest

from zkconsumer.errors import RemoteProtocolError, UsageError
from zkconsumer.wire.group_records import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    GroupRecordKey,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownRecordKey,
    read_group_value,
    read_key,
    read_offset_value,
    value_version,
    write_group_value,
    write_key,
    write_offset_value,
)

OFFSET = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=5)
TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ("0000 0002 6731 0001 74 00000003", OffsetCommitKey("g1", "t", 3)),
        ("0001 0002 6731 0001 74 00000003", OffsetCommitKey("g1", "t", 3)),
        ("0002 0002 6731", GroupMetadataKey("g1")),
        ("0003 anything", UnknownRecordKey(3)),
        ("000b", UnknownRecordKey(11)),
    ],
)
def test_a_key_says_what_the_record_is_about(data: str, key: GroupRecordKey) -> None:
    assert read_key(bytes.fromhex(data.replace("anything", "beef"))) == key


def test_keys_are_written_as_brokers_write_them() -> None:
    assert write_key(GroupMetadataKey("g1")) == bytes.fromhex("000200026731")
    key = OffsetCommitKey("g1", "t", 3)
    assert write_key(key) == bytes.fromhex("0001 0002 6731 0001 74 00000003"), "0.9 and later"
    assert write_key(key, 0) == bytes.fromhex("0000 0002 6731 0001 74 00000003"), "0.8.2"


def test_an_offset_is_written_as_java_writes_it() -> None:
    golden = bytes.fromhex("00030000000000000007ffffffff00016d0000000000000005")
    assert write_offset_value(OFFSET) == golden
    assert read_offset_value(golden) == OFFSET


@pytest.mark.parametrize(
    ("version", "value", "data"),
    [
        (0, OFFSET, "0000 0000000000000007 0001 6d 0000000000000005"),
        (
            1,
            OffsetCommitValue(offset=7, metadata="m", commit_timestamp=5, expire_timestamp=9),
            "0001 0000000000000007 0001 6d 0000000000000005 0000000000000009",
        ),
        (2, OFFSET, "0002 0000000000000007 0001 6d 0000000000000005"),
        (
            3,
            OffsetCommitValue(offset=7, leader_epoch=4, metadata="m", commit_timestamp=5),
            "0003 0000000000000007 00000004 0001 6d 0000000000000005",
        ),
        (
            4,
            OffsetCommitValue(offset=7, leader_epoch=4, metadata="m", commit_timestamp=5, topic_id=TOPIC_ID),
            "0004 0000000000000007 00000004 02 6d 0000000000000005 01 00 10 000102030405060708090a0b0c0d0e0f",
        ),
        (4, OFFSET, "0004 0000000000000007 ffffffff 02 6d 0000000000000005 00"),
    ],
)
def test_every_version_of_an_offset(version: int, value: OffsetCommitValue, data: str) -> None:
    assert read_offset_value(bytes.fromhex(data)) == value
    assert write_offset_value(value, version) == bytes.fromhex(data)
    assert value_version(bytes.fromhex(data)) == version


def test_an_offset_with_an_expiry_time_is_written_in_the_one_version_that_can_say_it() -> None:
    value = OffsetCommitValue(offset=7, commit_timestamp=5, expire_timestamp=9)
    assert value_version(write_offset_value(value)) == 1
    for version in (0, 2, 3, 4):
        with pytest.raises(UsageError, match=f"expire_timestamp is 9, which version {version} cannot contain"):
            write_offset_value(value, version)


def a_group(version: int) -> GroupMetadataValue:
    member = GroupMetadataMember(
        member_id="m",
        group_instance_id="i" if version >= 3 else None,
        client_id="c",
        client_host="/h",
        rebalance_timeout=6 if version >= 1 else -1,
        session_timeout=5,
        subscription=b"\x00\x00S",
        assignment=b"",
    )
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=2,
        protocol="range",
        leader="m",
        current_state_timestamp=9 if version >= 2 else -1,
        members=[member],
    )


HEAD = "0008 636f6e73756d6572 00000002 0005 72616e6765 0001 6d "
MEMBER_END = "00000005 00000003 000053 00000000"
STATE_TIME = "0000000000000009 "


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (0, "0000 " + HEAD + "00000001 0001 6d 0001 63 0002 2f68 " + MEMBER_END),
        (1, "0001 " + HEAD + "00000001 0001 6d 0001 63 0002 2f68 00000006 " + MEMBER_END),
        (2, "0002 " + HEAD + STATE_TIME + "00000001 0001 6d 0001 63 0002 2f68 00000006 " + MEMBER_END),
        (3, "0003 " + HEAD + STATE_TIME + "00000001 0001 6d 0001 69 0001 63 0002 2f68 00000006 " + MEMBER_END),
        (
            4,
            "0004 09 636f6e73756d6572 00000002 06 72616e6765 02 6d " + STATE_TIME + "02 02 6d 02 69 02 63 03 2f68 "
            "00000006 00000005 04 000053 01 00 00",
        ),
    ],
)
def test_every_version_of_a_group(version: int, data: str) -> None:
    assert read_group_value(bytes.fromhex(data)) == a_group(version)
    assert write_group_value(a_group(version), version) == bytes.fromhex(data)
    assert value_version(bytes.fromhex(data)) == version


def test_a_group_without_members_has_no_protocol_and_no_leader() -> None:
    empty = GroupMetadataValue(protocol_type="consumer", generation=3, current_state_timestamp=1)
    written = write_group_value(empty)
    assert value_version(written) == 3
    assert read_group_value(written) == empty


def test_a_tag_from_the_future_is_passed_over() -> None:
    newer = bytes.fromhex("0004 0000000000000007 ffffffff 02 6d 0000000000000005 01 07 02 beef")
    assert read_offset_value(newer) == OFFSET


@pytest.mark.parametrize("data", ["", "00", "ffff", "0001 0002 67", "0002 0002 6731 00", "0000 0001 67 0001 74 0000"])
def test_a_key_that_cannot_be_read_is_a_protocol_error(data: str) -> None:
    with pytest.raises(RemoteProtocolError, match="group record key"):
        read_key(bytes.fromhex(data))


@pytest.mark.parametrize(
    "data", ["", "0005", "ffff 00", "0003 00", "0000 0000000000000007 0001 6d 0000000000000005 00"]
)
def test_an_offset_that_cannot_be_read_is_a_protocol_error(data: str) -> None:
    with pytest.raises(RemoteProtocolError, match="offset record"):
        read_offset_value(bytes.fromhex(data))


@pytest.mark.parametrize("data", ["", "0005", "ffff 00", "0003 00", "0000 " + HEAD + "7fffffff"])
def test_a_group_that_cannot_be_read_is_a_protocol_error(data: str) -> None:
    with pytest.raises(RemoteProtocolError, match="group record"):
        read_group_value(bytes.fromhex(data))


def test_what_cannot_be_written_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="offset record v5 is not written here, only v0 to v4"):
        write_offset_value(OFFSET, 5)
    with pytest.raises(UsageError, match="the key of a group has version 2, not 1"):
        write_key(GroupMetadataKey("g"), 1)
    with pytest.raises(UsageError, match="field group has 40000 bytes"):
        write_key(GroupMetadataKey("g" * 40_000))
    with pytest.raises(UsageError, match="field partition cannot be"):
        write_key(OffsetCommitKey("g", "t", 2**31))
