"""The topics of a broker and their logs.

Every change of the list is saved in the catalogue first, and then made.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.broker.catalogue import Catalogue, CatalogueStore, PartitionEntry, TopicEntry
from bridge.broker.config import BrokerConfig, TopicConfigOverrides, read_topic_config
from bridge.broker.data_folder import DataFolder, topic_folder_name
from bridge.broker.log.log_validator import RecordValidationRules
from bridge.broker.log.partition_log import LogSettings, PartitionLog
from bridge.broker.log.segment_files import OpenFiles
from bridge.broker.log.storage import DiskStorage, MemoryStorage
from bridge.coordinator.release_features import BrokerRelease
from zkconsumer.wire.field_types import NO_UUID

OFFSETS_TOPIC = "__consumer_offsets"
BROKER_INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC})

PARTITIONS_MAX = 10_000
"""Limit for the partitions of a topic, and of all topics in one request; each costs some memory, used or not.

Kafka's controller, too, writes 10,000 records for one request at most (KRaft: 44).
"""

TOPIC_CHARS_MAX = 249
_VALID_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_CHARS_MAX}}}", re.ASCII)

PRODUCER_ID_BLOCK_SIZE = 1000
"""How many producer ids are reserved at a time, so that the catalogue is seldom written for them (as in Kafka)."""

OFFSETS_SEGMENT_BYTES = 104_857_600

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class BrokerPartition:
    """One partition: its leader, and its log, which all nodes share."""

    topic: str
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    log: PartitionLog


@dataclass(slots=True)
class BrokerTopic:
    """One topic."""

    name: str
    topic_id: bytes
    config: TopicConfigOverrides
    partitions: list[BrokerPartition]

    @property
    def is_internal(self) -> bool:
        """Whether clients may not write to it."""
        return self.name in BROKER_INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; ``replicas``: the nodes of each partition, the first of which leads it."""

    name: str
    replicas: list[tuple[int, ...]]
    config: Mapping[str, str]


def is_valid_topic_name(name: str) -> bool:
    """Whether this is a valid topic name (0.8.1 and later)."""
    return _VALID_NAME.fullmatch(name) is not None and name not in (".", "..")


class TopicStore:
    """All topics.  For the broker's thread alone; ``random_bytes`` makes ids.

    ``releases``: the release of each node; that of a new partition's first leader decides the format of its log.
    ``new_log`` opens the log of a partition.
    """

    def __init__(
        self,
        store: CatalogueStore,
        folder: DataFolder | None,
        files: OpenFiles,
        *,
        config: BrokerConfig,
        releases: Mapping[int, BrokerRelease],
        new_cluster_id: str,
        random_bytes: Callable[[int], bytes],
        new_log: type[PartitionLog] = PartitionLog,
    ) -> None:
        self._store = store
        self._folder = folder
        self._files = files
        self._config = config
        self._random_bytes = random_bytes
        self._new_log = new_log
        self.releases = releases
        self._by_name: dict[str, BrokerTopic] = {}
        self._by_id: dict[bytes, BrokerTopic] = {}
        self._catalogue = store.load() or Catalogue(new_cluster_id)
        self._next_producer_id = self._catalogue.next_producer_id
        self._open_all()

    @property
    def cluster_id(self) -> str:
        """The permanent id of the cluster."""
        return self._catalogue.cluster_id

    @property
    def folder(self) -> Path | None:
        """The folder of the data; None: in memory."""
        return None if self._folder is None else self._folder.path

    def get(self, name: str) -> BrokerTopic | None:
        """The topic of this name."""
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> BrokerTopic | None:
        """The topic of this id."""
        return self._by_id.get(topic_id)

    def partition(self, name: str, index: int) -> BrokerPartition | None:
        """One partition."""
        topic = self._by_name.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def __iter__(self) -> Iterator[BrokerTopic]:
        return iter(sorted(self._by_name.values(), key=lambda topic: topic.name))

    def create(self, new: Sequence[NewTopic]) -> list[BrokerTopic]:
        """Create topics; the catalogue is written once for all of them.  ``OSError``: none was created."""
        entries = {
            topic.name: TopicEntry(
                self._new_id(), tuple(PartitionEntry(r[0], 0, r) for r in topic.replicas), dict(topic.config)
            )
            for topic in new
        }
        self._save(replace(self._catalogue, topics=self._catalogue.topics | entries))
        return [self._open(name, entry) for name, entry in entries.items()]

    def assign_replicas(
        self, partitions: int, replication_factor: int, topics_before: int = 0
    ) -> list[tuple[int, ...]]:
        """Assign the nodes to each partition of a new topic, round-robin.  ``topics_before``: how many are created
        before it.
        """
        ids = tuple(self.releases)
        first = len(self._by_name) + topics_before
        return [
            tuple(ids[(first + index + at) % len(ids)] for at in range(replication_factor))
            for index in range(partitions)
        ]

    def add_partitions(self, topic: BrokerTopic, replicas: Sequence[tuple[int, ...]]) -> None:
        """Add partitions to a topic.  ``OSError``: none was added."""
        entry = self._catalogue.topics[topic.name]
        added = tuple(PartitionEntry(nodes[0], 0, nodes) for nodes in replicas)
        grown = replace(entry, partitions=entry.partitions + added)
        self._save(replace(self._catalogue, topics={**self._catalogue.topics, topic.name: grown}))
        for led in added:
            topic.partitions.append(self._open_partition(topic, len(topic.partitions), led))

    def delete(self, topics: Sequence[BrokerTopic]) -> None:
        """Delete topics and their records permanently; the catalogue is written once.

        ``OSError``: none was deleted.
        """
        gone = {topic.name for topic in topics}
        kept = {name: entry for name, entry in self._catalogue.topics.items() if name not in gone}
        self._save(replace(self._catalogue, topics=kept))
        for topic in topics:
            del self._by_name[topic.name], self._by_id[topic.topic_id]
            for partition in topic.partitions:
                try:
                    partition.log.delete()
                except OSError as error:
                    # The topic does not exist any more, whatever is left of it; the next start removes that.
                    _log.warning("topic-files-left topic=%s partition=%d error=%s", topic.name, partition.index, error)
            if self._folder is not None:
                self._folder.remove_topic(topic.name, topic.topic_id)

    def set_leader(self, partition: BrokerPartition, leader: int) -> None:
        """Make another node the leader of the partition (−1: none); its epoch is incremented."""
        entry = self._catalogue.topics[partition.topic]
        led = list(entry.partitions)
        others = tuple(node for node in partition.replicas if node != leader)
        kept = (leader, *others)[: len(partition.replicas)] if leader >= 0 else partition.replicas
        led[partition.index] = PartitionEntry(leader, partition.leader_epoch + 1, kept)
        moved = replace(entry, partitions=tuple(led))
        self._save(replace(self._catalogue, topics={**self._catalogue.topics, partition.topic: moved}))
        partition.leader, partition.replicas = leader, kept
        partition.leader_epoch += 1

    def new_producer_id(self) -> int:
        """A producer id that was never used.  ``OSError``."""
        if self._next_producer_id >= self._catalogue.next_producer_id:
            self._save(replace(self._catalogue, next_producer_id=self._next_producer_id + PRODUCER_ID_BLOCK_SIZE))
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def close(self) -> None:
        """Close the files, and unlock the directory."""
        self._files.close_all()
        if self._folder is not None:
            self._folder.unlock()

    def _save(self, catalogue: Catalogue) -> None:
        self._store.save(catalogue)
        self._catalogue = catalogue

    def _new_id(self) -> bytes:
        while (made := self._random_bytes(16)) in self._by_id or made == NO_UUID:
            pass
        return made

    def _open_all(self) -> None:
        """Open everything in the catalogue; partitions of a node that does not exist get an existing leader."""
        ids = tuple(self.releases)
        entries = {}
        for name, entry in self._catalogue.topics.items():
            led = [
                partition
                if partition.leader in ids
                else PartitionEntry(ids[at % len(ids)], partition.leader_epoch + 1, (ids[at % len(ids)],))
                for at, partition in enumerate(entry.partitions)
            ]
            entries[name] = replace(entry, partitions=tuple(led))
        self._save(replace(self._catalogue, topics=entries))
        if self._folder is not None:
            self._folder.remove_unlisted_topics(
                {topic_folder_name(name, entry.topic_id) for name, entry in entries.items()}
            )
        for name, entry in entries.items():
            self._open(name, entry)

    def _open(self, name: str, entry: TopicEntry) -> BrokerTopic:
        topic = BrokerTopic(name, entry.topic_id, read_topic_config(entry.config), [])
        for index, led in enumerate(entry.partitions):
            topic.partitions.append(self._open_partition(topic, index, led))
        self._by_name[name] = topic
        self._by_id[entry.topic_id] = topic
        return topic

    def _open_partition(self, topic: BrokerTopic, index: int, led: PartitionEntry) -> BrokerPartition:
        storage = (
            MemoryStorage()
            if self._folder is None
            else DiskStorage(self._folder.partition(topic.name, topic.topic_id, index), self._files)
        )
        release = self.releases.get(led.leader) or next(iter(self.releases.values()))
        log = self._new_log(
            f"{topic.name}-{index}",
            storage,
            self._log_settings(topic.name, topic.config, release),
            lambda words: _log.warning("log-truncated %s", words),
        )
        return BrokerPartition(topic.name, index, led.leader, led.leader_epoch, led.replicas, log)

    def _log_settings(self, name: str, config: TopicConfigOverrides, release: BrokerRelease) -> LogSettings:
        broker = self._config
        rules = RecordValidationRules(
            release.magic,
            broker.message_max_bytes if config.max_message_bytes is None else config.max_message_bytes,
            config.is_compacted,
            release.supports_invalid_record_error,
        )
        segment_bytes = OFFSETS_SEGMENT_BYTES if name == OFFSETS_TOPIC else broker.log_segment_bytes
        retention_bytes = -1 if name == OFFSETS_TOPIC else broker.log_retention_bytes
        return LogSettings(
            rules,
            segment_bytes if config.segment_bytes is None else config.segment_bytes,
            retention_bytes if config.retention_bytes is None else config.retention_bytes,
            release.unknown_producer_error,
        )
