"""Worlds in memory, and connectors on them; after each test no thread of ours may be left."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import live_threads
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import ConsumerTimeoutException
from zkconsumer.kafka.api_versions_deny_list import API_VERSIONS_DENY_LIST
from zkconsumer.streams import KafkaStream, MessageAndMetadata

DEADLINE_MS = 30_000
"""For what must happen: only its absence takes so long, so the bound is far above what a busy machine needs."""

LOOK_MS = 2

PATIENT = {"auto_offset_reset": "smallest", "consumer_timeout_ms": DEADLINE_MS, "fetch_wait_max_ms": 50}
"""What connectors of tests have unless told otherwise: a record that does not come is an error, and no hanging test."""

Message = MessageAndMetadata[Any, Any]
Stream = KafkaStream[Any, Any]


class MakeWorld(Protocol):
    """``FakeEnvironment``, taken down at the end of the test."""

    def __call__(self, brokers: int = 1, *, release: str = ..., has_multi_read: bool = True) -> FakeEnvironment: ...


class MakeConnector(Protocol):
    """A connector with these settings on the world of the test, or on the one that is given."""

    def __call__(self, *, on: FakeEnvironment | None = None, **settings: Any) -> ZookeeperConsumerConnector: ...


def wait_until(holds: Callable[[], object], what: str, timeout_ms: int = DEADLINE_MS) -> None:
    """Look until it holds; an error that says what did not happen, otherwise."""
    pause = threading.Event()
    deadline_ms = SYSTEM_CLOCK.now_ms() + timeout_ms
    while not holds():
        assert SYSTEM_CLOCK.now_ms() < deadline_ms, f"not within {timeout_ms} ms: {what}"
        pause.wait(LOOK_MS / 1000)


@pytest.fixture(autouse=True)
def no_broker_is_known() -> None:
    """Brokers of another test may have had the same address."""
    API_VERSIONS_DENY_LIST.clear()


def our_threads() -> list[str]:
    """The names of the package's threads that run, those of the fakes apart."""
    return [name for name in live_threads() if not name.startswith("fake-")]


def take(stream: Stream, count: int) -> list[Message]:
    """The next so many records."""
    return [next(stream.iterator()) for _ in range(count)]


def take_all(stream: Stream) -> list[Message]:
    """Everything until ``consumer.timeout.ms`` passes without a record."""
    records: list[Message] = []
    with contextlib.suppress(ConsumerTimeoutException):
        while True:
            records.append(next(stream.iterator()))
    return records


def run_in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start it in a thread of its own; what comes back waits for its result, or raises its error."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 (given to the test, below)
            errors.append(error)

    thread = threading.Thread(target=run, name="test", daemon=True)
    thread.start()

    def join(timeout_ms: int = DEADLINE_MS) -> Any:
        thread.join(timeout_ms / 1000)
        assert not thread.is_alive(), f"it still runs after {timeout_ms} ms"
        if errors:
            raise errors[0]
        return results[0]

    return join


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    """At the end, no thread of the package runs."""
    assert live_threads() == [], "an earlier test left threads"
    yield
    assert live_threads() == []


@pytest.fixture
def make_world(no_thread_is_left: None) -> Iterator[MakeWorld]:
    """Makes worlds; at the end all their connectors are closed, and no thread is left."""
    made: list[FakeEnvironment] = []

    def make(brokers: int = 1, **how: Any) -> FakeEnvironment:
        made.append(FakeEnvironment(brokers, **how))
        return made[-1]

    yield make
    for world in made:
        world.stop()


@pytest.fixture
def world(make_world: MakeWorld) -> FakeEnvironment:
    """One ensemble and two brokers."""
    return make_world(brokers=2)


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> MakeConnector:
    """Makes connectors with ``PATIENT`` settings."""

    def make(*, on: FakeEnvironment | None = None, **settings: Any) -> ZookeeperConsumerConnector:
        place: FakeEnvironment = on or request.getfixturevalue("world")
        return place.connector(**(PATIENT | settings))

    return make
