"""The columns of dead letters: records that could not be read, decoded, transformed or written, and why.  Pure.

A dead letter has the whole record.  The batch writer makes a frame of these columns and writes it to a sink of its own
before the rows of the same batch are committed; each attempt of the batch makes the same dead letters.

The rule about two drivers.  The sink of dead letters has the key (query id, batch id) of a batch before the sink of
rows has it, also if the batch has no dead letters.  Only the first attempt takes the key.  A later one, of a driver
that was stopped and continues while its successor went on, or of the successor:

    has passed over other corrupt offsets    ends with an error, and commits nothing: neither dead letters nor rows
    has another number of dead letters       the same: a record would be both, a row and a dead letter, or neither
    else                                     commits no dead letters; its rows are committed if the batch is not there

An attempt that begins after the commit of the dead letters follows them: see ``batch_writer``.

It holds where the commit of a batch is create-if-absent: parquet, PostgreSQL, Delta.  A topic has no such step: dead
letters that a late driver has begun to send are in the topic twice, or beside the rows of its successor; its lineage is
taken once, as in the others.
"""

from __future__ import annotations

from collections.abc import Mapping

STAGES = ("fetch", "decode", "transform", "sink")
"""Where a record failed."""

DEAD_LETTER_COLUMNS: Mapping[str, str] = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "stage": "string",
    "error": "string",
    "time": "timestamp",
    "query": "string",
    "batch": "bigint",
}
"""Name -> type of Spark SQL.

``topic`` to ``headers``: as in the source; null where the record could not be read.  ``offset``: with stage ``fetch``
the first offset of those that were passed over.  ``stage``: one of ``STAGES``.  ``time``: when the batch was written.
"""

DEAD_LETTER_SCHEMA = ", ".join(f"`{name}` {type_}" for name, type_ in DEAD_LETTER_COLUMNS.items())
"""The columns as DDL, for ``createDataFrame`` and ``StructType.fromDDL``."""

MESSAGE_TIME = "timestamp"
"""The column with the time of the message, for sinks with folders of time."""
