"""Every transcript has the outputs of the machine.  ``--rewrite`` writes them again; review the difference as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.conversation import compare, rewritten, transcripts


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_a_transcript_has_the_outputs_of_the_machine(path: Path, request: pytest.FixtureRequest) -> None:
    compare(path, rewritten(path), rewrites=request.config.getoption("--rewrite", default=False))


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_a_transcript_begins_with_a_sentence_of_what_it_shows(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# "), "the first line must be a comment that says what the transcript shows"
    if path.name.startswith("defect_"):
        number = int(path.name.split("_")[1])
        assert first.startswith(f"# Defect {number}: "), "the first line must name the defect"
