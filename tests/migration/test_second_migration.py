"""A second migration after a rollback: ZooKeeper's offsets count without a decision where Kafka still has what the
rollback found there, or an earlier copy of a migration; later commits of a client need a decision.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.migration.control import control_pieces as pieces_module
from bridge.migration.control.acl_policy import RunAclPolicy
from bridge.migration.control.control_layout import RETURNED_PIECE_PREFIX, returned_piece_name
from bridge.migration.control.control_pieces import DamagedPiecesError, pack
from bridge.migration.inspect.group_inspection import inspect_group
from bridge.migration.inspect.group_snapshot import CommittedOffset
from bridge.migration.offsets.provenance import Provenance, format_provenance, parse_provenance
from bridge.migration.offsets.returned_offsets import (
    EndedMigration,
    fingerprint,
    format_returned_record,
    parse_returned_record,
    read_returned_record,
    returned_offsets,
)
from bridge.migration.placeholder.placeholder_member import PlaceholderMember
from bridge.migration.plan.accepted_plan import accepted_plan_error
from bridge.migration.plan.decisions import Decisions, OffsetConvention
from bridge.migration.plan.json_object_reader import InvalidJsonError
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.plan.plan_file import read_plan_file
from bridge.migration.plan.start_offsets import make_plan
from tests.broker.raw_client import RawClient
from tests.migration.dual_members import PARTITIONS, DualLab, DualMembers, dual
from tests.migration.migration_write_faults import Lab, lab
from tests.migration.operator_shell import Shell, command_in, moved, shell, told
from zkconsumer.admin.zookeeper_group import OffsetNode
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import LEAVE_GROUP, OFFSET_COMMIT
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest
from zkconsumer.wire.schemas.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Stat
from zkconsumer.zk.zk_security import SECURE_ACL, DigestLogin

__all__ = ["dual", "lab", "shell"]

T0, T1, T2 = PARTITIONS
SINCE = "copied (Kafka's 33 is from before the last way back)"
NEXT, LAST = OffsetConvention.NEXT, OffsetConvention.LAST


def read_on(lab: Lab, group: str, **offsets: int) -> None:
    """Old members commit in ZooKeeper: t0=40 is partition 0 of t."""
    for name, offset in offsets.items():
        lab.zookeeper.ensure(paths.offset(group, TopicPartition("t", int(name[1:]))), b"%d" % offset)


def committed(lab: Lab, group: str, tp: TopicPartition, offset: int, metadata: str = "") -> None:
    """A client without a member commits for the group, which is empty."""
    row = OffsetCommitPartition(partition_index=tp.partition, committed_offset=offset, committed_metadata=metadata)
    topics = [OffsetCommitTopic(name=tp.topic, partitions=[row])]
    body = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
    with RawClient(lab.broker.addresses()[0]) as talk:
        assert talk.ask(OFFSET_COMMIT, 2, body).topics[0].partitions[0].error_code == 0


@pytest.fixture
def came_back(lab: Lab, shell: Shell) -> tuple[str, Path]:
    """A group whose new members committed 33 for t/0 and that went back to ZooKeeper, where old members read on.

    No number shows what it means: none is the end of its log.
    """
    group, file = moved(shell)
    assert lab.commit(group, 0, 33) == 0
    assert shell("rollback", group, "--execute").exit_code == 0
    assert lab.offsets(group) == {T0: 33, T1: 20, T2: 0}
    read_on(lab, group, t0=40)
    return group, file


def row_of(shell: Shell, group: str, file: Path, *more: str, number: int = 0) -> tuple[int, Any, str]:
    """The exit code of ``plan``, and target and remark of one partition."""
    done = shell("plan", group, "-f", file, "-o", "json", *more)
    row = told(done)["partitions"][number]
    return done.exit_code, row["target_offset"], row["refusal"] or row["reason"]


# --- copy -------------------------------------------------------------------------------------------------------


def test_a_second_migration_needs_no_decision(lab: Lab, shell: Shell, came_back: tuple[str, Path]) -> None:
    group, file = came_back
    shown = shell("plan", group, "-f", file)
    assert shown.exit_code == 0, shown.stderr
    assert SINCE in shown.stdout
    assert f"Offset convention: next (to migration m{group}, which has ended, each was the next record" in shown.stderr
    done = shell("apply", file, "--execute")
    assert done.exit_code == 0, done.stderr
    assert {tp: offset for tp, (offset, _) in lab.kafka(group).items()} == {T0: 40, T1: 20, T2: 0}
    assert lab.stands(group) == ("switched", "kafka")


@pytest.mark.parametrize(
    ("offset", "metadata"), [(35, ""), (33, "an application's"), (20, "")], ids=["ahead", "other metadata", "behind"]
)
def test_a_later_client_commit_needs_a_decision(
    lab: Lab, shell: Shell, came_back: tuple[str, Path], offset: int, metadata: str
) -> None:
    group, file = came_back
    committed(lab, group, T0, offset, metadata)
    words = f"ZooKeeper has 40 as the next one, and an application stored {offset} in Kafka (--existing)"
    assert row_of(shell, group, file) == (4, None, words)
    assert row_of(shell, group, file, number=1)[1:] == (20, "copied"), "the others need none"
    assert row_of(shell, group, file, "--existing", "keep-source")[:2] == (0, 40)


def test_an_earlier_copy_that_a_client_wrote_over_is_asked_about(
    lab: Lab, shell: Shell, came_back: tuple[str, Path]
) -> None:
    group, file = came_back
    assert parse_provenance(lab.kafka(group)[T1][1]) is not None
    read_on(lab, group, t1=30)
    assert row_of(shell, group, file, number=1) == (0, 30, "copied")
    committed(lab, group, T1, 20)
    words = "ZooKeeper has 30 as the next one, and an application stored 20 in Kafka (--existing)"
    assert row_of(shell, group, file, number=1) == (4, None, words)


@pytest.mark.parametrize(
    ("existing", "target", "why"),
    [
        ("keep-source", 40, "copied (Kafka's next is 33: 7 records passed over)"),
        ("keep-target", 33, "kept: Kafka's (ZooKeeper's next is 40: 7 records read again)"),
        ("higher", 40, "copied (Kafka's next is 33: 7 records passed over)"),
    ],
)
def test_a_decision_that_is_given_counts(
    shell: Shell, came_back: tuple[str, Path], existing: str, target: int, why: str
) -> None:
    assert row_of(shell, *came_back, "--existing", existing) == (0, target, why)


def test_an_offset_that_moved_back_after_the_rollback_shows_its_cost(
    lab: Lab, shell: Shell, came_back: tuple[str, Path]
) -> None:
    group, file = came_back
    read_on(lab, group, t0=30)
    words = "copied (Kafka's 33 is from before the last way back: 3 records read again)"
    assert row_of(shell, group, file) == (0, 30, words)


def test_where_zookeeper_has_no_offset_any_more_it_is_asked(
    lab: Lab, shell: Shell, came_back: tuple[str, Path]
) -> None:
    group, file = came_back
    lab.zookeeper.remove(paths.offset(group, T0))
    words = "ZooKeeper has none, and an application stored 33 in Kafka (--existing)"
    assert row_of(shell, group, file, "--missing", "earliest") == (4, None, words)


@pytest.mark.parametrize("phase", ["fenced", "verified"])
def test_after_a_second_migration_undone_before_its_switch_the_third_needs_no_decision(
    lab: Lab, shell: Shell, came_back: tuple[str, Path], phase: str
) -> None:
    """``fenced``: nothing was copied, so Kafka has what the first rollback found."""
    group, file = came_back
    assert shell("plan", group, "-f", file).exit_code == 0
    assert shell("apply", file, "--execute", "--stop-after", phase).exit_code == 0
    assert shell("rollback", group, "--execute").exit_code == 0
    assert lab.kafka(group)[T0][0] == (33 if phase == "fenced" else 40)
    read_on(lab, group, t0=45)
    assert row_of(shell, group, file)[:2] == (0, 45)
    committed(lab, group, T0, 41)
    assert row_of(shell, group, file)[0] == 4


def test_after_a_second_switch_only_the_values_of_its_own_rollback_count(
    lab: Lab, shell: Shell, came_back: tuple[str, Path]
) -> None:
    group, file = came_back
    assert shell("plan", group, "-f", file).exit_code == 0
    assert shell("apply", file, "--execute").exit_code == 0
    assert lab.commit(group, 0, 44) == 0
    assert shell("rollback", group, "--execute").exit_code == 0
    read_on(lab, group, t0=48)
    assert row_of(shell, group, file)[:2] == (0, 48)
    committed(lab, group, T0, 33)
    words = "ZooKeeper has 48 as the next one, and an application stored 33 in Kafka (--existing)"
    assert row_of(shell, group, file) == (4, None, words)


def test_behind_the_end_kafka_has_the_authority_and_its_value_is_asked_about(
    lab: Lab, shell: Shell, came_back: tuple[str, Path]
) -> None:
    group, file = came_back
    assert shell("plan", group, "-f", file).exit_code == 0
    assert shell("apply", file, "--execute").exit_code == 0
    assert lab.commit(group, 0, 33) == 0
    archive = f"--archive={file}.znodes"
    assert shell("complete", group, "--execute", "--confirm", group, archive).exit_code == 0
    words = "ZooKeeper has 40 as the next one, and an application stored 33 in Kafka (--existing)"
    assert row_of(shell, group, file) == (4, None, words)


def test_changes_after_the_plan_are_accepted_in_zookeeper_and_need_a_decision_in_kafka(
    lab: Lab, shell: Shell, came_back: tuple[str, Path]
) -> None:
    group, file = came_back
    assert shell("plan", group, "-f", file).exit_code == 0
    read_on(lab, group, t0=42)
    committed(lab, group, T1, 7)
    refused = shell("apply", file, "--execute", "--accept-drift")
    assert refused.exit_code == 6
    words = "t/1: ZooKeeper has 20 as the next one, and an application stored 7 in Kafka (--existing)"
    assert words in refused.stderr
    assert "t/0: ZooKeeper" not in refused.stderr
    assert shell("rollback", group, "--execute").exit_code == 0
    assert shell("plan", group, "-f", file, "--existing", "keep-source").exit_code == 0
    read_on(lab, group, t0=43)
    done = shell("apply", file, "--execute", "--accept-drift")
    assert done.exit_code == 0, done.stderr
    assert lab.kafka(group)[T0][0] == 43


def test_a_run_that_is_cut_off_between_the_copy_and_the_check_recognises_the_plan_s_start(
    lab: Lab, shell: Shell, came_back: tuple[str, Path]
) -> None:
    """The record is deleted with the other pieces then; the plan contains what it needs of it."""
    group, file = came_back
    assert shell("plan", group, "-f", file).exit_code == 0
    assert [one.is_returned for one in read_plan_file(file).snapshot.partitions.values()] == [True, False, False]
    assert shell("apply", file, "--execute", "--stop-after", "copied").exit_code == 0
    with lab.process() as session:
        assert read_returned_record(session, group) is None
    assert shell("apply", "--resume", group, "--plan-digest", read_plan_file(file).digest, "--execute").exit_code == 0
    assert lab.stands(group) == ("switched", "kafka")


@pytest.mark.parametrize(
    "data", [b"", b"x", pack(b"{}")[0], pack(format_returned_record("other", EndedMigration(NEXT)))[0]]
)
def test_a_record_that_is_none_or_another_migration_s_leaves_the_question(
    lab: Lab, shell: Shell, came_back: tuple[str, Path], data: bytes
) -> None:
    group, file = came_back
    lab.zookeeper.ensure(paths.control_child(group, returned_piece_name(0)), data)
    words = "ZooKeeper has 40 as the next one, and an application stored 33 in Kafka (--existing)"
    assert row_of(shell, group, file, "--offset-convention", "next") == (4, None, words)


KEEP = "record Kafka's offsets that ZooKeeper has now"


def cut_off_before_the_record(lab: Lab, shell: Shell) -> tuple[str, Path, list[str]]:
    """A group in ``returned``, the plan's file, and the command that continues."""
    group, file = moved(shell)
    assert lab.commit(group, 0, 33) == 0
    shell.in_[KEEP] = lambda: shell.zookeeper_away(1_000_000, expires=True)
    done = shell("rollback", group, "--execute", "--timeout=10")
    assert done.exit_code == 6
    shell.all_back()
    assert lab.stands(group)[0] == "returned"
    with lab.process() as session:
        assert read_returned_record(session, group) is None
    return group, file, command_in(done.stderr)


def test_a_rollback_interrupted_before_the_record_writes_it_when_it_continues(lab: Lab, shell: Shell) -> None:
    group, file, again = cut_off_before_the_record(lab, shell)
    assert shell(*again).exit_code == 0
    read_on(lab, group, t0=40)
    assert row_of(shell, group, file) == (0, 40, SINCE)


def test_a_client_commit_before_the_record_is_written_is_not_in_it(lab: Lab, shell: Shell) -> None:
    """The session of the placeholder ended before the run continued, so the group accepts clients' commits."""
    group, file, again = cut_off_before_the_record(lab, shell)
    with lab.process() as session, RawClient(lab.broker.addresses()[0]) as talk:
        [seat] = PlaceholderMember(session, group, f"m{group}").read_occupants().placeholders
        body = LeaveGroupRequest(group_id=group, member_id=seat.member_id)
        assert talk.ask(LEAVE_GROUP, 0, body).error_code == 0
    committed(lab, group, T0, 35)
    assert shell(*again).exit_code == 0
    read_on(lab, group, t0=40)
    words = "ZooKeeper has 40 as the next one, and an application stored 35 in Kafka (--existing)"
    assert row_of(shell, group, file) == (4, None, words)


def test_the_dry_run_of_a_rollback_names_the_record(shell: Shell) -> None:
    group, _ = moved(shell)
    steps = {one["name"]: one for one in told(shell("rollback", group, "-o", "json"))["steps"]}
    assert (steps[KEEP]["status"], steps[KEEP]["changes"]) == ("to do", True)
    path = paths.control(group)
    assert steps[KEEP]["lines"] == [f"write to {path} which offsets of Kafka the next plan need not ask about"]


# --- what the numbers mean ----------------------------------------------------------------------------------------


def test_after_the_rollback_the_numbers_are_known_to_be_the_last_record(lab: Lab, shell: Shell) -> None:
    group = lab.new_group()
    file = shell.folder / "plan"
    plan = "plan", group, "-f", file
    assert shell(*plan, "--missing", "earliest", "--offset-convention", "last").exit_code == 0
    assert shell("apply", file, "--execute").exit_code == 0
    assert lab.commit(group, 0, 33) == 0
    assert shell("rollback", group, "--execute").exit_code == 0
    assert lab.offsets(group) == {T0: 32, T1: 20}
    read_on(lab, group, t0=40)
    done = shell(*plan, "--missing", "earliest", "-o", "json")
    assert done.exit_code == 0, done.stderr
    assert told(done)["offset_convention"] == "last"
    assert [row["target_offset"] for row in told(done)["partitions"]] == [41, 21, 0]


def test_numbers_that_contradict_the_ended_migration_need_a_decision(
    lab: Lab, shell: Shell, came_back: tuple[str, Path]
) -> None:
    """Another program works now: one that stores the last record that it has read."""
    group, file = came_back
    lab.zookeeper.ensure(f"{paths.group_root(group)}/api/rebalance")
    done = shell("plan", group, "-f", file)
    assert done.exit_code == 4
    known = f"to migration m{group}, which has ended, each was the next record"
    assert "Offset convention: not known (the evidence is divided: " in done.stderr
    assert f"api/rebalance: only go_kafka_client makes it, which stores the last record read; {known})" in done.stderr
    assert shell("plan", group, "-f", file, "--offset-convention", "next").exit_code == 0


def test_a_migration_undone_before_the_switch_shows_the_convention_too(lab: Lab, shell: Shell) -> None:
    group, file = moved(shell, "--stop-after", "fenced")
    assert shell("rollback", group, "--execute").exit_code == 0
    done = shell("plan", group, "-f", file, "--missing", "earliest")
    assert done.exit_code == 0, done.stderr
    assert "which has ended, each was the next record" in done.stderr


def test_the_meaning_of_no_offsets_is_no_knowledge(lab: Lab, shell: Shell) -> None:
    """A plan without a stored offset has the convention *next*, because it does not matter."""
    group = lab.new_group()
    for tp in (T0, T1):
        lab.zookeeper.remove(paths.offset(group, tp))
    file = shell.folder / "plan"
    assert shell("plan", group, "-f", file, "--missing", "earliest").exit_code == 0
    assert shell("apply", file, "--execute", "--stop-after", "fenced").exit_code == 0
    assert shell("rollback", group, "--execute").exit_code == 0
    read_on(lab, group, t0=40)
    done = shell("plan", group, "-f", file, "--missing", "earliest")
    assert done.exit_code == 4
    assert "Refused: the meaning of the stored offsets is not known" in done.stderr


# --- the record -----------------------------------------------------------------------------------------------------


def test_the_record_is_read_as_it_was_written_and_contains_no_metadata() -> None:
    values = {T0: CommittedOffset(33), T1: CommittedOffset(2**63 - 1, "a password\u00e9")}
    ended = EndedMigration(LAST, {tp: fingerprint(value) for tp, value in values.items()})
    text = format_returned_record("m1", ended)
    assert b"password" not in text
    record = parse_returned_record(text)
    assert (record.migration_id, record.ended) == ("m1", ended)
    assert all(ended.has_returned(tp, value) for tp, value in values.items())
    assert not any(ended.has_returned(tp, value._replace(offset=7)) for tp, value in values.items())
    assert not any(ended.has_returned(tp, value._replace(metadata="x")) for tp, value in values.items())
    assert not ended.has_returned(T2, CommittedOffset(33))
    assert not ended.has_returned(T0, None)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"\xff", b"{}", b'{"schema":"x","migration_id":"m","convention":null,"offsets":[]}',
        *(format_returned_record("m1", EndedMigration(NEXT, {T0: (1, "")})).replace(old, new) for old, new in (
            (b'"m1"', b'"m 1"'), (b'"next"', b'"both"'), (b'"t",0', b'"t",-1'), (b",1,", b",-1,"), (b",1,", b","),
            (b'"offsets"', b'"more":1,"offsets"'),
        )),
    ],
)  # fmt: skip
def test_data_that_are_no_record_are_refused(text: bytes) -> None:
    with pytest.raises(InvalidJsonError):
        parse_returned_record(text)


def test_only_client_commits_that_zookeeper_has_too_are_recorded() -> None:
    def node(tp: TopicPartition, offset: int | None) -> OffsetNode:
        return OffsetNode(tp, b"", offset, Stat(1, 1, 0, 0, 1, 0, 0, 0, 0, 0))

    ours = format_provenance(Provenance("m1", 3, 1))
    kafka = {
        TopicPartition("t", 0): CommittedOffset(33, "app"),  # as ZooKeeper has
        TopicPartition("t", 1): CommittedOffset(34),  # another one
        TopicPartition("t", 2): CommittedOffset(33, ours),  # known by its metadata
        TopicPartition("t", 3): CommittedOffset(33),  # ZooKeeper has no offset
        TopicPartition("t", 4): CommittedOffset(33),  # nor a znode
    }
    stored = {0: 33, 1: 33, 2: 33, 3: None}
    nodes = {tp: node(tp, offset) for tp, offset in ((TopicPartition("t", n), at) for n, at in stored.items())}
    assert returned_offsets(kafka, nodes, NEXT) == {T0: fingerprint(kafka[T0])}
    assert returned_offsets(kafka, nodes, LAST) == {T1: (34, "")}
    nothing_read = {T0: CommittedOffset(0)}
    assert returned_offsets(nothing_read, {T0: node(T0, None)}, LAST) == {}


def test_a_long_record_is_kept_in_pieces_and_may_be_cut_off_at_each(
    lab: Lab, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, _, again = cut_off_before_the_record(lab, shell)
    # Of a run that was cut off, with a longer record: it is not whole.
    for number in range(9):
        lab.zookeeper.ensure(paths.control_child(group, returned_piece_name(number)), b"old")
    monkeypatch.setattr(pieces_module, "CHILD_BYTES_MAX", 30)
    with lab.process() as session, pytest.raises(DamagedPiecesError):
        read_returned_record(session, group)
    assert shell(*again).exit_code == 0
    with lab.process() as session:
        record = read_returned_record(session, group)
    assert record is not None
    assert record.ended.returned == {T0: (33, "")}
    names = [
        path for path in lab.zookeeper.tree.dump() if path.startswith(paths.control_child(group, RETURNED_PIECE_PREFIX))
    ]
    assert 1 < len(names) < 9


def test_every_client_may_read_the_record_and_only_the_login_of_the_run_writes_it() -> None:
    access = RunAclPolicy(DigestLogin("mover", "secret"))
    assert access.acl_of_child(returned_piece_name(0)) == SECURE_ACL


def test_accepted_drift_cannot_claim_that_a_rollback_left_a_value(
    lab: Lab, shell: Shell, came_back: tuple[str, Path]
) -> None:
    """Otherwise a client that may write the accepted plan could hide what a client committed."""
    group, file = came_back
    committed(lab, group, T0, 35)
    assert shell("plan", group, "-f", file, "--existing", "keep-source").exit_code == 0
    first = read_plan_file(file)
    one = first.snapshot.partitions[T0]
    for forged in (replace(one, is_returned=True), replace(one, is_returned=True, kafka=CommittedOffset(36))):
        partitions = {**first.snapshot.partitions, T0: forged}
        accepted = replace(first, snapshot=replace(first.snapshot, partitions=partitions))
        words = "it contains an offset of t/0 that a rollback left in Kafka, and the first plan does not"
        assert accepted_plan_error(first, accepted) == words


# --- dual -----------------------------------------------------------------------------------------------------------


def there_and_back(dual: DualLab, crowd: DualMembers) -> None:
    plan = dual.dual_plan(crowd)
    with dual.process() as session:
        dual.move(session, plan)
        crowd.acts()
    assert {text for _, text in dual.kafka(crowd.group).values()} == {""}, "members commit as any client does"
    with dual.process() as session:
        dual.take_back(session, plan)
    assert dual.stands(crowd.group)[0] == "undone"


def planned_anew(dual: DualLab, crowd: DualMembers, decisions: Decisions | None = None) -> MigrationPlan:
    """A second plan; without any decision, if none is given."""
    with dual.process() as session:
        seen = inspect_group(session, crowd.group, with_acls=False)
    assert seen is not None
    return make_plan(seen, decisions or Decisions(), migration_id="again", strategy="dual", made_at_ms=2)


def test_a_second_dual_migration_needs_no_decision(dual: DualLab) -> None:
    crowd = dual.crowd()
    there_and_back(dual, crowd)
    assert all(parse_provenance(text) is not None for _, text in dual.kafka(crowd.group).values())
    for _ in range(4):
        crowd.acts()
    again = planned_anew(dual, crowd)
    assert again.can_be_applied, (again.refusals, again.partitions)
    assert again.targets == crowd.positions
    assert any(dual.kafka(crowd.group)[tp][0] < at for tp, at in again.targets.items())
    with dual.process() as session:
        dual.move(session, again)
    assert dual.stands(crowd.group) == ("switched", "kafka")


def test_a_later_client_commit_needs_a_decision_with_dual_too(dual: DualLab) -> None:
    crowd = dual.crowd()
    there_and_back(dual, crowd)
    crowd.acts()
    committed(dual, crowd.group, T0, 7)
    rows = {row.tp: row for row in planned_anew(dual, crowd).partitions}
    assert rows[T0].refusal.endswith("and an application stored 7 in Kafka (--existing)")
    assert not rows[T1].refusal


def test_the_rollback_waits_until_each_member_has_written_its_provenance(dual: DualLab) -> None:
    """A member that is slow to do so: the coordinator refuses its commits for a while."""
    crowd = dual.crowd()
    plan = dual.dual_plan(crowd)
    with dual.process() as session:
        dual.move(session, plan)
    crowd.acts()
    slow = crowd.members[0]
    slow.refusals = 60
    with dual.process() as session:
        said = dual.take_back(session, plan)
    assert any(f"waiting for {slow.consumer} to catch up with 2 of its partitions" in line for line in said), said
    assert all(parse_provenance(text) is not None for _, text in dual.kafka(crowd.group).values())


def test_orphaned_offsets_are_recorded_in_the_rollback(dual: DualLab) -> None:
    """A client was in the coordinator's group, committed for a topic that no member reads, and left."""
    dual.broker.create_topic("unread", 1)
    crowd = dual.crowd(is_loaded=False)
    unread = TopicPartition("unread", 0)
    dual.zookeeper.ensure(paths.offset(crowd.group, unread), b"0")
    plan = dual.dual_plan(crowd)
    with dual.process() as session:
        dual.move(session, plan)
    crowd.acts()
    dual.broker.append("unread", 0, [b"x"] * 9)
    assert crowd.members[0].to_kafka(unread, 4)
    with dual.process() as session:
        dual.take_back(session, plan)
    assert dual.zookeeper.data(paths.offset(crowd.group, unread)) == b"4"
    dual.zookeeper.ensure(paths.offset(crowd.group, unread), b"6")
    rows = {row.tp: row for row in planned_anew(dual, crowd).partitions}
    assert (rows[unread].target, rows[unread].why) == (6, "copied (Kafka's 4 is from before the last way back)")
    committed(dual, crowd.group, unread, 5)
    rows = {row.tp: row for row in planned_anew(dual, crowd).partitions}
    assert rows[unread].refusal == "ZooKeeper has 6 as the next one, and an application stored 5 in Kafka (--existing)"
