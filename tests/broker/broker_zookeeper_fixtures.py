"""A ZooKeeper in memory for a development broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper

Store: TypeAlias = Callable[[str, int], FakeZkStore]


@pytest.fixture
def zookeeper() -> Iterator[FakeZooKeeper]:
    made = FakeZooKeeper(delivery="thread")
    yield made
    made.stop()


@pytest.fixture
def store(zookeeper: FakeZooKeeper) -> Store:
    return lambda connect, timeout_ms: FakeZkStore(zookeeper, "", timeout_ms, None)
