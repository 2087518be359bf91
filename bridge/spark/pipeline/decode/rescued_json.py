"""``RescuedJsonDecoder``: decodes JSON onto a schema, and keeps what does not fit in a rescued column.  Pure.

    payload --json's scanner--> parsed record --fast, a column at a time--> columns                 (everything fits)
                        '-> a record with anything else --exactly, from its text--> columns, rescued fields

Spark's ``from_json`` has no such column, and decodes in the JVM; this decoder is for pipelines that ask for one.

A record is a dead letter if it is not UTF-8, not JSON (RFC 8259), no object, has NaN or Infinity outside of a string,
more than ``NESTING_MAX`` levels, or an integer of more than 4,300 digits.  Everything else fits, or is rescued: unknown
fields, and fields of the wrong type, with the text that the record has (large numbers, digits, blanks, escapes).  Of a
key that occurs twice the last good value is in the column, the others are rescued.

The coercions are those of ``from_json`` of Spark 4.3 in the mode PERMISSIVE (``JacksonParser``), with its defaults:

    column            JSON values that fit; null always fits
    boolean           true, false
    tinyint to bigint integers in range; no 1.0, no "1"
    float, double     numbers, also beyond the range (infinite); "NaN", "Infinity", "+Infinity", "-Infinity", "+INF",
                      "-INF"
    decimal(p, s)     numbers, and strings like "1,234.5", "+1", ".5", "1e3"; rounded half up to s; none with more than
                      p digits then
    string            strings; of every other value its JSON text without blanks, where a number with a point or an
                      exponent is written as Java does (1.10 -> 1.1, 1e7 -> 1.0E7)
    binary            base64 with padding (RFC 4648 4); blanks between groups of four characters
    date              "[+-]yyyy[-[m]m[-[d]d[T...]]]", or the days since 1970 as a string (see ``spark_time_text``)
    timestamp         "yyyy-mm-ddThh:mm:ss.ffffffZ" and shorter, with zones; integers are seconds
    timestamp_ntz     the same strings without a zone
    struct            objects; their unknown and mistyped fields are rescued, the others kept
    array             arrays; if an element does not fit at all, nothing of the array does
    map               objects with any keys, also twice; if a value does not fit at all, nothing of the map does

Differences from ``from_json``, where it changes or loses data without a sign: the whole record must be JSON (Spark
ignores what follows the object, and accepts NaN and single quotes); tinyint does not take 128 to 255 (Spark makes -128
to -1 of them); an integer that overflows as a time stamp is rescued (Spark wraps it around), and so are strings with
half a surrogate pair (Spark has "?"), infinite numbers in a string (Spark has "\\"Infinity\\""), times without a date,
and numbers of days before 1582.  An empty payload is a dead letter (Spark: null); Spark has 1,000 levels, and fails at
numbers of 1,000 digits.  A float is rounded to a double first, which differs from Spark where the double is exactly
between two floats.  With these options ``from_json`` accepts the same texts except the text after an object:
``allowSingleQuotes=false``, ``allowNonNumericNumbers=false`` (which also takes the strings "NaN" and "Infinity" away).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal, DecimalException
from typing import Any

import pyarrow as pa

from bridge.spark.pipeline.decode.json_coercions import (
    MISFIT,
    Members,
    StructField,
    refuse_constant,
    scan_exactly,
    struct_field,
)
from bridge.spark.pipeline.decode.payload_decoder import (
    DecodedColumns,
    PayloadSchemaError,
    decoded_columns,
    error_text,
    payload_list,
)
from bridge.spark.pipeline.decode.rescued_fields import RescuedField, field_path, json_string, rescued_text
from bridge.spark.pipeline.decode.spark_time_text import zone_of
from bridge.spark.pipeline.decode.text_columns import not_utf8

NESTING_MAX = 500
"""The most objects and arrays inside each other: the scanner of ``json`` recurses, and Python allows 1,000 calls."""

_BLANKS = " \t\n\r"
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_NO_FIELDS: dict[str, Any] = {}


class RepeatedKey(Exception):
    """An object has a key twice: a ``dict`` would lose a value."""


class RescuedJsonDecoder:
    """Decodes JSON objects; see the head of this module.  Can be pickled with its settings.

    ``schema``: the target schema; every field is nullable.  ``time_zone``: the time zone of the Spark session, for
    texts without one.  Raises ``PayloadSchemaError`` for types that are not supported, and an unknown time zone.
    """

    def __init__(self, schema: pa.Schema, *, time_zone: str = "UTC") -> None:
        zone = zone_of(time_zone)
        if zone is None:
            raise PayloadSchemaError(f"the session's time zone {time_zone!r} is not known here; install tzdata")
        self._schema = pa.schema([pa.field(field.name, field.type) for field in schema])
        self._time_zone = time_zone
        self._record: StructField = struct_field(list(schema), "", zone)
        self._names = frozenset(self._record.fields)
        self._scan = _fast_scanner(has_decimals=any(_has_decimal(field.type) for field in schema))

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._schema, self._time_zone)

    def __repr__(self) -> str:
        return f"RescuedJsonDecoder({self._schema.names}, time_zone={self._time_zone!r})"

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._schema

    def decode(self, payloads: pa.Array) -> DecodedColumns:
        """Decodes payloads; see ``PayloadDecoder``.  Raises nothing."""
        values = payload_list(payloads)
        texts: list[str] = [""] * len(values)
        errors: list[str | None] = [None] * len(values)
        rescued: list[str | None] = [None] * len(values)
        # The records of which all known fields may simply fit; an empty one for every other row.
        records: list[dict[str, Any]] = [_NO_FIELDS] * len(values)
        others: set[int] = set()
        scan, names = self._scan, self._names
        for row, value in enumerate(values):
            if value is None:
                continue
            try:
                texts[row] = text = value.decode("utf-8")
                record, end = scan(text, 0)
                if end != len(text) or type(record) is not dict or _may_be_deep(text):
                    others.add(row)
                elif names.issuperset(record):
                    records[row] = record
                elif (extra := _simple_extra(record, names, text)) is not None:
                    records[row], rescued[row] = record, extra
                else:
                    others.add(row)
            except UnicodeDecodeError as error:
                errors[row] = not_utf8(error)
            except (ValueError, StopIteration, RecursionError, RepeatedKey, DecimalException):
                others.add(row)  # the exact way finds the reason
        columns = self._fast_columns(records, others)
        self._convert_others(sorted(others), texts, columns, errors, rescued)
        return decoded_columns(self._schema, columns, [value is None for value in values], errors, rescued)

    def _fast_columns(self, records: list[dict[str, Any]], others: set[int]) -> list[list[Any]]:
        """The columns of the records; adds the rows to ``others`` that do not simply fit."""
        columns = []
        for name, field in self._record.fields.items():
            values = field.fast_column([record.get(name) for record in records])
            if any(value is MISFIT for value in values):
                others.update(row for row, value in enumerate(values) if value is MISFIT)
                values = [None if value is MISFIT else value for value in values]
            columns.append(values)
        return columns

    def _convert_others(
        self,
        others: list[int],
        texts: list[str],
        columns: list[list[Any]],
        errors: list[str | None],
        rescued: list[str | None],
    ) -> None:
        """Puts the exact values of these rows into the columns, and their texts into the rescued column."""
        for row in others:
            fields: list[RescuedField] = []
            found: dict[str, Any] = {}
            text = texts[row].strip(_BLANKS)
            problem = _problem_of(text)
            if problem:
                errors[row] = error_text(problem)
            else:
                found = self._record.convert_value(_ANY_MEMBERS, text, "", fields)
                rescued[row] = rescued_text(fields)
            for name, column in zip(self._record.fields, columns, strict=True):
                column[row] = found.get(name)


_NO_OBJECT = "the payload is JSON, and no object"
_ANY_MEMBERS = Members()
"""``StructField`` reads the members from the text; of the value it needs the type only."""


def _unpickled(schema: pa.Schema, time_zone: str) -> RescuedJsonDecoder:
    return RescuedJsonDecoder(schema, time_zone=time_zone)


def _fast_scanner(*, has_decimals: bool) -> Callable[[str, int], tuple[Any, int]]:
    """The scanner of ``json``: C, and no object of Python for each call as ``json.loads`` has.

    With decimals in the schema numbers keep their digits, which costs time.
    """
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique_keys, parse_constant=refuse_constant, parse_float=Decimal if has_decimals else None
    )
    scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once  # type: ignore[attr-defined]
    return scan


def _simple_extra(record: dict[str, Any], names: frozenset[str], text: str) -> str | None:
    """The rescued text of unknown fields whose text in the record is certain; None if it must be read from there.

    A string without escapes has one text, and an integer has one unless it is -0.
    """
    if "\\" in text:
        return None
    fields: list[RescuedField] = []
    for name, value in record.items():
        if name in names:
            continue
        if type(value) is str:
            shown = json_string(value)
        elif type(value) is int and (value or "-0" not in text):
            shown = str(value)
        elif value is None or type(value) is bool:
            shown = "null" if value is None else "true" if value else "false"
        else:
            return None
        fields.append((field_path("", name), shown))
    return rescued_text(fields)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise RepeatedKey
    return made


def _has_decimal(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_decimal(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _has_decimal(kind.value_type)
    return _has_decimal(kind.item_type) if pa.types.is_map(kind) else pa.types.is_decimal(kind)


def _problem_of(text: str) -> str:
    """Why the text is a dead letter; "" if it is a JSON object."""
    if _depth_of(text) > NESTING_MAX:
        return f"the payload has more than {NESTING_MAX} levels"
    try:
        value, end = scan_exactly(text, 0)
    except json.JSONDecodeError as error:
        return f"broken JSON: {error.msg} at character {error.pos}"
    except StopIteration as error:
        return f"broken JSON: no value at character {error.value}"
    except RecursionError:
        return "the payload has too many levels"
    except ValueError as error:
        return f"broken JSON: {error}"
    if end != len(text):
        return f"broken JSON: the value ends at character {end} of {len(text)}"
    return "" if type(value) is Members else _NO_OBJECT


def _may_be_deep(text: str) -> bool:
    return len(text) > NESTING_MAX and text.count("[") + text.count("{") > NESTING_MAX


def _depth_of(text: str) -> int:
    """The levels of objects and arrays; not exact where the text is not JSON."""
    if not _may_be_deep(text):
        return 0
    depth = deepest = 0
    for found in _BRACKETS.finditer(text):
        if found[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif found[0] in "]}":
            depth -= 1
    return deepest
