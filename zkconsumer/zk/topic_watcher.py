"""``ZookeeperTopicEventWatcher``: calls a handler whenever topics are created or deleted.

    from zkconsumer import ZookeeperTopicEventWatcher

    class Printer:
        def handle_topic_event(self, all_topics):
            print(len(all_topics), "topics")

    watcher = ZookeeperTopicEventWatcher("zk1:2181/kafka", Printer())
    ...
    watcher.shutdown()

For programs that used the class of this name of Kafka 0.8 to 1.1.  Streams of a topic filter do not need it: the member
watches the topics.  It has a separate session and thread, writes nothing, and continues after a broken connection and
after the end of its session.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.member.events import SessionConnected
from zkconsumer.zk import paths
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.requests import ChildNames, Children, Exists, NoNode, Stat, WatchFired
from zkconsumer.zk.store import submit_and_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zkconsumer.zk.requests import StoreEvent
    from zkconsumer.zk.store import ZkStore

SESSION_TIMEOUT_MS = 6_000
CONNECTION_TIMEOUT_MS = 6_000
"""The defaults of ``zookeeper.session.timeout.ms`` and ``zookeeper.connection.timeout.ms``."""

ANSWER_TIMEOUT_MS = 10_000
RETRY_MS = 500
STOP_TIMEOUT_MS = 5_000

log = logging.getLogger("zkconsumer.topics")


class TopicEventHandler(Protocol):
    """The handler that a program passes to the watcher."""

    def handle_topic_event(self, all_topics: Sequence[str]) -> None:
        """All existing topics, in ZooKeeper's order; called on the watcher's thread.  Its exceptions are logged."""


class ZookeeperTopicEventWatcher:
    """Watches ``/brokers/topics``; calls the handler once at the start, and then after every change.

    Changes that arrive faster than the handler returns cause one call, and an unchanged list causes none (the class of
    Kafka repeats it after each session).  The constructor waits for ZooKeeper at most ``connection_timeout_ms`` and
    raises the errors of ``ZkStore.start``.  ``store`` is for tests: see ``zkconsumer.testing``.
    """

    def __init__(
        self,
        zookeeper_connect: str,
        event_handler: TopicEventHandler,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connection_timeout_ms: int = CONNECTION_TIMEOUT_MS,
        store: Callable[[str, int], ZkStore] = KazooStore,
    ) -> None:
        self._handler = event_handler
        self._changed = threading.Event()
        self._last_topics: list[str] | None = None
        self._store = store(zookeeper_connect, session_timeout_ms)
        self._store.listen(self._on_event)
        try:
            self._store.start(connection_timeout_ms)
        except BaseException:
            self._store.close(STOP_TIMEOUT_MS)
            raise
        self._worker = spawn("topic-event-watcher", self._run, self._died, wake=self._changed.set)

    def shutdown(self) -> None:
        """Stop calling the handler, and close the session; may be called twice, also by the handler."""
        self._worker.request_stop()
        self._store.close(STOP_TIMEOUT_MS)
        self._worker.join(STOP_TIMEOUT_MS)

    def __enter__(self) -> ZookeeperTopicEventWatcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # --- helpers ------------------------------------------------------------------------------------------------

    def _on_event(self, event: StoreEvent) -> None:
        """Called on kazoo's thread.  A broken connection loses the watch, so a new connection counts as a change."""
        if isinstance(event, SessionConnected) or (isinstance(event, WatchFired) and event.path == paths.BROKER_TOPICS):
            self._changed.set()

    def _run(self, stop: StopSignal) -> None:
        while not stop.is_set():
            self._changed.wait()
            # Before the read: a watch that fires during the read requests another one.
            self._changed.clear()
            if stop.is_set():
                return
            topics = self._read()
            if topics is None:
                stop.wait(RETRY_MS)
                self._changed.set()
            elif topics != self._last_topics and not stop.is_set():
                self._last_topics = topics
                self._call_handler(topics)

    def _read(self) -> list[str] | None:
        """All topics, with a watch; None when ZooKeeper did not answer."""
        try:
            [listed] = submit_and_wait(self._store, [Children(paths.BROKER_TOPICS, watch=True)], ANSWER_TIMEOUT_MS)
            if isinstance(listed, ChildNames):
                return list(listed.names)
            if isinstance(listed, NoNode):
                # No broker has registered yet.  The node may be created between the two requests: then read again.
                [stat] = submit_and_wait(self._store, [Exists(paths.BROKER_TOPICS, watch=True)], ANSWER_TIMEOUT_MS)
                return None if isinstance(stat, Stat) else []
        except ZkTimeoutException as error:
            log.warning("topics-read-failed reason=%r retry_ms=%d", str(error), RETRY_MS)
        return None

    def _call_handler(self, topics: list[str]) -> None:
        try:
            self._handler.handle_topic_event(tuple(topics))
        except Exception:
            log.exception("topic-handler-raised topics=%d", len(topics))

    def _died(self, name: str, error: BaseException) -> None:
        log.error("thread-died thread=%s", name, exc_info=error)
