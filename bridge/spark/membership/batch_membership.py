"""``BatchMembership``: a query's membership in the group of one store; the parts that both stores have in common.

The calls run one after the other on the main thread of the membership process.  Code that changes the group runs on the
membership's own thread (``BlockingCalls``), so a step of a call is atomic for the group.  Every wait ends at the call's
deadline (``until_ms``), or when the query has ended.

    zookeeper_batch_membership.py    a ZooKeeper group
    coordinator_batch_membership.py  a coordinator group
    membership_switcher.py           selects one of the two while a group migrates
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from bridge.spark.group_membership import (
    BatchAssignment,
    BatchEnd,
    ClaimedRange,
    ClaimRefused,
    ClaimResult,
    CommitMode,
    GroupOffset,
    RangeToClaim,
)
from bridge.spark.membership.blocking_calls import POLL_MS, WRITE_RESERVE_MS, BlockingCalls, MembershipResources
from bridge.spark.membership.blocking_procedure import ANSWER_RESERVE_MS
from bridge.spark.membership.process_settings import MembershipProcessSettings
from zkconsumer.errors import UsageError, ZkTimeoutException
from zkconsumer.member.ownership import AssignmentStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.spark.claims import ClaimReport
    from bridge.spark.membership.batch_lease_processor import BatchLeaseProcessor
    from bridge.spark.membership.coordinator_setup import MigrationProtocols
    from bridge.spark.membership.metrics import BatchMembershipMeters
    from zkconsumer.base.clock import Clock
    from zkconsumer.errors import ZkConsumerError
    from zkconsumer.observe.counters import Counters
    from zkconsumer.types import BrokerAddress, TopicPartition
    from zkconsumer.zk.store import ZkStore

NOT_OWNED_MESSAGE = "this query does not own the partition"

log = logging.getLogger("zkconsumer.membership")


class MembershipSetup(MembershipResources, Protocol):
    """One query's membership with its resources; no connection is opened before ``join``."""

    meters: BatchMembershipMeters
    counters: Counters
    is_started: bool

    @property
    def processor(self) -> BatchLeaseProcessor: ...

    def join(self, pause: Callable[[int], bool]) -> None:
        """Connect and become a member; ``pause`` waits for so many ms, and returns True to stop joining."""

    def brokers(self) -> list[BrokerAddress]:
        """The current addresses of the brokers; raises ``UnavailableError``."""


class BatchMembership(ABC):
    """``open`` first, ``leave`` last; the calls in between as ``GroupMembership`` describes them.

    ``_is_confirmed``: whether ``authority`` confirmed the membership when the last batch began; None before the first.
    """

    authority: str
    """The server that confirms the membership, for a log line."""

    def __init__(self, settings: MembershipProcessSettings, setup: MembershipSetup, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._group_name = setup.group
        self._setup = setup
        self._processor = setup.processor
        self._calls = BlockingCalls(setup, clock)
        self._leases = self._processor.leases
        self._meters = setup.meters
        self._counters = setup.counters
        self._is_closed = False
        self._is_confirmed: bool | None = None
        self._status = AssignmentStatus({})
        """The state of the assignment when a batch was leased last."""
        self.should_wait_for_assignment: Callable[[], bool] = lambda: True
        """Whether to wait for a complete assignment: not while the group migrates."""
        self.is_registered: Callable[[], bool] = lambda: True
        """Whether the pipeline is registered in the current session; without it nothing is leased or claimed."""

    @abstractmethod
    def open(self) -> None:
        """Become a member; raises the error that prevents it."""

    @property
    def store(self) -> ZkStore:
        """The session with which it works."""
        return self._setup.store

    def is_blocked_by_placeholder(self, error: ZkConsumerError) -> bool:
        """Whether the reason is the placeholder member of a migration, which leaves soon and is still in the group."""
        return False

    @abstractmethod
    def update_protocols(self, protocols: MigrationProtocols) -> None:
        """The protocols that the members of a migrated group offer now."""

    def stop_waiting(self) -> None:
        """The query has ended: every wait in this object ends at once.  From any thread."""
        self._calls.query_gone.set()
        self._processor.end(None)

    def leave(self) -> bool:
        """Release all partitions, end the session and every thread; True when nothing is left in the group."""
        if self._is_closed:
            return True
        self._processor.is_ended = True
        self._setup.membership.event_loop.call_soon(self._processor.end_query)
        left = not self._setup.is_started or self._setup.membership.leave()
        return self.abandon() and left

    def abandon(self) -> bool:
        """End the session, and with it owner nodes and registration, and every thread: the fastest exit.

        No commit is needed: the offsets of ended batches were committed when they ended.
        """
        self._is_closed = True
        return self._setup.membership.close()

    # --- the calls ----------------------------------------------------------------------------------------------

    def begin_batch(self, ended: Mapping[TopicPartition, BatchEnd], wait_ms: int, until_ms: int) -> BatchAssignment:
        self.end_batch(ended, until_ms)
        self._wait_for_assignment(min(wait_ms, self._calls.remaining_ms(until_ms)))
        self._check()
        self._log_confirmation()
        holding = self._calls.on_event_loop(self._lease, until_ms)
        self._check_assignment(holding)
        return holding

    def end_batch(self, ended: Mapping[TopicPartition, BatchEnd], until_ms: int) -> None:
        """The batch that ``ended`` has finished: commit its offsets, and release partitions for which others wait."""
        self._check()
        to_write = self._calls.on_event_loop(partial(self._processor.end_batch, ended), until_ms)
        if to_write:
            self._write(to_write, until_ms)

    def planned(self, partitions: Collection[TopicPartition], until_ms: int) -> None:
        self._check()
        self._calls.on_event_loop(partial(self._processor.keep_planned, partitions), until_ms)

    @abstractmethod
    def group_offsets(
        self, partitions: Collection[TopicPartition], query: str, until_ms: int
    ) -> dict[TopicPartition, GroupOffset]:
        """See ``GroupMembership``."""

    def claim(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, RangeToClaim], until_ms: int
    ) -> dict[TopicPartition, ClaimResult]:
        """See ``GroupMembership``."""
        self._check()
        if self._settings.mode is not CommitMode.CLAIM:
            raise UsageError(f"group.offsets.commit={self._settings.mode.value} does not claim; set claim")
        self._wait_for_assignment(self._calls.remaining_ms(until_ms) - WRITE_RESERVE_MS)
        self._check()
        report = self._calls.retry(lambda: self._write_claims(query, batch, ranges, until_ms), until_ms)
        self._count_claims(ranges, report)
        self._after_claims(report, until_ms)
        return report.results

    @abstractmethod
    def seek(self, offsets: Mapping[TopicPartition, int], until_ms: int) -> dict[TopicPartition, str]:
        """See ``GroupMembership``."""

    def brokers(self) -> list[BrokerAddress]:
        self._check()
        return self._setup.brokers()

    def observe(self) -> dict[str, int]:
        """Counters and gauges, by name; works also after the membership has failed."""
        lending = self._leases
        gauges = {
            "owned_partitions": len(lending),
            "leased_partitions": len(lending.leased),
            "draining_partitions": len(lending.draining),
            "assignment_complete": int(self._meters.is_assignment_complete),
            "rebalances": self._meters.rebalances,
        }
        return self._counters.snapshot() | gauges

    def counter_totals(self) -> dict[str, int]:
        """Counters that the membership in the other group continues."""
        return self._counters.snapshot() | {"rebalances": self._meters.rebalances}

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended the membership, if one did."""
        return self._setup.membership.failure

    def has_applied_control_version(self, control_version: int | None) -> bool:
        """Whether its later writes are conditional on this version of the control znode."""
        return True

    @property
    def has_unfinished_batch(self) -> bool:
        """Whether a partition of ours would be released before the end of the batch that reads it is committed."""
        return self._leases.waits_for_batch and bool(self._leases.leased)

    # --- steps --------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self._calls.check()

    def _lease(self) -> BatchAssignment:
        """The partitions that may be planned now; on the group's thread."""
        self._status = self._setup.membership.assignment_status()
        partitions = self._processor.lease_all() if self.is_registered() else {}
        is_complete = self._is_assignment_complete()
        return BatchAssignment(partitions, is_complete, self._meters.rebalances, self._status.partition_counts)

    @abstractmethod
    def _check_assignment(self, holding: BatchAssignment) -> None:
        """A condition that only an operator can change raises an error, so that the query does not wait for it."""

    @abstractmethod
    def _write_claims(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, RangeToClaim], until_ms: int
    ) -> ClaimReport:
        """Write the claims; may be retried as a whole."""

    @abstractmethod
    def _after_claims(self, report: ClaimReport, until_ms: int) -> None:
        """Further writes after successful claims."""

    def _is_assignment_complete(self) -> bool:
        """Whether the complete assignment is certainly owned."""
        return self._meters.is_assignment_complete and self._setup.lease.is_valid and self.is_registered()

    def _require_registered(self) -> None:
        """Before a claim.  Raises ``ZkTimeoutException``: the claim is repeated, and the worker registers meanwhile."""
        if not self.is_registered():
            raise ZkTimeoutException("the pipeline is not registered in its new session yet; the call must be repeated")

    def _wait_for_assignment(self, timeout_ms: int) -> None:
        until_ms = self._clock.now_ms() + timeout_ms
        while not self._is_assignment_complete():
            left_ms = until_ms - self._clock.now_ms()
            if left_ms <= 0 or self._processor.is_ended or not self.should_wait_for_assignment():
                return
            self._processor.wait(self._is_assignment_complete, min(left_ms, POLL_MS))

    def _log_confirmation(self) -> None:
        """Without a confirmation no batch is planned, for an unlimited time; logs the start and the end of it once."""
        holds = self._setup.lease.is_valid
        if holds and self._is_confirmed is False:
            log.info("membership-confirmed group=%s by=%s", self._group_name, self.authority)
        elif self._is_confirmed and not holds:
            log.warning(
                "membership-unconfirmed group=%s by=%s: it does not answer; the query does not read until it answers",
                self._group_name, self.authority,
            )  # fmt: skip
        if holds or self._is_confirmed is not None:
            self._is_confirmed = holds

    def _write(self, ended: Mapping[TopicPartition, int], until_ms: int) -> None:
        """Offsets that cannot be committed now are in the next commit, while we own the partition."""
        refused = self._setup.membership.commit(ended, self._calls.remaining_ms(until_ms) - ANSWER_RESERVE_MS)
        if refused:
            self._counters.add("spark_offsets_not_written", len(refused))
            tp, why = next(iter(sorted(refused.items())))
            log.warning("spark-offsets-not-written partitions=%d first=%s reason=%r", len(refused), tp, str(why))

    def _count_claims(self, ranges: Mapping[TopicPartition, RangeToClaim], report: ClaimReport) -> None:
        refused = {tp: one.reason for tp, one in report.results.items() if isinstance(one, ClaimRefused)}
        taken = {tp: one for tp, one in report.results.items() if isinstance(one, ClaimedRange)}
        narrowed = [tp for tp, one in taken.items() if (one.first, one.end) != (ranges[tp].first, ranges[tp].end)]
        self._counters.add("spark_claims_taken", len(taken) - len(narrowed))
        self._counters.add("spark_claims_narrowed", len(narrowed))
        self._counters.add("spark_claims_refused", len(refused))
        self._counters.add("spark_rewinds_ignored", len(report.rewound))
        self._counters.add("spark_claims_ambiguous", len(report.ambiguous))
        for tp in narrowed:
            log.info("spark-claim-narrowed partition=%s wanted=%s taken=%s", tp, ranges[tp], taken[tp])
        for tp, why in refused.items():
            log.info("spark-claim-refused partition=%s reason=%r", tp, why)
        for tp, (found, claimed) in report.rewound.items():
            log.warning("spark-group-rewound partition=%s found=%d claimed=%d: overwritten", tp, found, claimed)
        for tp in report.ambiguous:
            log.warning("spark-claim-ambiguous partition=%s taken=%s: others may have read it, too", tp, taken.get(tp))
