"""The section ``hadoop``: which values are secrets, what is refused, and which sessions would show a secret."""

from __future__ import annotations

import re
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.spark.pipeline import java_process
from bridge.spark.pipeline.hadoop_session import apply_hadoop_settings
from bridge.spark.pipeline.hadoop_settings import (
    OUR_REDACTION,
    REDACTION,
    SPARK_REDACTION,
    is_secret_name,
    redaction_regex,
    shown_names,
)
from bridge.spark.pipeline.pipeline_file import PipelineFileError, parse_pipeline
from bridge.spark.pipeline.pipeline_session import pipeline_spark_session
from bridge.spark.pipeline.pipeline_spec import PipelineSpec
from bridge.spark.pipeline.secret_reference import SecretReference, SecretUnavailableError
from zkconsumer.errors import UsageError

S = "hunter2secret"
LEAST = """
[source]
zookeeper.connect = "zk:2181"
group.id = "clicks"
subscribe = "clicks"
[sink]
format = "parquet"
path = "/data/rows"
[checkpoint]
path = "s3a://bucket/checkpoint"
[hadoop]
"""


def parsed(text: str) -> PipelineSpec:
    return parse_pipeline(LEAST + text, "/etc/pipelines/clicks.toml")


def problem(text: str) -> str:
    with pytest.raises(PipelineFileError) as caught:
        parsed(text)
    [line] = caught.value.problems
    return line.removeprefix("/etc/pipelines/clicks.toml: ")


SECRETS = (
    "fs.s3a.secret.key", "fs.s3a.access.key", "fs.s3a.session.token", "fs.s3a.bucket.b.secret.key",
    "fs.s3a.encryption.key", "fs.s3a.server-side-encryption.key", "fs.azure.account.key.a.dfs.core.windows.net",
    "fs.azure.account.oauth2.client.secret.a.dfs.core.windows.net", "fs.azure.sas.fixed.token.a.dfs.core.windows.net",
    "fs.gs.auth.service.account.private.key", "fs.gs.auth.client.secret", "ssl.server.keystore.keypassword",
)  # fmt: skip
PLAIN = (
    "fs.s3a.endpoint", "fs.s3a.endpoint.region", "fs.s3a.path.style.access", "fs.s3a.aws.credentials.provider",
    "fs.azure.account.auth.type.a.dfs.core.windows.net", "fs.azure.account.oauth.provider.type.a.dfs.core.windows.net",
    "fs.azure.sas.token.provider.type.a.dfs.core.windows.net", "fs.azure.account.oauth2.client.id",
    "fs.gs.auth.service.account.json.keyfile", "hadoop.security.credential.provider.path",
    "fs.s3a.delegation.token.binding", "dfs.nameservices", "dfs.client.use.datanode.hostname",
)  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_of_the_file_systems_are_places_and_no_session_of_ours_shows_them(name: str) -> None:
    assert is_secret_name(name)
    line = problem(f'"{name}" = "{S}"')
    assert line == (
        f'[hadoop] {name}: the secret itself is written here; set it to "env:NAME" (a variable of the environment) or '
        '"file:PATH" (a file that contains only the secret)'
    )
    assert S not in line
    spec = parsed(f'"{name}" = "file:key"')
    assert spec.hadoop == {name: SecretReference("file", "/etc/pipelines/key")}
    assert shown_names([name], OUR_REDACTION) == []


@pytest.mark.parametrize("name", PLAIN)
def test_other_settings_are_texts(name: str) -> None:
    assert not is_secret_name(name)
    assert parsed(f'"{name}" = "file:///data"').hadoop == {name: "file:///data"}


def test_names_with_dots_and_values_that_are_no_texts_are_taken_as_hadoop_writes_them() -> None:
    spec = parsed('fs.s3a.path.style.access = true\nfs.s3a.connection.maximum = 20\n"fs.x.pin" = "env:PIN"')
    assert spec.hadoop == {
        "fs.s3a.path.style.access": "true", "fs.s3a.connection.maximum": "20",
        "fs.x.pin": SecretReference("env", "PIN"),
    }  # fmt: skip
    assert parsed("").hadoop == {}
    assert S not in repr(parsed('"fs.s3a.secret.key" = "env:X"'))


def test_what_is_no_setting_of_hadoop_is_one_line() -> None:
    assert problem('"spark.hadoop.fs.s3a.endpoint" = "x"') == (
        "[hadoop] spark.hadoop.fs.s3a.endpoint: is a setting of Spark, and not of Hadoop; write it without "
        "spark.hadoop."
    )
    assert "set it for the Spark session" in problem('"spark.driver.memory" = "4g"')
    assert problem('fs.a.b = "x"\n"fs.a.b" = "y"') == "[hadoop] fs.a.b: is set twice, as a quoted and as a dotted " + (
        "key; remove one of them"
    )
    assert problem('"fs.a" = [1]') == "[hadoop] fs.a: it is a list, and not a text; set it to a text"
    assert problem('"fs.a" = "env:"').startswith("[hadoop] fs.a: the text after env: is not the name of a variable")


# --- sessions -----------------------------------------------------------------------------------------------------


def session(settings: dict[str, str], found: dict[str, str]) -> Any:
    """A classic session with these settings, and what is set in its Hadoop configuration."""
    configuration = SimpleNamespace(set=found.__setitem__)
    context = SimpleNamespace(
        getConf=lambda: SimpleNamespace(get=settings.get),
        _jsc=SimpleNamespace(hadoopConfiguration=lambda: configuration),
    )
    return SimpleNamespace(sparkContext=context)


def apply(text: str, settings: dict[str, str], environment: dict[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    apply_hadoop_settings(session(settings, found), parsed(text), environment, lambda _: b"from a file\n")
    return found


def test_settings_go_to_the_hadoop_configuration_with_their_secrets() -> None:
    text = '"fs.s3a.endpoint" = "http://e"\n"fs.s3a.secret.key" = "env:K"\n"fs.s3a.access.key" = "file:f"'
    assert apply(text, {}, {"K": S}) == {
        "fs.s3a.endpoint": "http://e", "fs.s3a.secret.key": S, "fs.s3a.access.key": "from a file",
    }  # fmt: skip
    with pytest.raises(SecretUnavailableError, match=r"fs\.s3a\.secret\.key=env:K: the environment has no variable K"):
        apply(text, {}, {})


def test_a_session_that_would_show_a_secret_is_refused_and_the_line_has_the_setting() -> None:
    text = '"fs.azure.account.key.a" = "env:K"\n"fs.x.pin" = "env:K"'
    with pytest.raises(UsageError, match=r"clicks\.toml: \[hadoop\] fs\.azure\.account\.key\.a: this Spark") as caught:
        apply(text, {}, {"K": S})
    assert S not in str(caught.value)
    regex = str(caught.value).partition(f"{REDACTION}=")[2]
    assert apply(text, {REDACTION: regex}, {"K": S}) == {"fs.azure.account.key.a": S, "fs.x.pin": S}
    with pytest.raises(UsageError, match="can show the value"):
        apply('"fs.x.pin" = "env:K"', {REDACTION: OUR_REDACTION}, {"K": S})
    with pytest.raises(UsageError, match="can show the value"):
        apply(text, {REDACTION: "("}, {"K": S})


def test_spark_connect_has_the_settings_of_its_server() -> None:
    class Remote:
        """A session of Spark Connect."""

    Remote.__module__ = "pyspark.sql.connect.session"
    remote: Any = Remote()
    apply_hadoop_settings(remote, parsed(""), {}, lambda _: b"")
    with pytest.raises(UsageError, match=r"\[hadoop\]: with Spark Connect the server has the settings"):
        apply_hadoop_settings(remote, parsed('"fs.a" = "b"'), {}, lambda _: b"")


def test_a_session_of_a_command_hides_the_secrets_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    settings: dict[str, str] = {}

    class Builder:
        """Records settings."""

        def appName(self, _: str) -> Builder:
            return self

        master = appName

        def config(self, key: str, value: str) -> Builder:
            settings[key] = value
            return self

        def getOrCreate(self) -> Any:
            return self

    monkeypatch.setattr(SparkSession, "builder", Builder())
    monkeypatch.setattr(java_process, "java_process", nullcontext)
    with pipeline_spark_session(parsed('"fs.s3a.endpoint" = "e"'), None, {}):
        assert REDACTION not in settings
    with pipeline_spark_session(parsed('"fs.x.pin" = "env:K"'), None, {}):
        assert shown_names(["fs.x.pin", *SECRETS], settings[REDACTION]) == []
    assert not any(S in value for value in settings.values())
    with pipeline_spark_session(parsed('"fs.x.pin" = "env:K"'), None, {REDACTION: "pin"}):
        assert settings[REDACTION] == "pin", "the operator's choice"


def test_our_redaction_hides_all_that_sparks_own_hides() -> None:
    assert OUR_REDACTION.startswith(f"{SPARK_REDACTION}|")
    assert re.search(redaction_regex(["fs.x.pin"]), "a.PASSWORD")
