"""The claims of a query's last batches on one partition: converts the content of a record's znode.  Pure.

    {"v": 1, "claims": [[batch, first, end, epoch, wall ms], ...], "refused": batch, "begun": [batch, first, ...]}

``claims``: oldest first, at most ``CLAIMS_KEPT_MAX``; ``epoch`` identifies the ownership at that time.  Several are
kept so that a checkpoint that an operator set back by a few batches still finds its ranges.

``refused``: the newest batch that was refused, when no claim is newer.  It is written before the batch reads a record,
since a repeated batch must get the same answer: a sink that has the batch ignores further rows of it, and they would be
lost.  One is enough: an older batch without a claim is refused anyway.

``begun``: a claim that is recorded before its end is committed to Kafka, where the group's offsets are in Kafka: the
two stores cannot be written at once.  Once Kafka has answered it becomes a claim, or a refusal.

A znode that does not exist is a record without claims: then only the group's offset decides.  An operator who deletes
the record of a query and starts it again loses, at most, the batch that was claimed and had not reached the sink.  A
znode with other content is an error and stops the query: to treat it as empty would lose that batch without a notice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise

from zkconsumer.errors import MalformedZnode
from zkconsumer.utf8 import decode_strict
from zkconsumer.zk.java_json import JavaJsonError, Json, read_jackson_json
from zkconsumer.zk.znode_formats import INT64_MAX

VERSION = 1

CLAIMS_KEPT_MAX = 8
"""The maximum number of claims in a record: a checkpoint may be set back by so many batches."""

RECORD_BYTES_MAX = 4_096
"""The maximum number of bytes of a record that are read: what is written has less than a fifth of it."""

_FIELDS = "batch", "first", "end", "epoch", "wall ms"


@dataclass(frozen=True, slots=True)
class BatchClaim:
    """Batch ``batch`` may read [first, end); claimed at ``wall_ms`` under the ownership ``epoch``."""

    batch: int
    first: int
    end: int
    epoch: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """One query's claims on one partition, oldest first, no batch twice.  ``refused``: the newest batch, if it was.

    ``pending``: the begun claim of a batch that is newer than all that were answered.
    """

    claims: tuple[BatchClaim, ...] = ()
    refused: int | None = None
    pending: BatchClaim | None = None

    @property
    def latest(self) -> BatchClaim | None:
        """The claim of the newest batch."""
        return self.claims[-1] if self.claims else None

    @property
    def last_decided_batch(self) -> int:
        """The newest batch with an answer, -1 without one."""
        if self.refused is not None:
            return self.refused
        return self.claims[-1].batch if self.claims else -1

    def claim_of_batch(self, batch: int) -> BatchClaim | None:
        """The claim of this batch, if it is still in the record."""
        return next((claim for claim in self.claims if claim.batch == batch), None)

    def may_have_dropped(self, batch: int) -> bool:
        """Whether a claim of this batch may have been dropped from the record."""
        return len(self.claims) == CLAIMS_KEPT_MAX and batch < self.claims[0].batch

    def with_claim(self, claim: BatchClaim) -> ClaimRecord:
        """The record with a claim of a newer batch; removes the oldest when there are too many."""
        assert self.last_decided_batch < claim.batch, "a batch is answered once, in the order of batches"
        return ClaimRecord((*self.claims, claim)[-CLAIMS_KEPT_MAX:])

    def with_pending(self, claim: BatchClaim) -> ClaimRecord:
        """The record before a claim of a newer batch is committed to Kafka."""
        assert self.last_decided_batch < claim.batch, "a batch is answered once, in the order of batches"
        return ClaimRecord(self.claims, self.refused, claim)

    def with_refusal(self, batch: int) -> ClaimRecord:
        """The record after the refusal of a newer batch."""
        assert self.last_decided_batch < batch, "a batch is answered once, in the order of batches"
        return ClaimRecord(self.claims, batch)


def format_record(record: ClaimRecord) -> bytes:
    """The content for ZooKeeper: JSON in one line."""
    more: dict[str, object] = {} if record.refused is None else {"refused": record.refused}
    more |= {} if record.pending is None else {"begun": _row(record.pending)}
    members = {"v": VERSION, "claims": [_row(claim) for claim in record.claims], **more}
    return json.dumps(members, separators=(",", ":")).encode()


def _row(claim: BatchClaim) -> list[int]:
    return [claim.batch, claim.first, claim.end, claim.epoch, claim.wall_ms]


def parse_record(data: bytes, path: str) -> ClaimRecord:
    """Parse it strictly.  Raises ``MalformedZnode``, which names ``path`` and the remedy, for other content.

    Unknown keys are ignored, because a later release may write them.
    """
    try:
        return _parsed(data)
    except (JavaJsonError, MalformedZnode, RecursionError) as error:
        raise MalformedZnode(
            f"the claims of a Spark query in {path} cannot be parsed: {error}. Without them it is not known what the "
            "query's last batch may read. Repair the znode, or delete it: then only the group's offset decides what "
            "was read, and a batch that was claimed and is not in the query's sink yet is not read again"
        ) from error


def _parsed(data: bytes) -> ClaimRecord:
    if len(data) > RECORD_BYTES_MAX:
        raise JavaJsonError(f"{len(data)} bytes, at most {RECORD_BYTES_MAX} are read")
    members = read_jackson_json(decode_strict(data))
    if not isinstance(members, dict):
        raise JavaJsonError("not a JSON object")
    if not _is_int64(members.get("v")) or not isinstance(members.get("claims"), list):
        raise JavaJsonError("v or claims is missing, or has the wrong type")
    if members["v"] != VERSION:
        raise JavaJsonError(f"version {members['v']}, but this release supports only version {VERSION}; upgrade")
    rows = members["claims"]
    assert isinstance(rows, list), "it was checked"
    if len(rows) > CLAIMS_KEPT_MAX:
        raise JavaJsonError(f"{len(rows)} claims, at most {CLAIMS_KEPT_MAX} are kept")
    claims = tuple(map(_claim, rows))
    if any(one.batch >= next_.batch for one, next_ in pairwise(claims)):
        raise JavaJsonError("its batches do not increase")
    refused = members.get("refused")
    if refused is not None and (not isinstance(refused, int) or not _is_int64(refused)):
        raise JavaJsonError("refused is not a batch number")
    if refused is not None and claims and refused <= claims[-1].batch:
        raise JavaJsonError("refused is not after its claims")
    found = ClaimRecord(claims, refused)
    if members.get("begun") is None:
        return found
    begun = _claim(members["begun"])
    if begun.batch <= found.last_decided_batch:
        raise JavaJsonError("begun is not after the answered batches")
    return found.with_pending(begun)


def _claim(row: Json) -> BatchClaim:
    if not isinstance(row, list) or len(row) != len(_FIELDS) or not all(map(_is_int64, row)):
        raise JavaJsonError(f"a claim is a list of {', '.join(_FIELDS)}")
    batch, first, end, epoch, wall_ms = (number for number in row if isinstance(number, int))
    if first >= end:
        raise JavaJsonError(f"batch {batch} has an empty claim: from {first} to {end}")
    return BatchClaim(batch, first, end, epoch, wall_ms)


def _is_int64(value: Json) -> bool:
    return type(value) is int and 0 <= value <= INT64_MAX
