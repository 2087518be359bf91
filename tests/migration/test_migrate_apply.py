"""The commands of ``zkconsumer migrate`` that execute a plan: their output and exit codes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bridge.migration.control.control_layout import plan_piece_name
from bridge.migration.control.control_pieces import pack
from bridge.migration.plan.plan_file import plan_to_bytes, read_plan_file, write_plan_file
from bridge.migration.plan.plan_json import digest_of_plan
from bridge.migration.steps import cut_over_hooks
from bridge.testing.fake_environment import ADDRESS
from tests.migration.migration_write_faults import DECISIONS, EXPECTED, Lab, lab
from zkconsumer.admin.admin_session import AdminDependencies
from zkconsumer.cli.main import main
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.zk_security import DigestLogin

__all__ = ["lab"]

T0 = TopicPartition("t", 0)
Migrate = Callable[..., Result]


@pytest.fixture
def migrate(lab: Lab) -> Migrate:
    """Runs ``zkconsumer migrate <words>``; a word may be a whole command that another one printed."""

    def run(*words: str, typed: str | None = None) -> Result:
        doors = AdminDependencies(
            store=lambda _, ms: FakeZkStore(lab.zookeeper, "", ms, DigestLogin("operator", "secret"))
        )
        where = () if "--zookeeper" in words else ("--zookeeper", ADDRESS)
        done = CliRunner().invoke(main, ["migrate", *words, *where], obj=doors, input=typed)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return run


def delete(lab: Lab, group: str) -> Result:
    """Delete the rest of an old group."""
    doors = AdminDependencies(store=lambda _, ms: FakeZkStore(lab.zookeeper, "", ms, DigestLogin("operator", "secret")))
    return CliRunner().invoke(main, ["groups", "delete", group, "--execute", "--zookeeper", ADDRESS], obj=doors)


def planned(lab: Lab, tmp_path: Path) -> tuple[str, Path]:
    group = lab.new_group()
    file = tmp_path / f"{group}.plan"
    write_plan_file(file, lab.plan(group, DECISIONS))
    return group, file


STATUS_KEYS = {
    "schema", "group", "at_ms", "migration_id", "strategy", "phase", "epoch", "authority", "confirmed", "lock",
    "abort_requested", "registered", "members", "waiting_for", "fences", "owned_partitions", "placeholder",
    "placeholder_until_ms", "coordinator_members", "coordinator_group", "coordinator_error", "copied_offsets",
    "journal", "journal_error", "not_known", "exit_code", "next_steps",
}  # fmt: skip


def next_of(done: Result, which: int = 0) -> list[str]:
    """The words of a next step, as they would be typed."""
    words = shlex.split(json.loads(done.stdout)["next_steps"][which])
    assert words[:2] == ["zkconsumer", "migrate"]
    return words[2:]


def test_there_and_back_by_the_commands_that_are_printed(lab: Lab, migrate: Migrate, tmp_path: Path) -> None:
    group, file = planned(lab, tmp_path)
    dry = migrate("apply", str(file), "-o", "json")
    told = json.loads(dry.stdout)
    assert (dry.exit_code, told["exit_code"], told["executed"], told["error"]) == (3, 3, False, None)
    assert told["schema"] == "zkconsumer/migrate-apply/1"
    assert next(step["name"] for step in told["steps"] if step["status"] == "to do") == "control znode: planned"
    assert lab.control(group) is None

    held = migrate(*next_of(dry), "-o", "json", "--stop-after", "verified")
    assert (held.exit_code, json.loads(held.stdout)["phase"]) == (0, "verified")
    assert "The placeholder member blocks the coordinator group for 1" in held.stderr

    shown = json.loads(migrate("status", group, "-o", "json").stdout)
    assert (shown["phase"], shown["authority"], shown["fences"], shown["lock"]) == ("verified", "zookeeper", 3, None)
    assert shown.keys() == STATUS_KEYS
    assert shown["placeholder"] is not None
    assert shown["placeholder_until_ms"] > shown["at_ms"]
    noted = ["apply", "offsets are committed to Kafka", "ended, and the seat stays"]
    assert [entry["what"] for entry in shown["journal"]] == noted

    compared = migrate("verify", group, "-o", "json")
    assert (compared.exit_code, json.loads(compared.stdout)["differences"]) == (0, [])

    switched = migrate(*next_of(held), "-o", "json")
    assert (switched.exit_code, json.loads(switched.stdout)["phase"]) == (0, "switched")
    assert {tp: offset for tp, (offset, _) in lab.kafka(group).items()} == EXPECTED
    assert migrate("apply", str(file), "--execute").exit_code == 0, "there is nothing to do any more"
    assert lab.commit(group, 0, 33) == 0

    back = migrate("rollback", group)
    assert back.exit_code == 3
    assert "write Kafka's offsets to ZooKeeper (to do)" in back.stdout
    undone = migrate(*next_of(switched, 1), "-o", "json")
    assert (undone.exit_code, json.loads(undone.stdout)["phase"]) == (0, "undone")
    assert lab.offsets(group) == EXPECTED | {T0: 33}
    again = migrate("rollback", group)
    assert (again.exit_code, again.stdout) == (0, "")


def test_for_people(lab: Lab, migrate: Migrate, tmp_path: Path) -> None:
    group, file = planned(lab, tmp_path)
    dry = migrate("apply", str(file))
    assert dry.exit_code == 3
    assert dry.stdout.startswith(
        "1. the control znode belongs to this run's login (done)\n2. these are the servers of the plan (done)\n"
        "3. the placeholder member outlives the run (done)\n4. no other migration is active (done)\n"
    )
    assert f"     write {paths.control(group)}: migration m{group}, phase planned, authority zookeeper\n" in dry.stdout
    assert "     commit 3 offsets of group" in dry.stdout
    again = f"zkconsumer migrate apply {file} --execute --zookeeper {ADDRESS}"
    assert dry.stderr == f"Nothing was changed. To do it: {again}\n"
    done = migrate("apply", str(file), "--execute")
    assert done.exit_code == 0
    assert done.stdout == "", "words are no data"
    assert "control znode: switched …\n" in done.stderr
    assert done.stderr.endswith(
        "Start the new members now. A rollback is possible until the migration is completed.\n"
        f"To roll back: zkconsumer migrate rollback {group} --execute --zookeeper {ADDRESS}\n"
        f"When no rollback is needed any more: zkconsumer migrate complete {group} --zookeeper {ADDRESS}\n"
    )
    shown = migrate("status", group)
    assert shown.stderr == "".join(line + "\n" for line in done.stderr.splitlines()[-2:])
    assert "phase: switched, epoch 3\nauthority: kafka\nruns now: none\nold members: none\n" in shown.stdout
    none = migrate("status", "nobody")
    assert (none.exit_code, none.stdout) == (1, "")
    assert "The consumer group 'nobody' does not exist in ZooKeeper" in none.stderr
    lab.zookeeper.ensure("/consumers/idle")
    idle = migrate("status", "idle")
    assert (idle.exit_code, idle.stdout) == (0, "group: idle\nmigration: none: ZooKeeper has the offsets\n")


def test_a_group_is_completed_with_its_name(lab: Lab, migrate: Migrate, tmp_path: Path) -> None:
    group, file = planned(lab, tmp_path)
    archive = tmp_path / "archive"
    early = migrate("complete", group, "--execute")
    assert early.exit_code == 4
    assert "is not migrating" in early.stderr
    assert migrate("apply", str(file), "--execute").exit_code == 0
    dry = migrate("complete", group, "--archive", str(archive))
    assert dry.exit_code == 3
    assert not archive.exists()
    wrong = migrate("complete", group, "--archive", str(archive), "--execute", typed="another\n")
    assert wrong.exit_code == 2
    assert lab.stands(group) == ("switched", "kafka")
    alone = migrate("complete", group, "--archive", str(archive), "--execute", typed="")
    assert alone.exit_code == 2
    assert (
        f"the command cannot prompt for the name here, and nothing was changed: give --confirm {group}" in alone.stderr
    )
    assert lab.stands(group) == ("switched", "kafka")
    done = migrate("complete", group, "--archive", str(archive), "--execute", typed=f"{group}\n")
    assert done.exit_code == 0
    restore = f"zkconsumer migrate restore {archive} --zookeeper {ADDRESS}"
    assert f"The znodes of the group are in {archive}. To restore them: {restore}\n" in done.stderr
    assert archive.exists()
    assert lab.stands(group) == ("completed", "kafka")
    assert migrate("rollback", group, "--execute").exit_code == 4
    assert migrate("complete", group, "--execute", "--confirm", group).exit_code == 0
    lifted = migrate("complete", group, "--remove-fences", "--execute", "--confirm", group)
    assert lifted.stderr.endswith(f"Next: zkconsumer groups delete {group} --zookeeper {ADDRESS}\n")


def test_commands_that_cannot_begin_change_nothing(lab: Lab, migrate: Migrate, tmp_path: Path) -> None:
    group, file = planned(lab, tmp_path)
    assert migrate("apply").exit_code == 2
    assert migrate("apply", str(file), "--resume", group).exit_code == 2
    assert migrate("apply", "--resume", group, "--execute").exit_code == 4
    assert migrate("rollback", group, "--execute").exit_code == 4
    assert migrate("verify", group).exit_code == 4
    assert migrate("abort", group).exit_code == 4
    lab.zookeeper.ensure(paths.offset(group, T0), b"11")
    stale = migrate("apply", str(file), "--execute", "-o", "json")
    assert (stale.exit_code, json.loads(stale.stdout)["exit_code"]) == (4, 4)
    assert "ZooKeeper had 10 (version 0) and has 11 (version 1)" in stale.stderr
    dry = migrate("apply", str(file))
    assert dry.exit_code == 4
    assert "It would stop at this step: group" in dry.stderr
    assert dry.stdout.splitlines()[-1].startswith("     "), "why the last step that is shown is refused"
    assert "(to do)" not in dry.stdout, "no run comes to a step that changes something"
    assert lab.control(group) is None


def test_a_plan_that_is_read_from_zookeeper_is_shown_and_confirmed_by_its_digest(
    lab: Lab, migrate: Migrate, tmp_path: Path
) -> None:
    """A client that can write below the control znode can write every decision there, and a matching digest."""
    group, file = planned(lab, tmp_path)
    digest = read_plan_file(file).digest
    begun = migrate("apply", str(file), "--execute", "--stop-after", "fenced", "-o", "json")
    compared = migrate("verify", group)
    assert (compared.exit_code, compared.stdout) == (0, ""), "nothing was copied yet"
    assert compared.stderr.endswith("The offsets are not in Kafka yet, so they are not compared.\n")
    before = file.read_bytes()
    replan = migrate("plan", group, "-f", str(file), "-o", "json")
    told = json.loads(replan.stdout)
    assert (replan.exit_code, told["file"], told["digest"]) == (4, None, None)
    assert f"No plan was written; {file} is unchanged." in replan.stderr
    assert file.read_bytes() == before, "the plan that is being carried out"
    assert next_of(begun)[:6] == ["apply", "--resume", group, "--plan-digest", digest, "--execute"]
    blind = migrate("apply", "--resume", group, "--execute")
    assert blind.exit_code == 4
    assert f"migration m{group}, strategy copy, made 1970-01-01 00:00:00 UTC, digest {digest}\n" in blind.stderr
    assert "--missing earliest, --out-of-range refuse, --existing refuse" in blind.stderr
    assert "\n  t/0: 10 stored, starts at 10 (copied)\n" in blind.stderr
    again = f"zkconsumer migrate apply --resume {group} --plan-digest {digest} --execute --zookeeper {ADDRESS}"
    assert blind.stderr.endswith(f"confirm it: {again}\n")
    dry = migrate("apply", "--resume", group)
    assert (dry.exit_code, dry.stderr.endswith(f"Nothing was changed. To do it: {again}\n")) == (3, True)
    for other in ("0" * 64, digest[:-1] + ("0" if digest[-1] != "0" else "1")):
        wrong = migrate("apply", "--resume", group, "--plan-digest", other, "--execute")
        assert wrong.exit_code == 4
        assert f"has the digest {digest}, not {other}" in wrong.stderr
    for odd in ("", digest[:12], f"{digest}0", "é" * 64):
        assert migrate("apply", "--resume", group, "--plan-digest", odd, "--execute").exit_code == 2
    assert migrate("apply", str(file), "--plan-digest", digest).exit_code == 2
    assert lab.stands(group) == ("fenced", "zookeeper")
    assert lab.kafka(group) == {}
    assert migrate(*shlex.split(again)[2:-2]).exit_code == 0
    assert lab.stands(group) == ("switched", "kafka")


def test_a_forged_plan_is_not_carried_out_by_a_digest_nor_by_the_operators_file(
    lab: Lab, migrate: Migrate, tmp_path: Path
) -> None:
    """An unprotected group's control znode is open: the digest and the file show that its plan was replaced."""
    group, file = planned(lab, tmp_path)
    plan = read_plan_file(file)
    assert migrate("apply", str(file), "--execute", "--stop-after", "fenced").exit_code == 0
    forged = replace(plan, decisions=replace(plan.decisions, offsets={T0: 48}))
    rows = tuple(replace(row, target=48, why="decided") if row.tp == T0 else row for row in forged.partitions)
    forged = replace(forged, partitions=rows)
    forged = replace(forged, digest=digest_of_plan(forged))
    [piece] = pack(plan_to_bytes(forged))
    lab.zookeeper.ensure(paths.control_child(group, plan_piece_name(0)), piece)
    by_digest = migrate("apply", "--resume", group, "--plan-digest", plan.digest, "--execute")
    assert (by_digest.exit_code, "or it was altered. Nothing was changed" in by_digest.stderr) == (4, True)
    assert "--offset t:0=48" in by_digest.stderr, "what it decides is shown"
    by_file = migrate("apply", str(file), "--execute")
    assert (by_file.exit_code, "began with another plan than this file" in by_file.stderr) == (4, True)
    assert lab.kafka(group) == {}


def test_a_member_that_stays_is_named_and_the_same_command_continues(
    lab: Lab, migrate: Migrate, tmp_path: Path
) -> None:
    group, file = planned(lab, tmp_path)
    member = FakeZkStore(lab.zookeeper)
    member.start(1_000)
    submit_and_wait(member, [Create(f"{paths.ids(group)}/c1", b"{}", ephemeral=True)], 1_000)
    waited = migrate("apply", str(file), "--execute", "--timeout", "0.2", "-o", "json")
    told = json.loads(waited.stdout)
    assert (waited.exit_code, told["exit_code"], told["phase"]) == (6, 6, "fencing")
    assert "for c1 to leave" in waited.stderr
    shown = json.loads(migrate("status", group, "-o", "json").stdout)
    assert shown["registered"] == ["c1"]
    member.close(1_000)
    assert migrate(*next_of(waited)).exit_code == 0
    assert lab.stands(group) == ("switched", "kafka")


def test_differences_are_shown_with_exit_code_5(lab: Lab, migrate: Migrate, tmp_path: Path) -> None:
    group, file = planned(lab, tmp_path)
    assert migrate("apply", str(file), "--execute", "--stop-after", "copied").exit_code == 0
    with lab.process() as session:
        lab.moving(session, lab.kept(session, group)).placeholder.leave()
    assert lab.commit_first(group, 0, 44) == 0
    differs = migrate("verify", group, "-o", "json")
    assert differs.exit_code == 5
    [difference] = json.loads(differs.stdout)["differences"]
    assert difference.startswith("t/0: Kafka has 44")
    stopped = migrate("apply", "--resume", group, "--plan-digest", read_plan_file(file).digest, "--execute")
    assert stopped.exit_code == 5
    assert lab.kafka(group)[T0] == (44, "")
    assert migrate("rollback", group, "--execute").exit_code == 0
    assert lab.stands(group) == ("undone", "zookeeper")


def test_a_dry_run_with_stop_after_ends_at_that_phase(lab: Lab, migrate: Migrate, tmp_path: Path) -> None:
    _, file = planned(lab, tmp_path)
    done = migrate("apply", str(file), "--stop-after", "fenced", "-o", "json")
    assert json.loads(done.stdout)["steps"][-1]["name"] == "control znode: fenced"


def test_archived_and_deleted_nodes_are_restored(lab: Lab, migrate: Migrate, tmp_path: Path) -> None:
    group, file = planned(lab, tmp_path)
    archive = tmp_path / "archive"
    assert migrate("apply", str(file), "--execute").exit_code == 0
    early = delete(lab, group)
    assert early.exit_code == 4
    assert "the group is migrating (switched)" in early.stderr
    assert migrate("complete", group, "--archive", str(archive), "--execute", "--confirm", group).exit_code == 0
    offsets = lab.offsets(group)
    none = migrate("restore", str(archive))
    assert (none.exit_code, none.stdout) == (0, "")
    assert delete(lab, group).exit_code == 0
    assert lab.zookeeper.data(paths.group_root(group)) is None
    assert lab.stands(group) == ("completed", "kafka"), "members of ours are kept out by it"

    dry = migrate("restore", str(archive), "-o", "json")
    told = json.loads(dry.stdout)
    assert (dry.exit_code, told["executed"]) == (3, False)
    assert paths.offset(group, T0) in told["created"]
    assert lab.zookeeper.data(paths.group_root(group)) is None
    done = migrate(*next_of(dry))
    assert done.exit_code == 0
    assert done.stdout.splitlines() == told["created"]
    assert lab.offsets(group) == offsets

    lab.zookeeper.remove(paths.offset(group, T0))
    lab.zookeeper.ensure(paths.ids(group))
    member = FakeZkStore(lab.zookeeper)
    member.start(1_000)
    submit_and_wait(member, [Create(f"{paths.ids(group)}/c1", b"{}", ephemeral=True)], 1_000)
    active = migrate("restore", str(archive), "--execute")
    assert active.exit_code == 4
    assert "c1 is in the group" in active.stderr
    assert T0 not in lab.offsets(group)
    member.close(1_000)
    assert migrate("restore", str(tmp_path / "nothing")).exit_code == 4


def test_programs_that_cannot_be_run_are_reported_before_any_change(lab: Lab, migrate: Migrate, tmp_path: Path) -> None:
    group, file = planned(lab, tmp_path)
    hook = tmp_path / "zkconsumer-on-after-cut-over"
    hook.touch(0o644)
    done = migrate("apply", str(file), "--execute", "--hooks-dir", str(tmp_path))
    assert (done.exit_code, lab.control(group)) == (4, None)
    assert "make it executable" in done.stderr


def test_a_veto_ends_with_the_commands_to_continue_and_to_roll_back(
    lab: Lab, migrate: Migrate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, file = planned(lab, tmp_path)
    folder = tmp_path / "hooks"
    folder.mkdir()
    (folder / "zkconsumer-on-before-cut-over").touch(0o755)
    said = ["ended with 3", ""]
    monkeypatch.setattr(cut_over_hooks, "run_hook_program", lambda *_: said.pop(0))
    done = migrate("apply", str(file), "--execute", "--hooks-dir", str(folder), "--timeout", "60", "-o", "json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["exit_code"], told["phase"]) == (6, 6, "verified")
    assert done.stderr.count("zkconsumer migrate apply") == 1, "one command goes on"
    assert f"The completed steps remain. To continue: {told['next_steps'][0]}\n" in done.stderr
    assert f"rollback {group} --execute --timeout 60.0 --zookeeper {ADDRESS}" in told["error"]
    again = migrate(*next_of(done))
    assert again.exit_code == 0, again.stderr
    assert (lab.stands(group), said) == (("switched", "kafka"), [])
