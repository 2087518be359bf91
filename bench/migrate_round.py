"""One round of ``bench/migrate.py``, in the measured process: a group's offsets from ZooKeeper to Kafka."""

from __future__ import annotations

import resource
import time
from typing import Any

from bridge.migration.control.control_znode import ControlZnode
from bridge.migration.fences.fence_acls import READ_ONLY
from bridge.migration.fences.fence_permissions import CheckPermissions
from bridge.migration.inspect.required_permissions import GroupZnodes
from bridge.migration.offsets.offset_copies import OffsetCopy
from bridge.migration.offsets.offset_copy_steps import CopyToKafka, OffsetStores
from bridge.migration.offsets.offset_verification import VerifyCopiedOffsets
from bridge.migration.placeholder.placeholder_member import PlaceholderMember
from bridge.migration.steps.step import StepDone, StepPending
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.zookeeper_offset_writes import NO_ZNODE_VERSION, OffsetWrite, StoreWriteReport, write_offsets
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.requests import OPEN_ACL, Create, SetAcl, SetData, Stat
from zkconsumer.zk.znode_formats import ControlRecord, format_control

GROUP, MIGRATION = "bench", "bench-1"
A_TOPIC = 1_000
PARTS = ("read", "commit", "read back")
CHECK, FENCE = "check of rights", "lists changed and put back"


def topics_of(partitions: int) -> list[str]:
    return [f"topic-{number:04}" for number in range(-(-partitions // A_TOPIC))]


def wanted(partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic in topics_of(partitions) for n in range(A_TOPIC)][:partitions]


def fill(session: AdminSession, partitions: int) -> None:
    """Create the offset znodes of a group, and the control znode of a migration that has fenced it."""
    path = paths.control(GROUP)
    session.request([*map(Create, paths.parents(path)), Create(path, b"{}")])
    report = StoreWriteReport()
    writes = [OffsetWrite(tp, 1_000_000_000 + number, NO_ZNODE_VERSION) for number, tp in enumerate(wanted(partitions))]
    write_offsets(session, GROUP, writes, control_version=None, report=report)
    assert not report.stopped_by, report.stopped_by


class Door:
    """Connects the measured process to its servers, and counts its requests."""

    def __init__(self) -> None:
        self.stores: list[KazooStore | FakeZkStore] = []
        self.kafka = 0

    def real_store(self, connect: str, timeout_ms: int) -> KazooStore:
        store = KazooStore(connect, timeout_ms)
        self.stores.append(store)
        return store

    def connect(self, host: str, port: int, **how: Any) -> BlockingConnection:
        return Counted(self, host, port, **how)

    @property
    def zookeeper(self) -> int:
        return sum(store.packets_sent for store in self.stores)


class Counted(BlockingConnection):
    """A connection that counts the sent requests."""

    def __init__(self, door: Door, host: str, port: int, **how: Any) -> None:
        super().__init__(host, port, **how)
        self._door = door

    def send(self, *args: Any, **how: Any) -> Any:
        self._door.kafka += 1
        return super().send(*args, **how)


class Marks:
    """The figures of each part: seconds, CPU time, requests."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.parts: dict[str, dict[str, float]] = {}
        self._last = self._now()

    def _now(self) -> dict[str, float]:
        return {
            "s": SYSTEM_CLOCK.now_ms() / 1000,
            "cpu": time.process_time(),
            "zookeeper": self._door.zookeeper,
            "kafka": self._door.kafka,
        }

    def end(self, part: str) -> None:
        now = self._now()
        self.parts[part] = {name: now[name] - self._last[name] for name in now}
        self._last = self._now()


def measure(session: AdminSession, epoch: int, door: Door) -> dict[str, dict[str, float]]:
    """One round: the figures of each part, and the peak of resident memory in MB before ACLs are changed."""
    fenced = ControlRecord(MIGRATION, epoch, "fenced", "zookeeper", "copy")
    session.request([SetData(paths.control(GROUP), format_control(fenced))])
    topics = sorted(session.children(paths.offsets(GROUP)).names)  # type: ignore[union-attr]
    stores = OffsetStores(ControlZnode(session, GROUP, MIGRATION), PlaceholderMember(session, GROUP, MIGRATION, topics))
    marks = Marks(door)

    nodes = stores.read_zookeeper()
    before = stores.read_kafka(list(nodes))
    copies = [
        OffsetCopy(tp, node.offset, node.offset, node.stat.version, before.get(tp))
        for tp, node in nodes.items()
        if node.offset is not None
    ]
    marks.end("read")

    stores.placeholder.join()
    copy = CopyToKafka(stores, copies)
    assert copy.check() == StepPending(), "all offsets must still be written"
    copy.do()
    marks.end("commit")

    assert VerifyCopiedOffsets(stores, copies).check() == StepDone()
    marks.end("read back")
    stores.placeholder.leave()

    offsets = [paths.offset(GROUP, tp) for tp in nodes]
    marks.end("between")
    assert CheckPermissions(session, GroupZnodes(GROUP, topics, list(nodes), acl_fence=False)).check() == StepDone()
    marks.end(CHECK)
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for acl in ((READ_ONLY,), OPEN_ACL):
        assert all(isinstance(answer, Stat) for answer in session.request([SetAcl(path, acl) for path in offsets]))
    marks.end(FENCE)
    return {**{part: marks.parts[part] for part in (*PARTS, CHECK, FENCE)}, "rss": {"mb": rss_mb}}
