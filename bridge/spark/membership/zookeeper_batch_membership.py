"""The calls of a query in a ZooKeeper group."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from bridge.spark.claims import ClaimContext, ClaimReport, OnRewind, claim, read_group_offsets
from bridge.spark.group_membership import (
    NO_OFFSET,
    BatchAssignment,
    ClaimedRange,
    CommitMode,
    GroupOffset,
    RangeToClaim,
)
from bridge.spark.membership.batch_membership import NOT_OWNED_MESSAGE, BatchMembership
from bridge.spark.membership.blocking_procedure import ANSWER_RESERVE_MS
from bridge.spark.membership.exclusive_takeover import not_exclusive_error, threads_for
from bridge.spark.membership.metrics import MetricsServer, render_prometheus
from bridge.spark.membership.process_settings import NO_METRICS_ADDRESS, MembershipProcessSettings
from bridge.spark.membership.seek import seek
from bridge.spark.membership.zookeeper_setup import StoreFactory, ZooKeeperMembershipSetup
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.errors import (
    ConsumerRebalanceFailedException,
    UnavailableError,
    UsageError,
)
from zkconsumer.kafka.broker_connection import ConnectionFactory
from zkconsumer.kafka.offsets_channel import OffsetFetchOutcome
from zkconsumer.member.events import StoredOffset
from zkconsumer.member.offset_stores import OffsetStoreSelection
from zkconsumer.runtime.membership_config import offset_stores_of
from zkconsumer.types import TopicPartition
from zkconsumer.zk.group_procedures import Procedure

if TYPE_CHECKING:
    from bridge.spark.membership.coordinator_setup import MigrationProtocols

log = logging.getLogger("zkconsumer.membership")


class ZooKeeperBatchMembership(BatchMembership):
    """A member of a ZooKeeper group."""

    authority = "ZooKeeper"

    def __init__(
        self,
        settings: MembershipProcessSettings,
        *,
        clock: Clock = SYSTEM_CLOCK,
        make_store: StoreFactory | None = None,
        connect: ConnectionFactory | None = None,
    ) -> None:
        self._zookeeper_setup = ZooKeeperMembershipSetup(settings, clock, make_store, connect)
        super().__init__(settings, self._zookeeper_setup, clock)
        self._membership = self._zookeeper_setup.membership
        self._stores = offset_stores_of(self._zookeeper_setup.config)
        self._metrics: MetricsServer | None = None
        self._has_leased = False

    def open(self) -> None:
        """Become a member; raises the errors of ``ZooKeeperMembershipSetup.join``, and ``UsageError`` for
        ``metrics.listen``.
        """
        if self._settings.metrics_listen != NO_METRICS_ADDRESS:
            listen, died = self._settings.metrics_listen, self._membership.thread_died
            self._metrics = MetricsServer(listen, self._rendered, died)
            log.info("membership-metrics-served listen=%s port=%d", self._settings.metrics_listen, self._metrics.port)
        self._zookeeper_setup.join(self._calls.pause)

    def update_protocols(self, protocols: MigrationProtocols) -> None:
        """A ZooKeeper group has no protocols of members."""

    def abandon(self) -> bool:
        clean = super().abandon()
        if self._metrics is not None:
            self._metrics.close()
        return clean

    # --- the calls ----------------------------------------------------------------------------------------------

    def group_offsets(
        self, partitions: Collection[TopicPartition], query: str, until_ms: int
    ) -> dict[TopicPartition, GroupOffset]:
        self._check()
        wanted = list(partitions)
        found: dict[TopicPartition, GroupOffset] = dict.fromkeys(wanted, GroupOffset(NO_OFFSET, None))
        if self._stores.uses_zookeeper:
            group, turns = self._zookeeper_setup.group, self._calls
            look = partial(turns.run, lambda: read_group_offsets(group, query, wanted, self._topic_czxids()), until_ms)
            found = turns.retry(lambda: look().result(), until_ms)
        if self._stores.uses_kafka and self._settings.mode is not CommitMode.CLAIM:
            in_kafka = self._in_kafka(wanted, until_ms)
            found = {tp: GroupOffset(max(stand.offset, in_kafka[tp]), stand.claimed_end) for tp, stand in found.items()}
        return found

    def seek(self, offsets: Mapping[TopicPartition, int], until_ms: int) -> dict[TopicPartition, str]:
        self._check()
        if self._settings.mode is CommitMode.NONE:
            return dict.fromkeys(offsets, "group.offsets.commit=none does not commit")
        if self._stores.uses_zookeeper:
            refused = self._calls.retry(lambda: self._seek_in_zookeeper(offsets, until_ms), until_ms)
        else:
            refused = self._calls.on_event_loop(lambda: self._seek_kafka_only(offsets), until_ms)
        if self._stores.uses_kafka:
            committable = {tp: offset for tp, offset in offsets.items() if tp not in refused}
            failures = self._membership.commit(committable, self._calls.remaining_ms(until_ms))
            refused |= {tp: str(why) for tp, why in failures.items()}
        return refused

    def has_applied_control_version(self, control_version: int | None) -> bool:
        return self._membership.control_version == control_version

    # --- steps --------------------------------------------------------------------------------------------------

    def _check_assignment(self, holding: BatchAssignment) -> None:
        self._check_permanent_errors(holding)
        self._check_alone(holding)

    def _check_permanent_errors(self, holding: BatchAssignment) -> None:
        """A condition that only an operator can change raises an error, so that the query does not wait for it."""
        if not holding.is_complete and (why := self._status.blocked_reason):
            words = f"this query cannot be a member of group {self._zookeeper_setup.group}: {why}"
            raise ConsumerRebalanceFailedException(words)
        missing = sorted(self._status.missing_topics & set(self._settings.topics))
        if not self._has_leased and missing:
            words = (
                f"topic {missing[0]!r} does not exist: create it, or correct the topics that the query subscribes to"
            )
            raise UsageError(words)
        self._has_leased = self._has_leased or holding.is_complete

    def _after_claims(self, report: ClaimReport, until_ms: int) -> None:
        """Also commit to Kafka where both stores have the offsets."""
        if self._stores is OffsetStoreSelection.BOTH:
            held = self._calls.on_event_loop(lambda: set(self._leases.epochs), until_ms)
            taken = {tp: one.end for tp, one in report.results.items() if isinstance(one, ClaimedRange) and tp in held}
            self._membership.commit_async(taken)

    def _write_claims(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, RangeToClaim], until_ms: int
    ) -> ClaimReport:
        """A claimed partition is not released before its last write has an answer, without a time limit."""

        def made() -> Procedure[ClaimReport]:
            session_id = self._calls.session_id()
            self._require_registered()
            held = self._leases.begin_claim(ranges)
            claimant = ClaimContext(
                self._zookeeper_setup.group,
                query,
                self._settings.run,
                session_id,
                held,
                self._membership.control_version,
                OnRewind(self._settings.on_rewind),
                self._topic_czxids(),
                self._zookeeper_setup.security.acl,
                self._clock.wall_ms(),
            )
            try:
                report = yield from claim(claimant, batch, ranges)
                self._offsets_written(report.stored, held)
            finally:
                self._processor.end_claim(held)
            return report

        report = self._calls.run(made, until_ms)
        report.result()
        return report

    def _seek_in_zookeeper(self, offsets: Mapping[TopicPartition, int], until_ms: int) -> dict[TopicPartition, str]:
        """The same for a seek; returns the offsets that were not written."""
        opened = self._zookeeper_setup

        def made() -> Procedure[dict[TopicPartition, str]]:
            session_id, held = self._calls.session_id(), self._leases.begin_claim(offsets)
            version, wanted = self._membership.control_version, {tp: offsets[tp] for tp in held}
            refused = dict.fromkeys(offsets.keys() - held.keys(), NOT_OWNED_MESSAGE)
            if not wanted:
                return refused
            try:
                stored, why = yield from seek(
                    opened.group, session_id, wanted, control_version=version, acl=opened.security.acl
                )
                self._offsets_written(stored, held)
            finally:
                self._processor.end_claim(held)
            return refused | why

        return self._calls.run(made, until_ms)

    def _seek_kafka_only(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """With offsets only in Kafka: the known stored offsets are no longer valid, and the commit follows."""
        held = {tp: epoch for tp, epoch in self._leases.epochs.items() if tp in offsets}
        for tp, epoch in held.items():
            self._leases.set_group_offset(tp, epoch, offsets[tp])
        self._membership.offsets_overwritten(dict.fromkeys(held, StoredOffset()))
        return dict.fromkeys(offsets.keys() - held.keys(), NOT_OWNED_MESSAGE)

    def _offsets_written(
        self, stored: Mapping[TopicPartition, StoredOffset], epochs: Mapping[TopicPartition, int]
    ) -> None:
        """On the group's thread: record the new group offsets, where the ownership is still the same."""
        ours = {
            tp: one for tp, one in stored.items() if self._leases.set_group_offset(tp, epochs.get(tp, 0), one.offset)
        }
        if ours:
            self._membership.offsets_overwritten(ours)

    def _in_kafka(self, partitions: list[TopicPartition], until_ms: int) -> dict[TopicPartition, int]:
        """The offsets that the coordinator has stored; raises ``UnavailableError`` when it does not answer."""
        answers: list[OffsetFetchOutcome] = []
        settled = threading.Event()

        def done(fetched: OffsetFetchOutcome) -> None:
            answers.append(fetched)
            settled.set()

        timeout_ms = self._calls.remaining_ms(until_ms) - ANSWER_RESERVE_MS
        self._membership.fetch_kafka_offsets(partitions, timeout_ms, done)
        self._calls.wait_for(settled, until_ms, "the group's coordinator")
        failed = answers[0].failed
        if failed:
            tp, why = next(iter(sorted(failed.items())))
            raise UnavailableError(f"the group's coordinator did not return the offset of {tp}: {why}")
        return dict(answers[0].offsets)

    # --- takeover -----------------------------------------------------------------------------------------------

    def _check_alone(self, holding: BatchAssignment) -> None:
        """Raises ``GroupNotExclusive``; requests more threads when a topic has more partitions than threads."""
        if not self._settings.is_takeover:
            return
        group, status = self._zookeeper_setup.group, self._status
        if status.other_members:
            raise not_exclusive_error(group, status.other_members)
        if not holding.is_complete and status.not_acquired:
            raise not_exclusive_error(group, {f"{tp} ({why})" for tp, why in status.not_acquired.items()})
        if holding.is_complete and (threads := threads_for(holding.partition_counts)) > self._zookeeper_setup.threads:
            self._grow(threads)

    def _grow(self, threads: int) -> None:
        self._calls.session_id()  # without a session it raises, and the next batch tries again
        log.info("takeover-threads-raised threads=%d before=%d", threads, self._zookeeper_setup.threads)
        self._zookeeper_setup.threads = threads
        self._membership.change_subscription(self._settings.subscription(threads))

    # --- threads and deadlines ----------------------------------------------------------------------------------

    def _topic_czxids(self) -> Mapping[str, int]:
        """The czxids of the topics: an offset that is older than its topic is not valid."""
        is_used = self._zookeeper_setup.config.offsets_older_than_topic == "ignore"
        return self._membership.topic_czxids if is_used else {}

    def _rendered(self) -> str:
        return render_prometheus(self._zookeeper_setup.group, self._settings.consumer_id, self.observe())
