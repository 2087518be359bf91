"""Keeps the membership in the group that has the authority, and moves it when that changes: the worker thread.

The worker reads the control znode when it changes.  It leaves the passive side once the query has finished its current
work, and joins the active side.  A thread that removes a side, or calls it, must own the lock.

The query of a pipeline is registered in the group before it joins, and as long as it lives (``PipelineRegistration``).
The registration is in the session of the side; before ``_enter`` has opened one, and after it is left, in the standby
session.  So a second pipeline is refused also while the group migrates.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.spark.membership.control_watch import ControlSnapshot
from bridge.spark.membership.membership_target import ZOOKEEPER_TARGET, TargetGroup, target_of
from bridge.spark.membership.pipeline_registration import PipelineRegistration
from bridge.spark.membership.standby_session import StandbySession
from bridge.spark.membership.zookeeper_batch_membership import ZooKeeperBatchMembership
from zkconsumer.errors import (
    MigrationError,
    PipelineAlreadyRunning,
    QueryAlreadyRunning,
    UsageError,
    ZkConsumerError,
    ZkTimeoutException,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.spark.membership.batch_membership import BatchMembership
    from bridge.spark.membership.coordinator_setup import MigrationProtocols
    from bridge.spark.membership.process_settings import MembershipProcessSettings
    from bridge.spark.membership.zookeeper_setup import StoreFactory
    from zkconsumer.base.clock import Clock
    from zkconsumer.base.threads import StopSignal
    from zkconsumer.kafka.broker_connection import ConnectionFactory
    from zkconsumer.zk.store import ZkStore

TICK_MS = 250
"""How often the worker checks its side; a watch reports changes of the control znode."""

RETRY_BACKOFF_MS = 1_000
"""The pause before it retries a group that rejected the member, or servers that did not answer."""

CONTROL_REREAD_MS = 10_000
"""How often the control znode is read without a watch event."""

FINISH_BATCH_TIMEOUT_MS = 60_000
"""How long the passive side stays so that the query can finish its current work."""

CONTROL_SEEN_TIMEOUT_MS = 3_000
CONTROL_SEEN_POLL_MS = 10
"""How long a side may take to see a change of the control znode that we have seen, and how often it is checked."""

log = logging.getLogger("zkconsumer.membership")


class MembershipSwitcher:
    """Everything except the calls, which are in ``QueryMembership``."""

    def __init__(
        self,
        settings: MembershipProcessSettings,
        clock: Clock,
        make_store: StoreFactory | None,
        connect: ConnectionFactory | None,
    ) -> None:
        """Raises the errors of the settings."""
        self._settings = settings
        self._clock = clock
        self._make_store = make_store
        self._connect = connect
        self._call_lock = threading.RLock()
        """Locked by a call, and by the worker while it removes a side."""
        self._changed = threading.Event()
        self._query_gone = threading.Event()
        self._standby = StandbySession(self._settings, clock, make_store, connect, self._changed.set)
        self._registration: PipelineRegistration | None = None
        """None: the query is not that of a pipeline."""
        if settings.pipeline is not None:
            self._registration = PipelineRegistration(
                settings.group, replace(settings.pipeline, run=settings.run), self._standby.acl, clock
            )
        self._control = ControlSnapshot()
        self._looked_ms = 0
        self._target = ZOOKEEPER_TARGET
        self._membership: BatchMembership | None = None
        self._current_group = TargetGroup.NONE
        self._wait_reason = self._logged_reason = ""
        self._since_ms = clock.now_ms()
        self._failure: ZkConsumerError | None = None
        self._is_planning = self._awaits_claim = False
        self._switches = 0
        self._has_switched_here = False
        self._last_group: TargetGroup | None = None
        """The group in which it was last a member."""
        self._previous_counters: dict[str, int] = {}
        """Counters of the sides that it has left."""

    @property
    def _is_leaving(self) -> bool:
        return self._target.group is not self._current_group

    def _wait_message(self) -> str:
        return self._target.wait_reason or self._wait_reason or "the membership process is joining it"

    # --- the worker ---------------------------------------------------------------------------------------------

    def _run_switcher(self, stop: StopSignal) -> None:
        while not stop.is_set() and self._failure is None:
            self._changed.wait(TICK_MS / 1000)
            if stop.is_set() or self._query_gone.is_set():
                return
            try:
                if self._changed.is_set() or self._clock.now_ms() - self._looked_ms >= CONTROL_REREAD_MS:
                    self._changed.clear()
                    self._read_control()
                self._keep_registered()
                self._step(stop)
            except (UsageError, MigrationError, PipelineAlreadyRunning, QueryAlreadyRunning) as error:
                self._failure = error
                if self._membership is not None:
                    self._membership.stop_waiting()  # a call that waits gets the error
                    self._leave_membership(self._membership.leave)
            except ZkConsumerError as error:
                self._log_wait_reason(str(error))
                stop.wait(RETRY_BACKOFF_MS)
                self._changed.set()

    def _step(self, stop: StopSignal) -> None:
        """One step towards the target group."""
        side = self._membership
        if side is not None and (failure := side.failure) is not None and side.is_blocked_by_placeholder(failure):
            self._log_wait_reason(f"the coordinator group does not accept the query yet: {failure}")
            self._leave_membership(lambda: side.abandon())
            stop.wait(RETRY_BACKOFF_MS)
            return
        if side is not None and self._is_leaving:
            self._leave_after_batch(side, stop)
        elif side is not None and (protocols := self._migration_protocols()) is not None:
            side.update_protocols(protocols)
        if self._membership is None:
            self._log_if_waiting()
            if self._target.group is not TargetGroup.NONE and not stop.is_set():
                self._enter(self._target.group)

    def _await_control_seen(self, side: BatchMembership) -> None:
        """Wait briefly until the side has seen the change: before that, its last commits would be rejected."""
        until_ms = self._clock.now_ms() + CONTROL_SEEN_TIMEOUT_MS
        while (
            not side.has_applied_control_version(self._control.version)
            and side.failure is None
            and self._clock.now_ms() < until_ms
        ):
            if self._query_gone.wait(CONTROL_SEEN_POLL_MS / 1000):
                return

    def _leave_after_batch(self, side: BatchMembership, stop: StopSignal) -> None:
        """Leave after the query has finished its current batch.

        The check runs between two calls: a call in progress may be about to begin a batch.
        """
        self._await_control_seen(side)
        until_ms = self._clock.now_ms() + FINISH_BATCH_TIMEOUT_MS
        while True:
            with self._call_lock:
                is_busy = self._is_planning or self._awaits_claim or side.has_unfinished_batch
                if not is_busy or self._clock.now_ms() >= until_ms or side.failure is not None or stop.is_set():
                    if self._registration is not None:
                        with suppress(ZkConsumerError):  # the next tick of the worker tries again
                            self._registration.ensure(self._standby.store)
                    self._leave_membership(side.abandon if side.failure is not None else side.leave)
                    return
            stop.wait(TICK_MS // 5)

    def _leave_membership(self, leave: Callable[[], bool]) -> None:
        with self._call_lock:
            side = self._membership
            assert side is not None, "only the worker and the end of the process remove it"
            clean = leave()
            for name, number in side.counter_totals().items():
                self._previous_counters[name] = self._previous_counters.get(name, 0) + number
            self._membership, self._since_ms = None, self._clock.now_ms()
            self._is_planning = self._awaits_claim = False
            log.info(
                "membership-released from=%s clean=%s reason=%r", self._current_group.value, clean, self._wait_message()
            )
            self._current_group = TargetGroup.NONE

    def _enter(self, where: TargetGroup) -> None:
        side = self._create_membership(where)
        if (registration := self._registration) is not None:
            side.is_registered = lambda: registration.is_held_in(side.store)
        try:
            self._register_in(self._standby.store)
            side.open()
            self._register_in(side.store)
        except BaseException:
            side.abandon()
            raise
        side.should_wait_for_assignment = lambda: not self._is_leaving
        self._has_switched_here = self._last_group is not None or where is TargetGroup.KAFKA
        with self._call_lock:
            self._membership, self._current_group, self._wait_reason = side, where, ""
        if self._last_group not in (None, where):
            self._switches += 1
        if self._has_switched_here:
            log.info("membership-switched authority=%s", where.value)
        self._last_group = where

    def _register_in(self, store: ZkStore) -> None:
        """Register the pipeline.  Raises the errors of ``PipelineRegistration.ensure``, and ``ZkTimeoutException``."""
        if self._registration is not None and not self._registration.ensure(store):
            raise ZkTimeoutException("ZooKeeper did not answer whether another pipeline reads the group; try again")

    def _keep_registered(self) -> None:
        """Registers a new session, and finds out whether another pipeline, or a later run of this one, is there."""
        if self._registration is not None:
            side = self._membership
            self._registration.ensure(self._standby.store if side is None else side.store)

    def _create_membership(self, where: TargetGroup) -> BatchMembership:
        if where is TargetGroup.ZOOKEEPER:
            return ZooKeeperBatchMembership(
                self._settings, clock=self._clock, make_store=self._make_store, connect=self._connect
            )
        # Half of what the process would import otherwise, and few groups migrate while a query reads them.
        from bridge.spark.membership.coordinator_batch_membership import CoordinatorBatchMembership
        from bridge.spark.membership.coordinator_setup import CoordinatorMembershipSetup

        opened = CoordinatorMembershipSetup(
            self._settings, self._standby.store, self._clock, self._connect, self._migration_protocols()
        )
        return CoordinatorBatchMembership(self._settings, opened, self._clock, lambda: self._control.version)

    def _migration_protocols(self) -> MigrationProtocols | None:
        """The protocols that the migrating members offer; None when no members migrated with the group."""
        control, protocols = self._control.control, self._target.protocols
        if control is None or not protocols:
            return None
        from bridge.spark.membership.coordinator_setup import MigrationProtocols

        return MigrationProtocols(control.migration_id, self._settings.consumer_id, protocols)

    def _read_control(self) -> None:
        self._looked_ms = self._clock.now_ms()
        self._control = self._standby.read_control()
        self._target = target_of(self._control.control, is_rollback_waiting=self._control.is_rollback_waiting)

    def _has_target_changed(self) -> bool:
        """Whether the target group has changed, read now."""
        try:
            self._read_control()
        except ZkConsumerError:
            return False
        self._changed.set()
        return self._is_leaving

    def _log_if_waiting(self) -> None:
        if self._membership is None and self._target.group is TargetGroup.NONE:
            self._log_wait_reason(self._target.wait_reason)

    def _log_wait_reason(self, why: str) -> None:
        """Log the reason once, and again only when it has changed."""
        self._wait_reason = why
        if why != self._logged_reason:
            self._logged_reason = why
            log.warning("membership-waiting group=%s reason=%r", self._settings.group, why)

    def _died(self, name: str, error: BaseException) -> None:
        log.error("thread-died thread=%s", name, exc_info=error)
        self._failure = error if isinstance(error, ZkConsumerError) else MigrationError(f"{name} died: {error!r}")
