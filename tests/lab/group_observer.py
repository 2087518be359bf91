"""Watches a group from outside, in a ZooKeeper session of its own, and writes its observations to the history.

It shares no code with the members that it watches.  Of two changes between two reads it sees only the second.  No
change is seen early; under load it is seen late, by at most ``delay_ms``.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.errors import SandboxError
from zkconsumer.testing.checker import (
    Expired,
    HistoryEvent,
    HistoryWriter,
    InitialOffset,
    Joined,
    OffsetCommitted,
    OwnerObserved,
)
from zkconsumer.testing.sandbox import ZooKeeperAdmin, wait_until
from zkconsumer.testing.sandbox.zookeeper_admin import ZnodeSnapshot
from zkconsumer.types import TopicPartition

FIRST_READ_TIMEOUT_MS = 10_000
RETRY_MS = 50
SESSION_TIMEOUT_S = 3
"""Short, because the library waits as long for a server that is just starting and does not answer yet."""

STOP_TIMEOUT_MS = 5_000


class ObservedOwnerNode(NamedTuple):
    """An owner node: thread id, session (0: a persistent node), and czxid."""

    owner: str
    session: int
    czxid: int


class MemberDirectory(Protocol):
    """What the observer needs to know about members."""

    def name_of(self, consumer_id: str) -> str | None:
        """The member's name in the history; None for another client."""

    def is_expected_to_leave(self, consumer_id: str) -> bool:
        """Whether its registration is deleted because the test ended the member."""

    def returns_by_acquiring(self, consumer_id: str) -> bool:
        """Whether a registration of this member, after one that ended, does not yet begin new ownerships.

        A Scala member that was paused continues with what it had fetched until its rebalance stops that, a moment after
        it has registered; a new ownership begins with each partition that it acquires.
        """


class GroupObserver:
    """One group's ids, owners and offsets.  ``topics``: name -> number of partitions."""

    def __init__(
        self, hosts: str, group: str, topics: Mapping[str, int], writer: HistoryWriter, register: MemberDirectory
    ) -> None:
        self._root = f"/consumers/{group}"
        self._writer = writer
        self._register = register
        self._admin = ZooKeeperAdmin(hosts, SESSION_TIMEOUT_S)
        self._changed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._places: dict[str, tuple[str, TopicPartition]] = {}
        self._ids: frozenset[str] = frozenset()
        self._known: set[str] = set()
        self._owners: dict[TopicPartition, ObservedOwnerNode] = {}
        self._offsets: dict[TopicPartition, tuple[int, int]] = {}
        self._is_first_look = True
        self._error: BaseException | None = None
        self.delay_ms = 0
        """The longest time from a write of an owner or offset node to its line in the history."""
        self.ids_changed_ms = self.owners_changed_ms = writer.now_ms()
        self._changed.put(f"{self._root}/ids")
        for topic, partitions in topics.items():
            self.add_topic(topic, partitions)
        self._worker = spawn(f"observer-{group}", self._run, self._died)
        wait_until(lambda: not self._is_first_look, "the observer's first look", FIRST_READ_TIMEOUT_MS)

    def add_topic(self, topic: str, partitions: int) -> None:
        """Watch these partitions, too; a topic that has grown is given again."""
        for number in range(partitions):
            for kind in ("owners", "offsets"):
                path = f"{self._root}/{kind}/{topic}/{number}"
                with self._lock:
                    is_new = path not in self._places
                    self._places[path] = (kind, TopicPartition(topic, number))
                if is_new:
                    self._changed.put(path)

    def close(self) -> None:
        """Stop watching."""
        self._worker.stop(STOP_TIMEOUT_MS)
        self._admin.close()

    # --- observations -------------------------------------------------------------------------------------------

    @property
    def ids(self) -> frozenset[str]:
        """The consumer ids that are registered."""
        self._check()
        return self._ids

    @property
    def owners(self) -> dict[TopicPartition, ObservedOwnerNode]:
        """The owner nodes that there are."""
        self._check()
        with self._lock:
            return dict(self._owners)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The stored offsets."""
        self._check()
        with self._lock:
            return {tp: offset for tp, (offset, _) in self._offsets.items()}

    @property
    def stable_ms(self) -> int:
        """For how long neither ids nor owners have changed."""
        return SYSTEM_CLOCK.wall_ms() - max(self.ids_changed_ms, self.owners_changed_ms)

    def _check(self) -> None:
        if self._error is not None:
            raise SandboxError(f"the observer ended: {self._error!r}") from self._error

    # --- looking ------------------------------------------------------------------------------------------------

    def _run(self, stop: StopSignal) -> None:
        while not stop.is_set():
            paths = self._next()
            try:
                if paths:
                    self._read_changed(paths)
            except SandboxError:
                for path in paths:
                    self._changed.put(path)
                stop.wait(RETRY_MS)

    def _next(self) -> set[str]:
        paths: set[str] = set()
        try:
            paths.add(self._changed.get(timeout=RETRY_MS / 1000))
            while True:
                paths.add(self._changed.get_nowait())
        except queue.Empty:
            return paths

    def _read_changed(self, paths: set[str]) -> None:
        ids_path = f"{self._root}/ids"
        if ids_path in paths:
            self._ids_seen(frozenset(self._admin.read_and_watch_children(ids_path, self._changed.put) or ()))
        for path, node in self._admin.read_and_watch(sorted(paths - {ids_path}), self._changed.put).items():
            kind, tp = self._places[path]
            if kind == "owners":
                self._owner_seen(tp, node)
            else:
                self._offset_seen(tp, node)
        self._is_first_look = False

    def _ids_seen(self, ids: frozenset[str]) -> None:
        now_ms = self._writer.now_ms()
        events: list[HistoryEvent] = []
        for consumer_id in sorted(ids ^ self._ids):
            name = self._register.name_of(consumer_id)
            if name is None:
                continue
            if consumer_id in ids:
                if consumer_id not in self._known or not self._register.returns_by_acquiring(consumer_id):
                    events.append(Joined(now_ms, name))
                self._known.add(consumer_id)
            elif not self._register.is_expected_to_leave(consumer_id):
                events.append(Expired(now_ms, name))
        if ids != self._ids:
            self.ids_changed_ms = now_ms
            self._ids = ids
        self._write(events)

    def _owner_seen(self, tp: TopicPartition, node: ZnodeSnapshot | None) -> None:
        now_ms = self._writer.now_ms()
        seen = None if node is None else ObservedOwnerNode(node.data.decode(errors="replace"), node.session, node.czxid)
        with self._lock:
            if seen == self._owners.get(tp):
                return
            self._time(node, now_ms)
            if seen is None:
                del self._owners[tp]
            else:
                self._owners[tp] = seen
        self.owners_changed_ms = now_ms
        owner, session, zxid = seen if seen is not None else (None, None, None)
        self._write([OwnerObserved(now_ms, tp.topic, tp.partition, owner, session, zxid)])

    def _offset_seen(self, tp: TopicPartition, node: ZnodeSnapshot | None) -> None:
        now_ms = self._writer.now_ms()
        if node is None or not node.data.isdigit():
            return  # Nothing is stored: the original writes -1 for that.
        seen = int(node.data), node.mzxid
        with self._lock:
            if seen == self._offsets.get(tp):
                return
            self._time(node, now_ms)
            self._offsets[tp] = seen
        if self._is_first_look:
            self._write([InitialOffset(now_ms, tp.topic, tp.partition, seen[0])])
        else:
            self._write([OffsetCommitted(now_ms, tp.topic, tp.partition, seen[0], None, seen[1])])

    def _time(self, node: ZnodeSnapshot | None, now_ms: int) -> None:
        if node is not None and not self._is_first_look:
            self.delay_ms = max(self.delay_ms, now_ms - node.written_ms)

    def _write(self, events: list[HistoryEvent]) -> None:
        for event in events:
            self._writer.write(event)

    def _died(self, _: str, error: BaseException) -> None:
        self._error = error
