"""Payloads that stay one column: bytes as they are, text only if it is UTF-8."""

from __future__ import annotations

import pickle

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs the extra [spark]")

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.spark.pipeline.decode.payload_decoder import PayloadDecoder
from bridge.spark.pipeline.decode.text_columns import BytesDecoder, TextDecoder


def test_bytes_are_given_as_they_are() -> None:
    found = BytesDecoder().decode(pa.array([b"a\xff", None, b""], pa.binary()))
    assert found.columns.to_pylist() == [{"value": b"a\xff"}, None, {"value": b""}]
    assert found.errors.null_count == 3
    assert found.rescued is None


def test_text_that_is_not_utf8_is_a_dead_letter_with_the_place_of_the_first_wrong_byte() -> None:
    found = TextDecoder("line").decode(pa.array(["é".encode(), b"ab\xffc", None, b"\xed\xa0\x80"], pa.binary()))
    assert found.columns.to_pylist() == [{"line": "é"}, None, None, None]
    assert found.errors.to_pylist() == [None, "not UTF-8: byte 2 of 4", None, "not UTF-8: byte 0 of 3"]


@settings(derandomize=True)
@given(st.lists(st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode)))
def test_no_row_is_lost_and_every_text_is_the_payload(payloads: list[bytes | None]) -> None:
    given_payloads = pa.array(payloads, pa.binary())
    for decoder in (BytesDecoder(), TextDecoder()):
        found = decoder.decode(given_payloads)
        for payload, columns, error in zip(payloads, found.columns.to_pylist(), found.errors.to_pylist(), strict=True):
            if payload is None or error is not None:
                assert columns is None
            else:
                value = columns["value"]
                assert (value.encode() if isinstance(value, str) else value) == payload


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_payloads_may_come_in_chunks(kind: pa.DataType) -> None:
    chunks = pa.chunked_array([[b"a"], [], [b"b", None]], kind)
    assert TextDecoder().decode(chunks).columns.to_pylist() == [{"value": "a"}, {"value": "b"}, None]


def test_the_decoders_can_be_pickled() -> None:
    decoders: list[PayloadDecoder] = [BytesDecoder("b"), TextDecoder("t")]
    for decoder in decoders:
        assert pickle.loads(pickle.dumps(decoder)).arrow_schema == decoder.arrow_schema
