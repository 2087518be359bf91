"""The health report of a member for supervisors.  Pure: from one snapshot.

    alive      its control thread answers, and no error ended it: a restart would not help
    healthy    alive, registered in its group, connected to ZooKeeper, and its lease is valid

A member without records is healthy; so is one whose assignment other members still own in part, or with a partition
without a leader: the report has notes about these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zkconsumer.observe.lag_time import LagTimeTotal, PartitionLagTime
from zkconsumer.observe.lag_trend import CatchUp

FORMAT_VERSION = 1
TEXT_CHARS_MAX = 500
PARTITIONS_SHOWN_MAX = 5
"""How many partitions a report names."""

MEMBERS_SHOWN_MAX = 50
"""How many members of one process a report contains; unhealthy ones are first."""

REGISTERED = "registered"
CONNECTED = "connected"
ZOOKEEPER = "ZooKeeper"


@dataclass(frozen=True, slots=True)
class MemberHealthSnapshot:
    """The state of a member at one moment, taken on its control thread.  States are values of the state machines."""

    membership: str
    session: str
    session_id: int | None
    lease_ms_left: int
    rebalance: str
    partitions_owned: int
    partitions_fetching: int
    failed_partitions: Mapping[str, str] = field(default_factory=dict)
    """The assigned partitions that the member does not read -> reason."""

    missing_topics: tuple[str, ...] = ()
    """Topics of its subscription that do not exist."""

    broker_failures: tuple[str, ...] = ()
    """Why partitions have no leader, or leaders do not answer."""

    @property
    def is_reading_all(self) -> bool:
        """Whether every topic exists, and every assigned partition has a leader that answers."""
        is_fetched = self.partitions_fetching >= self.partitions_owned
        return is_fetched and not (self.missing_topics or self.broker_failures or self.failed_partitions)


@dataclass(frozen=True, slots=True)
class MemberHealth:
    """One member; ``snapshot`` is None when its control thread did not answer within ``waited_ms``."""

    member: str
    group: str
    snapshot: MemberHealthSnapshot | None
    waited_ms: int
    failure: str
    last_record_ms_ago: int | None
    counters: Mapping[str, int]
    coordination_service: str = ZOOKEEPER
    """The service that manages the group: ZooKeeper or the coordinator."""

    lag_times: Sequence[PartitionLagTime] = ()
    """The lag in time of each owned partition."""

    @property
    def is_alive(self) -> bool:
        """Whether the member runs; if not, it must be restarted."""
        return self.snapshot is not None and not self.failure

    @property
    def is_healthy(self) -> bool:
        """Whether it is a working member of its group."""
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """Why it is unhealthy, a sentence for each reason."""
        look, found = self.snapshot, []
        if self.failure:
            found.append(f"an error ended this member: {self.failure}")
        if look is None:
            found.append(f"the control thread did not answer within {self.waited_ms} ms")
            return found
        if look.membership != REGISTERED:
            found.append(f"not registered in its group: {look.membership}")
        if look.session != CONNECTED:
            found.append(f"no connection to {self.coordination_service}: {look.session}")
        if look.lease_ms_left <= 0:
            silent = f"{self.coordination_service} has not answered for two thirds of the session timeout"
            found.append(f"{silent}: the member delivers no records")
        return found

    @property
    def reading_problems(self) -> list[str]:
        """Why the member does not read its whole assignment, a sentence for each reason."""
        if self.is_healthy and self.snapshot is not None and self.snapshot.is_reading_all:
            return []
        return [*self.problems, *self.notes]

    @property
    def notes(self) -> list[str]:
        """Problems that do not make the member unhealthy, a sentence each."""
        if self.snapshot is None:
            return []
        found = [
            f"the topic {topic} does not exist: create it, or correct its name or the chroot"
            for topic in self.snapshot.missing_topics
        ]
        found += self.snapshot.broker_failures
        if self.snapshot.failed_partitions:
            named = "; ".join(
                f"{tp}: {why}" for tp, why in sorted(self.snapshot.failed_partitions.items())[:PARTITIONS_SHOWN_MAX]
            )
            found.append(f"{len(self.snapshot.failed_partitions)} partitions of its assignment are not read: {named}")
        waiting = self.snapshot.partitions_owned - self.snapshot.partitions_fetching
        if waiting > 0:
            some = "1 partition of its assignment is" if waiting == 1 else f"{waiting} partitions of its assignment are"
            found.append(f"{some} not fetched yet, or without a leader that answers")
        return found

    def _lag_json(self) -> dict[str, Any]:
        """The largest lag in seconds: null if it is unknown, or if a partition may have a larger one."""
        total = LagTimeTotal.of(each.lag for each in self.lag_times)
        is_known = total.largest_ms is not None and total.is_exact
        trend = CatchUp.of_all(each.catch_up for each in self.lag_times)
        return {
            "lag_seconds": (total.largest_ms or 0) / 1000 if is_known else None,
            "lag_timestamp_type": total.kind.value if total.kind is not None and is_known else None,
            "lag_seconds_at_least": None if is_known or not total.largest_ms else total.largest_ms / 1000,
            "partitions_lag_seconds_not_known": total.unknown + total.at_least,
            "lag_trend": trend.trend.value,
            "caught_up_in_seconds": None if trend.in_ms is None else trend.in_ms / 1000,
        }

    def as_json(self) -> dict[str, Any]:
        """The member's part of the report."""
        look = self.snapshot
        return {
            "member": self.member,
            "group": self.group,
            "healthy": self.is_healthy,
            "alive": self.is_alive,
            "membership": look.membership if look else None,
            "rebalance": look.rebalance if look else None,
            "session": look.session if look else None,
            "session_id": f"{look.session_id:#x}" if look and look.session_id is not None else None,
            "lease_ms_left": max(0, look.lease_ms_left) if look else None,
            "partitions_owned": look.partitions_owned if look else None,
            "partitions_fetching": look.partitions_fetching if look else None,
            "last_record_ms_ago": self.last_record_ms_ago,
            **self._lag_json(),
            "counters": dict(sorted(self.counters.items())),
            "problems": [_short(words) for words in self.problems],
            "notes": [_short(words) for words in self.notes],
        }


def process_health(pid: int, members: Sequence[MemberHealth]) -> dict[str, Any]:
    """The report of a process: it is healthy, or alive, when each of its members is."""
    shown = sorted(members, key=lambda each: (each.is_healthy, each.is_alive))[:MEMBERS_SHOWN_MAX]
    return {
        "version": FORMAT_VERSION,
        "pid": pid,
        "healthy": all(each.is_healthy for each in members),
        "alive": all(each.is_alive for each in members),
        "members": [each.as_json() for each in shown],
        "members_omitted": len(members) - len(shown),
    }


def _short(words: str) -> str:
    return words if len(words) <= TEXT_CHARS_MAX else f"{words[:TEXT_CHARS_MAX]}…"
