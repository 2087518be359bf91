"""confluent-kafka as a peer of ``bench/streams.py``: ``consume(500)`` in a group with automatic commits.

    python confluent.py SETTINGS

At the tail it is ``poll()``, since ``consume(500)`` waits for 500 messages.
"""

from __future__ import annotations

import sys
import time

import protocol
from confluent_kafka import Consumer, libversion, version

MESSAGES = 500
POLL_S = 1.0


class Confluent:
    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings

    def _consumer(self, topic: str, group: str, reset: str) -> Consumer:
        consumer = Consumer({**self._settings, "group.id": group, "auto.offset.reset": reset})
        consumer.subscribe([topic])
        return consumer

    def read(self, read: protocol.Read) -> None:
        consumer = self._consumer(read.topic, read.group, "earliest")
        deadline = time.monotonic() + read.timeout_s
        try:
            while read.count < read.messages:
                messages = consumer.consume(min(MESSAGES, read.messages - read.count), POLL_S)
                if read.is_checked:
                    for message in messages:
                        message.key()
                        read.offsets += message.offset()
                        read.bytes += len(message.value())
                else:
                    for message in messages:
                        message.key()
                        message.value()
                        message.offset()
                read.count += len(messages)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{read.count} of {read.messages} in {read.timeout_s} s")
        finally:
            consumer.close()

    def tail(self, tail: protocol.Tail) -> None:
        consumer = self._consumer(tail.topic, tail.group, "latest")
        deadline = time.monotonic() + tail.timeout_s
        count = 0
        try:
            while time.monotonic() < deadline:
                message = consumer.poll(POLL_S)
                if message is None:
                    continue
                count += 1
                value = message.value()
                message.key()
                message.offset()
                if len(value) == protocol.STAMPED_BYTES and tail.stamped(value, count):
                    return
            raise TimeoutError(f"{count} messages in {tail.timeout_s} s")
        finally:
            consumer.close()


if __name__ == "__main__":
    versions = {"confluent-kafka": version()[0], "librdkafka": libversion()[0]}
    protocol.serve(Confluent(protocol.settings(sys.argv[1])), versions)
