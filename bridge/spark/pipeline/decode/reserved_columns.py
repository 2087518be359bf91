"""The names of the columns that a pipeline adds to decoded rows.  Pure.

    _source_topic, _source_offset, …    the record's place, time and payloads, under names that no decoded column has
    topic, offset, …                    the same for SQL, unless a decoded column has that name
    _dead_stage, _dead_error            null: the row is good; else the stage that failed, and why
    _outcome                            what becomes of the row (``transform``)

No schema and no key of the file may have a name that begins with one of ``RESERVED_PREFIXES``.
"""

from __future__ import annotations

from bridge.spark.pipeline.pipeline_rules import SOURCE_COLUMNS

SOURCE_PREFIX = "_source_"
DEAD_STAGE = "_dead_stage"
DEAD_ERROR = "_dead_error"
OUTCOME = "_outcome"

RESERVED_PREFIXES = (SOURCE_PREFIX, "_dead_", OUTCOME)

PAYLOAD_COLUMNS = ("key", "value", "headers")
"""The columns of the source that are decoded; a dead letter has them as they were."""


def source_column(name: str) -> str:
    """The reserved name of a column of the source."""
    assert name in SOURCE_COLUMNS or name in PAYLOAD_COLUMNS, name
    return f"{SOURCE_PREFIX}{name}"


def is_reserved(name: str) -> bool:
    """Whether a decoded column must not have this name; Spark does not distinguish case."""
    return name.lower().startswith(RESERVED_PREFIXES)
