"""One schema registry for the tests of a session.  In CI its lack is a failure; elsewhere it is a clear skip."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.registry_proxy import RegistryProxy, registry_proxy
from tests.requirement_fixtures import report_lack
from zkconsumer.testing.sandbox.registry_process import SchemaRegistryServer, missing_for_registry, run_registry


def require_registry() -> None:
    """Skips the test if there can be no registry; in CI it fails instead."""
    reason = missing_for_registry()
    if reason is not None:
        report_lack(reason)


@pytest.fixture(scope="session")
def registry_server() -> Iterator[SchemaRegistryServer]:
    """Apicurio; do not stop it.  Take subjects that no other test takes."""
    require_registry()
    with run_registry() as server:
        yield server


@pytest.fixture
def proxied_registry(registry_server: SchemaRegistryServer) -> Iterator[RegistryProxy]:
    """A proxy in front of it, for this test alone."""
    with registry_proxy(registry_server.url) as proxy:
        yield proxy
