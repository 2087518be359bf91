"""``groups describe --members`` and ``--state``: the views of ``kafka-consumer-groups``, for groups of both stores."""

from __future__ import annotations

import json

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from tests.admin_fixtures import RunTool
from tests.unit.admin.test_admin_groups import SCALA, scala_member
from zkconsumer.admin.coordinator_group_snapshot import CoordinatorGroupSnapshot
from zkconsumer.admin.group_members import assignment_text, coordinator_member_rows, group_state_rows
from zkconsumer.kafka.coordinator_groups import CoordinatorGroup, CoordinatorGroupMember
from zkconsumer.types import TopicPartition

IDLE = "g1_idle"


@pytest.fixture
def world(world: FakeEnvironment) -> FakeEnvironment:
    world.create_topic("clicks", 2)
    world.create_topic("views", 1)
    scala_member(world, SCALA, {"clicks": 1, "views": 1}, ("clicks/0", "clicks/1", "views/0"))
    scala_member(world, IDLE, {"clicks": 1})
    return world


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_members_and_how_many_partitions_each_owns(world: FakeEnvironment, tool: RunTool) -> None:
    result = tool("groups", "describe", "g1", "--members")
    assert (result.exit_code, result.stderr) == (0, "")
    assert lines(result.stdout) == [
        ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "KIND"],
        ["g1", SCALA, "host", "-", "3", "scala"],
        ["g1", IDLE, "-", "-", "0", "?"],
    ]


def test_verbose_shows_which_partitions(world: FakeEnvironment, tool: RunTool) -> None:
    result = tool("groups", "describe", "g1", "--members", "--verbose")
    assert result.stdout.splitlines()[0].split()[4:] == ["#PARTITIONS", "ASSIGNMENT", "KIND"]
    assert "clicks(0,1), views(0)" in result.stdout.splitlines()[1]
    assert result.stdout.splitlines()[2].split()[4:] == ["0", "-", "?"]


def test_state_has_a_line_for_each_store(world: FakeEnvironment, tool: RunTool) -> None:
    heads = ["GROUP", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS", "KIND"]
    assert lines(tool("groups", "describe", "g1", "--state").stdout) == [heads, ["g1", "-", "-", "2", "zookeeper"]]
    world.create_topic("__consumer_offsets", 1)
    world.cluster.set_coordinator_members("g1", True)
    found = lines(tool("groups", "describe", "g1", "--state").stdout)
    assert [(row[2:], row[0]) for row in found[1:]] == [
        (["-", "2", "zookeeper"], "g1"), (["Stable", "1", "coordinator"], "g1"),
    ]  # fmt: skip


def test_a_group_without_members_says_so(world: FakeEnvironment, tool: RunTool) -> None:
    world.zookeeper.ensure("/consumers/empty/offsets/clicks/0", b"3")
    result = tool("groups", "describe", "empty", "--members")
    assert (len(result.stdout.splitlines()), result.stderr) == (1, "The group has no members.\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--verbose"], "--verbose needs --members"),
        (["--state", "--verbose"], "--verbose needs --members"),
        (["--members", "--topic", "clicks"], "--members shows the whole group; give it without --topic"),
    ],
)
def test_options_that_do_not_belong_together(
    world: FakeEnvironment, tool: RunTool, words: list[str], error: str
) -> None:
    result = tool("groups", "describe", "g1", *words)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"zkconsumer: {error}")


def test_json_is_the_same_with_every_view(world: FakeEnvironment, tool: RunTool) -> None:
    documents = [json.loads(tool("groups", "describe", "g1", "-o", "json", *more).stdout) for more in ([], ["--state"])]
    assert [each["consumer_id"] for each in documents[1]["members"]] == [SCALA, IDLE]
    assert documents[0]["members"] == documents[1]["members"]


def coordinated(*members: CoordinatorGroupMember) -> CoordinatorGroupSnapshot:
    return CoordinatorGroupSnapshot("g", CoordinatorGroup("Stable", members=members), {}, {})


def test_the_members_of_a_coordinator_are_sorted_and_have_client_ids() -> None:
    partitions = (TopicPartition("t", 1), TopicPartition("t", 0))
    found = coordinated(
        CoordinatorGroupMember("m-2", "c2", "/h"), CoordinatorGroupMember("m-1", "c1", "/h", partitions=partitions)
    )
    first, second = coordinator_member_rows(found)
    assert first.verbose_cells == ("g", "m-1", "/h", "c1", 2, "t(0,1)", "coordinator")
    assert second.cells == ("g", "m-2", "/h", "c2", 0, "coordinator")


def test_members_that_the_broker_does_not_name_are_not_counted_as_none() -> None:
    (row,) = group_state_rows(None, coordinated())
    assert row.cells[2:] == ("Stable", "?", "coordinator")


def test_an_assignment_is_sorted_by_number() -> None:
    assert assignment_text([TopicPartition("t", 10), TopicPartition("t", 9), TopicPartition("a", 0)]) == "a(0), t(9,10)"
    assert assignment_text([]) == ""
