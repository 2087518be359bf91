"""``Sandbox``: starts a small cluster (ZooKeeper, brokers, Scala consumers, a producer), and stops it in order."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Unpack

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import topic_setup
from zkconsumer.testing.sandbox.broker_process import BrokerStartOptions
from zkconsumer.testing.sandbox.kraft_broker import KraftBroker
from zkconsumer.testing.sandbox.member_process import ScalaMember, ScalaMemberOptions
from zkconsumer.testing.sandbox.probe import ClusterMetadata
from zkconsumer.testing.sandbox.producer_process import ProducedRange, ProducerProcess
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun, end, reap
from zkconsumer.testing.sandbox.tools import TOOL_TIMEOUT_MS, ToolResult, run_tool
from zkconsumer.testing.sandbox.topic_setup import LEADERS_TIMEOUT_MS
from zkconsumer.testing.sandbox.zookeeper_admin import ZooKeeperAdmin
from zkconsumer.testing.sandbox.zookeeper_mode_broker import ZooKeeperModeBroker
from zkconsumer.testing.sandbox.zookeeper_process import ZooKeeperServer

KEEP_VARIABLE = "ZKCONSUMER_SANDBOX_KEEP"


class Sandbox:
    """Starts processes on request and ends all of them; a context manager.

        with Sandbox() as sandbox:
            sandbox.start_zookeeper("3.8")
            sandbox.start_broker("1.1.1", chroot="/kafka")
            sandbox.create_topic("clicks", 4)
            sandbox.produce("clicks", 0, 100)
            member = sandbox.start_member("1.1.1", "group", {"clicks": 2})
            member.wait_delivered(100)

    ``outlives_parent``: the servers continue to run when this process ends.  The next run would stop them, unless
    ``run.detach()`` was called.  ``root``: the folder for data and logs; None: a folder of the cache, which ``close``
    removes unless the environment has ZKCONSUMER_SANDBOX_KEEP.  The constructor first stops processes that killed runs
    have left.
    """

    def __init__(self, root: Path | None = None, *, outlives_parent: bool = False) -> None:
        self.reaped = reap()
        self.run = SandboxRun.create(root)
        self.brokers: list[ZooKeeperModeBroker | KraftBroker] = []
        self.members: list[ScalaMember] = []
        self._outlives_parent = outlives_parent
        self._zookeeper: ZooKeeperServer | None = None
        self._load: ProducerProcess | None = None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def zookeeper(self) -> ZooKeeperServer:
        if self._zookeeper is None:
            raise SandboxError("this sandbox has no ZooKeeper yet: start_zookeeper() first")
        return self._zookeeper

    @property
    def chroot(self) -> str:
        """The chroot of the first broker; empty without one."""
        return self.brokers[0].chroot if self.brokers else ""

    @property
    def zookeeper_connect(self) -> str:
        """The value for ``zookeeper.connect``, with the chroot of the first broker."""
        return self.zookeeper.connect_string(self.chroot)

    @property
    def bootstrap(self) -> str:
        """host:port,host:port of the brokers."""
        return ",".join(broker.address for broker in self.brokers)

    @property
    def admin(self) -> ZooKeeperAdmin:
        """A ZooKeeper session in the chroot of the first broker."""
        return self.zookeeper.admin(self.chroot)

    # --- starting ---

    def start_zookeeper(
        self, version: str = "3.8", *, settings: dict[str, str] | None = None, options: tuple[str, ...] = ()
    ) -> ZooKeeperServer:
        """Start the server.  ``settings``: for its configuration file; ``options``: for its Java process."""
        assert self._zookeeper is None, "one ZooKeeper for each sandbox"
        self._zookeeper = ZooKeeperServer(
            self.run, version, settings=settings, options=options, outlives_parent=self._outlives_parent
        )
        self._zookeeper.start()
        return self._zookeeper

    def start_broker(
        self,
        release: str = "1.1.1",
        *,
        chroot: str = "",
        broker_id: int | None = None,
        **options: Unpack[BrokerStartOptions],
    ) -> ZooKeeperModeBroker:
        """Start one more broker; ids count from 0.  ``settings``, ``heap_mb``, ``security``: ``BrokerStartOptions``."""
        number, lives_on = len(self.brokers) if broker_id is None else broker_id, self._outlives_parent
        broker = ZooKeeperModeBroker(release, self.zookeeper, chroot, number, outlives_parent=lives_on, **options)
        self.brokers.append(broker)
        broker.start()
        return broker

    def start_kraft_broker(self, release: str = "4.1.1", **options: Unpack[BrokerStartOptions]) -> KraftBroker:
        """Start a cluster of one broker without ZooKeeper; the sandbox cannot have another broker then."""
        assert not self.brokers, "a KRaft broker is a cluster of its own"
        broker = KraftBroker(self.run, release, outlives_parent=self._outlives_parent, **options)
        self.brokers.append(broker)
        broker.start()
        return broker

    def start_member(
        self,
        release: str,
        group: str,
        topics: Mapping[str, int] | None = None,
        *,
        wait: bool = True,
        name: str | None = None,
        **options: Unpack[ScalaMemberOptions],
    ) -> ScalaMember:
        """Start one more Scala consumer, in the chroot of the first broker; see ``ScalaMember``."""
        name = name or f"member-{len(self.members)}"
        member = ScalaMember(release, self.zookeeper, group, topics, chroot=self.chroot, name=name, **options)
        self.members.append(member)
        member.start(wait=wait)
        return member

    @property
    def producer(self) -> ProducerProcess:
        """The producer of the first broker's release, started on first use."""
        if self._load is None or not self._load.is_running():
            if not self.brokers:
                raise SandboxError("this sandbox has no broker yet: start_broker() first")
            self._load = ProducerProcess(self.run, self.brokers[0].release, self.bootstrap)
        return self._load

    def run_tool(
        self,
        release: str,
        main: str,
        arguments: Sequence[str | Path] = (),
        *,
        stdin: str = "",
        timeout_ms: int = TOOL_TIMEOUT_MS,
    ) -> ToolResult:
        """Run a tool of Kafka, such as ``kafka.tools.ConsoleConsumer``, and wait for its end."""
        return run_tool(self.run, release, main, arguments, stdin=stdin, timeout_ms=timeout_ms)

    # --- topics and records ---

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        replicas: Mapping[int, Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
        timeout_ms: int = LEADERS_TIMEOUT_MS,
    ) -> None:
        """Create a topic and wait for its leaders; ``replicas`` None: consecutive partitions on consecutive brokers."""
        wanted = replicas if replicas is not None else self._assign_replicas(partitions)
        if self._is_kraft:
            assert replicas is None, "a KRaft cluster here has one broker, so it has no choice of replicas"
            assert config is None, "with a KRaft broker topics have no settings here"
            self.producer.create_topic(topic, partitions)
            self.wait_leaders(topic, len(wanted), timeout_ms)
        else:
            topic_setup.create_topic(
                self.admin, self._metadata, topic, replicas=wanted, config=config, timeout_ms=timeout_ms
            )

    def grow_topic(self, topic: str, partitions: int, timeout_ms: int = LEADERS_TIMEOUT_MS) -> None:
        """Add partitions until the topic has ``partitions``, and wait for their leaders."""
        if self._is_kraft:
            self.producer.grow_topic(topic, partitions)
            self.wait_leaders(topic, partitions, timeout_ms)
            return
        topic_setup.grow_topic(self.admin, self._metadata, topic, self._assign_replicas(partitions), timeout_ms)

    @property
    def _is_kraft(self) -> bool:
        """Whether topics are created by requests to the broker; the sandbox may still have a ZooKeeper, for groups."""
        return any(isinstance(broker, KraftBroker) for broker in self.brokers)

    def wait_leaders(self, topic: str, partitions: int, timeout_ms: int = LEADERS_TIMEOUT_MS) -> None:
        """Wait until every running broker returns a leader for each of this number of partitions."""
        topic_setup.wait_leaders(self._metadata, topic, partitions, timeout_ms)

    def produce(
        self, topic: str, partition: int, values: int | Sequence[bytes | None], *, size: int = 64, codec: str = "none"
    ) -> ProducedRange:
        """Produce this number of numbered records, or exactly these values; return the acknowledged range."""
        if isinstance(values, int):
            return self.producer.produce(topic, partition, values, size=size, codec=codec)
        return self.producer.produce_values(topic, partition, values, codec=codec)

    # --- the end ---

    def stop(self) -> None:
        """Stop everything gracefully: members, producer, brokers, ZooKeeper.  The files stay until ``close``."""
        for member in self.members:
            if member.is_running():
                member.stop()
        self._close_load()
        for broker in self.brokers:
            broker.stop()
        if self._zookeeper is not None:
            self._zookeeper.close()

    def close(self) -> None:
        """Kill the servers, since their data is deleted too, and remove the files."""
        for member in self.members:
            member.close()
        self._close_load()
        for broker in self.brokers:
            if broker.is_running():
                broker.kill()
        if self._zookeeper is not None:
            self._zookeeper.close(graceful=False)
        end(self.run.records(), timeout_ms=0)
        if not os.environ.get(KEEP_VARIABLE):
            self.run.remove()

    def _assign_replicas(self, partitions: int) -> dict[int, list[int]]:
        return topic_setup.assign_replicas(partitions, [broker.broker_id for broker in self.brokers])

    def _metadata(self) -> list[ClusterMetadata | None]:
        return [broker.metadata() for broker in self.brokers if broker.is_running()]

    def _close_load(self) -> None:
        if self._load is not None:
            self._load.close()
            self._load = None
