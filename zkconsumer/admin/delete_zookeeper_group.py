"""Deleting groups that nobody is in: the original's rules, made as atomic as ZooKeeper can.

A group is *active* while ``ids`` has children; then nothing of it is touched (0.9 to 1.1).  The original looks, and
then deletes node by node, so a member that joins in between loses its registration and its claims.  Here:

    up to NODES_PER_MULTI_MAX nodes   one multi: delete ``ids`` and everything else, or nothing.  A member that joined
                                    is a child of ``ids``: the multi fails, and so does a node that appeared meanwhile
    more                            the same for ``ids`` alone, and in the same multi an *ephemeral* ``ids`` in its
                                    place.  ZooKeeper lets nobody make children below an ephemeral node, so whoever
                                    joins is refused until the last multi has deleted the rest.  If this program dies,
                                    the fence goes with its session, and the command can be run again

A single topic goes the second way, with ``ids`` put back.  What remains: a member that was paused when its session
ended writes its offsets again when it wakes (the original asks nobody), so ``/consumers/G/offsets`` may come back; and
members with offsets in Kafka have those there still.

A group on the move is refused: ``zkconsumer migrate`` decides about it.  What one that has moved left behind goes like
any other; its control znode stays, and keeps members of ours from beginning anew in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from zkconsumer.admin.admin_session import chunks, expect_result, zk_error_name
from zkconsumer.admin.text_format import registered_text
from zkconsumer.admin.zookeeper_group import read_control
from zkconsumer.errors import PreconditionFailed, UnavailableError
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    MULTI_OPS_MAX,
    PACKET_BYTES_MAX,
    CheckOp,
    ChildNames,
    Children,
    CreateOp,
    DeleteOp,
    Exists,
    Multi,
    MultiFailed,
    MultiOk,
    NoNode,
    NotEmpty,
    Op,
    SetOp,
    Stat,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zkconsumer.admin.admin_session import AdminSession

NODES_PER_MULTI_MAX = MULTI_OPS_MAX - 10
"""Nodes that one multi deletes."""

TREE_NODES_MAX = 2_000_000
"""Nodes below one group that are taken for a group."""

TRIES_MAX = 3
"""How often the nodes are listed anew when one appeared or went in the middle."""

DELETION_FENCE_DATA = b"zkconsumer groups delete"
DELETION_FENCE_VERSION = 1
"""The data of the ephemeral ``ids``, and its version: it is set once after it was made, a member's never is."""

OP_OVERHEAD_BYTES = 64

DeletionStatus: TypeAlias = Literal[
    "would delete", "deleted", "active", "migrating", "missing", "rejected", "too young"
]


@dataclass(frozen=True, slots=True)
class GroupDeletion:
    """What one group loses.

    ``topic`` None: all of it.  ``nodes``: every path that goes, children before parents.  ``status`` other than
    ``would delete``: nothing goes, ``reason`` says what stands in the way.
    """

    group: str
    topic: str | None
    status: DeletionStatus
    nodes: tuple[str, ...] = ()
    reason: str = ""
    last_write_ms: int = 0


def plan_group_deletion(session: AdminSession, group: str, topic: str | None = None) -> GroupDeletion:
    """What deleting a group, or one topic of it, would take.  Raises ``InvalidNameError``, ``UnavailableError``.

    A group whose only topic it is goes whole.  (The original looks at the topics with owners only, and so takes the
    offsets of all the others as well.)
    """
    if topic is not None:
        paths.check_topic(topic)
    root = paths.group_root(group)
    tree = _tree(session, root)
    if not tree:
        return GroupDeletion(group, topic, "missing", reason=f"The consumer group '{group}' does not exist.")
    topics = {name for path in tree if (name := _topic_of(path)) is not None}
    if topic is not None and topic not in topics:
        return GroupDeletion(
            group, topic, "missing", reason=f"The consumer group '{group}' has nothing of topic '{topic}'."
        )
    whole = topic is None or topics == {topic}
    below = [root] if whole else [paths.owners_of_topic(group, topic or ""), paths.offsets_of_topic(group, topic or "")]
    going = {path: stat for path, stat in tree.items() if any(_is_below(path, top) for top in below)}
    target = GroupDeletion(
        group,
        None if whole else topic,
        "would delete",
        tuple(sorted(going, key=lambda path: (-path.count("/"), path))),
        last_write_ms=max(stat.mtime_ms for stat in going.values()),
    )
    return _check_deletion(session, target, members=sum(path.startswith(f"{paths.ids(group)}/") for path in tree))


def _topic_of(path: str) -> str | None:
    """T of ``/consumers/G/owners/T`` and ``/consumers/G/offsets/T``."""
    match path.split("/"):
        case ["", _, _, "owners" | "offsets", topic]:
            return topic
    return None


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top}/")


def _check_deletion(session: AdminSession, target: GroupDeletion, members: int) -> GroupDeletion:
    if members:
        return replace(target, status="active", reason=registered_text(members))
    control, version, problem = read_control(session, target.group)
    if version is not None and (control is None or not control.is_over):
        how = f"cannot be read ({problem})" if control is None else f"says that it is on the move ({control.phase})"
        return replace(target, status="migrating", reason=f"{paths.control(target.group)} {how}")
    return target


def plan_topic_deletion(session: AdminSession, groups: Iterable[str], topic: str) -> list[GroupDeletion]:
    """The same for every group that has something of the topic.  One without offsets does not stop the run."""
    found = (plan_group_deletion(session, group, topic) for group in _groups_with(session, list(groups), topic))
    return [target for target in found if target.status != "missing"]


def _groups_with(session: AdminSession, groups: Sequence[str], topic: str) -> list[str]:
    wanted = [(g, path) for g in groups for path in (paths.offsets_of_topic(g, topic), paths.owners_of_topic(g, topic))]
    found = zip(wanted, session.request([Exists(path) for _, path in wanted]), strict=True)
    return list(
        dict.fromkeys(group for (group, path), stat in found if stat is not None and expect_result(stat, Stat, path))
    )


def _tree(session: AdminSession, root: str) -> dict[str, Stat]:
    """Every node from ``root`` down, breadth first, each level in one pipelined round."""
    found: dict[str, Stat] = {}
    level = [root]
    while level:
        following: list[str] = []
        for path, listed in zip(level, session.request([Children(path) for path in level]), strict=True):
            if isinstance(listed, NoNode):
                continue
            children = expect_result(listed, ChildNames, path)
            found[path] = children.stat
            following += [f"{path}/{name}" for name in children.names]
        if len(found) + len(following) > TREE_NODES_MAX:
            raise UnavailableError(f"{root} has more than {TREE_NODES_MAX} nodes: that is no consumer group")
        level = following
    return found


# --- deleting ---------------------------------------------------------------------------------------------------


def execute_deletion(session: AdminSession, target: GroupDeletion) -> GroupDeletion:
    """Delete what ``plan_*`` found, if it still holds; the nodes are listed anew when some appeared or went.

    Raises ``PreconditionFailed`` (somebody joined, the right is missing: nothing was deleted), ``UnavailableError``
    when ZooKeeper does not answer or stops in the middle: run it again.
    """
    assert target.status == "would delete", "what stands in the way was not looked at"
    for attempt in range(TRIES_MAX):
        failed = _delete_in_one_multi(session, target) if _fits_one_multi(target) else _delete_fenced(session, target)
        if failed is None:
            return replace(target, status="deleted")
        again = plan_group_deletion(session, target.group, target.topic)
        if again.status == "missing":
            return replace(target, status="deleted")
        if again.status != "would delete" or attempt == TRIES_MAX - 1:
            raise PreconditionFailed(again.reason or _failure_text(failed))
        if not isinstance(failed.error, NoNode | NotEmpty):
            raise PreconditionFailed(_failure_text(failed))
        target = again
    raise AssertionError("the last attempt returns or raises")


def _fits_one_multi(target: GroupDeletion) -> bool:
    size = sum(len(path) + OP_OVERHEAD_BYTES for path in target.nodes)
    return len(target.nodes) <= NODES_PER_MULTI_MAX and size <= PACKET_BYTES_MAX // 2


def _failure_text(failed: MultiFailed) -> str:
    return f"{failed.error.path} cannot be deleted: {zk_error_name(failed.error)}"


def _multi(session: AdminSession, ops: Sequence[Op]) -> MultiFailed | None:
    [result] = session.request([Multi(tuple(ops))])
    if isinstance(result, MultiOk):
        return None
    if isinstance(result, MultiFailed):
        return result
    what = zk_error_name(result) if isinstance(result, StoreError) else repr(result)
    raise UnavailableError(f"ZooKeeper did not say whether it deleted {ops[0].path} and others ({what}): run it again")


def _delete_in_one_multi(session: AdminSession, target: GroupDeletion) -> MultiFailed | None:
    """Everything in one multi.  ``ids`` is in it: deleted for good with the group, or deleted and made anew."""
    deletes: list[Op] = [DeleteOp(path) for path in target.nodes]
    ids = paths.ids(target.group)
    if ids in target.nodes:
        return _multi(session, deletes)
    return _multi(session, [*_no_member_check(session, target.group), *deletes])


def _no_member_check(session: AdminSession, group: str) -> list[Op]:
    """Operations that fail when somebody is registered, and otherwise change nothing but the node's age."""
    ids = paths.ids(group)
    if session.get(ids) is None:
        return [CreateOp(ids), DeleteOp(ids)]
    return [DeleteOp(ids), CreateOp(ids)]


def _delete_fenced(session: AdminSession, target: GroupDeletion) -> MultiFailed | None:
    """Many nodes: nobody can register until the last of them is gone."""
    ids, root = paths.ids(target.group), paths.group_root(target.group)
    had_ids = session.get(ids) is not None
    fence: list[Op] = [CreateOp(ids, ephemeral=True), SetOp(ids, DELETION_FENCE_DATA)]
    failed = _multi(session, [DeleteOp(ids), *fence] if had_ids else fence)
    if failed is not None:
        return failed
    # Only ours has this version: an ``ids`` that a member made after our session had ended is a new one.
    fence_check = CheckOp(ids, DELETION_FENCE_VERSION)
    for some in _packets([path for path in target.nodes if path not in (ids, root)]):
        failed = _delete_some(session, fence_check, some)
        if failed is not None:
            _multi(session, [fence_check, DeleteOp(ids), *([CreateOp(ids)] if had_ids else [])])
            raise UnavailableError(
                f"stopped in the middle, some of it is deleted: {_failure_text(failed)}. Run it again"
            )
    last: list[Op] = [fence_check, DeleteOp(ids)]
    if target.topic is None:
        last.append(DeleteOp(root))
    elif had_ids:
        last.append(CreateOp(ids))
    return _multi(session, last)


def _packets(nodes: Sequence[str]) -> Iterator[list[str]]:
    """Children come before parents already, and packets are sent in their order."""
    longest = max(map(len, nodes), default=0) + OP_OVERHEAD_BYTES
    return chunks(nodes, max(1, min(NODES_PER_MULTI_MAX, PACKET_BYTES_MAX // 2 // longest)))


def _delete_some(session: AdminSession, fence_check: CheckOp, nodes: Sequence[str]) -> MultiFailed | None:
    failed = _multi(session, [fence_check, *(DeleteOp(path) for path in nodes)])
    if failed is None or not isinstance(failed.error, NoNode) or not failed.failed:
        return failed
    for path in nodes:  # some were gone already
        failed = _multi(session, [fence_check, DeleteOp(path)])
        if failed is not None and (not isinstance(failed.error, NoNode) or not failed.failed):
            return failed
    return None
