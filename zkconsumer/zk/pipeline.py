"""The queue of a store's requests to ZooKeeper, and the delivery of their results.  No sockets, no kazoo, no thread.

    submit --> waiting --> (window) --> in flight --> settled --> done(results), when the whole batch is settled

Only the connection's thread calls ``next_slot`` and the methods after it.  So a request is sent only in the thread's
present session, and a request for session A is never sent in session B.  Any thread may call ``submit`` and ``close``.
No lock is taken while a callback runs.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from zkconsumer.zk.packets import (
    CODE_CONNECTION_LOSS,
    CODE_OK,
    CODE_SESSION_EXPIRED,
    GET_MANY_BYTES_EACH,
    MalformedResponseError,
    decode,
    encode,
)
from zkconsumer.zk.requests import (
    PACKET_BYTES_MAX,
    ConnectionLost,
    Get,
    GetMany,
    GetManyAcls,
    ManyAclsResult,
    Request,
    Result,
    SessionEnded,
    StoreError,
    ZnodeData,
    lost_request_result,
)

log = logging.getLogger(__name__)

WINDOW_PACKETS = 300
"""The maximum number of packets in flight.  It is large so that one system call sends or receives many of them."""

REFILL_PACKETS = WINDOW_PACKETS // 2
"""A full window is filled again when this many packets are left; one by one would cost a system call for each."""

GET_MANY_PATHS_MAX = 1_000
"""The maximum number of paths in one multiRead; fewer if the last answers were long."""

MULTI_READ_FAILURES_MAX = 2
"""If this many connections in a row end during a multiRead, multiRead is not used again: one address may lead to
servers of different versions."""


_UNSETTLED_RESULT = ConnectionLost("/")
"""The result of a path of a ``GetMany`` or ``GetManyAcls`` until its packet has settled."""


@dataclass(slots=True, eq=False)
class _RequestBatch:
    """The requests of one call of ``submit``; ``missing``: how many results are not known yet."""

    session_id: int | None
    results: list[Result]
    missing: int
    done: Callable[[list[Result]], None]


@dataclass(slots=True, eq=False)
class _PendingRequest:
    """One request of a batch; ``parts``: how many of its packets have not settled."""

    batch: _RequestBatch
    index: int
    request: Request
    parts: int = 1


@dataclass(slots=True, eq=False)
class PacketSlot:
    """One packet.  ``first_path_index``: for a part of ``GetMany`` or ``GetManyAcls``, the index of its first path."""

    pipeline: Pipeline
    pending: _PendingRequest
    request: Request
    first_path_index: int | None = None
    opcode: int = 0
    body: bytes = b""

    def on_response(self, error: int, answer: bytes, at: int) -> None:
        """An answer arrived: the error code of the reply header, the packet, and the index after the header."""
        self.pipeline.on_response(self, error, answer, at)

    def on_failure(self, *, is_session_over: bool) -> None:
        """No answer will arrive."""
        self.pipeline.on_failure(self, is_session_over=is_session_over)


class Pipeline:
    """The requests of one store that have no result yet."""

    def __init__(self, chroot: str) -> None:
        self.packets_sent = 0
        self._chroot = chroot
        self._lock = threading.Lock()
        self._session_id: int | None = None
        self._is_open = True
        self._queued: deque[_PendingRequest] = deque()
        self._split_packets: deque[PacketSlot] = deque()
        self._in_flight: dict[PacketSlot, None] = {}
        self._is_full = False
        self._get_many_paths = GET_MANY_PATHS_MAX
        self._is_multi_read_doubtful = False
        self._multi_read_failures = 0

    @property
    def session_id(self) -> int | None:
        """The session in which requests are executed; None between two sessions."""
        return self._session_id

    # --- any thread

    def submit(self, session_id: int | None, requests: Sequence[Request], done: Callable[[list[Result]], None]) -> None:
        """Append a batch to the queue; a batch for any other session than the present one gets ``SessionEnded``."""
        batch = _RequestBatch(session_id, [None] * len(requests), len(requests), done)
        pending = [_PendingRequest(batch, index, request) for index, request in enumerate(requests)]
        with self._lock:
            is_for_us = self._is_open and (session_id is None or session_id == self._session_id)
            if is_for_us:
                self._queued.extend(pending)
        if not is_for_us:
            self._settle_all(pending, SessionEnded)
        if not pending:
            self._call_done([batch])

    def close(self) -> None:
        """Settle the waiting and all future requests with ``SessionEnded``; those in flight can still be answered."""
        with self._lock:
            self._is_open = False
            self._session_id = None
        self._fail_all(SessionEnded, in_flight=False)

    def fail_in_flight(self) -> None:
        """Settle all requests with ``SessionEnded``, those in flight, too: the connection is closed permanently."""
        self._fail_all(SessionEnded)

    # --- the connection's thread

    def begin_session(self, session_id: int) -> None:
        """A session exists; requests are executed in it from now on."""
        with self._lock:
            self._session_id = session_id if self._is_open else None

    def end_session(self) -> None:
        """The session ended: settle its waiting requests; those that may run in any session continue to wait."""
        with self._lock:
            gone = [pending for pending in self._queued if pending.batch.session_id is not None]
            self._queued = deque(pending for pending in self._queued if pending.batch.session_id is None)
            self._session_id = None
        self._settle_all(gone, SessionEnded)

    def on_connection_lost(self) -> bool:
        """The connection broke: all requests submitted before get an unknown outcome.

        Also those that were not sent yet: they must not be executed when an earlier request of their batch has an
        unknown outcome.  Returns True if the oldest packet without an answer was a multiRead: the server at that
        address may not support it.
        """
        self._fail_all(ConnectionLost if self._is_open else SessionEnded)
        is_doubtful, self._is_multi_read_doubtful = self._is_multi_read_doubtful, False
        self._multi_read_failures += is_doubtful
        return is_doubtful

    def next_slot(self, *, has_multi_read: bool) -> PacketSlot | None:
        """The next packet to send; None if no packet waits, or the window is full."""
        has_multi_read = has_multi_read and self._multi_read_failures < MULTI_READ_FAILURES_MAX
        empty: list[_PendingRequest] = []
        with self._lock:
            while not self._split_packets and self._queued:
                pending = self._queued.popleft()
                self._split_packets.extend(self._split(pending, has_multi_read))
                if not self._split_packets:
                    empty.append(pending)
            in_flight = len(self._in_flight)
            self._is_full = in_flight > REFILL_PACKETS if self._is_full else in_flight >= WINDOW_PACKETS
            slot = self._split_packets.popleft() if self._split_packets and not self._is_full else None
            if slot is not None:
                self._in_flight[slot] = None
                self.packets_sent += 1
        for pending in empty:
            self._call_done(self._put(pending, pending.batch.results[pending.index]))
        if slot is not None:
            slot.opcode, slot.body = encode(slot.request, self._chroot)
        return slot

    def on_response(self, slot: PacketSlot, error: int, answer: bytes, at: int) -> None:
        """See ``PacketSlot.on_response``."""
        if isinstance(slot.request, GetMany):
            if error not in (CODE_OK, CODE_CONNECTION_LOSS, CODE_SESSION_EXPIRED):
                self._split_multi_read(slot)
                return
            self._multi_read_failures = 0
            bytes_each = len(answer) // max(1, len(slot.request.paths))
            self._get_many_paths = max(1, min(GET_MANY_PATHS_MAX, PACKET_BYTES_MAX // max(1, bytes_each)))
        try:
            result = decode(slot.request, error, answer, at)
        except MalformedResponseError as exc:
            log.warning("zookeeper-response-malformed opcode=%s reason=%s", slot.opcode, exc)
            result = lost_request_result(slot.request, ConnectionLost)
        self._settle(slot, result)

    def on_failure(self, slot: PacketSlot, *, is_session_over: bool) -> None:
        """See ``PacketSlot.on_failure``."""
        with self._lock:
            is_oldest = next(iter(self._in_flight), None) is slot
        self._is_multi_read_doubtful |= is_oldest and isinstance(slot.request, GetMany)
        gone = is_session_over or not self._is_open
        self._settle(slot, lost_request_result(slot.request, SessionEnded if gone else ConnectionLost))

    # --- parts

    def _split(self, pending: _PendingRequest, has_multi_read: bool) -> list[PacketSlot]:
        request = pending.request
        if isinstance(request, GetManyAcls):
            pending.batch.results[pending.index] = ManyAclsResult([_UNSETTLED_RESULT] * len(request.paths))
            pending.parts = max(1, len(request.paths))
            return [PacketSlot(self, pending, GetManyAcls((path,)), at) for at, path in enumerate(request.paths)]
        if not isinstance(request, GetMany):
            return [PacketSlot(self, pending, request)]
        pending.batch.results[pending.index] = [_UNSETTLED_RESULT] * len(request.paths)
        ends = self._split_points(request.paths) if has_multi_read else range(1, len(request.paths) + 1)
        slots: list[PacketSlot] = []
        start = 0
        for end in ends:
            part = GetMany(request.paths[start:end]) if has_multi_read else Get(request.paths[start])
            slots.append(PacketSlot(self, pending, part, start))
            start = end
        pending.parts = max(1, len(slots))
        return slots

    def _split_points(self, paths: Sequence[str]) -> list[int]:
        """The end index of each packet, so that neither its paths nor (as far as known) its answer are too long."""
        ends: list[int] = []
        size = count = 0
        for index, path in enumerate(paths):
            each = GET_MANY_BYTES_EACH + len(self._chroot.encode()) + len(path.encode())
            if count and (count >= self._get_many_paths or size + each > PACKET_BYTES_MAX):
                ends.append(index)
                size = count = 0
            size += each
            count += 1
        return [*ends, len(paths)] if paths else []

    def _split_multi_read(self, slot: PacketSlot) -> None:
        """The server rejected a whole multiRead: send one packet for each path, before all other packets."""
        assert isinstance(slot.request, GetMany), "only a GetMany is split"
        start = slot.first_path_index or 0
        parts = [
            PacketSlot(self, slot.pending, Get(path), start + index) for index, path in enumerate(slot.request.paths)
        ]
        with self._lock:
            if not self._take(slot):
                return
            slot.pending.parts += len(parts) - 1
            self._split_packets.extendleft(reversed(parts))

    # --- settling

    def _settle(self, slot: PacketSlot, result: Result) -> None:
        with self._lock:
            if not self._take(slot):
                return
            is_last = self._store_part(slot, result)
        if is_last:
            self._call_done([slot.pending.batch])

    def _take(self, slot: PacketSlot) -> bool:
        """Remove the packet from those in flight; False if it was removed before.  Call it under the lock."""
        if slot not in self._in_flight:
            return False
        del self._in_flight[slot]
        return True

    def _put_part(self, slot: PacketSlot, result: Result) -> list[_RequestBatch]:
        with self._lock:
            is_last = self._store_part(slot, result)
        return [slot.pending.batch] if is_last else []

    def _put(self, pending: _PendingRequest, result: Result) -> list[_RequestBatch]:
        """Store a result; return the batch if it was the last missing one."""
        with self._lock:
            is_last = self._store_result(pending, result)
        return [pending.batch] if is_last else []

    def _store_part(self, slot: PacketSlot, result: Result) -> bool:
        """Like ``_store_result``, for one packet; call it under the lock."""
        at, pending = slot.first_path_index, slot.pending
        if at is None:
            return self._store_result(pending, result)
        whole = pending.batch.results[pending.index]
        if isinstance(whole, ManyAclsResult):
            assert isinstance(result, ManyAclsResult), "the result of GetManyAcls is ManyAclsResult"
            whole.found[at] = result.found[0]
        elif isinstance(slot.request, GetMany):
            assert isinstance(whole, list), "a part belongs to a GetMany"
            assert isinstance(result, list), "the result of GetMany is a list"
            whole[at : at + len(result)] = result
        else:
            assert isinstance(whole, list), "a part belongs to a GetMany"
            assert isinstance(result, ZnodeData | StoreError), "the result of Get is a node or an error"
            whole[at] = result
        return self._store_result(pending, whole)

    @staticmethod
    def _store_result(pending: _PendingRequest, result: Result) -> bool:
        """Store a result; True if it was the last missing one of its batch.  Call it under the lock."""
        batch = pending.batch
        batch.results[pending.index] = result
        pending.parts -= 1
        if pending.parts:
            return False
        batch.missing -= 1
        return batch.missing == 0

    def _settle_all(self, pending: Iterable[_PendingRequest], kind: type[ConnectionLost] | type[SessionEnded]) -> None:
        for each in pending:
            self._call_done(self._put(each, lost_request_result(each.request, kind)))

    def _fail_all(self, kind: type[ConnectionLost] | type[SessionEnded], *, in_flight: bool = True) -> None:
        with self._lock:
            slots = list(self._in_flight) if in_flight else []
            slots += self._split_packets
            pending = list(self._queued)
            for slot in slots:
                self._in_flight.pop(slot, None)
            self._split_packets.clear()
            self._queued.clear()
        for slot in slots:
            self._call_done(self._put_part(slot, lost_request_result(slot.request, kind)))
        self._settle_all(pending, kind)

    @staticmethod
    def _call_done(batches: Iterable[_RequestBatch]) -> None:
        for batch in batches:
            try:
                batch.done(batch.results)
            except Exception:
                log.exception("zookeeper-callback-failed")
