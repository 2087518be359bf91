"""The probe of a group coordinator against real brokers of every age, and against ours that emulate them.

Each result of the probe for a release was first observed on the real broker; ours must give it too, check by check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.coordinator_group_fixtures import ProbedServers, ServerKind
from tests.interop.probe import CHECKS, Check, Probe, Server, checks_of

RELEASES = ("0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.0.1", "2.8.2", "3.9.1", "4.1.1")
REAL_ALWAYS = ("3.9.1", "1.1.1")
OURS_ALWAYS = ("3.9.1", "0.9.0.1")
"""In every run, the first with the checks that wait for time-outs too."""

KINDS = [
    *(ServerKind(release, is_real=True) for release in RELEASES),
    ServerKind("3.9.1", is_real=True, is_kraft=True),
    *(ServerKind(release, is_real=False) for release in RELEASES),
]

OURS_DIFFERS = {
    (
        "0.9.0.1",
        "no_metadata_is_empty_metadata",
    ): "0.9 gives null back; to ours null is empty",
}
"""Where ours is not like the release, and why that stays."""

pytestmark = pytest.mark.timeout(180)


def marks_of(kind: ServerKind, check: Check) -> list[pytest.MarkDecorator]:
    """Which part of the suite asks this server this."""
    marks = [pytest.mark.real] if kind.is_real else []
    always = REAL_ALWAYS if kind.is_real else OURS_ALWAYS
    is_daily = not kind.is_kraft and kind.release in always
    if not is_daily or (check.is_slow and kind.release != always[0]):
        marks.append(pytest.mark.nightly)
    if not kind.is_real and (kind.release, check.name) in OURS_DIFFERS:
        marks.append(pytest.mark.xfail(reason=OURS_DIFFERS[kind.release, check.name], strict=True))
    return marks


def cases() -> Iterator[object]:
    """One for each server and each check of its release, ordered by server."""
    for kind in KINDS:
        for check in checks_of(kind.release):
            yield pytest.param(kind, check.name, marks=marks_of(kind, check), id=f"{kind}-{check.name}")


@pytest.fixture(scope="module")
def probed() -> Iterator[ProbedServers]:
    servers = ProbedServers()
    yield servers
    servers.close()


def run_check(server: Server, name: str) -> None:
    """One check in a group of its own."""
    probe = Probe.of(server, name)
    try:
        CHECKS[name].run(probe)
    finally:
        probe.close()


class Waiting:
    """The slow checks of one server, several at a time: they mostly wait."""

    AT_ONCE = 4

    def __init__(self, server: Server, names: list[str]) -> None:
        self.server = server
        self._pool = ThreadPoolExecutor(self.AT_ONCE)
        self._checks = {name: self._pool.submit(run_check, server, name) for name in names}

    def result(self, name: str) -> None:
        """What the check raises is raised here."""
        self._checks[name].result()

    def close(self) -> None:
        """What has not begun is left out."""
        self._pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def waiting(request: pytest.FixtureRequest, probed: ProbedServers) -> Iterator[Callable[[ServerKind], Waiting]]:
    """Begins the slow checks of this run when the first of them is asked for."""
    begun: dict[ServerKind, Waiting] = {}
    chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]

    def of(kind: ServerKind) -> Waiting:
        if kind not in begun:
            names = [params["name"] for params in chosen if params.get("kind") == kind]
            begun[kind] = Waiting(probed.get(kind), [name for name in names if CHECKS[name].is_slow])
        return begun[kind]

    yield of
    for each in begun.values():
        each.close()


@pytest.mark.parametrize(("kind", "name"), list(cases()))
def test_a_coordinator_of_this_release(
    kind: ServerKind, name: str, probed: ProbedServers, waiting: Callable[[ServerKind], Waiting]
) -> None:
    if CHECKS[name].is_slow and not kind.is_real:
        waiting(kind).result(name)
    else:
        run_check(probed.get(kind), name)
