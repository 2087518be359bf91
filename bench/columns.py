"""Measures decoding without Spark: from record sets to Arrow batches, in µs of CPU per row.

    python bench/columns.py [--rounds 7] [--rows 80000] [--match "100 B, v2"]

Record sets are built in memory as a broker sends them: about 8 MiB each, keys of 8 bytes (a counter in big-endian),
values of text or of random bytes, of one length or of varying lengths (half to one and a half of the mean).  Each shape
has three figures: all fields of Spark's schema; only ``key binary, value binary``; all fields without the compiled
decoder, on a tenth of the rows.  Checksums are verified.

The gate applies to 100 B of formats 1 and 2 without a codec; the other lines have no gate.  The last line: rows per
second with the package in a zip (Spark's ``addPyFile``), compared with the installed package.  The processes of both
alternate.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from gates import Gate
from shapes import Shape

from bridge.spark.decode.arrow_decoder import ArrowDecoder
from bridge.spark.decode.arrow_schema import SCHEMA, ArrowBatchSpec
from zkconsumer import extensions
from zkconsumer.wire import compiled, compression

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("zkconsumer", "bridge", "pyspark_zkconsumer")

GATE_US, GOAL_US = 0.12, 0.09
ZIP_GATE = 0.9
ZIP_TURNS = 5
PYTHON_SHARE = 10
"""The Python decoder reads this fraction of the rows."""
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
    *(Shape(100, True, codec=codec, batch_bytes=512) for codec in (compression.NONE, compression.LZ4)),
    Shape(100, True, magic=1, codec=compression.SNAPPY, batch_bytes=512),
    Shape(1024, False),
    Shape(1024, True),
    Shape(1024, True, batch_bytes=1 << 20),
]


def us_a_row(work: Callable[[], object], rows: int, rounds: int) -> float:
    """The median CPU time of one row in µs, after one round that does not count."""
    taken = []
    for number in range(rounds + 1):
        start = time.process_time()
        work()
        if number:
            taken.append((time.process_time() - start) / rows * 1e6)
    return statistics.median(taken)


def measure(shape: Shape, schema: pa.Schema, rows: int, rounds: int) -> float:
    """µs of CPU per row with the fields of ``schema``."""
    rows = max(1000, rows * 100 // shape.size)
    record_set = memoryview(shape.record_set(rows))
    decoder = ArrowDecoder(ArrowBatchSpec("bench", 0, schema))

    def decode() -> int:
        return sum(batch.num_rows for batch in decoder.batches(record_set))

    assert decode() == rows, "all rows are decoded"
    return us_a_row(decode, rows, rounds)


@contextmanager
def without_compiled_decoder() -> Iterator[None]:
    """Within this context, Python decodes."""
    before, compiled.RECORD_DECODER = compiled.RECORD_DECODER, None
    try:
        yield
    finally:
        compiled.RECORD_DECODER = before


def measure_in_session(_: object, shape: Shape, rows: int, rounds: int) -> tuple[float, float]:
    """``measure`` for ``spark_sessions.Sessions.run``: in the process of a session, which may be another checkout's."""
    return measure(shape, PLAIN, rows, rounds), measure(shape, NARROW, rows, rounds)


@dataclass(frozen=True, slots=True)
class Cost:
    """µs of CPU per row: all fields; only key and value; all fields without the compiled decoder."""

    shape: Shape
    full: float
    narrow: float
    python: float

    @property
    def verdict(self) -> str:
        if not self.shape.is_gated:
            return "-"
        return "goal" if self.full <= GOAL_US else "gate" if self.full <= GATE_US else "MISSED"

    def row(self) -> str:
        return f"| {self.shape} | {self.full:.3f} | {self.narrow:.3f} | {self.python:.2f} | {self.verdict} |"


HEAD = [
    "| shape | all fields, µs CPU a row | key and value | all fields, decoded in Python | gate .12, goal .09 |",
    "|---|---|---|---|---|",
]


def costs(match: str, rows: int, rounds: int) -> list[Cost]:
    """Measure each shape, and print its line at once."""
    print("\n".join(HEAD), flush=True)
    found = []
    for shape in SHAPES:
        if match in str(shape):
            full, narrow = (measure(shape, schema, rows, rounds) for schema in (PLAIN, NARROW))
            with without_compiled_decoder():
                python = measure(shape, PLAIN, rows // PYTHON_SHARE, min(rounds, 3))
            found.append(Cost(shape, full, narrow, python))
            print(found[-1].row(), flush=True)
    return found


# --- from a zip -------------------------------------------------------------------------------------------------------


def from_zip(rows: int, rounds: int) -> Gate:
    """Rows per second of the first shape with the package in a zip, divided by those of the installed package."""
    with tempfile.TemporaryDirectory(prefix="bench-zip-") as folder:
        archive = Path(folder) / "zkconsumer.zip"
        with zipfile.ZipFile(archive, "w") as made:
            for name in PACKAGES:
                for file in (ROOT / name).rglob("*"):
                    if file.suffix in (".py", ".so"):
                        made.write(file, file.relative_to(ROOT))
        taken: dict[Path, list[float]] = {archive: [], ROOT: []}
        for _ in range(ZIP_TURNS):
            for home, found in taken.items():
                found.append(_in_a_process(home, rows, rounds))
    us_zip, us_installed = (statistics.median(found) for found in taken.values())
    return Gate("from a zip: rows/s ÷ installed", us_installed / us_zip, ZIP_GATE, None)


def _in_a_process(home: Path, rows: int, rounds: int) -> float:
    program = f"import columns; print(columns.one_shape({str(home)!r}, {rows}, {rounds}))"
    path = os.pathsep.join([str(home), str(ROOT / "bench")])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, cwd=tempfile.gettempdir(),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout)


def one_shape(home: str, rows: int, rounds: int) -> float:
    """µs of CPU per row of the first shape, with the package in ``home`` and its compiled modules."""
    assert str(extensions.PACKAGE_ROOT) == home, f"loaded from {extensions.PACKAGE_ROOT}"
    if compiled.RECORD_DECODER is None:
        raise SystemExit(f"{home}: the compiled decoder is missing: {extensions.missing_reason(compiled.MODULE_NAME)}")
    return measure(SHAPES[0], PLAIN, rows, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=80_000, help="rows of 100 B; larger rows are fewer")
    parser.add_argument("--match", default="", help="only shapes whose name contains this text")
    arguments = parser.parse_args()
    costs(arguments.match, arguments.rows, arguments.rounds)
    if compiled.RECORD_DECODER is not None:
        print(from_zip(arguments.rows, arguments.rounds).row())


if __name__ == "__main__":
    main()
