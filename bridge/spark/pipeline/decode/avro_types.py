"""Avro schemas as a tree of ``AvroType``, and the Arrow schema of a pipeline's Avro schema.  Pure.

    text of a schema --parse_avro--> AvroType --arrow_schema_of--> pyarrow.Schema   (the pipeline's schema only)

``parse_avro`` accepts what the specification of Avro 1.12 allows, except recursive types: ``fastavro`` decodes them by
recursion in C without a limit, and 5,000 bytes then end the process.  It refuses arrays whose items need no byte, of
which a payload of ten bytes can announce 10^18.

The Arrow types are those of ``SchemaConverters.toSqlType`` of Spark 4.3, as Spark converts them to Arrow:

    boolean, int, long, float, double    bool, int32, int64, float32, float64
    bytes, fixed                         binary, also with logical types that are not named below
    string, enum                         string; ``uuid`` of a string as well
    record, array, map                   struct, list, map with string keys
    null                                 null
    int date                             date32
    int time-millis                      int32: Spark has no such type
    long time-micros                     time64[ns]
    long timestamp-millis, -micros       timestamp[us, UTC]
    long local-timestamp-millis, -micros timestamp[us]
    bytes, fixed decimal                 decimal128(precision, scale)
    union of null and T                  T
    union of int and long                int64; of float and double: float64

A logical type that does not fit its type, or whose attributes are invalid, is ignored, as the specification and Spark
do.  Differences from Spark.  Every field is nullable, as in the result of ``from_avro`` in the mode PERMISSIVE.  A
union of several types is refused (Spark makes a struct of ``member0``, ``member1``), and so are recursive types (Spark
too, by default), ``timestamp-nanos`` and ``local-timestamp-nanos`` (Spark's types for them have no Arrow type), and the
property ``spark.sql.catalyst.type`` (intervals).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bridge.spark.pipeline.decode.payload_decoder import PayloadSchemaError

DEPTH_MAX = 64
"""The maximum number of types inside each other, so that neither this module nor ``fastavro`` recurses too deeply."""

TYPES_MAX = 100_000
"""The maximum number of types of a schema, where a named type counts at each place where it is used."""

DECIMAL_PRECISION_MAX = 38
"""Of Spark and of Arrow's decimal128."""

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_LOGICAL_TYPES = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
}
"""The logical types that have a meaning here -> the types that may have them."""

NO_DEFAULT = object()


class AvroSchemaError(ValueError):
    """A text is no Avro schema, or one that is not supported; the text explains why."""


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record.  ``default``: the JSON value, ``NO_DEFAULT`` without one."""

    name: str
    kind: AvroType
    default: Any
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type.  ``type``: a primitive, ``record``, ``enum``, ``fixed``, ``array``, ``map`` or ``union``.

    ``name``: the full name of a named type.  ``logical``: "" without a logical type that has a meaning.  ``items``: the
    type of the items of an array and of the values of a map.  ``branches``: of a union.  ``catalyst``: whether Spark
    wrote its own type beside it.
    """

    type: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    logical: str = ""
    precision: int = 0
    scale: int = 0
    fields: tuple[AvroField, ...] = ()
    symbols: tuple[str, ...] = ()
    symbol_default: str | None = None
    size: int = 0
    items: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    is_catalyst: bool = False

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    def __str__(self) -> str:
        if self.type == "union":
            return f"a union of {', '.join(str(each) for each in self.branches)}"
        named = f"{self.type} {self.name}" if self.name else self.type
        return f"{named} ({self.logical})" if self.logical else named


def parse_avro(text: str, references: Sequence[str] = ()) -> AvroType:
    """Parses a schema.  ``references``: the schemas that it refers to, each after those that it refers to itself.

    Raises ``AvroSchemaError``.
    """
    named: dict[str, AvroType] = {}
    kind = None
    for each in (*references, text):
        kind = _Parser(named).parse(_json(each), "", 0)
    assert kind is not None, "there is at least one schema"
    return kind


def arrow_schema_of(kind: AvroType) -> pa.Schema:
    """The Arrow schema of a pipeline's Avro schema, which must be a record; see the head of this module.

    Raises ``PayloadSchemaError`` for what is not supported.
    """
    if kind.type != "record":
        raise PayloadSchemaError(f"the Avro schema must be a record, and it is {kind}; wrap it into a record")
    if not kind.fields:
        raise PayloadSchemaError(f"the record {kind.name} has no fields, so there would be no columns; add a field")
    return pa.schema([(field.name, arrow_type_of(field.kind, field.name)) for field in kind.fields])


def arrow_type_of(kind: AvroType, path: str) -> pa.DataType:
    """The Arrow type at ``path`` of a pipeline's schema.  Raises ``PayloadSchemaError``."""
    if kind.is_catalyst:
        raise PayloadSchemaError(
            f"field {path}: spark.sql.catalyst.type is not supported; remove this property, and convert in [transform]"
        )
    match kind.type:
        case "union":
            return arrow_type_of(single_branch(kind, path), path)
        case "record":
            if not kind.fields:
                raise PayloadSchemaError(f"field {path}: the record {kind.name} has no fields; add one, or remove it")
            return pa.struct([(each.name, arrow_type_of(each.kind, f"{path}.{each.name}")) for each in kind.fields])
        case "array":
            return pa.list_(arrow_type_of(_items(kind), f"{path}[]"))
        case "map":
            return pa.map_(pa.string(), arrow_type_of(_items(kind), f"{path}[]"))
        case _ if kind.logical.endswith("timestamp-nanos"):
            raise PayloadSchemaError(
                f"field {path}: {kind.logical} is not supported; set the logical type to "
                f"{kind.logical.replace('nanos', 'micros')}, or remove it to get the number"
            )
        case _ if kind.logical == "decimal" and kind.precision > DECIMAL_PRECISION_MAX:
            raise PayloadSchemaError(
                f"field {path}: a decimal has at most {DECIMAL_PRECISION_MAX} digits in Spark, and this one has "
                f"{kind.precision}; remove the logical type to get the bytes"
            )
        case _ if kind.logical == "decimal":
            return pa.decimal128(kind.precision, kind.scale)
        case _:
            return _ARROW_OF_LOGICAL.get(kind.logical) or _ARROW_OF_TYPE[kind.type]


_ARROW_OF_LOGICAL = {
    "date": pa.date32(),
    "time-micros": pa.time64("ns"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}

_ARROW_OF_TYPE = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}

_WIDER = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


def is_nullable(kind: AvroType) -> bool:
    """Whether null is a value of the type."""
    return kind.type == "null" or any(each.type == "null" for each in kind.branches)


def single_branch(kind: AvroType, path: str) -> AvroType:
    """The type of the values of a union that are not null.  Raises ``PayloadSchemaError`` for several types."""
    rest = [each for each in kind.branches if each.type != "null"]
    if not rest:
        return AvroType("null")
    if len(rest) == 1:
        return rest[0]
    wider = _WIDER.get(frozenset(each.type for each in rest))
    if wider is not None and not any(each.logical for each in rest):
        return AvroType(wider)
    raise PayloadSchemaError(
        f"field {path}: {kind} is not supported; keep one of these types, and null: the values of the others become "
        "dead letters"
    )


def _items(kind: AvroType) -> AvroType:
    assert kind.items is not None, "an array and a map have items"
    return kind.items


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise AvroSchemaError(f"it is not JSON ({error})") from error
    except RecursionError as error:
        raise AvroSchemaError("it is nested too deeply") from error


class _Parser:
    """Parses one JSON value; ``named``: the named types so far, those of other schemas as well."""

    def __init__(self, named: dict[str, AvroType]) -> None:
        self._named = named
        self._open: set[str] = set()
        """The records that are not complete: a reference to one is a recursive type."""
        self._types = 0

    def parse(self, found: Any, namespace: str, depth: int) -> AvroType:
        self._types += 1
        self._check_size(depth)
        match found:
            case str(name):
                return AvroType(name) if name in PRIMITIVES else self._reference(name, namespace, depth)
            case list(branches):
                return self._union(branches, namespace, depth)
            case {"type": "array", "items": items}:
                kind = self.parse(items, namespace, depth + 1)
                if _bytes_min(kind) == 0:
                    raise AvroSchemaError("an array has items that need no byte, so its length has no limit")
                return AvroType("array", items=kind)
            case {"type": "map", "values": values}:
                return AvroType("map", items=self.parse(values, namespace, depth + 1))
            case {"type": "record" | "error" | "enum" | "fixed"}:
                return self._define(found, namespace, depth)
            case {"type": str(name)} if name in PRIMITIVES:
                return _with_logical(AvroType(name), found)
            case {"type": str() | dict() | list() as inner} if inner not in ("array", "map"):
                return self.parse(inner, namespace, depth + 1)
            case _:
                raise AvroSchemaError(f"{json.dumps(found)[:100]} is no type")

    def _check_size(self, depth: int) -> None:
        if depth > DEPTH_MAX or self._types > TYPES_MAX:
            raise AvroSchemaError(f"it has more than {DEPTH_MAX} levels, or more than {TYPES_MAX} types")

    def _reference(self, name: str, namespace: str, depth: int) -> AvroType:
        for full in (name,) if "." in name or not namespace else (f"{namespace}.{name}", name):
            if full in self._open:
                raise AvroSchemaError(f"the type {full} contains itself; recursive types are not supported")
            if full in self._named:
                self._types += _count(self._named[full])
                self._check_size(depth + _levels(self._named[full]))
                return self._named[full]
        raise AvroSchemaError(f"there is no type {name!r}")

    def _union(self, branches: list[Any], namespace: str, depth: int) -> AvroType:
        kinds = tuple(self.parse(each, namespace, depth + 1) for each in branches)
        names = [each.name or each.type for each in kinds]
        if any(each.type == "union" for each in kinds) or len(set(names)) < len(names):
            raise AvroSchemaError("a union contains a union, or a type twice")
        if not kinds:
            raise AvroSchemaError("a union has no types")
        return AvroType("union", branches=kinds)

    def _define(self, found: dict[str, Any], namespace: str, depth: int) -> AvroType:
        full = _full_name(found, namespace)
        inner_namespace = full.rpartition(".")[0]
        if full in self._named or full in self._open:
            raise AvroSchemaError(f"the type {full} is defined twice")
        aliases = tuple(_texts(found.get("aliases", [])))
        match found:
            case {"type": "enum", "symbols": list(symbols)}:
                kind = AvroType("enum", full, aliases, symbols=_symbols(symbols), symbol_default=found.get("default"))
                if kind.symbol_default is not None and kind.symbol_default not in kind.symbols:
                    raise AvroSchemaError(f"the default of the enum {full} is not one of its symbols")
            case {"type": "fixed", "size": int(size)} if 0 <= size < 2**31 and not isinstance(size, bool):
                kind = _with_logical(AvroType("fixed", full, aliases, size=size), found)
            case {"type": "record" | "error", "fields": list(fields)}:
                self._open.add(full)
                parsed = tuple(self._field(each, inner_namespace, depth) for each in fields)
                self._open.discard(full)
                if len({each.name for each in parsed}) < len(parsed):
                    raise AvroSchemaError(f"the record {full} has a field twice")
                kind = AvroType("record", full, aliases, fields=parsed)
            case _:
                raise AvroSchemaError(f"the definition of {full} is incomplete")
        self._named[full] = kind
        return kind

    def _field(self, found: Any, namespace: str, depth: int) -> AvroField:
        match found:
            case {"name": str(name), "type": kind} if _NAME.fullmatch(name):
                default = found.get("default", NO_DEFAULT)
                aliases = tuple(_texts(found.get("aliases", [])))
                return AvroField(name, self.parse(kind, namespace, depth + 1), default, aliases)
            case _:
                raise AvroSchemaError(f"{json.dumps(found)[:100]} is no field of a record")


def _full_name(found: dict[str, Any], namespace: str) -> str:
    name = found.get("name")
    own = found.get("namespace", namespace)
    if not isinstance(name, str) or not isinstance(own, str):
        raise AvroSchemaError(f"a type {found['type']} has no name")
    full = name if "." in name or not own else f"{own}.{name}"
    if not all(_NAME.fullmatch(part) for part in full.split(".")):
        raise AvroSchemaError(f"{full[:100]!r} is no name of a type")
    return full


def _texts(found: Any) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise AvroSchemaError("aliases are no list of names")
    return found


def _symbols(found: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(each, str) for each in found) or len(set(found)) < len(found) or not found:
        raise AvroSchemaError("the symbols of an enum are no list of different names")
    return tuple(found)


def _with_logical(kind: AvroType, found: dict[str, Any]) -> AvroType:
    """The type with its logical type, if that is valid."""
    logical = found.get("logicalType")
    catalyst = kind.type in ("int", "long") and "spark.sql.catalyst.type" in found
    if not isinstance(logical, str) or kind.type not in _LOGICAL_TYPES.get(logical, ()):
        logical = ""
    precision, scale = _digits_of(kind, found) if logical == "decimal" else (0, 0)
    if (logical == "decimal" and not precision) or (logical == "uuid" and kind.type == "fixed" and kind.size != 16):
        logical = ""
    return AvroType(
        kind.type, kind.name, kind.aliases, logical, precision, scale, size=kind.size, is_catalyst=catalyst,
    )  # fmt: skip


def _digits_of(kind: AvroType, found: dict[str, Any]) -> tuple[int, int]:
    """Precision and scale of a decimal; 0 and 0 if they are invalid."""
    precision, scale = found.get("precision"), found.get("scale", 0)
    if not (type(precision) is int and type(scale) is int and 0 <= scale <= precision and precision > 0):
        return 0, 0
    if kind.type == "fixed" and precision > _digits_max(kind.size):
        return 0, 0
    return precision, scale


def _digits_max(size: int) -> int:
    """The number of decimal digits that always fit into a signed number of so many bytes."""
    return len(str(2 ** (8 * min(size, 64) - 1) - 1)) - 1 if size else 0


def _bytes_min(kind: AvroType) -> int:
    """The fewest bytes that a value of the type needs."""
    match kind.type:
        case "null":
            return 0
        case "record":
            return sum(_bytes_min(each.kind) for each in kind.fields)
        case "fixed":
            return kind.size
        case _:
            return 1


def _count(kind: AvroType) -> int:
    return 1 + sum(_count(each) for each in _inner(kind))


def _levels(kind: AvroType) -> int:
    """The levels below the type; no parsed type has more than ``DEPTH_MAX``."""
    return max((1 + _levels(each) for each in _inner(kind)), default=0)


def _inner(kind: AvroType) -> list[AvroType]:
    return [each.kind for each in kind.fields] + list(kind.branches) + ([kind.items] if kind.items else [])
