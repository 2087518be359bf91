"""Topics and records of the cluster of ``zkconsumer sandbox up``, for the commands after it.

with BackgroundClusterClient(background.current()) as data:
    data.create_topic("clicks", 4)
    for produced in data.produce("clicks", [(None, b"one"), (None, b"two")]):
        print(produced.partition, produced.first, produced.last)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import TypeAlias

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import topic_setup
from zkconsumer.testing.sandbox.background_cluster import RUNNING, BackgroundCluster
from zkconsumer.testing.sandbox.probe import ClusterMetadata, metadata
from zkconsumer.testing.sandbox.producer_process import ProducedRange, ProducerProcess
from zkconsumer.testing.sandbox.sandbox_cluster import Sandbox
from zkconsumer.testing.sandbox.zookeeper_admin import ZooKeeperAdmin

KeyAndValue: TypeAlias = tuple[bytes | None, bytes | None]
"""Key and value."""

RECORDS_AT_ONCE = 500


class BackgroundClusterClient:
    """A session with the cluster that is up; a context manager.  One thread.

    Raises ``SandboxError`` for a cluster with a part that is dead or does not answer.
    """

    def __init__(self, cluster: BackgroundCluster) -> None:
        bad = [f"{name}: {state}" for name, state in cluster.states().items() if state != RUNNING]
        if bad:
            raise SandboxError(
                f"the sandbox does not work ({', '.join(bad)}); see 'zkconsumer sandbox status', or start another one:"
                f" zkconsumer sandbox down; {cluster.start_command}"
            )
        self._cluster = cluster
        self._tools = Sandbox()  # its own: the processes that it starts end with this process
        self._sent = 0

    def __enter__(self) -> BackgroundClusterClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the producer and the session with ZooKeeper."""
        if "_admin" in self.__dict__:
            self._admin.close()
        if "_load" in self.__dict__:
            self._load.close()
        self._tools.close()

    # --- topics -------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, int]:
        """Every topic and how many partitions it has."""
        names = self._admin.children("/brokers/topics")
        return {name: len(self._admin.topic_replicas(name)) for name in names}

    def partitions_of(self, topic: str) -> int:
        """Raises ``SandboxError`` with the remedy for a topic that does not exist."""
        partitions = len(self._admin.topic_replicas(topic))
        if not partitions:
            raise SandboxError(
                f"there is no topic {topic} in the sandbox; create it: zkconsumer sandbox topic create {topic}"
            )
        return partitions

    def create_topic(self, topic: str, partitions: int) -> None:
        """Raises ``SandboxError`` for a topic that exists."""
        if present := len(self._admin.topic_replicas(topic)):
            raise SandboxError(
                f"topic {topic} exists already, with {present} partitions; for more of them: zkconsumer sandbox topic"
                f" grow {topic} --partitions {present + 1}"
            )
        topic_setup.create_topic(self._admin, self._answers, topic, replicas=self._spread(partitions))

    def grow_topic(self, topic: str, partitions: int) -> int:
        """Up to so many partitions; gives how many there were.  Raises ``SandboxError`` when these are not fewer."""
        present = self.partitions_of(topic)
        if partitions <= present:
            raise SandboxError(
                f"topic {topic} has {present} partitions, and a topic never gets fewer; give --partitions"
                f" {present + 1} or more"
            )
        topic_setup.grow_topic(self._admin, self._answers, topic, self._spread(partitions))
        return present

    # --- records ------------------------------------------------------------------------------------------------

    def produce(self, topic: str, pairs: Sequence[KeyAndValue], partition: int | None = None) -> list[ProducedRange]:
        """Sends these records and waits for the acknowledgements.

        To ``partition``; without one, the producer's partitioner selects the partition of records with keys, and
        others go to the partitions in turn.
        """
        count = self.partitions_of(topic)
        if partition is not None and partition >= count:
            raise SandboxError(f"topic {topic} has the partitions 0 to {count - 1}, and no {partition}")
        produced: list[ProducedRange] = []
        if partition is None and any(key is not None for key, _ in pairs):
            for some in _split_pairs(pairs):
                produced += self._load.produce_keyed(topic, some)
            return produced
        by_partition: dict[int, list[KeyAndValue]] = {}
        for pair in pairs:
            place = self._sent % count if partition is None else partition
            self._sent += 1
            by_partition.setdefault(place, []).append(pair)
        for place, there in sorted(by_partition.items()):
            for some in _split_pairs(there):
                keys, values = zip(*some, strict=True)
                produced.append(self._load.produce_values(topic, place, values, keys=keys))
        return produced

    # --- opened on first use ------------------------------------------------------------------------------------

    @cached_property
    def _admin(self) -> ZooKeeperAdmin:
        return ZooKeeperAdmin(self._cluster.zookeeper_connect)

    @cached_property
    def _load(self) -> ProducerProcess:
        return ProducerProcess(self._tools.run, self._cluster.release, self._cluster.bootstrap)

    def _spread(self, partitions: int) -> dict[int, list[int]]:
        return topic_setup.assign_replicas(partitions, self._admin.broker_ids())

    def _answers(self) -> list[ClusterMetadata | None]:
        return [metadata(broker.port) for broker in self._cluster.brokers]


def _split_pairs(pairs: Sequence[KeyAndValue]) -> Iterator[Sequence[KeyAndValue]]:
    """As many records as go into one command."""
    for start in range(0, len(pairs), RECORDS_AT_ONCE):
        yield pairs[start : start + RECORDS_AT_ONCE]
