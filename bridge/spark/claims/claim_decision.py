"""Whether a batch may read a range, from what was seen of one partition.  Pure; every row of this table has a test.

``first``, ``end``: what was planned.  ``group_offset``: the group's offset.  ``claimed``: the end of this query's own
latest claim.  The first row that holds decides.

    1  the record has a claim of this batch           what it holds, again, whoever owns the partition now (a replay)
    2  the batch is older than all that are kept      refused: what it claimed is forgotten
    3  it, or a newer one, was answered before        refused: it got nothing then, so it gets nothing now
    4  a claim of it was begun, its end <= cur        what was begun
    5  the partition is not ours                      refused
    6  cur is no number, and nothing was claimed      refused: a person must repair the offset
    7  cur < claimed <= first: somebody wrote it      by ``onGroupRewind``:
         ignore   go on with cur := claimed; the group's offset is written over, and that is told
         follow   go on with cur as it stands: the claim is refused, and the next batch begins where the group stands
         fail     stop the query, nothing is written
    8  there is no cur                                [first, end), and the offset is created
    9  cur == first                                   [first, end)
    10 first < cur < end                              [cur, end): others read the front
    11 end <= cur                                     refused: others read it
    12 cur < first                                    refused: the front is somebody's whose claim was refused

A refusal of the rows 5 to 12 is written down before the batch runs, or row 3 could not tell.

Row 4 is for groups whose offsets are in Kafka, where a claim is begun, committed and then settled (``in_kafka``), and
whoever did it died in between.  Below the end, the commit was not made, and the claim is judged anew.  At the end or
behind it, it was; or it was refused, and others have read that far since.  Nobody can tell the two apart once others
have committed.  The first is what happens, and it must not be lost; of the second the range is read twice.

Row 7 counts a missing offset, and one that is no number, as below every claim.  Nobody but this query could have set
the offset to ``claimed``, and a claim only moves it forward: so below it, an operator set the group back, or an
original member wrote late what it had read before it lost the partition.  With ``ignore`` the ranges of a query never
overlap, because whatever it plans and takes begins at its latest claim's end or behind it.  Row 7 is not for a batch
that was planned below a claim: that was on purpose (``follow``; or the log lost its end, and ``failOnDataLoss=false``).

Nothing is skipped for ever as long as the next batch begins where ``next_position`` says, and not at the planned end of
a batch whose claim may have been refused.

A claim of a topic that was deleted since does not count: ``topic_czxids`` has the transaction that made each topic, and
an epoch or an offset from before it belongs to records that are gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from bridge.spark.claims.records import ClaimRecord
from bridge.spark.group_membership import NO_OFFSET, ClaimRefused, GroupOffset, RangeToClaim


class OnRewind(Enum):
    """``onGroupRewind``: what to do when the group stands below what this query claimed."""

    IGNORE = "ignore"
    """Go on behind our latest claim, and write the offset over."""

    FOLLOW = "follow"
    """Read again from where the group was set to."""

    FAIL = "fail"
    """Stop the query."""


@dataclass(frozen=True, slots=True)
class ClaimSnapshot:
    """One partition as it was read.

    ``not_owned``: why it is not ours, empty when it is.  ``offset`` None: there is none; ``unreadable``: or what its
    znode holds is none, and why.  ``claimed``: the end of our latest claim, as far as it counts.
    """

    record: ClaimRecord
    claimed_end: int | None
    not_owned_reason: str
    offset: int | None
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """Claim [first, end).  ``rewound_from``: what is written over is this, below our claim; ``NO_OFFSET``: none."""

    first: int
    end: int
    rewound_from: int | None = None


@dataclass(frozen=True, slots=True)
class ReplayClaim:
    """The batch claimed [first, end) before; there is nothing to write."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class FinishClaim:
    """The batch began to claim [first, end), and the group stands behind it: write down that it did."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class WriteRefusal:
    """Write down that this batch may read nothing; ``why`` in a sentence."""

    reason: str


@dataclass(frozen=True, slots=True)
class RewoundBelowClaim:
    """``onGroupRewind=fail``: the group stands at ``offset`` (or ``NO_OFFSET``), and we claimed up to ``claimed``."""

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
        return ClaimRefused(f"batch {batch} got nothing of it when it ran first")
    begun = seen.record.pending
    if begun is not None and begun.batch == batch and seen.offset is not None and seen.offset >= begun.end:
        return FinishClaim(begun.first, begun.end)
    if seen.not_owned_reason:
        return WriteRefusal(seen.not_owned_reason)
    if seen.unreadable and seen.claimed_end is None:
        return WriteRefusal(f"{seen.unreadable}; write the offset that is meant: 'zkconsumer offsets set'")
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
        return WriteRefusal(f"the group stands at {group_offset}: the range was read by others")
    return WriteRefusal(f"the group stands at {group_offset}, before the range: the next batch begins there")


def next_position(stand: GroupOffset, on_rewind: OnRewind) -> int | RewoundBelowClaim:
    """Where the next batch begins, from what ``stands`` gave; ``NO_OFFSET``: where the starting rule says.

    It needs neither the planned end of the batch before nor its ownership: what was claimed was read, what was planned
    and refused was not, and what others read is in the group's offset.
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
