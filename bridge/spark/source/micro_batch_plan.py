"""Plans the next batch of a stream: the first offset of each partition, and the last one.  Pure.

    start_positions     start, holding, group offsets -> the position of each owned partition; some need a starting rule
    resolve_positions   those, log bounds -------------> every position, inside the log; or the lost records
    next_batch          positions, ends, limits -------> the offset of the next batch, or None: no new records

The position of a partition is that of the first row that applies:

    the query has no checkpoint                  the starting rule; ``group``: the group's offset, if it has one
    owned without interruption since the batch   the end of that batch, if it was read
    ``claim``                                    the group's offset *now*, or the end of our own claim
    ``afterBatch``, read before                  the larger of the end of our last batch and the group's offset
    ``none``, read before                        the end of our last batch
    never read before                            the group's offset
    the group has no offset                      the starting rule; the start of the log for partitions that were
                                                 created after the query began

In ``claim`` the planned end of a batch has no meaning once the ownership was interrupted: a range whose claim was
refused was never read, so the query must continue neither from its end nor from the larger of the two.

A position that no later run could compute again is *fixed*: it causes a batch, also an empty one, so that the
checkpoint contains it.  Otherwise a query that starts at the end of a log would start at another end at every trigger.

The larger of the two is correct only while the group's offset is not before records that neither the group nor the
query has processed.  So with ``afterBatch`` the group's offset is set back when the query continues before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bridge.spark.claims.claim_decision import OnRewind, RewoundBelowClaim, next_position
from bridge.spark.group_membership import FROM_BEGINNING, BatchAssignment, CommitMode, GroupOffset, LeasedPartition
from bridge.spark.offset_range_limits import (
    EarliestOffsetRangeLimit,
    GlobalTimestampRangeLimit,
    GroupOffsetRangeLimit,
    LatestOffsetRangeLimit,
    SpecificOffsetRangeLimit,
    SpecificTimestampRangeLimit,
    StartingLimit,
)
from bridge.spark.source.batch_limits import BatchLimits, apply_limits
from bridge.spark.source.stream_offset import BatchOffsets, Stats
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, TopicPartition


@dataclass(frozen=True, slots=True)
class PositionRules:
    """The options about positions.

    ``resets_to_earliest``: ``auto.offset.reset``.  ``fail_on_late_timestamp``: a starting time later than every record
    is an error.  ``new_from_beginning``: ``new.partitions.from.beginning``.
    """

    starting_limit: StartingLimit
    resets_to_earliest: bool
    mode: CommitMode
    on_rewind: OnRewind
    fail_on_data_loss: bool
    is_last_consumed: bool = False
    fail_on_late_timestamp: bool = True
    new_from_beginning: bool = True


@dataclass(frozen=True, slots=True)
class PositionByTimestamp:
    """A partition whose position depends on the log: ``EARLIEST_TIME``, ``LATEST_TIME`` or ms since 1970."""

    timestamp: int
    is_starting_time: bool = False


@dataclass(frozen=True, slots=True)
class OffsetPosition:
    """A position.  ``must_be_checkpointed``: no later run could compute it again; ``differs_from_group``: it is not the
    group's offset.

    ``fallback``: the end of our last batch, for a group whose offset is beyond the end of the log.
    """

    offset: int
    must_be_checkpointed: bool = False
    differs_from_group: bool = False
    fallback: int | None = None


@dataclass(frozen=True, slots=True)
class StartPositions:
    """The positions of owned partitions.  ``rewound``: those for which ``onGroupRewind=fail`` stops the query."""

    known: Mapping[TopicPartition, OffsetPosition | PositionByTimestamp]
    rewound: Mapping[TopicPartition, RewoundBelowClaim]


def needs_group_offsets(
    start: BatchOffsets | None, holding: BatchAssignment, rules: PositionRules, refused: Collection[TopicPartition]
) -> list[TopicPartition]:
    """The partitions whose group offset must be read now."""
    if rules.mode is not CommitMode.CLAIM or start is None:
        return []
    return [tp for tp, held in holding.partitions.items() if tp in refused or start.claims.get(tp) != held.epoch]


def start_positions(
    start: BatchOffsets | None,
    holding: BatchAssignment,
    rules: PositionRules,
    group_offsets: Mapping[TopicPartition, GroupOffset],
    refused: Collection[TopicPartition] = (),
) -> StartPositions:
    """The position of each owned partition.  ``refused``: those whose claim of the last batch was refused or narrowed
    to an empty range."""
    known: dict[TopicPartition, OffsetPosition | PositionByTimestamp] = {}
    rewound: dict[TopicPartition, RewoundBelowClaim] = {}
    for tp, held in holding.partitions.items():
        if start is None:
            known[tp] = _beginning(tp, held, rules)
        elif start.claims.get(tp) == held.epoch and tp not in refused:
            known[tp] = OffsetPosition(start.end[tp])
        elif rules.mode is CommitMode.CLAIM:
            found = next_position(group_offsets[tp], rules.on_rewind)
            if isinstance(found, RewoundBelowClaim):
                rewound[tp] = found
            else:
                known[tp] = OffsetPosition(found) if found >= 0 else _without_offset(tp, held, start, rules)
        else:
            known[tp] = _interrupted(tp, held, start, rules)
    return StartPositions(known, rewound)


def _beginning(tp: TopicPartition, held: LeasedPartition, rules: PositionRules) -> OffsetPosition | PositionByTimestamp:
    """The position for a query without a checkpoint."""
    match rules.starting_limit:
        case GroupOffsetRangeLimit():
            if held.offset < 0:
                return _without_offset(tp, held, None, rules)
            if rules.is_last_consumed:
                return OffsetPosition(held.offset + 1, must_be_checkpointed=True, differs_from_group=True)
            return OffsetPosition(held.offset)
        case _:
            return _by_rule(tp, rules)


def _interrupted(
    tp: TopicPartition, held: LeasedPartition, start: BatchOffsets, rules: PositionRules
) -> OffsetPosition | PositionByTimestamp:
    """The position for a query that commits its offsets after the batch, or never."""
    ended = start.end.get(tp)
    if ended is None:
        return OffsetPosition(held.offset) if held.offset >= 0 else _without_offset(tp, held, start, rules)
    if rules.mode is CommitMode.NONE:
        return OffsetPosition(ended)
    # The batch ended together with the ownership: the next batch commits it to the group under the new ownership.
    if ended > held.offset:
        return OffsetPosition(ended, must_be_checkpointed=True)
    return OffsetPosition(held.offset, fallback=ended)


def _without_offset(
    tp: TopicPartition, held: LeasedPartition, start: BatchOffsets | None, rules: PositionRules
) -> PositionByTimestamp | OffsetPosition:
    if held.offset == FROM_BEGINNING:
        return PositionByTimestamp(EARLIEST_TIME)
    is_new = start is not None and tp.partition >= start.topics.get(tp.topic, 0)
    if is_new and rules.new_from_beginning and not _is_named(tp, rules.starting_limit):
        return PositionByTimestamp(EARLIEST_TIME)
    return _by_rule(tp, rules)


def _is_named(tp: TopicPartition, starting: StartingLimit) -> bool:
    match starting:
        case SpecificOffsetRangeLimit(named) | SpecificTimestampRangeLimit(named):
            return tp in named
    return False


def _by_rule(tp: TopicPartition, rules: PositionRules) -> PositionByTimestamp | OffsetPosition:
    match rules.starting_limit:
        case EarliestOffsetRangeLimit():
            return PositionByTimestamp(EARLIEST_TIME)
        case LatestOffsetRangeLimit():
            return PositionByTimestamp(LATEST_TIME)
        case GlobalTimestampRangeLimit(time_ms):
            return PositionByTimestamp(time_ms, is_starting_time=True)
        case SpecificTimestampRangeLimit(times_ms) if tp in times_ms:
            return PositionByTimestamp(times_ms[tp], is_starting_time=True)
        case SpecificOffsetRangeLimit(offsets) if tp in offsets:
            offset = offsets[tp]
            if offset < 0:
                return PositionByTimestamp(offset)
            return OffsetPosition(offset, must_be_checkpointed=True, differs_from_group=True)
    return PositionByTimestamp(EARLIEST_TIME if rules.resets_to_earliest else LATEST_TIME)


# --- inside the log ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogBounds:
    """A log contains ``first`` <= offset < ``end``.  ``at_time``: the offset of the requested time; None when every
    record is older.  ``last_stable``: where a ``read_committed`` query ends; None for other queries."""

    first: int
    end: int
    at_time: int | None = None
    last_stable: int | None = None

    @property
    def readable_end(self) -> int:
        """Where a batch of this query ends."""
        return self.end if self.last_stable is None else self.last_stable


@dataclass(frozen=True, slots=True)
class LostRecords:
    """Records from ``wanted`` on are not in the log."""

    tp: TopicPartition
    wanted: int
    log: LogBounds

    @property
    def offsets(self) -> int:
        """How many offsets were skipped; 0 when the number cannot be known."""
        return max(0, self.log.first - self.wanted)

    @property
    def is_beyond_end(self) -> bool:
        return self.wanted > self.log.end


@dataclass(frozen=True, slots=True)
class ResolvedPositions:
    """Every position, inside its log.

    ``seeks``: offsets to commit to the group before the batch.  ``lost``: lost records, for which ``failOnDataLoss``
    decides; with ``false`` the position is already after them.  ``late``: partitions whose starting time is later than
    every record.  ``waiting``: positions beyond the end of their logs; they are not read now.
    """

    positions: Mapping[TopicPartition, OffsetPosition]
    seeks: Mapping[TopicPartition, int]
    lost: tuple[LostRecords, ...]
    late: Mapping[TopicPartition, int]
    waiting: tuple[TopicPartition, ...] = ()


def resolve_positions(
    found: StartPositions, logs: Mapping[TopicPartition, LogBounds], holding: BatchAssignment, rules: PositionRules
) -> ResolvedPositions:
    """The positions of the partitions with known log bounds; the next batch does not contain the others."""
    made: dict[TopicPartition, OffsetPosition] = {}
    late: dict[TopicPartition, int] = {}
    lost: list[LostRecords] = []
    waiting: list[TopicPartition] = []
    for tp, log in logs.items():
        match found.known[tp]:
            case OffsetPosition() as at:
                at, gone = _inside(tp, at, log, rules)
                lost += [gone] if gone else []
                if at.offset > log.end:
                    waiting.append(tp)
                    continue
                made[tp] = at
            case PositionByTimestamp(time, is_starting_time):
                if is_starting_time and log.at_time is None and rules.fail_on_late_timestamp:
                    late[tp] = time
                made[tp] = OffsetPosition(_offset_of(time, log), must_be_checkpointed=True, differs_from_group=True)
    ahead = {tp for tp, at in made.items() if at.offset < holding.partitions[tp].offset}
    ahead |= {each.tp for each in lost if each.is_beyond_end}
    written = {CommitMode.CLAIM: made.keys(), CommitMode.AFTER_BATCH: ahead, CommitMode.NONE: set()}[rules.mode]
    seeks = {tp: at.offset for tp, at in made.items() if at.differs_from_group and tp in written}
    return ResolvedPositions(made, seeks, tuple(lost), late, tuple(waiting))


def beyond_end(found: StartPositions, logs: Mapping[TopicPartition, LogBounds]) -> list[TopicPartition]:
    """Those with a position beyond the reported end of the log: a new leader can report a smaller end for a moment."""
    return [tp for tp, log in logs.items() if isinstance(at := found.known[tp], OffsetPosition) and at.offset > log.end]


def _offset_of(time: int, log: LogBounds) -> int:
    if time == EARLIEST_TIME:
        return log.first
    return log.readable_end if time == LATEST_TIME or log.at_time is None else log.at_time


def _inside(
    tp: TopicPartition, at: OffsetPosition, log: LogBounds, rules: PositionRules
) -> tuple[OffsetPosition, LostRecords | None]:
    """Moves a position that is not in the log to the start of the log, or, when it is beyond the end, to the end.

    Beyond the end with ``claim``: records before the end of our own claim are not read again, so the partition waits
    until the log reaches that offset.
    """
    if log.first <= at.offset <= log.end:
        return at, None
    if at.fallback is not None and at.offset > log.end and log.first <= at.fallback <= log.end:
        return OffsetPosition(at.fallback, must_be_checkpointed=True, differs_from_group=True), None
    lost = LostRecords(tp, at.offset, log)
    if not lost.is_beyond_end:
        return OffsetPosition(log.first, must_be_checkpointed=True, differs_from_group=True), lost
    if rules.mode is CommitMode.CLAIM:
        return at, lost
    return OffsetPosition(log.end, must_be_checkpointed=True, differs_from_group=True), lost


# --- how far ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Identifies the batch; the query's name is created once, for its first batch."""

    group: str
    query: str
    mode: CommitMode


def next_batch(
    identity: BatchIdentity,
    start: BatchOffsets | None,
    holding: BatchAssignment,
    resolved: ResolvedPositions,
    ends: Mapping[TopicPartition, int],
    limits: BatchLimits,
    stats: Stats,
) -> BatchOffsets | None:
    """The offset of the next batch; None without new records.  ``ends``: the limit of each partition."""
    first = {tp: at.offset for tp, at in resolved.positions.items()}
    available = {tp: max(0, ends[tp] - offset) for tp, offset in first.items()}
    has_fixed = any(at.must_be_checkpointed for at in resolved.positions.values())
    if start is not None and first:
        # An empty batch reports that the query no longer waits, and how many offsets the batch before skipped.
        has_fixed = (
            has_fixed or start.stats.waiting_for_migration or stats.skipped_offsets > start.stats.skipped_offsets
        )
    total = sum(available.values())
    if not has_fixed and (total == 0 or (limits.min_offsets is not None and total < limits.min_offsets)):
        return None
    taken = apply_limits(available, limits)
    end = {tp: offset + taken[tp] for tp, offset in first.items()}
    return BatchOffsets(
        identity.group,
        identity.query,
        0 if start is None else start.batch + 1,
        first,
        {**(start.end if start is not None else {}), **end},
        {tp: holding.partitions[tp].epoch for tp in first},
        stats,
        identity.mode,
        holding.partition_counts if start is None else start.topics,
    )
