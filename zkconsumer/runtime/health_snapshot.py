"""Health snapshots of a member: taken on the control thread, awaited on the health thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from zkconsumer.observe.member_health import ZOOKEEPER, MemberHealth, MemberHealthSnapshot

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.runtime.connector_member import ConnectorMember, ConnectorMembership


class MemberHealthSource:
    """Implements ``HealthSource``: at most one snapshot request is under way at a time."""

    def __init__(
        self,
        member: ConnectorMember[ConnectorMembership],
        group: str,
        delivered_at_ms: Callable[[], Iterable[int | None]],
        clock: Clock,
        coordination_service: str = ZOOKEEPER,
    ) -> None:
        self._member = member
        self._coordination_service = coordination_service
        self._group = group
        self._handed_out_at_ms = delivered_at_ms
        self._clock = clock
        self._snapshot: MemberHealthSnapshot | None = None
        self._done = threading.Event()
        self._done.set()
        self._asked_at_ms = 0

    def request_snapshot(self) -> None:
        """Request a snapshot from the control thread, unless the last request has no answer yet."""
        if self._done.is_set():
            self._done.clear()
            self._asked_at_ms = self._clock.now_ms()
            self._member.membership.event_loop.call_soon(self._on_event_loop)

    def health(self, timeout_ms: int) -> MemberHealth:
        """The health; ``snapshot`` is None if the control thread did not answer within ``timeout_ms``."""
        is_answered = self._done.wait(timeout_ms / 1000)
        now_ms = self._clock.now_ms()
        last_ms = max((at_ms for at_ms in self._handed_out_at_ms() if at_ms is not None), default=None)
        failure = self._member.membership.failure
        return MemberHealth(
            member=self._member.id,
            group=self._group,
            snapshot=self._snapshot if is_answered else None,
            waited_ms=now_ms - self._asked_at_ms,
            failure=str(failure) or type(failure).__name__ if failure is not None else "",
            last_record_ms_ago=None if last_ms is None else max(0, now_ms - last_ms),
            counters=self._member.membership.counters.snapshot(),
            coordination_service=self._coordination_service,
        )

    def _on_event_loop(self) -> None:
        member = self._member
        live = {tp for tp, info in member.streams.partition_infos.items() if info.is_live}
        fetching = len(live - member.fetchers.leaderless())
        self._snapshot = member.membership.health_snapshot(fetching, member.fetchers.failures())
        self._done.set()
