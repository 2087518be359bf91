"""A ZooKeeper without a server: one tree of znodes, several sessions, and injected faults.

    with_server = FakeZooKeeper()                       one server
    store = FakeZkStore(with_server, chroot="/kafka")   one session's store, a ``ZkStore`` as ``KazooStore`` is one

Each request takes two steps, *executed* (the tree changes, watches fire) and *delivered* (the answer reaches its
callback).  Each step has a number, and the lowest number is taken first.  So a run depends only on
the calls that were made:

    delivery="direct"   every step that can be taken is taken before the call returns, on the calling thread
    delivery="pump"     nothing happens before ``pump()``; ``pump(1)`` takes one step
    delivery="thread"   one thread takes the steps (for programs with threads of their own); ``stop()`` ends it

What can be forced, on one store: ``disconnect``/``reconnect``, ``expire``, ``hold``/``release`` of requests, answers
or watch events, ``lose_connection_on_next`` (outcome unknown, done or not done), ``fail_next`` (an error instead),
``set_acl``.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Literal, TypeAlias

from zkconsumer.base.clock import Clock
from zkconsumer.base.threads import StopSignal, WorkerThread, spawn
from zkconsumer.testing.fake_zk_store import (
    FakeZkStore,
    FakeZooKeeperSession,
    HeldTraffic,
    RequestMatcher,
    ZooKeeperFault,
)
from zkconsumer.testing.znode_tree import NO_AUTH_IDS, AuthIds, ZnodeChange, ZnodeTree, parent_of
from zkconsumer.zk.requests import (
    Acl,
    CreateOp,
    DeleteOp,
    MultiFailed,
    MultiOk,
    Op,
    Request,
    SetOp,
    StoreError,
)

__all__ = ["FakeZkStore", "FakeZooKeeper"]

log = logging.getLogger(__name__)

Delivery: TypeAlias = Literal["direct", "pump", "thread"]

STOP_TIMEOUT_MS = 10_000

_FIRST_SESSION_ID = 0x1000_0000_0000_0001
_WALL_MS = 1_416_246_370_000


class FakeZooKeeper:
    """One server.  ``is_up`` False: new connections fail, existing ones stay (use ``disconnect``)."""

    def __init__(
        self,
        *,
        delivery: Delivery = "direct",
        session_timeout_min_ms: int = 2_000,
        session_timeout_max_ms: int = 40_000,
        has_multi_read: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self.is_up = True
        self.has_multi_read = has_multi_read
        self.timeout_range_ms = (session_timeout_min_ms, session_timeout_max_ms)
        self.tree = ZnodeTree()
        self.stores: list[FakeZkStore] = []
        self.on_changes: Callable[[list[ZnodeChange], int], None] | None = None
        """Called with the changes of each accepted transaction, and of each session's end, in order, and the session
        (0: none).  Called with the lock held: it may read, and call nothing here but ``tree``."""
        self.choose: Callable[[Sequence[FakeZkStore]], FakeZkStore] | None = None
        """Chooses the session that takes the next step, of those that have one; None: the one with the oldest step.

        A real server keeps the order of each session only, so it may execute the request of another session between
        two requests of a batch.
        """
        self._delivery = delivery
        self._clock = clock
        self._lock = threading.RLock()
        self._sessions: dict[int, FakeZooKeeperSession] = {}
        self._session_numbers = itertools.count()
        self._faults: list[ZooKeeperFault] = []
        self._seq = 0
        self._is_stepping = False
        self._worker: WorkerThread | None = None
        self._wake = threading.Condition(self._lock)

    # --- changes by a test or a demo, with all permissions and without a session

    def ensure(self, path: str, data: bytes = b"") -> None:
        """Create a persistent node and its parents, or set its data; watches fire as usual."""
        with self._lock:
            parents = [path[:at] for at in range(1, len(path)) if path[at] == "/"]
            ops: list[Op] = [CreateOp(parent) for parent in parents if not self.tree.has_node(parent)]
            is_there = self.tree.has_node(path)
            self._transact([*ops, SetOp(path, data) if is_there else CreateOp(path, data)], 0)
        self._deliver()

    def remove(self, path: str) -> None:
        """Delete a node without children; does nothing if it does not exist."""
        with self._lock:
            self._transact([DeleteOp(path)], 0)
        self._deliver()

    def data(self, path: str) -> bytes | None:
        """The data of a node by absolute path, None if it does not exist."""
        with self._lock:
            return self.tree.data(path)

    def set_acl(self, path: str, acl: tuple[Acl, ...]) -> None:
        """Change the access control list: ``()`` answers NoAuth to everything that ZooKeeper checks."""
        with self._lock:
            self.tree.set_acl(path, acl)

    # --- steps

    def pump(self, steps_max: int | None = None) -> int:
        """Take steps until none is left, or this many; returns how many were taken."""
        taken = 0
        while (steps_max is None or taken < steps_max) and self._step():
            taken += 1
        return taken

    def stop(self) -> None:
        """End the delivery thread, if there is one; the stores stay unchanged."""
        with self._lock:
            worker = self._worker
        if worker is not None:
            worker.stop(STOP_TIMEOUT_MS)

    # --- faults

    def disconnect(self, store: FakeZkStore) -> None:
        """Break the connection: undelivered results are lost, executed or not; watches end."""
        with self._lock:
            store._drop()
        self._deliver()

    def reconnect(self, store: FakeZkStore) -> None:
        """Make a disconnected store connect again: in the same session if it is alive, else in a new one."""
        with self._lock:
            store._connect()
        self._deliver()

    def expire(self, store: FakeZkStore, *, reconnects: bool = True) -> None:
        """End the store's session at the server.

        A connected store loses its connection, and with ``reconnects`` learns of the expiry at once; a
        disconnected one learns of it in ``reconnect``.
        """
        with self._lock:
            if store.session_id is not None:
                self._end_session(store.session_id)
            if store._drop() and reconnects:
                store._connect()
        self._deliver()

    def end_session(self, session_id: int) -> None:
        """Expire a session, as the server does: that of a store that was closed while suspended."""
        with self._lock:
            assert all(store.session_id != session_id for store in self.stores), "a store has it: use expire"
            self._end_session(session_id)
        self._deliver()

    def hold(self, what: HeldTraffic, store: FakeZkStore | None = None) -> None:
        """Stop traffic, of one store or of all, until ``release``.

        requests   not executed yet
        answers    executed, not delivered; what follows them waits too, as on a real connection
        events     watch events only, while answers pass: more disorder than a real server causes
        """
        with self._lock:
            for each in self._these(store):
                each._held.add(what)

    def release(self, what: HeldTraffic, store: FakeZkStore | None = None, *, drop: bool = False) -> None:
        """Resume the traffic that ``hold`` stopped; ``drop`` discards the held watch events."""
        with self._lock:
            for each in self._these(store):
                each._release(what, drop)
        self._deliver()

    def lose_connection_on_next(
        self, matches: RequestMatcher, *, is_done: bool, store: FakeZkStore | None = None, reconnects: bool = True
    ) -> None:
        """Break the connection at the next matching request, after or before it is executed.

        It and the requests after it answer ``ConnectionLost``, then the store is suspended, then (with
        ``reconnects``) connected again in the same session.
        """
        with self._lock:
            self._faults.append(ZooKeeperFault(matches, store, is_done=is_done, reconnects=reconnects))

    def fail_next(
        self, matches: RequestMatcher, error: Callable[[str], StoreError], *, store: FakeZkStore | None = None
    ) -> None:
        """Answer the next matching request with ``error(path)``, and do not execute it."""
        with self._lock:
            self._faults.append(ZooKeeperFault(matches, store, error=error))

    # --- the server

    def _these(self, store: FakeZkStore | None) -> list[FakeZkStore]:
        return self.stores if store is None else [store]

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _wall_ms(self) -> int:
        return _WALL_MS + self._seq if self._clock is None else self._clock.wall_ms()

    def _open_session(self, store: FakeZkStore) -> FakeZooKeeperSession:
        session = FakeZooKeeperSession(_FIRST_SESSION_ID + next(self._session_numbers), store)
        self._sessions[session.session_id] = session
        return session

    def _end_session(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.is_alive = False
            self._fire(self.tree.end_session(session_id), session_id)

    def _transact(self, ops: Sequence[Op], session_id: int, who: AuthIds = NO_AUTH_IDS) -> MultiOk | MultiFailed:
        result, changes = self.tree.apply(ops, session_id, self._wall_ms(), who)
        self._fire(changes, session_id)
        return result

    def _fire(self, changes: list[ZnodeChange], session_id: int) -> None:
        if self.on_changes is not None and changes:
            self.on_changes(changes, session_id)
        sessions = list(self._sessions.values())
        for path, kind in changes:
            for session in sessions:
                was_watched = path in session.data_watches or (kind == "deleted" and path in session.child_watches)
                session.data_watches.discard(path)
                if kind == "deleted":
                    session.child_watches.discard(path)
                if was_watched:
                    session.store._queue_watch_event(path, kind)
            parent = parent_of(path)
            for session in sessions:
                if kind != "data" and parent in session.child_watches:
                    session.child_watches.discard(parent)
                    session.store._queue_watch_event(parent, "children")

    def _fault_for(self, store: FakeZkStore, request: Request) -> ZooKeeperFault | None:
        for fault in self._faults:
            if fault.store in (None, store) and fault.matches(request):
                self._faults.remove(fault)
                return fault
        return None

    # --- steps

    def _deliver(self) -> None:
        """Take the steps that may have become possible."""
        match self._delivery:
            case "direct":
                self.pump()
            case "thread":
                with self._lock:
                    if self._worker is None:
                        self._worker = spawn("fake-zookeeper", self._run, _report_death, wake=self._notify)
                self._notify()
            case "pump":
                pass

    def _run(self, stop: StopSignal) -> None:
        while not stop.is_set():
            try:
                while self._step():
                    pass
            except Exception:  # a callback's: report it, and continue with the others
                log.exception("fake-zookeeper-callback-failed")
            with self._wake:
                self._wake.wait_for(lambda: stop.is_set() or self._runnable())

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify_all()

    def _runnable(self) -> list[tuple[int, FakeZkStore]]:
        """The sessions that have a step, each with its number."""
        return [(seq, store) for store in self.stores if (seq := store._next_step()) is not None]

    def _step(self) -> bool:
        """Take the oldest step, or that of ``choose``.  One at a time, and none inside the callback of another."""
        with self._lock:
            runnable = [] if self._is_stepping else self._runnable()
            if not runnable:
                return False
            if self.choose is None:
                _, store = min(runnable, key=itemgetter(0))
            else:
                store = self.choose([store for _, store in runnable])
            self._is_stepping = True
            try:
                tell = store._take_step()
            except BaseException:
                self._is_stepping = False
                raise
        try:
            if tell is not None:
                tell()
        finally:
            self._is_stepping = False
        return True


def _report_death(name: str, error: BaseException) -> None:
    log.critical("thread-died name=%s", name, exc_info=error)
