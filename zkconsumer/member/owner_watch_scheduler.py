"""Which owners are watched, and when they are listed again.

ZooKeeper's watches fire once.  A topic whose watch fired is listed again a little later, because owners move in
swarms: soon while something that refused us may have gone, late when it only guards against a node of ours that
vanished; and much later when it could not be listed the last time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member.events import MemberTimer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zkconsumer.member.commands import Command
    from zkconsumer.member.events import OwnersListed
    from zkconsumer.types import TopicPartition

RELIST_SOON_MS = 50
RELIST_LATER_MS = 500
RELIST_AFTER_FAILURE_MS = 5_000


class OwnerWatchScheduler:
    """The watches on ``owners/T``, as far as this member knows them."""

    def __init__(self, new_ticket: Callable[[], int]) -> None:
        self._new_ticket = new_ticket
        self._watched: set[str] = set()
        self._unlisted: set[str] = set()
        self._requested: tuple[str, ...] = ()
        self._ticket = 0
        self._timer_ms: int | None = None

    def on_watch_fired(self, topic: str) -> None:
        """The watch of this topic is used up."""
        self._watched.discard(topic)
        self._unlisted.discard(topic)

    def on_watch_set(self, topics: Iterable[str]) -> None:
        """These topics were listed, each leaving a watch."""
        self._watched |= set(topics)

    def ensure_watched(self, topics: set[str], *, soon: bool) -> list[Command]:
        """See to it that these topics are watched."""
        unwatched = topics - self._watched
        if self._ticket or not unwatched:
            return []
        delay = RELIST_AFTER_FAILURE_MS if unwatched <= self._unlisted else RELIST_SOON_MS if soon else RELIST_LATER_MS
        if self._timer_ms is not None and self._timer_ms <= delay:
            return []
        self._timer_ms = delay
        return [do.StartTimer(MemberTimer.LIST_OWNERS, delay)]

    def on_timer(self, topics: set[str], own_partitions: Iterable[TopicPartition], session_id: int) -> list[Command]:
        """The pause is over: list what is not watched."""
        self._timer_ms = None
        unwatched = tuple(sorted(topics - self._watched))
        if not unwatched:
            return []
        self._ticket = self._new_ticket()
        self._requested = unwatched
        self._watched |= set(unwatched)
        concerned = tuple(sorted(tp for tp in own_partitions if tp.topic in unwatched))
        return [do.ListOwners(self._ticket, session_id, unwatched, concerned)]

    def on_listed(self, event: OwnersListed) -> bool:
        """Whether this is the answer that is waited for."""
        if event.ticket != self._ticket:
            return False
        self._ticket = 0
        self._unlisted = {topic for topic in self._requested if topic not in event.owned}
        self._watched -= self._unlisted
        return True

    def reset(self, *, watches_only: bool = False) -> None:
        """A disconnect takes the watches; the end of a session takes everything."""
        self._watched.clear()
        self._unlisted.clear()
        if not watches_only:
            self._ticket = 0
            self._timer_ms = None
