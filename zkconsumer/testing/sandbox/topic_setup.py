"""Topics of a cluster whose brokers know ZooKeeper: created and grown there, as a topic tool does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from zkconsumer.testing.sandbox.probe import ClusterMetadata
from zkconsumer.testing.sandbox.waiting import wait_until
from zkconsumer.testing.sandbox.zookeeper_admin import ZooKeeperAdmin

LEADERS_TIMEOUT_MS = 30_000

MetadataQuery = Callable[[], Iterable[ClusterMetadata | None]]
"""Asks each running broker for Metadata; None for one that does not answer."""


def assign_replicas(partitions: int, broker_ids: Sequence[int]) -> dict[int, list[int]]:
    """Partition -> its one replica; the partitions go round the brokers."""
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
    """Create a topic, and wait until every broker knows its leaders."""
    admin.put_topic(topic, replicas, config)
    wait_leaders(query_metadata, topic, len(replicas), timeout_ms)


def grow_topic(
    admin: ZooKeeperAdmin,
    query_metadata: MetadataQuery,
    topic: str,
    replicas: Mapping[int, Sequence[int]],
    timeout_ms: int = LEADERS_TIMEOUT_MS,
) -> None:
    """Add the partitions of ``replicas`` that the topic does not have; the others stay where they are."""
    grown = {**replicas, **admin.topic_replicas(topic)}
    admin.put_topic(topic, grown)
    wait_leaders(query_metadata, topic, len(grown), timeout_ms)


def wait_leaders(
    query_metadata: MetadataQuery, topic: str, partitions: int, timeout_ms: int = LEADERS_TIMEOUT_MS
) -> None:
    """Until every broker that is asked answers Metadata with a leader for each of so many partitions."""

    def all_know() -> bool:
        return all(
            answer is not None and len(answer.leaders.get(topic, {})) == partitions for answer in query_metadata()
        )

    wait_until(all_know, f"topic {topic} has leaders for {partitions} partitions", timeout_ms)
