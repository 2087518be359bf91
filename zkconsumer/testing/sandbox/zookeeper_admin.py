"""What tests do in ZooKeeper without the code under test: create topics as any release's broker reads them, and read.

Separate from ``zkconsumer.zk`` on purpose: a test's assertions use other code than what is tested.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from zkconsumer.errors import SandboxError

CONNECT_TIMEOUT_S = 15
SESSION_TIMEOUT_S = 10
RETRY_S = 15


class ZnodeSnapshot(NamedTuple):
    """A node as it was at the time of a read.

    ``session``: 0 for a persistent node.  ``written_ms``: when the server wrote its data last, by the server's clock.
    """

    data: bytes
    session: int
    czxid: int
    mzxid: int
    written_ms: int


class ZooKeeperAdmin:
    """A session of its own on ``hosts`` (with a chroot, if the string ends with one)."""

    def __init__(self, hosts: str, session_timeout_s: int = SESSION_TIMEOUT_S) -> None:
        self.hosts = hosts
        logger = logging.getLogger("zkconsumer.testing.sandbox.zookeeper_admin")
        # A server that a test has just killed is not worth a line for every try.
        logger.setLevel(logging.CRITICAL)
        retry = KazooRetry(max_tries=-1, deadline=RETRY_S, delay=0.05, max_delay=0.5)
        self._client = KazooClient(
            hosts,
            timeout=session_timeout_s,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5),
            command_retry=retry,
            logger=logger,
        )
        try:
            self._client.start(CONNECT_TIMEOUT_S)
        except KazooTimeoutError as error:
            self.close()
            raise SandboxError(f"ZooKeeper at {hosts} did not answer within {CONNECT_TIMEOUT_S} s") from error

    def close(self) -> None:
        with suppress(KazooException):
            self._client.stop()
        self._client.close()

    def __enter__(self) -> ZooKeeperAdmin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- nodes ---

    def exists(self, path: str) -> bool:
        return self._client.retry(self._client.exists, path) is not None

    def get(self, path: str) -> bytes | None:
        """The data of a node, or None if there is no such node."""
        try:
            data, _ = self._client.retry(self._client.get, path)
        except NoNodeError:
            return None
        return bytes(data or b"")  # kazoo returns None for a node that was created without data

    def children(self, path: str) -> list[str]:
        """Sorted; empty if there is no such node."""
        try:
            return sorted(self._client.retry(self._client.get_children, path))
        except NoNodeError:
            return []

    def read_and_watch(self, paths: Iterable[str], on_change: Callable[[str], None]) -> dict[str, ZnodeSnapshot | None]:
        """These nodes, all asked for at once; None for those that do not exist.

        Each leaves a watch: ``on_change(path)`` is called, on a thread of the library, when the node is made, written
        or deleted, or when the connection broke.  Raises SandboxError if the connection breaks meanwhile.
        """
        found: dict[str, ZnodeSnapshot | None] = {}
        try:
            asked = [(path, self._client.get_async(path, watch=_watcher(on_change, path))) for path in paths]
            missing = []
            for path, answer in asked:
                try:
                    data, stat = answer.get(timeout=RETRY_S)
                    found[path] = ZnodeSnapshot(bytes(data), stat.ephemeralOwner, stat.czxid, stat.mzxid, stat.mtime)
                except NoNodeError:
                    missing.append((path, self._client.exists_async(path, watch=_watcher(on_change, path))))
            made = [path for path, answer in missing if answer.get(timeout=RETRY_S) is not None]
        except (KazooException, KazooTimeoutError) as error:
            raise SandboxError(f"ZooKeeper at {self.hosts} went away: {error!r}") from error
        found |= {path: None for path, _ in missing}
        return found | self.read_and_watch(made, on_change) if made else found

    def read_and_watch_children(self, path: str, on_change: Callable[[str], None]) -> list[str] | None:
        """The names of the children, None if there is no such node; the watch works as in ``read_and_watch``."""
        try:
            return sorted(self._client.get_children_async(path, watch=_watcher(on_change, path)).get(timeout=RETRY_S))
        except NoNodeError:
            pass
        except (KazooException, KazooTimeoutError) as error:
            raise SandboxError(f"ZooKeeper at {self.hosts} went away: {error!r}") from error
        if self.read_and_watch([path], on_change)[path] is None:
            return None
        return self.read_and_watch_children(path, on_change)

    def ensure_path(self, path: str) -> None:
        self._client.retry(self._client.ensure_path, path)

    def put(self, path: str, data: bytes) -> None:
        """Creates the node, with its parents, or sets its data."""
        try:
            self._client.retry(self._client.create, path, data, makepath=True)
        except NodeExistsError:
            self._client.retry(self._client.set, path, data)

    def delete(self, path: str) -> None:
        """Deletes the node and all below it; nothing if there is none."""
        with suppress(NoNodeError):
            self._client.retry(self._client.delete, path, recursive=True)

    # --- topics and brokers ---

    def put_topic(
        self, topic: str, replicas: Mapping[int, Sequence[int]], config: Mapping[str, str] | None = None
    ) -> None:
        """Creates a topic, or makes it grow: partition -> broker ids, the first of them the preferred leader."""
        if config is not None or not self.exists(f"/config/topics/{topic}"):
            self.put(f"/config/topics/{topic}", _json({"version": 1, "config": dict(config or {})}))
        partitions = {str(partition): list(ids) for partition, ids in sorted(replicas.items())}
        self.put(f"/brokers/topics/{topic}", _json({"version": 1, "partitions": partitions}))

    def topic_replicas(self, topic: str) -> dict[int, list[int]]:
        """Partition -> broker ids; empty if there is no such topic."""
        data = self.get(f"/brokers/topics/{topic}")
        partitions = json.loads(data)["partitions"] if data else {}
        return {int(partition): ids for partition, ids in partitions.items()}

    def broker_ids(self) -> list[int]:
        return sorted(int(name) for name in self.children("/brokers/ids"))

    def forget_broker(self, broker_id: int) -> None:
        """Delete what a killed broker's session would keep until it times out."""
        self.delete(f"/brokers/ids/{broker_id}")
        controller = self.get("/controller")
        if controller and json.loads(controller)["brokerid"] == broker_id:
            self.delete("/controller")

    # --- groups ---

    def members(self, group: str) -> list[str]:
        return self.children(f"/consumers/{group}/ids")

    def owners(self, group: str, topic: str) -> dict[int, str]:
        """Partition -> thread id, for the partitions that have an owner node."""
        base = f"/consumers/{group}/owners/{topic}"
        found = {int(name): self.get(f"{base}/{name}") for name in self.children(base)}
        return {partition: data.decode() for partition, data in found.items() if data is not None}

    def offsets(self, group: str, topic: str) -> dict[int, int]:
        """Partition -> next offset, for the partitions that have an offset node."""
        base = f"/consumers/{group}/offsets/{topic}"
        found = {int(name): self.get(f"{base}/{name}") for name in self.children(base)}
        return {partition: int(data) for partition, data in found.items() if data}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _watcher(on_change: Callable[[str], None], path: str) -> Callable[[object], None]:
    # The library's event of a broken connection has no path.
    return lambda _: on_change(path)
