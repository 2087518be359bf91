"""The compiled modules that read records, or None: then the Python modules do the work.  Pure."""

from __future__ import annotations

from types import ModuleType

from zkconsumer import extensions

MODULE_NAME = "zkconsumer.wire._records"

RECORD_DECODER: ModuleType | None = extensions.load(MODULE_NAME)
"""``_records.c``: record sets to tables of rows."""

CONSUMER_RECORDS: ModuleType | None = extensions.load("zkconsumer.base._consumer_records")
"""``_consumer_records.c``: rows to ``ConsumerRecord`` objects."""
