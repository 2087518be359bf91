"""``zkconsumer groups delete``: who is spared, what goes, and who may come in between.

The first part is what ``DeleteConsumerGroupTest`` of the original (0.9 to 1.1) asks, on znodes in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import RunTool
from tests.in_memory_fixtures import MakeConnector
from zkconsumer.admin import delete_zookeeper_group as deleting
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.delete_zookeeper_group import execute_deletion, plan_group_deletion
from zkconsumer.errors import PreconditionFailed, UnavailableError
from zkconsumer.testing.fake_zookeeper import FakeZkStore
from zkconsumer.zk.requests import Create, DeleteOp, Multi, NoAuth, OtherError, Request
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.znode_formats import Authority, ControlRecord, format_control


def dead_group(world: FakeEnvironment, group: str, *topics: str, ids: bool = True, partitions: int = 2) -> None:
    """What a group leaves behind whose members have gone."""
    if ids:
        world.zookeeper.ensure(f"/consumers/{group}/ids")
    for topic in topics:
        world.zookeeper.ensure(f"/consumers/{group}/owners/{topic}")
        for partition in range(partitions):
            world.zookeeper.ensure(f"/consumers/{group}/offsets/{topic}/{partition}", b"7")


def join(world: FakeEnvironment, group: str) -> FakeZkStore:
    """Somebody registers, in a session of their own."""
    store = FakeZkStore(world.zookeeper)
    store.start(1_000)
    world.zookeeper.ensure(f"/consumers/{group}/ids")
    submit_and_wait(store, [Create(f"/consumers/{group}/ids/{group}_c", b"{}", ephemeral=True)], 1_000)
    return store


def nodes(world: FakeEnvironment, below: str) -> list[str]:
    return sorted(path for path in world.zookeeper.tree.dump() if path == below or path.startswith(f"{below}/"))


# --- the cases of the original ----------------------------------------------------------------------------------


def test_a_group_that_nobody_is_in_goes_and_the_others_stay(world: FakeEnvironment, tool: RunTool) -> None:
    dead_group(world, "gone", "t")
    dead_group(world, "other", "t")
    result = tool("groups", "delete", "gone", "--execute")
    assert (result.exit_code, result.stdout) == (
        0, "Deleted all consumer group information for group gone in zookeeper.\n",
    )  # fmt: skip
    assert nodes(world, "/consumers/gone") == []
    assert len(nodes(world, "/consumers/other")) == 8


def test_an_active_group_is_not_touched(world: FakeEnvironment, tool: RunTool) -> None:
    dead_group(world, "g", "t")
    join(world, "g")
    before = nodes(world, "/consumers/g")
    result = tool("groups", "delete", "g", "--execute")
    assert result.exit_code == 4
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "zkconsumer: Delete for group g failed because its consumers are still active.",
        f"Stop them first. Their hosts: zkconsumer groups describe g --zookeeper {ADDRESS}",
    ]
    assert nodes(world, "/consumers/g") == before


def test_the_only_topic_of_a_group_takes_the_group_with_it(world: FakeEnvironment, tool: RunTool) -> None:
    dead_group(world, "g", "t")
    result = tool("groups", "delete", "g", "--topic", "t", "--execute")
    assert "all consumer group information for group g" in result.stdout
    assert nodes(world, "/consumers/g") == []


def test_one_of_several_topics_takes_its_own_nodes_only(world: FakeEnvironment, tool: RunTool) -> None:
    dead_group(world, "g", "t", "u")
    result = tool("groups", "delete", "g", "--topic", "t", "--execute")
    assert result.stdout == "Deleted consumer group information for group g topic t in zookeeper.\n"
    assert nodes(world, "/consumers/g/offsets/t") == nodes(world, "/consumers/g/owners/t") == []
    assert len(nodes(world, "/consumers/g/offsets/u")) == 3
    assert nodes(world, "/consumers/g/ids") == ["/consumers/g/ids"]


def test_a_topic_of_an_active_group_is_not_touched(world: FakeEnvironment, tool: RunTool) -> None:
    dead_group(world, "g", "t", "u")
    join(world, "g")
    before = nodes(world, "/consumers")
    assert tool("groups", "delete", "g", "--topic", "t", "--execute").exit_code == 4
    assert nodes(world, "/consumers") == before


def test_a_topic_goes_from_every_inactive_group_and_active_ones_are_spared(
    world: FakeEnvironment, tool: RunTool
) -> None:
    dead_group(world, "one", "t")
    dead_group(world, "two", "t", "u")
    dead_group(world, "live", "t")
    dead_group(world, "else", "u")
    world.zookeeper.ensure("/consumers/bare/ids")  # without offsets: the original's run ends here
    join(world, "live")
    result = tool("groups", "delete", "--topic", "t", "--execute")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == (
        "Deleted consumer group information for all inactive consumer groups for topic t in zookeeper."
    )
    assert nodes(world, "/consumers/one") == []
    assert nodes(world, "/consumers/two/offsets/t") == []
    assert nodes(world, "/consumers/live/offsets/t") != []
    assert nodes(world, "/consumers/else/offsets/u") != []
    assert "live failed because its consumers are still active" in result.stderr


def test_a_topic_that_is_made_again_is_consumed_from_its_beginning(
    world: FakeEnvironment, tool: RunTool, connect: MakeConnector
) -> None:
    dead_group(world, "g1", "t", partitions=1)
    assert tool("groups", "delete", "--topic", "t", "--execute").exit_code == 0
    world.create_topic("t", 1)
    world.cluster.append("t", 0, [b"first"])
    [stream] = connect().create_message_streams({"t": 1})["t"]
    assert next(stream.iterator()).offset == 0


# --- better than the original -----------------------------------------------------------------------------------


def test_a_topic_with_offsets_alone_keeps_the_group_alive(world: FakeEnvironment, tool: RunTool) -> None:
    dead_group(world, "g", "t")
    world.zookeeper.ensure("/consumers/g/offsets/committed-only/0", b"99")
    tool("groups", "delete", "g", "--topic", "t", "--execute")
    assert world.zookeeper.data("/consumers/g/offsets/committed-only/0") == b"99"


def test_without_execute_it_says_what_would_go_and_changes_nothing(world: FakeEnvironment, tool: RunTool) -> None:
    dead_group(world, "g", "t")
    before = nodes(world, "/consumers")
    result = tool("groups", "delete", "g")
    assert result.exit_code == 3
    assert result.stdout.splitlines()[1].split()[:4] == ["g", "(all)", "would", "delete"]
    assert "--execute" in result.stderr
    assert nodes(world, "/consumers") == before
    told = json.loads(tool("groups", "delete", "g", "-o", "json").stdout)
    assert (told["schema"], told["executed"]) == ("zkconsumer/groups-delete/1", False)
    assert told["groups"][0] | {"last_write_ms": 0} == {
        "group": "g", "topic": None, "status": "would delete", "reason": None, "znodes": 8, "last_write_ms": 0,
    }  # fmt: skip


def test_a_group_that_is_not_there_is_named_with_those_that_come_near(world: FakeEnvironment, tool: RunTool) -> None:
    dead_group(world, "orders", "t")
    result = tool("groups", "delete", "order", "--execute")
    assert result.exit_code == 1
    [error, near] = result.stderr.splitlines()
    assert error.startswith("zkconsumer: The consumer group 'order' does not exist in ZooKeeper, and this command ")
    assert "with --bootstrap-server HOST:PORT instead of --zookeeper" in error
    assert error.endswith(f"The existing groups: zkconsumer groups list --zookeeper {ADDRESS}")
    assert near == "Similar names: orders"


@pytest.mark.parametrize(
    ("control", "why"),
    [
        (b"{}", "cannot be read"),
        (format_control(ControlRecord("m1", 3, "switched", "kafka", "copy")), "the group is migrating (switched)"),
        (
            format_control(ControlRecord("m1", 3, "a word of later", "zookeeper", "copy")),
            "the group is migrating (a word of later)",
        ),
    ],
)
def test_a_migrating_group_is_rejected(world: FakeEnvironment, tool: RunTool, control: bytes, why: str) -> None:
    dead_group(world, "g", "t")
    world.zookeeper.ensure("/zkconsumer/groups/g", control)
    result = tool("groups", "delete", "g", "--execute")
    assert result.exit_code == 4
    assert why in result.stderr
    assert nodes(world, "/consumers/g") != []
    [told] = json.loads(tool("groups", "delete", "g", "--execute", "-o", "json").stdout)["groups"]
    assert told["status"] == "migrating"
    assert why in told["reason"]


@pytest.mark.parametrize(("phase", "authority"), [("completed", "kafka"), ("undone", "zookeeper")])
def test_what_a_group_left_that_moved_goes_and_what_says_so_stays(
    world: FakeEnvironment, tool: RunTool, phase: str, authority: Authority
) -> None:
    dead_group(world, "g", "t")
    control = format_control(ControlRecord("m1", 3, phase, authority, "copy"))
    world.zookeeper.ensure("/zkconsumer/groups/g", control)
    assert tool("groups", "delete", "g", "--execute").exit_code == 0
    assert nodes(world, "/consumers/g") == []
    assert world.zookeeper.data("/zkconsumer/groups/g") == control


def test_some_deleted_and_some_rejected_is_partial(world: FakeEnvironment, tool: RunTool) -> None:
    dead_group(world, "a", "t")
    dead_group(world, "b", "t")
    join(world, "b")
    assert tool("groups", "delete", "a", "b", "--execute").exit_code == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to delete is named"),
        (["g", "--stale"], "finds its groups itself"),
        (["g", "--older-than", "7d"], "needs --stale"),
        (["--stale", "--older-than", "a week"], "write 7d"),
        (["g", "g"], "twice"),
    ],
)
def test_a_wrong_call_is_refused(tool: RunTool, words: list[str], said: str) -> None:
    result = tool("groups", "delete", *words)
    assert result.exit_code == 2
    assert said in result.stderr


# --- who comes in between ---------------------------------------------------------------------------------------


@pytest.fixture(params=["one multi", "fenced"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both ways to delete; a small limit sends even a small group the second way."""
    if request.param == "fenced":
        monkeypatch.setattr(deleting, "NODES_PER_MULTI_MAX", 3)
    return request.param


@pytest.mark.parametrize("topic", [None, "t"])
def test_both_ways_leave_the_same(world: FakeEnvironment, admin: AdminSession, way: str, topic: str | None) -> None:
    dead_group(world, "g", "t", "u", partitions=9)
    assert execute_deletion(admin, plan_group_deletion(admin, "g", topic)).status == "deleted"
    left = nodes(world, "/consumers/g")
    if topic is None:
        assert left == []
    else:
        assert nodes(world, "/consumers/g/offsets") == [
            "/consumers/g/offsets", "/consumers/g/offsets/u", *(f"/consumers/g/offsets/u/{n}" for n in range(9)),
        ]  # fmt: skip
        assert nodes(world, "/consumers/g/owners") == ["/consumers/g/owners", "/consumers/g/owners/u"]
        assert nodes(world, "/consumers/g/ids") == ["/consumers/g/ids"], "it is back, for whoever joins next"
        join(world, "g")
        assert nodes(world, "/consumers/g/ids") == ["/consumers/g/ids", "/consumers/g/ids/g_c"]


@pytest.mark.parametrize("topic", [None, "t"])
@pytest.mark.parametrize("ids", [True, False])
def test_who_joined_after_the_plan_keeps_everything(
    world: FakeEnvironment, admin: AdminSession, way: str, topic: str | None, ids: bool
) -> None:
    dead_group(world, "g", "t", "u", ids=ids)
    target = plan_group_deletion(admin, "g", topic)
    join(world, "g")
    before = nodes(world, "/consumers/g")
    with pytest.raises(PreconditionFailed, match="1 member is registered"):
        execute_deletion(admin, target)
    assert nodes(world, "/consumers/g") == before


def test_an_offset_that_appears_after_the_plan_is_deleted_too(
    world: FakeEnvironment, admin: AdminSession, way: str
) -> None:
    dead_group(world, "g", "t")
    target = plan_group_deletion(admin, "g")
    world.zookeeper.ensure("/consumers/g/offsets/t/77", b"1")
    if way == "fenced":
        with pytest.raises(UnavailableError, match="Run it again"):
            execute_deletion(admin, target)
        target = plan_group_deletion(admin, "g")
    execute_deletion(admin, target)
    assert nodes(world, "/consumers/g") == []


def test_a_node_that_went_by_itself_does_not_stop_it(world: FakeEnvironment, admin: AdminSession, way: str) -> None:
    dead_group(world, "g", "t")
    target = plan_group_deletion(admin, "g")
    world.zookeeper.remove("/consumers/g/offsets/t/1")
    assert execute_deletion(admin, target).status == "deleted"
    assert nodes(world, "/consumers/g") == []


def test_nobody_can_register_while_many_nodes_are_deleted(
    world: FakeEnvironment, admin: AdminSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "NODES_PER_MULTI_MAX", 3)
    dead_group(world, "g", "t", partitions=9)
    other = FakeZkStore(world.zookeeper)
    other.start(1_000)
    answers: list[object] = []

    def in_the_middle(request: Request) -> bool:
        is_first = isinstance(request, Multi) and any(
            isinstance(op, DeleteOp) and op.path.endswith("/t/0") for op in request.ops
        )
        if is_first and not answers:
            answers.append(None)
            other.submit(None, [Create("/consumers/g/ids/g_late", b"{}", ephemeral=True)], answers.extend)
        return False

    world.zookeeper.fail_next(in_the_middle, NoAuth)
    assert execute_deletion(admin, plan_group_deletion(admin, "g")).status == "deleted"
    [_, refused] = answers
    assert isinstance(refused, OtherError)
    assert refused.name == "NoChildrenForEphemerals"


def test_a_fence_that_went_with_its_session_stops_the_deletion(
    world: FakeEnvironment, admin: AdminSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "NODES_PER_MULTI_MAX", 3)
    dead_group(world, "g", "t", partitions=9)
    fenced = deleting._delete_some

    def lose_the_fence(*given: object) -> object:
        world.zookeeper.expire(world.stores[-1])
        join(world, "g")
        return fenced(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(deleting, "_delete_some", lose_the_fence)
    with pytest.raises(UnavailableError, match="stopped in the middle"):
        execute_deletion(admin, plan_group_deletion(admin, "g"))
    assert "/consumers/g/ids/g_c" in nodes(world, "/consumers/g")
    assert len(nodes(world, "/consumers/g/offsets/t")) == 10


def test_a_missing_right_is_named_and_nothing_goes(world: FakeEnvironment, admin: AdminSession, way: str) -> None:
    dead_group(world, "g", "t")
    target = plan_group_deletion(admin, "g")
    before = nodes(world, "/consumers/g")
    world.zookeeper.set_acl("/consumers/g", ())
    with pytest.raises((PreconditionFailed, UnavailableError), match="NoAuth"):
        execute_deletion(admin, target)
    assert nodes(world, "/consumers/g") == before


def test_what_was_deleted_before_zookeeper_failed_is_named(world: FakeEnvironment, tool: RunTool) -> None:
    for group in ("a", "b", "c"):
        dead_group(world, group, "t")

    def deletes_b(request: Request) -> bool:
        return isinstance(request, Multi) and any(op.path.startswith("/consumers/b") for op in request.ops)

    world.zookeeper.fail_next(deletes_b, NoAuth)
    result = tool("groups", "delete", "a", "b", "c", "--execute", "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["exit_code"]) == (6, 6)
    assert "run it again. Before that was deleted: a; leave it out then\n" in result.stderr
    assert [len(nodes(world, f"/consumers/{group}")) for group in ("a", "b", "c")] == [0, 8, 8]
    assert tool("groups", "delete", "b", "c", "--execute").exit_code == 0


# --- stale console groups ---------------------------------------------------------------------------------------


def test_a_stale_console_group_goes_when_it_is_old_and_nobody_is_in_it(world: FakeEnvironment, tool: RunTool) -> None:
    dead_group(world, "console-consumer-12345", "t")
    dead_group(world, "console-consumer-7", "t")
    dead_group(world, "console-consumer-mine", "t")
    dead_group(world, "console-consumer-123456", "t")
    join(world, "console-consumer-7")
    result = tool("groups", "delete", "--stale", "--execute")
    assert (result.exit_code, result.stdout) == (
        0, "Deleted all consumer group information for group console-consumer-12345 in zookeeper.\n",
    )  # fmt: skip
    assert "console-consumer-7 failed because its consumers are still active" in result.stderr
    for left in ("console-consumer-7", "console-consumer-mine", "console-consumer-123456"):
        assert nodes(world, f"/consumers/{left}/offsets/t") != []


def test_a_young_console_group_is_left_alone(world: FakeEnvironment, tool: RunTool) -> None:
    dead_group(world, "console-consumer-1", "t")
    result = tool("groups", "delete", "--stale", "--older-than", "9999d", "--execute")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "was written to" in result.stderr
    assert nodes(world, "/consumers/console-consumer-1") != []
    assert "nothing to delete" in tool("groups", "delete", "--topic", "no-such").stderr
