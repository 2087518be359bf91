"""A program of Kafka 0.8, line by line.  Its configuration alone decides in which group it reads.

    python old_program.py FILE TOPIC

It prints partition and offset of each message, and closes its connector at SIGTERM.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from zkconsumer.javaapi import Consumer, ConsumerConfig
from zkconsumer.properties import parse_properties


def main(file: str, topic: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    props = parse_properties(Path(file).read_text("utf-8"))
    connector = Consumer.createJavaConsumerConnector(ConsumerConfig(props))
    stream = connector.createMessageStreams({topic: 1})[topic][0]
    it = stream.iterator()
    try:
        while it.hasNext():
            message = it.next()
            print(message.partition(), message.offset(), flush=True)
    finally:
        connector.shutdown()


main(*sys.argv[1:])
