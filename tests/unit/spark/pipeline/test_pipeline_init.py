"""``zkconsumer pipeline init``: a file that a user can edit, and no file of a user is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bridge.commands.pipeline import pipeline
from zkconsumer.errors import PreconditionFailed, UsageError


def run(*arguments: str) -> Result:
    return CliRunner().invoke(pipeline, ["init", *arguments])


def test_the_file_has_the_name_of_the_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "clicks.toml"
    found = run(str(file))
    assert found.exit_code == 0
    assert f"{file}: written. Set zookeeper.connect and subscribe in it" in found.output
    assert 'name = "clicks"' in file.read_text()
    run(str(tmp_path / "other.toml"), "--name", "orders")
    assert 'name = "orders"' in (tmp_path / "other.toml").read_text()


def test_an_existing_file_is_not_changed(tmp_path: Path) -> None:
    file = tmp_path / "clicks.toml"
    file.write_text("mine")
    found = run(str(file))
    assert isinstance(found.exception, PreconditionFailed)
    assert "exists already, and was not changed" in str(found.exception)
    assert file.read_text() == "mine"


@pytest.mark.parametrize("name", ["", "two words", "-x", "a" * 101])
def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path, name: str) -> None:
    found = run(str(tmp_path / "a.toml"), "--name", name)
    assert isinstance(found.exception, UsageError)
    assert "is no name of a pipeline" in str(found.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    found = run(str(tmp_path / "no" / "a.toml"))
    assert isinstance(found.exception, UsageError)
    assert "give a file in a folder that exists" in str(found.exception)
