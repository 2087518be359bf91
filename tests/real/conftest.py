"""The fixtures that start real servers, for every test of this folder."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.fix_sandbox import (  # noqa: F401 (pytest finds fixtures by their names here)
    fresh_name,
    own_cache,
    require_releases,
    sandbox,
    shared_cluster,
    zookeeper_connect,
    zookeeper_server,
)
from zkconsumer.testing.sandbox import Sandbox, zookeeper_release

_numbers = itertools.count()


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
