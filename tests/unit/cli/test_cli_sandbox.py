"""``zkconsumer sandbox``: what its commands take, send and say; no server is started."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from zkconsumer.cli import main
from zkconsumer.cli.sandbox import sandbox_next_steps
from zkconsumer.testing.sandbox import background_cluster, sandbox_runs
from zkconsumer.testing.sandbox.background_client import RECORDS_AT_ONCE, BackgroundClusterClient
from zkconsumer.testing.sandbox.background_cluster import BackgroundCluster, ClusterProcess
from zkconsumer.testing.sandbox.producer_process import ProducedRange
from zkconsumer.testing.sandbox.topic_setup import assign_replicas

CLUSTER = BackgroundCluster(
    run="/no/run",
    root="/no/run/files",
    zookeeper_connect="127.0.0.1:1/kafka",
    bootstrap="127.0.0.1:2",
    topics={"clicks": 4},
    parts=(
        ClusterProcess("zookeeper", "ZooKeeper 3.8", "127.0.0.1:1", 11),
        ClusterProcess("broker-0", "Kafka 1.1.1", "127.0.0.1:2", 12),
    ),
)


class Sent:
    """In place of the producer: remembers what it was given, and answers offsets that count up."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.records: list[tuple[int, bytes | None, bytes | None]] = []
        self.calls = 0

    def produce_values(
        self, topic: str, partition: int, values: Sequence[bytes | None], *, keys: Sequence[bytes | None]
    ) -> ProducedRange:
        self.calls += 1
        first = len(self.records)
        self.records += [(partition, key, value) for key, value in zip(keys, values, strict=True)]
        return ProducedRange(topic, partition, first, first + len(values) - 1)

    def produce_keyed(self, topic: str, pairs: Sequence[tuple[bytes | None, bytes | None]]) -> list[ProducedRange]:
        return [
            self.produce_values(topic, len(key or b"") % self.partitions, [value], keys=[key]) for key, value in pairs
        ]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sent:
    """The cluster is up, its topic ``clicks`` has three partitions, and nothing is real."""
    made = Sent(3)
    admin = SimpleNamespace(
        topic_replicas=lambda name: assign_replicas(3, [0]) if name == "clicks" else {}, close=lambda: None
    )
    monkeypatch.setenv("ZKCONSUMER_CACHE", str(tmp_path))
    monkeypatch.setattr(background_cluster, "current", lambda: CLUSTER)
    monkeypatch.setattr(BackgroundCluster, "states", lambda _: {"broker-0": background_cluster.RUNNING})
    monkeypatch.setattr(BackgroundClusterClient, "_admin", admin)
    monkeypatch.setattr(BackgroundClusterClient, "_load", made)
    return made


def run(*words: str, text: str | bytes = "") -> Result:
    return CliRunner().invoke(main, ["sandbox", *words], input=text)


# --- records --------------------------------------------------------------------------------------------------------


def test_lines_go_to_the_partitions_in_turn(sent: Sent) -> None:
    done = run("produce", "clicks", text="a\r\nb\n\nd")
    assert done.exit_code == 0
    assert sorted(sent.records) == [(0, None, b"a"), (0, None, b"d"), (1, None, b"b"), (2, None, b"")]
    assert done.stderr == "sent 4 records to clicks: 2 to partition 0, 1 to partition 1, 1 to partition 2\n"


def test_bytes_that_are_no_text_are_sent_as_they_are(sent: Sent) -> None:
    assert run("produce", "clicks", "--partition", "1", text=b"\xff\xfe\n\x00").exit_code == 0
    assert sent.records == [(1, None, b"\xff\xfe"), (1, None, b"\x00")]


def test_numbered_records_are_sent_in_commands_of_a_bounded_size(sent: Sent) -> None:
    count = 3 * RECORDS_AT_ONCE + 1
    assert run("produce", "clicks", "--count", str(count)).exit_code == 0
    assert {value for _, _, value in sent.records} == {b"clicks-%d" % n for n in range(1, count + 1)}
    assert sent.calls == 4


def test_a_key_decides_the_partition_and_a_given_partition_wins(sent: Sent) -> None:
    assert run("produce", "clicks", "--key-separator", "=>", text="k=>a=>b\nkk=>\n").exit_code == 0
    assert sent.records == [(1, b"k", b"a=>b"), (2, b"kk", b"")]
    sent.records.clear()
    assert run("produce", "clicks", "--key-separator", ":", "--partition", "0", text="k:a\n").exit_code == 0
    assert sent.records == [(0, b"k", b"a")]


def test_a_line_without_a_key_ends_the_input_and_what_came_before_is_sent(sent: Sent) -> None:
    done = run("produce", "clicks", "--key-separator", ":", text="k:a\nb\nk:c\n")
    assert done.exit_code == 1
    assert sent.records == [(1, b"k", b"a")]
    assert "sent 1 record to clicks: 1 to partition 1\n" in done.stderr
    assert "line 2 has no ':' between a key and a value; this line and those after it were not sent" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["clicks", "--count", "1", "--key-separator", ":"], 2, "--count sends records without a key"),
        (["clicks", "--key-separator", ""], 2, "--key-separator is empty"),
        (["clicks", "--partition", "3"], 1, "topic clicks has the partitions 0 to 2, and no 3"),
        (["views"], 1, "there is no topic views in the sandbox; create it: zkconsumer sandbox topic create views"),
        (["a/b"], 2, "'a/b' is not a topic name"),
    ],
)
def test_what_cannot_be_sent_is_refused(words: list[str], code: int, said: str, sent: Sent) -> None:
    done = run("produce", *words, text="x\n")
    assert done.exit_code == code
    assert said in done.stderr
    assert sent.records == []


@pytest.mark.parametrize("words", [["produce", "t"], ["topic", "list"], ["topic", "create", "t"], ["status"]])
def test_without_a_sandbox_every_command_says_so(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKCONSUMER_CACHE", str(tmp_path))
    done = run(*words)
    assert done.exit_code == 3
    assert "no sandbox is running" in done.stderr


# --- the cluster ----------------------------------------------------------------------------------------------------


def test_a_part_is_running_dead_or_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BackgroundCluster, "running", lambda _: {11})
    monkeypatch.setattr(background_cluster, "zookeeper_version", lambda _: "Zookeeper version: 3.8")
    assert CLUSTER.states() == {"zookeeper": "running", "broker-0": "dead"}
    monkeypatch.setattr(background_cluster, "zookeeper_version", lambda _: None)
    assert CLUSTER.states(timeout_ms=1) == {"zookeeper": "does not answer", "broker-0": "dead"}


def test_a_process_id_that_another_program_has_is_no_part_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKCONSUMER_CACHE", str(tmp_path))
    run_ = sandbox_runs.SandboxRun.create()
    run_.record(os.getpid(), "broker", "broker-0")
    fields: dict[str, Any] = {name: getattr(CLUSTER, name) for name in CLUSTER.__slots__}
    parts = (CLUSTER.parts[0], ClusterProcess("broker-0", "Kafka 1.1.1", "127.0.0.1:2", os.getpid()))
    assert BackgroundCluster(**{**fields, "run": str(run_.folder), "parts": parts}).running() == set()


def test_the_command_that_starts_such_a_cluster_again_is_whole() -> None:
    assert CLUSTER.start_command == (
        "zkconsumer sandbox up --kafka 1.1.1 --zookeeper 3.8 --chroot /kafka --topic clicks:4"
    )


def test_the_next_steps_produce_and_consume_what_is_there() -> None:
    assert sandbox_next_steps(CLUSTER) == [
        "zkconsumer sandbox produce clicks --count 10",
        "zkconsumer consume --zookeeper 127.0.0.1:1/kafka --group demo --topic clicks --from-beginning"
        " --max-messages 10",
    ]


def test_partitions_go_round_the_brokers() -> None:
    assert assign_replicas(3, [4, 7]) == {0: [4], 1: [7], 2: [4]}


def test_a_release_that_there_is_not_is_a_wrong_call_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ZKCONSUMER_CACHE", str(tmp_path))
    monkeypatch.setattr(background_cluster, "up", lambda *_: pytest.fail("nothing is to be started"))
    for words in (("--kafka", "5.5.5"), ("--zookeeper", "3.9")):
        done = run("up", *words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "is not in the sandbox; there are " in done.stderr
        assert "starting" not in done.stderr


def test_a_first_start_says_that_it_fetches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZKCONSUMER_CACHE", str(tmp_path))
    monkeypatch.setattr(background_cluster, "up", lambda *_: CLUSTER)
    assert f"Maven downloads what is not in {tmp_path} yet" in run("up").stderr
    monkeypatch.setattr("zkconsumer.testing.sandbox.artifacts.is_complete", lambda *_: True)
    assert "Maven" not in run("up").stderr
