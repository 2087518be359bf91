"""What a worker does with Arrow batches: every row stays, parts beside each other, decoders are kept until an error."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs the extra [spark]")

import pyarrow as pa

from bridge.spark.pipeline.decode import arrow_decoding
from bridge.spark.pipeline.decode.arrow_decoding import DECODERS_MAX, ArrowDecoding, ArrowPart, decode_headers
from bridge.spark.pipeline.decode.decoder_spec import DecoderSpec
from bridge.spark.pipeline.decode.payload_decoder import PayloadDecoder
from bridge.spark.pipeline.decode.rescued_json import RescuedJsonDecoder
from bridge.spark.pipeline.decode.text_columns import TextDecoder
from zkconsumer.errors import UnavailableError

SCHEMA = '{"type":"struct","fields":[{"name":"n","type":"integer","nullable":true,"metadata":{}}]}'
JSON = DecoderSpec("json", SCHEMA, rescues=True)
VALUE = ArrowPart(JSON, "_source_value", "_decoded_value", "_error_value", "_rescued_value")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(autouse=True)
def _no_decoders() -> None:
    arrow_decoding._decoders.clear()


def batch_of(*values: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"_source_offset": pa.array(range(len(values)), pa.int64()), "_source_value": pa.array(values, pa.binary())}
    )


def test_each_batch_becomes_one_of_as_many_rows_with_the_passed_columns_first() -> None:
    decoding = pickle.loads(pickle.dumps(ArrowDecoding(("_source_offset",), (VALUE,))))
    first, second = decoding(iter([batch_of(b'{"n":1,"x":2}', b"{", None), batch_of()]))
    assert first.schema.names == ["_source_offset", "_decoded_value", "_error_value", "_rescued_value"]
    assert first.column(0).to_pylist() == [0, 1, 2]
    assert first.column(1).to_pylist() == [{"n": 1}, None, None]
    assert [error is None for error in first.column(2).to_pylist()] == [True, False, True]
    assert first.column(3).to_pylist() == ['{"x":2}', None, None]
    assert (second.num_rows, second.schema) == (0, first.schema)


def test_two_parts_are_decoded_in_one_pass() -> None:
    key = ArrowPart(JSON, "_source_value", "_decoded_key", "_error_key", None)
    [found] = ArrowDecoding((), (VALUE, key))(iter([batch_of(b'{"n":1}')]))
    assert found.schema.names == ["_decoded_value", "_error_value", "_rescued_value", "_decoded_key", "_error_key"]


def headers(*rows: Any) -> pa.ListArray:
    dicts = [row and [{"key": key, "value": value} for key, value in row] for row in rows]
    return pa.array(dicts, HEADERS)


def test_headers_are_decoded_each_and_the_first_bad_one_is_named() -> None:
    made = RescuedJsonDecoder(pa.schema([("n", pa.int32())]))
    given = headers([("a", b'{"n":1,"x":true}'), ("b", None)], None, [], [("c", b'{"n":2}'), ("d", b"["), ("e", b"{")])
    found = decode_headers(given, made)
    assert found.columns.to_pylist()[:3] == [
        [{"key": "a", "value": {"n": 1}}, {"key": "b", "value": None}], None, [],
    ]  # fmt: skip
    errors = found.errors.to_pylist()
    assert errors[:3] == [None] * 3
    assert errors[3].startswith("header d: broken JSON")
    assert found.rescued is not None
    assert found.rescued.to_pylist() == ['[{"x":true},null]', None, None, None]


def test_headers_of_a_part_of_a_batch_are_its_own() -> None:
    """Arrow's slice of a list keeps the elements before it."""
    given = headers([("a", b"x")], [("b", b"\xff")], [("c", b"z")]).slice(1)
    found = decode_headers(given, TextDecoder())
    assert [error and error[:9] for error in found.errors.to_pylist()] == ["header b:", None]
    assert found.columns.to_pylist()[1] == [{"key": "c", "value": {"value": "z"}}]
    assert found.rescued is None


class Counted:
    """Builds decoders, and fails on demand."""

    def __init__(self, error: Exception | None = None) -> None:
        self.built: list[DecoderSpec] = []
        self.error = error

    def __call__(self, spec: DecoderSpec, *_: object) -> PayloadDecoder:
        self.built.append(spec)
        made = RescuedJsonDecoder(pa.schema([("n", pa.int32())]))
        return Failing(self.error) if self.error is not None else made


class Failing(TextDecoder):
    def __init__(self, error: Exception) -> None:
        object.__setattr__(self, "column", error)

    def decode(self, payloads: pa.Array) -> Any:
        raise self.column  # type: ignore[misc]


def test_a_worker_keeps_its_decoders_for_the_next_task_and_not_more_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted()
    monkeypatch.setattr(arrow_decoding, "build_decoder", counted)
    for _ in range(3):
        list(ArrowDecoding((), (VALUE,))(iter([batch_of(b"{}")])))
    assert counted.built == [JSON]
    for number in range(DECODERS_MAX):
        arrow_decoding.decoder_of(DecoderSpec("json", SCHEMA, rescues=True, time_zone=str(number)))
    assert len(arrow_decoding._decoders) == DECODERS_MAX
    arrow_decoding.decoder_of(JSON)
    assert counted.built.count(JSON) == 2


def test_after_an_error_the_decoder_is_built_again_so_that_a_new_password_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(UnavailableError("the registry does not answer"))
    monkeypatch.setattr(arrow_decoding, "build_decoder", counted)
    for _ in range(2):
        with pytest.raises(UnavailableError):
            list(ArrowDecoding((), (VALUE,))(iter([batch_of(b"{}")])))
    assert counted.built == [JSON, JSON]
