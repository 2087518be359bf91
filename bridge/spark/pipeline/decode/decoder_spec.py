"""``DecoderSpec``: what a worker of Spark needs to build a decoder; it may be in a plan, since it has no secret.

    DecodeSection, schema --driver--> DecoderSpec --pickle--> worker --build_decoder, secrets--> PayloadDecoder

The password of a registry is read where the decoder is built: in the worker, from the environment or the file of that
machine.  So the plan, the explain output and the files of Spark contain its place only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bridge.spark.pipeline.decode.avro_columns import AvroDecoder
from bridge.spark.pipeline.decode.payload_decoder import PayloadDecoder
from bridge.spark.pipeline.decode.rescued_json import RescuedJsonDecoder
from bridge.spark.pipeline.decode.schema_registry import SchemaRegistrySettings
from bridge.spark.pipeline.pipeline_spec import RegistrySection
from bridge.spark.pipeline.secret_reference import ReadFile


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A decoder in Python: of Avro, or of JSON with a rescued column.

    ``schema``: of Avro its JSON, of JSON Spark's JSON form of a struct.  ``rescues``: whether the rescued column is
    wanted.  ``time_zone``: of the Spark session.  Can be compared and hashed, so a worker keeps the decoder of it.
    """

    format: str
    schema: str
    rescues: bool
    time_zone: str = "UTC"
    registry: RegistrySection | None = None


def build_decoder(spec: DecoderSpec, environment: Mapping[str, str], read_file: ReadFile) -> PayloadDecoder:
    """The decoder.

    Raises ``PayloadSchemaError``, ``FastavroMissing``, ``SchemaRegistryRefused`` for settings of a registry that cannot
    be used, and ``SecretUnavailableError``.
    """
    if spec.format == "json":
        fields = StructType.fromJson(json.loads(spec.schema))
        return RescuedJsonDecoder(to_arrow_schema(fields, timezone="UTC"), time_zone=spec.time_zone)
    assert spec.format == "avro", f"{spec.format} needs no Python"
    registry = None if spec.registry is None else registry_settings(spec.registry, environment, read_file)
    return AvroDecoder(spec.schema, registry=registry, rescues=spec.rescues)


def registry_settings(
    section: RegistrySection, environment: Mapping[str, str], read_file: ReadFile
) -> SchemaRegistrySettings:
    """The settings of a client of the registry, with the password.  Raises as ``build_decoder``."""
    return SchemaRegistrySettings(
        section.url,
        username=section.user,
        password=None if section.password is None else section.password.resolve(environment, read_file),
        ca_file=section.ca_file,
        connect_timeout_ms=section.connect_timeout_ms,
        read_timeout_ms=section.read_timeout_ms,
        lookup_timeout_ms=section.lookup_timeout_ms,
        retries_max=section.retries_max,
    )
