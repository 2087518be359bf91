"""A ZooKeeper without a server: one tree of znodes, several sessions, and a hand on everything that can go wrong.

    with_server = FakeZooKeeper()                       one server
    store = FakeZkStore(with_server, chroot="/kafka")   one session's store, a ``ZkStore`` as ``KazooStore`` is one

Each request goes two steps, *executed* (the tree changes, watches fire) and *delivered* (the answer reaches its
callback); each step has a number, and the lowest number in the world goes first.  So a run depends on nothing but
the calls that were made:

    delivery="direct"   every step that can be taken is taken before the call returns, on the calling thread
    delivery="pump"     nothing happens before ``pump()``; ``pump(1)`` takes one step
    delivery="thread"   one thread takes the steps (for programs with threads of their own); ``stop()`` ends it

What can be forced, on one store: ``disconnect``/``reconnect``, ``expire``, ``hold``/``release`` of requests, answers
or watch events, ``lose_next`` (outcome unknown, done or not done), ``refuse_next`` (an error instead), ``set_acl``.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from zkconsumer.base.clock import Clock
from zkconsumer.errors import ChrootMissing, ZkTimeoutException
from zkconsumer.testing.znode_tree import Change, ZnodeTree, parent_of
from zkconsumer.zk.requests import (
    SERVER_PACKET_BYTES_MAX,
    Acl,
    Children,
    ChildrenOf,
    ConnectionLost,
    Create,
    CreateOp,
    Delete,
    DeleteOp,
    Exists,
    Get,
    GetMany,
    Multi,
    MultiFailed,
    MultiOk,
    Node,
    Op,
    Request,
    Result,
    SessionConnected,
    SessionGone,
    SessionLost,
    SessionSuspended,
    SetData,
    SetOp,
    StoreError,
    StoreEvent,
    WatchFired,
    WatchKind,
    check_path,
    paths_of,
    same_error,
)

log = logging.getLogger(__name__)

Delivery: TypeAlias = Literal["direct", "pump", "thread"]
Held: TypeAlias = Literal["requests", "answers", "events"]
Matches: TypeAlias = Callable[[Request], bool]

_Read = TypeVar("_Read", Node | StoreError, ChildrenOf | StoreError, StoreError)

_FIRST_SESSION_ID = 0x1000_0000_0000_0001
_WALL_MS = 1_416_246_370_000


@dataclass(slots=True, eq=False)
class _Batch:
    """One ``submit``: filled answer by answer, handed over when the last has come."""

    session_id: int | None
    results: list[Result]
    missing: int
    done: Callable[[list[Result]], None]


@dataclass(slots=True)
class _Asked:
    """A request on its way to the server; ``request`` None stands for a batch of none."""

    seq: int
    batch: _Batch
    index: int
    request: Request | None


@dataclass(slots=True)
class _Answer:
    """A result on its way to its batch.  ``is_local``: made by the client's own library, no hold stops it."""

    seq: int
    asked: _Asked
    result: Result
    is_local: bool = False


@dataclass(slots=True)
class _Event:
    """A session or watch event on its way to the listener."""

    seq: int
    event: StoreEvent


@dataclass(slots=True, eq=False)
class _Session:
    """What the server knows of a session.  Watches belong to its connection and end with that."""

    session_id: int
    store: FakeZkStore
    is_alive: bool = True
    data_watches: set[str] = field(default_factory=set)
    child_watches: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Fault:
    """What happens to the next request that matches."""

    matches: Matches
    store: FakeZkStore | None
    error: Callable[[str], StoreError] | None = None
    is_done: bool = False
    reconnects: bool = True


class FakeZooKeeper:
    """One server.  ``is_up`` False: nobody can connect, what is connected stays so (use ``disconnect``)."""

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
        self._delivery = delivery
        self._clock = clock
        self._lock = threading.RLock()
        self._sessions: dict[int, _Session] = {}
        self._faults: list[_Fault] = []
        self._seq = 0
        self._is_stepping = False
        self._thread: threading.Thread | None = None
        self._wake = threading.Condition(self._lock)
        self._is_stopping = False

    # --- what a test or a demo does to the znodes, as somebody with every right and no session

    def ensure(self, path: str, data: bytes = b"") -> None:
        """Make a persistent node and its parents, or give it this data; watches fire as for anybody."""
        with self._lock:
            parents = [path[:at] for at in range(1, len(path)) if path[at] == "/"]
            ops: list[Op] = [CreateOp(parent) for parent in parents if not self.tree.holds(parent)]
            is_there = self.tree.holds(path)
            self._transact([*ops, SetOp(path, data) if is_there else CreateOp(path, data)], 0)
        self._go()

    def remove(self, path: str) -> None:
        """Delete a node without children; nothing happens when it is missing."""
        with self._lock:
            self._transact([DeleteOp(path)], 0)
        self._go()

    def data(self, path: str) -> bytes | None:
        """The data of a node by absolute path, None when it is missing."""
        with self._lock:
            return self.tree.dump().get(path)

    def set_acl(self, path: str, acl: tuple[Acl, ...]) -> None:
        """Change who may do what: ``()`` answers NoAuth to everything that ZooKeeper checks."""
        with self._lock:
            self.tree.set_acl(path, acl)

    # --- time passes

    def pump(self, steps_max: int | None = None) -> int:
        """Take steps until none can be taken, or this many; gives how many were taken."""
        taken = 0
        while (steps_max is None or taken < steps_max) and self._step():
            taken += 1
        return taken

    def stop(self) -> None:
        """End the delivery thread, if there is one; the stores stay as they are."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(10)

    # --- faults

    def disconnect(self, store: FakeZkStore) -> None:
        """Break the connection: what was sent and not delivered is lost, executed or not; watches are gone."""
        with self._lock:
            store._drop()
        self._go()

    def reconnect(self, store: FakeZkStore) -> None:
        """Let a disconnected store connect again: the same session if it is alive, else a new one."""
        with self._lock:
            store._connect()
        self._go()

    def expire(self, store: FakeZkStore, *, reconnects: bool = True) -> None:
        """End the store's session at the server.

        A connected store loses its connection by that, and with ``reconnects`` learns the truth at once; a
        disconnected one learns it from ``reconnect``.
        """
        with self._lock:
            if store.session_id is not None:
                self._end_session(store.session_id)
            if store._drop() and reconnects:
                store._connect()
        self._go()

    def end_session(self, session_id: int) -> None:
        """What the server does when a session times out: that of a store that was closed while suspended."""
        with self._lock:
            assert self._sessions[session_id].store.session_id != session_id, "a store has it: use expire"
            self._end_session(session_id)
        self._go()

    def hold(self, what: Held, store: FakeZkStore | None = None) -> None:
        """Stop something on its way, for one store or for all there are, until ``release``.

        requests   not executed yet
        answers    executed, not delivered; what comes behind them waits too, as on a real connection
        events     watch events only, while answers pass: more disorder than a real server makes
        """
        with self._lock:
            for each in self._these(store):
                each._held.add(what)

    def release(self, what: Held, store: FakeZkStore | None = None, *, drop: bool = False) -> None:
        """Let go what ``hold`` stopped; ``drop`` forgets the watch events that were held."""
        with self._lock:
            for each in self._these(store):
                each._release(what, drop)
        self._go()

    def lose_next(
        self, matches: Matches, *, is_done: bool, store: FakeZkStore | None = None, reconnects: bool = True
    ) -> None:
        """Break the connection at the next request that matches, after or before it was executed.

        It and what was sent behind it answer ``ConnectionLost``, then the store is suspended, then (with
        ``reconnects``) connected again in the same session.
        """
        with self._lock:
            self._faults.append(_Fault(matches, store, is_done=is_done, reconnects=reconnects))

    def refuse_next(
        self, matches: Matches, error: Callable[[str], StoreError], *, store: FakeZkStore | None = None
    ) -> None:
        """Answer the next request that matches with ``error(path)``, and do not execute it."""
        with self._lock:
            self._faults.append(_Fault(matches, store, error=error))

    # --- the server

    def _these(self, store: FakeZkStore | None) -> list[FakeZkStore]:
        return self.stores if store is None else [store]

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _wall_ms(self) -> int:
        return _WALL_MS + self._seq if self._clock is None else self._clock.wall_ms()

    def _open_session(self, store: FakeZkStore) -> _Session:
        session = _Session(_FIRST_SESSION_ID + len(self._sessions), store)
        self._sessions[session.session_id] = session
        return session

    def _end_session(self, session_id: int) -> None:
        session = self._sessions[session_id]
        if session.is_alive:
            session.is_alive = False
            session.data_watches.clear()
            session.child_watches.clear()
            self._fire(self.tree.end_session(session_id))

    def _transact(self, ops: Sequence[Op], session_id: int) -> MultiOk | MultiFailed:
        result, changes = self.tree.apply(ops, session_id, self._wall_ms())
        self._fire(changes)
        return result

    def _fire(self, changes: list[Change]) -> None:
        sessions = [session for session in self._sessions.values() if session.is_alive]
        for path, kind in changes:
            for session in sessions:
                was_watched = path in session.data_watches or (kind == "deleted" and path in session.child_watches)
                session.data_watches.discard(path)
                if kind == "deleted":
                    session.child_watches.discard(path)
                if was_watched:
                    session.store._notice(path, kind)
            parent = parent_of(path)
            for session in sessions:
                if kind != "data" and parent in session.child_watches:
                    session.child_watches.discard(parent)
                    session.store._notice(parent, "children")

    def _fault_for(self, store: FakeZkStore, request: Request) -> _Fault | None:
        for fault in self._faults:
            if fault.store in (None, store) and fault.matches(request):
                self._faults.remove(fault)
                return fault
        return None

    # --- steps

    def _go(self) -> None:
        """Something may have become possible."""
        match self._delivery:
            case "direct":
                self.pump()
            case "thread":
                with self._wake:
                    if self._thread is None and not self._is_stopping:
                        self._thread = threading.Thread(target=self._run, name="fake-zookeeper", daemon=True)
                        self._thread.start()
                    self._wake.notify_all()
            case "pump":
                pass

    def _run(self) -> None:
        while True:
            try:
                while self._step():
                    pass
            except Exception:  # a callback's: report it, and go on delivering to the others
                log.exception("event=fake_zookeeper_callback_failed")
            with self._wake:
                self._wake.wait_for(lambda: self._is_stopping or self._runnable() is not None)
                if self._is_stopping:
                    return

    def _runnable(self) -> FakeZkStore | None:
        ready = [(store._next_step(), number) for number, store in enumerate(self.stores)]
        first = min(((seq, number) for seq, number in ready if seq is not None), default=None)
        return None if first is None else self.stores[first[1]]

    def _step(self) -> bool:
        """Take the step with the lowest number.  One at a time, and none inside the callback of another."""
        with self._lock:
            store = None if self._is_stepping else self._runnable()
            if store is None:
                return False
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


class FakeZkStore:
    """One client of a ``FakeZooKeeper``: a ``ZkStore``, to be made, listened to and started like the real one."""

    def __init__(self, server: FakeZooKeeper, chroot: str = "", session_timeout_ms: int = 6_000) -> None:
        self.server = server
        self.packets_sent = 0
        self._chroot = chroot.rstrip("/")
        least, most = server.timeout_range_ms
        self._timeout_ms = max(least, min(most, session_timeout_ms))
        self._state: Literal["new", "connected", "suspended", "closed"] = "new"
        self._session: _Session | None = None
        self._on_event: Callable[[StoreEvent], None] | None = None
        self._inbox: deque[_Asked] = deque()
        self._outbox: deque[_Answer | _Event] = deque()
        self._late: list[_Event] = []
        self._held: set[Held] = set()
        self._confirmed = False
        server.stores.append(self)

    # --- ZkStore

    @property
    def session_id(self) -> int | None:
        return self._session.session_id if self._session else None

    @property
    def negotiated_timeout_ms(self) -> int:
        return self._timeout_ms if self._session else 0

    def listen(self, on_event: Callable[[StoreEvent], None]) -> None:
        self._on_event = on_event

    def start(self, timeout_ms: int) -> None:
        server = self.server
        with server._lock:
            if not server.is_up:
                raise ZkTimeoutException(f"no session with the fake ZooKeeper within {timeout_ms} ms")
            if self._chroot and not server.tree.holds(self._chroot):
                raise ChrootMissing(f"the chroot {self._chroot} does not exist")
            self._connect()
        server._go()

    def submit(self, session_id: int | None, requests: Sequence[Request], done: Callable[[list[Result]], None]) -> None:
        for request in requests:
            for path in paths_of(request):
                check_path(path)
        server = self.server
        with server._lock:
            batch = _Batch(session_id, [None] * len(requests), max(1, len(requests)), done)
            asked = [_Asked(server._next_seq(), batch, index, request) for index, request in enumerate(requests)]
            asked = asked or [_Asked(server._next_seq(), batch, 0, None)]
            if self._state == "closed" or (session_id is not None and session_id != self.session_id):
                self._settle(asked, SessionGone)
            else:
                self._inbox.extend(asked)
        server._go()

    def close(self, timeout_ms: int) -> bool:
        server = self.server
        with server._wake:
            if self._state != "closed":
                self._confirmed = self._state == "connected"
                self._end()
        server._go()
        if server._delivery == "thread":
            with server._wake:
                server._wake.wait_for(lambda: not self._outbox, timeout_ms / 1000)
        return self._confirmed

    # --- what the server and the faults do to a store; all of it under the server's lock

    def _connect(self) -> None:
        if self._state in ("connected", "closed") or not self.server.is_up:
            return
        self._state = "connected"
        is_new = self._session is None or not self._session.is_alive
        if is_new:
            if self._session is not None:
                self._tell(SessionLost(self._session.session_id))
                gone = [asked for asked in self._inbox if asked.batch.session_id == self._session.session_id]
                self._inbox = deque(asked for asked in self._inbox if asked.batch.session_id is None)
                self._settle(gone, SessionGone)
            self._session = self.server._open_session(self)
        assert self._session is not None
        self._tell(SessionConnected(self._session.session_id, self._timeout_ms, is_new))

    def _drop(self) -> bool:
        """Lose the connection and all that was on it; False when there is none."""
        if self._state != "connected" or self._session is None:
            return False
        self._state = "suspended"
        self._session.data_watches.clear()
        self._session.child_watches.clear()
        self._late.clear()
        self._outbox = deque(item for item in self._outbox if not _is_watch_event(item))
        for item in self._outbox:
            if isinstance(item, _Answer) and not item.is_local and item.asked.request is not None:
                item.result, item.is_local = same_error(item.asked.request, ConnectionLost), True
        self._settle(self._inbox, ConnectionLost)
        self._inbox.clear()
        self._tell(SessionSuspended())
        return True

    def _end(self) -> None:
        """Close: what was delivered already stands, what is under way is answered or gone."""
        if self._confirmed and self._session is not None:
            self.server._end_session(self._session.session_id)
        self._state, self._session, self._on_event = "closed", None, None
        answers = [item for item in self._outbox if isinstance(item, _Answer)]
        held = [item.asked for item in answers if "answers" in self._held and not item.is_local]
        self._outbox = deque(item for item in answers if "answers" not in self._held or item.is_local)
        self._late.clear()
        self._settle([*held, *self._inbox], SessionGone)
        self._inbox.clear()

    def _release(self, what: Held, drop: bool) -> None:
        self._held.discard(what)
        if what == "events":
            late = [] if drop else self._late
            self._outbox.extend(_Event(self.server._next_seq(), item.event) for item in late)
            self._late = []

    def _notice(self, path: str, kind: WatchKind) -> None:
        item = _Event(self.server._next_seq(), WatchFired(self._below(path), kind))
        if "events" in self._held:
            self._late.append(item)
        else:
            self._outbox.append(item)

    def _tell(self, event: StoreEvent) -> None:
        self._outbox.append(_Event(self.server._next_seq(), event))

    def _settle(self, asked: Iterable[_Asked], kind: type[ConnectionLost] | type[SessionGone]) -> None:
        for each in asked:
            result = None if each.request is None else same_error(each.request, kind)
            self._outbox.append(_Answer(self.server._next_seq(), each, result, is_local=True))

    # --- steps

    def _next_step(self) -> int | None:
        """The number of the step that comes next here, None when there is none or it is held."""
        return min([*self._next_execution(), *self._next_delivery()], default=None)

    def _take_step(self) -> Callable[[], None] | None:
        """Execute or deliver; gives the callback to be called, outside the lock."""
        if self._next_step() in self._next_execution():
            self._execute(self._inbox.popleft())
            return None
        item = self._outbox.popleft()
        self.server._wake.notify_all()
        if isinstance(item, _Event):
            return partial(self._on_event, item.event) if self._on_event else None
        batch = item.asked.batch
        if item.asked.request is not None:
            batch.results[item.asked.index] = item.result
        batch.missing -= 1
        return partial(batch.done, batch.results) if batch.missing == 0 else None

    def _next_execution(self) -> list[int]:
        is_held = self._state != "connected" or "requests" in self._held
        return [] if is_held or not self._inbox else [self._inbox[0].seq]

    def _next_delivery(self) -> list[int]:
        if not self._outbox:
            return []
        head = self._outbox[0]
        is_held = "answers" in self._held and isinstance(head, _Answer) and not head.is_local
        return [] if is_held else [head.seq]

    def _execute(self, asked: _Asked) -> None:
        request = asked.request
        if request is None:
            self._outbox.append(_Answer(self.server._next_seq(), asked, None))
            return
        fault = self.server._fault_for(self, request)
        if fault is None and _packet_bytes(request) > SERVER_PACKET_BYTES_MAX:
            fault = _Fault(lambda _: True, self)
        if fault is not None and fault.error is not None:
            errors: list[Node | StoreError] = [fault.error(path) for path in paths_of(request)]
            result: Result = errors if isinstance(request, GetMany) else errors[0]
            self._outbox.append(_Answer(self.server._next_seq(), asked, result))
            return
        if fault is None or fault.is_done:
            self.packets_sent += self._packets(request)
            self._outbox.append(_Answer(self.server._next_seq(), asked, self._answer(request)))
        else:
            self._inbox.appendleft(asked)
        if fault is not None:
            self._drop()
            if fault.reconnects:
                self._connect()

    def _packets(self, request: Request) -> int:
        return len(request.paths) if isinstance(request, GetMany) and not self.server.has_multi_read else 1

    def _answer(self, request: Request) -> Result:
        assert self._session is not None, "only a connected store executes"
        session, tree = self._session, self.server.tree
        match request:
            case Get(path, watch):
                node = tree.get(self._above(path))
                if watch and isinstance(node, Node):
                    session.data_watches.add(self._above(path))
                return self._relative(node)
            case Exists(path, watch):
                if watch:
                    session.data_watches.add(self._above(path))
                stat = tree.exists(self._above(path))
                return self._relative(stat) if isinstance(stat, StoreError) else stat
            case Children(path, watch):
                children = tree.children(self._above(path))
                if watch and isinstance(children, ChildrenOf):
                    session.child_watches.add(self._above(path))
                return self._relative(children)
            case GetMany(paths):
                return [self._relative(tree.get(self._above(path))) for path in paths]
            case Multi(ops):
                return self._transact(ops)
            case Create(path, data, ephemeral, acl):
                return self._only(self._transact((CreateOp(path, data, ephemeral, acl),)))
            case SetData(path, data, version):
                return self._only(self._transact((SetOp(path, data, version),)))
            case Delete(path, version):
                return self._only(self._transact((DeleteOp(path, version),)))

    def _transact(self, ops: Sequence[Op]) -> MultiOk | StoreError:
        assert self._session is not None, "only a connected store executes"
        absolute = [replace(op, path=self._above(op.path)) for op in ops]
        result = self.server._transact(absolute, self._session.session_id)
        if isinstance(result, MultiFailed):
            return MultiFailed(ops[result.failed].path, result.failed, self._relative(result.error))
        return MultiOk(tuple(self._below(each) if isinstance(each, str) else each for each in result.results))

    @staticmethod
    def _only(result: MultiOk | StoreError) -> Result:
        if isinstance(result, MultiFailed):
            return result.error
        return result.results[0] if isinstance(result, MultiOk) else result

    def _relative(self, result: _Read) -> _Read:
        if isinstance(result, StoreError):
            return replace(result, path=self._below(result.path))
        return result

    def _above(self, path: str) -> str:
        return (self._chroot + path) if path != "/" else (self._chroot or "/")

    def _below(self, path: str) -> str:
        return path[len(self._chroot) :] or "/"


def _is_watch_event(item: _Answer | _Event) -> bool:
    return isinstance(item, _Event) and isinstance(item.event, WatchFired)


def _packet_bytes(request: Request) -> int:
    """About the length of a packet: near enough to say which one a server refuses."""
    data = [each.data for each in _members(request) if isinstance(each, Create | SetData | CreateOp | SetOp)]
    return sum(map(len, data)) + sum(len(path) + 24 for path in paths_of(request))


def _members(request: Request) -> Sequence[Request | Op]:
    return request.ops if isinstance(request, Multi) else (request,)
