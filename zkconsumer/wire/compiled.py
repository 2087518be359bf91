"""The compiled record decoder (``_records.c``), or None: then the Python modules of this folder do the work.  Pure."""

from __future__ import annotations

from types import ModuleType

from zkconsumer import extensions

MODULE_NAME = "zkconsumer.wire._records"

RECORD_DECODER: ModuleType | None = extensions.load(MODULE_NAME)
