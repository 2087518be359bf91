"""Deletes ZooKeeper groups without members, by the rules of Kafka's tool, as atomically as ZooKeeper allows.

A group is *active* while ``ids`` has children; then nothing of it is changed (0.9 to 1.1).  Kafka's tool checks this
first and then deletes node by node, so a member that joins in between loses its registration and its owner nodes.
Here:

    up to NODES_PER_MULTI_MAX nodes   one multi deletes ``ids`` and everything else, or nothing.  A member that joined
                                    is a child of ``ids``, so the multi fails; it also fails for any other new node
    more                            one multi deletes ``ids`` and creates an *ephemeral* ``ids`` in its place.
                                    ZooKeeper allows no children below an ephemeral node, so no member can join until
                                    the last multi has deleted the rest.  If this program dies, the fence ends with
                                    its session, and the command can be run again

The deletion of a single topic uses the second way, and recreates ``ids``.  Two limits remain.  A member that was paused
when its session ended writes its offsets again when it resumes (the Scala consumer does not check), so
``/consumers/G/offsets`` may reappear.  And members with offsets in Kafka still have those.

A migrating group is rejected: ``zkconsumer migrate`` decides about it.  The znodes of a migrated group are deleted like
any other; its control znode stays, so that members of zkconsumer do not start again in ZooKeeper.
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
"""Nodes that one multi deletes at most."""

TREE_NODES_MAX = 2_000_000
"""A tree with more nodes is not accepted as a group."""

TRIES_MAX = 3
"""How often the nodes are listed again after some appeared or disappeared."""

DELETION_FENCE_DATA = b"zkconsumer groups delete"
DELETION_FENCE_VERSION = 1
"""The data of the ephemeral ``ids``, and its version: it is set once after its creation, a member's ``ids`` never
is."""

OP_OVERHEAD_BYTES = 64

DeletionStatus: TypeAlias = Literal[
    "would delete", "deleted", "active", "migrating", "missing", "rejected", "too young"
]


@dataclass(frozen=True, slots=True)
class GroupDeletion:
    """What is deleted of one group.

    ``topic`` None: all of it.  ``nodes``: every path to delete, children before parents.  ``status`` other than
    ``would delete``: nothing is deleted, and ``reason`` names the cause.
    """

    group: str
    topic: str | None
    status: DeletionStatus
    nodes: tuple[str, ...] = ()
    reason: str = ""
    last_write_ms: int = 0


def plan_group_deletion(session: AdminSession, group: str, topic: str | None = None) -> GroupDeletion:
    """Plan the deletion of a group, or of one topic of it.  Raises ``InvalidNameError``, ``UnavailableError``.

    If the topic is the group's only one, the whole group is deleted.  (Kafka's tool considers only topics with owner
    nodes, and so deletes the offsets of all other topics as well.)
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
    """Return T of ``/consumers/G/owners/T`` and ``/consumers/G/offsets/T``."""
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
        how = (
            f"cannot be read ({problem})" if control is None else f"shows that the group is migrating ({control.phase})"
        )
        return replace(target, status="migrating", reason=f"{paths.control(target.group)} {how}")
    return target


def plan_topic_deletion(session: AdminSession, groups: Iterable[str], topic: str) -> list[GroupDeletion]:
    """Plan this for every group that has nodes of the topic.  A group without offsets does not stop the run."""
    found = (plan_group_deletion(session, group, topic) for group in _groups_with(session, list(groups), topic))
    return [target for target in found if target.status != "missing"]


def _groups_with(session: AdminSession, groups: Sequence[str], topic: str) -> list[str]:
    wanted = [(g, path) for g in groups for path in (paths.offsets_of_topic(g, topic), paths.owners_of_topic(g, topic))]
    found = zip(wanted, session.request([Exists(path) for _, path in wanted]), strict=True)
    return list(
        dict.fromkeys(group for (group, path), stat in found if stat is not None and expect_result(stat, Stat, path))
    )


def _tree(session: AdminSession, root: str) -> dict[str, Stat]:
    """Return every node from ``root`` down, breadth first, each level in one pipelined round."""
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
            raise UnavailableError(f"{root} has more than {TREE_NODES_MAX} nodes: this is not a consumer group")
        level = following
    return found


# --- deleting ---------------------------------------------------------------------------------------------------


def execute_deletion(session: AdminSession, target: GroupDeletion) -> GroupDeletion:
    """Delete what ``plan_*`` found, if it is still valid; list the nodes again if some appeared or disappeared.

    Raises ``PreconditionFailed`` (a member joined, or the right is missing: nothing was deleted), ``UnavailableError``
    when ZooKeeper does not answer or fails in the middle: run it again.
    """
    assert target.status == "would delete", "only such groups can be deleted"
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
    raise UnavailableError(f"ZooKeeper did not confirm that it deleted {ops[0].path} and others ({what}): run it again")


def _delete_in_one_multi(session: AdminSession, target: GroupDeletion) -> MultiFailed | None:
    """Delete everything in one multi, including ``ids``; for a single topic ``ids`` is created again."""
    deletes: list[Op] = [DeleteOp(path) for path in target.nodes]
    ids = paths.ids(target.group)
    if ids in target.nodes:
        return _multi(session, deletes)
    return _multi(session, [*_no_member_check(session, target.group), *deletes])


def _no_member_check(session: AdminSession, group: str) -> list[Op]:
    """Operations that fail if a member is registered, and otherwise only recreate the node."""
    ids = paths.ids(group)
    if session.get(ids) is None:
        return [CreateOp(ids), DeleteOp(ids)]
    return [DeleteOp(ids), CreateOp(ids)]


def _delete_fenced(session: AdminSession, target: GroupDeletion) -> MultiFailed | None:
    """Delete many nodes: no member can register until the last of them is deleted."""
    ids, root = paths.ids(target.group), paths.group_root(target.group)
    had_ids = session.get(ids) is not None
    fence: list[Op] = [CreateOp(ids, ephemeral=True), SetOp(ids, DELETION_FENCE_DATA)]
    failed = _multi(session, [DeleteOp(ids), *fence] if had_ids else fence)
    if failed is not None:
        return failed
    # Only our ``ids`` has this version: one that a member made after the end of our session is a new node.
    fence_check = CheckOp(ids, DELETION_FENCE_VERSION)
    for some in _packets([path for path in target.nodes if path not in (ids, root)]):
        failed = _delete_some(session, fence_check, some)
        if failed is not None:
            _multi(session, [fence_check, DeleteOp(ids), *([CreateOp(ids)] if had_ids else [])])
            raise UnavailableError(f"stopped in the middle, a part is deleted: {_failure_text(failed)}. Run it again")
    last: list[Op] = [fence_check, DeleteOp(ids)]
    if target.topic is None:
        last.append(DeleteOp(root))
    elif had_ids:
        last.append(CreateOp(ids))
    return _multi(session, last)


def _packets(nodes: Sequence[str]) -> Iterator[list[str]]:
    """Children come before parents, and the multis are sent in this order."""
    longest = max(map(len, nodes), default=0) + OP_OVERHEAD_BYTES
    return chunks(nodes, max(1, min(NODES_PER_MULTI_MAX, PACKET_BYTES_MAX // 2 // longest)))


def _delete_some(session: AdminSession, fence_check: CheckOp, nodes: Sequence[str]) -> MultiFailed | None:
    failed = _multi(session, [fence_check, *(DeleteOp(path) for path in nodes)])
    if failed is None or not isinstance(failed.error, NoNode) or not failed.failed:
        return failed
    for path in nodes:  # some do not exist any more
        failed = _multi(session, [fence_check, DeleteOp(path)])
        if failed is not None and (not isinstance(failed.error, NoNode) or not failed.failed):
            return failed
    return None
