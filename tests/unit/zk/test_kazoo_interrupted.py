"""A signal handler that raises while a ZooKeeper connection is being made leaves nothing behind."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from zkconsumer.base import threads
from zkconsumer.testing.sandbox import wait_until
from zkconsumer.zk import kazoo_connection
from zkconsumer.zk.kazoo_store import KazooStore

TIMEOUT_MS = 20_000


class Interrupted(BaseException):
    """What the signal handler raises."""


def test_a_start_that_is_interrupted_after_its_thread_began_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def spawn(*what: Any, **how: Any) -> threads.WorkerThread:
        threads.spawn(*what, **how)
        raise Interrupted

    before = threads.live_threads()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        store = KazooStore(f"127.0.0.1:{mute.getsockname()[1]}", TIMEOUT_MS)
        monkeypatch.setattr(kazoo_connection, "spawn", spawn)
        with pytest.raises(Interrupted):
            store.start(TIMEOUT_MS)
        mute.settimeout(TIMEOUT_MS / 1000)
        waiting, _ = mute.accept()
        with waiting:
            store.close(TIMEOUT_MS)
    wait_until(lambda: threads.live_threads() == before, "the thread has ended", TIMEOUT_MS)
