"""A member with a rebalance listener that counts what each partition brought while it was this member's."""

from __future__ import annotations

import sys
import threading
from typing import Any

from zkconsumer import (
    ConsumerConfig,
    ConsumerRebalanceListener,
    ConsumerThreadId,
    KafkaStream,
    MessageAndMetadata,
    PartitionsLostListener,
    TopicPartition,
    ZookeeperConsumerConnector,
    errors,
)


class Counts:
    """A ``ConsumerRebalanceListener``; ``owners`` is who has what in the group."""

    def __init__(self) -> None:
        self.read: dict[TopicPartition, int] = {}
        self.owners: dict[TopicPartition, ConsumerThreadId] = {}
        self.released: list[TopicPartition] = []
        self.lost: list[TopicPartition] = []
        self._lock = threading.Lock()
        """The listener is called on a thread of its own, while the program goes on reading."""

    def before_releasing_partitions(self, partitions: dict[str, set[int]]) -> None:
        self.released += self._forget(partitions)

    def before_starting_fetchers(self, consumer_id: str, assignment: dict[str, dict[int, ConsumerThreadId]]) -> None:
        self.owners = {
            TopicPartition(topic, number): thread for topic, row in assignment.items() for number, thread in row.items()
        }
        with self._lock:
            for tp, thread in self.owners.items():
                if thread.consumer_id == consumer_id:
                    self.read.setdefault(tp, 0)

    def on_partitions_lost(self, partitions: dict[str, set[int]]) -> None:
        self.lost += self._forget(partitions)

    def count(self, message: MessageAndMetadata[Any, Any]) -> None:
        tp = TopicPartition(message.topic, message.partition)
        with self._lock:
            if tp in self.read:  # else it was lost while the program had the record
                self.read[tp] += 1

    def _forget(self, partitions: dict[str, set[int]]) -> list[TopicPartition]:
        gone = [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in sorted(numbers)]
        with self._lock:
            for tp in gone:
                self.read.pop(tp, None)
        return gone


def listen(connector: ZookeeperConsumerConnector, counts: Counts, topic: str) -> list[KafkaStream[Any, Any]]:
    """The streams of a member that is listened to."""
    listener: ConsumerRebalanceListener = counts
    listener_of_losses: PartitionsLostListener = counts
    assert listener_of_losses is listener
    connector.set_consumer_rebalance_listener(listener)
    return connector.create_message_streams({topic: 1})[topic]


def read(stream: KafkaStream[Any, Any], counts: Counts) -> int:
    """Count until nothing comes for ``consumer.timeout.ms``; how many it were."""
    count = 0
    try:
        for message in stream:
            counts.count(message)
            count += 1
    except errors.ConsumerTimeoutException:
        pass
    return count


def main(path: str, topic: str) -> None:
    counts = Counts()
    with ZookeeperConsumerConnector(ConsumerConfig.from_properties(path)) as connector:
        [stream] = listen(connector, counts, topic)
        while True:
            read(stream, counts)
            try:
                connector.commit_offsets()
            except errors.OffsetsNotCommitted as error:
                print(sorted(error.errors))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
