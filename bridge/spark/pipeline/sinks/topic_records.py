"""The columns that become records of a topic, of rows and of dead letters; and the rows that no broker accepts.  Pure.

    rows           the columns of ``format("zkconsumer")``: value, key, headers, topic, partition, timestamp, source
    dead letters   value   JSON with all fields of the dead letter; bytes are base64, times ISO 8601 in UTC
                   key     TOPIC/PARTITION/OFFSET of the record: a dead letter that is sent again has the same key, so
                           compaction of the topic removes the older one
                   source  the same text, for the header zkconsumer.source
                   stage   for the header zkconsumer.stage

The SQL of ``row_rejections`` is about single rows.  A row is rejected if its record could be larger than the topic
accepts: by the upper bound that ``row_partitioning`` has, so no row that is kept is too large.  With compression the
size is known only when the record is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bridge.spark.pipeline.dead_letters import DEAD_LETTER_COLUMNS
from bridge.spark.pipeline.sinks.row_rejection import RowRejection
from bridge.spark.sink.sink_columns import (
    HEADERS,
    KEY,
    PARTITION,
    SINK_COLUMNS,
    SOURCE,
    STAGE,
    TOPIC,
    VALUE,
)
from zkconsumer.base.name_suggestions import did_you_mean

EXAMPLE = "to_json(struct(*)) AS value"
"""The expression for rows of which no column is the value of a record."""

COLUMNS_SHOWN_MAX = 12

RECORD_BYTES_LIMIT = 100 * 1024 * 1024
"""The largest record of all: the default of the brokers' ``socket.request.max.bytes``."""

OWN_HEADERS_BYTES = 500
"""An upper bound of the headers query, batch and source: names, lengths, an id, a number and the place of a record
(a topic has at most 249 characters)."""

RECORD_BYTES = 40 + 61
"""An upper bound of a record and its record set without the fields: ``RECORD_OVERHEAD_BYTES`` and
``RECORD_SET_OVERHEAD_BYTES`` of ``row_partitioning``."""

HEADER_BYTES = 10
"""``HEADER_OVERHEAD_BYTES`` of ``row_partitioning``."""

_PLACE = "concat_ws('/', `topic`, `partition`, `offset`)"
_JSON_OPTIONS = (
    "map('ignoreNullFields', 'false', 'timeZone', 'UTC', 'timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSXXX')"
)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What brokers say of a topic.  ``record_bytes_max``: ``max.message.bytes``; None: it is not known."""

    partitions: int
    record_bytes_max: int | None = None


def dead_letter_expressions() -> Mapping[str, str]:
    """Column of the record -> Spark SQL over the columns of dead letters."""
    fields = ", ".join(f"`{name}`" for name in DEAD_LETTER_COLUMNS)
    return {
        VALUE: f'to_json(struct({fields}), {_JSON_OPTIONS})',
        KEY: _PLACE,
        SOURCE: _PLACE,
        STAGE: "`stage`",
    }  # fmt: skip


def row_problems(columns: Mapping[str, str], names: list[str], topic: str | None) -> Iterator[str]:
    """Why rows cannot be written, one line each, in terms of the pipeline file.

    ``columns``: name -> type as Spark writes it (``simpleString``); ``names``: the names in their order.  ``topic``:
    the key of ``[sink]``.
    """
    if VALUE not in columns:
        shown = ", ".join(names[:COLUMNS_SHOWN_MAX]) + (", …" if len(names) > COLUMNS_SHOWN_MAX else "")
        yield (
            f"column value is missing: a record needs it, and [transform] select gives {shown}; name one of them "
            f'value (AS value), or write all of them as JSON: select = ["{EXAMPLE}"]'
        )
        return
    for name in names:
        types = SINK_COLUMNS.get(name)
        if types is None:
            yield (
                f"column {name}: a record has no such field{did_you_mean(name, SINK_COLUMNS)}; drop it from "
                f"[transform] select (fields: {', '.join(SINK_COLUMNS)}), or write all columns as JSON: "
                f'select = ["{EXAMPLE}"]'
            )
        elif columns[name] not in types:
            yield f"column {name}: is {columns[name]}, and must be {' or '.join(types)}; cast it in [transform] select"
    if topic is None and TOPIC not in columns:
        yield "the rows have no topic; set topic in this section, or give each row one: a column topic of [transform]"
    if topic is not None and TOPIC in columns:
        yield f'column topic: has no effect, since topic = "{topic}" is for all rows; remove one of them'


def row_rejections(
    columns: Mapping[str, str], topic: str | None, compression: str, facts: TopicFacts | None
) -> tuple[RowRejection, ...]:
    """The rows for which there is no record.  ``facts``: of ``topic``, or None if each row has its own."""
    return tuple(_rejections(columns, topic, compression, facts))


def _rejections(
    columns: Mapping[str, str], topic: str | None, compression: str, facts: TopicFacts | None
) -> Iterator[RowRejection]:
    if topic is None:
        yield RowRejection("`topic` IS NULL OR `topic` = ''", "the row has no topic")
    if PARTITION in columns:
        below = f" OR `partition` >= {facts.partitions}" if facts is not None else ""
        there = f"the topic has the partitions 0 to {facts.partitions - 1}" if facts is not None else "it is below 0"
        yield RowRejection(f"`partition` < 0{below}", f"the row has a partition that does not exist: {there}")
    if HEADERS in columns:
        condition = "exists(`headers`, each -> each IS NOT NULL AND each.key IS NULL)"
        yield RowRejection(condition, "a header of the row has no key")
    known = None if facts is None or compression != "none" else facts.record_bytes_max
    limit = min(known or RECORD_BYTES_LIMIT, RECORD_BYTES_LIMIT)
    where = "max.message.bytes of the topic" if known == limit else "the largest request"
    reason = f"the record is larger than {where}, {limit} bytes, or at most {RECORD_BYTES + OWN_HEADERS_BYTES} smaller"
    yield RowRejection(f"{_size(columns)} > {limit}", reason)


def _size(columns: Mapping[str, str]) -> str:
    """An upper bound of the bytes of a row's record set, as SQL."""
    parts = [str(RECORD_BYTES + OWN_HEADERS_BYTES)]
    parts += [f"coalesce(octet_length(`{name}`), 0)" for name in (VALUE, KEY, SOURCE) if name in columns]
    if HEADERS in columns:
        parts.append(
            "coalesce(aggregate(`headers`, 0, (sum, each) -> sum + coalesce(octet_length(each.key), 0) "
            f"+ coalesce(octet_length(each.value), 0) + {HEADER_BYTES}), 0)"
        )
    return " + ".join(parts)


def columns_of(schema: Any) -> dict[str, str]:
    """Name -> type as Spark writes it, of a ``StructType``."""
    return {field.name: field.dataType.simpleString() for field in schema.fields}
