"""Discovery and membership: what AbstractCoordinatorTest of Kafka (3.0 to 4.0) holds, in our own words."""

from __future__ import annotations

import pytest

from tests.coordinator.client_harness import (
    HEARTBEAT_MS,
    NODE,
    POLL_MS,
    SESSION_MS,
    Member,
    T,
    coordinator,
    every,
    only,
)
from zkconsumer.errors import SaslAuthenticationException
from zkconsumer.kafka.error_codes import BrokerError
from zkconsumer.kafka.group import commands as do
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.commands import Callback
from zkconsumer.kafka.group.errors import (
    FencedInstanceIdException,
    GroupAuthorizationException,
    GroupMaxSizeReachedException,
    InconsistentGroupProtocolException,
    InvalidGroupIdException,
    InvalidSessionTimeoutException,
    UnsupportedVersionException,
)
from zkconsumer.kafka.group.events import Failure
from zkconsumer.kafka.group.generation import NO_GENERATION, Generation, MemberState
from zkconsumer.member import ownership
from zkconsumer.wire.schemas import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT, SYNC_GROUP
from zkconsumer.wire.schemas.heartbeat import HeartbeatResponse
from zkconsumer.wire.schemas.leave_group import LeaveGroupResponse, LeavingMemberResponse

LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE, FENCED, MEMBER_ID_REQUIRED = 22, 25, 27, 82, 79


def raised(commands: list[do.Command]) -> do.Raise:
    return only(commands, do.Raise)


# --- finding the coordinator ----------------------------------------------------------------------------------------


def test_discovery_waits_longer_after_each_failure() -> None:
    member = Member()
    member.subscribe()
    pauses = []
    for _ in range(6):
        member.find(error=NOT_AVAILABLE)
        assert not member.has_open(FIND_COORDINATOR)
        start = member.now_ms
        while not member.has_open(FIND_COORDINATOR):
            member.wait(10)
        pauses.append(member.now_ms - start)
    assert pauses == [100, 200, 400, 800, 1000, 1000]


def test_a_coordinator_that_cannot_be_reached_is_looked_for_again_after_a_pause() -> None:
    member = Member()
    member.subscribe()
    member.find()
    member.disconnect()
    assert not member.has_open(FIND_COORDINATOR)
    member.wait(100)
    assert member.has_open(FIND_COORDINATOR)


def test_there_is_one_question_for_the_coordinator_at_a_time() -> None:
    member = Member()
    member.subscribe()
    for _ in range(3):
        member.poll()
        member.commit()
    assert member.count_open(FIND_COORDINATOR) == 1
    member.fail(FIND_COORDINATOR, Failure.NO_BROKER)
    assert not member.has_open(FIND_COORDINATOR), "without a broker the question failed, and a pause follows"
    member.wait(100)
    assert member.count_open(FIND_COORDINATOR) == 1


def test_a_login_that_is_refused_is_told_and_asked_again_with_the_next_call() -> None:
    member = Member()
    member.subscribe()
    refused = SaslAuthenticationException("no such user")
    assert raised(member.fail(FIND_COORDINATOR, Failure.DISCONNECTED, refused)).error is refused
    member.wait(60_000)
    assert not member.has_open(FIND_COORDINATOR), "the program is told once, not asked for ever"
    member.poll()
    assert member.has_open(FIND_COORDINATOR)


def test_what_was_found_while_a_callback_runs_is_told_to_the_program() -> None:
    member = Member()
    member.join(T[:1])
    member.beat(NOT_COORDINATOR)
    member.wait(100)
    assert isinstance(raised(member.find(error=30)).error, GroupAuthorizationException)


def test_a_call_while_discovery_goes_on_loses_nothing() -> None:
    member = Member()
    member.subscribe()
    member.poll()
    assert member.count_open(FIND_COORDINATOR) == 1
    member.find()
    assert member.has_open(JOIN_GROUP)


# --- joining --------------------------------------------------------------------------------------------------------


def looking() -> Member:
    member = Member()
    member.subscribe()
    member.metadata()
    return member


def joining(**settings: object) -> Member:
    """A member whose first JoinGroup is on its way."""
    member = Member(**settings)  # type: ignore[arg-type]
    member.subscribe()
    member.metadata()
    member.find()
    return member


def syncing(generation: int = 1) -> Member:
    member = joining()
    member.joined(generation)
    return member


def test_a_join_that_takes_long_goes_on_in_the_next_call() -> None:
    member = joining()
    member.wait(40_000)
    member.poll()
    assert member.count_open(JOIN_GROUP) == 1, "the same question, not another one"
    member.rejoin(T[:1], generation=1)
    assert member.machine.state is MemberState.STABLE


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (81, GroupMaxSizeReachedException),
        (23, InconsistentGroupProtocolException),
        (26, InvalidSessionTimeoutException),
        (24, InvalidGroupIdException),
        (30, GroupAuthorizationException),
        (35, UnsupportedVersionException),
        (-1, BrokerError),
    ],
)
def test_a_refusal_for_good_is_told_and_tried_again_with_the_next_call(error: int, kind: type[Exception]) -> None:
    member = joining()
    told = raised(member.join_refused(error))
    assert isinstance(told.error, kind)
    assert not told.is_fatal
    member.wait(30_000)
    assert not member.has_open(JOIN_GROUP)
    member.poll()
    assert member.has_open(JOIN_GROUP)


def test_the_answer_to_a_join_is_waited_for_five_seconds_longer_than_the_rebalance() -> None:
    assert joining().request(JOIN_GROUP).timeout_ms == POLL_MS + 5000


def test_the_answer_to_a_join_is_never_waited_for_shorter_than_other_answers() -> None:
    member = joining(max_poll_interval_ms=30_000)
    assert member.request(JOIN_GROUP).timeout_ms == 40_000


def test_the_longest_rebalance_overflows_nothing() -> None:
    member = joining(max_poll_interval_ms=2**31 - 1)
    assert member.request(JOIN_GROUP).timeout_ms == 2**31 - 1 + 5000
    assert member.sent(JOIN_GROUP).rebalance_timeout_ms == 2**31 - 1


def test_the_member_id_that_is_required_is_kept_and_the_join_repeated_at_once() -> None:
    member = joining()
    member.join_refused(MEMBER_ID_REQUIRED, "me-1")
    assert member.machine.generation == Generation(member_id="me-1")
    assert member.machine.state is MemberState.PREPARING_REBALANCE
    assert member.sent(JOIN_GROUP).member_id == "me-1"


def test_a_coordinator_that_could_not_write_is_asked_again_at_once() -> None:
    member = joining()
    member.join_refused(REBALANCE)
    assert member.has_open(JOIN_GROUP)


def test_a_join_that_fails_at_once_again_and_again_is_slowed_down() -> None:
    member = joining()
    for _ in range(5):
        member.join_refused(REBALANCE)
    assert member.has_open(JOIN_GROUP)
    member.join_refused(REBALANCE)
    assert not member.has_open(JOIN_GROUP)
    member.wait(1000)
    assert member.has_open(JOIN_GROUP)


@pytest.mark.parametrize("error", [LOADING, NOT_AVAILABLE, NOT_COORDINATOR])
def test_a_passing_error_of_a_join_is_tried_again_after_a_pause(error: int) -> None:
    member = joining()
    said = member.join_refused(error)
    assert bool(every(said, do.DisconnectCoordinator)) == (error != LOADING), (
        "15 and 16 say that it is not the coordinator"
    )
    for _ in range(3):
        member.poll()
        assert not member.has_open(JOIN_GROUP), "calls do not shorten the pause"
    member.wait(100)
    if error != LOADING:
        member.find()
    assert member.has_open(JOIN_GROUP)


def test_an_instance_id_that_the_coordinator_does_not_know_is_forgotten_and_joins_anew() -> None:
    member = joining(group_instance_id="one")
    member.rejoin(T[:1], generation=1, member="one-1")
    member.beat(REBALANCE)
    member.returned()
    member.join_refused(UNKNOWN_MEMBER)
    assert member.machine.generation == NO_GENERATION
    assert member.sent(JOIN_GROUP).member_id == ""
    assert member.sent(JOIN_GROUP).group_instance_id == "one"


def test_a_fenced_instance_ends_with_its_join() -> None:
    member = joining(group_instance_id="one")
    told = raised(member.join_refused(FENCED))
    assert isinstance(told.error, FencedInstanceIdException)
    assert told.is_fatal
    member.poll()
    member.wait(60_000)
    assert not member.open, "it would fence the other one in its turn"


def test_a_fenced_instance_ends_with_its_sync() -> None:
    member = syncing()
    told = raised(member.synced(error=FENCED))
    assert isinstance(told.error, FencedInstanceIdException)
    assert told.is_fatal


def test_a_fenced_instance_ends_with_its_heartbeat() -> None:
    member = joining(group_instance_id="one")
    member.rejoin(T[:1], generation=1)
    said = member.beat(FENCED)
    assert raised(said).is_fatal
    assert only(said, ownership.Drain).partitions == tuple(T[:1])
    assert member.machine.generation == NO_GENERATION


PROTOCOL_CASES = [
    # join type, sync type, sync name, agreed
    ("consumer", "consumer", "dealer", True),
    (None, None, None, True),
    (None, "consumer", "dealer", True),
    ("consumer", None, None, True),
    ("connect", "consumer", "dealer", False),
    ("consumer", "connect", "dealer", False),
    ("consumer", "consumer", "other", False),
]


@pytest.mark.parametrize(("join_type", "sync_type", "sync_name", "is_agreed"), PROTOCOL_CASES)
def test_a_coordinator_that_speaks_of_another_protocol_is_not_followed(
    join_type: str | None, sync_type: str | None, sync_name: str | None, is_agreed: bool
) -> None:
    member = joining()
    said = member.joined(protocol_type=join_type)
    if member.has_open(SYNC_GROUP):
        said = member.synced(T[:1], protocol_type=sync_type, protocol_name=sync_name)
    told = every(said, do.Raise)
    assert [type(one.error) for one in told] == ([] if is_agreed else [InconsistentGroupProtocolException])
    assert (member.machine.state is MemberState.STABLE) == is_agreed


def test_without_a_generation_the_name_of_the_protocol_is_not_looked_at() -> None:
    member = syncing()
    member.wait(HEARTBEAT_MS)
    member.beat(UNKNOWN_MEMBER)
    assert member.machine.generation == NO_GENERATION
    said = member.synced(T[:1], protocol_type="consumer", protocol_name="other")
    assert not every(said, do.Raise)
    assert member.sent(JOIN_GROUP).member_id == ""


def test_the_member_id_stays_when_the_connection_breaks_after_a_join() -> None:
    member = joining()
    member.join_refused(MEMBER_ID_REQUIRED, "me-1")
    member.disconnect()
    assert member.machine.generation.member_id == "me-1"
    assert member.machine.state is MemberState.PREPARING_REBALANCE
    member.wait(100)
    member.find()
    assert member.sent(JOIN_GROUP).member_id == "me-1"


def test_the_member_id_stays_when_the_connection_breaks_after_a_sync() -> None:
    member = syncing()
    member.disconnect()
    assert member.machine.generation.member_id == "me"
    member.wait(100)
    member.find()
    assert member.sent(JOIN_GROUP).member_id == "me"


def test_the_reason_of_a_join_is_told_kept_over_a_retry_and_forgotten_when_joined() -> None:
    member = joining()
    assert member.sent(JOIN_GROUP).reason == ""
    member.rejoin(T[:1], generation=1)
    member.hear(ev.RejoinAsked("x" * 300))
    member.returned()
    assert member.sent(JOIN_GROUP).reason == "x" * 255
    member.join_refused(MEMBER_ID_REQUIRED, "me-2")
    assert member.sent(JOIN_GROUP).reason == "x" * 255
    member.joined(2)
    member.synced(error=REBALANCE)
    assert member.sent(JOIN_GROUP).reason == "rebalance failed due to REBALANCE_IN_PROGRESS (27)"
    member.rejoin(T[:1], generation=3)
    assert member.machine.rejoin_reason == ""


def test_an_old_refusal_of_a_join_does_not_reset_a_newer_generation() -> None:
    member = joining()
    member.machine.generation = Generation(9, "newer", "dealer")
    member.join_refused(UNKNOWN_MEMBER)
    assert member.machine.generation == Generation(9, "newer", "dealer")
    assert member.has_open(JOIN_GROUP)


@pytest.mark.parametrize("error", [UNKNOWN_MEMBER, ILLEGAL_GENERATION])
def test_an_old_refusal_of_a_sync_does_not_reset_a_newer_generation(error: int) -> None:
    member = syncing()
    member.machine.generation = Generation(9, "newer", "dealer")
    member.synced(error=error)
    assert member.machine.generation == Generation(9, "newer", "dealer")
    assert member.has_open(JOIN_GROUP)


@pytest.mark.parametrize(("error", "member_id"), [(UNKNOWN_MEMBER, ""), (ILLEGAL_GENERATION, "me")])
def test_a_refused_sync_resets_the_generation_and_only_25_the_member_id(error: int, member_id: str) -> None:
    member = syncing()
    member.synced(error=error)
    assert member.machine.generation.generation_id == -1
    assert member.sent(JOIN_GROUP).member_id == member_id


def test_the_answer_to_a_join_that_lost_its_generation_meanwhile_is_not_synced() -> None:
    member = Member()
    member.join(T[:1])
    member.hear(ev.RejoinAsked("again"))
    member.returned()
    assert member.has_open(JOIN_GROUP)
    member.machine.reset_state_and_rejoin("dropped", keeps_member_id=False)
    member.joined(2)
    assert not member.has_open(SYNC_GROUP)
    assert not every(member.said[-3:], do.Raise)
    member.wait(1000)
    assert member.has_open(JOIN_GROUP)


@pytest.mark.parametrize("stop_at", ["join sent", "join received", "sync sent", "sync received", "callback"])
@pytest.mark.parametrize("calls", [0, 3], ids=["nobody calls", "calls"])
def test_calls_of_the_program_neither_help_nor_hinder_a_join(stop_at: str, calls: int) -> None:
    """The tests of wakeups: a call that returns early loses nothing, and answers complete a join without any call."""
    member = joining()

    def called(where: str) -> None:
        if where == stop_at:
            for _ in range(calls):
                member.poll()

    called("join sent")
    member.joined(leader="me")
    called("join received")
    called("sync sent")
    member.synced(T[:2])
    called("sync received")
    called("callback")
    member.returned()
    assert member.machine.state is MemberState.STABLE
    assert [len(every(member.said, do.Invoke)), len(every(member.said, do.StartPartitions))] == [1, 1]
    assert sum(send.api_key == JOIN_GROUP.key for send in every(member.said, do.Send)) == 1
    assert sum(send.api_key == SYNC_GROUP.key for send in every(member.said, do.Send)) == 1


# --- heartbeats -----------------------------------------------------------------------------------------------------


def test_heartbeats_are_sent_while_the_share_is_waited_for() -> None:
    member = syncing()
    member.wait(HEARTBEAT_MS)
    assert member.sent(HEARTBEAT).generation_id == 1


def test_no_heartbeat_is_sent_while_a_join_is_on_its_way() -> None:
    member = joining()
    member.wait(10 * HEARTBEAT_MS)
    assert not member.has_open(HEARTBEAT)


def test_a_rebalance_that_a_heartbeat_tells_of_in_the_middle_of_one_is_known_already() -> None:
    member = syncing()
    member.wait(HEARTBEAT_MS)
    member.answer(HEARTBEAT, HeartbeatResponse(error_code=REBALANCE))
    member.synced(T[:1])
    member.returned()
    assert not member.machine.rejoin_needed
    assert not member.has_open(JOIN_GROUP)


@pytest.mark.parametrize("error", [ILLEGAL_GENERATION, UNKNOWN_MEMBER, FENCED])
def test_an_old_refusal_of_a_heartbeat_does_not_reset_a_newer_generation(error: int) -> None:
    member = Member()
    member.join(T[:1])
    member.wait(HEARTBEAT_MS)
    newer = Generation(9, "newer", "dealer")
    member.machine.generation = newer
    said = member.answer(HEARTBEAT, HeartbeatResponse(error_code=error))
    assert member.machine.generation == newer
    assert not every(said, do.Raise)
    assert member.machine.state is MemberState.STABLE


@pytest.mark.parametrize(("error", "member_id"), [(ILLEGAL_GENERATION, "me"), (UNKNOWN_MEMBER, "")])
def test_a_refused_heartbeat_resets_the_generation_and_what_was_owned_is_lost(error: int, member_id: str) -> None:
    member = Member()
    member.join(T[:1])
    said = member.beat(error)
    assert only(said, ownership.Drain).partitions == tuple(T[:1])
    assert only(said, do.Invoke).callback is Callback.LOST
    member.returned()
    assert member.sent(JOIN_GROUP).member_id == member_id


@pytest.mark.parametrize(("error", "kind"), [(-1, BrokerError), (30, GroupAuthorizationException)])
def test_an_unexpected_answer_to_a_heartbeat_is_told_to_the_program_and_heartbeats_go_on(
    error: int, kind: type[Exception]
) -> None:
    member = Member()
    member.join(T[:1])
    assert isinstance(raised(member.beat(error)).error, kind)
    member.wait(200)
    assert member.has_open(HEARTBEAT)


def test_a_heartbeat_that_is_overdue_is_sent_with_the_next_call() -> None:
    member = Member()
    member.join(T[:1])
    member.now_ms += HEARTBEAT_MS  # the timer is late
    member.poll()
    assert member.has_open(HEARTBEAT)


def test_a_coordinator_that_is_silent_for_a_session_is_looked_for_again() -> None:
    member = Member()
    member.join(T[:1])
    member.wait(SESSION_MS)
    assert only(member.said, do.DisconnectCoordinator)
    assert whys(member) == ["session timed out without a heartbeat response"]
    member.wait(100)
    assert member.has_open(FIND_COORDINATOR)
    assert member.machine.state is MemberState.STABLE, "only the coordinator can tell that we are out"


def whys(member: Member) -> list[object]:
    """Why the coordinator was given up."""
    notes = [note for note in member.said if isinstance(note, do.LogMemberEvent) and note.name == "coordinator-unknown"]
    return [dict(note.fields)["reason"] for note in notes]


def test_a_process_that_was_paused_says_so_and_does_not_blame_the_coordinator() -> None:
    member = Member()
    member.join(T[:1])
    paused_ms = 2 * SESSION_MS
    member.now_ms += paused_ms
    member.poll()
    due_ms = paused_ms - HEARTBEAT_MS
    assert whys(member) == [
        f"this process was paused: its heartbeat was due {due_ms} ms ago, and the session has timed out"
    ]


def test_a_heartbeat_without_an_answer_is_repeated_soon() -> None:
    member = Member()
    member.join(T[:1])
    member.wait(HEARTBEAT_MS)
    member.disconnect()
    member.wait(100)
    member.find()
    assert member.has_open(HEARTBEAT)


def test_a_program_that_stays_away_makes_its_member_leave_until_it_calls_again() -> None:
    member = Member()
    member.join(T[:1])
    while member.now_ms < POLL_MS and not member.has_open(LEAVE_GROUP):
        member.wait(HEARTBEAT_MS)
        if member.has_open(HEARTBEAT):
            member.beat()
    assert member.sent(LEAVE_GROUP).members[0].reason == "consumer poll timeout has expired"
    assert every(member.said, ownership.Drain), "others will read these soon"
    assert every(member.said, do.Invoke)[-1].callback is Callback.LOST
    member.left()
    member.returned()
    member.wait(POLL_MS)
    assert not member.has_open(JOIN_GROUP)
    member.poll()
    assert member.has_open(JOIN_GROUP)


# --- leaving --------------------------------------------------------------------------------------------------------


def leaving(**settings: object) -> Member:
    member = joining(**settings)
    member.rejoin(T[:1], generation=1)
    member.hear(ev.Unsubscribed())
    member.returned()
    return member


def test_a_dynamic_member_leaves() -> None:
    member = leaving()
    (named,) = member.sent(LEAVE_GROUP).members
    assert (named.member_id, named.group_instance_id) == ("me", None)


def test_a_static_member_does_not_leave() -> None:
    member = leaving(group_instance_id="one")
    assert not member.has_open(LEAVE_GROUP)
    assert member.machine.generation == NO_GENERATION


def test_the_reason_of_leaving_is_told_and_cut() -> None:
    member = Member()
    member.join(T[:1])
    member.machine.maybe_leave_group("y" * 300)
    send = only(member.poll(), do.Send)
    assert send.body.members[0].reason == "y" * 255


LEAVE_ANSWERS = {
    "normal": (LeaveGroupResponse(members=[LeavingMemberResponse(member_id="me")]), "left"),
    "nobody": (LeaveGroupResponse(), "left"),
    "refused": (LeaveGroupResponse(error_code=UNKNOWN_MEMBER), "leave-failed"),
    "member refused": (
        LeaveGroupResponse(members=[LeavingMemberResponse(member_id="me", error_code=UNKNOWN_MEMBER)]),
        "leave-failed",
    ),
    "two members": (
        LeaveGroupResponse(members=[LeavingMemberResponse(member_id="me"), LeavingMemberResponse(member_id="you")]),
        "leave-response-unexpected",
    ),
}


@pytest.mark.parametrize("case", LEAVE_ANSWERS)
def test_whatever_the_answer_to_a_leave_nothing_is_tried_again(case: str) -> None:
    body, note = LEAVE_ANSWERS[case]
    member = leaving()
    said = member.left(body)
    assert [each.name for each in every(said, do.LogMemberEvent)] == [note]
    member.wait(60_000)
    assert not member.open


def test_a_broker_that_does_not_know_the_newer_form_of_leaving_is_told_in_the_older_one() -> None:
    member = leaving()
    member.fail(LEAVE_GROUP, Failure.UNSUPPORTED)
    assert member.sent(LEAVE_GROUP).member_id == "me"
    assert member.request(LEAVE_GROUP).version_most == 2


# --- what is seen of it ---------------------------------------------------------------------------------------------


def test_every_step_can_be_counted() -> None:
    member = Member()
    member.join(T[:1])
    member.beat(REBALANCE)
    member.returned()
    member.joined(2, leader="me")
    member.synced(T[:1])
    member.returned()
    member.beat(UNKNOWN_MEMBER)
    noted = [each.name for each in every(member.said, do.LogMemberEvent)]
    assert noted == [
        "coordinator-found", "joining", "joined", "synced", "assignor-notified", "assigned",
        "rejoin-requested", "revoking", "joining", "joined", "group-assigned", "synced", "assignor-notified",
        "assigned", "heartbeat-failed", "generation-reset", "rejoin-requested", "partitions-given-away", "losing",
    ]  # fmt: skip


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    member = Member()
    member.join(T[:1])
    before = member.machine.generation
    assert member.hear(ev.Responded(10_000, coordinator(2))) == []
    assert member.hear(ev.RequestFailed(10_001, Failure.DISCONNECTED)) == []
    assert member.machine.generation == before


# --- answers that come late -----------------------------------------------------------------------------------------


def test_a_late_failure_of_the_old_coordinator_is_none_of_the_new_one() -> None:
    member = Member()
    member.join(T[:1])
    member.commit()
    member.beat(NOT_COORDINATOR)
    member.wait(100)
    member.find(node=2)
    member.fail(OFFSET_COMMIT)
    assert member.machine.coordinator_discovery.coordinator is not None


def test_the_answer_to_a_join_that_was_given_up_is_not_that_to_the_next_one() -> None:
    member = joining()
    member.hear(ev.Unsubscribed())
    member.subscribe()
    assert member.count_open(JOIN_GROUP) == 2
    member.joined(1, member="of-before")
    assert not member.has_open(SYNC_GROUP)
    member.joined(2)
    assert member.sent(SYNC_GROUP).member_id == "me"


def test_a_session_begins_with_its_generation_however_long_the_join_took() -> None:
    member = joining()
    member.wait(5 * SESSION_MS)
    member.poll()
    member.joined()
    assert not member.has_open(HEARTBEAT)
    member.wait(HEARTBEAT_MS)
    assert member.has_open(HEARTBEAT)
    assert not every(member.said, do.DisconnectCoordinator)


def test_a_connection_that_broke_is_not_closed_once_more() -> None:
    member = Member()
    member.join(T[:1])
    assert not every(member.disconnect(), do.DisconnectCoordinator)


def test_a_silent_coordinator_is_left_with_its_connection() -> None:
    member = joining()
    assert only(member.fail(JOIN_GROUP, Failure.TIMED_OUT), do.DisconnectCoordinator).node == 1


def test_a_coordinator_that_answered_is_looked_for_without_a_longer_pause_when_it_goes() -> None:
    member = Member()
    member.join(T[:1])
    for _ in range(3):
        member.disconnect()
        member.wait(100)
        member.find()
        member.wait(HEARTBEAT_MS)
        member.beat()


def test_a_follower_joins_again_when_the_coordinator_is_unknown_by_the_time_of_its_sync_group() -> None:
    """JoinGroup has a connection of its own: it is answered though the other one has ended."""
    member = Member()
    member.subscribe()
    member.metadata()
    member.find()
    member.hear(ev.Disconnected(NODE))
    member.joined(1)
    assert not member.has_open(SYNC_GROUP)
    member.wait(1_000)
    member.find()
    member.joined(2)
    member.synced(T[:2])
    assert member.machine.state is MemberState.STABLE
