"""The places of secrets: what is a reference, what it becomes, and that nothing shows the secret."""

from __future__ import annotations

import pickle
import traceback

import pytest

from bridge.spark.pipeline.secret_reference import (
    SecretReference,
    SecretUnavailableError,
    parse_secret,
    resolve_secrets,
)

S = "hunter2"


def no_file(path: str) -> bytes:
    raise FileNotFoundError(2, "No such file or directory", path)


def test_a_variable_of_the_environment_is_read_when_the_secret_is_used() -> None:
    reference = parse_secret("env:DB_PASSWORD")
    environment: dict[str, str] = {}
    with pytest.raises(SecretUnavailableError, match=r"no variable DB_PASSWORD; .* must export"):
        reference.resolve(environment, no_file)
    environment["DB_PASSWORD"] = S
    assert reference.resolve(environment, no_file) == S


@pytest.mark.parametrize(
    ("data", "secret"),
    [(b"a b", "a b"), (b"ab\n", "ab"), (b"ab\r\n", "ab"), (b"ab\n\n", "ab\n"), (b" ab ", " ab "), (b"ab\r", "ab\r"),
     ("ü\n".encode(), "ü")],
)  # fmt: skip
def test_one_line_end_at_the_end_of_a_file_is_removed_and_nothing_else(data: bytes, secret: str) -> None:
    assert parse_secret("file:/run/secrets/db").resolve({}, {"/run/secrets/db": data}.__getitem__) == secret


def test_the_path_of_a_file_may_be_written_as_a_url() -> None:
    assert parse_secret("file:///run/secrets/db") == parse_secret("file:/run/secrets/db")
    assert parse_secret("file:secrets/db").place == "secrets/db"


def test_a_missing_file_is_reported_with_its_path_the_reason_and_who_must_act() -> None:
    with pytest.raises(SecretUnavailableError) as caught:
        parse_secret("file:/run/secrets/db").resolve({}, no_file)
    assert str(caught.value) == (
        "file:/run/secrets/db: the file cannot be read (No such file or directory); the operator must "
        "provide it on this machine, readable for the user of the pipeline"
    )


@pytest.mark.parametrize("data", [b"", b"\n"])
def test_an_empty_secret_is_an_error(data: bytes) -> None:
    with pytest.raises(SecretUnavailableError, match="the secret is empty"):
        parse_secret("file:/s").resolve({}, lambda _: data)
    with pytest.raises(SecretUnavailableError, match="the secret is empty"):
        parse_secret("env:A").resolve({"A": ""}, no_file)


def test_a_file_that_is_no_text_is_an_error_without_its_bytes() -> None:
    with pytest.raises(SecretUnavailableError, match="is not text in UTF-8") as caught:
        parse_secret("file:/s").resolve({}, lambda _: S.encode() + b"\xff")
    assert caught.value.__context__ is None, "a UnicodeDecodeError contains the bytes"
    assert S not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "value",
    [S, "", "env", f"{S}:x", f"env:{S}!", f"env:1{S}", f"env: {S}", "env:", "file:", f"file://{S}/x", f"file:~/{S}",
     f"file:{S}\0", f"ENV:{S}", 5, True, None, [S], {"a": S}],
)  # fmt: skip
def test_what_is_no_reference_is_refused_and_not_repeated(value: object) -> None:
    with pytest.raises(ValueError, match=r"secret itself is written here|the text after (env|file):") as caught:
        parse_secret(value)
    assert S not in str(caught.value)


def test_only_the_reference_is_shown_and_pickled() -> None:
    reference = parse_secret("env:A")
    assert reference.resolve({"A": S}, no_file) == S
    assert str(reference) == "env:A"
    assert repr(reference) == "SecretReference(kind='env', place='A')"
    assert S.encode() not in pickle.dumps(reference)
    assert pickle.loads(pickle.dumps(reference)) == reference


def test_the_secrets_of_options_are_resolved_together_with_a_line_for_each_missing_one() -> None:
    options = {
        "a": "1",
        "b": SecretReference("env", "B"),
        "c": SecretReference("env", "C"),
        "d": SecretReference("env", "D"),
    }
    assert resolve_secrets(options, {"B": S, "C": "c", "D": "d"}, no_file) == {"a": "1", "b": S, "c": "c", "d": "d"}
    with pytest.raises(SecretUnavailableError) as caught:
        resolve_secrets(options, {"B": S}, no_file)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["c=env", "d=env"]
    assert S not in str(caught.value)
