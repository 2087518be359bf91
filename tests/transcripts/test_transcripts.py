"""Every transcript says what the group says.  ``--rewrite`` writes them anew; review the difference as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.conversation import compare, rewritten, transcripts


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_a_transcript_says_what_the_group_says(path: Path, request: pytest.FixtureRequest) -> None:
    compare(path, rewritten(path), rewrites=request.config.getoption("--rewrite", default=False))


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_a_transcript_opens_with_what_holds(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# "), "the first line is a comment that says what holds"
    if path.name.startswith("defect_"):
        number = int(path.name.split("_")[1])
        assert first.startswith(f"# Defect {number}: "), "the first line names the defect"
