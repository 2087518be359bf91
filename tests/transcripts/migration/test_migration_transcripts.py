"""Every transcript says what the member says, and together they take every way that a migration can go."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.migration.control.phases import Phase, authority_of, next_phases
from bridge.migration.dual.machine.phase_rules import PHASE_RULES, MemberPhase, member_phase_of
from tests.transcripts.conversation import compare, rewritten, transcripts
from tests.transcripts.migration.migrating_member_conversation import MemberTalk
from zkconsumer.zk.znode_formats import ControlRecord

HERE = Path(__file__).parent


@pytest.mark.parametrize("path", transcripts(HERE), ids=lambda path: path.stem)
def test_a_transcript_says_what_the_member_says(path: Path, request: pytest.FixtureRequest) -> None:
    compare(path, rewritten(path, MemberTalk()), rewrites=request.config.getoption("--rewrite", default=False))


@pytest.mark.parametrize("path", transcripts(HERE), ids=lambda path: path.stem)
def test_a_transcript_opens_with_what_holds(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")


def control(phase: Phase) -> ControlRecord:
    return ControlRecord("m1", 1, phase.value, authority_of(phase), "dual")


def ways() -> set[tuple[MemberPhase, MemberPhase]]:
    """Each step that a dual migration can take, as a member sees it that misses none."""
    found, todo = set[tuple[MemberPhase, MemberPhase]](), [Phase.PLANNED]
    seen = set[Phase]()
    while todo:
        phase = todo.pop()
        if phase in seen:
            continue
        seen.add(phase)
        for later in next_phases("dual", phase):
            found.add((member_phase_of(control(phase)), member_phase_of(control(later))))
            todo.append(later)
    return found


def test_every_way_is_taken_by_some_transcript() -> None:
    taken = set[tuple[MemberPhase, MemberPhase]]()
    for path in transcripts(HERE):
        talk = MemberTalk()
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(">"):
                before = talk.member.member_phase
                talk.hear(line[1:].strip())
                if line.startswith("> control"):
                    taken.add((before, talk.member.member_phase))
    missed = sorted(f"{before.value} -> {after.value}" for before, after in ways() - taken)
    assert not missed
    assert {phase for way in taken for phase in way} == set(PHASE_RULES) == set(MemberPhase)
