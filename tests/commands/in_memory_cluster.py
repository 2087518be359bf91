"""A ZooKeeper in memory and two brokers, each of which may be unavailable; and the commands that are called on them.

    g1      an old group without members, with offsets in ZooKeeper
    moving  an old group whose migration has stopped after the phase ``verified``
    modern  a group that broker 1 coordinates, with offsets

Topic ``clicks`` has two partitions, one at each broker.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bridge.testing import EmbeddedBroker
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.in_memory_fixtures import wait_until
from tests.spark_checkpoint_files import CheckpointFolder
from zkconsumer.admin import coordinator_client, coordinator_lookups, log_ranges
from zkconsumer.admin.admin_session import AdminDependencies
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.cli import consume as consume_module
from zkconsumer.cli import perf as perf_module
from zkconsumer.cli.main import main
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.kafka.api_versions_deny_list import API_VERSIONS_DENY_LIST
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.sandbox.waiting import pause_ms
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Acl, GetAcl
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.zk_security import PERM_ALL, DigestLogin

NOWHERE = "no-such-host.invalid"
SESSION_MS = 1_000
"""Of a member that reads: it waits twice as long for its share."""

SETTLE_MS = 15_000
"""How long a member may take to find out why it does not read."""

HIDDEN = (Acl(PERM_ALL, "digest", "someone:x"),)
OPERATOR = DigestLogin("operator", "secret")


class Refuses:
    """A transport to a machine where nothing listens."""

    def __init__(self, *_: object) -> None:
        pass

    def open(self, deadline_ms: int) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    def abort(self) -> None:
        """There is nothing to end."""

    def release(self) -> None:
        """There is nothing to close."""


class NobodyAnswers(FakeZkStore):
    """A ZooKeeper that no client can reach."""

    def start(self, timeout_ms: int) -> None:
        raise ZkTimeoutException(
            f"no session with ZooKeeper at {ADDRESS} within {timeout_ms} ms (Connection refused): start its servers, "
            "or correct the address (zookeeper.connect)"
        )


class SkippingClock:
    """The clock; pauses end at once."""

    def __init__(self) -> None:
        self.skipped_ms = 0

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + self.skipped_ms

    def wall_ms(self) -> int:
        return SYSTEM_CLOCK.wall_ms() + self.skipped_ms


@dataclass(frozen=True)
class NoPause:
    """A wait that moves the clock instead."""

    clock: SkippingClock

    def __call__(self) -> NoPause:
        return self

    def wait(self, ms: int) -> bool:
        self.clock.skipped_ms += ms
        return False


@dataclass(frozen=True)
class Outcome:
    """The output of one call, without the parts that differ each time."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def errors(self) -> list[str]:
        return [line for line in self.stderr.splitlines() if line.startswith("zkconsumer: ")]

    @property
    def document(self) -> Any:
        """Standard output as JSON; None where it is none."""
        try:
            return json.loads(self.stdout)
        except ValueError:
            return None


class SettlingConnector(ZookeeperConsumerConnector):
    """Asked what keeps it from reading, it answers when it has found out, however slow the machine is.

    Where it never finds out what it should, it answers what it has after ``SETTLE_MS``, and the outcome is another one
    than the recorded one.
    """

    lasting: tuple[str, ...] = ()

    def reading_problems(self, timeout_ms: int) -> list[str]:
        """As without this class, but later."""
        deadline_ms = SYSTEM_CLOCK.now_ms() + SETTLE_MS
        while True:
            found = super().reading_problems(timeout_ms)
            has_settled = all(part in "; ".join(found) for part in self.lasting) if self.lasting else not found
            if has_settled or SYSTEM_CLOCK.now_ms() >= deadline_ms:
                return found
            pause_ms(20)


@dataclass
class CommandWorld:
    """The servers, and which of them are away."""

    world: FakeEnvironment
    broker: EmbeddedBroker
    folder: Path
    clock: SkippingClock = field(default_factory=SkippingClock)
    away: set[int] = field(default_factory=set)
    is_zookeeper_away: bool = False
    lasting: tuple[str, ...] = ()
    """The reader's message for this situation once it is known; see ``LASTING``."""

    is_real: bool = False
    """Whether names are looked up, and connections made, as for a user."""

    _before: dict[str, tuple[Acl, ...]] = field(default_factory=dict)

    def fill(self) -> None:
        broker, zookeeper = self.broker, self.world.zookeeper
        broker.create_topic("clicks", 2)
        wait_until(lambda: zookeeper.data(paths.topic("clicks")), "the brokers have registered the topic")
        for partition in range(2):
            broker.append("clicks", partition, [b"x"] * 10)
            broker.move_leader("clicks", partition, partition)
        zookeeper.ensure("/kafkastorm/spout/partition_0", b'{"offset":3,"partition":0,"topic":"clicks"}')
        for group, offsets in (("g1", (4, 6)), ("moving", (10, 7)), ("reader", (0, 0))):
            zookeeper.ensure(paths.ids(group))
            zookeeper.ensure(paths.owners_of_topic(group, "clicks"))
            for partition, offset in enumerate(offsets):
                zookeeper.ensure(paths.offset(group, TopicPartition("clicks", partition)), b"%d" % offset)
        plan = str(self.folder / "moving.plan")
        both = ("--zookeeper", ADDRESS)
        for words in (
            ("migrate", "plan", "moving", "-f", plan, *both),
            ("migrate", "apply", plan, "--execute", "--stop-after", "verified", *both),
            ("migrate", "plan", "g1", "-f", str(self.folder / "g1.plan"), "--offset-convention", "next", *both),
        ):
            done = self.call(words)
            assert done.exit_code == 0, done.stderr
        offsets = self.folder / "g1.txt"
        offsets.write_text("/consumers/g1/offsets/clicks/0:3\n/consumers/g1/offsets/clicks/1:6\n")
        csv = self.folder / "modern.csv"
        csv.write_text("clicks,0,3\nclicks,1,6\n")
        done = self.call(("offsets", "import", str(csv), "modern", "--execute", "--bootstrap-server", broker.bootstrap))
        assert done.exit_code == 0, done
        for group in ("g1", "moving", "modern"):
            broker.move_coordinator(group, 1)
        CheckpointFolder(self.folder / "checkpoint")
        reader = self.folder / "reader.properties"
        reader.write_text(
            f"rebalance.max.retries=1\nrebalance.backoff.ms=400\nzookeeper.session.timeout.ms={SESSION_MS}\n"
        )

    # --- what fails

    @contextmanager
    def situation(self, name: str) -> Iterator[None]:
        """The situations are in ``SITUATIONS``."""
        self.lasting = LASTING.get(name, ())
        try:
            if name == "no broker":
                self.away = {0, 1}
            elif name == "one of two brokers away":
                self.away = {1}
            elif name == "ZooKeeper away":
                self.is_zookeeper_away = True
            elif name == "unknown host":
                self.is_real = True
            elif name == "no right":
                self._hide()
            yield
        finally:
            self.away, self.is_zookeeper_away, self.is_real, self.lasting = set(), False, False, ()
            for path, acl in self._before.items():
                self.world.zookeeper.set_acl(path, acl)
            self._before.clear()

    def _hide(self) -> None:
        """Only another login may read the nodes of the groups."""
        groups, below = ("g1", "moving", "reader"), (paths.ids, paths.owners, paths.offsets)
        wanted = [path(group) for group in groups for path in below]
        store = FakeZkStore(self.world.zookeeper, "", 30_000, OPERATOR)
        store.start(1_000)
        for path, answer in zip(wanted, submit_and_wait(store, [GetAcl(path) for path in wanted], 30_000), strict=True):
            assert isinstance(answer, tuple), answer
            self._before[path] = answer
            self.world.zookeeper.set_acl(path, HIDDEN)
        store.close(1_000)

    # --- calling

    def call(self, words: tuple[str, ...]) -> Outcome:
        """Run a command as it is typed; everything that is another one each time gets a name."""
        API_VERSIONS_DENY_LIST.clear()
        doors = None if self.is_real else AdminDependencies(store=self.store, connect=self.connect, clock=self.clock)
        done = CliRunner().invoke(main, list(words), obj=doors)
        assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
        return Outcome(done.exit_code, self.plain(done.stdout), self.plain(done.stderr))

    def store(self, connect: str, timeout_ms: int, **how: Any) -> FakeZkStore:
        kind = NobodyAnswers if self.is_zookeeper_away else FakeZkStore
        return kind(self.world.zookeeper, "", timeout_ms, OPERATOR)

    def connect(self, host: str, port: int, **how: Any) -> BlockingConnection:
        silent = {self.broker.addresses()[number].port for number in self.away}
        return BlockingConnection(host, port, **how, **({"transport": Refuses} if port in silent else {}))

    def connector(self, config: Any) -> ZookeeperConsumerConnector:
        """What ``consume`` and ``perf`` make."""
        if self.is_real:
            return ZookeeperConsumerConnector(config)
        made = SettlingConnector(config, store=self.store, connect=self.connect)
        made.lasting = self.lasting
        return made

    def read_to_the_end(self) -> None:
        """From then on the group of the readers is at the end."""
        config = self.folder / "reader.properties"
        words = f"consume reader --topic clicks --from-beginning --max-messages 20 --config {config}".split()
        done = self.call((*words, "--zookeeper", ADDRESS))
        assert done.exit_code == 0, done.stderr
        for partition in range(2):
            assert self.world.zookeeper.data(paths.offset("reader", TopicPartition("clicks", partition))) == b"10"

    def plain(self, text: str) -> str:
        for number, address in enumerate(self.broker.addresses()):
            text = text.replace(f"127.0.0.1:{address.port}", f"broker-{number}:9092")
            text = text.replace(f"{address.host}:{address.port}", f"broker-{number}:9092")
        text = text.replace(str(self.folder), "FOLDER").replace(socket.gethostname(), "HOST")
        text = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", text)
        text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID", text)
        text = re.sub(r"\b[0-9a-f]{12}\b", "ID", text)
        text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(Z|[:,]\d{3})?", "TIME", text)
        text = re.sub(r"\b1[0-9]{12}\b", "1000000000000", text)
        text = re.sub(r"0x[0-9a-f]+", "SESSION", text)
        return re.sub(r"\b\d+\.\d{4}\b", "RATE", text)


LASTING = {
    "no broker": ("none of 2 brokers answers", "2 partitions of its assignment"),
    "one of two brokers away": ("does not answer", "1 partition of its assignment"),
    "no such topic": ("does not exist",),
    "no right": ("not registered in its group: waiting",),
}
"""Situation → parts of what keeps a reader from reading there, once it has found out.  If all is well, nothing does."""

SITUATIONS = (
    "no broker", "one of two brokers away", "ZooKeeper away", "unknown host", "no such group", "no such topic",
    "no right",
)  # fmt: skip


@contextmanager
def command_world(folder: Path) -> Iterator[CommandWorld]:
    """The servers with their groups; nothing outside is asked, and pauses between tries take no time."""
    found: Callable[..., Any] = socket.getaddrinfo

    def look_up(host: str, *more: Any, **how: Any) -> Any:
        if host.endswith(".invalid"):
            raise socket.gaierror(-2, "Name or service not known")
        return found(host, *more, **how)

    with (
        pytest.MonkeyPatch.context() as patch,
        FakeEnvironment(brokers=0) as world,
        EmbeddedBroker(nodes=2, zookeeper=ADDRESS, zk_store=world.store) as broker,
    ):
        made = CommandWorld(world, broker, folder)
        patch.setattr(socket, "getaddrinfo", look_up)
        patch.delenv("ZKCONSUMER_ZOOKEEPER", raising=False)
        patch.delenv("ZKCONSUMER_BOOTSTRAP_SERVERS", raising=False)
        patch.delenv("ZKCONSUMER_CONTEXT", raising=False)
        for module in (coordinator_client, coordinator_lookups, log_ranges):
            patch.setattr(module, "StopSignal", NoPause(made.clock))
        for module in (consume_module, perf_module):
            patch.setattr(module, "ZookeeperConsumerConnector", made.connector)
        made.fill()
        yield made
