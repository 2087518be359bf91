"""A reader with a group of kafka-python 0.9.5: ``SimpleConsumer``.  Needs Python 2.7, or 3 up to 3.6.

Arguments: broker, group, topic.  Events and commands: ``member_events``.
"""

from __future__ import absolute_import

import logging
import sys

from kafka import KafkaClient, SimpleConsumer
from member_events import Commands, print_event


def main(broker, group, topic):
    """Read until the end of the input."""
    logging.basicConfig(level=logging.INFO)
    consumer = SimpleConsumer(KafkaClient(broker), group.encode(), topic.encode(), auto_commit=False)
    consumer.provide_partition_info()
    commands = Commands()
    print_event("started")
    while not commands.is_stopped.is_set():
        found = consumer.get_message(timeout=0.2)
        if found is not None:
            partition, message = found
            print_event("handed", topic=topic, partition=partition, offset=message.offset)
        if commands.take_commit():
            consumer.commit()
            print_event("committed")
    consumer.stop()
    print_event("stopped")


if __name__ == "__main__":
    main(*sys.argv[1:-1])
