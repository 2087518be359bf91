"""``zkconsumer migrate`` for a dual migration: its output and its exit codes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from tests.migration.dual_members import PARTITIONS, DualLab, DualMembers, dual, lab
from tests.migration.test_migrate_apply import migrate, next_of
from zkconsumer.zk import paths

__all__ = ["dual", "lab", "migrate"]

Migrate = Callable[..., Result]


@pytest.fixture
def crowd(dual: DualLab) -> Iterator[DualMembers]:
    """Members that act by themselves."""
    made = dual.crowd()
    stop = threading.Event()

    def act() -> None:
        while not stop.wait(0.02):
            made.acts()

    acting = threading.Thread(target=act)
    acting.start()
    try:
        yield made
    finally:
        stop.set()
        acting.join()


def test_there_and_back_by_the_commands_that_are_printed(
    dual: DualLab, crowd: DualMembers, migrate: Migrate, tmp_path: Path
) -> None:
    group, file = crowd.group, tmp_path / "plan"
    planned = migrate("plan", group, "--strategy", "dual", "-f", str(file), "-o", "json")
    assert planned.exit_code == 0, planned.stderr
    dry = migrate("apply", str(file), "-o", "json")
    assert (dry.exit_code, dual.control(group)) == (3, None)

    held = migrate(*next_of(dry), "-o", "json", "--stop-after", "locked")
    assert (held.exit_code, json.loads(held.stdout)["phase"]) == (0, "locked"), held.stderr
    assert "every member acts by armed: waiting for " in held.stderr
    shown = json.loads(migrate("status", group, "-o", "json").stdout)
    generation = shown["members"][0]["generation"]
    assert shown["members"] == [
        {
            "consumer_id": f"{group}_{name}", "registered": True, "scala_consumer": False, "acknowledged": True,
            "in_coordinator_group": True, "phase": "locked", "epoch": 3, "generation": generation,
            "partitions_behind": 0, "error": None,
        }
        for name in ("c0", "c1")
    ]  # fmt: skip
    assert (shown["strategy"], shown["coordinator_members"], shown["fences"]) == ("dual", None, 0)
    for_people = migrate("status", group).stdout
    assert f"member: {group}_c0: locked, epoch 3, generation {generation}" in for_people
    assert "coordinator members: 2, the group is Stable\n" in for_people, "those above"
    assert shown["coordinator_group"] == {"state": "Stable", "members": 2}
    compared = migrate("verify", group, "-o", "json")
    assert (compared.exit_code, json.loads(compared.stdout)["differences"]) == (0, [])

    switched = migrate(*next_of(held), "-o", "json")
    assert (switched.exit_code, json.loads(switched.stdout)["phase"]) == (0, "switched"), switched.stderr
    assert migrate("verify", group).exit_code == 0
    back = migrate("rollback", group)
    assert back.exit_code == 3
    assert "write Kafka's offsets of orphaned partitions to ZooKeeper (to do)" in back.stdout
    undone = migrate(*next_of(switched, 1), "-o", "json")
    assert (undone.exit_code, json.loads(undone.stdout)["phase"]) == (0, "undone"), undone.stderr


def test_a_member_that_does_not_leave_in_time_is_named_and_the_same_command_continues(
    dual: DualLab, crowd: DualMembers, migrate: Migrate, tmp_path: Path
) -> None:
    file = tmp_path / "plan"
    assert migrate("plan", crowd.group, "--strategy", "dual", "-f", str(file)).exit_code == 0
    mute = crowd.add("mute", is_mute=True)
    waited = migrate("apply", str(file), "--execute", "--timeout", "3", "-o", "json")
    assert (waited.exit_code, json.loads(waited.stdout)["phase"]) == (6, "planned")
    assert f"{mute.consumer} to acknowledge" in waited.stderr
    shown = json.loads(migrate("status", crowd.group, "-o", "json").stdout)
    assert [words.split()[0] for words in shown["waiting_for"]] == [mute.consumer]
    assert f"{mute.consumer}: no acknowledgement" in migrate("status", crowd.group).stdout
    early = migrate("verify", crowd.group)
    assert early.exit_code == 4
    assert "with dual the stores can be compared in locked, copied, returning, switched" in early.stderr
    mute.is_mute = False
    assert migrate(*next_of(waited), "--timeout", "600").exit_code == 0
    assert dual.stands(crowd.group) == ("switched", "kafka")


def test_a_missing_fence_is_found(dual: DualLab, crowd: DualMembers, migrate: Migrate, tmp_path: Path) -> None:
    file = tmp_path / "plan"
    assert migrate("plan", crowd.group, "--strategy", "dual", "-f", str(file)).exit_code == 0
    assert migrate("apply", str(file), "--execute").exit_code == 0
    for path in (f"{paths.owner(crowd.group, PARTITIONS[1])}/fenced", paths.owner(crowd.group, PARTITIONS[1])):
        dual.zookeeper.remove(path)
    found = migrate("verify", crowd.group)
    assert (found.exit_code, found.stdout) == (5, "no owner and no fence: t/1\n")
    assert migrate("apply", str(file), "--execute").exit_code == 0
    assert migrate("verify", crowd.group).exit_code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--accept-drift"], "--accept-drift is for plans of strategy copy"),
        (["--stop-after", "verified"], "a run of strategy dual cannot stop after phase verified"),
        (["--no-acl-fence"], "--no-acl-fence is for strategy copy"),
    ],
)
def test_options_of_copy_are_refused(
    dual: DualLab, migrate: Migrate, tmp_path: Path, words: list[str], told: str
) -> None:
    crowd = dual.crowd()
    file = tmp_path / "plan"
    assert migrate("plan", crowd.group, "--strategy", "dual", "-f", str(file)).exit_code == 0
    done = migrate("apply", str(file), *words)
    assert done.exit_code == 2
    assert told in done.stderr
    assert migrate("plan", crowd.group, "--strategy", "dual", "--no-acl-fence", "-f", str(file)).exit_code == 2
