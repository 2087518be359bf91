"""kafka-python as a peer of ``bench/streams.py``: message by message, in a group with automatic commits.

    python kafka_python.py SETTINGS [BLOCKED_PACKAGE ...]

With ``crc32c`` among the blocked packages checksums of format 2 are computed in Python.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

import protocol

for _blocked in sys.argv[2:]:
    sys.modules[_blocked] = None  # type: ignore[assignment]

import kafka  # noqa: E402
from kafka.record import util  # noqa: E402


class KafkaPython:
    def __init__(self, settings: dict[str, str]) -> None:
        self._settings: dict[str, Any] = {
            key: int(value) if value.lstrip("-").isdigit() else value for key, value in settings.items()
        }

    def read(self, read: protocol.Read) -> None:
        consumer = kafka.KafkaConsumer(
            read.topic,
            group_id=read.group,
            auto_offset_reset="earliest",
            consumer_timeout_ms=read.timeout_s * 1000,
            **self._settings,
        )
        try:
            for message in islice(consumer, read.messages):
                message.key  # noqa: B018
                read.count += 1
                if read.is_checked:
                    read.offsets += message.offset
                    read.bytes += len(message.value)
                else:
                    message.value  # noqa: B018
                    message.offset  # noqa: B018
        finally:
            consumer.close()

    def tail(self, tail: protocol.Tail) -> None:
        raise NotImplementedError("kafka-python is not measured at the tail")


if __name__ == "__main__":
    if not sys.argv[2:] and util.crc32c_c is None:
        protocol.say({"failed": "the package crc32c is not installed: pip install '.[bench]' in a clone"})
    else:
        protocol.serve(KafkaPython(protocol.settings(sys.argv[1])), {"kafka-python": kafka.__version__})
