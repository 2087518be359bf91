"""A Spark query on a migrating group, without Spark: its calls reach the membership's service in this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bridge import CoordinatorConsumerConnector
from bridge.migration.control.control_layout import LEAVE_CHILD
from bridge.migration.control.control_pieces import read_plan_text
from bridge.migration.plan.plan_file import plan_from_bytes
from bridge.spark.group_membership import BatchAssignment, BatchEnd, ClaimResult, GroupOffset, RangeToClaim
from bridge.spark.membership.query_membership import QueryMembership
from bridge.spark.options import SourceOptions, read_options
from bridge.spark.source.dependencies import SourceDependencies, membership_process_settings, open_logs
from bridge.spark.source.fault_injection import FaultPoint
from bridge.spark.source.stream_reader import ZkConsumerStreamReader
from bridge.testing.fake_environment import ADDRESS
from tests.in_memory_fixtures import wait_until
from tests.micro_batch_engine import FakeSparkCheckpoint, MicroBatchEngine, OutputRow
from tests.migration.migration_write_faults import DECISIONS, Lab
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.zk_security import ZkLogin
from zkconsumer.zk.znode_formats import parse_control

CALL_MS = 20_000
QUICK = {"rebalance.backoff.ms": "50", "release.settle.ms": "0", "rebalance.drain.timeout.ms": "500"}


MEMBER: dict[str, Any] = {
    "auto_offset_reset": "smallest",
    "auto_commit_enable": False,
    "consumer_timeout_ms": 20_000,
    "fetch_wait_max_ms": 50,
}


class InProcessMembership:
    """The ``GroupMembership`` of a query whose membership runs in the process of the test."""

    def __init__(self, following: QueryMembership) -> None:
        self.following = following
        following.open()

    def begin_batch(self, ended: Mapping[TopicPartition, BatchEnd], wait_ms: int) -> BatchAssignment:
        return self.following.begin_batch(ended, wait_ms, until(wait_ms))

    def batch_planned(self, partitions: Collection[TopicPartition]) -> None:
        self.following.planned(partitions, until())

    def group_offsets(self, partitions: Collection[TopicPartition], query: str) -> dict[TopicPartition, GroupOffset]:
        return self.following.group_offsets(partitions, query, until())

    def claim(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, RangeToClaim]
    ) -> dict[TopicPartition, ClaimResult]:
        return self.following.claim(query, batch, ranges, until())

    def seek(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        return self.following.seek(offsets, until())

    def brokers(self) -> list[BrokerAddress]:
        return self.following.brokers()

    def metrics(self) -> dict[str, int]:
        return self.following.observe()

    def close(self) -> None:
        self.following.stop_waiting()
        self.following.abandon()


def until(wait_ms: int = 0) -> int:
    return SYSTEM_CLOCK.now_ms() + CALL_MS + wait_ms


class Query:
    """One query on a group of the lab: its checkpoint and sink, and its life of now."""

    def __init__(self, zookeeper: FakeZooKeeper, group: str, mode: str, **options: str) -> None:
        self._zookeeper = zookeeper
        self.group = group
        given = {
            "zookeeper.connect": ADDRESS, "group.id": group, "subscribe": "t", "auto.offset.reset": "smallest",
            "group.offsets.commit": mode, "maxOffsetsPerTrigger": "12", **QUICK, **options,
        }  # fmt: skip
        self.options: SourceOptions = read_options(given, is_stream=True)
        self.checkpoint = FakeSparkCheckpoint()
        self.members: list[InProcessMembership] = []
        self.login: ZkLogin | None = None
        self.engine: MicroBatchEngine

    def start(self, *, available_now: bool = False) -> MicroBatchEngine:
        self.engine = MicroBatchEngine(self._reader, self.checkpoint, available_now=available_now)
        return self.engine

    def crash(self) -> None:
        """Every process has ended; the membership process has a moment to leave, as after ``SIGKILL`` of the driver."""
        for member in self.members:
            member.close()
        self.members.clear()

    @property
    def following(self) -> QueryMembership:
        return self.members[-1].following

    @property
    def rows(self) -> list[OutputRow]:
        return sorted(self.checkpoint.rows)

    def waits(self) -> bool:
        return bool(self.members) and self.following.observe()["waiting_for_migration"] == 1

    def is_in_kafka(self) -> bool:
        return self.following.observe()["in_coordinator_group"] == 1

    def triggers_until(self, holds: Callable[[], object], what: str, timeout_ms: int = 30_000) -> None:
        """Trigger after trigger."""

        def triggered() -> object:
            for _ in self.engine.trigger():
                pass
            return holds()

        wait_until(triggered, what, timeout_ms)

    def _reader(self) -> ZkConsumerStreamReader:
        doors = SourceDependencies(membership=self._member, logs=open_logs, fault_point=lambda _: FaultPoint())
        return ZkConsumerStreamReader(self.options, ("value",), doors)

    def _member(self, options: SourceOptions) -> InProcessMembership:
        settings = membership_process_settings(options)

        def store(connect: str, timeout_ms: int) -> FakeZkStore:
            return FakeZkStore(self._zookeeper, "", timeout_ms, self.login)

        name = f"{self.group}_spark-{len(self.members)}"
        given: dict[str, Any] = settings.to_json() | {"consumer_id": name, "run": f"{id(self):032x}"}
        self.members.append(InProcessMembership(QueryMembership(type(settings).from_json(given), make_store=store)))
        return self.members[-1]


@contextmanager
def query_of(lab: Lab, group: str, mode: str, **options: str) -> Iterator[Query]:
    """A query that is stopped at the end; while the lab waits, time passes for it, too."""
    query = Query(lab.zookeeper, group, mode, **options)
    try:
        yield query
    finally:
        query.crash()
        lab.on_pause = lambda: None


def step_aside(lab: Lab, query: Query) -> None:
    """While a run waits the query continues; once it is requested to leave, it leaves."""
    data = lab.zookeeper.data(paths.control(query.group))
    phase = "" if data is None else parse_control(data).phase
    is_asked = lab.zookeeper.data(paths.control_child(query.group, LEAVE_CHILD)) is not None
    if query.members and (phase == "fencing" or (phase == "switched" and is_asked)):
        query.triggers_until(query.waits, "the query steps aside")


def move(lab: Lab, query: Query, *, resume: bool = False, **options: Any) -> None:
    """``migrate apply``, while the query continues."""
    lab.on_pause = lambda: step_aside(lab, query)
    with lab.process() as session:
        plan = plan_from_bytes(read_plan_text(session, query.group)) if resume else lab.plan(query.group, DECISIONS)
        lab.apply(session, plan, accept_drift=True, **options)
    lab.on_pause = lambda: None


def move_back(lab: Lab, query: Query) -> None:
    lab.on_pause = lambda: step_aside(lab, query)
    with lab.process() as session:
        lab.rollback(session, lab.kept(session, query.group))
    lab.on_pause = lambda: None


def modern_member(lab: Lab, group: str, count: int) -> list[OutputRow]:
    """A member of Kafka's group reads so many records, commits, and goes."""
    settings = {"bootstrap_servers": lab.broker.bootstrap, "zookeeper_connect": "nowhere:2181", **MEMBER}
    config = ConsumerConfig(group_id=group, **settings)
    with CoordinatorConsumerConnector(config, {"heartbeat.interval.ms": 100, "retry.backoff.ms": 20}) as member:
        return _read(member, count)


def old_member(lab: Lab, group: str, count: int) -> list[OutputRow]:
    """The same in ZooKeeper's group."""
    config = ConsumerConfig(group_id=group, zookeeper_connect=ADDRESS, rebalance_backoff_ms=50, **MEMBER)
    store = lambda _, timeout_ms: FakeZkStore(lab.zookeeper, "", timeout_ms, None)  # noqa: E731
    member = ZookeeperConsumerConnector(config, store=store)
    try:
        return _read(member, count)
    finally:
        member.close()


def _read(member: Any, count: int) -> list[OutputRow]:
    [stream] = member.create_message_streams({"t": 1})["t"]
    given = [next(stream.iterator()) for _ in range(count)]
    member.commit_offsets()
    return [(TopicPartition(message.topic, message.partition), message.offset) for message in given]


def records(lab: Lab, first: Mapping[TopicPartition, int]) -> list[OutputRow]:
    """The records in the logs from there on."""
    ends = {tp: lab.broker.log_end(tp.topic, tp.partition) for tp in first}
    return sorted((tp, offset) for tp, begin in first.items() for offset in range(begin, ends[tp]))


def ids_of(lab: Lab, group: str) -> list[str]:
    root = f"{paths.ids(group)}/"
    return [path.removeprefix(root) for path in lab.zookeeper.tree.dump() if path.startswith(root)]
