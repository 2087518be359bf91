"""Which columns of a table have the offsets of its rows."""

from __future__ import annotations

import pytest

from bridge.spark.pipeline.sinks.replaced_rows import OffsetColumns, offset_columns
from zkconsumer.errors import UsageError

ALL = ("topic", "partition", "offset", "timestamp")


def test_columns_of_the_source_are_found_under_the_name_in_the_table() -> None:
    assert offset_columns(["id", "topic", "PARTITION", "`offset` AS `at``x`"], ALL, "f") == OffsetColumns(
        "topic", "PARTITION", "at`x"
    )
    assert offset_columns(["Topic t", "partition  as p", "offset", "offset AS o2"], ALL, "f").names == (
        "t", "p", "offset",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("select", "source", "missing"),
    [
        (["id", "topic", "partition"], ALL, "offset"),
        (["topic", "partition", "offset + 0 AS offset"], ALL, "offset"),
        (["topic", "CAST(partition AS STRING) AS partition", "offset"], ALL, "partition"),
        (["topic", "partition", "offset"], ("topic", "partition"), "offset"),  # the payload has a field offset
        (["id"], ALL, "topic, partition, offset"),
    ],
)
def test_rows_without_their_place_cannot_be_replaced(select: list[str], source: tuple[str, ...], missing: str) -> None:
    with pytest.raises(UsageError, match=rf"f\.toml: .*the rows do not have their {missing}; nothing was changed"):
        offset_columns(select, source, "f.toml")
