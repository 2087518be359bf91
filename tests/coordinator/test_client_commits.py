"""Commits and committed offsets: what ConsumerCoordinatorTest of Kafka holds of them, in our own words."""

from __future__ import annotations

import pytest

from bridge.client.commit_calls import CommitCalls
from tests.coordinator.client_harness import CooperativeDealer, Member, T, every, only
from zkconsumer.errors import UsageError, ZkConsumerError
from zkconsumer.kafka.error_codes import BrokerError
from zkconsumer.kafka.group import commands as do
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.commit_queue import WAITING_MAX
from zkconsumer.kafka.group.errors import (
    CommitFailedException,
    FencedInstanceIdException,
    GroupAuthorizationException,
    OffsetFetchFailed,
    RebalanceInProgressException,
    RetriableCommitFailedException,
    TopicAuthorizationException,
)
from zkconsumer.kafka.group.events import Failure, Offset
from zkconsumer.kafka.group.generation import NO_GENERATION, Generation, MemberState
from zkconsumer.member import ownership
from zkconsumer.wire.schemas import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, OFFSET_COMMIT, OFFSET_FETCH
from zkconsumer.wire.schemas.heartbeat import HeartbeatResponse
from zkconsumer.wire.schemas.offset_commit import OffsetCommitResponse
from zkconsumer.wire.schemas.offset_fetch import (
    OffsetFetchPartitionResponse,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)

UNKNOWN_TOPIC, TIMED_OUT, TOO_LARGE, LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 3, 7, 12, 14, 15, 16
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE, INVALID_SIZE, NO_TOPIC, NO_GROUP, FENCED = 22, 25, 27, 28, 29, 30, 82
UNSTABLE = 88
PASSING = [UNKNOWN_TOPIC, TIMED_OUT, LOADING, NOT_AVAILABLE, NOT_COORDINATOR]
NOT_THE_COORDINATOR = (TIMED_OUT, NOT_AVAILABLE, NOT_COORDINATOR)


@pytest.fixture
def member() -> Member:
    member = Member()
    member.join(T[:2])
    return member


def outsider(**settings: object) -> Member:
    """Somebody who commits without being a member: partitions were assigned by hand."""
    member = Member(**settings)  # type: ignore[arg-type]
    member.poll()
    return member


def done(commands: list[do.Command]) -> do.CommitDone:
    return only(commands, do.CommitDone)


# --- the request ----------------------------------------------------------------------------------------------------


def test_a_commit_names_group_generation_member_and_offsets(member: Member) -> None:
    member.hear(ev.CommitAsked(1, {T[1]: Offset(7, 3, "note"), T[0]: Offset(5)}, False))
    body = member.sent(OFFSET_COMMIT)
    assert (body.group_id, body.generation_id_or_member_epoch, body.member_id) == ("g", 1, "me")
    rows = [(row.partition_index, row.committed_offset, row.committed_leader_epoch, row.committed_metadata)
            for row in body.topics[0].partitions]  # fmt: skip
    assert rows == [(0, 5, -1, ""), (1, 7, 3, "note")]
    assert done(member.committed()) == do.CommitDone(1, None, {})


def test_a_static_member_names_its_instance_when_it_has_an_id() -> None:
    member = Member(group_instance_id="one")
    member.join(T[:1])
    member.commit()
    assert member.sent(OFFSET_COMMIT).group_instance_id == "one"


def test_without_a_member_id_no_instance_is_named() -> None:
    member = outsider(group_instance_id="one")
    member.commit()
    member.find()
    body = member.sent(OFFSET_COMMIT)
    assert (body.group_instance_id, body.member_id, body.generation_id_or_member_epoch) == (None, "", -1)


def test_a_commit_of_nothing_is_done_at_once(member: Member) -> None:
    assert done(member.hear(ev.CommitAsked(1, {}, True))).error is None
    assert not member.has_open(OFFSET_COMMIT)


def test_a_negative_offset_is_refused_before_anything_is_sent(member: Member) -> None:
    assert isinstance(done(member.commit(t0=-1)).error, UsageError)
    assert not member.has_open(OFFSET_COMMIT)


# --- one attempt, or many -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", PASSING)
def test_a_commit_that_is_not_repeated_tells_of_a_passing_error(member: Member, error: int) -> None:
    member.commit()
    said = member.committed(error)
    assert isinstance(done(said).error, RetriableCommitFailedException)
    assert bool(every(said, do.DisconnectCoordinator)) == (error in NOT_THE_COORDINATOR)


@pytest.mark.parametrize("error", PASSING)
def test_a_commit_that_is_waited_for_is_repeated_after_a_passing_error(member: Member, error: int) -> None:
    member.commit(retried=True)
    assert not every(member.committed(error), do.CommitDone)
    member.wait(100)
    if error in NOT_THE_COORDINATOR:
        member.find()
    assert done(member.committed()).error is None


def test_a_commit_is_lost_with_its_connection_unless_it_is_repeated(member: Member) -> None:
    member.commit(1)
    assert isinstance(done(member.disconnect()).error, RetriableCommitFailedException)
    member.commit(2, retried=True)
    member.wait(100)
    member.find()
    assert not every(member.disconnect(), do.CommitDone)
    member.wait(200)
    member.find()
    assert done(member.committed()) == do.CommitDone(2, None, {})


def test_a_repeated_commit_ends_in_time(member: Member) -> None:
    member.commit(retried=True)
    said: list[do.Command] = []
    for _ in range(200):
        if member.has_open(OFFSET_COMMIT):
            said += member.committed(UNKNOWN_TOPIC)
        if member.has_open(HEARTBEAT):
            member.beat()
        member.poll()
        said += member.wait(500)
    assert isinstance(done(said).error, RetriableCommitFailedException)
    assert member.now_ms >= 60_000


def test_a_commit_waits_for_a_coordinator_and_no_longer_than_that() -> None:
    member = outsider()
    member.commit(1)
    member.commit(2, retried=True)
    assert member.count_open(FIND_COORDINATOR) == 1
    said: list[do.Command] = []
    for _ in range(100):
        if member.has_open(FIND_COORDINATOR):
            member.find(error=NOT_AVAILABLE)
        said += member.wait(1000)
    assert [each.number for each in every(said, do.CommitDone)] == [1, 2]
    assert all(isinstance(each.error, RetriableCommitFailedException) for each in every(said, do.CommitDone))


def test_a_commit_of_an_outsider_looks_for_a_coordinator_and_is_sent_as_soon_as_it_is_found() -> None:
    member = outsider()
    assert not member.open
    member.commit()
    assert [send.api_key for send in member.open] == [FIND_COORDINATOR.key]
    member.find()
    assert [send.api_key for send in member.open] == [OFFSET_COMMIT.key]
    assert done(member.committed()).error is None


def test_a_refused_coordinator_ends_all_commits() -> None:
    member = outsider()
    member.commit(1)
    member.commit(2, retried=True)
    said = member.find(error=NO_GROUP)
    assert [type(each.error) for each in every(said, do.CommitDone)] == [GroupAuthorizationException] * 2


def test_commits_are_answered_in_the_order_in_which_they_were_asked_for(member: Member) -> None:
    for number in range(1, 4):
        member.commit(number, retried=number == 3)
    assert member.count_open(OFFSET_COMMIT) == 1, "a commit that is repeated must not come after a later one"
    said = [*member.committed(), *member.committed(), *member.committed()]
    assert [each.number for each in every(said, do.CommitDone)] == [1, 2, 3]


def test_a_commit_of_nothing_does_not_end_before_those_that_were_asked_for_earlier(member: Member) -> None:
    member.commit(1)
    said = member.hear(ev.CommitAsked(2, {}, True))
    assert not every(said, do.CommitDone)
    assert [each.number for each in every(member.committed(), do.CommitDone)] == [1, 2]


def test_a_thousand_commits_end_when_the_coordinator_goes(member: Member) -> None:
    said: list[do.Command] = []
    for number in range(1, WAITING_MAX + 2):
        said += member.commit(number)
    assert [each.number for each in every(said, do.CommitDone)] == [WAITING_MAX + 1], "one is more than may wait"
    said = member.disconnect()
    member.wait(100)
    member.find()
    while member.has_open(OFFSET_COMMIT):
        said += member.committed()
    assert [each.number for each in every(said, do.CommitDone)] == list(range(1, WAITING_MAX + 1))


# --- what an answer means -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind"), [(TOO_LARGE, BrokerError), (INVALID_SIZE, BrokerError), (NO_TOPIC, TopicAuthorizationException)]
)
def test_a_refused_partition_is_told_and_the_others_are_committed(
    member: Member, error: int, kind: type[Exception]
) -> None:
    member.commit(retried=True, t0=5, t1=7)
    told = done(member.committed(t0=error))
    assert told.error is None
    assert {tp: type(why) for tp, why in told.refused.items()} == {T[0]: kind}


@pytest.mark.parametrize(("error", "kind"), [(NO_GROUP, GroupAuthorizationException), (-1, BrokerError)])
def test_an_error_for_good_ends_a_commit(member: Member, error: int, kind: type[Exception]) -> None:
    member.commit(retried=True)
    assert isinstance(done(member.committed(error)).error, kind)
    assert member.machine.state is MemberState.STABLE


def test_an_answer_without_the_partition_is_no_answer(member: Member) -> None:
    member.commit()
    assert done(member.answer(OFFSET_COMMIT, OffsetCommitResponse(topics=[]))).error is not None


@pytest.mark.parametrize(("error", "member_id"), [(ILLEGAL_GENERATION, "me"), (UNKNOWN_MEMBER, "")])
def test_a_commit_of_a_generation_that_is_over_fails_and_resets_it(member: Member, error: int, member_id: str) -> None:
    member.commit(retried=True)
    said = member.committed(error)
    assert isinstance(done(said).error, CommitFailedException)
    assert member.machine.generation == Generation(member_id=member_id)
    assert only(said, do.Invoke).callback is do.Callback.LOST
    member.returned()
    assert member.sent(JOIN_GROUP).member_id == member_id


@pytest.mark.parametrize("error", [ILLEGAL_GENERATION, UNKNOWN_MEMBER, FENCED])
def test_an_old_refusal_while_the_group_forms_anew_resets_nothing(member: Member, error: int) -> None:
    member.commit()
    newer = Generation(9, "newer", "dealer")
    member.machine.generation, member.machine.state = newer, MemberState.PREPARING_REBALANCE
    assert isinstance(done(member.committed(error)).error, RebalanceInProgressException)
    assert member.machine.generation == newer


@pytest.mark.parametrize("error", [ILLEGAL_GENERATION, UNKNOWN_MEMBER, FENCED])
def test_an_old_refusal_in_a_newer_generation_says_only_that_nothing_was_committed(member: Member, error: int) -> None:
    """Another try helps, in the newer one; Java's consumer raises ``CommitFailedException``."""
    member.commit()
    newer = Generation(9, "newer", "dealer")
    member.machine.generation = newer
    assert isinstance(done(member.committed(error)).error, RebalanceInProgressException)
    assert member.machine.generation == newer


@pytest.mark.parametrize("error", [ILLEGAL_GENERATION, UNKNOWN_MEMBER])
def test_an_old_refusal_after_a_reset_leaves_it_reset(member: Member, error: int) -> None:
    member.commit()
    member.machine.reset_state_and_rejoin("dropped", keeps_member_id=False)
    assert isinstance(done(member.committed(error)).error, CommitFailedException)
    assert member.machine.generation == NO_GENERATION


@pytest.mark.parametrize("retried", [False, True])
def test_a_fenced_commit_ends_the_member(retried: bool) -> None:
    member = Member(group_instance_id="one")
    member.join(T[:1])
    member.commit(retried=retried)
    said = member.committed(FENCED)
    assert isinstance(done(said).error, FencedInstanceIdException)
    assert only(said, do.Raise).is_fatal
    assert isinstance(done(member.commit(2)).error, FencedInstanceIdException), "and every commit after it"


def test_a_commit_in_the_middle_of_a_rebalance_fails_keeps_the_generation_and_joins(member: Member) -> None:
    generation = member.machine.generation
    member.commit(retried=True)
    assert isinstance(done(member.committed(REBALANCE)).error, RebalanceInProgressException)
    assert member.machine.generation == generation
    member.returned()
    assert member.sent(JOIN_GROUP).reason == "offset commit failed since group is already rebalancing"


def test_while_a_join_is_on_its_way_a_commit_fails_before_it_is_sent(member: Member) -> None:
    member.beat(REBALANCE)
    member.returned()
    assert isinstance(done(member.commit(retried=True)).error, RebalanceInProgressException)
    assert not member.has_open(OFFSET_COMMIT)


def test_after_leaving_a_commit_is_one_of_an_outsider() -> None:
    member = Member()
    member.join(T[:1])
    member.hear(ev.Unsubscribed())
    member.returned()
    member.left()
    member.commit()
    assert member.sent(OFFSET_COMMIT).generation_id_or_member_epoch == -1


def test_a_commit_of_a_member_is_not_repeated_as_one_of_an_outsider_after_it_has_left() -> None:
    """A group that is empty by then would accept it, whatever another member has committed in between."""
    member = Member()
    member.join(T[:1])
    member.commit(retried=True)
    member.committed(UNKNOWN_TOPIC)
    said = member.hear(ev.Unsubscribed()) + member.returned() + member.left()
    said += member.wait(200)
    assert isinstance(done(said).error, CommitFailedException)
    assert not member.has_open(OFFSET_COMMIT)


def test_a_member_that_has_not_joined_does_not_commit() -> None:
    member = Member()
    member.subscribe()
    assert isinstance(done(member.commit()).error, CommitFailedException)


@pytest.mark.parametrize("error", [ILLEGAL_GENERATION, UNKNOWN_MEMBER])
def test_an_outsider_that_is_refused_by_members_is_told(error: int) -> None:
    member = outsider()
    member.commit()
    member.find()
    assert isinstance(done(member.committed(error)).error, CommitFailedException)
    assert not member.has_open(JOIN_GROUP)


def test_a_disconnect_after_an_error_of_the_coordinator_is_no_second_loss(member: Member) -> None:
    member.commit(1)
    member.committed(NOT_COORDINATOR)
    member.wait(100)
    member.find(node=2)
    member.disconnect(1)
    assert member.machine.coordinator_discovery.coordinator is not None, "the old one's connection is not the new one's"


# --- automatic commits ----------------------------------------------------------------------------------------------


def automatic(**settings: object) -> Member:
    member = Member(auto_commit=True, **settings)
    member.join(T[:1])
    return member


def test_positions_are_committed_at_their_interval() -> None:
    member = automatic()
    assert not every(member.wait(4999), ownership.CollectPositions)
    member.beat()
    assert only(member.wait(1), ownership.CollectPositions)
    member.hear(ownership.PositionsCollected({T[0]: 9}))
    assert member.sent(OFFSET_COMMIT).topics[0].partitions[0].committed_offset == 9
    assert not every(member.committed(), do.CommitDone), "nobody asked for it"
    assert only(member.wait(5000), ownership.CollectPositions)


def test_no_second_commit_is_made_while_the_first_one_is_unanswered() -> None:
    member = automatic()
    member.wait(5000)
    member.hear(ownership.PositionsCollected({T[0]: 9}))
    for _ in range(2):
        member.beat()
        assert not every(member.wait(2800), ownership.CollectPositions)
    assert member.count_open(OFFSET_COMMIT) == 1
    assert every(member.committed(), ownership.CollectPositions), "the interval is over since then"


def test_a_member_commits_nothing_by_itself_before_it_has_joined() -> None:
    member = Member(auto_commit=True)
    member.subscribe()
    member.find()
    assert not every(member.wait(20_000), ownership.CollectPositions)
    member.rejoin(T[:1], generation=1)
    assert only(member.said, ownership.CollectPositions), "the interval is over, and there is a generation now"
    member.hear(ownership.PositionsCollected({T[0]: 9}))
    assert member.sent(OFFSET_COMMIT).generation_id_or_member_epoch == 1


def test_the_interval_begins_with_a_generation() -> None:
    member = automatic()
    member.wait(3000)
    member.beat(REBALANCE)
    member.hear(ownership.PositionsCollected({}))
    member.returned()
    member.rejoin(T[:1])
    start = member.now_ms
    while not every(member.wait(100), ownership.CollectPositions):
        if member.has_open(HEARTBEAT):
            member.beat()
    assert member.now_ms - start == 5000


def test_a_member_that_has_nothing_to_commit_and_keeps_what_it_has_joins_at_once() -> None:
    """It waited for whatever happened next: a heartbeat's time, and all the others with it."""
    member = Member(CooperativeDealer(), auto_commit=True)
    member.join(T[:1])
    member.beat(REBALANCE)
    member.hear(ownership.PositionsCollected({}))
    assert member.has_open(JOIN_GROUP)


def test_an_automatic_commit_that_fails_is_made_again_soon() -> None:
    member = automatic()
    member.wait(5000)
    member.hear(ownership.PositionsCollected({T[0]: 9}))
    member.committed(LOADING)
    assert not every(member.wait(99), ownership.CollectPositions)
    assert only(member.wait(1), ownership.CollectPositions)


def test_an_automatic_commit_that_is_refused_is_noted() -> None:
    member = automatic()
    member.wait(5000)
    member.hear(ownership.PositionsCollected({T[0]: 9}))
    assert "auto-commit-failed" in [note.name for note in every(member.committed(TOO_LARGE), do.LogMemberEvent)]


def test_an_outsider_commits_by_itself_too_once_it_calls() -> None:
    member = Member(auto_commit=True)
    assert not every(member.wait(20_000), ownership.CollectPositions)
    member.poll()
    only(member.said, ownership.CollectPositions)
    member.hear(ownership.PositionsCollected({T[0]: 9}))
    member.find()
    assert member.sent(OFFSET_COMMIT).generation_id_or_member_epoch == -1


def test_an_automatic_commit_waits_for_a_coordinator_that_is_away() -> None:
    member = Member(auto_commit=True)
    member.poll()
    member.wait(5000)
    member.hear(ownership.PositionsCollected({T[0]: 9}))
    member.find(error=NOT_AVAILABLE)
    member.wait(100)
    member.find()
    assert member.has_open(OFFSET_COMMIT)
    member.committed()
    assert only(member.wait(5000), ownership.CollectPositions)


def test_with_a_commit_of_before_under_way_a_hand_back_takes_its_own_positions() -> None:
    member = automatic()
    member.wait(5000)
    assert member.has_open(HEARTBEAT)
    said = member.answer(HEARTBEAT, HeartbeatResponse(error_code=REBALANCE))
    assert only(said, ownership.CollectPositions), "asked once more, after the fetching was stopped"
    member.hear(ownership.PositionsCollected({T[0]: 5}))
    member.hear(ownership.PositionsCollected({T[0]: 6}))
    member.committed()
    assert member.sent(OFFSET_COMMIT).topics[0].partitions[0].committed_offset == 6
    assert only(member.committed(), do.Invoke)


# --- what is committed ----------------------------------------------------------------------------------------------


def fetched(member: Member, error: int = 0, **rows: tuple[int, int]) -> list[do.Command]:
    """OffsetFetch is answered: ``t0=(offset, error)``."""
    body = OffsetFetchResponse(
        error_code=error,
        topics=[
            OffsetFetchTopicResponse(
                name="t",
                partitions=[
                    OffsetFetchPartitionResponse(
                        partition_index=int(name[1:]),
                        committed_offset=offset,
                        committed_leader_epoch=4,
                        metadata="note",
                        error_code=code,
                    )
                    for name, (offset, code) in rows.items()
                ],
            )
        ],
    )
    return member.answer(OFFSET_FETCH, body)


def test_committed_offsets_are_told_and_minus_one_is_none(member: Member) -> None:
    member.hear(ev.FetchAsked(7, frozenset(T[:2])))
    assert member.sent(OFFSET_FETCH).require_stable
    told = only(fetched(member, t0=(5, 0), t1=(-1, 0)), do.FetchDone)
    assert told == do.FetchDone(7, {T[0]: Offset(5, 4, "note"), T[1]: None})


def test_nothing_is_asked_about_nothing(member: Member) -> None:
    assert only(member.hear(ev.FetchAsked(7, frozenset())), do.FetchDone).offsets == {}


@pytest.mark.parametrize("error", [LOADING, NOT_AVAILABLE, NOT_COORDINATOR])
def test_a_coordinator_that_cannot_tell_now_is_asked_again(member: Member, error: int) -> None:
    member.hear(ev.FetchAsked(7, frozenset(T[:1])))
    assert not every(fetched(member, error), do.FetchDone)
    member.wait(100)
    if error != LOADING:
        member.find()
    assert only(fetched(member, t0=(5, 0)), do.FetchDone).error is None


def test_offsets_of_an_open_transaction_are_waited_for(member: Member) -> None:
    member.hear(ev.FetchAsked(7, frozenset(T[:1])))
    assert not every(fetched(member, t0=(-1, UNSTABLE)), do.FetchDone)
    member.wait(100)
    assert only(fetched(member, t0=(5, 0)), do.FetchDone).error is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [(UNKNOWN_TOPIC, BrokerError), (NO_TOPIC, TopicAuthorizationException), (NO_GROUP, GroupAuthorizationException)],
)
def test_what_cannot_be_asked_is_told(member: Member, error: int, kind: type[Exception]) -> None:
    member.hear(ev.FetchAsked(7, frozenset(T[:1])))
    assert isinstance(only(fetched(member, t0=(-1, error)), do.FetchDone).error, kind)


def test_a_group_that_may_not_be_read_is_told(member: Member) -> None:
    member.hear(ev.FetchAsked(7, frozenset(T[:1])))
    assert isinstance(only(fetched(member, NO_GROUP), do.FetchDone).error, GroupAuthorizationException)


def test_a_broker_that_does_not_know_of_transactions_is_asked_without_that_word(member: Member) -> None:
    member.hear(ev.FetchAsked(7, frozenset(T[:1])))
    member.fail(OFFSET_FETCH, Failure.UNSUPPORTED)
    assert not member.sent(OFFSET_FETCH).require_stable
    fetched(member, t0=(5, 0))
    member.hear(ev.FetchAsked(8, frozenset(T[:1])))
    assert not member.sent(OFFSET_FETCH).require_stable, "it is remembered"


def test_a_question_ends_in_time(member: Member) -> None:
    member.hear(ev.FetchAsked(7, frozenset(T[:1])))
    said: list[do.Command] = []
    for _ in range(100):
        if member.has_open(OFFSET_FETCH):
            fetched(member, t0=(-1, UNSTABLE))
        if member.has_open(HEARTBEAT):
            member.beat()
        member.poll()
        said += member.wait(1000)
    told = only(said, do.FetchDone)
    assert isinstance(told.error, OffsetFetchFailed)


def test_an_answer_without_a_partition_is_no_answer(member: Member) -> None:
    member.hear(ev.FetchAsked(7, frozenset(T[:2])))
    assert isinstance(only(fetched(member, t0=(5, 0)), do.FetchDone).error, OffsetFetchFailed)


def test_nobody_asks_for_a_coordinator_while_nothing_is_wanted_of_one() -> None:
    member = Member()
    member.poll()
    member.wait(60_000)
    assert not member.open


def test_an_outsider_looks_for_no_other_coordinator_by_itself() -> None:
    member = outsider()
    member.commit()
    member.find(error=NOT_AVAILABLE)
    member.wait(60_000)
    member.find(error=NOT_AVAILABLE)
    member.wait(60_000)
    member.poll()
    assert not member.open


def test_positions_of_what_was_lost_meanwhile_are_not_committed() -> None:
    member = automatic()
    member.wait(5000)
    member.hear(ownership.PositionsCollected({T[0]: 9, T[1]: 9}))
    assert [row.partition_index for row in member.sent(OFFSET_COMMIT).topics[0].partitions] == [0]


@pytest.mark.parametrize(
    ("error", "is_passing"), [(RebalanceInProgressException("27"), True), (CommitFailedException("22"), False)]
)
def test_a_commit_that_the_group_refuses_while_it_forms_anew_passes_for_whoever_waits(
    error: ZkConsumerError, is_passing: bool
) -> None:
    """``commit_offsets()`` tries such a one again at once."""
    calls = CommitCalls()
    call = calls.open({T[0]: Offset(5)})
    calls.done(do.CommitDone(call.number, error, {}))
    assert call.refused[T[0]].is_transient is is_passing
