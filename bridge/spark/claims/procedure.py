"""A claim, step by step, as a generator of rounds of requests (see ``zkconsumer.zk.procedures``).

    1  read runs, records, owners and offsets of all partitions      one packet where the server reads many at once
       enter our run, when it claims for the first time              (at the version just read; see ``runs``)
    2  what the judge takes, in one multi; for each partition:
           check  our owner node                (version 1; this procedure runs in the session that made it)
           set    the offset := end             (at the version just read; or create it: it did not exist)
           set    the record, this claim added  (at the version just read; or create it)
       and, before all of them, check that our run is the last one, and the control znode of a group that has one;
       what the judge refuses, in another multi: check our run, set the record, the refusal in it

When a multi fails, everything is read again and each partition is judged alone, at most ``ROUNDS_MAX`` times; in the
last one each partition has a multi of its own.  A multi whose answer was lost with the connection is never guessed: the
record tells.  Where nobody can tell, the partition is *unknown*, and the caller must not go on with the batch but ask
again: asking twice gives the same answer, and a wrong one would lose a range or read it twice.

The owner check names a version only.  That our node was replaced by another member's between the look and the multi is
possible only when our session ended or we gave the partition back ourselves; the first makes the store refuse the
multi, the second is for the caller: one thread claims and releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from bridge.spark.claims.judge import Finish, Refuse, Replay, Rewound, Seen, Take, judge
from bridge.spark.claims.look import MISSING, FoundOffset, claimed_of, lost_of, offset_of, read_nodes, record_of
from bridge.spark.claims.report import ClaimReport
from bridge.spark.claims.runs import Turn, entered, format_runs, parse_runs, turn_of
from bridge.spark.claims.words import rewound_words, twice_words
from bridge.spark.claims.writes import Claimant, Planned, ops_for, parents_of, write_op
from bridge.spark.membership import Refused, Taken, Wanted
from zkconsumer.core.events import StoredOffset
from zkconsumer.errors import GroupRewound, QueryRunsTwice, WorldError, ZkConsumerError, ZkNotAuthorized
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.denials import Denials
from zkconsumer.zk.procedures import (
    FRESH_VERSION,
    OUR_OWNER_VERSION,
    ROUNDS_MAX,
    Plan,
    Procedure,
    control_check,
    make_parents,
    multi_of,
    owner_words,
    packed,
    words_of,
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
    Node,
    NodeExists,
    NoNode,
    OneResult,
    Op,
    Result,
    SessionGone,
    Stat,
)


def version_of(written: str | Stat | None) -> int:
    """The version of a node that was written: set, or made."""
    return written.version if isinstance(written, Stat) else FRESH_VERSION


FENCED = "the control znode of the group changed: a migration is under way"

OTHER_RUN = "another run of the query has begun"


def claim(claimant: Claimant, batch: int, ranges: Mapping[TopicPartition, Wanted]) -> Procedure[ClaimReport]:
    """Claim the ranges of a batch, or find what it was told before: two packets when nothing stands in the way, and
    another one for the first claim of a run.

    To be run in the session of ``claimant.session_id``.  Raises ``UnsafeName`` for a query id that is no name.
    """
    claims = Claims(claimant, batch, ranges)
    yield from claims.run()
    return claims.report


class Claims:
    """One batch's claim; ``report`` gets every partition."""

    def __init__(self, claimant: Claimant, batch: int, ranges: Mapping[TopicPartition, Wanted]) -> None:
        self.report = ClaimReport()
        self._by = claimant
        self._batch = batch
        self._ranges = ranges
        self._control = control_check(claimant.group, claimant.control_version)
        self._is_fenced = False
        self._runs: tuple[str, ...] = ()
        self._runs_version = MISSING
        self._denials = Denials()
        self._planned: dict[TopicPartition, Planned] = {}
        self._sent: dict[TopicPartition, Planned] = {}
        """Whose answer did not come: should the record now have our claim, then it was this."""
        self._failed: dict[TopicPartition, str] = {}
        """Why the last multi of a partition was not done."""

    def run(self) -> Procedure[None]:
        """Look, judge, write, at most ``ROUNDS_MAX`` times; at last a look alone."""
        for attempt in range(ROUNDS_MAX + 1):
            left = [tp for tp in self._ranges if not self._is_settled(tp)]
            if not left or self._must_stop():
                return
            yield from self._look(left)
            if attempt < ROUNDS_MAX and self._planned and not self._must_stop():
                may_write = yield from self._enter()
                if may_write:
                    yield from self._write(singly=attempt == ROUNDS_MAX - 1)
        self.report.unknown |= {tp: self._failed.get(tp, "it was never written") for tp in self._planned}

    def _must_stop(self) -> bool:
        return self.report.error is not None

    def _is_settled(self, tp: TopicPartition) -> bool:
        return tp in self.report.answers

    # --- looking ------------------------------------------------------------------------------------------------

    def _look(self, left: list[TopicPartition]) -> Procedure[None]:
        records = [paths.claims_of_partition(self._by.group, self._by.query, tp) for tp in left]
        query = paths.claims_of_query(self._by.group, self._by.query)
        runs, *nodes = yield from read_nodes([query, *records, *self._beside(left)])
        self._planned.clear()
        self.report.unknown.clear()
        self._runs = parse_runs(runs.data) if isinstance(runs, Node) else ()
        self._runs_version = runs.stat.version if isinstance(runs, Node) else MISSING
        for at, tp in enumerate(left):
            found = runs, *nodes[at :: len(left)]
            if (lost := lost_of(*found)) is not None:
                self.report.unknown[tp] = words_of(lost)
                continue
            try:
                self._judge(tp, *found[1:])
            except ZkConsumerError as error:
                self.report.error = error
                return

    def _beside(self, left: list[TopicPartition]) -> list[str]:
        """What is read beside the records: so many nodes of each partition, the first of all first."""
        group = self._by.group
        return [paths.owner(group, tp) for tp in left] + [paths.offset(group, tp) for tp in left]

    def _see(self, tp: TopicPartition, beside: tuple[OneResult, ...]) -> tuple[FoundOffset, str]:
        """Where the group stands, and why the partition is not ours, if it is not."""
        owner, offset = beside
        return offset_of(offset, self._by.births.get(tp.topic, 0)), self._not_owned(tp, owner)

    def _judge(self, tp: TopicPartition, record_node: OneResult, *beside: OneResult) -> None:
        """Plan what is to be written, or settle the partition.  Raises what the nodes hold, and ``GroupRewound``."""
        record = record_of(record_node, paths.claims_of_partition(self._by.group, self._by.query, tp))
        found, not_owned = self._see(tp, beside)
        claimed = claimed_of(record, self._by.births.get(tp.topic, 0))
        seen = Seen(record, claimed, FENCED if self._is_fenced else not_owned, found.offset, found.unreadable)
        match judge(self._batch, self._ranges[tp], seen, self._by.on_rewind):
            case Take() | Finish() | Refuse() as verdict:
                record_version = record_node.stat.version if isinstance(record_node, Node) else MISSING
                self._planned[tp] = Planned(verdict, record, record_version, found.version, claimed)
            case Replay(first, end):
                self.report.answers[tp] = Taken(first, end)
                if tp in self._sent:
                    self._note_rewind(tp, self._sent[tp])
            case Refused() as refused:
                self.report.answers[tp] = self._said(tp) or refused
            case Rewound(stands_at, ours):
                raise GroupRewound(rewound_words(self._by.group, tp, stands_at, ours))

    def _said(self, tp: TopicPartition) -> Refused | None:
        """The refusal that we wrote just now, though its answer did not come."""
        sent = self._sent.get(tp)
        return Refused(sent.verdict.why) if sent is not None and isinstance(sent.verdict, Refuse) else None

    def _not_owned(self, tp: TopicPartition, owner: OneResult) -> str:
        epoch = self._by.held.get(tp)
        if epoch is None:
            return "this query does not hold the partition"
        if not isinstance(owner, Node):
            return f"this query does not own the partition any more ({words_of(owner)})"
        stat = owner.stat
        if stat.ephemeral_owner != self._by.session_id or stat.version != OUR_OWNER_VERSION:
            return f"the partition is owned by {owner_words(owner)}"
        return "" if stat.czxid == epoch else "its ownership is a new one"

    # --- writing ------------------------------------------------------------------------------------------------

    def _enter(self) -> Procedure[bool]:
        """See to it that our run is the last one; whether it is.  If not, look again, or the query must stop."""
        by, path = self._by, paths.claims_of_query(self._by.group, self._by.query)
        match turn_of(self._runs, by.run):
            case Turn.CLAIM:
                return True
            case Turn.OVER:
                self.report.error = QueryRunsTwice(twice_words(by.group, by.query))
                return False
        if self._runs_version == MISSING:
            creates = [Create(above) for above in paths.parents(paths.claims(by.group))]
            yield from make_parents([*creates, Create(paths.claims(by.group), acl=by.acl)], self._denials)
        op = write_op(path, format_runs(entered(self._runs, by.run)), self._runs_version, by.acl)
        [answer] = yield [Multi((op,))]
        match answer:
            case MultiOk((written,)):
                self._runs_version = version_of(written)
                return True
            case MultiFailed(error=NoAuth()):
                self._denials.note(op)
            case MultiFailed(error=NoNode() | BadVersion() | NodeExists()) | ConnectionLost() | SessionGone():
                self._failed |= dict.fromkeys(self._planned, words_of(answer))
            case _:
                self.report.error = WorldError(f"ZooKeeper does not take a claim: {words_of(answer)}")
        yield from self._explain_denials()
        return False

    def _ops(self, tp: TopicPartition, planned: Planned) -> list[Op]:
        return ops_for(self._by, self._batch, tp, planned)

    def _write(self, *, singly: bool) -> Procedure[None]:
        again = {tp.topic for tp in self._failed}
        if creates := parents_of(self._by, self._planned, again):
            yield from make_parents(creates, self._denials)
        ops_of = {tp: self._ops(tp, one) for tp, one in self._planned.items()}
        takes = [(tp, ops) for tp, ops in ops_of.items() if isinstance(self._planned[tp].verdict, Take)]
        others = [(tp, ops) for tp, ops in ops_of.items() if not isinstance(self._planned[tp].verdict, Take)]
        is_last = CheckOp(paths.claims_of_query(self._by.group, self._by.query), self._runs_version)
        plans: list[tuple[Plan, tuple[Op, ...]]] = []
        for ops, checks in ((takes, (is_last, *self._control)), (others, (is_last,))):
            plans += [(plan, checks) for plan in packed(ops, checks, singly=singly)]
        answers = yield [multi_of(plan, checks) for plan, checks in plans]
        for (plan, checks), answer in zip(plans, answers, strict=True):
            self._take_answer(plan, checks, answer)
        yield from self._explain_denials()

    def _take_answer(self, plan: Plan, checks: tuple[Op, ...], answer: Result) -> None:
        """``checks``: what stands in the multi before the plan; that our run is the last one stands first."""
        match answer:
            case MultiOk(results):
                written = iter(results[len(checks) :])
                for tp, ops in plan:
                    self._done(tp, list(islice(written, len(ops))))
            case MultiFailed(failed=0, error=BadVersion() | NoNode()):
                self._failed |= {tp: OTHER_RUN for tp, _ in plan}
            case MultiFailed(failed=failed) if 0 < failed < len(checks):
                self._is_fenced = True
                self._failed |= {tp: FENCED for tp, _ in plan}
            case MultiFailed(failed=failed, error=error):
                self._failed |= {tp: words_of(error) for tp, _ in plan}
                if isinstance(error, NoAuth):
                    self._denials.note([*checks, *(op for _, ops in plan for op in ops)][failed])
                elif not isinstance(error, NoNode | BadVersion | NodeExists):
                    self.report.error = WorldError(f"ZooKeeper does not take a claim: {words_of(error)}")
            case ConnectionLost() | SessionGone():
                self._sent |= {tp: self._planned[tp] for tp, _ in plan}
                self._failed |= {tp: words_of(answer) for tp, _ in plan}
            case _:
                self.report.error = WorldError(f"ZooKeeper does not take a claim: {words_of(answer)}")

    def _done(self, tp: TopicPartition, results: list[str | Stat | None]) -> None:
        planned = self._planned.pop(tp)
        match planned.verdict:
            case Refuse(why):
                self.report.answers[tp] = Refused(why)
            case Finish(first, end):
                self.report.answers[tp] = Taken(first, end)
                self._finished(tp)
            case Take():
                self._taken(tp, planned, planned.verdict, results)

    def _finished(self, tp: TopicPartition) -> None:
        """Nobody tells here whose commit it was."""
        self.report.unsure.append(tp)

    def _taken(self, tp: TopicPartition, planned: Planned, take: Take, results: list[str | Stat | None]) -> None:
        _, offset, _ = results
        self.report.answers[tp] = Taken(take.first, take.end)
        self.report.stored[tp] = StoredOffset(take.end, version_of(offset))
        self._note_rewind(tp, planned)

    def _note_rewind(self, tp: TopicPartition, planned: Planned) -> None:
        take = planned.verdict
        if isinstance(take, Take) and take.rewound_from is not None and planned.claimed is not None:
            self.report.rewound[tp] = (take.rewound_from, planned.claimed)

    def _explain_denials(self) -> Procedure[None]:
        yield from self._denials.explain()
        for denial in self._denials.found.values():
            self.report.error = ZkNotAuthorized(
                f"this query cannot claim: {denial.words}; log in as their owner (zookeeper.auth), or open them"
            )
