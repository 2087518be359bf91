"""Commands of ``zkconsumer migrate`` that cannot do what they are asked: what comes next, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bridge.migration.control.control_steps import CreateControlZnode
from bridge.migration.plan.plan_file import read_plan_file
from bridge.testing.fake_environment import ADDRESS
from tests.migration.migration_write_faults import Lab, lab
from tests.migration.test_migrate_apply import Migrate, migrate, planned
from zkconsumer.admin.admin_session import AdminDependencies
from zkconsumer.cli.main import main
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.testing.fake_zk_store import FakeZkStore

__all__ = ["lab", "migrate"]


def test_a_group_name_instead_of_a_file_gets_the_command_that_continues_its_plan(
    migrate: Migrate, tmp_path: Path
) -> None:
    done = migrate("apply", "clicks", "--execute")
    assert done.exit_code == 4
    assert done.stderr.startswith(
        "zkconsumer: clicks cannot be read: No such file or directory. If clicks is the name of a "
    )
    assert done.stderr.endswith(f"continue with its stored plan: {resumed('clicks')}\n")
    assert "is a group" not in migrate("apply", str(tmp_path / "p.json")).stderr, "a path is no group"


def resumed(group: str) -> str:
    return f"zkconsumer migrate apply --resume {group} --zookeeper {ADDRESS}"


def test_existing_hooks_are_called(lab: Lab, migrate: Migrate, tmp_path: Path) -> None:
    _, file = planned(lab, tmp_path)
    folder = tmp_path / "hooks"
    folder.mkdir()

    def told(*words: str) -> list[tuple[str, str]]:
        steps = json.loads(migrate("apply", str(file), *words, "-o", "json").stdout)["steps"]
        return [(one["name"], one["status"]) for one in steps if one["name"].startswith("hook ")]

    assert told() == told("--hooks-dir", str(folder)) == []
    (folder / "zkconsumer-on-after-cut-over").touch(0o755)
    assert told("--hooks-dir", str(folder)) == [("hook zkconsumer-on-after-cut-over", "to do")]


def test_after_a_first_run_without_a_stored_plan_the_next_command_is_named(
    lab: Lab, migrate: Migrate, tmp_path: Path
) -> None:
    group, file = planned(lab, tmp_path)
    plan = read_plan_file(file)
    with lab.process() as session:
        moving = lab.moving(session, plan)
        lab.carry_out(moving, iter([CreateControlZnode(moving.control_znode, "copy")]))
    where = f"--zookeeper {ADDRESS}"
    early = migrate("complete", group, "--execute", "--confirm", group)
    assert (early.exit_code, "has no plan" in early.stderr) == (4, False)
    assert "is in phase planned, and only one that is switched can be completed" in early.stderr
    assert early.stderr.endswith(f"To see the next command: zkconsumer migrate status {group} {where}\n")
    shown = migrate("status", group)
    assert shown.stderr == f"Next: zkconsumer migrate apply {group}.plan --execute {where}\n"
    blind = migrate("apply", "--resume", group, "--execute")
    assert blind.exit_code == 4
    go_on = f"zkconsumer migrate apply {group}.plan --execute {where}"
    assert f"Continue with its file: {go_on}. Or undo: " in blind.stderr
    assert migrate("apply", str(file), "--execute", "--stop-after", "fenced").exit_code == 0
    assert migrate("status", group).stderr == f"Next: {resumed(group).replace(' --zoo', ' --execute --zoo')}\n"
    none = migrate("apply", "--resume", "nobody")
    assert "group nobody is not migrating" in none.stderr
    assert "Make one: zkconsumer migrate plan nobody -f nobody.plan" in none.stderr


class NobodyThere(FakeZkStore):
    """A ZooKeeper that does not answer clients."""

    def start(self, timeout_ms: int) -> None:
        raise ZkTimeoutException(f"no ZooKeeper at {ADDRESS} within {timeout_ms} ms")


COMMANDS_OF_A_GROUP = (
    "inspect g", "plan g -f p.json", "apply --resume g", "apply --resume g --execute", "status g", "verify g",
    "rollback g", "rollback g --execute", "complete g", "complete g --execute --confirm g", "abort g",
)  # fmt: skip


@pytest.mark.parametrize("words", [
    *(f"migrate {words}" for words in COMMANDS_OF_A_GROUP), "groups list", "groups describe g", "groups doctor g",
    "lag g", "offsets export g", "offsets diff g", "offsets delete g", "offsets set g --to-earliest --all-topics",
])  # fmt: skip
def test_a_zookeeper_that_is_away_when_a_command_begins_is_code_1_and_changes_nothing(
    lab: Lab, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither 6 nor 7: the phase of the group, and so what was changed before, is unknown."""
    monkeypatch.chdir(tmp_path)
    doors = AdminDependencies(store=lambda _, ms: NobodyThere(lab.zookeeper, "", ms))
    done = CliRunner().invoke(main, [*words.split(), "--zookeeper", ADDRESS], obj=doors)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"zkconsumer: no ZooKeeper at {ADDRESS}")
    assert not list(tmp_path.iterdir())
