"""The producer for the tail in ``bench/streams.py``: sends at a constant rate, some records with their time of sending.

    python tail_producer.py BOOTSTRAP TOPIC PARTITIONS RATE

It sends records in bursts, each burst to the next partition.  At most 1,000 records per second are stamped: their value
has STAMPED_BYTES and begins with the time; all others have 100 bytes.  Each second it prints one line of JSON: how many
records were sent and acknowledged so far, and the elapsed time.  It ends at the end of its input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from confluent_kafka import Producer
from protocol import STAMP, STAMPED_BYTES

BURSTS_A_SECOND = 2_000
STAMPS_A_SECOND = 1_000
SETTINGS = {"linger.ms": 1, "acks": "1", "queue.buffering.max.messages": 1_000_000}


def plan(rate: int) -> tuple[int, int]:
    """The number of records in a burst, and n: every n-th burst begins with a stamped record."""
    burst = max(1, rate // BURSTS_A_SECOND)
    bursts_a_second = rate / burst
    return burst, max(1, round(bursts_a_second / STAMPS_A_SECOND))


def main() -> None:
    bootstrap, topic, partitions, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    producer = Producer({**SETTINGS, "bootstrap.servers": bootstrap})
    acked = failed = 0

    def told(error: object, _: object) -> None:
        nonlocal acked, failed
        acked += error is None
        failed += error is not None

    burst, stamped_each = plan(rate)
    value, filler = b"x" * 100, b"x" * (STAMPED_BYTES - STAMP.size)
    start = time.monotonic()
    sent = number = 0
    said = start
    while True:
        now = time.monotonic()
        while sent < (now - start) * rate:
            partition = number % partitions
            for at in range(burst):
                key = (sent + at).to_bytes(8, "big")
                if at == 0 and number % stamped_each == 0:
                    stamped = STAMP.pack(time.time_ns() // 1000) + filler
                    producer.produce(topic, stamped, key, partition, told)
                else:
                    producer.produce(topic, value, key, partition, told)
            sent += burst
            number += 1
        producer.poll(0)
        if now - said >= 1:
            print(json.dumps({"sent": sent, "acked": acked, "failed": failed, "seconds": now - start}), flush=True)
            said = now
        time.sleep(0.0005)


if __name__ == "__main__":
    main()
