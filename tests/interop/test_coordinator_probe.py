"""The probe of a group coordinator against real brokers of every age, and against ours that emulate them.

What the probe says of a release was first seen on the real one; ours is held to it, check by check.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fix_modern import ProbedServers, ServerKind
from tests.interop.probe import CHECKS, Probe, Server, checks_of

REAL = ("0.9.0.1", "0.11.0.3", "1.1.1", "3.9.1", "4.1.1")
REAL_ALWAYS = ("1.1.1", "3.9.1")

KINDS = [
    *(ServerKind(release, is_real=True) for release in REAL),
    ServerKind("3.9.1", is_real=True, is_kraft=True),
]

pytestmark = pytest.mark.timeout(180)


def cases() -> Iterator[object]:
    """One for each server and each check that concerns its release; those of one server stand together."""
    for kind in KINDS:
        is_nightly = kind.is_real and (kind.release not in REAL_ALWAYS or kind.is_kraft)
        marks = [*([pytest.mark.real] if kind.is_real else []), *([pytest.mark.nightly] if is_nightly else [])]
        for check in checks_of(kind.release):
            yield pytest.param(kind, check.name, marks=marks, id=f"{kind}-{check.name}")


@pytest.fixture(scope="session")
def probed() -> Iterator[ProbedServers]:
    servers = ProbedServers()
    yield servers
    servers.close()


@pytest.mark.parametrize(("kind", "name"), list(cases()))
def test_a_coordinator_of_this_release(kind: ServerKind, name: str, probed: ProbedServers) -> None:
    server: Server = probed.get(kind)
    probe = Probe.of(server, name)
    try:
        CHECKS[name].run(probe)
    finally:
        probe.close()
