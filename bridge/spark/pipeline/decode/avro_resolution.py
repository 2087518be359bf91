"""Resolves a writer's Avro schema onto the pipeline's, as "Schema Resolution" of the specification of Avro 1.12.  Pure.

    payload --fastavro, physical_schema(writer)--> raw record --RecordResolution--> values of the pipeline's columns
                                                                              '---> rescued fields

``fastavro`` reads by the physical schema: the writer's, with the same bytes, in a form that shows more.  Logical types
are removed (a raw time stamp is a number, out of range or not); an enum is the number of its symbol; a branch of a
union of several types is a record with one field, whose name shows which branch it is.

Rules, where the specification leaves a choice or where Java differs:

- Names of records are not compared, as in Java: the pipeline's schema has a name of its own.  Enums and fixed must have
  the same name without its namespace, or an alias.
- A field of the writer that the pipeline's schema lacks is rescued, in nested records as well.
- Logical types are compared, which the specification asks for decimals only: Java reads a decimal with another scale,
  or milliseconds as microseconds, without an error.  Here units are converted, and what has another meaning (a date as
  a time stamp, another scale) is not resolved.  A writer's type without a logical type is read as the pipeline's.
- A union of the writer is resolved if one of its branches can be; a value of another branch is an error of its record.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any, TypeAlias

from bridge.spark.pipeline.decode.avro_types import (
    NO_DEFAULT,
    AvroField,
    AvroType,
    is_nullable,
    single_branch,
)
from bridge.spark.pipeline.decode.payload_decoder import PayloadSchemaError
from bridge.spark.pipeline.decode.rescued_fields import RescuedField, element_path, field_path, json_string

Convert: TypeAlias = Callable[[Any, str, list[RescuedField]], Any]
"""Gives the value for a column of a raw value; gets its path, and adds what is rescued.  Raises ``AvroValueError``."""

_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_DAY_US = 86_400_000_000

_PROMOTIONS = {
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "double": {"double"},
    "string": {"string", "bytes"},
    "bytes": {"bytes", "string"},
    "boolean": {"boolean"},
    "null": {"null"},
}
"""The writer's primitive type -> the pipeline's types that it can be read as."""

DECIMAL_BYTES_MAX = 1_000
"""Longer decimals are rescued as base64: Python limits the digits of a number that it writes (4,300)."""

_UNITS_NS = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}


class AvroUnresolvable(ValueError):
    """The writer's schema cannot be resolved onto the pipeline's; the text explains which field, and why."""


class AvroValueError(ValueError):
    """A value cannot be resolved, although its schema can: a branch, a symbol, a number out of range."""


@dataclass(frozen=True, slots=True)
class FieldSource:
    """Where the value of a field of the pipeline's schema is.

    ``writer_name``: the writer's field; None: every record has ``default``.  ``convert`` None: the raw value is right.
    """

    name: str
    writer_name: str | None
    convert: Convert | None
    default: Any = None


@dataclass(frozen=True, slots=True)
class RecordResolution:
    """How a writer's record is read.  ``sources``: for each field of the pipeline's schema, in its order.  ``extra``:
    the writer's fields that are rescued."""

    sources: tuple[FieldSource, ...]
    extra: tuple[AvroField, ...]

    @property
    def is_identity(self) -> bool:
        """Whether every raw value is right as it is."""
        return not self.extra and all(one.writer_name == one.name and one.convert is None for one in self.sources)

    def rescue(self, raw: dict[str, Any], path: str, rescued: list[RescuedField]) -> None:
        """Adds the fields of a raw record that the pipeline's schema lacks."""
        rescued.extend((field_path(path, each.name), raw_json(each.kind, raw[each.name])) for each in self.extra)


def resolve_record(writer: AvroType, reader: AvroType, *, rescues: bool, path: str = "") -> RecordResolution:
    """Resolves a writer's record onto the pipeline's.  Without ``rescues`` unknown fields are passed over.

    Raises ``AvroUnresolvable``.
    """
    if writer.type != "record":
        raise AvroUnresolvable(f"{_at(path)}the writer's type is {writer}, and the pipeline's is {reader}")
    by_name = {field.name: field for field in writer.fields}
    sources: list[FieldSource] = []
    used: set[str] = set()
    for field in reader.fields:
        inner = field_path(path, field.name)
        found = next((by_name[name] for name in (field.name, *field.aliases) if name in by_name), None)
        if found is not None:
            used.add(found.name)
            sources.append(FieldSource(field.name, found.name, resolve(found.kind, field.kind, inner, rescues=rescues)))
        elif field.default is NO_DEFAULT:
            raise AvroUnresolvable(f"{_at(inner)}the writer's schema lacks it, and it has no default")
        else:
            sources.append(FieldSource(field.name, None, None, default_of(field, path)))
    extra = tuple(field for field in writer.fields if field.name not in used) if rescues else ()
    return RecordResolution(tuple(sources), extra)


def resolve(writer: AvroType, reader: AvroType, path: str, *, rescues: bool) -> Convert | None:
    """How a raw value of the writer's type is read as the pipeline's; None: as it is.  Raises ``AvroUnresolvable``."""
    if writer.type == "union":
        return _resolve_writer_union(writer, reader, path, rescues)
    if reader.type == "union":
        if writer.type == "null" and is_nullable(reader):
            return None
        return resolve(writer, single_branch(reader, path), path, rescues=rescues)
    match writer.type, reader.type:
        case "record", "record":
            return _convert_record(resolve_record(writer, reader, rescues=rescues, path=path))
        case ("array", "array") | ("map", "map"):
            assert writer.items is not None, "an array and a map have items"
            assert reader.items is not None, "an array and a map have items"
            inner = resolve(writer.items, reader.items, f"{path}[]", rescues=rescues)
            if inner is None:
                return None
            return _convert_array(inner) if writer.type == "array" else _convert_map(inner)
        case ("enum", "enum") if _same_name(writer, reader):
            return _convert_enum(writer, reader, path)
        case ("fixed", "fixed") if _same_name(writer, reader) and writer.size == reader.size:
            return _convert_logical(writer, reader, path)
        case _ if reader.type in _PROMOTIONS.get(writer.type, ()):
            return _convert_logical(writer, reader, path) or _promote(writer.type, reader.type, path)
        case _:
            raise AvroUnresolvable(f"{_at(path)}the writer's type is {writer}, and the pipeline's is {reader}")


def _resolve_writer_union(writer: AvroType, reader: AvroType, path: str, rescues: bool) -> Convert | None:
    has_null, takes_null = is_nullable(writer), is_nullable(reader)
    reasons: list[str] = []
    converts: dict[str, Convert | None] = {}
    refused: dict[str, str] = {}
    for name, branch in _value_branches(writer):
        try:
            converts[name] = resolve(branch, reader, path, rescues=rescues)
        except AvroUnresolvable as error:
            reasons.append(str(error))
            refused[name] = str(error)
    if not converts and not (has_null and takes_null):
        raise AvroUnresolvable("; ".join(reasons) or f"{_at(path)}the writer's type is null, the pipeline's {reader}")
    is_wrapped = _is_wrapped(writer)
    if not is_wrapped and not refused and (takes_null or not has_null) and not any(converts.values()):
        return None

    def convert(value: Any, at: str, rescued: list[RescuedField]) -> Any:
        if value is None:
            if takes_null:
                return None
            raise AvroValueError(f"{_at(path)}it is null, and the pipeline's type is {reader}")
        name = next(iter(value)) if is_wrapped else next(iter(converts or refused))
        if name in refused:
            raise AvroValueError(refused[name])
        inner = converts[name]
        bare = value[name] if is_wrapped else value
        return bare if inner is None else inner(bare, at, rescued)

    return convert


def _convert_record(resolution: RecordResolution) -> Convert | None:
    if resolution.is_identity:
        return None

    def convert(value: Any, at: str, rescued: list[RescuedField]) -> Any:
        made: dict[str, Any] = {}
        for source in resolution.sources:
            if source.writer_name is None:
                made[source.name] = source.default
            elif source.convert is None:
                made[source.name] = value[source.writer_name]
            else:
                made[source.name] = source.convert(value[source.writer_name], field_path(at, source.name), rescued)
        resolution.rescue(value, at, rescued)
        return made

    return convert


def _convert_array(inner: Convert) -> Convert:
    def convert(value: Any, at: str, rescued: list[RescuedField]) -> Any:
        return [inner(each, element_path(at, index), rescued) for index, each in enumerate(value)]

    return convert


def _convert_map(inner: Convert) -> Convert:
    def convert(value: Any, at: str, rescued: list[RescuedField]) -> Any:
        return {key: inner(each, field_path(at, key), rescued) for key, each in value.items()}

    return convert


def _convert_enum(writer: AvroType, reader: AvroType, path: str) -> Convert:
    known = set(reader.symbols)
    symbols = [one if one in known else reader.symbol_default for one in writer.symbols]

    def convert(value: Any, _at_path: str, _rescued: list[RescuedField]) -> Any:
        if not 0 <= value < len(symbols):
            raise AvroValueError(f"{_at(path)}there is no symbol {value} in {writer}")
        symbol = symbols[value]
        if symbol is None:
            raise AvroValueError(f"{_at(path)}the pipeline's enum has no symbol {writer.symbols[value]!r}, no default")
        return symbol

    return convert


def _convert_logical(writer: AvroType, reader: AvroType, path: str) -> Convert | None:
    """The conversion to the logical type of the pipeline; None without one that changes the raw value."""
    wrong = AvroUnresolvable(f"{_at(path)}the writer's type is {writer}, and the pipeline's is {reader}")
    family, _, unit = reader.logical.rpartition("-")
    if reader.logical == "decimal":
        if writer.logical == "decimal" and writer.scale != reader.scale:
            raise AvroUnresolvable(
                f"{_at(path)}the writer's decimal has scale {writer.scale}, and the pipeline's {reader.scale}"
            )
        if writer.type == "string":
            raise wrong
        return _convert_decimal(reader, path)
    if reader.logical == "date" and writer.logical not in ("", "date"):
        raise wrong
    if unit not in _UNITS_NS or reader.logical == "time-millis":
        return None
    if writer.logical:
        written_family, _, unit = writer.logical.rpartition("-")
        if written_family != family:
            raise wrong
    return _convert_time(path) if family == "time" and unit == "micros" else _convert_units(family, unit, path)


def _convert_decimal(reader: AvroType, path: str) -> Convert:
    limit, exponent = 10**reader.precision, -reader.scale

    def convert(value: Any, _at_path: str, _rescued: list[RescuedField]) -> Any:
        unscaled = int.from_bytes(value, "big", signed=True)
        if not -limit < unscaled < limit:
            raise AvroValueError(f"{_at(path)}the number has more than {reader.precision} digits")
        return _decimal(unscaled, exponent)

    return convert


def _convert_time(path: str) -> Convert:
    def convert(value: Any, _at_path: str, _rescued: list[RescuedField]) -> Any:
        if not 0 <= value < _DAY_US:
            raise AvroValueError(f"{_at(path)}it is no time of a day")
        return value * 1_000

    return convert


def _convert_units(family: str, unit: str, path: str) -> Convert | None:
    """Time stamps to microseconds; times of a day in milliseconds to nanoseconds."""
    if family == "time":
        time = _convert_time(path)
        return lambda value, at, rescued: time(value * 1_000, at, rescued)
    if unit == "micros":
        return None

    def convert(value: Any, _at_path: str, _rescued: list[RescuedField]) -> Any:
        micros, rest = divmod(value * _UNITS_NS[unit], 1_000)
        if rest:
            raise AvroValueError(f"{_at(path)}the time has nanoseconds, and the column only microseconds")
        if not _LONG_MIN <= micros <= _LONG_MAX:
            raise AvroValueError(f"{_at(path)}the time is out of range")
        return micros

    return convert


def _promote(writer: str, reader: str, path: str) -> Convert | None:
    if writer in ("int", "long") and reader in ("float", "double"):
        return lambda value, _at_path, _rescued: float(value)
    if writer == "string" and reader == "bytes":
        return lambda value, _at_path, _rescued: value.encode("utf-8")
    if writer == "bytes" and reader == "string":

        def convert(value: Any, _at_path: str, _rescued: list[RescuedField]) -> Any:
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError as error:
                raise AvroValueError(f"{_at(path)}the bytes are not UTF-8") from error

        return convert
    return None


# --- the physical schema, and its raw values --------------------------------------------------------------------------


def physical_schema(kind: AvroType) -> Any:
    """The schema, as JSON, by which ``fastavro`` reads what was written by ``kind``; see the head of this module."""
    return _physical(kind, [0])


def _physical(kind: AvroType, names: list[int]) -> Any:
    match kind.type:
        case "record":
            fields = [{"name": each.name, "type": _physical(each.kind, names)} for each in kind.fields]
            return {"type": "record", "name": _new_name(names), "fields": fields}
        case "array":
            assert kind.items is not None, "an array has items"
            return {"type": "array", "items": _physical(kind.items, names)}
        case "map":
            assert kind.items is not None, "a map has values"
            return {"type": "map", "values": _physical(kind.items, names)}
        case "union":
            return [_physical_branch(kind, index, names) for index in range(len(kind.branches))]
        case "enum":
            return "int"
        case "fixed":
            return {"type": "fixed", "name": _new_name(names), "size": kind.size}
        case primitive:
            return primitive


def _physical_branch(union: AvroType, index: int, names: list[int]) -> Any:
    branch = union.branches[index]
    inner = _physical(branch, names)
    if branch.type == "null" or not _is_wrapped(union):
        return inner
    return {"type": "record", "name": _new_name(names), "fields": [{"name": _branch_name(index), "type": inner}]}


def _new_name(names: list[int]) -> str:
    names[0] += 1
    return f"t{names[0]}"


def _branch_name(index: int) -> str:
    return f"b{index}"


def _is_wrapped(union: AvroType) -> bool:
    """Whether the union has several types beside null."""
    return sum(each.type != "null" for each in union.branches) > 1


def _value_branches(union: AvroType) -> list[tuple[str, AvroType]]:
    return [(_branch_name(index), each) for index, each in enumerate(union.branches) if each.type != "null"]


def raw_json(kind: AvroType, value: Any) -> str:
    """The JSON text of a raw value of the writer's type.

    Bytes and fixed are base64, decimals are numbers with all their digits, dates and times are the numbers that were
    written, and numbers that JSON does not have are the strings "NaN", "Infinity" and "-Infinity".
    """
    match kind.type:
        case "null":
            return "null"
        case "boolean":
            return "true" if value else "false"
        case "int" | "long":
            return str(value)
        case "float" | "double":
            return repr(value) if isfinite(value) else _NOT_FINITE.get(value, '"NaN"')
        case "string":
            return json_string(value)
        case "bytes" | "fixed" if kind.logical == "decimal" and len(value) <= DECIMAL_BYTES_MAX:
            return str(_decimal(int.from_bytes(value, "big", signed=True), -kind.scale))
        case "bytes" | "fixed":
            return f'"{base64.b64encode(value).decode("ascii")}"'
        case "enum":
            return json_string(kind.symbols[value]) if 0 <= value < len(kind.symbols) else str(value)
        case "record":
            members = (f"{json_string(each.name)}:{raw_json(each.kind, value[each.name])}" for each in kind.fields)
            return "{" + ",".join(members) + "}"
        case "array":
            assert kind.items is not None, "an array has items"
            items = kind.items
            return "[" + ",".join(raw_json(items, each) for each in value) + "]"
        case "map":
            assert kind.items is not None, "a map has values"
            values = kind.items
            return "{" + ",".join(f"{json_string(key)}:{raw_json(values, each)}" for key, each in value.items()) + "}"
        case other:
            assert other == "union", "the other types are above"
            if value is None:
                return "null"
            branches = dict(_value_branches(kind))
            name = next(iter(value)) if _is_wrapped(kind) else next(iter(branches))
            return raw_json(branches[name], value[name] if _is_wrapped(kind) else value)


_NOT_FINITE = {float("inf"): '"Infinity"', float("-inf"): '"-Infinity"'}


# --- defaults of the pipeline's schema --------------------------------------------------------------------------------


def default_of(field: AvroField, path: str) -> Any:
    """The value of a column for a field's default.  Raises ``PayloadSchemaError`` for a default of another type."""
    inner = field_path(path, field.name)
    try:
        raw = _raw_default(field.kind, field.default)
        convert = resolve(field.kind, field.kind, inner, rescues=False)
        return raw if convert is None else convert(raw, inner, [])
    except (AvroValueError, AvroUnresolvable) as error:
        raise PayloadSchemaError(f"field {inner}: its default does not fit its type; correct the default") from error


def check_defaults(reader: AvroType, path: str = "") -> None:
    """Checks the defaults of the pipeline's schema.  Raises ``PayloadSchemaError``."""
    for field in reader.fields:
        inner = field_path(path, field.name)
        if field.default is not NO_DEFAULT:
            default_of(field, path)
        check_defaults(field.kind, inner)
    for each in (*reader.branches, *([reader.items] if reader.items is not None else [])):
        check_defaults(each, path)


def _raw_default(kind: AvroType, found: Any) -> Any:
    """The raw value of a default, which is JSON.  Raises ``AvroValueError``."""
    match kind.type, found:
        case ("null", None) | ("boolean", True | False):
            return found
        case (("int" | "long"), int()) if type(found) is int:
            low, high = (_INT_MIN, _INT_MAX) if kind.type == "int" else (_LONG_MIN, _LONG_MAX)
            if low <= found <= high:
                return found
        case (("float" | "double"), int() | float()) if type(found) is not bool:
            return float(found)
        case "string", str():
            return found
        case (("bytes" | "fixed"), str()):
            if all(char <= "\xff" for char in found) and (kind.type == "bytes" or len(found) == kind.size):
                return found.encode("latin-1")
        case "enum", str() if found in kind.symbols:
            return kind.symbols.index(found)
        case "array", list() if kind.items is not None:
            return [_raw_default(kind.items, each) for each in found]
        case "map", dict() if kind.items is not None:
            return {key: _raw_default(kind.items, each) for key, each in found.items()}
        case "record", dict():
            return {each.name: _raw_default(each.kind, found.get(each.name, each.default)) for each in kind.fields}
        case "union", _:
            return _raw_default_of_union(kind, found)
        case _:
            pass
    raise AvroValueError("the default has another type")


def _raw_default_of_union(kind: AvroType, found: Any) -> Any:
    """Of the first branch that it fits, as from Avro 1.12 on; before, it had to be the first branch."""
    if found is None and is_nullable(kind):
        return None
    for name, branch in _value_branches(kind):
        try:
            raw = _raw_default(branch, found)
        except AvroValueError:
            continue
        return {name: raw} if _is_wrapped(kind) else raw
    raise AvroValueError("the default has the type of no branch")


def _decimal(unscaled: int, exponent: int) -> Decimal:
    """The number with all its digits, whatever the context's precision is."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), exponent))


def _same_name(writer: AvroType, reader: AvroType) -> bool:
    aliases = {alias.rpartition(".")[2] for alias in reader.aliases}
    return writer.short_name == reader.short_name or writer.short_name in aliases


def _at(path: str) -> str:
    return f"field {path}: " if path else ""
