"""Claims when something goes wrong between the rounds: answers that are lost, others who write, rights, fences."""

from __future__ import annotations

import pytest

from bridge.spark.claims import OnRewind
from bridge.spark.claims.claim_procedure import MIGRATION_STARTED
from bridge.spark.claims.query_runs import format_runs
from bridge.spark.claims.records import parse_record
from bridge.spark.group_membership import NO_OFFSET, ClaimedRange, ClaimRefused, GroupOffset
from tests.spark_claim_sessions import GROUP, QUERY, RUN, TOPIC, WALL_MS, epochs, run_claim, run_stands
from tests.zk_procedure_fixtures import ProcedureSession, party, server, stat_of
from zkconsumer.errors import GroupRewound, MalformedZnode, UnavailableError, ZkNotAuthorized, ZkTimeoutException
from zkconsumer.member.events import StoredOffset
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import ROUNDS_MAX
from zkconsumer.zk.requests import PERM_ALL, PERM_READ, Acl, GetMany, Multi, OtherError, Request, SetData, paths_of

__all__ = ["party", "server"]

P0, P1, P2 = (TopicPartition(TOPIC, number) for number in range(3))


def is_multi(request: Request) -> bool:
    return isinstance(request, Multi)


def is_look(request: Request) -> bool:
    return isinstance(request, GetMany)


def offset(server: FakeZooKeeper, tp: TopicPartition = P0) -> bytes | None:
    return server.data(paths.offset(GROUP, tp))


def record_path(tp: TopicPartition = P0) -> str:
    return paths.claims_of_partition(GROUP, QUERY, tp)


@pytest.fixture
def owner(server: FakeZooKeeper, party: ProcedureSession) -> ProcedureSession:
    """Owns three partitions, at 100 each; its run has entered itself (``test_spark_query_runs.py``)."""
    party.claim(P0, P1, P2)
    server.ensure(paths.claims_of_query(GROUP, QUERY), format_runs((RUN,)))
    for tp in (P0, P1, P2):
        server.ensure(paths.offset(GROUP, tp), b"100")
    return party


# --- packets ----------------------------------------------------------------------------------------------------


def test_a_claim_of_512_partitions_is_one_look_and_one_multi(server: FakeZooKeeper, party: ProcedureSession) -> None:
    many = [TopicPartition(TOPIC, number) for number in range(512)]
    party.claim(*many)
    held = epochs(party, many)
    for batch, first in ((0, 0), (1, 10)):
        before = party.store.packets_sent
        report = run_claim(party, batch, dict.fromkeys(many, (first, first + 10)), held=held)
        assert report.result() == dict.fromkeys(many, ClaimedRange(first, first + 10))
    assert party.store.packets_sent - before == 2
    assert [[type(request) for request in requests] for requests in party.rounds] == [[GetMany], [Multi]]


def test_a_replay_is_one_look(owner: ProcedureSession) -> None:
    run_claim(owner, 0, {P0: (100, 110)})
    report = run_claim(owner, 0, {P0: (100, 110)})
    assert report.result() == {P0: ClaimedRange(100, 110)}
    assert [[type(request) for request in requests] for requests in owner.rounds] == [[GetMany]]


def test_more_than_one_packet_holds_is_several(server: FakeZooKeeper, party: ProcedureSession) -> None:
    many = [TopicPartition("x" * 249, number) for number in range(700)]
    party.claim(*many)
    report = run_claim(party, 0, dict.fromkeys(many, (0, 10)))
    assert set(report.result().values()) == {ClaimedRange(0, 10)}
    assert len(party.multis) > 1
    assert max(sum(map(len, paths_of(multi))) for multi in party.multis) < 900_000


def test_nothing_to_claim_asks_nothing(owner: ProcedureSession) -> None:
    assert run_claim(owner, 0, {}).result() == {}
    assert owner.rounds == []


# --- lost answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_claim_whose_answer_is_lost_is_made_once(
    times: int, is_done: bool, server: FakeZooKeeper, owner: ProcedureSession
) -> None:
    for _ in range(times):
        server.lose_connection_on_next(is_multi, is_done=is_done)
    report = run_claim(owner, 0, {P0: (100, 110), P1: (90, 120)})
    if is_done or times < ROUNDS_MAX:
        assert report.result() == {P0: ClaimedRange(100, 110), P1: ClaimedRange(100, 120)}
    else:
        with pytest.raises(ZkTimeoutException, match="whether the batch may read it"):
            report.result()
    assert run_claim(owner, 0, {P0: (100, 110), P1: (90, 120)}).result() == {
        P0: ClaimedRange(100, 110),
        P1: ClaimedRange(100, 120),
    }
    assert [offset(server, P0), offset(server, P1)] == [b"110", b"120"]
    assert len(parse_record(server.data(record_path()) or b"", "").claims) == 1


def test_a_look_that_is_lost_is_asked_again_and_in_the_end_nothing_is_guessed(
    server: FakeZooKeeper, owner: ProcedureSession
) -> None:
    server.lose_connection_on_next(is_look, is_done=False)
    held = {P0: born(server, paths.owner(GROUP, P0))}
    assert run_claim(owner, 0, {P0: (100, 110)}, held=held).result() == {P0: ClaimedRange(100, 110)}
    for _ in range(ROUNDS_MAX + 1):
        server.lose_connection_on_next(is_look, is_done=False)
    with pytest.raises(ZkTimeoutException, match="not known of clicks/0: whether the batch may read it"):
        run_claim(owner, 1, {P0: (110, 120)}, held=held).result()
    server.lose_connection_on_next(is_look, is_done=False)
    with pytest.raises(ZkTimeoutException, match="the group's offset"):
        run_stands(owner, P0).result()


def born(server: FakeZooKeeper, path: str) -> int:
    stat = stat_of(server, path)
    assert stat is not None
    return stat.czxid


def test_a_claim_of_a_session_that_ended_is_not_known_and_the_next_session_finds_it(
    server: FakeZooKeeper, owner: ProcedureSession
) -> None:
    report = run_claim(owner, 0, {P0: (100, 110)}, between=lambda n: server.expire(owner.store) if n == 2 else None)
    with pytest.raises(ZkTimeoutException):
        report.result()
    owner.claim(P0)
    assert run_claim(owner, 0, {P0: (100, 110)}).result() == {P0: ClaimedRange(100, 110)}


def test_a_rewind_that_was_written_over_is_told_though_the_answer_was_lost(
    server: FakeZooKeeper, owner: ProcedureSession
) -> None:
    run_claim(owner, 0, {P0: (100, 110)})
    owner.ask([SetData(paths.offset(GROUP, P0), b"7")], None)
    server.lose_connection_on_next(is_multi, is_done=True)
    assert run_claim(owner, 1, {P0: (110, 120)}).rewound == {P0: (7, 110)}


# --- others write in between ------------------------------------------------------------------------------------


def test_what_others_write_between_look_and_multi_is_seen(server: FakeZooKeeper, owner: ProcedureSession) -> None:
    def between(number: int) -> None:
        # The records are new, so the second round makes their parents.
        if number == 3:
            owner.ask([SetData(paths.offset(GROUP, P0), b"105"), SetData(paths.offset(GROUP, P1), b"500")], None)

    report = run_claim(owner, 0, dict.fromkeys((P0, P1, P2), (100, 110)), between=between)
    refused = ClaimRefused("the group's offset is 500: other members have read the range")
    assert report.result() == {P0: ClaimedRange(105, 110), P1: refused, P2: ClaimedRange(100, 110)}
    assert [offset(server, tp) for tp in (P0, P1, P2)] == [b"110", b"500", b"110"]


def test_who_writes_again_and_again_is_given_up_on(server: FakeZooKeeper, owner: ProcedureSession) -> None:
    numbers = iter(range(101, 110))

    def between(number: int) -> None:
        if isinstance(owner.rounds[-1][0], Multi):
            owner.ask([SetData(paths.offset(GROUP, P0), b"%d" % next(numbers))], None)

    report = run_claim(owner, 0, {P0: (100, 110), P1: (100, 110)}, between=between)
    assert report.results == {P1: ClaimedRange(100, 110)}
    with pytest.raises(ZkTimeoutException, match=r"not known of clicks/0: .* \(BadVersion /consumers"):
        report.result()
    assert sum(any(map(is_multi, requests)) for requests in owner.rounds) == ROUNDS_MAX


def test_a_partition_that_is_lost_between_look_and_multi_is_refused(
    server: FakeZooKeeper, owner: ProcedureSession
) -> None:
    report = run_claim(
        owner, 0, {P0: (100, 110)}, between=lambda n: server.remove(paths.owner(GROUP, P0)) if n == 3 else None
    )
    assert report.result() == {
        P0: ClaimRefused("this query no longer owns the partition (NoNode /consumers/g1/owners/clicks/0)")
    }
    assert offset(server) == b"100"


def test_parents_that_somebody_deletes_are_made_again(server: FakeZooKeeper, owner: ProcedureSession) -> None:
    run_claim(owner, 0, {P0: (100, 110)})

    def between(number: int) -> None:
        if number == 2:
            server.remove(record_path())
            server.remove(paths.claims_of_topic(GROUP, QUERY, TOPIC))

    report = run_claim(owner, 1, {P0: (110, 120), P1: (100, 120)}, between=between)
    assert report.result() == {P0: ClaimedRange(110, 120), P1: ClaimedRange(100, 120)}


@pytest.mark.parametrize("is_done", [True, False])
def test_a_batch_that_was_refused_is_refused_again_when_it_is_replayed(
    is_done: bool, server: FakeZooKeeper, owner: ProcedureSession
) -> None:
    """Its sink may have the other partitions by then, and would not take rows that come later."""
    held = epochs(owner, [P0, P1])
    server.remove(paths.owner(GROUP, P0))
    server.lose_connection_on_next(lambda request: is_multi(request) and len(paths_of(request)) == 1, is_done=is_done)
    report = run_claim(owner, 0, dict.fromkeys((P0, P1), (100, 110)), held=held)
    refused = ClaimRefused("this query no longer owns the partition (NoNode /consumers/g1/owners/clicks/0)")
    assert report.result() == {P0: refused, P1: ClaimedRange(100, 110)}
    owner.claim(P0)
    again = run_claim(owner, 0, dict.fromkeys((P0, P1), (100, 110)))
    assert again.result() == {
        P0: ClaimRefused("batch 0 was refused when it ran first"),
        P1: ClaimedRange(100, 110),
    }
    assert run_claim(owner, 1, {P0: (100, 110)}).result() == {P0: ClaimedRange(100, 110)}


# --- fences, rights, nonsense -----------------------------------------------------------------------------------


def test_a_fenced_group_refuses_what_is_new_and_replays_what_was_claimed(
    server: FakeZooKeeper, owner: ProcedureSession
) -> None:
    server.ensure(paths.control(GROUP), b"{}")
    assert run_claim(owner, 0, {P0: (100, 110)}, control_version=0).result() == {P0: ClaimedRange(100, 110)}
    owner.ask([SetData(paths.control(GROUP), b"{ }")], None)
    report = run_claim(owner, 1, {P0: (110, 120), P1: (100, 110)}, control_version=0)
    assert report.result() == {P0: ClaimRefused(MIGRATION_STARTED), P1: ClaimRefused(MIGRATION_STARTED)}
    assert run_claim(owner, 0, {P0: (100, 110)}, control_version=0).result() == {P0: ClaimedRange(100, 110)}
    assert offset(server) == b"110"


def test_a_partition_that_is_on_its_way_out_is_refused(owner: ProcedureSession) -> None:
    assert run_claim(owner, 0, {P0: (100, 110)}, held={}).result() == {
        P0: ClaimRefused("this query does not own the partition")
    }


def test_an_ownership_that_is_not_the_one_we_know_of_is_refused(owner: ProcedureSession) -> None:
    assert run_claim(owner, 0, {P0: (100, 110)}, held={P0: 1}).result() == {
        P0: ClaimRefused("its ownership has changed")
    }


@pytest.mark.parametrize("path", [paths.offset(GROUP, P0), "/zkconsumer"])
def test_rights_that_are_missing_stop_the_query_with_the_name_of_the_node(
    path: str, server: FakeZooKeeper, owner: ProcedureSession
) -> None:
    server.remove(paths.claims_of_query(GROUP, QUERY))
    server.remove(paths.claims(GROUP))
    server.remove(paths.SPARK_CLAIMS)
    server.set_acl(path, (Acl(PERM_READ, "world", "anyone"), Acl(PERM_ALL, "digest", "smith:hash")))
    with pytest.raises(ZkNotAuthorized, match=f"this query cannot claim: NoAuth: only digest:smith may .*{path}; "):
        run_claim(owner, 0, {P0: (100, 110)}).result()


def test_what_no_server_should_answer_stops_the_query(server: FakeZooKeeper, owner: ProcedureSession) -> None:
    server.fail_next(is_multi, lambda path: OtherError(path, "Unimplemented", -6))
    with pytest.raises(UnavailableError, match="ZooKeeper does not accept a claim: OtherError"):
        run_claim(owner, 0, {P0: (100, 110)}).result()


def test_a_record_that_is_nonsense_stops_the_query_and_nothing_is_written(
    server: FakeZooKeeper, owner: ProcedureSession
) -> None:
    server.ensure(record_path(P1), b"nonsense")
    with pytest.raises(MalformedZnode, match=record_path(P1)):
        run_claim(owner, 0, {P0: (100, 110), P1: (100, 110)}).result()
    with pytest.raises(MalformedZnode, match=record_path(P1)):
        run_stands(owner, P0, P1).result()
    assert [offset(server, P0), offset(server, P1)] == [b"100", b"100"]


def test_a_record_that_was_deleted_counts_as_none(server: FakeZooKeeper, owner: ProcedureSession) -> None:
    run_claim(owner, 0, {P0: (100, 110)})
    server.remove(record_path())
    assert run_stands(owner, P0).result() == {P0: GroupOffset(110, None)}
    assert isinstance(run_claim(owner, 0, {P0: (100, 110)}).result()[P0], ClaimRefused)
    assert run_claim(owner, 1, {P0: (110, 120)}).result() == {P0: ClaimedRange(110, 120)}


def test_an_offset_that_is_no_number_is_an_error_of_stands_and_a_refusal_of_a_claim(
    server: FakeZooKeeper, owner: ProcedureSession
) -> None:
    owner.ask([SetData(paths.offset(GROUP, P0), b"x")], None)
    with pytest.raises(MalformedZnode, match=r"/consumers/g1/offsets/clicks/0: .* is no number"):
        run_stands(owner, P0).result()
    assert isinstance(run_claim(owner, 0, {P0: (100, 110)}).result()[P0], ClaimRefused)


def test_what_may_not_be_read_stops_the_query(server: FakeZooKeeper, owner: ProcedureSession) -> None:
    run_claim(owner, 0, {P0: (100, 110)})
    for path in (paths.offset(GROUP, P0), record_path()):
        server.set_acl(path, ())
        with pytest.raises(ZkNotAuthorized, match=f"we may not read {path}"):
            run_claim(owner, 1, {P0: (110, 120)}).result()
        with pytest.raises(ZkNotAuthorized, match=f"we may not read {path}"):
            run_stands(owner, P0).result()


# --- rewinds ----------------------------------------------------------------------------------------------------


def test_fail_stops_the_query_before_anything_is_written(server: FakeZooKeeper, owner: ProcedureSession) -> None:
    run_claim(owner, 0, dict.fromkeys((P0, P1), (100, 110)))
    owner.ask([SetData(paths.offset(GROUP, P1), b"7")], None)
    with pytest.raises(GroupRewound, match="group g1 has the offset 7 of clicks/1, but this query claimed up to 110"):
        run_claim(owner, 1, dict.fromkeys((P0, P1), (110, 120)), OnRewind.FAIL).result()
    assert [offset(server, P0), offset(server, P1)] == [b"110", b"7"]


def test_an_offset_that_somebody_deleted_is_a_rewind(server: FakeZooKeeper, owner: ProcedureSession) -> None:
    run_claim(owner, 0, {P0: (100, 110)})
    server.remove(paths.offset(GROUP, P0))
    assert run_stands(owner, P0).result() == {P0: GroupOffset(NO_OFFSET, 110)}
    with pytest.raises(GroupRewound, match="has no offset of"):
        run_claim(owner, 1, {P0: (110, 120)}, OnRewind.FAIL).result()
    report = run_claim(owner, 1, {P0: (110, 120)})
    assert (report.result(), report.rewound) == ({P0: ClaimedRange(110, 120)}, {P0: (NO_OFFSET, 110)})
    assert report.stored == {P0: StoredOffset(120, 0)}


def test_what_was_claimed_of_a_topic_that_is_gone_does_not_count(
    server: FakeZooKeeper, owner: ProcedureSession
) -> None:
    """The same name, the same partition, other records: they begin at 0, and 0 is no rewind."""
    run_claim(owner, 0, {P0: (100, 110)})
    server.ensure(paths.topic(TOPIC), b"{}")
    birth = born(server, paths.topic(TOPIC))
    assert run_stands(owner, P0, topic_czxids={TOPIC: birth}).result() == {P0: GroupOffset(NO_OFFSET, None)}
    report = run_claim(owner, 1, {P0: (0, 10)}, topic_czxids={TOPIC: birth})
    assert (report.result(), report.rewound) == ({P0: ClaimedRange(0, 10)}, {})
    assert offset(server) == b"10"


# --- the record -------------------------------------------------------------------------------------------------


def test_the_record_says_who_claimed_what_and_when(server: FakeZooKeeper, owner: ProcedureSession) -> None:
    epoch = born(server, paths.owner(GROUP, P0))
    run_claim(owner, 7, {P0: (90, 110)})
    assert server.data(record_path()) == b'{"v":1,"claims":[[7,100,110,%d,%d]]}' % (epoch, WALL_MS)
    run_claim(owner, 8, {P0: (110, 120)}, wall_ms=WALL_MS + 1)
    assert [claim.batch for claim in parse_record(server.data(record_path()) or b"", "").claims] == [7, 8]
