"""The sandbox against the real programs: every pair that a user may have, and every way in which a run may end."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox_fixtures import require_releases, require_zookeeper
from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import Sandbox, ScalaHost, sandbox_runs, wait_until, zookeeper_release
from zkconsumer.testing.sandbox.probe import zookeeper_version
from zkconsumer.testing.sandbox.waiting import free_port

pytestmark = pytest.mark.real

PARTITIONS, RECORDS = 3, 50

COMMAND_TIMEOUT_S = 100
"""For one command of ours, which may start a JVM on a machine that is busy."""

by_commands = pytest.mark.timeout(400)
"""A test of up to twenty commands, each a process."""


def pair(broker: str, member: str, zookeeper: str, *, nightly: bool = False) -> object:
    marks = [pytest.mark.nightly] if nightly else []
    return pytest.param(broker, member, zookeeper, marks=marks, id=f"{broker}-{member}-{zookeeper}")


@pytest.mark.parametrize(
    ("broker", "member", "zookeeper"),
    [
        pair("0.8.2.2", "0.8.2.2", "3.4.6"),
        pair("0.10.2.2", "0.10.2.2", "3.8", nightly=True),
        pair("1.1.1", "1.1.1", "3.8"),
        pair("3.9.1", "1.1.1", "3.8"),
        pair("0.8.2.2", "0.8.2.2", "3.8", nightly=True),
        pair("0.9.0.1", "0.9.0.1", "3.4.6", nightly=True),
        pair("0.9.0.1", "0.8.2.2", "3.8", nightly=True),
        pair("0.11.0.3", "0.11.0.3", "3.8", nightly=True),
        pair("1.1.1", "1.1.1", "3.4.6", nightly=True),
        pair("1.1.1", "0.9.0.1", "3.8", nightly=True),
        pair("2.0.1", "1.1.1", "3.8", nightly=True),
        pair("3.9.1", "0.8.2.2", "3.8", nightly=True),
    ],
)
def test_a_scala_consumer_reads_everything_and_leaves_its_offsets(
    broker: str, member: str, zookeeper: str, sandbox: Sandbox
) -> None:
    require_releases(broker, member, zookeeper_release(zookeeper))
    sandbox.start_zookeeper(zookeeper)
    sandbox.start_broker(broker, chroot="/kafka")
    sandbox.create_topic("clicks", PARTITIONS)
    for partition in range(PARTITIONS):
        produced = sandbox.produce("clicks", partition, RECORDS, codec="gzip" if partition else "none")
        assert (produced.first, produced.last) == (0, RECORDS - 1)

    original = sandbox.start_member(member, "group", {"clicks": 2}, values=True)
    consumer_id = original.wait_registered()
    original.wait_delivered(PARTITIONS * RECORDS)

    assert original.offsets() == {("clicks", p): list(range(RECORDS)) for p in range(PARTITIONS)}
    assert all(
        message.value is not None and message.value.rstrip() == f"clicks-{message.partition}-{message.offset}"
        for message in original.delivered
    )
    # Range: the first of two threads has two of three partitions.
    threads = [f"{consumer_id}-0", f"{consumer_id}-0", f"{consumer_id}-1"]
    assert sandbox.admin.owners("group", "clicks") == dict(enumerate(threads))

    assert original.stop()
    assert original.events[-1]["event"] == "stopped"
    assert sandbox.admin.offsets("group", "clicks") == dict.fromkeys(range(PARTITIONS), RECORDS)
    assert sandbox.admin.owners("group", "clicks") == {}
    assert sandbox.admin.members("group") == []


# --- members ---


def test_commit_on_demand_with_auto_commit_off(shared_cluster: Sandbox, fresh_name: str) -> None:
    shared_cluster.create_topic(fresh_name, 1)
    shared_cluster.produce(fresh_name, 0, 10)
    member = shared_cluster.start_member(
        "1.1.1", fresh_name, {fresh_name: 1}, consumer_id="one", settings={"auto.commit.enable": "false"}
    )
    member.wait_delivered(10)
    assert shared_cluster.admin.offsets(fresh_name, fresh_name) == {}
    member.commit()
    assert shared_cluster.admin.offsets(fresh_name, fresh_name) == {0: 10}
    assert member.consumer_id == f"{fresh_name}_one"
    member.stop()


def test_roundrobin_a_filter_several_threads_and_a_listener(shared_cluster: Sandbox, fresh_name: str) -> None:
    for suffix in ("a", "b"):
        shared_cluster.create_topic(f"{fresh_name}.{suffix}", 2)
        for partition in range(2):
            shared_cluster.produce(f"{fresh_name}.{suffix}", partition, 5)
    member = shared_cluster.start_member(
        "1.1.1",
        fresh_name,
        whitelist=f"{fresh_name}[.].*",
        streams=4,
        listener=True,
        settings={"partition.assignment.strategy": "roundrobin"},
    )
    member.wait_delivered(20)
    assert {message.thread for message in member.delivered} == {0, 1, 2, 3}
    assert member.count("claimed") >= 1
    assert member.count("rebalance_ended") >= 1
    member.stop()


def test_a_member_paused_beyond_its_session_detects_it_when_it_resumes(
    shared_cluster: Sandbox, fresh_name: str
) -> None:
    shared_cluster.create_topic(fresh_name, 1)
    member = shared_cluster.start_member(
        "1.1.1", fresh_name, {fresh_name: 1}, settings={"zookeeper.session.timeout.ms": "2000"}
    )
    member.wait_registered()
    member.pause()
    wait_until(lambda: not shared_cluster.admin.members(fresh_name), "its session ends", 60_000)
    member.resume()
    member.wait_for(lambda: member.count("session_expired"), 15_000, "learns that its session is gone")
    member.wait_registered()
    member.stop()


def test_many_scala_consumers_in_one_process_read_only_what_they_may(shared_cluster: Sandbox, fresh_name: str) -> None:
    shared_cluster.create_topic(fresh_name, 2)
    for partition in range(2):
        shared_cluster.produce(fresh_name, partition, RECORDS)
    host = ScalaHost(shared_cluster.run, "1.1.1")

    def owners() -> list[str]:
        threads = shared_cluster.admin.owners(fresh_name, fresh_name).values()
        return sorted(name for name in ("one", "two") for thread in threads if f"{name}-{fresh_name}" in thread)

    def places() -> set[tuple[int, int]]:
        return {(message.partition, message.offset) for message in host.delivered(fresh_name)}

    try:
        for name in ("one", "two"):
            host.start(f"{name}-{fresh_name}", fresh_name, fresh_name, shared_cluster.zookeeper_connect, allowed=0)
        host.wait_started(f"one-{fresh_name}", f"two-{fresh_name}")
        wait_until(lambda: owners() == ["one", "two"], "each owns one partition", 60_000)
        assert not host.delivered(fresh_name)
        host.allow(f"one-{fresh_name}", 7)
        wait_until(lambda: len(host.delivered(fresh_name)) == 7, "seven messages", 60_000)
        host.stop(f"one-{fresh_name}")
        assert sorted(shared_cluster.admin.offsets(fresh_name, fresh_name).values())[-1] == 7
        # An iterator that reads while its member rebalances may deliver a message twice (kafka.consumer 1.1.1).
        wait_until(lambda: owners() == ["two", "two"], "the other owns both", 60_000)
        host.allow(f"two-{fresh_name}")
        wait_until(lambda: len(places()) == 2 * RECORDS, "all messages", 60_000)
        assert len(host.delivered(fresh_name)) == 2 * RECORDS
        assert {one.thread for one in host.delivered(fresh_name)} == {0, 1}
    finally:
        host.close()


def test_a_killed_member_stays_registered_until_its_session_ends_and_can_restart(
    shared_cluster: Sandbox, fresh_name: str
) -> None:
    shared_cluster.create_topic(fresh_name, 1)
    shared_cluster.produce(fresh_name, 0, 3)
    member = shared_cluster.start_member("1.1.1", fresh_name, {fresh_name: 1})
    member.wait_delivered(3)
    first_id = member.wait_registered()
    member.kill()
    assert not member.is_running()
    assert shared_cluster.admin.members(fresh_name) == [first_id]
    wait_until(lambda: not shared_cluster.admin.members(fresh_name), "its session ends", 60_000)

    member.start()
    assert member.wait_registered() != first_id
    shared_cluster.produce(fresh_name, 0, 1)
    assert member.wait_delivered(1)[-1].offset <= 3, "events are those of the new process"
    assert member.count("started") == 1


def test_a_consumer_that_refuses_its_settings_fails_at_once_with_its_error(
    shared_cluster: Sandbox, fresh_name: str
) -> None:
    with pytest.raises(SandboxError, match=r"Wrong value sometimes of auto\.offset\.reset"):
        shared_cluster.start_member("1.1.1", fresh_name, {fresh_name: 1}, settings={"auto.offset.reset": "sometimes"})


def test_a_release_without_the_scala_consumer_is_refused(shared_cluster: Sandbox) -> None:
    with pytest.raises(SandboxError, match=r"1\.1\.1 is the last that has"):
        shared_cluster.start_member("2.0.1", "group", {"clicks": 1})


# --- topics, records, tools ---


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_values_and_keys_arrive_as_they_were_given(codec: str, shared_cluster: Sandbox, fresh_name: str) -> None:
    shared_cluster.create_topic(fresh_name, 1)
    produced = shared_cluster.producer.produce_values(
        fresh_name, 0, [b"one", None, b"three"], keys=[b"k", b"k", None], codec=codec
    )
    assert (produced.first, produced.last) == (0, 2)
    if codec == "lz4":
        words = f"--zookeeper {shared_cluster.zookeeper_connect} --topic {fresh_name} --from-beginning"
        words += " --max-messages 3 --property print.key=true"
        result = shared_cluster.run_tool("1.1.1", "kafka.tools.ConsoleConsumer", words.split())
        assert (result.code, result.out) == (0, "k\tone\nk\tnull\nnull\tthree\n")


def test_a_topic_grows_and_a_steady_load_is_accounted_for(shared_cluster: Sandbox, fresh_name: str) -> None:
    shared_cluster.create_topic(fresh_name, 1)
    shared_cluster.grow_topic(fresh_name, 4)
    load = shared_cluster.producer
    load.start_rate(fresh_name, 4, per_second=2000)
    wait_until(lambda: sum(map(len, load.acked_offsets(fresh_name).values())) >= 500, "500 records", 60_000)
    load.stop_rate()
    acked = load.acked_offsets(fresh_name)
    assert set(acked) == {0, 1, 2, 3}
    assert all(offsets == set(range(len(offsets))) for offsets in acked.values())


def test_a_tool_that_does_not_end_is_killed_and_named(shared_cluster: Sandbox) -> None:
    with pytest.raises(SandboxError, match="ConsoleProducer did not end within 1000 ms"):
        shared_cluster.run_tool(
            "1.1.1",
            "kafka.tools.ConsoleProducer",
            ["--broker-list", "127.0.0.1:1", "--topic", "t"],
            stdin="a line that nobody takes\n",
            timeout_ms=1000,
        )


# --- servers ---


@pytest.mark.parametrize("version", ["3.8", "3.4.6"])
def test_zookeeper_restarts_on_its_port_with_its_data_after_a_kill(version: str, sandbox: Sandbox) -> None:
    require_zookeeper(version)
    zookeeper = sandbox.start_zookeeper(version)
    port = zookeeper.port
    zookeeper.admin().put("/kept", b"data")
    assert version in (zookeeper_version(port) or "")
    zookeeper.restart(kill=True)
    assert zookeeper.port == port
    assert zookeeper.admin().get("/kept") == b"data"
    assert zookeeper.stop(), "it must not need SIGKILL"


def test_topics_are_on_two_brokers_and_a_killed_one_restarts_at_once(sandbox: Sandbox) -> None:
    sandbox.start_zookeeper()
    brokers = [sandbox.start_broker("1.1.1"), sandbox.start_broker("1.1.1")]
    sandbox.create_topic("t", 4)
    sandbox.create_topic("copied", replicas={0: [1, 0]})
    for broker in brokers:
        answer = broker.metadata()
        assert answer is not None
        assert answer.leaders == {"t": {0: 0, 1: 1, 2: 0, 3: 1}, "copied": {0: 1}}
    sandbox.produce("t", 1, 10)

    port = brokers[1].port
    brokers[1].restart(kill=True)
    sandbox.wait_leaders("t", 4)
    assert brokers[1].port == port
    assert sandbox.produce("t", 1, 1).first == 10
    brokers[0].pause()
    assert brokers[0].stop(), "a paused broker stops without SIGKILL"
    assert not brokers[0].is_running()


def test_a_port_in_use_is_replaced(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = [taken.getsockname()[1]]
        monkeypatch.setattr(
            "zkconsumer.testing.sandbox.server_process.free_port", lambda: ports.pop() if ports else free_port()
        )
        zookeeper = sandbox.start_zookeeper()
        assert not ports
        assert zookeeper.port != taken.getsockname()[1]


def test_a_server_that_ends_while_it_starts_is_quoted(sandbox: Sandbox) -> None:
    sandbox.start_zookeeper()
    with pytest.raises(SandboxError, match=r"(?s)broker-0 did not start.*ended with code.*log\.txt.*num\.io\.threads"):
        sandbox.start_broker("1.1.1", settings={"num.io.threads": "many"})


def test_a_broker_without_zookeeper(sandbox: Sandbox) -> None:
    require_releases("4.1.1")
    sandbox.start_kraft_broker("4.1.1")
    sandbox.create_topic("t", 2)
    assert sandbox.produce("t", 1, 10, codec="zstd").last == 9


@pytest.mark.nightly
@pytest.mark.parametrize("release", ["3.9.1", "4.1.1"])
def test_a_killed_broker_without_zookeeper_restarts(release: str, sandbox: Sandbox) -> None:
    require_releases(release)
    broker = sandbox.start_kraft_broker(release)
    sandbox.create_topic("t", 1)
    assert sandbox.produce("t", 0, 10).last == 9
    broker.restart(kill=True)
    sandbox.wait_leaders("t", 1)
    assert sandbox.produce("t", 0, 10).last == 19


# --- ends ---

KILLED_RUN = """
import sys, time
from zkconsumer.testing.sandbox import Sandbox
sandbox = Sandbox(outlives_parent=sys.argv[1] == "outlives")
sandbox.start_zookeeper()
print(sandbox.zookeeper.process.pid, flush=True)
sys.stdin.read()
"""


def killed_run(kind: str) -> int:
    """Starts ZooKeeper from another process, kills that process, and returns ZooKeeper's process id."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    parent = subprocess.Popen(
        [sys.executable, "-c", KILLED_RUN, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate(timeout=10)
    return pid


def test_the_next_server_uses_an_archive_of_the_classes_of_the_first(own_cache: Path) -> None:
    """A restart makes no archive: others wait for the server."""
    require_zookeeper()
    (own_cache / "class-archives").unlink()  # that of all tests
    maps = []
    for _ in range(2):
        with Sandbox() as sandbox:
            zookeeper = sandbox.start_zookeeper()
            maps.append(Path("/proc", str(zookeeper.process.pid), "maps").read_text())
            zookeeper.restart()
            maps.append(Path("/proc", str(zookeeper.process.pid), "maps").read_text())
    assert ["class-archives" in each for each in maps] == [False, False, True, True]


def test_a_killed_run_is_reaped_by_the_next_start(own_cache: Path) -> None:
    require_zookeeper()
    pid = killed_run("outlives")
    assert sandbox_runs.start_time(pid) is not None
    with Sandbox() as sandbox:
        assert [record.pid for record in sandbox.reaped] == [pid]
        assert sandbox_runs.start_time(pid) is None
        assert list((own_cache / "runs").iterdir()) == [sandbox.run.folder]
    assert list((own_cache / "runs").iterdir()) == []


def test_servers_end_with_the_process_that_started_them(own_cache: Path) -> None:
    require_zookeeper()
    pid = killed_run("ends")
    wait_until(lambda: sandbox_runs.start_time(pid) is None, "ZooKeeper ends by itself", 60_000)


def test_closing_leaves_no_process_and_no_file(own_cache: Path) -> None:
    require_releases("1.1.1", zookeeper_release("3.8"))
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        sandbox.start_broker("1.1.1")
        sandbox.create_topic("t", 1)
        sandbox.produce("t", 0, 1)
        sandbox.start_member("1.1.1", "group", {"t": 1}).pause()
        sandbox.brokers[0].pause()
        pids = [record.pid for record in sandbox.run.records()]
        assert len(pids) == 4
    assert [pid for pid in pids if sandbox_runs.start_time(pid) is not None] == []
    assert list((own_cache / "runs").iterdir()) == []


def run_command(words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """``zkconsumer`` with these words, in a process of its own, with this on standard input."""
    program = [sys.executable, "-c", "from zkconsumer.cli import main; main()"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        [*program, *shlex.split(words)], input=text, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S,
        env=environment, check=False,
    )  # fmt: skip


@pytest.fixture
def lines_of_up(own_cache: Path, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """What ``zkconsumer sandbox up`` printed, with the options of the test's parameter."""
    require_releases("1.1.1", zookeeper_release("3.8"))
    up = run_command(f"sandbox up {getattr(request, 'param', '')}")
    try:
        assert up.returncode == 0, up.stderr
        yield up.stdout.splitlines()
    finally:
        down = run_command("sandbox down")
    assert (down.returncode, down.stderr) == (0, "stopped 2 processes\n")
    assert run_command("sandbox status").returncode == 3
    assert list((own_cache / "runs").iterdir()) == []


@by_commands
@pytest.mark.parametrize("lines_of_up", ["", "--chroot /kafka --topic views:2"], indirect=True)
def test_the_next_steps_of_up_show_records_unchanged(lines_of_up: list[str]) -> None:
    zookeeper, brokers, *steps = lines_of_up
    assert zookeeper.startswith("zookeeper.connect=")
    assert brokers.startswith("bootstrap.servers=")
    done = [run_command(step.removeprefix("zkconsumer ")) for step in steps]
    assert [step.returncode for step in done] == [0] * len(steps), done
    topic = "views" if len(steps) == 2 else "clicks"
    values = [line.split("\t")[-1] for line in done[-1].stdout.splitlines()]
    assert sorted(values) == sorted(f"{topic}-{number}" for number in range(1, 11))


@by_commands
def test_topics_and_records_on_the_command_line(lines_of_up: list[str]) -> None:
    connect = lines_of_up[0].removeprefix("zookeeper.connect=")
    assert "already" in run_command("sandbox up").stderr
    status = run_command("sandbox status")
    assert status.returncode == 0
    assert [line.split()[-1] for line in status.stdout.splitlines()] == ["STATE", "running", "running"]
    with Sandbox() as other:
        assert other.reaped == [], "what runs in the background belongs to nobody who could have died"

    assert run_command("sandbox topic create t --partitions 2").returncode == 0
    again = run_command("sandbox topic create t --partitions 2")
    assert again.returncode == 1
    assert "topic t exists already, with 2 partitions" in again.stderr
    assert run_command("sandbox topic grow t --partitions 3").stderr == "topic t has 3 partitions (it had 2)\n"
    assert run_command("sandbox topic grow t --partitions 3").returncode == 1
    assert [line.split() for line in run_command("sandbox topic list").stdout.splitlines()] == [
        ["TOPIC", "PARTITIONS"],
        ["t", "3"],
    ]

    missing = run_command("sandbox produce nowhere", "lost\n")
    assert missing.returncode == 1
    assert "create it: zkconsumer sandbox topic create nowhere" in missing.stderr
    bad = run_command("sandbox produce t --key-separator :", "k:1\nl:2\nk:3\nno key\nm:4\n")
    assert bad.returncode == 1
    assert "sent 3 records to t" in bad.stderr
    assert "line 4 has no ':'" in bad.stderr
    assert run_command("sandbox produce t --partition 2", "without a key").returncode == 0
    assert "has the partitions 0 to 2, and no 3" in run_command("sandbox produce t --partition 3", "x\n").stderr
    read = run_command(
        rf"consume --zookeeper {connect} --group g --topic t --from-beginning --max-messages 4 --format '%k %v %p\n'"
    )
    rows = sorted(line.rsplit(" ", 1) for line in read.stdout.splitlines())
    assert [record for record, _ in rows] == ["k 1", "k 3", "l 2", "null without a key"]
    assert rows[0][1] == rows[1][1], "records with one key are in one partition"
    assert rows[3][1] == "2"


@by_commands
def test_a_console_producer_creates_its_topic_and_ends(lines_of_up: list[str]) -> None:
    """Where brokers create no topic, the producer waits a minute for each of the lines: ten of them are ten minutes."""
    brokers = lines_of_up[1].removeprefix("bootstrap.servers=")
    with Sandbox() as tools:
        words = ["--broker-list", brokers, "--topic", "fresh"]
        text = "".join(f"{number}\n" for number in range(10))
        done = tools.run_tool("1.1.1", "kafka.tools.ConsoleProducer", words, stdin=text)
    assert done.code == 0
    assert run_command("sandbox topic list").stdout.split() == ["TOPIC", "PARTITIONS", "fresh", "1"]
    connect = lines_of_up[0].removeprefix("zookeeper.connect=")
    read = run_command(f"consume --zookeeper {connect} --group g --topic fresh --from-beginning --max-messages 10")
    assert [line.split("\t")[-1] for line in read.stdout.splitlines()] == [str(number) for number in range(10)]


@by_commands
def test_the_status_of_a_broken_sandbox_reports_it_and_fails(lines_of_up: list[str]) -> None:
    pids = {line.split()[0]: int(line.split()[-2]) for line in run_command("sandbox status").stdout.splitlines()[1:]}

    def states() -> dict[str, str]:
        status = run_command("sandbox status")
        assert status.returncode == 1
        found = dict(re.findall(r"(?m)^(?:zkconsumer: )?(\S+): (.+); its log is ", status.stderr))
        assert "zkconsumer sandbox down; zkconsumer sandbox up --kafka 1.1.1 --zookeeper 3.8\n" in status.stderr
        assert len(status.stdout.splitlines()) == 3
        assert all(re.search(rf"(?m)^{name} .* {state}$", status.stdout) for name, state in found.items())
        return found

    os.kill(pids["broker-0"], signal.SIGSTOP)
    try:
        assert states() == {"broker-0": "does not answer"}
    finally:
        os.kill(pids["broker-0"], signal.SIGCONT)
    os.kill(pids["broker-0"], signal.SIGKILL)
    wait_until(lambda: sandbox_runs.start_time(pids["broker-0"]) is None, "the process ends", 60_000)
    assert states() == {"broker-0": "dead"}
    refused = run_command("sandbox produce t --count 1")
    assert refused.returncode == 1
    assert "the sandbox does not work (broker-0: dead)" in refused.stderr
    os.kill(pids["zookeeper"], signal.SIGKILL)
    wait_until(lambda: sandbox_runs.start_time(pids["zookeeper"]) is None, "the process ends", 60_000)
    assert states() == {"broker-0": "dead", "zookeeper": "dead"}
