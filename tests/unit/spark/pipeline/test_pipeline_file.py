"""Pipeline files: what they become, and every problem of a file in one line each."""

from __future__ import annotations

import pickle
import re
import traceback
from pathlib import Path
from typing import Any

import pytest

from bridge.spark.options import read_options
from bridge.spark.pipeline.pipeline_file import PipelineFileError, parse_pipeline, read_pipeline
from bridge.spark.pipeline.pipeline_key import KeyKind, PipelineKey, mask_url, toml_text
from bridge.spark.pipeline.pipeline_keys import PIPELINE_KEYS, SECTIONS
from bridge.spark.pipeline.pipeline_spec import (
    DecodeSection,
    DeltaTarget,
    MetricsSection,
    ParquetTarget,
    PipelineSpec,
    PostgresTarget,
    RegistrySection,
    TopicTarget,
    TransformSection,
    TriggerSection,
)
from bridge.spark.pipeline.secret_reference import SecretReference
from zkconsumer.errors import UsageError

S = "hunter2secret"

LEAST: dict[str, dict[str, Any]] = {
    "source": {"zookeeper.connect": '"zk:2181/kafka"', "group.id": '"clicks"', "subscribe": '"clicks"'},
    "sink": {"format": '"parquet"', "path": '"/data/rows"'},
    "checkpoint": {"path": '"/data/checkpoint"'},
}
"""Section -> key -> value as TOML; the least that a file must have."""


def toml(**sections: dict[str, Any] | None) -> str:
    """The least file with these keys instead (``_`` is ``-``, ``__`` is ``.``); None removes a section or a key."""
    made = {section: dict(keys) for section, keys in LEAST.items()}
    for name, keys in sections.items():
        section = name.replace("__", ".").replace("_", "-")
        if keys is None:
            del made[section]
        elif section == "sink" and "format" in keys:
            made[section] = dict(keys)
        else:
            made.setdefault(section, {}).update(keys)
    return "\n".join(
        f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items() if value is not None)
        for section, keys in made.items()
    )


def parsed(**sections: dict[str, Any] | None) -> PipelineSpec:
    return parse_pipeline(toml(**sections), "/etc/pipelines/clicks.toml")


def problems(text: str) -> list[str]:
    """The problems without the name of the file."""
    with pytest.raises(PipelineFileError) as caught:
        parse_pipeline(text, "/etc/pipelines/clicks.toml")
    assert str(caught.value) == "\n".join(caught.value.problems)
    assert len(set(caught.value.problems)) == len(caught.value.problems)
    for line in caught.value.problems:
        assert line.startswith("/etc/pipelines/clicks.toml: ")
        assert line.isprintable()
    return [line.removeprefix("/etc/pipelines/clicks.toml: ") for line in caught.value.problems]


def problems_with(**sections: dict[str, Any] | None) -> list[str]:
    return problems(toml(**sections))


# --- what a file becomes ------------------------------------------------------------------------------------------


def test_the_least_file_is_a_complete_pipeline() -> None:
    assert parsed() == PipelineSpec(
        file="/etc/pipelines/clicks.toml",
        name="clicks",
        source=parsed().source,
        decode=DecodeSection("value", "bytes", "value"),
        decode_key=DecodeSection("key", "bytes", "key"),
        decode_headers=None,
        transform=TransformSection(("*",), None),
        sink=ParquetTarget("/data/rows", "day", "snappy"),
        dead_letters=None,
        trigger=TriggerSection(30_000),
        checkpoint=parsed().checkpoint,
        metrics=MetricsSection(None),
    )
    assert parsed().source.options == {
        "zookeeper.connect": "zk:2181/kafka", "group.id": "clicks", "subscribe": "clicks",
        "group.offsets.commit": "claim",
    }  # fmt: skip
    assert parsed().checkpoint.path == "/data/checkpoint"


def test_the_options_of_the_source_are_those_that_the_source_reads() -> None:
    options = read_options(parsed().source.option_texts(), is_stream=True)
    assert (options.config.group_id, options.commit_mode.value) == ("clicks", "claim")


def test_every_key_of_every_section_is_in_the_specification() -> None:
    spec = parsed(
        pipeline={"name": '"night"'},
        decode={
            "format": '"avro"', "schema": '\'{"type": "string"}\'', "rescued": '"_rescued"',
            "registry": '"https://registry:8081/a"', "registry-user": '"u"', "registry-password": '"env:R"',
            "registry-ca-file": '"ca.pem"', "registry-connect-timeout": '"1s"', "registry-read-timeout": '"2s"',
            "registry-timeout": '"1m"', "registry-retries": "2",
        },
        decode__key={"format": '"text"', "column": '"id"'},
        decode__headers={"column": '"h"'},
        transform={"select": '["a", "cast(b AS INT) b"]', "where": '"a IS NOT NULL"'},
        sink={
            "format": '"postgres"', "url": '"postgresql://db1,db2:5433/shop"', "user": '"u"', "password": '"file:pw"',
            "ssl-mode": '"verify-full"', "ssl-root-certificate": '"db.pem"', "connect-timeout": '"3s"',
            "schema": '"s"', "table": '"t"', "batch-table": '"b"',
        },
        dead_letters={
            "format": '"topic"', "topic": '"dead"', "compression": '"lz4"', "acks": "1",
            "kafka.bootstrap.servers": '["k1:9092", "k2:9092"]', "kafka.security.protocol": '"SSL"',
            "kafka.ssl.truststore.location": '"kafka.pem"',
        },
        trigger={"available-now": "true"},
        metrics={"listen": '"127.0.0.1:9310"'},
    )  # fmt: skip
    folder = "/etc/pipelines"
    assert spec.name == "night"
    registry = RegistrySection(
        "https://registry:8081/a", "u", SecretReference("env", "R"), f"{folder}/ca.pem", 1_000, 2_000, 60_000, 2
    )
    assert spec.decode == DecodeSection("value", "avro", None, '{"type": "string"}', None, "_rescued", registry)
    assert spec.decode_key == DecodeSection("key", "text", "id")
    assert spec.decode_headers == DecodeSection("headers", "bytes", "h")
    assert spec.transform == TransformSection(("a", "cast(b AS INT) b"), "a IS NOT NULL")
    password = SecretReference("file", f"{folder}/pw")
    assert spec.sink == PostgresTarget(
        servers=(("db1", 5432), ("db2", 5433)), database="shop", user="u", password=password, ssl_mode="verify-full",
        ssl_root_certificate=f"{folder}/db.pem", connect_timeout_ms=3_000, schema="s", table="t", batch_table="b",
    )  # fmt: skip
    brokers = {
        "kafka.bootstrap.servers": "k1:9092,k2:9092", "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": f"{folder}/kafka.pem",
    }  # fmt: skip
    assert spec.dead_letters == TopicTarget(
        "dead", brokers, "lz4", "1", "/data/checkpoint-lineage/dead-letters", holds_dead_letters=True
    )
    assert spec.trigger.is_available_now
    assert spec.metrics.listen == "127.0.0.1:9310"


def test_a_delta_sink_is_a_folder_or_a_table() -> None:
    assert parsed(sink={"format": '"delta"', "path": '"rows"'}).sink == DeltaTarget("/etc/pipelines/rows", None)
    assert parsed(sink={"format": '"delta"', "table": '"a.b"'}).sink == DeltaTarget(
        None, "a.b", "/data/checkpoint-lineage/sink"
    )


@pytest.mark.parametrize(
    ("trigger", "interval_ms"),
    [({"interval": '"90s"'}, 90_000), ({"interval": '"0s"'}, 0), ({"available-now": "false"}, 30_000),
     ({"available-now": "true"}, None), ({"available-now": '"true"'}, None),
     ({"available-now": "false", "interval": '"1m"'}, 60_000)],
)  # fmt: skip
def test_a_pipeline_runs_at_an_interval_or_once(trigger: dict[str, str], interval_ms: int | None) -> None:
    assert parsed(trigger=trigger).trigger == TriggerSection(interval_ms)


@pytest.mark.parametrize(
    ("file", "name"),
    [("clicks.toml", "clicks"), ("/a b/my clicks.v2.toml", "my-clicks.v2"), ("ä.toml", "pipeline"), (".toml", "toml")],
)
def test_a_pipeline_without_a_name_has_that_of_its_file(file: str, name: str) -> None:
    assert parse_pipeline(toml(), file).name == name


def test_a_specification_is_frozen_and_can_be_pickled() -> None:
    spec = parsed()
    assert pickle.loads(pickle.dumps(spec)) == spec
    with pytest.raises(AttributeError):
        spec.name = "x"  # type: ignore[misc]


# --- TOML ---------------------------------------------------------------------------------------------------------


def test_dotted_keys_quoted_keys_and_tables_are_the_same() -> None:
    dotted = parsed(source={"kafka.bootstrap.servers": '"k:1"', "offsets.storage": '"zookeeper"'})
    quoted = parsed(source={'"kafka.bootstrap.servers"': '"k:1"', '"offsets.storage"': '"zookeeper"'})
    table = parse_pipeline(
        toml(source={"offsets": '{storage = "zookeeper"}'}) + '[source.kafka]\nbootstrap = {servers = "k:1"}\n',
        "/etc/pipelines/clicks.toml",
    )
    assert dotted.source == quoted.source == table.source
    assert dotted.source.options["kafka.bootstrap.servers"] == "k:1"


def test_the_decode_sections_may_be_written_as_tables_of_decode() -> None:
    one = parsed(decode__key={"format": '"text"'}, decode={"format": '"text"'})
    assert one == parsed(decode={"format": '"text"', "key": '{format = "text"}'})
    assert one == parsed(decode={"format": '"text"', "key.format": '"text"'})


def test_numbers_booleans_lists_and_tables_are_taken_as_the_texts_of_options() -> None:
    options = parsed(
        source={
            "subscribe": '["a", "b"]', "maxOffsetsPerTrigger": "5", "failOnDataLoss": "false",
            "startingOffsets": '{a = {"0" = 23}, b = {"0" = -2}}', "consumer.threads": "2",
            "skipOffsets.a.0": "[[1, 5]]",
        }
    ).source.options  # fmt: skip
    assert options["subscribe"] == "a,b"
    assert (options["maxOffsetsPerTrigger"], options["failOnDataLoss"], options["consumer.threads"]) == (
        "5",
        "false",
        "2",
    )
    assert options["startingOffsets"] == '{"a": {"0": 23}, "b": {"0": -2}}'
    assert options["skipOffsets"] == '{"a": {"0": [[1, 5]]}}'


def test_json_may_have_several_lines() -> None:
    value = "'''{\n  \"clicks\": {\"0\": 1}\n}'''"
    assert parsed(source={"startingOffsets": value}).source.options["startingOffsets"].count("\n") == 2


def test_options_of_the_source_are_written_in_any_case_and_have_their_own_names_then() -> None:
    options = parsed(source={"STARTINGOFFSETS": '"latest"', "kafka.Bootstrap.Servers": '"k:1"'}).source.options
    assert {"startingOffsets", "kafka.bootstrap.servers"} <= options.keys()


def test_blanks_around_an_option_of_the_source_have_no_meaning_as_for_the_source_itself() -> None:
    [line] = problems_with(source={"onCorruptRecord": '" deadLetter"'}, dead_letters={"format": '"none"'})
    assert line.startswith("[source] onCorruptRecord: deadLetter needs the section [dead-letters] with a format")
    options = parsed(source={"onCorruptRecord": '" skip\\n"', "subscribe": '" a "'}).source.options
    assert (options["onCorruptRecord"], options["subscribe"]) == ("skip", "a")


@pytest.mark.parametrize(
    ("source", "key"),
    [({'"group.offsets.commit"': '"none"', "group.offsets.commit": '"none"'}, "group.offsets.commit"),
     ({"startingOffsets": '"latest"', "startingoffsets": '"latest"'}, "startingOffsets")],
)  # fmt: skip
def test_an_option_that_is_set_twice_is_a_problem(source: dict[str, str], key: str) -> None:
    [line] = problems_with(source=source)
    assert line == f"[source] {key}: is set twice (case, quotes and dots make no difference); remove one of them"


def test_a_key_that_is_set_twice_is_a_problem() -> None:
    servers = {"kafka.bootstrap.servers": '"k:1"', '"kafka.bootstrap.servers"': '"k:2"'}
    [line] = problems_with(sink={"format": '"topic"', "topic": '"t"', **servers})
    assert line == "[sink] kafka.bootstrap.servers: is set twice, as a quoted and as a dotted key; remove one of them"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[source]\nname = \n", r"line 2, column 8: is not valid TOML: .*; correct it \(a text needs quotes\)"),
        (f"[sink]\npassword = {S}\n", r"line 2, column 12: is not valid TOML: .*; correct it .*"),
        ('a = 1\nb = "x', r"line 2, column 7: is not valid TOML: .*; correct it .*"),
        ("\n\na = 1\na = 2\n", r"line 4, column \d: is not valid TOML: .*; correct it .*"),
        (
            'subscribe = "a"\nsubscribe.blacklist = "b"\n',
            r"line [23], column \d+: is not valid TOML: .*; correct it .*",
        ),
        (f"a = {'9' * 5000}", "a number has too many digits; correct it"),
        (f"a = {'[' * 5000}", "a value is nested too deeply; correct it"),
    ],
)
def test_wrong_toml_is_one_line_with_its_place(text: str, words: str) -> None:
    [line] = problems(text)
    assert re.fullmatch(words, line)
    assert S not in line


def test_a_section_that_is_not_known_is_reported_with_the_nearest_one_beside_other_problems() -> None:
    lines = problems('x = 1\n[sinc]\npath = "a"\n[[metrics]]\n[decode]\nkey = 1\n' + toml(sink=None))
    assert lines[0] == "x: is before the first section; write it below a section, for example [pipeline]"
    assert lines[1].startswith("[sinc]: is not known (did you mean sink?); the sections are [pipeline], [source], ")
    assert "[decode] key: is a number, and not a section; write [decode.key] in a line" in lines
    assert "[sink] format: is missing; set it to parquet or delta or postgres or topic" in lines
    assert "[metrics]: is a section that can be there only once; write [metrics] in a line, and its keys below" in lines
    assert problems("sink = 5\n" + toml(sink=None))[0] == (
        "[sink]: is a number, and not a section; write [sink] in a line, and its keys below"
    )


# --- problems -----------------------------------------------------------------------------------------------------


def test_an_empty_file_names_everything_that_is_missing() -> None:
    assert problems("") == [
        "[source] zookeeper.connect: is missing; set it to HOST:PORT[,HOST:PORT…][/CHROOT]",
        "[source] group.id: is missing; set it to letters, digits, '.', '_' and '-' of ASCII; not empty",
        "[source] subscribe: is missing, and so is subscribePattern or subscribe.blacklist or topics; set one of them",
        "[sink] format: is missing; set it to parquet or delta or postgres or topic",
        "[checkpoint] path: is missing; set it to a path or a URI",
    ]


def test_all_problems_are_reported_at_once_in_the_order_of_the_sections() -> None:
    lines = problems_with(
        checkpoint={"path": None}, metrics={"listen": '"x"'}, trigger={"interval": "30"}, decode={"format": '"jsn"'},
        source={"startingOffsets": '"erliest"', "endingOffsets": '"latest"', "zk.connect": '"z"', "kafka.sasl.x": "1"},
        transform={"select": '"a"', "wher": '"a"'}, pipeline={"name": '"a b"'},
    )  # fmt: skip
    assert lines == [
        '[pipeline] name: "a b" is not possible (it is illegal, contains a character other than ASCII alphanumerics, '
        "'.', '_' and '-': ' '); set it to letters, digits, '.', '_' and '-'",
        "[source] startingOffsets: erliest: it is neither a known word nor JSON (did you mean earliest?); set it to "
        'group, earliest, latest or `{"orders": {"0": 23, "1": -2}}`, or remove it (the default is group)',
        "[source] endingOffsets: cannot be set: a stream has no end; it is an option of spark.read",
        "[source] zk.connect: is not known; its name here is zookeeper.connect",
        "[source] kafka.sasl.x: is not known; did you mean kafka.sasl.username?",
        '[decode] format: "jsn" is not possible (did you mean json?); set it to bytes or text or json or avro, or '
        'remove it (the default is "bytes")',
        '[transform] select: "a" is not possible; set it to a list of texts, like ["a", "upper(b) AS b"], or remove it '
        '(the default is ["*"])',
        "[transform] wher: is not known (did you mean where?); correct it, or remove it",
        '[trigger] interval: 30 is not possible (it has no unit: "30s" would be seconds); set it to a number with ms, '
        's, m, h or d, like "30s", or remove it (the default is "30s")',
        "[checkpoint] path: is missing; set it to a path or a URI",
        "[metrics] listen: x is not possible; set it to HOST:PORT",
    ]


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"checkpoint": {"url": '"x"'}}, "[checkpoint] url: is not known here: it is a key of [sink] and "
         "[dead-letters]; move it, or remove it"),
        ({"source": {"batchRangesPath": '"x"'}}, "[source] batchRangesPath: the pipeline sets it; remove it"),
        ({"source": {"includeisutf8": "true"}}, "[source] includeIsUtf8: the pipeline sets it; remove it"),
        ({"metrics": {"zzz": "1"}}, "[metrics] zzz: is not known in this section; remove it; its keys are listen"),
        ({"sink": {"pth": '"x"'}}, "[sink] pth: is not known (did you mean path?); correct it, or remove it"),
        ({"sink": {"url": '"postgresql://h/d"'}}, "[sink] url: is valid with format postgres, and the format is "
         "parquet; remove it, or change the format"),
        ({"dead_letters": {"path": '"x"'}}, "[dead-letters] path: is valid with format parquet or delta, and the "
         "format is none; remove it, or change the format"),
        ({"sink": {"format": '"iceberg"'}},
         '[sink] format: "iceberg" is not possible (Iceberg has no release for Spark '
         "4.2 or later); set it to parquet or delta or postgres or topic"),
        ({"sink": {"path": '"~/rows"'}},
         '[sink] path: "~/rows" is not possible (a ~ is not replaced; write the complete '
         "path); set it to a path or a URI"),
        ({"sink": {"path": '{a = "x"}'}},
         "[sink] path: a table is not possible (it is a table, and not a text); set it to a path or a URI"),
        ({"sink": {"path": '["x"]'}}, "[sink] path: a list is not possible (it is a list, and not a text); set it to a "
         "path or a URI"),
        ({"sink": {"compression": '"zip"'}}, '[sink] compression: "zip" is not possible (did you mean gzip?); set it '
         'to snappy or zstd or gzip or none, or remove it (the default is "snappy")'),
        ({"decode": {"format": '"json"'}}, "[decode] schema: is missing, and so is schema-file; set one of them"),
        ({"decode": {"format": '"avro"', "schema": '"x"', "schema-file": '"y"'}},
         "[decode] schema and schema-file: are set together; set only one of them"),
        ({"decode": {"format": '"avro"', "schema": '"x"', "registry-retries": "1"}},
         "[decode] registry-retries: needs registry; set it, too, or remove registry-retries"),
        ({"decode": {"format": '"avro"', "schema": '"x"', "registry": '"http://r"', "registry-user": '"u"'}},
         "[decode] registry-user: needs registry-password; set it, too, or remove registry-user"),
        ({"decode": {"format": '"text"', "schema": '"x"'}}, "[decode] schema: is valid with format json or avro, and "
         "the format is text; remove it, or change the format"),
        ({"decode": {"format": '"json"', "schema": '" "'}},
         '[decode] schema: " " is not possible (it is empty); set it to the text of a schema'),
        ({"decode": {"format": '"avro"', "schema": '"x"', "registry": '"ftp://r"'}},
         "[decode] registry: ftp://r is not possible (it is not the URL of a server); set it to "
         "http(s)://HOST[:PORT][/PREFIX]"),
        ({"transform": {"select": "[]"}},
         "[transform] select: a list is not possible (it is empty); set it to a list of "
         'texts, like ["a", "upper(b) AS b"], or remove it (the default is ["*"])'),
        ({"source": {"startingTimestamp": "2020-01-01"}}, "[source] startingTimestamp: it is a date or a time, and "
         "not a text; set it to an integer from 0 to 9223372036854775807"),
        ({"source": {"startingOffsets": "{a = 2020-01-01}"}}, "[source] startingOffsets: it contains a value that JSON "
         'does not have; set it to group, earliest, latest or `{"orders": {"0": 23, "1": -2}}`'),
        ({"source": {"subscribePattern": '"a"'}}, "[source] subscribe and subscribePattern: are set together; set only "
         "one of them"),
        ({"source": {"kafka.group.id": '"x"'}}, "[source] kafka.group.id: cannot be set; the group is the option "
         "group.id, without the prefix kafka.: the query becomes a member of it"),
        ({"source": {"consumer.config": '"~/c.properties"'}}, "[source] consumer.config: a ~ is not replaced; write "
         "the complete path; set it to the path of a file"),
        ({"source": {"offsets.storage": '"kafka"', "dual.commit.enabled": "false"}},
         "[source] group.offsets.commit: claim needs the group's offsets in ZooKeeper, because a commit to Kafka "
         "cannot have a condition: set dual.commit.enabled=true (ZooKeeper decides, Kafka gets a copy), or "
         "group.offsets.commit=afterBatch"),
        ({"sink": {"format": '"delta"'}}, "[sink] path: is missing, and so is table; set one of them"),
        ({"sink": {"format": '"postgres"', "url": '"postgresql://h/d"'}}, "[sink] table: is missing; set it to the "
         "name of a table, without its schema"),
        ({"sink": {"format": '"topic"', "topic": '"t"', "kafka.bootstrap.servers": '"k:1"',
                   "kafka.sasl.mechanism": '"PLAIN"'}},
         "[sink] kafka.security.protocol: PLAINTEXT: does not use SASL, so kafka.sasl.mechanism would have no effect; "
         "set kafka.security.protocol=SASL_PLAINTEXT or SASL_SSL, or remove them"),
    ],
)  # fmt: skip
def test_each_problem_names_the_key_what_is_wrong_and_what_to_do(sections: dict[str, Any], line: str) -> None:
    assert problems_with(**sections) == [line]


def test_a_text_of_the_file_cannot_add_a_line_to_the_error_or_control_a_terminal() -> None:
    for text in (
        toml(sink={'"a\\nb\\u001b[2J"': "1"}),
        toml(pipeline={"name": '"a\\nb\\u001b[2J"'}),
        toml(source={"startingOffsets": '"a\\n  b\\u001b[2J"'}),
        '["a\\nb"]\n' + toml(),
    ):
        assert len(problems(text)) == 1


# --- secrets ------------------------------------------------------------------------------------------------------

SECRET_KEYS = [key for key in PIPELINE_KEYS if key.kind is KeyKind.SECRET]


def file_with(key: PipelineKey, value: object) -> str:
    """A file whose section has the right format for this key, and this value."""
    sections: dict[str, dict[str, Any]] = {key.section: {}}
    if key.formats:
        sections[key.section]["format"] = toml_text(key.formats[0])
    if key.section == "sink":
        required = [row for row in PIPELINE_KEYS if row.section == "sink" and row.is_required and row.example]
        sections["sink"] |= {row.name: row.example for row in required if row.formats == key.formats}
    shown = value if isinstance(value, str) and value.startswith("{") else toml_text(value)
    sections[key.section][key.name] = shown
    return toml(**{section.replace(".", "__").replace("-", "_"): keys for section, keys in sections.items()})


@pytest.mark.parametrize("key", SECRET_KEYS, ids=[f"{key.section}.{key.name}" for key in SECRET_KEYS])
def test_a_plain_secret_is_refused_and_is_in_no_text(key: PipelineKey) -> None:
    for value in (S, f"env:{S}!", f"file:~{S}", f"x\n{S}", ["a", S], f'{{a = "{S}"}}', f"password={S}"):
        with pytest.raises(PipelineFileError) as caught:
            parse_pipeline(file_with(key, value), "clicks.toml")
        [line] = [line for line in caught.value.problems if f"[{key.section}] {key.name}: the " in line]
        assert 'set it to "env:NAME" (a variable of the environment) or "file:PATH"' in line
        assert S not in "".join(traceback.format_exception(caught.value))
        assert S not in repr(caught.value)


@pytest.mark.parametrize("key", SECRET_KEYS, ids=[f"{key.section}.{key.name}" for key in SECRET_KEYS])
def test_a_reference_of_a_secret_is_accepted_for_each_secret(key: PipelineKey) -> None:
    with pytest.raises(PipelineFileError) as caught:
        parse_pipeline(file_with(key, "env:A") + "\n[metrics]\nlisten = 1\n", "clicks.toml")
    assert not any(f"{key.name}: the secret" in line for line in caught.value.problems)


@pytest.mark.parametrize(
    "key", [key for key in PIPELINE_KEYS if key.setting.mask is mask_url], ids=lambda key: key.name
)
def test_a_login_in_an_address_is_refused_and_is_in_no_text(key: PipelineKey) -> None:
    for value in (f"postgresql://u:{S}@h/d", f"https://u:{S}@h", f"https://u:{S}/x@h", f"https://h/?password={S}",
                  f"postgresql://h/d?password={S}", f"u:{S}@h", S, f"host=h password={S}"):  # fmt: skip
        lines = problems(file_with(key, value))
        assert any(f"[{key.section}] {key.name}: " in line for line in lines)
        assert S not in "\n".join(lines)


@pytest.mark.parametrize("key", ["zookeeper.auth", "zookeeper.connect", "kafka.bootstrap.servers"])
def test_a_password_in_an_option_of_the_source_is_refused_and_is_in_no_text(key: str) -> None:
    for value in (f"digest:u:{S}", f"digest::{S}") if key == "zookeeper.auth" else (f"u:{S}@h:1", f"u:{S}/x@h:1"):
        lines = problems_with(source={key: toml_text(value)})
        assert any(line.startswith(f"[source] {key}: ") for line in lines)
        assert S not in "\n".join(lines)


def test_a_problem_of_a_secret_has_no_second_line_about_what_follows_from_it() -> None:
    login = {
        "kafka.security.protocol": '"SASL_SSL"', "kafka.sasl.mechanism": '"PLAIN"', "kafka.sasl.username": '"u"',
        "kafka.sasl.password": '"x"',
    }  # fmt: skip
    assert len(problems_with(source=login)) == 1
    topic = {"format": '"topic"', "topic": '"t"', "kafka.bootstrap.servers": '"k:1"'}
    assert len(problems_with(sink={**topic, **login})) == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_login_with_references_is_valid_for_the_source_and_for_a_topic(mechanism: str) -> None:
    login = {"kafka.security.protocol": '"SASL_SSL"', "kafka.sasl.mechanism": toml_text(mechanism)}
    jaas = {**login, "kafka.sasl.jaas.config": '"file:jaas"'}
    topic = {"format": '"topic"', "topic": '"t"', "kafka.bootstrap.servers": '"k:1"'}
    spec = parsed(source=jaas, sink={**topic, **login, "kafka.sasl.username": '"u"', "kafka.sasl.password": '"env:P"'})
    reference = SecretReference("file", "/etc/pipelines/jaas")
    assert spec.source.options["kafka.sasl.jaas.config"] == reference
    assert isinstance(spec.sink, TopicTarget)
    assert spec.sink.connection["kafka.sasl.password"] == SecretReference("env", "P")
    assert spec.source.option_texts()["kafka.sasl.jaas.config"] == "file:/etc/pipelines/jaas"
    resolved = spec.source.resolved_options({}, {"/etc/pipelines/jaas": S.encode()}.__getitem__)
    assert resolved["kafka.sasl.jaas.config"] == S
    assert S not in repr(spec)


# --- files and folders --------------------------------------------------------------------------------------------


def test_relative_paths_begin_in_the_folder_of_the_file_and_uris_are_kept() -> None:
    spec = parsed(
        source={"kafka.ssl.ca.location": '"../ca.pem"', "kafka.security.protocol": '"SSL"',
                "zookeeper.auth": '"digest:login"'},
        sink={"format": '"parquet"', "path": '"out/./rows"'}, checkpoint={"path": '"s3a://bucket/checkpoint"'},
        decode={"format": '"avro"', "schema-file": '"a.avsc"'},
    )  # fmt: skip
    assert spec.source.options["kafka.ssl.ca.location"] == "/etc/ca.pem"
    assert spec.source.options["zookeeper.auth"] == "digest:/etc/pipelines/login"
    assert isinstance(spec.sink, ParquetTarget)
    assert spec.sink.path == "/etc/pipelines/out/rows"
    assert spec.checkpoint.path == "s3a://bucket/checkpoint"
    assert spec.decode.schema_file == "/etc/pipelines/a.avsc"
    assert spec.decode.schema is None, "no file was read"
    assert parsed(source={"zookeeper.auth": '"sasl-gssapi:me"'}).source.options["zookeeper.auth"] == "sasl-gssapi:me"


def test_a_file_is_read_with_its_schemas_and_with_what_consumer_config_names(tmp_path: Path) -> None:
    (tmp_path / "clicks.toml").write_bytes(
        b"\xef\xbb\xbf"
        + toml(
            source={"zookeeper.connect": None, "group.id": None, "consumer.config": '"old.properties"'},
            decode={"format": '"json"', "schema-file": '"clicks.ddl"'},
        )
        .replace("\n", "\r\n")
        .encode()
    )
    (tmp_path / "clicks.ddl").write_text("id BIGINT\n")
    (tmp_path / "old.properties").write_text("zookeeper.connect=zk:2181\ngroup.id=old\n")
    spec = read_pipeline(tmp_path / "clicks.toml")
    assert spec.decode.schema == "id BIGINT\n"
    assert spec.source.options["consumer.config"] == str(tmp_path / "old.properties")
    (tmp_path / "old.properties").write_text("zookeeper.connect=zk:2181\n")
    with pytest.raises(PipelineFileError, match=r"\[source\] group.id: is missing"):
        read_pipeline(tmp_path / "clicks.toml")


def test_paths_are_absolute_when_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clicks.toml").write_text(toml(sink={"format": '"parquet"', "path": '"rows"'}))
    monkeypatch.chdir(tmp_path)
    spec = read_pipeline("clicks.toml")
    assert spec.file == "clicks.toml"
    assert spec.sink == ParquetTarget(f"{tmp_path}/rows", "day", "snappy")


def test_files_that_cannot_be_read_are_problems_beside_the_others(tmp_path: Path) -> None:
    path = tmp_path / "clicks.toml"
    path.write_text(
        toml(
            decode={"format": '"avro"', "schema-file": '"absent"'}, metrics={"listen": "1"},
            decode__key={"format": '"avro"', "schema-file": '"empty"'},
            decode__headers={"format": '"avro"', "schema-file": '"latin"'},
            source={"consumer.config": '"nothing.properties"'},
        )
    )  # fmt: skip
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "latin").write_bytes(b"\xe4")
    with pytest.raises(PipelineFileError) as caught:
        read_pipeline(path)
    assert [line.removeprefix(f"{path}: ").replace(f"{tmp_path}/", "") for line in caught.value.problems] == [
        "[source] consumer.config: the configuration file nothing.properties cannot be read: No such file or "
        "directory; correct it",
        "[decode] schema-file: absent cannot be read (No such file or directory); correct the path",
        "[decode.key] schema-file: empty is empty; write the schema into it",
        "[decode.headers] schema-file: latin is not UTF-8; save it as UTF-8",
        "[metrics] listen: 1 is not possible; set it to HOST:PORT",
    ]


def test_a_pipeline_file_that_is_absent_or_no_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError) as caught:
        read_pipeline(tmp_path / "no.toml")
    assert str(caught.value) == (
        f"{tmp_path}/no.toml: does not exist; correct the path, or write it with zkconsumer pipeline init"
    )
    with pytest.raises(PipelineFileError, match="cannot be read") as caught:
        read_pipeline(tmp_path)
    (tmp_path / "latin.toml").write_bytes(f"a = 1\n# {S}".encode() + b"\xe4")
    with pytest.raises(PipelineFileError, match="line 2: is not UTF-8, which TOML must be") as caught:
        read_pipeline(tmp_path / "latin.toml")
    assert caught.value.__context__ is None, "a UnicodeDecodeError contains the whole file"
    assert isinstance(caught.value, UsageError)


def test_an_option_without_an_effect_is_a_warning() -> None:
    spec = parsed(source={"kafka.max.poll.records": "5", "kafka.ssl.truststore.password": '"env:A"'})
    assert [line.split(": ")[:2] for line in spec.warnings] == [
        ["/etc/pipelines/clicks.toml", f"[source] {name}"]
        for name in ("kafka.max.poll.records", "kafka.ssl.truststore.password")
    ]
    assert spec.source.options["kafka.ssl.truststore.password"] == SecretReference("env", "A")


def test_every_section_may_be_empty() -> None:
    text = toml() + "".join(f"[{section}]\n" for section in SECTIONS if section not in LEAST)
    assert parse_pipeline(text, "/etc/pipelines/clicks.toml") == parsed()


STRANGE = (
    "5", "-1", "1e400", "nan", "9223372036854775808", "true", "[]", "[1]", '["a", 1]', "{}", '{a = "b"}',
    "2020-01-01", "07:32:00", '""', '" "', '"\\u0000"', '"a\\nb"', '"{"', "'{\"a\": {\"0\": 1}}'", '"ü/../😀"', '"~"',
    '"postgresql://"', '"http://[::1"', '"http://h:x"', '"env:"', '"file:"', '"s3a://b"', '"' + "x" * 300 + '"',
)  # fmt: skip
ONE_OF_EACH_KIND = {(key.kind, key.setting.mask, key.section == "source"): key for key in reversed(PIPELINE_KEYS)}
"""Keys that are read in different ways."""


def lines_of(text: str) -> list[str]:
    """The lines of the error; none for a valid file."""
    try:
        parse_pipeline(text, "/etc/pipelines/clicks.toml")
    except PipelineFileError as error:
        return str(error).split("\n")
    return []


@pytest.mark.parametrize("key", ONE_OF_EACH_KIND.values(), ids=lambda key: f"{key.section}.{key.name}")
def test_no_value_of_a_key_raises_another_error_or_breaks_a_line(key: PipelineKey) -> None:
    for value in STRANGE:
        lines = lines_of(file_with(key, "VALUE").replace('"VALUE"', value))
        assert all(line.startswith("/etc/pipelines/clicks.toml: ") and line.isprintable() for line in lines)
        assert all(len(line) < 900 for line in lines)
