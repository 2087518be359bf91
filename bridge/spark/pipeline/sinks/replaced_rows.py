"""``OffsetColumns``: which columns of a table have the topic, the partition and the offset of each row.  Pure.

A table of a pipeline has the columns of ``[transform] select`` and no others, so the rows of an offset can be found,
and deleted, only if topic, partition and offset are in the select list.  A batch as a whole is no way: its rows have no
mark of the batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from bridge.spark.pipeline.lineage import PartitionRanges
from zkconsumer.errors import UsageError

_PLAIN = re.compile(r"\s*`?(topic|partition|offset)`?(?:\s+(?:as\s+)?(?:`((?:[^`]|``)+)`|(\w+)))?\s*", re.IGNORECASE)
"""A column of the source as it is, perhaps under another name."""


@dataclass(frozen=True, slots=True)
class OffsetColumns:
    """The names in the table."""

    topic: str
    partition: str
    offset: str

    @property
    def names(self) -> tuple[str, str, str]:
        return self.topic, self.partition, self.offset

    def condition(self, ranges: PartitionRanges) -> str:
        """The rows of these offsets, in Spark SQL."""
        topic, partition, offset = (f"`{name.replace('`', '``')}`" for name in self.names)
        return " OR ".join(
            f"({topic} = '{tp.topic}' AND {partition} = {tp.partition} AND {offset} >= {first} AND {offset} < {end})"
            for tp, pairs in ranges.items()
            for first, end in pairs
        )

    def condition_of_unknown(self) -> str:
        """The rows whose offset is not known, in Spark SQL."""
        return " OR ".join(f"`{name.replace('`', '``')}` IS NULL" for name in self.names)


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """``on_deleted``: called after each commit of a replacement with the number of rows that it has deleted."""

    columns: OffsetColumns
    on_deleted: Callable[[int], None]


def unknown_rows_text(table: str, columns: OffsetColumns) -> str:
    """Why the rows of a table cannot be replaced, if one has no offset."""
    return (
        f"the table {table} has rows without a value in {', '.join(columns.names)}, so it is "
        "not known which offsets they have; nothing was written. They may be older than these columns: the "
        "operator must fill the columns or delete these rows, and read their offsets by a backfill"
    )


def offset_columns(select: Iterable[str], source_columns: Collection[str], file: str) -> OffsetColumns:
    """The columns of a select list.  ``source_columns``: the names under which the SQL finds columns of the source.

    Raises ``UsageError`` if one of the three is not selected.
    """
    found: dict[str, str] = {}
    for expression in select:
        plain = _PLAIN.fullmatch(expression)
        if plain is not None and plain[1].lower() in source_columns:
            name = plain[2].replace("``", "`") if plain[2] else plain[3] or plain[1]
            found.setdefault(plain[1].lower(), name)
    missing = [name for name in ("topic", "partition", "offset") if name not in found]
    if missing:
        raise UsageError(
            f"{file}: [transform] select: a replacement deletes the rows of offsets, and the rows do not have their "
            f"{', '.join(missing)}; nothing was changed. Select topic, partition and offset (each as it is, or with AS "
            "NAME) in a table that has them from its first row on; otherwise only what no batch has read can be "
            "written, which is no replacement"
        )
    return OffsetColumns(found["topic"], found["partition"], found["offset"])
