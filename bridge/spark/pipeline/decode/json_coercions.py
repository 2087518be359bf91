"""``JsonField``: how a JSON value becomes a value of an Arrow type, for each type.  Pure.

Each field has two ways.  ``fast`` takes what ``json`` parsed, and gives ``MISFIT`` for everything that is not simply
right.  ``convert`` takes the value with its JSON text, gives what fits, and adds the rest to the rescued fields; it
gives ``MISFIT`` if nothing fits.  Where ``fast`` gives a value, ``convert`` gives the same one and rescues nothing.

The coercions are in the head of ``rescued_json``.
"""

from __future__ import annotations

import base64
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from math import isfinite
from typing import Any, NoReturn

import pyarrow as pa

from bridge.spark.pipeline.decode.payload_decoder import PayloadSchemaError
from bridge.spark.pipeline.decode.rescued_fields import RescuedField, element_path, field_path
from bridge.spark.pipeline.decode.spark_time_text import parse_date, parse_local_timestamp, parse_timestamp

MISFIT = object()
"""The value does not fit the type."""

_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_NUMBERS_IN_TEXT = {
    "NaN": float("nan"), "Infinity": float("inf"), "+Infinity": float("inf"), "+INF": float("inf"),
    "-Infinity": float("-inf"), "-INF": float("-inf"),
}  # fmt: skip
_BLANKS_OF_JSON = re.compile(r"[ \t\n\r]*")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_EXPONENT_MAX = 2**31 - 1
_BASE64 = re.compile(
    r"(?:[\x00-\x20]*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==))*[\x00-\x20]*", re.ASCII
)
_BASE64_PART = re.compile(r"[^=\x00-\x20]+=*")
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Members(list[tuple[str, Any]]):
    """A JSON object as it is written: its keys in their order, also those that occur twice."""


def refuse_constant(name: str) -> NoReturn:
    """For NaN, Infinity and -Infinity outside of strings, which JSON does not have."""
    raise ValueError(f"{name} is no JSON")


_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(
    object_pairs_hook=Members, parse_constant=refuse_constant
).scan_once  # type: ignore[attr-defined]  # the attribute is documented in the source of json only


def scan_exactly(text: str, start: int) -> tuple[Any, int]:
    """The value that begins at ``start``, with ``Members`` for objects, and where it ends.

    Raises ``ValueError``, ``StopIteration`` and ``RecursionError``, as the scanner of ``json``.
    """
    return _scan(text, start)


def members_of(text: str) -> Iterator[tuple[str, Any, str]]:
    """The key, the value and the value's text of each member of an object; ``text`` is its valid JSON text."""
    at = _blanks_end(text, 1)
    while text[at] != "}":
        key, at = _scan(text, at)
        at = _blanks_end(text, _blanks_end(text, at) + 1)  # after the colon
        value, end = _scan(text, at)
        yield key, value, text[at:end]
        at = _blanks_end(text, end)
        if text[at] == ",":
            at = _blanks_end(text, at + 1)


def elements_of(text: str) -> Iterator[tuple[Any, str]]:
    """The value and the text of each element of an array; ``text`` is its valid JSON text."""
    at = _blanks_end(text, 1)
    while text[at] != "]":
        value, end = _scan(text, at)
        yield value, text[at:end]
        at = _blanks_end(text, end)
        if text[at] == ",":
            at = _blanks_end(text, at + 1)


def _blanks_end(text: str, start: int) -> int:
    found = _BLANKS_OF_JSON.match(text, start)
    assert found is not None, "the pattern matches the empty text"
    return found.end()


class JsonField(ABC):
    """A type of the target schema.  Values that are null never reach ``fast_value`` and ``convert_value``."""

    plain: frozenset[type] = frozenset()
    """The types of parsed values that are right as they are, apart from ``fast_column``'s checks."""

    def fast(self, value: Any) -> Any:
        """The value for Arrow of a parsed value, or ``MISFIT``."""
        return None if value is None else self.fast_value(value)

    def fast_column(self, values: list[Any]) -> list[Any]:
        """``fast`` for a column; a list with ``MISFIT`` where a value does not simply fit."""
        return [None if value is None else self.fast_value(value) for value in values]

    def convert(self, value: Any, text: str, path: str, rescued: list[RescuedField]) -> Any:
        """The value for Arrow, or ``MISFIT``, of a value from ``scan_exactly`` and its JSON text."""
        return None if value is None else self.convert_value(value, text, path, rescued)

    @abstractmethod
    def fast_value(self, value: Any) -> Any:
        """See ``fast``."""

    @abstractmethod
    def convert_value(self, value: Any, text: str, path: str, rescued: list[RescuedField]) -> Any:
        """See ``convert``."""

    def _are_plain(self, values: list[Any]) -> bool:
        return set(map(type, values)) <= self.plain | {type(None)}


class BooleanField(JsonField):
    plain = frozenset({bool})

    def fast_column(self, values: list[Any]) -> list[Any]:
        return values if self._are_plain(values) else super().fast_column(values)

    def fast_value(self, value: Any) -> Any:
        return value if type(value) is bool else MISFIT

    def convert_value(self, value: Any, text: str, path: str, rescued: list[RescuedField]) -> Any:
        return self.fast_value(value)


class IntegerField(JsonField):
    """An integer of ``bits`` bits."""

    plain = frozenset({int})

    def __init__(self, bits: int) -> None:
        self._low, self._high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def fast_column(self, values: list[Any]) -> list[Any]:
        if self._are_plain(values):
            numbers = [value for value in values if value is not None]
            if not numbers or (min(numbers) >= self._low and max(numbers) <= self._high):
                return values
        return super().fast_column(values)

    def fast_value(self, value: Any) -> Any:
        return value if type(value) is int and self._low <= value <= self._high else MISFIT

    def convert_value(self, value: Any, text: str, path: str, rescued: list[RescuedField]) -> Any:
        return self.fast_value(value)


class FloatField(JsonField):
    """A float or a double."""

    plain = frozenset({float})

    def fast_column(self, values: list[Any]) -> list[Any]:
        return values if self._are_plain(values) else super().fast_column(values)

    def fast_value(self, value: Any) -> Any:
        if type(value) is float:
            return value
        if type(value) is int or type(value) is Decimal:
            try:
                return float(value)
            except OverflowError:
                return MISFIT
        return MISFIT

    def convert_value(self, value: Any, text: str, path: str, rescued: list[RescuedField]) -> Any:
        if type(value) is str:
            return _NUMBERS_IN_TEXT.get(value, MISFIT)
        if type(value) is int:
            try:
                return float(value)
            except OverflowError:
                return float(text)  # infinite, with the sign
        return value if type(value) is float else MISFIT


class StringField(JsonField):
    plain = frozenset({str})

    def fast_column(self, values: list[Any]) -> list[Any]:
        if self._are_plain(values) and is_unicode("".join(value for value in values if value is not None)):
            return values
        return super().fast_column(values)

    def fast_value(self, value: Any) -> Any:
        return value if type(value) is str and is_unicode(value) else MISFIT

    def convert_value(self, value: Any, text: str, path: str, rescued: list[RescuedField]) -> Any:
        found = value if type(value) is str else _jackson_text(value)
        return found if found is not MISFIT and is_unicode(found) else MISFIT


class ConvertedText(JsonField):
    """A type that JSON has as strings: ``parse`` gives the value for Arrow, or None for another text."""

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self._parse = parse

    def fast_value(self, value: Any) -> Any:
        found = self._parse(value) if type(value) is str else None
        return MISFIT if found is None else found

    def convert_value(self, value: Any, text: str, path: str, rescued: list[RescuedField]) -> Any:
        return self.fast_value(value)


class TimestampField(ConvertedText):
    """A time stamp in UTC: a text, or a number of seconds."""

    def __init__(self, zone: tzinfo) -> None:
        super().__init__(lambda text: parse_timestamp(text, zone))

    def fast_value(self, value: Any) -> Any:
        if type(value) is int:
            micros = value * 1_000_000
            return micros if _LONG_MIN <= micros <= _LONG_MAX else MISFIT
        return super().fast_value(value)


class DecimalField(JsonField):
    """A decimal; rounds half up to its scale, as Spark does."""

    def __init__(self, precision: int, scale: int) -> None:
        self._precision, self._scale = precision, scale
        self._step = Decimal((0, (1,), -scale))

    def fast_value(self, value: Any) -> Any:
        if type(value) is Decimal:
            return self._rounded(value)
        if type(value) is int:
            return self._rounded(Decimal(value))
        return self._of_text(value.replace(",", "")) if type(value) is str else MISFIT

    def convert_value(self, value: Any, text: str, path: str, rescued: list[RescuedField]) -> Any:
        if type(value) is str:
            return self._of_text(value.replace(",", ""))
        return self._of_text(text) if type(value) in (int, float) else MISFIT

    def _of_text(self, text: str) -> Any:
        if not _DECIMAL.fullmatch(text):
            return MISFIT
        try:
            return self._rounded(Decimal(text))
        except (DecimalException, ValueError):
            return MISFIT

    def _rounded(self, number: Decimal) -> Any:
        if not number:
            return Decimal((0, (0,), -self._scale))
        magnitude = number.adjusted()
        if abs(magnitude) > _EXPONENT_MAX or magnitude >= self._precision - self._scale:
            return MISFIT
        if magnitude < -self._scale - 1:
            return Decimal((0, (0,), -self._scale))
        digits = max(magnitude + self._scale + 2, 1)
        rounded = number.quantize(self._step, ROUND_HALF_UP, Context(prec=digits))
        return MISFIT if rounded.adjusted() >= self._precision - self._scale and rounded else rounded


class StructField(JsonField):
    """A struct.  Unknown and mistyped fields are rescued, the others kept."""

    def __init__(self, fields: dict[str, JsonField]) -> None:
        self.fields = fields
        self._names = frozenset(fields)

    def fast_value(self, value: Any) -> Any:
        if type(value) is not dict or not self._names.issuperset(value):
            return MISFIT
        made = {}
        for name, one in value.items():
            found = self.fields[name].fast(one)
            if found is MISFIT:
                return MISFIT
            made[name] = found
        return made

    def convert_value(self, value: Any, text: str, path: str, rescued: list[RescuedField]) -> Any:
        """The last good value of a key counts, as in Spark; the others are rescued."""
        if type(value) is not Members:
            return MISFIT
        made: dict[str, Any] = {}
        # What the value of a key adds to the rescued fields, and its text: a later good value rescues it as a whole.
        kept: dict[str, tuple[int, list[RescuedField], str]] = {}
        parts: list[list[RescuedField]] = []
        for name, one, its_text in members_of(text):
            field = self.fields.get(name)
            its_path = field_path(path, name)
            added: list[RescuedField] = []
            found = MISFIT if field is None else field.convert(one, its_text, its_path, added)
            if found is MISFIT:
                parts.append([(its_path, its_text)])
                continue
            if name in kept:
                place, _, earlier_text = kept[name]
                parts[place] = [(its_path, earlier_text)]
            made[name] = found
            kept[name] = (len(parts), added, its_text)
            parts.append(added)
        for part in parts:
            rescued.extend(part)
        return made


class ListField(JsonField):
    """An array; one element that does not fit at all makes the whole array unfit, as in Spark."""

    def __init__(self, element: JsonField) -> None:
        self._element = element

    def fast_value(self, value: Any) -> Any:
        if type(value) is not list:
            return MISFIT
        found = [self._element.fast(each) for each in value]
        return MISFIT if _has_misfit(found) else found

    def convert_value(self, value: Any, text: str, path: str, rescued: list[RescuedField]) -> Any:
        if type(value) is not list:
            return MISFIT
        added: list[RescuedField] = []
        made = []
        for index, (one, its_text) in enumerate(elements_of(text)):
            found = self._element.convert(one, its_text, element_path(path, index), added)
            if found is MISFIT:
                return MISFIT
            made.append(found)
        rescued.extend(added)
        return made


class MapField(JsonField):
    """A map with string keys; one value that does not fit at all makes the whole map unfit, as in Spark.

    A key that occurs twice is twice in the map, as in Spark.
    """

    def __init__(self, value: JsonField) -> None:
        self._value = value

    def fast_value(self, value: Any) -> Any:
        if type(value) is not dict or not all(map(is_unicode, value)):
            return MISFIT
        found = [self._value.fast(each) for each in value.values()]
        return MISFIT if _has_misfit(found) else list(zip(value, found, strict=True))

    def convert_value(self, value: Any, text: str, path: str, rescued: list[RescuedField]) -> Any:
        if type(value) is not Members:
            return MISFIT
        added: list[RescuedField] = []
        made = []
        for key, one, its_text in members_of(text):
            found = self._value.convert(one, its_text, field_path(path, key), added)
            if found is MISFIT or not is_unicode(key):
                return MISFIT
            made.append((key, found))
        rescued.extend(added)
        return made


def json_field(kind: pa.DataType, path: str, zone: tzinfo) -> JsonField:
    """The conversion to an Arrow type.  Raises ``PayloadSchemaError`` for a type that is not supported."""
    types = pa.types
    if types.is_struct(kind):
        return struct_field(list(kind), path, zone)
    if types.is_list(kind):
        return ListField(json_field(kind.value_type, f"{path}[]", zone))
    if types.is_map(kind) and types.is_string(kind.key_type):
        return MapField(json_field(kind.item_type, f"{path}[]", zone))
    if types.is_timestamp(kind) and kind.unit == "us":
        return ConvertedText(parse_local_timestamp) if kind.tz is None else TimestampField(zone)
    if types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return DecimalField(kind.precision, kind.scale)
    made = _SIMPLE.get(str(kind))
    if made is None:
        raise PayloadSchemaError(
            f"field {path}: the type {kind} is not supported with a rescued column; use one of struct, array, map with "
            "string keys, string, binary, boolean, tinyint, smallint, int, bigint, float, double, decimal, date, "
            "timestamp and timestamp_ntz"
        )
    return made()


def struct_field(fields: list[pa.Field], path: str, zone: tzinfo) -> StructField:
    """The conversion to a struct of these fields.  Raises ``PayloadSchemaError``."""
    names = [field.name for field in fields]
    if not names or len(set(names)) < len(names):
        where = f"the struct {path}" if path else "the schema"
        raise PayloadSchemaError(f"{where} has no fields, or two with the same name; correct it")
    return StructField({each.name: json_field(each.type, field_path(path, each.name), zone) for each in fields})


_SIMPLE: dict[str, Callable[[], JsonField]] = {
    "bool": BooleanField,
    "int8": lambda: IntegerField(8),
    "int16": lambda: IntegerField(16),
    "int32": lambda: IntegerField(32),
    "int64": lambda: IntegerField(64),
    "float": FloatField,
    "double": FloatField,
    "string": StringField,
    "binary": lambda: ConvertedText(_base64),
    "date32[day]": lambda: ConvertedText(parse_date),
}


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode the text: half a surrogate pair can be written in JSON, and is no text."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _has_misfit(values: list[Any]) -> bool:
    return any(value is MISFIT for value in values)


def _base64(text: str) -> bytes | None:
    """As Jackson's MIME variant without line feeds: padding is required, blanks are allowed between groups of four."""
    if not _BASE64.fullmatch(text):
        return None
    return b"".join(base64.b64decode(part) for part in _BASE64_PART.findall(text))


def _jackson_text(value: Any) -> Any:
    """The JSON text that Jackson writes of a value, without blanks; ``MISFIT`` with a number that is infinite."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return java_double(value) if isfinite(value) else MISFIT
        case str():
            return f'"{_ESCAPED.sub(_escape, value)}"'
        case Members():
            values = [_jackson_text(each) for _, each in value]
            keys = [f'"{_ESCAPED.sub(_escape, key)}"' for key, _ in value]
            pairs = (f"{key}:{each}" for key, each in zip(keys, values, strict=True))
            return MISFIT if _has_misfit(values) else "{" + ",".join(pairs) + "}"
        case _:
            values = [_jackson_text(each) for each in value]
            return MISFIT if _has_misfit(values) else "[" + ",".join(values) + "]"


def _escape(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[0]) or f"\\u{ord(found[0]):04X}"


def java_double(value: float) -> str:
    """The text of ``Double.toString`` (from Java 19 on the shortest one, as here) of a finite number."""
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int), "the number is finite"
    shown = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + exponent if value else 1
    minus = "-" if sign else ""
    if value and not -3 < point <= 7:
        return f"{minus}{shown[0]}.{shown[1:] or '0'}E{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{shown}"
    whole = shown.ljust(point, "0")
    return f"{minus}{whole[:point]}.{whole[point:] or '0'}"
