"""One client of the fake ZooKeeper.  Import it from ``fake_zookeeper``, which also describes its use.

    submit --> inbox --execute--> outbox --deliver--> done, or the listener

Everything here is done under the server's lock, except the callbacks, which the server calls outside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from zkconsumer.errors import ChrootMissing, ZkTimeoutException
from zkconsumer.member.events import SessionConnected, SessionLost, SessionSuspended
from zkconsumer.testing.znode_tree import AuthIds
from zkconsumer.zk.requests import (
    SERVER_PACKET_BYTES_MAX,
    ChildNames,
    Children,
    ConnectionLost,
    Create,
    CreateOp,
    Delete,
    DeleteOp,
    Exists,
    Get,
    GetAcl,
    GetMany,
    GetManyAcls,
    ManyAclsResult,
    Multi,
    MultiFailed,
    MultiOk,
    Op,
    Request,
    Result,
    SessionEnded,
    SetAcl,
    SetData,
    SetOp,
    StoreError,
    StoreEvent,
    WatchFired,
    WatchKind,
    ZnodeAcl,
    ZnodeData,
    check_path,
    lost_request_result,
    paths_of,
)
from zkconsumer.zk.zk_security import SaslGssapiLogin, ZkLogin, identities

if TYPE_CHECKING:
    from zkconsumer.testing.fake_zookeeper import FakeZooKeeper

RequestMatcher: TypeAlias = Callable[[Request], bool]
HeldTraffic: TypeAlias = Literal["requests", "answers", "events"]

_Read = TypeVar("_Read", ZnodeData | StoreError, ZnodeAcl | StoreError, ChildNames | StoreError, StoreError)


@dataclass(slots=True, eq=False)
class _SubmittedBatch:
    """One ``submit``: its results are collected, and delivered together after the last one."""

    session_id: int | None
    results: list[Result]
    missing: int
    done: Callable[[list[Result]], None]


@dataclass(slots=True)
class _QueuedRequest:
    """A request on its way to the server; ``request`` None means an empty batch."""

    seq: int
    batch: _SubmittedBatch
    index: int
    request: Request | None


@dataclass(slots=True)
class _Answer:
    """A result on its way to its batch.  ``is_local``: made by the client's library, so ``hold`` does not stop it."""

    seq: int
    asked: _QueuedRequest
    result: Result
    is_local: bool = False


@dataclass(slots=True)
class _Event:
    """A session or watch event on its way to the listener."""

    seq: int
    event: StoreEvent


@dataclass(slots=True, eq=False)
class FakeZooKeeperSession:
    """The server's state of a session.  Watches belong to its connection and end with it."""

    session_id: int
    store: FakeZkStore
    is_alive: bool = True
    data_watches: set[str] = field(default_factory=set)
    child_watches: set[str] = field(default_factory=set)


@dataclass(slots=True)
class ZooKeeperFault:
    """What happens to the next request that matches."""

    matches: RequestMatcher
    store: FakeZkStore | None
    error: Callable[[str], StoreError] | None = None
    is_done: bool = False
    reconnects: bool = True


class FakeZkStore:
    """One client of a ``FakeZooKeeper``: a ``ZkStore``, created, listened to and started like the real one.

    ``login``: the identity.  The fake does not check passwords.
    """

    def __init__(
        self, server: FakeZooKeeper, chroot: str = "", session_timeout_ms: int = 6_000, login: ZkLogin | None = None
    ) -> None:
        self.server = server
        self._auth_ids = _identities(login)
        self.packets_sent = 0
        self._chroot = chroot.rstrip("/")
        least, most = server.timeout_range_ms
        self._timeout_ms = max(least, min(most, session_timeout_ms))
        self._state: Literal["new", "connected", "suspended", "closed"] = "new"
        self._session: FakeZooKeeperSession | None = None
        self._on_event: Callable[[StoreEvent], None] | None = None
        self._inbox: deque[_QueuedRequest] = deque()
        self._outbox: deque[_Answer | _Event] = deque()
        self._late: list[_Event] = []
        self._held: set[HeldTraffic] = set()
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
            if self._chroot and not server.tree.has_node(self._chroot):
                raise ChrootMissing(f"the chroot {self._chroot} does not exist")
            self._connect()
        server._deliver()

    def submit(self, session_id: int | None, requests: Sequence[Request], done: Callable[[list[Result]], None]) -> None:
        for request in requests:
            for path in paths_of(request):
                check_path(path)
        server = self.server
        with server._lock:
            batch = _SubmittedBatch(session_id, [None] * len(requests), max(1, len(requests)), done)
            asked = [
                _QueuedRequest(server._next_seq(), batch, index, request) for index, request in enumerate(requests)
            ]
            asked = asked or [_QueuedRequest(server._next_seq(), batch, 0, None)]
            if self._state == "closed" or (session_id is not None and session_id != self.session_id):
                self._settle(asked, SessionEnded)
            else:
                self._inbox.extend(asked)
        server._deliver()

    def host_of(self, session_id: int, timeout_ms: int) -> str | None:
        """Every session of the fake comes from this machine."""
        with self.server._lock:
            known = self.server._sessions.get(session_id)
        return "127.0.0.1" if known is not None and known.is_alive else None

    def close(self, timeout_ms: int) -> bool:
        server = self.server
        with server._wake:
            if self._state != "closed":
                self._confirmed = self._state in ("connected", "new")
                self._end()
        server._deliver()
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
                self._queue_event(SessionLost(self._session.session_id))
                gone = [asked for asked in self._inbox if asked.batch.session_id == self._session.session_id]
                self._inbox = deque(asked for asked in self._inbox if asked.batch.session_id is None)
                self._settle(gone, SessionEnded)
            self._session = self.server._open_session(self)
        assert self._session is not None
        self._queue_event(SessionConnected(self._session.session_id, self._timeout_ms, is_new))

    def _drop(self) -> bool:
        """Lose the connection and everything on it; False if there is none."""
        if self._state != "connected" or self._session is None:
            return False
        self._state = "suspended"
        self._session.data_watches.clear()
        self._session.child_watches.clear()
        self._late.clear()
        self._outbox = deque(item for item in self._outbox if not _is_watch_event(item))
        for item in self._outbox:
            if isinstance(item, _Answer) and not item.is_local and item.asked.request is not None:
                item.result, item.is_local = lost_request_result(item.asked.request, ConnectionLost), True
        self._settle(self._inbox, ConnectionLost)
        self._inbox.clear()
        self._queue_event(SessionSuspended())
        return True

    def _end(self) -> None:
        """Close: delivered results stay, requests in flight are answered or lost."""
        if self._confirmed and self._session is not None:
            self.server._end_session(self._session.session_id)
        self._state, self._session, self._on_event = "closed", None, None
        answers = [item for item in self._outbox if isinstance(item, _Answer)]
        held = [item.asked for item in answers if "answers" in self._held and not item.is_local]
        self._outbox = deque(item for item in answers if "answers" not in self._held or item.is_local)
        self._late.clear()
        self._settle([*held, *self._inbox], SessionEnded)
        self._inbox.clear()
        self._leave_when_done()

    def _leave_when_done(self) -> None:
        """Remove a closed store after its last answers."""
        if self._state == "closed" and not self._outbox and self in self.server.stores:
            self.server.stores.remove(self)

    def _release(self, what: HeldTraffic, drop: bool) -> None:
        self._held.discard(what)
        if what == "events":
            late = [] if drop else self._late
            self._outbox.extend(_Event(self.server._next_seq(), item.event) for item in late)
            self._late = []

    def _queue_watch_event(self, path: str, kind: WatchKind) -> None:
        item = _Event(self.server._next_seq(), WatchFired(self._below(path), kind))
        if "events" in self._held:
            self._late.append(item)
        else:
            self._outbox.append(item)

    def _queue_event(self, event: StoreEvent) -> None:
        self._outbox.append(_Event(self.server._next_seq(), event))

    def _settle(self, asked: Iterable[_QueuedRequest], kind: type[ConnectionLost] | type[SessionEnded]) -> None:
        for each in asked:
            result = None if each.request is None else lost_request_result(each.request, kind)
            self._outbox.append(_Answer(self.server._next_seq(), each, result, is_local=True))
        if self._outbox and self not in self.server.stores:
            self.server.stores.append(self)

    # --- steps

    def _next_step(self) -> int | None:
        """The number of the next step here, None if there is none or it is held."""
        execution, delivery = self._next_execution(), self._next_delivery()
        if execution is None or delivery is None:
            return delivery if execution is None else execution
        return min(execution, delivery)

    def _take_step(self) -> Callable[[], None] | None:
        """Execute or deliver; returns the callback to call outside the lock."""
        execution, delivery = self._next_execution(), self._next_delivery()
        if execution is not None and (delivery is None or execution < delivery):
            self._execute(self._inbox.popleft())
            return None
        item = self._outbox.popleft()
        self._leave_when_done()
        self.server._wake.notify_all()
        if isinstance(item, _Event):
            return partial(self._on_event, item.event) if self._on_event else None
        batch = item.asked.batch
        if item.asked.request is not None:
            batch.results[item.asked.index] = item.result
        batch.missing -= 1
        return partial(batch.done, batch.results) if batch.missing == 0 else None

    def _next_execution(self) -> int | None:
        if not self._inbox or self._state != "connected" or "requests" in self._held:
            return None
        return self._inbox[0].seq

    def _next_delivery(self) -> int | None:
        if not self._outbox:
            return None
        head = self._outbox[0]
        is_held = "answers" in self._held and isinstance(head, _Answer) and not head.is_local
        return None if is_held else head.seq

    def _execute(self, asked: _QueuedRequest) -> None:
        request = asked.request
        if request is None:
            self._outbox.append(_Answer(self.server._next_seq(), asked, None))
            return
        fault = self.server._fault_for(self, request)
        if fault is None and _packet_bytes(request) > SERVER_PACKET_BYTES_MAX:
            fault = ZooKeeperFault(lambda _: True, self)
        if fault is not None and fault.error is not None:
            errors = [fault.error(path) for path in paths_of(request)]
            result: Result = [*errors] if isinstance(request, GetMany) else errors[0]
            if isinstance(request, GetManyAcls):
                result = ManyAclsResult([*errors])
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
        is_read_singly = isinstance(request, GetMany) and not self.server.has_multi_read
        return len(paths_of(request)) if is_read_singly or isinstance(request, GetManyAcls) else 1

    def _answer(self, request: Request) -> Result:
        assert self._session is not None, "only a connected store executes"
        session, tree = self._session, self.server.tree
        match request:
            case Get(path, watch):
                node = tree.get(self._above(path), self._auth_ids)
                if watch and isinstance(node, ZnodeData):
                    session.data_watches.add(self._above(path))
                return self._relative(node)
            case Exists(path, watch):
                if watch:
                    session.data_watches.add(self._above(path))
                stat = tree.exists(self._above(path), self._auth_ids)
                return self._relative(stat) if isinstance(stat, StoreError) else stat
            case Children(path, watch):
                children = tree.children(self._above(path), self._auth_ids)
                if watch and isinstance(children, ChildNames):
                    session.child_watches.add(self._above(path))
                return self._relative(children)
            case GetMany(paths):
                return [self._relative(tree.get(self._above(path), self._auth_ids)) for path in paths]
            case GetAcl(path):
                acl = tree.get_acl(self._above(path), self._auth_ids)
                return self._relative(acl) if isinstance(acl, StoreError) else acl
            case GetManyAcls(paths):
                return ManyAclsResult(
                    [self._relative(tree.node_acl(self._above(path), self._auth_ids)) for path in paths]
                )
            case SetAcl(path, acl, version):
                changed = tree.change_acl(self._above(path), acl, version, self._auth_ids)
                return self._relative(changed) if isinstance(changed, StoreError) else changed
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
        result = self.server._transact(absolute, self._session.session_id, self._auth_ids)
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


def _identities(login: ZkLogin | None) -> AuthIds:
    if login == SaslGssapiLogin(None):
        return frozenset({("sasl", "kerberos")})
    return identities(login)


def _is_watch_event(item: _Answer | _Event) -> bool:
    return isinstance(item, _Event) and isinstance(item.event, WatchFired)


def _packet_bytes(request: Request) -> int:
    """The approximate length of a packet, enough to decide whether a server rejects it."""
    if isinstance(request, GetManyAcls):
        return max((len(path) for path in request.paths), default=0)  # each path is a packet
    data = [each.data for each in _members(request) if isinstance(each, Create | SetData | CreateOp | SetOp)]
    return sum(map(len, data)) + sum(len(path) + 24 for path in paths_of(request))


def _members(request: Request) -> Sequence[Request | Op]:
    return request.ops if isinstance(request, Multi) else (request,)
