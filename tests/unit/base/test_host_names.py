"""Host names that have no address are an error before anything is connected."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.host_names import check_host_names
from zkconsumer.cli import main
from zkconsumer.errors import BrokerUnreachable, UnavailableError, UnknownHostException, ZkTimeoutException
from zkconsumer.zk.kazoo_store import KazooStore

NOWHERE = "no-such-host.invalid"
AT_ONCE_MS = 5_000
SHORT_MS = 500


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names below ``invalid`` have no address, and no resolver is asked for them."""
    found: Callable[..., Any] = socket.getaddrinfo

    def look_up(host: str, *more: Any, **how: Any) -> Any:
        if host.endswith(".invalid"):
            raise socket.gaierror(-2, "Name or service not known")
        return found(host, *more, **how)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def test_one_host_with_an_address_is_enough() -> None:
    check_host_names("zookeeper.connect", [(NOWHERE, 2181), ("127.0.0.1", 2181)])
    check_host_names("zookeeper.connect", [])


def test_the_error_names_the_setting_and_every_host() -> None:
    with pytest.raises(UnknownHostException) as caught:
        check_host_names("bootstrap.servers", [(NOWHERE, 9092), ("a..b", 9092)])
    assert str(caught.value).startswith(
        f"no host of bootstrap.servers has an address: {NOWHERE} (Name or service not known), a..b ("
    )
    assert str(caught.value).endswith("correct the host name, or DNS on this machine")


def test_a_zookeeper_server_whose_name_no_host_can_have_does_not_hinder_the_others() -> None:
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        other = f"127.0.0.1:{refusing.getsockname()[1]}"
        store = KazooStore(f"a..b:2181,{other},{'a' * 64}.b:2181", AT_ONCE_MS)
        with pytest.raises(ZkTimeoutException, match=rf"at a\.\.b:2181,{other},.*\({other}: Connection refused\)"):
            store.start(SHORT_MS)


def test_whoever_waits_for_a_store_waits_for_its_name_too() -> None:
    assert issubclass(UnknownHostException, ZkTimeoutException)
    assert issubclass(UnknownHostException, BrokerUnreachable)
    assert issubclass(UnknownHostException, UnavailableError)


CALLS = {
    "consume": "consume --group g --topic t --zookeeper",
    "consume, brokers": "consume --group g --topic t --zookeeper 127.0.0.1:1 --bootstrap-server",
    "perf": "perf --topic t --messages 1 --zookeeper",
    "groups list": "groups list --zookeeper",
    "groups list, brokers": "groups list --bootstrap-server",
    "groups describe, both": "groups describe g --zookeeper 127.0.0.1:1 --bootstrap-server",
    "groups delete, brokers": "groups delete g --bootstrap-server",
    "groups doctor": "groups doctor g --zookeeper",
    "lag": "lag g --zookeeper",
    "log-ends": "log-ends --topic t --zookeeper",
    "log-ends, brokers": "log-ends --topic t --bootstrap-server",
    "offsets export": "offsets export g --zookeeper",
    "offsets diff": "offsets diff g --zookeeper",
    "offsets set": "offsets set g --all-topics --to-latest --zookeeper",
    "offsets delete": "offsets delete g --zookeeper",
    "migrate inspect": "migrate inspect g --zookeeper",
    "migrate status": "migrate status g --zookeeper",
    "migrate rollback": "migrate rollback g --execute --zookeeper",
    "migrate abort": "migrate abort g --zookeeper",
    "spark claims": "spark claims --group g --zookeeper",
    "spark starting-offsets": "spark starting-offsets --group g --zookeeper",
    "broker": "broker --port 0 --zookeeper",
}


@pytest.mark.parametrize("name", CALLS)
def test_every_command_that_takes_an_address_says_so_at_once(name: str) -> None:
    before_ms = SYSTEM_CLOCK.now_ms()
    done = CliRunner().invoke(main, [*CALLS[name].split(), f"{NOWHERE}:2181"])
    assert SYSTEM_CLOCK.now_ms() - before_ms < AT_ONCE_MS
    setting = "bootstrap.servers" if "--bootstrap-server" in CALLS[name] else "zookeeper.connect"
    assert done.exit_code == 1
    assert done.stderr == (
        f"zkconsumer: no host of {setting} has an address: {NOWHERE} (Name or service not known); correct the host "
        "name, or DNS on this machine\n"
    )


def test_an_address_in_a_file_is_checked_too(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text(f"zookeeper.connect={NOWHERE}:2181\n")
    done = CliRunner().invoke(main, ["groups", "list", "--config", str(file)])
    assert (done.exit_code, "no host of zookeeper.connect" in done.stderr) == (1, True)
