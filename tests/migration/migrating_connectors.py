"""A group of ``MigratingConsumerConnector`` on a fake ZooKeeper and an embedded broker; the control znode by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from bridge import CoordinatorConsumerConfig
from bridge.migration.control.control_layout import MEMBERS_CHILD
from bridge.migration.control.phases import Phase, authority_of
from bridge.migration.dual.connector.migrating_connector import MigratingConsumerConnector
from bridge.migration.dual.machine.acknowledgement import Acknowledgement, parse_acknowledgement
from bridge.testing.embedded_broker import EmbeddedBroker
from bridge.testing.fake_environment import ADDRESS
from tests.broker.raw_client import RawClient
from zkconsumer import ConsumerConfig, KafkaStream, TopicPartition
from zkconsumer.base.threads import live_threads
from zkconsumer.testing.fake_zookeeper import FakeZkStore, FakeZooKeeper
from zkconsumer.testing.sandbox import waiting
from zkconsumer.wire.schemas import OFFSET_FETCH
from zkconsumer.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from zkconsumer.zk import paths
from zkconsumer.zk.requests import ChildNames, Children, Create, SetData
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.zk_security import NO_SECURITY
from zkconsumer.zk.znode_formats import ControlRecord, format_control, parse_offset

GROUP, TOPIC, ID = "g", "t", "m1"
QUICK = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 50, "retry.backoff.ms": 20}
EPOCHS = {"planned": 1, "armed": 2, "ready": 2, "locked": 3, "copied": 3, "switched": 4, "completed": 4}
BACK = {"returning": 5, "returned": 6, "undone": 6}


class Dual:
    """One group of one topic, its members, and both stores."""

    def __init__(self, broker: EmbeddedBroker, partitions: int) -> None:
        self.broker = broker
        self.partitions = partitions
        self.zookeeper = FakeZooKeeper(delivery="thread")
        self.stack = ExitStack()
        self.stores: dict[str, FakeZkStore] = {}
        self.operator = FakeZkStore(self.zookeeper, "", 30_000, NO_SECURITY.login)
        self.operator.listen(lambda _: None)
        self.operator.start(1_000)
        self.zookeeper.ensure(paths.BROKER_TOPICS)
        self.zookeeper.ensure(paths.CONSUMERS)

    def member(self, name: str, group: dict[str, object] | None = None, **how: Any) -> MigratingConsumerConnector:
        """One more, closed at the end.  ``file``: keys of a Java consumer."""
        hooks, file = how.pop("hooks", None), how.pop("file", None)
        settings: dict[str, Any] = {
            "group_id": GROUP,
            "consumer_id": name,
            "zookeeper_connect": ADDRESS,
            "bootstrap_servers": self.broker.bootstrap,
            "auto_offset_reset": "smallest",
            "consumer_timeout_ms": 100,
            "metadata_max_age_ms": 500,
            "rebalance_drain_timeout_ms": 1_000,
            "rebalance_backoff_ms": 50,
            "rebalance_debounce_ms": 5,
            "offsets_channel_backoff_ms": 20,
            "offsets_commit_max_retries": 100,
            "auto_commit_enable": False,
            "fetch_wait_max_ms": 20,
        }
        kind = ConsumerConfig if file is None else CoordinatorConsumerConfig
        config = kind(file, **{**settings, **how})

        def store(connect: str, session_timeout_ms: int) -> FakeZkStore:
            made = FakeZkStore(self.zookeeper, "", session_timeout_ms, NO_SECURITY.login)
            self.stores[name] = made
            return made

        made = MigratingConsumerConnector(config, {**QUICK, **(group or {})}, store=store, hooks=hooks)
        return self.stack.enter_context(made)

    def close(self) -> None:
        self.stack.close()
        self.operator.close(1_000)
        self.zookeeper.stop()

    # --- the migration run -----------------------------------------------------------------------------------------

    def say(self, phase: str, epoch: int | None = None) -> ControlRecord:
        """Write the control znode."""
        at = epoch if epoch is not None else (EPOCHS | BACK)[phase]
        control = ControlRecord(ID, at, phase, authority_of(Phase(phase)), "dual")
        self.say_bytes(format_control(control))
        return control

    def say_bytes(self, data: bytes) -> None:
        """The same, whatever its result."""
        path = paths.control(GROUP)
        if self.zookeeper.data(path) is None:
            for parent in paths.parents(path):
                self.zookeeper.ensure(parent)
            self._ask(Create(path, data))
        else:
            self._ask(SetData(path, data))

    def kill(self, member: MigratingConsumerConnector) -> None:
        """The effect of kill -9 and both session time-outs: it reads nothing more, and sends nothing."""
        member.end_streams()
        side = member._member.membership.coordinator
        if side is not None:
            side._network.ask_to_stop()
        name = member.consumer_id.removeprefix(f"{GROUP}_")
        self.zookeeper.expire(self.stores[name], reconnects=False)

    def _ask(self, request: Any) -> None:
        [answer] = submit_and_wait(self.operator, [request], 20_000)
        assert not isinstance(answer, Exception), answer

    def acknowledged(self, control: ControlRecord) -> dict[str, Acknowledgement]:
        """The members that have acknowledged this, by consumer id."""
        found: dict[str, Acknowledgement] = {}
        for name in self.ids():
            data = self.zookeeper.data(f"{paths.control(GROUP)}/{MEMBERS_CHILD}/{name}")
            said = None if data is None else parse_acknowledgement(data)
            if said is not None and said.matches_control(control):
                found[name] = said
        return found

    def move(self, phase: str, epoch: int | None = None) -> dict[str, Acknowledgement]:
        """Write the control znode, and wait until every member acts by it, and none lags, in one generation."""
        control = self.say(phase, epoch)

        def through() -> bool:
            said = self.acknowledged(control)
            return (
                said.keys() == set(self.ids())
                and all(each.behind == 0 for each in said.values())
                and len({each.generation for each in said.values()}) <= 1
            )

        wait_until(through, lambda: f"{phase}: {self.acknowledged(control)} of {self.ids()}")
        return self.acknowledged(control)

    # --- what there is --------------------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        [listed] = submit_and_wait(self.operator, [Children(paths.ids(GROUP))], 20_000)
        return sorted(listed.names) if isinstance(listed, ChildNames) else []

    def owners(self) -> dict[int, str]:
        found = {n: self.zookeeper.data(paths.owner(GROUP, TopicPartition(TOPIC, n))) for n in range(self.partitions)}
        return {n: data.decode().rpartition("-")[0] for n, data in found.items() if data is not None}

    def in_zookeeper(self) -> dict[int, int]:
        found = {n: self.zookeeper.data(paths.offset(GROUP, TopicPartition(TOPIC, n))) for n in range(self.partitions)}
        return {n: parse_offset(data) for n, data in found.items() if data is not None}

    def in_kafka(self) -> dict[int, tuple[int, str]]:
        """Partition -> offset and metadata."""
        [address] = self.broker.addresses()
        topics = [OffsetFetchTopic(name=TOPIC, partition_indexes=list(range(self.partitions)))]
        with RawClient(address) as talk:
            while talk.find_coordinator(GROUP).error_code:
                pass
            [topic] = talk.ask(OFFSET_FETCH, 5, OffsetFetchRequest(group_id=GROUP, topics=topics)).topics
        rows = {row.partition_index: (row.committed_offset, row.metadata or "") for row in topic.partitions}
        return {number: row for number, row in sorted(rows.items()) if row[0] >= 0}

    def fill(self, each: int) -> None:
        for number in range(self.partitions):
            self.broker.append(TOPIC, number, [json.dumps(n).encode() for n in range(each)])


def wait_until(check: Callable[[], object], what: str | Callable[[], str], timeout_ms: int = 60_000) -> None:
    try:
        waiting.wait_until(check, what if isinstance(what, str) else "", timeout_ms=timeout_ms)
    except Exception as error:
        raise AssertionError(what if isinstance(what, str) else what()) from error


@pytest.fixture
def dual() -> Iterator[Dual]:
    before = live_threads()
    with EmbeddedBroker(properties={"offsets.topic.num.partitions": "5"}) as broker:
        broker.create_topic(TOPIC, 6)
        made = Dual(broker, 6)
        try:
            yield made
        finally:
            made.close()
    assert live_threads() == before


Stream = KafkaStream[Any, Any]
