"""Fixtures that start real servers.  Java and Maven must be there in CI; elsewhere their lack is a clear skip."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.requirement_fixtures import report_lack
from zkconsumer.testing.sandbox import Sandbox, ZooKeeperServer, cache, missing_requirement, zookeeper_release
from zkconsumer.testing.sandbox.class_archive import ENABLED

os.environ.setdefault(ENABLED, "1")
# Also for the programs that a test starts.

_numbers = itertools.count()


def require_releases(*releases: str) -> None:
    """Skips the test if these Kafka releases cannot be had here; in CI it fails instead."""
    reason = missing_requirement(*releases)
    if reason is not None:
        report_lack(reason)


def require_zookeeper(version: str = "3.8") -> None:
    """As ``require_releases``, for a ZooKeeper server."""
    require_releases(zookeeper_release(version))


def librdkafka_settings(address: str, release: str) -> dict[str, Any]:
    """What a client of librdkafka needs for a broker of the release."""
    settings: dict[str, Any] = {"bootstrap.servers": address}
    if release.startswith(("0.8.", "0.9.")):  # they do not answer ApiVersions
        settings |= {"api.version.request": False, "broker.version.fallback": release}
    return settings


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """An empty sandbox for this test alone."""
    require_zookeeper()
    with Sandbox() as made:
        yield made


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeperServer]:
    """One ZooKeeper 3.8 for the whole session; do not stop it.  Take ``zookeeper_connect`` for a place of your own."""
    require_zookeeper()
    with Sandbox() as made:
        yield made.start_zookeeper()


@pytest.fixture
def zookeeper_connect(zookeeper_server: ZooKeeperServer) -> str:
    """host:port/chroot of an empty chroot, made for this test, on the session's ZooKeeper 3.8."""
    chroot = f"/test-{next(_numbers)}"
    zookeeper_server.admin().ensure_path(chroot)
    return zookeeper_server.connect_string(chroot)


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Sandbox]:
    """ZooKeeper 3.8 and one broker 1.1.1 below /kafka for the whole session; do not stop or pause them.

    Take topic and group names that no other test takes: ``fresh_name`` makes them.
    """
    require_releases("1.1.1", zookeeper_release("3.8"))
    with Sandbox() as made:
        made.start_zookeeper()
        made.start_broker("1.1.1", chroot="/kafka")
        yield made


@pytest.fixture
def fresh_name(request: pytest.FixtureRequest) -> str:
    """A topic or group name for this test alone."""
    letters = "".join(char for char in request.node.name if char.isascii() and (char.isalnum() or char in "._-"))
    return f"{letters[:60]}-{next(_numbers)}"


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder for this test alone that shares what was fetched and compiled, but no runs."""
    shared = [cache.folder("kafka"), cache.folder("classes"), cache.folder("class-archives")]
    own = tmp_path / "cache"
    own.mkdir()
    for folder in shared:
        (own / folder.name).symlink_to(folder)
    monkeypatch.setenv("ZKCONSUMER_CACHE", str(own))
    return own


class Clusters:
    """One cluster at a time: asked for another kind, it ends the one before.  Tests of one kind stand together."""

    def __init__(self) -> None:
        self._kind: tuple[str, str] | None = None
        self._stack = ExitStack()
        self._sandbox: Sandbox | None = None

    def get(self, broker: str, zookeeper: str = "3.8") -> Sandbox:
        """A broker of this release below /kafka on a ZooKeeper of this version; skips, or fails in CI, without."""
        require_releases(broker, zookeeper_release(zookeeper))
        if self._sandbox is None or self._kind != (broker, zookeeper):
            self.close()
            self._sandbox = self._stack.enter_context(Sandbox())
            self._sandbox.start_zookeeper(zookeeper)
            self._sandbox.start_broker(broker, chroot="/kafka")
            self._kind = (broker, zookeeper)
        return self._sandbox

    def close(self) -> None:
        """End what runs."""
        self._sandbox = None
        self._stack.close()


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    """Clusters of every kind; stopping and starting their servers again is allowed."""
    made = Clusters()
    yield made
    made.close()


@pytest.fixture
def names() -> tuple[str, str]:
    """A group and a topic for this test alone; short, because every owner in an error text holds them."""
    number = next(_numbers)
    return f"g{number}", f"orders{number}"
