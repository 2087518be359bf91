"""``zkconsumer demo --web``: the page of ``zkconsumer web`` on a cluster in memory, with activity that never ends.

    demo     ``anna`` always reads, ``bert`` joins and leaves; a producer is faster than they are for half of the time
    moving   a group without members, which migrates to Kafka phase by phase, and back
    idle     a group with offsets, of which no member is registered

The members, the brokers and the migration are the real ones; only ZooKeeper is played.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import click

from bridge.commands.web import DEFAULT_WEB_PORT
from bridge.commands.web_run import EXTRA_MISSING
from bridge.testing.embedded_broker import EmbeddedBroker
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import UsageError
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.types import TopicPartition
from zkconsumer.version import __version__
from zkconsumer.zk import paths

DEMO_TOPICS = {"clicks": 6, "orders": 4}
IDLE_GROUP, MOVING_GROUP, READING_GROUP = "idle", "moving", "demo"
RECORDS_EACH = 40
ROUND_MS = 1_000
BERT_ROUNDS = 25
"""After this number of rounds bert joins or leaves."""

PHASE_ROUNDS = 8
"""The rounds between two phases of the migration."""

READ_PAUSE_MS = 20
PHASES_SHOWN = ("fenced", "copied", "verified", "switched")
NOTE = "This cluster is in memory, in the process of the demo: the commands that the page shows cannot reach it."


def run_demo_page(port: int | None) -> None:
    """Serve until Ctrl-C.  ``UsageError`` without the extra [web], ``PreconditionFailed`` if the port is in use."""
    try:
        from bridge.web.page_app import PageSettings
        from bridge.web.page_server import PageServer, listen
        from bridge.web.request_checks import AllowedRequests
    except ImportError as error:
        raise UsageError(f"{EXTRA_MISSING} ({error})") from error
    listening = listen("127.0.0.1", DEFAULT_WEB_PORT if port is None else port)
    with contextlib.closing(listening), DemoCluster() as cluster:
        allowed = AllowedRequests("127.0.0.1", listening.getsockname()[1])

        def print_address() -> None:
            click.echo(f"http://127.0.0.1:{allowed.port}/")
            click.echo("A cluster in memory, with members that come and go; Ctrl-C ends it.", err=True)

        PageServer(
            listening,
            allowed,
            PageSettings("a cluster in memory", __version__, NOTE),
            cluster.open_session,
            on_started=print_address,
        ).run()


class DemoCluster:
    """The cluster, and the thread that changes it.  A context manager."""

    def __init__(self) -> None:
        self.world = FakeEnvironment(brokers=0, connect=BlockingConnection, clock=SYSTEM_CLOCK)
        self.broker = EmbeddedBroker(nodes=2, zookeeper=ADDRESS, zk_store=self.world.store)
        self._dependencies = AdminDependencies(store=self.world.store, connect=BlockingConnection)
        self._folder = tempfile.TemporaryDirectory(prefix="zkconsumer-demo-")
        self._readers: list[DemoReader] = []

    def __enter__(self) -> DemoCluster:
        self.broker.start()
        for topic, partitions in DEMO_TOPICS.items():
            self.broker.create_topic(topic, partitions)
            self._wait_for_topic(topic, partitions)
        for group, offset in ((IDLE_GROUP, 3), (MOVING_GROUP, 10)):
            self.world.zookeeper.ensure(paths.ids(group))
            self.world.zookeeper.ensure(paths.owners_of_topic(group, "orders"))
            for partition in range(DEMO_TOPICS["orders"]):
                self.world.zookeeper.ensure(paths.offset(group, TopicPartition("orders", partition)), b"%d" % offset)
        self._produce(RECORDS_EACH * 5)
        self._readers.append(DemoReader(self.world, "anna"))
        self._activity = spawn("zkconsumer-demo-activity", self._run, _report)
        self._migration = spawn("zkconsumer-demo-migration", self._migrate, _report)
        return self

    def __exit__(self, *_: object) -> None:
        self._activity.request_stop()
        self._migration.request_stop()
        self._activity.join(5_000)
        self._migration.join(30_000)
        for reader in self._readers:
            reader.close()
        self.broker.stop()
        self.world.stop()
        self._folder.cleanup()

    def open_session(self) -> AdminSession:
        """A session of a tool."""
        return AdminSession.open(ADDRESS, None, self._dependencies)

    def _run(self, stop: StopSignal) -> None:
        number = 0
        while not stop.wait(ROUND_MS):
            number += 1
            self._produce(RECORDS_EACH * (3 if number // 20 % 2 else 1))
            if number % BERT_ROUNDS == 0:
                if len(self._readers) == 1:
                    self._readers.append(DemoReader(self.world, "bert"))
                else:
                    self._readers.pop().close()

    def _migrate(self, stop: StopSignal) -> None:
        """Move the group to Kafka, one phase at a time, and back; again and again."""
        pause_ms = PHASE_ROUNDS * ROUND_MS
        for round_number in range(1_000_000):
            plan = str(Path(self._folder.name) / f"{round_number}.plan")
            steps: list[tuple[str, ...]] = [
                ("plan", MOVING_GROUP, "-f", plan, "--offset-convention", "next", "--no-acl-fence")
            ]
            steps += [("apply", plan, "--execute", "--stop-after", phase) for phase in PHASES_SHOWN[:-1]]
            steps += [("apply", plan, "--execute"), ("rollback", MOVING_GROUP, "--execute")]
            for step in steps:
                if stop.wait(pause_ms):
                    return
                self._call("migrate", *step, "--zookeeper", ADDRESS)

    def _call(self, *words: str) -> None:
        """Run a command of ours in this process; its output is not shown."""
        from zkconsumer.cli.main import main

        hidden = io.StringIO()
        with contextlib.redirect_stdout(hidden), contextlib.redirect_stderr(hidden), contextlib.suppress(SystemExit):
            main(list(words), obj=self._dependencies)

    def _produce(self, records: int) -> None:
        for topic, partitions in DEMO_TOPICS.items():
            for partition in range(partitions):
                some = records + partition * 5 if topic == "clicks" else records // 8
                self.broker.append(topic, partition, [b"demo %d" % n for n in range(some)])

    def _wait_for_topic(self, topic: str, partitions: int) -> None:
        last = paths.partition_state(TopicPartition(topic, partitions - 1))
        pause = StopSignal()
        for _ in range(500):
            if self.world.zookeeper.data(last) is not None:
                return
            pause.wait(READ_PAUSE_MS)
        raise click.ClickException("the broker did not register its topic in time")


class DemoReader:
    """A member that reads slowly, and commits every second."""

    def __init__(self, world: FakeEnvironment, name: str) -> None:
        self.connector: ZookeeperConsumerConnector = world.connector(
            group_id=READING_GROUP,
            consumer_id=name,
            auto_offset_reset="smallest",
            auto_commit_interval_ms=1000,
            zookeeper_session_timeout_ms=4000,
        )
        streams = self.connector.create_message_streams({"clicks": 1})
        self._pause = threading.Event()
        self._thread = spawn(f"zkconsumer-demo-{name}", self._reading(streams["clicks"][0]), _report)

    def close(self) -> None:
        """Leave the group, and wait until the thread of the stream ends."""
        self._pause.set()
        self.connector.shutdown()
        self._thread.join(5_000)

    def _reading(self, stream: object) -> Callable[[StopSignal], None]:
        def run(_: StopSignal) -> None:
            for number, _message in enumerate(stream):  # type: ignore[var-annotated, arg-type]
                if number % 10 == 0:
                    self._pause.wait(READ_PAUSE_MS / 1000)

        return run


def _report(name: str, error: BaseException) -> None:
    click.echo(f"{name} ended: {error!r}", err=True)
