"""``zkconsumer offsets`` in a world in memory: what is printed, what is refused, and every exit code."""

from __future__ import annotations

import json
import os
import shlex
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from bridge.testing.fake_faults import GroupError, PartitionError
from tests.admin_fixtures import RunTool, doors, fill_clicks, join, put
from zkconsumer.admin import zookeeper_offset_writes
from zkconsumer.admin.kafka_offsets import OFFSETS_TOPIC
from zkconsumer.admin.zookeeper_offset_writes import StoreWriteReport
from zkconsumer.cli.main import main
from zkconsumer.kafka.group_offsets import commit_offsets
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import FIND_COORDINATOR, LIST_OFFSETS, METADATA, OFFSET_COMMIT
from zkconsumer.zk import group_procedures
from zkconsumer.zk.requests import PERM_READ, Acl, Multi
from zkconsumer.zk.znode_formats import ControlRecord, format_control

HEADS = ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "CURRENT-OFFSET", "LOG-START", "LOG-END", "STORE", "REMARK"]


@pytest.fixture
def world(world: FakeEnvironment) -> FakeEnvironment:
    fill_clicks(world)
    return world


@pytest.fixture
def kafka(world: FakeEnvironment) -> FakeEnvironment:
    """The same, with offsets in Kafka: 42, 60 and 70."""
    world.create_topic(OFFSETS_TOPIC, 1)
    for partition, offset in {0: 42, 1: 60, 2: 70}.items():
        world.cluster.commit("g1", "clicks", partition, offset)
    return world


@pytest.fixture
def offsets(tool: RunTool) -> RunTool:
    """Runs ``zkconsumer offsets <words>``."""
    return lambda *words: tool("offsets", *map(str, words))


def rows(result: Result) -> list[list[str]]:
    """The table on standard output."""
    lines = [line.split(maxsplit=8) for line in result.stdout.splitlines()]
    assert lines[0] == HEADS, result.output
    return lines[1:]


def in_kafka(world: FakeEnvironment, group: str = "g1") -> dict[int, int]:
    return {tp.partition: stored.offset for tp, stored in world.cluster.committed(group).items()}


# --- export -----------------------------------------------------------------------------------------------------


def test_export_writes_what_the_original_would_sorted(offsets: RunTool) -> None:
    result = offsets("export", "g1")
    assert result.exit_code == 0
    assert result.stdout == "/consumers/g1/offsets/clicks/0:42\n/consumers/g1/offsets/clicks/1:50\n"
    assert result.stderr == ""


def test_a_group_without_offsets_is_named_and_passed_over(world: FakeEnvironment, offsets: RunTool) -> None:
    world.zookeeper.ensure("/consumers/idle/ids")
    put(world, {2: 1}, "g0")
    result = offsets("export", "--all", "--format", "csv")
    assert result.exit_code == 0
    assert result.stdout == "g0,clicks,2,1\ng1,clicks,0,42\ng1,clicks,1,50\n"
    assert "Group idle has no offsets in zookeeper; skipped." in result.stderr


def test_csv_has_the_group_only_when_several_were_asked_for(offsets: RunTool) -> None:
    assert offsets("export", "g1", "--format", "csv").stdout == "clicks,0,42\nclicks,1,50\n"
    assert offsets("export", "g1", "nobody", "--format", "csv").stdout == "g1,clicks,0,42\ng1,clicks,1,50\n"


def test_nothing_to_export_is_no_empty_file(offsets: RunTool, tmp_path: Path) -> None:
    result = offsets("export", "nobody", "--file", tmp_path / "x")
    assert result.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_znode_is_named_and_the_others_are_written(world: FakeEnvironment, offsets: RunTool) -> None:
    put(world, {0: b"abc", 2: -1})
    world.zookeeper.ensure("/consumers/g1/offsets/clicks/3-0", b"7")
    result = offsets("export", "g1")
    assert result.exit_code == 1
    assert result.stdout == "/consumers/g1/offsets/clicks/1:50\n"
    assert "Group g1, clicks/0: skipped, the znode does not contain an offset" in result.stderr
    assert "/consumers/g1/offsets/clicks/3-0: skipped" in result.stderr


def test_a_file_appears_whole_and_keeps_the_rights_of_the_one_that_it_replaces(
    offsets: RunTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "offsets.txt"
    file.write_text("old")
    file.chmod(0o640)
    monkeypatch.setattr(os, "fsync", broken)
    failed = offsets("export", "g1", "--file", file)
    assert failed.exit_code == 1
    assert "cannot be written: No space left; nothing was" in failed.stderr
    assert (file.read_text(), list(tmp_path.iterdir())) == ("old", [file])
    monkeypatch.undo()
    assert offsets("export", "g1", "--file", file).exit_code == 0
    assert file.read_text() == "/consumers/g1/offsets/clicks/0:42\n/consumers/g1/offsets/clicks/1:50\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_is_followed_and_a_device_is_not_replaced(offsets: RunTool, tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(file)
    assert offsets("export", "g1", "--file", link).exit_code == 0
    assert link.is_symlink()
    assert file.read_text().startswith("/consumers/g1")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert offsets("export", "g1", "--file", pipe).exit_code == 0
        assert os.read(reader, 1_000).startswith(b"/consumers/g1")
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def broken(_: int) -> None:
    raise OSError(28, "No space left")


def test_export_from_kafka(kafka: FakeEnvironment, offsets: RunTool) -> None:
    result = offsets("export", "g1", "--store", "kafka", "--format", "json")
    head, *lines = map(json.loads, result.stdout.splitlines())
    assert (head["schema"], head["store"], head["offset_convention"]) == ("zkconsumer/offsets/1", "kafka", "next")
    assert [(line["partition"], line["offset"]) for line in lines] == [(0, 42), (1, 60), (2, 70)]


def test_a_look_at_kafka_never_makes_its_topic(world: FakeEnvironment, offsets: RunTool) -> None:
    result = offsets("export", "g1", "--store", "kafka")
    assert result.exit_code == 1
    assert all(seen.api not in (FIND_COORDINATOR, METADATA) for seen in world.cluster.requests)


@pytest.mark.parametrize("words", [["export"], ["export", "g1", "--all"]])
def test_export_wants_groups_or_all(offsets: RunTool, words: list[str]) -> None:
    assert offsets(*words).exit_code == 2


# --- import -----------------------------------------------------------------------------------------------------


def imported(offsets: RunTool, tmp_path: Path, text: str, *words: str) -> Result:
    file = tmp_path / "file"
    file.write_text(text)
    return offsets("import", file, *words)


def test_a_dry_run_shows_each_change_and_changes_nothing(
    world: FakeEnvironment, offsets: RunTool, tmp_path: Path
) -> None:
    result = imported(offsets, tmp_path, "clicks,0,42\nclicks,1,51\nclicks,2,0\n", "--group", "g1")
    assert result.exit_code == 3
    assert rows(result) == [
        ["g1", "clicks", "1", "51", "50", "0", "100", "zookeeper", "-"],
        ["g1", "clicks", "2", "0", "-", "0", "100", "zookeeper", "-"],
    ]
    assert world.offsets("g1", "clicks") == {0: 42, 1: 50}
    assert result.stderr.endswith(
        f"2 offsets would be. To do it: zkconsumer offsets import {tmp_path}/file --group g1 "
        f"--zookeeper {ADDRESS} --execute\n"
    )


def test_the_command_that_is_printed_does_it(world: FakeEnvironment, offsets: RunTool, tmp_path: Path) -> None:
    result = imported(offsets, tmp_path, "clicks,1,51\n", "--group", "g1", "--store", "zookeeper")
    [_, *words] = shlex.split(result.stderr.rpartition("To do it: ")[2])
    done = CliRunner().invoke(main, words, obj=doors(world))
    assert done.exit_code == 0
    assert world.offsets("g1", "clicks") == {0: 42, 1: 51}


def test_import_is_idempotent(world: FakeEnvironment, offsets: RunTool, tmp_path: Path) -> None:
    text = "/consumers/g1/offsets/clicks/0:11\n/consumers/g2/offsets/clicks/0:12\n"
    assert imported(offsets, tmp_path, text, "--execute").exit_code == 0
    assert (world.offsets("g1", "clicks"), world.offsets("g2", "clicks")) == ({0: 11, 1: 50}, {0: 12})
    again = imported(offsets, tmp_path, text, "--execute")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "There is nothing to change." in again.stderr


def test_a_live_group_is_refused_by_name_and_nothing_of_the_file_is_written(
    world: FakeEnvironment, offsets: RunTool, tmp_path: Path
) -> None:
    join(world)
    text = "/consumers/g0/offsets/clicks/0:11\n/consumers/g1/offsets/clicks/0:12\n"
    for more in ([], ["--execute"]):
        result = imported(offsets, tmp_path, text, *more)
        assert result.exit_code == 4
        assert "group g1 is active: g1_a. A running owner overwrites any offset with its own position" in result.stderr
        assert "zkconsumer groups describe g1" in result.stderr
    assert world.offsets("g0", "clicks") == {}
    assert world.offsets("g1", "clicks") == {0: 42, 1: 50}


def test_there_is_no_way_around_a_live_group(offsets: RunTool, tmp_path: Path) -> None:
    assert imported(offsets, tmp_path, "clicks,0,1\n", "--even-if-active").exit_code == 2
    assert "without an option to force it" in " ".join(offsets("import", "--help").stdout.split())


def test_what_lies_outside_the_log_is_refused_unless_it_is_allowed(
    world: FakeEnvironment, offsets: RunTool, tmp_path: Path
) -> None:
    text = "clicks,0,9\nclicks,1,101\nclicks,9,5\nviews,0,5\n"
    result = imported(offsets, tmp_path, text, "--group", "g1", "--execute")
    assert result.exit_code == 4
    assert [row[8] for row in rows(result)] == [
        "REFUSED: 9 is before the start of the log (10)",
        "REFUSED: 101 is beyond the end of the log (100)",
        "REFUSED: its log range is unknown: topic clicks has no such partition",
        "REFUSED: its log range is unknown: there is no such topic",
    ]
    assert world.offsets("g1", "clicks") == {0: 42, 1: 50}
    [group] = json.loads(imported(offsets, tmp_path, text, "--group", "g1", "-o", "json").stdout)["groups"]
    assert group["rows"][0]["rejection_reason"] == "9 is before the start of the log (10)"
    assert result.stderr.splitlines()[:5] == [
        "zkconsumer: Group g1: 4 offsets cannot be set:",
        "  clicks/0: 9 is before the start of the log (10)",
        "  clicks/1: 101 is beyond the end of the log (100)",
        "  clicks/9: its log range is unknown: topic clicks has no such partition",
        "  views/0: its log range is unknown: there is no such topic",
    ]
    assert result.stderr.rstrip().endswith("--allow-out-of-range")
    assert imported(offsets, tmp_path, text, "--group", "g1", "--execute", "--allow-out-of-range").exit_code == 0
    assert world.offsets("g1", "clicks") == {0: 9, 1: 101}
    assert world.zookeeper.data("/consumers/g1/offsets/views/0") == b"5"


def test_brokers_are_not_asked_for_topics_that_they_would_create(
    world: FakeEnvironment, offsets: RunTool, tmp_path: Path
) -> None:
    imported(offsets, tmp_path, "clicks,0,50\nviews,0,5\n", "--group", "g1")
    asked = {topic.name for seen in world.cluster.requests if seen.api is METADATA for topic in seen.body.topics}
    assert asked == {"clicks"}


def test_without_brokers_the_range_is_unknown_and_that_is_said(
    world: FakeEnvironment, offsets: RunTool, tmp_path: Path
) -> None:
    for broker_id in (address.broker_id for address in world.cluster.addresses):
        world.cluster.stop_broker(broker_id)
    refused = imported(offsets, tmp_path, "clicks,0,50\n", "--group", "g1")
    assert "its log range is unknown: none of" in refused.stdout
    done = imported(offsets, tmp_path, "clicks,0,50\n", "--group", "g1", "--allow-out-of-range", "--execute")
    assert done.exit_code == 0
    assert world.offsets("g1", "clicks") == {0: 50, 1: 50}


def test_last_offsets_are_shifted_and_the_plan_shows_it(
    world: FakeEnvironment, offsets: RunTool, tmp_path: Path
) -> None:
    words = ["--group", "g1", "--offset-convention", "last"]
    result = imported(offsets, tmp_path, "clicks,0,49\n", *words)
    assert rows(result)[0][3:5] == ["50", "42"]
    assert "the next one is written, which is 1 more" in result.stderr


def test_an_unreadable_znode_is_repaired_by_an_import(world: FakeEnvironment, offsets: RunTool, tmp_path: Path) -> None:
    put(world, {0: b"abc"})
    result = imported(offsets, tmp_path, "clicks,0,50\n", "--group", "g1", "--execute")
    assert result.exit_code == 0
    assert "the znode of clicks/0 does not contain an offset" in result.stderr
    assert world.offsets("g1", "clicks") == {0: 50, 1: 50}


def test_a_bad_file_is_refused_whole_with_its_name_and_lines(offsets: RunTool, tmp_path: Path) -> None:
    result = imported(offsets, tmp_path, "clicks,0,1\nclicks,x,1\nclicks,1,-1\n", "--group", "g1", "--execute")
    assert result.exit_code == 2
    problems = f"{tmp_path}/file: 2 lines cannot be used:\n  line 2: 'x' is not a valid partition number\n  line 3"
    assert problems in result.stderr


def test_a_file_that_is_not_there_is_one_sentence(offsets: RunTool) -> None:
    result = offsets("import", "/nowhere/x")
    assert result.exit_code == 2
    assert result.stderr == "zkconsumer: /nowhere/x cannot be read: No such file or directory\n"


def test_standard_input_is_a_file_too(world: FakeEnvironment) -> None:
    words = ["offsets", "import", "-", "--group", "g1", "--execute", "--zookeeper", ADDRESS]
    result = CliRunner().invoke(main, words, obj=doors(world), input="clicks,0,50\n")
    assert result.exit_code == 0
    assert world.offsets("g1", "clicks") == {0: 50, 1: 50}


def test_a_group_whose_offsets_moved_to_kafka_is_not_written_in_zookeeper(
    world: FakeEnvironment, offsets: RunTool, tmp_path: Path
) -> None:
    control = ControlRecord("m1", 3, "switched", "kafka", "copy")
    world.zookeeper.ensure("/zkconsumer/groups/g1", format_control(control))
    result = imported(offsets, tmp_path, "clicks,0,50\n", "--group", "g1", "--execute")
    assert result.exit_code == 4
    assert "are in Kafka now (migration m1)" in result.stderr
    world.zookeeper.ensure("/zkconsumer/groups/g1", b"{")
    assert "cannot be read" in imported(offsets, tmp_path, "clicks,0,50\n", "--group", "g1", "--execute").stderr


def test_a_json_file_goes_back_to_the_store_that_it_came_from(
    kafka: FakeEnvironment, offsets: RunTool, tmp_path: Path
) -> None:
    file = tmp_path / "kafka.json"
    assert offsets("export", "g1", "--store", "kafka", "--format", "json", "--file", file).exit_code == 0
    kafka.cluster.commit("g1", "clicks", 0, 1)
    assert offsets("import", file, "--execute").exit_code == 0
    assert in_kafka(kafka) == {0: 42, 1: 60, 2: 70}
    assert kafka.offsets("g1", "clicks") == {0: 42, 1: 50}
    assert offsets("import", file, "--store", "zookeeper", "--execute").exit_code == 0
    assert kafka.offsets("g1", "clicks") == {0: 42, 1: 60, 2: 70}


# --- what is done in part ---------------------------------------------------------------------------------------


@pytest.fixture
def second_write_fails(world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """One offset a multi; somebody else writes partition 1 before it is written."""
    monkeypatch.setattr(group_procedures, "MULTI_OPS_MAX", 1)
    real, multis = zookeeper_offset_writes.multi_of, []

    def disturbed(*arguments: object) -> Multi:
        multis.append(arguments)
        if len(multis) == 2:
            put(world, {1: 77})
        return real(*arguments)

    monkeypatch.setattr(zookeeper_offset_writes, "multi_of", disturbed)


@pytest.mark.usefixtures("second_write_fails")
def test_a_part_is_told_exactly_and_the_same_command_does_the_rest(
    world: FakeEnvironment, offsets: RunTool, tmp_path: Path
) -> None:
    text = "clicks,0,20\nclicks,1,21\nclicks,2,22\n"
    result = imported(offsets, tmp_path, text, "--group", "g1", "--execute")
    assert result.exit_code == 6
    assert (
        "Group g1: 1 of 3 offsets written, because the offset of clicks/1 was changed by another program after it "
        "was read:\n  zookeeper clicks/0: written\n  zookeeper clicks/1: not written\n"
        "  zookeeper clicks/2: not written\n"
        "The same command writes the rest and skips what is already written: zkconsumer offsets import"
    ) in result.stderr
    assert world.offsets("g1", "clicks") == {0: 20, 1: 77}
    again = imported(offsets, tmp_path, text, "--group", "g1", "--execute")
    assert again.exit_code == 0
    assert world.offsets("g1", "clicks") == {0: 20, 1: 21, 2: 22}
    assert [row[2:5] for row in rows(again)] == [["1", "21", "77"], ["2", "22", "-"]]


@pytest.mark.usefixtures("second_write_fails")
def test_a_part_of_a_shift_is_not_completed_by_shifting_again(
    world: FakeEnvironment, offsets: RunTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = offsets("set", "g1", "--all-topics", "--shift-by", "5", "--execute")
    assert result.exit_code == 6
    assert "Do not give the same command again" in result.stderr
    rest = [line for line in result.stderr.splitlines() if line.startswith("clicks,")]
    assert rest == ["clicks,1,55"]
    assert "Put this into g1-rest.csv:" in result.stderr
    monkeypatch.chdir(tmp_path)
    Path("g1-rest.csv").write_text("\n".join(rest))
    [_, *words] = shlex.split(result.stderr.rpartition("Then: ")[2])
    assert CliRunner().invoke(main, words, obj=doors(world)).exit_code == 0
    assert world.offsets("g1", "clicks") == {0: 47, 1: 55}


@pytest.mark.usefixtures("second_write_fails")
def test_json_says_of_each_offset_whether_it_was_written(offsets: RunTool, tmp_path: Path) -> None:
    result = imported(offsets, tmp_path, "clicks,0,20\nclicks,1,21\n", "--group", "g1", "--execute", "-o", "json")
    document = json.loads(result.stdout)
    assert (document["schema"], document["executed"], document["exit_code"]) == ("zkconsumer/offsets-plan/1", True, 6)
    [group] = document["groups"]
    assert [row["written"] for row in group["rows"]] == [True, False]
    assert "clicks/1 was changed" in group["stopped_by"]


@pytest.mark.parametrize("writes_before", range(7))
def test_an_import_into_both_stores_that_was_cut_off_anywhere_is_completed_by_the_next(
    kafka: FakeEnvironment, offsets: RunTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes_before: int
) -> None:
    monkeypatch.setattr(group_procedures, "MULTI_OPS_MAX", 1)
    monkeypatch.setattr("zkconsumer.admin.kafka_offsets.OFFSETS_PER_COMMIT_MAX", 1)
    wanted = {0: 20, 1: 21, 2: 22}
    text = "".join(f"clicks,{partition},{offset}\n" for partition, offset in wanted.items())
    left = writes_before

    def die_in_time() -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1

    def dying(write: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            die_in_time()
            return write(*arguments, **named)

        return called

    with monkeypatch.context() as patched:
        patched.setattr(zookeeper_offset_writes, "multi_of", dying(zookeeper_offset_writes.multi_of))
        patched.setattr("zkconsumer.admin.kafka_offsets.commit_offsets", dying(commit_offsets))
        words = ["--group", "g1", "--store", "both", "--execute"]
        first = imported(offsets, tmp_path, text, *words)
    assert first.exit_code == (130 if writes_before < 6 else 0)
    assert first.stderr.count(": written\n") == (writes_before if 0 < writes_before < 6 else 0)
    in_both = [kafka.offsets("g1", "clicks"), in_kafka(kafka)]
    done = [each.get(partition) == offset for each in in_both for partition, offset in wanted.items()]
    assert sum(done) == writes_before
    assert imported(offsets, tmp_path, text, *words).exit_code == 0
    assert (kafka.offsets("g1", "clicks"), in_kafka(kafka)) == (wanted, wanted)


def test_an_interruption_says_what_was_written(
    world: FakeEnvironment, offsets: RunTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, report: StoreWriteReport, **__: object) -> None:
        report.written.append(TopicPartition("clicks", 0))
        report.unknown = [TopicPartition("clicks", 1)]
        raise KeyboardInterrupt

    monkeypatch.setattr("zkconsumer.admin.group_offset_stores.write_offsets", interrupted)
    result = imported(offsets, tmp_path, "clicks,0,20\nclicks,1,21\n", "--group", "g1", "--execute")
    assert result.exit_code == 130
    assert "1 of 2 offsets written, because it was interrupted" in result.stderr
    assert "  zookeeper clicks/1: unknown, no answer arrived\n" in result.stderr


def test_a_first_write_that_is_refused_changed_nothing(
    world: FakeEnvironment, offsets: RunTool, tmp_path: Path
) -> None:
    world.zookeeper.set_acl("/consumers/g1/offsets/clicks/0", (Acl(PERM_READ, "world", "anyone"),))
    result = imported(offsets, tmp_path, "clicks,0,20\n", "--group", "g1", "--execute")
    assert result.exit_code == 4
    assert (
        "nothing was changed, because NoAuth /consumers/g1/offsets/clicks/0: the node belongs to another"
        in result.stderr
    )


# --- diff -------------------------------------------------------------------------------------------------------


def test_diff_compares_by_value(kafka: FakeEnvironment, offsets: RunTool) -> None:
    result = offsets("diff", "g1")
    assert result.exit_code == 3
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["GROUP", "TOPIC", "PARTITION", "ZK-OFFSET", "KAFKA-OFFSET", "DIFFERENCE"],
        ["g1", "clicks", "1", "50", "60", "10"],
        ["g1", "clicks", "2", "-", "70", "-"],
    ]
    assert result.stderr == "Group g1: 1 partition is equal in zookeeper and kafka, 2 differ.\n"
    put(kafka, {1: 60, 2: 70})
    equal = offsets("diff", "g1")
    assert (equal.exit_code, equal.stdout) == (0, "")


def test_a_group_without_offsets_is_not_called_equal(kafka: FakeEnvironment, offsets: RunTool) -> None:
    for output in "table", "json":
        result = offsets("diff", "g1-mistyped", "-o", output)
        assert result.exit_code == 1
        assert result.stderr == (
            "zkconsumer: group g1-mistyped has no offsets in zookeeper or kafka: nothing was compared. "
            f"The groups: zkconsumer groups list --zookeeper {ADDRESS}\n"
        )


def test_diff_with_a_file(world: FakeEnvironment, offsets: RunTool, tmp_path: Path) -> None:
    file = tmp_path / "file.csv"
    file.write_text("clicks,0,41\nclicks,1,49\n")
    assert offsets("diff", "g1", file, "--offset-convention", "last").exit_code == 0
    result = offsets("diff", "g1", file, "-o", "json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["rows"][0] == {
        "topic": "clicks", "partition": 0, "zookeeper": 42, "file": 41, "unknown": [],
    }  # fmt: skip


def test_an_unreadable_znode_is_a_difference(kafka: FakeEnvironment, offsets: RunTool) -> None:
    put(kafka, {0: b"x", 1: 60, 2: 70})
    result = offsets("diff", "g1")
    assert (result.exit_code, result.stdout.splitlines()[1].split()[3:]) == (3, ["?", "42", "-"])
    assert "the znode of clicks/0 does not contain an offset: b'x' (1 bytes) is no number" in result.stderr
    [row] = json.loads(offsets("diff", "g1", "-o", "json").stdout)["rows"]
    assert (row["zookeeper"], row["unknown"]) == (None, ["zookeeper"])


def test_diff_without_kafka_is_no_difference_but_an_error(kafka: FakeEnvironment, offsets: RunTool) -> None:
    kafka.cluster.inject(GroupError("g1", 30), api=FIND_COORDINATOR, times=None)
    result = offsets("diff", "g1")
    assert result.exit_code == 1
    assert "GROUP_AUTHORIZATION_FAILED (30)" in result.stderr


@pytest.mark.parametrize("words", [["--store", "kafka"], ["--offset-convention", "last"], ["--format", "zk"]])
def test_options_of_a_file_need_one(offsets: RunTool, words: list[str]) -> None:
    assert offsets("diff", "g1", *words).exit_code == 2


# --- set --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "new"),
    [
        (["--to-earliest"], ["10", "0", "0"]),
        (["--to-latest"], ["100", "100", "100"]),
        (["--to-current"], ["42", "50", "100"]),
        (["--to-offset", "5"], ["10", "5", "5"]),
        (["--to-offset", "1000"], ["100", "100", "100"]),
        (["--to-datetime", "1970-01-01T00:00:00.999"], ["10", "0", "0"]),
        (["--to-datetime", "1970-01-01T00:00:01.001"], ["100", "100", "100"]),
        (["--by-duration", "PT1H"], ["100", "100", "100"]),
    ],
)
def test_every_target(world: FakeEnvironment, offsets: RunTool, target: list[str], new: list[str]) -> None:
    result = offsets("set", "g1", "--topic", "clicks", *target)
    assert result.exit_code == 3
    assert [row[3] for row in rows(result)] == new
    assert world.offsets("g1", "clicks") == {0: 42, 1: 50}
    assert offsets("set", "g1", "--topic", "clicks", *target, "--execute").exit_code == 0
    assert world.offsets("g1", "clicks") == {number: int(offset) for number, offset in enumerate(new)}


def test_a_shift_wants_an_offset_and_names_the_partition_without_one(world: FakeEnvironment, offsets: RunTool) -> None:
    assert [row[3] for row in rows(offsets("set", "g1", "--topic", "clicks:0,1", "--shift-by", "-2"))] == ["40", "48"]
    result = offsets("set", "g1", "--topic", "clicks", "--shift-by", "-2", "--execute")
    assert result.exit_code == 4
    assert "clicks/2: it has no offset to shift" in result.stderr
    assert world.offsets("g1", "clicks") == {0: 42, 1: 50}


def test_the_exported_plan_is_what_from_file_takes(world: FakeEnvironment, offsets: RunTool, tmp_path: Path) -> None:
    plan = offsets("set", "g1", "--topic", "clicks", "--to-offset", "60", "--export")
    assert plan.stdout == "clicks,0,60\nclicks,1,60\nclicks,2,60\n"
    file = tmp_path / "plan.csv"
    file.write_text(plan.stdout)
    assert offsets("set", "g1", "--from-file", file, "--topic", "clicks:0,1", "--execute").exit_code == 0
    assert world.offsets("g1", "clicks") == {0: 60, 1: 60}


def test_a_file_of_kafka_consumer_groups_is_drawn_to_the_log_as_there(offsets: RunTool, tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_text("clicks,0,5\nclicks,1,500\n")
    assert [row[3] for row in rows(offsets("set", "g1", "--from-file", file))] == ["10", "100"]


def test_all_topics_are_those_with_an_offset(world: FakeEnvironment, offsets: RunTool) -> None:
    assert [row[2] for row in rows(offsets("set", "g1", "--all-topics", "--to-latest"))] == ["0", "1"]
    nothing = offsets("set", "g9", "--all-topics", "--to-latest")
    assert nothing.exit_code == 4
    assert "name topics with --topic" in nothing.stderr


def test_a_topic_that_is_gone_is_refused(world: FakeEnvironment, offsets: RunTool) -> None:
    unknown = offsets("set", "g1", "--topic", "views", "--to-latest")
    assert unknown.exit_code == 4
    assert unknown.stderr.endswith(f"topics of this group: zkconsumer groups describe g1 --zookeeper {ADDRESS}\n")
    beyond = offsets("set", "g1", "--topic", "clicks:0,99", "--to-offset", "50")
    assert beyond.exit_code == 4
    assert "Nothing was changed. Leave these partitions out" in beyond.stderr
    world.zookeeper.ensure("/consumers/g1/offsets/gone/0", b"7")
    result = offsets("set", "g1", "--all-topics", "--to-latest", "--execute")
    assert result.exit_code == 4
    assert "gone/0: there is no such topic" in result.stderr
    assert "zkconsumer offsets delete g1 --topic gone" in result.stderr


def test_a_live_group_is_not_set(world: FakeEnvironment, offsets: RunTool) -> None:
    join(world)
    assert offsets("set", "g1", "--all-topics", "--to-latest", "--execute").exit_code == 4
    assert world.offsets("g1", "clicks") == {0: 42, 1: 50}


def test_lowering_one_store_of_two_is_said_to_be_of_no_use(kafka: FakeEnvironment, offsets: RunTool) -> None:
    words = "a larger offset is stored in kafka. Members with offsets.storage=kafka and dual.commit.enabled start from"
    one = offsets("set", "g1", "--topic", "clicks", "--to-earliest")
    assert f"clicks/0, clicks/1, clicks/2: {words}" in one.stderr
    both = offsets("set", "g1", "--topic", "clicks", "--to-earliest", "--store", "both", "--execute")
    assert both.exit_code == 0
    assert words not in both.stderr
    assert kafka.offsets("g1", "clicks") == {0: 10, 1: 0, 2: 0} == in_kafka(kafka)


def test_a_modern_member_lets_nothing_be_written_in_kafka(kafka: FakeEnvironment, offsets: RunTool) -> None:
    kafka.cluster.set_coordinator_members("g1", True)
    result = offsets("set", "g1", "--topic", "clicks", "--to-earliest", "--store", "kafka", "--execute")
    assert result.exit_code == 4
    assert "the coordinator group g1 has members" in result.stderr
    assert in_kafka(kafka) == {0: 42, 1: 60, 2: 70}


def test_zookeeper_done_and_kafka_refused_is_a_part(kafka: FakeEnvironment, offsets: RunTool) -> None:
    kafka.cluster.inject(GroupError("g1", 30), api=OFFSET_COMMIT, times=None)
    result = offsets("set", "g1", "--topic", "clicks:0", "--to-earliest", "--store", "both", "--execute")
    assert result.exit_code == 6
    assert "  zookeeper clicks/0: written\n  kafka clicks/0: not written\n" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--to-latest"],
        ["--topic", "clicks"],
        ["--topic", "clicks", "--to-latest", "--to-earliest"],
        ["--topic", "clicks", "--all-topics", "--to-latest"],
        ["--topic", "clicks", "--to-offset", "-1"],
        ["--topic", "clicks", "--to-datetime", "yesterday"],
        ["--topic", "clicks", "--by-duration", "P1Y"],
        ["--topic", "clicks:x", "--to-latest"],
        ["--from-file", "/nowhere"],
    ],
)
def test_a_call_that_means_nothing_is_refused(offsets: RunTool, words: list[str]) -> None:
    assert offsets("set", "g1", *words).exit_code == 2


def test_an_old_broker_says_that_a_time_is_a_segment(make_world: object) -> None:
    with FakeEnvironment(release="0.8.2.2") as old:
        old.create_topic("clicks", 1)
        old.cluster.append("clicks", 0, [b"x"] * 5)
        words = ["offsets", "set", "g1", "--topic", "clicks", "--to-datetime", "2017-08-04T00:00:00.000"]
        result = CliRunner().invoke(main, [*words, "--zookeeper", ADDRESS], obj=doors(old))
    assert rows(result)[0][8] == "by segment: the start of the log"
    assert "The time is 2017-08-04T00:00:00.000Z." in result.stderr


def test_a_partition_whose_leader_does_not_tell_is_refused(world: FakeEnvironment, offsets: RunTool) -> None:
    world.cluster.inject(PartitionError(TopicPartition("clicks", 1), 29), api=LIST_OFFSETS, times=None)
    result = offsets("set", "g1", "--topic", "clicks", "--to-latest", "--execute")
    assert result.exit_code == 4
    assert "clicks/1: its leader answers TOPIC_AUTHORIZATION_FAILED (29)" in result.stderr
    assert world.offsets("g1", "clicks") == {0: 42, 1: 50}


# --- delete -----------------------------------------------------------------------------------------------------


def test_delete_takes_offsets_and_nothing_else(world: FakeEnvironment, offsets: RunTool) -> None:
    world.zookeeper.ensure("/consumers/g1/owners/clicks")
    world.zookeeper.ensure("/consumers/g1/offsets/views/0", b"1")
    result = offsets("delete", "g1", "--topic", "clicks:0", "--topic", "views")
    assert result.exit_code == 3
    assert [row[1:5] for row in rows(result)] == [["clicks", "0", "(delete)", "42"], ["views", "0", "(delete)", "1"]]
    assert offsets("delete", "g1", "--topic", "clicks:0", "--topic", "views", "--execute").exit_code == 0
    assert world.offsets("g1", "clicks") == {1: 50}
    assert world.zookeeper.data("/consumers/g1/offsets/views") is None
    assert world.zookeeper.data("/consumers/g1/owners/clicks") == b""
    assert offsets("delete", "g1", "--topic", "views", "--execute").exit_code == 0


def test_an_unreadable_znode_is_deleted_too(world: FakeEnvironment, offsets: RunTool) -> None:
    put(world, {0: b"abc"})
    assert offsets("delete", "g1", "--execute").exit_code == 0
    assert world.zookeeper.data("/consumers/g1/offsets/clicks") is None


def test_delete_in_kafka(kafka: FakeEnvironment, offsets: RunTool) -> None:
    assert offsets("delete", "g1", "--topic", "clicks:0", "--store", "both", "--execute").exit_code == 0
    assert in_kafka(kafka) == {1: 60, 2: 70}
    assert kafka.offsets("g1", "clicks") == {1: 50}
    kafka.cluster.set_coordinator_members("g1", True)
    refused = offsets("delete", "g1", "--store", "kafka", "--execute")
    assert refused.exit_code == 4
    assert in_kafka(kafka) == {1: 60, 2: 70}


def test_an_old_broker_cannot_delete_and_the_words_say_what_can_be_done() -> None:
    with FakeEnvironment(release="1.1.1") as old:
        old.create_topic("clicks", 1)
        old.create_topic(OFFSETS_TOPIC, 1)
        old.cluster.commit("g1", "clicks", 0, 5)
        words = ["offsets", "delete", "g1", "--store", "kafka", "--execute", "--zookeeper", ADDRESS]
        result = CliRunner().invoke(main, words, obj=doors(old))
        assert result.exit_code == 4
        assert "brokers before 2.4 cannot delete single offsets" in result.stderr
        assert "zkconsumer offsets set g1 --all-topics --to-earliest --store kafka" in result.stderr
        result = CliRunner().invoke(main, [*words, "--topic", "clicks:0"], obj=doors(old))
        assert "zkconsumer offsets set g1 --topic clicks:0 --to-earliest --store kafka" in result.stderr, "no more"
        assert in_kafka(old) == {0: 5}


def test_a_group_that_would_be_new_is_named(world: FakeEnvironment, offsets: RunTool) -> None:
    wrong = offsets("set", "g11", "--topic", "clicks", "--to-earliest")
    assert wrong.exit_code == 3
    words = "Group g11 has no member and no offset: this makes a new group. The groups: zkconsumer groups list"
    assert words in wrong.stderr
    assert "new group" not in offsets("set", "g1", "--topic", "clicks", "--to-earliest").stderr
    gone = offsets("delete", "g11", "--topic", "clicks")
    assert gone.exit_code == 0
    assert gone.stderr.startswith("Group g11 has no offsets of clicks in zookeeper. The groups: zkconsumer groups list")


def test_offsets_of_a_group_that_moves_are_written_with_a_word(kafka: FakeEnvironment, offsets: RunTool) -> None:
    control = ControlRecord("m1", 2, "verified", "zookeeper", "copy")
    kafka.zookeeper.ensure("/zkconsumer/groups/g1", format_control(control))
    words = ("set", "g1", "--topic", "clicks", "--to-earliest")
    assert "Group g1 is migrating (phase verified, authority zookeeper)" in offsets(*words).stderr
    kafka.zookeeper.ensure("/zkconsumer/groups/g1", format_control(replace(control, phase="undone")))
    assert "on the move" not in offsets(*words).stderr


def test_the_placeholder_of_a_migration_cannot_be_stopped(kafka: FakeEnvironment, offsets: RunTool) -> None:
    control = ControlRecord("m1", 2, "verified", "zookeeper", "copy")
    kafka.zookeeper.ensure("/zkconsumer/groups/g1", format_control(control))
    kafka.cluster.set_coordinator_members("g1", True)
    words = ("set", "g1", "--topic", "clicks", "--to-earliest", "--store", "kafka")
    assert "the coordinator group g1 has members" in offsets(*words).stderr
    kafka.cluster.set_coordinator_members("g1", False)
    kafka.cluster.set_coordinator_members("g1", True, client_id="zkconsumer-m1")
    refused = offsets(*words)
    assert refused.exit_code == 4
    assert "the placeholder member of a migration blocks the coordinator group g1" in refused.stderr
    assert "finish the migration or roll it back first" in refused.stderr


def test_a_live_group_is_not_deleted(world: FakeEnvironment, offsets: RunTool) -> None:
    join(world)
    assert offsets("delete", "g1", "--execute").exit_code == 4
    assert world.offsets("g1", "clicks") == {0: 42, 1: 50}


# --- brokers that ZooKeeper does not know -----------------------------------------------------------------------


def test_with_bootstrap_servers_topics_and_kafkas_store_are_those_of_the_brokers(
    kafka: FakeEnvironment, offsets: RunTool, tmp_path: Path
) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text(f"bootstrap.servers={kafka.cluster.address(0).host}:{kafka.cluster.address(0).port}\n")
    for path in ("/brokers/topics/clicks", f"/brokers/topics/{OFFSETS_TOPIC}", "/brokers/ids/0"):
        kafka.zookeeper.remove(path)
    assert offsets("diff", "g1", "--config", file).exit_code == 3
    words = ["set", "g1", "--topic", "clicks", "--to-latest", "--store", "both", "--config", file]
    assert offsets(*words, "--execute").exit_code == 0
    assert kafka.offsets("g1", "clicks") == {}, "the world looks for the topic's znode"
    assert kafka.zookeeper.data("/consumers/g1/offsets/clicks/2") == b"100"
    assert in_kafka(kafka) == {0: 100, 1: 100, 2: 100}
    assert offsets("set", "g1", "--topic", "views", "--to-latest", "--config", file).exit_code == 4


# --- sizes ------------------------------------------------------------------------------------------------------


def test_a_large_group_is_few_packets_and_few_questions(tmp_path: Path) -> None:
    topics = [f"wide{number}" for number in range(10)]
    file = tmp_path / "wide.csv"
    file.write_text("".join(f"{topic},{number},0\n" for topic in topics for number in range(800)))
    with FakeEnvironment(2) as wide:
        for topic in topics:
            wide.create_topic(topic, 800)
        words = ["offsets", "import", str(file), "--group", "g1", "--execute", "-o", "json", "--zookeeper", ADDRESS]
        result = CliRunner().invoke(main, words, obj=doors(wide))
        assert result.exit_code == 0
        assert "8000 offsets written." in result.stderr
        assert wide.stores[0].packets_sent < 10 + 2 * len(topics) + 2 * 8_000 / 2_000
        asked = [seen for seen in wide.cluster.requests if seen.api is LIST_OFFSETS and seen.body.topics]
        assert len(asked) == 2 * 2 * 4_000 / 2_000, "start and end, two brokers, 2,000 of 4,000 partitions in each"


def test_a_topic_whose_znode_cannot_be_read_is_not_taken_for_one_without_partitions(
    world: FakeEnvironment, offsets: RunTool, tmp_path: Path
) -> None:
    world.zookeeper.ensure("/brokers/topics/clicks", b"{")
    result = imported(offsets, tmp_path, "clicks,0,50\n", "--group", "g1")
    assert result.exit_code == 4
    assert "the znode of topic clicks cannot be read" in result.stdout
    assert offsets("set", "g1", "--topic", "clicks", "--to-latest").exit_code == 4
