"""Health snapshots of a member: taken on the control thread, awaited on the health thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from zkconsumer.member.partition_state_machine import PartitionState
from zkconsumer.observe.member_health import ZOOKEEPER, MemberHealth, MemberHealthSnapshot

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.runtime.connector_member import ConnectorMember
    from zkconsumer.runtime.zookeeper_connector_member import ZooKeeperConnectorMember

NOT_OWNED_STATES = (PartitionState.ACQUIRING, PartitionState.NOT_OWNED)
UNREADABLE_OFFSET_MESSAGE = "owned but not fetched: its stored offset cannot be read"


class MemberHealthSource:
    """Implements ``HealthSource``: at most one snapshot request is under way at a time."""

    def __init__(
        self,
        member: ConnectorMember[Any],
        take_snapshot: Callable[[], MemberHealthSnapshot],
        group: str,
        delivered_at_ms: Callable[[], Iterable[int | None]],
        clock: Clock,
        coordination_service: str = ZOOKEEPER,
    ) -> None:
        self._member = member
        self._take_snapshot = take_snapshot
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
        failure = self._member.failure
        return MemberHealth(
            member=self._member.id,
            group=self._group,
            snapshot=self._snapshot if is_answered else None,
            waited_ms=now_ms - self._asked_at_ms,
            failure=str(failure) or type(failure).__name__ if failure is not None else "",
            last_record_ms_ago=None if last_ms is None else max(0, now_ms - last_ms),
            counters=self._member.counters.snapshot(),
            coordination_service=self._coordination_service,
        )

    def _on_event_loop(self) -> None:
        self._snapshot = self._take_snapshot()
        self._done.set()


def take_member_snapshot(member: ZooKeeperConnectorMember, clock: Clock) -> MemberHealthSnapshot:
    """The present state of a member of a ZooKeeper group; call it on its control thread."""
    group, infos = member.state_machine, member.streams.partition_infos
    live = {tp for tp, info in infos.items() if info.is_live}
    session = group.session
    missing = {str(tp): why for tp, why in group.not_acquired.items()}
    missing |= {
        str(tp): UNREADABLE_OFFSET_MESSAGE
        for tp, p in group.partitions.items()
        if p.state is PartitionState.POSITION_UNREADABLE
    }
    return MemberHealthSnapshot(
        membership=group.membership.state.value,
        session=session.state.value,
        session_id=session.live.session_id if session.live else None,
        lease_ms_left=member.lease.until_ms - clock.now_ms(),
        rebalance=group.rebalance.state.value,
        partitions_owned=sum(p.state not in NOT_OWNED_STATES for p in group.partitions.values()),
        partitions_fetching=len(live - member.fetchers.leaderless()),
        failed_partitions=missing,
        missing_topics=tuple(sorted(group.missing_topics)),
        broker_failures=tuple(member.fetchers.failures()),
    )
