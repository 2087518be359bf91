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

from zkconsumer.errors import UsageError, WorldError

if TYPE_CHECKING:
    from bridge.broker.settings import BrokerSettings, TlsFiles

PORT = 9092
TOPIC = re.compile(r"([a-zA-Z0-9._-]{1,249}):([1-9][0-9]{0,3})")
LOOK_S = 0.5
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

HELLO = (
    "This is a development broker: Kafka's protocol in one process, no replication, no transactions. "
    "Do not keep data in it that you cannot lose."
)

file_option = click.Path(dir_okay=False, exists=True, path_type=Path)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen, without --listener.")
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="The first node's; 0: any."
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
    help="Where clients of a listener are told to connect, if not where it listens. May be given repeatedly.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep everything in this directory; without it, in memory.",
)
@click.option(
    "--sync",
    type=click.Choice(["system", "every-append"]),
    default="system",
    show_default=True,
    help="When records go to the disk: both survive kill -9, every-append a power cut too.",
)
@click.option("--emulate", metavar="RELEASE", help="Speak and behave as this release of Kafka.  [default: 3.9.1]")
@click.option("--nodes", default=1, show_default=True, type=click.IntRange(1, 100), help="How many, in this process.")
@click.option("--node-id", default=0, show_default=True, type=click.IntRange(0), help="The id of the first node.")
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[,…][/CHROOT]",
    help="Register there, for members of the old kind, and keep their offsets there (OffsetCommit v0).",
)
@click.option("--partitions", type=click.IntRange(1, 10_000), help="num.partitions: of topics made when asked for.")
@click.option("--topic", "topics", multiple=True, metavar="NAME:PARTITIONS", help="Make it. May be given repeatedly.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A key of Kafka's server.properties.")
@click.option("--users", type=file_option, metavar="FILE", help="Lines NAME=PASSWORD, for SASL PLAIN.")
@click.option("--tls-certificate", type=file_option, metavar="FILE", help="PEM; with its key, or beside --tls-key.")
@click.option("--tls-key", type=file_option, metavar="FILE", help="The key, if it is in a file of its own; PEM.")
@click.option("--tls-client-ca", type=file_option, metavar="FILE", help="Clients need a certificate of this authority.")
@click.option("-v", "--verbose", is_flag=True, help="Log what groups do.")
def broker(**options: Any) -> None:
    """Run a development broker: Kafka's protocol in one process, on files or in memory.

    Prints bootstrap.servers once it answers, and ends on Ctrl-C, SIGTERM or SIGHUP.
    """
    from bridge.broker.server import BrokerServer

    level = logging.INFO if options["verbose"] else logging.WARNING
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(message)s")
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    topics = _topics(options["topics"])
    server = BrokerServer(_settings(options))
    ended = threading.Event()
    signals: list[int] = []

    def on_signal(number: int, _: object) -> None:
        signals.append(number)
        ended.set()

    before = {number: signal.signal(number, on_signal) for number in ENDING}
    try:
        server.start()
        try:
            for name, partitions in topics.items():
                server.make_topic(name, partitions)
            click.echo(HELLO, err=True)
            _tell(server.settings, {name: _addresses(server, name) for name in _names(server.settings)})
            while not ended.wait(LOOK_S):
                if not server.is_alive:
                    raise WorldError("the broker's thread has ended; the log says why")
            click.echo(f"stopped by {signal.Signals(signals[0]).name}", err=True)
        finally:
            server.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _addresses(server: Any, listener: str) -> str:
    return ",".join(f"{address.host}:{address.port}" for address in server.addresses(listener))


def _names(settings: BrokerSettings) -> list[str]:
    return [listener.name for listener in settings.listeners]


def _tell(settings: BrokerSettings, addresses: dict[str, str]) -> None:
    """The first listener as a setting that can be copied; the others in words."""
    first, *others = _names(settings)
    click.echo(f"bootstrap.servers={addresses[first]}")
    where = "in memory" if settings.data is None else f"in {settings.data}"
    click.echo(f"as Kafka {settings.release}, {settings.nodes} node(s), {where}", err=True)
    for name in others:
        click.echo(f"listener {name}: {addresses[name]}", err=True)
    sys.stdout.flush()


def _settings(options: dict[str, Any]) -> BrokerSettings:
    from bridge.broker.listeners import Listener, read_listener, with_advertised
    from bridge.broker.log.files import SyncPolicy
    from bridge.broker.releases import NEWEST
    from bridge.broker.settings import BrokerSettings

    listeners = [read_listener(text) for text in options["listeners"]]
    if not listeners:
        listeners = [Listener("PLAINTEXT", "PLAINTEXT", options["host"], options["port"])]
    properties = dict(_pair(text, "--set KEY=VALUE") for text in options["settings"])
    if options["partitions"] is not None:
        properties["num.partitions"] = str(options["partitions"])
    return BrokerSettings(
        release=options["emulate"] or NEWEST,
        nodes=options["nodes"],
        first_node_id=options["node_id"],
        listeners=tuple(with_advertised(listeners, list(options["advertised"]))),
        data=options["data"],
        sync=SyncPolicy(options["sync"]),
        properties=properties,
        users=_users(options["users"]),
        tls=_tls(options),
        zookeeper=options["zookeeper"],
    )


def _tls(options: dict[str, Any]) -> TlsFiles | None:
    from bridge.broker.settings import TlsFiles

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
    return dict(_pair(line, f"a line of {file}: NAME=PASSWORD") for line in lines if line.strip())


def _pair(text: str, what: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"this is not {what}" if "PASSWORD" in what else f"{text!r} is not {what}")
    return name.strip(), value


def _topics(values: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for value in values:
        match = TOPIC.fullmatch(value)
        if match is None or match[1] in (".", ".."):
            raise UsageError(f"{value!r} is not NAME:PARTITIONS")
        found[match[1]] = int(match[2])
    return found
