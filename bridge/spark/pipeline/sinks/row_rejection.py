"""``RowRejection``: rows that a sink cannot store, found before they are written.  Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowRejection:
    """``condition``: Spark SQL over the columns of the rows, null or true or false; ``reason``: a text for the dead
    letter.  A row that is written although the condition is true makes the write fail."""

    condition: str
    reason: str
