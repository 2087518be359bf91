"""The broker in ZooKeeper: registered for members of the old kind, with its topics; and OffsetCommit v0's store.

    session new  --> /brokers/ids/N of every node (ephemeral)
    topics moved --> what there is against what there should be --> create, set, delete
    v0           --> /consumers/G/offsets/T/P

Answers come on ZooKeeper's thread and are taken to the broker's; the broker never waits for ZooKeeper.  What a broken
connection left undone is done when the connection is back.  Topics that others have written there are left alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from bridge.broker.cluster import Cluster
from bridge.broker.listeners import Listener
from bridge.broker.timers import Handle
from bridge.broker.znodes import broker_node, topic_nodes
from zkconsumer.errors import MalformedZnode, PreconditionFailed, UnsafeName
from zkconsumer.kafka.error_codes import INVALID_GROUP_ID, NONE, UNKNOWN_SERVER_ERROR
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    Create,
    Delete,
    GetMany,
    Node,
    NodeExists,
    NoNode,
    Request,
    Result,
    SessionConnected,
    SetData,
    StoreError,
    StoreEvent,
)
from zkconsumer.zk.store import ZkStore
from zkconsumer.zk.znodes import format_offset, parse_offset

SESSION_TIMEOUT_MS = 6_000
"""``zookeeper.session.timeout.ms`` of brokers until 2.4: how long a killed broker stays registered."""

CONNECT_TIMEOUT_MS = 10_000
CLOSE_TIMEOUT_MS = 3_000
AGAIN_MS = 500
"""How long until an id that is still taken is tried again."""

ANSWER_MS = 30_000
"""How long a commit or a fetch waits for ZooKeeper before it is answered with an error."""

_PARENTS = (paths.CONSUMERS, paths.BROKER_IDS, paths.BROKER_TOPICS)

C = TypeVar("C")
Answer: TypeAlias = Callable[[dict[TopicPartition, C]], None]

_log = logging.getLogger(__name__)


class ZooKeeperDoor:
    """``to_broker`` runs something on the broker's thread.  Everything but ``open`` and ``close`` is called there."""

    def __init__(
        self,
        store: ZkStore,
        cluster: Cluster,
        listeners: Sequence[Listener],
        to_broker: Callable[[Callable[[], None]], None],
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._listeners = listeners
        self._to_broker = to_broker
        self._written: dict[str, bytes] = {}
        self._is_writing = False
        self._is_stale = False
        self._is_closed = False
        self._missing: set[int] = set()
        self._registered = threading.Event()
        self._timer: Handle | None = None

    def open(self, timeout_ms: int = CONNECT_TIMEOUT_MS) -> None:
        """Register every node, and write the topics; called by the program's thread.

        ``ZkTimeoutException`` and the like when there is no session; ``PreconditionFailed``: an id is taken.
        """
        self._store.listen(self._heard)
        self._store.start(timeout_ms)
        if not self._registered.wait((SESSION_TIMEOUT_MS * 2 + timeout_ms) / 1000):
            taken = ", ".join(map(str, sorted(self._missing)))
            raise PreconditionFailed(
                f"broker id {taken} is registered in ZooKeeper by another broker; stop it, or take another --node-id"
            )

    def close(self) -> None:
        """End the session, and with it the registrations."""
        self._is_closed = True
        self._store.close(CLOSE_TIMEOUT_MS)

    # --- registration -------------------------------------------------------------------------------------------

    def _heard(self, event: StoreEvent) -> None:
        if isinstance(event, SessionConnected):
            is_new = event.is_new
            self._to_broker(lambda: self._connected(is_new))

    def _connected(self, is_new: bool) -> None:
        if is_new:
            self._missing = set(self._cluster.nodes)
            self._written.clear()
        self._register()

    def _register(self) -> None:
        """Those of our ids that are not there yet, then the topics."""
        wall_ms = self._cluster.scheduler.now_ms()
        release = self._cluster.release.version
        wanted = sorted(self._missing)
        creations: list[Request] = [
            Create(
                paths.broker(node_id),
                broker_node(self._listeners, self._cluster.nodes[node_id].addresses, release, wall_ms),
                ephemeral=True,
            )
            for node_id in wanted
        ]
        above = [Create(path) for path in _with_parents(_PARENTS)]

        def done(results: list[Result]) -> None:
            for node_id, result in zip(wanted, results[len(above) :], strict=True):
                if not isinstance(result, StoreError):
                    self._missing.discard(node_id)
                elif isinstance(result, NodeExists):
                    _log.warning("broker_id_taken id=%d", node_id)
            if not self._missing:
                self._registered.set()
            elif not self._is_closed:
                self._timer = self._cluster.scheduler.call_in(AGAIN_MS, self._register)
            self.write_topics()

        self._submit([*above, *creations], done)

    # --- topics -------------------------------------------------------------------------------------------------

    def write_topics(self) -> None:
        """What there should be is compared with what was written last; one round after the other."""
        self._is_stale = True
        if self._is_writing or self._is_closed:
            return
        self._is_writing, self._is_stale = True, False
        wanted = topic_nodes(self._cluster.topics)
        changed = [path for path, data in wanted.items() if self._written.get(path) != data]
        gone = [path for path in self._written if path not in wanted]
        if not changed and not gone:
            self._is_writing = False
            return

        def found(results: list[Result]) -> None:
            nodes = results[0]
            assert isinstance(nodes, list), "GetMany gives a list"
            requests: list[Request] = [Delete(path) for path in reversed(gone)]
            for path, node in zip(changed, nodes, strict=True):
                if isinstance(node, NoNode):
                    requests.append(Create(path, wanted[path]))
                elif not isinstance(node, Node) or node.data != wanted[path]:
                    requests.append(SetData(path, wanted[path]))
            self._submit(requests, lambda written: self._wrote(wanted, requests, written))

        self._submit([GetMany(tuple(changed))], found)

    def _wrote(self, wanted: dict[str, bytes], requests: list[Request], results: list[Result]) -> None:
        self._is_writing = False
        failed = [
            result
            for request, result in zip(requests, results, strict=True)
            if isinstance(result, StoreError) and not (isinstance(request, Delete) and isinstance(result, NoNode))
        ]
        if failed:
            # Looked at again with the next change, or the next connection.
            _log.warning("topics_not_written error=%s", failed[0])
            return
        self._written = wanted
        if self._is_stale:
            self.write_topics()

    # --- OffsetCommit and OffsetFetch v0 ------------------------------------------------------------------------

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], done: Callable[[dict[TopicPartition, int]], None]
    ) -> None:
        """See ``OffsetsInZooKeeper``."""
        try:
            wanted = [(tp, paths.offset(group, tp), format_offset(offset)) for tp, offset in offsets.items()]
        except UnsafeName:
            done(dict.fromkeys(offsets, INVALID_GROUP_ID.code))
            return
        answer = self._once(done, dict.fromkeys(offsets, UNKNOWN_SERVER_ERROR.code))

        def was_set(results: list[Result]) -> None:
            absent = [at for at, result in enumerate(results) if isinstance(result, NoNode)]
            codes = {tp: _code(result) for (tp, _, _), result in zip(wanted, results, strict=True)}
            if not absent:
                answer(codes)
                return
            above = [Create(path) for path in _with_parents(paths.parents(wanted[at][1])[-1] for at in absent)]
            made: list[Request] = [Create(wanted[at][1], wanted[at][2]) for at in absent]

            def created(results: list[Result]) -> None:
                for at, result in zip(absent, results[len(above) :], strict=True):
                    codes[wanted[at][0]] = _code(result)
                answer(codes)

            self._submit([*above, *made], created)

        self._submit([SetData(path, data) for _, path, data in wanted], was_set)

    def fetch(
        self, group: str, partitions: Iterable[TopicPartition], done: Callable[[dict[TopicPartition, int | None]], None]
    ) -> None:
        """See ``OffsetsInZooKeeper``."""
        asked = list(partitions)
        nothing: dict[TopicPartition, int | None] = dict.fromkeys(asked)
        try:
            wanted = tuple(paths.offset(group, tp) for tp in asked)
        except UnsafeName:
            done(nothing)
            return
        answer = self._once(done, nothing)

        def found(results: list[Result]) -> None:
            nodes = results[0]
            assert isinstance(nodes, list), "GetMany gives a list"
            answer({tp: _offset(node) for tp, node in zip(asked, nodes, strict=True)})

        self._submit([GetMany(wanted)], found)

    def _once(self, done: Callable[[dict[TopicPartition, C]], None], late: dict[TopicPartition, C]) -> Answer[C]:
        """``done`` is called once: with the answer, or when ZooKeeper has had its time."""
        answered: list[bool] = []

        def answer(values: dict[TopicPartition, C]) -> None:
            if not answered:
                answered.append(True)
                timer.cancel()
                done(values)

        timer = self._cluster.scheduler.call_in(ANSWER_MS, lambda: answer(late))
        return answer

    def _submit(self, requests: Sequence[Request], done: Callable[[list[Result]], None]) -> None:
        if self._is_closed:
            return
        self._store.submit(None, requests, lambda results: self._to_broker(lambda: done(results)))


def _with_parents(wanted: Iterable[str]) -> list[str]:
    """Each path and those above it, topmost first, once."""
    return list(dict.fromkeys(path for leaf in wanted for path in [*paths.parents(leaf), leaf]))


def _code(result: Result) -> int:
    is_done = not isinstance(result, StoreError) or isinstance(result, NodeExists)
    return NONE.code if is_done else UNKNOWN_SERVER_ERROR.code


def _offset(node: object) -> int | None:
    if not isinstance(node, Node):
        return None
    try:
        return parse_offset(node.data)
    except MalformedZnode:
        return None
