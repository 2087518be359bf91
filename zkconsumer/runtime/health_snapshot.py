"""Health snapshots of a member: taken on the control thread, awaited on the health thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkconsumer.observe.member_health import ZOOKEEPER, MemberHealth, MemberHealthSnapshot

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.runtime.connector_member import ConnectorMember, ConnectorMembership


@dataclass(eq=False, repr=False)
class MemberHealthSource:
    """Implements ``HealthSource``: at most one snapshot request is under way at a time."""

    member: ConnectorMember[ConnectorMembership]
    group: str
    delivered_at_ms: Callable[[], Iterable[int | None]]
    clock: Clock
    coordination_service: str = ZOOKEEPER

    def __post_init__(self) -> None:
        self._snapshot: MemberHealthSnapshot | None = None
        self._done = threading.Event()
        self._done.set()
        self._asked_at_ms = 0

    def request_snapshot(self) -> None:
        """Request a snapshot from the control thread, unless the last request has no answer yet."""
        if self._done.is_set():
            self._done.clear()
            self._asked_at_ms = self.clock.now_ms()
            self.member.membership.event_loop.call_soon(self._on_event_loop)

    def health(self, timeout_ms: int) -> MemberHealth:
        """The health; ``snapshot`` is None if the control thread did not answer within ``timeout_ms``."""
        is_answered = self._done.wait(timeout_ms / 1000)
        now_ms = self.clock.now_ms()
        last_ms = max((at_ms for at_ms in self.delivered_at_ms() if at_ms is not None), default=None)
        failure = self.member.membership.failure
        return MemberHealth(
            member=self.member.id,
            group=self.group,
            snapshot=self._snapshot if is_answered else None,
            waited_ms=now_ms - self._asked_at_ms,
            failure=str(failure) or type(failure).__name__ if failure is not None else "",
            last_record_ms_ago=None if last_ms is None else max(0, now_ms - last_ms),
            counters=self.member.membership.counters.snapshot(),
            coordination_service=self.coordination_service,
            lag_times=[time for time, _ in self.member.metrics.lag_times.read().values()],
        )

    def _on_event_loop(self) -> None:
        member = self.member
        live = {tp for tp, info in member.streams.partition_infos.items() if info.is_live}
        fetching = len(live - member.fetchers.leaderless())
        self._snapshot = member.membership.health_snapshot(fetching, member.fetchers.failures())
        self._done.set()
