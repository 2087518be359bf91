"""The page about the state machines is generated from their tables.  ``--rewrite`` writes it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reference_pages.state_machine_page import state_machine_page

PAGE = Path(__file__).parents[2] / "migration_docs" / "reference" / "state-machines.md"


def test_the_page_about_the_state_machines_is_up_to_date(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite", default=False):
        PAGE.write_text(state_machine_page(), encoding="utf-8")
        return
    assert PAGE.read_text(encoding="utf-8") == state_machine_page(), (
        f"run pytest tests/transcripts --rewrite, and review {PAGE.name}"
    )
