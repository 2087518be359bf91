"""What a member does in ZooKeeper, step by step: register, claim, read positions, commit, release.

Each procedure is a generator: it yields a *round* of requests (sent in one go, one behind the other) and is sent
their results; what it returns is the answer to a command of the core.  So a procedure knows the order of the
packets and nothing of threads, and runs the same on a live server and on a list of prepared answers.

A multi is the fast path.  When it fails, its members are looked at in one round, those that cannot succeed are set
aside with their reason, and the rest goes in a second multi; what still fails goes one by one.  Three rounds at
most: one bad partition never stops the others, and no attempt lasts for ever.
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
    """A step that waits for somebody else than ZooKeeper: ``ask(done)`` starts it; any thread may call ``done``, once.

    It gives no results: whoever yields it knows where they are.
    """

    start: Callable[[Callable[[], None]], None]


Procedure = Generator[list[Request] | AwaitExternal, list[Result], T]
"""What a member does in ZooKeeper: rounds of requests out, their results in."""

ROUNDS_MAX = 3
OUR_OWNER_VERSION = 1
"""Our claims are a create and a set in one multi, so their data version is exactly 1.  The original never sets."""

INITIAL_VERSION = 0

MULTI_BYTES_MAX = PACKET_BYTES_MAX // 2
"""Of what is counted here; the chroot, which the store puts before each path, and a server's own record come on top."""

OP_BYTES = 64
"""What an operation takes besides its path and data: headers, version, an access control list."""

ACL_BYTES = 256
"""What a list takes besides: a server keeps ``auth`` as the names that it stands for."""

MultiPlan: TypeAlias = "list[tuple[TopicPartition, list[Op]]]"
"""Partitions, and what is to be done for each, in the order of one multi."""


# --- registration -----------------------------------------------------------------------------------------------


def register_member(
    group: str, consumer: str, data: bytes, session_id: int
) -> Procedure[ZnodeData | StoreError | None]:
    """Create our registration: None when it is ours now, the ``ZnodeData`` that another session holds, or an error."""
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
                    assert isinstance(held, StoreError), "a read gives a node or an error"
                    return held
            case StoreError():
                return made
            case _:
                return None
    return NodeExists(path)


def deregister_member(group: str, consumer: str, session_id: int) -> Procedure[StoreError | None]:
    """Delete our registration; one that is gone already, or that another session made, is not ours to delete."""
    path = paths.registration(group, consumer)
    [held] = yield [Get(path)]
    if isinstance(held, ZnodeData) and held.stat.ephemeral_owner == session_id:
        [held] = yield [Delete(path)]
    return held if isinstance(held, StoreError) and not isinstance(held, NoNode) else None


# --- claims -----------------------------------------------------------------------------------------------------


class AcquireOwnershipProcedure:
    """One try to create owner nodes.  ``unwatched`` names the topics whose listing left no watch.

    ``owner_lists``: the lists that need not be read again before the first multi.
    """

    def __init__(
        self,
        group: str,
        session_id: int,
        owners: Mapping[TopicPartition, str],
        control_version: int | None,
        acl: tuple[Acl, ...] | None = None,
        owner_lists: OwnerListCache | None = None,
    ) -> None:
        self.results: dict[TopicPartition, AcquireResult] = {}
        self._owner_lists = OwnerListCache() if owner_lists is None else owner_lists
        self.denials = DenialCollector()
        self.unwatched: set[str] = set()
        self._group = group
        self._session_id = session_id
        self._owners = owners
        self._control = control_check(group, control_version)
        self._acl = acl

    def run(self, *, look_first: bool, look_closely: bool) -> Procedure[None]:
        """Fill ``results``: every partition gets an outcome; and ``denials``."""
        if look_first:
            yield from self._exclude_owned()
        for attempt in range(ROUNDS_MAX):
            left = [tp for tp in self._owners if tp not in self.results]
            if not left:
                break
            is_last = attempt == ROUNDS_MAX - 1
            plans = pack_multis([(tp, self._ops(tp)) for tp in left], self._control, one_by_one=is_last)
            yield from self._try(plans, is_last=is_last)
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
                    self._set_result([chunk[at]], WriteOutcome.CONFLICT, "another member holds it")
                else:
                    # The error of one may hide that the parent of another is missing.
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
                self._owner_lists.invalidate(topic)  # what it says is free has an owner
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
            assert isinstance(stat, Stat), "a set gives the node's stat"
            self.results[tp] = AcquireResult(WriteOutcome.DONE, stat.czxid)

    def _exclude_owned(self) -> Procedure[None]:
        """List the owners of every topic that is still to be claimed, leaving watches; make the parents that miss."""
        left = [tp for tp in self._owners if tp not in self.results]
        topics = [topic for topic in sorted({tp.topic for tp in left}) if self._owner_lists.get(topic) is None]
        requests: list[Request] = [Children(paths.owners_of_topic(self._group, topic), watch=True) for topic in topics]
        answers = (yield requests) if requests else []
        missing: list[str] = []
        for topic, answer in zip(topics, answers, strict=True):
            if isinstance(answer, ChildNames):
                self._owner_lists.put(topic, answer.names)
                self.unwatched.discard(topic)
                continue
            self.unwatched.add(topic)
            if isinstance(answer, NoNode):
                missing.append(topic)
        if missing:
            yield from self._make_parents(missing)
        for tp in left:
            if str(tp.partition) in (self._owner_lists.get(tp.topic) or ()):
                self.results[tp] = AcquireResult(WriteOutcome.CONFLICT, why="another member holds it")

    def _identify_owners(self) -> Procedure[None]:
        """Say who holds what refused us; a node of this very session is ours all the same."""
        refused = [tp for tp, claimed in self.results.items() if claimed.outcome is WriteOutcome.CONFLICT]
        if not refused:
            return
        [nodes] = yield [GetMany(tuple(paths.owner(self._group, tp) for tp in refused))]
        assert isinstance(nodes, list), "reading many gives a list"
        for tp, node in zip(refused, nodes, strict=True):
            if not isinstance(node, ZnodeData):
                continue
            owner = owner_text(node)
            if node.stat.ephemeral_owner == self._session_id and owner == self._owners[tp]:
                self.results[tp] = AcquireResult(WriteOutcome.DONE, node.stat.czxid)
            elif node.stat.ephemeral_owner == 0:
                self.results[tp] = AcquireResult(WriteOutcome.CONFLICT, why=f"a persistent node holds it: {owner}")
            else:
                self.results[tp] = AcquireResult(WriteOutcome.CONFLICT, why=f"held by {owner}")

    def _set_result(self, chunk: Iterable[TopicPartition], outcome: WriteOutcome, why: str) -> None:
        for tp in chunk:
            self.results[tp] = AcquireResult(outcome, why=why)


def list_owners(
    group: str,
    topics: Sequence[str],
    mine: Sequence[TopicPartition] = (),
    session_id: int = 0,
    owner_lists: OwnerListCache | None = None,
) -> Procedure[dict[str, frozenset[int]]]:
    """Which partitions of these topics have an owner node; a topic that could not be listed is left out.

    The nodes of ``mine`` that are listed are read as well (one packet where the server reads many at once, else one
    each): a node of another session does not count, since the list alone cannot tell that ours was replaced.
    ``owner_lists`` gets the lists, for the claims that follow.
    """
    answers = yield [Children(paths.owners_of_topic(group, topic), watch=True) for topic in topics]
    owned = {
        topic: {number for name in answer.names if (number := paths.partition_number(name)) is not None}
        for topic, answer in zip(topics, answers, strict=True)
        if isinstance(answer, ChildNames)
    }
    if owner_lists is not None:
        for topic, answer in zip(topics, answers, strict=True):
            if isinstance(answer, ChildNames):
                owner_lists.put(topic, answer.names)
    held = [tp for tp in mine if tp.partition in owned.get(tp.topic, ())]
    if held:
        [nodes] = yield [GetMany(tuple(paths.owner(group, tp) for tp in held))]
        assert isinstance(nodes, list), "reading many gives a list"
        for tp, node in zip(held, nodes, strict=True):
            if isinstance(node, ZnodeData) and node.stat.ephemeral_owner != session_id:
                owned[tp.topic].discard(tp.partition)
    return {topic: frozenset(numbers) for topic, numbers in owned.items()}


# --- positions --------------------------------------------------------------------------------------------------


def read_positions(
    group: str, partitions: Sequence[TopicPartition]
) -> Procedure[tuple[dict[TopicPartition, StoredOffset], dict[TopicPartition, str]]]:
    """The stored offsets, and why those that could not be read could not.

    A partition whose answer was lost with the connection is in neither: it is asked for again.
    """
    [nodes] = yield [GetMany(tuple(paths.offset(group, tp) for tp in partitions))]
    assert isinstance(nodes, list), "reading many gives a list"
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
    """What an offset znode holds, or why that cannot be told.  Any negative number counts as none."""
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
    """Make what is missing, the upper nodes first; what may not be made is noted.

    A server looks at the right before it looks whether the node is there, so what was denied may be there already.
    """
    answers = yield list[Request](creates)
    denied = [create for create, answer in zip(creates, answers, strict=True) if isinstance(answer, NoAuth)]
    if denied:
        stats = yield [Exists(create.path) for create in denied]
        for create, stat in zip(denied, stats, strict=True):
            if stat is None:
                denials.add(create)


def control_check(group: str, version: int | None) -> tuple[Op, ...]:
    return () if version is None else (CheckOp(paths.control(group), version),)


def pack_multis(
    planned: Iterable[tuple[TopicPartition, list[Op]]], control: Sequence[Op], *, one_by_one: bool
) -> list[MultiPlan]:
    """What goes into one multi: as many partitions as a server takes, by operations and by bytes; or one each."""
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
    return plans


def _bytes_of(op: Op) -> int:
    data = 0 if isinstance(op, CheckOp | DeleteOp) else len(op.data)
    acl = ACL_BYTES if isinstance(op, CreateOp) and op.acl is not None else 0
    return len(op.path) + data + acl + OP_BYTES


def multi_of(plan: MultiPlan, control: Sequence[Op]) -> Multi:
    """The multi of a plan, behind what is checked in each."""
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
