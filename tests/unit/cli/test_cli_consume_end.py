"""How ``zkconsumer consume`` and ``zkconsumer perf`` end where not everything could be read; on a world in memory."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
from array import array
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.in_memory_fixtures import MakeWorld, wait_until
from zkconsumer.cli import consume as consume_module
from zkconsumer.cli import perf as perf_module
from zkconsumer.cli.main import main
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.zk import paths

NOT_ALL = "zkconsumer: not everything could be read: "
ABSENT = "the topic nosuch does not exist: create it, or correct its name or the chroot"
Run = Callable[..., Result]


@pytest.fixture
def world(make_world: MakeWorld) -> FakeEnvironment:
    """Two brokers that lead a partition of ``t`` each, with three records."""
    made = make_world(2)
    made.create_topic("t", 2)
    for partition in range(2):
        made.cluster.append("t", partition, [b"x"] * 3)
    return made


@pytest.fixture
def run(world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a command on the world of the test."""

    def connector(config: ConsumerConfig) -> ZookeeperConsumerConnector:
        return world.connector(**{key.replace(".", "_"): config.values[key] for key in config.given})

    for module in (consume_module, perf_module):
        monkeypatch.setattr(module, "ZookeeperConsumerConnector", connector)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield lambda *words: CliRunner().invoke(main, [*words, "--zookeeper", ADDRESS])
    for number, handler in handlers.items():
        signal.signal(number, handler)


def consume(run: Run, *words: str) -> Result:
    return run("consume", "g", "--topic", "t", "--from-beginning", "--timeout-ms", "800", *words)


def test_all_that_there_is_was_read(run: Run) -> None:
    done = consume(run)
    assert (done.exit_code, done.stdout.count("\n"), NOT_ALL in done.stderr) == (0, 6, False), done.stderr


def test_no_broker_answers(world: FakeEnvironment, run: Run) -> None:
    for broker in (0, 1):
        world.cluster.stop_broker(broker)
    done = consume(run)
    assert (done.exit_code, done.stdout) == (1, ""), done.stderr
    assert f"{NOT_ALL}none of 2 brokers answers" in done.stderr
    assert "start the broker, or correct its address" in done.stderr


def test_one_of_two_brokers_does_not_answer(world: FakeEnvironment, run: Run) -> None:
    world.cluster.stop_broker(1)
    done = consume(run)
    assert (done.exit_code, done.stdout.count("\n")) == (1, 3), done.stderr
    assert f"{NOT_ALL}no broker leads t/1 now: start the brokers that have its replicas; " in done.stderr


def test_a_topic_that_does_not_exist(run: Run) -> None:
    done = consume(run, "--topic", "nosuch")
    assert (done.exit_code, done.stdout.count("\n")) == (1, 6), done.stderr
    assert done.stderr.endswith(f"{NOT_ALL}{ABSENT}\n")


def test_a_topic_that_is_created_meanwhile_is_read(world: FakeEnvironment, run: Run) -> None:
    def create() -> None:
        wait_until(lambda: world.zookeeper.data(paths.ids("g")) is not None, "the member looks for its group")
        world.create_topic("later", 1)
        world.cluster.append("later", 0, [b"x"])

    creating = threading.Thread(target=create)
    creating.start()
    done = run("consume", "g", "--topic", "later", "--from-beginning", "--timeout-ms", "20000", "--max-messages", "1")
    creating.join()
    assert (done.exit_code, done.stdout.count("\n")) == (0, 1), done.stderr


def test_as_many_as_were_asked_for_are_enough(world: FakeEnvironment, run: Run) -> None:
    world.cluster.stop_broker(1)
    assert consume(run, "--max-messages", "3").exit_code == 0


def test_a_signal_does_not_hide_it(run: Run) -> None:
    threading.Timer(1.0, signal.raise_signal, [signal.SIGTERM]).start()
    done = run("consume", "g", "--topic", "nosuch")
    assert done.exit_code == 1, done.stderr
    assert "stopped by SIGTERM; printed 0 messages" in done.stderr
    assert done.stderr.endswith(f"{NOT_ALL}{ABSENT}\n")


def test_perf_says_why_there_were_fewer(world: FakeEnvironment, run: Run) -> None:
    words = ("perf", "g", "--topic", "t", "--threads", "1", "--timeout", "800")
    assert run(*words, "--messages", "6").exit_code == 0
    fewer = run(*words, "--messages", "7", "--group", "g")
    assert (fewer.exit_code, "0 of 7 messages" in fewer.stderr) == (0, True), fewer.stderr
    world.cluster.stop_broker(1)
    done = run(*words, "--messages", "7")
    assert done.exit_code == 1, done.stderr
    assert NOT_ALL in done.stderr


def test_a_program_may_ask_for_the_same(world: FakeEnvironment) -> None:
    connector = world.connector()
    connector.create_message_streams({"t": 1, "nosuch": 1})

    wait_until(lambda: connector.reading_problems(5_000) == [ABSENT], "all but the topic is there")


BLOCKED = f"""
from bridge.testing.fake_environment import FakeEnvironment
from zkconsumer.cli import consume
from zkconsumer.cli.main import main

world = FakeEnvironment(1)
world.create_topic("t", 2)
for partition in range(2):
    world.cluster.append("t", partition, [b"x" * 1_000] * 200)
consume.ZookeeperConsumerConnector = lambda config: world.connector(
    **{{key.replace(".", "_"): config.values[key] for key in config.given}}
)
main(["consume", "g", "--topic", "t:2", "--from-beginning", "--zookeeper", "{ADDRESS}"])
"""


def test_an_output_that_nobody_reads_does_not_prevent_the_end() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        try:
            wait_until(lambda: is_full(pipe), "a write to the pipe waits")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 1
        finally:
            process.kill()
        assert process.stderr is not None
        told = process.stderr.read()
    assert "stopped by SIGTERM; printed " in told
    assert "zkconsumer: standard output takes nothing: the message that was being printed may be cut off" in told


def is_full(pipe: int) -> bool:
    """Whether the pipe has no room for another message."""
    waiting = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) - waiting[0] < 1_000
