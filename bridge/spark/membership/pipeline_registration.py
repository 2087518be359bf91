"""Registers a pipeline in its group, so that a second one is refused while this one lives.

    /zkconsumer/spark/G/@pipeline       persistent; its data version grows with each registration
    /zkconsumer/spark/G/@pipeline/run   ephemeral: the pipeline that reads the group (``group_pipeline``)

Theory of operation.  A registration is one multi: set the parent, at the version that was read before ``run`` was read;
delete ``run`` if it is of the same query; create ``run``.  So of two that begin at the same moment one fails, reads
again, and finds the other one; and a run that replaces its own former life cannot delete the node of another pipeline
that was registered in between (``test_a_restart_does_not_delete_a_pipeline_that_was_registered_after_it_looked``).

    ``run`` is missing                      create it
    of this session                         it is ours; also if the answer to the create was lost
    of another query id, or unreadable      ``PipelineAlreadyRunning``
    of the same id, in the first round of this process, or of this run     replace it: a restart never waits
    of the same id, of another run, later   ``QueryAlreadyRunning``: the run that was started last goes on

The node is in the session with which the query works: that of its membership in a ZooKeeper group, which has the owner
nodes, too.  So as long as a partition is ours in ZooKeeper, ``run`` is ours.  In a coordinator group, and while the
query has no membership because its group migrates, it is in the standby session.

A session that expires (a machine that was paused) takes the node with it.  ``is_held_in`` is False then, and the
membership leases no partition and claims nothing, until ``ensure`` has registered the new session, or has found another
pipeline.  ``MembershipSwitcher`` calls ``ensure`` at each tick of its worker.  In a ZooKeeper group the new membership
may join for that time, and own partitions that it does not read.

Invariants: ``_session_id`` is the session in which ``run`` was created or found last, None before the first time.
``_checked_ms``: when that was read last, or tried.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bridge.migration.plan.json_object_reader import InvalidJsonError
from bridge.spark.group_pipeline import (
    GroupPipeline,
    format_pipeline,
    parse_pipeline,
    second_pipeline_message,
    superseded_message,
)
from bridge.spark.membership.blocking_procedure import run_blocking
from zkconsumer.errors import (
    PipelineAlreadyRunning,
    QueryAlreadyRunning,
    UnavailableError,
    ZkNotAuthorized,
    ZkTimeoutException,
)
from zkconsumer.zk import paths
from zkconsumer.zk.acl_denials import DenialCollector
from zkconsumer.zk.group_procedures import describe_result, make_parents
from zkconsumer.zk.requests import (
    BadVersion,
    ConnectionLost,
    Create,
    CreateOp,
    DeleteOp,
    Get,
    Multi,
    MultiFailed,
    MultiOk,
    NoAuth,
    NodeExists,
    NoNode,
    SessionEnded,
    SetOp,
    ZnodeData,
)

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.zk.group_procedures import Procedure
    from zkconsumer.zk.requests import Acl, Op, Result
    from zkconsumer.zk.store import ZkStore

ROUNDS_MAX = 10
"""How often a registration is tried while others change the nodes or the connection breaks."""

REGISTER_TIMEOUT_MS = 5_000
"""How long ZooKeeper may take for a registration."""

RECHECK_MS = 10_000
"""How often a registration is read again: a later run of the same query may have replaced it."""

log = logging.getLogger("zkconsumer.membership")


class PipelineRegistration:
    """The registration of one pipeline; one thread at a time calls ``ensure``, any thread ``is_held_in``."""

    def __init__(self, group: str, pipeline: GroupPipeline, acl: tuple[Acl, ...] | None, clock: Clock) -> None:
        self._group = group
        self._pipeline = pipeline
        self._acl = acl
        self._clock = clock
        self._session_id: int | None = None
        self._checked_ms = 0

    def is_held_in(self, store: ZkStore) -> bool:
        """Whether the node is of the current session of this store."""
        return self._session_id is not None and store.session_id == self._session_id

    def ensure(self, store: ZkStore) -> bool:
        """Register the current session of this store, if it is not.

        False: there is no session, or ZooKeeper did not answer; try again.  Raises ``PipelineAlreadyRunning``,
        ``QueryAlreadyRunning``, ``ZkNotAuthorized``, and ``UnavailableError`` for an answer that is not expected.
        """
        session_id, now_ms = store.session_id, self._clock.now_ms()
        if session_id is None:
            return False
        is_held = session_id == self._session_id
        if is_held and now_ms - self._checked_ms < RECHECK_MS:
            return True
        self._checked_ms = now_ms
        procedure = register_pipeline(
            self._group, self._pipeline, session_id, self._acl, is_first=self._session_id is None
        )
        try:
            is_registered = run_blocking(store, session_id, procedure, now_ms + REGISTER_TIMEOUT_MS, self._clock)
        except ZkTimeoutException:
            is_registered = False
        if is_registered and not is_held:
            if self._session_id is None:
                log.info(
                    "pipeline-registered group=%s pipeline=%s query=%s", self._group, self._pipeline.name,
                    self._pipeline.query,
                )  # fmt: skip
            self._session_id = session_id
        return is_registered


def register_pipeline(
    group: str, pipeline: GroupPipeline, session_id: int, acl: tuple[Acl, ...] | None, *, is_first: bool
) -> Procedure[bool]:
    """The table above; must run in the session ``session_id``.  False: the connection broke, and it is not known.

    ``is_first``: this process has not been registered yet.  Raises as ``PipelineRegistration.ensure``.
    """
    parent, path = paths.pipelines(group), paths.running_pipeline(group)
    create = CreateOp(path, format_pipeline(pipeline).encode(), ephemeral=True, acl=acl)
    denials = DenialCollector()
    for _ in range(ROUNDS_MAX):
        above, found = yield [Get(parent), Get(path)]
        ops: list[Op] = []
        match above, found:
            case (ConnectionLost() | SessionEnded(), _) | (_, ConnectionLost() | SessionEnded()):
                return False
            case NoNode(), NoNode():
                creates = [Create(each) for each in paths.parents(paths.claims(group))]
                creates += [Create(paths.claims(group), acl=acl), Create(parent, acl=acl)]
                yield from make_parents(creates, denials)
                yield from _raise_denials(denials)
                continue
            case ZnodeData(stat=stat), NoNode():
                ops = [SetOp(parent, b"", stat.version), create]
            case ZnodeData(stat=stat), ZnodeData(data=data, stat=run_stat):
                if run_stat.ephemeral_owner == session_id:
                    return True
                _check_same_query(group, pipeline, data, is_first=is_first)
                ops = [SetOp(parent, b"", stat.version), DeleteOp(path), create]
            case NoNode(), ZnodeData():
                continue  # it was created between the two reads
            case _:
                raise _unexpected(above if not isinstance(above, ZnodeData | NoNode) else found)
        [answer] = yield [Multi(tuple(ops))]
        match answer:
            case MultiOk():
                return True
            case MultiFailed(failed=failed, error=NoAuth()):
                denials.add(ops[failed])
                yield from _raise_denials(denials)
            case MultiFailed(error=BadVersion() | NoNode() | NodeExists()) | ConnectionLost() | SessionEnded():
                continue
            case _:
                raise _unexpected(answer)
    return False


def _check_same_query(group: str, pipeline: GroupPipeline, data: bytes, *, is_first: bool) -> None:
    """Raises unless the node is of a former life of this pipeline."""
    path = paths.running_pipeline(group)
    try:
        other = parse_pipeline(data.decode("utf-8", "replace"), path)
    except InvalidJsonError:
        raise PipelineAlreadyRunning(second_pipeline_message(group, data, path)) from None
    if other.query != pipeline.query:
        raise PipelineAlreadyRunning(second_pipeline_message(group, data, path))
    if not is_first and other.run != pipeline.run:
        raise QueryAlreadyRunning(superseded_message(group, pipeline))


def _raise_denials(denials: DenialCollector) -> Procedure[None]:
    yield from denials.read_acls()
    for denial in denials.by_path.values():
        raise ZkNotAuthorized(
            f"this pipeline cannot be registered in its group: {denial.message}; log in as their owner "
            "(zookeeper.auth), or change their ACL"
        )


def _unexpected(answer: Result) -> UnavailableError:
    return UnavailableError(f"ZooKeeper does not accept the registration of the pipeline: {describe_result(answer)}")
