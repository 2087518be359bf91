"""The consumer of this project as a peer of ``bench/streams.py``: a complete member, with group, commits and lease.

    python ours.py SETTINGS messages|batches|poll [BLOCKED_PACKAGE ...]

The packages named after it cannot be imported: what is measured is the product without them.  The environment says
which checkout is imported (``PYTHONPATH``) and whether its extensions are used (``ZKCONSUMER_NO_EXTENSIONS``).
"""

from __future__ import annotations

import gc
import sys
import time
from importlib import import_module
from itertools import islice
from typing import Any

import protocol

for _blocked in sys.argv[3:]:
    sys.modules[_blocked] = None  # type: ignore[assignment]

import zkconsumer  # noqa: E402
from zkconsumer.config import ConsumerConfig  # noqa: E402
from zkconsumer.connector import ZookeeperConsumerConnector  # noqa: E402
from zkconsumer.streams import KafkaStream  # noqa: E402

TIMEOUT_MS = "60000"


class Ours:
    """Reads one message after the other."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings

    def connector(self, group: str, reset: str) -> ZookeeperConsumerConnector:
        settings = {"consumer.timeout.ms": TIMEOUT_MS, **self._settings, "group.id": group, "auto.offset.reset": reset}
        return ZookeeperConsumerConnector(ConsumerConfig.from_properties(settings))

    def read(self, read: protocol.Read) -> None:
        with self.connector(read.group, "smallest") as connector:
            [stream] = connector.create_message_streams({read.topic: 1})[read.topic]
            self.consume(stream, read)
        gc.collect()

    def consume(self, stream: KafkaStream[bytes, bytes], read: protocol.Read) -> None:
        messages: Any = islice(iter(stream), read.messages)
        if read.is_checked:
            for message in messages:
                message.key  # noqa: B018
                read.offsets += message.offset
                read.bytes += len(message.value)
                read.count += 1
        else:
            for message in messages:
                message.key  # noqa: B018
                message.value  # noqa: B018
                message.offset  # noqa: B018
            # The stream does not end by itself: it waits, and raises when that takes too long.
            read.count = read.messages

    def tail(self, tail: protocol.Tail) -> None:
        with self.connector(tail.group, "largest") as connector:
            [stream] = connector.create_message_streams({tail.topic: 1})[tail.topic]
            for count, message in enumerate(stream, 1):
                value: Any = message.value
                message.key  # noqa: B018
                message.offset  # noqa: B018
                if len(value) == protocol.STAMPED_BYTES and tail.stamped(value, count):
                    break


class Batches(Ours):
    """``stream.batches()``: offsets and values are summed as buffers, without a loop over messages."""

    RECORDS = 100_000

    def consume(self, stream: KafkaStream[bytes, bytes], read: protocol.Read) -> None:
        import numpy as np

        for batch in stream.batches(max_records=self.RECORDS):  # type: ignore[attr-defined]
            offsets = np.frombuffer(batch.offsets, np.int64)
            data, bounds = np.frombuffer(batch.values.data, np.uint8), batch.values.bounds
            total = int(offsets.sum()), int(data[: len(data) // 8 * 8].view(np.uint64).sum())
            read.count += len(offsets)
            if read.is_checked:
                read.offsets += total[0]
                read.bytes += int(bounds[-1]) - int(bounds[0])
            if read.count >= read.messages:
                return


class Poll:
    """``bridge.KafkaConsumer``."""

    POLL_MS = 1_000

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings

    def _consumer(self, topic: str, group: str, reset: str) -> Any:
        from bridge import KafkaConsumer

        consumer = KafkaConsumer({**self._settings, "group.id": group, "auto.offset.reset": reset})
        consumer.subscribe([topic])
        return consumer

    def read(self, read: protocol.Read) -> None:
        deadline = time.monotonic() + read.timeout_s
        with self._consumer(read.topic, read.group, "earliest") as consumer:
            while read.count < read.messages:
                read.loop(consumer.poll(self.POLL_MS))
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{read.count} of {read.messages} in {read.timeout_s} s")
        gc.collect()

    def tail(self, tail: protocol.Tail) -> None:
        deadline = time.monotonic() + tail.timeout_s
        count = 0
        with self._consumer(tail.topic, tail.group, "latest") as consumer:
            while time.monotonic() < deadline:
                for record in consumer.poll(self.POLL_MS):
                    count += 1
                    record.key  # noqa: B018
                    record.offset  # noqa: B018
                    if len(record.value) == protocol.STAMPED_BYTES and tail.stamped(record.value, count):
                        return
        raise TimeoutError(f"{count} messages in {tail.timeout_s} s")


PEERS = {"messages": Ours, "batches": Batches, "poll": Poll}


def main() -> None:
    path, kind = sys.argv[1:3]
    if kind == "batches" and not hasattr(KafkaStream, "batches"):
        protocol.say({"failed": "this version has no batches()"})
        return
    peer: Any = PEERS[kind](protocol.settings(path))
    protocol.serve(peer, {"version": zkconsumer.__version__, "file": zkconsumer.__file__, "extension": extension()})


def extension() -> bool:
    """Whether messages are decoded in C."""
    try:
        compiled = import_module("zkconsumer.wire.compiled")
    except ImportError:
        return False
    return compiled.RECORD_DECODER is not None


if __name__ == "__main__":
    main()
