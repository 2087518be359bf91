"""Which owner lists are watched, and when they are listed again.

ZooKeeper's watches fire once.  A topic whose watch fired is listed again after a pause, because many owner nodes change
at once: a short pause while a conflicting owner node may have been deleted, a longer one when the list only shows
whether our own nodes still exist, and the longest one when the last listing failed.

A topic counts as watched from the moment when the request is sent; a listing that fails takes that back
(``owners_that_cannot_be_listed_are_listed_again_later.txt``).  If the connection breaks, all watches are forgotten.
The answer of a listing that is still open is accepted then, but its topics are listed once more.

Two facts come from the lists.  A conflicting owner node that disappears is acquired at once, without waiting for the
growing pause of the retries (``defect_02_a_failed_acquisition_is_repeated_when_the_owner_node_is_deleted.txt``).  An
owner node of ours that disappears stops its partition (``a_deleted_owner_node_stops_its_partition.txt``).  A node that
is deleted and created by another member between two lists looks the same in both; so ``ListOwners`` names our own
partitions, whose nodes must belong to our session.  The Scala consumer never watches owner nodes.

A topic passes through: not watched, timer runs, listing under way, watched; the watch fires, and it is not watched
again.  The list of a topic is complete, and a topic that was listed for an acquisition is watched from then on.  So a
quiet group costs no request here, and a change of many owner nodes of a topic costs one list of it for each pause.

``ListOwners`` is answered in any case: a topic whose list was lost with the connection is missing in the answer.  It is
listed again after the longest pause, or soon after the reconnect, which forgets all watches.  A pause of the process
needs no care: the end of the session resets everything, and otherwise the watches have fired meanwhile.
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
"""While an owner node of another member keeps us from a partition of our assignment."""

RELIST_LATER_MS = 500
"""While we own our assignment; for so long a deleted owner node of ours can stay unnoticed."""

RELIST_AFTER_FAILURE_MS = 5_000
"""While ZooKeeper refuses the list, or its answer was lost."""


class OwnerWatchScheduler:
    """The watches of this member on ``owners/TOPIC``."""

    def __init__(self, new_ticket: Callable[[], int]) -> None:
        self._new_ticket = new_ticket
        self._watched: set[str] = set()
        """The topics with a watch that has not fired, or whose watch was requested.  It may contain topics that are not
        in our assignment any more; their watches fire at most once."""
        self._unlisted: set[str] = set()
        """The topics that the last listing could not list; only these wait for the longest pause."""
        self._requested: tuple[str, ...] = ()
        """The topics of the listing under way, or of the last one; all of them are in ``_watched`` when it is sent."""
        self._ticket: int | None = None
        """That of the listing without an answer; no timer is started meanwhile, so one listing is under way."""
        self._timer_ms: int | None = None
        """The pause of the timer that runs, None if none runs; it is replaced only by a shorter one, because a stream
        of changes would otherwise postpone the list without end."""

    def on_watch_fired(self, topic: str) -> None:
        """The watch of this topic fired and does not exist any more."""
        self._watched.discard(topic)
        self._unlisted.discard(topic)

    def on_watch_set(self, topics: Iterable[str]) -> None:
        """These topics were listed, each with a watch."""
        self._watched |= set(topics)

    def ensure_watched(self, topics: set[str], *, soon: bool) -> list[Command]:
        """Start the timer that lists these topics again, if one of them is not watched.

        ``soon``: a partition is missing, and the end of its present owner frees it.  Without a conflict only the
        existence of our own nodes is checked, so a slower rhythm is enough.
        """
        unwatched = topics - self._watched
        if self._ticket is not None or not unwatched:
            return []
        delay = RELIST_AFTER_FAILURE_MS if unwatched <= self._unlisted else RELIST_SOON_MS if soon else RELIST_LATER_MS
        if self._timer_ms is not None and self._timer_ms <= delay:
            return []
        self._timer_ms = delay
        return [do.StartTimer(MemberTimer.LIST_OWNERS, delay)]

    def on_timer(self, topics: set[str], own_partitions: Iterable[TopicPartition], session_id: int) -> list[Command]:
        """The pause is over: list the topics that are not watched; a topic may have been listed meanwhile.

        ``own_partitions``: those that are fetched; only their owner nodes are compared with ours.
        """
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
        """Process an answer; True if it is the expected one.

        The caller draws its conclusions only then: an older answer may lack an owner node that was created since.
        """
        if event.ticket != self._ticket:
            return False
        self._ticket = None
        self._unlisted = {topic for topic in self._requested if topic not in event.owned}
        self._watched -= self._unlisted
        return True

    def reset(self, *, watches_only: bool = False) -> None:
        """Forget the watches (``watches_only``, after a disconnect), or everything (after the end of a session).

        In the second case the caller also stops the timer.
        """
        self._watched.clear()
        self._unlisted.clear()
        if not watches_only:
            self._ticket = self._timer_ms = None
