"""A member of a pykafka group: ``BalancedConsumer`` of pykafka 2.8, which is in ZooKeeper.

Arguments: broker, ZooKeeper (with a chroot), group, topic.  Events and commands: ``member_events``.
"""

from __future__ import absolute_import

import logging
import sys

from member_events import Commands, print_event
from pykafka import KafkaClient
from pykafka.common import OffsetType


def main(broker, zookeeper, group, topic):
    """Read until the end of the input."""
    logging.basicConfig(level=logging.INFO)
    client = KafkaClient(hosts=broker)
    consumer = client.topics[topic.encode()].get_balanced_consumer(
        consumer_group=group.encode(),
        zookeeper_connect=zookeeper,
        auto_offset_reset=OffsetType.EARLIEST,
        consumer_timeout_ms=200,
        rebalance_max_retries=20,
    )
    commands = Commands()
    print_event("started")
    while not commands.is_stopped.is_set():
        message = consumer.consume()
        if message is not None:
            print_event("handed", topic=topic, partition=message.partition_id, offset=message.offset)
        if commands.take_commit():
            consumer.commit_offsets()
            print_event("committed")
    consumer.stop()
    print_event("stopped")


if __name__ == "__main__":
    main(*sys.argv[1:-1])
