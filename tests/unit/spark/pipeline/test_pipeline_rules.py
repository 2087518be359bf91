"""The rules of a pipeline file that concern values, or several sections."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.spark.pipeline.pipeline_file import PipelineFileError, parse_pipeline
from bridge.spark.pipeline.pipeline_keys import SECTIONS
from bridge.spark.pipeline.pipeline_rules import rule_problems
from bridge.spark.pipeline.pipeline_spec import DeltaTarget, ParquetTarget, PipelineSpec, PostgresTarget, TopicTarget
from bridge.spark.pipeline.secret_reference import SecretReference
from bridge.spark.pipeline.section_values import SectionValues

SOURCE = {"zookeeper.connect": '"zk:2181"', "group.id": '"clicks"', "subscribe": '"clicks"'}
PARQUET = {"format": '"parquet"', "path": '"/data/rows"'}
POSTGRES = {"format": '"postgres"', "url": '"postgresql://db/shop"', "table": '"clicks"'}
TOPIC = {"format": '"topic"', "topic": '"rows"', "kafka.bootstrap.servers": '"k:9092"'}
BROKERS = {"kafka.bootstrap.servers": '"k:9092"'}


def toml(sections: dict[str, dict[str, Any]]) -> str:
    return "".join(
        f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())
        for section, keys in sections.items()
    )


def parsed(
    sink: dict[str, Any] = PARQUET, dead_letters: dict[str, Any] | None = None, source: dict[str, Any] | None = None,
    **others: dict[str, Any],
) -> PipelineSpec:  # fmt: skip
    """A file with these sections (``_`` is ``.``); ``source``: beside what it must have."""
    sections = {"source": {**SOURCE, **(source or {})}, "sink": sink, "checkpoint": {"path": '"/data/checkpoint"'}}
    if dead_letters is not None:
        sections["dead-letters"] = dead_letters
    return parse_pipeline(toml({**sections, **{name.replace("_", "."): keys for name, keys in others.items()}}), "f")


def problem(*args: Any, **sections: Any) -> str:
    """The only problem."""
    with pytest.raises(PipelineFileError) as caught:
        parsed(*args, **sections)
    [line] = caught.value.problems
    return line.removeprefix("f: ")


def test_no_rule_needs_a_value_that_is_absent() -> None:
    empty = {section: SectionValues(section) for section in SECTIONS}
    assert rule_problems(empty) == []


def test_an_interval_has_no_effect_beside_available_now() -> None:
    line = problem(trigger={"available-now": "true", "interval": '"30s"'})
    assert line == "[trigger] interval: has no effect with available-now = true; remove one of them"


# --- columns and headers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"decode": {"column": '"key"'}}, "[decode.key] column: [decode] has a column key already; choose another "
                                          "name"),
        ({"decode": {"column": '"KEY"'}}, "[decode.key] column: [decode] has a column key already; choose another "
                                          "name"),
        ({"decode_key": {"column": '"Offset"'}},
         "[decode.key] column: the source has a column Offset already; choose another name"),
        ({"decode": {"format": '"json"', "schema": '"a INT"', "rescued": '"key"'}},
         "[decode.key] column: [decode] has a column key already; choose another name"),
        ({"decode_headers": {"column": '"value"'}},
         "[decode.headers] column: [decode] has a column value already; choose another name"),
    ],
)  # fmt: skip
def test_two_columns_have_two_names(sections: dict[str, dict[str, str]], line: str) -> None:
    assert problem(**sections) == line


def test_the_column_of_headers_that_are_not_decoded_takes_no_name() -> None:
    assert parsed(decode={"column": '"headers"'}).decode.column == "headers"


def test_decoded_headers_and_dead_letters_ask_the_source_for_headers() -> None:
    dead = {"format": '"parquet"', "path": '"/data/dead"'}
    assert "includeHeaders" not in parsed().source.options
    assert parsed(decode_headers={"format": '"text"'}).source.options["includeHeaders"] == "true"
    assert parsed(dead_letters=dead).source.options["includeHeaders"] == "true"
    assert parsed(dead_letters=dead, source={"includeHeaders": "false"}).source.options["includeHeaders"] == "false"
    line = problem(decode_headers={"format": '"text"'}, source={"includeHeaders": "false"})
    assert line == (
        "[decode.headers] format: there are no headers with includeHeaders = false in [source]; remove one of them"
    )


# --- folders and tables -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "is_free"),
    [("/data/rows", False), ("/data/rows/dead", False), ("/data", False), ("/", False), ("/data/rows2", True),
     ("/data/./rows/", False), ("s3a://b/data/rows", True), ("file:/data/rows", False),
     ("FILE:///data/x/../rows/dead", False), ("file:/data/rows2", True)],
)  # fmt: skip
def test_no_folder_is_in_another_one(path: str, is_free: bool) -> None:
    dead = {"format": '"parquet"', "path": f'"{path}"'}
    if is_free:
        assert parsed(dead_letters=dead).dead_letters == ParquetTarget(path, "none", "snappy")
        return
    with pytest.raises(PipelineFileError) as caught:
        parsed(dead_letters=dead)
    assert caught.value.problems[0] == (
        "f: [dead-letters] path: is the folder of [sink], or one is in the other; choose another folder"
    )


def test_the_lineage_of_topics_has_a_folder_of_its_own() -> None:
    dead = {"format": '"parquet"', "path": '"/data/checkpoint-lineage/x"'}
    line = "[dead-letters] path: is the folder of the lineage of topics, or one is in the other; choose another folder"
    assert problem(TOPIC, dead, BROKERS) == line
    assert parsed(PARQUET, dead).dead_letters is not None


def test_the_places_of_delta_tables_have_a_folder_of_their_own() -> None:
    dead = {"format": '"parquet"', "path": '"/data/checkpoint-lineage/x"'}
    line = problem({"format": '"delta"', "table": '"shop.clicks"'}, dead)
    assert line == (
        "[dead-letters] path: is the folder of the places of Delta tables, or one is in the other; choose another "
        "folder"
    )
    assert parsed({"format": '"delta"', "path": '"/data/rows"'}, dead).dead_letters is not None


def test_the_topic_of_rows_can_be_a_column_and_that_of_dead_letters_cannot() -> None:
    target = parsed({name: value for name, value in TOPIC.items() if name != "topic"}).sink
    assert isinstance(target, TopicTarget)
    assert target.topic is None
    dead = {name: value for name, value in TOPIC.items() if name != "topic"}
    assert problem(PARQUET, dead) == "[dead-letters] topic: is missing; set it to the name of a topic"


def test_the_checkpoint_is_in_no_other_folder_also_on_an_object_store() -> None:
    line = problem({"format": '"delta"', "path": '"s3a://b/t"'}, checkpoint={"path": '"s3a://b/t/_checkpoint"'})
    assert line == "[checkpoint] path: is the folder of [sink], or one is in the other; choose another folder"


@pytest.mark.parametrize(
    ("dead", "key", "other"),
    [({"table": '"clicks"'}, "table", "table"), ({"table": '"zkconsumer_batches"'}, "table", "batch-table"),
     ({"table": '"dead"', "batch-table": '"clicks"'}, "batch-table", "table"),
     ({"table": '"dead"', "batch-table": '"zkconsumer_batches"'}, "batch-table", "batch-table")],
)  # fmt: skip
def test_tables_of_one_database_have_different_names(dead: dict[str, str], key: str, other: str) -> None:
    name = dead[key].strip('"')
    line = f"[dead-letters] {key}: {name} is {other} of [sink] already; choose another name"
    assert problem(POSTGRES, {"format": '"postgres"', "connection": '"sink"', **dead}) == line
    assert problem(POSTGRES, {**POSTGRES, "url": '"postgresql://db:5432/shop"', **dead}) == line
    assert parsed(POSTGRES, {**POSTGRES, "schema": '"other"', **dead}).dead_letters is not None
    assert parsed(POSTGRES, {**POSTGRES, "url": '"postgresql://db/other"', **dead}).dead_letters is not None


def test_rows_and_dead_letters_are_in_two_delta_tables() -> None:
    sink, dead = {"format": '"delta"', "table": '"shop.clicks"'}, {"format": '"delta"', "table": '"Shop.Clicks"'}
    line = "[dead-letters] table: Shop.Clicks is the table of [sink]; choose another name"
    assert problem(sink, dead) == line
    spec = parsed(sink, {**dead, "table": '"shop.dead"'})
    assert spec.dead_letters == DeltaTarget(None, "shop.dead", "/data/checkpoint-lineage/dead-letters")
    assert spec.writes_delta
    assert problem({"format": '"delta"', "path": '"/t"'}, {"format": '"delta"', "path": '"/t/d"'}) == (
        "[dead-letters] path: is the folder of [sink], or one is in the other; choose another folder"
    )


def test_the_two_tables_of_a_sink_have_different_names() -> None:
    line = problem({**POSTGRES, "batch-table": '"clicks"'})
    assert line == "[sink] batch-table: clicks is table of [sink] already; choose another name"


# --- connections --------------------------------------------------------------------------------------------------


def test_dead_letters_can_use_the_server_of_the_sink() -> None:
    sink = {**POSTGRES, "user": '"u"', "password": '"env:P"', "ssl-mode": '"require"', "connect-timeout": '"2s"'}
    spec = parsed(sink, {"format": '"postgres"', "connection": '"sink"', "table": '"dead"'})
    assert spec.dead_letters == PostgresTarget(
        servers=(("db", 5432),), database="shop", user="u", password=SecretReference("env", "P"), ssl_mode="require",
        ssl_root_certificate=None, connect_timeout_ms=2_000, schema="public", table="dead",
        batch_table="zkconsumer_dead_letter_batches",
    )  # fmt: skip


def test_topics_can_use_the_brokers_of_the_source_and_of_the_sink() -> None:
    source = {
        **BROKERS, "kafka.security.protocol": '"SASL_SSL"', "kafka.sasl.mechanism": '"PLAIN"',
        "kafka.sasl.username": '"u"', "kafka.sasl.password": '"env:P"', "kafka.isolation.level": '"read_committed"',
        "kafka.max.poll.records": "5",
    }  # fmt: skip
    brokers = {
        "kafka.bootstrap.servers": "k:9092", "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "u", "kafka.sasl.password": SecretReference("env", "P"),
    }  # fmt: skip
    sink = {"format": '"topic"', "topic": '"rows"', "connection": '"source"'}
    dead = {"format": '"topic"', "topic": '"dead"', "connection": '"sink"'}
    spec = parsed(sink, dead, source)
    assert spec.sink == TopicTarget(
        "rows", brokers, "none", "all", "/data/checkpoint-lineage/sink", holds_dead_letters=False
    ), "without what only a reader has"
    place = "/data/checkpoint-lineage/dead-letters"
    assert spec.dead_letters == TopicTarget("dead", brokers, "none", "all", place, holds_dead_letters=True)
    assert parsed(PARQUET, {**dead, "connection": '"source"'}, source).dead_letters == spec.dead_letters


def test_a_connection_of_another_section_must_be_there() -> None:
    dead = {"format": '"topic"', "topic": '"dead"'}
    needs = (
        '[dead-letters] connection: "source" needs kafka.bootstrap.servers in [source]; set it there, or set it here '
    )
    assert problem(PARQUET, {**dead, "connection": '"source"'}) == f'{needs}with connection = "own"'
    line = (
        '[dead-letters] connection: "sink" needs a [sink] of format topic, and its format is parquet; set the keys of '
    )
    assert problem(PARQUET, {**dead, "connection": '"sink"'}) == f"{line}the connection in this section"
    assert (
        problem(PARQUET, dead) == "[dead-letters] kafka.bootstrap.servers: is missing; set it to HOST:PORT[,HOST:PORT…]"
    )


def test_a_section_that_uses_another_connection_has_no_keys_of_its_own_for_it() -> None:
    words = 'cannot be set with connection = "{}"; remove it, or set connection = "own"'
    dead = {"format": '"postgres"', "connection": '"sink"', "table": '"dead"', "ssl-mode": '"require"'}
    assert problem(POSTGRES, dead) == f"[dead-letters] ssl-mode: {words.format('sink')}"
    line = problem({**TOPIC, "connection": '"source"'}, None, BROKERS)
    assert line == f"[sink] kafka.bootstrap.servers: {words.format('source')}"
    login = {"kafka.sasl.password": '"env:P"'}
    line = problem({"format": '"topic"', "topic": '"rows"', "connection": '"source"', **login}, None, BROKERS)
    assert line == f"[sink] kafka.sasl.password: {words.format('source')}", "and nothing about a login without SASL"


def test_a_certificate_is_for_modes_that_check_it() -> None:
    certificate = {**POSTGRES, "ssl-root-certificate": '"ca.pem"'}
    assert problem({**certificate, "ssl-mode": '"require"'}) == (
        "[sink] ssl-root-certificate: has no effect with ssl-mode require; set ssl-mode to verify-ca or verify-full"
    )
    assert (
        problem(certificate)
        == "[sink] ssl-root-certificate: needs ssl-mode; set it, too, or remove ssl-root-certificate"
    )
    spec = parsed({**certificate, "ssl-mode": '"verify-ca"'})
    assert isinstance(spec.sink, PostgresTarget)
    assert spec.sink.ssl_root_certificate == "ca.pem"


# --- topics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "is_read"),
    [
        ({"subscribe": '"a, rows"'}, True), ({"subscribe": '"a"'}, False), ({"subscribePattern": '"r.*"'}, True),
        ({"subscribePattern": '"r"'}, False), ({"subscribe.blacklist": '"a"'}, True),
        ({"subscribe.blacklist": '"rows"'}, False), ({"topics": '"rows:2"'}, True), ({"topics": '"a:2"'}, False),
    ],
)  # fmt: skip
def test_a_pipeline_does_not_read_what_it_writes(source: dict[str, str], is_read: bool) -> None:
    ways = {key: value for key, value in SOURCE.items() if key != "subscribe"}
    sections = {"source": {**ways, **BROKERS, **source}, "sink": TOPIC, "checkpoint": {"path": '"/c"'}}
    if not is_read:
        parse_pipeline(toml(sections), "f")
        return
    with pytest.raises(PipelineFileError) as caught:
        parse_pipeline(toml(sections), "f")
    assert caught.value.problems == (
        "f: [sink] topic: [source] reads the topic rows of the same brokers, so the pipeline would read what it "
        "writes; choose another topic",
    )
    parse_pipeline(toml({**sections, "sink": {**TOPIC, "kafka.bootstrap.servers": '"other:9092"'}}), "f")


def test_rows_and_dead_letters_are_in_different_topics() -> None:
    dead = {"format": '"topic"', "topic": '"rows"', "connection": '"sink"'}
    assert problem(TOPIC, dead) == "[dead-letters] topic: is the topic of [sink]; choose another topic"
    assert problem(TOPIC, TOPIC) == "[dead-letters] topic: is the topic of [sink]; choose another topic"
    other = {**TOPIC, "kafka.bootstrap.servers": '"other:9092"'}
    assert parsed(TOPIC, other).dead_letters is not None


# --- other rules --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("format_", "count"), [("none", 1), ("parquet", 0), (None, 0)])
def test_corrupt_records_become_dead_letters_only_where_there_are_some(format_: str | None, count: int) -> None:
    sections = {section: SectionValues(section) for section in SECTIONS}
    sections["source"] = SectionValues("source", {"onCorruptRecord": "deadLetter"}, frozenset({"onCorruptRecord"}))
    sections["dead-letters"] = SectionValues("dead-letters", format=format_)
    assert rule_problems(sections) == [
        "[source] onCorruptRecord: deadLetter needs the section [dead-letters] with a format; set it, or choose fail "
        "or skip"
    ] * count  # fmt: skip


def test_two_programs_do_not_listen_on_one_port() -> None:
    listen = {"metrics.listen": '"127.0.0.1:9310"'}
    assert problem(source=listen, metrics={"listen": '"127.0.0.1:9310"'}) == (
        "[metrics] listen: 127.0.0.1:9310 is metrics.listen of [source], and the membership listens there; choose "
        "another port"
    )
    assert parsed(source=listen, metrics={"listen": '"127.0.0.1:9311"'}).metrics.listen == "127.0.0.1:9311"
    any_port = '"127.0.0.1:0"'
    assert parsed(source={"metrics.listen": any_port}, metrics={"listen": any_port}).metrics.listen is not None
