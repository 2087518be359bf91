"""Parses a JSON object that users or programs of this project write: standard JSON without duplicate names.  Pure.

Data of other programs: ``zk/java_json.py`` parses a znode as the releases of the Scala consumer do.
"""

from __future__ import annotations

import json
from typing import Any

REASON_CHARS_MAX = 200


def read_json_object(text: str) -> dict[str, Any]:
    """Parse ``text``.  Raises ``ValueError`` that explains why it is not a valid JSON object."""
    try:
        found = json.loads(text, object_pairs_hook=_require_unique_names, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg} at character {error.pos})") from None
    except RecursionError:
        raise ValueError("it is not JSON (nested too deeply)") from None
    except ValueError as error:  # raised by the hooks, or by Python for a number with thousands of digits
        raise ValueError(str(error)[:REASON_CHARS_MAX]) from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def _require_unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("it contains a name twice")
    return members


def _reject_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
