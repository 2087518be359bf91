"""``zkconsumer migrate inspect`` and ``plan``: output, written files, refusals and exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from bridge.commands.migrate import migrate
from bridge.commands.migrate_apply import apply
from bridge.migration.plan.plan_file import read_plan_file
from bridge.testing import EmbeddedBroker
from bridge.testing.fake_environment import ADDRESS
from tests.migration.group_snapshots import tp
from zkconsumer.admin.admin_session import AdminDependencies
from zkconsumer.admin.describe import COLUMNS
from zkconsumer.cli.command_hints import complete_commands
from zkconsumer.cli.main import main
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.zk import paths
from zkconsumer.zk.requests import PERM_ALL, PERM_READ, Acl
from zkconsumer.zk.znode_formats import ControlRecord, format_control

PLANNED = [*COLUMNS, "TARGET-OFFSET", "REMARK"]


class Place:
    """A broker with groups and a ZooKeeper in memory; clicks has three partitions of five records."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.zookeeper = FakeZooKeeper(delivery="thread")
        self.broker = broker
        broker.create_topic("clicks", 3)
        for number in range(3):
            broker.append("clicks", number, [b"x"] * 5)
        self.put(5, 3, 0)

    def put(self, *offsets: int | bytes | None) -> None:
        for number, offset in enumerate(offsets):
            path = paths.offset("g1", tp(number))
            if offset is None:
                self.zookeeper.remove(path)
            else:
                self.zookeeper.ensure(path, offset if isinstance(offset, bytes) else b"%d" % offset)

    def run(self, *words: str) -> Result:
        doors = AdminDependencies(store=lambda _, ms: FakeZkStore(self.zookeeper, "", ms))
        where = ("--zookeeper", ADDRESS, "--bootstrap-server", self.broker.bootstrap)
        done = CliRunner().invoke(main, ["migrate", *words, *where], obj=doors)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    @property
    def where(self) -> str:
        return f"--bootstrap-server {self.broker.bootstrap} --zookeeper {ADDRESS}"


@pytest.fixture
def place() -> Iterator[Place]:
    with EmbeddedBroker() as broker:
        made = Place(broker)
        yield made
        made.zookeeper.stop()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "p.json"


def test_a_plan_that_can_be_applied(place: Place, file: Path) -> None:
    done = place.run("plan", "g1", "-f", str(file))
    assert done.exit_code == 0
    head, *rows = (line.split() for line in done.stdout.splitlines())
    assert head == PLANNED
    assert rows[0][:6] == ["g1", "clicks", "0", "5", "5", "0"]
    assert [row[-2:] for row in rows] == [["5", "copied"], ["3", "copied"], ["0", "copied"]]
    made = read_plan_file(file)
    assert made.can_be_applied
    assert made.targets == {tp(0): 5, tp(1): 3, tp(2): 0}
    assert f"The plan is in {file} (digest {made.digest})." in done.stderr
    assert "Offset convention: next (clicks/0: the number is the end of the log" in done.stderr
    assert done.stderr.endswith(f"To see each step: zkconsumer migrate apply {file} {place.where}\n")


def test_for_programs(place: Place, file: Path) -> None:
    place.put(5, None, b"abc")
    done = place.run("plan", "g1", "-f", str(file), "-o", "json")
    told = json.loads(done.stdout)
    assert done.exit_code == told["exit_code"] == 4
    assert told["schema"] == "zkconsumer/migrate-plan/1"
    assert not told["can_be_applied"]
    assert told["digest"] == read_plan_file(file).digest
    assert [row["target_offset"] for row in told["partitions"]] == [5, None, None]
    assert [row["reason"] for row in told["partitions"]] == ["copied", None, None]
    assert told["partitions"][1]["refusal"] == "no offset is stored (--missing)"
    assert told["next_steps"] == [
        f"zkconsumer migrate plan g1 --file {file} --output json {place.where} --missing earliest"
    ]


def test_missing_decisions_stop_the_plan_and_name_the_option(place: Place, file: Path) -> None:
    place.put(5, None, 9)
    done = place.run("plan", "g1", "-f", str(file))
    assert done.exit_code == 4
    assert "REFUSED: no offset is stored (--missing)" in done.stdout
    assert "  clicks/1: no offset is stored (--missing)\n" in done.stderr
    assert "  clicks/2: 9 is beyond the end of the log (5) (--out-of-range)\n" in done.stderr
    again = f"zkconsumer migrate plan g1 --file {file} {place.where} --missing earliest --out-of-range earliest"
    assert f"Next, after you checked each of them: {again}\n" in done.stderr
    assert "the plan cannot be applied. Nothing was changed." in done.stderr
    assert not read_plan_file(file).can_be_applied
    done = place.run("plan", "g1", "-f", str(file), "--missing", "earliest", "--out-of-range", "latest")
    assert done.exit_code == 0
    assert read_plan_file(file).targets == {tp(0): 5, tp(1): 0, tp(2): 5}


def test_one_command_has_the_choices_for_everything_that_is_refused(place: Place, file: Path) -> None:
    """Each refusal names its own option; with one of them alone the plan would be refused again."""
    place.put(4, None, b"abc")
    done = place.run("plan", "g1", "-f", str(file))
    assert done.stdout.splitlines()[3].split()[3:6] == ["?", "5", "?"], "a number that cannot be read is not none"
    again = f"zkconsumer migrate plan g1 --file {file} {place.where} --offset-convention next --missing earliest"
    assert f"Next, after you checked each of them: {again}\n" in done.stderr
    refused = place.run("apply", str(file))
    assert "this plan cannot be applied: 3 reasons, the first one: the meaning of the stored offsets" in refused.stderr
    choices = ("--offset-convention", "next", "--missing", "earliest")
    assert place.run("plan", "g1", "-f", str(file), *choices).exit_code == 0


def test_offsets_for_single_partitions(place: Place, file: Path) -> None:
    done = place.run("plan", "g1", "-f", str(file), "--offset", "clicks:2=4")
    assert done.exit_code == 0
    assert read_plan_file(file).targets[tp(2)] == 4
    for wrong in ("clicks:2", "clicks:2=", "clicks:-1=4", "clicks:2=99999999999999999999", "a/b:0=1", "clicks:1=x"):
        done = place.run("plan", "g1", "-f", str(file), "--offset", wrong)
        assert (done.exit_code, f"--offset {wrong!r} is not TOPIC:PARTITION=N" in done.stderr) == (2, True)
    done = place.run("plan", "g1", "-f", str(file), "--offset", "clicks:2=4", "--offset", "clicks:2=5")
    assert (done.exit_code, "--offset names clicks/2 twice" in done.stderr) == (2, True)


def test_the_convention_is_asked_for_when_nothing_shows_it(place: Place, file: Path) -> None:
    place.put(4, 3, 1)
    done = place.run("plan", "g1", "-f", str(file))
    assert done.exit_code == 4
    again = f"zkconsumer migrate plan g1 --file {file} {place.where} --offset-convention next"
    assert f"Next: {again}\n" in done.stderr
    assert read_plan_file(file).convention is None
    done = place.run("plan", "g1", "-f", str(file), "--offset-convention", "last")
    assert done.exit_code == 0
    assert read_plan_file(file).targets == {tp(0): 5, tp(1): 4, tp(2): 2}


def test_lists_that_we_may_not_change(place: Place, file: Path) -> None:
    place.zookeeper.set_acl("/consumers/g1/offsets", (Acl(PERM_READ, "world", "anyone"),))
    done = place.run("plan", "g1", "-f", str(file))
    assert done.exit_code == 4
    assert "/consumers/g1/offsets" in done.stderr
    assert f"Next: zkconsumer migrate plan g1 --file {file} {place.where} --no-acl-fence\n" in done.stderr
    done = place.run("plan", "g1", "-f", str(file), "--no-acl-fence")
    assert done.exit_code == 0
    assert read_plan_file(file).snapshot.acls == {}


def test_a_group_that_is_on_the_move(place: Place, file: Path) -> None:
    place.zookeeper.ensure(paths.control("g1"), format_control(ControlRecord("m0", 3, "fenced", "zookeeper", "copy")))
    done = place.run("plan", "g1", "-f", str(file))
    assert done.exit_code == 4
    assert f"roll it back. Next: zkconsumer migrate status g1 {place.where}\n" in done.stderr


def test_no_decision_is_asked_for_where_none_helps(place: Place, file: Path) -> None:
    """A group that is on the move is not planned once more, whatever is decided."""
    place.put(5, None, 2)
    place.zookeeper.ensure(paths.control("g1"), format_control(ControlRecord("m0", 3, "switched", "kafka", "copy")))
    done = place.run("plan", "g1", "-f", str(file))
    assert done.exit_code == 4
    assert "Refused: group g1 is already migrating" in done.stderr
    assert "clicks/1: no offset is stored (--missing)" in done.stderr
    assert "after you checked each of them" not in done.stderr


def test_a_migrated_group_is_planned_again_with_decisions(place: Place, file: Path) -> None:
    place.put(5, None, 2)
    place.zookeeper.ensure(paths.control("g1"), format_control(ControlRecord("m0", 3, "completed", "kafka", "copy")))
    done = place.run("plan", "g1", "-f", str(file))
    assert done.exit_code == 4
    assert "Warning: group g1 has moved to Kafka already (migration m0, completed)" in done.stderr
    assert "after you checked each of them" in done.stderr


def test_dual_without_members(place: Place, file: Path) -> None:
    done = place.run("plan", "g1", "-f", str(file), "--strategy", "dual")
    assert done.exit_code == 4
    again = f"zkconsumer migrate plan g1 --file {file} {place.where} --strategy copy"
    assert f"no member is registered. Next: {again}\n" in done.stderr


def test_a_group_that_is_not_there(place: Place, file: Path) -> None:
    done = place.run("plan", "g11", "-f", str(file))
    assert done.exit_code == 1
    assert "Similar names: g1" in done.stderr
    place.zookeeper.ensure(paths.control("g2"), format_control(ControlRecord("m0", 3, "fenced", "zookeeper", "copy")))
    done = place.run("plan", "g2", "-f", str(file))
    assert done.exit_code == 4
    assert "/consumers/g2 does not exist, but the group has a control znode (migration m0, phase" in done.stderr
    assert not file.exists()
    assert place.run("plan", "../g1", "-f", str(file)).exit_code == 2


def test_a_file_that_is_no_plan_is_not_replaced_and_an_unwritable_one_is_reported(place: Place, file: Path) -> None:
    file.write_text("precious")
    done = place.run("plan", "g1", "-f", str(file))
    assert done.exit_code == 4
    assert done.stderr == f"zkconsumer: {file} exists and is no plan of group g1: name another file, or remove it\n"
    assert file.read_text() == "precious"
    nowhere = file.parent / "nowhere" / "p.json"
    done = place.run("plan", "g1", "-f", str(nowhere))
    assert done.exit_code == 1
    assert done.stderr == f"zkconsumer: the plan cannot be written to {nowhere}: No such file or directory\n"


def test_a_plan_changes_nothing(place: Place, file: Path) -> None:
    before = place.zookeeper.tree.dump()
    topics = place.broker.run_on_broker_thread(lambda cluster: sorted(topic.name for topic in cluster.topics))
    place.run("inspect", "g1")
    place.run("plan", "g1", "-f", str(file))
    assert place.zookeeper.tree.dump() == before
    assert (
        place.broker.run_on_broker_thread(lambda cluster: sorted(topic.name for topic in cluster.topics))
        == topics
        == ["clicks"]
    )


def test_inspect_shows_the_group_and_what_blocks_a_migration(place: Place) -> None:
    place.put(4, None, 1)
    done = place.run("inspect", "g1")
    assert done.exit_code == 0
    facts = dict(line.split(": ", 1) for line in done.stdout.partition("\n\n")[0].splitlines())
    assert facts["topics"] == "1, 3 partitions"
    assert facts["offset convention"] == "not known (nothing shows it for certain)"
    assert (facts["assignment in use"], facts["coordinator group"], facts["migration"]) == ("none", "Dead", "none")
    assert facts["brokers"].endswith("(from 3.9.1 on, before 4.1.1)")
    assert facts["offsets are kept for"] == "7 d"
    assert "Refused: the meaning of the stored offsets is not known" in done.stderr
    assert f"To plan: zkconsumer migrate plan g1 -f g1.plan {place.where}\n" in done.stderr
    told = json.loads(place.run("inspect", "g1", "-o", "json").stdout)
    assert told["schema"] == "zkconsumer/migrate-inspect/1"
    assert told["offset_convention"] is None
    assert (told["coordinator_group_state"], told["offsets_without_partition"]) == ("Dead", [])
    assert [one["supports_groups"] for one in told["brokers"]] == [True]
    assert [words.partition(" (")[0] for words in told["refusals"]] == [
        "the meaning of the stored offsets is not known"
    ]
    assert told["next_steps"][0] == f"zkconsumer migrate plan g1 -f g1.plan {place.where}"
    assert [row["zk_offset"] for row in told["partitions"]] == [4, None, 1]


def test_znodes_that_may_not_be_read_are_named_and_nothing_is_written(place: Place, file: Path) -> None:
    hidden = (Acl(PERM_ALL, "digest", "someone:x"),)
    for number in (0, 2):
        place.zookeeper.set_acl(paths.offset("g1", tp(number)), hidden)
    for words in (("plan", "g1", "-f", str(file)), ("inspect", "g1")):
        done = place.run(*words)
        assert done.exit_code == 4
        assert "does not let us read 2 nodes (NoAuth):\n  /consumers/g1/offsets/clicks/0\n" in done.stderr
        assert "zookeeper.auth in the file of settings" in done.stderr
    assert not file.exists()
    place.zookeeper.set_acl(paths.offsets("g1"), hidden)
    done = place.run("plan", "g1", "-f", str(file))
    assert done.exit_code == 4
    assert "does not let us read 1 node (NoAuth):\n  /consumers/g1/offsets\n" in done.stderr


WHERE = "--bootstrap-server b:1 --zookeeper zk:1"
HOW = f"--timeout 5.0 --zookeeper-auth digest:f {WHERE}"


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("See: zkconsumer migrate status g.1. Then", f"See: zkconsumer migrate status g.1 {WHERE}. Then"),
        (
            "go on: zkconsumer migrate apply --resume g --execute --accept-drift. Or: zkconsumer migrate rollback g",
            f"go on: zkconsumer migrate apply --resume g --execute --accept-drift --hooks-dir h {HOW}. "
            f"Or: zkconsumer migrate rollback g {HOW}",
        ),
        ("Plan again (zkconsumer migrate plan g), or", f"Plan again (zkconsumer migrate plan g -f g.plan {WHERE}), or"),
        ("zkconsumer migrate plan g --strategy copy", f"zkconsumer migrate plan g --strategy copy -f g.plan {WHERE}"),
        ("zkconsumer migrate rollback g --plan FILE", f"zkconsumer migrate rollback g --plan FILE {HOW}"),
        ("1: zkconsumer migrate abort g", "1: zkconsumer migrate abort g --bootstrap-server b:1 --zookeeper zk:1"),
        ("first: zkconsumer groups describe g, and", f"first: zkconsumer groups describe g {WHERE}, and"),
        ("zkconsumer migrate abort g --zookeeper other:1.", "zkconsumer migrate abort g --zookeeper other:1."),
        ("no command", "no command"),
    ],
)  # fmt: skip
def test_commands_in_a_text_can_be_typed(said: str, typed: str) -> None:
    parent = click.Context(main, info_name="zkconsumer")
    among = click.Context(migrate, parent=parent, info_name="migrate")
    words = "p --zookeeper zk:1 --timeout 5 --zookeeper-auth digest:f --hooks-dir h --bootstrap-server b:1 --execute"
    with apply.make_context("apply", words.split(), parent=among) as context:
        assert complete_commands(said, context) == typed
        assert complete_commands(typed, context) == typed, "what is whole stays"
