"""A ZooKeeper group on a KRaft broker: Kafka 4.1.1 knows no ZooKeeper, and the group's ZooKeeper knows no Kafka."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.python_member import PythonMember
from tests.sandbox_fixtures import require_releases
from zkconsumer.testing.sandbox import Sandbox, SandboxSecurity, wait_until, zookeeper_release

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

RELEASE = "4.1.1"
TOPIC, GROUP = "clicks", "g1"
RECORDS = 50
DEADLINE_MS = 20_000
PROGRAM = str(Path(sys.executable).parent / "zkconsumer")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Sandbox]:
    """A ZooKeeper with nothing in it, and a KRaft broker with every listener."""
    require_releases(RELEASE, zookeeper_release("3.8"))
    with Sandbox() as made:
        made.start_zookeeper()
        made.start_kraft_broker(RELEASE, security=SandboxSecurity())
        yield made


def security_of(cluster: Sandbox) -> SandboxSecurity:
    security = cluster.brokers[0].security
    assert security is not None
    return security


def member(cluster: Sandbox, name: str, **settings: str) -> PythonMember:
    quick = {
        "bootstrap.servers": cluster.bootstrap,
        "metadata.max.age.ms": "1000",
        "auto.offset.reset": "smallest",
        "auto.commit.interval.ms": "300",
        "rebalance.backoff.ms": "200",
    }
    return PythonMember(
        cluster.zookeeper, GROUP, {TOPIC: 1}, name=name, consumer_id=name, settings=quick | settings, commit_every=10
    )


def test_two_members_share_rebalance_and_keep_their_offsets_in_zookeeper(cluster: Sandbox) -> None:
    cluster.create_topic(TOPIC, 2)
    for partition in range(2):
        cluster.produce(TOPIC, partition, RECORDS)
    admin = cluster.zookeeper.admin()
    one, two = member(cluster, "one"), member(cluster, "two")
    one.start()
    try:
        wait_until(lambda: len(one.delivered) == 2 * RECORDS, "the first member reads both partitions", DEADLINE_MS)
        two.start()
        wait_until(
            lambda: set(admin.owners(GROUP, TOPIC).values()) == {f"{GROUP}_one-0", f"{GROUP}_two-0"},
            "they share",
            DEADLINE_MS,
        )
        cluster.grow_topic(TOPIC, 4)
        wait_until(
            lambda: Counter(admin.owners(GROUP, TOPIC).values()) == {f"{GROUP}_one-0": 2, f"{GROUP}_two-0": 2},
            "they share four partitions",
            DEADLINE_MS,
        )
        for partition in range(4):
            cluster.produce(TOPIC, partition, RECORDS)
        ends = {0: 2 * RECORDS, 1: 2 * RECORDS, 2: RECORDS, 3: RECORDS}
        wait_until(lambda: len(one.delivered) + len(two.delivered) >= sum(ends.values()), "all is read", DEADLINE_MS)
        two.stop()
        wait_until(
            lambda: set(admin.owners(GROUP, TOPIC).values()) == {f"{GROUP}_one-0"}, "one has all again", DEADLINE_MS
        )
    finally:
        one.stop()
        two.stop()
    handed = Counter((each.topic, each.partition, each.offset) for each in [*one.delivered, *two.delivered])
    assert handed == Counter({(TOPIC, p, offset): 1 for p, end in ends.items() for offset in range(end)})
    assert admin.offsets(GROUP, TOPIC) == ends
    assert not admin.exists("/brokers"), "nothing of Kafka's own was made in ZooKeeper"


def test_consume_reads_a_secured_kraft_broker_from_the_shell(cluster: Sandbox, tmp_path: Path) -> None:
    security = security_of(cluster)
    topic = "shell"
    cluster.create_topic(topic, 1)
    cluster.produce(topic, 0, RECORDS)
    config = tmp_path / "consumer.properties"
    lines = [f"{key}={value}\n" for key, value in security.settings("SASL_SSL", "SCRAM-SHA-512").items()]
    config.write_text("".join(lines))
    words = [
        PROGRAM, "consume", "--zookeeper", cluster.zookeeper.connect_string(), "--group", "shell", "--topic", topic,
        "--bootstrap-server", security.address("SASL_SSL"), "--config", str(config), "--from-beginning",
        "--max-messages", str(RECORDS),
    ]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == RECORDS

    config.write_text("".join(line.replace("alice-password", "wrong") for line in lines))
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode != 0
    assert re.search(r"does not accept the user or the password .* it says: Authentication failed", done.stderr)
    assert "Traceback" not in done.stderr
