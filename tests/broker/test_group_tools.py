"""The commands that look at a group, on a development broker without a ZooKeeper."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from bridge.testing import EmbeddedBroker
from zkconsumer.cli import lag as lag_command
from zkconsumer.cli.main import main


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """Group ``g`` has committed 1 and 2 of the three records of two partitions."""
    with EmbeddedBroker() as started:
        started.create_topic("clicks", partitions=2)
        for partition in range(2):
            started.append("clicks", partition, [b"x"] * 3)
        consumer = KafkaConsumer(bootstrap_servers=started.bootstrap, group_id="g", enable_auto_commit=False)
        stored = {TopicPartition("clicks", at): OffsetAndMetadata(at + 1, "", -1) for at in range(2)}
        consumer.assign(list(stored))
        consumer.commit(stored)
        consumer.close()
        yield started


def run(*words: str) -> Any:
    return CliRunner().invoke(main, list(words))


def test_the_lag_of_a_group_of_the_coordinator(broker: EmbeddedBroker) -> None:
    result = run("lag", "g", "--bootstrap-server", broker.bootstrap)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split()[:5] for line in result.stdout.splitlines()[1:-2]] == [
        ["clicks", "0", "1", "3", "2"], ["clicks", "1", "2", "3", "1"],
    ]  # fmt: skip
    assert result.stdout.splitlines()[-1] == "TOTAL 3"
    told = json.loads(run("lag", "g", "--bootstrap-server", broker.bootstrap, "-o", "json").stdout)
    step = f"zkconsumer groups describe g --bootstrap-server {broker.bootstrap}"
    assert (told["total"], told["next_steps"]) == (3, [step])


def test_no_such_group_and_no_such_broker_are_told_apart(broker: EmbeddedBroker) -> None:
    result = run("lag", "nobody", "--bootstrap-server", broker.bootstrap)
    assert result.exit_code == 1
    assert result.stderr.startswith("zkconsumer: The consumer group 'nobody' does not exist at the brokers. ")
    assert "zkconsumer groups list --bootstrap-server " in result.stderr
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # Bound and not listening: every connection is refused.
        result = run("lag", "g", "--bootstrap-server", f"127.0.0.1:{reserved.getsockname()[1]}")
    assert result.exit_code == 1
    assert result.stderr.startswith("zkconsumer: whether there is a group g is not known: ")


def test_a_watch_sees_what_comes(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    between = [lambda: broker.append("clicks", 0, [b"x"] * 4)]

    class Pause:
        def wait(self, timeout_ms: int) -> None:
            if not between:
                raise KeyboardInterrupt
            between.pop(0)()

    monkeypatch.setattr(lag_command, "StopSignal", Pause)
    result = run("lag", "g", "--watch", "--bootstrap-server", broker.bootstrap)
    assert [line for line in result.stdout.splitlines() if line.startswith("TOTAL")] == ["TOTAL 3", "TOTAL 7"]
    assert result.exit_code == 130
