"""The requests of a member to ZooKeeper as procedures: register, acquire ownership, read positions.

Each procedure is a generator: it yields a *round* of requests (pipelined in one batch) and receives their results; its
return value is the result of a command.  So a procedure defines the order of the packets without threads, and runs the
same with a live server and with a list of prepared answers.

The first try is one multi.  When it fails, its partitions are read in one round; those that cannot succeed get their
reason as the result, and the rest is in a second multi; in the third round each partition is in a multi alone.  Three
rounds at most: one bad partition never blocks the others, and every attempt ends.

``ZooKeeperExecutor`` runs them; ``conditional_writes`` has the commits and releases.  Theory of operation:

*Session.*  All rounds of a procedure are executed in the session in which the member decided it, or not at all: after
the end of a session the store answers ``SessionEnded`` to each request
(``test_a_claim_is_not_made_in_another_session_than_the_one_it_was_decided_in``).  So an ephemeral node that a procedure
creates never belongs to a later session, which does not know of it.

*Registration.*  The node of a member with the same id may exist.  Its session decides: ours means that the answer to
our own create was lost; another one is reported, and never deleted, because that member may be alive
(``test_a_registration_of_another_session_is_shown_and_left_alone``).

*Ownership.*  A partition is without a result, or it has its first one: DONE, CONFLICT, FAILED, UNKNOWN.  Only
``_identify_owners`` changes a result, from CONFLICT to DONE: the node is of our session and for our thread, so an
earlier create of ours was executed and its answer lost
(``test_looking_closely_finds_that_a_node_of_this_session_is_ours``).  The node of another thread of this member is a
conflict (``test_a_node_of_this_session_for_another_thread_is_not_taken_for_this_one``).  An owner node of ours has data
version 1, because each is created *and set* in one multi.  The Scala consumer only creates; so the later checks of
version 1 recognize a node that it made in a session of ours
(``test_an_owner_node_that_an_original_member_made_is_never_taken_for_ours``).

*Who waits for whom.*  A CONFLICT ends with a watch on the owners of the topic, which was set in the same listing that
showed the owner; the member waits for the event.  A topic that was not listed has no watch, and is in ``unwatched``:
the member lists it again after a time.  An owner that is deleted between the failed multi and the listing is not
missed: the listing does not contain it, and the next multi tries again.

*Lost answers.*  A lost create is UNKNOWN: the member releases it with a look (``verify_owner``), and never counts it as
acquired.  A position whose read was lost is neither known nor failed, and is read again
(``test_positions_that_the_connection_did_not_bring_are_neither_known_nor_failed``): as *no offset* it would be a reset.

*The control znode.*  Its check is the first operation of every multi, so nothing is acquired after a change of the
authority (``test_nothing_is_claimed_once_the_control_znode_has_changed``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from zkconsumer.errors import MalformedZnode
from zkconsumer.member.events import AcquireResult, StoredOffset, WriteOutcome
from zkconsumer.member.offset_committer import CONTROL_CHANGED
from zkconsumer.zk import paths
from zkconsumer.zk.acl_denials import DenialCollector
from zkconsumer.zk.owner_list_cache import OwnerListCache
from zkconsumer.zk.requests import (
    MULTI_OPS_MAX,
    PACKET_BYTES_MAX,
    Acl,
    CheckOp,
    ChildNames,
    Children,
    ConnectionLost,
    Create,
    CreateOp,
    Delete,
    DeleteOp,
    Exists,
    Get,
    GetMany,
    Multi,
    MultiFailed,
    MultiOk,
    NoAuth,
    NodeExists,
    NoNode,
    Op,
    Request,
    Result,
    SessionEnded,
    SetOp,
    Stat,
    StoreError,
    ZnodeData,
)
from zkconsumer.zk.znode_formats import parse_offset, parse_owner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from zkconsumer.types import TopicPartition

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AwaitExternal:
    """Yielded to wait for a source other than ZooKeeper.

    ``start(done)`` starts the wait; any thread calls ``done`` once.  The procedure is resumed without results; it gets
    them from the source.
    """

    start: Callable[[Callable[[], None]], None]


Procedure = Generator[list[Request] | AwaitExternal, list[Result], T]
"""A generator that yields rounds of requests and receives their results."""

ROUNDS_MAX = 3
OUR_OWNER_VERSION = 1
"""The data version of our owner nodes: a create and a set in one multi make it exactly 1.  The Scala consumer only
creates them, so its owner nodes have version 0."""

INITIAL_VERSION = 0

MULTI_BYTES_MAX = PACKET_BYTES_MAX // 2
"""The maximum of the bytes counted here; the chroot, which the store adds to each path, and the server's transaction
record need additional bytes."""

OP_BYTES = 64
"""The bytes of an operation in addition to its path and data: headers, version, an ACL."""

ACL_BYTES = 256
"""The additional bytes of an ACL: a server replaces ``auth`` by the authenticated ids."""

MultiPlan: TypeAlias = "list[tuple[TopicPartition, list[Op]]]"
"""The partitions of one multi with their operations, in order."""


# --- registration -----------------------------------------------------------------------------------------------


def register_member(
    group: str, consumer: str, data: bytes, session_id: int
) -> Procedure[ZnodeData | StoreError | None]:
    """Create our registration.  Returns None if it is ours now, the ``ZnodeData`` of another session, or an error."""
    assert session_id != 0, "0 is the session of persistent nodes, so they would count as ours"
    path = paths.registration(group, consumer)
    for _ in range(ROUNDS_MAX):
        [made] = yield [Create(path, data, ephemeral=True)]
        match made:
            case NoNode():
                yield [Create(parent) for parent in paths.parents(path)]
            case NodeExists():
                [held] = yield [Get(path)]
                if isinstance(held, ZnodeData):
                    return None if held.stat.ephemeral_owner == session_id else held
                if not isinstance(held, NoNode):
                    assert isinstance(held, StoreError), "a read returns a node or an error"
                    return held
            case StoreError():
                return made
            case _:
                return None
    return NodeExists(path)


def deregister_member(group: str, consumer: str, session_id: int) -> Procedure[StoreError | None]:
    """Delete our registration.  Returns None if it is deleted, did not exist or belongs to another session."""
    assert session_id != 0, "0 is the session of persistent nodes, so one would be deleted as ours"
    path = paths.registration(group, consumer)
    [held] = yield [Get(path)]
    if isinstance(held, ZnodeData) and held.stat.ephemeral_owner == session_id:
        [held] = yield [Delete(path)]
    return held if isinstance(held, StoreError) and not isinstance(held, NoNode) else None


# --- acquiring ownership ----------------------------------------------------------------------------------------


class AcquireOwnershipProcedure:
    """One attempt to create owner nodes.  ``unwatched``: the topics whose listing set no watch.

    ``owner_lists``: cached lists that need not be read again before the first multi.
    """

    def __init__(
        self,
        group: str,
        session_id: int,
        owners: Mapping[TopicPartition, str],
        *,
        control_version: int | None,
        acl: tuple[Acl, ...] | None = None,
        owner_lists: OwnerListCache | None = None,
    ) -> None:
        assert session_id != 0, "0 is the session of persistent nodes, so they would count as ours"
        self.results: dict[TopicPartition, AcquireResult] = {}
        """A partition without a result is part of the next multi."""
        self._owner_lists = OwnerListCache() if owner_lists is None else owner_lists
        """The member's cache: a list in it has a watch that has not fired.  Another thread may remove a list at any
        time, so no code here relies on one that it has just stored."""
        self.denials = DenialCollector()
        self.unwatched: set[str] = set()
        """Topics whose last listing failed, so that no watch reports a deleted owner node."""
        self._group = group
        self._session_id = session_id
        self._owners = owners
        """Partition -> thread id; constant."""
        self._control = control_check(group, control_version)
        """The first operations of every multi: the check of the control znode, or none."""
        self._acl = acl

    def run(self, *, look_first: bool, look_closely: bool) -> Procedure[None]:
        """Fill ``results``, with an outcome for every partition, and ``denials``."""
        if look_first:
            yield from self._exclude_owned()
        for attempt in range(ROUNDS_MAX):
            left = [tp for tp in self._owners if tp not in self.results]
            if not left:
                break
            is_last = attempt == ROUNDS_MAX - 1
            plans = pack_multis([(tp, self._ops(tp)) for tp in left], self._control, one_by_one=is_last)
            yield from self._try(plans, is_last=is_last)
        assert len(self.results) == len(self._owners), "every partition has an outcome after the last round"
        if look_closely:
            yield from self._identify_owners()
        yield from self.denials.read_acls()
        if not self.denials.by_path:
            return
        for tp, claimed in self.results.items():
            denial = self.denials.nearest_to(paths.owner(self._group, tp))
            if claimed.outcome is WriteOutcome.FAILED and denial is not None:
                self.results[tp] = AcquireResult(WriteOutcome.FAILED, why=denial.message)

    def _try(self, plans: list[MultiPlan], *, is_last: bool) -> Procedure[None]:
        answers = yield [multi_of(plan, self._control) for plan in plans]
        parents_missing: set[str] = set()
        must_relist = False
        for plan, answer in zip(plans, answers, strict=True):
            chunk = [tp for tp, _ in plan]
            if isinstance(answer, MultiOk):
                self._acquired(chunk, answer)
            elif isinstance(answer, MultiFailed):
                at = (answer.failed - len(self._control)) // 2
                if answer.failed < len(self._control):
                    self._set_result(chunk, WriteOutcome.FAILED, CONTROL_CHANGED)
                elif isinstance(answer.error, NodeExists) and not is_last:
                    must_relist = True
                elif isinstance(answer.error, NodeExists):
                    self._set_result([chunk[at]], WriteOutcome.CONFLICT, "another member owns it")
                else:
                    # The error of one operation may hide that the parent node of another is missing.
                    parents_missing.update(tp.topic for tp in chunk)
                    if isinstance(answer.error, NoAuth):
                        self.denials.add(plan[at][1][(answer.failed - len(self._control)) % 2])
                    if is_last or not isinstance(answer.error, NoNode):
                        self._set_result([chunk[at]], WriteOutcome.FAILED, describe_result(answer.error))
            else:
                self._set_result(chunk, outcome_of(answer), describe_result(answer))
        if parents_missing and not is_last:
            yield from self._make_parents(parents_missing)
        if must_relist:
            for topic in {tp.topic for tp in self._owners if tp not in self.results}:
                self._owner_lists.invalidate(topic)  # a partition without an owner in the list has one now
            yield from self._exclude_owned()

    def _make_parents(self, topics: Iterable[str]) -> Procedure[None]:
        topic_nodes = [Create(paths.owners_of_topic(self._group, topic), acl=self._acl) for topic in sorted(topics)]
        yield from make_parents([Create(paths.owners(self._group), acl=self._acl), *topic_nodes], self.denials)

    def _ops(self, tp: TopicPartition) -> list[Op]:
        path, data = paths.owner(self._group, tp), self._owners[tp].encode()
        return [CreateOp(path, data, ephemeral=True, acl=self._acl), SetOp(path, data, INITIAL_VERSION)]

    def _acquired(self, chunk: Sequence[TopicPartition], answer: MultiOk) -> None:
        stats = answer.results[len(self._control) + 1 :: 2]
        for tp, stat in zip(chunk, stats, strict=True):
            assert isinstance(stat, Stat), "a set returns the node's stat"
            assert stat.version == OUR_OWNER_VERSION, "commits and releases recognize our owner nodes by this version"
            self.results[tp] = AcquireResult(WriteOutcome.DONE, stat.czxid)

    def _exclude_owned(self) -> Procedure[None]:
        """List the owners of every topic with partitions to acquire, and set watches; create missing parent nodes."""
        left = [tp for tp in self._owners if tp not in self.results]
        topics = [topic for topic in sorted({tp.topic for tp in left}) if self._owner_lists.get(topic) is None]
        requests: list[Request] = [Children(paths.owners_of_topic(self._group, topic), watch=True) for topic in topics]
        requested_at = self._owner_lists.moment
        answers = (yield requests) if requests else []
        missing: list[str] = []
        for topic, answer in zip(topics, answers, strict=True):
            if isinstance(answer, ChildNames):
                self._owner_lists.put(topic, answer.names, requested_at)
                self.unwatched.discard(topic)
                continue
            self.unwatched.add(topic)
            if isinstance(answer, NoNode):
                missing.append(topic)
        if missing:
            yield from self._make_parents(missing)
        for tp in left:
            if str(tp.partition) in (self._owner_lists.get(tp.topic) or ()):
                self.results[tp] = AcquireResult(WriteOutcome.CONFLICT, why="another member owns it")

    def _identify_owners(self) -> Procedure[None]:
        """Read the conflicting owner nodes and report their owners; a node of this session is ours."""
        refused = [tp for tp, claimed in self.results.items() if claimed.outcome is WriteOutcome.CONFLICT]
        if not refused:
            return
        [nodes] = yield [GetMany(tuple(paths.owner(self._group, tp) for tp in refused))]
        assert isinstance(nodes, list), "GetMany returns a list"
        for tp, node in zip(refused, nodes, strict=True):
            if not isinstance(node, ZnodeData):
                continue
            owner = owner_text(node)
            if node.stat.ephemeral_owner == self._session_id and owner == self._owners[tp]:
                self.results[tp] = AcquireResult(WriteOutcome.DONE, node.stat.czxid)
            elif node.stat.ephemeral_owner == 0:
                self.results[tp] = AcquireResult(WriteOutcome.CONFLICT, why=f"a persistent owner node exists: {owner}")
            else:
                self.results[tp] = AcquireResult(WriteOutcome.CONFLICT, why=f"owned by {owner}")

    def _set_result(self, chunk: Iterable[TopicPartition], outcome: WriteOutcome, why: str) -> None:
        for tp in chunk:
            assert tp not in self.results, "only _identify_owners and the text of a denial change a result"
            self.results[tp] = AcquireResult(outcome, why=why)


def list_owners(
    group: str,
    topics: Sequence[str],
    mine: Sequence[TopicPartition] = (),
    session_id: int = 0,
    owner_lists: OwnerListCache | None = None,
) -> Procedure[dict[str, frozenset[int]]]:
    """The partitions of these topics that have an owner node; without the topics that could not be listed.

    The listed nodes of ``mine`` are also read (in one packet if the server supports it, else one packet each): a node
    of another session does not count, because the list does not show that ours was replaced.
    ``owner_lists`` stores the lists for the acquisitions that follow.
    """
    assert session_id != 0 or not mine, "0 is the session of persistent nodes, so none would count as ours"
    owner_lists = OwnerListCache() if owner_lists is None else owner_lists
    requested_at = owner_lists.moment
    answers = yield [Children(paths.owners_of_topic(group, topic), watch=True) for topic in topics]
    owned = {
        topic: {number for name in answer.names if (number := paths.partition_number(name)) is not None}
        for topic, answer in zip(topics, answers, strict=True)
        if isinstance(answer, ChildNames)
    }
    for topic, answer in zip(topics, answers, strict=True):
        if isinstance(answer, ChildNames):
            owner_lists.put(topic, answer.names, requested_at)
    held = [tp for tp in mine if tp.partition in owned.get(tp.topic, ())]
    if held:
        [nodes] = yield [GetMany(tuple(paths.owner(group, tp) for tp in held))]
        assert isinstance(nodes, list), "GetMany returns a list"
        for tp, node in zip(held, nodes, strict=True):
            if isinstance(node, ZnodeData) and node.stat.ephemeral_owner != session_id:
                owned[tp.topic].discard(tp.partition)
    return {topic: frozenset(numbers) for topic, numbers in owned.items()}


# --- positions --------------------------------------------------------------------------------------------------


def read_positions(
    group: str, partitions: Sequence[TopicPartition]
) -> Procedure[tuple[dict[TopicPartition, StoredOffset], dict[TopicPartition, str]]]:
    """The stored offsets, and partition -> reason for those that could not be read.

    A partition whose answer was lost with the connection is in neither; it is read again.
    """
    [nodes] = yield [GetMany(tuple(paths.offset(group, tp) for tp in partitions))]
    assert isinstance(nodes, list), "GetMany returns a list"
    stored: dict[TopicPartition, StoredOffset] = {}
    failed: dict[TopicPartition, str] = {}
    for tp, node in zip(partitions, nodes, strict=True):
        if isinstance(node, ConnectionLost | SessionEnded):
            continue
        found = stored_offset(node)
        if isinstance(found, str):
            failed[tp] = found
        else:
            stored[tp] = found
    return stored, failed


def stored_offset(node: ZnodeData | StoreError) -> StoredOffset | str:
    """The content of an offset znode, or why it cannot be read.  Any negative number counts as no offset (-1)."""
    if isinstance(node, NoNode):
        return StoredOffset()
    if isinstance(node, StoreError):
        return describe_result(node)
    try:
        offset = parse_offset(node.data)
    except MalformedZnode as error:
        return str(error)
    return StoredOffset(max(offset, -1), node.stat.version, written_zxid=node.stat.mzxid)


# --- shared -----------------------------------------------------------------------------------------------------


def make_parents(creates: list[Create], denials: DenialCollector) -> Procedure[None]:
    """Create missing nodes, parents first; denied ones are added to ``denials``.

    A server checks the permission before it checks whether the node exists; so a node whose create was denied may
    exist already.
    """
    answers = yield list[Request](creates)
    denied = [create for create, answer in zip(creates, answers, strict=True) if isinstance(answer, NoAuth)]
    if denied:
        stats = yield [Exists(create.path) for create in denied]
        for create, stat in zip(denied, stats, strict=True):
            if stat is None:
                denials.add(create)


def control_check(group: str, version: int | None) -> tuple[Op, ...]:
    """The check that every multi of a member begins with; none where there is no control znode."""
    assert version is None or version >= 0, "-1 matches every version, so the check would never fail"
    return () if version is None else (CheckOp(paths.control(group), version),)


def pack_multis(
    planned: Iterable[tuple[TopicPartition, list[Op]]], control: Sequence[Op], *, one_by_one: bool
) -> list[MultiPlan]:
    """Distribute partitions to multis: as many as a server accepts, by operations and bytes; or one partition each."""
    plans: list[MultiPlan] = []
    ops_left = bytes_left = 0
    for tp, ops in planned:
        size = sum(map(_bytes_of, ops))
        if one_by_one or not plans or len(ops) > ops_left or size > bytes_left:
            plans.append([])
            ops_left, bytes_left = MULTI_OPS_MAX - len(control), MULTI_BYTES_MAX
        plans[-1].append((tp, ops))
        ops_left -= len(ops)
        bytes_left -= size
        assert ops_left >= 0, "the operations of one partition fit into one multi"
    return plans


def _bytes_of(op: Op) -> int:
    data = 0 if isinstance(op, CheckOp | DeleteOp) else len(op.data)
    acl = ACL_BYTES if isinstance(op, CreateOp) and op.acl is not None else 0
    return len(op.path) + data + acl + OP_BYTES


def multi_of(plan: MultiPlan, control: Sequence[Op]) -> Multi:
    """The multi of a plan, which starts with the checks of ``control``."""
    return Multi((*control, *(op for _, ops in plan for op in ops)))


def outcome_of(answer: Result) -> WriteOutcome:
    return WriteOutcome.UNKNOWN if isinstance(answer, ConnectionLost | SessionEnded) else WriteOutcome.FAILED


def describe_result(answer: Result) -> str:
    if isinstance(answer, StoreError):
        return f"{type(answer).__name__} {answer.path}"
    return repr(answer)


def owner_text(node: ZnodeData) -> str:
    try:
        return parse_owner(node.data)
    except MalformedZnode:
        return repr(node.data[:80])
