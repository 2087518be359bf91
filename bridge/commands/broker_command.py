"""``zkconsumer broker``: a development broker in the foreground, until Ctrl-C, SIGTERM or SIGHUP."""

from __future__ import annotations

import logging
import re
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from zkconsumer.cli.console import log_to_console
from zkconsumer.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from bridge.broker.broker_server import BrokerServer
    from bridge.broker.server_settings import BrokerServerSettings, TlsFiles

DEFAULT_BROKER_PORT = 9092
TOPIC_OPTION = re.compile(r"([a-zA-Z0-9._-]{1,249}):([1-9][0-9]{0,3}|10000)")
POLL_INTERVAL_S = 0.5
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

RELEASES_HELP = "0.9.0.1, 0.10.2.2, 0.11.0.3, 1.1.1, 2.0.1, 2.8.2, 3.9.1, 4.1.1"
"""The releases that ``--emulate`` accepts, for the help; the table of the releases is imported only by a run."""

STARTUP_NOTICE = (
    "This is a development broker: Kafka's protocol in one process, no replication, no transactions. "
    "Do not keep data in it that you cannot lose."
)


class _StoppedBySignal(BaseException):
    """A signal came before the broker had started."""


file_option = click.Path(dir_okay=False, exists=True, path_type=Path)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen, without --listener.")
@click.option(
    "--port",
    default=DEFAULT_BROKER_PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port of the first node; 0: any free port.",
)
@click.option(
    "--listener",
    "listeners",
    multiple=True,
    metavar="[NAME=]PROTOCOL://HOST:PORT",
    help="In place of --host and --port; PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. May be given repeatedly.",
)
@click.option(
    "--advertise",
    "advertised",
    multiple=True,
    metavar="NAME://HOST:PORT",
    help="The address that clients of a listener receive, as in advertised.listeners. May be given repeatedly.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Store all data in this directory; without it, in memory.",
)
@click.option(
    "--sync",
    type=click.Choice(["system", "every-append"]),
    default="system",
    show_default=True,
    help="When records are written to the disk: both survive kill -9; every-append also survives a power cut.",
)
@click.option("--emulate", metavar="RELEASE", help=f"Emulate Kafka {RELEASES_HELP}.  [default: 3.9.1]")
@click.option("--nodes", default=1, show_default=True, type=click.IntRange(1, 100), help="The number of nodes.")
@click.option("--node-id", default=0, show_default=True, type=click.IntRange(0), help="The id of the first node.")
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[,…][/CHROOT]",
    help="Register the nodes in this ZooKeeper, for ZooKeeper groups, and store offsets there (OffsetCommit v0).",
)
@click.option("--partitions", type=click.IntRange(1, 10_000), help="num.partitions, for auto-created topics.")
@click.option("--topic", "topics", multiple=True, metavar="NAME:PARTITIONS", help="Create it. May be given repeatedly.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key of Kafka's server.properties. May be given repeatedly.",
)
@click.option("--users", type=file_option, metavar="FILE", help="Lines NAME=PASSWORD, for SASL PLAIN.")
@click.option("--tls-certificate", type=file_option, metavar="FILE", help="PEM; with the key, or use --tls-key.")
@click.option("--tls-key", type=file_option, metavar="FILE", help="PEM; the key, if --tls-certificate lacks it.")
@click.option("--tls-client-ca", type=file_option, metavar="FILE", help="Require client certificates of this CA.")
@click.option("-v", "--verbose", is_flag=True, help="Log rebalances and rejected clients.")
@click.pass_context
def broker(context: click.Context, /, **options: Any) -> None:
    """Run a development broker: Kafka's protocol in one process, on files or in memory.

    It prints bootstrap.servers when it accepts connections, and stops on Ctrl-C, SIGTERM or SIGHUP. Exit codes: 0
    stopped by a signal, 2 an option is wrong, 4 a port or the directory cannot be used, or a log is damaged.
    """
    from bridge.broker.broker_server import BrokerServer

    _check_broker_options(context)
    log_to_console(logging.INFO if options["verbose"] else logging.WARNING)
    topics = _topics(options["topics"])
    server = BrokerServer(_settings(options))
    ended = threading.Event()
    signals: list[int] = []
    is_started = False

    def on_signal(number: int, _: object) -> None:
        signals.append(number)
        ended.set()
        if not is_started and len(signals) == 1:
            # start() may wait for ZooKeeper or read a large log; the signal interrupts it at once.
            raise _StoppedBySignal

    before = {number: signal.signal(number, on_signal) for number in STOP_SIGNALS}
    try:
        try:
            server.start()
            is_started = True
            for name, partitions in topics.items():
                server.ensure_topic(name, partitions)
            click.echo(STARTUP_NOTICE, err=True)
            _print_addresses(server.settings, {name: _addresses(server, name) for name in _names(server.settings)})
            while not ended.wait(POLL_INTERVAL_S):
                if not server.is_alive:
                    raise UnavailableError("the broker's thread has ended; read the reason in the log")
        except _StoppedBySignal:
            pass
        finally:
            server.stop()
        click.echo(f"stopped by {signal.Signals(signals[0]).name}", err=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check_broker_options(context: click.Context) -> None:
    """Raise ``UsageError`` when two options contradict each other, so that neither is ignored silently."""
    options = context.params
    given = {name for name in options if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if options["listeners"] and given & {"host", "port"}:
        raise UsageError("--listener replaces --host and --port: omit both")
    if not options["host"]:
        raise UsageError("--host is empty; 0.0.0.0 listens on every address of this machine")
    if options["data"] == "":
        raise UsageError("--data is empty; omit it to store all data in memory")
    if options["partitions"] is not None and any(text.startswith("num.partitions=") for text in options["settings"]):
        raise UsageError("--partitions and --set num.partitions are the same setting: give one of the two")


def _addresses(server: BrokerServer, listener: str) -> str:
    from bridge.broker.listeners import bootstrap_servers

    return bootstrap_servers(server.addresses(listener))


def _names(settings: BrokerServerSettings) -> list[str]:
    return [listener.name for listener in settings.listeners]


def _print_addresses(settings: BrokerServerSettings, addresses: dict[str, str]) -> None:
    """The first listener as a setting on stdout that can be copied; the others on stderr."""
    first, *others = _names(settings)
    click.echo(f"bootstrap.servers={addresses[first]}")
    where = "in memory" if settings.data is None else f"in {settings.data}"
    click.echo(f"as Kafka {settings.release}, {settings.nodes} node(s), {where}", err=True)
    for name in others:
        click.echo(f"listener {name}: {addresses[name]}", err=True)
    sys.stdout.flush()


def _settings(options: dict[str, Any]) -> BrokerServerSettings:
    from bridge.broker.emulated_releases import DEFAULT_RELEASE
    from bridge.broker.listeners import BrokerListener, read_listener, with_advertised
    from bridge.broker.log.segment_files import SyncPolicy
    from bridge.broker.server_settings import BrokerServerSettings

    listeners = [read_listener(text) for text in options["listeners"]]
    if not listeners:
        listeners = [BrokerListener("PLAINTEXT", "PLAINTEXT", options["host"], options["port"])]
    properties: dict[str, str] = {}
    for text in options["settings"]:
        _add(properties, text, f"{text!r} is not --set KEY=VALUE", "--set gives {} twice")
    if options["partitions"] is not None:
        properties["num.partitions"] = str(options["partitions"])
    return BrokerServerSettings(
        release=options["emulate"] or DEFAULT_RELEASE,
        nodes=options["nodes"],
        first_node_id=options["node_id"],
        listeners=tuple(with_advertised(listeners, list(options["advertised"]))),
        data=None if options["data"] is None else Path(options["data"]),
        sync=SyncPolicy(options["sync"]),
        properties=properties,
        users=_users(options["users"]),
        tls=_tls(options),
        zookeeper=options["zookeeper"],
    )


def _tls(options: dict[str, Any]) -> TlsFiles | None:
    from bridge.broker.server_settings import TlsFiles

    if options["tls_certificate"] is None:
        if options["tls_key"] is not None or options["tls_client_ca"] is not None:
            raise UsageError("--tls-key and --tls-client-ca need a --tls-certificate")
        return None
    return TlsFiles(options["tls_certificate"], options["tls_key"], client_ca=options["tls_client_ca"])


def _users(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    users: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"line {number} of {file}"
            # The text never contains the line: it may be a password.
            _add(users, line, f"{where} is not NAME=PASSWORD", f"{where}: there is a user {{}} already")
    if not users:
        raise UsageError(f"{file} has no user: write lines NAME=PASSWORD")
    return users


def _add(pairs: dict[str, str], text: str, if_none: str, if_twice: str) -> None:
    """Add ``NAME=VALUE``.  ``UsageError``: ``if_none`` for another form, ``if_twice`` for a second value of a name."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise UsageError(if_none)
    if name in pairs:
        raise UsageError(if_twice.format(name))
    pairs[name] = value


def _topics(values: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for value in values:
        match = TOPIC_OPTION.fullmatch(value)
        if match is None or match[1] in (".", ".."):
            raise UsageError(f"{value!r} is not NAME:PARTITIONS, as in clicks:4; a topic has 1 to 10000 partitions")
        if match[1] in found:
            raise UsageError(f"--topic names {match[1]} twice")
        found[match[1]] = int(match[2])
    return found
