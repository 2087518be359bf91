"""Messages for the tests of the wire: every API and version, with values of every kind."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from zkconsumer.wire.field_types import ArrayFieldType, BytesFieldType, FieldType, FixedSizeFieldType, TextFieldType
from zkconsumer.wire.schemas import APIS, Api
from zkconsumer.wire.schemas.message_schema import Field, NestedMessageFieldType, fields

EVERY_VERSION: list[tuple[Api[Any, Any], int]] = [
    (api, version) for api in APIS.values() for version in range(api.lowest, api.highest + 1)
]
EVERY_VERSION_IDS = [f"{api.name}-v{version}" for api, version in EVERY_VERSION]

_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


@cache
def messages(cls: type, version: int) -> st.SearchStrategy[Any]:
    """Any message of this class; fields that the version lacks keep their defaults."""
    present = [field for field in fields(cls) if version in field.spec.versions]
    absent = {field.name: st.builds(field.make_default) for field in fields(cls) if field not in present}
    return st.builds(cls, **{field.name: _values(field, version) for field in present}, **absent)


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _of_kind(field.spec.field_type, version)
    if version in field.spec.nullable or (field.spec.tag is not None and field.default is None):
        return st.none() | values
    return values


def _of_kind(kind: FieldType, version: int) -> st.SearchStrategy[Any]:
    match kind:
        case FixedSizeFieldType(letter="?"):
            return st.booleans()
        case FixedSizeFieldType(letter="16s"):
            return st.binary(min_size=16, max_size=16)
        case FixedSizeFieldType(letter=letter):
            bits = _BITS[letter]
            return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        case TextFieldType():
            return st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
        case BytesFieldType():
            return st.binary(max_size=40)
        case ArrayFieldType():
            return st.lists(_of_kind(kind.item, version), max_size=3)
        case NestedMessageFieldType():
            return messages(kind.cls, version)
    raise AssertionError(f"no values for {kind}")


def filled(cls: type, version: int) -> Any:
    """One message with a value in every field that the version has; the same every time."""
    given = {
        field.name: _filled_value(field.spec.field_type, version)
        if version in field.spec.versions
        else field.make_default()
        for field in fields(cls)
    }
    return cls(**given)


def _filled_value(kind: FieldType, version: int) -> Any:
    match kind:
        case FixedSizeFieldType(letter="?"):
            return True
        case FixedSizeFieldType(letter="16s"):
            return bytes(range(16))
        case FixedSizeFieldType():
            return 7
        case TextFieldType():
            return "näme"
        case BytesFieldType():
            return b"record set"
        case ArrayFieldType():
            return [_filled_value(kind.item, version)] * 2
        case NestedMessageFieldType():
            return filled(kind.cls, version)
    raise AssertionError(f"no value for {kind}")
