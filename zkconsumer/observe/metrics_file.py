"""Metrics as a JSON file, written atomically: a reader finds the last complete dump."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_metrics(path: Path, metrics: Mapping[str, Any]) -> None:
    """Write ``connector.metrics()`` to a temporary file, then rename it to ``path``.  Raises ``OSError``."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(metrics, file, indent=1, sort_keys=True)
            file.write("\n")
        Path(name).chmod(0o644)  # mkstemp permits only our user to read it
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
