"""The broker in ZooKeeper: registered for members of ZooKeeper groups, with its topics.

    session new    --> /brokers/ids/N of every node (ephemeral)
    topics changed --> compare the existing znodes with the needed ones --> create, set, delete
    v0             --> /consumers/G/offsets/T/P (``zookeeper_offsets``)

Answers arrive on ZooKeeper's thread and are passed to the broker's; the broker never waits for ZooKeeper.  Work that a
broken connection left undone is done after the reconnect.  Topics of other programs are not changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from bridge.broker.broker_cluster import BrokerCluster
from bridge.broker.broker_znodes import broker_znode_data, topic_znodes, with_parents
from bridge.broker.listeners import BrokerListener
from bridge.broker.timers import ScheduledCall
from bridge.broker.zookeeper_offsets import ZooKeeperOffsetStore
from zkconsumer.errors import PreconditionFailed
from zkconsumer.member.events import SessionConnected
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    Create,
    Delete,
    GetMany,
    NodeExists,
    NoNode,
    Request,
    Result,
    SetData,
    StoreError,
    StoreEvent,
    ZnodeData,
)
from zkconsumer.zk.store import ZkStore

SESSION_TIMEOUT_MS = 6_000
"""``zookeeper.session.timeout.ms`` of brokers until 2.4: how long a killed broker stays registered."""

CONNECT_TIMEOUT_MS = 10_000
CLOSE_TIMEOUT_MS = 3_000
BROKER_ID_RETRY_MS = 500
"""The delay before an id that is still taken is tried again."""

_PARENTS = (paths.CONSUMERS, paths.BROKER_IDS, paths.BROKER_TOPICS)

_log = logging.getLogger(__name__)


class ZooKeeperRegistration:
    """``run_on_broker_thread`` runs something on the broker's thread.  All methods but ``open`` and ``close`` are
    called there.
    """

    def __init__(
        self,
        store: ZkStore,
        cluster: BrokerCluster,
        listeners: Sequence[BrokerListener],
        run_on_broker_thread: Callable[[Callable[[], None]], None],
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._listeners = listeners
        self._run_on_broker_thread = run_on_broker_thread
        self.offsets = ZooKeeperOffsetStore(self._submit, cluster.scheduler)
        self._written: dict[str, bytes] = {}
        self._created_paths: set[str] = set()
        """The paths that were written to ZooKeeper; they stay when the session ends."""
        self._is_writing = False
        self._needs_rewrite = False
        self._is_closed = False
        self._missing: dict[int, StoreError | None] = {}
        """Our ids that are not registered, and the reason."""
        self._registered = threading.Event()
        self._timer: ScheduledCall | None = None

    def open(self, timeout_ms: int = CONNECT_TIMEOUT_MS) -> None:
        """Register every node, and write the topics; called by the program's thread.

        ``ZkTimeoutException`` and similar errors if there is no session; ``PreconditionFailed``: an id is taken.
        """
        self._store.listen(self._on_store_event)
        self._store.start(timeout_ms)
        if not self._registered.wait((SESSION_TIMEOUT_MS * 2 + timeout_ms) / 1000):
            missing = dict(self._missing)
            ids = ", ".join(map(str, sorted(missing)))
            others = [why for why in missing.values() if not isinstance(why, NodeExists)]
            if others:
                why = "it does not answer" if others[0] is None else type(others[0]).__name__
                raise PreconditionFailed(f"broker id {ids} could not be registered in ZooKeeper: {why}")
            raise PreconditionFailed(
                f"broker id {ids} is registered in ZooKeeper by another broker; stop it, or take another --node-id"
            )

    def close(self) -> None:
        """End the session, and with it the registrations."""
        self._is_closed = True
        self._store.close(CLOSE_TIMEOUT_MS)

    # --- registration -------------------------------------------------------------------------------------------

    def _on_store_event(self, event: StoreEvent) -> None:
        if isinstance(event, SessionConnected):
            is_new = event.is_new
            self._run_on_broker_thread(lambda: self._on_connected(is_new))

    def _on_connected(self, is_new: bool) -> None:
        if is_new:
            self._missing = dict.fromkeys(self._cluster.nodes)
            self._written.clear()
        self._register()

    def _register(self) -> None:
        """Register the ids that are not registered yet, then write the topics."""
        wall_ms = self._cluster.scheduler.now_ms()
        release = self._cluster.nodes[self._cluster.controller_id].release.version
        wanted = sorted(self._missing)
        creations: list[Request] = [
            Create(
                paths.broker(node_id),
                broker_znode_data(self._listeners, self._cluster.nodes[node_id].addresses, release, wall_ms),
                ephemeral=True,
            )
            for node_id in wanted
        ]
        above = [Create(path) for path in with_parents(_PARENTS)]

        def done(results: list[Result]) -> None:
            made = dict(zip(wanted, results[len(above) :], strict=True))
            there = [node_id for node_id, result in made.items() if isinstance(result, NodeExists)]
            for node_id, result in made.items():
                self._record_result(node_id, result if isinstance(result, StoreError) else None)
            if there:
                asked = [GetMany(tuple(map(paths.broker, there)))]
                self._submit(asked, lambda found: self._on_registered(there, found[0]))
            else:
                self._on_registered([], [])

        self._submit([*above, *creations], done)

    def _on_registered(self, there: list[int], nodes: Result) -> None:
        """An existing id may be ours: the answer to its creation may have been lost with the connection."""
        assert isinstance(nodes, list), "GetMany gives a list"
        for node_id, node in zip(there, nodes, strict=True):
            if isinstance(node, ZnodeData) and node.stat.ephemeral_owner == self._store.session_id:
                self._record_result(node_id, None)
            else:
                _log.warning("broker-id-in-use id=%d", node_id)
        if not self._missing:
            self._registered.set()
        elif not self._is_closed:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._cluster.scheduler.call_in(BROKER_ID_RETRY_MS, self._register)
        self.write_topics()

    def _record_result(self, node_id: int, obstacle: StoreError | None) -> None:
        if obstacle is None:
            self._missing.pop(node_id, None)
        elif node_id in self._missing:
            self._missing[node_id] = obstacle

    # --- topics -------------------------------------------------------------------------------------------------

    def write_topics(self) -> None:
        """Compare the needed topics with those that were written last; one round after the other."""
        self._needs_rewrite = True
        if self._is_writing or self._is_closed:
            return
        self._is_writing, self._needs_rewrite = True, False
        wanted = topic_znodes(self._cluster.topics)
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
                elif not isinstance(node, ZnodeData) or node.data != wanted[path]:
                    requests.append(SetData(path, wanted[path]))
            self._submit(requests, lambda written: self._on_topics_written(wanted, requests, written))

        self._submit([GetMany(tuple(changed))], found)

    def is_topic_registered(self, topic: str) -> bool:
        """Whether the topic was written to ZooKeeper."""
        return paths.topic(topic) in self._created_paths

    def _on_topics_written(self, wanted: dict[str, bytes], requests: list[Request], results: list[Result]) -> None:
        self._is_writing = False
        failed = [
            result
            for request, result in zip(requests, results, strict=True)
            if isinstance(result, StoreError) and not (isinstance(request, Delete) and isinstance(result, NoNode))
        ]
        if failed:
            # Compared again at the next change, or the next connection.
            _log.warning("topics-not-written error=%s", failed[0])
            return
        self._written = wanted
        self._created_paths |= wanted.keys()
        if self._needs_rewrite:
            self.write_topics()

    def _submit(self, requests: Sequence[Request], done: Callable[[list[Result]], None]) -> None:
        if self._is_closed:
            return
        self._store.submit(None, requests, lambda results: self._run_on_broker_thread(lambda: done(results)))
