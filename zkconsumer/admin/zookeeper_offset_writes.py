"""A group's offsets in ZooKeeper, written by a tool: only where the plan is still valid, in batches, with an exact
report.

    read ids -> parents -> multi -> read ids -> multi -> ... -> read ids
                             |
              the answer is lost: the znodes are read again, and compared by version and value

``ids`` is ``/consumers/G/ids``, whose children are the registered members.  A registered member stops the writes.

A write names the version of the znode from which the plan was made, or that the znode did not exist.  So it never
overwrites a later write of another program, and an interrupted run can be repeated: it finds a part of its work done.

The check of ``ids`` between two multis is not a lock: the writer notices and reports a member that registers right
after it only after the next multi.  (To delete and create ``ids`` inside the multi would be a lock, but it would also
delete its access list and all watches on it.)
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from zkconsumer.admin.admin_session import ROUND_REQUESTS_MAX, chunks
from zkconsumer.base.progress import progress_task
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
    """One offset znode: its new value, and the version that it must have (``NO_ZNODE_VERSION``: it must not exist).

    ``offset`` None: delete it.  ``extra_ops``: operations in the same multi; all succeed or none.
    """

    tp: TopicPartition
    offset: int | None
    version: int
    extra_ops: tuple[Op, ...] = ()


@dataclass(slots=True)
class StoreWriteReport:
    """The result of a list of writes; correct at every moment, also when the writing was interrupted.

    ``unknown``: sent, but the answer never arrived.  ``stopped_by`` is empty if nothing failed.
    """

    written: list[TopicPartition] = field(default_factory=list)
    unknown: list[TopicPartition] = field(default_factory=list)
    stopped_by: str = ""


def write_offsets(
    session: AdminSession,
    group: str,
    writes: Sequence[OffsetWrite],
    *,
    control_version: int | None,
    report: StoreWriteReport,
    acl: tuple[Acl, ...] | None = None,
    allow_members: bool = False,
    in_session: int | None = None,
) -> None:
    """Execute the writes in their order, until the first one fails; ``report`` has the progress.

    ``control_version``: the version of the group's control znode, which every multi checks; None if it does not exist.
    ``acl``: for new offset nodes and their parents below the group; None is open to the world.
    ``allow_members``: continue although members are registered; for partitions without an owner.
    ``in_session``: each write is executed in that session, or not at all: a migration's run writes only in the session
    that has its lock.  None: in any session.
    Raises ``ZkTimeoutException`` when ZooKeeper does not answer; ``report`` then names what is unknown.
    """
    writer = _OffsetWriter(
        session, group, control_version, report, acl, allow_members=allow_members, in_session=in_session
    )
    writer.run(writes)


def registered_members(session: AdminSession, group: str) -> list[str]:
    """The registered members, sorted.  Raises ``UnavailableError`` when ZooKeeper does not answer."""
    listed = session.children(paths.ids(group))
    return sorted(listed.names) if listed else []


def members_registered_text(members: Sequence[str]) -> str:
    """Why the writes stop."""
    return f"{members[0]} is in the group now ({len(members)} registered)"


@dataclass(eq=False, repr=False)
class _OffsetWriter:
    session: AdminSession
    group: str
    control_version: int | None
    report: StoreWriteReport
    acl: tuple[Acl, ...] | None
    _: KW_ONLY
    allow_members: bool
    in_session: int | None

    def __post_init__(self) -> None:
        self._control = control_check(self.group, self.control_version)

    def run(self, writes: Sequence[OffsetWrite]) -> None:
        if not writes or self._is_stopped_by_members():
            return
        by_tp = {write.tp: write for write in writes}
        self._make_parents(write.tp for write in writes if write.version == NO_ZNODE_VERSION)
        if self.report.stopped_by:
            return
        ops = [(write.tp, [self._op(write), *write.extra_ops]) for write in writes]
        with progress_task("writing to ZooKeeper", len(writes), "offsets") as task:
            for plan in pack_multis(ops, self._control, one_by_one=False):
                self._write(plan, by_tp)
                if self.report.stopped_by or self._is_stopped_by_members():
                    return
                task.advance(len(plan))
        self._remove_parents(write.tp for write in writes if write.offset is None)

    def _is_stopped_by_members(self) -> bool:
        if self.allow_members:
            return False
        members = registered_members(self.session, self.group)
        if members:
            self.report.stopped_by = members_registered_text(members)
        return bool(members)

    def _op(self, write: OffsetWrite) -> Op:
        path = paths.offset(self.group, write.tp)
        if write.offset is None:
            return DeleteOp(path, write.version)
        data = format_offset(write.offset)
        if write.version == NO_ZNODE_VERSION:
            return CreateOp(path, data, acl=self.acl)
        return SetOp(path, data, write.version)

    def _make_parents(self, partitions: Iterable[TopicPartition]) -> None:
        topics = sorted({tp.topic for tp in partitions})
        if not topics:
            return
        top = paths.offsets(self.group)
        below = [top, *(paths.offsets_of_topic(self.group, topic) for topic in topics)]
        wanted = [*paths.parents(top), *below]
        # The nodes above belong to all members, which register there.
        above = [Create(path) for path in paths.parents(top)]
        answers = self._create_all([*above, *(Create(path, acl=self.acl) for path in below)])
        # A server checks the rights before it checks whether the node exists.
        refused = {
            path: answer
            for path, answer in zip(wanted, answers, strict=True)
            if isinstance(answer, StoreError) and not isinstance(answer, NodeExists | ConnectionLost | SessionEnded)
        }
        there = self.session.request([Exists(path) for path in refused])
        for (path, answer), stat in zip(refused.items(), there, strict=True):
            if not isinstance(stat, Stat):
                self.report.stopped_by = f"{path} cannot be created: {_error_text(answer)}"
                return

    def _create_all(self, creates: Sequence[Create]) -> list[Result]:
        """The answers to these requests; repeated if the connection breaks, since creating a node twice is harmless."""
        answers = self.session.request(creates, self.in_session)
        for _ in range(ROUNDS_MAX - 1):
            if not any(isinstance(answer, ConnectionLost | SessionEnded) for answer in answers):
                break
            answers = self.session.request(creates, self.in_session)
        return answers

    def _write(self, plan: MultiPlan, by_tp: dict[TopicPartition, OffsetWrite]) -> None:
        """Send one multi, until it is known whether it was executed."""
        partitions = [tp for tp, _ in plan]
        self.report.unknown = partitions
        outcome: bool | str = False
        for _ in range(ROUNDS_MAX):
            [answer] = self.session.request([multi_of(plan, self._control)], self.in_session)
            if isinstance(answer, ConnectionLost | SessionEnded):
                outcome = self._check_written([by_tp[tp] for tp in partitions])
            else:
                outcome = True if isinstance(answer, MultiOk) else self._failure_text(plan, answer)
            if outcome is not False:
                break
        self.report.unknown = []
        if outcome is True:
            self.report.written += partitions
        else:
            self.report.stopped_by = outcome or "the connection to ZooKeeper broke repeatedly"

    def _check_written(self, writes: Sequence[OffsetWrite]) -> bool | str:
        """Whether a multi whose answer was lost was executed, or why it never will be.

        A multi is executed as a whole or not at all, so one written node is enough evidence.  A deleted one is none:
        another program may have deleted it.
        """
        pairs = list(zip(writes, self._nodes(writes), strict=True))
        as_written = [node for write, node in pairs if _is_as_written(write, node)]
        if len(as_written) == len(pairs) or any(node is not None for node in as_written):
            return True
        changed = [write.tp for write, node in pairs if not _is_as_before(write, node)]
        return _changed_text(changed[0]) if changed else False

    def _nodes(self, writes: Sequence[OffsetWrite]) -> list[ZnodeData | None]:
        found: list[ZnodeData | None] = []
        for some in chunks(writes, ROUND_REQUESTS_MAX):
            wanted = [paths.offset(self.group, write.tp) for write in some]
            nodes = self.session.get_many(wanted)
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
            case BadVersion() | NodeExists() | NoNode() if op.path != paths.offset(self.group, tp):
                return f"{op.path} was changed by another program after it was read"
            case BadVersion() | NodeExists() | NoNode():
                return _changed_text(tp)
            case NotEmpty():
                return f"{paths.offset(self.group, tp)} has children, so it is not an offset of a consumer"
            case error:
                return _error_text(error)

    def _remove_parents(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete the nodes of topics without offsets; a node with children, or that does not exist, is skipped."""
        topics = sorted({tp.topic for tp in partitions})
        self.session.request([Delete(paths.offsets_of_topic(self.group, topic)) for topic in topics], self.in_session)


def _error_text(answer: Result) -> str:
    words = describe_result(answer)
    if isinstance(answer, NoAuth):
        words += ": the node belongs to another login; use that login, with zookeeper.auth in the file of settings"
    return words


def _changed_text(tp: TopicPartition) -> str:
    return f"the offset of {tp} was changed by another program after it was read"


def _is_as_written(write: OffsetWrite, node: ZnodeData | None) -> bool:
    if write.offset is None:
        return node is None
    version = INITIAL_VERSION if write.version == NO_ZNODE_VERSION else write.version + 1
    return node is not None and node.stat.version == version and node.data == format_offset(write.offset)


def _is_as_before(write: OffsetWrite, node: ZnodeData | None) -> bool:
    return (
        node is None if write.version == NO_ZNODE_VERSION else node is not None and node.stat.version == write.version
    )
