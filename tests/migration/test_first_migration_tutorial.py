"""The tutorial "A first migration" is correct: its blocks run in one shell, and print what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doc_page_runner import ROOT, check_page
from tests.sandbox_fixtures import require_releases

PAGE = ROOT / "migration_docs" / "tutorial" / "02-first-migration.md"
RUN_TIMEOUT_S = 240


@pytest.mark.real
@pytest.mark.timeout(RUN_TIMEOUT_S + 60)
@pytest.mark.usefixtures("own_cache")
def test_the_page_runs_unchanged(tmp_path: Path) -> None:
    require_releases("1.1.1")
    folder = tmp_path / "page"
    folder.mkdir()
    check_page(PAGE, folder, RUN_TIMEOUT_S)
