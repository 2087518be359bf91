"""A member of a coordinator's group: assignors, a listener, hooks, positions, and the errors that end it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bridge import (
    ConsumerPartitionAssignor,
    CooperativeStickyAssignor,
    CoordinatorConsumerConfig,
    CoordinatorConsumerConnector,
    GroupAuthorizationException,
    RangeAssignor,
    TopicAuthorizationException,
)
from zkconsumer import (
    ConsumerThreadId,
    Hooks,
    KafkaStream,
    MessageAndMetadata,
    Position,
    TopicPartition,
    Whitelist,
    errors,
    string_decoder,
)

ASSIGNORS: Sequence[ConsumerPartitionAssignor] = [CooperativeStickyAssignor(), RangeAssignor()]


class Alerts(Hooks):
    """Notes what an operator should know."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def partitions_lost(self, partitions: tuple[TopicPartition, ...], why: str) -> None:
        self.seen.append(f"{len(partitions)} lost: {why}")

    def member_failed(self, error: Exception) -> None:
        self.seen.append(type(error).__name__)


class Own:
    """A rebalance listener that knows what this member reads."""

    def __init__(self) -> None:
        self.threads: dict[TopicPartition, ConsumerThreadId] = {}

    def before_releasing_partitions(self, partitions: dict[str, set[int]]) -> None:
        for topic, numbers in partitions.items():
            for number in numbers:
                self.threads.pop(TopicPartition(topic, number), None)

    def before_starting_fetchers(self, consumer_id: str, assignment: dict[str, dict[int, ConsumerThreadId]]) -> None:
        for topic, row in assignment.items():
            self.threads.update({TopicPartition(topic, number): thread for number, thread in row.items()})


def make(config: CoordinatorConsumerConfig, group: Mapping[str, object], hooks: Hooks) -> CoordinatorConsumerConnector:
    return CoordinatorConsumerConnector(config, group, assignors=ASSIGNORS, hooks=hooks)


def read(
    connector: CoordinatorConsumerConnector, own: Own, pattern: str, count: int
) -> dict[TopicPartition, list[str]]:
    """The texts of the next so many messages, or of those that come in time, by partition."""
    connector.set_consumer_rebalance_listener(own)
    streams: list[KafkaStream[Any, str]] = connector.create_message_streams_by_filter(
        Whitelist(pattern), 1, value_decoder=string_decoder
    )
    found: dict[TopicPartition, list[str]] = {}
    try:
        for _, message in zip(range(count), streams[0], strict=False):
            note(message, found)
    except errors.ConsumerTimeoutException:
        print("nothing more came in time")
    connector.commit_offsets()
    return found


def note(message: MessageAndMetadata[Any, str], found: dict[TopicPartition, list[str]]) -> None:
    if message.value is not None:
        found.setdefault(TopicPartition(message.topic, message.partition), []).append(message.value)


def where(connector: CoordinatorConsumerConnector) -> dict[str, int]:
    positions: dict[TopicPartition, Position] = connector.positions
    return {str(tp): position.offset for tp, position in positions.items()}


def main(bootstrap_servers: str, pattern: str) -> int:
    config = CoordinatorConsumerConfig(
        group_id="billing", bootstrap_servers=bootstrap_servers, auto_offset_reset="smallest", consumer_timeout_ms=5000
    )
    try:
        with make(config, {"session.timeout.ms": 10_000}, Alerts()) as connector:
            print(read(connector, Own(), pattern, 100), where(connector))
    except (GroupAuthorizationException, TopicAuthorizationException) as error:
        print(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
