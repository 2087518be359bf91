"""The commands that change a group of the coordinator, on a development broker without a ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from bridge.testing import EmbeddedBroker
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import doors
from zkconsumer.admin.admin_session import AdminDependencies, BrokerAdminSession
from zkconsumer.admin.delete_coordinator_group import (
    execute_coordinator_group_deletion,
    plan_coordinator_group_deletion,
)
from zkconsumer.cli.main import main
from zkconsumer.errors import BrokerUnreachable, SandboxError
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.testing.sandbox.waiting import wait_until


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """Group ``g`` has committed 1 and 2 of the ten records of two partitions, as a consumer without a share does."""
    with EmbeddedBroker() as started:
        started.create_topic("clicks", partitions=2)
        for partition in range(2):
            started.append("clicks", partition, [b"x"] * 10)
        commit(started, "g", {0: 1, 1: 2})
        yield started


JOIN_TIMEOUT_MS = 8_000
TRIES = 4
SOON_MS = 500
"""How soon kafka-python looks at its topics again: one that joined before it knew them has given itself nothing."""


def commit(broker: EmbeddedBroker, group: str, offsets: dict[int, int]) -> None:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    stored = {TopicPartition("clicks", at): OffsetAndMetadata(offset, "", -1) for at, offset in offsets.items()}
    consumer.assign(list(stored))
    consumer.commit(stored)
    consumer.close()


@contextmanager
def member(broker: EmbeddedBroker, group: str) -> Iterator[None]:
    """Somebody is in the group.  One that has given itself nothing may stay so (kafka-python); then another comes."""
    for _ in range(TRIES):
        consumer = KafkaConsumer(
            "clicks", bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False,
            auto_offset_reset="earliest", metadata_max_age_ms=SOON_MS,
        )  # fmt: skip
        with closing(consumer):
            with suppress(SandboxError):
                joined = partial(_polled, consumer)
                wait_until(joined, "it has joined", JOIN_TIMEOUT_MS)
            if consumer.assignment():
                yield
                return
    raise AssertionError(f"none of {TRIES} members was given a partition")


def _polled(consumer: KafkaConsumer) -> bool:
    consumer.poll(100)
    return bool(consumer.assignment())


def run(broker: EmbeddedBroker, *words: str) -> Any:
    return CliRunner().invoke(main, [*words, "--bootstrap-server", broker.bootstrap])


def stored(broker: EmbeddedBroker, group: str = "g") -> str:
    """What is exported, as ``topic,partition,offset`` lines."""
    return str(run(broker, "offsets", "export", group, "--format", "csv").stdout)


def test_offsets_are_exported_and_put_back(broker: EmbeddedBroker, tmp_path: Path) -> None:
    file = tmp_path / "g.csv"
    result = run(broker, "offsets", "export", "g", "--format", "csv", "--file", str(file))
    assert (result.exit_code, file.read_text()) == (0, "clicks,0,1\nclicks,1,2\n")
    commit(broker, "g", {0: 9, 1: 9})
    words = ("offsets", "import", str(file), "--group", "g")
    result = run(broker, *words)
    assert result.exit_code == 3
    assert result.stderr.splitlines()[-1].endswith(f"--bootstrap-server {broker.bootstrap} --execute")
    assert stored(broker) == "clicks,0,9\nclicks,1,9\n"
    result = run(broker, *words, "--execute")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (0, "Group g: 2 offsets written.")
    assert stored(broker) == "clicks,0,1\nclicks,1,2\n"
    compared = run(broker, "offsets", "diff", "g", str(file))
    assert compared.exit_code == 0


def test_every_group_of_the_brokers_is_exported(broker: EmbeddedBroker) -> None:
    commit(broker, "a name with blanks", {0: 5})
    told = run(broker, "offsets", "export", "--all", "--format", "csv")
    assert (told.exit_code, told.stdout.splitlines()) == (
        0, ["a name with blanks,clicks,0,5", "g,clicks,0,1", "g,clicks,1,2"]
    )  # fmt: skip


ODD_NAMES = ("app:v1", "a,b", " blank", "/a", "{b}", 'quoted"', "\x1b[31m")
"""Brokers coordinate such groups, and ZooKeeper cannot have them."""


@pytest.mark.parametrize(("format_", "skipped"), [("zk", ODD_NAMES), ("csv", ODD_NAMES[1:]), ("json", ())])
def test_groups_whose_names_zookeeper_cannot_have_are_exported_and_put_back(
    broker: EmbeddedBroker, tmp_path: Path, format_: str, skipped: tuple[str, ...]
) -> None:
    file = tmp_path / "all"
    for name in ODD_NAMES:
        commit(broker, name, {0: 5})
    told = run(broker, "offsets", "export", "--all", "--format", format_, "--file", str(file))
    assert (told.exit_code, told.stderr.count(": skipped, --format ")) == (1 if skipped else 0, len(skipped))
    kept = ["g", *(name for name in ODD_NAMES if name not in skipped)]
    for name in kept:
        commit(broker, name, {0: 9, 1: 9})
    told = run(broker, "offsets", "import", str(file), "--execute")
    assert told.exit_code == 0, told.stderr
    assert {stored(broker, name) for name in kept[1:]} <= {"clicks,0,5\nclicks,1,9\n"}
    assert stored(broker) == "clicks,0,1\nclicks,1,2\n"


def test_the_export_that_a_deletion_proposes_has_the_name_of_the_group(broker: EmbeddedBroker) -> None:
    commit(broker, "app:v1", {0: 5})
    told = run(broker, "groups", "delete", "app:v1")
    assert "offsets export app:v1 --format json --file app:v1.offsets" in told.stderr
    refused = run(broker, "offsets", "export", "app:v1")
    assert (refused.exit_code, "--format zk cannot have this name, --format json can" in refused.stderr) == (2, True)


def test_offsets_of_a_name_that_zookeeper_cannot_have_do_not_go_there(tmp_path: Path) -> None:
    file = tmp_path / "odd.csv"
    file.write_text("../g,clicks,0,5\n")
    with FakeEnvironment() as world:
        words = ["offsets", "import", str(file), "--zookeeper", ADDRESS, "--execute"]
        told = CliRunner().invoke(main, words, obj=doors(world))
    assert (told.exit_code, "group id '../g' may contain only letters" in told.stderr) == (2, True), told.stderr


def test_what_a_broker_does_not_tell_is_said_and_the_rest_is_exported() -> None:
    with EmbeddedBroker(nodes=2) as broker:
        broker.create_topic("clicks", partitions=1)
        commit(broker, "g", {0: 1})
        commit(broker, "h", {0: 2})
        for group, node in (("g", 0), ("h", 1)):
            broker.move_coordinator(group, node)
        silent = broker.addresses()[1].port

        def connect(host: str, port: int, **words: Any) -> BlockingConnection:
            if port == silent:
                raise BrokerUnreachable("nobody is at home")
            return BlockingConnection(host, port, **words)

        words = ["offsets", "export", "--all", "--format", "csv", "--bootstrap-server", broker.bootstrap]
        result = CliRunner().invoke(main, words, obj=AdminDependencies(connect=connect))
    assert (result.exit_code, result.stdout) == (1, "clicks,0,1\n")
    assert result.stderr == (
        f"zkconsumer: coordinator groups of the broker 127.0.0.1:{silent} are not known: nobody is at home\n"
    )


def test_a_file_of_offsets_in_zookeeper_goes_to_the_coordinator(broker: EmbeddedBroker, tmp_path: Path) -> None:
    file = tmp_path / "old.txt"
    file.write_text("/consumers/moved/offsets/clicks/0:7\n/consumers/moved/offsets/clicks/1:8\n")
    assert run(broker, "offsets", "import", str(file), "--execute").exit_code == 0
    assert stored(broker, "moved") == "clicks,0,7\nclicks,1,8\n"


def test_offsets_are_set_and_deleted(broker: EmbeddedBroker) -> None:
    words = ("offsets", "set", "g", "--topic", "clicks:0", "--to-latest")
    told = run(broker, *words, "-o", "json")
    [row] = json.loads(told.stdout)["groups"][0]["rows"]
    assert (told.exit_code, row["store"], row["current"], row["new"], row["log_end"]) == (3, "kafka", 1, 10, 10)
    assert run(broker, *words, "--execute").exit_code == 0
    assert stored(broker) == "clicks,0,10\nclicks,1,2\n"
    assert run(broker, *words, "--execute").stderr.splitlines()[-1] == "There is nothing to change."
    assert run(broker, "offsets", "delete", "g", "--topic", "clicks:0", "--execute").exit_code == 0
    assert stored(broker) == "clicks,1,2\n"
    assert run(broker, "offsets", "set", "g", "--topic", "nowhere", "--to-latest").exit_code == 4


def test_a_group_with_members_is_refused(broker: EmbeddedBroker) -> None:
    with member(broker, "g"):
        result = run(broker, "offsets", "set", "g", "--all-topics", "--to-latest", "--execute")
        assert result.exit_code == 4
        assert "the coordinator group g has members (Stable, 1 member)" in result.stderr
        assert "zkconsumer groups describe g" in result.stderr
        result = run(broker, "groups", "delete", "g", "--execute")
        assert result.exit_code == 4
        assert result.stderr.splitlines()[0] == (
            "zkconsumer: Delete for group g failed because its consumers are still active: it is Stable, with 1 member."
        )
    assert stored(broker) == "clicks,0,1\nclicks,1,2\n"


def test_offsets_that_no_modern_member_made_may_be_an_old_group_s(broker: EmbeddedBroker) -> None:
    words = ("offsets", "set", "g", "--all-topics", "--to-latest")
    assert run(broker, *words).stderr.startswith(
        "No coordinator group g ever had a member. If a ZooKeeper group stores "
    )
    assert run(broker, "groups", "delete", "g").stderr.startswith("No coordinator group g ever had a member. ")
    with member(broker, "g"):
        pass
    assert "ever had a member" not in run(broker, *words).stderr + run(broker, "groups", "delete", "g").stderr


def test_a_group_is_deleted(broker: EmbeddedBroker) -> None:
    result = run(broker, "groups", "delete", "g")
    assert (result.exit_code, result.stdout.splitlines()[1].split()) == (3, ["g", "would", "delete", "Empty", "2"])
    assert stored(broker)
    result = run(broker, "groups", "delete", "g", "--execute")
    assert (result.exit_code, result.stdout) == (0, "Deletion of requested consumer groups ('g') was successful.\n")
    result = run(broker, "groups", "delete", "g", "--execute")
    assert result.exit_code == 1
    assert result.stderr.startswith("zkconsumer: The consumer group 'g' does not exist at the brokers. ")
    assert "zkconsumer groups list --bootstrap-server " in result.stderr


def test_who_joins_behind_the_plan_is_not_deleted(broker: EmbeddedBroker) -> None:
    with closing(BrokerAdminSession.open(broker.bootstrap)) as session:
        [planned] = plan_coordinator_group_deletion(session, ["g"])
        with member(broker, "g"):
            target = execute_coordinator_group_deletion(session, planned)
            assert (target.status, target.reason) == ("active", "a member has joined it")
        assert execute_coordinator_group_deletion(session, planned).status == "deleted"
        assert execute_coordinator_group_deletion(session, planned).status == "deleted", "whoever did it, it is gone"


def test_of_two_groups_one_is_deleted_and_one_refused(broker: EmbeddedBroker) -> None:
    with member(broker, "h"):
        result = run(broker, "groups", "delete", "g", "h", "--execute", "-o", "json")
    told = json.loads(result.stdout)
    assert (result.exit_code, [each["status"] for each in told["groups"]]) == (6, ["deleted", "active"])
    assert told["next_steps"] == [f"zkconsumer groups describe h --bootstrap-server {broker.bootstrap}"]


@pytest.mark.parametrize("release", ["0.11.0.3"])
def test_old_brokers_delete_neither_groups_nor_single_offsets(release: str) -> None:
    with EmbeddedBroker(release=release) as broker:
        broker.create_topic("clicks", partitions=1)
        broker.append("clicks", 0, [b"x"] * 10)
        result = run(broker, "offsets", "set", "g", "--topic", "clicks", "--to-offset", "4", "--execute")
        assert result.exit_code == 0, result.stderr
        result = run(broker, "offsets", "delete", "g", "--execute")
        assert (result.exit_code, "before 2.4" in result.stderr) == (4, True)
        result = run(broker, "groups", "delete", "g", "--execute")
        assert (result.exit_code, "before 1.1" in result.stderr) == (4, True)
        assert stored(broker) == "clicks,0,4\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("offsets", "diff", "g"), "offsets diff without FILE compares the offsets in ZooKeeper"),
        (("groups", "doctor", "g"), "groups doctor examines groups in ZooKeeper"),
        (("offsets", "export", "g", "--store", "zookeeper"), "--store zookeeper needs the offsets in ZooKeeper"),
        (
            ("offsets", "set", "g", "--all-topics", "--to-latest", "--store", "both"),
            "--store both needs the offsets in",
        ),
        (("groups", "delete", "--stale"), "--stale deletes the remains of console consumers in ZooKeeper"),
        (("groups", "delete", "g", "--topic", "clicks"), "--topic deletes in ZooKeeper: give"),
    ],
)
def test_what_is_in_zookeeper_needs_one(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(main, [*words, "--bootstrap-server", "127.0.0.1:1"])
    assert (result.exit_code, result.stderr.startswith(f"zkconsumer: {said}")) == (2, True), result.stderr
    assert "--zookeeper HOST:PORT" in result.stderr


def test_deleting_with_both_addresses_is_no_question_to_guess(world: FakeEnvironment) -> None:
    words = ["groups", "delete", "g", "--bootstrap-server", "127.0.0.1:1", "--zookeeper", ADDRESS]
    result = CliRunner().invoke(main, words, obj=doors(world))
    assert (result.exit_code, "remove --bootstrap-server" in result.stderr) == (2, True), result.stderr


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    words = ["groups", "list", "--bootstrap-server", "127.0.0.1:1", "--config", str(tmp_path / "none")]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, "cannot be read" in result.stderr) == (2, True), result.stderr
