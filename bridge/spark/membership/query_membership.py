r"""The calls of a query to its group, also while the group migrates.

A *side* is a membership of the query: in the ZooKeeper group, or in the coordinator group.  The query has the side that
the control znode gives the authority to, or none:

    phase of the control znode                                 membership of the query
    no migration; undone; with copy also planned               ZooKeeper group
    later phases before switched; with dual also planned       none
    switched, completed                                        coordinator group
    the same, and a rollback waits for members to leave        none
    undoing, returning, returned                               none

``MembershipSwitcher`` has the worker thread that watches the control znode and changes the side.  The worker leaves a
side when the batch that is being planned is planned and claimed, and (``afterBatch``) when the batch that is being read
has ended.  Until then the query uses that side, but at most ``FINISH_BATCH_TIMEOUT_MS``, because other members wait.
Without a side its calls raise ``GroupMigratingError``, which does not end the query, for at most
``MIGRATION_TIMEOUT_MS``.  Only a claim that was made before is answered, from its record.

A new side starts from the stored offsets: both stores have every offset when the authority changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from bridge.spark.group_membership import BatchAssignment, CommitMode
from bridge.spark.membership.membership_switcher import FINISH_BATCH_TIMEOUT_MS, TICK_MS, MembershipSwitcher
from bridge.spark.membership.membership_target import TargetGroup
from bridge.spark.membership.metrics import MetricsServer, render_prometheus
from bridge.spark.membership.process_settings import NO_METRICS_ADDRESS
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.base.threads import WorkerThread, spawn
from zkconsumer.errors import ConnectorClosed, GroupMigratingError, MigrationError, ZkConsumerError

if TYPE_CHECKING:
    from bridge.spark.group_membership import BatchEnd, ClaimResult, GroupOffset, RangeToClaim
    from bridge.spark.membership.batch_membership import BatchMembership
    from bridge.spark.membership.process_settings import MembershipProcessSettings
    from bridge.spark.membership.zookeeper_setup import StoreFactory
    from zkconsumer.kafka.broker_connection import ConnectionFactory
    from zkconsumer.types import BrokerAddress, TopicPartition

T = TypeVar("T")

MIGRATION_WAIT_MS, MIGRATION_WAIT_MAX_MS = 500, 2_000
"""How long a call waits for the migration, so that an idle query calls less often and still notices its end."""

MIGRATION_TIMEOUT_MS = 24 * 3_600_000
"""How long a query waits; then it ends with an error."""

log = logging.getLogger("zkconsumer.membership")


class QueryMembership(MembershipSwitcher):
    """``open`` first, ``leave`` last; the calls in between as ``GroupMembership`` describes them."""

    def __init__(
        self,
        settings: MembershipProcessSettings,
        *,
        clock: Clock = SYSTEM_CLOCK,
        make_store: StoreFactory | None = None,
        connect: ConnectionFactory | None = None,
    ) -> None:
        """Raises the errors of the settings."""
        super().__init__(replace(settings, metrics_listen=NO_METRICS_ADDRESS), clock, make_store, connect)
        self._listen = settings.metrics_listen
        self._worker: WorkerThread | None = None
        self._metrics: MetricsServer | None = None

    def open(self) -> None:
        """Become a member of the group that has the authority, or wait for it; raises the error that prevents it: for
        a pipeline also that another one reads the group."""
        if self._listen != NO_METRICS_ADDRESS:
            self._metrics = MetricsServer(self._listen, self._rendered, self._died)
            log.info("membership-metrics-served listen=%s port=%d", self._listen, self._metrics.port)
        self._standby.start()
        self._read_control()
        self._register_in(self._standby.store)
        if (wanted := self._target.group) is not TargetGroup.NONE:
            try:
                self._enter(wanted)
            except ZkConsumerError:
                self._read_control()
                if self._target.group is wanted:
                    raise
        self._log_if_waiting()
        self._worker = spawn("membership-switcher", self._run_switcher, self._died, wake=self._changed.set)

    def stop_waiting(self) -> None:
        """The query has ended: every wait in this object ends at once.  From any thread."""
        self._query_gone.set()
        self._changed.set()
        side = self._membership
        if side is not None:
            side.stop_waiting()

    def leave(self) -> bool:
        """Release all partitions, end the session and every thread; True when nothing is left in the group."""
        return self._end(lambda side: side.leave())

    def abandon(self) -> bool:
        """End the sessions and every thread: the fastest exit."""
        return self._end(lambda side: side.abandon())

    def _end(self, end: Callable[[BatchMembership], bool]) -> bool:
        self.stop_waiting()
        stopped = self._worker is None or self._worker.stop(FINISH_BATCH_TIMEOUT_MS)
        with self._call_lock:
            side, self._membership = self._membership, None
            clean = side is None or end(side)
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
        return self._standby.close() and clean and stopped

    # --- the calls ----------------------------------------------------------------------------------------------

    def begin_batch(self, ended: Mapping[TopicPartition, BatchEnd], wait_ms: int, until_ms: int) -> BatchAssignment:
        with self._call_lock:
            self._awaits_claim = False
            if self._membership is not None and self._is_leaving:
                side, until = self._membership, until_ms
                self._await_control_seen(side)
                self._translate_errors(lambda: side.end_batch(ended, until))
                self._translate_errors(lambda: side.planned((), until))
                self._is_planning = False  # also if an error ended the planning of the batch before
                self._changed.set()
            elif self._membership is not None and self._failure is None:
                return self._begin_batch_in(ended, wait_ms, until_ms)
        began_ms = self._clock.now_ms()
        until_ready_ms = min(began_ms + min(max(wait_ms, MIGRATION_WAIT_MS), MIGRATION_WAIT_MAX_MS), until_ms)
        while not self._is_ready:
            if self._clock.now_ms() >= until_ready_ms or self._query_gone.wait(TICK_MS / 1000):
                raise self._migrating_error()
        with self._call_lock:
            if self._membership is None or self._is_leaving or self._failure is not None:
                raise self._migrating_error()
            return self._begin_batch_in(ended, max(0, wait_ms - (self._clock.now_ms() - began_ms)), until_ms)

    def _begin_batch_in(self, ended: Mapping[TopicPartition, BatchEnd], wait_ms: int, until_ms: int) -> BatchAssignment:
        side = self._membership
        assert side is not None, "it was checked"
        holding = self._translate_errors(lambda: side.begin_batch(ended, wait_ms, until_ms))
        knows_nothing = self._has_switched_here and not any(holding.partition_counts.values())
        if not holding.is_complete and (self._is_leaving or knows_nothing):
            self._translate_errors(lambda: side.planned((), until_ms))
            raise self._migrating_error()
        self._is_planning = bool(holding.partitions)
        return replace(holding, rebalances=holding.rebalances + self._previous_counters.get("rebalances", 0))

    def planned(self, partitions: Collection[TopicPartition], until_ms: int) -> None:
        with self._call_lock:
            if (side := self._membership) is not None:
                self._translate_errors(lambda: side.planned(partitions, until_ms))
                self._awaits_claim = bool(partitions) and self._settings.mode is CommitMode.CLAIM
            self._is_planning = False

    def group_offsets(
        self, partitions: Collection[TopicPartition], query: str, until_ms: int
    ) -> dict[TopicPartition, GroupOffset]:
        return self._call_membership(lambda side: side.group_offsets(partitions, query, until_ms))

    def claim(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, RangeToClaim], until_ms: int
    ) -> dict[TopicPartition, ClaimResult]:
        with self._call_lock:
            try:
                return self._call_membership(lambda side: side.claim(query, batch, ranges, until_ms))
            except GroupMigratingError:
                return self._standby.replay_claims(query, batch, ranges, until_ms)
            finally:
                self._awaits_claim = False

    def seek(self, offsets: Mapping[TopicPartition, int], until_ms: int) -> dict[TopicPartition, str]:
        return self._call_membership(lambda side: side.seek(offsets, until_ms))

    def brokers(self) -> list[BrokerAddress]:
        try:
            return self._call_membership(lambda side: side.brokers())
        except GroupMigratingError:
            return self._standby.brokers()

    def observe(self) -> dict[str, int]:
        """Counters and gauges, by name; works also after the membership has failed."""
        side, found = self._membership, dict(self._previous_counters)
        for name, number in ({} if side is None else side.observe()).items():
            found[name] = found.get(name, 0) + number
        gauges = {
            "in_coordinator_group": int(self._current_group is TargetGroup.KAFKA),
            "waiting_for_migration": int(self._membership is None),
        }
        return found | gauges | {"group_switches": self._switches}

    # --- calls of a side ----------------------------------------------------------------------------------------

    @property
    def _is_ready(self) -> bool:
        return (self._membership is not None and not self._is_leaving) or self._failure is not None

    def _call_membership(self, ask: Callable[[BatchMembership], T]) -> T:
        with self._call_lock:
            side = self._membership
            if side is None or self._failure is not None:
                raise self._migrating_error()
            return self._translate_errors(lambda: ask(side))

    def _translate_errors(self, ask: Callable[[], T]) -> T:
        """The answer of a side; an error that the migration causes becomes ``GroupMigratingError``."""
        try:
            return ask()
        except ConnectorClosed:
            if self._failure is not None and not self._query_gone.is_set():
                raise self._failure from None
            raise
        except ZkConsumerError as error:
            side = self._membership
            is_blocked = side is not None and side.is_blocked_by_placeholder(error)
            if not (self._has_target_changed() or is_blocked):
                raise
            raise self._migrating_error() from error

    def _migrating_error(self) -> ZkConsumerError:
        """The error to raise without a side; the error that ended the membership, if there was one."""
        if self._failure is not None:
            return self._failure
        if self._query_gone.is_set():
            return ConnectorClosed("the query's membership process is leaving the group")
        group = self._settings.group
        words = f"group {group} is migrating, and the query does not read meanwhile: {self._wait_message()}"
        if self._clock.now_ms() - self._since_ms > MIGRATION_TIMEOUT_MS:
            return MigrationError(
                f"{words}. The query waited for {MIGRATION_TIMEOUT_MS // 3_600_000} hours: finish the migration or "
                f"roll it back (zkconsumer migrate status {group} shows how), and start the query again; it continues "
                "from its checkpoint"
            )
        return GroupMigratingError(words)

    def _rendered(self) -> str:
        return render_prometheus(self._settings.group, self._settings.consumer_id, self.observe())
