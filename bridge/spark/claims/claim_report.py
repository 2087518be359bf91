"""The result of a claim."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.spark.claims.claim_reads import raise_for
from bridge.spark.group_membership import ClaimResult
from zkconsumer.errors import ZkConsumerError
from zkconsumer.member.events import StoredOffset
from zkconsumer.types import TopicPartition


@dataclass(slots=True)
class ClaimReport:
    """The result of a claim.

    ``stored``: the written offsets, with their versions.  ``rewound``: for accepted claims of a group that had been set
    back below our claim: the offset found (``NO_OFFSET``: none), and our claim's end.
    ``ambiguous``: ranges that an earlier run began to claim, and that others may have read, too (row 4 of
    ``claim_decision``).  ``unknown``: partitions that could not be settled; repeat the claim when the connection is
    back. ``error``: why the query must stop; earlier accepted claims are in the records.
    """

    results: dict[TopicPartition, ClaimResult] = field(default_factory=dict)
    stored: dict[TopicPartition, StoredOffset] = field(default_factory=dict)
    rewound: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    ambiguous: list[TopicPartition] = field(default_factory=list)
    unknown: dict[TopicPartition, str] = field(default_factory=dict)
    error: ZkConsumerError | None = None

    def result(self) -> dict[TopicPartition, ClaimResult]:
        """The answers; raises ``error``, or ``ZkTimeoutException`` when one is unknown."""
        raise_for(self.error, self.unknown, "whether the batch may read it")
        return self.results

    def merge(self, more: ClaimReport) -> None:
        """Add the result for other partitions, or for those that were unknown."""
        self.results |= more.results
        self.stored |= more.stored
        self.rewound |= more.rewound
        self.ambiguous += more.ambiguous
        self.unknown = dict(more.unknown)
        self.error = self.error or more.error
