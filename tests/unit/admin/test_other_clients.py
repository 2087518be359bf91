"""Groups of other clients, byte for byte.

kafka-node 2.6.1 and pykafka 2.8.0: as they wrote them on real servers.  kafka-spark-consumer from 1.0.10 on, Secor: as
their sources write them (``PartitionManager``, ``ProcessedOffsetManager``; ``ZookeeperConnector``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from tests.admin_fixtures import RunTool
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.zk.member_registration import is_pykafka_registration, parse_registration
from zkconsumer.zk.requests import Create
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.znode_formats import consumer_of

NODE_ID = "g1_5f0b23ac-218c-482b-bb34-99d152ec47c6"
NODE_REGISTRATION = b'{"version":1,"subscription":{"clicks": 1},"pattern":"white_list","timestamp":"1795846807168"}'
NODE_OF_TWO_TOPICS = (
    b'{"version":1,"subscription":{"clicks": 1, "views": 1},"pattern":"white_list","timestamp":"1795846807168"}'
)
PYKAFKA_ID = "vm:8dba9e51-f4b9-4e81-b186-a4320d670e55"


def write_ephemeral(world: FakeEnvironment, nodes: dict[str, bytes]) -> None:
    """Nodes of one session below ``/consumers/g1``."""
    store = FakeZkStore(world.zookeeper)
    store.start(1_000)
    for path in nodes:
        world.zookeeper.ensure(f"/consumers/g1/{path}".rpartition("/")[0])
    submit_and_wait(
        store, [Create(f"/consumers/g1/{path}", data, ephemeral=True) for path, data in nodes.items()], 1_000
    )


@pytest.fixture
def clicks(world: FakeEnvironment) -> FakeEnvironment:
    """A topic of four partitions with ten records each."""
    world.create_topic("clicks", 4)
    for partition in range(4):
        world.cluster.append("clicks", partition, [b"x"] * 10)
    return world


def document(tool: RunTool, *words: str) -> Any:
    return json.loads(tool(*words, "-o", "json").stdout)


def findings(tool: RunTool) -> dict[str, Any]:
    found = document(tool, "groups", "doctor", "g1", "--interval", "0")["findings"]
    return {each["name"]: each for each in found}


def fill_node_group(world: FakeEnvironment, member: str = NODE_ID, offset: int = 7) -> None:
    owners = {f"owners/clicks/{partition}": member.encode() for partition in range(4)}
    write_ephemeral(world, {f"ids/{member}": NODE_REGISTRATION, **owners})
    for partition in range(4):
        world.zookeeper.ensure(f"/consumers/g1/offsets/clicks/{partition}", str(offset).encode())


# --- kafka-node -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("member", [NODE_ID, "worker-1"], ids=["generated id", "id that ends like a thread"])
def test_a_member_of_kafka_node_owns_partitions_by_its_id_alone(
    clicks: FakeEnvironment, tool: RunTool, member: str
) -> None:
    fill_node_group(clicks, member)
    rows = document(tool, "groups", "describe", "g1")["rows"]
    assert [(row["partition"], row["consumer_id"], row["lag"]) for row in rows] == [(p, member, 3) for p in range(4)]


def test_its_kind_is_another_program(clicks: FakeEnvironment, tool: RunTool) -> None:
    fill_node_group(clicks)
    assert {row["owner_kind"] for row in document(tool, "groups", "describe", "g1")["rows"]} == {"foreign"}
    assert [group["kind"] for group in document(tool, "groups", "list")["groups"]] == ["foreign"]


def test_the_doctor_finds_nothing_wrong_with_it(clicks: FakeEnvironment, tool: RunTool) -> None:
    fill_node_group(clicks, offset=10)
    assert findings(tool) == {}


def test_an_owner_of_kafka_node_without_its_registration_is_found(clicks: FakeEnvironment, tool: RunTool) -> None:
    write_ephemeral(clicks, {"owners/clicks/0": NODE_ID.encode()})
    assert NODE_ID in str(findings(tool)["owner-without-member"]["evidence"])


def test_a_migration_of_its_group_is_planned(clicks: FakeEnvironment, tool: RunTool, tmp_path: Path) -> None:
    fill_node_group(clicks)
    plan = tool("migrate", "plan", "g1", "-f", str(tmp_path / "plan"), "--offset-convention", "next")
    assert plan.exit_code == 0, plan.output
    assert f"1 member is registered ({NODE_ID}): apply waits" in plan.output
    assert "Assignment in use: range" in plan.output


def test_of_a_subscription_to_two_topics_every_other_client_reads_the_first() -> None:
    # Kafka's releases read one expression of a list, so another member assigns "views" without this one.
    assert parse_registration(NODE_OF_TWO_TOPICS).subscription == {"clicks": 1}


@pytest.mark.parametrize(
    ("thread", "consumer"),
    [
        ("g1_host-1416246370000-5dad1f2a-0", "g1_host-1416246370000-5dad1f2a"),
        ("g1_a-b-12", "g1_a-b"),
        (NODE_ID, NODE_ID),
        ("g1_00000000-0000-4000-8000-123456789012", "g1_00000000-0000-4000-8000-123456789012"),
        ("g1_a\n-3", "g1_a\n"),
        ("-", "-"),
    ],
)
def test_the_consumer_of_a_thread(thread: str, consumer: str) -> None:
    assert consumer_of(thread) == consumer


# --- pykafka ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["b'clicks'", "clicks"], ids=["Python 3", "Python 2"])
def test_a_member_of_pykafka_is_named(clicks: FakeEnvironment, tool: RunTool, folder: str) -> None:
    owners = {f"owners/{folder}/0-{partition}": PYKAFKA_ID.encode() for partition in range(4)}
    write_ephemeral(clicks, {f"ids/{PYKAFKA_ID}": b"clicks", **owners})
    found = findings(tool)
    assert set(found) == {"registration-of-pykafka", "unexpected-znode"}
    assert PYKAFKA_ID in found["registration-of-pykafka"]["description"]
    assert "stop all members of pykafka" in str(found["registration-of-pykafka"]["next_steps"])
    assert PYKAFKA_ID in tool("groups", "describe", "g1").stdout


@pytest.mark.parametrize(
    ("consumer_id", "data"),
    [(PYKAFKA_ID, NODE_REGISTRATION), ("g1_host-1416246370000-5dad1f2a", b"clicks"), (PYKAFKA_ID, b"")],
)
def test_other_registrations_are_not_taken_for_those_of_pykafka(consumer_id: str, data: bytes) -> None:
    assert not is_pykafka_registration(consumer_id, data)


# --- kafka-spark-consumer from 1.0.10 on --------------------------------------------------------------------------

RECEIVER = b'{"version":1,"subscription":{"clicks":1},"pattern":"static","timestamp":"1559800000000"}'


@pytest.fixture(params=["Receiver-0", "clicks/Receiver-0"], ids=["2.1", "1.0.10 to 2.0"])
def receivers(clicks: FakeEnvironment, request: pytest.FixtureRequest) -> FakeEnvironment:
    """The group ``g1`` of kafka-spark-consumer: persistent nodes, and the last offsets that were processed."""
    clicks.zookeeper.ensure(f"/consumers/g1/ids/{request.param}", RECEIVER)
    for partition in range(4):
        clicks.zookeeper.ensure(f"/consumers/g1/owners/clicks/{partition}", b"Receiver-0-0")
        clicks.zookeeper.ensure(f"/consumers/g1/offsets/clicks/{partition}", b"6")
    return clicks


def test_the_doctor_names_the_persistent_nodes_of_kafka_spark_consumer(
    receivers: FakeEnvironment, tool: RunTool
) -> None:
    assert {"registration-persistent", "owner-persistent"} <= set(findings(tool))


def test_its_last_offsets_become_the_next_ones_of_a_new_group(
    receivers: FakeEnvironment, tool: RunTool, tmp_path: Path
) -> None:
    file = str(tmp_path / "offsets.csv")
    assert tool("offsets", "export", "g1", "--format", "csv", "--file", file).exit_code == 0
    words = ("offsets", "import", file, "--offset-convention", "last", "--execute")
    refused = tool(*words, "--group", "g1")
    assert refused.exit_code == 4
    assert "group g1 is active" in refused.stderr

    done = tool(*words, "--group", "g2")
    assert done.exit_code == 0, done.output
    assert receivers.offsets("g2", "clicks") == dict.fromkeys(range(4), 7)
    assert receivers.offsets("g1", "clicks") == dict.fromkeys(range(4), 6)


# --- Secor ------------------------------------------------------------------------------------------------------


def test_the_offsets_of_secor_are_those_of_an_ordinary_group(clicks: FakeEnvironment, tool: RunTool) -> None:
    # ZookeeperConnector.setCommittedOffsetCount: the offset of the last record plus one, as text.  Its locks are not in
    # the group.
    clicks.zookeeper.ensure("/consumers/g1/offsets/clicks/0", b"7")
    clicks.zookeeper.ensure("/secor/locks/clicks/0")
    rows = document(tool, "groups", "describe", "g1", "--topic", "clicks")["rows"]
    assert (rows[0]["current_offset"], rows[0]["lag"]) == (7, 3)
