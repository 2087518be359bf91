"""What a member does in ZooKeeper, round by round: registering, claiming, reading positions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.zk_procedure_fixtures import GROUP, ProcedureSession, nodes_of, stat_of
from zkconsumer.member.events import AcquireResult, StoredOffset, WriteOutcome
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import (
    MULTI_BYTES_MAX,
    OUR_OWNER_VERSION,
    ROUNDS_MAX,
    AcquireOwnershipProcedure,
    deregister_member,
    list_owners,
    read_positions,
    register_member,
)
from zkconsumer.zk.requests import (
    Children,
    Create,
    GetMany,
    Multi,
    NoAuth,
    NodeExists,
    NoNode,
    Request,
    WatchFired,
    ZnodeData,
    paths_of,
)

TOPIC = "clicks"
THREAD = "g1_a-0"
REGISTRATION = paths.registration(GROUP, "g1_a")
FOUR = [TopicPartition(TOPIC, number) for number in range(4)]


# --- registration -----------------------------------------------------------------------------------------------


def test_a_registration_is_one_packet_when_its_parents_are_there(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    assert party.run(register_member(GROUP, "g1_a", b"data", party.session_id)) is None
    assert party.rounds == [[Create(REGISTRATION, b"data", ephemeral=True)]]
    stat = stat_of(server, REGISTRATION)
    assert stat is not None
    assert stat.ephemeral_owner == party.session_id
    assert server.data(REGISTRATION) == b"data"


@pytest.mark.parametrize("chroot", ["", "/kafka/cluster"])
def test_a_registration_in_an_empty_zookeeper_makes_its_parents(chroot: str) -> None:
    server = FakeZooKeeper()
    if chroot:
        server.ensure(chroot)
    party = ProcedureSession(server, chroot)
    assert party.run(register_member(GROUP, "g1_a", b"data", party.session_id)) is None
    stat = stat_of(server, f"{chroot}{REGISTRATION}")
    assert stat is not None
    assert stat.ephemeral_owner == party.session_id
    parent = stat_of(server, f"{chroot}{paths.ids(GROUP)}")
    assert parent is not None
    assert parent.ephemeral_owner == 0


def test_a_registration_that_this_session_made_already_is_ours(party: ProcedureSession) -> None:
    """The first answer was lost with the connection."""
    party.run(register_member(GROUP, "g1_a", b"data", party.session_id))
    assert party.run(register_member(GROUP, "g1_a", b"data", party.session_id)) is None


def test_a_registration_of_another_session_is_shown_and_left_alone(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    other.run(register_member(GROUP, "g1_a", b"theirs", other.session_id))
    held = party.run(register_member(GROUP, "g1_a", b"ours", party.session_id))
    assert isinstance(held, ZnodeData)
    assert held.stat.ephemeral_owner == other.session_id
    assert server.data(REGISTRATION) == b"theirs"


def test_a_registration_that_goes_while_it_is_looked_at_is_made(server: FakeZooKeeper, party: ProcedureSession) -> None:
    server.ensure(REGISTRATION)

    def between(number: int) -> None:
        if number == 2:
            server.remove(REGISTRATION)

    assert party.run(register_member(GROUP, "g1_a", b"data", party.session_id), between) is None


def test_a_registration_that_comes_and_goes_is_not_tried_for_ever(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    def between(number: int) -> None:
        if number % 2:
            server.ensure(REGISTRATION)
        else:
            server.remove(REGISTRATION)

    assert party.run(register_member(GROUP, "g1_a", b"data", party.session_id), between) == NodeExists(REGISTRATION)
    assert len(party.rounds) == 2 * ROUNDS_MAX


def test_a_registration_that_may_not_be_made_says_so(server: FakeZooKeeper, party: ProcedureSession) -> None:
    server.set_acl(paths.ids(GROUP), ())
    assert party.run(register_member(GROUP, "g1_a", b"data", party.session_id)) == NoAuth(REGISTRATION)


def test_a_registration_that_is_gone_already_is_deregistered(server: FakeZooKeeper, party: ProcedureSession) -> None:
    party.run(register_member(GROUP, "g1_a", b"data", party.session_id))
    assert party.run(deregister_member(GROUP, "g1_a", party.session_id)) is None
    assert server.data(REGISTRATION) is None
    assert party.run(deregister_member(GROUP, "g1_a", party.session_id)) is None


def test_a_registration_of_another_session_is_not_deleted(server: FakeZooKeeper, party: ProcedureSession) -> None:
    party.run(register_member(GROUP, "g1_a", b"theirs", party.session_id))
    assert party.run(deregister_member(GROUP, "g1_a", party.session_id + 1)) is None
    assert server.data(REGISTRATION) == b"theirs"


# --- claims -----------------------------------------------------------------------------------------------------


def claim(
    party: ProcedureSession,
    partitions: list[TopicPartition],
    *,
    look_first: bool = False,
    look_closely: bool = False,
    control_version: int | None = None,
) -> tuple[Mapping[TopicPartition, AcquireResult], set[str]]:
    claims = AcquireOwnershipProcedure(
        GROUP, party.session_id, dict.fromkeys(partitions, THREAD), control_version=control_version
    )
    party.run(claims.run(look_first=look_first, look_closely=look_closely))
    assert set(claims.results) == set(partitions), "every partition has an outcome"
    return claims.results, claims.unwatched


def outcomes(results: Mapping[TopicPartition, AcquireResult]) -> list[WriteOutcome]:
    return [results[tp].outcome for tp in sorted(results)]


def own(party: ProcedureSession, tp: TopicPartition, data: bytes = b"g1_b-0") -> None:
    """Own a partition as the original does: create, and never set."""
    party.server.ensure(paths.owners_of_topic(GROUP, tp.topic))
    party.ask([Create(paths.owner(GROUP, tp), data, ephemeral=True)], None)


def test_a_blind_claim_of_what_is_free_is_one_packet_and_recognisable(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    server.ensure(paths.owners_of_topic(GROUP, TOPIC))
    sent = party.store.packets_sent
    results, unwatched = claim(party, FOUR)
    assert party.store.packets_sent - sent == 1
    assert unwatched == set()
    for tp, node in zip(FOUR, nodes_of(party, *(paths.owner(GROUP, tp) for tp in FOUR)), strict=True):
        assert node is not None
        assert results[tp] == AcquireResult(WriteOutcome.DONE, node.stat.czxid)
        assert node.data == b"g1_a-0"
        assert (node.stat.version, node.stat.ephemeral_owner) == (OUR_OWNER_VERSION, party.session_id)


def test_the_parents_that_a_claim_misses_are_made(party: ProcedureSession) -> None:
    fresh = ProcedureSession(FakeZooKeeper())
    fresh.server.ensure(paths.ids(GROUP))
    results, _ = claim(fresh, [*FOUR, TopicPartition("other", 0)])
    assert outcomes(results) == [WriteOutcome.DONE] * 5


def test_a_blind_claim_that_meets_another_owner_gets_the_rest_and_leaves_a_watch(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    own(other, FOUR[1])
    told: list[object] = []
    party.store.listen(told.append)
    results, unwatched = claim(party, [FOUR[1]])
    assert outcomes(results) == [WriteOutcome.CONFLICT]
    results, unwatched = claim(party, [FOUR[0], FOUR[2]])
    assert outcomes(results) == [WriteOutcome.DONE, WriteOutcome.DONE]
    assert unwatched == set()
    assert server.data(paths.owner(GROUP, FOUR[1])) == b"g1_b-0"
    assert told == [WatchFired(paths.owners_of_topic(GROUP, TOPIC), "children")], "our own claims fire it as well"


def test_looking_first_claims_only_what_is_free(party: ProcedureSession, other: ProcedureSession) -> None:
    own(other, FOUR[1])
    results, _ = claim(party, FOUR, look_first=True)
    assert outcomes(results) == [WriteOutcome.DONE, WriteOutcome.CONFLICT, WriteOutcome.DONE, WriteOutcome.DONE]
    assert [type(request) for requests in party.rounds for request in requests] == [Children, Multi]


def test_looking_first_where_nothing_was_ever_claimed_still_claims(party: ProcedureSession) -> None:
    results, unwatched = claim(party, FOUR, look_first=True)
    assert outcomes(results) == [WriteOutcome.DONE] * 4
    assert unwatched == {TOPIC}, "a listing of what is missing leaves no watch"
    assert len(party.multis) == 1, "and shows that the parent must be made first"


@pytest.mark.parametrize("look_first", [True, False])
def test_a_parent_that_is_missing_is_made_though_other_errors_come_first(
    look_first: bool, party: ProcedureSession, other: ProcedureSession
) -> None:
    forbidden, taken = TopicPartition("a-forbidden", 0), TopicPartition("a-taken", 0)
    party.server.ensure(paths.owners_of_topic(GROUP, forbidden.topic))
    party.server.set_acl(paths.owners_of_topic(GROUP, forbidden.topic), ())
    own(other, taken)
    results, _ = claim(party, [forbidden, taken, *FOUR], look_first=look_first)
    assert outcomes(results) == [WriteOutcome.FAILED, WriteOutcome.CONFLICT, *[WriteOutcome.DONE] * 4]


def test_looking_closely_names_the_holder(party: ProcedureSession, other: ProcedureSession) -> None:
    own(other, FOUR[1])
    results, _ = claim(party, FOUR, look_closely=True)
    assert results[FOUR[1]] == AcquireResult(WriteOutcome.CONFLICT, why="owned by g1_b-0")


def test_a_persistent_owner_node_is_told_from_a_member(server: FakeZooKeeper, party: ProcedureSession) -> None:
    server.ensure(paths.owner(GROUP, FOUR[0]), b"by hand")
    results, _ = claim(party, FOUR, look_closely=True)
    assert results[FOUR[0]] == AcquireResult(WriteOutcome.CONFLICT, why="a persistent owner node exists: by hand")


def test_an_owner_node_that_is_no_text_is_shown_as_far_as_it_can_be(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    server.ensure(paths.owner(GROUP, FOUR[0]), b"\xff-by-hand")
    results, _ = claim(party, [FOUR[0]], look_closely=True)
    assert "-by-hand" in results[FOUR[0]].why


def test_looking_closely_finds_that_a_node_of_this_session_is_ours(party: ProcedureSession) -> None:
    party.claim(FOUR[0], thread=THREAD)
    results, _ = claim(party, FOUR, look_closely=True)
    assert outcomes(results) == [WriteOutcome.DONE] * 4
    assert results[FOUR[0]].czxid


def test_a_node_of_this_session_for_another_thread_is_not_taken_for_this_one(party: ProcedureSession) -> None:
    party.claim(FOUR[0], thread="g1_a-1")
    results, _ = claim(party, [FOUR[0]], look_closely=True)
    assert results[FOUR[0]] == AcquireResult(WriteOutcome.CONFLICT, why="owned by g1_a-1")


def test_a_holder_that_goes_while_it_is_looked_at_stays_refused_until_the_watch_says_so(
    party: ProcedureSession, other: ProcedureSession
) -> None:
    own(other, FOUR[0])
    claims = AcquireOwnershipProcedure(GROUP, party.session_id, {FOUR[0]: THREAD}, control_version=None)

    def between(_: int) -> None:
        if isinstance(party.rounds[-1][0], GetMany):
            party.server.remove(paths.owner(GROUP, FOUR[0]))

    party.run(claims.run(look_first=False, look_closely=True), between)
    assert claims.results[FOUR[0]].outcome is WriteOutcome.CONFLICT


def test_two_members_that_race_for_the_same_nodes_never_both_win(server: FakeZooKeeper) -> None:
    """The other one claims before each round of ours in turn."""
    for moment in range(1, 5):
        for tp in FOUR:
            server.remove(paths.owner(GROUP, tp))
        ours, theirs = ProcedureSession(server), ProcedureSession(server)
        claims = AcquireOwnershipProcedure(GROUP, ours.session_id, dict.fromkeys(FOUR, THREAD), control_version=None)

        def between(number: int, moment: int = moment, theirs: ProcedureSession = theirs) -> None:
            if number == moment:
                own(theirs, FOUR[1])
                own(theirs, FOUR[3])

        ours.run(claims.run(look_first=True, look_closely=False), between)
        for tp, claimed in claims.results.items():
            stat = stat_of(server, paths.owner(GROUP, tp))
            assert stat is not None
            assert (claimed.outcome is WriteOutcome.DONE) == (stat.ephemeral_owner == ours.session_id)


def test_one_partition_that_may_not_be_claimed_does_not_stop_the_others(party: ProcedureSession) -> None:
    bad = TopicPartition("forbidden", 0)
    party.server.ensure(paths.owners_of_topic(GROUP, "forbidden"))
    party.server.set_acl(paths.owners_of_topic(GROUP, "forbidden"), ())
    results, _ = claim(party, [bad, *FOUR])
    assert outcomes(results) == [*[WriteOutcome.DONE] * 4, WriteOutcome.FAILED]
    where = paths.owners_of_topic(GROUP, "forbidden")
    words = f"NoAuth: we may not make nodes below {where}, and its access control list cannot be read"
    assert results[bad].why == words


def test_many_that_may_not_be_claimed_take_three_rounds_of_multis_and_no_more(party: ProcedureSession) -> None:
    bad = [TopicPartition("forbidden", number) for number in range(10)]
    party.server.ensure(paths.owners_of_topic(GROUP, "forbidden"))
    party.server.set_acl(paths.owners_of_topic(GROUP, "forbidden"), ())
    results, _ = claim(party, [*bad, *FOUR])
    assert outcomes(results) == [*[WriteOutcome.DONE] * 4, *[WriteOutcome.FAILED] * 10]
    assert sum(any(isinstance(request, Multi) for request in requests) for requests in party.rounds) == ROUNDS_MAX


def test_every_claim_checks_the_control_znode_that_was_read(server: FakeZooKeeper, party: ProcedureSession) -> None:
    server.ensure(paths.control(GROUP))
    server.ensure(paths.owners_of_topic(GROUP, TOPIC))
    results, _ = claim(party, FOUR, control_version=0)
    assert outcomes(results) == [WriteOutcome.DONE] * 4
    assert all(multi.ops[0].path == paths.control(GROUP) for multi in party.multis)


def test_nothing_is_claimed_once_the_control_znode_has_changed(server: FakeZooKeeper, party: ProcedureSession) -> None:
    server.ensure(paths.control(GROUP), b"1")
    server.ensure(paths.control(GROUP), b"2")
    results, _ = claim(party, FOUR, control_version=0)
    assert outcomes(results) == [WriteOutcome.FAILED] * 4
    assert {claimed.why for claimed in results.values()} == {"the control znode of the group changed"}
    assert server.data(paths.owner(GROUP, FOUR[0])) is None


@pytest.mark.parametrize("is_done", [True, False])
def test_a_claim_whose_answer_is_lost_is_of_unknown_outcome(
    is_done: bool, server: FakeZooKeeper, party: ProcedureSession
) -> None:
    server.ensure(paths.owners_of_topic(GROUP, TOPIC))
    server.lose_connection_on_next(lambda request: isinstance(request, Multi), is_done=is_done)
    results, _ = claim(party, FOUR)
    assert outcomes(results) == [WriteOutcome.UNKNOWN] * 4
    assert (server.data(paths.owner(GROUP, FOUR[0])) is not None) is is_done


def test_a_claim_is_not_made_in_another_session_than_the_one_it_was_decided_in(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    server.ensure(paths.owners_of_topic(GROUP, TOPIC))
    claims = AcquireOwnershipProcedure(GROUP, party.session_id, dict.fromkeys(FOUR, THREAD), control_version=None)
    party.run(claims.run(look_first=False, look_closely=False), lambda _: server.expire(party.store))
    assert outcomes(claims.results) == [WriteOutcome.UNKNOWN] * 4
    assert server.data(paths.owner(GROUP, FOUR[0])) is None


def test_five_thousand_claims_fit_into_few_packets(server: FakeZooKeeper, party: ProcedureSession) -> None:
    many = [TopicPartition(TOPIC, number) for number in range(5_000)]
    server.ensure(paths.owners_of_topic(GROUP, TOPIC))
    sent = party.store.packets_sent
    results, _ = claim(party, many)
    assert set(outcomes(results)) == {WriteOutcome.DONE}
    assert party.store.packets_sent - sent <= 5


def test_long_names_make_more_packets_and_none_that_a_server_refuses(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    many = [TopicPartition("x" * 249, number) for number in range(2_000)]
    server.ensure(paths.owners_of_topic(GROUP, "x" * 249))
    results, _ = claim(party, many)
    assert set(outcomes(results)) == {WriteOutcome.DONE}
    assert len(party.multis) > 1
    assert max(sum(map(len, paths_of(multi))) for multi in party.multis) < MULTI_BYTES_MAX


# --- listing owners, reading positions --------------------------------------------------------------------------


def test_owners_are_listed_by_topic_and_what_cannot_be_listed_is_left_out(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    party.claim(FOUR[0], FOUR[2])
    for name in ("no-number", "007", "9" * 5_000):
        server.ensure(f"{paths.owners_of_topic(GROUP, TOPIC)}/{name}")
    assert party.run(list_owners(GROUP, [TOPIC, "never-claimed"])) == {TOPIC: frozenset({0, 2})}


def test_positions_come_with_their_versions_and_reasons(server: FakeZooKeeper, party: ProcedureSession) -> None:
    values = [b"17", b"-5", b"abc"]
    for tp, value in zip(FOUR, values, strict=False):
        server.ensure(paths.offset(GROUP, tp), b"0")
        server.ensure(paths.offset(GROUP, tp), value)
    hidden = TopicPartition("hidden", 0)
    server.ensure(paths.offset(GROUP, hidden), b"1")
    server.set_acl(paths.offset(GROUP, hidden), ())
    stored, failed = party.run(read_positions(GROUP, [*FOUR, hidden]))
    assert stored == {FOUR[0]: StoredOffset(17, 1), FOUR[1]: StoredOffset(-1, 1), FOUR[3]: StoredOffset(-1, -1)}
    assert set(failed) == {FOUR[2], hidden}
    assert failed[hidden] == f"NoAuth {paths.offset(GROUP, hidden)}"


def test_positions_that_the_connection_did_not_bring_are_neither_known_nor_failed(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    """They are asked for again: a position that is unknown must become neither a reset nor an error line."""
    server.lose_connection_on_next(lambda request: isinstance(request, GetMany), is_done=False)
    assert party.run(read_positions(GROUP, FOUR)) == ({}, {})


def test_what_a_registration_misses_is_named_by_its_path(party: ProcedureSession) -> None:
    requests: list[Request] = [Create("/nowhere/at/all")]
    assert party.ask(requests, None) == [NoNode("/nowhere/at/all")]
