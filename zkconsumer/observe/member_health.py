"""What a supervisor is told of a member, and when the member is healthy.  Pure: one look in, words out.

    alive      its control thread answers, and no error ended it: to start it anew would help nobody when it is
    healthy    alive, registered in its group, its ZooKeeper session connected, and its lease running

That there are no records makes nobody unhealthy; neither does a share that others still hold, or a partition that no
broker leads: these are notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FORMAT_VERSION = 1
TEXT_CHARS_MAX = 500
PARTITIONS_SHOWN_MAX = 5
"""Partitions that are named one by one."""

MEMBERS_SHOWN_MAX = 50
"""Members of one process in an answer; those that are unhealthy come first."""

REGISTERED = "in"
CONNECTED = "connected"
ZOOKEEPER = "ZooKeeper"


@dataclass(frozen=True, slots=True)
class MemberHealthSnapshot:
    """A member as it was at one moment, taken on its control thread.  States are the words of the state machines."""

    membership: str
    session: str
    session_id: int | None
    lease_ms_left: int
    rebalance: str
    partitions_owned: int
    partitions_fetching: int
    failed_partitions: Mapping[str, str] = field(default_factory=dict)
    """What of its share the member does not read: partition -> why."""

    missing_topics: tuple[str, ...] = ()
    """Topics of its subscription that do not exist."""

    broker_failures: tuple[str, ...] = ()
    """Why partitions have no leader, or leaders do not answer."""

    @property
    def is_reading_all(self) -> bool:
        """Whether every topic is there, and every partition of the share has a leader that answers."""
        is_fetched = self.partitions_fetching >= self.partitions_owned
        return is_fetched and not (self.missing_topics or self.broker_failures or self.failed_partitions)


@dataclass(frozen=True, slots=True)
class MemberHealth:
    """One member; ``look`` is None when its control thread did not answer within ``waited_ms``."""

    member: str
    group: str
    snapshot: MemberHealthSnapshot | None
    waited_ms: int
    failure: str
    last_record_ms_ago: int | None
    counters: Mapping[str, int]
    coordination_service: str = ZOOKEEPER
    """Who keeps the group."""

    @property
    def is_alive(self) -> bool:
        """Whether to go on waiting for it can help."""
        return self.snapshot is not None and not self.failure

    @property
    def is_healthy(self) -> bool:
        """Whether it is a working member of its group."""
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """What makes it unhealthy, a sentence each."""
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
            silent = f"{self.coordination_service} has not answered for two thirds of the session time-out"
            found.append(f"{silent}: nothing is handed out")
        return found

    @property
    def reading_problems(self) -> list[str]:
        """What keeps the member from reading all of its share, a sentence each."""
        if self.is_healthy and self.snapshot is not None and self.snapshot.is_reading_all:
            return []
        return [*self.problems, *self.notes]

    @property
    def notes(self) -> list[str]:
        """What is worth knowing, and makes nobody unhealthy."""
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
            found.append(f"{len(self.snapshot.failed_partitions)} partitions of its share are not read: {named}")
        waiting = self.snapshot.partitions_owned - self.snapshot.partitions_fetching
        if waiting > 0:
            some = "1 partition of its share is" if waiting == 1 else f"{waiting} partitions of its share are"
            found.append(f"{some} not fetched yet, or without a leader that answers")
        return found

    def as_json(self) -> dict[str, Any]:
        """The member's part of the answer."""
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
            "counters": dict(sorted(self.counters.items())),
            "problems": [_short(words) for words in self.problems],
            "notes": [_short(words) for words in self.notes],
        }


def process_health(pid: int, members: Sequence[MemberHealth]) -> dict[str, Any]:
    """What a process answers: it is healthy, or alive, when each of its members is."""
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
