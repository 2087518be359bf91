"""One PostgreSQL server for the tests of a session.  In CI its lack is a failure; elsewhere it is a clear skip."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from zkconsumer.testing.sandbox.postgres_process import (
    DATABASE,
    PASSWORD,
    USER,
    PostgresServer,
    find_postgres,
    missing_for_postgres,
    run_postgres,
)

__all__ = ["DATABASE", "PASSWORD", "USER", "PostgresServer", "postgres_server", "require_postgres"]


def require_postgres() -> Path:
    """The folder of the programs; skips the test if there is no server, in CI it fails instead."""
    reason = missing_for_postgres()
    if reason is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"in CI nothing real is skipped: {reason}")
        pytest.skip(reason)
    programs = find_postgres()
    assert programs is not None
    return programs


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    require_postgres()
    with run_postgres() as server:
        yield server
