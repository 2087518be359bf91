"""A claim in a group whose offsets are in Kafka: no transaction includes both stores, so it is written in three steps.

    1  the record: a claim was *begun*                 ZooKeeper, after a check of our run and of the control znode
    2  the group's offset := end, with our generation  Kafka; the range claimed in the commit's metadata
    3  the record: it is claimed; or the refusal       ZooKeeper

Step 2 is the fence: the coordinator accepts the commit only from the owner of the partition, so no other member can
have read the range, and later owners begin after it.  Steps 1 and 3 are for a batch that runs again: the metadata of a
commit is overwritten by the next owner's first commit.  When the process died between 1 and 3, the repeated batch finds
the begun claim and the group's offset (row 4 of ``claim_decision``).  As long as no other member has committed, the
metadata identifies the commit.

    zkconsumer-spark:1:<query>:<batch>:<first>:<end>          the metadata of a commit that claims
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bridge.spark.claims.claim_decision import WriteClaim
from bridge.spark.claims.claim_procedure import ClaimProcedure, version_of
from bridge.spark.claims.claim_reads import (
    StoredGroupOffset,
    first_lost_answer,
    latest_claim_end,
    read_nodes,
    record_of,
)
from bridge.spark.claims.claim_report import ClaimReport
from bridge.spark.claims.claim_writes import ClaimContext, PlannedClaimWrite, record_op
from bridge.spark.claims.records import BatchClaim, ClaimRecord
from bridge.spark.group_membership import ClaimedRange, ClaimRefused, RangeToClaim
from zkconsumer.errors import GroupMigratingError, ZkTimeoutException
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import Procedure, describe_result, multi_of, pack_multis
from zkconsumer.zk.requests import CheckOp, MultiFailed, MultiOk, Op, Stat, ZnodeResult

NOT_OWNED_MESSAGE = "this query does not own the partition"

NO_OFFSET_ZNODE = 0
"""Replaces the version of an offset's znode, which is not written."""


@dataclass(frozen=True, slots=True)
class KafkaCommittedOffset:
    """The committed offset of a partition at the coordinator.  ``offset`` None: there is none."""

    offset: int | None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class PendingClaim:
    """A claim that is ready for its commit to Kafka: its record in ZooKeeper, and the version of that znode."""

    claim: BatchClaim
    record: ClaimRecord
    version: int
    rewound: tuple[int, int] | None = None


def commit_metadata(query: str, claim: BatchClaim) -> str:
    """The metadata of a commit that claims."""
    return f"zkconsumer-spark:1:{query}:{claim.batch}:{claim.first}:{claim.end}"


def begin_claims(
    claimant: ClaimContext,
    batch: int,
    ranges: Mapping[TopicPartition, RangeToClaim],
    committed: Mapping[TopicPartition, KafkaCommittedOffset],
) -> Procedure[tuple[ClaimReport, dict[TopicPartition, PendingClaim], int]]:
    """Step 1; ``committed`` was read after we owned the partitions of ``claimant.owned``.

    Returns the claims that are settled without Kafka, those that need a commit, and the version of the run's znode.
    """
    begins = _BeginClaimProcedure(claimant, batch, ranges, committed)
    yield from begins.run()
    return begins.report, begins.pending, begins.runs_version


def settle_claims(
    claimant: ClaimContext,
    batch: int,
    begun: Mapping[TopicPartition, PendingClaim],
    *,
    refused: Mapping[TopicPartition, str],
    unconfirmed: Collection[TopicPartition],
    runs_version: int,
) -> Procedure[ClaimReport]:
    """Step 3.  ``refused``: commits that Kafka rejected, and why; ``unconfirmed``: commits without an answer.

    A partition that cannot be written is unknown: claim the same ranges again.
    """
    report = ClaimReport(unknown=dict.fromkeys(unconfirmed, "the group's coordinator did not answer the commit"))
    written = {tp: one for tp, one in begun.items() if tp not in report.unknown}

    def record(tp: TopicPartition, one: PendingClaim) -> ClaimRecord:
        return one.record.with_refusal(batch) if tp in refused else one.record.with_claim(one.claim)

    ops = [(tp, [record_op(claimant, tp, record(tp, one), one.version)]) for tp, one in written.items()]
    checks = (CheckOp(paths.claims_of_query(claimant.group, claimant.query), runs_version),)
    plans = pack_multis(ops, checks, one_by_one=False)
    answers = (yield [multi_of(plan, checks) for plan in plans]) if plans else []
    for plan, answer in zip(plans, answers, strict=True):
        for tp, _ in plan:
            if not isinstance(answer, MultiOk):
                why = answer.error if isinstance(answer, MultiFailed) else answer
                report.unknown[tp] = describe_result(why)
                continue
            claim, rewound = written[tp].claim, written[tp].rewound
            report.results[tp] = ClaimRefused(refused[tp]) if tp in refused else ClaimedRange(claim.first, claim.end)
            if rewound is not None and tp not in refused:
                report.rewound[tp] = rewound
    return report


def claimed_ends(
    group: str, query: str, partitions: Collection[TopicPartition]
) -> Procedure[dict[TopicPartition, int | None]]:
    """The end of the query's latest claim of each; None without one.

    Raises the errors of a record, and ``ZkTimeoutException`` when the connection broke.
    """
    wanted = list(partitions)
    nodes = yield from read_nodes([paths.claims_of_partition(group, query, tp) for tp in wanted])
    if (lost := first_lost_answer(*nodes)) is not None:
        raise ZkTimeoutException(f"ZooKeeper did not return the claims of the query: {describe_result(lost)}")
    records = zip(wanted, nodes, strict=True)
    return {
        tp: latest_claim_end(record_of(node, paths.claims_of_partition(group, query, tp)), 0) for tp, node in records
    }


def replay_claims(
    claimant: ClaimContext, batch: int, ranges: Mapping[TopicPartition, RangeToClaim]
) -> Procedure[ClaimReport]:
    """The ranges that a batch may read while its group migrates and the query is no member: those claimed before.

    Other ranges are refused, which is recorded.  A claim that was begun, and not settled, waits for the end of the
    migration.
    """
    absent = _ReplayClaimProcedure(claimant, batch, ranges, dict.fromkeys(ranges, KafkaCommittedOffset(None)))
    yield from absent.run()
    return absent.report


class _BeginClaimProcedure(ClaimProcedure):
    """``pending``: the claims that need a commit to Kafka."""

    def __init__(
        self,
        claimant: ClaimContext,
        batch: int,
        ranges: Mapping[TopicPartition, RangeToClaim],
        committed: Mapping[TopicPartition, KafkaCommittedOffset],
    ) -> None:
        super().__init__(claimant, batch, ranges)
        self.pending: dict[TopicPartition, PendingClaim] = {}
        self._committed = committed

    @property
    def runs_version(self) -> int:
        return self._runs_version

    def _is_settled(self, tp: TopicPartition) -> bool:
        return tp in self.report.results or tp in self.pending

    def _extra_paths(self, left: list[TopicPartition]) -> list[str]:
        return []

    def _offset_and_ownership(
        self, tp: TopicPartition, beside: tuple[ZnodeResult, ...]
    ) -> tuple[StoredGroupOffset, str]:
        return StoredGroupOffset(
            self._committed[tp].offset, NO_OFFSET_ZNODE
        ), "" if tp in self._context.owned else NOT_OWNED_MESSAGE

    def _ops(self, tp: TopicPartition, planned: PlannedClaimWrite) -> list[Op]:
        if not isinstance(planned.decision, WriteClaim):
            return super()._ops(tp, planned)
        return [record_op(self._context, tp, self._begun_record(tp, planned, planned.decision), planned.record_version)]

    def _begun_record(self, tp: TopicPartition, planned: PlannedClaimWrite, take: WriteClaim) -> ClaimRecord:
        by = self._context
        return planned.record.with_pending(BatchClaim(self._batch, take.first, take.end, by.owned[tp], by.wall_ms))

    def _claim_finished(self, tp: TopicPartition) -> None:
        taken = self.report.results[tp]
        assert isinstance(taken, ClaimedRange), "a finished claim is accepted"
        claim = BatchClaim(self._batch, taken.first, taken.end, 0, 0)
        if self._committed[tp].metadata != commit_metadata(self._context.query, claim):
            super()._claim_finished(tp)

    def _claim_written(
        self, tp: TopicPartition, planned: PlannedClaimWrite, take: WriteClaim, results: list[str | Stat | None]
    ) -> None:
        record = self._begun_record(tp, planned, take)
        assert record.pending is not None, "it was just begun"
        rewound = None
        if take.rewound_from is not None and planned.claimed_end is not None:
            rewound = take.rewound_from, planned.claimed_end
        [written] = results
        self.pending[tp] = PendingClaim(record.pending, record, version_of(written), rewound)


class _ReplayClaimProcedure(_BeginClaimProcedure):
    """For a query that owns no partitions."""

    def _decide(self, tp: TopicPartition, record_node: ZnodeResult, *beside: ZnodeResult) -> None:
        begun = record_of(record_node, paths.claims_of_partition(self._context.group, self._context.query, tp)).pending
        if begun is not None and begun.batch == self._batch:
            raise GroupMigratingError(
                f"the query died while batch {self._batch} claimed {tp}, and the group has been migrating "
                "since: start the query again when the migration has ended (zkconsumer migrate status "
                f"{self._context.group})"
            )
        super()._decide(tp, record_node, *beside)
