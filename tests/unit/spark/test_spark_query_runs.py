"""Two lives of one query, on one checkpoint or on copies of it: who may claim, and who is told to stop."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.spark.claims import ClaimReport
from bridge.spark.claims.query_runs import (
    RUNS_BYTES_MAX,
    RUNS_KEPT_MAX,
    RunStatus,
    append_run,
    format_runs,
    parse_runs,
    run_status,
)
from bridge.spark.claims.records import parse_record
from bridge.spark.group_membership import ClaimedRange, ClaimResult
from tests.spark_claim_sessions import GROUP, QUERY, TOPIC, epochs, run_claim
from tests.zk_procedure_fixtures import ProcedureSession, party, server
from zkconsumer.errors import QueryAlreadyRunning, ZkTimeoutException
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import CheckOp, CreateOp, Delete, GetMany, Multi, Request, SetData, SetOp

__all__ = ["party", "server"]

P0, P1 = (TopicPartition(TOPIC, number) for number in range(2))
RUNS = paths.claims_of_query(GROUP, QUERY)


def runs_of(server: FakeZooKeeper) -> tuple[str, ...]:
    return parse_runs(server.data(RUNS) or b"")


# --- the list ---------------------------------------------------------------------------------------------------


def test_who_stands_last_claims_who_is_missing_enters_and_who_has_somebody_behind_is_over() -> None:
    runs = append_run(append_run((), "a"), "b")
    assert [run_status(runs, run) for run in ("a", "b", "c")] == [
        RunStatus.SUPERSEDED,
        RunStatus.CURRENT,
        RunStatus.UNREGISTERED,
    ]


def test_the_list_is_read_as_it_is_written_and_never_grows_beyond_what_is_read() -> None:
    runs: tuple[str, ...] = ()
    for number in range(2 * RUNS_KEPT_MAX):
        runs = append_run(runs, f"{number:032x}")
        assert parse_runs(format_runs(runs)) == runs
    assert len(runs) == RUNS_KEPT_MAX
    assert len(format_runs(runs)) * 5 < RUNS_BYTES_MAX
    assert runs[-1] == f"{2 * RUNS_KEPT_MAX - 1:032x}"


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b'{"v":2,"runs":["a"]}', b'{"v":1}', b'{"v":1,"runs":[1]}', b'{"v":1,"runs":["a","a"]}', b"\xff",
     b'{"v":1,"runs":[' + b",".join(b'"%d"' % n for n in range(RUNS_KEPT_MAX + 1)) + b"]}", b" " * 9_000, b"[" * 5_000],
)  # fmt: skip
def test_what_is_no_list_of_ours_counts_as_empty(data: bytes) -> None:
    assert parse_runs(data) == ()


# --- a conversation ---------------------------------------------------------------------------------------------


def said(party: ProcedureSession) -> list[str]:
    """What a claim asked of ZooKeeper, a line for each round that is no parent of something."""
    return [line for requests in party.rounds for line in map(_words, requests) if line]


def _words(request: Request) -> str:
    match request:
        case GetMany():
            return "look"
        case Multi(ops=(CheckOp(path=path, version=version), *rest)):
            return f"{len(rest)} writes, if {path.rpartition('/')[2][:4]} is at version {version}"
        case Multi(ops=(CreateOp(data=data) | SetOp(data=data),)):
            return f"enter {','.join(parse_runs(data))}"
    return ""


def test_a_query_and_a_copy_of_its_checkpoint(server: FakeZooKeeper) -> None:
    blue, green = ProcedureSession(server), ProcedureSession(server)
    blue.claim(P0)
    green.claim(P1)
    server.ensure(paths.offset(GROUP, P0), b"0")
    server.ensure(paths.offset(GROUP, P1), b"0")

    assert run_claim(blue, 0, {P0: (0, 10)}, run="blue").result() == {P0: ClaimedRange(0, 10)}
    assert said(blue) == ["look", "enter blue", "3 writes, if 5c1e is at version 0"]
    assert run_claim(blue, 1, {P0: (10, 20)}, run="blue").result() == {P0: ClaimedRange(10, 20)}
    assert said(blue) == ["look", "3 writes, if 5c1e is at version 0"]

    # A copy of the checkpoint, made behind batch 0, is started: what it repeats is read, what is new is claimed.
    assert run_claim(green, 0, {P0: (0, 10)}, run="green").result() == {P0: ClaimedRange(0, 10)}
    assert said(green) == ["look"]
    assert run_claim(green, 1, {P1: (0, 10)}, run="green").result() == {P1: ClaimedRange(0, 10)}
    assert said(green) == ["look", "enter blue,green", "3 writes, if 5c1e is at version 1"]

    with pytest.raises(QueryAlreadyRunning) as caught:
        run_claim(blue, 2, {P0: (20, 30)}, run="blue").result()
    assert said(blue) == ["look"]
    assert str(caught.value).startswith(f"query {QUERY} of group g1 was started again while this run of it was active")
    assert (server.data(paths.offset(GROUP, P0)), runs_of(server)) == (b"20", ("blue", "green"))

    assert run_claim(green, 2, {P1: (10, 20)}, run="green").result() == {P1: ClaimedRange(10, 20)}
    # Its membership process is killed: the next one has another session, and is the same run.
    green.store.close(1_000)
    again = ProcedureSession(server)
    again.claim(P1)
    assert run_claim(again, 3, {P1: (20, 30)}, run="green").result() == {P1: ClaimedRange(20, 30)}
    assert said(again) == ["look", "3 writes, if 5c1e is at version 1"]


def test_a_query_that_is_started_again_is_not_refused_though_its_former_life_still_looks_alive(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    party.claim(P0, P1)
    run_claim(party, 0, {P0: (0, 10)}, run="first")
    # The session of then has not ended: its partition is not ours yet, and the other one is.
    second = ProcedureSession(server)
    party.ask([Delete(paths.owner(GROUP, P1))], None)
    second.claim(P1)
    report = run_claim(second, 0, {P0: (0, 10), P1: (0, 10)}, run="second")
    assert report.result() == {P0: ClaimedRange(0, 10), P1: ClaimedRange(0, 10)}
    with pytest.raises(QueryAlreadyRunning):
        run_claim(party, 1, {P0: (10, 20)}, run="first").result()


# --- when something goes wrong ----------------------------------------------------------------------------------


def is_entering(request: Request) -> bool:
    return isinstance(request, Multi) and len(request.ops) == 1


@pytest.mark.parametrize("is_done", [True, False])
def test_a_run_whose_answer_was_lost_is_entered_once(
    is_done: bool, server: FakeZooKeeper, party: ProcedureSession
) -> None:
    party.claim(P0)
    server.lose_connection_on_next(is_entering, is_done=is_done)
    assert run_claim(party, 0, {P0: (0, 10)}, run="a").result() == {P0: ClaimedRange(0, 10)}
    assert runs_of(server) == ("a",)


def test_a_run_that_began_between_look_and_claim_stops_the_older_before_anything_is_written(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    party.claim(P0, P1)
    run_claim(party, 0, {P0: (0, 10)}, run="a")

    def between(number: int) -> None:
        if number == 2:
            server_runs = SetData(RUNS, format_runs(("a", "b")))
            party.ask([server_runs], None)

    # A claim, and a refusal that would be written into the record: neither is.
    report = run_claim(party, 1, {P0: (10, 20), P1: (0, 10)}, run="a", between=between, held=epochs(party, [P0]))
    with pytest.raises(QueryAlreadyRunning):
        report.result()
    assert server.data(paths.offset(GROUP, P0)) == b"10"
    record = parse_record(server.data(paths.claims_of_partition(GROUP, QUERY, P0)) or b"", "")
    assert record.last_decided_batch == 0
    assert server.data(paths.claims_of_partition(GROUP, QUERY, P1)) is None


def test_a_run_that_looked_at_an_old_list_looks_again(server: FakeZooKeeper, party: ProcedureSession) -> None:
    party.claim(P0)
    run_claim(party, 0, {P0: (0, 10)}, run="a")

    def between(number: int) -> None:
        if number == 2:
            party.ask([SetData(RUNS, format_runs(("a", "b")))], None)

    assert run_claim(party, 1, {P0: (10, 20)}, run="c", between=between).result() == {P0: ClaimedRange(10, 20)}
    assert runs_of(server) == ("a", "b", "c")


def test_a_list_that_somebody_deletes_or_spoils_is_begun_anew(server: FakeZooKeeper, party: ProcedureSession) -> None:
    party.claim(P0)
    run_claim(party, 0, {P0: (0, 10)}, run="a")
    party.ask([SetData(RUNS, b"something")], None)
    assert run_claim(party, 1, {P0: (10, 20)}, run="a").result() == {P0: ClaimedRange(10, 20)}
    for path in (paths.claims_of_partition(GROUP, QUERY, P0), paths.claims_of_topic(GROUP, QUERY, TOPIC), RUNS):
        server.remove(path)
    assert run_claim(party, 2, {P0: (20, 30)}, run="a").result() == {P0: ClaimedRange(20, 30)}
    assert runs_of(server) == ("a",)


# --- any number of lives, in any order --------------------------------------------------------------------------


@dataclass
class Lives:
    """Runs that claim one after the other, each with a partition of its own, on one ZooKeeper."""

    server: FakeZooKeeper = field(default_factory=FakeZooKeeper)
    sessions: dict[int, ProcedureSession] = field(default_factory=dict)
    batches: dict[int, int] = field(default_factory=dict)
    began: list[int] = field(default_factory=list)
    """The runs in the order of their first claims."""

    def claim(self, run: int, fault: str) -> ClaimReport:
        tp = TopicPartition(TOPIC, run)
        if run not in self.sessions:
            self.server.ensure(paths.owners_of_topic(GROUP, TOPIC))
            self.sessions[run] = ProcedureSession(self.server)
            self.sessions[run].claim(tp)
        party = self.sessions[run]
        if fault in ("lost", "not done"):
            self.server.lose_connection_on_next(
                lambda each: isinstance(each, Multi), is_done=fault == "lost", store=party.store
            )
        batch = self.batches.get(run, 0)
        report = run_claim(party, batch, {tp: (batch * 10, batch * 10 + 10)}, run=f"{run:032x}")
        if fault == "new process":
            party.store.close(1_000)
            self.sessions[run] = ProcedureSession(self.server)
            self.sessions[run].claim(tp)
        return report


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["", "", "lost", "not done", "new process"])),
        max_size=25,
    )
)
@settings(max_examples=100, deadline=None)
def test_the_life_that_began_last_is_never_refused_and_no_older_one_claims_again(steps: list[tuple[int, str]]) -> None:
    lives = Lives()
    for run, fault in steps:
        report = lives.claim(run, fault)
        answers: dict[TopicPartition, ClaimResult] = {}
        try:
            answers = report.result()
        except QueryAlreadyRunning:
            assert run in lives.began[:-1], "the life that began last, or that begins, is not refused"
            continue
        except ZkTimeoutException:
            pytest.fail("one lost answer is not too many")
        if run not in lives.began:
            lives.began.append(run)
        assert lives.began[-1] == run, "an older life does not claim"
        assert set(answers.values()) == {
            ClaimedRange(lives.batches.get(run, 0) * 10, lives.batches.get(run, 0) * 10 + 10)
        }
        lives.batches[run] = lives.batches.get(run, 0) + 1
