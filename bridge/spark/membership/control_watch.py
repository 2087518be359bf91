"""Reads the control znode of the group and watches it for changes, in a session without other duties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_layout import LEAVE_CHILD
from zkconsumer.errors import MalformedZnode, MigrationError, UnavailableError
from zkconsumer.member.events import SessionConnected
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import describe_result
from zkconsumer.zk.requests import Exists, Get, NoNode, Stat, StoreError, WatchFired, ZnodeData
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.znode_formats import ControlRecord, parse_control

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.zk.requests import StoreEvent
    from zkconsumer.zk.store import ZkStore


@dataclass(frozen=True, slots=True)
class ControlSnapshot:
    """``control`` and ``version`` None: the group does not migrate.  ``is_rollback_waiting``: a rollback waits until
    the members of the coordinator group leave.
    """

    control: ControlRecord | None = None
    version: int | None = None
    is_rollback_waiting: bool = False


class ControlWatch:
    """Calls ``on_change`` on the store's thread when the control znode must be read again."""

    def __init__(self, store: ZkStore, group: str, on_change: Callable[[], None]) -> None:
        self._store = store
        self._path = paths.control(group)
        self._leave = paths.control_child(group, LEAVE_CHILD)
        self._on_change = on_change
        store.listen(self._on_store_event)

    def read(self, timeout_ms: int) -> ControlSnapshot:
        """Read the current content; sets a watch.

        Raises ``ZkTimeoutException`` and ``UnavailableError`` when ZooKeeper does not answer, ``MigrationError`` for a
        node that cannot be parsed.
        """
        there, node, leave = submit_and_wait(
            self._store,
            [Exists(self._path, watch=True), Get(self._path, watch=True), Exists(self._leave, watch=True)],
            timeout_ms,
        )
        for answer in (there, node, leave):
            if isinstance(answer, StoreError) and not isinstance(answer, NoNode):
                raise UnavailableError(f"ZooKeeper did not answer about {self._path}: {describe_result(answer)}")
        if not isinstance(node, ZnodeData):
            return ControlSnapshot()
        try:
            control = parse_control(node.data)
        except MalformedZnode as error:
            raise MigrationError(
                f"{self._path} cannot be read ({error}), so it is not known which store has the offsets of the group: "
                "repair it, and start the query again"
            ) from error
        return ControlSnapshot(control, node.stat.version, isinstance(leave, Stat))

    def _on_store_event(self, event: StoreEvent) -> None:
        if isinstance(event, WatchFired | SessionConnected):
            self._on_change()
