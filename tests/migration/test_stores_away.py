"""A store that goes away when a step begins: for shorter than a run waits, and for longer.

Shorter: the run waits, says for whom and how long still, and goes on.  Longer: exit code 7 while nothing was changed,
6 from the first change on, and the command that is printed goes on and ends as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest
from click.testing import Result

from tests.migration.fix_move import EXPECTED, STORED, Lab, judge, lab
from tests.migration.fix_shell import Shell, shell

__all__ = ["lab", "shell"]

Trouble = Callable[[Shell], None]

SHORT: dict[str, Trouble] = {
    "no ZooKeeper for 25 s": lambda shell: shell.zookeeper_away(25_000),
    "no ZooKeeper for 60 s": lambda shell: shell.zookeeper_away(60_000),
    "no ZooKeeper for 60 s, and the session ends": lambda shell: shell.zookeeper_away(60_000, expires=True),
    "the session ends": lambda shell: shell.zookeeper_away(1_000, expires=True),
    "no broker for 60 s": lambda shell: shell.broker_away(60_000),
    "the coordinator moves, for 60 s": lambda shell: shell.coordinator_away(60_000, 16),
    "the coordinator loads, for 60 s": lambda shell: shell.coordinator_away(60_000, 14),
}
LONG: dict[str, Trouble] = {
    "no ZooKeeper": lambda shell: shell.zookeeper_away(1_000_000, expires=True),
    "no broker": lambda shell: shell.broker_away(1_000_000),
    "no coordinator": lambda shell: shell.coordinator_away(1_000_000, 16),
}
TIMEOUT_S = 100


@dataclass(frozen=True)
class Command:
    """What stands before it, its words, and where the group stands behind it."""

    prepare: Callable[[Shell], tuple[str, Path]]
    words: Callable[[str, Path], list[str]]
    end: tuple[str, str]

    def __call__(self, shell: Shell, group: str, file: Path, *more: str) -> Result:
        return shell(*self.words(group, file), "--execute", *more)


def moved(shell: Shell, *more: str) -> tuple[str, Path]:
    group, file = shell.planned()
    assert shell("apply", file, "--execute", *more).exit_code == 0
    return group, file


def rollback(group: str, file: Path) -> list[str]:
    return ["rollback", group]


COMMANDS = {
    "copy": Command(lambda shell: shell.planned(), lambda group, file: ["apply", str(file)], ("switched", "kafka")),
    "back after the switch": Command(moved, rollback, ("undone", "zookeeper")),
    "back before it": Command(lambda shell: moved(shell, "--hold-at=verified"), rollback, ("undone", "zookeeper")),
    "complete": Command(
        moved,
        lambda group, file: ["complete", group, "--confirm", group, "--archive", f"{file}.znodes"],
        ("completed", "kafka"),
    ),
}


def moments_of(shell: Shell, command: Command) -> list[tuple[str, str]]:
    """When something may happen: each step, before it is looked at and before it is done."""
    group, file = command.prepare(shell)
    assert command(shell, group, file).exit_code == 0
    return list(dict.fromkeys(shell.met))


def steps_of(shell: Shell, command: Command) -> list[tuple[str, str]]:
    """Each step once: before it is done, or before it is looked at where there was nothing to do."""
    moments = moments_of(shell, command)
    return [(when, step) for when, step in moments if when == "in" or ("in", step) not in moments]


def ends_right(lab: Lab, group: str, command: Command, words: str) -> None:
    assert lab.stands(group) == command.end, words
    if command.end[1] == "kafka":
        assert {tp: offset for tp, (offset, _) in lab.kafka(group).items()} == EXPECTED, words
    else:
        assert lab.offsets(group).items() in (EXPECTED.items(), STORED.items()), words
    judge(lab.history.moments[group])


def goes_on(lab: Lab, shell: Shell, command: Command, when: str, step: str, trouble: str) -> None:
    words = f"{trouble} {when} {step!r}"
    group, file = command.prepare(shell)
    shell.happens(when, step, partial(SHORT[trouble], shell))
    done = command(shell, group, file)
    shell.all_back()
    assert done.exit_code == 0, f"{words}: {done.stderr}"
    ends_right(lab, group, command, words)


def ends_and_is_resumed(lab: Lab, shell: Shell, command: Command, when: str, step: str, trouble: str) -> None:
    words = f"{trouble} {when} {step!r}"
    group, file = command.prepare(shell)
    before = lab.nodes(group), lab.kafka(group), lab.control(group)
    shell.happens(when, step, partial(LONG[trouble], shell))
    done = command(shell, group, file, f"--timeout={TIMEOUT_S}")
    shell.all_back()
    words = f"{words}: {done.stderr}"
    if done.exit_code == 7:
        assert (lab.nodes(group), lab.kafka(group), lab.control(group)) == before, words
    if done.exit_code != 0:  # else nobody needed that store any more
        assert done.exit_code == (6 if before[2] or lab.control(group) else 7), words
        assert "waited long enough" in done.stderr.splitlines()[-1], words
        assert "it is tried again (" in done.stderr or "waiting for brokers" in done.stderr, "it says that it waits"
        again = shell.again(done, *(["--confirm", group] if "complete" in done.stderr.splitlines()[-1] else []))
        assert again.exit_code == 0, f"{words}, then {again.stderr}"
    ends_right(lab, group, command, words)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_store_that_comes_back_in_time_is_waited_for(lab: Lab, shell: Shell, name: str) -> None:
    """At each step another trouble; all of them at each moment of each step: nightly."""
    troubles = cycle(SHORT)
    for when, step in steps_of(shell, COMMANDS[name]):
        goes_on(lab, shell, COMMANDS[name], when, step, next(troubles))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_store_that_stays_away_ends_the_run_and_the_printed_command_goes_on(
    lab: Lab, shell: Shell, name: str
) -> None:
    troubles = cycle(LONG)
    for when, step in steps_of(shell, COMMANDS[name])[::2]:
        ends_and_is_resumed(lab, shell, COMMANDS[name], when, step, next(troubles))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("trouble", SHORT)
@pytest.mark.parametrize("name", COMMANDS)
def test_each_trouble_at_each_step(lab: Lab, shell: Shell, name: str, trouble: str) -> None:
    for when, step in moments_of(shell, COMMANDS[name]):
        goes_on(lab, shell, COMMANDS[name], when, step, trouble)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("trouble", LONG)
@pytest.mark.parametrize("name", COMMANDS)
def test_each_store_away_for_good_at_each_step(lab: Lab, shell: Shell, name: str, trouble: str) -> None:
    for when, step in moments_of(shell, COMMANDS[name]):
        ends_and_is_resumed(lab, shell, COMMANDS[name], when, step, trouble)


def test_it_is_said_what_is_waited_for_and_how_long_still(lab: Lab, shell: Shell) -> None:
    group, file = shell.planned()
    shell.at["control znode: copied"] = lambda: shell.zookeeper_away(100_000)
    done = shell("apply", file, "--execute")
    assert done.exit_code == 0
    waits = [line for line in done.stderr.splitlines() if "tried again" in line]
    assert waits[0] == "ZooKeeper did not answer 1 requests within 30000 ms; it is tried again (570 s left)"
    assert len(waits) > 1, "and again and again"
    assert lab.stands(group) == ("switched", "kafka")


def test_whoever_asked_a_run_to_stop_is_heard_when_it_takes_the_run_again(lab: Lab, shell: Shell) -> None:
    group, file = shell.planned()

    def asked_and_lost() -> None:
        assert shell.beside("abort", group).exit_code == 0
        shell.zookeeper_away(60_000, expires=True)

    shell.in_["commit the offsets to Kafka"] = asked_and_lost
    done = shell("apply", file, "--execute")
    assert done.exit_code == 6
    assert "somebody aborted it" in done.stderr
    assert shell.again(done).exit_code == 0, "and the next run is not stopped"
    assert lab.stands(group) == ("switched", "kafka")


def test_another_run_that_began_while_the_session_was_lost_is_not_disturbed(lab: Lab, shell: Shell) -> None:
    group, file = shell.planned()

    def overtaken() -> None:
        shell.zookeeper_away(45_000, expires=True)
        shell.all_back()
        assert shell.beside("apply", file, "--execute").exit_code == 0

    shell.in_["commit the offsets to Kafka"] = overtaken
    done = shell("apply", file, "--execute")
    assert done.exit_code in (0, 5, 6), done.stderr
    assert lab.stands(group) == ("switched", "kafka")
    judge(lab.history.moments[group])
