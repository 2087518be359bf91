"""One group and one member: states, protocols, members, and what is counted."""

from __future__ import annotations

import pytest

from bridge.coordinator.delayed_join import InitialDelayedJoin
from bridge.coordinator.group_metadata import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    GroupMetadata,
    GroupState,
)
from bridge.coordinator.member_metadata import DelayedRequest, MemberMetadata, Protocols
from bridge.coordinator.pending_offset_commits import PendingOffsetCommits
from zkconsumer.errors import InternalError
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import Subscription, encode_subscription

WAYS = {
    EMPTY: [],
    PREPARING_REBALANCE: [PREPARING_REBALANCE],
    COMPLETING_REBALANCE: [PREPARING_REBALANCE, COMPLETING_REBALANCE],
    STABLE: [PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE],
    DEAD: [DEAD],
}
"""State → how a new group gets there."""

LEGAL = {
    (EMPTY, PREPARING_REBALANCE),
    (PREPARING_REBALANCE, COMPLETING_REBALANCE),
    (PREPARING_REBALANCE, EMPTY),
    (COMPLETING_REBALANCE, STABLE),
    (COMPLETING_REBALANCE, PREPARING_REBALANCE),
    (STABLE, PREPARING_REBALANCE),
    *((state, DEAD) for state in GroupState),
}
PAIRS = [(before, after) for before in GroupState for after in GroupState]


def group_in(state: GroupState) -> GroupMetadata:
    group = GroupMetadata("g", 0)
    for step in WAYS[state]:
        group.transition_to(step, 1)
    return group


def member(
    member_id: str = "m",
    protocols: Protocols = (("range", b"r"),),
    *,
    instance: str | None = None,
    protocol_type: str = "consumer",
    rebalance_ms: int = 100,
) -> MemberMetadata:
    return MemberMetadata(member_id, instance, "client", "/host", rebalance_ms, 10, protocol_type, protocols)


def names(*protocols: str) -> Protocols:
    return tuple((protocol, b"") for protocol in protocols)


# --- states ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair in LEGAL])
def test_a_group_goes_the_ways_that_there_are(before: GroupState, after: GroupState) -> None:
    group = group_in(before)
    group.transition_to(after, 7)
    assert (group.state, group.previous_state, group.current_state_timestamp) == (after, before, 7)


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair not in LEGAL])
def test_a_group_goes_no_other_way(before: GroupState, after: GroupState) -> None:
    group = group_in(before)
    with pytest.raises(InternalError, match=f"from {before.value} to {after.value}"):
        group.transition_to(after, 7)
    assert group.state is before


@pytest.mark.parametrize("state", GroupState)
def test_a_rebalance_begins_in_a_state_that_is_none(state: GroupState) -> None:
    assert group_in(state).can_rebalance == (state in (EMPTY, STABLE, COMPLETING_REBALANCE))


# --- protocols -------------------------------------------------------------------------------------------------------


def test_members_choose_what_most_of_them_like_best() -> None:
    group = GroupMetadata("g", 0)
    group.add(member("a", names("range", "roundrobin")))
    assert group.select_protocol() == "range"
    group.add(member("b", names("roundrobin", "range")))
    # As many votes for both: the first member's counts.
    assert group.select_protocol() == "range"
    group.add(member("c", names("roundrobin", "range")))
    assert group.select_protocol() == "roundrobin"


def test_a_group_without_members_chooses_nothing() -> None:
    with pytest.raises(InternalError, match="no members"):
        GroupMetadata("g", 0).select_protocol()


def test_members_choose_what_all_of_them_can() -> None:
    group = GroupMetadata("g", 0)
    group.add(member("a", names("range", "roundrobin")))
    group.add(member("b", names("roundrobin", "blah")))
    assert group.select_protocol() == "roundrobin"


def test_a_newcomer_needs_one_protocol_that_all_can() -> None:
    group = GroupMetadata("g", 0)
    assert group.supports_protocols("consumer", names("anything"))
    group.add(member("a", names("range", "roundrobin")))
    group.transition_to(PREPARING_REBALANCE, 1)
    assert group.supports_protocols("consumer", names("roundrobin", "foo"))
    assert group.supports_protocols("consumer", names("range", "foo"))
    assert not group.supports_protocols("consumer", names("foo", "bar"))
    assert not group.supports_protocols("connect", names("range"))
    group.add(member("b", names("roundrobin", "range")))
    group.add(member("c", names("roundrobin")))
    assert group.supports_protocols("consumer", names("roundrobin", "foo"))
    assert not group.supports_protocols("consumer", names("range", "foo"))
    group.remove("c")
    assert group.supports_protocols("consumer", names("range", "foo"))


def test_what_consumers_read_is_known_once_they_have_a_protocol() -> None:
    group = GroupMetadata("g", 0)
    assert group.subscribed_topics is None
    assert group.is_subscribed_to_topic("x")
    for name, topics in (("a", ("foo",)), ("b", ("bar", "foo"))):
        group.add(member(name, (("range", encode_subscription(Subscription(topics))),)))
    group.transition_to(PREPARING_REBALANCE, 1)
    group.init_next_generation(2)
    assert group.subscribed_topics == {"foo", "bar"}
    assert not group.is_subscribed_to_topic("x")
    for name in ("a", "b"):
        group.remove(name)
    group.transition_to(PREPARING_REBALANCE, 3)
    group.init_next_generation(4)
    assert group.subscribed_topics == frozenset()


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\x7f\xff\xff\xff"])
def test_what_consumers_read_is_unknown_if_one_does_not_say_it_readably(metadata: bytes) -> None:
    group = GroupMetadata("g", 0)
    group.add(member("a", (("range", encode_subscription(Subscription(("foo",)))),)))
    group.add(member("b", (("range", metadata),)))
    group.transition_to(PREPARING_REBALANCE, 1)
    group.init_next_generation(2)
    assert group.subscribed_topics is None
    assert group.is_subscribed_to_topic("x")


def test_what_others_than_consumers_read_is_not_looked_at() -> None:
    group = GroupMetadata("g", 0)
    group.add(member("a", (("range", encode_subscription(Subscription(("foo",)))),), protocol_type="connect"))
    group.transition_to(PREPARING_REBALANCE, 1)
    group.init_next_generation(2)
    assert group.subscribed_topics is None


# --- generations -----------------------------------------------------------------------------------------------------


def test_the_next_generation_has_a_protocol_and_waits_for_its_leader() -> None:
    group = GroupMetadata("g", 0)
    group.add(member("a", names("roundrobin")), DelayedRequest(1, 3))
    group.transition_to(PREPARING_REBALANCE, 1)
    assert (group.generation_id, group.protocol_name) == (0, None)
    group.init_next_generation(2)
    assert (group.generation_id, group.protocol_name, group.state) == (1, "roundrobin", COMPLETING_REBALANCE)


def test_the_next_generation_of_nobody_is_empty() -> None:
    group = GroupMetadata("g", 0)
    group.transition_to(PREPARING_REBALANCE, 1)
    group.init_next_generation(2)
    assert (group.generation_id, group.protocol_name, group.state) == (1, None, EMPTY)


def test_the_next_generation_waits_for_no_sync_of_the_one_before() -> None:
    group = GroupMetadata("g", 0)
    group.add(member("a"))
    group.pending_sync_members["a"] = None
    group.transition_to(PREPARING_REBALANCE, 1)
    group.init_next_generation(2)
    assert group.pending_sync_members == {}


def test_the_rebalance_timeout_is_the_greatest_of_all_members() -> None:
    group = GroupMetadata("g", 0)
    assert group.rebalance_timeout_ms == 0
    group.add(member("a", rebalance_ms=5))
    group.add(member("b", rebalance_ms=7))
    assert group.rebalance_timeout_ms == 7


@pytest.mark.parametrize(
    ("step", "timeout", "delays"), [(50, 500, [50] * 10), (3, 10, [3, 3, 3, 1]), (50, 20, [50]), (0, 10, [0] * 5)]
)
def test_the_initial_delays_together_are_no_longer_than_the_rebalance_timeout(
    step: int, timeout: int, delays: list[int]
) -> None:
    wait: InitialDelayedJoin | None = InitialDelayedJoin.first(step, timeout)
    seen = []
    while wait is not None and len(seen) < len(delays) + 1:
        seen.append(wait.delay_ms)
        wait = wait.extended()
    assert seen[: len(delays)] == delays
    assert step == 0 or len(seen) == len(delays)


# --- members ---------------------------------------------------------------------------------------------------------


def test_a_member_says_something_else_of_itself() -> None:
    group = GroupMetadata("g", 0)
    one = member("a", names("range"))
    group.add(one)
    group.update_member(one, names("roundrobin"), 20, 30)
    assert (one.supported_protocols, one.rebalance_timeout_ms, one.session_timeout_ms) == (names("roundrobin"), 20, 30)
    group.transition_to(PREPARING_REBALANCE, 1)
    assert group.supports_protocols("consumer", names("roundrobin"))
    assert not group.supports_protocols("consumer", names("range"))


def test_a_member_that_there_is_not_cannot_be_replaced() -> None:
    with pytest.raises(InternalError, match="no member nobody"):
        GroupMetadata("g", 0).replace_static_member("i", "nobody", "new")


def test_a_static_member_is_replaced_with_all_that_it_has() -> None:
    group = GroupMetadata("g", 0)
    group.add(member("a", instance="i"))
    group.get("a").assignment = b"x"
    group.pending_sync_members["a"] = None
    assert group.is_leader("a")
    group.replace_static_member("i", "a", "b")
    assert (group.has("a"), group.has("b"), group.is_leader("b")) == (False, True, True)
    assert group.get("b").assignment == b"x"
    assert group.current_static_member_id("i") == "b"
    assert list(group.pending_sync_members) == ["b"]


def test_parked_joins_are_counted() -> None:
    group = GroupMetadata("g", 0)
    one, other = member("a"), member("b")
    group.add(one, DelayedRequest(1, 3))
    group.add(other)
    assert (group.num_members_awaiting_join, group.has_all_members_joined) == (1, False)
    assert group.not_yet_rejoined_members() == [other]
    assert group.set_awaiting_join(other, DelayedRequest(2, 3)) is None
    assert (group.num_members_awaiting_join, group.has_all_members_joined) == (2, True)
    assert group.not_yet_rejoined_members() == []
    assert group.set_awaiting_join(other, DelayedRequest(3, 3)) == DelayedRequest(2, 3)
    assert group.num_members_awaiting_join == 2
    assert group.set_awaiting_join(one, None) == DelayedRequest(1, 3)
    assert group.set_awaiting_join(one, None) is None
    assert group.num_members_awaiting_join == 1
    group.remove("b")
    assert group.num_members_awaiting_join == 0


def test_a_group_with_pending_members_has_not_all_joined() -> None:
    group = GroupMetadata("g", 0)
    group.add(member("a"), DelayedRequest(1, 3))
    group.pending_members.add("b")
    assert not group.has_all_members_joined
    group.add(member("b"), DelayedRequest(2, 4))
    assert group.pending_members == set()
    assert group.has_all_members_joined


def test_a_pending_member_is_removed_like_a_member() -> None:
    group = GroupMetadata("g", 0)
    group.pending_members.add("a")
    group.remove("a")
    assert group.pending_members == set()


def test_a_static_member_is_in_a_group_once() -> None:
    group = GroupMetadata("g", 0)
    group.add(member("a", instance="i"))
    with pytest.raises(InternalError, match="static member i"):
        group.add(member("b", instance="i"))
    group.remove("a")
    group.add(member("b", instance="i"))


def test_a_member_that_goes_is_not_waited_for_to_sync() -> None:
    group = GroupMetadata("g", 0)
    group.add(member("a"))
    group.pending_sync_members["a"] = None
    group.remove("a")
    assert group.pending_sync_members == {}


def test_the_first_member_leads_and_then_the_next() -> None:
    group = GroupMetadata("g", 0)
    for name in ("a", "b", "c"):
        group.add(member(name))
    assert group.is_leader("a")
    group.remove("a")
    assert group.is_leader("b")
    group.remove("c")
    assert group.is_leader("b")
    group.remove("b")
    assert group.leader_id is None


def test_a_leader_that_has_not_joined_is_succeeded_by_the_first_that_has() -> None:
    group = GroupMetadata("g", 0)
    assert not group.maybe_elect_new_joined_leader()
    for name in ("a", "b", "c"):
        group.add(member(name, instance=name))
    assert not group.maybe_elect_new_joined_leader()
    group.set_awaiting_join(group.get("c"), DelayedRequest(1, 3))
    assert group.maybe_elect_new_joined_leader()
    assert group.is_leader("c")


def test_the_last_member_s_protocol_type_does_not_bind_the_next() -> None:
    group = GroupMetadata("g", 0)
    group.add(member("a"))
    group.remove("a")
    group.add(member("b", protocol_type="connect"))
    assert group.protocol_type == "connect"


# --- offsets under way -----------------------------------------------------------------------------------------------


def test_offsets_under_way_are_known_until_their_last_append_is_settled() -> None:
    at = TopicPartition("t", 0)
    group = GroupMetadata("g", 0)
    group.pending_offset_commits.stage(1, [at])
    group.pending_offset_commits.stage(2, [at])
    assert at in group.pending_offset_commits
    group.pending_offset_commits.complete(2, [at])
    assert at in group.pending_offset_commits
    group.pending_offset_commits.complete(1, [at])
    assert at not in group.pending_offset_commits
    assert not PendingOffsetCommits()


# --- a member --------------------------------------------------------------------------------------------------------


def test_a_member_is_unchanged_if_all_its_protocols_are_in_their_order() -> None:
    one = member(protocols=(("range", b"1"), ("roundrobin", b"2")))
    assert one.matches((("range", b"1"), ("roundrobin", b"2")))
    assert not one.matches((("range", b"1"), ("roundrobin", b"3")))
    assert not one.matches((("roundrobin", b"2"), ("range", b"1")))
    assert not one.matches((("range", b"1"),))


def test_a_member_votes_for_the_candidate_that_it_likes_best() -> None:
    one = member(protocols=names("range", "roundrobin"))
    assert one.vote({"range", "roundrobin"}) == "range"
    assert one.vote({"blah", "roundrobin"}) == "roundrobin"


def test_a_member_has_metadata_in_each_protocol() -> None:
    one = member(protocols=(("range", b"1"), ("roundrobin", b"2")))
    assert (one.metadata("range"), one.metadata("roundrobin")) == (b"1", b"2")


def test_a_member_has_no_metadata_and_no_vote_in_a_protocol_that_it_does_not_speak() -> None:
    one = member(protocols=names("range"))
    with pytest.raises(StopIteration):
        one.metadata("blah")
    with pytest.raises(StopIteration):
        one.vote({"blah"})


def test_a_static_member_has_an_instance_id() -> None:
    assert member(instance="i").is_static_member
    assert not member().is_static_member


def test_a_parked_request_shows_that_a_member_lives_unless_it_is_new() -> None:
    one = member()
    assert not one.has_satisfied_heartbeat
    one.awaiting_sync = DelayedRequest(1, 3)
    assert one.has_satisfied_heartbeat
    one.awaiting_sync, one.awaiting_join = None, DelayedRequest(1, 3)
    assert one.has_satisfied_heartbeat
    one.is_new = True
    assert not one.has_satisfied_heartbeat
