"""``zkconsumer groups`` and the groups that brokers coordinate: in the same table, with and without ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from bridge.testing.embedded_broker import EmbeddedBroker
from bridge.testing.fake_environment import FakeEnvironment
from tests.admin_fixtures import RunTool, join, put
from tests.interop.probe.member import Member
from tests.interop.probe.probed_broker import Probe, Server
from zkconsumer.cli.main import main
from zkconsumer.types import TopicPartition
from zkconsumer.wire import consumer_protocol

GROUP = "modern-one"
RELEASES = ("0.9.0.1", "1.1.1", "3.9.1", "4.1.1")

pytestmark = pytest.mark.usefixtures("short_silence")


@pytest.fixture(params=RELEASES)
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """Two nodes, and a topic of three partitions with ten records each."""
    with EmbeddedBroker(release=request.param, nodes=2) as made:
        made.create_topic("clicks", 3)
        for partition in range(3):
            made.append("clicks", partition, [b"x"] * 10)
        yield made


def run(broker: EmbeddedBroker, *words: str) -> Result:
    """The command, with the address of one of the two brokers."""
    return CliRunner().invoke(main, [*words, "--bootstrap-server", broker.bootstrap.partition(",")[0]])


def rows(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()[1:]]


def probe_of(broker: EmbeddedBroker, group: str) -> Probe:
    """A probe at the coordinator of the group."""
    release = broker.run_on_broker_thread(lambda cluster: cluster.nodes[0].release.name)
    asked = Probe(Server(release, *_first(broker), "clicks", is_kraft=True, is_real=False), group)
    asked.until(lambda: asked.find_coordinator()[0] == 0, "there is a coordinator")
    _, host, port = asked.find_coordinator()
    asked.close()
    return Probe(Server(release, host, port, "clicks", is_kraft=True, is_real=False), group)


def _first(broker: EmbeddedBroker) -> tuple[str, int]:
    return broker.addresses()[0].host, broker.addresses()[0].port


def stable(probe: Probe, *shares: tuple[int, ...]) -> list[Member]:
    """A consumer group whose members have these partitions of clicks."""
    reads = consumer_protocol.encode_subscription(consumer_protocol.Subscription(topics=("clicks",)), 0)
    members: list[Member] = []
    for _ in shares:
        probe.grow(members, probe.member(protocols=[("range", reads)]))
    members[0].enter()
    probe.rejoin(members[1:])
    for each in members:
        each.joined()
    given = {
        each.member_id: consumer_protocol.encode_assignment(
            consumer_protocol.Assignment(tuple(TopicPartition("clicks", number) for number in share)), 0
        )
        for each, share in zip(members, shares, strict=True)
    }
    leader = next(each for each in members if each.is_leader)
    for each in members:
        each.sync_later(given if each is leader else {})
    for each in members:
        assert each.synced().error_code == 0
    probe.wait_state("Stable")
    return members


def test_groups_of_all_brokers_are_listed_with_their_state(broker: EmbeddedBroker) -> None:
    probes = [probe_of(broker, f"{GROUP}-{number}") for number in range(6)]
    try:
        for probe in probes:
            stable(probe, (0, 1, 2))
        assert len({(probe.server.host, probe.server.port) for probe in probes}) == 2, "both brokers coordinate"
        assert rows(run(broker, "groups", "list")) == [
            [f"{GROUP}-{number}", "coordinator", "1", "clicks", "-", "Stable"] for number in range(6)
        ]
    finally:
        for probe in probes:
            probe.close()


def test_a_group_is_described_with_members_and_lag(broker: EmbeddedBroker) -> None:
    probe = probe_of(broker, GROUP)
    try:
        first, second, idle = stable(probe, (0, 1), (2,), ())
        assert first.commit(4) == 0
        result = run(broker, "groups", "describe", GROUP)
        told = [row[:9] for row in rows(result)]
        who = {each.member_id for each in (first, second, idle)}
        assert [row[1:6] for row in told] == [
            ["clicks", "0", "4", "10", "6"],
            ["clicks", "1", "-", "10", "-"],
            ["clicks", "2", "-", "10", "-"],
            ["clicks", "-", "-", "-", "-"],
        ]
        assert [row[6] for row in told] == [first.member_id, first.member_id, second.member_id, idle.member_id]
        assert {row[6] for row in told} == who
        assert {(row[7], row[8]) for row in told} == {("/127.0.0.1", "probe")}
        assert f"the coordinator group {GROUP} is Stable, with 3 members" in result.stderr
    finally:
        probe.close()


def test_a_group_as_json_has_its_members_and_their_assignments(broker: EmbeddedBroker) -> None:
    probe = probe_of(broker, GROUP)
    try:
        [member] = stable(probe, (0, 2))
        told = json.loads(run(broker, "groups", "describe", GROUP, "-o", "json").stdout)
        assert (told["active"], told["authority"], told["coordinator_group"]["state"]) == (True, "kafka", "Stable")
        [one] = told["coordinator_group"]["members"]
        assert (one["member_id"], one["topics"], one["partitions"]) == (
            member.member_id, ["clicks"], ["clicks/0", "clicks/2"],
        )  # fmt: skip
        assert [row["owner_kind"] for row in told["rows"]] == ["coordinator", "coordinator"]
    finally:
        probe.close()


def test_a_member_with_unreadable_bytes_is_named(broker: EmbeddedBroker) -> None:
    probe = probe_of(broker, GROUP)
    try:
        [member] = probe.stable(1)  # with an assignment that is no ConsumerProtocol
        probe.wait_state("Stable")
        result = run(broker, "groups", "describe", GROUP)
        assert result.exit_code == 0
        assert f"{member.member_id}: " in result.stderr
    finally:
        probe.close()


def test_a_request_for_an_unknown_group_creates_nothing(broker: EmbeddedBroker) -> None:
    result = run(broker, "groups", "describe", "nobody")
    assert result.exit_code == 1
    assert "The consumer group 'nobody' does not exist" in result.stderr
    assert broker.coordinator("nobody") is None, "there is still no topic of offsets"
    assert rows(run(broker, "groups", "list")) == []


def test_brokers_that_are_not_there_are_an_error_and_no_empty_list() -> None:
    where = ["--bootstrap-server", "127.0.0.1:1"]
    result = CliRunner().invoke(main, ["groups", "list", *where])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("zkconsumer: coordinator groups are not known: none of 1 brokers answers")
    told = json.loads(CliRunner().invoke(main, ["groups", "list", "-o", "json", *where]).stdout)
    assert (told["groups"], told["exit_code"]) == (None, 1)
    assert told["not_known"]
    for words in (["groups", "describe", "g"], ["lag", "g"], ["groups", "delete", "g"]):
        result = CliRunner().invoke(main, [*words, *where])
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("zkconsumer: whether there is a group g is not known: ")
    result = CliRunner().invoke(main, ["offsets", "export", "--all", *where])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("zkconsumer: coordinator groups are not known: ")


# --- beside groups of ZooKeeper ---------------------------------------------------------------------------------


def test_both_kinds_are_in_one_table(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 1)
    put(world, {0: 1}, group="old")
    join(world, group="both")
    world.cluster.set_coordinator_members("both", True)
    world.cluster.set_coordinator_members("new", True)
    listed = rows(tool("groups", "list"))
    assert [(row[0], row[1], row[2], row[-1]) for row in listed] == [
        ("both", "-", "1", "-"), ("both", "coordinator", "1", "Stable"), ("new", "coordinator", "1", "Stable"),
        ("old", "-", "0", "-"),
    ]  # fmt: skip
    assert [row[0] for row in rows(tool("groups", "list", "--empty"))] == ["old"]


def test_offsets_that_an_old_group_has_in_kafka_are_no_second_group(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 1)
    put(world, {0: 1}, group="old")
    world.cluster.commit("old", "clicks", 0, 5)
    world.cluster.commit("elsewhere", "clicks", 0, 5)
    assert [row[:2] for row in rows(tool("groups", "list"))] == [["elsewhere", "coordinator"], ["old", "-"]]


def test_modern_members_of_an_old_groups_name_are_described_with_it(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 1)
    world.create_topic("__consumer_offsets", 1)
    put(world, {0: 1}, group="both")
    world.cluster.set_coordinator_members("both", True)
    result = tool("groups", "describe", "both")
    assert result.exit_code == 0
    assert [line.split()[1] for line in result.stdout.splitlines()[1:]] == ["clicks", "-"]
    assert "the coordinator group both is Stable, with 1 member" in result.stderr


def test_the_lag_of_a_group_that_zookeeper_does_not_have_is_the_coordinators(
    world: FakeEnvironment, tool: RunTool
) -> None:
    world.create_topic("clicks", 1)
    world.create_topic("__consumer_offsets", 1)
    world.cluster.append("clicks", 0, [b"x"] * 10)
    put(world, {0: 1}, group="both")
    for group in ("both", "new"):
        world.cluster.commit(group, "clicks", 0, 5)
    assert [tool("lag", group).stdout.splitlines()[-1] for group in ("both", "new")] == ["TOTAL 9", "TOTAL 5"]
    result = tool("lag", "nobody")
    assert result.exit_code == 1
    assert result.stderr.startswith("zkconsumer: The consumer group 'nobody' does not exist. The existing ")
