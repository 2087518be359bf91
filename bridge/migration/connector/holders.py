"""What the two memberships take for their holder, and what the streams take for their membership's inbox.

ZooKeeper's side   --SideHolder(zookeeper)--.
                                            +--> hear (ZooKeeper's control thread) --> MigratingMember
coordinator's side --SideHolder(coordinator)'         ^
streams            --MigratingInbox-------------------'
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bridge.migration.member import values as val
from zkconsumer.core import commands as do
from zkconsumer.runtime.holder import Busy

if TYPE_CHECKING:
    from bridge.migration.member.duty import Side
    from zkconsumer.runtime.control import Control
    from zkconsumer.runtime.holder import Holder, Inbox, Told
    from zkconsumer.types import TopicPartition

    Hear = Callable[[val.Event], None]


class SideHolder:
    """``Holder`` of one side: passes on what its membership says; ``hear`` never waits, on any thread.

    ``holds_since_ms``: since when this side says what the streams read, None while it does not; on any thread.
    """

    def __init__(
        self,
        side: Side,
        streams: Holder,
        hear: Hear,
        on_end: Callable[[BaseException], None],
        holds_since_ms: Callable[[], int | None],
    ) -> None:
        self._side = side
        self._holds_since_ms = holds_since_ms
        self._streams = streams
        self._hear = hear
        self._on_end = on_end

    def start_fetching(self, command: do.StartFetching) -> None:
        self._tell(command)

    def drain(self, command: do.Drain) -> None:
        self._tell(command)

    def give_up_drain(self, command: do.GiveUpDrain) -> None:
        self._tell(command)

    def drop(self, command: do.Drop) -> None:
        self._tell(command)

    def move_thread(self, command: do.MoveThread) -> None:
        self._tell(command)

    def collect_positions(self) -> None:
        self._tell(do.CollectPositions())

    def _tell(self, command: val.ToldToHolder) -> None:
        self._hear(val.Told(self._side, command))

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        """What the streams read, whoever told them."""
        return self._streams.assignment

    @property
    def holds_nothing(self) -> bool:
        return self._streams.holds_nothing

    @property
    def busy(self) -> Busy | None:
        """What the program does counts for the side that holds, and from when it began to."""
        since_ms, busy = self._holds_since_ms(), self._streams.busy
        if since_ms is None or busy is None:
            return None
        return busy._replace(since_ms=max(busy.since_ms, since_ms))

    def end(self, error: BaseException | None) -> None:
        """A side has ended.  The streams go on for as long as the other one holds."""
        if error is not None:
            self._on_end(error)

    def ask_to_stop(self) -> None:
        """The streams are the member's to stop."""

    def join(self, timeout_ms: int) -> bool:
        """The streams are the member's to wait for."""
        return True


class MigratingInbox:
    """``Inbox`` of the streams: ZooKeeper's control thread, whoever holds."""

    def __init__(self, control: Control, hear: Hear) -> None:
        self._control = control
        self._hear = hear

    def post(self, event: Told) -> None:
        """See ``Inbox``."""
        self._control.call(partial(self.feed, event))

    def feed(self, event: Told) -> None:
        """See ``Inbox``."""
        self._hear(val.HolderSaid(event))

    def call(self, action: Callable[[], None]) -> None:
        """See ``Inbox``."""
        self._control.call(action)


def tell(holder: Holder, command: val.ToldToHolder) -> None:
    """Tell a holder this."""
    match command:
        case do.StartFetching():
            holder.start_fetching(command)
        case do.Drain():
            holder.drain(command)
        case do.GiveUpDrain():
            holder.give_up_drain(command)
        case do.Drop():
            holder.drop(command)
        case do.MoveThread():
            holder.move_thread(command)
        case do.CollectPositions():
            holder.collect_positions()


if TYPE_CHECKING:

    def _is_a_holder(one: SideHolder) -> Holder:
        return one

    def _is_an_inbox(one: MigratingInbox) -> Inbox:
        return one
