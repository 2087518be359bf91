"""A command that was called with ``-o json`` prints a document also where it ends with an error."""

from __future__ import annotations

import json

import pytest

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import RunTool


@pytest.mark.parametrize(
    ("words", "code", "step"),
    [
        (("groups", "describe", "nosuch"), 1, "zkconsumer groups list"),
        (("lag", "nosuch"), 1, "zkconsumer groups list"),
        (("lag", "nosuch", "--watch"), 1, "zkconsumer groups list"),
        (("migrate", "rollback", "nosuch"), 4, "zkconsumer migrate inspect nosuch"),
        (("migrate", "status", "nosuch", "--watch"), 1, "zkconsumer groups list"),
        (("offsets", "set", "g1", "--topic", "nosuch", "--to-earliest"), 4, "zkconsumer groups describe g1"),
    ],
)
def test_an_error_is_a_document_with_the_exit_code_and_the_next_commands(
    tool: RunTool, words: tuple[str, ...], code: int, step: str
) -> None:
    done = tool(*words, "-o", "json")
    told = json.loads(done.stdout)
    assert done.exit_code == told["exit_code"] == code
    assert told["schema"] == "zkconsumer/error/1"
    assert f"zkconsumer: {told['error']}\n" in done.stderr
    assert told["next_steps"] == [f"{step} --zookeeper {ADDRESS}"]
    assert tool(*words).stdout == "", "a person reads the words"


def test_a_wrong_call_is_one_too(tool: RunTool) -> None:
    done = tool("lag", "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["exit_code"]) == (2, 2)


def test_a_command_that_has_shown_its_document_prints_no_second_one(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 1)
    world.zookeeper.ensure("/consumers/g1/offsets/clicks/0", b"abc")
    for words in (("groups", "describe", "g1"), ("lag", "g1"), ("groups", "delete", "g1")):
        done = tool(*words, "-o", "json")
        assert done.exit_code in (1, 3)
        assert json.loads(done.stdout)["schema"] != "zkconsumer/error/1"
