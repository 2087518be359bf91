"""Every transcript has the outputs of the machine.  ``--rewrite`` writes them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.client.client_conversation import CoordinatorClientConversation
from tests.transcripts.conversation import compare, rewritten, transcripts

HERE = Path(__file__).parent


@pytest.mark.parametrize("path", transcripts(HERE), ids=lambda path: path.stem)
def test_a_transcript_has_the_outputs_of_the_machine(path: Path, request: pytest.FixtureRequest) -> None:
    compare(
        path,
        rewritten(path, CoordinatorClientConversation()),
        rewrites=request.config.getoption("--rewrite", default=False),
    )


@pytest.mark.parametrize("path", transcripts(HERE), ids=lambda path: path.stem)
def test_a_transcript_begins_with_a_sentence_of_what_it_shows(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# "), (
        "the first line must be a comment that says what the transcript shows"
    )
