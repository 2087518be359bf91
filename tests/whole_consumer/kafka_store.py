"""Kafka's own offset store as a test sees it: asked and written by nobody of the group, and watched for steps back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.errors import ZkConsumerError
from zkconsumer.kafka import error_codes as codes
from zkconsumer.kafka.broker_connection import BlockingConnection, Connection
from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.kafka.group_offsets import commit_offsets, fetch_offsets, find_coordinator
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.testing.sandbox import Sandbox, wait_until
from zkconsumer.testing.sandbox.waiting import HOST
from zkconsumer.types import BrokerAddress, TopicPartition

TIMEOUT_MS = 3_000
PATIENCE_MS = 40_000
LOOK_MS = 100


class StepBack(NamedTuple):
    """A stored offset that became smaller."""

    partition: int
    before: int
    after: int


class KafkaStore:
    """The offsets that one group has at its coordinator, for one topic."""

    def __init__(self, sandbox: Sandbox, group: str, topic: str, partitions: int) -> None:
        self.group = group
        self.topic = topic
        self.steps_back: list[StepBack] = []
        self.looks = 0
        self._sandbox = sandbox
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]

    def offsets(self) -> dict[int, int]:
        """Partition -> stored offset, of those that have one; waits for the coordinator."""
        return wait_until(self._try_fetch, f"the offsets of {self.group} can be read", PATIENCE_MS)[0]

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Store these, as no member of the group would."""

        def try_commit() -> bool:
            wanted = {TopicPartition(self.topic, number): OffsetAndMetadata(at) for number, at in offsets.items()}
            with self._coordinator() as found:
                answers = (
                    {} if found is None else commit_offsets(*found, self.group, offsets=wanted, timeout_ms=TIMEOUT_MS)
                )
                return bool(answers) and set(answers.values()) == {codes.NONE}

        wait_until(lambda: _without_errors(try_commit), f"offsets of {self.group} can be stored", PATIENCE_MS)

    def coordinator(self) -> int:
        """The id of the broker that keeps the group's offsets."""

        def find() -> tuple[int] | None:
            with self._coordinator() as found:
                return None if found is None else (self._coordinator_id,)

        return wait_until(lambda: _without_errors(find), f"{self.group} has a coordinator", PATIENCE_MS)[0]

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Meanwhile, note every offset that becomes smaller."""
        last: dict[int, int] = {}

        def look(stop: StopSignal) -> None:
            while not stop.wait(LOOK_MS):
                found = self._try_fetch()
                if found is None:
                    continue
                self.looks += 1
                for partition, offset in found[0].items():
                    if offset < last.get(partition, -1):
                        self.steps_back.append(StepBack(partition, last[partition], offset))
                    last[partition] = offset

        deaths: list[BaseException] = []
        worker = spawn(f"watch-{self.group}", look, lambda name, error: deaths.append(error))
        try:
            yield
        finally:
            assert worker.stop(PATIENCE_MS)
            assert not deaths, deaths

    def _try_fetch(self) -> tuple[dict[int, int]] | None:
        """None while nobody can tell."""

        def fetch() -> tuple[dict[int, int]] | None:
            with self._coordinator() as found:
                if found is None:
                    return None
                answer = fetch_offsets(*found, self.group, self._partitions, TIMEOUT_MS)
            stored = answer.partitions
            if answer.error != codes.NONE or any(isinstance(one, ErrorCode) for one in stored.values()):
                return None
            return ({tp.partition: one.offset for tp, one in stored.items() if isinstance(one, OffsetAndMetadata)},)

        return _without_errors(fetch)

    @contextmanager
    def _coordinator(self) -> Iterator[tuple[Connection, SupportedVersions] | None]:
        """A connection to the coordinator; None while there is none."""
        opened: list[BlockingConnection] = []

        def connect(host: str, port: int) -> tuple[Connection, SupportedVersions]:
            opened.append(BlockingConnection(host, port, client_id="test", connect_timeout_ms=TIMEOUT_MS))
            return opened[-1], negotiate(opened[-1], TIMEOUT_MS)

        try:
            broker = next((broker for broker in self._sandbox.brokers if broker.is_running()), None)
            found: BrokerAddress | ErrorCode | None = None
            if broker is not None:
                found = find_coordinator(*connect(HOST, broker.port), self.group, TIMEOUT_MS)
            if not isinstance(found, BrokerAddress):
                yield None
            else:
                self._coordinator_id = found.broker_id
                yield connect(found.host, found.port)
        finally:
            for connection in opened:
                connection.close()


def _without_errors(act: object) -> object:
    """What it gives, or None while a broker is away."""
    assert callable(act)
    try:
        return act()
    except ZkConsumerError:
        return None
