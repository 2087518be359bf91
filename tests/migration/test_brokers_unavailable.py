"""``zkconsumer migrate`` without brokers: each command ends in bounded time, with its code and the remedy."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.migration.migration_write_faults import Lab, lab
from tests.migration.operator_shell import Shell, both, moved, shell
from zkconsumer.admin.broker_client import CONNECT_TIMEOUT_MS, SEARCH_TIMEOUT_MS
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import ControlRecord, format_control

__all__ = ["lab", "shell"]

TIMEOUT_S = 100
WHO_MUST_ACT = "the broker hangs, or a firewall drops the packets"
GONE_ID = 1_000


class Net:
    """Brokers that are registered and swallow packets, beside the one of the lab; that one may do so, too."""

    def __init__(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shell = shell
        self.is_dark = False
        self._connect = shell._connect
        monkeypatch.setattr(shell, "_connect", self._connect_if_up)

    @contextmanager
    def gone(self, number: int, *, all_of_them: bool) -> Iterator[None]:
        self.is_dark = all_of_them
        node = {"jmx_port": -1, "timestamp": "0", "version": 1, "port": 9092}
        for each in range(number):
            data = json.dumps({**node, "host": f"gone-{each}.fake.invalid"}).encode()
            self.shell.lab.zookeeper.ensure(paths.broker(GONE_ID + each), data)
        yield
        for each in range(number):
            self.shell.lab.zookeeper.remove(paths.broker(GONE_ID + each))
        self.is_dark = False

    def _connect_if_up(self, host: str, port: int, **how: Any) -> Connection:
        if self.is_dark or host.startswith("gone"):
            self.shell.clock.move(how["connect_timeout_ms"])
            raise BrokerUnreachable(f"{host}:{port}: no answer to connect; {WHO_MUST_ACT}")
        return self._connect(host, port, **how)


@pytest.fixture
def net(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Net:
    return Net(shell, monkeypatch)


@dataclass(frozen=True)
class Case:
    """A command, the state before it, and how it ends without any broker, and with one of several unavailable."""

    prepare: Callable[[Shell], tuple[str, Path]]
    words: Callable[[str, Path], list[str]]
    ends_alone: int
    ends: int
    says: str = WHO_MUST_ACT
    searches: int = 3
    """How often a coordinator is looked for, at most; ``complete`` compares the copied offsets before it begins."""

    def run(self, shell: Shell, group: str, file: Path) -> tuple[Result, int]:
        """Its output, and its time beyond the given time limit."""
        words = self.words(group, file)
        began_ms = shell.clock.now_ms()
        done = shell(*words)
        waited_ms = TIMEOUT_S * 1_000 if WAIT in words else 0
        return done, shell.clock.now_ms() - began_ms - waited_ms


WAIT = f"--timeout={TIMEOUT_S}"


def at_rest(shell: Shell) -> tuple[str, Path]:
    return shell.planned()


def held(shell: Shell) -> tuple[str, Path]:
    return moved(shell, "--stop-after=verified")


def over(shell: Shell) -> tuple[str, Path]:
    group, file = moved(shell)
    done = shell("complete", group, "--execute", "--confirm", group, "--archive", archive(file))
    assert done.exit_code == 0
    return group, file


def archive(file: Path) -> str:
    return f"{file}.znodes"


CASES = {
    "inspect": Case(at_rest, lambda group, file: ["inspect", group], 1, 1),
    "plan": Case(at_rest, lambda group, file: ["plan", group, "-f", f"{file}.2"], 4, 4),
    "apply": Case(at_rest, lambda group, file: ["apply", str(file)], 1, 3),
    "apply --execute": Case(at_rest, lambda group, file: ["apply", str(file), "--execute", WAIT], 7, 0),
    "status": Case(held, lambda group, file: ["status", group], 1, 0),
    "verify": Case(held, lambda group, file: ["verify", group], 1, 0),
    "rollback": Case(held, lambda group, file: ["rollback", group], 1, 3),
    "rollback --execute": Case(held, lambda group, file: ["rollback", group, "--execute", WAIT], 6, 0),
    "complete": Case(moved, lambda group, file: ["complete", group], 1, 3, searches=4),
    "complete --execute": Case(
        moved,
        lambda group, file: ["complete", group, "--execute", "--confirm", group, "--archive", archive(file), WAIT],
        6,
        0,
        searches=4,
    ),
    "abort": Case(held, lambda group, file: ["abort", group], 4, 4, "no run is active"),
    "restore": Case(over, lambda group, file: ["restore", archive(file)], 0, 0, "0 znodes"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("others", [0, 2, 50])
def test_while_all_brokers_are_away(lab: Lab, shell: Shell, net: Net, name: str, others: int) -> None:
    case = CASES[name]
    group, file = case.prepare(shell)
    before = both(lab, group)
    with net.gone(others, all_of_them=True):
        done, took_ms = case.run(shell, group, file)
    assert done.exit_code == case.ends_alone, done.stderr
    assert case.says in done.stdout + done.stderr
    # A run that waits may just have begun to search for a coordinator.
    assert took_ms <= case.searches * SEARCH_TIMEOUT_MS + CONNECT_TIMEOUT_MS
    assert both(lab, group) == before


@pytest.mark.parametrize("name", CASES)
def test_while_two_brokers_of_three_are_away(shell: Shell, net: Net, name: str) -> None:
    case = CASES[name]
    group, file = case.prepare(shell)
    with net.gone(2, all_of_them=False):
        done, took_ms = case.run(shell, group, file)
    assert done.exit_code == case.ends, done.stderr
    assert took_ms <= SEARCH_TIMEOUT_MS


@pytest.mark.parametrize("others", [0, 2, 50])
def test_a_plan_reports_after_one_search_that_no_broker_answers(shell: Shell, net: Net, others: int) -> None:
    case = CASES["plan"]
    group, file = case.prepare(shell)
    with net.gone(others, all_of_them=True):
        done, took_ms = case.run(shell, group, file)
    assert took_ms <= SEARCH_TIMEOUT_MS
    assert "Refused: the releases of these brokers are not known: " in done.stderr
    assert "; start them, or remove them" in done.stderr
    brokers = "1 broker" if not others else f"{others + 1} brokers"
    assert f"its log cannot be looked at: none of {brokers} answers; the first one: " in done.stderr


def test_the_operator_need_not_decide_what_the_logs_may_show(shell: Shell, net: Net) -> None:
    group, file = shell.planned()
    words = ["plan", group, "-f", f"{file}.2"]
    with net.gone(1, all_of_them=True):
        done = shell(*words)
    assert "Offset convention: not known (no log could be looked at, and only those might show it)" in done.stderr
    assert "--offset-convention" not in done.stderr
    with net.gone(1, all_of_them=False):
        done = shell(*words)
    assert "Offset convention: not known (nothing shows it for certain)" in done.stderr
    assert "with --offset-convention next or last" in done.stderr, "these brokers tell, and it does not show"


@pytest.mark.parametrize("others", [0, 2, 50])
def test_a_status_takes_one_search_and_does_not_claim_that_there_is_no_placeholder(
    shell: Shell, net: Net, others: int
) -> None:
    case = CASES["status"]
    group, file = case.prepare(shell)
    with net.gone(others, all_of_them=True):
        done, took_ms = case.run(shell, group, file)
    assert took_ms <= SEARCH_TIMEOUT_MS
    among = "the first 15 of 51" if others == 50 else str(others + 1)
    for what in ("placeholder", "coordinator members"):
        assert f"{what}: not known: none of {among} brokers answers" in done.stdout


def test_a_status_of_dual_searches_once(shell: Shell, net: Net) -> None:
    control = ControlRecord("m0", 3, "armed", "zookeeper", "dual")
    shell.lab.zookeeper.ensure(paths.control("dual"), format_control(control))
    began_ms = shell.clock.now_ms()
    with net.gone(50, all_of_them=True):
        done = shell("status", "dual")
    assert done.exit_code == 1, done.stderr
    assert "coordinator members: not known: none of the first 15 of 51 brokers answers" in done.stdout
    assert shell.clock.now_ms() - began_ms <= SEARCH_TIMEOUT_MS


def test_inspect_does_not_claim_that_there_is_no_coordinator_group(shell: Shell, net: Net) -> None:
    held(shell)  # the placeholder's join creates the offset store
    group, _ = shell.planned()
    with net.gone(1, all_of_them=True):
        done = shell("inspect", group)
    assert "coordinator group: not known: none of 2 brokers answers; the first one: " in done.stdout


@pytest.mark.parametrize(
    ("where", "who"),
    [
        ("127.0.0.1:1", "start the broker, or correct its address: the one given here"),
        ("no-such-host.fake.invalid:9092", "correct DNS here, or the host: the one given here"),
    ],
)
@pytest.mark.parametrize("name", ["inspect", "plan", "apply", "status", "verify", "rollback", "complete"])
def test_where_the_brokers_that_were_named_are_none(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str, where: str, who: str
) -> None:
    """A port where nothing listens, and a name that has no address."""
    found = socket.getaddrinfo

    def look_up(host: str, *more: Any, **how: Any) -> Any:
        if host.endswith("invalid"):
            raise socket.gaierror(-2, "Name or service not known")
        return found(host, *more, **how)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    case = CASES[name]
    group, file = case.prepare(shell)
    done = shell(*case.words(group, file), "--bootstrap-server", where)
    # Where topics are to be learnt from the brokers, there is nothing to show without them.
    assert done.exit_code == 1, done.stderr
    assert who in done.stdout + done.stderr
