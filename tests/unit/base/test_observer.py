"""The observer of a test group measures its own delay, since the judge must know it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.lab import group_observer as module
from tests.lab.group_observer import GroupObserver
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.testing.checker import HistoryWriter
from zkconsumer.testing.sandbox import wait_until
from zkconsumer.testing.sandbox.zookeeper_admin import ZnodeSnapshot

OWNER = "/consumers/g/owners/t/0"
OFFSET = "/consumers/g/offsets/t/0"
TIMEOUT_MS = 10_000


class FakeAdmin:
    """Nodes in a dictionary; the newest instance is ``last``."""

    last: FakeAdmin

    def __init__(self, *_: object) -> None:
        self.nodes: dict[str, ZnodeSnapshot] = {}
        self.tell: Callable[[str], None] = lambda _: None
        FakeAdmin.last = self

    def read_and_watch(self, paths: Iterable[str], on_change: Callable[[str], None]) -> dict[str, ZnodeSnapshot | None]:
        self.tell = on_change
        return {path: self.nodes.get(path) for path in paths}

    def read_and_watch_children(self, path: str, on_change: Callable[[str], None]) -> list[str] | None:
        return None

    def close(self) -> None:
        pass


def node(data: bytes, age_ms: int, zxid: int) -> ZnodeSnapshot:
    return ZnodeSnapshot(data, 1, zxid, zxid, SYSTEM_CLOCK.wall_ms() - age_ms)


@pytest.mark.parametrize(("path", "data"), [(OWNER, b"g_m-0"), (OFFSET, b"7")])
def test_the_delay_of_the_observer_is_the_age_of_what_it_sees(
    path: str, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ZooKeeperAdmin", FakeAdmin)
    observer = GroupObserver("unused", "g", {"t": 1}, HistoryWriter(tmp_path / "h.jsonl"), object())  # type: ignore[arg-type]
    try:
        assert observer.delay_ms == 0
        for age_ms, zxid in ((90_000, 5), (40_000, 6)):
            FakeAdmin.last.nodes[path] = node(data, age_ms, zxid)
            FakeAdmin.last.tell(path)
            wait_until(lambda: observer.owners or observer.offsets, "the node is seen", TIMEOUT_MS)
            wait_until(lambda: observer.delay_ms >= 90_000, "the delay is measured", TIMEOUT_MS)
        assert observer.delay_ms < 90_000 + TIMEOUT_MS
    finally:
        observer.close()


def test_what_stood_before_the_first_look_is_not_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Populated(FakeAdmin):
        def __init__(self, *_: object) -> None:
            super().__init__()
            self.nodes = {OWNER: node(b"g_m-0", 90_000, 5), OFFSET: node(b"7", 90_000, 6)}

    monkeypatch.setattr(module, "ZooKeeperAdmin", Populated)
    observer = GroupObserver("unused", "g", {"t": 1}, HistoryWriter(tmp_path / "h.jsonl"), object())  # type: ignore[arg-type]
    try:
        assert observer.owners
        assert observer.offsets
        assert observer.delay_ms == 0
    finally:
        observer.close()
