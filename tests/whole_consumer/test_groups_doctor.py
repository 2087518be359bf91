"""The doctor beside members that are really ill: zstd, brokers too old, modern consumers, a sleeping process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer

from tests.sandbox_fixtures import Clusters, require_releases
from zkconsumer.kafka import table_delivery
from zkconsumer.testing.sandbox import Sandbox, SandboxSecurity, wait_until, zookeeper_release

pytestmark = [pytest.mark.real, pytest.mark.nightly, pytest.mark.timeout(180)]

PROGRAM = str(Path(sys.executable).parent / "zkconsumer")
TIMEOUT_S = 60
QUICK = ("--commit-interval", "1")
"""The members here commit every second."""


def doctor(sandbox: Sandbox, group: str, *words: str) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [PROGRAM, "groups", "doctor", group, *words, "--zookeeper", sandbox.zookeeper_connect, "-o", "json"],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 3), done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)["findings"]}


def test_modern_consumers_of_the_same_name(clusters: Clusters, names: tuple[str, str]) -> None:
    sandbox, (group, topic) = clusters.get("1.1.1"), names
    sandbox.create_topic(topic, 2)
    sandbox.produce(topic, 0, 5)
    member = sandbox.start_member("1.1.1", group, {topic: 1}, settings={"offsets.storage": "kafka"})
    member.wait_delivered(5)
    assert "coordinator-group-active" not in doctor(sandbox, group, "--interval", "0")
    modern = KafkaConsumer(
        bootstrap_servers=sandbox.bootstrap, group_id=group, client_id="the-modern-one", metadata_max_age_ms=500
    )
    try:
        # kafka-python 3.0 that leads the group before it knows the topic gives itself nothing, and may not join again.
        wait_until(lambda: modern.partitions_for_topic(topic), "it knows the topic", 30_000)
        modern.subscribe([topic])
        wait_until(lambda: modern.poll(100) is not None and modern.assignment(), "it has joined", 30_000)
        found = doctor(sandbox, group, "--interval", "0")["coordinator-group-active"]
        assert "the-modern-one" in str(found["evidence"])
    finally:
        modern.close()
    assert "coordinator-group-active" not in doctor(sandbox, group, "--interval", "0")
    member.close()


def test_the_partitions_of_an_original_that_sleeps_are_stalled(clusters: Clusters, names: tuple[str, str]) -> None:
    sandbox, (group, topic) = clusters.get("1.1.1"), names
    sandbox.create_topic(topic, 2)
    member = sandbox.start_member("1.1.1", group, {topic: 1}, settings={"zookeeper.session.timeout.ms": "30000"})
    sandbox.produce(topic, 0, 5)
    member.wait_delivered(5)
    wait_until(lambda: sandbox.admin.offsets(group, topic).get(0) == 5, "it commits", 60_000)
    assert doctor(sandbox, group, *QUICK) == {}
    member.pause()
    sandbox.produce(topic, 0, 5)
    try:
        found = doctor(sandbox, group, *QUICK)
        assert set(found) == {"partition-stalled"}
        assert f"{topic}/0: offset 5" in found["partition-stalled"]["evidence"][0]
    finally:
        member.resume()
        member.close()


def test_one_topic_with_zstd_stops_an_original_member(clusters: Clusters, names: tuple[str, str]) -> None:
    sandbox, (group, topic) = clusters.get("3.9.1"), names
    plain = f"{topic}-plain"
    for each in (topic, plain):
        sandbox.create_topic(each, 1)
    member = sandbox.start_member("1.1.1", group, {topic: 1, plain: 1})
    sandbox.produce(plain, 0, 5)
    member.wait_delivered(5)
    assert "topic-with-zstd" not in doctor(sandbox, group, "--interval", "0")
    sandbox.produce(topic, 0, 5, codec="zstd")
    sandbox.produce(plain, 0, 5)
    wait_until(lambda: "partition-stalled" in doctor(sandbox, group, "--interval", "3", *QUICK), "it stands", 60_000)
    found = doctor(sandbox, group, "--interval", "0")["topic-with-zstd"]
    assert f"{topic}/0 at offset 0" in found["evidence"][0]
    assert len(member.delivered) == 5
    member.close()


def test_a_client_that_is_newer_than_the_brokers_reads_nothing(clusters: Clusters, names: tuple[str, str]) -> None:
    sandbox, (group, topic) = clusters.get("0.9.0.1"), names
    sandbox.create_topic(topic, 2)
    sandbox.produce(topic, 0, 5)
    member = sandbox.start_member("1.1.1", group, {topic: 1})
    wait_until(lambda: len(sandbox.admin.owners(group, topic)) == 2, "it owns", 30_000)
    wait_until(
        lambda: "client-newer-than-brokers" in doctor(sandbox, group, "--interval", "2", *QUICK), "it is found", 60_000
    )
    assert member.delivered == []
    member.close()


def test_a_group_whose_brokers_are_kraft_behind_tls_is_seen_with_the_file_of_its_members(tmp_path: Path) -> None:
    """The topics come from the brokers, through TLS and SASL; the group from a ZooKeeper that knows no Kafka."""
    require_releases("4.1.1", zookeeper_release("3.8"))
    with Sandbox() as sandbox:
        security = SandboxSecurity()
        sandbox.start_zookeeper()
        sandbox.start_kraft_broker("4.1.1", security=security)
        sandbox.create_topic("clicks", 2)
        sandbox.produce("clicks", 1, 5)
        sandbox.zookeeper.admin().put("/consumers/g/offsets/clicks/1", b"2")
        settings = security.settings("SASL_SSL", "SCRAM-SHA-512")
        settings |= {"group.id": "g", "zookeeper.connect": sandbox.zookeeper.connect_string()}
        settings.setdefault("bootstrap.servers", security.address("SASL_SSL"))
        file = tmp_path / "consumer.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        done = subprocess.run(
            [PROGRAM, "groups", "describe", "g", "--config", str(file), "-o", "json"],
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)["rows"]
        shown = {row["partition"]: (row["current_offset"], row["log_end_offset"]) for row in rows}
        assert shown == {0: (None, 0), 1: (2, 5)}
        done = subprocess.run(
            [PROGRAM, "groups", "doctor", "g", "--config", str(file), "--interval", "0"],
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        notice = "" if table_delivery.AVAILABLE else "Members that are started from this installation run without its"
        assert done.stderr.startswith(notice)
        assert bool(done.stderr) == bool(notice), done.stderr
        state = "g: no member is registered, lag 3  (1 of 2 partitions without an offset)"
        assert done.stdout.splitlines() == [state, "OK: nothing found"]
