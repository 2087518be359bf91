"""The decoders for payloads that stay one column: bytes, and text.  Pure.

``TextDecoder`` is strict: a payload that is not UTF-8 is a dead letter.  (Spark's ``cast(value as string)`` keeps the
invalid bytes in the string, and functions on it then give undefined characters.)
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from bridge.spark.pipeline.decode.payload_decoder import DecodedColumns, decoded_columns, payload_list

VALUE_COLUMN = "value"
"""The name of the column that ``bytes`` and ``text`` give, unless the file has another one."""


@dataclass(frozen=True, slots=True)
class BytesDecoder:
    """Gives the payloads as they are, in one column of bytes.  Raises nothing, and has no dead letters."""

    column: str = VALUE_COLUMN

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.schema([(self.column, pa.binary())])

    def decode(self, payloads: pa.Array) -> DecodedColumns:
        values = payload_list(payloads)
        absent = [value is None for value in values]
        return decoded_columns(self.arrow_schema, [values], absent, [None] * len(values), None)


@dataclass(frozen=True, slots=True)
class TextDecoder:
    """Gives the payloads as one column of text.  Raises nothing; a payload that is not UTF-8 is a dead letter."""

    column: str = VALUE_COLUMN

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.schema([(self.column, pa.string())])

    def decode(self, payloads: pa.Array) -> DecodedColumns:
        values = payload_list(payloads)
        texts: list[str | None] = []
        errors: list[str | None] = []
        for value in values:
            try:
                texts.append(None if value is None else value.decode("utf-8"))
                errors.append(None)
            except UnicodeDecodeError as error:
                texts.append(None)
                errors.append(not_utf8(error))
        return decoded_columns(self.arrow_schema, [texts], [value is None for value in values], errors, None)


def not_utf8(error: UnicodeDecodeError) -> str:
    """The error text of a payload that is not UTF-8."""
    return f"not UTF-8: byte {error.start} of {len(error.object)}"
