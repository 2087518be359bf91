"""What a query's last batches claimed of one partition: the bytes of a record's znode, from and to values.  Pure.

    {"v": 1, "claims": [[batch, first, end, epoch, wall ms], ...], "refused": batch, "begun": [batch, first, ...]}

``claims``: oldest first, at most ``CLAIMS_KEPT_MAX``; ``epoch`` names the ownership of then.  Several are kept so that
a checkpoint that a person set back by a few batches still finds its ranges.

``refused``: the newest batch that was told to read nothing of the partition, when no claim is newer.  It is written
before the batch reads anything, since a batch that is run again must be told what it was told at first: a sink that has
the batch takes no more rows of it, and they would be lost.  One is enough: an older batch without a claim gets nothing
anyway.

``begun``: a claim that is written down here before Kafka is asked to commit its end, where the group's offsets are in
Kafka: nothing is written to both at once.  Once Kafka has answered it becomes a claim, or a refusal.

A znode that does not exist is a record without claims: the group's offset alone then judges.  Whoever deletes the
record of a query that is started again loses, at most, the batch that was claimed and had not reached the sink.  A
znode that holds something else is an error and stops the query: to take it for empty would lose that batch silently.
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
"""Claims that a record keeps: so many batches may a checkpoint be set back by hand."""

RECORD_BYTES_MAX = 4_096
"""Bytes that are read of a record: what is written has less than a fifth of it."""

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

    ``begun``: of a batch newer than all that were answered.
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
        """The newest batch that was told what it may read, -1 without one."""
        if self.refused is not None:
            return self.refused
        return self.claims[-1].batch if self.claims else -1

    def claim_of_batch(self, batch: int) -> BatchClaim | None:
        """What this batch claimed, if that is still known."""
        return next((claim for claim in self.claims if claim.batch == batch), None)

    def may_have_dropped(self, batch: int) -> bool:
        """Whether a claim of this batch may have been dropped from the record."""
        return len(self.claims) == CLAIMS_KEPT_MAX and batch < self.claims[0].batch

    def with_claim(self, claim: BatchClaim) -> ClaimRecord:
        """The record with a claim of a newer batch, the oldest dropped when there are too many."""
        assert self.last_decided_batch < claim.batch, "a batch is answered once, in the order of batches"
        return ClaimRecord((*self.claims, claim)[-CLAIMS_KEPT_MAX:])

    def with_pending(self, claim: BatchClaim) -> ClaimRecord:
        """The record when Kafka is about to be asked for a claim of a newer batch."""
        assert self.last_decided_batch < claim.batch, "a batch is answered once, in the order of batches"
        return ClaimRecord(self.claims, self.refused, claim)

    def with_refusal(self, batch: int) -> ClaimRecord:
        """The record when a newer batch may read nothing."""
        assert self.last_decided_batch < batch, "a batch is answered once, in the order of batches"
        return ClaimRecord(self.claims, batch)


def format_record(record: ClaimRecord) -> bytes:
    """The bytes for ZooKeeper: JSON in one line."""
    more: dict[str, object] = {} if record.refused is None else {"refused": record.refused}
    more |= {} if record.pending is None else {"begun": _row(record.pending)}
    members = {"v": VERSION, "claims": [_row(claim) for claim in record.claims], **more}
    return json.dumps(members, separators=(",", ":")).encode()


def _row(claim: BatchClaim) -> list[int]:
    return [claim.batch, claim.first, claim.end, claim.epoch, claim.wall_ms]


def parse_record(data: bytes, path: str) -> ClaimRecord:
    """Read it strictly.  Raises ``MalformedZnode``, which names ``path`` and what to do, for whatever we do not write.

    Keys that are not known are let pass, for a later release's sake.
    """
    try:
        return _parsed(data)
    except (JavaJsonError, MalformedZnode, RecursionError) as error:
        raise MalformedZnode(
            f"the claims of a Spark query in {path} cannot be read: {error}. While it stands there, nobody knows what "
            "the query's last batch may read. Repair the znode, or delete it: then the group's offset alone says what "
            "was read, and a batch that was claimed and is not in the query's sink yet is not read again"
        ) from error


def _parsed(data: bytes) -> ClaimRecord:
    if len(data) > RECORD_BYTES_MAX:
        raise JavaJsonError(f"{len(data)} bytes, at most {RECORD_BYTES_MAX} are read")
    members = read_jackson_json(decode_strict(data))
    if not isinstance(members, dict):
        raise JavaJsonError("not a JSON object")
    if not _is_int64(members.get("v")) or not isinstance(members.get("claims"), list):
        raise JavaJsonError("v or claims is missing, or of the wrong kind")
    if members["v"] != VERSION:
        raise JavaJsonError(f"version {members['v']}, and this release knows version {VERSION} only; upgrade")
    rows = members["claims"]
    assert isinstance(rows, list), "it was looked at"
    if len(rows) > CLAIMS_KEPT_MAX:
        raise JavaJsonError(f"{len(rows)} claims, at most {CLAIMS_KEPT_MAX} are kept")
    claims = tuple(map(_claim, rows))
    if any(one.batch >= next_.batch for one, next_ in pairwise(claims)):
        raise JavaJsonError("its batches do not grow")
    refused = members.get("refused")
    if refused is not None and (not isinstance(refused, int) or not _is_int64(refused)):
        raise JavaJsonError("refused is no number of a batch")
    if refused is not None and claims and refused <= claims[-1].batch:
        raise JavaJsonError("refused is not behind its claims")
    found = ClaimRecord(claims, refused)
    if members.get("begun") is None:
        return found
    begun = _claim(members["begun"])
    if begun.batch <= found.last_decided_batch:
        raise JavaJsonError("begun is not behind what was answered")
    return found.with_pending(begun)


def _claim(row: Json) -> BatchClaim:
    if not isinstance(row, list) or len(row) != len(_FIELDS) or not all(map(_is_int64, row)):
        raise JavaJsonError(f"a claim is a list of {', '.join(_FIELDS)}")
    batch, first, end, epoch, wall_ms = (number for number in row if isinstance(number, int))
    if first >= end:
        raise JavaJsonError(f"batch {batch} claims nothing: from {first} to {end}")
    return BatchClaim(batch, first, end, epoch, wall_ms)


def _is_int64(value: Json) -> bool:
    return type(value) is int and 0 <= value <= INT64_MAX
