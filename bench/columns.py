"""What the columnar path costs without Spark: record sets to Arrow batches, µs of CPU a row.

    python bench/columns.py [--rounds 7] [--rows 80000] [--match 100B]

Record sets are built in memory as a broker sends them, about 8 MiB each, keys of 8 bytes (a counter in big-endian),
values of text or of random bytes, of one length or of lengths that vary (half to one and a half of the mean).  Two
figures a shape: all fields of Spark's schema, and ``key binary, value binary`` alone.  Checksums are verified.

The gate is for 100 B of formats 1 and 2 without a codec; the other lines say where the rest goes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from shapes import Shape

from bridge.spark.arrow import SCHEMA, record_batches
from bridge.spark.columns import read_columns
from zkconsumer.wire import compression

GATE_US, GOAL_US = 0.12, 0.09
PLAIN = pa.schema([field for field in SCHEMA if field.name != "headers"])
NARROW = pa.schema([SCHEMA.field("key"), SCHEMA.field("value")])

SHAPES = [
    Shape(100, False),
    Shape(100, True),
    Shape(100, True, is_random=True),
    Shape(100, False, batch_bytes=65_536),
    Shape(100, True, batch_bytes=65_536),
    Shape(100, True, batch_bytes=1 << 20),
    Shape(100, True, batch_bytes=1 << 20, is_random=True),
    Shape(100, False, magic=1),
    Shape(100, True, magic=1),
    *(Shape(100, True, codec=codec) for codec in (compression.GZIP, compression.SNAPPY)),
    *(Shape(100, True, codec=codec) for codec in (compression.LZ4, compression.ZSTD)),
    Shape(100, True, magic=1, codec=compression.SNAPPY),
    Shape(1024, False),
    Shape(1024, True),
    Shape(1024, True, batch_bytes=1 << 20),
]


def us_a_row(work: Callable[[], object], rows: int, rounds: int) -> float:
    """Median CPU of one row in µs, after one round that does not count."""
    taken = []
    for number in range(rounds + 1):
        start = time.process_time()
        work()
        if number:
            taken.append((time.process_time() - start) / rows * 1e6)
    return statistics.median(taken)


def decode(record_set: bytes, schema: pa.Schema) -> int:
    """The columnar path once; gives the rows."""
    return sum(
        batch.num_rows for columns in read_columns(record_set) for batch in record_batches(columns, "bench", 0, schema)
    )


def measure(shape: Shape, rows: int, rounds: int) -> tuple[float, float]:
    """µs of CPU a row: all fields, and key and value alone."""
    rows = max(1000, rows * 100 // shape.size)
    record_set = memoryview(shape.record_set(rows))
    assert decode(record_set, PLAIN) == rows, "every row comes out"
    both = [us_a_row(lambda: decode(record_set, schema), rows, rounds) for schema in (PLAIN, NARROW)]  # noqa: B023
    return both[0], both[1]


def measure_in_session(_: object, shape: Shape, rows: int, rounds: int) -> tuple[float, float]:
    """``measure`` for ``spark_sessions.Sessions.run``: in the process of a session, which may be another checkout's."""
    return measure(shape, rows, rounds)


@dataclass(frozen=True, slots=True)
class Cost:
    """µs of CPU a row: all fields, and key and value alone."""

    shape: Shape
    full: float
    narrow: float

    @property
    def verdict(self) -> str:
        if not self.shape.is_gated:
            return "-"
        return "goal" if self.full <= GOAL_US else "gate" if self.full <= GATE_US else "MISSED"

    def row(self) -> str:
        return f"| {self.shape} | {self.full:.3f} | {self.narrow:.3f} | {self.verdict} |"


HEAD = ["| shape | all fields, µs CPU a row | key and value | gate .12, goal .09 |", "|---|---|---|---|"]


def costs(match: str, rows: int, rounds: int) -> list[Cost]:
    """One a shape; printed as they come."""
    print("\n".join(HEAD), flush=True)
    found = []
    for shape in SHAPES:
        if match in str(shape):
            found.append(Cost(shape, *measure(shape, rows, rounds)))
            print(found[-1].row(), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=80_000, help="of 100 B; fewer of larger ones")
    parser.add_argument("--match", default="", help="only shapes whose name has this in it")
    arguments = parser.parse_args()
    costs(arguments.match, arguments.rows, arguments.rounds)


if __name__ == "__main__":
    main()
