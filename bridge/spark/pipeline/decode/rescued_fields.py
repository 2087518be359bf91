"""The text of the rescued column: what a record has and the pipeline's schema has not.  Pure.

One JSON object: the path of a field -> its value.  A path is written like a column of Spark SQL: ``a.b`` is the field
``b`` of the struct ``a``, ``a[2].b`` that of the third element of an array, and the value of a map has its key as name.
A name with other characters than letters, digits and ``_`` is quoted in back-ticks.  A path may occur twice, when the
record has a key twice: no value is lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TypeAlias

_AS_IT_IS = json.JSONEncoder(ensure_ascii=False)
_PLAIN_NAME = re.compile(r"\w+", re.ASCII)

RescuedField: TypeAlias = tuple[str, str]
"""A path, and the JSON text of its value."""


def field_path(parent: str, name: str) -> str:
    """The path of the field ``name`` of the object at ``parent``; "" is the record itself."""
    shown = name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"
    return f"{parent}.{shown}" if parent else shown


def element_path(parent: str, index: int) -> str:
    """The path of an element of the array at ``parent``."""
    return f"{parent}[{index}]"


def json_string(text: str) -> str:
    """The text as a JSON string; half a surrogate pair, which UTF-8 cannot encode, as an escape."""
    shown = _AS_IT_IS.encode(text)
    return shown if _is_encodable(shown) else json.dumps(text)


def rescued_text(fields: Sequence[RescuedField]) -> str | None:
    """The text of the rescued column for one record; None if nothing was rescued."""
    return "{" + ",".join(f"{json_string(path)}:{value}" for path, value in fields) + "}" if fields else None


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
