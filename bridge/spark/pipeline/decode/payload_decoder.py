"""``PayloadDecoder``: the common interface of the decoders of payloads, and how they build their columns.  Pure.

    payloads (binary) --decode--> columns   a struct: null where there is no payload or the payload is a dead letter
                              '-> errors    null: good; else why the record becomes a dead letter, stage ``decode``
                              '-> rescued   JSON text of what does not fit the schema; null: nothing

Every array has exactly one element for each payload, in the same order.  What a payload contains never raises an
exception: it becomes an error text.  Exceptions are for what an operator must correct (``PayloadSchemaError``), and for
a registry that fails (``schema_registry``): then the batch fails and is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from zkconsumer.errors import UsageError

ERROR_CHARS_MAX = 500
"""The maximum length of an error text of a dead letter; the dead letter has the whole payload beside it."""

CONVERSION_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""What ``pyarrow.array`` raises for a value that its type does not hold (a ``UnicodeEncodeError`` is the last)."""


class PayloadSchemaError(UsageError):
    """A decoder cannot use the pipeline's schema; the text explains what to change in the schema."""


@dataclass(frozen=True, slots=True)
class DecodedColumns:
    """The result of one call of ``PayloadDecoder.decode``; three arrays of the length of its input.

    ``columns``: a struct with the fields of ``PayloadDecoder.arrow_schema``; null where the payload is null or where
    ``errors`` is not.  ``errors``: texts, null for a good record.  ``rescued``: JSON texts, null where everything
    fitted the schema; the array itself is None if the decoder rescues nothing.
    """

    columns: pa.StructArray
    errors: pa.StringArray
    rescued: pa.StringArray | None


class PayloadDecoder(Protocol):
    """Decodes the payloads of one column.  Can be pickled, together with its settings; one thread uses it at a time."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The fields of ``DecodedColumns.columns``; all of them are nullable."""

    def decode(self, payloads: pa.Array) -> DecodedColumns:
        """Decodes binary payloads; null is a record without a payload (a tombstone), and no error.

        Raises only what the decoder's class documents, and nothing for what a payload contains.
        """


def payload_list(payloads: pa.Array | pa.ChunkedArray) -> list[bytes | None]:
    """The payloads as bytes.  Raises ``TypeError`` for a column that is not binary, which is a bug of the caller."""
    kind = payloads.type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise TypeError(f"payloads must be binary, and they are {kind}")
    values: list[bytes | None] = payloads.to_pylist()
    return values


PrefixOf: TypeAlias = Callable[[int], str]
"""What the error text of a row begins with."""


def _no_prefix(_row: int) -> str:
    return ""


def array_of(values: list[Any], field: pa.Field, errors: list[str | None], prefix_of: PrefixOf) -> pa.Array:
    """The values as one array; a value that the field's type does not hold becomes null, and an error of its row."""
    kind = field.type
    try:
        return pa.array(values, kind)
    except CONVERSION_ERRORS:
        pass  # a few values of a few rows: found one by one
    kept = list(values)
    for row, value in enumerate(values):
        try:
            pa.array([value], kind)
        except CONVERSION_ERRORS as error:
            kept[row] = None
            if errors[row] is None:
                errors[row] = error_text(f"{prefix_of(row)}field {field.name}: {describe(error)}")
    return pa.array(kept, kind)


def describe(error: BaseException) -> str:
    """The first line of an exception's text, without the value that it may show."""
    if isinstance(error, UnicodeError):
        return "the text is not valid Unicode"
    if isinstance(error, OverflowError) or "too large" in str(error) or "out of bounds" in str(error):
        return "the number is out of range"
    return "the value does not fit the type of the column"


def error_text(text: str) -> str:
    """An error text that is not longer than ``ERROR_CHARS_MAX``, and that UTF-8 can encode."""
    shown = text if len(text) <= ERROR_CHARS_MAX else text[: ERROR_CHARS_MAX - 1] + "…"
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")[: ERROR_CHARS_MAX * 2]


def decoded_columns(
    schema: pa.Schema,
    columns: Sequence[list[Any]],
    absent: Sequence[bool],
    errors: list[str | None],
    rescued: list[str | None] | None,
    *,
    prefix_of: PrefixOf = _no_prefix,
) -> DecodedColumns:
    """Builds the arrays.  ``columns``: for each field a value for each row; ``absent``: the rows without a payload.

    Values that an Arrow type does not hold are added to ``errors``, with the text of ``prefix_of``.  A row with an
    error has neither columns nor rescued fields.
    """
    rows = len(errors)
    assert all(len(values) == rows for values in columns), "a row was lost or added"
    assert len(columns) == len(schema) > 0, "a struct without fields has no length"
    given = errors.count(None)
    arrays = _arrays(schema, columns, errors, prefix_of)
    if errors.count(None) != given:
        # Children of a null struct may be read without it: they are null as well.
        arrays = _arrays(schema, [_good(values, errors) for values in columns], errors, prefix_of)
    hidden = [is_absent or error is not None for is_absent, error in zip(absent, errors, strict=True)]
    if rescued is not None:
        rescued = [None if is_hidden else text for is_hidden, text in zip(hidden, rescued, strict=True)]
    return DecodedColumns(
        pa.StructArray.from_arrays(arrays, fields=list(schema), mask=pa.array(hidden, pa.bool_())),
        pa.array(errors, pa.string()),
        None if rescued is None else pa.array(rescued, pa.string()),
    )


def _arrays(
    schema: pa.Schema, columns: Sequence[list[Any]], errors: list[str | None], prefix_of: PrefixOf
) -> list[pa.Array]:
    return [array_of(values, field, errors, prefix_of) for field, values in zip(schema, columns, strict=True)]


def _good(values: list[Any], errors: list[str | None]) -> list[Any]:
    return [value if error is None else None for value, error in zip(values, errors, strict=True)]
