"""The calls of a query in a group that has migrated to Kafka's coordinator.

The coordinator's generation is the fence here: the coordinator accepts a commit for a partition only from its owner.
Records of claims stay in ZooKeeper (``bridge.spark.claims.kafka_claims``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from bridge.spark.claims import ClaimContext, ClaimReport, OnRewind
from bridge.spark.claims.kafka_claims import (
    KafkaCommittedOffset,
    begin_claims,
    claimed_ends,
    commit_metadata,
    settle_claims,
)
from bridge.spark.group_membership import NO_OFFSET, BatchAssignment, CommitMode, GroupOffset, RangeToClaim
from bridge.spark.membership.batch_membership import NOT_OWNED_MESSAGE, BatchMembership
from bridge.spark.membership.blocking_calls import WRITE_RESERVE_MS
from bridge.spark.membership.blocking_procedure import ANSWER_RESERVE_MS, STEP_TIMEOUT_MIN_MS, run_blocking
from bridge.spark.membership.coordinator_setup import CoordinatorMembershipSetup, MigrationProtocols
from bridge.spark.membership.exclusive_takeover import not_exclusive_error
from zkconsumer.base.clock import Clock
from zkconsumer.kafka.group.errors import InconsistentGroupProtocolException
from zkconsumer.kafka.group.events import Offset
from zkconsumer.types import TopicPartition
from zkconsumer.zk.group_procedures import Procedure

if TYPE_CHECKING:
    from bridge.spark.membership.process_settings import MembershipProcessSettings
    from zkconsumer.errors import ZkConsumerError

T = TypeVar("T")

EMPTY_ASSIGNMENT_MS = 10_000
"""How long an empty assignment does not count as complete: members learn by heartbeat that another one joined (3 s),
and may need 5 s to drain."""


class CoordinatorBatchMembership(BatchMembership):
    """A member of a coordinator group.  ``control_version``: the version of the control znode, for every write."""

    authority = "the coordinator"

    def __init__(
        self,
        settings: MembershipProcessSettings,
        opened: CoordinatorMembershipSetup,
        clock: Clock,
        control_version: Callable[[], int | None],
    ) -> None:
        super().__init__(settings, opened, clock)
        self._coordinator_setup = opened
        self._membership = opened.membership
        self._control_version = control_version
        self._has_left = False
        self._empty_since_ms: int | None = None
        """Since when it is in a generation without an assignment, in ms."""

    def is_blocked_by_placeholder(self, error: ZkConsumerError) -> bool:
        return isinstance(error, InconsistentGroupProtocolException) and not self.had_assignment

    def update_protocols(self, protocols: MigrationProtocols) -> None:
        """Offer them, if they have changed."""
        if protocols != self._coordinator_setup.offered_protocols:
            self._coordinator_setup.update_protocols(protocols)

    def open(self) -> None:
        """Become a member; raises what ``CoordinatorMembershipSetup.join`` raises."""
        self._coordinator_setup.join(self._calls.pause)

    def leave(self) -> bool:
        self._has_left = True
        return super().leave()

    def abandon(self) -> bool:
        """Leaves the group at the coordinator: otherwise it would wait for the whole session timeout of this member."""
        if not (self._has_left or self._is_closed) and self._coordinator_setup.is_started and self.failure is None:
            return self.leave()
        return super().abandon()

    @property
    def had_assignment(self) -> bool:
        """Whether it ever had an assignment."""
        return self._meters.is_assignment_complete or len(self._leases) > 0 or self._meters.rebalances > 0

    # --- the calls ----------------------------------------------------------------------------------------------

    def group_offsets(
        self, partitions: Collection[TopicPartition], query: str, until_ms: int
    ) -> dict[TopicPartition, GroupOffset]:
        self._check()
        wanted = list(partitions)
        ends: dict[TopicPartition, int | None] = dict.fromkeys(wanted)
        if self._settings.mode is CommitMode.CLAIM:
            # Read records before offsets: only this query writes records, so a difference comes from other members.
            look = partial(claimed_ends, self._coordinator_setup.group, query, wanted)
            ends = self._calls.retry(lambda: self._run(look(), until_ms), until_ms)
        found = self._committed(wanted, until_ms)
        return {tp: GroupOffset(NO_OFFSET if (at := found[tp].offset) is None else at, ends[tp]) for tp in wanted}

    def seek(self, offsets: Mapping[TopicPartition, int], until_ms: int) -> dict[TopicPartition, str]:
        self._check()
        if self._settings.mode is CommitMode.NONE:
            return dict.fromkeys(offsets, "group.offsets.commit=none does not commit")
        held = self._calls.on_event_loop(
            lambda: {tp: e for tp, e in self._leases.epochs.items() if tp in offsets}, until_ms
        )
        wanted = {tp: offsets[tp] for tp in held}
        left_ms = self._calls.remaining_ms(until_ms) - ANSWER_RESERVE_MS
        not_written = self._membership.commit(wanted, left_ms) if wanted else {}
        placed = {tp: offset for tp, offset in wanted.items() if tp not in not_written}
        self._calls.on_event_loop(lambda: self._offsets_written(placed, held), until_ms)
        refused = dict.fromkeys(offsets.keys() - held.keys(), NOT_OWNED_MESSAGE)
        return refused | {tp: str(why) for tp, why in not_written.items()}

    # --- steps --------------------------------------------------------------------------------------------------

    def _is_assignment_complete(self) -> bool:
        """False in a generation that is ending: a partition that is being revoked is in no assignment.

        With the cooperative protocol members revoke in one generation, and a new member gets partitions in the next
        one.
        """
        status = self._membership.assignment_status()
        if not (super()._is_assignment_complete() and status.is_stable and not self._leases.draining):
            self._empty_since_ms = None
            return False
        if len(self._leases) or not status.is_cooperative:
            return True
        now_ms = self._clock.now_ms()
        if self._empty_since_ms is None:
            self._empty_since_ms = now_ms
        return now_ms - self._empty_since_ms >= EMPTY_ASSIGNMENT_MS

    def _check_assignment(self, holding: BatchAssignment) -> None:
        """A query that takes over a whole group owns all partitions, unless another member exists."""
        missing = sum(holding.partition_counts.values()) - len(holding.partitions)
        if self._settings.is_takeover and holding.is_complete and missing > 0:
            raise not_exclusive_error(self._coordinator_setup.group, [f"members that have {missing} partitions"])

    def _after_claims(self, report: ClaimReport, until_ms: int) -> None:
        """Does nothing: Kafka accepted the offsets before the claims counted."""

    def _write_claims(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, RangeToClaim], until_ms: int
    ) -> ClaimReport:
        """A partition is not released before its claim is settled, also when the query ends meanwhile: for a claim that
        was begun and is not settled, the next run could not find out whether others have read it."""
        self._require_registered()
        held = self._calls.on_event_loop(lambda: self._leases.begin_claim(ranges), until_ms)
        taken: dict[TopicPartition, int] = {}
        try:
            committed = self._committed(list(ranges), until_ms)
            claimant = ClaimContext(
                self._coordinator_setup.group,
                query,
                self._settings.run,
                self._calls.session_id(),
                held,
                self._control_version(),
                OnRewind(self._settings.on_rewind),
                {},
                self._coordinator_setup.security.acl,
                self._clock.wall_ms(),
            )
            report, begun, runs_version = self._run(begin_claims(claimant, batch, ranges, committed), until_ms)
            if begun:
                offsets = {
                    tp: Offset(one.claim.end, -1, commit_metadata(query, one.claim)) for tp, one in begun.items()
                }
                is_held = lambda tp: self._leases.has(tp, held[tp])  # noqa: E731
                refused, silent = self._membership.commit_once(offsets, is_held, self._commit_timeout_ms(until_ms))
                taken = {
                    tp: one.claim.end for tp, one in begun.items() if tp not in {**refused, **dict.fromkeys(silent)}
                }
                report.merge(
                    self._run(
                        settle_claims(
                            claimant, batch, begun, refused=refused, unconfirmed=silent, runs_version=runs_version
                        ),
                        until_ms,
                    )
                )
            report.result()
            return report
        finally:
            self._membership.event_loop.call_soon(lambda: self._end_claim(held, taken))

    def _end_claim(self, held: Mapping[TopicPartition, int], taken: Mapping[TopicPartition, int]) -> None:
        self._offsets_written(taken, held)
        self._processor.end_claim(held)

    def _offsets_written(self, offsets: Mapping[TopicPartition, int], held: Mapping[TopicPartition, int]) -> None:
        for tp, offset in offsets.items():
            self._leases.set_group_offset(tp, held[tp], offset)

    def _committed(self, partitions: list[TopicPartition], until_ms: int) -> dict[TopicPartition, KafkaCommittedOffset]:
        if not partitions:
            return {}
        found = self._membership.committed(partitions, self._commit_timeout_ms(until_ms))
        return {
            tp: KafkaCommittedOffset(None) if at is None else KafkaCommittedOffset(at.offset, at.metadata)
            for tp, at in found.items()
        }

    def _commit_timeout_ms(self, until_ms: int) -> int:
        return max(STEP_TIMEOUT_MIN_MS, self._calls.remaining_ms(until_ms) - WRITE_RESERVE_MS)

    def _run(self, procedure: Procedure[T], until_ms: int) -> T:
        return run_blocking(self._coordinator_setup.store, self._calls.session_id(), procedure, until_ms, self._clock)
