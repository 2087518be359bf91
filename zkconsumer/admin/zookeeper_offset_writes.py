"""A group's offsets in ZooKeeper, written by a tool: only what the plan saw, batch after batch, told exactly.

    look at ids -> parents -> multi -> look at ids -> multi -> ... -> look at ids
                                |
               the answer is lost: the znodes are read again, and compared by version and value

A write names what it replaces: the version of the znode that the plan was made from, or that there was none.  So what
somebody else wrote in between is never overwritten, and a run that was cut off may simply be run again: it finds part
of its work done.

The look at ``ids`` between two multis is no lock: a member that registers right behind it is noticed one multi later,
and told.  (Deleting and making ``ids`` anew inside the multi would be one; it would also drop its access list and
everybody's watches.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zkconsumer.admin.admin_session import ROUND_REQUESTS_MAX, chunks
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import (
    INITIAL_VERSION,
    ROUNDS_MAX,
    MultiPlan,
    control_check,
    describe_result,
    multi_of,
    pack_multis,
)
from zkconsumer.zk.requests import (
    Acl,
    BadVersion,
    ConnectionLost,
    Create,
    CreateOp,
    Delete,
    DeleteOp,
    Exists,
    MultiFailed,
    MultiOk,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Result,
    SessionEnded,
    SetOp,
    Stat,
    StoreError,
    ZnodeData,
)
from zkconsumer.zk.znode_formats import format_offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.types import TopicPartition

NO_ZNODE_VERSION = -1
"""The version of an offset znode that does not exist."""


@dataclass(frozen=True, slots=True)
class OffsetWrite:
    """One offset znode: what to make of it, and the version that it must have (``NO_ZNODE_VERSION``: none at all).

    ``offset`` None: delete it.  ``also``: what is done with it in the same multi, or neither is.
    """

    tp: TopicPartition
    offset: int | None
    version: int
    extra_ops: tuple[Op, ...] = ()


@dataclass(slots=True)
class StoreWriteReport:
    """What became of a list of writes; true at every moment, also when the writing was interrupted.

    ``unknown``: sent, and the answer never came.  ``stopped_by`` is empty when nothing stood in the way.
    """

    written: list[TopicPartition] = field(default_factory=list)
    unknown: list[TopicPartition] = field(default_factory=list)
    stopped_by: str = ""


def write_offsets(
    session: AdminSession,
    group: str,
    writes: Sequence[OffsetWrite],
    control_version: int | None,
    report: StoreWriteReport,
    acl: tuple[Acl, ...] | None = None,
    *,
    allow_members: bool = False,
    in_session: int | None = None,
) -> None:
    """Carry the writes out in their order, until the first thing that stands in the way; ``report`` says how far.

    ``control_version``: that of the group's control znode, which every multi then checks; None if there is none.
    ``acl``: of the offset nodes that are made, and of their parents below the group; None is open to the world.
    ``allow_members``: go on though somebody is in the group; for partitions that nobody owns.
    ``in_session``: each write is carried out in that session, or not at all; None: in any.
    Raises ``ZkTimeoutException`` when ZooKeeper does not answer; ``report`` then names what is unknown.
    """
    writer = _OffsetWriter(
        session, group, control_version, report, acl, allow_members=allow_members, in_session=in_session
    )
    writer.run(writes)


def registered_members(session: AdminSession, group: str) -> list[str]:
    """Who is registered now, sorted.  Raises ``UnavailableError`` when ZooKeeper does not tell."""
    listed = session.children(paths.ids(group))
    return sorted(listed.names) if listed else []


def members_registered_text(members: Sequence[str]) -> str:
    """Why nothing more is written."""
    return f"{members[0]} is in the group now ({len(members)} registered)"


class _OffsetWriter:
    def __init__(
        self,
        session: AdminSession,
        group: str,
        control_version: int | None,
        report: StoreWriteReport,
        acl: tuple[Acl, ...] | None,
        *,
        allow_members: bool,
        in_session: int | None,
    ) -> None:
        self._session = session
        self._in_session = in_session
        self._allow_members = allow_members
        self._acl = acl
        self._group = group
        self._control = control_check(group, control_version)
        self._report = report

    def run(self, writes: Sequence[OffsetWrite]) -> None:
        if not writes or self._is_stopped_by_members():
            return
        by_tp = {write.tp: write for write in writes}
        self._make_parents(write.tp for write in writes if write.version == NO_ZNODE_VERSION)
        if self._report.stopped_by:
            return
        ops = [(write.tp, [self._op(write), *write.extra_ops]) for write in writes]
        for plan in pack_multis(ops, self._control, one_by_one=False):
            self._write(plan, by_tp)
            if self._report.stopped_by or self._is_stopped_by_members():
                return
        self._remove_parents(write.tp for write in writes if write.offset is None)

    def _is_stopped_by_members(self) -> bool:
        if self._allow_members:
            return False
        members = registered_members(self._session, self._group)
        if members:
            self._report.stopped_by = members_registered_text(members)
        return bool(members)

    def _op(self, write: OffsetWrite) -> Op:
        path = paths.offset(self._group, write.tp)
        if write.offset is None:
            return DeleteOp(path, write.version)
        data = format_offset(write.offset)
        if write.version == NO_ZNODE_VERSION:
            return CreateOp(path, data, acl=self._acl)
        return SetOp(path, data, write.version)

    def _make_parents(self, partitions: Iterable[TopicPartition]) -> None:
        topics = sorted({tp.topic for tp in partitions})
        if not topics:
            return
        top = paths.offsets(self._group)
        below = [top, *(paths.offsets_of_topic(self._group, topic) for topic in topics)]
        wanted = [*paths.parents(top), *below]
        # What stands above is everybody's: members register there.
        above = [Create(path) for path in paths.parents(top)]
        answers = self._create_all([*above, *(Create(path, acl=self._acl) for path in below)])
        # A server looks at rights before it looks whether the node is there.
        refused = {
            path: answer
            for path, answer in zip(wanted, answers, strict=True)
            if isinstance(answer, StoreError) and not isinstance(answer, NodeExists | ConnectionLost | SessionEnded)
        }
        there = self._session.request([Exists(path) for path in refused])
        for (path, answer), stat in zip(refused.items(), there, strict=True):
            if not isinstance(stat, Stat):
                self._report.stopped_by = f"{path} cannot be made: {_error_text(answer)}"
                return

    def _create_all(self, creates: Sequence[Create]) -> list[Result]:
        """The answers to these, asked again while the connection takes them with it: a node may be made twice."""
        answers = self._session.request(creates, self._in_session)
        for _ in range(ROUNDS_MAX - 1):
            if not any(isinstance(answer, ConnectionLost | SessionEnded) for answer in answers):
                break
            answers = self._session.request(creates, self._in_session)
        return answers

    def _write(self, plan: MultiPlan, by_tp: dict[TopicPartition, OffsetWrite]) -> None:
        """One multi, until it is known to be done or not to be."""
        partitions = [tp for tp, _ in plan]
        self._report.unknown = partitions
        outcome: bool | str = False
        for _ in range(ROUNDS_MAX):
            [answer] = self._session.request([multi_of(plan, self._control)], self._in_session)
            if isinstance(answer, ConnectionLost | SessionEnded):
                outcome = self._check_written([by_tp[tp] for tp in partitions])
            else:
                outcome = True if isinstance(answer, MultiOk) else self._failure_text(plan, answer)
            if outcome is not False:
                break
        self._report.unknown = []
        if outcome is True:
            self._report.written += partitions
        else:
            self._report.stopped_by = outcome or "the connection to ZooKeeper broke again and again"

    def _check_written(self, writes: Sequence[OffsetWrite]) -> bool | str:
        """Whether a multi whose answer was lost was carried out, or why it never will be.

        All of it was carried out or nothing, so one node that is as written tells.
        """
        pairs = list(zip(writes, self._nodes(writes), strict=True))
        if any(_is_as_written(write, node) for write, node in pairs):
            return True
        changed = [write.tp for write, node in pairs if not _is_as_before(write, node)]
        return _changed_text(changed[0]) if changed else False

    def _nodes(self, writes: Sequence[OffsetWrite]) -> list[ZnodeData | None]:
        found: list[ZnodeData | None] = []
        for some in chunks(writes, ROUND_REQUESTS_MAX):
            wanted = [paths.offset(self._group, write.tp) for write in some]
            nodes = self._session.get_many(wanted)
            found += [nodes.get(path) for path in wanted]
        return found

    def _failure_text(self, plan: MultiPlan, answer: Result) -> str:
        if not isinstance(answer, MultiFailed):
            return _error_text(answer)
        at = answer.failed - len(self._control)
        if at < 0:
            return "the group's control znode changed: a migration is under way"
        tp, op = [(tp, op) for tp, ops in plan for op in ops][at]
        match answer.error:
            case BadVersion() | NodeExists() | NoNode() if op.path != paths.offset(self._group, tp):
                return f"{op.path} was changed by somebody else after it was read"
            case BadVersion() | NodeExists() | NoNode():
                return _changed_text(tp)
            case NotEmpty():
                return f"{paths.offset(self._group, tp)} has children, so it is no offset of a consumer"
            case error:
                return _error_text(error)

    def _remove_parents(self, partitions: Iterable[TopicPartition]) -> None:
        """The nodes of topics that have no offset left; one that has, or is gone, is left alone."""
        topics = sorted({tp.topic for tp in partitions})
        self._session.request(
            [Delete(paths.offsets_of_topic(self._group, topic)) for topic in topics], self._in_session
        )


def _error_text(answer: Result) -> str:
    words = describe_result(answer)
    if isinstance(answer, NoAuth):
        words += ": the node is another login's; log in as its makers do, with zookeeper.auth in the file of settings"
    return words


def _changed_text(tp: TopicPartition) -> str:
    return f"the offset of {tp} was changed by somebody else after it was read"


def _is_as_written(write: OffsetWrite, node: ZnodeData | None) -> bool:
    if write.offset is None:
        return node is None
    version = INITIAL_VERSION if write.version == NO_ZNODE_VERSION else write.version + 1
    return node is not None and node.stat.version == version and node.data == format_offset(write.offset)


def _is_as_before(write: OffsetWrite, node: ZnodeData | None) -> bool:
    return (
        node is None if write.version == NO_ZNODE_VERSION else node is not None and node.stat.version == write.version
    )
