"""Nothing that is unknown is shown as empty, zero or absent.

A command either shows what it shows when everything works, or it ends with an error.  With an error it may omit a row.
Where it shows a value that differs from the one before, the value is ``?`` or contains "not known" (null in JSON).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.commands.in_memory_cluster import Outcome

EMPTY = {"0", "-", "none", "None", "[]", ""}
CAUSED = ("no broker", "one of two brokers away", "ZooKeeper away", "unknown host", "no right")
"""Situations in which something is unknown; a group or topic that does not exist is known to be absent."""

FREE = {"exit_code", "next_steps", "at_ms", "not_known", "unknown", "error", "steps", "blocked_by", "warnings",
        "made_at_ms", "migration_id", "digest", "findings", "total_known", "partitions_not_known", "can_be_applied",
        "refusals", "refusal", "rejection_reason", "reason", "retention_ms", "release", "why", "remark"}  # fmt: skip
"""Fields that may differ because of the failure: reasons, counts of what is not known, and advice."""


def wrongs(situation: str, well: Outcome, seen: Outcome) -> Iterator[str]:
    """What is wrong with a cell, as text."""
    if situation not in CAUSED:
        return
    if seen.stdout == well.stdout and seen.exit_code == well.exit_code:
        return
    if not (seen.exit_code and seen.errors):
        yield f"it shows something else than when all is well, and ends with {seen.exit_code} and no error"
    if well.document is not None and seen.document is not None:
        yield from (f"{place} is shown as empty" for place in _emptied(well.document, seen.document, ""))
    elif well.document is None:
        yield from (f"{line!r} has a value that is empty" for line in _emptied_lines(well.stdout, seen.stdout))


def _emptied(well: Any, seen: Any, place: str) -> Iterator[str]:
    """Where a document has nothing, and the other one something; null is no value."""
    if isinstance(well, dict) and isinstance(seen, dict):
        for key, value in well.items():
            if key not in FREE and seen.get(key) is not None:
                yield from _emptied(value, seen[key], f"{place}.{key}")
    elif isinstance(well, list) and isinstance(seen, list):
        if len(well) == len(seen):
            for number, (one, other) in enumerate(zip(well, seen, strict=True)):
                yield from _emptied(one, other, f"{place}[{number}]")
        elif not seen and place != ".groups":
            yield place
    elif well not in (None, False, 0, "") and seen in (False, 0, "", []):
        yield place


def _emptied_lines(well: str, seen: str) -> Iterator[str]:
    """Lines of a table, or facts, that begin as one of before does, with an empty value in the place of another."""
    before = {_key(line): _values(line) for line in well.splitlines()}
    for line in seen.splitlines():
        expected = before.get(_key(line))
        values = _values(line)
        if expected is None or len(expected) != len(values):
            continue
        if any(now in EMPTY and was not in EMPTY for was, now in zip(expected, values, strict=True)):
            yield line


def _key(line: str) -> str:
    name, colon, _ = line.partition(": ")
    return name if colon else " ".join(line.split()[:3])


def _values(line: str) -> list[str]:
    _, colon, value = line.partition(": ")
    return [value] if colon else line.split()[3:]
