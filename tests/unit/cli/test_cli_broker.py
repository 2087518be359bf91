"""``zkconsumer broker``: what it prints, how it ends, what it refuses and with which words."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from bridge.broker.data_folder import DataFolder
from bridge.broker.emulated_releases import EMULATED_RELEASES as FROM_OLD_TO_NEW
from bridge.broker.listeners import BrokerListener, bootstrap_servers, read_listener, with_advertised
from bridge.commands.broker_command import RELEASES_HELP, broker
from zkconsumer.cli.main import RootCommand
from zkconsumer.errors import PreconditionFailed, UsageError
from zkconsumer.types import BrokerAddress

TLS = Path(__file__).parents[2] / "data" / "tls"

PROGRAM = (
    "import click; from zkconsumer.cli.main import RootCommand; from bridge.commands.broker_command import broker\n"
    "class Only(RootCommand):\n"
    "    def get_command(self, ctx, name): return broker\n"
    "    def resolve_command(self, ctx, args): return 'broker', broker, args[1:]\n"
    "click.command(cls=Only)(lambda: None)()"
)
"""The command under the program's own error border, whether or not the installed entry points know it yet."""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def run(*words: str | Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM, "broker", *map(str, words)]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
        started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        running.append(started)
        return started

    yield run
    for process in running:
        process.kill()
        process.communicate(timeout=10)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 60)[0], "it said nothing"
    return process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_tells_where_it_listens_and_ends_cleanly_on_a_signal(number: signal.Signals, start: Start) -> None:
    process = start("--port", "0")
    line = first_line(process)
    host, port = line.strip().removeprefix("bootstrap.servers=").split(":")
    socket.create_connection((host, int(port)), 5).close()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out == ""
    assert err.startswith("This is a development broker")
    assert f"stopped by {number.name}" in err


def test_a_port_in_use_is_a_precondition_that_names_the_port(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("--port", str(port))
        _, err = process.communicate(timeout=60)
    assert process.returncode == 4
    assert f"port {port} is in use" in err


def test_a_directory_in_use_is_a_precondition_that_names_the_process(start: Start, tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    try:
        process = start("--port", "0", "--data", tmp_path / "data")
        _, err = process.communicate(timeout=60)
    finally:
        folder.unlock()
    assert process.returncode == 4
    assert f"is in use by another broker (process {os.getpid()})" in err


def test_a_directory_with_other_people_s_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("twenty years")
    with pytest.raises(PreconditionFailed, match=r"thesis\.tex"):
        DataFolder(tmp_path)
    assert [child.name for child in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--emulate", "0.7"], "release 0.7 cannot be emulated; choose one of 0.9.0.1"),
        (["--listener", "HTTP://:1"], "'HTTP://:1' is not a listener: write PROTOCOL://HOST:PORT"),
        (["--listener", "SSL://127.0.0.1:0"], "listener SSL uses TLS and needs a certificate"),
        (["--listener", "SASL_PLAINTEXT://127.0.0.1:0"], "requires a login, and no users are given"),
        (["--listener", "PLAINTEXT://:0", "--listener", "PLAINTEXT://:1"], "two listeners are called PLAINTEXT"),
        (["--set", "no.such.key=1"], "no.such.key is not supported; the settings are auto.create"),
        (["--set", "num.partitions=many"], "num.partitions is 'many'; it takes a whole number"),
        (["--set", "num.partitions"], "'num.partitions' is not --set KEY=VALUE"),
        (["--topic", "a"], "'a' is not NAME:PARTITIONS"),
        (["--tls-key", __file__], "need a --tls-certificate"),
        (["--tls-certificate", __file__, "--listener", "SSL://127.0.0.1:0"], "no certificate with its key in PEM"),
        (["--port", "65535", "--nodes", "2"], "node 1 would need port 65536"),
        (["--host", ""], "--host is empty; 0.0.0.0 listens on every address"),
        (["--data", ""], "--data is empty; omit it"),
        (["--listener", "PLAINTEXT://:0", "--port", "9192"], "--listener replaces --host and --port: omit both"),
        (["--topic", "a:1", "--topic", "a:2"], "--topic names a twice"),
        (["--topic", "a:10001"], "a topic has 1 to 10000 partitions"),
        (["--set", "num.partitions=1", "--partitions", "2"], "give one of the two"),
        (["--set", "num.partitions=1", "--set", "num.partitions=2"], "--set gives num.partitions twice"),
        (
            ["--port", "0", "--tls-certificate", str(TLS / "broker.pem")],
            "a certificate is given, but no listener uses TLS",
        ),
        (
            ["--listener", "SSL://:0", "--tls-certificate", str(TLS / "broker.pem"), "--tls-client-ca", __file__],
            "test_cli_broker.py: no certificate of an authority in PEM",
        ),
        (
            ["--nodes", "3", "--listener", "PLAINTEXT://127.0.0.1:9092", "--listener", "B=PLAINTEXT://:9094"],
            "listener B of node 0 and listener PLAINTEXT of node 2 would both listen at port 9094",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(words: list[str], expected: str) -> None:
    result = CliRunner().invoke(broker, words)
    assert isinstance(result.exception, UsageError)
    assert expected in str(result.exception)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("ann=secret1\nsecret2\n", "line 2 of {} is not NAME=PASSWORD"),
        ("ann=secret1\n\nann=secret2\n", "line 3 of {}: there is a user ann already"),
        ("\n", "{} has no user: write lines NAME=PASSWORD"),
        ("ann=secret1\n", "users are given, but no listener requires a login, so every client could do everything"),
    ],
)
def test_users_that_cannot_be_are_refused_without_their_passwords(lines: str, expected: str, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(lines)
    result = CliRunner().invoke(broker, ["--port", "0", "--users", str(users)])
    assert isinstance(result.exception, UsageError)
    assert expected.format(users) in str(result.exception)
    assert "secret" not in str(result.exception)


def test_the_help_names_every_release() -> None:
    assert RELEASES_HELP.split(", ") == list(FROM_OLD_TO_NEW)


def test_a_signal_ends_a_start_that_waits_for_zookeeper(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        process = start("--port", "0", "--zookeeper", f"127.0.0.1:{mute.getsockname()[1]}")
        mute.settimeout(60)
        waiting, _ = mute.accept()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        waiting.close()
    assert process.returncode == 0
    assert err.endswith("stopped by SIGTERM\n")


def test_an_address_of_ipv6_is_told_as_clients_take_it() -> None:
    addresses = [BrokerAddress(0, "::1", 9092), BrokerAddress(1, "127.0.0.1", 9093)]
    assert bootstrap_servers(addresses) == "[::1]:9092,127.0.0.1:9093"


def test_listeners_have_names_and_may_be_advertised_elsewhere() -> None:
    inner, outer = read_listener("INNER=PLAINTEXT://[::1]:9092"), read_listener("SASL_SSL://0.0.0.0:9093")
    assert inner == BrokerListener("INNER", "PLAINTEXT", "::1", 9092)
    told = with_advertised([inner, outer], ["SASL_SSL://broker.example:19093"])
    assert told[1].for_node(2) == BrokerListener("SASL_SSL", "SASL_SSL", "0.0.0.0", 9095, "broker.example", 19095)
    with pytest.raises(UsageError, match="INNER, SASL_SSL"):
        with_advertised([inner, outer], ["OUTER://h:1"])


def test_the_commands_of_the_program_have_it_by_entry_point() -> None:
    text = (Path(__file__).parents[3] / "setup.py").read_text()
    assert '"broker=bridge.commands.broker_command:broker"' in text
    assert issubclass(RootCommand, object)
