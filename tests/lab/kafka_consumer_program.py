"""``bridge.KafkaConsumer`` as a process that writes an event log for ``testing.checker``.

    python -m tests.lab.kafka_consumer_program FILE.properties --topic clicks [--name ours-poll]

It corresponds to ``tests.lab.coordinator_member_program``, with the same events, settings, input and exit codes.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from bridge import KafkaConsumer
from tests.lab.coordinator_member_program import (
    POLL_MS,
    CoordinatorMemberEventLog,
    PartitionId,
    RecordPosition,
    run_program,
)
from zkconsumer import OffsetAndMetadata
from zkconsumer.types import TopicPartition

COMMIT_MS = 5_000


class KafkaConsumerClient:
    """The consumer, with the interface of a client library."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer({**settings, "max.poll.records": "100"})

    def subscribe(self, topics: Sequence[str], diary: CoordinatorMemberEventLog) -> None:
        self._consumer.subscribe(topics, _EventLogListener(diary))

    def poll(self) -> Iterable[RecordPosition]:
        for record in self._consumer.poll(POLL_MS):
            yield record.topic, record.partition, record.offset

    def commit(self, offsets: dict[PartitionId, int]) -> bool:
        self._consumer.commit_sync(
            {TopicPartition(*place): OffsetAndMetadata(offset) for place, offset in offsets.items()}, COMMIT_MS
        )
        return True

    def close(self) -> None:
        self._consumer.close()


class _EventLogListener:
    """Logs assigned, revoked and lost partitions."""

    def __init__(self, diary: CoordinatorMemberEventLog) -> None:
        self._diary = diary

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._diary.revoked(_places(partitions))

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._diary.assigned(_places(partitions))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._diary.lost(_places(partitions))


def _places(partitions: Iterable[Any]) -> list[PartitionId]:
    return [(tp.topic, tp.partition) for tp in partitions]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until stopped."""
    return run_program({"ours-poll": KafkaConsumerClient}, arguments)


if __name__ == "__main__":
    sys.exit(main())
