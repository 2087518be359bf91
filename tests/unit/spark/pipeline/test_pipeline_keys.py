"""The table of the keys of a pipeline file: it is complete, consistent, and its rows parse what they say."""

from __future__ import annotations

import tomllib
from collections import Counter

import pytest

from bridge.spark.option_table import BATCH_ONLY, BROKER_OPTIONS, GROUP_OPTIONS, SOURCE_OPTIONS
from bridge.spark.pipeline.option_keys import (
    CONNECTION_OPTIONS,
    OPTIONS_OF_PIPELINE,
    PATH_OPTIONS,
    is_sensitive,
    option_setting,
)
from bridge.spark.pipeline.pipeline_key import KeyKind, PipelineKey, mask_url, parse_postgres_url, toml_text
from bridge.spark.pipeline.pipeline_keys import PIPELINE_KEYS, SECTIONS, keys_of
from bridge.spark.pipeline.secret_reference import SECRET_FORMS, parse_secret

IDS = [f"{key.section}.{key.name}.{'-'.join(key.formats)}" for key in PIPELINE_KEYS]
NAMES = {section: {key.name for key in keys_of(section)} for section in SECTIONS}


def test_the_source_has_every_option_of_a_stream_and_none_of_a_batch() -> None:
    assert NAMES["source"] == {*SOURCE_OPTIONS, *GROUP_OPTIONS, *BROKER_OPTIONS} - {*BATCH_ONLY, *OPTIONS_OF_PIPELINE}


def test_a_pipeline_claims_unless_the_file_says_otherwise() -> None:
    [key] = [key for key in keys_of("source") if key.name == "group.offsets.commit"]
    assert key.default == "claim"
    assert SOURCE_OPTIONS["group.offsets.commit"].default == "afterBatch"


def test_two_rows_of_one_name_have_different_formats() -> None:
    cells = Counter(
        (key.section, key.name, format_) for key in PIPELINE_KEYS for format_ in (key.formats or ("every format",))
    )
    assert [cell for cell, count in cells.items() if count > 1] == []
    for key in PIPELINE_KEYS:
        if not key.formats:
            assert sum((other.section, other.name) == (key.section, key.name) for other in PIPELINE_KEYS) == 1


@pytest.mark.parametrize("key", PIPELINE_KEYS, ids=IDS)
def test_each_row_has_sentences_and_names_keys_of_its_section(key: PipelineKey) -> None:
    assert key.section in SECTIONS
    assert key.meaning.endswith((".", ")"))
    assert set(key.excludes) | set(key.needs) <= NAMES[key.section]
    formats = next((other.setting.allowed for other in keys_of(key.section) if other.name == "format"), "")
    assert set(key.formats) <= set(formats.split(" or "))
    assert key.name not in key.excludes + key.needs
    for other in keys_of(key.section):
        if other.name in key.excludes and set(other.formats) == set(key.formats):
            assert key.name in other.excludes, "both rows say it"


@pytest.mark.parametrize("key", PIPELINE_KEYS, ids=IDS)
def test_the_default_and_the_example_of_each_row_are_values_of_it(key: PipelineKey) -> None:
    for shown in filter(None, (key.default_text, key.example)):
        value = tomllib.loads(f"x = {shown}")["x"]
        if key.kind is KeyKind.SECRET:
            parse_secret(value)
        else:
            key.setting.parse(value)
    if key.is_in_template:
        assert key.default_text or key.example, "the template has a value for each key"


def test_every_secret_of_the_options_is_a_secret_of_the_file() -> None:
    of_source = {key.name for key in keys_of("source") if key.kind is KeyKind.SECRET}
    assert of_source == {
        "kafka.sasl.password", "kafka.sasl.jaas.config", "kafka.ssl.key.password", "zookeeper.ssl.keystore.password",
    }  # fmt: skip
    for key in PIPELINE_KEYS:
        assert (key.kind is KeyKind.SECRET) == ("password" in key.name or key.name == "kafka.sasl.jaas.config")
        assert (key.kind is KeyKind.SECRET) == key.setting.is_secret
        if key.kind is KeyKind.SECRET:
            assert key.allowed == SECRET_FORMS
    assert is_sensitive("kafka.ssl.truststore.password"), "it has no effect, and may be a password nevertheless"
    assert not is_sensitive("kafka.sasl.username")


def test_every_option_that_names_a_file_is_a_path() -> None:
    def names_a_file(name: str) -> bool:
        setting = option_setting(name)
        assert setting is not None
        return any(word in setting.allowed for word in ("a file", "path of", "FILE"))

    assert {name for name in NAMES["source"] if names_a_file(name)} == PATH_OPTIONS


def test_a_topic_has_the_options_of_the_connection_and_not_those_of_reading() -> None:
    assert set(BROKER_OPTIONS) - CONNECTION_OPTIONS == {"kafka.isolation.level", "kafka.metadata.max.age.ms"}
    for section in ("sink", "dead-letters"):
        assert {name for name in NAMES[section] if name.startswith("kafka.")} == CONNECTION_OPTIONS


def test_the_rules_of_a_row_are_sentences() -> None:
    def rules(section: str, name: str, format_: str | None = None) -> str:
        return next(key.rules for key in keys_of(section, format_) if key.name == name)

    assert rules("decode", "schema") == "Required: this or schema-file with format json or avro."
    assert rules("sink", "path", "parquet") == "Required with format parquet."
    assert rules("sink", "password") == "Valid with format postgres. Needs user."
    assert rules("checkpoint", "path") == "Required."
    assert rules("dead-letters", "url") == 'Required with format postgres. Not with connection = "sink".'
    assert rules("pipeline", "name") == ""


@pytest.mark.parametrize(
    ("url", "servers", "database"),
    [
        ("postgresql://db/shop", (("db", 5432),), "shop"),
        ("postgres://db:5433/shop%20a", (("db", 5433),), "shop a"),
        ("postgresql://a,b:1,[::1]:2/d", (("a", 5432), ("b", 1), ("::1", 2)), "d"),
    ],
)
def test_the_address_of_a_database_has_servers_and_a_name(
    url: str, servers: tuple[tuple[str, int], ...], database: str
) -> None:
    assert parse_postgres_url(url) == (servers, database)


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:hunter2@db/shop", "postgresql://db/shop?password=hunter2", "db/shop", "postgresql://db",
     "postgresql://db/", "postgresql://db:0/shop", "postgresql://db:99999/s", "postgresql://a b/s", "mysql://db/shop",
     "host=db password=hunter2", "jdbc:postgresql://db/shop?password=hunter2", "postgresql://db/shop#hunter2"],
)  # fmt: skip
def test_another_address_of_a_database_is_refused_without_its_login(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|another form|is not HOST") as caught:
        parse_postgres_url(url)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in mask_url(url)


def test_an_address_without_a_login_is_shown() -> None:
    assert mask_url("postgresql://db:1/shop") == "postgresql://db:1/shop"


@pytest.mark.parametrize("value", ["a", "", 'a"b', "a'b", "a\\b", "a'\"\\b", True, 5, ("a", 'b"'), '{"a": [1]}'])
def test_a_value_that_is_written_as_toml_is_read_back(value: object) -> None:
    found = tomllib.loads(f"x = {toml_text(value)}")["x"]
    assert (tuple(found) if isinstance(found, list) else found) == value
