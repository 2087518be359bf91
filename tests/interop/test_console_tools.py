"""The console tools of Kafka itself against our broker: what they show and change is what members of a group see."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from bridge.testing.embedded_broker import EmbeddedBroker
from tests.interop.probe.member import Member, subscription_to
from tests.interop.probe.probed_broker import Probe, Server, wait_coordinating
from tests.sandbox_fixtures import require_releases
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.tools import ToolResult
from zkconsumer.types import TopicPartition
from zkconsumer.wire import consumer_protocol

TEST_TIMEOUT_S = 280
"""For a test with four tools, each of which may take 60 s (``TOOL_TIMEOUT_MS``): the only wall-clock bound here."""

SESSION_MS = 290_000
"""A member sends no heartbeat while a tool runs, and a JVM takes as long to start as the machine likes: so its session
outlasts the test.  Brokers of 1.1.1 grant 300 s at most (``group.max.session.timeout.ms``)."""

pytestmark = [pytest.mark.real, pytest.mark.timeout(TEST_TIMEOUT_S)]

TOPIC, RECORDS = "clicks", 20
OLD, NEW = "kafka.admin.ConsumerGroupCommand", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

Tool = Callable[..., ToolResult]


@dataclass(frozen=True)
class Tools:
    """The tools of one release, and the broker that emulates it."""

    release: str
    main: str
    jars: str


TOOLS = [
    pytest.param(Tools("3.9.1", NEW, "3.9.1-tools"), id="3.9.1"),
    pytest.param(Tools("4.1.1", NEW, "4.1.1-tools"), id="4.1.1", marks=pytest.mark.nightly),
    pytest.param(Tools("2.8.2", OLD, "2.8.2"), id="2.8.2", marks=pytest.mark.nightly),
    pytest.param(Tools("1.1.1", OLD, "1.1.1"), id="1.1.1", marks=pytest.mark.nightly),
]


@dataclass(frozen=True)
class Place:
    """A broker of ours with ten records in each of two partitions, and a way to ask it by Kafka's own tool."""

    broker: EmbeddedBroker
    server: Server
    tool: Tool

    def probe(self, group: str) -> Probe:
        return Probe(self.server, group)


@pytest.fixture(scope="module", params=TOOLS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    tools: Tools = request.param
    require_releases(tools.jars)
    with Sandbox() as sandbox, EmbeddedBroker(release=tools.release) as broker:
        broker.create_topic(TOPIC, 2)
        for partition in range(2):
            broker.append(TOPIC, partition, [b"x"] * RECORDS)
        [address] = broker.addresses()
        server = Server(tools.release, address.host, address.port, TOPIC, is_kraft=True, is_real=False)
        wait_coordinating(server)

        def tool(*words: str) -> ToolResult:
            return sandbox.run_tool(tools.jars, tools.main, ["--bootstrap-server", broker.bootstrap, *words])

        yield Place(broker, server, tool)


def rows(result: ToolResult, column: str) -> list[dict[str, str]]:
    """The lines of the table that has this column, by its heads."""
    lines = [line.split() for line in result.out.splitlines() if line.strip()]
    heads = next((line for line in lines if column in line), None)
    assert heads is not None, result
    start = lines.index(heads) + 1
    return [dict(zip(heads, line, strict=False)) for line in lines[start:]]


def reading(probe: Probe) -> Member:
    """A consumer that has everything, and has committed 7 in partition 0.

    Its session outlasts the JVM of a tool, however long that takes to start: see ``SESSION_MS``.
    """
    member = probe.member(protocols=[("range", subscription_to(TOPIC))], session_ms=SESSION_MS, rebalance_ms=SESSION_MS)
    member.join()
    share = consumer_protocol.Assignment((TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)))
    assert member.sync({member.member_id: consumer_protocol.encode_assignment(share, 0)}).error_code == 0
    assert member.commit(7) == 0
    probe.wait_state("Stable")
    return member


def test_a_living_group_is_described_with_its_lag_and_not_reset(place: Place) -> None:
    probe = place.probe("alive")
    try:
        member = reading(probe)
        told = {row["PARTITION"]: row for row in rows(place.tool("--describe", "--group", "alive"), "CURRENT-OFFSET")}
        assert (told["0"]["CURRENT-OFFSET"], told["0"]["LOG-END-OFFSET"], told["0"]["LAG"]) == ("7", "20", "13")
        assert told["0"]["CONSUMER-ID"] == told["1"]["CONSUMER-ID"] == member.member_id
        assert "alive" in place.tool("--list").out.split()
        refused = place.tool("--reset-offsets", "--group", "alive", "--topic", TOPIC, "--to-earliest", "--execute")
        assert "inactive" in refused.out + refused.err, refused
        assert probe.stored() == 7
        assert member.heartbeat() == 0
    finally:
        probe.close()


def test_offsets_of_an_empty_group_are_reset_and_the_group_deleted(place: Place) -> None:
    probe = place.probe("empty")
    try:
        member = reading(probe)
        assert member.leave() == 0
        probe.wait_state("Empty")
        done = place.tool("--reset-offsets", "--group", "empty", "--topic", TOPIC, "--to-offset", "3", "--execute")
        # The tool of 3.9.1 prints the whole table in one line; the one of 1.1.1 leaves the group out.
        told = re.findall(rf"(?:empty\s+)?{TOPIC}\s+([0-9]+)\s+([0-9]+)", done.out)
        assert dict(told) == {"0": "3", "1": "3"}, done
        assert {number: one.committed_offset for number, one in probe.fetch([0, 1]).items()} == {0: 3, 1: 3}
        latest = place.tool("--reset-offsets", "--group", "empty", "--all-topics", "--to-latest", "--execute")
        assert probe.stored() == RECORDS, latest
        deleted = place.tool("--delete", "--group", "empty")
        assert "successful" in deleted.out, deleted
        probe.wait_state("Dead")
        assert probe.stored() == -1
    finally:
        probe.close()


@pytest.mark.parametrize(
    ("client", "release"),
    [
        ("1.1.1", "3.9.1"),
        pytest.param("0.8.2.2", "1.1.1", marks=pytest.mark.nightly),
        pytest.param("0.10.2.2", "0.10.2.2", marks=pytest.mark.nightly),
        pytest.param("3.9.1", "4.1.1", marks=pytest.mark.nightly),
    ],
)
def test_a_console_producer_creates_its_topic_and_ends(client: str, release: str) -> None:
    """A broker that creates no topic costs it a minute for each line (``max.block.ms``), and then the line."""
    require_releases(client)
    with Sandbox() as sandbox, EmbeddedBroker(release=release) as broker:
        words = ["--broker-list", broker.bootstrap, "--topic", "fresh"]
        text = "".join(f"{number}\n" for number in range(10))
        done = sandbox.run_tool(client, "kafka.tools.ConsoleProducer", words, stdin=text)
        assert done.code == 0, done
        assert [record.value for record in broker.records("fresh", 0)] == [b"%d" % number for number in range(10)]
