"""``consumer.threads=all``: one query takes over a whole group, without other members.

It registers with as many threads as the largest topic has partitions (and registers again when a topic grows), and only
when no other member is registered.  It waits up to ``TAKEOVER_WAIT_MS`` until the others have left, since the
registration of a member that was killed stays until its session expires.  A member that joins later causes an error in
the next call: two members would divide the partitions that one query must own alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from zkconsumer.errors import GroupNotExclusive, UnavailableError, UsageError
from zkconsumer.member.topic_count import THREADS_PER_TOPIC_MAX
from zkconsumer.zk import paths
from zkconsumer.zk.requests import ChildNames, Children, NoNode
from zkconsumer.zk.store import ZkStore, submit_and_wait

MEMBERS_POLL_MS = 200
"""The pause between two reads of the registered members."""

OTHER_MEMBERS_SHOWN_MAX = 5

REMEDY = "stop them and start the query again, or let them have partitions: set consumer.threads to a number"


def other_members(store: ZkStore, group: str, member: str, timeout_ms: int) -> list[str]:
    """The ids of other members that are registered now.  Raises ``UnavailableError``."""
    [listed] = submit_and_wait(store, [Children(paths.ids(group))], timeout_ms)
    if isinstance(listed, NoNode):
        return []
    if not isinstance(listed, ChildNames):
        raise UnavailableError(f"the members of group {group} cannot be listed: {listed}")
    return sorted(name for name in listed.names if name != member)


def not_exclusive_error(group: str, others: Iterable[str], waited_ms: int | None = None) -> GroupNotExclusive:
    """The error that names the others."""
    names = sorted(others)
    some = ", ".join(names[:OTHER_MEMBERS_SHOWN_MAX]) + (
        f" and {len(names) - OTHER_MEMBERS_SHOWN_MAX} more" if len(names) > OTHER_MEMBERS_SHOWN_MAX else ""
    )
    waited = "" if waited_ms is None else f" after {waited_ms} ms"
    return GroupNotExclusive(
        f"consumer.threads=all needs group {group} for this query alone, but it has other members{waited}: {some}; "
        f"{REMEDY}"
    )


def wait_until_exclusive(look: Callable[[], list[str]], group: str, wait_ms: int, pause: Callable[[int], bool]) -> None:
    """Wait until no other member is registered; ``pause`` returns True to stop.  Raises ``GroupNotExclusive``."""
    waited_ms = 0
    while others := look():
        if waited_ms >= wait_ms or pause(MEMBERS_POLL_MS):
            raise not_exclusive_error(group, others, waited_ms)
        waited_ms += MEMBERS_POLL_MS


def threads_for(sizes: Mapping[str, int]) -> int:
    """The number of partitions of the largest topic.  Raises ``UsageError`` beyond the limit of a registration."""
    threads = max(sizes.values(), default=1)
    if threads * max(1, len(sizes)) > THREADS_PER_TOPIC_MAX:
        raise UsageError(
            f"{threads} threads for each of {len(sizes)} topics exceed the limit of a registration: set "
            "consumer.threads to a number, or subscribe to fewer topics"
        )
    return max(1, threads)
