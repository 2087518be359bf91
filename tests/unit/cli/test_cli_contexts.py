"""Named clusters: the file, and which address counts when several are given."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import doors, fill_clicks
from zkconsumer.cli import main
from zkconsumer.cli.contexts import ClusterContext, contexts_path, parse_contexts

FOLDER = Path("/etc/xdg")
GOOD = f'[contexts.test]\nzookeeper = "{ADDRESS}"\n[contexts.other]\nbootstrap-server = "elsewhere.invalid:9092"\n'


@pytest.fixture
def world(world: FakeEnvironment) -> FakeEnvironment:
    fill_clicks(world)
    return world


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "zkconsumer" / "config.toml"
    path.parent.mkdir()
    path.write_text(GOOD)
    return path


def run(file: Path, words: str, world: FakeEnvironment | None = None, **variables: str) -> Result:
    where = {
        "XDG_CONFIG_HOME": str(file.parent.parent), "ZKCONSUMER_CONTEXT": None, "ZKCONSUMER_ZOOKEEPER": None,
        "ZKCONSUMER_BOOTSTRAP_SERVERS": None, **variables,
    }  # fmt: skip
    return CliRunner().invoke(main, words.split(), obj=None if world is None else doors(world), env=where)


def test_the_keys_have_the_names_of_the_options() -> None:
    text = '[contexts.a]\nzookeeper = "zk:2181/k"\nbootstrap-server = "k:9092"\nconfig = "a.properties"\n'
    assert parse_contexts(text, FOLDER) == {"a": ClusterContext("a", "zk:2181/k", "k:9092", FOLDER / "a.properties")}


def test_a_file_with_an_absolute_path_or_below_the_home_is_not_relative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    found = parse_contexts('[contexts.a]\nconfig = "~/a"\n[contexts.b]\nconfig = "/srv/b"\n', FOLDER)
    assert [each.config_file for each in found.values()] == [Path("/home/ada/a"), Path("/srv/b")]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "[contexts.a]\nsasl.password = 'x'\n",
            "its keys are zookeeper, bootstrap-server, config. Other settings, and",
        ),
        ("[contexts.a]\nconfig = '~no-such-user/x'\n", "a user who has none: ~no-such-user/x"),
        ("[contexts.a]\n", r"\[contexts.a\] is empty"),
        ("[contexts.a]\nzookeeper = ''\n", "zookeeper must be a text that is not empty"),
        ("[contexts.a]\nzookeeper = 1\n", "zookeeper must be a text that is not empty"),
        ("[contexts]\na = 'zk:2181'\n", "contexts.a must be a table"),
        ("contexts = 1\n", "contexts must be a table"),
        ("[context.a]\nzookeeper = 'zk:2181'\n", "there is no key 'context'"),
        ("[contexts.a\n", "line 1"),
    ],
)
def test_a_file_that_is_not_valid(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse_contexts(text, FOLDER)


def test_the_place_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    default = Path("/home/ada/.config/zkconsumer/config.toml")
    assert contexts_path({"XDG_CONFIG_HOME": "/srv/c"}) == Path("/srv/c/zkconsumer/config.toml")
    assert [contexts_path({"XDG_CONFIG_HOME": each}) for each in ("", "relative")] == [default, default]
    assert contexts_path({}) == default


@pytest.mark.parametrize(
    ("words", "variables"),
    [("lag g1 --context test", {}), ("lag g1", {"ZKCONSUMER_CONTEXT": "test"}),
     ("lag g1 --context test", {"ZKCONSUMER_CONTEXT": "other", "ZKCONSUMER_ZOOKEEPER": "elsewhere.invalid:2181"}),
     (f"lag g1 --zookeeper {ADDRESS}", {"ZKCONSUMER_CONTEXT": "other"})],
)  # fmt: skip
def test_the_context_that_counts(world: FakeEnvironment, file: Path, words: str, variables: dict[str, str]) -> None:
    done = run(file, words, world, **variables)
    assert (done.exit_code, "TOTAL 108" in done.stdout) == (0, True), done.output


def test_the_file_of_the_context_is_read_unless_another_one_is_given(world: FakeEnvironment, file: Path) -> None:
    file.write_text('[contexts.test]\nconfig = "test.properties"\n')
    (file.parent / "test.properties").write_text(f"zookeeper.connect={ADDRESS}\n")
    assert run(file, "lag g1 --context test", world).exit_code == 0
    other = file.parent / "other.properties"
    other.write_text("offsets.storage=zookeeper\n")
    file.write_text(f'[contexts.test]\nzookeeper = "{ADDRESS}"\nconfig = "missing.properties"\n')
    done = run(file, "lag g1 --context test", world)
    assert (done.exit_code, "missing.properties" in done.stderr) == (2, True), done.output
    assert run(file, f"lag g1 --context test --config {other}", world).exit_code == 0


@pytest.mark.parametrize(
    ("words", "variables", "error"),
    [
        (f"lag g1 --context test --zookeeper {ADDRESS}", {}, "--context test and an address are given; give one"),
        ("lag g1 --context tset", {}, "has no context 'tset': it has test, other"),
        ("lag g1", {"ZKCONSUMER_CONTEXT": "test", "ZKCONSUMER_ZOOKEEPER": ADDRESS},
         "the environment has ZKCONSUMER_CONTEXT and ZKCONSUMER_ZOOKEEPER; unset one of them, or give --context"),
        ("contexts", {"ZKCONSUMER_CONTEXT": "tset"}, "has no context 'tset': it has test, other"),
    ],
)  # fmt: skip
def test_two_addresses_or_an_unknown_name(file: Path, words: str, variables: dict[str, str], error: str) -> None:
    done = run(file, words, **variables)
    assert (done.exit_code, error in done.stderr) == (2, True), done.output


def test_a_file_that_is_missing_is_named(file: Path) -> None:
    file.unlink()
    done = run(file, "lag g1 --context test")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"zkconsumer: there is no file {file}, so there is no context 'test': create it with "
    )


def test_a_proposed_command_repeats_the_context(world: FakeEnvironment, file: Path) -> None:
    done = run(file, "groups delete g1 --context test", world)
    assert "zkconsumer groups delete g1 --context test --execute" in done.stderr, done.output
    assert "--zookeeper" not in done.stderr


def test_the_list(file: Path) -> None:
    done = run(file, "contexts", ZKCONSUMER_CONTEXT="test")
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[1:] == [["*", "test", ADDRESS, "-", "-"], ["-", "other", "-", "elsewhere.invalid:9092", "-"]]
    document = json.loads(run(file, "contexts -o json").stdout)
    assert (document["schema"], document["selected"]) == ("zkconsumer/contexts/1", None)
    assert [each["name"] for each in document["contexts"]] == ["test", "other"]


def test_without_a_file_there_is_no_context(file: Path) -> None:
    file.unlink()
    done = run(file, "contexts")
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"There is no context. Write into {file}: [contexts.NAME]" in done.stderr


@pytest.mark.parametrize("words", ["contexts", "groups list --context test"])
def test_a_user_without_a_home_directory(file: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user id that no file has
    done = run(file, words, XDG_CONFIG_HOME="")
    assert (done.exit_code, "set HOME, or XDG_CONFIG_HOME" in done.stderr) == (2, True)


def test_a_file_that_cannot_be_read(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\xff")
    done = run(file, "contexts")
    assert (done.exit_code, f"{file} cannot be read" in done.stderr) == (2, True), done.output
