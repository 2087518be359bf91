"""``ArrowDecoding``: the function that ``mapInArrow`` calls in a worker; it decodes all parts that need Python.

    batch: passed columns, payloads --decoders--> batch: passed columns, for each part decoded, error, rescued

One call of ``mapInArrow`` decodes every part, because each call moves all rows to Python and back.  The decoders of
headers get the values of all headers of a batch as one array.

Theory of operation.  A worker of Spark is a process with one thread that runs tasks one after the other.  ``_decoders``
has the decoders of this process, so that the schemas of a registry are fetched once and not once a task.  After any
error the decoders are built again: a changed password is read then.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bridge.spark.pipeline.decode.decoder_spec import DecoderSpec, build_decoder
from bridge.spark.pipeline.decode.payload_decoder import DecodedColumns, PayloadDecoder, error_text

DECODERS_MAX = 16
"""The maximum number of decoders that a worker keeps: those of a few queries."""

# The decoder of a specification; the last one was used last.
_decoders: OrderedDict[DecoderSpec, PayloadDecoder] = OrderedDict()


@dataclass(frozen=True, slots=True)
class ArrowPart:
    """A part that Python decodes.  ``payload``: its column of the input, binary, or the headers of the source.

    ``decoded``, ``error``, ``rescued``: the names of the columns that it becomes; ``rescued`` None: there is none.
    """

    decoder: DecoderSpec
    payload: str
    decoded: str
    error: str
    rescued: str | None


@dataclass(frozen=True, slots=True)
class ArrowDecoding:
    """Decodes batches.  ``passed``: the columns of the input that the output has as they are, in this order.

    Raises ``SchemaRegistryUnavailable`` (the task fails and is repeated), ``SchemaRegistryRefused``,
    ``SecretUnavailableError`` and ``FastavroMissing`` (an operator must act); nothing for what a payload contains.
    """

    passed: tuple[str, ...]
    parts: tuple[ArrowPart, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            decoders = [decoder_of(part.decoder) for part in self.parts]
            for batch in batches:
                yield self._decoded(batch, decoders)
        except Exception:
            _decoders.clear()
            raise

    def _decoded(self, batch: pa.RecordBatch, decoders: list[PayloadDecoder]) -> pa.RecordBatch:
        columns = {name: batch.column(name) for name in self.passed}
        for part, decoder in zip(self.parts, decoders, strict=True):
            payloads = batch.column(part.payload)
            is_headers = pa.types.is_list(payloads.type) or pa.types.is_large_list(payloads.type)
            found = decode_headers(payloads, decoder) if is_headers else decoder.decode(payloads)
            columns[part.decoded], columns[part.error] = found.columns, found.errors
            if part.rescued is not None:
                assert found.rescued is not None, "a decoder without a rescued column was asked for one"
                columns[part.rescued] = found.rescued
        return pa.RecordBatch.from_pydict(columns)


def decoder_of(spec: DecoderSpec) -> PayloadDecoder:
    """The decoder of this process.  Raises as ``build_decoder``."""
    found = _decoders.get(spec)
    if found is None:
        found = _decoders[spec] = build_decoder(spec, os.environ, lambda path: Path(path).read_bytes())
        while len(_decoders) > DECODERS_MAX:
            _decoders.popitem(last=False)
    _decoders.move_to_end(spec)
    return found


def decode_headers(headers: pa.ListArray, decoder: PayloadDecoder) -> DecodedColumns:
    """The headers of records with decoded values: lists of structs ``key``, ``value``.

    One header that is no good makes the record a dead letter; the error begins with its key.  ``rescued``: a JSON
    array with an element for each header of the record; null if all elements would be null.
    """
    flat = headers.flatten()
    keys, found = flat.field("key"), decoder.decode(_binary(flat.field("value")))
    entries = pa.StructArray.from_arrays([keys, found.columns], names=["key", "value"])
    lengths = headers.value_lengths().to_pylist()
    errors: list[str | None] = []
    rescued: list[str | None] = []
    its_keys, its_errors = keys.to_pylist(), found.errors.to_pylist()
    its_rescued = [None] * len(its_keys) if found.rescued is None else found.rescued.to_pylist()
    start = 0
    for length in lengths:
        end = start + (length or 0)
        bad = next((row for row in range(start, end) if its_errors[row] is not None), None)
        errors.append(None if bad is None else error_text(f"header {its_keys[bad]}: {its_errors[bad]}"))
        texts = its_rescued[start:end]
        has_rescued = bad is None and any(text is not None for text in texts)
        rescued.append(f"[{','.join(text or 'null' for text in texts)}]" if has_rescued else None)
        start = end
    return DecodedColumns(
        _lists(entries, lengths),
        pa.array(errors, pa.string()),
        None if found.rescued is None else pa.array(rescued, pa.string()),
    )


def _lists(entries: pa.StructArray, lengths: list[int | None]) -> pa.ListArray:
    """Lists of these lengths; None: a null."""
    offsets, end = [0], 0
    for length in lengths:
        end += length or 0
        offsets.append(end)
    mask = pa.array([length is None for length in lengths], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries, mask=mask)


def _binary(values: pa.Array) -> pa.Array:
    return values.cast(pa.binary()) if pa.types.is_large_binary(values.type) else values
