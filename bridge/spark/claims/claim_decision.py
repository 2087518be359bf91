"""Decides whether a batch may read a range, from the state of one partition.  Pure; every row of this table has a test.

``first``, ``end``: the planned range.  ``cur``: the group's offset.  ``claimed``: the end of this query's own latest
claim.  The first row that applies decides.

    1  the record has a claim of this batch           the same range again, also if another member owns it now (a
                                                      replay)
    2  the batch is older than all that are kept      refused: its claim is no longer in the record
    3  it, or a newer one, was answered before        refused: it got no range then, so it gets none now
    4  a claim of it was begun, its end <= cur        the range that was begun
    5  the partition is not ours                      refused
    6  cur is no number, and nothing was claimed      refused: an operator must repair the offset
    7  cur < claimed <= first: another write          by ``onGroupRewind``:
         ignore   continue with cur := claimed; the group's offset is overwritten, which is logged
         follow   continue with cur: the claim is refused, and the next batch begins at the group's offset
         fail     stop the query; nothing is written
    8  cur does not exist                             [first, end), and the offset is created
    9  cur == first                                   [first, end)
    10 first < cur < end                              [cur, end): other members have read the front
    11 end <= cur                                     refused: other members have read it
    12 cur < first                                    refused: the front belongs to a claim that was refused

A refusal of the rows 5 to 12 is written to the record before the batch runs; otherwise row 3 could not apply.

Row 4 is for groups whose offsets are in Kafka, where a claim is begun, committed and then settled (``kafka_claims``),
when the process died in between.  If the group's offset is below the end, the commit was not made, and the claim is
decided again.  If it is at the end or after it, the commit was made; or it was refused, and others have read that far
since.  Once others have committed, the two cases cannot be distinguished.  The first one is the normal case, and its
range must not be lost; in the second case the range is read twice.

In row 7 a missing offset, and one that is no number, count as below every claim.  Only this query could have set the
offset to ``claimed``, and a claim only increases it.  So if it is smaller, an operator set the group back, or a Scala
consumer wrote late what it had read before it lost the partition.  With ``ignore`` the ranges of a query never overlap,
because whatever it plans and claims begins at the end of its latest claim or after it.  Row 7 does not apply to a batch
that was planned below a claim: that was intended (``follow``; or the log lost its end, and ``failOnDataLoss=false``).

No record is skipped permanently as long as the next batch begins at ``next_position``, and not at the planned end of a
batch whose claim may have been refused.

A claim of a topic that was deleted since does not count: ``topic_czxids`` has the transaction that created each topic,
and an epoch or an offset from before it belongs to deleted records.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from bridge.spark.claims.records import ClaimRecord
from bridge.spark.group_membership import NO_OFFSET, ClaimRefused, GroupOffset, RangeToClaim


class OnRewind(Enum):
    """``onGroupRewind``: what to do when the group's offset is smaller than the end of this query's claims."""

    IGNORE = "ignore"
    """Continue after our latest claim, and overwrite the offset."""

    FOLLOW = "follow"
    """Read again from the offset to which the group was set."""

    FAIL = "fail"
    """Stop the query."""


@dataclass(frozen=True, slots=True)
class ClaimSnapshot:
    """One partition as it was read.

    ``not_owned_reason``: why it is not ours, empty when it is.  ``offset`` None: there is none; ``unreadable``: why the
    content of its znode is not an offset.  ``claimed_end``: the end of our latest claim, if that claim counts.
    """

    record: ClaimRecord
    claimed_end: int | None
    not_owned_reason: str
    offset: int | None
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """Claim [first, end).  ``rewound_from``: the offset below our claim that is overwritten; ``NO_OFFSET``: none."""

    first: int
    end: int
    rewound_from: int | None = None


@dataclass(frozen=True, slots=True)
class ReplayClaim:
    """The batch claimed [first, end) before; no write is needed."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class FinishClaim:
    """The batch began to claim [first, end), and the group's offset is after it: record the claim."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class WriteRefusal:
    """Record that this batch may read no record; ``reason`` is a sentence."""

    reason: str


@dataclass(frozen=True, slots=True)
class RewoundBelowClaim:
    """``onGroupRewind=fail``: the group's offset is ``offset`` (or ``NO_OFFSET``), and we claimed up to ``claimed``."""

    offset: int
    claimed: int


ClaimDecision: TypeAlias = WriteClaim | ReplayClaim | FinishClaim | WriteRefusal | ClaimRefused | RewoundBelowClaim


def decide_claim(batch: int, wanted: RangeToClaim, seen: ClaimSnapshot, on_rewind: OnRewind) -> ClaimDecision:
    """The table above."""
    if (claim := seen.record.claim_of_batch(batch)) is not None:
        return ReplayClaim(claim.first, claim.end)
    if seen.record.may_have_dropped(batch):
        oldest = seen.record.claims[0].batch
        return ClaimRefused(f"batch {batch} is older than the oldest claim that is kept, of batch {oldest}")
    if batch <= seen.record.last_decided_batch:
        return ClaimRefused(f"batch {batch} was refused when it ran first")
    begun = seen.record.pending
    if begun is not None and begun.batch == batch and seen.offset is not None and seen.offset >= begun.end:
        return FinishClaim(begun.first, begun.end)
    if seen.not_owned_reason:
        return WriteRefusal(seen.not_owned_reason)
    if seen.unreadable and seen.claimed_end is None:
        return WriteRefusal(f"{seen.unreadable}; write the correct offset: 'zkconsumer offsets set'")
    group_offset, rewound_from = seen.offset, None
    if (
        seen.claimed_end is not None
        and (group_offset is None or group_offset < seen.claimed_end)
        and seen.claimed_end <= wanted.first
    ):
        rewound_from = NO_OFFSET if group_offset is None else group_offset
        match on_rewind:
            case OnRewind.FAIL:
                return RewoundBelowClaim(rewound_from, seen.claimed_end)
            case OnRewind.IGNORE:
                group_offset = seen.claimed_end
            case OnRewind.FOLLOW:
                pass
    return _decide_write(wanted, group_offset, rewound_from)


def _decide_write(wanted: RangeToClaim, group_offset: int | None, rewound_from: int | None) -> ClaimDecision:
    """Rows 8 to 12."""
    if group_offset is None or group_offset == wanted.first:
        return WriteClaim(wanted.first, wanted.end, rewound_from)
    if wanted.first < group_offset < wanted.end:
        return WriteClaim(group_offset, wanted.end, rewound_from)
    if group_offset >= wanted.end:
        return WriteRefusal(f"the group's offset is {group_offset}: other members have read the range")
    return WriteRefusal(f"the group's offset is {group_offset}, before the range: the next batch begins there")


def next_position(stand: GroupOffset, on_rewind: OnRewind) -> int | RewoundBelowClaim:
    """Where the next batch begins, from the result of ``group_offsets``; ``NO_OFFSET``: by the starting rule.

    It needs neither the planned end of the last batch nor its ownership: a claimed range was read, a planned range that
    was refused was not, and the group's offset contains what others read.
    """
    if stand.claimed_end is None or stand.offset >= stand.claimed_end:
        return stand.offset
    match on_rewind:
        case OnRewind.IGNORE:
            return stand.claimed_end
        case OnRewind.FOLLOW:
            return stand.offset
        case OnRewind.FAIL:
            return RewoundBelowClaim(stand.offset, stand.claimed_end)
