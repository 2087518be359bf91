"""Commits and releases: writes that succeed only if the owner node and the offset znode have not changed.

    commit    check our owner node, set the offset at the version that we last read or wrote
    release   the same, and delete the owner node; or create it again for another thread of this member

All partitions are in one multi.  When it fails, owners and offsets are read again and each partition is decided
separately:

    owner node missing, or of another session      this member does not own the partition any more
    offset unchanged                               the write is part of the next multi
    offset changed, and not smaller than ours      the stored offset stays: it never decreases
    offset changed, and smaller                    ours is written again, and reported: only a process that does not own
                                                   the partition can have written it (a Scala consumer after a pause)

``ZooKeeperExecutor`` runs these procedures for the commands ``CommitToZooKeeper`` and ``ReleaseOwnership``; Spark's
``seek`` runs a commit.  Theory of operation:

*States.*  A partition is **left** (no result), or it has its one final result.  Between them it is only changed by
``_check_partition``: a read may replace the version and the offset to write, and nothing else does.

    left --multi done, or a larger offset is stored--> DONE        left --owner is another, or missing--> NOT_OWNER
    left --connection lost--> UNKNOWN        left --control znode changed, or denied, or third failure--> FAILED

*Why the owner node is checked in the multi, and not before it.*  A process can be paused between any two packets.  Its
session ends meanwhile, another member acquires the partition and commits.  The multi then fails as a whole, because the
owner node is deleted or has another version (``test_a_commit_delayed_past_expiry_and_reconnect_changes_nothing``).  A
node of a later member of this library has the same version 1; the session of the requests excludes that case: the store
sends a request in the session in which it was decided or not at all
(``test_the_requests_of_an_ended_session_are_not_even_executed``).

*A lost answer.*  The multi may have been executed or not, so the outcome is UNKNOWN and is not tried again here: the
session may have ended too.  The member keeps its old ``StoredOffset``.  If the multi was executed, the next commit
fails with BadVersion, reads the offset of the lost one, and writes at its version
(``test_a_commit_whose_answer_is_lost_is_of_unknown_outcome_and_the_next_one_is_right``).  A release has no such second
chance: its owner node may be gone, and another member may own the partition.  So the next release of that partition
sets ``verify_owner`` and reads before it writes
(``test_a_release_of_unknown_outcome_that_was_done_is_seen_to_be_and_nothing_is_written``).

*Order.*  In a release the offset is set before the owner node is deleted, in one multi: the next owner finds the offset
of the last commit.  With ``next_owner`` the node is deleted and created in one multi, so that no other member can
acquire the partition in between (``test_a_release_hands_over_to_another_thread_in_one_multi``).  Parents are created
before the first multi, and again after a read that finds no offset znode
(``test_offsets_that_somebody_deleted_are_made_again``).

*Ends.*  Others may write between any two rounds, so a partition is tried ``ROUNDS_MAX`` times, the last time alone in a
multi (``test_somebody_who_writes_again_and_again_is_given_up_on_after_three_rounds``).  One more round exists for
releases whose offset the ACL denied in the last one: to keep the owner node would stop the partition for all members,
and the next owner reads from the last commit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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

    owner: str
    offset: int | None
    """None: no offset is written; never set again once it is None."""
    stored: StoredOffset
    """The offset znode as last read or written; its version is the condition of the write.  -1: create it."""
    is_release: bool
    next_owner: str | None
    """The thread that owns the partition after the release; always None for a commit."""
    verify_owner: bool
    stored_before: StoredOffset
    """``stored`` at the beginning, the result of a write that is not done; constant.  What differs from it was written
    by another process, or by us with a lost answer."""
    rewound_from: int | None = None
    """The smaller offset that another process stored and that this write replaces."""

    @property
    def writes_offset(self) -> bool:
        return self.offset is not None


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
        denials: DenialCollector,
    ) -> None:
        assert session_id != 0, "0 is the session of persistent nodes, so they would count as ours"
        self.results: dict[TopicPartition, ZooKeeperWriteResult] = {}
        """A result is final, but for its ``why``.  A partition without one is part of the next multi."""
        self._acl = acl
        self._denials = denials
        self._group = group
        self._session_id = session_id
        self._writes = writes
        """All partitions of the batch; the keys are constant."""
        self._control = control_check(group, control_version)
        """The first operations of every multi: the check of the control znode, or none.  An index in an answer that is
        below their number says that the group migrates."""
        self._without_offset: set[TopicPartition] = set()
        """Releases whose offset an ACL denied.  Their ``offset`` is None."""

    def run(self) -> Procedure[None]:
        """Write in at most three rounds, and read again what failed after each; then read the ACLs of denied nodes."""
        yield from self._write()
        assert len(self.results) == len(self._writes), "every partition has an outcome after the last round"
        yield from self._denials.read_acls()
        if not self._denials.by_path:
            return
        for tp, written in self.results.items():
            nodes = paths.offset(self._group, tp), paths.owner(self._group, tp)
            denial = next(filter(None, map(self._denials.nearest_to, nodes)), None)
            if denial is not None and (written.outcome is WriteOutcome.FAILED or tp in self._without_offset):
                self.results[tp] = replace(written, why=denial.message)

    def _write(self) -> Procedure[None]:
        unverified = [tp for tp, write in self._writes.items() if write.verify_owner]
        if unverified:
            yield from self._reread(unverified)
        yield from self._make_parents()
        for attempt in range(ROUNDS_MAX):
            left = [tp for tp in self._writes if tp not in self.results]
            if not left:
                return
            is_last = attempt == ROUNDS_MAX - 1
            yield from self._try(self._plans(left, singly=is_last), is_last=is_last)
        left = [tp for tp in self._writes if tp not in self.results]
        if left:  # the last round had no permission to write their offsets: release them without a commit
            yield from self._try(self._plans(left, singly=True), is_last=True)

    def _plans(self, partitions: Iterable[TopicPartition], *, singly: bool) -> list[MultiPlan]:
        return pack_multis([(tp, self._ops(tp)) for tp in partitions], self._control, one_by_one=singly)

    def _make_parents(self) -> Procedure[None]:
        topics = {tp.topic for tp, w in self._writes.items() if w.writes_offset and w.stored.version < 0}
        if not topics:
            return
        topic_nodes = [Create(paths.offsets_of_topic(self._group, topic), acl=self._acl) for topic in sorted(topics)]
        yield from make_parents([Create(paths.offsets(self._group), acl=self._acl), *topic_nodes], self._denials)
        for tp, write in self._writes.items():
            denial = self._denials.nearest_to(paths.offsets_of_topic(self._group, tp.topic))
            if denial is not None and write.writes_offset and write.stored.version < 0 and tp not in self.results:
                self._release_without_offset(tp, f"NoAuth {denial.path}")

    def _release_without_offset(self, tp: TopicPartition, why: str) -> None:
        """Release the partition without its offset, so that another member can read it from the last commit."""
        assert tp not in self.results, "a denied write has no outcome before this decision"
        if self._writes[tp].is_release:
            self._writes[tp].offset = None
            self._without_offset.add(tp)
        else:
            self._set_result([tp], WriteOutcome.FAILED, why)

    def _try(self, plans: list[MultiPlan], *, is_last: bool) -> Procedure[None]:
        answers = yield [multi_of(plan, self._control) for plan in plans]
        doubtful: list[TopicPartition] = []
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
                doubtful += [tp for tp in partitions if tp not in self.results]
        if doubtful:
            yield from self._reread(doubtful)

    def _on_multi_failed(self, plan: MultiPlan, answer: MultiFailed, *, is_last: bool) -> None:
        """Set the result of the partition whose operation failed, if reading it again cannot help."""
        at = answer.failed - len(self._control)
        for tp, ops in plan:
            if at < len(ops):
                if isinstance(answer.error, NoAuth):
                    self._denials.add(ops[at])
                if isinstance(answer.error, NoAuth) and ops[at].path == paths.offset(self._group, tp):
                    self._release_without_offset(tp, describe_result(answer.error))
                elif is_last or not isinstance(answer.error, NoNode | BadVersion | NodeExists):
                    self._set_result([tp], WriteOutcome.FAILED, describe_result(answer.error))
                return
            at -= len(ops)

    def _ops(self, tp: TopicPartition) -> list[Op]:
        write, owner = self._writes[tp], paths.owner(self._group, tp)
        assert write.is_release or write.next_owner is None, "a commit does not change the thread of a partition"
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
        at = len(self._control)
        for tp, ops in plan:
            write = self._writes[tp]
            stored, czxid = write.stored, 0
            for op, result in zip(ops, answer.results[at : at + len(ops)], strict=True):
                if op.path == paths.offset(self._group, tp) and write.offset is not None:
                    version = result.version if isinstance(result, Stat) else INITIAL_VERSION
                    stored = StoredOffset(write.offset, version)
                elif isinstance(op, SetOp) and isinstance(result, Stat):
                    czxid = result.czxid
            at += len(ops)
            self.results[tp] = ZooKeeperWriteResult(
                WriteOutcome.DONE,
                stored,
                "",
                write.rewound_from,
                is_thread_changed=write.next_owner is not None,
                czxid=czxid,
            )
        assert at == len(answer.results), "a multi that was executed has one result for each operation"

    def _reread(self, partitions: Sequence[TopicPartition]) -> Procedure[None]:
        """Read owners and offsets again, and decide for each partition separately."""
        owners = tuple(paths.owner(self._group, tp) for tp in partitions)
        offsets = tuple(paths.offset(self._group, tp) for tp in partitions)
        [nodes] = yield [GetMany(owners + offsets)]
        assert isinstance(nodes, list), "GetMany returns a list"
        assert len(nodes) == 2 * len(partitions), "the owners come first, then the offsets of the same partitions"
        for index, tp in enumerate(partitions):
            self._check_partition(tp, nodes[index], nodes[index + len(partitions)])
        if any(self._writes[tp].stored.version < 0 for tp in partitions):
            yield from self._make_parents()

    def _check_partition(
        self, tp: TopicPartition, owner: ZnodeData | StoreError, offset: ZnodeData | StoreError
    ) -> None:
        write = self._writes[tp]
        if isinstance(owner, NoNode):
            self._set_result([tp], WriteOutcome.NOT_OWNER, "the owner node does not exist")
            return
        if isinstance(owner, StoreError):
            self._set_result([tp], outcome_of(owner), describe_result(owner))
            return
        if owner.stat.ephemeral_owner != self._session_id or owner.stat.version != OUR_OWNER_VERSION:
            self._set_result([tp], WriteOutcome.NOT_OWNER, f"another member has the owner node: {owner.data[:200]!r}")
            return
        if write.offset is None:
            return
        found = stored_offset(offset)
        if isinstance(found, str) and isinstance(offset, ZnodeData):
            write.stored = StoredOffset(-1, offset.stat.version)
            write.rewound_from = -1
        elif isinstance(found, str):
            assert isinstance(offset, StoreError), "a node that was read has data"
            self._set_result([tp], outcome_of(offset), found)
        else:
            self._reconcile(tp, write, found)

    def _reconcile(self, tp: TopicPartition, write: _PartitionWrite, found: StoredOffset) -> None:
        assert write.offset is not None, "only a write of an offset is reconciled"
        # A changed znode with an offset between the two is an earlier commit of ours whose answer was lost, or one of a
        # Scala consumer that read on; both are written over without a report, because the offset only grows.
        changed = found != write.stored_before
        if changed and found.offset >= write.offset:
            write.offset = None
            write.stored = found
            if not write.is_release:
                self.results[tp] = ZooKeeperWriteResult(WriteOutcome.DONE, found)
            return
        if changed and found.offset < write.stored_before.offset:
            write.rewound_from = found.offset
        write.stored = found

    def _set_result(self, partitions: Iterable[TopicPartition], outcome: WriteOutcome, why: str) -> None:
        for tp in partitions:
            assert tp not in self.results, "an outcome is final"
            self.results[tp] = ZooKeeperWriteResult(outcome, self._writes[tp].stored_before, why)


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

    ``acl``: the ACL of created nodes; ``denials`` collects the operations that ACLs of existing nodes deny.
    """
    planned = {
        tp: _PartitionWrite(
            of.owner,
            of.offset,
            of.stored,
            is_release=False,
            next_owner=None,
            verify_owner=False,
            stored_before=of.stored,
        )
        for tp, of in offsets.items()
    }
    writes = ConditionalWrites(
        group, session_id, planned, control_version=control_version, acl=acl, denials=denials or DenialCollector()
    )
    yield from writes.run()
    return writes.results


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
    planned = {
        tp: _PartitionWrite(
            of.owner,
            of.offset,
            of.stored,
            is_release=True,
            next_owner=of.next_owner,
            verify_owner=of.verify_owner,
            stored_before=of.stored,
        )
        for tp, of in parts.items()
    }
    writes = ConditionalWrites(
        group, session_id, planned, control_version=control_version, acl=acl, denials=denials or DenialCollector()
    )
    yield from writes.run()
    return writes.results
