"""What the assignors promise, group by group, where a reader can follow it; and where Kafka's are not followed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bridge.client.assignors import (
    ASSIGNORS,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from bridge.client.assignors.java_order import hash_order, text_order
from bridge.client.assignors.owned import MemberData
from bridge.client.assignors.user_data import decode_generation, decode_previous, encode_generation, encode_previous
from zkconsumer.kafka.group.partition_assignor import (
    Assignment,
    ConsumerPartitionAssignor,
    RebalanceProtocol,
    Subscription,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire.java_hash import java_hash


def tp(text: str) -> TopicPartition:
    return TopicPartition(text[0], int(text[1:]))


def parts(text: str) -> tuple[TopicPartition, ...]:
    return tuple(tp(each) for each in text.split())


def shares(
    assignor: ConsumerPartitionAssignor,
    topics: Mapping[str, int],
    members: Mapping[str, Subscription],
    racks: Mapping[str, str] | None = None,
) -> dict[str, str]:
    near = {tp(each): frozenset(on.split()) for each, on in (racks or {}).items()}
    done = assignor.assign(topics, members, near)
    return {member: " ".join(f"{t}{n}" for t, n in each.partitions) for member, each in done.items()}


def wants(topics: str, rack: str | None = None, instance: str | None = None) -> Subscription:
    return Subscription(tuple(topics.split()), rack_id=rack, group_instance_id=instance)


def has(topics: str, owned: str, generation: int = 5) -> Subscription:
    """A member of ``cooperative-sticky``."""
    return Subscription(tuple(topics.split()), None, parts(owned), generation)


def had(topics: str, owned: str, generation: int = 5) -> Subscription:
    """A member of ``sticky``."""
    return Subscription(tuple(topics.split()), encode_previous(parts(owned), generation))


def test_range_gives_neighbours_to_the_same_member_and_what_is_over_to_the_first() -> None:
    members = {"b": wants("x y"), "a": wants("x y"), "c": wants("x")}
    assert shares(RangeAssignor(), {"x": 7, "y": 3}, members) == {
        "a": "x0 x1 x2 y0 y1",
        "b": "x3 x4 y2",
        "c": "x5 x6",
    }


def test_roundrobin_passes_over_who_does_not_want_a_topic() -> None:
    members = {"a": wants("x y"), "b": wants("y")}
    assert shares(RoundRobinAssignor(), {"x": 2, "y": 3}, members) == {"a": "x0 x1 y1", "b": "y0 y2"}


@pytest.mark.parametrize("assignor", [RangeAssignor, RoundRobinAssignor])
def test_static_members_come_first_and_stay_where_they_were_when_their_member_ids_change(
    assignor: type[ConsumerPartitionAssignor],
) -> None:
    before = {"z": wants("x", instance="i1"), "y": wants("x", instance="i2"), "a": wants("x")}
    after = {"p": wants("x", instance="i1"), "q": wants("x", instance="i2"), "a": wants("x")}
    first, second = shares(assignor(), {"x": 7}, before), shares(assignor(), {"x": 7}, after)
    assert (first["z"], first["y"], first["a"]) == (second["p"], second["q"], second["a"])
    assert first["z"].startswith("x0")


def test_range_gives_what_is_near_and_topics_of_one_size_alike() -> None:
    members = {"a": wants("x y", "r2"), "b": wants("x y", "r1")}
    racks = {"x0": "r1", "x1": "r2", "y0": "r1", "y1": "r2"}
    assert shares(RangeAssignor(), {"x": 2, "y": 2}, members, racks) == {"a": "x1 y1", "b": "x0 y0"}


def test_racks_count_for_nothing_when_every_partition_is_on_each() -> None:
    members = {"a": wants("x", "r2"), "b": wants("x", "r1")}
    assert shares(RangeAssignor(), {"x": 2}, members, {"x0": "r1 r2", "x1": "r1 r2"}) == {
        "a": "x0",
        "b": "x1",
    }


def test_sticky_keeps_what_it_can_and_evens_out_the_rest() -> None:
    members = {"a": had("x", "x0 x1 x2"), "b": had("x", "x3 x4 x5"), "c": wants("x")}
    done = shares(StickyAssignor(), {"x": 6}, members)
    assert done == {"a": "x0 x1", "b": "x3 x4", "c": "x2 x5"}


def test_a_cooperative_partition_that_moves_is_given_to_nobody_before_it_is_given_back() -> None:
    members = {"a": has("x", "x0 x1"), "b": has("x", "", -1)}
    assert shares(CooperativeStickyAssignor(), {"x": 2}, members) == {"a": "x0", "b": ""}
    members = {"a": has("x", "x0", 6), "b": has("x", "", 6)}
    assert shares(CooperativeStickyAssignor(), {"x": 2}, members) == {"a": "x0", "b": "x1"}


def test_the_partitions_of_a_member_that_sends_no_generation_stay_its_own() -> None:
    """As librdkafka's members.  Java's leaders of 2.8.1 to 3.3 assign such partitions to others at once."""
    members = {"first": has("x", "x1 x6", -1), "third": has("x", "x3 x5", 7)}
    done = shares(CooperativeStickyAssignor(), {"x": 7}, members)
    assert done == {"first": "x1 x6 x0 x4", "third": "x3 x5 x2"}, "the same as Java's 3.4.1 and later"


def test_of_two_that_claim_a_partition_the_later_generation_is_believed() -> None:
    members = {"a": has("x", "x0 x1", 5), "b": has("x", "x1", 6)}
    assert shares(CooperativeStickyAssignor(), {"x": 2}, members) == {"a": "x0", "b": "x1"}


def test_of_two_that_claim_a_partition_in_one_generation_neither_is_believed() -> None:
    members = {"a": has("x", "x0", 5), "b": has("x", "x0", 5)}
    assert shares(CooperativeStickyAssignor(), {"x": 1}, members) == {"a": "", "b": ""}


@pytest.mark.parametrize("other", ["", "y"])
def test_a_partition_that_there_is_no_more_is_nobodys(other: str) -> None:
    # Kafka 3.9 takes t9 for owned: with alike members nobody gets t2, with others some get two owners.
    members = {"a": had("t", "t0 t9 t1"), "b": wants(f"t {other}".strip())}
    done = shares(StickyAssignor(), {"t": 3, "y": 1}, members)
    assert sorted(" ".join(done.values()).split()) == ["t0", "t1", "t2", *(["y0"] if other else [])]


def test_who_had_a_partition_once_and_does_not_want_it_any_more_does_not_get_it_back() -> None:
    members = {"a": had("y", "x0 x1", 4), "b": had("x", "x0 x1 x2 x3", 5), "c": wants("x")}
    done = shares(StickyAssignor(), {"x": 4, "y": 1}, members)
    assert done["a"] == "y0"
    assert sorted(f"{done['b']} {done['c']}".split()) == ["x0", "x1", "x2", "x3"]


def test_who_wants_no_topic_gets_nothing() -> None:
    # A pattern that matches none; Kafka gives such a member its part when it comes first.
    for name in ASSIGNORS:
        assert shares(ASSIGNORS[name](), {"x": 4}, {"a": wants(""), "b": wants("x")}) == {"a": "", "b": "x0 x1 x2 x3"}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_topic_that_there_is_not_gives_nothing(name: str) -> None:
    assert ASSIGNORS[name]().assign({}, {"a": wants("x")}) == {"a": Assignment()}


def test_the_user_data_of_sticky_is_javas() -> None:
    # Recorded from kafka-clients 3.9.1: members of one group read each other's.
    assert encode_previous(parts("x0 y1 x2"), 7).hex() == (
        "00000002000178000000020000000000000002000179000000010000000100000007"
    )
    assert encode_generation(7).hex() == "00000007"


def test_both_versions_of_the_user_data_of_sticky_are_read() -> None:
    data = encode_previous(parts("x0 y1"), 7)
    assert decode_previous(data) == MemberData(parts("x0 y1"), 7)
    assert decode_previous(data[:-4]) == MemberData(parts("x0 y1"), None)


@pytest.mark.parametrize("data", [b"\x00", b"\xff" * 9, b"\x7f\xff\xff\xff", b"\0\0\0\x01\0\x05abc"])
def test_user_data_that_cannot_be_read_says_that_the_member_had_nothing(data: bytes) -> None:
    assert decode_previous(data) == MemberData((), -1)
    assert decode_generation(data[:3]) == -1


def test_sticky_tells_what_it_was_given_and_cooperative_sticky_since_when() -> None:
    sticky, cooperative = StickyAssignor(), CooperativeStickyAssignor()
    assert sticky.subscription_user_data(frozenset("x")) is None
    assert cooperative.subscription_user_data(frozenset("x")) == encode_generation(-1)
    for each in (sticky, cooperative):
        each.on_assignment(Assignment(parts("x0 x1")), 3)
    assert sticky.subscription_user_data(frozenset("x")) == encode_previous(parts("x0 x1"), 3)
    assert cooperative.subscription_user_data(frozenset("x")) == encode_generation(3)


def test_only_cooperative_sticky_is_cooperative() -> None:
    cooperative = {name for name in ASSIGNORS if RebalanceProtocol.COOPERATIVE in ASSIGNORS[name]().supported_protocols}
    assert cooperative == {"cooperative-sticky"}
    assert all(RebalanceProtocol.EAGER in ASSIGNORS[name]().supported_protocols for name in ASSIGNORS)


def test_a_hash_table_that_grew_is_walked_in_javas_order() -> None:
    # What Java 17 prints of a HashSet with m0 to m19, put in one after the other: 32 buckets.
    said = "m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m11, m10, m13, m12, m15, m14, m17, m16, m19, m18"
    assert hash_order([f"m{n}" for n in range(20)], java_hash) == said.split(", ")


def test_ids_are_compared_as_java_compares_them() -> None:
    # U+FF5E sorts behind the surrogates of U+1F600, though its code point is smaller.
    assert sorted(["\uff5e", "\U0001f600"], key=text_order) == ["\U0001f600", "\uff5e"]


def test_a_thousand_members_with_different_topics_are_divided_in_time() -> None:
    topics = {f"t{n}": 20 for n in range(50)}
    names = sorted(topics)
    members = {f"m{n}": Subscription(tuple(names[n % 7 :])) for n in range(1_000)}
    done = StickyAssignor().assign(topics, members)
    assert sum(len(each.partitions) for each in done.values()) == 1_000
