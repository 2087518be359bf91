"""Phases, the control znode and provenance: what may follow what, and whose a value is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.migration.control import control_layout as ctl
from bridge.migration.control.phases import ENDED, FORWARD, Phase, authority_of, has_reached, next_phases
from bridge.migration.offsets.provenance import Provenance, format_provenance, parse_provenance
from zkconsumer.errors import InternalError, InvalidNameError
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import ControlRecord, format_control, parse_control

STRATEGIES = list(FORWARD)


def reachable(strategy: str) -> set[Phase]:
    found, todo = set(), [Phase.PLANNED]
    while todo:
        phase = todo.pop()
        if phase not in found:
            found.add(phase)
            todo += next_phases(strategy, phase)
    return found


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_phase_can_be_ended(strategy: str) -> None:
    for phase in reachable(strategy):
        seen = {phase}
        while not seen & ENDED:
            seen |= {later for one in seen for later in next_phases(strategy, one)}
        assert phase in ENDED or next_phases(strategy, phase)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rollback_is_possible_until_completed(strategy: str) -> None:
    """M6: from every phase but the last, ``undone`` can be reached without passing ``completed``."""
    for phase in reachable(strategy) - {Phase.COMPLETED}:
        seen, todo = set(), [phase]
        while todo:
            one = todo.pop()
            if one not in seen and one is not Phase.COMPLETED:
                seen.add(one)
                todo += next_phases(strategy, one)
        assert Phase.UNDONE in seen, phase


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_authority_moves_at_two_places_only(strategy: str) -> None:
    """M4: one store has it, and it changes with ``switched`` and ``returned`` alone."""
    moves = {
        later
        for phase in reachable(strategy)
        for later in next_phases(strategy, phase)
        if authority_of(phase) != authority_of(later)
    }
    assert moves == {Phase.SWITCHED, Phase.RETURNED}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_step_on_is_the_only_way_on(strategy: str) -> None:
    control = ctl.initial_control("m1", strategy, None)
    for phase in FORWARD[strategy][1:]:
        for wrong in set(Phase) - set(next_phases(strategy, ctl.phase_of(control))):
            with pytest.raises(InternalError, match="does not follow"):
                ctl.next_control(control, wrong)
        before, control = control, ctl.next_control(control, phase)
        assert before.epoch <= control.epoch <= before.epoch + 1
        assert control.epoch > before.epoch or control.authority == before.authority
        assert parse_control(format_control(control)) == control
        assert has_reached(strategy, phase, FORWARD[strategy][0])
        assert not has_reached(strategy, FORWARD[strategy][0], phase)


def test_the_next_migration_has_a_later_epoch() -> None:
    ended = ControlRecord("m1", 7, "undone", "zookeeper", "copy")
    assert ctl.initial_control("m2", "dual", ended) == ControlRecord("m2", 8, "planned", "zookeeper", "dual")


@pytest.mark.parametrize("word", ["", "paused", "Fenced"])
def test_values_of_a_later_release_are_not_guessed(word: str) -> None:
    with pytest.raises(ValueError, match=word or "''"):
        ctl.phase_of(ControlRecord("m1", 1, word, "zookeeper", "copy"))
    with pytest.raises(ValueError, match="no strategy"):
        ctl.strategy_of(ControlRecord("m1", 1, "planned", "zookeeper", word))


@given(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True), st.integers(0, 10**18 - 1), st.integers(-1, 2**31 - 1))
def test_provenance_is_parsed_as_it_was_written(migration: str, epoch: int, version: int) -> None:
    whose = Provenance(migration, epoch, version)
    text = format_provenance(whose)
    assert parse_provenance(text) == whose
    assert len(text) < 4096
    assert whose.is_of_migration(migration)
    assert not whose.is_of_migration(migration + "x")


@given(st.none() | st.text())
def test_other_metadata_have_no_provenance(metadata: str | None) -> None:
    assert parse_provenance(metadata) is None


@pytest.mark.parametrize("name", ["", "Plan", "../x", "a/b", "a" * 65, "1", "plan 1"])
def test_a_child_of_the_control_znode_stays_one(name: str) -> None:
    with pytest.raises(InvalidNameError):
        paths.control_child("g1", name)


def test_names_of_the_children() -> None:
    assert paths.control_child("g1", ctl.plan_piece_name(3)) == "/zkconsumer/groups/g1/plan-0003"
    for name in (ctl.JOURNAL_CHILD, ctl.ABORT_CHILD, ctl.MEMBERS_CHILD):
        assert paths.control_child("g1", name) == f"/zkconsumer/groups/g1/{name}"
