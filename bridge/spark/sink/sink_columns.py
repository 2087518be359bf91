"""The columns that the sink writes: those of Spark's own Kafka sink, and ``timestamp`` and ``source``.  Pure.

    value      binary or string      required; null is a tombstone
    key        binary or string      the partition depends on it
    headers    array<struct<key:string,value:binary>>
    topic      string                without the option ``topic``
    partition  int                   null: as without the column
    timestamp  timestamp             null: the time of writing
    source     string                the header ``zkconsumer.source``

Spark's own sink ignores other columns.  Here another column is an error, since it is more often a wrong name than a
column that is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkconsumer.base.name_suggestions import did_you_mean
from zkconsumer.errors import InvalidConfigException

VALUE = "value"
KEY = "key"
HEADERS = "headers"
TOPIC = "topic"
PARTITION = "partition"
TIMESTAMP = "timestamp"
SOURCE = "source"
STAGE = "stage"
"""Of a dead letter of a pipeline: the header ``zkconsumer.stage``.  Rows of users do not have it."""

SINK_COLUMNS: Mapping[str, tuple[str, ...]] = {
    VALUE: ("binary", "string"),
    KEY: ("binary", "string"),
    HEADERS: ("array<struct<key:string,value:binary>>",),
    TOPIC: ("string",),
    PARTITION: ("int",),
    TIMESTAMP: ("timestamp",),
    SOURCE: ("string",),
}
"""Column -> the types that it may have, as Spark writes them (``simpleString``)."""


def check_sink_columns(schema: Any, topic: str | None) -> None:
    """Checks the columns of the rows, a ``StructType``; ``topic``: the option.

    Raises ``InvalidConfigException`` with a line for each problem.
    """
    problems = []
    names = schema.fieldNames()
    for field in schema.fields:
        problem = _problem_of(field.name, field.dataType.simpleString())
        if problem:
            problems.append(problem)
    problems += [f"{name}: occurs twice; name each column once" for name in SINK_COLUMNS if names.count(name) > 1]
    if VALUE not in names:
        problems.append("value: is missing; select the column that has the value of the records, as value")
    if TOPIC not in names and topic is None:
        problems.append("topic: is missing; set the option topic, or select the topic of each row as topic")
    if problems:
        head = 'the query must select the columns that format("zkconsumer") writes:'
        raise InvalidConfigException("\n  ".join([head, *problems]))


def _problem_of(name: str, type_: str) -> str:
    types = SINK_COLUMNS.get(name)
    if types is None:
        there = ", ".join(SINK_COLUMNS)
        return f"{name}: is not written{did_you_mean(name, SINK_COLUMNS)}; drop it from the query (columns: {there})"
    if type_ not in types:
        return f"{name}: is {type_}, and must be {' or '.join(types)}; cast it in the query"
    return ""
