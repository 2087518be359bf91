"""Groups of consumers: what ConsumerCoordinatorTest of Kafka holds for the classic protocols, in our own words."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.coordinator.client_harness import (
    HEARTBEAT_MS,
    POLL_MS,
    SESSION_MS,
    CooperativeDealer,
    Dealer,
    Member,
    T,
    U,
    coordinator,
    every,
    group_member,
    only,
)
from zkconsumer.errors import BrokerUnreachable, ConnectorClosed, InvalidConfigException, RemoteProtocolError
from zkconsumer.kafka.group import commands as do
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.assignments import COOPERATIVE_STICKY, select_rebalance_protocol
from zkconsumer.kafka.group.commands import Callback
from zkconsumer.kafka.group.errors import AssignorFailed, CommitFailedException, RebalanceCallbackFailed
from zkconsumer.kafka.group.generation import NO_GENERATION, MemberState
from zkconsumer.kafka.group.partition_assignor import Assignment, RebalanceProtocol, Subscription
from zkconsumer.member import ownership
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import decode_assignment, decode_subscription
from zkconsumer.wire.schemas import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT, SYNC_GROUP
from zkconsumer.wire.schemas.join_group import JoinGroupMember
from zkconsumer.wire.schemas.sync_group import SyncGroupResponse

ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE, NOT_AVAILABLE, NOT_COORDINATOR = 22, 25, 27, 15, 16
EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


@pytest.fixture(params=[Dealer, CooperativeDealer], ids=["eager", "cooperative"])
def member(request: pytest.FixtureRequest) -> Member:
    return Member(request.param())


def shares(member: Member) -> dict[str, tuple[TopicPartition, ...]]:
    """What the leader's SyncGroup tells everybody."""
    return {row.member_id: decode_assignment(row.assignment).partitions for row in member.sent(SYNC_GROUP).assignments}


def owned(member: Member) -> tuple[TopicPartition, ...]:
    """What the JoinGroup says that this member has."""
    return decode_subscription(member.sent(JOIN_GROUP).protocols[0].metadata).owned_partitions


def callbacks(commands: list[do.Command]) -> list[tuple[Callback, frozenset[TopicPartition]]]:
    return [(invoke.callback, invoke.partitions) for invoke in every(commands, do.Invoke)]


# --- assignors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocols", "chosen"),
    [
        ([[EAGER]], EAGER),
        ([[EAGER, COOPERATIVE]], COOPERATIVE),
        ([[EAGER, COOPERATIVE], [COOPERATIVE]], COOPERATIVE),
        ([[EAGER, COOPERATIVE], [EAGER]], EAGER),
    ],
)
def test_the_highest_common_protocol_is_spoken(protocols: list[list[RebalanceProtocol]], chosen: object) -> None:
    assignors = [Dealer(f"dealer{number}", each) for number, each in enumerate(protocols)]
    assert select_rebalance_protocol(assignors) is chosen


@pytest.mark.parametrize(
    "assignors",
    [[], [Dealer("a", [EAGER]), Dealer("b", [COOPERATIVE])], [Dealer("a"), Dealer("a")]],
    ids=["none", "nothing in common", "one name twice"],
)
def test_assignors_that_do_not_go_together_are_refused(assignors: list[Dealer]) -> None:
    with pytest.raises(InvalidConfigException):
        select_rebalance_protocol(assignors)


def test_a_join_tells_each_assignors_metadata_with_the_rack_and_what_is_owned() -> None:
    first, second = Dealer("first"), Dealer("second")
    first.user_data = b"data"
    member = Member(first, second, client_rack="rack-a")
    member.subscribe("u", "t")
    member.find()
    told = {row.name: decode_subscription(row.metadata) for row in member.sent(JOIN_GROUP).protocols}
    assert list(told) == ["first", "second"], "the best first"
    assert told["first"] == Subscription(("t", "u"), b"data", (), -1, "rack-a")
    assert told["second"].user_data is None


# --- joining --------------------------------------------------------------------------------------------------------


def test_a_leader_divides_and_takes_its_own_share(member: Member) -> None:
    member.subscribe()
    member.metadata(t=2)
    member.find()
    member.joined(leader="me")
    assert shares(member) == {"me": (T[0], T[1])}
    assert callbacks(member.synced(T[:2])) == [(Callback.ASSIGNED, frozenset(T[:2]))]
    assert only(member.returned(), do.StartPartitions).partitions == frozenset(T[:2])
    assert member.machine.leadership.is_leader
    (told,) = member.machine.assignors[0].told  # type: ignore[attr-defined]
    assert told == (Assignment((T[0], T[1])), 1)


def test_a_follower_asks_for_its_share(member: Member) -> None:
    member.subscribe()
    member.find()
    member.joined()
    assert member.sent(SYNC_GROUP).assignments == []
    assert callbacks(member.synced(T[:1])) == [(Callback.ASSIGNED, frozenset(T[:1]))]
    assert not member.machine.leadership.is_leader


def test_a_leader_divides_what_others_subscribe_to_and_asks_for_it_first(member: Member) -> None:
    member.subscribe()
    member.hear(ev.MetadataUpdated({"t": 1}, frozenset({"t"})))
    member.find()
    said = member.joined(leader="me", members=[group_member("me", "t"), group_member("you", "t", "u")])
    assert only(said, do.NeedMetadata).topics == frozenset("tu")
    assert not member.has_open(SYNC_GROUP)
    member.wait(HEARTBEAT_MS)
    assert member.has_open(HEARTBEAT), "it lives while it waits"
    member.hear(ev.MetadataUpdated({"t": 1, "u": 2}, frozenset("tu")))
    assert shares(member) == {"me": (T[0],), "you": (U[0], U[1])}


def test_a_leader_that_is_told_nothing_of_the_topics_gives_up_in_time(member: Member) -> None:
    member.subscribe()
    member.find()
    member.joined(leader="me")
    said: list[do.Command] = []
    for _ in range(2 * POLL_MS // HEARTBEAT_MS):
        said += member.wait(HEARTBEAT_MS)
        if every(said, do.Raise):
            break
        member.poll()
        member.beat()
    assert isinstance(only(said, do.Raise).error, BrokerUnreachable)
    assert member.now_ms <= POLL_MS


def test_a_leader_gives_a_member_that_the_assignor_left_out_an_empty_share() -> None:
    member = Member(Dealer(assign=lambda partitions, subscriptions: {"me": Assignment((T[0],))}))
    member.subscribe()
    member.metadata(t=1)
    member.find()
    member.joined(leader="me", members=[group_member("me", "t"), group_member("you", "t")])
    assert shares(member) == {"me": (T[0],), "you": ()}
    assert all(row.assignment for row in member.sent(SYNC_GROUP).assignments), "no bytes at all stop a Java client"


def test_a_leader_that_is_told_of_nobody_divides_nothing(member: Member) -> None:
    member.subscribe()
    member.find()
    member.joined(leader="me", members=[])
    assert shares(member) == {}
    assert callbacks(member.synced(T[:1])) == [(Callback.ASSIGNED, frozenset(T[:1]))]


def test_the_instance_ids_of_static_members_reach_the_assignor() -> None:
    dealer = Dealer()
    member = Member(dealer)
    member.subscribe()
    member.metadata(t=1)
    member.find()
    member.joined(leader="me", members=[group_member("me", "t", instance="one", rack_id="rack-b")])
    (seen,) = dealer.seen
    assert (seen["me"].group_instance_id, seen["me"].rack_id) == ("one", "rack-b")


def test_no_bytes_at_all_are_no_partitions_and_noted(member: Member) -> None:
    member.subscribe()
    member.find()
    member.joined()
    said = member.answer(SYNC_GROUP, SyncGroupResponse(assignment=b""))
    assert callbacks(said) == [(Callback.ASSIGNED, frozenset())]
    assert "assignment-missing" in [note.name for note in every(said, do.LogMemberEvent)]


def test_a_share_that_cannot_be_read_is_told_and_joined_again_with_the_next_call(member: Member) -> None:
    member.subscribe()
    member.find()
    member.joined()
    said = member.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"\0\0\0"))
    assert isinstance(only(said, do.Raise).error, RemoteProtocolError)
    member.wait(200)
    assert not member.has_open(JOIN_GROUP)
    member.poll()
    assert member.has_open(JOIN_GROUP)


def test_a_member_whose_metadata_cannot_be_read_stops_the_leader(member: Member) -> None:
    member.subscribe()
    member.metadata()
    member.find()
    said = member.joined(leader="me", members=[JoinGroupMember(member_id="me", metadata=b"\0\0\0\0\0\x09")])
    assert isinstance(only(said, do.Raise).error, RemoteProtocolError)
    assert not member.has_open(SYNC_GROUP)


def raising(partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
    raise KeyError("t")


@pytest.mark.parametrize(
    "assign",
    [raising, lambda partitions, subscriptions: {"stranger": Assignment((T[0],))}],
    ids=["raises", "gives to a stranger"],
)
def test_an_assignor_that_fails_is_told(assign: object) -> None:
    member = Member(Dealer(assign=assign))  # type: ignore[arg-type]
    member.subscribe()
    member.metadata()
    member.find()
    assert isinstance(only(member.joined(leader="me"), do.Raise).error, AssignorFailed)
    assert not member.has_open(SYNC_GROUP)


def test_an_assignor_that_nobody_has_is_told(member: Member) -> None:
    member.subscribe()
    member.metadata()
    member.find()
    said = member.joined(leader="me", protocol_name="unheard-of")
    assert isinstance(only(said, do.Raise).error, AssignorFailed)


def moved(name: str) -> Member:
    """A cooperative leader whose assignor moves a partition from one member to another in one step."""
    share = {"me": Assignment(()), "you": Assignment((T[0],))}
    member = Member(Dealer(name, [COOPERATIVE], lambda partitions, subscriptions: share))
    member.subscribe()
    member.metadata(t=1)
    member.find()
    rows = [group_member("me", "t", owned_partitions=(T[0],)), group_member("you", "t")]
    member.joined(leader="me", members=rows)
    return member


def test_a_partition_may_not_go_from_one_cooperative_member_to_another_at_once() -> None:
    member = moved("another")
    assert isinstance(only(member.said, do.Raise).error, AssignorFailed)
    assert not member.has_open(SYNC_GROUP)


def test_the_built_in_cooperative_assignor_is_not_looked_at() -> None:
    assert moved(COOPERATIVE_STICKY).has_open(SYNC_GROUP)


def test_a_topic_that_an_assignor_adds_causes_no_rebalance_of_its_own() -> None:
    member = Member(Dealer(assign=lambda partitions, subscriptions: {"me": Assignment((T[0], U[0]))}))
    member.subscribe("t", pattern="[tu]")
    member.metadata(t=1)
    member.find()
    member.joined(leader="me")
    member.synced([T[0], U[0]])
    member.returned()
    member.metadata(t=1, u=4)
    assert not member.has_open(JOIN_GROUP)


# --- what is there changes ------------------------------------------------------------------------------------------


def leader(member: Member, *topics: str) -> Member:
    """A stable leader, alone, of one topic with one partition."""
    member.subscribe(*topics or ("t",))
    member.metadata(t=1)
    member.find()
    member.joined(leader="me", members=[group_member("me", *topics or ("t",))])
    member.synced(T[:1])
    member.returned()
    return member


def next_join(member: Member) -> str:
    """The reason of the next JoinGroup; the program is told of what it gives back first."""
    while member.calls:
        member.returned()
    reason: str = member.sent(JOIN_GROUP).reason
    return reason


def test_a_leader_sees_that_a_topic_has_more_partitions(member: Member) -> None:
    leader(member).metadata(t=2)
    assert next_join(member) == "cached metadata has changed"
    member.joined(2, leader="me")
    assert shares(member) == {"me": (T[0], T[1])}


def test_a_follower_leaves_that_to_the_leader(member: Member) -> None:
    member.join(T[:1])
    member.metadata(t=9)
    assert not member.calls
    assert not member.has_open(JOIN_GROUP)


def test_a_member_that_leads_no_more_needs_only_its_own_topics_until_it_leads_again(member: Member) -> None:
    both = frozenset({"t", "u"})
    members = [group_member("me", "t"), group_member("you", "u")]
    member.subscribe()
    member.hear(ev.MetadataUpdated({"t": 1}, frozenset("t")))
    member.find()
    assert do.NeedMetadata(both) in member.joined(1, leader="me", members=members)
    member.hear(ev.MetadataUpdated({"t": 1, "u": 1}, both))
    member.synced(T[:1])
    member.returned()
    member.beat(27)
    next_join(member)
    member.joined(2, leader="you")
    assert do.NeedMetadata(frozenset("t")) in member.synced(T[:1])
    member.returned()
    member.beat(27)
    next_join(member)
    assert do.NeedMetadata(both) in member.joined(3, leader="me", members=members)
    assert not member.has_open(SYNC_GROUP), "what it knew of the other topic may be old"
    member.hear(ev.MetadataUpdated({"t": 1, "u": 2}, both))
    assert shares(member) == {"me": (T[0],), "you": (U[0], U[1])}


@pytest.mark.parametrize("counts", [{"t": 1, "x": 7}, {"t": 1}])
def test_a_leader_does_not_care_for_topics_that_nobody_reads(member: Member, counts: dict[str, int]) -> None:
    leader(member).metadata(**counts)
    assert not member.has_open(JOIN_GROUP)
    assert not member.calls


def on_racks(*racks: str) -> ev.MetadataUpdated:
    """One partition, with a replica on each of these."""
    return ev.MetadataUpdated({"t": 1}, None, {T[0]: frozenset(racks)})


def racked(rack: str | None) -> Member:
    """A stable leader of a partition on the racks a and b."""
    member = Member(**({} if rack is None else {"client_rack": rack}))  # type: ignore[arg-type]
    member.subscribe()
    member.hear(on_racks("a", "b"))
    member.find()
    member.joined(leader="me")
    member.synced(T[:1])
    member.returned()
    return member


@pytest.mark.parametrize("racks", [("a", "b", "c"), ("a", "c"), ("a",)], ids=["more", "others", "fewer"])
def test_a_leader_with_a_rack_sees_that_replicas_moved_to_other_racks(racks: tuple[str, ...]) -> None:
    member = racked("a")
    member.hear(on_racks(*racks))
    assert next_join(member) == "cached metadata has changed"


def test_a_leader_with_a_rack_stays_while_the_racks_are_the_same() -> None:
    member = racked("a")
    member.hear(on_racks("b", "a"))
    assert not member.calls
    assert not member.has_open(JOIN_GROUP)


def test_a_leader_without_a_rack_does_not_care_where_replicas_are() -> None:
    member = racked(None)
    member.hear(on_racks("c"))
    assert not member.calls
    assert not member.has_open(JOIN_GROUP)


def test_what_changes_in_the_middle_of_a_rebalance_causes_the_next_one(member: Member) -> None:
    member.subscribe()
    member.metadata(t=1)
    member.find()
    member.joined(leader="me")
    member.metadata(t=2)
    member.synced(T[:1])
    assert next_join(member) == "cached metadata has changed"


def test_a_topic_that_goes_and_comes_back_before_a_join_that_fails_is_repeated_costs_nothing(member: Member) -> None:
    leader(member)
    member.hear(ev.MetadataUpdated({}))
    assert next_join(member) == "cached metadata has changed"
    member.metadata(t=1)
    member.join_refused(NOT_COORDINATOR)
    member.wait(100)
    member.find()
    assert member.sent(JOIN_GROUP).member_id == "me"
    member.joined(2, leader="me")
    member.synced(T[:1])
    member.returned()
    assert member.machine.assigned == frozenset(T[:1])
    assert Callback.LOST not in [callback for callback, _ in callbacks(member.said)]
    assert not member.has_open(JOIN_GROUP)


def test_a_topic_that_comes_later_is_divided_when_it_is_there(member: Member) -> None:
    member.subscribe("t", "u")
    member.metadata(t=1)
    member.find()
    member.joined(leader="me", members=[group_member("me", "t", "u")])
    assert shares(member) == {"me": (T[0],)}
    member.synced(T[:1])
    member.returned()
    member.metadata(t=1, u=1)
    next_join(member)
    member.joined(2, leader="me", members=[group_member("me", "t", "u")])
    assert shares(member) == {"me": (T[0], U[0])}


def test_a_topic_that_goes_is_divided_no_more(member: Member) -> None:
    leader(member)
    member.hear(ev.MetadataUpdated({}))
    assert next_join(member) == "cached metadata has changed"
    member.joined(2, leader="me")
    assert shares(member) == {"me": ()}


@pytest.mark.parametrize("skips", [False, True])
def test_a_static_leader_that_came_back_watches_the_topics_also_when_the_share_stands(skips: bool) -> None:
    member = Member(group_instance_id="one")
    member.subscribe()
    member.metadata(t=1)
    member.find()
    rows = [group_member("me", "t"), group_member("you", "t", "u")]
    member.metadata(t=1, u=1)
    member.joined(3, leader="me", members=rows, skip_assignment=skips)
    assert bool(shares(member)) != skips
    member.synced(T[:1])
    member.returned()
    member.metadata(t=1, u=2)
    assert next_join(member) == "cached metadata has changed"


def test_a_static_leader_whose_share_stands_sees_what_changed_while_it_was_out() -> None:
    member = Member(group_instance_id="one")
    leader(member)
    member.beat(UNKNOWN_MEMBER)
    member.metadata(t=2)
    next_join(member)
    member.joined(1, leader="me", skip_assignment=True)
    member.synced(T[:1])
    assert next_join(member) == "cached metadata has changed"


def test_a_share_that_stands_again_is_not_asked_about_a_second_time() -> None:
    member = Member(group_instance_id="one")
    leader(member)
    member.beat(UNKNOWN_MEMBER)
    member.metadata(t=2)
    next_join(member)
    for _ in range(2):
        member.joined(1, leader="me", skip_assignment=True)
        member.synced(T[:1])
        while member.calls:
            member.returned()
    assert not member.has_open(JOIN_GROUP)


def test_a_leader_of_nobody_watches_nothing(member: Member) -> None:
    leader(member)
    member.beat(REBALANCE)
    next_join(member)
    member.joined(2, leader="me", members=[])
    member.synced(T[:1])
    member.returned()
    member.metadata(t=7)
    assert not member.has_open(JOIN_GROUP)
    assert not member.calls


def test_a_new_subscription_is_joined_with(member: Member) -> None:
    member.join(T[:1])
    only(member.subscribe("t", "u"), do.NeedMetadata)
    assert next_join(member) == "subscription has changed"
    assert decode_subscription(member.sent(JOIN_GROUP).protocols[0].metadata).topics == ("t", "u")


def test_a_leader_asks_for_old_and_new_topics_until_the_new_subscription_is_joined_with(member: Member) -> None:
    leader(member)
    assert only(member.subscribe("u"), do.NeedMetadata).topics == frozenset("tu")
    member.metadata(t=1, u=1)
    next_join(member)
    said = member.joined(2, leader="me", members=[group_member("me", "u")])
    assert only(said, do.NeedMetadata).topics == frozenset("u")
    assert shares(member) == {"me": (U[0],)}


def test_a_pattern_that_matches_more_is_joined_with(member: Member) -> None:
    member.subscribe("t", pattern="[tu]")
    member.metadata()
    member.find()
    member.rejoin(T[:1], generation=1)
    member.subscribe("t", "u", pattern="[tu]")
    assert next_join(member) == "subscription has changed"


TWO_MATCHES = pytest.mark.parametrize(
    ("before", "after"), [(("t",), ("t", "u")), (("t", "u"), ("t",))], ids=["a topic comes", "a topic goes"]
)


@TWO_MATCHES
def test_a_pattern_that_matches_others_before_the_join_is_sent_is_joined_with_once(
    member: Member, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    member.subscribe(*before, pattern="[tu]")
    member.subscribe(*after, pattern="[tu]")
    member.find()
    assert decode_subscription(member.sent(JOIN_GROUP).protocols[0].metadata).topics == after
    member.rejoin(T[:1], generation=1)
    member.subscribe(*after, pattern="[tu]")
    assert not member.has_open(JOIN_GROUP), "the matches are those of before"
    assert not member.calls


@TWO_MATCHES
def test_a_pattern_that_matches_others_while_the_join_is_unanswered_is_joined_with_once_more(
    member: Member, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    member.subscribe(*before, pattern="[tu]")
    member.find()
    member.subscribe(*after, pattern="[tu]")
    member.joined()
    member.synced(T[:1])
    assert next_join(member) == "subscription has changed"
    assert decode_subscription(member.sent(JOIN_GROUP).protocols[0].metadata).topics == after
    member.rejoin(T[:1])
    member.subscribe(*after, pattern="[tu]")
    assert not member.has_open(JOIN_GROUP), "the matches are those of before"
    assert not member.calls


@pytest.mark.parametrize("others", [{}, {"x": 7}], ids=["alone", "beside a topic that does not match"])
def test_a_pattern_that_matches_nothing_yet_is_joined_with_again_when_it_matches(
    member: Member, others: dict[str, int]
) -> None:
    member.hear(ev.Subscribed(frozenset(), lambda topic: topic == "t"))
    member.hear(ev.MetadataUpdated(others))
    member.find()
    member.joined(leader="me", members=[group_member("me")])
    assert callbacks(member.synced()) == [(Callback.ASSIGNED, frozenset())]
    member.returned()
    member.subscribe("t", pattern="t")
    member.metadata(t=1, **others)
    assert next_join(member) == "subscription has changed"
    member.joined(2, leader="me")
    assert shares(member) == {"me": (T[0],)}
    assert callbacks(member.synced(T[:1])) == [(Callback.ASSIGNED, frozenset(T[:1]))]
    member.returned()
    assert not member.has_open(JOIN_GROUP)


def test_a_leader_of_a_pattern_takes_a_topic_that_it_matches_while_the_join_is_unanswered(member: Member) -> None:
    member.subscribe("t", pattern="[tu]")
    member.metadata(t=1)
    member.find()
    member.metadata(t=1, u=1)
    member.joined(leader="me", members=[group_member("me", "t", "u")])
    assert shares(member) == {"me": (T[0], U[0])}
    assert callbacks(member.synced([T[0], U[0]])) == [(Callback.ASSIGNED, frozenset([T[0], U[0]]))]
    member.returned()
    assert member.machine.assigned == frozenset([T[0], U[0]])
    assert not member.has_open(JOIN_GROUP)


def test_a_share_beyond_what_a_pattern_matches_now_is_taken(member: Member) -> None:
    member.subscribe("t", pattern="[tu]")
    member.find()
    member.joined()
    assert callbacks(member.synced([T[0], U[0]])) == [(Callback.ASSIGNED, frozenset([T[0], U[0]]))]


def test_a_share_of_a_subscription_of_before_is_not_taken_and_joined_again(member: Member) -> None:
    member.subscribe("t")
    member.find()
    member.joined()
    member.subscribe("u")
    said = member.synced(T[:1])
    assert not callbacks(said)
    assert member.machine.assigned == frozenset()
    assert next_join(member) == "received assignment does not match the current subscription"
    member.rejoin(U[:1])
    assert member.machine.assigned == frozenset(U[:1])


@pytest.mark.parametrize("pattern", [None, "t|v"])
def test_a_share_with_a_topic_that_no_stream_reads_is_not_taken_and_in_the_end_an_error(pattern: str | None) -> None:
    """The leader's assignor is wrong.  Before, such a partition of a filter's member was owned and never read."""
    member = Member()
    member.subscribe("t", pattern=pattern)
    member.find()
    for generation in (1, 2):
        member.joined(generation)
        said = member.synced([T[0], U[0]])
        assert not callbacks(said)
        (event,) = [each for each in every(said, do.LogMemberEvent) if each.name == "assignment-unsubscribed"]
        assert event.fields == (("generation", generation), ("topics", ["u"]))
        assert member.machine.assigned == frozenset()
        assert next_join(member) == "received assignment does not match the current subscription"
    member.joined(3)
    error = only(member.synced([T[0], U[0]]), do.Raise).error
    assert isinstance(error, AssignorFailed)
    assert "the topics ['u'] to this member, which does not subscribe to them, 3 times in a row" in str(error)
    assert member.machine.assigned == frozenset()


def test_shares_that_do_not_match_are_counted_anew_after_one_that_does(member: Member) -> None:
    member.subscribe("t")
    member.find()
    for generation in range(1, 10, 2):
        member.joined(generation)
        member.synced(U[:1])
        member.rejoin(T[:1], generation=generation + 1)
        member.beat(27)
        while member.calls:
            member.returned()
    assert not every(member.said, do.Raise)


# --- giving back and taking up --------------------------------------------------------------------------------------


def test_an_eager_member_gives_everything_back_before_it_joins() -> None:
    member = Member()
    member.join(T[:2])
    said = member.beat(REBALANCE)
    assert only(said, ownership.Drain).partitions == tuple(T[:2])
    assert callbacks(said) == [(Callback.REVOKED, frozenset(T[:2]))]
    member.returned()
    assert owned(member) == ()
    member.joined(2)
    assert callbacks(member.synced(T[1:3])) == [(Callback.ASSIGNED, frozenset(T[1:3]))]


def cooperative(*assigned: TopicPartition) -> Member:
    member = Member(CooperativeDealer())
    member.join(assigned)
    return member


def test_a_cooperative_member_keeps_what_it_has_while_the_group_forms_anew() -> None:
    member = cooperative(T[0], T[1])
    said = member.beat(REBALANCE)
    assert not every(said, ownership.Drain)
    assert not callbacks(said)
    assert owned(member) == (T[0], T[1])
    assert decode_subscription(member.sent(JOIN_GROUP).protocols[0].metadata).generation_id == 1
    member.joined(2)
    said = member.synced(T[:3])
    assert callbacks(said) == [(Callback.ASSIGNED, frozenset([T[2]]))]
    assert only(member.returned(), do.StartPartitions) == do.StartPartitions(frozenset([T[2]]), 2)


def test_a_cooperative_member_gives_back_what_is_to_move_and_joins_once_more() -> None:
    member = cooperative(T[0], T[1])
    member.beat(REBALANCE)
    member.joined(2)
    said = member.synced(T[:1])
    assert only(said, ownership.Drain).partitions == (T[1],)
    assert callbacks(said) == [(Callback.REVOKED, frozenset([T[1]]))]
    assert callbacks(member.returned()) == [(Callback.ASSIGNED, frozenset())]
    member.returned()
    assert member.sent(JOIN_GROUP).reason == "need to revoke partitions and re-join"
    assert owned(member) == (T[0],)


def test_a_static_member_that_went_away_between_the_two_steps_takes_the_second_one_when_it_is_back() -> None:
    member = Member(CooperativeDealer(), group_instance_id="one")
    member.join(T[:2])
    member.beat(REBALANCE)
    member.joined(2)
    member.synced(T[:1])
    member.hear(ev.Unsubscribed())
    member.returned()
    member.returned()
    member.subscribe()
    member.joined(2)
    member.synced(T[:1])
    member.returned()
    assert member.sent(JOIN_GROUP).reason == "need to revoke partitions and re-join"
    member.rejoin(T[:1], generation=2)
    assert not member.has_open(JOIN_GROUP), "once is enough"


def test_a_cooperative_member_commits_what_is_to_move_before_it_gives_it_back() -> None:
    member = Member(CooperativeDealer(), auto_commit=True)
    member.join(T[:2])
    member.beat(REBALANCE)
    member.hear(ownership.PositionsCollected({T[0]: 1, T[1]: 1}))
    member.committed()
    member.joined(2)
    said = member.synced(T[:1])
    assert [type(command) for command in said if not isinstance(command, do.LogMemberEvent)][:2] == [
        ownership.Drain, ownership.CollectPositions,
    ]  # fmt: skip
    assert not callbacks(said)
    member.hear(ownership.PositionsCollected({T[0]: 2, T[1]: 3}))
    assert member.sent(OFFSET_COMMIT).generation_id_or_member_epoch == 2
    assert callbacks(member.committed()) == [(Callback.REVOKED, frozenset([T[1]]))]


def test_a_cooperative_member_gives_back_at_once_what_it_does_not_subscribe_to_any_more() -> None:
    member = Member(CooperativeDealer())
    member.subscribe("t", "u")
    member.find()
    member.rejoin([T[0], U[0]], generation=1)
    said = member.subscribe("t")
    assert callbacks(said) == [(Callback.REVOKED, frozenset([U[0]]))]
    member.returned()
    assert owned(member) == (T[0],)


@pytest.mark.parametrize("error", [ILLEGAL_GENERATION, UNKNOWN_MEMBER])
def test_a_member_that_dropped_out_loses_everything_before_it_joins_again(member: Member, error: int) -> None:
    member.join(T[:2])
    said = member.beat(error)
    assert only(said, ownership.Drain).partitions == tuple(T[:2])
    assert callbacks(said) == [(Callback.LOST, frozenset(T[:2]))]
    assert not member.has_open(JOIN_GROUP), "the program has not returned yet"
    member.returned()
    assert owned(member) == ()


def test_a_join_that_fails_is_prepared_once(member: Member) -> None:
    member.join(T[:1])
    member.beat(REBALANCE)
    next_join(member)
    member.join_refused(REBALANCE)
    member.joined(2)
    member.synced(error=REBALANCE)
    assert not member.calls
    member.rejoin(T[:1], generation=3)
    told = [each[0] for each in callbacks(member.said)]
    assert told.count(Callback.REVOKED) == (1 if member.machine.protocol is EAGER else 0)


@pytest.mark.parametrize(("error", "member_id"), [(REBALANCE, "me"), (ILLEGAL_GENERATION, "me"), (UNKNOWN_MEMBER, "")])
def test_a_sync_that_is_refused_joins_again_at_once(member: Member, error: int, member_id: str) -> None:
    member.subscribe()
    member.find()
    member.joined()
    member.synced(error=error)
    assert member.sent(JOIN_GROUP).member_id == member_id


def test_a_sync_with_an_unexpected_error_is_told(member: Member) -> None:
    member.subscribe()
    member.find()
    member.joined()
    assert only(member.synced(error=-1), do.Raise)
    assert not member.has_open(JOIN_GROUP)


def test_the_program_knows_its_generation_when_it_is_called(member: Member) -> None:
    member.subscribe()
    member.find()
    member.joined(7)
    member.synced(T[:1])
    assert member.calls
    assert (member.machine.generation.generation_id, member.machine.assigned) == (7, frozenset(T[:1]))
    member.commit()
    assert member.sent(OFFSET_COMMIT).generation_id_or_member_epoch == 7, "it may commit in its callback"


def test_what_a_callback_raises_is_told_and_the_group_goes_on(member: Member) -> None:
    member.subscribe()
    member.find()
    member.joined()
    member.synced(T[:1])
    mine = ValueError("mine")
    said = member.returned(mine)
    told = only(said, do.Raise).error
    assert isinstance(told, RebalanceCallbackFailed)
    assert told.__cause__ is mine
    assert only(said, do.StartPartitions).partitions == frozenset(T[:1])
    assert member.machine.state is MemberState.STABLE


def test_an_error_of_this_package_comes_out_of_a_callback_as_it_is(member: Member) -> None:
    member.subscribe()
    member.find()
    member.joined()
    member.synced(T[:1])
    refused = CommitFailedException("as it is")
    assert only(member.returned(refused), do.Raise).error is refused


def test_what_a_revoking_callback_raises_is_told_and_joined_with_the_next_call() -> None:
    member = Member()
    member.join(T[:1])
    member.beat(REBALANCE)
    assert isinstance(only(member.returned(ValueError()), do.Raise).error, RebalanceCallbackFailed)
    assert not member.has_open(JOIN_GROUP)
    member.poll()
    assert member.has_open(JOIN_GROUP)


def test_of_two_callbacks_that_raise_the_first_is_told() -> None:
    member = cooperative(T[0], T[1])
    member.beat(REBALANCE)
    member.joined(2)
    member.synced([T[0], T[2]])
    first = ValueError("first")
    member.returned(first)
    told = only(member.returned(ValueError("second")), do.Raise)
    assert told.error.__cause__ is first


class Stumbling(Dealer):
    """Raises when it is told its share."""

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        raise ValueError("on_assignment")


def test_what_an_assignor_raises_when_it_is_told_comes_before_what_the_callback_raises() -> None:
    member = Member(Stumbling())
    member.subscribe()
    member.find()
    member.joined()
    member.synced(T[:1])
    told = only(member.returned(ValueError("callback")), do.Raise)
    assert isinstance(told.error, AssignorFailed)
    assert member.machine.state is MemberState.STABLE


def test_a_share_is_not_taken_up_when_the_generation_ends_while_another_callback_runs() -> None:
    member = cooperative(T[0], T[1])
    member.beat(REBALANCE)
    member.joined(2)
    member.synced([T[0], T[2]])
    member.beat(UNKNOWN_MEMBER)
    said = member.returned()
    assert [each[0] for each in callbacks(said)] == [Callback.LOST]
    assert callbacks(said)[0][1] == frozenset([T[0]])


# --- automatic commits before partitions are given back -------------------------------------------------------------


def handing_back() -> Member:
    """An eager member whose last commit is on its way."""
    member = Member(auto_commit=True)
    member.join(T[:1])
    member.beat(REBALANCE)
    member.hear(ownership.PositionsCollected({T[0]: 5}))
    return member


def test_without_automatic_commits_nothing_is_committed_before_a_rebalance() -> None:
    member = Member()
    member.join(T[:1])
    said = member.beat(REBALANCE)
    assert not every(said, ownership.CollectPositions)
    assert callbacks(said)


def test_the_last_commit_is_repeated_until_it_is_taken() -> None:
    member = handing_back()
    member.committed(14)
    assert not member.calls
    member.wait(100)
    assert callbacks(member.committed()) == [(Callback.REVOKED, frozenset(T[:1]))]


def test_the_last_commit_waits_for_another_coordinator() -> None:
    member = handing_back()
    member.committed(NOT_AVAILABLE)
    member.wait(100)
    member.find(node=2)
    assert callbacks(member.committed()) == [(Callback.REVOKED, frozenset(T[:1]))]


def test_a_last_commit_that_is_refused_for_good_stops_nobody() -> None:
    member = handing_back()
    said = member.committed(12)
    assert callbacks(said) == [(Callback.REVOKED, frozenset(T[:1]))]
    member.returned()
    assert member.has_open(JOIN_GROUP)


def test_a_last_commit_of_a_member_that_dropped_out_ends_in_a_loss() -> None:
    member = handing_back()
    assert callbacks(member.committed(UNKNOWN_MEMBER)) == [(Callback.LOST, frozenset(T[:1]))]


def test_the_last_commit_is_given_up_in_time_for_the_join() -> None:
    member = handing_back()
    for _ in range(3 * POLL_MS // 500):
        member.poll()
        if member.calls:
            break
        if member.has_open(OFFSET_COMMIT):
            member.committed(14)
        if member.has_open(HEARTBEAT):
            member.beat()
        member.wait(500)
    assert member.calls[0].callback is Callback.REVOKED
    assert POLL_MS <= member.now_ms <= POLL_MS + 2 * HEARTBEAT_MS
    member.returned()
    assert member.has_open(JOIN_GROUP)


# --- heartbeats, as a consumer sees them ----------------------------------------------------------------------------


def test_a_heartbeat_that_is_answered_changes_nothing(member: Member) -> None:
    member.join(T[:1])
    assert not every(member.beat(), do.Invoke)
    assert member.machine.state is MemberState.STABLE


@pytest.mark.parametrize("error", [NOT_AVAILABLE, NOT_COORDINATOR])
def test_another_coordinator_is_looked_for_and_membership_stays(member: Member, error: int) -> None:
    member.join(T[:1])
    only(member.beat(error), do.DisconnectCoordinator)
    member.wait(100)
    member.find(node=2)
    assert member.request(HEARTBEAT).node == 2
    assert (member.machine.state, member.machine.assigned) == (MemberState.STABLE, frozenset(T[:1]))


def test_what_was_asked_of_a_coordinator_that_is_gone_fails(member: Member) -> None:
    member.join(T[:1])
    member.commit()
    said = member.disconnect()
    assert only(said, do.CommitDone).error is not None
    assert member.machine.coordinator_discovery.coordinator is None


def test_a_disconnect_in_the_middle_of_a_join_is_followed_by_another_join(member: Member) -> None:
    member.subscribe()
    member.find()
    member.disconnect()
    member.wait(200)
    member.find()
    assert member.has_open(JOIN_GROUP)


def test_the_programs_deadline_counts_from_its_last_call_also_without_a_coordinator(member: Member) -> None:
    member.join(T[:1])
    member.disconnect()
    member.now_ms += POLL_MS - 1
    member.poll()
    assert member.machine.heartbeat.poll_until_ms == 2 * POLL_MS - 1


# --- leaving --------------------------------------------------------------------------------------------------------


def test_unsubscribing_gives_back_and_leaves(member: Member) -> None:
    member.join(T[:1])
    assert callbacks(member.hear(ev.Unsubscribed())) == [(Callback.REVOKED, frozenset(T[:1]))]
    member.returned()
    assert member.sent(LEAVE_GROUP).members[0].reason == "the consumer unsubscribed"
    member.left()
    assert member.machine.generation == NO_GENERATION
    member.wait(60_000)
    assert not member.open


def test_unsubscribing_commits_what_it_gives_back() -> None:
    member = Member(auto_commit=True)
    member.join(T[:1])
    member.hear(ev.Unsubscribed())
    member.hear(ownership.PositionsCollected({T[0]: 5}))
    assert member.sent(OFFSET_COMMIT).generation_id_or_member_epoch == 1
    assert callbacks(member.committed()) == [(Callback.REVOKED, frozenset(T[:1]))]


def test_unsubscribing_after_dropping_out_loses(member: Member) -> None:
    member.join(T[:1])
    member.machine.reset_state_and_rejoin("dropped", keeps_member_id=False)
    assert callbacks(member.hear(ev.Unsubscribed())) == [(Callback.LOST, frozenset(T[:1]))]
    member.returned()
    assert not member.has_open(LEAVE_GROUP)


def test_subscribing_again_joins_anew(member: Member) -> None:
    member.join(T[:1])
    member.hear(ev.Unsubscribed())
    member.subscribe()
    member.returned()
    assert member.has_open(LEAVE_GROUP)
    assert member.sent(JOIN_GROUP).member_id == ""


def test_a_member_with_an_id_and_no_generation_leaves(member: Member) -> None:
    member.subscribe()
    member.find()
    member.join_refused(79, "me-1")
    member.hear(ev.Closed())
    assert member.sent(LEAVE_GROUP).members[0].member_id == "me-1"


@pytest.mark.parametrize("leave", [True, False])
def test_a_close_leaves_if_that_is_wanted(member: Member, leave: bool) -> None:
    member.join(T[:1])
    member.hear(ev.Closed(leave=leave))
    said = member.returned()
    assert member.has_open(LEAVE_GROUP) == leave
    assert bool(every(said, do.MemberStopped)) != leave


def test_a_close_ends_the_heartbeats(member: Member) -> None:
    member.join(T[:1])
    member.wait(HEARTBEAT_MS + 100)
    assert member.has_open(HEARTBEAT)
    member.hear(ev.Closed())
    member.returned()
    said = member.left()
    only(said, do.MemberStopped)
    assert not member.timers
    sent = len(every(member.said, do.Send))
    member.wait(10 * HEARTBEAT_MS)
    member.poll()
    assert len(every(member.said, do.Send)) == sent


def test_a_close_ends_in_time_without_an_answer_to_the_leave(member: Member) -> None:
    member.join(T[:1])
    member.hear(ev.Closed(timeout_ms=5000))
    member.returned()
    assert not every(member.wait(4999), do.MemberStopped)
    assert [type(each) for each in member.wait(1) if not isinstance(each, do.LogMemberEvent)] == [
        do.DisconnectCoordinator,
        do.MemberStopped,
    ]


def test_a_close_ends_in_time_without_an_answer_to_the_commit() -> None:
    member = Member(auto_commit=True)
    member.join(T[:1])
    member.hear(ev.Closed(timeout_ms=5000))
    member.hear(ownership.PositionsCollected({T[0]: 5}))
    member.wait(5000)
    assert member.has_open(LEAVE_GROUP), "the others need not wait for the session to end"
    only(member.said, do.MemberStopped)


def test_a_close_ends_in_time_when_a_callback_does_not_return(member: Member) -> None:
    member.join(T[:1])
    member.hear(ev.Closed(timeout_ms=5000))
    assert member.calls
    only(member.wait(5000), do.MemberStopped)


def test_a_close_without_time_still_says_good_bye(member: Member) -> None:
    member.join(T[:1])
    said = member.hear(ev.Closed(timeout_ms=0))
    assert [send.api_key for send in every(said, do.Send)] == [LEAVE_GROUP.key]
    only(said, do.MemberStopped)


@pytest.mark.parametrize("auto_commit", [False, True])
def test_a_close_while_the_coordinator_is_away_waits_only_for_a_commit(auto_commit: bool) -> None:
    member = Member(auto_commit=auto_commit)
    member.join(T[:1])
    member.disconnect()
    said = member.hear(ev.Closed(timeout_ms=5000))
    if auto_commit:
        member.hear(ownership.PositionsCollected({T[0]: 5}))
        member.wait(1000)
        member.find()
        said = member.committed()
    assert callbacks(said) == [(Callback.REVOKED, frozenset(T[:1]))]
    said = member.returned()
    assert member.has_open(LEAVE_GROUP) == auto_commit
    assert bool(every(said, do.MemberStopped)) != auto_commit


def test_a_close_waits_for_commits_that_were_asked_for(member: Member) -> None:
    member.join(T[:1])
    member.commit()
    member.hear(ev.Closed())
    member.returned()
    assert not every(member.left(), do.MemberStopped)
    said = member.committed()
    assert [type(each) for each in said if not isinstance(each, (do.CancelMemberTimer, do.LogMemberEvent))] == [
        do.CommitDone, do.DisconnectCoordinator, do.MemberStopped,
    ]  # fmt: skip


def test_a_close_of_an_outsider_commits_and_stops() -> None:
    member = Member()
    member.poll()
    member.commit(retried=True)
    member.hear(ev.Closed(timeout_ms=5000))
    assert not every(member.said, do.MemberStopped)
    member.find()
    said = member.committed()
    assert only(said, do.CommitDone).error is None
    only(said, do.MemberStopped)


def test_a_close_without_a_coordinator_ends_in_time_and_tells_whoever_waits() -> None:
    member = Member()
    member.poll()
    member.commit(retried=True)
    member.hear(ev.Closed(timeout_ms=5000))
    for _ in range(5):
        member.find(error=NOT_AVAILABLE)
        member.wait(1000)
    assert only(member.said, do.CommitDone).error is not None
    only(member.said, do.MemberStopped)


def test_a_close_of_a_member_that_never_joined_stops_at_once(member: Member) -> None:
    member.subscribe()
    said = member.hear(ev.Closed())
    only(said, do.MemberStopped)
    assert not member.timers


def test_a_close_in_the_middle_of_a_join_stops(member: Member) -> None:
    member.subscribe()
    member.find()
    only(member.hear(ev.Closed()), do.MemberStopped)


def test_what_is_owned_is_lost_when_the_member_ends_in_the_middle_of_a_rebalance() -> None:
    member = cooperative(T[0])
    member.beat(REBALANCE)
    assert member.has_open(JOIN_GROUP)
    assert callbacks(member.hear(ev.Closed())) == [(Callback.LOST, frozenset([T[0]]))]


def test_who_does_not_lead_any_more_asks_for_its_own_topics_alone() -> None:
    member = Member()
    member.subscribe()
    member.metadata(t=1, u=1)
    member.find()
    member.joined(leader="me", members=[group_member("me", "t"), group_member("you", "u")])
    member.synced(T[:1])
    member.returned()
    member.beat(REBALANCE)
    member.returned()
    member.rejoin(T[:1])
    assert only(member.subscribe("t", "v"), do.NeedMetadata).topics == frozenset("tv")


def test_a_close_while_a_callback_runs_waits_for_it(member: Member) -> None:
    member.subscribe()
    member.find()
    member.joined()
    member.synced(T[:1])
    assert not callbacks(member.hear(ev.Closed()))
    said = member.returned()
    assert not every(said, do.StartPartitions), "it would be stopped at once"
    assert callbacks(said) == [(Callback.REVOKED, frozenset(T[:1]))]


def test_after_the_end_questions_are_answered_and_nothing_else_is_done(member: Member) -> None:
    member.subscribe()
    member.hear(ev.Closed())
    assert isinstance(only(member.commit(9), do.CommitDone).error, ConnectorClosed)
    asked = member.hear(ev.FetchAsked(10, frozenset(T[:1])))
    assert isinstance(only(asked, do.FetchDone).error, ConnectorClosed)
    assert member.hear(ev.Subscribed(frozenset("t"))) == []
    assert member.hear(ev.Responded(2, coordinator())) == []


def test_a_session_that_the_coordinator_forgets_is_joined_anew_after_a_long_silence(member: Member) -> None:
    member.join(T[:1])
    member.wait(SESSION_MS)
    member.disconnect()
    member.wait(100)
    member.find()
    member.wait(HEARTBEAT_MS)
    assert callbacks(member.beat(UNKNOWN_MEMBER)) == [(Callback.LOST, frozenset(T[:1]))]
    assert not member.has_open(FIND_COORDINATOR)
