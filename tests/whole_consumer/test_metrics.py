"""Metrics on real servers: the names are those that an original member shows over JMX; a file of them can be had."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.in_memory_fixtures import take, wait_until
from tests.sandbox_fixtures import require_releases
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector
from zkconsumer.testing.sandbox import Sandbox

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]

PROGRAM = str(Path(sys.executable).parent / "zkconsumer")
RECORDS = 5
OF_OURS = r"name=(QueuedBytes|FetchesDeferredPerSec|ConsumerLagSeconds),"
"""Of ``queued.max.bytes``, and the lag in seconds: the original does not have them."""

SINCE_0_9 = r"name=(yammer-metrics-count|FetchRequestThrottleRateAndTimeMs)"
WORDS = {"EventType", "LatencyUnit", "RateUnit"}
"""Attributes of an MBean that are no numbers."""


def concerns_the_consumer(name: str) -> bool:
    """Whether an MBean of the original is the consumer's own; others tell of the JVM, or of a producer's class."""
    return re.match(r"kafka\.(consumer|server):type=(?!app-info)", name) is not None


@pytest.mark.parametrize(
    "release",
    ["1.1.1", pytest.param("0.10.2.2", marks=pytest.mark.nightly), pytest.param("0.8.2.2", marks=pytest.mark.nightly)],
)
def test_the_names_are_those_of_an_original_member(release: str, shared_cluster: Sandbox, fresh_name: str) -> None:
    """Both read the same topic with the same client id, each in a group of its own."""
    require_releases(release)
    shared_cluster.create_topic(fresh_name, 1)
    shared_cluster.produce(fresh_name, 0, RECORDS)
    scala = shared_cluster.start_member(
        release, f"{fresh_name}-scala", {fresh_name: 1}, settings={"client.id": "both", "auto.offset.reset": "smallest"}
    )
    scala.wait_delivered(RECORDS)
    config = ConsumerConfig(
        group_id=f"{fresh_name}-ours",
        client_id="both",
        zookeeper_connect=shared_cluster.zookeeper_connect,
        auto_offset_reset="smallest",
        consumer_timeout_ms=20_000,
    )
    with ZookeeperConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({fresh_name: 1})[fresh_name]
        take(stream, RECORDS)
        ours = {name: set(values) for name, values in connector.metrics()["metrics"].items()}
    theirs = {name: each for name, each in scala.mbeans().items() if concerns_the_consumer(name)}
    scala.stop()

    def in_common_words(beans: dict[str, set[str]]) -> dict[str, set[str]]:
        return {re.sub(r"-(scala|ours)\b", "", name): attributes - WORDS for name, attributes in beans.items()}

    assert len([name for name in ours if re.search(OF_OURS, name)]) == 3
    for name in [*ours]:
        if re.search(OF_OURS, name) or (release.startswith("0.8") and re.search(SINCE_0_9, name)):
            del ours[name]
    assert in_common_words(ours) == in_common_words(theirs)


def test_consume_writes_what_is_measured(shared_cluster: Sandbox, fresh_name: str, tmp_path: Path) -> None:
    shared_cluster.create_topic(fresh_name, 1)
    shared_cluster.produce(fresh_name, 0, RECORDS)
    path = tmp_path / "metrics.json"
    words = ["--topic", fresh_name, "--group", fresh_name, "--from-beginning", "--metrics", str(path)]
    process = subprocess.Popen(
        [PROGRAM, "consume", "--zookeeper", shared_cluster.zookeeper_connect, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(path.exists, "there is a file from the beginning on", 60_000)
        assert json.loads(path.read_text("utf-8"))["group"] == fresh_name
        assert process.stdout is not None
        assert len([process.stdout.readline() for _ in range(RECORDS)]) == RECORDS
    finally:
        process.terminate()
        process.communicate(timeout=20)
    metrics = json.loads(path.read_text("utf-8"))["metrics"]
    read = f"kafka.consumer:type=ConsumerTopicMetrics,name=MessagesPerSec,clientId={fresh_name},topic={fresh_name}"
    assert metrics[read]["Count"] == RECORDS, "the last word is written at the end"
