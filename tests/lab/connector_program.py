"""``CoordinatorConsumerConnector`` as a process that writes an event log for ``testing.checker``.

    python -m tests.lab.connector_program FILE.properties --topic clicks [--name ours]

It corresponds to ``tests.lab.coordinator_member_program``, with the same events, settings, input and exit
codes.  It commits what it has processed, and logs assigned and revoked partitions in the rebalance listener.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from bridge.client.assignors import ASSIGNORS
from bridge.client.coordinator_connector import CoordinatorConsumerConnector
from tests.lab.coordinator_member_program import (
    POLL_MS,
    CoordinatorMemberEventLog,
    PartitionId,
    RecordPosition,
    run_program,
)
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConsumerTimeoutException
from zkconsumer.kafka.group.group_member_config import GROUP_SETTINGS
from zkconsumer.member.topic_count import ConsumerThreadId
from zkconsumer.streams import KafkaStream
from zkconsumer.types import Hooks, TopicPartition

CONSUMER_CONFIG_KEYS = ("group.id", "enable.auto.commit", "auto.commit.interval.ms")
"""The settings of the configuration."""

STREAMS = 1
POLL_RECORDS = 100


class CoordinatorConnectorClient:
    """The connector, with the interface of a client library."""

    def __init__(self, settings: dict[str, str]) -> None:
        strategy = settings.get("partition.assignment.strategy", "range")
        self._connector = CoordinatorConsumerConnector(
            ConsumerConfig(
                group_id=settings["group.id"],
                client_id=settings.get("client.id", settings["group.id"]),
                # Required by the configuration; no ZooKeeper is used.
                zookeeper_connect="localhost:2181",
                bootstrap_servers=settings["bootstrap.servers"],
                metadata_max_age_ms=settings.get("metadata.max.age.ms", "5000"),
                api_version_request=settings.get("api.version.request", "true"),
                auto_offset_reset="smallest",
                auto_commit_enable=False,
                consumer_timeout_ms=POLL_MS,
            ),
            {
                key: value
                for key, value in settings.items()
                if key in GROUP_SETTINGS and key not in CONSUMER_CONFIG_KEYS
            },
            assignors=[ASSIGNORS[strategy]()],
            hooks=_PartitionsLostHooks(self),
        )
        self.diary: CoordinatorMemberEventLog | None = None
        self._stream: KafkaStream[Any, Any] | None = None

    def subscribe(self, topics: Sequence[str], diary: CoordinatorMemberEventLog) -> None:
        self.diary = diary
        self._connector.set_consumer_rebalance_listener(_EventLogListener(diary))
        streams = self._connector.create_message_streams(dict.fromkeys(topics, STREAMS))
        [[self._stream]] = streams.values()

    def poll(self) -> Iterable[RecordPosition]:
        assert self._stream is not None, "subscribed before it polls"
        with suppress(ConsumerTimeoutException):
            # A limited number from a stream that never ends, so that the stop signal is checked.
            for message in islice(self._stream, POLL_RECORDS):
                yield message.topic, message.partition, message.offset

    def commit(self, offsets: dict[PartitionId, int]) -> bool:
        self._connector.commit_offsets({TopicPartition(*place): offset for place, offset in offsets.items()})
        return True

    def close(self) -> None:
        self._connector.close()


class _EventLogListener:
    """Logs assigned and revoked partitions."""

    def __init__(self, diary: CoordinatorMemberEventLog) -> None:
        self._diary = diary

    def before_releasing_partitions(self, partitions: dict[str, set[int]]) -> None:
        places = {(topic, number) for topic, numbers in partitions.items() for number in numbers}
        self._diary.revoked(places)

    def before_starting_fetchers(self, consumer_id: str, assignment: dict[str, dict[int, ConsumerThreadId]]) -> None:
        places = {(topic, number) for topic, numbers in assignment.items() for number in numbers}
        self._diary.assigned(places - self._diary.owned)


class _PartitionsLostHooks(Hooks):
    """Logs lost partitions, for which no revocation was called before."""

    def __init__(self, library: CoordinatorConnectorClient) -> None:
        self._library = library

    def partitions_lost(self, partitions: tuple[TopicPartition, ...], why: str) -> None:
        if self._library.diary is not None:
            self._library.diary.lost([(tp.topic, tp.partition) for tp in partitions])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until stopped."""
    return run_program({"ours": CoordinatorConnectorClient}, arguments)


if __name__ == "__main__":
    sys.exit(main())
