"""Other faults during a migration, at every step: it ends as specified, and no step is left incomplete."""

from __future__ import annotations

import errno
import os
import re
from functools import partial
from pathlib import Path

import pytest

from bridge.commands import migrate_execution
from bridge.migration.steps.znode_archive import read_archive
from tests.migration.migration_write_faults import EXPECTED, Lab, lab
from tests.migration.operator_shell import COMMANDS, Shell, both, command_in, ends_right, moved, shell, told
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create, StoreError
from zkconsumer.zk.store import submit_and_wait

__all__ = ["lab", "shell"]

T0 = TopicPartition("t", 0)
FOREIGN = 44


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_at_every_step_ends_with_130_and_the_printed_command_continues(
    lab: Lab, shell: Shell, name: str
) -> None:
    command = COMMANDS[name]
    moments = shell.moments(name)
    group, file = command.prepare(shell)
    for moment in moments:
        shell.happens(*moment, interrupt)
    done, stops = command(shell, group, file), 0
    while done.exit_code == 130:
        stops += 1
        told_last = next(line for line in reversed(done.stderr.splitlines()) if line.startswith("Interrupted."))
        words = command_in(told_last)
        done = shell(*words, *(["--confirm", group] if words[0] == "complete" else []))
    assert done.exit_code == 0, done.stderr
    assert stops >= len(moments) - 1
    ends_right(lab, group, command)


@pytest.mark.parametrize("other", ["apply", "rollback", "complete"])
@pytest.mark.parametrize("name", COMMANDS)
def test_of_two_operators_one_continues_and_the_other_is_refused(lab: Lab, shell: Shell, name: str, other: str) -> None:
    """At every step another operator begins a command, from the moment on when the first one has the lock."""
    command = COMMANDS[name]
    moments = shell.moments(name)
    moments = moments[moments.index(("in", "acquire the lock")) + 1 :]
    group, file = command.prepare(shell)
    ended: list[tuple[str, int, str]] = []
    words = {
        "apply": ["apply", str(file), "--execute"],
        "rollback": ["rollback", group, "--execute"],
        "complete": ["complete", group, "--execute", "--confirm", group],
    }[other]

    def begin(step: str) -> None:
        before = both(lab, group)
        done = shell.beside(*words)
        ended.append((step, done.exit_code, done.stderr))
        assert both(lab, group) == before, f"{step}: the other one has written"

    for when, step in moments:
        shell.happens(when, step, partial(begin, step))
    assert command(shell, group, file).exit_code == 0
    assert len(ended) >= len(moments) - 1
    assert {code for _, code, _ in ended} <= {0, 4}, ended
    for step, code, text in ended:
        if code == 0:  # the phase was its end already, so it had nothing to do
            lifting = ("control znode: completed", "lift the owner fences", "restore the access lists")
            ends = {"rollback": ("the old members read again",), "complete": lifting}
            assert step in ends.get(other, ()), (step, text)
    alive = "is alive. Wait for its end, or stop it: zkconsumer migrate abort"
    too_early_or_late = (
        "has no plan", "only one that is switched can be completed", "cannot be rolled back",
        "is being rolled back, or was undone",
    )  # fmt: skip
    for _, code, text in ended:
        assert code == 0 or alive in text or any(words in text for words in too_early_or_late), text
    ends_right(lab, group, command)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_old_member_that_returns_at_every_step_reads_nothing_after_the_fence(
    lab: Lab, shell: Shell, name: str
) -> None:
    """It registers and claims where it is let in, and leaves after 20 s, as one that an unknowing supervisor starts."""
    command = COMMANDS[name]
    moments = shell.moments(name)
    group, file = command.prepare(shell)
    came: list[tuple[str, str, bool]] = []

    def come(step: str) -> None:
        store = FakeZkStore(lab.zookeeper)
        store.start(1_000)
        registered, claimed = submit_and_wait(store, [
            Create(f"{paths.ids(group)}/old", b"x", ephemeral=True),
            Create(paths.owner(group, T0), b"old-0", ephemeral=True),
        ], 5_000)  # fmt: skip
        control = lab.control(group)
        came.append((step, "" if control is None else control.phase, not isinstance(claimed, StoreError)))
        if isinstance(registered, StoreError):
            store.close(1_000)
        else:
            shell.clock.after(20_000, lambda: store.close(1_000))

    for when, step in moments:
        shell.happens(when, step, partial(come, step))
    done = command(shell, group, file)
    runs = 1
    while done.exit_code == 6:
        shell.all_back()
        runs += 1
        assert runs < 30, done.stderr
        done = command(shell, group, file)
    shell.all_back()
    assert done.exit_code == 0, done.stderr
    let_in = {phase for _, phase, has_claimed in came if has_claimed}
    assert not let_in & {"fenced", "copied", "verified", "switched"}
    ends_right(lab, group, command)


def test_a_foreign_commit_without_the_placeholder_is_found_and_never_overwritten(lab: Lab, shell: Shell) -> None:
    """As when the placeholder's session ended: at any step between the fence and the comparison."""
    moments = shell.moments("copy")
    first = moments.index(("in", "control znode: fenced")) + 1
    last = moments.index(("at", "read the offsets back from Kafka, and compare"))
    assert last - first >= 5
    for moment in moments[first : last + 1]:
        group, file = shell.planned()

        def commit(group: str = group) -> None:
            with lab.process() as session:
                lab.moving(session, lab.kept(session, group)).placeholder.leave()
            assert lab.commit_first(group, 0, FOREIGN) == 0

        shell.happens(*moment, commit)
        done = shell("apply", file, "--execute")
        if done.exit_code == 6:  # the placeholder was lost, and the group is empty: the next run compares
            assert "the placeholder member of group" in done.stderr
            done = shell("apply", file, "--execute")
        assert done.exit_code == 5, (moment, done.stderr)
        assert "Kafka" in done.stderr
        assert lab.kafka(group)[T0] == (FOREIGN, ""), f"{moment}: it was written over"
        assert lab.stands(group)[1] == "zookeeper"
        assert shell("apply", file, "--execute").exit_code == 5, "and again"
        assert shell("rollback", group, "--execute").exit_code == 0
        assert lab.offsets(group) == {tp: EXPECTED[tp] for tp in lab.offsets(group)}


# --- files --------------------------------------------------------------------------------------------------------


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_under_the_plan_leaves_the_old_plan(
    lab: Lab, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, file = shell.planned()
    before = file.read_bytes(), lab.zookeeper.tree.dump()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        done = shell("plan", group, "-f", file, "--missing", "latest")
    assert done.exit_code == 1
    assert done.stderr == f"zkconsumer: the plan cannot be written to {file}: No space left on device\n"
    assert (file.read_bytes(), lab.zookeeper.tree.dump()) == before
    assert list(file.parent.iterdir()) == [file]


def test_a_full_disk_under_the_archive_lifts_no_fence(
    lab: Lab, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, _ = moved(shell)
    before = both(lab, group)
    archive = tmp_path / "archive"
    words = ("complete", group, "--execute", "--confirm", group, "--archive", archive)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        done = shell(*words)
    assert done.exit_code == 1
    assert f"the archive cannot be written to {archive}: No space left on device" in done.stderr
    nowhere = shell(*words[:-1], tmp_path / "nowhere" / "archive")
    assert nowhere.exit_code == 1
    assert "No such file or directory" in nowhere.stderr
    assert both(lab, group) == before, "nothing is lifted before the archive is whole"
    assert not archive.exists()
    assert shell(*words).exit_code == 0
    assert read_archive(archive).group == group


def test_a_report_that_cannot_be_written_hides_neither_the_end_nor_the_error(
    lab: Lab, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, file = shell.planned()
    monkeypatch.setattr(migrate_execution, "print_json", full)
    done = shell("apply", file, "--execute", "-o", "json")
    assert done.exit_code == 1
    assert f"Group {group} is in phase switched." in done.stderr
    assert done.stderr.endswith("zkconsumer: the output cannot be written: No space left on device\n")
    assert lab.stands(group) == ("switched", "kafka")
    group, file = shell.planned()
    shell.in_["commit the offsets to Kafka"] = lambda: shell.broker_away(1_000_000)
    stopped = shell("apply", file, "--execute", "-o", "json", "--timeout", "50")
    assert stopped.exit_code == 6, "what stopped it counts for more"
    assert "continue with: zkconsumer migrate apply" in stopped.stderr


@pytest.mark.parametrize("damage", ["cut off", "edited", "empty", "gone", "no plan"])
def test_a_plan_that_is_not_as_it_was_written_is_refused(lab: Lab, shell: Shell, damage: str) -> None:
    _, file = shell.planned()
    text = file.read_bytes()
    before = lab.zookeeper.tree.dump()
    match damage:
        case "cut off":
            file.write_bytes(text[:-30])
        case "edited":
            changed = text.replace(b'"existing":"refuse"', b'"existing":"higher"')
            assert changed != text
            file.write_bytes(changed)
        case "empty":
            file.write_bytes(b"")
        case "gone":
            file.unlink()
        case _:
            file.write_bytes(b"{}\n")
    done = shell("apply", file, "--execute")
    assert (done.exit_code, str(file) in done.stderr) == (4, True)
    assert lab.zookeeper.tree.dump() == before


def test_the_plan_of_another_group_takes_nothing_back(lab: Lab, shell: Shell) -> None:
    group, _ = moved(shell, "--stop-after=verified")
    _, other = shell.planned()
    before = both(lab, group)
    done = shell("rollback", group, "--plan", other, "--execute")
    assert done.exit_code == 4
    assert re.search(rf"; give the plan of migration \w+ of group {group}$", done.stderr.strip())
    assert both(lab, group) == before


def test_a_plan_that_another_migration_overtook_is_refused(lab: Lab, shell: Shell) -> None:
    """Two operators planned; the second one's plan is stale once the first one's is applied, at any phase."""
    for phase in ("fenced", "copied", "verified", None):
        group, file = shell.planned()
        second = file.with_suffix(".second")
        assert shell("plan", group, "-f", second, "--missing", "earliest", "--offset-convention", "next").exit_code == 0
        hold = [] if phase is None else [f"--stop-after={phase}"]
        assert shell("apply", file, "--execute", *hold).exit_code == 0
        before = both(lab, group)
        done = shell("apply", second, "--execute")
        assert done.exit_code == 4, done.stderr
        assert both(lab, group) == before


def test_drift_is_accepted_where_it_was_refused(lab: Lab, shell: Shell) -> None:
    group, file = shell.planned()
    lab.zookeeper.ensure(paths.offset(group, T0), b"12")
    before = both(lab, group)
    refused = shell("apply", file, "--execute", "-o", "json")
    assert (refused.exit_code, told(refused)["exit_code"]) == (4, 4)
    assert "t/0: ZooKeeper had 10 (version 0) and has 12 (version 1)" in refused.stderr
    assert both(lab, group) == before
    assert shell("apply", file, "--execute", "--accept-drift").exit_code == 0
    assert lab.kafka(group)[T0][0] == 12
