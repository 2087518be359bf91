"""What became of a claim."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.spark.claims.claim_reads import raise_for
from bridge.spark.group_membership import ClaimResult
from zkconsumer.errors import ZkConsumerError
from zkconsumer.member.events import StoredOffset
from zkconsumer.types import TopicPartition


@dataclass(slots=True)
class ClaimReport:
    """What became of a claim.

    ``stored``: the offsets that were written, with their versions.  ``rewound``: of those that were taken, where the
    group had been set back below our claim: what stood there (``NO_OFFSET``: nothing), and our claim's end.
    ``unsure``: what an earlier life began to claim, and others may have read, too (row 4 of the judge).
    ``unknown``: what could not be settled; ask again, when the connection is back.  ``error``: why the query must stop;
    what was taken before stands in the records.
    """

    results: dict[TopicPartition, ClaimResult] = field(default_factory=dict)
    stored: dict[TopicPartition, StoredOffset] = field(default_factory=dict)
    rewound: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    ambiguous: list[TopicPartition] = field(default_factory=list)
    unknown: dict[TopicPartition, str] = field(default_factory=dict)
    error: ZkConsumerError | None = None

    def result(self) -> dict[TopicPartition, ClaimResult]:
        """The answers; raises ``error``, or ``ZkTimeoutException`` when something is unknown."""
        raise_for(self.error, self.unknown, "whether the batch may read it")
        return self.results

    def merge(self, more: ClaimReport) -> None:
        """What became of the rest of it, or of what was unknown."""
        self.results |= more.results
        self.stored |= more.stored
        self.rewound |= more.rewound
        self.ambiguous += more.ambiguous
        self.unknown = dict(more.unknown)
        self.error = self.error or more.error
