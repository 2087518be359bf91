"""A store that becomes unavailable when a step begins: for a shorter or a longer time than a run waits.

Shorter: the run waits, reports for what and how long still, and continues.  Longer: exit code 7 while nothing was
changed, 6 from the first change on, and the printed command continues and ends as if nothing had happened.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice

import pytest

from tests.migration.migration_write_faults import Lab, judge, lab
from tests.migration.operator_shell import COMMANDS, Shell, both, command_in, ends_right, moved, shell

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


@pytest.mark.parametrize("turn", range(len(SHORT)))
@pytest.mark.parametrize("name", COMMANDS)
def test_a_store_that_answers_again_in_time_is_waited_for(lab: Lab, shell: Shell, name: str, turn: int) -> None:
    """One run in which something happens at every step; in turn each trouble at each step."""
    command = COMMANDS[name]
    moments = shell.moments(name)
    troubles = islice(cycle(SHORT), turn, None)
    group, file = command.prepare(shell)
    for moment, trouble in zip(moments, troubles, strict=False):
        shell.happens(*moment, partial(SHORT[trouble], shell))
    done = command(shell, group, file, "--timeout=10000")
    shell.all_back()
    assert done.exit_code == 0, done.stderr
    # After ``undone`` a repeated run has nothing to do.
    assert shell.never_came <= {("at", "the old members read again")}
    ends_right(lab, group, command)


@pytest.mark.parametrize("turn", range(len(LONG)))
@pytest.mark.parametrize("name", COMMANDS)
def test_a_store_that_stays_unavailable_ends_the_run_and_the_printed_command_continues(
    lab: Lab, shell: Shell, name: str, turn: int
) -> None:
    """At every step the run is ended; the command that it prints continues to the next one."""
    command = COMMANDS[name]
    moments = shell.moments(name)
    group, file = command.prepare(shell)
    before = both(lab, group)
    for moment, trouble in zip(moments, islice(cycle(LONG), turn, None), strict=False):
        shell.happens(*moment, partial(LONG[trouble], shell))
    done = command(shell, group, file, f"--timeout={TIMEOUT_S}")
    ended = []
    while done.exit_code:
        shell.all_back()
        ended.append(done.exit_code)
        last = done.stderr.splitlines()[-1]
        assert "the --timeout ended" in last
        assert "trying again (" in done.stderr or "waiting for brokers" in done.stderr, "it says that it waits"
        if done.exit_code == 7:
            assert both(lab, group) == before, "nothing was changed"
        words = command_in(last)
        done = shell(*words, f"--timeout={TIMEOUT_S}", *(["--confirm", group] if words[0] == "complete" else []))
    shell.all_back()
    assert ended == sorted(ended, reverse=True), "7 before the first change, 6 behind it"
    assert set(ended) == ({6, 7} if name == "copy" else {6})
    ends_right(lab, group, command)


def test_a_wait_is_reported_with_its_reason_and_remaining_time(lab: Lab, shell: Shell) -> None:
    group, file = shell.planned()
    shell.at["control znode: copied"] = lambda: shell.zookeeper_away(100_000)
    done = shell("apply", file, "--execute")
    assert done.exit_code == 0
    waits = [line for line in done.stderr.splitlines() if "trying again" in line]
    assert waits[0] == "ZooKeeper did not answer 1 requests within 30000 ms; trying again (570 s left)"
    assert len(waits) > 1, "and again and again"
    assert lab.stands(group) == ("switched", "kafka")


def test_a_request_to_stop_counts_when_the_lock_is_acquired_again(lab: Lab, shell: Shell) -> None:
    group, file = shell.planned()

    def asked_and_lost() -> None:
        asked = shell.beside("abort", group, "-o", "json")
        assert asked.exit_code == 0
        assert json.loads(asked.stdout)["message"].endswith(" stops before its next step")
        shown = json.loads(shell.beside("status", group, "-o", "json").stdout)
        assert (shown["lock"].keys(), shown["abort_requested"]) == ({"owner", "since_ms"}, True)
        shell.zookeeper_away(60_000, expires=True)

    shell.in_["commit the offsets to Kafka"] = asked_and_lost
    done = shell("apply", file, "--execute")
    assert done.exit_code == 6
    assert "by 'zkconsumer migrate abort'" in done.stderr
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


def test_a_session_that_ends_when_the_lock_is_acquired_over_old_fences_is_reported_with_the_next_command(
    lab: Lab, shell: Shell
) -> None:
    """The run is taken twice there: for the completed migration, whose access lists are kept, and for the new one."""
    group, file = moved(shell)
    archive = f"--archive={file}.znodes"
    assert shell("complete", group, "--execute", "--confirm", group, archive).exit_code == 0
    assert shell("plan", group, "-f", file, "--offset-convention", "next", "--missing", "earliest").exit_code == 0
    before = both(lab, group)
    held = "acquire the lock"

    def ends_behind_it() -> None:
        shell.at[held] = lambda: lab.zookeeper.expire(shell.stores[-1])

    shell.in_[held] = ends_behind_it
    done = shell("apply", file, "--execute", "--timeout=0")
    assert done.exit_code == 7, done.stderr
    words = "the --timeout ended: the session of this run with ZooKeeper has ended, so the run changes nothing of group"
    assert words in done.stderr.splitlines()[-1]
    assert both(lab, group) == before, "nothing was changed"
    shell.in_[held] = ends_behind_it
    goes_on = shell(*command_in(done.stderr), "--timeout=100")
    assert goes_on.exit_code == 0, "the run is taken again, in the next session"
    assert lab.stands(group) == ("switched", "kafka")
