"""Measures one call of each decompressor: µs of CPU, MB/s, and whether it releases the GIL.

    python bench/codecs.py [--rounds 9] [--codec zstd] [--size 150]

Payloads are those that a Java producer makes of records of 100 B of text: gzip, snappy in xerial blocks (32 KiB;
"snappy 1K": 1 KiB, as in old releases), one lz4 frame of independent blocks of 64 KiB, one zstd frame without a content
size.  Sizes are those after decompression.

``decompress`` is the function of the product, once with the default packages and once with those of the extra
``[fast]``; the other lines call packages directly and check no framing.  A package that is not installed has no line.
The implementations of one payload alternate; a figure is the median of the rounds.  The ratio is the quotient of the
medians to ``decompress, default``, with the smallest and the largest ratio within one round.  For 1 MB: whether another
thread can run during a call ("GIL"), and the wall time of two threads divided by the time of one thread with as many
calls each, the best of the rounds of each: 1 if they run in parallel on an idle machine with two cores, else 2.
"""

from __future__ import annotations

import argparse
import statistics
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import cramjam

from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import DECOMPRESSED_BYTES_MAX

SIZES = [150, 1024, 16_384, 1 << 20]
RECORD = b'{"id":%07d,"name":"customer %05d","state":"%s","amount":%07.2f,"currency":"EUR","at":%d}'
BATCH_HEADER_BYTES = 61
A_CALL_S, A_TURN_S = 2e-6, 0.02
LZ4_HEADER = bytes.fromhex("04224d18604082")
LZ4_BLOCK_BYTES = 64 * 1024
PARALLEL_S = 0.2
CALLS_TO_OTHER_THREAD_MAX = 2000


def installed(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ImportError:
        return None


isal_zlib, igzip_lib = installed("isal.isal_zlib"), installed("isal.igzip_lib")
zstandard = installed("zstandard")
lz4_frame, lz4_block = installed("lz4.frame"), installed("lz4.block")


def plain(size: int) -> bytes:
    """The records of a batch of format 2, cut to ``size`` bytes."""
    values = [
        RECORD % (number * 7919 % 9_999_991, number * 31 % 99_991, b"open" if number % 3 else b"closed",
                  number * 17 % 1_000_003 / 100, 1_700_000_000_000 + number * 13)
        for number in range(size // 100 + 2)
    ]  # fmt: skip
    records = [Record(offset, 1_700_000_000_000 + offset, 0, None, value) for offset, value in enumerate(values)]
    return build_record_set(records, 2)[BATCH_HEADER_BYTES:][:size]


def as_gzip(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=31)
    return deflater.compress(data) + deflater.flush()


def as_xerial(data: bytes, block_bytes: int) -> bytes:
    framed = [b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)]
    for start in range(0, len(data), block_bytes):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + block_bytes]))
        framed.append(struct.pack(">i", len(block)) + block)
    return b"".join(framed)


def as_lz4(data: bytes) -> bytes:
    framed = [LZ4_HEADER]
    for start in range(0, len(data), LZ4_BLOCK_BYTES):
        block = bytes(cramjam.lz4.compress_block(data[start : start + LZ4_BLOCK_BYTES], store_size=False))
        framed.append(struct.pack("<I", len(block)) + block)
    return b"".join(framed) + bytes(4)


def as_zstd(data: bytes) -> bytes:
    compressor = cramjam.zstd.Compressor()
    compressor.compress(data)
    return bytes(compressor.finish())


@dataclass(frozen=True, slots=True)
class Way:
    """One way to decompress a payload.  ``packages``: what ``decompress`` may use beyond the default."""

    name: str
    call: Callable[[], Any]
    packages: tuple[Any, Any] = (None, None)
    is_for_threads: bool = True

    def us(self, calls: int) -> float:
        """µs of CPU for one of so many calls."""
        compression._isal, compression._zstandard = self.packages
        call = self.call
        start = time.thread_time()
        for _ in range(calls):
            call()
        return (time.thread_time() - start) / calls * 1e6

    def _call(self, calls: int) -> None:
        for _ in range(calls):
            self.call()

    def gil(self) -> str:
        """Whether another thread can run during a call."""
        compression._isal, compression._zstandard = self.packages
        may_run, has_run = threading.Lock(), threading.Event()

        def run() -> None:
            with may_run:
                has_run.set()

        before = sys.getswitchinterval()
        may_run.acquire()
        thread = threading.Thread(target=run)
        thread.start()
        try:
            # From here on the other thread runs only when a call releases the GIL.
            sys.setswitchinterval(1000)
            may_run.release()
            for _ in range(CALLS_TO_OTHER_THREAD_MAX):
                self.call()
                if has_run.is_set():
                    return "given up"
            return "held"
        finally:
            sys.setswitchinterval(before)
            thread.join()

    def two_over_one(self, us: float, rounds: int) -> str:
        """The wall time of two threads divided by the time of one thread, with as many calls each."""
        if not self.is_for_threads:
            return "not safe"
        compression._isal, compression._zstandard = self.packages
        calls = max(2, int(PARALLEL_S * 1e6 / us))

        def wall(count: int) -> float:
            threads = [threading.Thread(target=self._call, args=(calls,)) for _ in range(count)]
            start = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return time.perf_counter() - start

        taken = [(wall(1), wall(2)) for _ in range(rounds)]
        return f"{min(two for _, two in taken) / min(one for one, _ in taken):.2f}"


def ours(codec: int, packed: bytes) -> Iterator[Way]:
    def call() -> bytes | bytearray:
        return compression.decompress(codec, packed, 2, DECOMPRESSED_BYTES_MAX)

    yield Way("decompress, default", call)
    if (codec == compression.GZIP and isal_zlib) or (codec == compression.ZSTD and zstandard):
        yield Way("decompress, [fast]", call, (isal_zlib, zstandard))


def gzip_ways(packed: bytes, size: int) -> Iterator[Way]:
    yield from ours(compression.GZIP, packed)
    yield Way("zlib.decompressobj", lambda: zlib.decompressobj(31).decompress(packed, size + 1))
    yield Way("cramjam.gzip.decompress", lambda: cramjam.gzip.decompress(packed))
    if isal_zlib and igzip_lib:
        yield Way("isal_zlib.decompressobj", lambda: isal_zlib.decompressobj(31).decompress(packed, size + 1))
        flag = igzip_lib.DECOMP_GZIP
        yield Way("igzip_lib decompressor", lambda: igzip_lib.IgzipDecompressor(flag).decompress(packed, size + 1))


def snappy_ways(packed: bytes, size: int) -> Iterator[Way]:
    yield from ours(compression.SNAPPY, packed)
    if size <= 32 * 1024 and len(packed) == 20 + int.from_bytes(packed[16:20], "big"):
        block = packed[20:]
        yield Way("cramjam.snappy.decompress_raw", lambda: cramjam.snappy.decompress_raw(block))
        yield Way("... copied into bytes", lambda: bytes(cramjam.snappy.decompress_raw(block)))
        yield Way("... into a bytearray", lambda: cramjam.snappy.decompress_raw_into(block, bytearray(size)))


def lz4_ways(packed: bytes, size: int) -> Iterator[Way]:
    yield from ours(compression.LZ4, packed)
    yield Way("cramjam.lz4.decompress", lambda: cramjam.lz4.decompress(packed))
    yield Way("... into a bytearray", lambda: cramjam.lz4.decompress_into(packed, bytearray(size)))
    if lz4_frame:
        yield Way("lz4.frame (reference)", lambda: lz4_frame.decompress(packed))
    if size <= LZ4_BLOCK_BYTES:
        block = packed[11:-4]
        yield Way("cramjam, block alone", lambda: cramjam.lz4.decompress_block_into(block, bytearray(size)))
        if lz4_block:
            yield Way("lz4.block (reference)", lambda: lz4_block.decompress(block, uncompressed_size=size))


def zstd_ways(packed: bytes, size: int) -> Iterator[Way]:
    yield from ours(compression.ZSTD, packed)
    yield Way("cramjam.zstd.decompress", lambda: cramjam.zstd.decompress(packed))
    yield Way("... into a bytearray", lambda: cramjam.zstd.decompress_into(packed, bytearray(size)))
    if zstandard:
        kept = zstandard.ZstdDecompressor()
        yield Way("zstandard, kept", lambda: kept.decompress(packed, size), is_for_threads=False)
        yield Way("zstandard, one a call", lambda: zstandard.ZstdDecompressor().decompress(packed, size))


KINDS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes, int], Iterator[Way]]]] = {
    "gzip": (as_gzip, gzip_ways),
    "snappy": (lambda data: as_xerial(data, 32 * 1024), snappy_ways),
    "snappy 1K": (lambda data: as_xerial(data, 1024), snappy_ways),
    "lz4": (as_lz4, lz4_ways),
    "zstd": (as_zstd, zstd_ways),
}


def measure(kind: str, size: int, rounds: int) -> None:
    """Print the lines of one payload."""
    pack, ways_of = KINDS[kind]
    data = plain(size)
    packed = pack(data)
    ways = list(ways_of(packed, size))
    for way in ways:
        if way.name.startswith("decompress"):
            compression._isal, compression._zstandard = way.packages
            assert way.call() == data, f"{kind}, {way.name}: the result is the original data"
    calls = [max(3, int(A_TURN_S / (way.us(3) * 1e-6 + A_CALL_S))) for way in ways]
    taken = [[way.us(number) for way, number in zip(ways, calls, strict=True)] for _ in range(rounds)]
    medians = [statistics.median(column) for column in zip(*taken, strict=True)]
    for index, way in enumerate(ways):
        ratios = [one[index] / one[0] for one in taken]
        is_large = size == SIZES[-1]
        threads = f"{way.gil()} | {way.two_over_one(medians[index], rounds)}" if is_large else " | "
        print(
            f"| {kind} | {size} | {len(packed)} | {way.name} | {medians[index]:.2f} | {size / medians[index]:.0f} | "
            f"{medians[index] / medians[0]:.2f} ({min(ratios):.2f}-{max(ratios):.2f}) | {threads} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--codec", choices=list(KINDS), help="only this")
    parser.add_argument("--size", type=int, choices=SIZES, help="only this")
    arguments = parser.parse_args()
    print(*(f"{codec}: {package}" for codec, package in compression.implementations().items()), sep=", ")
    print("| codec | B | compressed B | how | µs CPU a call | MB/s | ratio (spread) | GIL | threads 2/1 |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in [arguments.codec] if arguments.codec else KINDS:
        for size in [arguments.size] if arguments.size else SIZES:
            measure(kind, size, arguments.rounds)


if __name__ == "__main__":
    main()
