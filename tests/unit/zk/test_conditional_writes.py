"""Commits and releases: what they write, and what they leave alone, whatever others do in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

import pytest

from tests.zk_procedure_fixtures import GROUP, ProcedureSession, nodes_of, stat_of
from zkconsumer.member.commands import CommitToZooKeeper, OffsetToCommit, PartitionToRelease
from zkconsumer.member.events import CommitToZooKeeperCompleted, StoredOffset, WriteOutcome, ZooKeeperWriteResult
from zkconsumer.member.offset_committer import OffsetCommitter
from zkconsumer.member.partition_state_machine import OwnershipAcquired, PartitionStateMachine, PositionKnown
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.types import TopicPartition
from zkconsumer.zk import conditional_writes, paths
from zkconsumer.zk.group_procedures import OUR_OWNER_VERSION, ROUNDS_MAX, Procedure
from zkconsumer.zk.requests import Create, GetMany, Multi, SessionEnded, SetData, Stat, paths_of

TOPIC = "clicks"
FOUR = [TopicPartition(TOPIC, number) for number in range(4)]
NONE_YET = StoredOffset()

Results = Mapping[TopicPartition, ZooKeeperWriteResult]


def commit_of(
    party: ProcedureSession,
    offsets: Mapping[TopicPartition, int],
    known: Results | None = None,
    control_version: int | None = None,
) -> Procedure[dict[TopicPartition, ZooKeeperWriteResult]]:
    """A commit at the versions that the results of an earlier one have left."""
    stored = {tp: known[tp].stored if known is not None else NONE_YET for tp in offsets}
    wanted = {tp: OffsetToCommit(offset, stored[tp]) for tp, offset in offsets.items()}
    return conditional_writes.commit_partitions(GROUP, party.session_id, wanted, control_version=control_version)


def commit(
    party: ProcedureSession,
    offsets: Mapping[TopicPartition, int],
    known: Results | None = None,
    between: Callable[[int], object] | None = None,
    control_version: int | None = None,
) -> Results:
    results = party.run(commit_of(party, offsets, known, control_version), between)
    assert set(results) == set(offsets), "every partition has an outcome"
    return results


def release(
    party: ProcedureSession, parts: Mapping[TopicPartition, PartitionToRelease], control_version: int | None = None
) -> Results:
    results = party.run(
        conditional_writes.release_partitions(GROUP, party.session_id, parts, control_version=control_version)
    )
    assert set(results) == set(parts), "every partition has an outcome"
    return results


def outcomes(results: Results) -> list[WriteOutcome]:
    return [results[tp].outcome for tp in sorted(results)]


def stored(server: FakeZooKeeper, *partitions: TopicPartition) -> list[bytes | None]:
    return [server.data(paths.offset(GROUP, tp)) for tp in partitions]


def set_offset(party: ProcedureSession, tp: TopicPartition, value: bytes) -> None:
    """What an original member does: write, whoever the owner is."""
    party.ask([SetData(paths.offset(GROUP, tp), value)], None)


# --- a commit in peace ------------------------------------------------------------------------------------------


def test_a_first_commit_makes_what_is_missing_and_the_next_one_is_one_packet(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    party.claim(*FOUR)
    first = commit(party, dict.fromkeys(FOUR, 5))
    assert [type(request) for request in party.rounds[0]] == [Create, Create]
    assert stored(server, *FOUR) == [b"5"] * 4
    assert {written.stored for written in first.values()} == {StoredOffset(5, 0)}
    sent = party.store.packets_sent
    second = commit(party, dict.fromkeys(FOUR, 9), first)
    assert party.store.packets_sent - sent == 1
    assert stored(server, *FOUR) == [b"9"] * 4
    assert {written.stored for written in second.values()} == {StoredOffset(9, 1)}
    for tp in FOUR:
        stat = stat_of(server, paths.offset(GROUP, tp))
        assert stat is not None
        assert (stat.version, stat.ephemeral_owner) == (1, 0)


def test_512_offsets_are_one_packet(party: ProcedureSession) -> None:
    many = [TopicPartition(TOPIC, number) for number in range(512)]
    party.claim(*many)
    first = commit(party, dict.fromkeys(many, 5))
    sent = party.store.packets_sent
    second = commit(party, dict.fromkeys(many, 6), first)
    assert party.store.packets_sent - sent == 1
    assert set(outcomes(second)) == {WriteOutcome.DONE}


def test_more_than_a_server_takes_in_one_packet_is_several(party: ProcedureSession) -> None:
    many = [TopicPartition("x" * 249, number) for number in range(2_000)]
    party.claim(*many)
    results = commit(party, dict.fromkeys(many, 5))
    assert set(outcomes(results)) == {WriteOutcome.DONE}
    assert len(party.multis) > 1
    assert max(sum(map(len, paths_of(multi))) for multi in party.multis) < 900_000


def test_a_server_without_multi_read_gets_the_same_commits(party: ProcedureSession) -> None:
    server = FakeZooKeeper(has_multi_read=False)
    for path in (paths.ids(GROUP), paths.owners(GROUP)):
        server.ensure(path)
    old = ProcedureSession(server)
    old.claim(*FOUR)
    known = commit(old, dict.fromkeys(FOUR, 5))
    set_offset(ProcedureSession(server), FOUR[0], b"2")
    assert outcomes(commit(old, dict.fromkeys(FOUR, 7), known)) == [WriteOutcome.DONE] * 4
    assert stored(server, *FOUR) == [b"7"] * 4


# --- a commit that somebody disturbs ----------------------------------------------------------------------------


def test_an_offset_that_was_set_back_is_written_again_once_and_reported(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    """A Scala member that was paused commits what it held, without looking whose the partition is."""
    party.claim(*FOUR)
    known = commit(party, dict.fromkeys(FOUR, 50))
    set_offset(other, FOUR[1], b"17")
    results = commit(party, dict.fromkeys(FOUR, 60), known)
    assert outcomes(results) == [WriteOutcome.DONE] * 4
    assert stored(server, *FOUR) == [b"60"] * 4
    assert [results[tp].rewound_from for tp in FOUR] == [None, 17, None, None]
    after = commit(party, dict.fromkeys(FOUR, 61), results)
    assert len(party.rounds) == 1
    assert {written.rewound_from for written in after.values()} == {None}


def test_an_offset_that_was_set_ahead_is_taken_as_it_is(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    party.claim(*FOUR)
    known = commit(party, dict.fromkeys(FOUR, 50))
    set_offset(other, FOUR[1], b"1000")
    results = commit(party, dict.fromkeys(FOUR, 60), known)
    assert outcomes(results) == [WriteOutcome.DONE] * 4
    assert stored(server, *FOUR) == [b"60", b"1000", b"60", b"60"]
    assert results[FOUR[1]].stored == StoredOffset(1000, 1)
    assert results[FOUR[1]].rewound_from is None


def test_an_offset_between_what_we_knew_and_what_we_write_is_no_rewind(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    """It may be an earlier commit of ours whose answer was lost."""
    party.claim(FOUR[0])
    known = commit(party, {FOUR[0]: 50})
    set_offset(other, FOUR[0], b"55")
    results = commit(party, {FOUR[0]: 60}, known)
    assert stored(server, FOUR[0]) == [b"60"]
    assert results[FOUR[0]].rewound_from is None


def test_a_commit_after_a_reset_may_go_back(server: FakeZooKeeper, party: ProcedureSession) -> None:
    party.claim(FOUR[0])
    known = commit(party, {FOUR[0]: 50})
    assert commit(party, {FOUR[0]: 3}, known)[FOUR[0]] == ZooKeeperWriteResult(WriteOutcome.DONE, StoredOffset(3, 1))


def test_an_offset_that_nobody_can_read_is_written_over(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    party.claim(*FOUR)
    known = commit(party, dict.fromkeys(FOUR, 50))
    set_offset(other, FOUR[1], b"nonsense")
    results = commit(party, dict.fromkeys(FOUR, 60), known)
    assert stored(server, *FOUR) == [b"60"] * 4
    assert results[FOUR[1]].rewound_from == -1


def test_offsets_that_somebody_deleted_are_made_again(server: FakeZooKeeper, party: ProcedureSession) -> None:
    """What a person does who wants the group to begin anew, too early."""
    party.claim(*FOUR)
    known = commit(party, dict.fromkeys(FOUR, 50))
    for tp in FOUR:
        server.remove(paths.offset(GROUP, tp))
    server.remove(paths.offsets_of_topic(GROUP, TOPIC))
    results = commit(party, dict.fromkeys(FOUR, 60), known)
    assert outcomes(results) == [WriteOutcome.DONE] * 4
    assert stored(server, *FOUR) == [b"60"] * 4


def test_a_node_that_comes_before_our_first_commit_is_not_lost_sight_of(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    party.claim(FOUR[0], FOUR[1])
    server.ensure(paths.offset(GROUP, FOUR[0]), b"7")
    server.ensure(paths.offset(GROUP, FOUR[1]), b"70")
    results = commit(party, {FOUR[0]: 60, FOUR[1]: 60})
    assert stored(server, FOUR[0], FOUR[1]) == [b"60", b"70"]
    assert outcomes(results) == [WriteOutcome.DONE] * 2


# --- whose partition it is --------------------------------------------------------------------------------------


def test_what_is_not_ours_any_more_is_not_written_and_does_not_stop_the_others(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    party.claim(*FOUR)
    known = commit(party, dict.fromkeys(FOUR, 50))
    server.remove(paths.owner(GROUP, FOUR[0]))
    server.remove(paths.owner(GROUP, FOUR[1]))
    other.claim(FOUR[1], thread="g1_b-0")
    results = commit(party, dict.fromkeys(FOUR, 60), known)
    assert outcomes(results) == [WriteOutcome.NOT_OWNER, WriteOutcome.NOT_OWNER, WriteOutcome.DONE, WriteOutcome.DONE]
    assert stored(server, *FOUR) == [b"50", b"50", b"60", b"60"]
    assert results[FOUR[0]].why == "the owner node does not exist"
    assert "g1_b-0" in results[FOUR[1]].why


def test_an_owner_node_that_an_original_member_made_is_never_taken_for_ours(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    """Its data version is 0, ours is exactly 1."""
    party.claim(FOUR[0])
    known = commit(party, {FOUR[0]: 50})
    server.remove(paths.owner(GROUP, FOUR[0]))
    other.ask([Create(paths.owner(GROUP, FOUR[0]), b"g1_scala-0", ephemeral=True)], None)
    assert outcomes(commit(party, {FOUR[0]: 60}, known)) == [WriteOutcome.NOT_OWNER]
    assert stored(server, FOUR[0]) == [b"50"]


def test_an_owner_node_of_our_session_that_was_set_again_is_not_ours(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    """Our own claim leaves data version 1.  A later version shows that the node is not the one that we claimed."""
    party.claim(FOUR[0])
    known = commit(party, {FOUR[0]: 50})
    [answer] = party.ask([SetData(paths.owner(GROUP, FOUR[0]), b"g1_other-0", OUR_OWNER_VERSION)], None)
    assert isinstance(answer, Stat)
    assert outcomes(commit(party, {FOUR[0]: 60}, known)) == [WriteOutcome.NOT_OWNER]
    assert stored(server, FOUR[0]) == [b"50"]


def moved_on(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession, other_commits: int | None
) -> None:
    """Our session expires and comes back anew; the other member claims the partition, and perhaps commits."""
    server.expire(party.store)
    other.claim(FOUR[0], thread="g1_b-0")
    if other_commits is not None:
        [node] = nodes_of(other, paths.offset(GROUP, FOUR[0]))
        assert node is not None
        known = {FOUR[0]: ZooKeeperWriteResult(WriteOutcome.DONE, StoredOffset(int(node.data), node.stat.version))}
        assert outcomes(commit(other, {FOUR[0]: other_commits}, known)) == [WriteOutcome.DONE]


@pytest.mark.parametrize("other_commits", [None, 55, 100])
@pytest.mark.parametrize("round_number", [1, 2, 3])
def test_a_commit_delayed_past_expiry_and_reconnect_changes_nothing(
    round_number: int,
    other_commits: int | None,
    server: FakeZooKeeper,
    party: ProcedureSession,
    other: ProcedureSession,
) -> None:
    """Two Python members: the first one's requests wait while the second takes over, before any of its rounds."""
    party.claim(FOUR[0])
    known = commit(party, {FOUR[0]: 50})
    set_offset(other, FOUR[0], b"40")
    expected: list[bytes | None] = []

    def between(number: int) -> None:
        if number == round_number:
            moved_on(server, party, other, other_commits)
            expected.extend(stored(server, FOUR[0]))

    results = commit(party, {FOUR[0]: 60}, known, between)
    assert expected, "the delay came"
    assert stored(server, FOUR[0]) == expected
    assert results[FOUR[0]].outcome is WriteOutcome.UNKNOWN
    assert server.data(paths.owner(GROUP, FOUR[0])) == b"g1_b-0"


def test_the_requests_of_an_ended_session_are_not_even_executed(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    """Both members' owner nodes have version 1, and the offset is as we knew it: only the session tells them apart."""
    party.claim(FOUR[0])
    known = commit(party, {FOUR[0]: 50})
    session_id = party.session_id
    requests = commit_of(party, {FOUR[0]: 60}, known).send(None)
    moved_on(server, party, other, None)
    [answer] = party.ask(requests, session_id)
    assert isinstance(answer, SessionEnded)
    assert stored(server, FOUR[0]) == [b"50"]


def test_a_commit_that_waits_through_a_disconnect_is_written_in_the_same_session(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    party.claim(FOUR[0])
    known = commit(party, {FOUR[0]: 50})
    requests = commit_of(party, {FOUR[0]: 60}, known).send(None)
    server.disconnect(party.store)
    box: list[list[object]] = []
    party.store.submit(party.session_id, requests, lambda results: box.append(list(results)))
    assert box == []
    server.reconnect(party.store)
    assert len(box) == 1
    assert stored(server, FOUR[0]) == [b"60"]


@pytest.mark.parametrize("is_done", [True, False])
def test_a_commit_whose_answer_is_lost_is_of_unknown_outcome_and_the_next_one_is_right(
    is_done: bool, server: FakeZooKeeper, party: ProcedureSession
) -> None:
    party.claim(FOUR[0])
    known = commit(party, {FOUR[0]: 50})
    server.lose_connection_on_next(lambda request: isinstance(request, Multi), is_done=is_done)
    lost = commit(party, {FOUR[0]: 60}, known)
    assert lost[FOUR[0]].outcome is WriteOutcome.UNKNOWN
    assert lost[FOUR[0]].stored == known[FOUR[0]].stored, "what is known is what was known"
    results = commit(party, {FOUR[0]: 70}, lost)
    assert results[FOUR[0]].outcome is WriteOutcome.DONE
    assert results[FOUR[0]].rewound_from is None
    assert stored(server, FOUR[0]) == [b"70"]


@pytest.mark.parametrize("is_release", [False, True])
def test_a_commit_after_a_reset_goes_back_also_behind_a_commit_whose_answer_was_lost(
    is_release: bool, server: FakeZooKeeper, party: ProcedureSession
) -> None:
    """An unclean election of the partition's leader truncated the log, and the connection to ZooKeeper broke, too."""
    tp = FOUR[0]
    party.claim(tp)
    known = commit(party, {tp: 50})[tp].stored
    held = PartitionStateMachine("thread")
    for event in (OwnershipAcquired(1), PositionKnown(known)):
        held.handle(event)
    committer = OffsetCommitter({tp: held}, count(1).__next__)

    def commit_of_member(position: int) -> None:
        [command] = committer.send({tp: position}, party.session_id, None)
        assert isinstance(command, CommitToZooKeeper)
        written = conditional_writes.commit_partitions(GROUP, party.session_id, command.offsets, control_version=None)
        committer.on_zookeeper_result(CommitToZooKeeperCompleted(command.ticket, party.run(written)))

    server.lose_connection_on_next(lambda request: isinstance(request, Multi), is_done=True)
    commit_of_member(1000)
    assert stored(server, tp) == [b"1000"]
    assert held.stored == known, "the answer was lost"
    held.reset_count += 1
    if is_release:
        release(party, {tp: PartitionToRelease(40, held.stored, is_reset=held.was_reset_since_write)})
    else:
        commit_of_member(40)
        assert held.stored.offset == 40
    assert stored(server, tp) == [b"40"]


# --- errors of one partition ------------------------------------------------------------------------------------


def test_one_partition_that_may_not_be_written_does_not_stop_the_others(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    party.claim(*FOUR)
    known = commit(party, dict.fromkeys(FOUR, 50))
    server.set_acl(paths.offset(GROUP, FOUR[1]), ())
    results = commit(party, dict.fromkeys(FOUR, 60), known)
    assert outcomes(results) == [WriteOutcome.DONE, WriteOutcome.FAILED, WriteOutcome.DONE, WriteOutcome.DONE]
    path = paths.offset(GROUP, FOUR[1])
    assert results[FOUR[1]].why == f"NoAuth: we may not write {path}, and its access control list cannot be read"
    assert server.data(paths.offset(GROUP, FOUR[0])) == b"60"


def test_many_that_may_not_be_written_take_three_rounds_of_writing_at_most(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    many = [TopicPartition(TOPIC, number) for number in range(40)]
    party.claim(*many)
    known = commit(party, dict.fromkeys(many, 50))
    for tp in many[::2]:
        server.set_acl(paths.offset(GROUP, tp), ())
    results = commit(party, dict.fromkeys(many, 60), known)
    assert outcomes(results) == [WriteOutcome.FAILED, WriteOutcome.DONE] * 20
    assert sum(any(isinstance(request, Multi) for request in requests) for requests in party.rounds) <= ROUNDS_MAX


def test_somebody_who_writes_again_and_again_is_given_up_on_after_three_rounds(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    party.claim(*FOUR)
    known = commit(party, dict.fromkeys(FOUR, 50))
    results = commit(party, dict.fromkeys(FOUR, 60), known, lambda _: set_offset(other, FOUR[1], b"10"))
    assert outcomes(results) == [WriteOutcome.DONE, WriteOutcome.FAILED, WriteOutcome.DONE, WriteOutcome.DONE]
    assert len(party.multis) <= 2 + len(FOUR)


# --- the control znode ------------------------------------------------------------------------------------------


def test_every_write_checks_the_control_znode_that_was_read(server: FakeZooKeeper, party: ProcedureSession) -> None:
    server.ensure(paths.control(GROUP))
    party.claim(*FOUR)
    known = commit(party, dict.fromkeys(FOUR, 50), control_version=0)
    assert all(multi.ops[0].path == paths.control(GROUP) for multi in party.multis)
    set_offset(ProcedureSession(server), FOUR[0], b"1")
    known = commit(party, dict.fromkeys(FOUR, 60), known, control_version=0)
    assert len(party.multis) == 2
    assert all(multi.ops[0].path == paths.control(GROUP) for multi in party.multis)
    results = release(party, {tp: PartitionToRelease(70, known[tp].stored) for tp in FOUR}, control_version=0)
    assert outcomes(results) == [WriteOutcome.DONE] * 4
    assert all(multi.ops[0].path == paths.control(GROUP) for multi in party.multis)


def test_nothing_is_written_once_the_control_znode_has_changed(server: FakeZooKeeper, party: ProcedureSession) -> None:
    server.ensure(paths.control(GROUP), b"1")
    party.claim(*FOUR)
    known = commit(party, dict.fromkeys(FOUR, 50), control_version=0)
    server.ensure(paths.control(GROUP), b"2")
    results = commit(party, dict.fromkeys(FOUR, 60), known, control_version=0)
    assert outcomes(results) == [WriteOutcome.FAILED] * 4
    assert {written.why for written in results.values()} == {"the control znode of the group changed"}
    assert stored(server, *FOUR) == [b"50"] * 4


# --- releases ---------------------------------------------------------------------------------------------------


def test_a_release_commits_and_gives_back_in_one_packet(server: FakeZooKeeper, party: ProcedureSession) -> None:
    party.claim(*FOUR)
    known = commit(party, dict.fromkeys(FOUR, 50))
    sent = party.store.packets_sent
    results = release(party, {tp: PartitionToRelease(60, known[tp].stored) for tp in FOUR})
    assert party.store.packets_sent - sent == 1
    assert outcomes(results) == [WriteOutcome.DONE] * 4
    assert stored(server, *FOUR) == [b"60"] * 4
    assert [server.data(paths.owner(GROUP, tp)) for tp in FOUR] == [None] * 4


def test_a_release_with_nothing_to_commit_writes_no_offset(server: FakeZooKeeper, party: ProcedureSession) -> None:
    party.claim(FOUR[0])
    assert outcomes(release(party, {FOUR[0]: PartitionToRelease(None, NONE_YET)})) == [WriteOutcome.DONE]
    assert stored(server, FOUR[0]) == [None]
    assert server.data(paths.owner(GROUP, FOUR[0])) is None


def test_a_release_hands_over_to_another_thread_in_one_multi(server: FakeZooKeeper, party: ProcedureSession) -> None:
    """No moment at which the node is missing for others to claim."""
    party.claim(*FOUR)
    known = commit(party, dict.fromkeys(FOUR, 50))
    parts = {tp: PartitionToRelease(60, known[tp].stored) for tp in FOUR[:2]}
    parts |= {tp: PartitionToRelease(60, known[tp].stored, next_owner="g1_a-1") for tp in FOUR[2:]}
    sent = party.store.packets_sent
    results = release(party, parts)
    assert party.store.packets_sent - sent == 1
    assert [results[tp].is_thread_changed for tp in FOUR] == [False, False, True, True]
    assert [server.data(paths.owner(GROUP, tp)) for tp in FOUR] == [None, None, b"g1_a-1", b"g1_a-1"]
    stat = stat_of(server, paths.owner(GROUP, FOUR[3]))
    assert stat is not None
    assert (stat.version, stat.ephemeral_owner) == (OUR_OWNER_VERSION, party.session_id)
    assert stored(server, *FOUR) == [b"60"] * 4
    assert outcomes(commit(party, {FOUR[3]: 70}, results)) == [WriteOutcome.DONE], "it can be committed on"


def test_a_release_of_what_somebody_set_back_writes_again_and_reports(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    party.claim(*FOUR)
    known = commit(party, dict.fromkeys(FOUR, 50))
    set_offset(other, FOUR[0], b"1")
    set_offset(other, FOUR[1], b"1000")
    results = release(party, {tp: PartitionToRelease(60, known[tp].stored) for tp in FOUR})
    assert outcomes(results) == [WriteOutcome.DONE] * 4
    assert stored(server, *FOUR) == [b"60", b"1000", b"60", b"60"]
    assert [results[tp].rewound_from for tp in FOUR] == [1, None, None, None]
    assert [server.data(paths.owner(GROUP, tp)) for tp in FOUR] == [None] * 4


def test_one_partition_that_cannot_be_given_back_does_not_stop_the_others(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    bad = TopicPartition("forbidden", 0)
    party.claim(bad, *FOUR)
    server.set_acl(paths.owners_of_topic(GROUP, "forbidden"), ())
    results = release(party, {tp: PartitionToRelease(None, NONE_YET) for tp in [bad, *FOUR]})
    assert outcomes(results) == [*[WriteOutcome.DONE] * 4, WriteOutcome.FAILED]


def verified(offset: int | None = None, known: StoredOffset = NONE_YET) -> PartitionToRelease:
    return PartitionToRelease(offset, known, verify_owner=True)


def test_a_release_of_unknown_outcome_that_was_not_done_is_done_after_a_look(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    party.claim(FOUR[0])
    known = commit(party, {FOUR[0]: 50})
    server.lose_connection_on_next(lambda request: isinstance(request, Multi), is_done=False)
    unknown = release(party, {FOUR[0]: PartitionToRelease(60, known[FOUR[0]].stored)})
    assert outcomes(unknown) == [WriteOutcome.UNKNOWN]
    again = release(party, {FOUR[0]: verified(60, unknown[FOUR[0]].stored)})
    assert [type(request) for requests in party.rounds for request in requests] == [GetMany, Multi]
    assert outcomes(again) == [WriteOutcome.DONE]
    assert stored(server, FOUR[0]) == [b"60"]
    assert server.data(paths.owner(GROUP, FOUR[0])) is None


def test_a_release_of_unknown_outcome_that_was_done_is_seen_to_be_and_nothing_is_written(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    party.claim(FOUR[0])
    known = commit(party, {FOUR[0]: 50})
    server.lose_connection_on_next(lambda request: isinstance(request, Multi), is_done=True)
    unknown = release(party, {FOUR[0]: PartitionToRelease(60, known[FOUR[0]].stored)})
    assert outcomes(unknown) == [WriteOutcome.UNKNOWN]
    again = release(party, {FOUR[0]: verified(60, unknown[FOUR[0]].stored)})
    assert outcomes(again) == [WriteOutcome.NOT_OWNER]
    assert party.multis == []
    assert stored(server, FOUR[0]) == [b"60"]


def test_a_node_that_another_session_made_meanwhile_is_not_released_by_us(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    """Also one of a member of ours, whose owner nodes have the same version."""
    server.ensure(paths.owners_of_topic(GROUP, TOPIC))
    other.claim(FOUR[0], thread="g1_b-0")
    assert outcomes(release(party, {FOUR[0]: verified()})) == [WriteOutcome.NOT_OWNER]
    assert server.data(paths.owner(GROUP, FOUR[0])) == b"g1_b-0"


def test_a_release_looks_at_sessions_when_its_multi_fails(
    server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    party.claim(FOUR[0], FOUR[1])
    known = commit(party, dict.fromkeys(FOUR[:2], 50))
    server.remove(paths.owner(GROUP, FOUR[0]))
    other.ask([Create(paths.owner(GROUP, FOUR[0]), b"g1_scala-0", ephemeral=True)], None)
    results = release(party, {tp: PartitionToRelease(60, known[tp].stored) for tp in FOUR[:2]})
    assert outcomes(results) == [WriteOutcome.NOT_OWNER, WriteOutcome.DONE]
    assert stored(server, *FOUR[:2]) == [b"50", b"60"]
    assert server.data(paths.owner(GROUP, FOUR[0])) == b"g1_scala-0"


# --- whatever happens in between --------------------------------------------------------------------------------

Act = Callable[[FakeZooKeeper, ProcedureSession], object]
ACTS: dict[str, Act] = {
    "set back": lambda server, other: set_offset(other, FOUR[1], b"1"),
    "set ahead": lambda server, other: set_offset(other, FOUR[1], b"1000"),
    "owner gone": lambda server, other: server.remove(paths.owner(GROUP, FOUR[1])),
    "offset gone": lambda server, other: server.remove(paths.offset(GROUP, FOUR[1])),
    "offset forbidden": lambda server, other: server.set_acl(paths.offset(GROUP, FOUR[1]), ()),
    "owner forbidden": lambda server, other: server.set_acl(paths.owners_of_topic(GROUP, TOPIC), ()),
}


@pytest.mark.parametrize("second", ACTS.values(), ids=ACTS)
@pytest.mark.parametrize("first", ACTS.values(), ids=ACTS)
def test_whatever_others_do_between_two_rounds_the_rest_is_written_and_nothing_goes_back(
    first: Act, second: Act, server: FakeZooKeeper, party: ProcedureSession, other: ProcedureSession
) -> None:
    party.claim(*FOUR)
    known = commit(party, dict.fromkeys(FOUR, 50))
    acts = {1: first, 3: second}

    def between(number: int) -> None:
        if number in acts and server.data(paths.offset(GROUP, FOUR[1])) is not None:
            acts[number](server, other)

    results = commit(party, dict.fromkeys(FOUR, 60), known, between)
    assert [results[tp].outcome for tp in (FOUR[0], FOUR[2], FOUR[3])] == [WriteOutcome.DONE] * 3
    assert stored(server, FOUR[0], FOUR[2], FOUR[3]) == [b"60"] * 3
    if results[FOUR[1]].outcome is WriteOutcome.DONE:
        assert results[FOUR[1]].stored.offset in (60, 1000)
