"""``MigratingMembership``: a member of both worlds, put together around ``MigratingMember``, which decides.

    streams <--told-- MigratingMember --> ZooKeeperSide      its control thread is the one on which all is decided
                           |   ^------- - CoordinatorSide    from the phase ``armed`` on; a thread of its own
                           '--> the acknowledgement, the mirror, the lease that the streams look at

Neither control thread waits for anything: what one says to the other is posted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from bridge.migration.connector.commits import CommitDesk
from bridge.migration.connector.coordinator_side import CoordinatorSide
from bridge.migration.connector.gates import SideHooks, SideListener, SideMeters
from bridge.migration.connector.holders import MigratingInbox, SideHolder, tell
from bridge.migration.connector.joining import Joining
from bridge.migration.connector.lease import LeaseSwitch
from bridge.migration.connector.znodes import MemberNode, Mirror
from bridge.migration.connector.zookeeper_side import ZooKeeperSide
from bridge.migration.member import values as val
from bridge.migration.member.duty import Share, Side, Stance
from bridge.migration.member.machine import MigratingMember
from zkconsumer.core import events as ev
from zkconsumer.errors import MigrationError, ThreadDied, ZkConsumerError
from zkconsumer.observe.counters import Counters
from zkconsumer.runtime.hooks import HookCalls

if TYPE_CHECKING:
    from bridge.client.config import GroupConfig
    from bridge.client.membership import MembershipSettings
    from bridge.client.spread import Spread
    from zkconsumer.base.clock import Clock
    from zkconsumer.base.lease import Lease
    from zkconsumer.base.threads import OnDeath
    from zkconsumer.core.group import GroupSettings, Planner
    from zkconsumer.core.stores import NotWritten
    from zkconsumer.core.view import Subscription
    from zkconsumer.errors import AuthenticationException
    from zkconsumer.kafka.error_codes import ErrorCode
    from zkconsumer.runtime.brokers import BrokerAccess
    from zkconsumer.runtime.holder import Holder
    from zkconsumer.runtime.listener import ListenerCalls, Posts
    from zkconsumer.runtime.observing import Meters
    from zkconsumer.runtime.streams_member import StreamsMembership
    from zkconsumer.types import Hooks, TopicPartition
    from zkconsumer.zk.security import ZkSecurity
    from zkconsumer.zk.store import ZkStore
    from zkconsumer.zk.znodes import Control

ZOOKEEPER, COORDINATOR = Side.ZOOKEEPER, Side.COORDINATOR

TICK_MS = 100
"""How often it is looked what the stores have, and whether the acknowledgement stands."""

CLOSE_STEP_MS = 1_500
"""How long each of the last steps of a close may take."""

log = logging.getLogger("zkconsumer.member")


class MigratingMembership:
    """From the first connection to the last.  ``run_with`` comes first, then ``start``, then ``join``."""

    def __init__(
        self,
        group: str,
        settings: GroupSettings,
        planner: Planner,
        modern: tuple[GroupConfig, MembershipSettings, Spread],
        *,
        store: ZkStore,
        brokers: BrokerAccess,
        clock: Clock,
        lease: Lease,
        meters: Meters,
        security: ZkSecurity,
        hooks: Hooks | None = None,
    ) -> None:
        self.id = settings.member
        self.lease = lease
        self.machine = MigratingMember(commits_by_itself=settings.auto_commit)
        self.clock = clock
        self._leases = LeaseSwitch(lease)
        self._holding = ZOOKEEPER, clock.now_ms()
        """Which side holds, and since when; one attribute, so that other threads see it whole."""
        self._turn = threading.Lock()
        self.counters = Counters()
        self.hooks = HookCalls(self.id, hooks, self.counters, self.thread_died)
        client_id, socket_timeout_ms = modern[1].client_id, modern[1].socket_timeout_ms
        self.zookeeper = ZooKeeperSide(
            group,
            settings,
            planner,
            client_id=client_id,
            socket_timeout_ms=socket_timeout_ms,
            store=store,
            brokers=brokers,
            clock=clock,
            lease=self._leases.of[ZOOKEEPER],
            meters=SideMeters(meters, partial(self.holds, ZOOKEEPER)),
            security=security,
            hooks=SideHooks(self.hooks, partial(self.holds, ZOOKEEPER)),
            counters=self.counters,
            on_control=self._control_seen,
            on_share=self._zookeepers_share_held,
        )
        self._joining = Joining(self, modern, brokers, self._leases.of[COORDINATOR], meters)
        self.observing = self.zookeeper.observing
        self.any_broker = self.zookeeper.any_broker
        self.topic_finder = self.zookeeper.topic_finder
        self.listens = self.make_listener(ZOOKEEPER, self.id, self.zookeeper.control, self.thread_died)
        self.listener: ListenerCalls = self.listens
        self.zookeeper.listener = self.listens
        self.inbox = MigratingInbox(self.zookeeper.control, self.hear)
        self.commits = CommitDesk(self)
        self._node = MemberNode(self.zookeeper, group, security.acl)
        self._mirror = Mirror(self.zookeeper, group, security.acl)
        self._holder: Holder
        self._share_known = threading.Event()
        self._looked: dict[TopicPartition, int] = {}
        self._has_zookeepers_share = False
        self._failure: ZkConsumerError | None = None
        self._failing = threading.Lock()

    def holds(self, side: Side) -> bool:
        """Whether the streams read what this side has; on any thread."""
        return self.machine.duty.holds is side

    def holds_since_ms(self, side: Side) -> int | None:
        """Since when ``side`` holds, None while it does not; on any thread."""
        holds, since_ms = self._holding
        return since_ms if holds is side else None

    @property
    def coordinator(self) -> CoordinatorSide | None:
        """The side in the coordinator's group; None while there is none."""
        return self._joining.side

    def make_listener(self, side: Side, member: str, control: Posts, on_death: OnDeath) -> SideListener:
        """The program's rebalance listener, for one of the sides."""
        return SideListener(member, control, on_death, partial(self.holds, side), self._turn)

    def every(self, interval_ms: int, action: Callable[[], None]) -> None:
        """Run something on the control thread again and again, not exactly; before ``run_with``."""
        self.zookeeper.every(interval_ms, action)

    def run_with(self, holder: Holder) -> None:
        """Start ZooKeeper's side; ``holder`` is told what is ours, whoever says so."""
        self._holder = self._joining.holder = holder
        self.zookeeper.every(TICK_MS, self._tick)
        self.zookeeper.run_with(
            SideHolder(ZOOKEEPER, holder, self.hear, self._zookeeper_ended, partial(self.holds_since_ms, ZOOKEEPER))
        )

    # --- what the program asks for ------------------------------------------------------------------------------

    def start(self, timeout_ms: int) -> None:
        """Connect to ZooKeeper; raises what ``ZkStore.start`` raises, with nothing left running."""
        try:
            self.zookeeper.start(timeout_ms)
        except BaseException:
            self.hooks.close()
            raise

    def check_brokers(self) -> None:
        """See ``brokers.check_brokers``."""
        self.zookeeper.check_brokers()

    def join(self, subscription: Subscription) -> None:
        """Become a member with this subscription, in both worlds once the control znode says so."""
        self._joining.subscription = subscription
        self.zookeeper.join(subscription)

    def wait_for_share(self, timeout_ms: int) -> bool:
        """Wait for the first whole share of the side that holds; raises the error that ended the member."""
        known = self._share_known.wait(timeout_ms / 1000)
        if self._failure is not None:
            raise self._failure
        return known

    def commit(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, NotWritten]:
        """Write these positions as the phase wants it; gives back what was not written, with the reason.

        Raises the error that ended the member, if one did.
        """
        self._check_alive()
        refused = self.commits.commit(positions, timeout_ms)
        self._check_alive()
        return refused

    def _check_alive(self) -> None:
        if self._failure is not None and not self.listener.is_waited_for_here:
            raise self._failure

    def leave(self) -> bool:
        """Give everything back and leave both worlds, that which holds first; False: that could not be done in time."""
        self._joining.is_closing = True
        coordinator = self.coordinator
        self.listener.return_early()
        if coordinator is None:
            return self.zookeeper.leave()
        coordinator.listener.return_early()
        leaves = [self.zookeeper.leave, coordinator.leave]
        if self.holds(COORDINATOR):
            leaves.reverse()
        first = leaves[0]()
        return leaves[1]() and first

    def close(self) -> bool:
        """End everything, the holder included.  True when nothing was left behind."""
        self._joining.is_closing = True
        self._holder.end(None)
        if self._failure is None:  # else it is still called about what was lost
            self.listener.close()
        self._holder.ask_to_stop()
        coordinator = self.coordinator
        clean = coordinator is None or coordinator.close()
        clean = self.zookeeper.close() and clean
        clean = self._holder.join(CLOSE_STEP_MS) and clean
        clean = self._close_late(coordinator) and clean
        self._share_known.set()
        self.hooks.close()
        if not self.hooks.join(CLOSE_STEP_MS):
            log.warning("hook-running member=%s: it has not returned, and its thread goes on", self.id)
        return clean

    def _close_late(self, closed: CoordinatorSide | None) -> bool:
        """What was being opened, or left, while the close began; the control thread has ended."""
        late, leaver = self.coordinator, self._joining.leaver
        clean = late is None or late is closed or late.close()
        return (leaver is None or leaver.join(CLOSE_STEP_MS)) and clean

    @property
    def negotiated_timeout_ms(self) -> int:
        """The session time-out that ZooKeeper granted."""
        return self.zookeeper.negotiated_timeout_ms

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended this membership, if one did."""
        return self._failure

    # --- the machine, on ZooKeeper's control thread ---------------------------------------------------------------

    def hear(self, event: val.Event) -> None:
        """Something happened; on ZooKeeper's control thread."""
        before = self.machine.duty.holds
        try:
            commands = self.machine.handle(event)
        except MigrationError as error:
            self.end(error)
            return
        for command in commands:
            self._do(command)
        holds = self.machine.duty.holds
        if holds is not before:
            self._holding = holds, self.clock.now_ms()
            self._leases.hold(holds)
            log.info("side-holds member=%s side=%s stance=%s", self.id, holds.value, self.machine.stance.value)
        self.share_changed()

    def _do(self, command: val.Command) -> None:
        match command:
            case val.TellHolder(told):
                tell(self._holder, told)
            case val.Say(side, said) if side is ZOOKEEPER:
                self.zookeeper.control.post(said)
            case val.Say(_, said):
                if self.coordinator is not None:
                    self.coordinator.control.post(said)
            case val.Give(threads, new):
                self.zookeeper.control.post(ev.ShareGiven(threads, new))
            case val.Join(protocols):
                self._joining.want(protocols)
            case val.WriteToKafka():
                self._joining.write(command)
            case val.ReadFromKafka(partitions):
                if self.coordinator is not None:
                    self.coordinator.read(partitions)
            case val.Mirror(offsets):
                self._mirror.put(offsets)
            case val.Acknowledge(said):
                self._node.want(said)

    def metadata(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """What is committed with these to Kafka; on the control thread."""
        return self._joining.metadata(offsets)

    def _control_seen(self, control: Control | None) -> None:
        self.hear(val.ControlSeen(control))

    def _tick(self) -> None:
        self.look()
        self._node.write()
        self._joining.tick()

    def look(self) -> None:
        """Let the machine see what ZooKeeper has of what its side holds, if that is news; on the control thread."""
        if self.machine.duty.share is not Share.GIVEN:
            return
        stored = self.zookeeper.stored
        if stored != self._looked or not self.machine.is_caught_up:
            self._looked = stored
            self.hear(val.Looked(stored))

    # --- the first share ------------------------------------------------------------------------------------------

    def _zookeepers_share_held(self) -> None:
        self._has_zookeepers_share = True
        self.share_changed()

    def share_changed(self) -> None:
        """Whoever waits for the first whole share is told when it is there."""
        if not self._share_known.is_set() and self._is_share_whole():
            self._share_known.set()

    def _is_share_whole(self) -> bool:
        """Whether the side that holds has its whole share, and it is worked on."""
        share = self.machine.duty.share
        if share is Share.COMPUTED:
            return self._has_zookeepers_share
        is_claimed = self._has_zookeepers_share or self.holds(COORDINATOR)
        is_read = self.machine.given.keys() <= self.machine.works.running.keys()
        return self._joining.has_share and is_claimed and is_read

    # --- the end --------------------------------------------------------------------------------------------------

    def _zookeeper_ended(self, error: BaseException) -> None:
        """On any thread.  Who cannot follow the control znode must not go on, unless there is no way back."""
        if self._failure is not None:
            return
        if self.machine.stance is Stance.COMPLETED and not isinstance(error, ThreadDied):
            log.error(
                "zookeeper-side-ended member=%s why=%r: the group has moved, and this member goes on",
                self.id,
                str(error),
            )
            self.hooks.call("told", "ERROR", "zookeeper-side-ended", str(error))
            return
        self.end(error)

    def refused_by_brokers(self, error: AuthenticationException) -> None:
        """Called on a thread of the fetchers: nothing can be read with these settings."""
        log.error("brokers-refuse member=%s why=%r", self.id, str(error))
        self.end(error)

    def topics_refused(self, errors: Mapping[str, ErrorCode]) -> None:
        """Called on a thread of the fetchers; judged by the side that holds."""
        coordinator = self.coordinator
        if coordinator is not None and self.holds(COORDINATOR):
            coordinator.topics_refused(errors)
        else:
            self.zookeeper.topics_refused(errors)

    def thread_died(self, name: str, error: BaseException) -> None:
        """Called in the dying thread: an error on every stream, never silence."""
        log.error("thread-died member=%s thread=%s", self.id, name, exc_info=error)
        self.hooks.call("thread_died", name, error)
        self.end(ThreadDied.of(self.id, name, error))

    def end(self, error: BaseException) -> None:
        """Nothing is handed out any more, so nothing may be held: both worlds are left for the sake of the others."""
        assert isinstance(error, ZkConsumerError), "a membership ends by an error of ours"
        with self._failing:
            is_first, self._failure = self._failure is None, self._failure or error
        self._holder.end(self._failure)
        self._leases.end()
        self._share_known.set()
        if not is_first:
            return
        self.hooks.call("member_failed", error)
        self._holder.ask_to_stop()
        self.zookeeper.end_with(error)
        coordinator = self.coordinator
        if coordinator is not None:
            coordinator.end_with(error)
        self.commits.end()


if TYPE_CHECKING:

    def _is_one(membership: MigratingMembership) -> StreamsMembership:
        return membership
