"""Every transcript says what a member of a coordinator's group says.  ``--rewrite`` writes them anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.client.client_conversation import MemberTalk
from tests.transcripts.conversation import compare, rewritten, transcripts

HERE = Path(__file__).parent


@pytest.mark.parametrize("path", transcripts(HERE), ids=lambda path: path.stem)
def test_a_transcript_says_what_the_member_says(path: Path, request: pytest.FixtureRequest) -> None:
    compare(path, rewritten(path, MemberTalk()), rewrites=request.config.getoption("--rewrite", default=False))


@pytest.mark.parametrize("path", transcripts(HERE), ids=lambda path: path.stem)
def test_a_transcript_opens_with_what_holds(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# "), "the first line is a comment that says what holds"
