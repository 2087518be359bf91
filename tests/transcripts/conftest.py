"""``pytest tests/transcripts --rewrite`` writes the outputs of all transcripts again, to be reviewed as text."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the outputs of the transcripts again")
