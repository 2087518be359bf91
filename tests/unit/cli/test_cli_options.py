"""Addresses and groups are given to every command in the same ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from bridge.commands import broker_command as broker_command
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import doors, fill_clicks
from zkconsumer.cli import main
from zkconsumer.cli.options import BOOTSTRAP_VARIABLE, ZOOKEEPER_VARIABLE

ELSEWHERE = "elsewhere.invalid:2181"
NO_ADDRESS = "give the address of the cluster: --zookeeper HOST:PORT[/CHROOT] or --bootstrap-server HOST:PORT"


def commands(command: click.Command = main, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its words."""
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*words, name))


COMMANDS = dict(commands())
WITHOUT_CLUSTER = {
    *("assign", "check", "completion", "contexts", "demo", "health", "broker"),
    *(name for name in COMMANDS if name.startswith(("sandbox", "pipeline"))),
}
"""``broker`` registers itself at the address of its own option, not at that of a variable of the shell.  A pipeline
file has the addresses of its cluster."""

WITHOUT_GROUP = {"groups list", "groups top", "log-ends", "migrate apply", "migrate restore", "web"}
"""``migrate apply`` has the group in its plan; ``restore`` in its archive."""


def options(command: click.Command) -> dict[str, click.Option]:
    return {word: one for one in command.params if isinstance(one, click.Option) for word in one.opts}


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT_CLUSTER))
def test_every_command_on_a_cluster_takes_addresses_and_groups_alike(name: str) -> None:
    found = options(COMMANDS[name])
    assert {"--zookeeper", "--bootstrap-server", "--config", "--context"} <= found.keys()
    assert f"${ZOOKEEPER_VARIABLE}" in (found["--zookeeper"].help or "")
    assert f"${BOOTSTRAP_VARIABLE}" in (found["--bootstrap-server"].help or "")
    has_argument = any(one.name in ("group", "groups", "words") for one in COMMANDS[name].params)
    assert (name in WITHOUT_GROUP) != has_argument
    assert (name in WITHOUT_GROUP) != ("--group" in found)


def test_the_broker_registers_nowhere_because_of_the_environment() -> None:
    assert ZOOKEEPER_VARIABLE not in (options(COMMANDS["broker"])["--zookeeper"].help or "")
    assert "os.environ" not in Path(str(broker_command.__file__)).read_text("utf-8")


@pytest.fixture
def world(world: FakeEnvironment) -> FakeEnvironment:
    fill_clicks(world)
    return world


def run(world: FakeEnvironment, words: str, **variables: str) -> Result:
    return CliRunner().invoke(main, words.split(), obj=doors(world), env=variables)


def brokers_of(world: FakeEnvironment) -> str:
    return ",".join(f"{one.host}:{one.port}" for one in world.cluster.addresses)


@pytest.mark.parametrize("words", ["lag g1", "lag --group g1", "lag g1 --group g1"])
def test_the_environment_says_where_the_cluster_is(world: FakeEnvironment, words: str) -> None:
    done = run(world, words, ZKCONSUMER_ZOOKEEPER=ADDRESS)
    assert (done.exit_code, "TOTAL 108" in done.stdout) == (0, True), done.output


def test_both_variables_count_together(world: FakeEnvironment) -> None:
    both = {"ZKCONSUMER_ZOOKEEPER": ADDRESS, "ZKCONSUMER_BOOTSTRAP_SERVERS": brokers_of(world)}
    assert run(world, "lag g1", **both).exit_code == 0
    done = run(world, "groups delete g1", **both)
    assert (done.exit_code, "would delete" in done.stdout) == (3, True), done.output


def test_an_address_that_is_given_is_not_mixed_with_the_environment(world: FakeEnvironment, tmp_path: Path) -> None:
    wrong = {"ZKCONSUMER_ZOOKEEPER": ELSEWHERE, "ZKCONSUMER_BOOTSTRAP_SERVERS": "elsewhere.invalid:9092"}
    assert run(world, f"lag g1 --zookeeper {ADDRESS}", **wrong).exit_code == 0
    file = tmp_path / "consumer.properties"
    file.write_text(f"zookeeper.connect={ADDRESS}\n")
    assert run(world, f"lag g1 --config {file}", **wrong).exit_code == 0
    file.write_text(f"bootstrap.servers={brokers_of(world)}\n")
    done = run(world, f"groups list --config {file}", **wrong)
    assert (done.exit_code, "g1" in done.stdout) == (0, False), "brokers alone know no group of ZooKeeper"


def test_a_file_without_addresses_leaves_them_to_the_environment(world: FakeEnvironment, tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("offsets.storage=zookeeper\n")
    assert run(world, f"lag g1 --config {file}", ZKCONSUMER_ZOOKEEPER=ADDRESS).exit_code == 0


def test_an_empty_variable_is_none(world: FakeEnvironment) -> None:
    done = run(world, "lag g1", ZKCONSUMER_ZOOKEEPER="", ZKCONSUMER_BOOTSTRAP_SERVERS="")
    assert (done.exit_code, NO_ADDRESS in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("lag", "Missing argument 'GROUP', or --group."),
        ("lag a --group b", "two groups are given, 'a' and --group 'b'; name one"),
        ("offsets diff", "Missing argument 'GROUP', or --group."),
        ("offsets diff a file --group b", "two groups are given, 'a' and --group 'b'; name one"),
        ("offsets diff a b c", "too many arguments: c"),
        ("migrate status a --group b", "two groups are given, 'a' and --group 'b'; name one"),
        ("spark claims", "Missing argument 'GROUP', or --group."),
        ("groups delete a --group a", "a GROUP is named twice"),
    ],
)
def test_a_group_that_is_missing_or_given_twice(words: str, error: str) -> None:
    done = CliRunner().invoke(main, [*words.split(), "--zookeeper", ADDRESS])
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"zkconsumer: {error}")


@pytest.mark.parametrize("words", ["export g1", "export --group g1", "diff g1 {}", "diff --group g1 {}", "diff {} g1"])
def test_a_group_beside_other_arguments(world: FakeEnvironment, tmp_path: Path, words: str) -> None:
    file = tmp_path / "offsets.txt"
    file.write_text("/consumers/g1/offsets/clicks/0:42\n/consumers/g1/offsets/clicks/1:50\n")
    done = run(world, f"offsets {words.format(file)} --zookeeper {ADDRESS}")
    if words == "diff {} g1":
        assert (done.exit_code, "cannot be read" in done.stderr) == (2, True), "the group comes first"
    else:
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("value", ["nan", "inf", "1e300", "-1"])
@pytest.mark.parametrize(
    "words",
    [
        ("lag", "g", "--watch", "--interval"),
        ("lag", "g", "--observe"),
        ("groups", "doctor", "g", "--interval"),
        ("groups", "doctor", "g", "--commit-interval"),
        ("groups", "top", "--interval"),
        ("migrate", "apply", "plan", "--timeout"),
    ],
)
def test_a_time_that_nobody_can_wait_is_an_error_of_the_option(words: tuple[str, ...], value: str) -> None:
    result = CliRunner().invoke(main, [*words, value])
    assert result.exit_code == 2, result.output
    assert f"Invalid value for '{words[-1]}': " in result.stderr
