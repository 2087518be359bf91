"""One PostgreSQL server for the tests of a session.  In CI its lack is a failure; elsewhere it is a clear skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.debian_packages import POSTGRES
from tests.requirement_fixtures import report_lack
from zkconsumer.testing.sandbox.postgres_process import (
    DATABASE,
    NO_SERVER,
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
        report_lack(reason, POSTGRES.package if reason == NO_SERVER else None)
    programs = find_postgres()
    assert programs is not None
    return programs


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    require_postgres()
    with run_postgres() as server:
        yield server
