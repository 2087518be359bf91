"""What the figures of ``migration_docs/reference/migrate-speed.md`` rest on; no clock is read here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import cast

from bridge.migration.control.control_znode import VersionedControl
from bridge.migration.inspect.group_snapshot import CommittedOffset
from bridge.migration.offsets.offset_copies import OffsetCopy
from bridge.migration.offsets.offset_copy_steps import BATCH_BYTES_MAX, CopyToKafka, OffsetStores
from bridge.migration.plan.offset_retention import DEFAULT_RETENTION_MS
from zkconsumer.kafka.error_codes import NONE, ErrorCode
from zkconsumer.kafka.group_offsets import offset_commit_topics, offset_fetch_request
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.kafka.pipelining import PARTITIONS_BYTES_MAX, split_partitions
from zkconsumer.types import TopicPartition
from zkconsumer.wire.request_frames import encode_request
from zkconsumer.wire.schemas import OFFSET_COMMIT, OFFSET_FETCH
from zkconsumer.wire.schemas.offset_commit import OffsetCommitRequest
from zkconsumer.zk.znode_formats import ControlRecord

PARTITIONS = [TopicPartition(f"topic-{number // 1_000:04}", number % 1_000) for number in range(10_000)]
COPIES = [OffsetCopy(tp, 1_000_000_000 + tp.partition, 1_000_000_000 + tp.partition, 7) for tp in PARTITIONS]


class NotedStores:
    """Nothing is in Kafka, and every commit is taken; ``commits``: those."""

    group = "bench"

    def __init__(self) -> None:
        self.commits: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        self.reads: list[Collection[TopicPartition]] = []
        held = VersionedControl(ControlRecord("bench-1", 1, "fenced", "zookeeper", "copy"), 0)
        self.control_znode = SimpleNamespace(migration_id="bench-1", require_phase=lambda *phases: held)
        self.placeholder = SimpleNamespace(joined=SimpleNamespace(), heartbeat=lambda: None, commit=self.commit)

    def read_kafka(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        self.reads.append(partitions)
        return {}

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], retention_ms: int
    ) -> dict[TopicPartition, ErrorCode]:
        assert retention_ms == DEFAULT_RETENTION_MS
        self.commits.append(offsets)
        return dict.fromkeys(offsets, NONE)


def test_ten_thousand_offsets_are_committed_in_three_requests_of_a_quarter_megabyte() -> None:
    stores = NotedStores()
    CopyToKafka(cast(OffsetStores, stores), COPIES).do()
    assert [tp for batch in stores.commits for tp in batch] == PARTITIONS
    assert len(stores.reads) == 1
    frames = [
        encode_request(
            OFFSET_COMMIT, 3, 0, "zkconsumer", OffsetCommitRequest(group_id="bench", topics=offset_commit_topics(one))
        )
        for one in stores.commits
    ]
    assert len(frames) == 3
    assert max(map(len, frames)) <= BATCH_BYTES_MAX // 2
    assert sum(map(len, frames)) <= 50 * len(PARTITIONS)


def test_ten_thousand_offsets_are_asked_for_in_three_requests_of_sixteen_kilobytes() -> None:
    frames = [
        encode_request(OFFSET_FETCH, 3, 0, "zkconsumer", offset_fetch_request(3, "bench", some))
        for some in split_partitions(PARTITIONS)
    ]
    assert len(frames) == 3
    assert max(map(len, frames)) <= PARTITIONS_BYTES_MAX + 100
    assert sum(map(len, frames)) <= 4.1 * len(PARTITIONS)
