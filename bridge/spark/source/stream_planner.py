"""Plans and claims the batches of a stream: executes the decisions of ``bridge.spark.source.micro_batch_plan``.

    plan_next_batch   begin_batch -> [group offsets] -> log ends -> [seek] -> planned   the next batch, or None
                      GroupMigratingError, from any of them                             one empty batch that reports it
    claim_ranges      claim                                                             the ranges that may be read

It opens no connection before it needs one: Spark creates the source in several processes and plans in one of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bridge.spark.claims.claim_decision import OnRewind
from bridge.spark.claims.claim_messages import group_rewound_message
from bridge.spark.decode.arrow_decoder import python_decoder_reason, warn_if_not_compiled
from bridge.spark.decode.offset_ranges import DataLost, OffsetRange
from bridge.spark.group_membership import (
    NO_OFFSET,
    BatchAssignment,
    BatchEnd,
    ClaimedRange,
    CommitMode,
    GroupMembership,
    RangeToClaim,
)
from bridge.spark.offset_range_limits import (
    GroupOffsetRangeLimit,
    SpecificOffsetRangeLimit,
    SpecificTimestampRangeLimit,
    check_all_partitions_named,
    format_partition_list,
    late_timestamp_message,
)
from bridge.spark.options import SourceOptions, SubscribedTopics
from bridge.spark.source import micro_batch_plan
from bridge.spark.source.batch_limits import BatchLimits
from bridge.spark.source.batch_ranges_file import (
    StreamBatchRanges,
    read_skipped_offsets,
    sees_stop,
    write_batch_ranges,
)
from bridge.spark.source.dependencies import SourceDependencies, bootstrap_brokers_of
from bridge.spark.source.rate_limit import RateLimiter
from bridge.spark.source.retrying_log_reader import RetryingLogReader
from bridge.spark.source.skip_offsets import ranges_to_read
from bridge.spark.source.stream_offset import BatchOffsets, Stats
from zkconsumer.errors import GroupMigratingError, GroupRewound, UnavailableError, UsageError
from zkconsumer.types import BrokerAddress, TopicPartition

FIRST_ASSIGNMENT_WAIT_MS = 30_000
"""How long the first batch of a process waits for the group to give this query its complete assignment."""

AVAILABLE_NOW_ASSIGNMENT_WAIT_MS = 120_000
"""The same with Trigger.AvailableNow, which would end without the records of missing partitions."""

MIGRATION_POLL_MS = 500
"""The pause before Trigger.AvailableNow asks a migrating group again."""

BEYOND_END_TRIES = 3
BEYOND_END_PAUSE_MS = 1_000
"""How often, and after which pause, the end of a log is requested again when it seems to have decreased: a new leader
can report a smaller end for a moment (KAFKA-7703; Spark's Kafka source also uses three times and 1 s)."""

SHOWN_MAX = 10
"""How many partitions one log line names."""

log = logging.getLogger("zkconsumer.spark")


class StreamPlanner:
    """Plans the batches of one query; one thread.

    ``log_ends``: the ends of the logs of the partitions of the last planned batch.
    """

    def __init__(self, options: SourceOptions, dependencies: SourceDependencies) -> None:
        self.log_ends: Mapping[TopicPartition, int] = {}
        self._options = options
        self._dependencies = dependencies
        self._membership: GroupMembership | None = None
        self._logs: RetryingLogReader | None = None
        self._is_available_now = False
        self._frozen: dict[TopicPartition, int] | None = None
        """With Trigger.AvailableNow: partition -> the end of this run; None before the first batch."""
        self._to_freeze: frozenset[TopicPartition] = frozenset()
        """The partitions whose log end was unknown then: the first end that is read later is used."""
        self._has_begun = False
        self._refused: frozenset[TopicPartition] = frozenset()
        """Partitions whose claim was refused in the last batch: the next batch reads the group's offset of them."""
        # The offsets that ``skipOffsets`` removed from the last batch; 0 once the offset of a later batch counts them.
        self._skipped = 0
        self._rate_limiter = RateLimiter(options, dependencies.clock)
        self._logged: set[str] = set()
        reset = options.config.auto_offset_reset
        self._rules = micro_batch_plan.PositionRules(
            options.starting_limit, reset == "smallest", options.commit_mode, OnRewind(options.on_group_rewind),
            options.fail_on_data_loss, options.is_last_consumed, options.fail_on_late_timestamp,
            options.config.new_partitions_from_beginning,
        )  # fmt: skip

    def freeze_end_offsets(self) -> None:
        """From now on the query ends where the logs end at the first ``plan_next_batch`` (Trigger.AvailableNow)."""
        self._is_available_now = True

    def plan_next_batch(self, last_batch: BatchOffsets | None, *, is_unlimited: bool) -> BatchOffsets | None:
        """The batch after ``last_batch``, which has ended; None without new records, or if the program ends."""
        folder = self._options.batch_ranges_path
        if folder is not None and sees_stop(folder):
            return None
        until_ms = self._dependencies.clock.now_ms() + AVAILABLE_NOW_ASSIGNMENT_WAIT_MS
        while True:
            try:
                return self._planned(last_batch, is_unlimited=is_unlimited)
            except GroupMigratingError as moves:
                if not self._is_available_now:
                    return self._paused_batch(last_batch, moves)
                if self._dependencies.clock.now_ms() >= until_ms:
                    raise UnavailableError(
                        f"{moves}. Trigger.AvailableNow would leave records unread: start the query again when the "
                        f"migration has ended (zkconsumer migrate status {self._options.config.group_id}); it "
                        "continues from its checkpoint"
                    ) from moves
                self._dependencies.pause(MIGRATION_POLL_MS)

    def _paused_batch(self, last_batch: BatchOffsets | None, moves: GroupMigratingError) -> BatchOffsets | None:
        """No batch is planned while the group is migrating.  One empty batch reports this in the query's progress, and
        that the query owns no partition; the ends of the logs stay known."""
        if self._is_first_time(str(moves)):
            log.warning("query-paused reason=%r", str(moves))
        self.log_ends = {tp: known.end for tp, known in self._ask(list(self.log_ends), {}).items()}
        if last_batch is None or last_batch.stats.waiting_for_migration:
            return None
        stats = replace(
            last_batch.stats,
            waiting_for_migration=True,
            skipped_offsets=last_batch.stats.skipped_offsets + self._skipped_offsets(last_batch),
        )
        self._skipped = 0
        return replace(last_batch, batch=last_batch.batch + 1, first={}, claims={}, stats=stats)

    def _planned(self, last_batch: BatchOffsets | None, *, is_unlimited: bool) -> BatchOffsets | None:
        member = self._member()
        holding = self._begin(member, last_batch)
        batch, lent = self._next(member, last_batch, holding, is_unlimited)
        member.batch_planned(lent)
        if batch is not None:
            self._refused = frozenset()
            self._skipped = 0
            self._rate_limiter.batch_started()
        return batch

    def _skipped_offsets(self, last_batch: BatchOffsets) -> int:
        """The offsets of the last batch that ``skipOffsets`` removed, and those that the program skipped besides."""
        folder = self._options.batch_ranges_path
        if folder is None:
            return self._skipped
        return read_skipped_offsets(folder, last_batch.query, last_batch.batch, self._skipped)

    def claim_ranges(self, batch: BatchOffsets) -> list[OffsetRange]:
        """The ranges of a batch to read: with ``claim`` those that could be claimed, without ``skipOffsets``.

        Skipped offsets are claimed and committed like the others, so the group continues after them.
        """
        ranges = {tp: (first, batch.end[tp]) for tp, first in batch.first.items() if first < batch.end[tp]}
        if self._options.commit_mode is CommitMode.CLAIM:
            ranges = self._claimed(self._member(), batch, ranges)
        planned = [OffsetRange(tp, first, end) for tp, (first, end) in sorted(ranges.items())]
        wanted, self._skipped = ranges_to_read(planned, self._options.skip_offsets)
        if self._options.batch_ranges_path is not None:
            found = StreamBatchRanges(
                batch.group, batch.query, batch.batch, batch.mode.value, tuple(planned), self._skipped
            )  # fmt: skip
            write_batch_ranges(self._options.batch_ranges_path, found)
        return wanted

    def brokers(self) -> list[BrokerAddress]:
        """The addresses of the brokers: from the options, or from ZooKeeper."""
        return bootstrap_brokers_of(self._options) or self._member().brokers()

    def close(self) -> None:
        """Leave the group, and end every connection."""
        if self._membership is not None:
            self._membership.close()
            self._membership = None
        if self._logs is not None:
            self._logs.close()
            self._logs = None

    # --- planning -----------------------------------------------------------------------------------------------

    def _begin(self, member: GroupMembership, last_batch: BatchOffsets | None) -> BatchAssignment:
        """The last batch has been read; returns the partitions that may be planned now."""
        ended: dict[TopicPartition, BatchEnd] = {}
        if last_batch is not None:
            ended = {tp: BatchEnd(epoch, last_batch.end[tp]) for tp, epoch in last_batch.claims.items()}
        if self._is_available_now:
            # Also in the middle of a run: an assignment that shrinks would end it early.
            wait_ms = AVAILABLE_NOW_ASSIGNMENT_WAIT_MS
        else:
            wait_ms = 0 if self._has_begun else FIRST_ASSIGNMENT_WAIT_MS
        holding = member.begin_batch(ended, wait_ms)
        if last_batch is None and not holding.is_complete and not any(holding.partition_counts.values()):
            self._raise_topics_unknown(wait_ms)
        self._check_topics(last_batch, holding)
        if not holding.is_complete and (self._is_available_now or not self._has_begun):
            self._report_incomplete_assignment(holding, wait_ms)
        self._has_begun = True
        return holding

    def _raise_topics_unknown(self, wait_ms: int) -> None:
        config = self._options.config
        if isinstance(self._options.topic_selection, SubscribedTopics):
            servers = config.bootstrap_servers
            where = f"ZooKeeper at {config.zookeeper_connect}" if servers is None else f"the brokers at {servers}"
            settings = "zookeeper.connect"
            if servers is not None:
                settings = "kafka.bootstrap.servers, and kafka.security.protocol with its port"
            silent = "" if servers is None else self._log_reader().unreachable_reason()
            why = f" ({silent})" if silent else ""
            raise UnavailableError(
                f"{where} did not return the list of topics within {wait_ms} ms{why}: check that the servers run and "
                f"can be reached from the driver; check {settings}"
            )

    def _report_incomplete_assignment(self, holding: BatchAssignment, wait_ms: int) -> None:
        group = self._options.config.group_id
        if self._is_available_now:
            raise UnavailableError(
                f"the group {group} did not give this query its complete assignment within {wait_ms} ms, so a run of "
                "Trigger.AvailableNow would leave records unread. Another member does not release partitions, or ended "
                f"without releasing them: zkconsumer groups doctor {group} names it"
            )
        log.warning(
            "assignment-wait-timeout group=%s held=%d waited_ms=%d: the query starts with the partitions that it has",
            group, len(holding.partitions), wait_ms,
        )  # fmt: skip

    def _check_topics(self, last_batch: BatchOffsets | None, holding: BatchAssignment) -> None:
        """Topics that do not exist, and topics that were deleted."""
        there = {topic for topic, count in holding.partition_counts.items() if count}
        subscribed = self._options.topic_selection
        missing = (
            [topic for topic in subscribed.topics if topic not in there]
            if isinstance(subscribed, SubscribedTopics)
            else []
        )
        if missing and last_batch is None:
            raise UsageError(
                f"topic {', '.join(missing)} does not exist in the cluster of {self._options.config.zookeeper_connect}"
                ": create it, correct the name in subscribe, or use subscribePattern for topics that are created later"
            )
        gone = sorted({tp.topic for tp in (last_batch.claims if last_batch is not None else ())} - there)
        # A membership process that was restarted, or has lost its session, has not yet read which topics exist.
        if not gone or not holding.is_complete:
            return
        words = self._missing_topics_message(gone)
        if self._options.fail_on_data_loss:
            raise UnavailableError(words)
        if self._is_first_time(words):
            log.warning("topic-missing topics=%s: the query loses the records that it has not read", ",".join(gone))

    def _missing_topics_message(self, gone: Sequence[str]) -> str:
        """Why topics of the checkpoint are missing, and how to get them back."""
        subscribed = self._options.topic_selection
        names, others = ", ".join(gone), "set failOnDataLoss=false to continue without it and its unread records"
        if isinstance(subscribed, SubscribedTopics) and not set(gone) & set(subscribed.topics):
            return (
                f"this query has read the topic {names}, which the options no longer name: name it again, or {others}"
            )
        pattern = "" if isinstance(subscribed, SubscribedTopics) else ", or the pattern no longer matches it"
        return (
            f"this query has read the topic {names}, and the topic was deleted{pattern}: restore it, or give the query "
            f"a checkpointLocation of its own, or {others}"
        )

    def _next(
        self, member: GroupMembership, last_batch: BatchOffsets | None, holding: BatchAssignment, is_unlimited: bool
    ) -> tuple[BatchOffsets | None, list[TopicPartition]]:
        """The next batch, or None; and its partitions."""
        self._check_starting(last_batch, holding)
        resolved, logs = self._resolved(member, last_batch, holding)
        ends = self._ends(logs, holding)
        kept = {tp: at for tp, at in resolved.positions.items() if tp in ends}
        for tp, why in self._seek(member, {tp: at for tp, at in resolved.seeks.items() if tp in kept}).items():
            if self._is_available_now:
                raise UnavailableError(
                    f"{tp}: the starting offset of this query cannot be committed to the group: {why}. "
                    "Trigger.AvailableNow would end without its records: start the query again"
                )
            log.warning("group-offset-not-set partition=%s offset=%d reason=%r", tp, resolved.seeks[tp], why)
            del kept[tp]
        self.log_ends = {tp: ends[tp] for tp in kept}
        limits = BatchLimits() if is_unlimited else self._limits(kept, ends)
        before = last_batch.stats if last_batch is not None else Stats()
        lost = before.lost_offsets + sum(each.offsets for each in resolved.lost)
        skipped = self._skipped if last_batch is None else self._skipped_offsets(last_batch)
        stats = Stats(
            holding.rebalances, lost, skipped_offsets=before.skipped_offsets + skipped,
            python_decoder=python_decoder_reason() is not None,
        )  # fmt: skip
        name = last_batch.query if last_batch is not None else self._dependencies.new_query()
        who = micro_batch_plan.BatchIdentity(self._options.config.group_id, name, self._options.commit_mode)
        resolved = micro_batch_plan.ResolvedPositions(kept, {}, resolved.lost, {}, resolved.waiting)
        batch = micro_batch_plan.next_batch(who, last_batch, holding, resolved, ends, limits, stats)
        if batch is None:
            return None, []
        return batch, [tp for tp, at in kept.items() if at.must_be_checkpointed or batch.end[tp] > at.offset]

    def _check_starting(self, last_batch: BatchOffsets | None, holding: BatchAssignment) -> None:
        """JSON must name every partition and no other, as Spark's Kafka source requires."""
        starting = self._options.starting_limit
        problem = ""
        if last_batch is None and isinstance(starting, SpecificOffsetRangeLimit):
            problem = check_all_partitions_named("startingOffsets", starting.offsets, _every(holding))
        elif last_batch is None and isinstance(starting, SpecificTimestampRangeLimit):
            problem = check_all_partitions_named("startingOffsetsByTimestamp", starting.times_ms, _every(holding))
        if problem:
            raise UsageError(problem)

    def _resolved(
        self, member: GroupMembership, last_batch: BatchOffsets | None, holding: BatchAssignment
    ) -> tuple[micro_batch_plan.ResolvedPositions, dict[TopicPartition, micro_batch_plan.LogBounds]]:
        """The position of each partition, and its log."""
        asked = micro_batch_plan.needs_group_offsets(last_batch, holding, self._rules, self._refused)
        query = last_batch.query if last_batch is not None else ""
        committed = member.group_offsets(asked, query) if asked else {}
        found = micro_batch_plan.start_positions(last_batch, holding, self._rules, committed, self._refused)
        for tp, rewound in found.rewound.items():
            raise GroupRewound(
                group_rewound_message(self._options.config.group_id, tp, rewound.offset, rewound.claimed)
            )
        times = {
            tp: rule.timestamp
            for tp, rule in found.known.items()
            if isinstance(rule, micro_batch_plan.PositionByTimestamp) and rule.timestamp >= 0
        }
        logs = self._ask(list(found.known), times)
        self._log_offset_resets(last_batch, found, holding)
        resolved = micro_batch_plan.resolve_positions(found, logs, holding, self._rules)
        for _ in range(BEYOND_END_TRIES - 1):
            beyond = micro_batch_plan.beyond_end(found, logs)
            if not beyond:
                break
            self._dependencies.pause(BEYOND_END_PAUSE_MS)
            logs |= self._ask(beyond, times)
            resolved = micro_batch_plan.resolve_positions(found, logs, holding, self._rules)
        self._check_resolved(last_batch, resolved)
        return resolved, logs

    def _log_offset_resets(
        self, last_batch: BatchOffsets | None, found: micro_batch_plan.StartPositions, holding: BatchAssignment
    ) -> None:
        """A new query starts from the group's offsets; log where it starts in partitions without an offset of the
        group."""
        if last_batch is not None or not isinstance(self._options.starting_limit, GroupOffsetRangeLimit):
            return
        without = sorted(tp for tp in found.known if holding.partitions[tp].offset == NO_OFFSET)
        if not without:
            return
        reset = self._options.config.auto_offset_reset
        where = "start" if reset == "smallest" else "end"
        some = format_partition_list(without)
        if self._is_first_time(f"no offset of {some}"):
            log.warning(
                "starting-offsets group=%s remark='%s: the group has no offset: read from the %s of the log "
                "(auto.offset.reset=%s)'",
                self._options.config.group_id, some, where, reset,
            )  # fmt: skip

    def _ask(
        self, partitions: Sequence[TopicPartition], times: Mapping[TopicPartition, int], *, are_held: bool = True
    ) -> dict[TopicPartition, micro_batch_plan.LogBounds]:
        """The logs of these; partitions with an unknown log are not in the batch."""
        return self._log_reader().read_bounds(partitions, times, needs_all=self._is_available_now and are_held)

    def _check_resolved(self, last_batch: BatchOffsets | None, resolved: micro_batch_plan.ResolvedPositions) -> None:
        """Raises for what ``failOnDataLoss`` and ``startingOffsetsByTimestampStrategy`` do not allow."""
        if resolved.late:
            raise UsageError(late_timestamp_message(resolved.late))
        for lost in resolved.lost:
            if self._options.fail_on_data_loss:
                named = self._options.starting_limit if last_batch is None else None
                raise _data_lost(lost, is_named=isinstance(named, SpecificOffsetRangeLimit))
        for lost in resolved.lost:
            values = lost.tp, lost.wanted, lost.log.first, lost.log.end
            if lost.tp not in resolved.waiting:
                log.warning("data-lost partition=%s wanted=%d first=%d end=%d lost_offsets=%d", *values, lost.offsets)
            elif self._is_first_time(f"{lost}"):
                log.warning(
                    "log-end-decreased partition=%s wanted=%d first=%d end=%d: not read until the end is past wanted",
                    *values,
                )

    def _ends(
        self, logs: Mapping[TopicPartition, micro_batch_plan.LogBounds], holding: BatchAssignment
    ) -> dict[TopicPartition, int]:
        """The limit of each partition: the end of its log for this query, or that end when the query started."""
        ends = {tp: log.readable_end for tp, log in logs.items()}
        if not self._is_available_now:
            return ends
        if self._frozen is None:
            every = _every(holding)
            rest = self._ask([tp for tp in every if tp not in ends], {}, are_held=False)
            self._frozen = ends | {tp: log.readable_end for tp, log in rest.items()}
            self._to_freeze = frozenset(every) - self._frozen.keys()
        # The ends of these were unknown when the query started, and the query owns them now.
        self._frozen |= {tp: end for tp, end in ends.items() if tp in self._to_freeze and tp not in self._frozen}
        return {tp: self._frozen[tp] for tp in ends if tp in self._frozen}

    def _seek(self, member: GroupMembership, seeks: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, str]:
        """Commit the start of a partition to the group: a claim must find it there, and so must the next start."""
        if not seeks:
            return {}
        not_written = member.seek(seeks)
        written = {tp: offset for tp, offset in seeks.items() if tp not in not_written}
        if written:
            some = ", ".join(f"{tp} to {written[tp]}" for tp in sorted(written)[:SHOWN_MAX])
            log.warning(
                "group-offset-set partitions=%d: %s%s", len(written), some, "…" if len(written) > SHOWN_MAX else ""
            )
        return not_written

    def _limits(
        self, kept: Mapping[TopicPartition, micro_batch_plan.OffsetPosition], ends: Mapping[TopicPartition, int]
    ) -> BatchLimits:
        first = {tp: at.offset for tp, at in kept.items()}
        return self._rate_limiter.limits(
            first,
            ends,
            lambda tp, offset: self._log_reader().sample_bytes_per_offset(tp, offset),
            may_wait=not self._is_available_now,
        )

    # --- a batch ----------------------------------------------------------------------------------------------

    def _claimed(
        self, member: GroupMembership, batch: BatchOffsets, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The ranges that may be read.  The next batch continues refused ranges from the group's offset."""
        if not ranges:
            return {}
        wanted = {tp: RangeToClaim(first, end, batch.claims[tp]) for tp, (first, end) in ranges.items()}
        answers = member.claim(batch.query, batch.batch, wanted)
        taken = {tp: (one.first, one.end) for tp, one in answers.items() if isinstance(one, ClaimedRange)}
        self._refused = frozenset(ranges.keys() - taken.keys())
        return taken

    # --- external dependencies ----------------------------------------------------------------------------------

    def _member(self) -> GroupMembership:
        if self._membership is None:
            for option, why in self._options.warnings.items():
                log.warning("option-without-effect option=%s reason=%r", option, why)
            warn_if_not_compiled()
            self._membership = self._dependencies.membership(self._options)
        return self._membership

    def _log_reader(self) -> RetryingLogReader:
        if self._logs is None:
            logs = self._dependencies.logs(self._options, self.brokers)
            self._logs = RetryingLogReader(logs, self._dependencies.clock, self._dependencies.pause)
        return self._logs

    def _is_first_time(self, words: str) -> bool:
        """Whether this was not logged before; it would be repeated at every trigger."""
        is_new = words not in self._logged
        self._logged.add(words)
        return is_new


def _every(holding: BatchAssignment) -> list[TopicPartition]:
    """Every subscribed partition, also those that this query does not own."""
    return [TopicPartition(topic, n) for topic, count in holding.partition_counts.items() for n in range(count)]


def _data_lost(lost: micro_batch_plan.LostRecords, *, is_named: bool) -> UnavailableError:
    """``is_named``: the query is new, and the offset is from its ``startingOffsets``."""
    if is_named and lost.is_beyond_end:
        return UnavailableError(
            f"{lost.tp}: startingOffsets names offset {lost.wanted}, but the log ends at {lost.log.end}: correct "
            "startingOffsets (-1 is the end of the log), or set failOnDataLoss=false to start at the end of the log"
        )
    if not lost.is_beyond_end:
        return DataLost(OffsetRange(lost.tp, lost.wanted, lost.log.first), lost.log.first, lost.log.end)
    return UnavailableError(
        f"{lost.tp}: the query is at offset {lost.wanted}, but the log ends at {lost.log.end}. The topic was deleted "
        "and created again, or a leader without all records was elected. Give the query a checkpointLocation of its "
        "own to start from startingOffsets, or set failOnDataLoss=false to continue at the end of the log"
    )
