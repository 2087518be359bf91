"""The cells that ``bench/streams.py`` measures, and the peers of each cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shapes import Shape
from stream_results import AS_OURS, BEST, BEST_BUT_500

from zkconsumer.wire import compression

Columns = tuple[tuple[str, str], ...]
"""Peer and column of settings."""


def _both(*peers: str) -> Columns:
    return tuple((peer, column) for peer in peers for column in (BEST, AS_OURS))


FAST = ("ours", "ours-batches", "scala", "java", "confluent-crc", "confluent", "franz-go")
SLOW = ("ours-python", "before-python", "kafka-python", "kafka-python-crc32c")
"""Slow peers: they read a topic with a tenth of the messages."""
USUAL = _both(*FAST)
PRIMARY = _both(*FAST, "before", *SLOW)
POLLS = (
    *_both("ours-poll", "java", "confluent-crc", "no-consumer"),
    *((peer, BEST_BUT_500) for peer in ("ours-poll", "java", "no-consumer")),
)
"""KafkaConsumer, the clients that it is compared with, and the least that any of them needs in Python."""
WITH_FAST_CODECS = _both(*FAST, "ours-fast")
PLOTTED = tuple((peer, BEST) for peer in FAST)
AT_TAIL: Columns = tuple((peer, AS_OURS) for peer in ("ours", "before", "scala", "java", "confluent-crc", "franz-go"))
"""With one column: the best settings have larger fetches, and at the tail no fetch is full."""

SMALL = (1, 5)
NO_ZSTD = {"scala": "the Scala consumer cannot read zstd"}
NO_TLS = {"scala": "the Scala consumer has no TLS"}
CODECS = {
    "snappy": compression.SNAPPY,
    "gzip": compression.GZIP,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}
FASTER_CODECS = ("gzip", "zstd")
"""The codecs for which the extra ``[fast]`` has another package."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One topic and its peers.  ``rate``: records per second at the tail; 0: the topic is read to its end."""

    name: str
    title: str
    shape: Shape
    messages: int
    columns: Columns
    partitions: int = 4
    rate: int = 0
    is_tls: bool = False
    is_quick: bool = False
    cannot: Mapping[str, str] = field(default_factory=dict)
    """Peer -> why it cannot read this."""


def _read(name: str, title: str, shape: Shape, messages: int, columns: Columns = USUAL, **rest: object) -> Cell:
    return Cell(name, title, shape, messages, columns, **rest)  # type: ignore[arg-type]


V2 = Shape(100, False)

CELLS = {
    cell.name: cell
    for cell in (
        _read("100B-v1", "100 B, v1", Shape(100, False, magic=1), 6_000_000, PRIMARY, is_quick=True),
        _read("100B-v2", "100 B, v2", V2, 6_000_000, PRIMARY, is_quick=True),
        _read("poll", "100 B, v2, poll", V2, 6_000_000, POLLS, is_quick=True),
        _read("1KB-v2", "1 KB, v2", Shape(1024, False), 1_500_000, PRIMARY, is_quick=True),
        _read("20B-v2", "20 B, v2", Shape(20, False), 2_000_000, PLOTTED),
        _read("300B-v2", "300 B, v2", Shape(300, False), 1_500_000, PLOTTED),
        _read("4KB-v2", "4 KB, v2", Shape(4096, False), 300_000, PLOTTED),
        _read(
            "snappy", "100 B, v2, snappy", Shape(100, False, codec=compression.SNAPPY, is_compressible=False), 1_500_000
        ),
        _read(
            "gzip",
            "100 B, v2, gzip",
            Shape(100, False, codec=compression.GZIP, is_compressible=False),
            1_500_000,
            WITH_FAST_CODECS,
        ),
        _read(
            "lz4",
            "100 B, v2, lz4",
            Shape(100, False, codec=compression.LZ4, is_compressible=False),
            1_500_000,
            is_quick=True,
        ),
        _read(
            "zstd",
            "100 B, v2, zstd",
            Shape(100, False, codec=compression.ZSTD, is_compressible=False),
            1_500_000,
            WITH_FAST_CODECS,
            cannot=NO_ZSTD,
        ),
        _read("small", "1 to 5 records a batch", Shape(100, False, batch_records=SMALL), 600_000, is_quick=True),
        *(
            _read(
                f"small-{name}",
                f"1 to 5 records a batch, {name}",
                Shape(100, False, codec=codec, batch_records=SMALL, is_compressible=False),
                400_000,
                WITH_FAST_CODECS if name in FASTER_CODECS else USUAL,
                cannot=NO_ZSTD if codec == compression.ZSTD else {},
            )
            for name, codec in CODECS.items()
        ),
        _read("headers", "100 B, v2, 3 headers", Shape(100, False, has_headers=True), 1_500_000),
        _read("164B-v2", "164 B, v2: as many bytes, no headers", Shape(164, False), 1_500_000),
        _read("1-partition", "100 B, v2, 1 partition", V2, 1_500_000, partitions=1),
        _read("64-partitions", "100 B, v2, 64 partitions", V2, 1_500_000, partitions=64),
        _read("tls", "100 B, v2, TLS", V2, 1_500_000, is_tls=True, cannot=NO_TLS),
        *(
            Cell(
                f"tail-{partitions}-{rate // 1000}k",
                f"tail, {partitions} partitions, {rate:,} records/s",
                V2,
                0,
                AT_TAIL,
                partitions=partitions,
                rate=rate,
                is_quick=(partitions, rate) == (64, 1_000),
            )
            for partitions in (64, 512)
            for rate in (1_000, 50_000)
        ),
    )
}


def columns_of(cell: Cell, *, is_quick: bool) -> Columns:
    """The peers and settings; with ``is_quick`` only the best settings of each (at the tail there is one column)."""
    if not is_quick or cell.rate:
        return cell.columns
    return tuple(each for each in cell.columns if each[1] == BEST)
