"""Servers and members for the tests of modern groups: real brokers, ours, and what they are probed with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from bridge.testing.embedded_broker import EmbeddedBroker
from tests.interop.probe.probed_broker import PARTITIONS, SETTINGS, Server, wait_coordinating
from tests.interop.probe.registry import numbers
from tests.sandbox_fixtures import require_releases
from zkconsumer.kafka import version_negotiation
from zkconsumer.testing.sandbox import Sandbox, zookeeper_release
from zkconsumer.testing.sandbox.waiting import HOST

TOPIC = "probed"


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A broker to be probed: a real one, or ours that emulates the release."""

    release: str
    is_real: bool
    is_kraft: bool = False

    def __str__(self) -> str:
        return f"{'real' if self.is_real else 'ours'}-{self.release}{'-kraft' if self.is_kraft else ''}"


def needs_kraft(kind: ServerKind) -> bool:
    """Whether there is no other way to run it."""
    return kind.is_kraft or numbers(kind.release) >= (4,)


class ProbedServers:
    """One server at a time: asked for another kind, it ends the one before.  Tests of one kind stand together."""

    def __init__(self) -> None:
        self._kind: ServerKind | None = None
        self._stack = ExitStack()
        self._server: Server | None = None

    def get(self, kind: ServerKind) -> Server:
        """A server of this kind, with the topic that the probe wants."""
        if self._server is None or self._kind != kind:
            self.close()
            self._server = self._start_real(kind) if kind.is_real else self._start_ours(kind)
            self._kind = kind
        return self._server

    def close(self) -> None:
        """End what runs."""
        self._server = None
        self._stack.close()

    def _start_ours(self, kind: ServerKind) -> Server:
        # The original's own limits must be left to be measured, so nothing of ``QUICK`` stays.
        broker = self._stack.enter_context(EmbeddedBroker(release=kind.release, properties=SETTINGS))
        broker.create_topic(TOPIC, PARTITIONS)
        [address] = broker.addresses()
        # Without a ZooKeeper there is nowhere to put what OffsetCommit v0 brings, as with KRaft.
        server = Server(kind.release, address.host, address.port, TOPIC, is_kraft=True, is_real=False)
        wait_coordinating(server)
        return server

    def _start_real(self, kind: ServerKind) -> Server:
        is_kraft = needs_kraft(kind)
        require_releases(kind.release, *([] if is_kraft else [zookeeper_release("3.8")]))
        sandbox = self._stack.enter_context(Sandbox())
        settings = dict(SETTINGS)
        if is_kraft:
            broker = sandbox.start_kraft_broker(kind.release, settings=settings)
        else:
            sandbox.start_zookeeper()
            broker = sandbox.start_broker(kind.release, chroot="/kafka", settings=settings)
        sandbox.create_topic(TOPIC, PARTITIONS)
        server = Server(kind.release, HOST, broker.port, TOPIC, is_kraft, is_real=True)
        wait_coordinating(server)
        return server


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection to a broker of 0.9 waits for an answer that never comes: let it not be half a second.

    A broker that answers later than this is recognised all the same.
    """
    monkeypatch.setattr(version_negotiation, "NO_RESPONSE_MS", 25)


class ModernClusters:
    """One broker at a time, with time-outs as brokers ship them, but for the first delay."""

    def __init__(self) -> None:
        self._release: str | None = None
        self._stack = ExitStack()
        self._sandbox: Sandbox | None = None

    def get(self, release: str) -> Sandbox:
        """A sandbox with one broker of this release; it may be killed and started again."""
        is_kraft = numbers(release) >= (4,)
        require_releases(release, *([] if is_kraft else [zookeeper_release("3.8")]))
        if self._sandbox is None or self._release != release:
            self.close()
            sandbox = self._stack.enter_context(Sandbox())
            if is_kraft:
                sandbox.start_kraft_broker(release)
            else:
                sandbox.start_zookeeper()
                sandbox.start_broker(release, chroot="/kafka")
            self._sandbox, self._release = sandbox, release
        return self._sandbox

    def close(self) -> None:
        """End what runs."""
        self._sandbox = None
        self._stack.close()


@pytest.fixture(scope="session")
def modern_clusters() -> Iterator[ModernClusters]:
    """Brokers of every age, one at a time; killing and starting them again is allowed."""
    made = ModernClusters()
    yield made
    made.close()
