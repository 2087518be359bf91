"""A claim as a generator of rounds of requests (see ``zkconsumer.zk.group_procedures``).

    1  read runs, records, owners and offsets of all partitions      one packet where the server reads many at once
       register our run, when it claims for the first time           (at the version just read; see ``query_runs``)
    2  the accepted claims, in one multi; for each partition:
           check  our owner node                (version 1; this procedure runs in the session that created it)
           set    the offset := end             (at the version just read; or create it: it did not exist)
           set    the record, with this claim   (at the version just read; or create it)
       and, before all of them, check that our run is the last one, and the control znode of a group that has one;
       the refusals, in another multi: check our run, set the record with the refusal

When a multi fails, everything is read again and each partition is decided again, at most ``ROUNDS_MAX`` times; in the
last round each partition has its own multi.  When the answer to a multi was lost with the connection, the record shows
whether it was executed.  Where that remains unknown, the partition is *unknown*, and the caller must repeat the claim
instead of continuing with the batch: a repetition returns the same answer, and a wrong one would lose a range or read
it twice.

The check of the owner node names a version only.  Another member can replace our node between the read and the multi
only when our session ended or we released the partition ourselves.  In the first case the store rejects the multi; the
second is prevented by the caller: one thread claims and releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from bridge.spark.claims.claim_decision import (
    ClaimSnapshot,
    FinishClaim,
    ReplayClaim,
    RewoundBelowClaim,
    WriteClaim,
    WriteRefusal,
    decide_claim,
)
from bridge.spark.claims.claim_messages import duplicate_run_message, group_rewound_message
from bridge.spark.claims.claim_reads import (
    MISSING_VERSION,
    StoredGroupOffset,
    first_lost_answer,
    latest_claim_end,
    offset_of,
    read_nodes,
    record_of,
)
from bridge.spark.claims.claim_report import ClaimReport
from bridge.spark.claims.claim_writes import ClaimContext, PlannedClaimWrite, claim_ops, missing_parents, write_op
from bridge.spark.claims.query_runs import RunStatus, append_run, format_runs, parse_runs, run_status
from bridge.spark.group_membership import ClaimedRange, ClaimRefused, RangeToClaim
from zkconsumer.errors import GroupRewound, QueryAlreadyRunning, UnavailableError, ZkConsumerError, ZkNotAuthorized
from zkconsumer.member.events import StoredOffset
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.acl_denials import DenialCollector
from zkconsumer.zk.group_procedures import (
    INITIAL_VERSION,
    OUR_OWNER_VERSION,
    ROUNDS_MAX,
    MultiPlan,
    Procedure,
    control_check,
    describe_result,
    make_parents,
    multi_of,
    owner_text,
    pack_multis,
)
from zkconsumer.zk.requests import (
    BadVersion,
    CheckOp,
    ConnectionLost,
    Create,
    Multi,
    MultiFailed,
    MultiOk,
    NoAuth,
    NodeExists,
    NoNode,
    Op,
    Result,
    SessionEnded,
    Stat,
    ZnodeData,
    ZnodeResult,
)


def version_of(written: str | Stat | None) -> int:
    """The version of a node after a write: set, or created."""
    return written.version if isinstance(written, Stat) else INITIAL_VERSION


MIGRATION_STARTED = "the control znode of the group changed: a migration has started"

SUPERSEDED_BY_RUN = "another run of the query has begun"


def claim(claimant: ClaimContext, batch: int, ranges: Mapping[TopicPartition, RangeToClaim]) -> Procedure[ClaimReport]:
    """Claim the ranges of a batch, or find its earlier answer: two packets when no other write interferes, and one more
    for the first claim of a run.

    Must run in the session of ``claimant.session_id``.  Raises ``InvalidNameError`` for an invalid query id.
    """
    claims = ClaimProcedure(claimant, batch, ranges)
    yield from claims.run()
    return claims.report


class ClaimProcedure:
    """The claim of one batch; ``report`` gets every partition."""

    def __init__(self, claimant: ClaimContext, batch: int, ranges: Mapping[TopicPartition, RangeToClaim]) -> None:
        self.report = ClaimReport()
        self._context = claimant
        self._batch = batch
        self._ranges = ranges
        self._control = control_check(claimant.group, claimant.control_version)
        self._is_fenced = False
        self._runs: tuple[str, ...] = ()
        self._runs_version = MISSING_VERSION
        self._denials = DenialCollector()
        self._planned: dict[TopicPartition, PlannedClaimWrite] = {}
        self._unconfirmed: dict[TopicPartition, PlannedClaimWrite] = {}
        """Claims without an answer: when the record has our claim afterwards, this one was executed."""
        self._failed: dict[TopicPartition, str] = {}
        """Why the last multi of a partition was not executed."""

    def run(self) -> Procedure[None]:
        """Read, decide, write, at most ``ROUNDS_MAX`` times; finally read once more."""
        for attempt in range(ROUNDS_MAX + 1):
            left = [tp for tp in self._ranges if not self._is_settled(tp)]
            if not left or self._must_stop():
                return
            yield from self._read(left)
            if attempt < ROUNDS_MAX and self._planned and not self._must_stop():
                may_write = yield from self._register_run()
                if may_write:
                    yield from self._write(singly=attempt == ROUNDS_MAX - 1)
        self.report.unknown |= {tp: self._failed.get(tp, "it was not written") for tp in self._planned}

    def _must_stop(self) -> bool:
        return self.report.error is not None

    def _is_settled(self, tp: TopicPartition) -> bool:
        return tp in self.report.results

    # --- reads --------------------------------------------------------------------------------------------------

    def _read(self, left: list[TopicPartition]) -> Procedure[None]:
        records = [paths.claims_of_partition(self._context.group, self._context.query, tp) for tp in left]
        query = paths.claims_of_query(self._context.group, self._context.query)
        runs, *nodes = yield from read_nodes([query, *records, *self._extra_paths(left)])
        self._planned.clear()
        self.report.unknown.clear()
        self._runs = parse_runs(runs.data) if isinstance(runs, ZnodeData) else ()
        self._runs_version = runs.stat.version if isinstance(runs, ZnodeData) else MISSING_VERSION
        for at, tp in enumerate(left):
            found = runs, *nodes[at :: len(left)]
            if (lost := first_lost_answer(*found)) is not None:
                self.report.unknown[tp] = describe_result(lost)
                continue
            try:
                self._decide(tp, *found[1:])
            except ZkConsumerError as error:
                self.report.error = error
                return

    def _extra_paths(self, left: list[TopicPartition]) -> list[str]:
        """The nodes that are read besides the records: the same number for each partition, ordered by kind."""
        group = self._context.group
        return [paths.owner(group, tp) for tp in left] + [paths.offset(group, tp) for tp in left]

    def _offset_and_ownership(
        self, tp: TopicPartition, beside: tuple[ZnodeResult, ...]
    ) -> tuple[StoredGroupOffset, str]:
        """The group's offset, and why the partition is not ours, if it is not."""
        owner, offset = beside
        return offset_of(offset, self._context.topic_czxids.get(tp.topic, 0)), self._not_owned(tp, owner)

    def _decide(self, tp: TopicPartition, record_node: ZnodeResult, *beside: ZnodeResult) -> None:
        """Plan the write, or settle the partition.  Raises the errors of the nodes' contents, and ``GroupRewound``."""
        record = record_of(record_node, paths.claims_of_partition(self._context.group, self._context.query, tp))
        found, not_owned = self._offset_and_ownership(tp, beside)
        claimed = latest_claim_end(record, self._context.topic_czxids.get(tp.topic, 0))
        seen = ClaimSnapshot(
            record, claimed, MIGRATION_STARTED if self._is_fenced else not_owned, found.offset, found.unreadable
        )
        match decide_claim(self._batch, self._ranges[tp], seen, self._context.on_rewind):
            case WriteClaim() | FinishClaim() | WriteRefusal() as verdict:
                record_version = record_node.stat.version if isinstance(record_node, ZnodeData) else MISSING_VERSION
                self._planned[tp] = PlannedClaimWrite(verdict, record, record_version, found.version, claimed)
            case ReplayClaim(first, end):
                self.report.results[tp] = ClaimedRange(first, end)
                if tp in self._unconfirmed:
                    self._record_rewind(tp, self._unconfirmed[tp])
            case ClaimRefused() as refused:
                self.report.results[tp] = self._unconfirmed_refusal(tp) or refused
            case RewoundBelowClaim(stands_at, ours):
                raise GroupRewound(group_rewound_message(self._context.group, tp, stands_at, ours))

    def _unconfirmed_refusal(self, tp: TopicPartition) -> ClaimRefused | None:
        """The refusal that we wrote just now, although its answer was lost."""
        sent = self._unconfirmed.get(tp)
        return (
            ClaimRefused(sent.decision.reason) if sent is not None and isinstance(sent.decision, WriteRefusal) else None
        )

    def _not_owned(self, tp: TopicPartition, owner: ZnodeResult) -> str:
        epoch = self._context.owned.get(tp)
        if epoch is None:
            return "this query does not own the partition"
        if not isinstance(owner, ZnodeData):
            return f"this query no longer owns the partition ({describe_result(owner)})"
        stat = owner.stat
        if stat.ephemeral_owner != self._context.session_id or stat.version != OUR_OWNER_VERSION:
            return f"the partition is owned by {owner_text(owner)}"
        return "" if stat.czxid == epoch else "its ownership has changed"

    # --- writes -------------------------------------------------------------------------------------------------

    def _register_run(self) -> Procedure[bool]:
        """Ensure that our run is the last one; returns whether it is.  If not, read again, or the query must stop."""
        by, path = self._context, paths.claims_of_query(self._context.group, self._context.query)
        match run_status(self._runs, by.run):
            case RunStatus.CURRENT:
                return True
            case RunStatus.SUPERSEDED:
                self.report.error = QueryAlreadyRunning(duplicate_run_message(by.group, by.query))
                return False
        if self._runs_version == MISSING_VERSION:
            creates = [Create(above) for above in paths.parents(paths.claims(by.group))]
            yield from make_parents([*creates, Create(paths.claims(by.group), acl=by.acl)], self._denials)
        op = write_op(path, format_runs(append_run(self._runs, by.run)), self._runs_version, by.acl)
        [answer] = yield [Multi((op,))]
        match answer:
            case MultiOk((written,)):
                self._runs_version = version_of(written)
                return True
            case MultiFailed(error=NoAuth()):
                self._denials.add(op)
            case MultiFailed(error=NoNode() | BadVersion() | NodeExists()) | ConnectionLost() | SessionEnded():
                self._failed |= dict.fromkeys(self._planned, describe_result(answer))
            case _:
                self.report.error = UnavailableError(f"ZooKeeper does not accept a claim: {describe_result(answer)}")
        yield from self._explain_denials()
        return False

    def _ops(self, tp: TopicPartition, planned: PlannedClaimWrite) -> list[Op]:
        return claim_ops(self._context, self._batch, tp, planned)

    def _write(self, *, singly: bool) -> Procedure[None]:
        again = {tp.topic for tp in self._failed}
        if creates := missing_parents(self._context, self._planned, again):
            yield from make_parents(creates, self._denials)
        ops_of = {tp: self._ops(tp, one) for tp, one in self._planned.items()}
        takes = [(tp, ops) for tp, ops in ops_of.items() if isinstance(self._planned[tp].decision, WriteClaim)]
        others = [(tp, ops) for tp, ops in ops_of.items() if not isinstance(self._planned[tp].decision, WriteClaim)]
        is_last = CheckOp(paths.claims_of_query(self._context.group, self._context.query), self._runs_version)
        plans: list[tuple[MultiPlan, tuple[Op, ...]]] = []
        for ops, checks in ((takes, (is_last, *self._control)), (others, (is_last,))):
            plans += [(plan, checks) for plan in pack_multis(ops, checks, one_by_one=singly)]
        answers = yield [multi_of(plan, checks) for plan, checks in plans]
        for (plan, checks), answer in zip(plans, answers, strict=True):
            self._apply_result(plan, checks, answer)
        yield from self._explain_denials()

    def _apply_result(self, plan: MultiPlan, checks: tuple[Op, ...], answer: Result) -> None:
        """``checks``: the operations before the plan in the multi; the check of our run is the first."""
        match answer:
            case MultiOk(results):
                written = iter(results[len(checks) :])
                for tp, ops in plan:
                    self._written(tp, list(islice(written, len(ops))))
            case MultiFailed(failed=0, error=BadVersion() | NoNode()):
                self._failed |= {tp: SUPERSEDED_BY_RUN for tp, _ in plan}
            case MultiFailed(failed=failed) if 0 < failed < len(checks):
                self._is_fenced = True
                self._failed |= {tp: MIGRATION_STARTED for tp, _ in plan}
            case MultiFailed(failed=failed, error=error):
                self._failed |= {tp: describe_result(error) for tp, _ in plan}
                if isinstance(error, NoAuth):
                    self._denials.add([*checks, *(op for _, ops in plan for op in ops)][failed])
                elif not isinstance(error, NoNode | BadVersion | NodeExists):
                    self.report.error = UnavailableError(f"ZooKeeper does not accept a claim: {describe_result(error)}")
            case ConnectionLost() | SessionEnded():
                self._unconfirmed |= {tp: self._planned[tp] for tp, _ in plan}
                self._failed |= {tp: describe_result(answer) for tp, _ in plan}
            case _:
                self.report.error = UnavailableError(f"ZooKeeper does not accept a claim: {describe_result(answer)}")

    def _written(self, tp: TopicPartition, results: list[str | Stat | None]) -> None:
        planned = self._planned.pop(tp)
        match planned.decision:
            case WriteRefusal(why):
                self.report.results[tp] = ClaimRefused(why)
            case FinishClaim(first, end):
                self.report.results[tp] = ClaimedRange(first, end)
                self._claim_finished(tp)
            case WriteClaim():
                self._claim_written(tp, planned, planned.decision, results)

    def _claim_finished(self, tp: TopicPartition) -> None:
        """Without Kafka's commit metadata the origin of the commit is unknown here."""
        self.report.ambiguous.append(tp)

    def _claim_written(
        self, tp: TopicPartition, planned: PlannedClaimWrite, take: WriteClaim, results: list[str | Stat | None]
    ) -> None:
        _, offset, _ = results
        self.report.results[tp] = ClaimedRange(take.first, take.end)
        self.report.stored[tp] = StoredOffset(take.end, version_of(offset))
        self._record_rewind(tp, planned)

    def _record_rewind(self, tp: TopicPartition, planned: PlannedClaimWrite) -> None:
        take = planned.decision
        if isinstance(take, WriteClaim) and take.rewound_from is not None and planned.claimed_end is not None:
            self.report.rewound[tp] = (take.rewound_from, planned.claimed_end)

    def _explain_denials(self) -> Procedure[None]:
        yield from self._denials.read_acls()
        for denial in self._denials.by_path.values():
            self.report.error = ZkNotAuthorized(
                f"this query cannot claim: {denial.message}; log in as their owner (zookeeper.auth), or change their "
                "ACL"
            )
