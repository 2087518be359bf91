"""``zkconsumer consume`` as users run it: a process of its own against a real cluster, with real ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zkconsumer.testing.sandbox import Sandbox, ZooKeeperServer, wait_until
from zkconsumer.testing.sandbox.waiting import free_port

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]

PROGRAM = str(Path(sys.executable).parent / "zkconsumer")
PARTITIONS, RECORDS = 3, 20
TIMEOUT_S = 30
QUICK = ("--set", "zookeeper.session.timeout.ms=4000", "--set", "auto.commit.interval.ms=500")


def command(cluster: Sandbox, group: str, *arguments: str) -> list[str]:
    return [PROGRAM, "consume", "--zookeeper", cluster.zookeeper_connect, "--group", group, *QUICK, *arguments]


def run(words: list[str], timeout_s: int = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=False)


def printed(stderr: str) -> int:
    """The last output of the program."""
    found = re.search(r"printed (\d+) messages?", stderr)
    assert found is not None, stderr
    return int(found[1])


def has_left(cluster: Sandbox, group: str, topic: str) -> bool:
    """Nothing of the member is left, without waiting for any session."""
    return cluster.admin.members(group) == [] and cluster.admin.owners(group, topic) == {}


@pytest.fixture
def topic(shared_cluster: Sandbox, fresh_name: str) -> str:
    """A topic with numbered records; the group of a test has the same name."""
    shared_cluster.create_topic(fresh_name, PARTITIONS)
    for partition in range(PARTITIONS):
        shared_cluster.produce(fresh_name, partition, RECORDS)
    return fresh_name


def all_records(topic: str) -> set[str]:
    return {f"{topic}-{partition}-{number}" for partition in range(PARTITIONS) for number in range(RECORDS)}


# --- ends ---------------------------------------------------------------------------------------------------------


def test_it_prints_every_field_and_ends_after_so_many_messages(shared_cluster: Sandbox, topic: str) -> None:
    count = PARTITIONS * RECORDS
    done = run(command(shared_cluster, topic, "--topic", topic, "--from-beginning", "--max-messages", str(count)))
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert {tuple(row[:4]) for row in rows} == {
        (topic, str(partition), str(offset), "null") for partition in range(PARTITIONS) for offset in range(RECORDS)
    }
    assert {row[4].rstrip() for row in rows} == all_records(topic)
    assert printed(done.stderr) == count
    assert shared_cluster.admin.offsets(topic, topic) == dict.fromkeys(range(PARTITIONS), RECORDS)
    assert has_left(shared_cluster, topic, topic)


def test_records_that_were_not_printed_are_not_committed(shared_cluster: Sandbox, topic: str) -> None:
    words = ["--topic", topic, "--from-beginning", "--format", r"%v\n"]
    first = run(command(shared_cluster, topic, *words, "--max-messages", "7"))
    assert (first.returncode, len(first.stdout.splitlines())) == (0, 7), first.stderr
    assert sum(shared_cluster.admin.offsets(topic, topic).values()) == 7
    rest = run(command(shared_cluster, topic, *words, "--timeout-ms", "1500"))
    assert rest.returncode == 0, rest.stderr
    assert "no message for 1500 ms" in rest.stderr
    lines = [line.rstrip() for line in (first.stdout + rest.stdout).splitlines()]
    assert sorted(lines) == sorted(all_records(topic)), "each once"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_the_group_and_commits_what_was_printed(
    number: signal.Signals, shared_cluster: Sandbox, topic: str
) -> None:
    words = command(shared_cluster, topic, "--topic", topic, "--from-beginning")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(PARTITIONS * RECORDS):
            assert process.stdout.readline()
        process.send_signal(number)
        _, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, stderr
    assert f"stopped by {number.name}" in stderr
    assert shared_cluster.admin.offsets(topic, topic) == dict.fromkeys(range(PARTITIONS), RECORDS)
    assert has_left(shared_cluster, topic, topic)


def test_head_takes_five_lines_and_the_rest_is_for_the_next_one(shared_cluster: Sandbox, topic: str) -> None:
    words = command(shared_cluster, topic, "--topic", topic, "--from-beginning", "--format", r"%p %o\n")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        head = subprocess.run(["head", "-n", "5"], stdin=process.stdout, capture_output=True, text=True, check=True)
        assert process.stdout is not None
        process.stdout.close()  # head was the only reader
        # It learns of its reader's end when it writes, so there must be something to write.
        for _ in range(100):
            if process.poll() is not None:
                break
            shared_cluster.produce(topic, 0, 1)
        stderr = process.stderr.read() if process.stderr is not None else ""
        process.wait(TIMEOUT_S)
    assert len(head.stdout.splitlines()) == 5
    assert process.returncode == 0, stderr
    assert "the output was closed" in stderr
    assert sum(shared_cluster.admin.offsets(topic, topic).values()) == printed(stderr) >= 5
    assert has_left(shared_cluster, topic, topic)


# --- what it takes ------------------------------------------------------------------------------------------------


def test_several_topics_and_threads(shared_cluster: Sandbox, topic: str) -> None:
    other = f"{topic}.other"
    shared_cluster.create_topic(other, 2)
    shared_cluster.produce(other, 1, 5)
    words = ["--topic", f"{topic}:2", "--topic", other, "--from-beginning", "--format", r"%t %p %o\n"]
    count = PARTITIONS * RECORDS + 5
    done = run(command(shared_cluster, topic, *words, "--max-messages", str(count)))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(set(lines)) == count
    assert sum(line.startswith(f"{other} 1 ") for line in lines) == 5
    assert has_left(shared_cluster, topic, topic)
    assert has_left(shared_cluster, topic, other)


def test_it_continues_where_the_scala_console_consumer_stopped_with_its_file(
    shared_cluster: Sandbox, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text(
        f"# as it lay there for years\nzookeeper.connect={shared_cluster.zookeeper_connect}\n"
        f"group.id = {topic}\nauto.offset.reset=smallest\nzookeeper.session.timeout.ms=4000\n"
        "zookeeper.connection.timeout.ms=6000\nconsumer.timeout.ms=5000\n"
    )
    original = ["--zookeeper", shared_cluster.zookeeper_connect, "--topic", topic, "--consumer.config", str(file)]
    theirs = shared_cluster.run_tool("1.1.1", "kafka.tools.ConsoleConsumer", [*original, "--max-messages", "25"])
    assert theirs.code == 0, theirs
    ours = run([PROGRAM, "consume", "--config", str(file), "--topic", topic, "--timeout-ms", "1500",
                "--format", r"%v\n"])  # fmt: skip
    assert ours.returncode == 0, ours.stderr
    lines = [line.rstrip() for line in (theirs.out + ours.stdout).splitlines()]
    assert len(ours.stdout.splitlines()) >= PARTITIONS * RECORDS - 25
    assert set(lines) == all_records(topic)
    assert shared_cluster.admin.offsets(topic, topic) == dict.fromkeys(range(PARTITIONS), RECORDS)


def test_two_consumers_read_a_topic_and_one_takes_over_when_the_other_leaves(
    shared_cluster: Sandbox, topic: str
) -> None:
    words = command(shared_cluster, topic, "--topic", topic, "--from-beginning", "--format", r"%p %o\n")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes) as one, subprocess.Popen(words, **pipes) as two:  # type: ignore[call-overload]

        def owners() -> set[str]:
            return {owner.rpartition("-")[0] for owner in shared_cluster.admin.owners(topic, topic).values()}

        wait_until(lambda: len(owners()) == 2, "both own something", 60_000)
        one.send_signal(signal.SIGTERM)
        first, _ = one.communicate(timeout=TIMEOUT_S)
        wait_until(lambda: len(shared_cluster.admin.owners(topic, topic)) == PARTITIONS, "two owns it all", 60_000)
        for partition in range(PARTITIONS):
            shared_cluster.produce(topic, partition, 1)
        end = dict.fromkeys(range(PARTITIONS), RECORDS + 1)
        wait_until(lambda: shared_cluster.admin.offsets(topic, topic) == end, "two has printed it all", 60_000)
        two.send_signal(signal.SIGTERM)
        second, _ = two.communicate(timeout=TIMEOUT_S)
    lines = (first + second).splitlines()
    assert len(lines) == len(set(lines)) == PARTITIONS * (RECORDS + 1)


# --- a world that is not as it should be --------------------------------------------------------------------------


def test_a_zookeeper_that_is_not_there_is_named_within_the_connection_timeout() -> None:
    address = f"127.0.0.1:{free_port()}"
    done = run([PROGRAM, "consume", "--zookeeper", address, "--group", "g", "--topic", "t",
                "--set", "zookeeper.connection.timeout.ms=1500"], timeout_s=10)  # fmt: skip
    assert done.returncode == 1
    assert address in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_chroot_is_named(zookeeper_server: ZooKeeperServer) -> None:
    address = zookeeper_server.connect_string("/nowhere")
    done = run([PROGRAM, "consume", "--zookeeper", address, "--group", "g", "--topic", "t"])
    assert done.returncode == 1
    assert "/nowhere" in done.stderr
    assert "Traceback" not in done.stderr
    assert not zookeeper_server.admin().exists("/nowhere"), "it must not be made"


def test_without_a_broker_it_waits_and_reports_what_is_missing(zookeeper_connect: str) -> None:
    done = run([PROGRAM, "consume", "--zookeeper", zookeeper_connect, "--group", "g", "--topic", "t",
                "--timeout-ms", "1500"])  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "topic-missing" in done.stderr
    assert "zkconsumer: not everything could be read: the topic t does not exist" in done.stderr
    assert printed(done.stderr) == 0
