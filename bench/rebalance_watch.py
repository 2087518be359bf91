"""Observes the owners of partitions from outside the group, to detect the end of a rebalance."""

from __future__ import annotations

import threading
from collections.abc import Callable

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.requests import ChildNames, Children, Exists, GetMany, Stat, ZnodeData
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.znode_formats import consumer_of, parse_owner

GROUP, TOPIC = "bench", "bench"
DEADLINE_MS = 60_000
LOOK_MS = 2
ANSWER_MS = 10_000


class Watcher:
    """Reads the owner nodes in a separate session."""

    def __init__(self, address: str, partitions: int, group: str = GROUP) -> None:
        self._store = KazooStore(address, 10_000)
        self._store.listen(lambda _: None)
        self._store.start(ANSWER_MS)
        self._group = group
        self._partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self._seen: tuple[int, int] | None = None

    def members(self) -> list[str]:
        """The registered ids."""
        [listed] = submit_and_wait(self._store, [Children(paths.ids(self._group))], ANSWER_MS)
        return sorted(listed.names) if isinstance(listed, ChildNames) else []

    def counts(self) -> dict[str, int]:
        """How many partitions each member owns."""
        owners = tuple(paths.owner(self._group, tp) for tp in self._partitions)
        [nodes] = submit_and_wait(self._store, [GetMany(owners)], ANSWER_MS)
        assert isinstance(nodes, list)
        counts: dict[str, int] = {}
        for node in nodes:
            if isinstance(node, ZnodeData):
                member = consumer_of(parse_owner(node.data))
                counts[member] = counts.get(member, 0) + 1
        return counts

    def is_covered(self, members: int) -> bool:
        """Whether every partition is owned, and each of ``members`` members owns its range assignment.

        The owners are read only if the stat of their parent shows that they have changed and that all of them exist,
        because the watcher uses the machine of the members.
        """
        [stat] = submit_and_wait(self._store, [Exists(paths.owners_of_topic(self._group, TOPIC))], ANSWER_MS)
        if not isinstance(stat, Stat) or stat.num_children < len(self._partitions):
            return False
        seen = (members, stat.cversion)
        if seen == self._seen:
            return False
        self._seen = seen
        share, more = divmod(len(self._partitions), members)
        return sorted(self.counts().values()) == sorted([share + 1] * more + [share] * (members - more))

    def wait_covered(self, members: int, since_ms: int) -> float:
        """Milliseconds from ``since_ms`` until every partition is owned."""
        self._seen = None
        wait_until(lambda: self.is_covered(members), f"{members} members cover {TOPIC}")
        return SYSTEM_CLOCK.now_ms() - since_ms

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close(2_000)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Check every ``LOOK_MS``; raises ``SystemExit`` if the condition is not true in time."""
    pause = threading.Event()
    deadline_ms = SYSTEM_CLOCK.now_ms() + DEADLINE_MS
    while not holds():
        if SYSTEM_CLOCK.now_ms() > deadline_ms:
            raise SystemExit(f"the condition was not true within {DEADLINE_MS} ms: {what}")
        pause.wait(LOOK_MS / 1000)
