"""The ways from other clients to this library, with the real clients: pykafka, kafka-python, kafka-node, MirrorMaker 1.

Each client reads and commits in its group, then ours continues in the same group, and where it can be done, both at the
same time.  The pages ``migration_docs/how-to/switch-from-*.md`` say what these tests show.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from tests.lab.other_client_members import (
    KAFKA_NODE,
    OLD_KAFKA_PYTHON,
    PYKAFKA,
    UNBALANCED_KAFKA_PYTHON,
    OtherClient,
    OtherClientMember,
    require_client,
)
from tests.lab.python_member import PythonMember
from tests.sandbox_fixtures import require_releases
from zkconsumer.cli.main import main
from zkconsumer.testing.sandbox import MemberProcess, Sandbox, wait_until
from zkconsumer.testing.sandbox.child_process import JavaCommand, JavaProcess, write_properties

pytestmark = [pytest.mark.real, pytest.mark.nightly, pytest.mark.timeout(400)]

PARTITIONS, RECORDS, MORE = 4, 10, 5
WAIT_MS = 60_000
GROUP, TOPIC = "billing", "clicks"


@pytest.fixture
def members() -> Iterator[list[MemberProcess]]:
    """The members of a test; what still runs at its end is killed."""
    made: list[MemberProcess] = []
    yield made
    for member in made:
        member.close()


@pytest.fixture
def cluster(sandbox: Sandbox) -> Sandbox:
    """ZooKeeper 3.8 and a broker 1.1.1 with a topic of ``RECORDS`` records in each partition."""
    require_releases("1.1.1")
    sandbox.start_zookeeper()
    sandbox.start_broker("1.1.1", chroot="/kafka")
    sandbox.create_topic(TOPIC, PARTITIONS)
    produce(sandbox, RECORDS)
    return sandbox


def produce(sandbox: Sandbox, count: int) -> None:
    for partition in range(PARTITIONS):
        sandbox.produce(TOPIC, partition, count)


def start_other(
    sandbox: Sandbox, client: OtherClient, members: list[MemberProcess], *more: str, wait: bool = True
) -> OtherClientMember:
    addresses = {
        PYKAFKA: [sandbox.brokers[0].address, sandbox.zookeeper_connect],
        OLD_KAFKA_PYTHON: [sandbox.brokers[0].address],
        UNBALANCED_KAFKA_PYTHON: [sandbox.brokers[0].address],
        KAFKA_NODE: [sandbox.zookeeper_connect],
    }
    member = OtherClientMember(
        sandbox, client, GROUP, f"{client.package}-{len(members)}", [*addresses[client], GROUP, TOPIC, *more]
    )
    members.append(member)
    member.start(wait=wait)
    return member


def start_ours(sandbox: Sandbox, members: list[MemberProcess], **settings: str) -> PythonMember:
    member = PythonMember(
        sandbox.zookeeper, GROUP, {TOPIC: 1}, chroot="/kafka", name=f"ours-{len(members)}", settings=settings
    )
    members.append(member)
    member.start()
    return member


def tool(sandbox: Sandbox, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--zookeeper", sandbox.zookeeper_connect])


def document(sandbox: Sandbox, *words: str) -> Any:
    return json.loads(tool(sandbox, *words, "-o", "json").stdout)


def findings(sandbox: Sandbox) -> set[str]:
    found = document(sandbox, "groups", "doctor", GROUP, "--interval", "0")["findings"]
    return {each["name"] for each in found}


def owners(sandbox: Sandbox) -> dict[int, str]:
    rows = document(sandbox, "groups", "describe", GROUP)["rows"]
    return {row["partition"]: row["consumer_id"] for row in rows if row["partition"] is not None and row["consumer_id"]}


def reads(first: int, last: int) -> dict[tuple[str, int], list[int]]:
    """The offsets of each partition from ``first`` to before ``last``, each once."""
    return {(TOPIC, partition): list(range(first, last)) for partition in range(PARTITIONS)}


def wait_offsets(sandbox: Sandbox, offset: int) -> None:
    """Until ZooKeeper has this offset for each partition."""
    expected = dict.fromkeys(range(PARTITIONS), offset)
    wait_until(lambda: sandbox.admin.offsets(GROUP, TOPIC) == expected, f"each offset is {offset}", WAIT_MS)


def read_as_kafka_python(address: str, count: int, group: str | None = GROUP) -> dict[tuple[str, int], list[int]]:
    """What a ``KafkaConsumer`` of today's kafka-python reads: as a member of the group, or without a group."""
    consumer = KafkaConsumer(
        bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    found: dict[tuple[str, int], list[int]] = {}

    def has_read_all() -> bool:
        for records in consumer.poll(500).values():
            for record in records:
                found.setdefault((record.topic, record.partition), []).append(record.offset)
        return sum(map(len, found.values())) >= count

    try:
        if group is None:
            consumer.assign([KafkaPythonPartition(TOPIC, partition) for partition in range(PARTITIONS)])
        else:
            consumer.subscribe([TOPIC])
        wait_until(has_read_all, f"kafka-python reads {count} records", WAIT_MS)
    finally:
        consumer.close()
    return found


# --- pykafka ----------------------------------------------------------------------------------------------------


def test_ours_continues_a_group_of_pykafka_from_its_offsets_in_kafka(
    cluster: Sandbox, members: list[MemberProcess]
) -> None:
    require_client(PYKAFKA)
    other = start_other(cluster, PYKAFKA, members)
    other.wait_delivered(PARTITIONS * RECORDS)
    other.commit()
    [registered] = cluster.admin.members(GROUP)
    assert cluster.admin.get(f"/consumers/{GROUP}/ids/{registered}") == TOPIC.encode()
    # In Python 3 the name of the folder has the b'' of the text of bytes; in Python 2 it is the topic.
    assert cluster.admin.get(f"/consumers/{GROUP}/owners/b'{TOPIC}'/0-0") == registered.encode()
    assert cluster.admin.offsets(GROUP, TOPIC) == {}
    assert findings(cluster) == {"registration-of-pykafka", "unexpected-znode"}

    assert other.stop()
    assert findings(cluster) == {"unexpected-znode"}
    produce(cluster, MORE)
    ours = start_ours(cluster, members, **{"offsets.storage": "kafka"})
    ours.wait_delivered(PARTITIONS * MORE)
    assert ours.offsets() == reads(RECORDS, RECORDS + MORE)


def test_a_coordinator_group_continues_a_group_of_pykafka_without_a_migration(
    cluster: Sandbox, members: list[MemberProcess]
) -> None:
    require_client(PYKAFKA)
    other = start_other(cluster, PYKAFKA, members)
    other.wait_delivered(PARTITIONS * RECORDS)
    other.commit()
    assert other.stop()
    produce(cluster, MORE)
    assert read_as_kafka_python(cluster.bootstrap, PARTITIONS * MORE) == reads(RECORDS, RECORDS + MORE)


def test_pykafka_and_ours_at_the_same_time_read_each_record_twice(
    cluster: Sandbox, members: list[MemberProcess]
) -> None:
    require_client(PYKAFKA)
    other = start_other(cluster, PYKAFKA, members)
    other.wait_delivered(PARTITIONS * RECORDS)
    other.commit()
    ours = start_ours(cluster, members, **{"offsets.storage": "kafka"})
    assert ours.log_lines("registration-ignored")
    produce(cluster, MORE)
    ours.wait_delivered(PARTITIONS * MORE)
    other.wait_delivered(PARTITIONS * (RECORDS + MORE))
    assert ours.offsets() == reads(RECORDS, RECORDS + MORE)
    assert other.offsets() == reads(0, RECORDS + MORE)
    assert "registration-of-pykafka" in findings(cluster)


# --- kafka-node -------------------------------------------------------------------------------------------------


def test_kafka_node_and_ours_are_members_of_one_group(cluster: Sandbox, members: list[MemberProcess]) -> None:
    require_client(KAFKA_NODE)
    other = start_other(cluster, KAFKA_NODE, members)
    other.wait_delivered(PARTITIONS * RECORDS)
    wait_offsets(cluster, RECORDS)
    assert other.consumer_id is not None
    assert cluster.admin.owners(GROUP, TOPIC) == dict.fromkeys(range(PARTITIONS), other.consumer_id)
    assert findings(cluster) == set()

    ours = start_ours(cluster, members)
    assert ours.consumer_id is not None
    half = {0: other.consumer_id, 1: other.consumer_id, 2: ours.consumer_id, 3: ours.consumer_id}
    wait_until(lambda: owners(cluster) == half, "each owns two partitions", WAIT_MS)
    produce(cluster, MORE)
    ours.wait_delivered(2 * MORE)
    other.wait_delivered(PARTITIONS * RECORDS + 2 * MORE)
    wait_offsets(cluster, RECORDS + MORE)
    assert findings(cluster) == set()

    assert other.stop()
    wait_until(lambda: set(owners(cluster).values()) == {ours.consumer_id}, "ours owns all partitions", WAIT_MS)
    produce(cluster, MORE)
    ours.wait_delivered(2 * MORE + PARTITIONS * MORE)
    read = {tp: sorted(other.offsets().get(tp, []) + ours.offsets().get(tp, [])) for tp in reads(0, 0)}
    assert read == reads(0, RECORDS + 2 * MORE)

    # And back: kafka-node continues after ours.
    assert ours.stop()
    again = start_other(cluster, KAFKA_NODE, members)
    produce(cluster, MORE)
    again.wait_delivered(PARTITIONS * MORE)
    assert again.offsets() == reads(RECORDS + 2 * MORE, RECORDS + 3 * MORE)


def test_no_record_is_lost_when_members_of_kafka_node_are_stopped_under_load(
    cluster: Sandbox, members: list[MemberProcess]
) -> None:
    require_client(KAFKA_NODE)
    others = [start_other(cluster, KAFKA_NODE, members) for _ in range(2)]
    sent = RECORDS

    def produce_until(condition: Callable[[], bool], what: str) -> None:
        def check() -> bool:
            nonlocal sent
            produce(cluster, MORE)
            sent += MORE
            return condition()

        wait_until(check, what, WAIT_MS)

    produce_until(lambda: len(set(owners(cluster).values())) == 2, "two members of kafka-node read")
    ours = start_ours(cluster, members)
    produce_until(lambda: len(set(owners(cluster).values())) == 3, "three members read")
    for other in others:
        assert other.stop()
        produce_until(lambda: len(owners(cluster)) == PARTITIONS, "each partition has an owner")
    wait_offsets(cluster, sent)
    assert set(owners(cluster).values()) == {ours.consumer_id}
    for tp, expected in reads(0, sent).items():
        read = [offset for member in (*others, ours) for offset in member.offsets().get(tp, [])]
        assert sorted(set(read)) == expected


def test_a_group_of_kafka_node_migrates_to_the_coordinator(
    cluster: Sandbox, members: list[MemberProcess], tmp_path: Path
) -> None:
    require_client(KAFKA_NODE)
    other = start_other(cluster, KAFKA_NODE, members)
    other.wait_delivered(PARTITIONS * RECORDS)
    wait_offsets(cluster, RECORDS)
    assert other.stop()
    plan = str(tmp_path / "plan")
    planned = tool(cluster, "migrate", "plan", GROUP, "-f", plan, "--offset-convention", "next")
    assert planned.exit_code == 0, planned.output
    applied = tool(cluster, "migrate", "apply", plan, "--execute")
    assert applied.exit_code == 0, applied.output
    produce(cluster, MORE)
    assert read_as_kafka_python(cluster.bootstrap, PARTITIONS * MORE) == reads(RECORDS, RECORDS + MORE)

    # A member of kafka-node that is started by mistake cannot register: the access control lists are a fence.
    late = start_other(cluster, KAFKA_NODE, members, wait=False)
    late.wait_for(lambda: late.count("error"), WAIT_MS, "reports an error")
    assert "FailedToRegisterConsumerError: Exception: NO_AUTH" in next(
        each["text"] for each in late.events if each["event"] == "error"
    )
    assert cluster.admin.members(GROUP) == []
    assert late.delivered == []


# --- kafka-python before 1.0 ------------------------------------------------------------------------------------


def test_ours_continues_a_group_of_old_kafka_python_and_back(cluster: Sandbox, members: list[MemberProcess]) -> None:
    require_client(OLD_KAFKA_PYTHON)
    other = start_other(cluster, OLD_KAFKA_PYTHON, members)
    other.wait_delivered(PARTITIONS * RECORDS)
    other.commit()
    wait_offsets(cluster, RECORDS)
    # It has a group only for its offsets: it is no member, and owns nothing.
    assert cluster.admin.children(f"/consumers/{GROUP}") == ["offsets"]
    assert other.stop()

    produce(cluster, MORE)
    ours = start_ours(cluster, members)
    ours.wait_delivered(PARTITIONS * MORE)
    assert ours.offsets() == reads(RECORDS, RECORDS + MORE)
    assert ours.stop()
    produce(cluster, MORE)
    again = start_other(cluster, OLD_KAFKA_PYTHON, members)
    again.wait_delivered(PARTITIONS * MORE)
    assert again.offsets() == reads(RECORDS + MORE, RECORDS + 2 * MORE)


@pytest.mark.parametrize(("api_version", "storage"), [("0.8.1", "zookeeper"), ("0.8.2", "kafka")])
def test_ours_continues_a_reader_of_kafka_python_with_the_protocol_of_old_brokers(
    api_version: str, storage: str, cluster: Sandbox, members: list[MemberProcess]
) -> None:
    require_client(UNBALANCED_KAFKA_PYTHON)
    other = start_other(cluster, UNBALANCED_KAFKA_PYTHON, members, api_version)
    other.wait_delivered(PARTITIONS * RECORDS)
    other.commit()
    expected = dict.fromkeys(range(PARTITIONS), RECORDS) if storage == "zookeeper" else {}
    assert cluster.admin.offsets(GROUP, TOPIC) == expected
    assert cluster.admin.members(GROUP) == []
    assert other.stop()
    produce(cluster, MORE)
    ours = start_ours(cluster, members, **{"offsets.storage": storage})
    ours.wait_delivered(PARTITIONS * MORE)
    assert ours.offsets() == reads(RECORDS, RECORDS + MORE)


# --- MirrorMaker 1 ----------------------------------------------------------------------------------------------


class Mirror:
    """MirrorMaker of a release from the topic to a second cluster, below ``/target`` of the same ZooKeeper."""

    def __init__(self, cluster: Sandbox) -> None:
        self._cluster = cluster
        self.target = cluster.start_broker("1.1.1", chroot="/target")
        replicas = {partition: [self.target.broker_id] for partition in range(PARTITIONS)}
        cluster.zookeeper.admin("/target").put_topic(TOPIC, replicas)
        self._processes: list[JavaProcess] = []

    def start(self, release: str, consumer: dict[str, str]) -> JavaProcess:
        """Start it with these settings of its consumer; the old one has ``zookeeper.connect``."""
        number = len(self._processes)
        folder = self._cluster.run.root / f"mirror-{number}"
        settings = {"group.id": GROUP, **consumer}
        producer = {
            "bootstrap.servers": self.target.address,
            "metadata.broker.list": self.target.address,
            "client.id": "mirror",
        }
        words = ["--consumer.config", str(write_properties(settings, folder / "consumer.properties"))]
        words += ["--producer.config", str(write_properties(producer, folder / "producer.properties"))]
        words += ["--whitelist", TOPIC]
        words += [] if release == "0.8.2.2" else ["--offset.commit.interval.ms", "1000"]
        command = JavaCommand(release, "kafka.tools.MirrorMaker", tuple(words))
        process = JavaProcess(self._cluster.run, "tool", f"mirror-{number}", command)
        self._processes.append(process)
        return process

    def start_old(self, release: str) -> JavaProcess:
        """Start it with the old consumer."""
        return self.start(
            release,
            {
                "zookeeper.connect": self._cluster.zookeeper_connect,
                "auto.offset.reset": "smallest",
                "auto.commit.interval.ms": "1000",
                "zookeeper.session.timeout.ms": "4000",
            },
        )

    def copied(self, count: int) -> int:
        """Wait for this number of records in the second cluster; return how many there are."""
        return sum(map(len, read_as_kafka_python(self.target.address, count, group=None).values()))

    def close(self) -> None:
        for process in self._processes:
            if process.is_running():
                process.kill()


@pytest.fixture
def mirror(cluster: Sandbox) -> Iterator[Mirror]:
    made = Mirror(cluster)
    yield made
    made.close()


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "1.1.1"])
def test_ours_takes_over_a_group_of_mirror_maker(
    release: str, cluster: Sandbox, mirror: Mirror, members: list[MemberProcess]
) -> None:
    require_releases(release)
    process = mirror.start_old(release)
    wait_offsets(cluster, RECORDS)
    assert {row["owner_kind"] for row in document(cluster, "groups", "describe", GROUP)["rows"]} == {"scala"}
    assert findings(cluster) == set()
    assert process.stop(30_000), process.log_end()

    produce(cluster, MORE)
    ours = start_ours(cluster, members)
    ours.wait_delivered(PARTITIONS * MORE)
    assert ours.offsets() == reads(RECORDS, RECORDS + MORE)
    assert mirror.copied(PARTITIONS * RECORDS) == PARTITIONS * RECORDS


def test_mirror_maker_continues_with_its_other_consumer_after_a_migration(
    cluster: Sandbox, mirror: Mirror, tmp_path: Path
) -> None:
    process = mirror.start_old("1.1.1")
    wait_offsets(cluster, RECORDS)
    assert process.stop(30_000), process.log_end()
    plan = str(tmp_path / "plan")
    planned = tool(cluster, "migrate", "plan", GROUP, "-f", plan, "--offset-convention", "next")
    assert planned.exit_code == 0, planned.output
    applied = tool(cluster, "migrate", "apply", plan, "--execute")
    assert applied.exit_code == 0, applied.output

    produce(cluster, MORE)
    source = {"bootstrap.servers": cluster.brokers[0].address, "auto.offset.reset": "earliest"}
    process = mirror.start("1.1.1", source)
    expected = PARTITIONS * (RECORDS + MORE)
    assert mirror.copied(expected) == expected, process.log_end()
