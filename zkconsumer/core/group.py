"""The member as a whole: session x membership x rebalance x partitions.  The only door from outside.

Every event goes through ``Group.handle``; what comes out is the list of commands, in the order in which they must
be done:

    stop and drain before commit, commit before release, release before claim, claim before position,
    position before fetch.

When a change of the group is seen, what is consumed is committed before the group is read (``commit_on_change``).
A rebalance listener is told of a release between drain and commit, and of a start between claim and position.

The machines say what is allowed; this module says what is *next*.  After each event ``_advance`` looks at the
states and starts whatever nothing stands in the way of any more, so that an answer which comes late, or never
because the session ended, needs no case of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from zkconsumer.core import commands as do
from zkconsumer.core import events as ev
from zkconsumer.core import membership as mem
from zkconsumer.core import partition as part
from zkconsumer.core import rebalance as reb
from zkconsumer.core.commit_on_change import CommitOnChange
from zkconsumer.core.commits import NOT_OURS, Commits
from zkconsumer.core.events import Outcome, Timer
from zkconsumer.core.listener import Listener
from zkconsumer.core.membership import Membership, MembershipState
from zkconsumer.core.newcomers import Newcomers
from zkconsumer.core.owners_watch import OwnersWatch
from zkconsumer.core.partition import Partition, PartitionState
from zkconsumer.core.positions import Positions
from zkconsumer.core.rebalance import Rebalance, RebalanceState
from zkconsumer.core.releases import Releases
from zkconsumer.core.reminders import REPEAT_MS, Reminders
from zkconsumer.core.session import Session
from zkconsumer.core.stores import Stores
from zkconsumer.core.topic_words import missing_in_words, taken_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from zkconsumer.core.commands import Command
    from zkconsumer.core.events import StoredOffset
    from zkconsumer.core.subscription import ConsumerThreadId
    from zkconsumer.core.view import Control, GroupView, Subscription
    from zkconsumer.types import TopicPartition

REGISTER_RETRY_MS = 500
RETRY_MAX_MS = 30_000
RETRY_GROWTH = 1.5
HELD_ELSEWHERE_GRACE_MS = 1_000
LOOK_CLOSELY_FROM_TRY = 2
KAFKA_RETRY_MAX_MS = 5_000
"""The longest pause when all that is missing is Kafka's word on where to begin."""

AUTHORITY_ZOOKEEPER = "zookeeper"

RegistrationAnswer: TypeAlias = ev.Registered | ev.RegistrationHeld | ev.RegistrationFailed | ev.Deregistered
TIMERS_OF_A_MEMBER = tuple(timer for timer in Timer if timer is not Timer.PROBE)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings that decisions depend on; times in ms."""

    member: str
    rebalance_backoff_ms: int = 2000
    debounce_ms: int = 50
    drain_timeout_ms: int = 2000
    settle_ms: int = 0
    auto_commit: bool = True
    auto_commit_interval_ms: int = 60_000
    diagnose_after_ms: int = 12_000
    session_timeout_ms: int = 6000
    listener_timeout_ms: int = 5000
    stores: Stores = Stores.ZOOKEEPER
    kafka_timeout_ms: int = 2500
    kafka_close_timeout_ms: int = 7500
    kafka_close_attempts: int = 6
    new_from_beginning: bool = True
    ignores_older_offsets: bool = False
    follows_control: bool = False
    """Whether somebody else acts by the control znode: the group goes on wherever the authority is, and says it."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a view gives this member: partition -> our thread id.

    ``refused`` says why there is no assignment at all; ``unevaluable`` whose subscription we cannot evaluate
    exactly, and why: then this member must not take part.  ``is_waiting``: there will be more when the owners of
    other members have told how the group deals.  ``topics`` are those that our subscription takes in this view.
    ``assignment`` is who has what in the whole group, as far as it is certain; None when there is no assignment.
    """

    mine: Mapping[TopicPartition, str]
    refused: str = ""
    unevaluable: str = ""
    notes: tuple[Command, ...] = ()
    is_waiting: bool = False
    topics: frozenset[str] = frozenset()
    assignment: Mapping[TopicPartition, ConsumerThreadId] | None = None


class Planner(Protocol):
    """Computes the assignment; ``core.planner`` has the real one."""

    def needs_owners(self) -> bool:
        """Whether the next view must tell the owners (a hash text is to be recognised)."""

    def owners_max(self) -> int | None:
        """How many of them are enough; None: all must be told."""

    def whole_group(self) -> bool:
        """Whether topics that only others subscribe to matter."""

    def scout(self, view: GroupView, subscription: Subscription) -> Share:
        """What would become of the group if we joined with this subscription."""

    def plan(self, view: GroupView) -> Share:
        """Our share of this view, in which we are registered."""

    def take(self, view: GroupView, given: Mapping[TopicPartition, str]) -> Share:
        """The share that somebody else gives us, as far as this view has its topics."""

    def diagnose(self, view: GroupView) -> tuple[Command, ...]:
        """Why owners and assignment differ for so long, in words; may change the form that is used."""


class Group:
    """One member of one group, without the world."""

    def __init__(self, settings: GroupSettings, planner: Planner) -> None:
        self.settings = settings
        self.planner = planner
        self.session = Session()
        self.membership = Membership()
        self.rebalance = Rebalance()
        self.partitions: dict[TopicPartition, Partition] = {}
        self.commits = Commits(self.partitions, self._ticket, settings.stores)
        self.commit_on_change = CommitOnChange(is_enabled=settings.auto_commit)
        self.newcomers = Newcomers(
            self.partitions,
            from_beginning=settings.new_from_beginning,
            ignores_older=settings.ignores_older_offsets,
        )
        self.positions = Positions(
            self.partitions,
            self._ticket,
            newcomers=self.newcomers,
            stores=settings.stores,
            timeout_ms=settings.kafka_timeout_ms,
        )
        self.listener = Listener(self.partitions, self._ticket, settings.listener_timeout_ms)
        self.releases = Releases(
            self.partitions,
            self.commits,
            self._ticket,
            drain_timeout_ms=settings.drain_timeout_ms,
            settle_ms=settings.settle_ms,
            commit_first=settings.auto_commit,
            listener=self.listener,
            stores=settings.stores,
            kafka_timeout_ms=settings.kafka_timeout_ms,
        )
        self.owners = OwnersWatch(self._ticket)
        self.subscription: Subscription | None = None
        self.view: GroupView | None = None
        self.share: dict[TopicPartition, str] = {}
        self.given: Mapping[TopicPartition, str] | None = None
        """The share that somebody else gives us; None: it is computed."""
        self.own_topics: frozenset[str] = frozenset()
        self._is_silent = False
        """Whether it was logged that the lease is over."""
        self._said_topics: frozenset[str] | None = None
        """The topics of a filter that were logged last; None: none were."""
        self.assignment: Mapping[TopicPartition, ConsumerThreadId] | None = None
        self.refused: dict[TopicPartition, str] = {}
        self.is_leaving = False
        self.has_failed = False
        self.tries = 0
        self.assignment_refused = ""
        self._is_waiting = False
        self._withdrawing = False
        self._may_be_registered = self._has_announced_left = False
        self._deregister_later = self._retrying_releases = False
        self._held_since_ms: int | None = None
        self._register_asked_ms = 0
        self._debouncing = self._diagnosing = self._diagnose_due = self._commit_timer = False
        self._changed_since_read = False
        self._changed_in_debounce = False
        """A change was seen after the one that began the present debounce time."""
        self._tickets = self._asked_register = self._asked_read = self._asked_claim = 0
        self._unowned: set[str] = set()
        self._said_left_out: set[str] = set()
        self._missing: frozenset[str] = frozenset()
        self._missing_due = Reminders()
        self._said_withdrawn: str = ""
        self._said_share: dict[TopicPartition, str] | None = None
        self._said_control: Control | None = None
        self._out: list[Command] = []
        self._now_ms = 0

    # --- the door -------------------------------------------------------------------------------------------

    def handle(self, event: ev.Event, now_ms: int) -> list[Command]:
        """Take one event in; give back what must now be done, in order."""
        self._out = []
        self._now_ms = now_ms
        match event:
            case ev.SessionConnected():
                self._session_connected(event)
            case ev.SessionSuspended():
                self._say(*self.session.handle(event))
            case ev.SessionAnswered():
                self._say(*self.session.handle(event))
                self._tell_silence()
            case ev.SessionLost():
                self._session_lost(event)
            case ev.SessionClosed():
                self._say(*self.session.handle(event))
                self._forget_everything("the connector is closed")
            case ev.Ended(why):
                self.has_failed = True
                self._forget_everything(why)
            case ev.JoinWanted(subscription):
                self.subscription = subscription
            case ev.ShareGiven():
                self._share_given(event)
            case ev.ListenerSet():
                self.listener.is_set = True
            case ev.LeaveWanted():
                self._leave_wanted()
            case ev.CommitWanted():
                self._commit_wanted(event)
            case ev.Registered() | ev.RegistrationHeld() | ev.RegistrationFailed() | ev.Deregistered():
                self._registration_answered(event)
            case ev.GroupChanged(is_control=is_control):
                self._group_changed(is_control=is_control)
            case ev.OwnersChanged(topic):
                self.owners.fired(topic)
            case ev.GroupRead() | ev.GroupReadFailed():
                self._read_answered(event)
            case ev.OwnersListed():
                self._owners_listed(event)
            case ev.ClaimSettled():
                self._claim_settled(event)
            case ev.PositionsRead() | ev.OffsetsFetched():
                self._positions_read(event)
            case ev.ReleaseSettled():
                self._say(*self.releases.settled(event))
            case ev.CommitSettled():
                self._commit_settled(*self.commits.settled(event))
            case ev.KafkaCommitSettled():
                self._commit_settled(*self.commits.settled_in_kafka(event))
            case ev.PartitionsDrained(positions):
                self._say(*self.releases.drained(positions))
            case ev.PositionsCollected(positions):
                self._auto_commit(positions)
            case ev.OffsetReset(partition, offset):
                self._offset_reset(partition, offset)
            case ev.OffsetsPlaced(stored):
                self._offsets_placed(stored)
            case ev.ListenerReturned():
                self._listener_returned(event)
            case ev.TimerFired(timer):
                self._timer_fired(timer)
        self._advance()
        out, self._out = self._out, []
        return out

    @property
    def fetching(self) -> dict[TopicPartition, str]:
        """What is being read now: partition -> thread id."""
        return {tp: p.thread for tp, p in self.partitions.items() if p.state is PartitionState.FETCHING}

    # --- what is next ---------------------------------------------------------------------------------------

    def _advance(self) -> None:
        if not self.session.is_connected or self.has_failed:
            return
        if not self.settings.auto_commit:  # then a release writes nothing, so what the program commits goes first
            self._take_calls()
        if self.membership.state is MembershipState.LEAVING:
            self._advance_leaving()
        self._advance_membership()
        if self.membership.state is MembershipState.IN:
            self._advance_rebalance()
        elif self.membership.state is not MembershipState.LEAVING and self.partitions:
            self._advance_leftovers()
        self._take_calls()
        if self.settings.auto_commit and self.partitions and not self._commit_timer:
            self._commit_timer = True
            self._say(do.StartTimer(Timer.COMMIT, self.settings.auto_commit_interval_ms))

    def _take_calls(self) -> None:
        self._say(*self.commits.overdue(self._now_ms))
        while self.commits.calls and not self.commits.is_busy:
            call = self.commits.calls.pop(0)
            self._say(*self.commits.send(call.positions, self._session_id, self.control_version, call))

    def _advance_membership(self) -> None:
        if self.subscription is None or self.is_leaving:
            return
        if self.membership.state is MembershipState.OUT:
            self.membership.handle(mem.Seek())
        if self.membership.state is MembershipState.SCOUTING and not self._asked_read:
            self._read_group()
        if self.membership.state is MembershipState.REGISTERING and not self._asked_register:
            self._asked_register = self._ticket()
            self._register_asked_ms = self._now_ms
            self._may_be_registered = True
            self._say(do.Register(self._asked_register, self._session_id, self.subscription))

    def _advance_leaving(self) -> None:
        """Give everything back, then the registration: the others move only when the registration goes."""
        self._say(*self.releases.revoke(self.partitions))
        self._say(*self.listener.ask_before_release(None))
        if self.listener.is_holding:
            return
        self._say(*self.releases.send({}, self._session_id, self.control_version))
        if self.releases.is_pending or self._asked_register or self._asked_claim or self._deregister_later:
            return
        if self._may_be_registered:
            self._asked_register = self._ticket()
            self._say(do.Deregister(self._asked_register, self._session_id))
        else:
            self._deregistered()

    def _advance_leftovers(self) -> None:
        """We left, and something could not be given back: it stands in the others' way, so try again and again."""
        self._say(*self.releases.send({}, self._session_id, self.control_version))
        if not self.releases.is_pending and self.partitions and not self._retrying_releases:
            self._retrying_releases = True
            self._say(do.StartTimer(Timer.RETRY, self.settings.rebalance_backoff_ms))

    def _advance_rebalance(self) -> None:
        self._say(*self.newcomers.restart(self.share))
        if self.rebalance.state is RebalanceState.RELEASING:
            self._say(*self.listener.ask_before_release(self.assignment))
            # What only changes its thread is claimed anew when there is a listener: both calls must be true of it.
            moves = {} if self.listener.is_set else self.share
            self._say(*self.releases.send(moves, self._session_id, self.control_version))
            if not self.releases.is_pending and not self.listener.is_holding:
                self.rebalance.handle(reb.ReleasesDone())
        if self.rebalance.state is RebalanceState.CLAIMING and not self._asked_claim:
            self._send_claims()
        is_to_read = self.rebalance.state is RebalanceState.READING and not self._asked_read
        if is_to_read:
            self.commit_on_change.begin()
        self._say(*self.commit_on_change.collect(is_fetching=bool(self.fetching), is_busy=self.commits.is_busy))
        if is_to_read and not self.commit_on_change.is_collecting:
            self._say(do.StopTimer(Timer.RETRY))
            self._read_group()
        if self.rebalance.state in (RebalanceState.HELD, RebalanceState.SHORT):
            self._say(*self.owners.keep(self._topics_watched, soon=self.rebalance.state is RebalanceState.SHORT))

    # --- session --------------------------------------------------------------------------------------------

    def _session_connected(self, event: ev.SessionConnected) -> None:
        live = self.session.live
        if live is not None and live.session_id != event.session_id:
            self._session_lost(ev.SessionLost(live.session_id))
        self._say(*self.session.handle(event))
        if not self.session.is_connected:
            return
        self.owners.forget(watches_only=True)
        self._changed_since_read = True
        self.commit_on_change.changed()
        self._say(do.Probe(event.session_id), do.StartTimer(Timer.PROBE, self.session.probe_interval_ms))
        if self.membership.state is MembershipState.WITHDRAWN:
            self.membership.handle(mem.Seek())
        self._trigger()

    def _session_lost(self, event: ev.SessionLost) -> None:
        live = self.session.live
        if live is None or live.session_id != event.session_id:
            return
        self._say(*self.session.handle(event))
        self._is_silent = False
        lost = f"session={event.session_id:#x} partitions={len(self.partitions)}"
        why = "ZooKeeper heard nothing of this member for the session time-out"
        self._tell("WARNING", "session-lost", f"{lost}: {why}; what was read since the last commit comes again")
        self._forget_everything("the ZooKeeper session expired")

    def _forget_everything(self, why: str) -> None:
        """Nothing of an ended session may be handed out, or written, in the next one."""
        self._forget_partitions(why)
        self._say(*self.commits.forget(why), *self.positions.forget(), *self.commit_on_change.forget())
        self.newcomers.forget()
        self.releases.forget()
        self.listener.forget()
        self.owners.forget()
        self.membership.handle(ev.SessionLost(0))
        self.rebalance.handle(reb.Stopped())
        self.share = {}
        self.assignment = None
        self._is_waiting = False
        self.refused.clear()
        self._unowned.clear()
        self.tries = 0
        self._said_share = self._held_since_ms = None
        self._may_be_registered = self._deregister_later = self._retrying_releases = False
        self._withdrawing = self._debouncing = self._diagnosing = self._diagnose_due = self._commit_timer = False
        self._asked_register = self._asked_read = self._asked_claim = 0
        self._say(*(do.StopTimer(timer) for timer in TIMERS_OF_A_MEMBER))
        if self.is_leaving:
            self._announce_left(())

    def _forget_partitions(self, why: str) -> None:
        gone = dict(self.partitions)
        for held in gone.values():
            held.handle(part.Lost())
        self.partitions.clear()
        if gone:
            self._say(do.Drop(tuple(sorted(gone)), why), *self.listener.lost(gone))

    def _tell_silence(self) -> None:
        """Say that the lease is over while partitions are held, and that it runs again: streams stand still between."""
        is_over = 0 < self.session.lease_until_ms <= self._now_ms
        if is_over and self.partitions and not self._is_silent:
            self._is_silent = True
            self._tell(
                "WARNING",
                "zookeeper-silent",
                f"partitions={len(self.partitions)}: ZooKeeper has not answered for two thirds of the session "
                "time-out, or this process was paused; nothing is handed out until it answers",
            )
        elif self._is_silent and not is_over:
            self._is_silent = False
            self._tell("INFO", "zookeeper-answers", f"partitions={len(self.partitions)}: they are handed out again")

    # --- registration ---------------------------------------------------------------------------------------

    def _registration_answered(self, event: RegistrationAnswer) -> None:
        if event.ticket != self._asked_register:
            return
        self._asked_register = 0
        match event:
            case ev.Registered():
                self._held_since_ms = None
                self.membership.handle(mem.RegistrationDone())
                self._debouncing = self._retrying_releases = False
                self._say(do.StopTimer(Timer.DEBOUNCE))
                self._trigger()
            case ev.RegistrationHeld():
                self._may_be_registered = False
                self.membership.handle(mem.RegistrationPutOff())
                if self.membership.state is MembershipState.WAITING:
                    self._held_elsewhere(event)
            case ev.RegistrationFailed(_, why):
                self.membership.handle(mem.RegistrationPutOff())
                if self.membership.state is MembershipState.WAITING:
                    self._put_off("registration-failed", why)
            case ev.Deregistered(_, why) if why and not self.is_leaving:
                self._deregister_later = True
                self._put_off("deregistration-failed", why)
            case ev.Deregistered():
                self._deregistered()

    def _deregistered(self) -> None:
        """No registration of ours is there (any more)."""
        self._may_be_registered = False
        self.membership.handle(mem.DeregistrationDone(self._withdrawing and not self.is_leaving))
        self._withdrawing = False
        if self.is_leaving:
            self._left()
        self._read_again_if_changed()

    def _left(self) -> None:
        """What could not be given back goes with the session, and so does what is still on its way."""
        leftovers = tuple(sorted(self.partitions))
        self._announce_left(leftovers)
        self._forget_partitions("it could not be given back")
        self.releases.forget()

    def _announce_left(self, not_released: Iterable[TopicPartition]) -> None:
        if not self._has_announced_left:
            self._has_announced_left = True
            self._say(do.AnnounceLeft(tuple(sorted(not_released))))

    def _put_off(self, name: str, why: str) -> None:
        self._tell("WARNING", name, f"why={why!r} retry_ms={REGISTER_RETRY_MS}")
        self._say(do.StartTimer(Timer.REGISTER, REGISTER_RETRY_MS))

    def _held_elsewhere(self, event: ev.RegistrationHeld) -> None:
        """Another session has our id: wait for as long as a dead one may linger, then say who it is.

        The answer is as old as the question at most: this process may have been stopped before it came to read it.
        """
        patience_ms = max(self._session_timeout_ms, self.settings.session_timeout_ms) + HELD_ELSEWHERE_GRACE_MS
        who = f"session={event.session_id:#x} host={event.holder} age_ms={event.age_ms}"
        if self._held_since_ms is None:
            self._held_since_ms = self._now_ms
            self._tell("WARNING", "consumer-id-held", f"id={self.settings.member} {who} waiting_ms={patience_ms}")
        if self._register_asked_ms - self._held_since_ms > patience_ms:
            self._fail(
                "ConsumerIdInUse",
                f"the id {self.settings.member} is held by another session ({who}), which did not end within "
                f"{patience_ms} ms: stop that process, or give this one another consumer.id (or none: one is made)",
            )
            return
        self._say(do.StartTimer(Timer.REGISTER, REGISTER_RETRY_MS))

    def _leave_wanted(self) -> None:
        if self.is_leaving:
            return
        self.is_leaving = True
        self.listener.excuse()
        self.releases.kafka_timeout_ms = self.settings.kafka_close_timeout_ms
        self.releases.kafka_attempts = self.settings.kafka_close_attempts
        self._deregister_later = False
        self._stop_attempt()
        self.membership.handle(ev.LeaveWanted())
        if self.membership.state is MembershipState.OUT:
            self._left()
        elif not self.session.is_connected:
            self._announce_left(tp for tp, p in self.partitions.items() if p.is_owned)

    def _share_given(self, event: ev.ShareGiven) -> None:
        """Whether it is given or computed is read with the next view; a share under way is finished first."""
        if (event.threads is None) != (self.given is None):
            how = "computed by this member again" if event.threads is None else "given to this member from here on"
            self._tell("INFO", "share-is-divided", f"it is {how}")
            self._diagnosing = self._diagnose_due = False
            self._say(do.StopTimer(Timer.DIAGNOSE))
        self.newcomers.told(event.new)
        if event.threads != self.given:
            self.given = event.threads
            self._trigger()

    # --- reading --------------------------------------------------------------------------------------------

    def _group_changed(self, *, is_control: bool) -> None:
        """Of the control znode alone no partition changes hands, and the commits decided by it would be refused."""
        self._changed_since_read = self._changed_in_debounce = True
        if not is_control:
            self.commit_on_change.changed()
        self._read_again_if_changed()

    def _read_again_if_changed(self) -> None:
        """Read at once after a quiet time, else at the end of the debounce time: many changes cost few readings.

        Others wait for what leaves us, and a Scala member that finds it owned pauses for ``rebalance.backoff.ms``.
        A watch fires once, and in some states it cannot be acted on yet (our own leaving fires it, too).
        """
        concerned = self.membership.state in (MembershipState.IN, MembershipState.WITHDRAWN)
        if concerned and self._changed_since_read and not self._debouncing:
            self._debouncing, self._changed_in_debounce = True, False
            self._say(do.StartTimer(Timer.DEBOUNCE, self.settings.debounce_ms))
            if self.membership.state is MembershipState.IN:
                self.commit_on_change.begin()
                self._trigger()

    def _stop_attempt(self) -> None:
        """We are on the way out: claim nothing any more, read no position, and give everything back."""
        self.rebalance.handle(reb.Stopped())
        self.releases.unreleasable.clear()
        self._say(*self.positions.forget(), *self.commit_on_change.forget())
        self.newcomers.forget()
        self._said_share = None
        self._unowned.clear()
        self._diagnosing = self._diagnose_due = False
        self._say(do.StopTimer(Timer.RETRY), do.StopTimer(Timer.DIAGNOSE), do.StopTimer(Timer.OWNERS))
        self.owners.forget()

    def _trigger(self) -> None:
        about_to_read = self.rebalance.state is RebalanceState.READING and not self._asked_read
        if self.membership.state is MembershipState.IN and not about_to_read:
            self.rebalance.handle(reb.Triggered())

    def _read_group(self) -> None:
        assert self.subscription is not None, "only a member with a subscription looks at its group"
        self._changed_since_read = False
        self._asked_read = self._ticket()
        self._say(
            do.ReadGroup(
                self._asked_read,
                self._session_id,
                self.subscription,
                whole_group=self.planner.whole_group(),
                with_owners=self.planner.needs_owners() or self._diagnose_due,
                owners_max=None if self._diagnose_due else self.planner.owners_max(),
            )
        )

    def _read_answered(self, event: ev.GroupRead | ev.GroupReadFailed) -> None:
        if event.ticket != self._asked_read:
            return
        self._asked_read = 0
        scouting = self.membership.state is MembershipState.SCOUTING
        if not scouting and self.membership.state is not MembershipState.IN:
            return
        match event:
            case ev.GroupRead(_, view):
                self._note(view)
                if not self._authority_is_here(view):
                    return
                if scouting:
                    self._scouted(view)
                else:
                    self._viewed(view)
            case ev.GroupReadFailed(_, why) if scouting:
                self.membership.handle(mem.RegistrationPutOff())
                self._put_off("group-unreadable", why)
            case ev.GroupReadFailed(_, why):
                self._tell("WARNING", "group-unreadable", f"why={why!r}")
                self.rebalance.handle(reb.ReadFailed())
                self._retry_later()

    def _note(self, view: GroupView) -> None:
        """Say once what is wrong with the group, and again only after it was right in between."""
        for member, why in view.left_out.items():
            if member not in self._said_left_out:
                self._say(do.Count("registrations_left_out"))
                self._tell("WARNING", "registration-left-out", f"registration={member} why={why!r}")
        self._said_left_out = set(view.left_out)
        named = {} if self.subscription is None or self.subscription.is_filter else self.subscription.topics
        self._missing = frozenset(topic for topic in view.missing if topic in named)
        self._tell_missing()

    @property
    def missing_topics(self) -> frozenset[str]:
        """The subscribed topics that did not exist when the group was read last."""
        return self._missing

    def _tell_missing(self) -> None:
        """Say which topics are missing, and say it again while they are."""
        for topic in self._missing_due.due(self._missing, self._now_ms):
            self._tell("WARNING", "topic-missing", missing_in_words(topic))
        if self._missing:
            self._say(do.StartTimer(Timer.MISSING, REPEAT_MS))

    def _authority_is_here(self, view: GroupView) -> bool:
        control = view.control
        if self.settings.follows_control:
            self.view = view
            if control != self._said_control:
                self._said_control = control
                self._say(do.AnnounceControl(control))
            return True
        if control is None or control.authority == AUTHORITY_ZOOKEEPER:
            self.view = view
            return True
        self._fail(
            "MigrationError",
            f"the offsets of this group are kept by {control.authority!r} now (phase {control.phase!r}), no longer by "
            "ZooKeeper: start members of the modern kind, or take the group's migration back first",
        )
        return False

    def _scouted(self, view: GroupView) -> None:
        assert self.subscription is not None, "only a member with a subscription scouts"
        share = self.planner.scout(view, self.subscription)
        self._say(*share.notes)
        if share.unevaluable:
            self._withdraw(share.unevaluable)
        elif share.refused:
            self._fail("ConsumerRebalanceFailedException", share.refused)
        else:
            self._said_withdrawn = ""
            self.membership.handle(mem.Scouted())

    def _viewed(self, view: GroupView) -> None:
        if self.settings.member not in view.members:
            self._tell("WARNING", "registration-vanished", "somebody deleted it; registering again")
            self._may_be_registered = False
            self._stop_attempt()
            self.membership.handle(mem.RegistrationGone())
            return
        if self._diagnose_due:
            self._diagnose_due = False
            self._unowned.clear()
            self._say(*self.planner.diagnose(view))
        share = self.planner.plan(view) if self.given is None else self.planner.take(view, self.given)
        self._say(*share.notes)
        if share.unevaluable:
            self._withdraw(share.unevaluable)
            return
        if share.refused and share.refused != self.assignment_refused:
            self._tell("ERROR", "assignment-refused", share.refused)
        self.assignment_refused = share.refused
        self.share = dict(share.mine)
        self.assignment = share.assignment
        self._is_waiting = share.is_waiting
        self._tell_topics(share.topics)
        self.own_topics = share.topics
        if not share.refused:
            wanted = self.share if self.given is None else self.given
            self._say(*self.newcomers.viewed(view, share.topics, wanted))
        self.releases.unreleasable.clear()
        self.commit_on_change.settled()
        self.rebalance.handle(reb.ViewRead())
        if self.rebalance.state is RebalanceState.RELEASING:
            self._say(
                *self.releases.revoke([tp for tp, p in self.partitions.items() if self.share.get(tp) != p.thread])
            )

    def _tell_topics(self, topics: frozenset[str]) -> None:
        """Of a filter, which topics it takes: of the first view, and when that has changed."""
        assert self.subscription is not None, "only a member with a subscription has a view"
        if self.subscription.is_filter and topics != self._said_topics:
            words = taken_in_words(self._said_topics or frozenset(), topics)
            if topics:
                self._tell("INFO", "topics-taken", words)
            else:
                self._tell("WARNING", "topics-taken", words)
            self._said_topics = topics

    def _withdraw(self, why: str) -> None:
        """Leave rather than guess: two readings of one pattern would be two owners of one partition."""
        if why != self._said_withdrawn:
            self._said_withdrawn = why
            self._tell("ERROR", "withdrawn", f"{why}: staying out of the group until its members change")
        self._stop_attempt()
        self.membership.handle(mem.Withdrawn(registered=self._may_be_registered))
        self._withdrawing = self.membership.state is MembershipState.LEAVING
        self._read_again_if_changed()

    # --- claiming -------------------------------------------------------------------------------------------

    def _send_claims(self) -> None:
        wanted = {tp: thread for tp, thread in sorted(self.share.items()) if tp not in self.partitions}
        if not wanted:
            self.refused.clear()
            self._claims_done()
            return
        for tp, thread in wanted.items():
            self.partitions[tp] = Partition(thread)
        alone = self.view is not None and len(self.view.members) == 1
        if not alone:
            self.owners.armed(tp.topic for tp in wanted)
        self._asked_claim = self._ticket()
        self._say(
            do.Claim(
                self._asked_claim,
                self._session_id,
                wanted,
                look_first=not alone,
                look_closely=self.tries >= LOOK_CLOSELY_FROM_TRY,
                control_version=self.control_version,
            )
        )

    def _claim_settled(self, event: ev.ClaimSettled) -> None:
        if event.ticket != self._asked_claim:
            return
        self._asked_claim = 0
        self.refused.clear()
        for topic in event.unwatched:
            self.owners.fired(topic)
        for tp, claimed in event.results.items():
            held = self.partitions[tp]
            if claimed.outcome is Outcome.DONE:
                held.handle(part.Won(claimed.czxid))
            elif claimed.outcome is Outcome.UNKNOWN:
                held.handle(part.Unsure())
            else:
                held.handle(part.Refused())
                del self.partitions[tp]
                self.refused[tp] = claimed.why
        self._claims_done()

    def _claims_done(self) -> None:
        if self.membership.state is not MembershipState.IN:
            return
        self.rebalance.handle(reb.ClaimsDone())
        self._position()

    def _position(self) -> None:
        """Read the positions of what was won, once the listener knows who has what."""
        unread = tuple(sorted(tp for tp, p in self.partitions.items() if p.expects(part.PositionKnown)))
        if unread or not self.refused:
            self._say(*self.listener.ask_before_start(self.assignment))
        if self.listener.is_holding:
            return
        if unread:
            self._say(*self.positions.ask(unread, self._session_id))
        else:
            self._positions_done()

    def _positions_read(self, event: ev.PositionsRead | ev.OffsetsFetched) -> None:
        commands = self.positions.answered(event)
        if commands is None:
            return
        self._say(*commands)
        if self.positions.unsupported:
            self._fail("OffsetsInKafkaUnsupported", self.positions.unsupported)
        elif self.rebalance.state is RebalanceState.POSITIONING:
            self._positions_done()

    def _positions_done(self) -> None:
        fetching = all(p.state is PartitionState.FETCHING for p in self.partitions.values())
        is_whole = not (self.refused or self.assignment_refused or self._is_waiting)
        self.rebalance.handle(reb.PositionsDone(fetching and is_whole))
        if self.rebalance.state is RebalanceState.HELD:
            self._share_held()
        elif self.rebalance.state is RebalanceState.SHORT:
            self._retry_later()

    def _share_held(self) -> None:
        self.tries = 0
        self._diagnosing = self._diagnose_due = False
        self._say(do.StopTimer(Timer.RETRY), do.StopTimer(Timer.DIAGNOSE))
        self._unowned &= {tp.topic for tp in self.share}
        if self._unowned:
            self._diagnose_later()
        if self._said_share != self.share:
            self._said_share = dict(self.share)
            members = len(self.view.members) if self.view else 0
            self._tell("INFO", "share-held", f"partitions={len(self.share)} members={members}")
        self._say(do.AnnounceShare(len(self.share)))

    def _retry_later(self) -> None:
        """Growing, jittered pauses until it holds; the nodes that refused us are watched meanwhile."""
        longest = KAFKA_RETRY_MAX_MS if self.positions.is_kafka_silent else RETRY_MAX_MS
        delay = min(longest, int(self.settings.rebalance_backoff_ms * RETRY_GROWTH ** min(self.tries, 12)))
        spread = sum(self.settings.member.encode()) * (self.tries + 1) % 20
        self.tries += 1
        self._say(do.StartTimer(Timer.RETRY, delay * (100 + spread) // 100))
        if self.refused and self.tries in (1, LOOK_CLOSELY_FROM_TRY + 1):
            some = ", ".join(f"{tp} ({why})" for tp, why in sorted(self.refused.items())[:3])
            # A rebalance of others is long over by the time of the closer look: whoever is named now may stay.
            level, name = ("INFO", "share-incomplete") if self.tries == 1 else ("WARNING", "share-refused")
            self._said_share = None
            self._tell(level, name, f"missing={len(self.refused)} first={some}")
        self._diagnose_later()

    def _diagnose_later(self) -> None:
        """What settings the others seem to have matters only where every member computes."""
        if not self._diagnosing and self.given is None:
            self._diagnosing = True
            self._say(do.StartTimer(Timer.DIAGNOSE, self.settings.diagnose_after_ms))

    # --- owners that move -----------------------------------------------------------------------------------

    def _owners_listed(self, event: ev.OwnersListed) -> None:
        if not self.owners.listed(event):
            return

        def is_free(tp: TopicPartition) -> bool:
            return tp.topic in event.owned and tp.partition not in event.owned[tp.topic]

        held = (PartitionState.CLAIMED, PartitionState.FETCHING, PartitionState.STUCK)
        vanished = [tp for tp, p in self.partitions.items() if p.state in held and is_free(tp)]
        self._lose(vanished, "its owner node vanished")
        freed = any(is_free(tp) for tp in self.share if tp not in self.partitions)
        if self.rebalance.state is RebalanceState.SHORT and self._is_waiting:
            self._trigger()
        elif self.rebalance.state is RebalanceState.SHORT and freed and self._may_claim:
            self._say(do.StopTimer(Timer.RETRY))
            self.rebalance.handle(reb.OwnersMoved())
        self._note_unowned(event.owned)

    def _note_unowned(self, owned: Mapping[str, frozenset[int]]) -> None:
        """We hold our share, and something of our topics has no owner: if that lasts, say why."""
        if self.view is None or self.rebalance.state is not RebalanceState.HELD:
            return
        for topic, numbers in owned.items():
            if set(self.view.topics.get(topic, ())) <= numbers:
                self._unowned.discard(topic)
            else:
                self._unowned.add(topic)
        if not self._unowned and self._diagnosing:
            self._diagnosing = False
            self._say(do.StopTimer(Timer.DIAGNOSE))
        elif self._unowned:
            self._diagnose_later()

    def _lose(self, partitions: Iterable[TopicPartition], why: str) -> None:
        """These owner nodes are not ours any more: stop at once, commit nothing, and read the group again."""
        lost = {tp: self.partitions.pop(tp) for tp in sorted(set(partitions) & self.partitions.keys())}
        for tp, held in lost.items():
            held.handle(part.Lost())
            self.positions.lost(tp)
        self._say(*self.commits.lost(tuple(lost)))
        if lost:
            self._said_share = None
            self._tell("WARNING", "owner-lost", f"partitions={len(lost)} first={min(lost)} why={why!r}")
            self._say(do.Drop(tuple(lost), why), *self.listener.lost(lost))
            self._trigger()

    # --- the rebalance listener -----------------------------------------------------------------------------

    def _listener_returned(self, event: ev.ListenerReturned) -> None:
        commands, has_failed = self.listener.returned(event, must_go=self.membership.state is MembershipState.LEAVING)
        self._say(*commands)
        if has_failed:
            self.rebalance.handle(reb.ListenerRefused())
            if self.rebalance.state is RebalanceState.SHORT:
                self._retry_later()
        else:
            self._go_on_positioning()
        if self.listener.catches_up():
            self._trigger()

    @property
    def _may_claim(self) -> bool:
        """Whether this attempt had come to its claims, and not only to a listener that raised."""
        return not self.releases.is_pending and not self.listener.is_behind(self.assignment)

    def _go_on_positioning(self) -> None:
        if self.rebalance.state is RebalanceState.POSITIONING and not self.positions.is_asking:
            self._position()

    # --- commits and time -----------------------------------------------------------------------------------

    def _commit_wanted(self, event: ev.CommitWanted) -> None:
        """Without a session nothing is ours, and nothing will be: answer at once, for somebody waits."""
        if self.session.live is None or self.has_failed:
            self._say(do.CompleteCommit(event.call, dict.fromkeys(event.positions, NOT_OURS)))
        else:
            self._say(*self.commits.overdue(self._now_ms))
            self.commits.calls.append(event)

    def _commit_settled(self, commands: Iterable[Command], lost: Iterable[TopicPartition]) -> None:
        self._say(*commands)
        self._lose(lost, "a commit found that the owner node is not ours")

    def _auto_commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Of the interval, or of a change; only that of the interval repeats to Kafka what it has already."""
        repeats = not self.commit_on_change.is_collecting
        self._say(*self.commit_on_change.collected())
        if self.session.is_connected and not self.commits.is_busy:
            self.commit_on_change.settled()
            self._say(*self.commits.send(positions, self._session_id, self.control_version, repeats=repeats))

    def _offset_reset(self, tp: TopicPartition, offset: int) -> None:
        held = self.partitions.get(tp)
        if held is not None and held.state in (PartitionState.FETCHING, PartitionState.DRAINING):
            held.resets += 1
            self.newcomers.is_placed(tp)
            if held.stored.offset >= 0 and held.position >= 0:
                self._say(do.Count("offsets_reset"))
                words = f"partition={tp} stored={held.stored.offset} is out of range; going on at {offset}"
                self._tell("WARNING", "offset-reset", words, (tp, held.stored.offset, offset))

    def _offsets_placed(self, placed: Mapping[TopicPartition, StoredOffset]) -> None:
        """A reset by ourselves: what a store holds of before does not count against what is committed next."""
        for tp, stored in placed.items():
            held = self.partitions.get(tp)
            if held is not None and held.state in (PartitionState.FETCHING, PartitionState.DRAINING):
                held.resets += 1
                held.wrote(stored, held.resets)
                self.newcomers.is_placed(tp)

    def _timer_fired(self, timer: Timer) -> None:
        match timer:
            case Timer.PROBE if self.session.live is not None:
                self._say(do.Probe(self._session_id), do.StartTimer(Timer.PROBE, self.session.probe_interval_ms))
                self._tell_silence()
            case Timer.DEBOUNCE:
                self._debouncing = False
                if self.membership.state is MembershipState.WITHDRAWN and self._changed_since_read:
                    self.membership.handle(mem.Seek())
                elif self._changed_in_debounce:
                    self._read_again_if_changed()
            case Timer.COLLECT:
                self.commit_on_change.timed_out()
            case Timer.OWNERS if self.session.live is not None:
                self._say(*self.owners.due(self._topics_watched, self.fetching, self._session_id))
            case Timer.RETRY:
                self._retrying_releases = False
                self.releases.unreleasable.clear()
                self._trigger()
            case Timer.DRAIN:
                self._say(*self.releases.drain_timed_out())
            case Timer.SETTLE:
                self.releases.settle_time_over()
            case Timer.KAFKA:
                self._say(*self.releases.kafka_timed_out())
            case Timer.COMMIT:
                self._commit_timer = False
                if self.fetching:
                    self._say(do.CollectPositions())
            case Timer.REGISTER:
                self._deregister_later = False
                if self.membership.state is MembershipState.WAITING:
                    self.membership.handle(mem.Seek())
            case Timer.DIAGNOSE:
                self._diagnosing = False
                self._diagnose_due = True
                self._trigger()
            case Timer.LISTENER:
                self._say(*self.listener.timed_out())
                self._go_on_positioning()
            case Timer.MISSING:
                self._tell_missing()

    # --- small things ---------------------------------------------------------------------------------------

    @property
    def _session_id(self) -> int:
        assert self.session.live is not None, "asked only while there is a session"
        return self.session.live.session_id

    @property
    def _topics_watched(self) -> set[str]:
        """Whose owners matter: those of our share, and those that are to tell what our share is."""
        return {tp.topic for tp in self.share} | (self.own_topics if self._is_waiting else set())

    @property
    def _session_timeout_ms(self) -> int:
        return self.session.live.timeout_ms if self.session.live else 0

    @property
    def withdrawn(self) -> str:
        """Why this member stays out of its group, if it does."""
        return self._said_withdrawn if self.membership.state is MembershipState.WITHDRAWN else ""

    @property
    def control_version(self) -> int | None:
        """The version of the group's control znode in the present view; None when there is none."""
        return self.view.control.version if self.view is not None and self.view.control is not None else None

    def _fail(self, kind: str, words: str) -> None:
        """The member cannot go on: stop everything, and end the streams with this error."""
        self.has_failed = True
        self._forget_everything(words)
        self._say(do.Fail(kind, words))

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def _say(self, *commands: Command) -> None:
        self._out += commands

    def _tell(self, level: str, name: str, words: str, about: tuple[Any, ...] = ()) -> None:
        self._say(do.Tell(level, name, words, about))
