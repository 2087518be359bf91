"""Every transcript has the outputs of the machine, and together they contain each change of phase of a migration."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.migration.control.phases import Phase, authority_of, next_phases
from bridge.migration.dual.machine.phase_rules import PHASE_RULES, MemberPhase, member_phase_of
from tests.transcripts.conversation import compare, rewritten, transcripts
from tests.transcripts.migration.migrating_member_conversation import MigratingMemberConversation
from zkconsumer.zk.znode_formats import ControlRecord

HERE = Path(__file__).parent


@pytest.mark.parametrize("path", transcripts(HERE), ids=lambda path: path.stem)
def test_a_transcript_has_the_outputs_of_the_machine(path: Path, request: pytest.FixtureRequest) -> None:
    compare(
        path,
        rewritten(path, MigratingMemberConversation()),
        rewrites=request.config.getoption("--rewrite", default=False),
    )


@pytest.mark.parametrize("path", transcripts(HERE), ids=lambda path: path.stem)
def test_a_transcript_begins_with_a_sentence_of_what_it_shows(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")


def control(phase: Phase) -> ControlRecord:
    return ControlRecord("m1", 1, phase.value, authority_of(phase), "dual")


def phase_changes() -> set[tuple[MemberPhase, MemberPhase]]:
    """Each change of phase in a dual migration, as a member sees it that misses none."""
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


def test_each_change_of_phase_is_in_some_transcript() -> None:
    taken = set[tuple[MemberPhase, MemberPhase]]()
    for path in transcripts(HERE):
        conversation = MigratingMemberConversation()
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(">"):
                before = conversation.member.member_phase
                conversation.handle(line[1:].strip())
                if line.startswith("> control"):
                    taken.add((before, conversation.member.member_phase))
    missed = sorted(f"{before.value} -> {after.value}" for before, after in phase_changes() - taken)
    assert not missed
    assert {phase for change in taken for phase in change} == set(PHASE_RULES) == set(MemberPhase)
