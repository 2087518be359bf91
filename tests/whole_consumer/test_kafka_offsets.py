"""Offsets in Kafka, members of ours beside original ones, on brokers of every age."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.lab.group_lab import GroupLab
from tests.lab.python_member import PythonMember
from tests.sandbox_fixtures import Clusters, require_releases
from tests.whole_consumer.kafka_store import KafkaStore
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector
from zkconsumer.errors import OffsetsInKafkaUnsupported
from zkconsumer.testing.sandbox import MemberProcess, Sandbox, ScalaMember, wait_until, zookeeper_release
from zkconsumer.testing.sandbox.child_process import JavaCommand, JavaProcess, write_properties

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

DUAL = {"offsets.storage": "kafka"}
ALONE = {"offsets.storage": "kafka", "dual.commit.enabled": "false"}
ZOOKEEPER = {"offsets.storage": "zookeeper"}
KAFKA_SETTING: dict[str, Any] = {"offsets_storage": "kafka"}

# Broker, and the newest original consumer that reads it.
PAIRS = [("0.8.2.2", "0.8.2.2"), ("0.9.0.1", "0.9.0.1"), ("1.1.1", "1.1.1"), ("3.9.1", "1.1.1")]

RECORDS = 12
MORE = 3

# One partition a case: what ZooKeeper holds, what Kafka holds.
IN_ZOOKEEPER = {0: 3, 1: 7, 2: 7, 5: 7}
IN_KAFKA = {0: 7, 1: 3, 3: 7, 5: 7}
PARTITIONS = 6
BOTH_START = {0: 7, 1: 7, 2: 7, 3: 7, 4: 0, 5: 7}
KAFKA_START = {0: 7, 1: 3, 2: 0, 3: 7, 4: 0, 5: 7}


class Place:
    """A group, its topic, and both of its stores."""

    def __init__(self, sandbox: Sandbox, group: str, topic: str, partitions: int = PARTITIONS) -> None:
        self.sandbox = sandbox
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.kafka = KafkaStore(sandbox, group, topic, partitions)
        self._members = 0
        if not sandbox.admin.exists(f"/brokers/topics/{topic}"):
            sandbox.create_topic(topic, partitions)

    def ours(self, settings: dict[str, str], **more: object) -> PythonMember:
        member = PythonMember(
            self.sandbox.zookeeper,
            self.group,
            {self.topic: 1},
            chroot=self.sandbox.chroot,
            name=self._name("ours"),
            settings=settings,
            **more,  # type: ignore[arg-type]
        )
        self.sandbox.members.append(member)  # type: ignore[arg-type]
        member.start()
        return member

    def scala(self, release: str, settings: dict[str, str]) -> ScalaMember:
        return self.sandbox.start_member(
            release, self.group, {self.topic: 1}, name=self._name("scala"), settings=settings
        )

    def _name(self, kind: str) -> str:
        self._members += 1
        return f"{self.group}-{kind}-{self._members}"

    def zookeeper(self) -> dict[int, int]:
        return self.sandbox.admin.offsets(self.group, self.topic)

    def put_in_zookeeper(self, offsets: dict[int, int]) -> None:
        for partition, offset in offsets.items():
            self.sandbox.admin.put(f"/consumers/{self.group}/offsets/{self.topic}/{partition}", b"%d" % offset)

    def produce(self, count: int) -> None:
        for partition in range(self.partitions):
            self.sandbox.produce(self.topic, partition, count)

    def all_at(self, offset: int) -> dict[int, int]:
        return dict.fromkeys(range(self.partitions), offset)

    def wait_for_commits(self, end: int) -> None:
        """Until Kafka has more than it has now, or all that there is."""
        before = min(sum(self.kafka.offsets().values()), self.partitions * end - 1)
        wait_until(lambda: sum(self.kafka.offsets().values()) > before, "commits go on", 40_000)

    def reads(self, member: MemberProcess, start: dict[int, int], end: int) -> None:
        """The member hands out exactly everything from ``start`` to ``end``, each record once."""
        member.wait_delivered(sum(end - at for at in start.values()))
        wanted = {(self.topic, partition): list(range(at, end)) for partition, at in start.items() if at < end}
        assert member.offsets() == wanted


@pytest.mark.parametrize(
    ("broker", "scala", "storage"),
    [
        pytest.param(
            *pair,
            storage,
            marks=[] if pair == ("1.1.1", "1.1.1") and storage is DUAL else [pytest.mark.nightly],
            id=f"{pair[0]}-{pair[1]}-{'dual' if storage is DUAL else 'kafka'}",
        )
        for pair in PAIRS
        for storage in (DUAL, ALONE)
    ],
)
def test_every_combination_of_both_stores_and_each_kind_after_the_other(
    clusters: Clusters, names: tuple[str, str], broker: str, scala: str, storage: dict[str, str]
) -> None:
    require_releases(scala)
    group, topic = names
    sandbox = clusters.get(broker)
    start = BOTH_START if storage is DUAL else KAFKA_START
    place = Place(sandbox, group, topic)
    place.produce(RECORDS)
    place.put_in_zookeeper(IN_ZOOKEEPER)
    place.kafka.commit(IN_KAFKA)

    # Ours, from every combination of smaller, larger, equal and missing.
    ours = place.ours(storage)
    place.reads(ours, start, RECORDS)
    assert ours.stop()
    assert place.kafka.offsets() == place.all_at(RECORDS)
    assert place.zookeeper() == (place.all_at(RECORDS) if storage is DUAL else IN_ZOOKEEPER)

    # The original after ours; with dual commit, whichever store was put back meanwhile.
    place.produce(MORE)
    if storage is DUAL:
        place.put_in_zookeeper({0: 2})
        place.kafka.commit({1: 2})
        sandbox.admin.delete(f"/consumers/{group}/offsets/{topic}/2")
    original = place.scala(scala, storage)
    place.reads(original, place.all_at(RECORDS), RECORDS + MORE)
    assert original.stop()
    assert place.kafka.offsets() == place.all_at(RECORDS + MORE)

    # Ours after the original.
    place.produce(MORE)
    ours = place.ours(storage)
    place.reads(ours, place.all_at(RECORDS + MORE), RECORDS + 2 * MORE)
    assert ours.stop()
    assert place.kafka.offsets() == place.all_at(RECORDS + 2 * MORE)
    if storage is DUAL:
        assert place.zookeeper() == place.all_at(RECORDS + 2 * MORE)

    # And the original begins where ours began: the same combinations, in a group of its own.
    second = Place(sandbox, f"{group}-2", topic)
    second.put_in_zookeeper(IN_ZOOKEEPER)
    second.kafka.commit(IN_KAFKA)
    original = second.scala(scala, storage)
    second.reads(original, start, RECORDS + 2 * MORE)
    assert original.stop()


# --- a group that lives -------------------------------------------------------------------------------------------

# An original successor reads the offset before it claims: its claim is refused once, and it reads again.
SETTLING = {"release.settle.ms": "500"}
OFTEN = {"auto.commit.interval.ms": "200"}
LAB_PARTITIONS = 7
PER_SECOND = 200

# Not 0.9.0.1: its producer, which makes the load, lets batches expire on a busy machine, and so loses what it counted.
LAB_PAIRS = [("0.8.2.2", "0.8.2.2"), ("0.10.2.2", "0.10.2.2"), ("1.1.1", "1.1.1"), ("3.9.1", "1.1.1")]


@pytest.mark.nightly
@pytest.mark.parametrize("storage", [DUAL, ALONE], ids=["dual", "kafka"])
@pytest.mark.parametrize(("broker", "scala"), LAB_PAIRS)
def test_a_group_of_both_kinds_lives_through_every_change(
    clusters: Clusters, names: tuple[str, str], tmp_path: Path, broker: str, scala: str, storage: dict[str, str]
) -> None:
    require_releases(scala)
    sandbox = clusters.get(broker)
    group, topic = names
    kafka = KafkaStore(sandbox, group, topic, LAB_PARTITIONS)
    with GroupLab(
        sandbox,
        group,
        {topic: LAB_PARTITIONS},
        folder=tmp_path,
        ours={**SETTLING, **storage, **OFTEN},
        scala={**storage, **OFTEN},
        policy={"ours_to_ours": 0, "ours_to_scala": 0},
    ) as lab:
        try:
            lab.load(topic, PER_SECOND)
            with kafka.watched():
                with lab.change("scala-1 starts the group"):
                    lab.start_scala("scala-1", scala)
                with lab.change("ours-1 joins"):
                    lab.start_ours("ours-1")
                with lab.change("ours-2 joins"):
                    lab.start_ours("ours-2", threads=2)
                with lab.change("ours-1 leaves"):
                    lab.leave("ours-1")
                with lab.change("scala-1 leaves"):
                    lab.leave("scala-1")
                with lab.change("ours-3 joins"):
                    lab.start_ours("ours-3")
                with lab.change("ours-2 is killed"):
                    lab.kill("ours-2")
                with lab.change("scala-2 joins"):
                    lab.start_scala("scala-2", scala)
                with lab.change("ours-3 stands still beyond its session"):
                    lab.pause("ours-3")
                with lab.change("ours-3 goes on"):
                    lab.resume("ours-3")
                lab.finish()
        finally:
            print(lab.report())
    assert kafka.looks > 10
    assert kafka.steps_back == []


# --- brokers that go and come -------------------------------------------------------------------------------------

SLOW = 1_000


def slowly(place: Place, storage: dict[str, str], count: int) -> list[MemberProcess]:
    """Two members of ours that take some seconds for what is there, and commit all the while."""
    place.produce(count)
    return [place.ours({**storage, **OFTEN}, handle_ms=10) for _ in range(2)]


def wait_all_handed(members: list[MemberProcess], count: int) -> None:
    """Until every record was handed out; and no record twice, since nobody joined or left."""

    def handed() -> list[tuple[int, int]]:
        return sorted((each.partition, each.offset) for member in members for each in member.delivered)

    wait_until(lambda: len(handed()) >= count, f"{count} records are handed out", 60_000)
    assert len(handed()) == len(set(handed())) == count


@pytest.mark.nightly
@pytest.mark.parametrize("storage", [DUAL, ALONE], ids=["dual", "kafka"])
@pytest.mark.parametrize(("broker", "_scala"), PAIRS)
def test_a_broker_restarts_in_the_middle_of_commits(
    clusters: Clusters, names: tuple[str, str], broker: str, _scala: str, storage: dict[str, str]
) -> None:
    sandbox = clusters.get(broker)
    place = Place(sandbox, *names, partitions=2)
    with place.kafka.watched():
        members = slowly(place, storage, SLOW)
        wait_until(lambda: sum(place.kafka.offsets().values()) > 0, "the first commits", 60_000)
        for _ in range(2):
            sandbox.brokers[0].stop()
            assert all(member.is_running() for member in members)
            sandbox.brokers[0].start()
            place.wait_for_commits(SLOW)
        wait_all_handed(members, 2 * SLOW)
        for member in members:
            assert member.stop()
        assert place.kafka.offsets() == place.all_at(SLOW)
    assert place.kafka.steps_back == []
    if storage is DUAL:
        assert place.zookeeper() == place.all_at(SLOW)


@pytest.mark.nightly
@pytest.mark.parametrize("storage", [DUAL, ALONE], ids=["dual", "kafka"])
@pytest.mark.parametrize("broker", ["0.8.2.2", "0.9.0.1", "1.1.1", "3.9.1"])
def test_the_coordinator_moves_to_another_broker(names: tuple[str, str], broker: str, storage: dict[str, str]) -> None:
    require_releases(broker, zookeeper_release("3.8"))
    replicated = {"offsets.topic.replication.factor": "2", "offsets.topic.num.partitions": "2"}
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        for _ in range(2):
            sandbox.start_broker(broker, chroot="/kafka", settings=replicated)
        group, topic = names
        sandbox.create_topic(topic, 2, replicas={0: [0, 1], 1: [1, 0]})
        place = Place(sandbox, group, topic, partitions=2)
        with place.kafka.watched():
            members = slowly(place, storage, SLOW)
            wait_until(lambda: sum(place.kafka.offsets().values()) > 0, "the first commits", 60_000)
            for _ in range(2):
                gone = place.kafka.coordinator()
                sandbox.brokers[gone].stop()
                assert place.kafka.coordinator() != gone
                place.wait_for_commits(SLOW)
                sandbox.brokers[gone].start()
                wait_in_sync(sandbox, topic)
                wait_in_sync(sandbox, "__consumer_offsets")
            wait_all_handed(members, 2 * SLOW)
            for member in members:
                assert member.stop()
            assert place.kafka.offsets() == place.all_at(SLOW)
        assert place.kafka.steps_back == []


def wait_in_sync(sandbox: Sandbox, topic: str) -> None:
    """Until each of the two replicas of everything could take over."""

    def in_sync() -> bool:
        partitions = sandbox.admin.children(f"/brokers/topics/{topic}/partitions")
        states = [sandbox.admin.get(f"/brokers/topics/{topic}/partitions/{number}/state") for number in partitions]
        return all(len(json.loads(state or b'{"isr": []}')["isr"]) == 2 for state in states)

    wait_until(in_sync, f"{topic} is in sync", 40_000)


# --- a modern group of the same name --------------------------------------------------------------------------------

REFUSED = r"(UNKNOWN_MEMBER_ID \(25\)|REBALANCE_IN_PROGRESS \(27\))"
"""What a coordinator answers to a commit from outside a modern group: 27 until SyncGroup, then 25."""


@pytest.mark.parametrize(
    ("broker", "client"),
    [
        pytest.param("0.9.0.1", "0.9.0.1", marks=pytest.mark.nightly),
        ("1.1.1", "1.1.1"),
        pytest.param("3.9.1", "1.1.1", marks=pytest.mark.nightly),
    ],
)
def test_defect_33_a_java_member_of_the_same_group_is_told_at_once(
    clusters: Clusters, names: tuple[str, str], broker: str, client: str
) -> None:
    require_releases(client)
    sandbox = clusters.get(broker)
    place = Place(sandbox, *names, partitions=2)
    place.produce(RECORDS)
    ours = place.ours({**DUAL, **OFTEN})
    ours.wait_delivered(2 * RECORDS)
    wait_until(lambda: place.kafka.offsets() == place.all_at(RECORDS), "all is committed", 60_000)
    modern = start_modern(sandbox, client, place.group, place.topic)
    try:

        def is_told() -> bool:
            modern.check_running()
            return bool(ours.log_lines("coordinator-group-active"))

        wait_until(is_told, "it is told", 30_000)
        assert re.search(
            rf"reason='{REFUSED}: a coordinator group of this name", ours.log_lines("coordinator-group-active")[0]
        )
        place.produce(MORE)
        ours.wait_delivered(2 * (RECORDS + MORE))
        ours.commit()
        said = [event for event in ours.events if event["event"] == "not-committed"]
        assert re.search(f"Kafka: {REFUSED}", said[0]["error"])
        assert place.zookeeper() == place.all_at(RECORDS + MORE), "ZooKeeper has them"
        assert len(ours.log_lines("coordinator-group-active")) == 1
    finally:
        modern.kill()
    # The modern member's session must end before anybody else may commit.
    wait_until(lambda: place.kafka.offsets() == place.all_at(RECORDS + MORE), "commits go on by themselves", 40_000)
    assert ours.stop()


def start_modern(sandbox: Sandbox, release: str, group: str, topic: str) -> JavaProcess:
    """A KafkaConsumer in a group of this name."""
    config = write_properties(
        {"group.id": group, "session.timeout.ms": "6000"}, sandbox.run.root / f"{group}.properties"
    )
    words = ["--bootstrap-server", sandbox.bootstrap, "--topic", topic, "--consumer.config", str(config)]
    if release < "1.":
        words.insert(0, "--new-consumer")
    command = JavaCommand(release, "kafka.tools.ConsoleConsumer", tuple(words))
    return JavaProcess(sandbox.run, "tool", f"{group}-modern", command)


# --- brokers without coordinators, and without ZooKeeper ------------------------------------------------------------


@pytest.mark.nightly
def test_brokers_of_0_8_1_are_named_instead_of_asked_for_ever(names: tuple[str, str]) -> None:
    require_releases("0.8.1.1", zookeeper_release("3.8"))
    group, topic = names
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        sandbox.start_broker("0.8.1.1", chroot="/kafka")
        sandbox.create_topic(topic, 2)
        config = ConsumerConfig(group_id=group, zookeeper_connect=sandbox.zookeeper_connect, **KAFKA_SETTING)
        with ZookeeperConsumerConnector(config) as connector:
            with pytest.raises(OffsetsInKafkaUnsupported, match=r"none of the 1 brokers of this cluster knows"):
                connector.create_message_streams({topic: 1})
            assert sandbox.admin.owners(group, topic) == {}, "nobody is in the way of others"


@pytest.mark.nightly
@pytest.mark.parametrize("storage", [DUAL, ALONE], ids=["dual", "kafka"])
def test_a_group_in_zookeeper_keeps_its_offsets_on_a_kraft_broker(
    names: tuple[str, str], storage: dict[str, str]
) -> None:
    require_releases("4.1.1", zookeeper_release("3.8"))
    group, topic = names
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        sandbox.start_kraft_broker("4.1.1")
        sandbox.create_topic(topic, 2)
        kafka = KafkaStore(sandbox, group, topic, 2)
        handed: list[tuple[int, int]] = []
        for end in (RECORDS, 2 * RECORDS):
            for partition in range(2):
                sandbox.produce(topic, partition, RECORDS)
            settings = {**storage, "bootstrap.servers": sandbox.bootstrap}
            member = PythonMember(sandbox.zookeeper, group, {topic: 1}, name=f"ours-{end}", settings=settings)
            member.start()
            try:
                handed += [(each.partition, each.offset) for each in member.wait_delivered(2 * RECORDS)]
                assert member.stop()
            finally:
                member.close()
            assert kafka.offsets() == {0: end, 1: end}
        assert sorted(handed) == [(partition, at) for partition in range(2) for at in range(2 * RECORDS)]
        wanted = {0: 2 * RECORDS, 1: 2 * RECORDS} if storage is DUAL else {}
        assert sandbox.zookeeper.admin().offsets(group, topic) == wanted


# --- the documented migration, and the way back -----------------------------------------------------------------------


@pytest.mark.parametrize("broker", ["1.1.1", pytest.param("3.9.1"), pytest.param("0.8.2.2")])
@pytest.mark.nightly
def test_from_zookeeper_to_kafka_and_the_safe_way_back(clusters: Clusters, names: tuple[str, str], broker: str) -> None:
    sandbox = clusters.get(broker)
    place = Place(sandbox, *names, partitions=4)
    # One partition gets nothing after the beginning: its offset must travel all the same.
    idle, busy = 3, (0, 1, 2)
    place.produce(RECORDS)
    ends = place.all_at(RECORDS)
    every: list[MemberProcess] = []
    live: list[MemberProcess] = []

    def restart_one_by_one(settings: dict[str, str]) -> None:
        for number in range(2):
            if len(live) == 2:
                assert live[number].stop()
                live[number] = place.ours({**settings, **OFTEN})
                every.append(live[number])
            else:
                live.append(place.ours({**settings, **OFTEN}))
                every.append(live[-1])
            for partition in busy:
                sandbox.produce(place.topic, partition, MORE)
                ends[partition] += MORE
            wait_until(lambda: len(handed()) == sum(ends.values()), "all is handed out", 30_000)
        owners = {owner.rpartition("-")[0] for owner in sandbox.admin.owners(place.group, place.topic).values()}
        assert owners == {member.consumer_id for member in live}

    def handed() -> list[tuple[int, int]]:
        return [(each.partition, each.offset) for member in every for each in member.delivered]

    restart_one_by_one(ZOOKEEPER)
    wait_until(lambda: place.zookeeper() == ends, "ZooKeeper has all", 60_000)
    assert place.kafka.offsets() == {}
    restart_one_by_one(DUAL)
    wait_until(lambda: place.kafka.offsets() == place.zookeeper() == ends, "both have all, the idle one too", 60_000)
    restart_one_by_one(ALONE)
    wait_until(lambda: place.kafka.offsets() == ends, "Kafka has all", 60_000)
    assert place.zookeeper()[0] < ends[0], "ZooKeeper is left behind"
    # Something was lost in ZooKeeper meanwhile: the way back must bring it there again.
    sandbox.admin.delete(f"/consumers/{place.group}/offsets/{place.topic}/{idle}")
    restart_one_by_one(DUAL)
    wait_until(lambda: place.zookeeper() == ends, "ZooKeeper has caught up, with the idle one", 60_000)
    restart_one_by_one(ZOOKEEPER)
    wait_until(lambda: place.zookeeper() == ends, "ZooKeeper has all", 60_000)
    for member in live:
        assert member.stop()
    assert sorted(handed()) == [(partition, at) for partition in range(4) for at in range(ends[partition])]
