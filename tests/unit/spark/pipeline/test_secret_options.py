"""Secrets of the source go into a file for this user alone, and never into the options that Spark shows."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from bridge.spark.pipeline.secret_options import FILE_NAME, options_with_secret_file
from bridge.spark.pipeline.secret_reference import SecretReference, SecretUnavailableError
from zkconsumer.properties import decode_properties, parse_properties

PASSWORD = SecretReference("env", "KAFKA_PASSWORD")
PUBLIC = {"group.id": "clicks", "kafka.sasl.username": "clicks"}


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def test_options_without_a_secret_make_no_file(tmp_path: Path) -> None:
    assert options_with_secret_file(PUBLIC, tmp_path, {}, read) == PUBLIC
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("secret", ["plain", " blanks ", "a=b:c#d!e", "back\\slash", "two\nlines", "käse 🧀"])
def test_a_secret_is_in_the_file_with_the_name_of_the_setting(tmp_path: Path, secret: str) -> None:
    given = {**PUBLIC, "kafka.sasl.password": PASSWORD, "zookeeper.auth": PASSWORD}
    options = options_with_secret_file(given, tmp_path, {"KAFKA_PASSWORD": secret}, read)
    assert options == {**PUBLIC, "consumer.config": str(tmp_path / FILE_NAME)}
    file = tmp_path / FILE_NAME
    assert parse_properties(decode_properties(file.read_bytes())) == {"sasl.password": secret, "zookeeper.auth": secret}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_users_own_file_of_settings_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "own.properties"
    own.write_text("auto.offset.reset=smallest\nsasl.password=old")
    given = {**PUBLIC, "consumer.config": str(own), "kafka.sasl.password": PASSWORD}
    options = options_with_secret_file(given, tmp_path, {"KAFKA_PASSWORD": "new"}, read)
    found = parse_properties(decode_properties(Path(options["consumer.config"]).read_bytes()))
    assert found == {"auto.offset.reset": "smallest", "sasl.password": "new"}


def test_a_users_own_file_that_ends_with_a_backslash_gets_no_secret_into_its_last_value(tmp_path: Path) -> None:
    own = tmp_path / "own.properties"
    own.write_text("group.id=clicks\nzookeeper.connect=zk1:2181\\")
    given = {"consumer.config": str(own), "kafka.sasl.password": PASSWORD}
    options = options_with_secret_file(given, tmp_path, {"KAFKA_PASSWORD": "hidden"}, read)
    found = parse_properties(decode_properties(Path(options["consumer.config"]).read_bytes()))
    assert found == {"group.id": "clicks", "zookeeper.connect": "zk1:2181", "sasl.password": "hidden"}


def test_a_missing_secret_is_an_error_and_no_file_is_left(tmp_path: Path) -> None:
    with pytest.raises(SecretUnavailableError, match=r"kafka.sasl.password=env:KAFKA_PASSWORD: .* must export it"):
        options_with_secret_file({"kafka.sasl.password": PASSWORD}, tmp_path, {}, read)
    assert list(tmp_path.iterdir()) == []
