"""Creates topics and adds partitions in a cluster with ZooKeeper: writes the znodes that a topic tool writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from zkconsumer.testing.sandbox.probe import ClusterMetadata
from zkconsumer.testing.sandbox.waiting import wait_until
from zkconsumer.testing.sandbox.zookeeper_admin import ZooKeeperAdmin

LEADERS_TIMEOUT_MS = 30_000

MetadataQuery = Callable[[], Iterable[ClusterMetadata | None]]
"""Requests Metadata from each running broker; the result has None for a broker that does not answer."""


def assign_replicas(partitions: int, broker_ids: Sequence[int]) -> dict[int, list[int]]:
    """Partition -> its one replica; consecutive partitions are on consecutive brokers."""
    return {partition: [broker_ids[partition % len(broker_ids)]] for partition in range(partitions)}


def create_topic(
    admin: ZooKeeperAdmin,
    query_metadata: MetadataQuery,
    topic: str,
    *,
    replicas: Mapping[int, Sequence[int]],
    config: Mapping[str, str] | None = None,
    timeout_ms: int = LEADERS_TIMEOUT_MS,
) -> None:
    """Create a topic, and wait until every running broker returns its leaders."""
    admin.put_topic(topic, replicas, config)
    wait_leaders(query_metadata, topic, len(replicas), timeout_ms)


def grow_topic(
    admin: ZooKeeperAdmin,
    query_metadata: MetadataQuery,
    topic: str,
    replicas: Mapping[int, Sequence[int]],
    timeout_ms: int = LEADERS_TIMEOUT_MS,
) -> None:
    """Add the partitions of ``replicas`` that the topic does not have; the others keep their replicas."""
    grown = {**replicas, **admin.topic_replicas(topic)}
    admin.put_topic(topic, grown)
    wait_leaders(query_metadata, topic, len(grown), timeout_ms)


def wait_leaders(
    query_metadata: MetadataQuery, topic: str, partitions: int, timeout_ms: int = LEADERS_TIMEOUT_MS
) -> None:
    """Wait until every running broker returns a leader for each of this number of partitions."""

    def all_know() -> bool:
        return all(
            answer is not None and len(answer.leaders.get(topic, {})) == partitions for answer in query_metadata()
        )

    wait_until(all_know, f"topic {topic} has leaders for {partitions} partitions", timeout_ms)
