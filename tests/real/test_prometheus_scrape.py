"""A real Prometheus scrapes real members: alerts fire and end, and each query of the dashboard has an answer."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from bridge.client.kafka_consumer.kafka_consumer import KafkaConsumer
from bridge.client.kafka_consumer.prometheus import KafkaConsumerCollector
from bridge.spark.membership.metrics import GAUGES, MetricsServer, render_prometheus
from bridge.spark.monitoring.lag_collector import LagCollector
from bridge.spark.monitoring.query_lag import Lag, lag
from bridge.spark.pipeline.status.pipeline_metrics import render_pipeline_metrics
from tests.debian_packages import PROMETHEUS
from tests.generate_monitoring import ALERTS, ALERTS_FILE, MONITORING
from tests.requirement_fixtures import require_program
from tests.unit.spark.pipeline.test_run_state import STATE
from tests.unit.spark.test_spark_progress import ENVELOPE, LATEST, progress, source
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import SandboxError
from zkconsumer.observe.lag_time import KnownLagTime, TimestampKind
from zkconsumer.observe.lag_trend import CatchUp, LagTrend
from zkconsumer.observe.prometheus import ConnectorCollector
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.waiting import HOST, free_port, wait_until
from zkconsumer.types import TopicPartition

pytestmark = [pytest.mark.real, pytest.mark.nightly, pytest.mark.timeout(280)]

PARTITIONS, RECORDS, MORE_RECORDS = 2, 50, 300
WAIT_MS = 60_000
SHORT_THRESHOLDS = {"> 100000": "> 100", "> 240": "> 3"}
"""Of the rules in this test; and a condition must be true for ``SHORT_WAIT``."""
SHORT_WAIT = "for: 3s"
BOARD_VARIABLES = {"$__rate_interval": "1m", "$group": ".*", "$client": ".*", "$query": ".*", "$pipeline": ".*"}


@dataclass
class PrometheusServer:
    """Its HTTP interface."""

    address: str

    def get(self, path: str, **parameters: str) -> Any:
        """The field ``data`` of an answer."""
        with urllib.request.urlopen(f"{self.address}{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Any]:
        """The samples of a query now."""
        found = self.get("/api/v1/query", query=expression)["result"]
        assert isinstance(found, list)
        return found

    def alerts(self) -> dict[str, set[str]]:
        """Name of an alert that is not inactive -> its states."""
        found: dict[str, set[str]] = {}
        for each in self.get("/api/v1/alerts")["alerts"]:
            found.setdefault(each["labels"]["alertname"], set()).add(each["state"])
        return found

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/-/ready", timeout=10):
                return True
        except OSError:
            return False


def short_rules() -> str:
    """The generated rules, with smaller thresholds and shorter waits."""
    text = (MONITORING / ALERTS_FILE).read_text("utf-8")
    for old, new in SHORT_THRESHOLDS.items():
        assert old in text
        text = text.replace(old, new)
    return re.sub(r"for: \d+m", SHORT_WAIT, text)


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[PrometheusServer]:
    """A server that scrapes ``target`` (host:port) and evaluates the rules each second."""
    program = require_program(PROMETHEUS)
    (folder / "rules.yml").write_text(short_rules())
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [{"job_name": "members", "static_configs": [{"targets": [target]}]}],
    }
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(configuration))  # JSON is YAML
    listen = f"{HOST}:{free_port()}"
    words = [
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={listen}",
    ]
    with (folder / "log.txt").open("w") as log, subprocess.Popen(words, stdout=log, stderr=log) as process:
        try:
            server = PrometheusServer(f"http://{listen}")
            wait_until(server.is_ready, f"Prometheus is ready; its log is {log.name}", WAIT_MS)
            yield server
        finally:
            process.terminate()


class OneQuery:
    """As ``ZkConsumerListener`` after a batch of one query; no Spark runs here."""

    latest: Mapping[str, Lag] = {
        "etl": replace(
            lag(progress(source(ENVELOPE, LATEST))),
            lag_times={(0, TopicPartition("clicks", 0)): KnownLagTime(1_500, 1, TimestampKind.OBSERVED)},
            catch_up=CatchUp(LagTrend.CATCHING_UP, 4_000),
        )
    }


def board_queries() -> list[str]:
    """The query of each panel, with the variables as Grafana sets them for all."""
    board = json.loads((MONITORING / "zkconsumer-dashboard.json").read_text("utf-8"))
    found = []
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"]
            for name, value in BOARD_VARIABLES.items():
                query = query.replace(name, value)
            found.append(query)
    return found


@contextmanager
def scraped_members(cluster: Sandbox, group: str, topic: str) -> Iterator[tuple[Iterator[object], str]]:
    """A connector that has read half of the topic, and a consumer that has polled all of it and polls no more.

    Returns the messages of the connector, and host:port of the metrics: of these two, and of a Spark query, of its
    membership and of a pipeline, which do not run.
    """
    settings = {
        "zookeeper.connect": cluster.zookeeper_connect, "group.id": group, "auto.offset.reset": "smallest",
        "auto.commit.interval.ms": "200", "consumer.timeout.ms": "20000",
    }  # fmt: skip
    polling = {
        "bootstrap.servers": cluster.bootstrap, "group.id": f"{group}-polls", "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": "500", "max.poll.records": "10",
    }  # fmt: skip
    registry = CollectorRegistry()

    def text() -> str:
        of_member = render_prometheus(group, "spark-member", dict.fromkeys(GAUGES, 1))
        of_pipeline = render_pipeline_metrics(STATE, {TopicPartition("clicks", 0): 5}, SYSTEM_CLOCK.wall_ms())
        return generate_latest(registry).decode() + of_member + of_pipeline

    with (
        ZookeeperConsumerConnector(ConsumerConfig.from_properties(settings)) as connector,
        KafkaConsumer(polling) as consumer,
    ):
        for collector in (ConnectorCollector(connector), KafkaConsumerCollector(consumer), LagCollector(OneQuery())):
            registry.register(collector)
        [stream] = connector.create_message_streams({topic: 1})[topic]
        messages = iter(stream)
        for _ in range(RECORDS):
            next(messages)
        consumer.subscribe([topic])
        polled = 0
        while polled < PARTITIONS * RECORDS:
            polled += sum(1 for _ in consumer.poll(1_000))
        consumer.poll(0)  # a response counts when it was read to its end, which the next call notices
        consumer.commit_sync()
        served = MetricsServer(f"{HOST}:0", text, lambda name, error: pytest.fail(f"{name}: {error}"))
        try:
            yield messages, f"{HOST}:{served.port}"
        finally:
            served.close()


def test_alerts_and_dashboard_in_a_real_prometheus(
    shared_cluster: Sandbox, names: tuple[str, str], tmp_path: Path
) -> None:
    require_program(PROMETHEUS)
    group, topic = names
    shared_cluster.create_topic(topic, PARTITIONS)

    def produce(records: int) -> None:
        for partition in range(PARTITIONS):
            shared_cluster.produce(topic, partition, records)

    def await_firing(alert: str) -> None:
        wait_until(lambda: "firing" in server.alerts().get(alert, ()), f"{alert} fires", WAIT_MS)

    def unanswered() -> list[str]:
        return [each for each in board_queries() if not server.query(each)]

    produce(RECORDS)
    with (
        scraped_members(shared_cluster, group, topic) as (messages, target),
        prometheus(tmp_path, target) as server,
    ):
        wait_until(lambda: server.query("zkconsumer_max_lag"), "Prometheus has scraped", WAIT_MS)
        assert "MemberFallsBehind" not in server.alerts()

        produce(MORE_RECORDS)
        await_firing("MemberFallsBehind")
        pending = 'max_over_time(ALERTS{alertname="MemberFallsBehind",alertstate="pending"}[2m])'
        assert server.query(pending), "it was pending first"
        [worst] = server.query(f'max(zkconsumer_max_lag{{group="{group}"}})')
        assert float(worst["value"][1]) > 100
        await_firing("KafkaConsumerDoesNotPoll")

        with suppress(SandboxError):
            wait_until(lambda: not unanswered(), "each query of the dashboard has an answer", WAIT_MS, poll_ms=2_000)
        assert unanswered() == []
        rules = server.get("/api/v1/rules")["groups"][0]["rules"]
        assert {rule["name"]: rule["health"] for rule in rules} == {alert.name: "ok" for alert in ALERTS}

        for _ in range(PARTITIONS * (RECORDS + MORE_RECORDS) - RECORDS):
            next(messages)
        wait_until(lambda: "MemberFallsBehind" not in server.alerts(), "the alert ends", WAIT_MS)
