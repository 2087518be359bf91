"""What librdkafka reads of partition 0 of a topic; also as a process of its own.

python -m tests.conformance.librdkafka_reader SETTINGS TOPIC END      settings as JSON; the answer is pickled
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from zkconsumer.wire.entries import Record

TIMEOUT_S = 30.0
TRIES = 5


class Read(NamedTuple):
    """The records up to the end or to the first error; code and text of the error."""

    records: list[Record]
    code: int | None = None
    text: str = ""


def read(consumer: Consumer, topic: str, end: int) -> Read:
    """From offset 0 on, to the record before ``end``."""
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Record] = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"nothing comes behind {found[-1:]}"
        error = message.error()
        if error is None:
            kind, time_ms = message.timestamp()
            stamp = (time_ms, kind - 1) if kind else (-1, -1)
            headers = tuple((name, value) for name, value in message.headers() or ())
            found.append(Record(message.offset(), *stamp, message.key(), message.value(), headers))
        elif error.code() != KafkaError._PARTITION_EOF:
            return Read(found, error.code(), error.str())
        if error is not None or found[-1].offset + 1 >= end:
            return Read(found)


def read_here(settings: Mapping[str, Any], topic: str, end: int) -> Read:
    """In this process."""
    consumer = Consumer(dict(settings))
    try:
        return read(consumer, topic, end)
    finally:
        consumer.close()


def read_apart(settings: Mapping[str, Any], topic: str, end: int) -> Read:
    """In a process of its own, which librdkafka 2.16 aborts if it fetches a batch with a wrong checksum again.

    It reads on at a wrong byte if such a batch is the first of a response (a comment in its ``rdkafka_msgset_reader.c``
    says so), which the second response is.  The program gets the error of the first one before that: with one message
    in the queue, librdkafka waits a second (``fetch.queue.backoff.ms``) before it fetches again.
    """
    apart = json.dumps({**settings, "queued.min.messages": 1})
    command = [sys.executable, "-m", "tests.conformance.librdkafka_reader", apart, topic, str(end)]
    for _ in range(TRIES):
        done = subprocess.run(command, capture_output=True, timeout=2 * TIMEOUT_S, check=False)
        if done.returncode >= 0:
            break
    assert done.returncode == 0, done.stderr.decode()
    return Read(*pickle.loads(done.stdout))


def main() -> None:
    settings, topic, end = sys.argv[1:]
    answer = read(Consumer(json.loads(settings)), topic, int(end))
    sys.stdout.buffer.write(pickle.dumps(tuple(answer)))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
