"""A program in the old names, as it was carried over from Java, with annotations."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from zkconsumer.javaapi import (
    Consumer,
    ConsumerConfig,
    ConsumerConnector,
    ConsumerIterator,
    ConsumerRebalanceListener,
    ConsumerThreadId,
    ConsumerTimeoutException,
    GroupCoordinatorRequest,
    KafkaStream,
    MessageAndMetadata,
    SimpleConsumer,
    StringDecoder,
    TopicMetadataRequest,
    TopicPartition,
)


class Owners:
    """A rebalance listener that notes whose each partition is."""

    def __init__(self) -> None:
        self.threads: dict[str, dict[int, str]] = {}
        self.released: list[str] = []

    def beforeReleasingPartitions(self, partitionOwnership: dict[str, set[int]]) -> None:
        self.released += [f"{topic}/{number}" for topic in partitionOwnership for number in partitionOwnership[topic]]

    def beforeStartingFetchers(
        self, consumerId: str, globalPartitionAssignment: dict[str, dict[int, ConsumerThreadId]]
    ) -> None:
        self.threads = {
            topic: {number: self.words(thread) for number, thread in row.items()}
            for topic, row in globalPartitionAssignment.items()
        }

    def words(self, thread: ConsumerThreadId) -> str:
        consumer: str = thread.consumer()
        number: int = thread.threadId()
        assert thread.toString() == f"{consumer}-{number}"
        return thread.toString()


def read(
    connector: ConsumerConnector, listener: ConsumerRebalanceListener, topic: str, count: int
) -> list[tuple[int, str]]:
    """Partition and text of the next so many messages, or of those that come in time."""
    connector.setConsumerRebalanceListener(listener)
    streams: dict[str, list[KafkaStream]] = connector.createMessageStreams({topic: 1}, None, StringDecoder())
    it: ConsumerIterator = streams[topic][0].iterator()
    found: list[tuple[int, str]] = []
    offsets: dict[TopicPartition, int] = {}
    try:
        while len(found) < count and it.hasNext():
            message: MessageAndMetadata = it.next()
            found.append((message.partition(), message.message()))
            offsets[TopicPartition(message.topic(), message.partition())] = message.offset() + 1
    except ConsumerTimeoutException:
        print("nothing more came in time")
    connector.commitOffsets(offsets, True)
    return found


def leaders(broker: SimpleConsumer, topic: str) -> dict[int, str | None]:
    """Partition -> the host of its leader; what ``send`` gives is known by what it is asked."""
    found: dict[int, str | None] = {}
    for metadata in broker.send(TopicMetadataRequest([topic])).topicsMetadata():
        for partition in metadata.partitionsMetadata():
            leader = partition.leader()
            found[partition.partitionId()] = None if leader is None else leader.host()
    return found


def coordinator_error(broker: SimpleConsumer, group: str) -> int:
    """Kafka's number; 0: a broker keeps the offsets of the group."""
    return broker.send(GroupCoordinatorRequest(group)).errorCode()


def main(props: Mapping[str, str], topic: str) -> None:
    connector = Consumer.createJavaConsumerConnector(ConsumerConfig(props))
    try:
        print(read(connector, Owners(), topic, 100))
    finally:
        connector.shutdown()


if __name__ == "__main__":
    main({"zookeeper.connect": sys.argv[1], "group.id": sys.argv[2], "consumer.timeout.ms": "5000"}, sys.argv[3])
