"""A worker builds the decoder of a specification, and reads the secret of its registry only then."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs the extra [spark]")

import pyarrow as pa
from pyspark.sql.types import IntegerType, StructType, TimestampNTZType, TimestampType

from bridge.spark.pipeline.decode.decoder_spec import DecoderSpec, build_decoder, registry_settings
from bridge.spark.pipeline.decode.schema_registry import SchemaRegistrySettings
from bridge.spark.pipeline.pipeline_spec import RegistrySection
from bridge.spark.pipeline.secret_reference import SecretReference, SecretUnavailableError

AVRO = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]})
FILE_SECRET = SecretReference("file", "/run/password")
REGISTRY = RegistrySection("https://r:8081/p", "me", FILE_SECRET, "/ca.pem", 11, 12, 13, 14)


def no_file(path: str) -> bytes:
    raise AssertionError(path)


def test_every_key_of_the_registry_reaches_its_client() -> None:
    made = registry_settings(REGISTRY, {}, lambda path: b"s3cret\n" if path == "/run/password" else b"")
    assert made == SchemaRegistrySettings(
        "https://r:8081/p", "me", "s3cret", "/ca.pem", connect_timeout_ms=11, read_timeout_ms=12, lookup_timeout_ms=13,
        retries_max=14,
    )  # fmt: skip
    assert "s3cret" not in repr(made)


def test_a_registry_without_a_login_needs_no_secret() -> None:
    section = RegistrySection("http://r", None, None, None, 1, 2, 3, 4)
    assert registry_settings(section, {}, no_file).password is None


def test_a_secret_that_is_not_there_is_an_error_of_the_operator() -> None:
    section = RegistrySection("http://r", "me", SecretReference("env", "PASSWORD"), None, 1, 2, 3, 4)
    with pytest.raises(SecretUnavailableError, match="env:PASSWORD: the environment has no variable PASSWORD"):
        build_decoder(DecoderSpec("avro", AVRO, rescues=False, registry=section), {}, no_file)


def test_avro_without_a_registry_is_plain_and_rescues_if_asked() -> None:
    pytest.importorskip("fastavro")
    for rescues in (False, True):
        found = build_decoder(DecoderSpec("avro", AVRO, rescues), {}, no_file).decode(pa.array([b"\x02"], pa.binary()))
        assert found.columns.to_pylist() == [{"n": 1}]
        assert (found.rescued is not None) == rescues


@pytest.mark.parametrize(
    ("kind", "time_zone", "micros"),
    [(TimestampType(), "UTC", 0), (TimestampType(), "Europe/Berlin", -3_600_000_000), (TimestampNTZType(), "UTC", 0)],
)
def test_json_has_the_types_of_spark_and_the_time_zone_of_the_session(kind: Any, time_zone: str, micros: int) -> None:
    schema = StructType().add("n", IntegerType()).add("t", kind).json()
    made = build_decoder(DecoderSpec("json", schema, rescues=True, time_zone=time_zone), {}, no_file)
    found = made.decode(pa.array([b'{"n":"x","t":"1970-01-01T00:00:00"}'], pa.binary()))
    assert found.columns.field(1).cast(pa.int64()).to_pylist() == [micros]
    assert found.rescued is not None
    assert found.rescued.to_pylist() == ['{"n":"x"}']
