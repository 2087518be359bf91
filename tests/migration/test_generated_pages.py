"""The generated pages about migrations agree with the tables; ``test_docs.py`` checks that they are up to date."""

from __future__ import annotations

import re

import pytest

from bridge.migration.control.phases import FORWARD, Phase, Strategy, authority_of, can_reach
from tests.reference_pages.migrate_exit_codes_page import EXIT_CODES, MIGRATION_ERRORS, exit_code_texts
from tests.reference_pages.phases_page import arrows, command, sentences

STRATEGIES = list(FORWARD)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_diagram_has_every_phase_that_can_be_reached_and_no_dead_end(strategy: Strategy) -> None:
    found = list(arrows(strategy))
    assert len(found) == len(set(found))
    drawn = {phase for pair in found for phase in pair}
    assert drawn == {Phase.PLANNED} | {one for one in Phase if can_reach(strategy, Phase.PLANNED, [one])}
    ends = drawn - {before for before, _ in found}
    assert ends == {Phase.COMPLETED, Phase.UNDONE}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_two_arrows_move_the_authority(strategy: Strategy) -> None:
    moving = {after: command(strategy, after) for before, after in arrows(strategy)
              if authority_of(before) != authority_of(after)}  # fmt: skip
    assert moving == {Phase.SWITCHED: "apply", Phase.RETURNED: "rollback"}


def test_the_sentence_of_a_phase_is_that_of_the_source() -> None:
    assert sentences()[Phase.SWITCHED] == "Kafka has the authority; new members may read."
    assert list(sentences()) == list(Phase)


@pytest.mark.parametrize("name", list(exit_code_texts()))
def test_every_command_lists_its_exit_codes_and_the_table_has_them(name: str) -> None:
    codes = [int(code) for code in re.findall(r"(?:^|[,;] )(\d+) ", exit_code_texts()[name])]
    assert codes, "the help says none"
    assert codes == sorted(set(codes))
    assert set(codes) <= EXIT_CODES.keys()


def test_every_code_of_an_error_is_in_the_table() -> None:
    assert {kind.exit_code for kind in MIGRATION_ERRORS} <= EXIT_CODES.keys()
    assert list(EXIT_CODES) == sorted(EXIT_CODES)
