"""Every command that a command prints in a failure, in text or in ``next_steps``, is run as it is printed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest

from bridge.migration.plan.plan_file import read_plan_file
from tests.commands.command_matrix import ALL_WELL, COMMANDS
from tests.commands.in_memory_cluster import SITUATIONS, CommandWorld, Outcome, command_world
from zkconsumer.cli import main
from zkconsumer.cli.command_hints import commands_in

CHANGES = ("--execute",)
"""Such a command runs without it: it shows what it would do, and the group is unchanged for the next one."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandWorld]:
    with command_world(tmp_path_factory.mktemp("hints")) as made:
        yield made


def printed(done: Outcome) -> list[str]:
    """The commands in both outputs; those of ``next_steps`` are in the text of the document."""
    with click.Context(main, info_name="zkconsumer") as context:
        return list(dict.fromkeys(commands_in(context, done.stderr) + commands_in(context, done.stdout)))


def called(servers: CommandWorld, text: str) -> Outcome:
    """Run the printed command; names replace the ports and the folder of this run."""
    for number, address in enumerate(servers.broker.addresses()):
        text = text.replace(f"broker-{number}:9092", f"{address.host}:{address.port}")
    text = text.replace("DIGEST", read_plan_file(servers.folder / "moving.plan").digest)
    words = [word for word in shlex.split(text.replace("FOLDER", str(servers.folder)))[1:] if word not in CHANGES]
    if words[:2] == ["lag", words[1]] and "--watch" in words:
        words.remove("--watch")
    return servers.call(tuple(words))


@pytest.mark.parametrize("name", COMMANDS)
def test_printed_commands_can_be_called(servers: CommandWorld, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(servers.folder)
    command = COMMANDS[name]
    for situation in (ALL_WELL, *SITUATIONS):
        if situation == "unknown host" or not command.can_be_in(situation):
            continue
        for as_json in (False, True) if command.is_json else (False,):
            for text in printed(command.call(servers, situation, as_json=as_json)):
                done = called(servers, text)
                assert done.exit_code != 2, f"{situation}: {text}\n{done.stderr}"
                assert "FILE" not in text, text
