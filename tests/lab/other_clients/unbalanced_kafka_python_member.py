"""A reader of kafka-python 1 or 2 with the protocol of brokers before 0.9: it has a group only for its offsets.

Arguments: broker, group, topic, api_version (``0.8.1`` or ``0.8.2``).  Events and commands: ``member_events``.
"""

from __future__ import absolute_import

import logging
import sys

from kafka import KafkaConsumer
from member_events import Commands, print_event


def main(broker, group, topic, api_version):
    """Read until the end of the input."""
    logging.basicConfig(level=logging.INFO)
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker,
        group_id=group,
        api_version=tuple(map(int, api_version.split("."))),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    commands = Commands()
    print_event("started")
    while not commands.is_stopped.is_set():
        for records in consumer.poll(200).values():
            for record in records:
                print_event("handed", topic=topic, partition=record.partition, offset=record.offset)
        if commands.take_commit():
            consumer.commit()
            print_event("committed")
    consumer.close()
    print_event("stopped")


if __name__ == "__main__":
    main(*sys.argv[1:-1])
