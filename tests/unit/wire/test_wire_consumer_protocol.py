"""What consumers tell each other: the bytes of Java's own client, and how bytes of others are read."""

from __future__ import annotations

import pytest

from zkconsumer.errors import RemoteProtocolError, UsageError
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)

OWNED = (TopicPartition("t2", 1), TopicPartition("t1", 3), TopicPartition("t1", 0))
FULL = Subscription(("t2", "t1"), b"ud", OWNED, generation_id=7, rack_id="rackA")
TOPICS = "0000000200027431000274320000000275 64"
OWNED_BYTES = "0000000200027431000000020000000000000003000274320000000100000001"
GOLDEN_SUBSCRIPTIONS = [
    "0000" + TOPICS,
    "0001" + TOPICS + OWNED_BYTES,
    "0002" + TOPICS + OWNED_BYTES + "00000007",
    "0003" + TOPICS + OWNED_BYTES + "00000007 0005 7261636b41",
]
"""Written by the Java client 3.9.2; versions 0 to 3 of ``FULL``."""

SHARE = Assignment(OWNED)
GOLDEN_ASSIGNMENT = "00000002 0002 7432 00000001 00000001 0002 7431 00000002 00000003 00000000 ffffffff"


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_is_written_as_java_writes_it(version: int) -> None:
    assert encode_subscription(FULL, version) == bytes.fromhex(GOLDEN_SUBSCRIPTIONS[version])


def test_the_smallest_subscription_is_written_as_java_writes_it() -> None:
    golden = bytes.fromhex("00030000000100027431ffffffff00000000ffffffffffff")
    assert encode_subscription(Subscription(("t1",))) == golden
    assert decode_subscription(golden) == Subscription(("t1",))


@pytest.mark.parametrize("version", range(4))
def test_what_a_version_does_not_say_has_its_default(version: int) -> None:
    read = decode_subscription(bytes.fromhex(GOLDEN_SUBSCRIPTIONS[version]))
    owned = (TopicPartition("t1", 0), TopicPartition("t1", 3), TopicPartition("t2", 1))
    assert (read.topics, read.user_data) == (("t1", "t2"), b"ud")
    assert read.owned_partitions == (owned if version >= 1 else ())
    assert read.generation_id == (7 if version >= 2 else -1)
    assert read.rack_id == ("rackA" if version >= 3 else None)
    assert read.group_instance_id is None, "only the coordinator tells it"


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_is_the_same_in_every_version_but_for_the_number(version: int) -> None:
    golden = version.to_bytes(2, "big") + bytes.fromhex(GOLDEN_ASSIGNMENT)
    assert encode_assignment(SHARE, version) == golden
    assert decode_assignment(golden) == SHARE


def test_topics_of_an_assignment_stay_in_the_order_in_which_they_came_first() -> None:
    mixed = (TopicPartition("t2", 1), TopicPartition("t1", 3), TopicPartition("t2", 0))
    grouped = (TopicPartition("t2", 1), TopicPartition("t2", 0), TopicPartition("t1", 3))
    assert decode_assignment(encode_assignment(Assignment(mixed))) == Assignment(grouped)


def test_topics_are_sorted_by_utf_16_units_as_java_sorts_them() -> None:
    written = encode_subscription(Subscription(("\ue000", "\U0001f600", "b")), 0)
    assert decode_subscription(written).topics == ("b", "\U0001f600", "\ue000")


@pytest.mark.parametrize("version", [4, 0x7FFF])
def test_a_version_from_the_future_is_read_as_the_highest_known_one(version: int) -> None:
    newer = version.to_bytes(2, "big")
    more = b"and more"
    assert decode_subscription(newer + encode_subscription(FULL)[2:] + more) == decode_subscription(
        encode_subscription(FULL)
    )
    assert decode_assignment(newer + encode_assignment(SHARE)[2:] + more) == SHARE


def test_bytes_after_the_last_field_do_not_stop_a_group() -> None:
    """Java's reader does not look at them, so a leader of ours must not fail where Java's goes on."""
    assert decode_subscription(encode_subscription(FULL, 0) + b"x").topics == ("t1", "t2")
    assert decode_assignment(encode_assignment(SHARE, 0) + b"x") == SHARE


def test_no_bytes_at_all_are_no_partitions() -> None:
    assert decode_assignment(b"") == Assignment()
    assert encode_assignment(Assignment()) == bytes.fromhex("0003 00000000 ffffffff"), "never sent by a leader of ours"


def test_an_empty_rack_is_none() -> None:
    assert decode_subscription(encode_subscription(Subscription(("t",), rack_id=""))).rack_id is None


def test_topics_are_found_in_every_version_without_reading_the_rest() -> None:
    for golden in GOLDEN_SUBSCRIPTIONS:
        assert subscribed_topics(bytes.fromhex(golden)) == ("t1", "t2")
    broken_behind = bytes.fromhex("0003 00000001 0002 7431 ffffffff 7fffffff")
    assert subscribed_topics(broken_behind) == ("t1",)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("", "field version at byte 0: int16 takes 2 bytes, 0 left"),
        ("00", "field version at byte 0: int16 takes 2 bytes, 1 left"),
        ("ffff 00000000", "field version at byte 0: negative version -1"),
        (
            "0001 00000000 ffffffff",
            "subscription v1: field owned_partitions at byte 10: a length takes 4 bytes, 0 left",
        ),
        ("0000 7fffffff", "elements of at least 2 bytes announced, 0 bytes left"),
        ("0000 ffffffff ffffffff", "null array where this version has none"),
        ("0000 00000001 0001 ff 00000000", "not UTF-8"),
        ("0000 00000000 fffffffe", "field user_data at byte 6: negative length -2"),
    ],
)
def test_a_subscription_that_cannot_be_read_says_where(data: str, why: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_subscription(bytes.fromhex(data))
    assert why in str(caught.value)


@pytest.mark.parametrize("data", ["00", "ffff 00000000 ffffffff", "0000 00000001", "0003 00000000"])
def test_an_assignment_that_cannot_be_read_is_a_protocol_error(data: str) -> None:
    with pytest.raises(RemoteProtocolError, match="ConsumerProtocol assignment"):
        decode_assignment(bytes.fromhex(data))


def test_what_cannot_be_written_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="subscription v4 is not written here, only v0 to v3"):
        encode_subscription(FULL, 4)
    with pytest.raises(UsageError, match="assignment v-1 is not written here"):
        encode_assignment(SHARE, -1)
    with pytest.raises(UsageError, match="field topics"):
        encode_subscription(Subscription(("x" * 40_000,)))
    with pytest.raises(UsageError, match="field partitions cannot be"):
        encode_assignment(Assignment((TopicPartition("t", 2**31),)))
