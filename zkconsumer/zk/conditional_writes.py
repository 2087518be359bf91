"""Commits and releases: writes that succeed only if the owner node and the offset znode have not changed.

    commit    check our owner node, set the offset at the version that we last read or wrote
    release   the same, and delete the owner node; or create it again for another thread of this member

All partitions are in one multi.  When it fails, owners and offsets are read again and each partition is decided
separately:

    owner node missing, or of another session      this member does not own the partition any more
    offset unchanged                               the write is part of the next multi
    offset changed, and not smaller than ours      the stored offset stays: it decreases only after a reset
    offset changed, and smaller                    ours is written again, and reported: only a process that does not own
                                                   the partition can have written it (a Scala consumer after a pause)

``ZooKeeperExecutor`` runs these procedures for the commands ``CommitToZooKeeper`` and ``ReleaseOwnership``; Spark's
``seek`` runs a commit.  Theory of operation:

*States.*  A partition is **left** (no result), or it has its one final result.  Between them it is only changed by
``_check_partition``: a read may replace the version and the offset to write, and nothing else does.  One exception: a
release whose offset an ACL denies goes on without its offset (``_release_without_offset``).

    left --multi done, or a larger offset is stored--> DONE        left --owner is another, or missing--> NOT_OWNER
    left --connection lost--> UNKNOWN        left --control znode changed, or denied, or third failure--> FAILED

*Why the owner node is checked in the multi, and not before it.*  A process can be paused between any two packets.  Its
session ends meanwhile, another member acquires the partition and commits.  The multi then fails as a whole, because the
owner node is deleted or has another version (``test_a_commit_delayed_past_expiry_and_reconnect_changes_nothing``).  A
node of a later member of this library has the same version 1; the session of the requests excludes that case: the store
sends a request in the session in which it was decided or not at all
(``test_the_requests_of_an_ended_session_are_not_even_executed``).

*What the check does not see.*  A multi can check the version of a node, and not its session or czxid.  So the check
passes if our session lives, another client deleted our owner node, and another member of this library acquired the
partition since.  A Scala consumer that resumes after a pause deletes owner nodes without a condition
(``deletePartitionOwnershipFromZK``).  The watch on the owners of the topic limits this to the time until the owners are
listed again: then ``list_owners`` compares sessions, and the partition is dropped.  After the first multi that fails
the session is compared here, too.

*A lost answer.*  The multi may have been executed or not, so the outcome is UNKNOWN and is not tried again here: the
session may have ended too.  The member keeps its old ``StoredOffset``.  If the multi was executed, the next commit
fails with BadVersion, reads the offset of the lost one, and writes at its version
(``test_a_commit_whose_answer_is_lost_is_of_unknown_outcome_and_the_next_one_is_right``).  A release has no such second
chance: its owner node may be gone, and another member may own the partition with a node of version 1, which a second
multi would delete.  So the next release of that partition sets ``verify_owner`` and reads before it writes
(``test_a_release_of_unknown_outcome_that_was_done_is_seen_to_be_and_nothing_is_written``,
``test_a_node_that_another_session_made_meanwhile_is_not_released_by_us``).

*Order.*  In a release the offset is set before the owner node is deleted, in one multi: the next owner finds the offset
of the last commit.  With ``next_owner`` the node is deleted and created in one multi, so that no other member can
acquire the partition in between (``test_a_release_hands_over_to_another_thread_in_one_multi``).  Parents are created
before the first multi, and again after a read that finds no offset znode
(``test_offsets_that_somebody_deleted_are_made_again``).  The control znode is checked first in every multi: after a
change of the authority nothing is written, and the error of a later operation cannot hide the change
(``test_nothing_is_written_once_the_control_znode_has_changed``).

*Ends.*  Others may write between any two rounds, so a partition is tried ``ROUNDS_MAX`` times, the last time alone in a
multi (``test_somebody_who_writes_again_and_again_is_given_up_on_after_three_rounds``).  One more round exists for
releases whose offset the ACL denied in the last one: to keep the owner node would stop the partition for all members,
and the next owner reads from the last commit
(``test_many_offsets_that_may_not_be_written_are_given_back_in_one_round_more``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from zkconsumer.member.events import StoredOffset, WriteOutcome, ZooKeeperWriteResult
from zkconsumer.member.offset_committer import CONTROL_CHANGED
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
    outcome_of,
    pack_multis,
    stored_offset,
)
from zkconsumer.zk.requests import (
    Acl,
    BadVersion,
    CheckOp,
    Create,
    CreateOp,
    DeleteOp,
    GetMany,
    MultiFailed,
    MultiOk,
    NoAuth,
    NodeExists,
    NoNode,
    Op,
    SetOp,
    Stat,
    StoreError,
    ZnodeData,
)
from zkconsumer.zk.znode_formats import format_offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from zkconsumer.member.commands import OffsetToCommit, PartitionToRelease
    from zkconsumer.types import TopicPartition


@dataclass(slots=True)
class _PartitionWrite:
    """The planned write of one partition; ``_check_partition`` changes it after a read."""

    offset: int | None
    """None: no offset is written; never set again once it is None."""
    stored: StoredOffset
    """The offset znode as last read or written; its version is the condition of the write.  -1: create it."""
    stored_at_decision: StoredOffset
    """The content of the offset znode that the member assumed when it decided this write; constant.  A read that finds
    something else found the write of another client, or one of ours whose answer was lost.  It is also ``stored`` in
    the result of a write that is not done: the member continues to assume it."""
    is_release: bool = False
    """Whether the owner node is deleted in the same multi; False: it is only checked."""
    next_owner: str | None = None
    """The thread of this member for which a release creates the owner node again; always None for a commit."""
    verify_owner: bool = False
    """Read the owner node before the first multi.  True for a release after a write of the owner node whose answer was
    lost: the node may not exist, or belong to another member.  The multi would delete that one, as its version is 1,
    too; only its session shows the difference."""
    is_reset: bool = False
    """The reset policy has moved the position since the member knew of ``stored_at_decision``: ours replaces a larger
    offset, too.  It may be one of ours from before the reset, whose answer was lost."""
    rewound_from: int | None = None
    """The smaller offset that another client stored and that this write replaces; -1: text that is no offset."""


class ConditionalWrites:
    """One batch of commits or releases; ``results`` has an outcome for every partition after ``run``."""

    def __init__(
        self,
        group: str,
        session_id: int,
        writes: Mapping[TopicPartition, _PartitionWrite],
        *,
        control_version: int | None,
        acl: tuple[Acl, ...] | None,
        denials: DenialCollector | None,
    ) -> None:
        assert session_id != 0, "0 is the session of persistent nodes, so they would count as ours"
        self.results: dict[TopicPartition, ZooKeeperWriteResult] = {}
        """A result is final, but for its ``why``.  A partition without one is part of the next multi."""
        self._acl = acl
        """The ACL of created nodes; None: all users may write them."""
        self._denials = denials or DenialCollector()
        """The operations that ACLs denied; the caller reports them after ``run``."""
        self._group = group
        self._session_id = session_id
        """The session in which the member decided the writes; the executor sends all rounds in it, or none."""
        self._writes = writes
        """All partitions of the batch; the keys are constant."""
        self._control = control_check(group, control_version)
        """The first operations of every multi: the check of the control znode, or none.  An index in an answer that is
        below their number says that the group migrates."""
        self._without_offset: set[TopicPartition] = set()
        """Releases whose offset an ACL denied.  Their ``offset`` is None."""

    def run(self) -> Procedure[dict[TopicPartition, ZooKeeperWriteResult]]:
        """Write in at most three rounds, and read again what failed after each; then read the ACLs of denied nodes.

        The ACL replaces ``why`` in the results that it explains: failures, and releases without their offset.  An
        operator must see which node denies the write, and which users it allows.
        """
        yield from self._write()
        assert len(self.results) == len(self._writes), "every partition has an outcome after the last round"
        yield from self._denials.read_acls()
        if not self._denials.by_path:
            return self.results
        for tp, written in self.results.items():
            nodes = paths.offset(self._group, tp), paths.owner(self._group, tp)
            denial = next(filter(None, map(self._denials.nearest_to, nodes)), None)
            if denial is not None and (written.outcome is WriteOutcome.FAILED or tp in self._without_offset):
                self.results[tp] = replace(written, why=denial.message)
        return self.results

    def _write(self) -> Procedure[None]:
        """Give every partition a result.

        The fourth round, and only it, consists of releases to which the third one denied the offset; without the
        offset no further denial of this kind is possible, so it is the last.
        """
        yield from self._reread([tp for tp, write in self._writes.items() if write.verify_owner])
        yield from self._make_parents()
        for attempt in range(ROUNDS_MAX + 1):
            left = [tp for tp in self._writes if tp not in self.results]
            if not left:
                return
            assert attempt < ROUNDS_MAX or self._without_offset.issuperset(left), "the third try of the others decides"
            yield from self._try(left, is_last=attempt >= ROUNDS_MAX - 1)

    def _make_parents(self) -> Procedure[None]:
        """Create the parents of offset znodes that do not exist; a denied one denies the offsets below it.

        Denied offsets are decided before the multi: it would fail with NoNode, which says nothing about the ACL.
        """
        created = [
            tp
            for tp, write in self._writes.items()
            if write.offset is not None and write.stored.version < 0 and tp not in self.results
        ]
        if not created:
            return
        topics = sorted({paths.offsets_of_topic(self._group, tp.topic) for tp in created})
        nodes = [Create(path, acl=self._acl) for path in (paths.offsets(self._group), *topics)]
        yield from make_parents(nodes, self._denials)
        for tp in created:
            denial = self._denials.nearest_to(paths.offsets_of_topic(self._group, tp.topic))
            if denial is not None:
                self._release_without_offset(tp, f"NoAuth {denial.path}")

    def _release_without_offset(self, tp: TopicPartition, why: str) -> None:
        """The ACL denies the offset: go on without it in a release, and end a commit as failed.

        A release must not fail for it, because the owner node of a partition that this member does not read any more
        keeps all others from reading it.  The next owner starts from the last commit.
        """
        assert tp not in self.results, "a denied write has no outcome before this decision"
        if self._writes[tp].is_release:
            self._writes[tp].offset = None
            self._without_offset.add(tp)
        else:
            self._set_result([tp], WriteOutcome.FAILED, why)

    def _try(self, left: Sequence[TopicPartition], *, is_last: bool) -> Procedure[None]:
        """One round: send the multis, decide what their answers show, and read the rest again.

        In the last round each partition has a multi of its own, so that its error is its own.  Before, an error of one
        partition says nothing about the others of its multi: ZooKeeper names the first operation that failed only.
        """
        plans = pack_multis([(tp, self._ops(tp)) for tp in left], self._control, one_by_one=is_last)
        answers = yield [multi_of(plan, self._control) for plan in plans]
        for plan, answer in zip(plans, answers, strict=True):
            partitions = [tp for tp, _ in plan]
            if isinstance(answer, MultiOk):
                self._on_multi_done(plan, answer)
            elif not isinstance(answer, MultiFailed):
                self._set_result(partitions, outcome_of(answer), describe_result(answer))
            elif answer.failed < len(self._control):
                self._set_result(partitions, WriteOutcome.FAILED, CONTROL_CHANGED)
            else:
                self._on_multi_failed(plan, answer, is_last=is_last)
        yield from self._reread([tp for tp in left if tp not in self.results])

    def _on_multi_failed(self, plan: MultiPlan, answer: MultiFailed, *, is_last: bool) -> None:
        """Set the result of the partition whose operation failed, if reading it again cannot help.

        Reading helps after NoNode, BadVersion and NodeExists: another client changed the owner node or the offset
        znode.  The other partitions of the multi stay left.
        """
        tp, op = [(tp, op) for tp, ops in plan for op in ops][answer.failed - len(self._control)]
        if isinstance(answer.error, NoAuth):
            self._denials.add(op)
        if isinstance(answer.error, NoAuth) and op.path == paths.offset(self._group, tp):
            self._release_without_offset(tp, describe_result(answer.error))
        elif is_last or not isinstance(answer.error, NoNode | BadVersion | NodeExists):
            self._set_result([tp], WriteOutcome.FAILED, describe_result(answer.error))

    def _ops(self, tp: TopicPartition) -> list[Op]:
        """The operations of one partition: the offset first, then the owner node.

        A commit checks the owner node; a release deletes it at our version, which is the same check.  A node for the
        next thread is created *and set*, as in an acquisition, so that its version is 1 again.
        """
        write, owner = self._writes[tp], paths.owner(self._group, tp)
        assert write.is_release or write.next_owner is None, "a commit does not change the thread of a partition"
        assert write.is_release or write.offset is not None, "a commit writes an offset"
        ops: list[Op] = []
        if write.offset is not None:
            path, data = paths.offset(self._group, tp), format_offset(write.offset)
            known = write.stored.version
            ops.append(CreateOp(path, data, acl=self._acl) if known < 0 else SetOp(path, data, known))
        if not write.is_release:
            return [CheckOp(owner, OUR_OWNER_VERSION), *ops]
        ops.append(DeleteOp(owner, OUR_OWNER_VERSION))
        if write.next_owner is not None:
            data = write.next_owner.encode()
            ops += [CreateOp(owner, data, ephemeral=True, acl=self._acl), SetOp(owner, data, INITIAL_VERSION)]
        return ops

    def _on_multi_done(self, plan: MultiPlan, answer: MultiOk) -> None:
        """Every partition of the multi is done.

        The results have the new version of each offset znode (the condition of the next commit), and the czxid of each
        owner node that was created again (the epoch of the ownership).
        """
        assert len(answer.results) == len(self._control) + sum(len(ops) for _, ops in plan), "one for each operation"
        results = iter(answer.results[len(self._control) :])
        for tp, ops in plan:
            write = self._writes[tp]
            stored, czxid = write.stored, 0
            for op, result in zip(ops, islice(results, len(ops)), strict=True):
                if op.path == paths.offset(self._group, tp) and write.offset is not None:
                    version = result.version if isinstance(result, Stat) else INITIAL_VERSION
                    stored = StoredOffset(write.offset, version)
                elif isinstance(op, SetOp) and isinstance(result, Stat):
                    czxid = result.czxid
            self.results[tp] = ZooKeeperWriteResult(
                WriteOutcome.DONE,
                stored,
                rewound_from=write.rewound_from,
                is_thread_changed=write.next_owner is not None,
                czxid=czxid,
            )

    def _reread(self, partitions: Sequence[TopicPartition]) -> Procedure[None]:
        """Read owners and offsets again, and decide for each partition separately."""
        if not partitions:
            return
        owners = tuple(paths.owner(self._group, tp) for tp in partitions)
        offsets = tuple(paths.offset(self._group, tp) for tp in partitions)
        [nodes] = yield [GetMany(owners + offsets)]
        assert isinstance(nodes, list), "GetMany returns a list"
        assert len(nodes) == 2 * len(partitions), "the owners come first, then the offsets of the same partitions"
        for index, tp in enumerate(partitions):
            self._check_partition(tp, nodes[index], nodes[index + len(partitions)])
        yield from self._make_parents()

    def _check_partition(
        self, tp: TopicPartition, owner: ZnodeData | StoreError, offset: ZnodeData | StoreError
    ) -> None:
        """Decide one partition by its nodes: a result, or what its next multi writes and checks.

        The owner node decides first: the offset of a partition that is not ours is not ours to compare.  The version
        shows a node that our session did not make by an acquisition, for example one of a Scala consumer.  An offset
        znode whose text is no offset is written over: no client can start from it, and ours is the position of the
        owner (``test_an_offset_that_nobody_can_read_is_written_over``).
        """
        assert tp not in self.results, "what is decided is not read again"
        write, found = self._writes[tp], stored_offset(offset)
        if isinstance(owner, NoNode):
            self._set_result([tp], WriteOutcome.NOT_OWNER, "the owner node does not exist")
        elif isinstance(owner, StoreError):
            self._set_result([tp], outcome_of(owner), describe_result(owner))
        elif owner.stat.ephemeral_owner != self._session_id or owner.stat.version != OUR_OWNER_VERSION:
            self._set_result([tp], WriteOutcome.NOT_OWNER, f"another member has the owner node: {owner.data[:200]!r}")
        elif write.offset is not None and isinstance(found, StoredOffset):
            self._reconcile(tp, write, write.offset, found)
        elif write.offset is not None and isinstance(offset, ZnodeData):
            write.stored, write.rewound_from = StoredOffset(-1, offset.stat.version), -1
        elif write.offset is not None:
            self._set_result([tp], outcome_of(offset), str(found))

    def _reconcile(self, tp: TopicPartition, write: _PartitionWrite, offset: int, found: StoredOffset) -> None:
        """Compare the offset that was found with the one to write; the stored offset must not decrease.

        A changed znode with an offset between the two is an earlier commit of ours whose answer was lost, or one of a
        Scala consumer that read on; both are written over without a report, because the offset only grows.  An
        unchanged znode may contain a larger offset: the reset policy moved the position back, and that is committed
        (``test_a_commit_after_a_reset_may_go_back``), also if the znode has changed
        (``test_a_commit_after_a_reset_goes_back_also_behind_a_commit_whose_answer_was_lost``).
        """
        has_changed = found != write.stored_at_decision
        if has_changed and (found.offset == offset or (found.offset > offset and not write.is_reset)):
            write.offset = None
        elif has_changed and found.offset < write.stored_at_decision.offset:
            write.rewound_from = found.offset
        write.stored = found
        if write.offset is None and not write.is_release:
            self.results[tp] = ZooKeeperWriteResult(WriteOutcome.DONE, found)

    def _set_result(self, partitions: Iterable[TopicPartition], outcome: WriteOutcome, why: str) -> None:
        for tp in partitions:
            assert tp not in self.results, "an outcome is final"
            self.results[tp] = ZooKeeperWriteResult(outcome, self._writes[tp].stored_at_decision, why)


def commit_partitions(
    group: str,
    session_id: int,
    offsets: Mapping[TopicPartition, OffsetToCommit],
    *,
    control_version: int | None,
    acl: tuple[Acl, ...] | None = None,
    denials: DenialCollector | None = None,
) -> Procedure[dict[TopicPartition, ZooKeeperWriteResult]]:
    """Write offsets of partitions that this member keeps: one packet if nothing fails.

    ``control_version``: of the control znode in the view by which the member decided; None: without that znode.
    ``acl``: the ACL of created nodes; ``denials`` collects the operations that ACLs of existing nodes deny.
    """
    writes = {tp: _PartitionWrite(of.offset, of.stored, of.stored, is_reset=of.is_reset) for tp, of in offsets.items()}
    return ConditionalWrites(group, session_id, writes, control_version=control_version, acl=acl, denials=denials).run()


def release_partitions(
    group: str,
    session_id: int,
    parts: Mapping[TopicPartition, PartitionToRelease],
    *,
    control_version: int | None,
    acl: tuple[Acl, ...] | None = None,
    denials: DenialCollector | None = None,
) -> Procedure[dict[TopicPartition, ZooKeeperWriteResult]]:
    """Commit and release, or move to another thread of this member: one packet if nothing fails."""
    writes = {
        tp: _PartitionWrite(
            of.offset,
            of.stored,
            of.stored,
            is_release=True,
            next_owner=of.next_owner,
            verify_owner=of.verify_owner,
            is_reset=of.is_reset,
        )
        for tp, of in parts.items()
    }
    return ConditionalWrites(group, session_id, writes, control_version=control_version, acl=acl, denials=denials).run()
