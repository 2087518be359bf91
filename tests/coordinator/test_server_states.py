"""Every event in every state: the table of what a group coordinator answers (Kafka 3.6), cell by cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from bridge.coordinator.behaviour import behaviour_of
from bridge.coordinator.events import GroupTimerFired
from tests.coordinator.server_harness import DELAY_MS, REBALANCE_MS, Member, Table

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
LONG_MS = 600_000
NOBODY = Member("nobody", 1, "")


@dataclass
class Scene:
    """A group in one state: the leader and a static follower; ``parked``: what one of them has parked."""

    table: Table
    leader: Member
    static: Member
    parked: list[int]


def scene(state: str) -> Scene:
    table = Table(behaviour_of("3.6.0"))
    first = table.join(session_ms=LONG_MS, rebalance_ms=REBALANCE_MS)
    second = table.join(instance_id="i", session_ms=LONG_MS, rebalance_ms=REBALANCE_MS)
    table.move(3 * DELAY_MS)
    leader, static = table.joined(first), table.joined(second, "i")
    parked: list[int] = []
    if state == "CompletingRebalance":
        parked = [table.sync(static)]
    else:
        table.sync_all([leader, static])
        table.commit({("t", 0): 1}, leader)
    if state == "PreparingRebalance":
        parked = [table.join(member_id=leader.member_id, session_ms=LONG_MS)]
    if state in ("Empty", "Dead"):
        table.leave_one(leader.member_id)
        table.leave_one(static.member_id)
        table.move(REBALANCE_MS)
        leader.generation_id = static.generation_id = table.group().generation_id
        if state == "Dead":
            table.holds_appends = True
            table.send_delete("g")
    assert table.group().state.value == state
    return Scene(table, leader, static, parked)


PARKED = "parked"
Outcome = int | str


def outcome(table: Table, token: int) -> Outcome:
    return int(table.answer(token).error_code) if table.is_answered(token) else PARKED


def join_dynamic(at: Scene) -> Outcome:
    return outcome(at.table, at.table.join(session_ms=LONG_MS))


def join_dynamic_v4(at: Scene) -> Outcome:
    return outcome(at.table, at.table.join(version=4))


def join_new_instance(at: Scene) -> Outcome:
    return outcome(at.table, at.table.join(instance_id="new"))


def join_known_instance(at: Scene) -> Outcome:
    return outcome(at.table, at.table.join(instance_id="i"))


def join_pending(at: Scene) -> Outcome:
    if at.table.state() != "Dead":
        at.table.group().pending_members.add("pending")
    return outcome(at.table, at.table.join(member_id="pending", version=4))


def join_follower_unchanged(at: Scene) -> Outcome:
    return outcome(at.table, at.table.join(member_id=at.static.member_id, instance_id="i"))


def join_leader_unchanged(at: Scene) -> Outcome:
    return outcome(at.table, at.table.join(member_id=at.leader.member_id))


def join_known_changed(at: Scene) -> Outcome:
    both = (("range", b"new"), ("other", b""))
    return outcome(at.table, at.table.join(member_id=at.static.member_id, instance_id="i", protocols=both))


def join_unsupported(at: Scene) -> Outcome:
    return outcome(at.table, at.table.join(protocols=()))


def sync(at: Scene) -> Outcome:
    return outcome(at.table, at.table.sync(at.static))


def sync_leader(at: Scene) -> Outcome:
    return outcome(at.table, at.table.sync(at.leader, {}))


def heartbeat(at: Scene) -> Outcome:
    return at.table.heartbeat(at.static)


def leave(at: Scene) -> Outcome:
    return at.table.leave_one(at.static.member_id)


def commit_member(at: Scene) -> Outcome:
    return at.table.commit({("t", 0): 2}, at.leader)[0] if at.table.state() != "Dead" else commit_later(at, at.leader)


def commit_nobody(at: Scene) -> Outcome:
    return at.table.commit({("t", 0): 2})[0] if at.table.state() != "Dead" else commit_later(at, None)


def commit_later(at: Scene, member: Member | None) -> Outcome:
    return at.table.commit({("t", 0): 2}, member)[0]


def fetch(at: Scene) -> Outcome:
    return at.table.fetch([("t", 0)])["t", 0][0]


def delete(at: Scene) -> Outcome:
    return at.table.delete("g")["g"]


Cells = tuple[tuple[Outcome, str], ...]

ROWS: dict[str, tuple[Callable[[Scene], Outcome], Cells]] = {
    # event                      Empty            PreparingRebalance  CompletingRebalance  Stable           Dead
    "join, no id, before v4": (
        join_dynamic,
        ((PARKED, "PR"), (PARKED, "PR"), (PARKED, "PR"), (PARKED, "PR"), (15, "Dead")),
    ),
    "join, no id, from v4 on": (join_dynamic_v4, ((79, "Empty"), (79, "PR"), (79, "CR"), (79, "Stable"), (15, "Dead"))),
    "join, no id, new instance": (
        join_new_instance,
        ((PARKED, "PR"), (PARKED, "PR"), (PARKED, "PR"), (PARKED, "PR"), (15, "Dead")),
    ),
    "join, no id, known instance": (
        join_known_instance,
        ((PARKED, "PR"), (0, "CR"), (PARKED, "PR"), (0, "Stable"), (15, "Dead")),
    ),
    "join, pending id": (
        join_pending,
        ((PARKED, "PR"), (PARKED, "PR"), (PARKED, "PR"), (PARKED, "PR"), (15, "Dead")),
    ),
    "join, follower, same metadata": (
        join_follower_unchanged,
        ((25, "Empty"), (0, "CR"), (0, "CR"), (0, "Stable"), (15, "Dead")),
    ),
    "join, leader, same metadata": (
        join_leader_unchanged,
        ((25, "Empty"), (PARKED, "PR"), (0, "CR"), (PARKED, "PR"), (15, "Dead")),
    ),
    "join, known id, new metadata": (
        join_known_changed,
        ((25, "Empty"), (0, "CR"), (PARKED, "PR"), (PARKED, "PR"), (15, "Dead")),
    ),
    "join, no protocols": (join_unsupported, ((23, "Empty"), (23, "PR"), (23, "CR"), (23, "Stable"), (15, "Dead"))),
    "sync": (sync, ((25, "Empty"), (27, "PR"), (PARKED, "CR"), (0, "Stable"), (15, "Dead"))),
    "sync of the leader": (sync_leader, ((25, "Empty"), (27, "PR"), (0, "Stable"), (0, "Stable"), (15, "Dead"))),
    "heartbeat": (heartbeat, ((25, "Empty"), (27, "PR"), (0, "CR"), (0, "Stable"), (15, "Dead"))),
    "leave": (leave, ((25, "Empty"), (0, "CR"), (0, "PR"), (0, "PR"), (15, "Dead"))),
    "commit with a generation": (commit_member, ((25, "Empty"), (0, "PR"), (27, "CR"), (0, "Stable"), (15, "Dead"))),
    "commit without": (commit_nobody, ((0, "Empty"), (25, "PR"), (25, "CR"), (25, "Stable"), (15, "Dead"))),
    "fetch": (fetch, ((1, "Empty"), (1, "PR"), (-1, "CR"), (1, "Stable"), (-1, "Dead"))),
    "delete": (delete, ((0, "Dead"), (68, "PR"), (68, "CR"), (68, "Stable"), (69, "Dead"))),
}
LONG = {"PR": "PreparingRebalance", "CR": "CompletingRebalance"}
CELLS = [(event, state, cell) for event, (_, cells) in ROWS.items() for state, cell in zip(STATES, cells, strict=True)]


@pytest.mark.parametrize(("event", "state", "cell"), CELLS, ids=[f"{event} | {state}" for event, state, _ in CELLS])
def test_an_event_in_a_state_is_answered_and_leads_where_the_table_says(
    event: str, state: str, cell: tuple[Outcome, str]
) -> None:
    at = scene(state)
    found = ROWS[event][0](at)
    assert (found, at.table.state()) == (cell[0], LONG.get(cell[1], cell[1]))


def test_a_static_id_of_an_empty_group_is_new_again() -> None:
    at = scene("Empty")
    token = at.table.join(instance_id="i")
    at.table.move(DELAY_MS)
    assert at.table.joined(token).generation_id == at.static.generation_id + 1


# --- what happens to those that wait -------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["join, no id, before v4", "join, known id, new metadata", "leave"])
def test_who_has_synced_is_asked_to_join_again_when_the_group_changes(event: str) -> None:
    at = scene("CompletingRebalance")
    ROWS[event][0](at)
    # The member that leaves is answered as one that is not there any more.
    assert outcome(at.table, at.parked[0]) == (25 if event == "leave" else 27)


def test_the_old_self_of_a_static_member_is_fenced_where_it_waits() -> None:
    at = scene("CompletingRebalance")
    join_known_instance(at)
    assert outcome(at.table, at.parked[0]) == 82


@pytest.mark.parametrize("state", STATES[:4])
def test_a_group_that_goes_to_another_broker_leaves_nobody_waiting(state: str) -> None:
    at = scene(state)
    at.table.resign(at.table.coordinator.partition_for("g"))
    assert [outcome(at.table, token) for token in at.parked] == [16] * len(at.parked)
    assert at.table.state() == "Dead"
    assert at.table.heartbeat(at.static) == 16


# --- time ------------------------------------------------------------------------------------------------------------


def test_when_the_time_to_join_is_up_dynamic_members_that_did_not_are_dropped() -> None:
    at = scene("Stable")
    token = at.table.join(member_id=at.static.member_id, instance_id="i", protocols=(("range", b"x"),))
    at.table.move(REBALANCE_MS)
    answer = at.table.answer(token)
    assert (answer.error_code, answer.leader, at.table.state()) == (0, at.static.member_id, "CompletingRebalance")
    assert not at.table.group().has(at.leader.member_id)


def test_when_the_time_to_join_is_up_static_members_that_did_not_stay() -> None:
    at = scene("PreparingRebalance")
    at.table.move(REBALANCE_MS)
    assert at.table.group().has(at.static.member_id)
    assert at.table.state() == "CompletingRebalance"


def test_when_the_time_to_sync_is_up_members_that_did_not_are_dropped() -> None:
    at = scene("CompletingRebalance")
    at.table.move(REBALANCE_MS)
    assert outcome(at.table, at.parked[0]) == 27
    assert list(at.table.group().members) == [at.static.member_id]
    assert at.table.state() == "PreparingRebalance"


@pytest.mark.parametrize(("state", "after"), [("PreparingRebalance", 0), ("CompletingRebalance", 27), ("Stable", 0)])
def test_a_session_that_is_over_is_a_leave(state: str, after: Outcome) -> None:
    at = scene(state)
    silent = at.leader if state == "CompletingRebalance" else at.static
    if state == "Stable":
        at.parked = [at.table.join(member_id=at.leader.member_id)]
    key = ("heartbeat", "g", silent.member_id)
    while key in at.table.timers:
        at.table.now_ms = max(at.table.now_ms, at.table.timers[key])
        at.table.happen(GroupTimerFired(key, at.table.timers.pop(key)))
    assert not at.table.group().has(silent.member_id)
    assert [outcome(at.table, token) for token in at.parked] == [after]


@pytest.mark.parametrize("state", STATES[:4])
def test_over_its_size_a_group_takes_nobody_unless_it_is_empty(state: str) -> None:
    at = scene(state)
    at.table.coordinator.config = replace(at.table.config, group_max_size=1)
    token = at.table.join()
    assert outcome(at.table, token) == (PARKED if state == "Empty" else 81)


def test_the_last_offset_s_end_is_that_of_an_empty_group() -> None:
    at = scene("Empty")
    at.table.move(at.table.config.offsets_retention_ms + at.table.config.offsets_retention_check_interval_ms)
    assert at.table.state() == "Dead"
    assert at.table.restart().state() == "Dead"


# --- unknown groups --------------------------------------------------------------------------------------------------


def test_a_group_that_there_is_not_answers_as_one() -> None:
    table = Table(behaviour_of("3.6.0"))
    assert outcome(table, table.join(member_id="m")) == 25
    assert outcome(table, table.sync(NOBODY)) == 25
    assert table.heartbeat(NOBODY) == 25
    assert table.leave_one("m") == 25
    assert table.commit({("t", 0): 1}, NOBODY) == [22]
    assert table.fetch([("t", 0)]) == {("t", 0): (-1, "", 0)}
    assert table.delete("g") == {"g": 69}
    assert table.commit({("t", 0): 1}) == [0]
    assert table.state() == "Empty"
