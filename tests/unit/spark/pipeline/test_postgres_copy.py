"""Arrow batches as CSV for COPY of PostgreSQL."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from bridge.spark.pipeline.sinks.postgres_copy import csv_of


def csv(**columns: pa.Array) -> list[str]:
    return csv_of(pa.record_batch(columns), 7).decode().splitlines()


def test_each_row_begins_with_its_task() -> None:
    assert csv(a=pa.array([1, 2])) == ["7,1", "7,2"]


def test_an_empty_text_is_not_null_and_quotes_are_doubled() -> None:
    assert csv(a=pa.array(["", None, 'x"y', "a,b", "\\."])) == ['7,""', "7,", '7,"x""y"', '7,"a,b"', '7,"\\."']
    assert csv_of(pa.record_batch({"a": ["x\ny"]}), 7) == b'7,"x\ny"\n'


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()])
def test_bytes_are_hexadecimal_also_of_a_slice(type_: pa.DataType) -> None:
    values = pa.array([b"skipped", b"\x00\xff", None, b"", b"a"], type_)
    assert csv(a=values.slice(1, 3)) == ['7,"\\x00ff"', "7,", '7,"\\x"']
    assert csv(a=pa.array([None], type_)) == ["7,"]
    assert csv(a=pa.array([], type_)) == []


def test_times_are_in_utc_and_keep_microseconds() -> None:
    at = [-62_135_596_800_000_000, 253_402_300_799_999_999, None]
    assert csv(a=pa.array(at, pa.timestamp("us", "America/New_York")), b=pa.array(at, pa.timestamp("us"))) == [
        "7,0001-01-01 00:00:00.000000,0001-01-01 00:00:00.000000",
        "7,9999-12-31 23:59:59.999999,9999-12-31 23:59:59.999999",
        "7,,",
    ]
    assert csv(a=pa.array([date(1, 1, 1), date(9999, 12, 31)])) == ["7,0001-01-01", "7,9999-12-31"]


def test_numbers_keep_their_value() -> None:
    assert csv(a=pa.array([Decimal("1.50"), Decimal("-0.00"), None], pa.decimal128(38, 2))) == [
        '7,"1.50"', '7,"0.00"', "7,",
    ]  # fmt: skip
    assert csv(a=pa.array([0.1, float("nan"), float("-inf")])) == ["7,0.1", "7,nan", "7,-inf"]
    assert csv(a=pa.array([0.1, 3e38], pa.float32())) == ["7,0.1", "7,3e+38"]
    assert csv(a=pa.array([True, None])) == ["7,true", "7,"]
