"""The control znode, whose run it is, the kept plan, the journal, an abort: one wins, and no stale run writes."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.migration.control import control_layout as ctl
from bridge.migration.control import control_pieces as pieces_module
from bridge.migration.control.control_pieces import (
    DamagedPiecesError,
    StorePlan,
    pack,
    read_plan_text,
    store_child,
    unpack,
)
from bridge.migration.control.control_steps import (
    LOCK_WAIT_MS,
    AcquireLock,
    AdvancePhase,
    CreateControlZnode,
    request_abort,
)
from bridge.migration.control.control_znode import ControlZnode, format_lock
from bridge.migration.control.journal import (
    ENTRIES_MAX,
    Journal,
    JournalContents,
    JournalEntry,
    format_journal,
    parse_journal,
    read_journal,
)
from bridge.migration.control.phases import Phase
from bridge.migration.errors import (
    EXIT_PARTIAL,
    MigrationLockLostError,
    PartiallyDoneError,
    VerificationError,
    WaitTimeoutError,
)
from bridge.migration.steps.step import MigrationStep, StepDone, StepPending, StepRefused, StepWaiting
from tests.migration.step_write_faults import (
    GROUP,
    MIGRATION,
    WHO,
    Cut,
    CutStore,
    Group,
    Killed,
    at_every_cut,
    carry_out,
)
from zkconsumer.errors import (
    InternalError,
    PreconditionFailed,
    ZkConsumerError,
    ZkReadNotAuthorized,
    ZkTimeoutException,
)
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create, Delete, Exists, MultiOk, NoAuth, SetData
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.znode_formats import ControlRecord, format_control, parse_control

CONTROL = paths.control(GROUP)
PLAN = b'{"schema":"zkconsumer.migration.plan/1"}'
FORWARD = [Phase.FENCING, Phase.FENCED, Phase.COPIED, Phase.VERIFIED, Phase.SWITCHED]


def begun(*phases: Phase, login: Any = "digest") -> Group:
    """A group whose migration was begun, and has passed these phases."""
    group = Group() if login == "digest" else Group(login=login)
    group.offset("clicks", 0)
    with group.process() as authority:
        carry_out(
            authority, [CreateControlZnode(authority, "copy"), *(AdvancePhase(authority, phase) for phase in phases)]
        )
    return group


def control_of(group: Group) -> ControlRecord:
    return parse_control(group.zookeeper.data(CONTROL) or b"")


# --- begin ------------------------------------------------------------------------------------------------------


def forward(authority: ControlZnode) -> None:
    carry_out(authority, [
        CreateControlZnode(authority, "copy"),
        AcquireLock(authority, WHO),
        StorePlan(authority, PLAN),
        *(AdvancePhase(authority, phase) for phase in FORWARD),
    ])  # fmt: skip


def test_a_migration_begins_is_stored_and_advances_and_may_be_interrupted_anywhere() -> None:
    def make() -> Group:
        group = Group()
        group.offset("clicks", 0)
        return group

    at_every_cut(make, forward, writes_min=8)
    group = make()
    with group.process() as authority:
        forward(authority)
        assert control_of(group) == ControlRecord(MIGRATION, 3, "switched", "kafka", "copy")
        assert read_plan_text(authority.session, GROUP) == PLAN
        forward(authority)
    assert control_of(group).epoch == 3, "once more changes nothing"


@pytest.mark.parametrize("back", [
    ([Phase.FENCING], [Phase.UNDOING, Phase.UNDONE]),
    (FORWARD, [Phase.RETURNING, Phase.RETURNED, Phase.UNDONE]),
])  # fmt: skip
def test_the_rollback_may_be_interrupted_anywhere(back: tuple[list[Phase], list[Phase]]) -> None:
    before, after = back

    def run(authority: ControlZnode) -> None:
        carry_out(authority, [AcquireLock(authority, WHO), *(AdvancePhase(authority, phase) for phase in after)])

    at_every_cut(lambda: begun(*before), run, writes_min=1 + len(after))


def test_a_run_that_gets_the_lock_in_another_phase_than_it_was_started_in_does_nothing() -> None:
    group = begun(Phase.FENCING, Phase.FENCED)
    with group.process() as authority:
        carry_out(authority, [AcquireLock(authority, WHO, expected_phase=Phase.FENCED)])
    with group.process() as authority:
        lock = AcquireLock(authority, WHO, expected_phase=Phase.FENCING)
        with pytest.raises(PartiallyDoneError, match=r"in phase fenced, and this run needs .* in phase fencing"):
            carry_out(authority, [lock, AdvancePhase(authority, Phase.UNDOING)])
    assert control_of(group).phase == "fenced"


def test_a_later_migration_replaces_an_ended_one_and_deletes_its_pieces() -> None:
    def make() -> Group:
        group = begun(Phase.UNDOING, Phase.UNDONE)
        for name in ("plan-0000", "plan-0001", "acls-0000", "journal", "abort"):
            group.zookeeper.ensure(paths.control_child(GROUP, name), b"old")
        return group

    at_every_cut(make, forward, writes_min=5, migration="m2")
    group = make()
    with group.process(migration="m2") as authority:
        carry_out(authority, [CreateControlZnode(authority, "copy")])
    assert control_of(group) == ControlRecord("m2", 3, "planned", "zookeeper", "copy")
    assert [path for path in group.state() if path.startswith(CONTROL)] == [CONTROL]


def test_another_migration_that_is_under_way_refuses_us() -> None:
    """Exit code 4: nothing was changed."""
    group = begun(Phase.FENCING)
    before = group.state()
    with group.process(migration="m2") as authority, pytest.raises(PreconditionFailed, match=r"m1 of.*fencing"):
        carry_out(authority, [CreateControlZnode(authority, "copy")])
    assert group.state() == before


@pytest.mark.parametrize("phases", [[Phase.UNDOING], [Phase.UNDOING, Phase.UNDONE]])
def test_a_plan_that_was_undone_is_not_begun_again(phases: list[Phase]) -> None:
    group = begun(*phases)
    with group.process() as authority, pytest.raises(PreconditionFailed, match="make a new plan"):
        carry_out(authority, [CreateControlZnode(authority, "copy")])


def test_another_strategy_under_the_same_name_is_refused() -> None:
    with begun().process() as authority:
        assert isinstance(CreateControlZnode(authority, "dual").check(), StepRefused)


@pytest.mark.parametrize("data", [b"", b"{}", format_control(ControlRecord("m1", 1, "resting", "zookeeper", "copy"))])
def test_a_control_znode_that_cannot_be_read_is_never_written_over(data: bytes) -> None:
    group = Group()
    group.zookeeper.ensure(CONTROL, data)
    with group.process() as authority:
        for step in (CreateControlZnode(authority, "copy"), AdvancePhase(authority, Phase.FENCING)):
            with pytest.raises(PreconditionFailed, match=r"cannot be parsed|later release"):
                carry_out(authority, [step])
    assert group.zookeeper.data(CONTROL) == data


def test_of_two_that_begin_at_once_one_wins() -> None:
    group = Group()
    with group.process() as ours, group.process(migration="m2") as theirs:
        assert isinstance(CreateControlZnode(ours, "copy").check(), StepPending)
        assert isinstance(CreateControlZnode(theirs, "copy").check(), StepPending)
        CreateControlZnode(theirs, "copy").do()
        with pytest.raises(PreconditionFailed, match="m2 of group g1 is active"):
            CreateControlZnode(ours, "copy").do()
    assert control_of(group).migration_id == "m2"


# --- on to the next phase ---------------------------------------------------------------------------------------


def test_a_phase_that_cannot_follow_is_refused() -> None:
    group = begun(Phase.FENCING)
    with group.process() as authority:
        for phase in (Phase.COPIED, Phase.SWITCHED, Phase.RETURNED, Phase.READY):
            with pytest.raises(PartiallyDoneError, match="in phase fencing"):
                carry_out(authority, [AdvancePhase(authority, phase)])
            with pytest.raises(PartiallyDoneError):
                AdvancePhase(authority, phase).do()


def test_undone_is_not_past_what_came_before_it() -> None:
    group = begun(*FORWARD, Phase.RETURNING, Phase.RETURNED, Phase.UNDONE)
    with group.process() as authority:
        assert isinstance(AdvancePhase(authority, Phase.SWITCHED).check(), StepRefused)
        for phase in (Phase.RETURNING, Phase.RETURNED, Phase.UNDONE):
            assert isinstance(AdvancePhase(authority, phase).check(), StepDone)


def test_a_stale_run_cannot_write() -> None:
    """Each write is conditional on the version of the control znode that the run read."""
    group = begun(Phase.FENCING)
    with group.process() as stale, group.process() as other:
        held = stale.require_phase(Phase.FENCING)
        carry_out(stale, [AcquireLock(stale, WHO)])
        group.zookeeper.remove(paths.control_child(GROUP, "run"))  # by hand, while its session lives
        carry_out(other, [AdvancePhase(other, Phase.UNDOING)])
        with pytest.raises(PartiallyDoneError, match=r"contains migration m1 in phase undoing.*this run stops"):
            stale.transact(held, [])
        with pytest.raises(PartiallyDoneError, match="needs migration m1 in phase fencing"):
            stale.require_phase(Phase.FENCING)
        with pytest.raises(PartiallyDoneError):
            store_child(stale, "journal", b"x", Phase.FENCING)
        group.zookeeper.remove(paths.control_child(GROUP, "run"))
        group.zookeeper.remove(CONTROL)
        with pytest.raises(PartiallyDoneError, match="does not exist"):
            stale.require_phase(Phase.UNDOING)


def test_an_old_tool_that_deletes_the_group_does_not_reach_the_control_znode() -> None:
    group = begun()
    group.zookeeper.remove(paths.offset(GROUP, TopicPartition("clicks", 0)))
    for path in sorted((path for path in group.state() if path.startswith(paths.group_root(GROUP))), reverse=True):
        group.zookeeper.remove(path)
    with group.process() as authority:
        assert isinstance(authority.transact(authority.require_phase(Phase.PLANNED), []), MultiOk)


# --- the run ----------------------------------------------------------------------------------------------------


def test_the_second_operator_waits_for_the_first_and_is_refused_while_that_is_alive() -> None:
    group = begun()
    with group.process() as first, group.process() as second:
        carry_out(first, [AcquireLock(first, WHO)])
        with pytest.raises(PreconditionFailed, match=r"alice@host, process 1 runs a command.*migrate abort g1"):
            carry_out(second, [AcquireLock(second, "bob")])
        with pytest.raises(PartiallyDoneError, match="session of this run"):
            second.require_lock_session()
        with pytest.raises(WaitTimeoutError, match=r"the run of alice.*nothing was changed"):
            carry_out(second, [AcquireLock(second, "bob")], timeout_ms=LOCK_WAIT_MS // 2)
        assert second.is_abort_requested() is False, "it holds nothing that could be aborted"


def test_the_run_of_a_process_that_died_ends_with_its_session() -> None:
    group = begun()
    with group.process() as first:
        carry_out(first, [AcquireLock(first, WHO)])
        with group.process() as second:
            step = AcquireLock(second, "bob")
            assert step.check() == StepWaiting("the run of alice@host, process 1 to end")
            group.zookeeper.expire(group.stores[-2], reconnects=False)
            carry_out(second, [step])
            run = second.read_lock()
            assert run is not None
            assert (run.owner, run.session_id) == ("bob", second.session.session_id)


def test_the_first_process_between_read_and_write_has_the_lock() -> None:
    group = begun()
    with group.process() as first, group.process() as second:
        AcquireLock(first, WHO).do()
        with pytest.raises(PreconditionFailed, match="has just started a run"):
            AcquireLock(second, "bob").do()


def test_a_run_whose_session_has_ended_changes_nothing_more() -> None:
    group = begun()
    with group.process() as authority:
        carry_out(authority, [AcquireLock(authority, WHO)])
        group.zookeeper.expire(group.stores[-1])
        with pytest.raises(PartiallyDoneError, match="session of this run with ZooKeeper has ended"):
            carry_out(authority, [AdvancePhase(authority, Phase.FENCING)])
    assert control_of(group).phase == "planned"


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("is_of_completed", [False, True], ids=["own", "completed"])
def test_a_session_that_ends_while_the_run_is_taken_is_no_bug_and_the_next_one_takes_it(
    moment: str, is_of_completed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each request of the step.  ``completed``: the run is first taken for a completed migration, whose fences the
    new one takes over, and the ``ControlZnode`` that the loop asks for an abort is another one."""
    asked = count(1)
    submit = CutStore.submit

    def ends_session(store: CutStore, *what: Any) -> None:
        number = next(asked)
        if (number, moment) == (at, "before"):
            store.server.expire(store)
        submit(store, *what)
        if (number, moment) == (at, "after"):
            store.server.expire(store)

    monkeypatch.setattr(CutStore, "submit", ends_session)
    lost, at = 0, 0
    while True:
        group = begun()
        with group.process() as authority:
            asked, at = count(1), at + 1

            def step(authority: ControlZnode = authority) -> list[MigrationStep]:
                authority.reset_lock()
                taken = ControlZnode(authority.session, GROUP, MIGRATION) if is_of_completed else authority
                return [AcquireLock(taken, WHO)]

            try:
                carry_out(authority, step())
            except MigrationLockLostError:
                lost += 1
            has_ended = next(asked) > at
            at, before = 0, at  # no session ends in the second run
            carry_out(authority, step())
            run = authority.read_lock()
            assert run is not None
            assert run.session_id == authority.session.session_id
            at = before
        if not has_ended:
            break
    assert at > 6, "the step has asked for less than it does"
    assert lost >= 2
    assert MigrationLockLostError.exit_code == EXIT_PARTIAL


def test_the_server_returns_our_logins() -> None:
    group = begun()
    with group.process() as authority:
        assert authority.own_acl_entries() == ()
        carry_out(authority, [AcquireLock(authority, WHO)])
        [entry] = authority.own_acl_entries()
        assert (entry.perms, entry.scheme, entry.id.partition(":")[0]) == (31, "digest", "operator")


def test_a_run_needs_no_login() -> None:
    group = begun(login=None)
    with group.process() as authority:
        carry_out(authority, [AcquireLock(authority, WHO)])
        assert authority.own_acl_entries() == ()
        assert authority.require_lock_session() == authority.session.session_id


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"who":1}', b"[" * 100_000, b'{"who":"x","since_ms":1e999}'])
def test_a_lock_with_any_content_belongs_to_a_run(data: bytes) -> None:
    group = begun()
    path = paths.control_child(GROUP, ctl.LOCK_CHILD)
    submit_and_wait(group.member(), [Create(path, data, ephemeral=True)], 1_000)
    with group.process() as authority:
        assert AcquireLock(authority, WHO).check() == StepWaiting("the run of an unknown process to end")


# --- abort ------------------------------------------------------------------------------------------------------


def test_an_abort_stops_the_run_before_its_next_step_and_not_the_run_after_that() -> None:
    group = begun()
    with group.process() as first, group.process() as other:
        carry_out(first, [AcquireLock(first, WHO)])
        told = request_abort(other.session, GROUP, "bob")
        assert told == "the run of alice@host, process 1 stops before its next step"
        request_abort(other.session, GROUP, "bob")
        with pytest.raises(PartiallyDoneError, match="by 'zkconsumer migrate abort'"):
            carry_out(first, [AdvancePhase(first, Phase.FENCING)])
    with group.process() as again:
        carry_out(again, [AcquireLock(again, WHO), AdvancePhase(again, Phase.FENCING)])
    assert control_of(group).phase == "fencing"


@pytest.mark.parametrize("is_done", [True, False])
def test_a_run_whose_connection_breaks_at_its_start_is_not_stopped_by_the_request_to_the_run_before(
    is_done: bool,
) -> None:
    group = begun()
    abort = paths.control_child(GROUP, ctl.ABORT_CHILD)
    with group.process() as first, group.process() as other:
        carry_out(first, [AcquireLock(first, WHO)])
        request_abort(other.session, GROUP, "bob")
    group.zookeeper.lose_connection_on_next(
        lambda request: isinstance(request, SetData | Delete) and request.path == abort, is_done=is_done
    )
    with group.process() as again:
        carry_out(again, [AcquireLock(again, WHO), AdvancePhase(again, Phase.FENCING)])
    assert control_of(group).phase == "fencing"


def test_a_run_that_ends_before_it_has_deleted_the_request_to_the_run_before_deletes_it_when_it_starts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = begun()
    with group.process() as first, group.process() as other:
        carry_out(first, [AcquireLock(first, WHO)])
        request_abort(other.session, GROUP, "bob")
    with group.process() as again:
        with monkeypatch.context() as without_answer:
            without_answer.setattr(again, "read_lock", lambda: (_ for _ in ()).throw(ZkTimeoutException("no answer")))
            with pytest.raises(ZkTimeoutException):
                AcquireLock(again, WHO).do()
        carry_out(again, [AcquireLock(again, WHO), AdvancePhase(again, Phase.FENCING)])
    assert control_of(group).phase == "fencing"


def test_without_a_run_there_is_nothing_to_abort() -> None:
    group = begun()
    with group.process() as authority, pytest.raises(PreconditionFailed, match="no run is active on group"):
        request_abort(authority.session, GROUP, "bob")
    assert group.zookeeper.data(paths.control_child(GROUP, ctl.ABORT_CHILD)) is None


# --- pieces -----------------------------------------------------------------------------------------------------


@given(st.binary(max_size=2_000))
def test_a_text_is_restored_from_its_pieces(text: bytes) -> None:
    assert unpack(pack(text)) == text


@given(st.binary(max_size=300))
def test_any_bytes_are_a_text_or_damaged(data: bytes) -> None:
    try:
        unpack([data])
    except DamagedPiecesError as error:
        assert str(error)  # noqa: PT017


def test_every_prefix_of_a_text_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "CHILD_BYTES_MAX", 10)
    whole = pack(b"a plan of some length, in pieces of ten bytes")
    assert len(whole) > 3
    packed = b"".join(whole)
    for end in range(len(packed)):
        with pytest.raises(DamagedPiecesError):
            unpack([packed[:end]])
    for wrong in (whole[1:], whole[:-1], [*whole, b"x"], [whole[1], whole[0], *whole[2:]]):
        with pytest.raises(DamagedPiecesError):
            unpack(wrong)


def test_a_text_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack(b"\0" * 1_000_000)
    assert len(packed[0]) < 2_000
    monkeypatch.setattr(pieces_module, "TEXT_BYTES_MAX", 1_000)
    with pytest.raises(DamagedPiecesError, match="more than 1000 bytes"):
        unpack(packed)


LONG = b"0123456789abcdef".hex().encode() * 3


def test_a_long_plan_is_kept_in_pieces_and_may_be_cut_off_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "CHILD_BYTES_MAX", 12)
    count = len(pack(LONG))

    def make() -> Group:
        group = begun()
        for number in range(count + 3):  # of a plan that was longer, and cut off
            group.zookeeper.ensure(paths.control_child(GROUP, ctl.plan_piece_name(number)), b"old")
        return group

    def run(authority: ControlZnode) -> None:
        carry_out(authority, [AcquireLock(authority, WHO), StorePlan(authority, LONG)])
        assert read_plan_text(authority.session, GROUP) == LONG

    at_every_cut(make, run, writes_min=count + 3)


def test_another_plan_of_the_same_migration_is_refused() -> None:
    """The file was edited, or is an older one: exit code 4."""
    group = begun()
    with group.process() as authority:
        carry_out(authority, [StorePlan(authority, PLAN)])
        with pytest.raises(PreconditionFailed, match=r"another plan than this file.*--resume g1"):
            carry_out(authority, [StorePlan(authority, PLAN + b" ")])
        assert read_plan_text(authority.session, GROUP) == PLAN


def test_a_plan_damaged_after_the_fence_is_reported_and_not_written_again() -> None:
    group = begun()
    with group.process() as authority:
        carry_out(authority, [StorePlan(authority, PLAN), AdvancePhase(authority, Phase.FENCING)])
        group.zookeeper.remove(paths.control_child(GROUP, ctl.plan_piece_name(0)))
        with pytest.raises(VerificationError, match="another client writes there"):
            carry_out(authority, [StorePlan(authority, PLAN)])
        with pytest.raises(PreconditionFailed, match="has no plan"):
            read_plan_text(authority.session, GROUP)
        group.zookeeper.ensure(paths.control_child(GROUP, ctl.plan_piece_name(0)), b"x")
        with pytest.raises(PreconditionFailed, match="continue with the plan's file"):
            read_plan_text(authority.session, GROUP)


def test_children_of_other_names_are_no_pieces() -> None:
    group = begun()
    for name in ("plan-1", "plan-00000", "plan-abcd", "plan-"):
        group.zookeeper.ensure(f"{CONTROL}/{name}", b"x")
    with group.process() as authority:
        carry_out(authority, [StorePlan(authority, PLAN)])
        assert read_plan_text(authority.session, GROUP) == PLAN


def test_a_refusal_of_zookeeper_is_reported() -> None:
    group = begun()
    group.zookeeper.set_acl(CONTROL, ())
    with group.process() as authority, pytest.raises(ZkReadNotAuthorized, match=rf"1 node \(NoAuth\):\n  {CONTROL}\n"):
        carry_out(authority, [CreateControlZnode(authority, "copy")])


@pytest.mark.parametrize("request_", [Create, SetData, Delete, Exists])
def test_a_refusal_of_one_request_is_reported_or_skipped(request_: type) -> None:
    """No endless loop, and every failure is an error that names the remedy."""
    group = begun()
    with group.process() as authority:
        group.zookeeper.fail_next(lambda one: isinstance(one, request_), NoAuth)
        try:
            carry_out(authority, [AcquireLock(authority, WHO), AdvancePhase(authority, Phase.FENCING)])
        except ZkConsumerError as error:
            assert not isinstance(error, InternalError), error  # noqa: PT017


# --- the journal ------------------------------------------------------------------------------------------------


def test_entries_are_read_in_order_and_may_be_truncated_anywhere() -> None:
    def run(authority: ControlZnode) -> None:
        journal = Journal(authority, WHO)
        journal.append("take the seat", {"member": "x", "instance": "y"})
        journal.append("copy")

    at_every_cut(begun, run, writes_min=2)
    group = begun()
    with group.process() as authority:
        run(authority)
        read = read_journal(authority.session, GROUP)
    wall_ms = group.clock.wall_ms()
    assert read.entries == (
        JournalEntry(wall_ms, WHO, "take the seat", {"member": "x", "instance": "y"}),
        JournalEntry(wall_ms, WHO, "copy"),
    )
    assert read.latest("take the seat") == read.entries[0]
    assert read.latest("pay") is None


def test_the_oldest_entries_go() -> None:
    many = tuple(JournalEntry(number, "w", "x") for number in range(ENTRIES_MAX + 5))
    assert parse_journal(format_journal(many)).entries == many[5:]


def test_long_entries_push_older_ones_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "CHILD_BYTES_MAX", 300)
    many = tuple(
        JournalEntry(number, "w", "".join(chr(33 + (n * number) % 90) for n in range(200))) for number in range(9)
    )
    kept = parse_journal(format_journal(many)).entries
    assert kept == many[-len(kept):]  # fmt: skip
    assert 0 < len(kept) < 9


@given(st.binary(max_size=200) | st.text().map(lambda text: b"".join(pack(text.encode()))))
def test_any_bytes_are_a_journal_or_have_a_problem(data: bytes) -> None:
    read = parse_journal(data)
    assert read.error or read.entries == ()


@pytest.mark.parametrize("text", [b"[]", b"{}", b'{"schema":"zkconsumer.migration.journal/1"}', b"[" * 100_000])
def test_data_that_are_no_journal_are_reported(text: bytes) -> None:
    assert parse_journal(pack(text)[0]).error


def test_every_prefix_of_a_journal_is_reported_and_overwritten() -> None:
    whole = format_journal((JournalEntry(1, "w", "x"),))
    for end in range(len(whole)):
        assert parse_journal(whole[:end]) == JournalContents(error="it cannot be read: DamagedPiecesError")
    group = begun()
    group.zookeeper.ensure(paths.control_child(GROUP, ctl.JOURNAL_CHILD), whole[:-1])
    with group.process() as authority:
        Journal(authority, WHO).append("copy")
        texts = [entry.what for entry in read_journal(authority.session, GROUP).entries]
    assert texts == ["the journal before this: it cannot be read: DamagedPiecesError", "copy"]


def test_a_killed_process_is_killed() -> None:
    """The harness itself: nothing catches it, and what came before the write is done."""
    group = begun()
    with pytest.raises(Killed), group.process(Cut(1, "before")) as authority:
        authority.session.request([Exists("/"), Create("/a")])
    assert group.zookeeper.data("/a") is None
    assert format_lock("a", 1) == b'{"who": "a", "since_ms": 1}'
