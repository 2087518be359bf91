"""``zkconsumer groups list``, ``groups describe`` and ``lag``: what is shown of a group, and what is said beside it.

The cases of ``ListConsumerGroupTest`` and ``DescribeConsumerGroupTest`` of the original (0.10.2 to 1.1) are among them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from bridge.testing.fake_faults import GroupError
from tests.admin_fixtures import RunTool, doors, run_at
from tests.in_memory_fixtures import MakeConnector, take
from tests.unit.admin.test_admin_groups import SCALA, scala_member
from zkconsumer.admin import coordinator_lookups
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.coordinator_group_snapshot import CoordinatorGroupList, CoordinatorGroupSnapshot
from zkconsumer.admin.describe import COLUMNS, current_offset
from zkconsumer.admin.log_ranges import LogRange
from zkconsumer.admin.zookeeper_group_list import list_groups
from zkconsumer.cli import lag as lag_command
from zkconsumer.cli.main import main
from zkconsumer.kafka.coordinator_groups import CoordinatorGroup, CoordinatorGroupMember
from zkconsumer.kafka.error_codes import COORDINATOR_NOT_AVAILABLE
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.zk.znode_formats import Authority, ControlRecord, format_control

LIST = f"zkconsumer groups list --zookeeper {ADDRESS}"
HEADER = (
    "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID "
    "ZK-OFFSET KAFKA-OFFSET AUTHORITY OWNER-KIND LAG-SECONDS"
)


def offset(world: FakeEnvironment, at: str, value: int, group: str = "g1") -> None:
    world.zookeeper.ensure(f"/consumers/{group}/offsets/{at}", str(value).encode())


def cells(line: str) -> list[str]:
    return line.split()


def rows(output: str) -> list[list[str]]:
    return [cells(line) for line in output.splitlines()[1:] if not line.startswith("LARGEST LAG-SECONDS")]


def described(tool: RunTool, *words: str) -> dict[str, Any]:
    result = tool("groups", "describe", *words, "-o", "json")
    assert result.exit_code == 0, result.stderr
    told: dict[str, Any] = json.loads(result.stdout)
    return told


# --- list -------------------------------------------------------------------------------------------------------


def test_it_lists_exactly_the_groups_below_consumers(
    world: FakeEnvironment, tool: RunTool, connect: MakeConnector
) -> None:
    """ListConsumerGroupTest."""
    world.create_topic("clicks", 2)
    connect(group_id="ours").create_message_streams({"clicks": 1})
    scala_member(world, "theirs_c", {"clicks": 1}, ("clicks/0",))
    offset(world, "clicks/0", 1, "done")
    world.zookeeper.ensure("/consumers/bare")
    result = tool("groups", "list")
    assert result.exit_code == 0
    assert cells(result.stdout.splitlines()[0]) == ["GROUP", "KIND", "MEMBERS", "TOPICS", "LAST-COMMIT", "STATE"]
    assert [row[:4] for row in rows(result.stdout)] == [
        ["bare", "-", "0", "-"], ["done", "-", "0", "clicks"], ["ours", "zkconsumer", "1", "clicks"],
        ["theirs", "scala", "1", "clicks"],
    ]  # fmt: skip
    assert [row[0] for row in rows(tool("groups", "list", "--active").stdout)] == ["ours", "theirs"]
    assert [row[0] for row in rows(tool("groups", "list", "--empty").stdout)] == ["bare", "done"]


@pytest.fixture
def modern_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers coordinate a group in each of these states; ``old`` at a broker 0.9."""
    states = {"stable": "Stable", "empty": "Empty", "old": "AwaitingSync"}
    groups = {
        name: (BrokerAddress(0, "b", 9092), CoordinatorGroup(state, "consumer")) for name, state in states.items()
    }
    found = CoordinatorGroupList(groups)
    monkeypatch.setattr(sys.modules["zkconsumer.cli.groups"], "list_all_coordinator_groups", lambda _: found)


@pytest.mark.parametrize(
    ("given", "listed"),
    [
        ("Stable", ["stable"]),
        ("stable, EMPTY", ["empty", "stable"]),
        ("CompletingRebalance", ["old"]),
        ("Dead", []),
        (None, ["done", "empty", "old", "stable"]),
    ],
)
@pytest.mark.usefixtures("modern_groups")
def test_groups_in_a_state_as_kafkas_tool_lists_them(
    world: FakeEnvironment, tool: RunTool, given: str | None, listed: list[str]
) -> None:
    offset(world, "clicks/0", 1, "done")
    result = tool("groups", "list", "--state", *([] if given is None else [given]))
    assert (result.exit_code, [row[0] for row in rows(result.stdout)]) == (0, listed), result.stderr
    assert ("No coordinator group is in the state Dead." in result.stderr) == (given == "Dead")


@pytest.mark.parametrize("group", ["app:v1", "my app/1"])
def test_a_coordinator_group_may_have_a_name_that_zookeeper_cannot_have(
    world: FakeEnvironment, tool: RunTool, group: str
) -> None:
    world.create_topic("clicks", 1)
    offset(world, "clicks/0", 1, "done")
    world.cluster.set_coordinator_members(group, True)
    assert set(group.split()) <= set(tool("groups", "list").stdout.split())
    assert described(tool, group)["coordinator_group"]["state"] == "Stable"
    every = json.loads(tool("groups", "describe", "--all-groups", "-o", "json").stdout)
    assert [each["group"] for each in every["groups"]] == sorted(["done", group])
    assert tool("lag", group).exit_code == 0
    absent = tool("groups", "describe", "app:v2")
    assert (absent.exit_code, "'app:v2' does not exist" in absent.stderr) == (1, True)


def test_a_state_that_does_not_exist_is_refused_with_the_text_of_kafkas_tool(tool: RunTool) -> None:
    result = tool("groups", "list", "--state", "Stabel")
    assert result.exit_code == 2
    assert "Invalid state list 'Stabel'. Valid states are: Stable, Empty, Dead, PreparingRebalance" in result.stderr


def test_an_empty_list_says_what_is_empty(world: FakeEnvironment, tool: RunTool) -> None:
    none = tool("groups", "list")
    assert (none.exit_code, rows(none.stdout)) == (0, [])
    assert none.stderr == (
        "There is no group in ZooKeeper (/consumers), and the brokers coordinate none. If you expect one, check the "
        "chroot.\n"
    )
    offset(world, "clicks/0", 1, "done")
    assert tool("groups", "list", "--active").stderr == f"No group has a registered member. All groups: {LIST}\n"
    assert tool("groups", "list").stderr == ""
    for address in world.cluster.addresses:
        world.cluster.stop_broker(address.broker_id)
    world.zookeeper.ensure("/elsewhere/brokers/ids")
    assert "the brokers coordinate none" not in tool("groups", "list", "--active").stderr


def test_list_as_json_names_stale_console_groups(world: FakeEnvironment, tool: RunTool) -> None:
    offset(world, "t/0", 1, "console-consumer-1")
    told = json.loads(tool("groups", "list", "-o", "json").stdout)
    [line] = told["groups"]
    assert (line["group"], line["active"], line["stale_console_group"], line["topics"]) == (
        "console-consumer-1", False, True, ["t"],
    )  # fmt: skip
    assert line["last_commit_ms"] == line["last_write_ms"] > 0
    assert "--stale" in told["next_steps"][0]


def test_a_console_consumer_that_runs_is_no_stale_group(world: FakeEnvironment, tool: RunTool) -> None:
    scala_member(world, "console-consumer-1_c", {"clicks": 1})
    [line] = json.loads(tool("groups", "list", "-o", "json").stdout)["groups"]
    assert (line["active"], line["stale_console_group"]) == (True, False)


def test_many_groups_are_read_in_few_packets(world: FakeEnvironment, admin: AdminSession) -> None:
    for number in range(250):
        offset(world, "t/0", 1, f"g{number:03}")
    assert [line.group for line in list_groups(admin)] == [f"g{number:03}" for number in range(250)]


def test_owners_of_both_kinds_make_a_mixed_group(world: FakeEnvironment, tool: RunTool, connect: MakeConnector) -> None:
    world.create_topic("clicks", 2)
    scala_member(world, SCALA, {"clicks": 1}, ("clicks/0",))
    connect(consumer_id="z").create_message_streams({"clicks": 1})
    assert rows(tool("groups", "list").stdout)[0][1] == "mixed"


# --- describe ---------------------------------------------------------------------------------------------------


def test_an_unknown_group_is_an_error_with_the_names_that_come_near(world: FakeEnvironment, tool: RunTool) -> None:
    offset(world, "t/0", 1, "payments")
    for words in (("groups", "describe", "payment"), ("lag", "payment")):
        result = tool(*words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.splitlines() == [
            f"zkconsumer: The consumer group 'payment' does not exist. The existing groups: {LIST}",
            "Similar names: payments",
        ]
    zzz = tool("groups", "describe", "zzz")
    assert zzz.stderr == f"zkconsumer: The consumer group 'zzz' does not exist. The existing groups: {LIST}\n"


def test_a_member_has_a_row_for_each_of_its_partitions(world: FakeEnvironment) -> None:
    world.create_topic("clicks", 2)
    clock = ManualClock()
    world.cluster.append("clicks", 0, [b"x"] * 5, timestamp_ms=clock.wall_ms() - 2_500)
    scala_member(world, SCALA, {"clicks": 1}, ("clicks/0", "clicks/1"))
    offset(world, "clicks/0", 3)
    result = run_at(world, clock, "groups", "describe", "g1")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert cells(result.stdout.splitlines()[0]) == HEADER.split() == [*COLUMNS, "LAG-SECONDS"]
    assert rows(result.stdout) == [
        ["g1", "clicks", "0", "3", "5", "2", SCALA, "host", "-", "3", "-", "zookeeper", "scala", "2.5"],
        ["g1", "clicks", "1", "-", "0", "-", SCALA, "host", "-", "-", "-", "zookeeper", "scala", "-"],
    ]


def test_a_group_without_members_has_rows_without_owners(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 1)
    offset(world, "clicks/0", 0)
    assert rows(tool("groups", "describe", "g1").stdout) == [
        ["g1", "clicks", "0", "0", "0", "0", "-", "-", "-", "0", "-", "zookeeper", "-", "0"]
    ]


def test_members_without_partitions_are_rows_at_the_end(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 1)
    scala_member(world, SCALA, {"clicks": 1}, ("clicks/0",))
    scala_member(world, "g1_idle", {"clicks": 1, "views": 1})
    world.zookeeper.ensure("/consumers/g1/ids/g1_broken", b"?")
    result = tool("groups", "describe", "g1")
    assert [row[1:3] + row[6:7] for row in rows(result.stdout)] == [
        ["clicks", "0", SCALA], ["-", "-", "g1_broken"], ["clicks", "-", "g1_idle"], ["views", "-", "g1_idle"],
    ]  # fmt: skip
    assert "g1_broken: no release accepts it" in result.stderr


def test_members_of_ours_and_nodes_of_nobody_are_told_apart(
    world: FakeEnvironment, tool: RunTool, connect: MakeConnector
) -> None:
    world.create_topic("clicks", 2)
    ours = connect(consumer_id="a")
    ours.create_message_streams({"clicks": 1})
    world.create_topic("held", 1)
    world.zookeeper.ensure("/consumers/g1/owners/held/0", b"by hand")
    found = {(row["topic"], row["partition"]): row["owner_kind"] for row in described(tool, "g1")["rows"]}
    assert found == {("clicks", 0): "zkconsumer", ("clicks", 1): "zkconsumer", ("held", 0): "persistent"}


def test_a_fence_is_nobodys_claim(world: FakeEnvironment, tool: RunTool) -> None:
    """Old tools print the head of its text as the owner; ours say what it is."""
    world.create_topic("clicks", 1)
    offset(world, "clicks/0", 0)
    world.zookeeper.ensure("/consumers/g1/owners/clicks/0", b"zkconsumer-migrate:1:m1:2")
    [row] = described(tool, "g1")["rows"]
    assert (row["owner_kind"], row["consumer_id"]) == ("fence", None)


@pytest.mark.parametrize(
    ("phase", "authority", "words", "step"),
    [
        ("fenced", "zookeeper", "g1 is migrating: phase fenced, authority zookeeper", "migrate status g1"),
        ("completed", "kafka", "g1 was migrated to Kafka (phase completed)", "groups delete g1"),
        ("undone", "zookeeper", "g1 was rolled back to ZooKeeper (phase undone)", "groups delete g1"),
    ],
)
def test_a_group_that_moves_or_has_moved_is_told_apart(
    world: FakeEnvironment, tool: RunTool, phase: str, authority: Authority, words: str, step: str
) -> None:
    world.create_topic("clicks", 1)
    offset(world, "clicks/0", 0)
    control = ControlRecord("m1", 2, phase, authority, "copy")
    world.zookeeper.ensure("/zkconsumer/groups/g1", format_control(control))
    assert words in tool("groups", "describe", "g1").stderr
    assert described(tool, "g1")["next_steps"][0] == f"zkconsumer {step} --zookeeper {ADDRESS}"


def test_topics_that_were_only_committed_and_topics_that_are_gone_have_rows(
    world: FakeEnvironment, tool: RunTool
) -> None:
    world.create_topic("kept", 1)
    offset(world, "kept/0", 0)
    offset(world, "gone/4", 9)
    result = tool("groups", "describe", "g1")
    assert [row[1:6] for row in rows(result.stdout)] == [
        ["gone", "4", "9", "-", "-"], ["kept", "0", "0", "0", "0"],
    ]  # fmt: skip
    assert "these topics do not exist any more: gone" in result.stderr
    result = tool("groups", "describe", "g1", "--topic", "kept")
    assert [row[1] for row in rows(result.stdout)] == ["kept"]
    assert (result.exit_code, result.stderr) == (0, ""), "topics that were not asked for are not missing"
    result = tool("groups", "describe", "g1", "--topic", "ketp")
    assert (result.exit_code, rows(result.stdout)) == (1, [])
    assert result.stderr == (
        "zkconsumer: group g1 has nothing of the topic ketp: correct the name; the topics of the group: "
        f"zkconsumer groups describe g1 --zookeeper {ADDRESS}\n"
    )
    told = json.loads(tool("groups", "describe", "g1", "--topic", "ketp", "-o", "json").stdout)
    assert (told["exit_code"], told["topics_not_found"]) == (1, ["ketp"])


def test_a_topic_that_a_member_subscribes_to_is_not_missing_beside_another(
    world: FakeEnvironment, tool: RunTool
) -> None:
    world.create_topic("clicks", 1)
    world.create_topic("views", 1)
    scala_member(world, SCALA, {"clicks": 1, "views": 1})
    assert tool("groups", "describe", "g1", "--topic", "views").stderr == ""


def test_an_offset_that_is_no_number_is_not_shown_as_none(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 2)
    offset(world, "clicks/0", 0)
    world.zookeeper.ensure("/consumers/g1/offsets/clicks/1", b"abc")
    result = tool("groups", "describe", "g1")
    assert result.exit_code == 1
    assert [row[3:6] + row[9:10] for row in rows(result.stdout)] == [["0", "0", "0", "0"], ["?", "0", "?", "?"]]
    assert result.stderr == (
        "zkconsumer: the offset of 1 partition in ZooKeeper is not known, clicks/1 first: b'abc' (3 bytes) is no "
        f"number; what to do: zkconsumer groups doctor g1 --zookeeper {ADDRESS}\n"
    )
    told = json.loads(tool("groups", "describe", "g1", "-o", "json").stdout)
    assert told["rows"][1]["unknown"] == ["current_offset", "lag", "lag_seconds", "zk_offset"]
    lag = tool("lag", "g1")
    assert (lag.exit_code, lag.stdout.splitlines()[-1]) == (1, "TOTAL at least 0  (1 of 2 partitions not known)")


def test_the_member_with_which_a_migration_keeps_a_group_empty_is_named(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 1)
    in_kafka(world, 12)
    offset(world, "clicks/0", 12)
    world.zookeeper.ensure(
        "/zkconsumer/groups/g1", format_control(ControlRecord("m1", 2, "verified", "zookeeper", "copy"))
    )
    world.cluster.set_coordinator_members("g1", True)
    assert "the coordinator group g1 is Stable, with 1 member" in tool("groups", "describe", "g1").stderr
    world.cluster.set_coordinator_members("g1", False)
    world.cluster.set_coordinator_members("g1", True, client_id="zkconsumer-m1")
    result = tool("groups", "describe", "g1")
    assert [row[1:3] for row in rows(result.stdout)] == [["clicks", "0"]], "the placeholder has no rows"
    assert "the placeholder member of the migration blocks the coordinator group g1" in result.stderr


def test_the_lag_of_a_group_that_has_moved_names_the_members_that_read_now(
    world: FakeEnvironment, tool: RunTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create_topic("clicks", 2)
    in_kafka(world, 12)
    offset(world, "clicks/0", 7)
    now = (TopicPartition("clicks", 0), TopicPartition("later", 3))
    member = CoordinatorGroupMember("new-1", client_id="new", host="/127.0.0.1", partitions=now)
    group = CoordinatorGroup("Stable", protocol_type="consumer", members=(member,))
    offsets, ranges = dict.fromkeys(now, 12), dict.fromkeys(now, LogRange(0, 12))
    monkeypatch.setattr(
        lag_command,
        "read_coordinator_group_snapshot",
        lambda *_: (CoordinatorGroupSnapshot("g1", group, offsets, ranges), ()),
    )
    assert [row[:3] + row[-1:] for row in rows(tool("lag", "g1").stdout)[:-1]] == [
        ["clicks", "0", "7", "-"], ["clicks", "1", "-", "-"]
    ]  # fmt: skip
    world.zookeeper.ensure("/zkconsumer/groups/g1", format_control(ControlRecord("m1", 2, "switched", "kafka", "copy")))
    assert [row[:3] + row[-1:] for row in rows(tool("lag", "g1").stdout)[:-1]] == [
        ["clicks", "0", "12", "new-1"], ["clicks", "1", "-", "-"], ["later", "3", "12", "new-1"]
    ]  # fmt: skip
    monkeypatch.setattr(
        lag_command, "read_coordinator_group_snapshot", lambda *_: (None, ("broker-1 does not answer",))
    )
    unknown = tool("lag", "g1")
    assert (unknown.exit_code, unknown.stderr) == (1, "zkconsumer: broker-1 does not answer\n")
    assert [row[-1] for row in rows(unknown.stdout)[:-1]] == ["?", "?"]


def test_every_group_is_described_in_one_table(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 2)
    scala_member(world, "theirs_c", {"clicks": 1}, ("clicks/0",))
    offset(world, "clicks/1", 3, "done")
    result = tool("groups", "describe", "--all-groups")
    assert result.exit_code == 0
    shown = [row[:3] for row in rows(result.stdout)]
    assert ["done", "clicks", "1"] in shown
    assert ["theirs", "clicks", "0"] in shown
    assert shown == [row[:3] for name in ("done", "theirs") for row in rows(tool("groups", "describe", name).stdout)]

    members = tool("groups", "describe", "--all-groups", "--members")
    assert [row[0] for row in rows(members.stdout)] == ["theirs"]
    assert "Group done has no members." in members.stderr
    assert [row[0] for row in rows(tool("groups", "describe", "--all-groups", "--state").stdout)] == ["done", "theirs"]

    document = json.loads(tool("groups", "describe", "--all-groups", "-o", "json").stdout)
    assert (document["schema"], document["exit_code"]) == ("zkconsumer/groups-describe-all/1", 0)
    one_by_one = [described(tool, name) for name in ("done", "theirs")]
    assert [each["rows"] for each in document["groups"]] == [each["rows"] for each in one_by_one]
    assert [each["next_steps"] for each in document["groups"]] == [each["next_steps"] for each in one_by_one]


def test_a_part_of_one_group_that_is_not_known_is_named_with_its_group(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 1)
    offset(world, "clicks/0", 3, "done")
    for address in world.cluster.addresses:
        world.cluster.stop_broker(address.broker_id)
    result = tool("groups", "describe", "--all-groups")
    assert result.exit_code == 1
    assert "group done: " in result.stderr
    assert rows(result.stdout)[0][:3] == ["done", "clicks", "0"]


def test_one_group_or_every_group(tool: RunTool) -> None:
    none = tool("groups", "describe")
    assert (none.exit_code, "--all-groups shows every group" in none.stderr) == (2, True)
    both = tool("groups", "describe", "g1", "--all-groups")
    assert (both.exit_code, "give either a GROUP or --all-groups" in both.stderr) == (2, True)
    nothing = tool("groups", "describe", "--all-groups")
    assert nothing.exit_code == 0
    assert "There is no group in ZooKeeper" in nothing.stderr


def test_json_has_a_schema_the_members_and_the_next_steps(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 1)
    scala_member(world, SCALA, {"clicks": 1})
    told = described(tool, "g1")
    assert told["schema"] == "zkconsumer/groups-describe/1"
    assert told["rows"][0] == {
        "group": "g1", "topic": "clicks", "partition": 0, "current_offset": None, "log_end_offset": 0, "lag": None,
        "consumer_id": None, "host": None, "client_id": None, "zk_offset": None, "kafka_offset": None,
        "authority": "zookeeper", "owner_kind": None, "unknown": [], "lag_seconds": None, "trend": "unknown",
        "caught_up_in_seconds": None,
        "lag_time": {
            "state": "unknown", "timestamp_type": None, "timestamp_ms": None, "error_seconds_max": None,
            "at_least_seconds": None,
            "reason": "the group has no offset here, so auto.offset.reset decides which record it reads first",
        },
    }  # fmt: skip
    [member] = told["members"]
    assert (member["consumer_id"], member["threads"], member["subscription_pattern"]) == (
        SCALA,
        {"clicks": 1},
        "static",
    )
    assert told["next_steps"] == [
        f"zkconsumer groups doctor g1 --zookeeper {ADDRESS}", f"zkconsumer lag g1 --watch --zookeeper {ADDRESS}"
    ]  # fmt: skip


def test_brokers_that_are_away_cost_a_question_mark_and_an_error(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 1)
    offset(world, "clicks/0", 7)
    for address in world.cluster.addresses:
        world.cluster.stop_broker(address.broker_id)
    result = tool("groups", "describe", "g1")
    assert result.exit_code == 1
    assert rows(result.stdout)[0][3:6] == ["7", "?", "?"]
    assert result.stderr.startswith("zkconsumer: none of 2 brokers answers")
    told = json.loads(tool("groups", "describe", "g1", "-o", "json").stdout)
    assert (told["exit_code"], told["rows"][0]["unknown"]) == (
        1,
        ["kafka_offset", "lag", "lag_seconds", "log_end_offset"],
    )


def test_nobody_is_asked_about_kafkas_offsets_where_kafka_keeps_none(world: FakeEnvironment, tool: RunTool) -> None:
    """The question alone would make old brokers create the topic of the offsets."""
    world.create_topic("clicks", 1)
    offset(world, "clicks/0", 7)
    tool("groups", "describe", "g1")
    assert not any("Coordinator" in str(seen) for seen in world.cluster.requests)


# --- both stores ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_zookeeper", "in_kafka", "storage", "authority", "expected"),
    [
        (5, 9, "unknown", "zookeeper", (5, "zookeeper")),
        (None, 9, "unknown", "zookeeper", (9, "kafka")),
        (None, None, "unknown", "zookeeper", (None, "zookeeper")),
        (5, 9, "zookeeper", "zookeeper", (5, "zookeeper")),
        (None, 9, "zookeeper", "zookeeper", (None, "zookeeper")),
        (5, 9, "kafka", "zookeeper", (9, "kafka")),
        (5, None, "kafka", "zookeeper", (None, "kafka")),
        (5, 9, "dual", "zookeeper", (9, "kafka")),
        (9, 5, "dual", "zookeeper", (9, "zookeeper")),
        (None, 5, "dual", "zookeeper", (5, "kafka")),
        (5, None, "dual", "zookeeper", (5, "zookeeper")),
        (5, 9, "zookeeper", "kafka", (9, "kafka")),
        (5, None, "unknown", "kafka", (None, "kafka")),
        (5, 9, "unknown", "?", (None, "?")),
    ],
)
def test_a_restarted_member_starts_from(
    in_zookeeper: int | None, in_kafka: int | None, storage: Any, authority: str, expected: tuple[int | None, str]
) -> None:
    assert current_offset(in_zookeeper, in_kafka, storage, authority) == expected


def in_kafka(world: FakeEnvironment, offset: int) -> None:
    """An offset of ``clicks/0`` in Kafka's own store."""
    world.zookeeper.ensure("/brokers/topics/__consumer_offsets")
    world.cluster.commit("g1", "clicks", 0, offset)


def test_offsets_of_both_stores_stand_side_by_side(world: FakeEnvironment, tool: RunTool, tmp_path: Path) -> None:
    world.create_topic("clicks", 1)
    world.cluster.append("clicks", 0, [b"x"] * 20)
    offset(world, "clicks/0", 7)
    in_kafka(world, 12)
    result = tool("groups", "describe", "g1")
    assert rows(result.stdout)[0][3:6] + rows(result.stdout)[0][9:12] == ["7", "20", "13", "7", "12", "zookeeper"]
    assert "another offset in Kafka" in result.stderr
    file = tmp_path / "consumer.properties"
    for settings, expected in (("", "12"), ("dual.commit.enabled=true\n", "12"), ("dual.commit.enabled=false\n", "12")):
        file.write_text(f"group.id=g1\noffsets.storage=kafka\n{settings}")
        result = tool("groups", "describe", "g1", "--config", str(file))
        assert rows(result.stdout)[0][3:6] + rows(result.stdout)[0][9:12] == [expected, "20", "8", "7", "12", "kafka"]
        assert result.stderr == ""
    file.write_text("group.id=g1\noffsets.storage=zookeeper\n")
    assert rows(tool("groups", "describe", "g1", "--config", str(file)).stdout)[0][3] == "7"


def test_a_coordinator_that_does_not_answer_is_a_word_and_no_hang(
    world: FakeEnvironment, tool: RunTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create_topic("clicks", 1)
    offset(world, "clicks/0", 7)
    in_kafka(world, 12)
    monkeypatch.setattr(coordinator_lookups, "COORDINATOR_RETRY_BACKOFF_MS", 1)
    world.cluster.inject(GroupError("g1", COORDINATOR_NOT_AVAILABLE.code), times=None)
    result = tool("groups", "describe", "g1")
    assert result.exit_code == 1
    assert rows(result.stdout)[0][9:11] == ["7", "?"]
    assert "zkconsumer: offsets in Kafka are not known: group g1 has no coordinator that answers" in result.stderr


def test_a_control_znode_decides_about_the_authority(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 1)
    offset(world, "clicks/0", 7)
    in_kafka(world, 12)
    control = {"id": "m1", "epoch": 3, "phase": "switched", "authority": "kafka", "strategy": "copy"}
    world.zookeeper.ensure("/zkconsumer/groups/g1", json.dumps(control).encode())
    result = tool("groups", "describe", "g1")
    assert rows(result.stdout)[0][3] == "12"
    assert "is migrating: phase switched, authority kafka" in result.stderr
    world.zookeeper.ensure("/zkconsumer/groups/g1", b"?")
    result = tool("groups", "describe", "g1")
    assert rows(result.stdout)[0][3] == "?"
    assert rows(result.stdout)[0][11] == "?"
    assert "control znode cannot be read" in result.stderr


# --- lag --------------------------------------------------------------------------------------------------------


def test_lag_of_each_partition_and_in_all(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 3)
    world.cluster.append("clicks", 0, [b"x"] * 5)
    offset(world, "clicks/0", 3)
    offset(world, "clicks/1", 4)
    result = tool("lag", "g1")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "TOTAL 2  (1 of 3 partitions without an offset)"
    assert [row[:5] for row in rows(result.stdout)[:-1]] == [
        ["clicks", "0", "3", "5", "2"], ["clicks", "1", "4", "0", "-4"], ["clicks", "2", "-", "0", "-"],
    ]  # fmt: skip
    told = json.loads(tool("lag", "g1", "-o", "json").stdout)
    assert (told["schema"], told["total"], told["partitions_not_known"]) == ("zkconsumer/lag/1", 2, 0)
    assert told["partitions_without_offset"] == 1
    wrong = tool("lag", "g1", "--topic", "clisk", "-o", "json")
    assert wrong.exit_code == 1
    assert "group g1 has nothing of the topic clisk: correct the name" in wrong.stderr
    told = json.loads(wrong.stdout)
    assert (told["total"], told["exit_code"], told["topics_not_found"]) == (None, 1, ["clisk"])


def test_a_lag_of_which_nothing_is_known_is_not_zero(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 2)
    scala_member(world, SCALA, {"clicks": 1})
    assert tool("lag", "g1").stdout.splitlines()[-1] == "TOTAL -  (2 of 2 partitions without an offset)"
    told = json.loads(tool("lag", "g1", "-o", "json").stdout)
    assert (told["total"], told["total_known"], told["partitions_without_offset"]) == (None, 0, 2)
    offset(world, "gone/0", 7)
    assert tool("lag", "g1").stdout.splitlines()[-1] == (
        "TOTAL -  (2 of 3 partitions without an offset, 1 of 3 partitions without a log)"
    )
    told = json.loads(tool("lag", "g1", "-o", "json").stdout)
    assert (told["partitions_without_offset"], told["partitions_without_log"]) == (2, 1)


def test_without_an_address_the_options_are_named() -> None:
    for words in (["lag", "g1"], ["groups", "list"], ["offsets", "diff", "g1"]):
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 2
        assert result.stderr == (
            "zkconsumer: give the address of the cluster: --zookeeper HOST:PORT[/CHROOT] or --bootstrap-server "
            "HOST:PORT, ZKCONSUMER_ZOOKEEPER or ZKCONSUMER_BOOTSTRAP_SERVERS in the environment, a --config FILE that "
            "has it, or --context NAME\n"
        )


def test_a_member_that_reads_has_no_lag_left(world: FakeEnvironment, tool: RunTool, connect: MakeConnector) -> None:
    world.create_topic("clicks", 1)
    world.cluster.append("clicks", 0, [b"x"] * 5)
    connector = connect()
    [stream] = connector.create_message_streams({"clicks": 1})["clicks"]
    take(stream, 5)
    connector.commit_offsets()
    assert tool("lag", "g1").stdout.splitlines()[-1] == "TOTAL 0"


class Looks:
    """Stands for the pause between two looks: does what the test says, in its order, and then Ctrl-C."""

    def __init__(self, *between: Any) -> None:
        self._between = list(between)

    def __call__(self) -> Looks:
        return self

    def wait(self, timeout_ms: int) -> bool:
        if not self._between:
            raise KeyboardInterrupt
        self._between.pop(0)()
        return False


def watch(world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch, *words: str, between: tuple[Any, ...]) -> Any:
    monkeypatch.setattr(lag_command, "StopSignal", Looks(*between))
    return CliRunner().invoke(main, ["lag", "g1", "--watch", *words, "--zookeeper", ADDRESS], obj=doors(world))


def test_watching_survives_a_broker_that_is_away_and_says_so_once(
    world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create_topic("clicks", 1)
    offset(world, "clicks/0", 0)
    brokers = [address.broker_id for address in world.cluster.addresses]

    def each(act: Any) -> Any:
        return lambda: [act(number) for number in brokers]

    between = (each(world.cluster.stop_broker), lambda: None, each(world.cluster.start_broker))
    result = watch(world, monkeypatch, between=between)
    assert result.exit_code == 130
    totals = [line for line in result.stdout.splitlines() if line.startswith("TOTAL")]
    assert totals == ["TOTAL 0", *["TOTAL ?  (1 of 1 partition not known)"] * 2, "TOTAL 0"]
    assert result.stderr.count("none of 2 brokers") == 1
    assert "nothing is unknown any more" in result.stderr


def test_watching_as_json_is_a_line_a_look(world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create_topic("clicks", 1)
    offset(world, "clicks/0", 0)
    result = watch(world, monkeypatch, "-o", "json", between=(lambda: world.cluster.append("clicks", 0, [b"x"] * 4),))
    assert [json.loads(line)["total"] for line in result.stdout.splitlines()] == [0, 4]


def test_on_a_terminal_the_table_stays_in_its_place(world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create_topic("clicks", 1)
    offset(world, "clicks/0", 0)
    monkeypatch.setattr(lag_command, "is_terminal", lambda _: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    result = watch(world, monkeypatch, between=(lambda: world.cluster.append("clicks", 0, [b"x"] * 4),))
    assert result.exit_code == 130
    first, second = result.stdout.split("\x1b[J")[:2]
    assert "TOTAL 0\x1b[K\n" in first
    assert second.startswith(f"\x1b[{first.count(chr(10))}F")
    assert "TOTAL 4\x1b[K\n" in second


def test_a_group_that_goes_while_it_is_watched_is_told(world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    world.zookeeper.ensure("/consumers/g1")
    result = watch(world, monkeypatch, between=(lambda: world.zookeeper.remove("/consumers/g1"),))
    assert "the group g1 does not exist any more in ZooKeeper" in result.stderr


# --- brokers without ZooKeeper ----------------------------------------------------------------------------------


def test_with_bootstrap_servers_the_brokers_tell_of_the_topics(
    world: FakeEnvironment, tool: RunTool, tmp_path: Path
) -> None:
    """As with KRaft brokers: the group is in ZooKeeper, and the cluster is not."""
    world.create_topic("clicks", 2)
    world.cluster.append("clicks", 1, [b"x"] * 3)
    offset(world, "clicks/1", 1)
    world.zookeeper.remove("/brokers/topics/clicks")
    for address in world.cluster.addresses:
        world.zookeeper.remove(f"/brokers/ids/{address.broker_id}")
    file = tmp_path / "consumer.properties"
    first = world.cluster.addresses[0]
    file.write_text(f"bootstrap.servers={first.host}:{first.port}\n")
    result = tool("groups", "describe", "g1", "--config", str(file))
    assert result.stderr == ""
    assert [row[1:6] for row in rows(result.stdout)] == [
        ["clicks", "0", "-", "0", "-"], ["clicks", "1", "1", "3", "2"],
    ]  # fmt: skip
