"""The commands that texts name can be pasted: with the addresses as they were typed, or those of the environment."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import doors, fill_clicks, join
from zkconsumer.cli import main
from zkconsumer.cli.command_hints import commands_in, complete_commands
from zkconsumer.cli.lag import lag
from zkconsumer.zk.znode_formats import ControlRecord, format_control

ROOT = Path(__file__).resolve().parents[3]


def of_lag(words: str) -> click.Context:
    """The context of a ``lag`` that was typed so."""
    return lag.make_context("lag", words.split(), parent=click.Context(main, info_name="zkconsumer"))


@pytest.mark.parametrize(
    ("typed", "said", "pasted"),
    [
        ("g --zookeeper z:1", "Do: zkconsumer groups describe g.", "Do: zkconsumer groups describe g --zookeeper z:1."),
        ("g", "zkconsumer groups describe g", "zkconsumer groups describe g"),
        ("g --zookeeper z:1", "zkconsumer groups list shows it", "zkconsumer groups list --zookeeper z:1 shows it"),
        ("g --config f", "(zkconsumer lag g --watch), or", "(zkconsumer lag g --watch --config f), or"),
        ("g --zookeeper z:1", "zkconsumer lag g --zookeeper y:1", "zkconsumer lag g --zookeeper y:1"),
        ("g --bootstrap-server b:1", "zkconsumer lag 'a b'; then", "zkconsumer lag 'a b' --bootstrap-server b:1; then"),
        ("g --zookeeper z:1", "zkconsumer groups delete g   # not needed",
         "zkconsumer groups delete g --zookeeper z:1   # not needed"),
        ("g --zookeeper z:1 --bootstrap-server b:1", "zkconsumer groups delete g",
         "zkconsumer groups delete g --zookeeper z:1"),
        ("g --zookeeper z:1", "'zkconsumer sandbox down' ends it", "'zkconsumer sandbox down' ends it"),
        ("g --zookeeper z:1", "zkconsumer offsets import f g; or zkconsumer groups delete g h",
         "zkconsumer offsets import f g --zookeeper z:1; or zkconsumer groups delete g h --zookeeper z:1"),
        ("g --zookeeper z:1", "zkconsumer is a package", "zkconsumer is a package"),
        ("g --zookeeper z:1", "zkconsumer nosuch g", "zkconsumer nosuch g"),
        ("g --zookeeper z:1", "offsets set: zkconsumer offsets set g --topic t:0,1 --to-offset 5 --execute",
         "offsets set: zkconsumer offsets set g --topic t:0,1 --to-offset 5 --execute --zookeeper z:1"),
    ],
)  # fmt: skip
def test_a_command_in_a_text_can_be_pasted(typed: str, said: str, pasted: str) -> None:
    with of_lag(typed) as context:
        assert complete_commands(said, context) == pasted
        assert complete_commands(pasted, context) == pasted, "what is complete stays"


# --- hints of commands --------------------------------------------------------------------------------------------


@pytest.fixture
def world(world: FakeEnvironment) -> FakeEnvironment:
    fill_clicks(world)
    return world


def run(world: FakeEnvironment, words: list[str], **variables: str) -> Result:
    return CliRunner().invoke(main, words, obj=doors(world), env=variables)


def last_hint(done: Result) -> list[str]:
    with of_lag("g") as context:
        return shlex.split(commands_in(context, done.stderr)[-1])[1:]


def test_a_moved_group_is_set_in_the_store_that_it_moved_to(world: FakeEnvironment) -> None:
    world.create_topic("__consumer_offsets", 1)
    control = format_control(ControlRecord("m1", 2, "completed", "kafka", "copy"))
    world.zookeeper.ensure("/zkconsumer/groups/g1", control)
    words = ["offsets", "set", "g1", "--topic", "clicks", "--to-latest", "--execute", "--zookeeper", ADDRESS]
    refused = run(world, words)
    assert (refused.exit_code, "are in Kafka now" in refused.stderr) == (4, True), refused.output
    done = run(world, last_hint(refused))
    assert (done.exit_code, "3 offsets written" in done.stderr) == (0, True), done.output


def test_hints_have_no_address_where_the_environment_has_it(world: FakeEnvironment) -> None:
    join(world)
    where = {"ZKCONSUMER_ZOOKEEPER": ADDRESS}
    refused = run(world, ["groups", "delete", "g1", "--execute"], **where)
    assert refused.stderr.splitlines()[-1] == "Stop them first. Their hosts: zkconsumer groups describe g1"
    assert run(world, last_hint(refused), **where).exit_code == 0


def test_what_would_be_deleted_can_be_exported_and_deleted_as_printed(
    world: FakeEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planned = run(world, ["groups", "delete", "--group", "g1", "--zookeeper", ADDRESS])
    assert planned.exit_code == 3
    with of_lag("g") as context:
        export, delete = commands_in(context, planned.stderr)
    assert run(world, shlex.split(export)[1:]).exit_code == 0
    assert Path("g1.offsets").read_text("utf-8").startswith("/consumers/g1/offsets/clicks/0:42"), "it is kept"
    assert "--execute" in delete
    assert run(world, shlex.split(delete)[1:]).stdout.startswith("Deleted all consumer group information for group g1")


# --- every command that a text of the sources names ---------------------------------------------------------------


@cache
def trees() -> dict[str, ast.Module]:
    """The sources that name a command at all."""
    files = [file for package in ("zkconsumer", "bridge") for file in sorted((ROOT / package).rglob("*.py"))]
    sources = {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in files}
    return {file: ast.parse(text) for file, text in sources.items() if "zkconsumer " in text}


def texts() -> Iterator[tuple[str, str]]:
    """The strings of the product that name a command; what is filled in later is ``X``."""
    for file, tree in trees().items():
        documents = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body and isinstance(node.body[0], ast.Expr)
        }  # fmt: skip
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield file, "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
                yield file, node.value


PAGES = ("zkconsumer/config_tables/", "zkconsumer/other_client_keys.py")
NAMED = re.compile(r"(?<!['`\"\w./-])zkconsumer (consume|groups|lag|log-ends|offsets|migrate|spark|perf|health) ?")


def parts_of_joined_strings() -> set[str]:
    """Constants that are parts of a string with values: alone they are no text."""
    joined = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    return {str(one.value) for node in joined for one in node.values if isinstance(one, ast.Constant)}


def named_commands() -> list[tuple[str, str]]:
    """Where a command is named, and the command with what behind it belongs to it."""
    parts = parts_of_joined_strings()
    found = []
    with of_lag("g") as context:
        for file, text in texts():
            if file.startswith(PAGES) or text in parts or not NAMED.search(text):
                continue
            commands = commands_in(context, text)
            assert len(commands) >= len(NAMED.findall(text)), f"{file}: no command of ours in {text!r}"
            found += [(file, command) for command in commands if NAMED.match(command)]
    return found


def test_every_command_that_a_text_names_can_be_called_so() -> None:
    """Groups, files and topics are X here; a number is asked for nowhere where a text fills in a name."""
    found = named_commands()
    assert len(found) > 60
    for file, command in found:
        words = shlex.split(command)[1:]
        if words[:2] == ["migrate", "plan"] and "-f" not in words:
            words += ["-f", "X.plan"]  # ``completed`` adds it
        at: click.Command = main
        parent = click.Context(main, info_name="zkconsumer")
        while isinstance(at, click.Group):
            child = at.get_command(parent, words.pop(0))
            assert child is not None, f"{file}: {command}"
            at = child
        numbers = {name for one in at.params if one.type.name.startswith("integer") for name in one.opts}
        for place, word in enumerate(words[:-1]):
            if word in numbers:
                words[place + 1] = "5"
        try:
            at.make_context(at.name, list(words), parent=parent)
        except click.ClickException as error:
            raise AssertionError(f"{file}: {command}: {error.format_message()}") from error
        has_group = any(one.name == "group" for one in at.params)
        is_named = "--group" in words or (bool(words) and not words[0].startswith("-"))
        assert not has_group or is_named, f"{file}: {command} names no group; put a command without one in quotes"
