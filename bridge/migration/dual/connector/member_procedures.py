"""What a migrating member writes to ZooKeeper besides the writes of every member, as procedures.

acknowledge   the phase that it follows, for the tool that moves the group: an ephemeral child of the control znode
mirror        the offsets that Kafka accepted, while Kafka has the authority; conditional on the control znode

Each is a generator of requests (``group_procedures.Procedure``): it reads, decides by what it has read, and writes.
Its requests are sent in one session; when that session has ended, each answer is an error, and nothing is written.

When an answer is lost, the outcome of a write is unknown.  Neither procedure looks it up: the caller repeats an
acknowledgement, which reads first, until a write succeeds; and the next mirrored offset overwrites this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.migration.control.control_layout import MEMBERS_CHILD
from bridge.migration.dual.machine.acknowledgement import Acknowledgement, acknowledgement_path, format_acknowledgement
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import Procedure, control_check, describe_result, multi_of, pack_multis
from zkconsumer.zk.requests import (
    Acl,
    Create,
    CreateOp,
    Delete,
    Get,
    GetMany,
    MultiOk,
    NodeExists,
    NoNode,
    Op,
    Request,
    SetData,
    SetOp,
    StoreError,
    ZnodeData,
)
from zkconsumer.zk.znode_formats import format_offset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.types import TopicPartition

ACKNOWLEDGE_TRIES_MAX = 4
"""How often an acknowledgement is read and written in one run: the longest way without another client has three
rounds (delete the node of an earlier session; the folder is missing; create)."""


def write_acknowledgement(
    group: str, consumer: str, acknowledgement: Acknowledgement | None, session_id: int, acl: tuple[Acl, ...] | None
) -> Procedure[str]:
    """Write the acknowledgement, or delete it (None); returns "", or why that failed.

    A node of an earlier session of ours is deleted first: it would be deleted with that session.  A node that another
    client changes between our read and our write is read again.  In a group without ACLs the folder may be missing; the
    member creates it.

    ``session_id``: that of the requests.  ``acl``: of the node; None: every client has all permissions.
    """
    assert acknowledgement is None or acknowledgement.migration_id, "it names a migration"
    path = acknowledgement_path(group, consumer)
    for _ in range(ACKNOWLEDGE_TRIES_MAX):
        [held] = yield [Get(path)]
        if isinstance(held, StoreError) and not isinstance(held, NoNode):
            return describe_result(held)
        is_ours = isinstance(held, ZnodeData) and held.stat.ephemeral_owner == session_id
        if acknowledgement is None and not isinstance(held, ZnodeData):
            return ""
        request: Request
        if acknowledgement is None or (isinstance(held, ZnodeData) and not is_ours):
            request = Delete(path)
        elif is_ours:
            request = SetData(path, format_acknowledgement(acknowledgement))
        else:
            request = Create(path, format_acknowledgement(acknowledgement), ephemeral=True, acl=acl)
        [answer] = yield [request]
        if isinstance(answer, NoNode) and isinstance(request, Create):
            yield [Create(paths.control_child(group, MEMBERS_CHILD))]
        elif isinstance(answer, StoreError) and not isinstance(answer, NoNode | NodeExists):
            return describe_result(answer)
        elif not isinstance(answer, StoreError) and (acknowledgement is None or not isinstance(request, Delete)):
            return ""
    return "another client creates and deletes it"


def write_mirrored_offsets(
    group: str, offsets: Mapping[TopicPartition, int], control_version: int, acl: tuple[Acl, ...] | None
) -> Procedure[int]:
    """Write these; returns how many were written.  Failures are ignored, because Kafka has the authority.

    ``control_version``: that of the control znode which this member follows.  Every multi checks it: after a rollback
    ZooKeeper has the authority, and a late mirror of a paused member must not overwrite the offset of a new owner.  The
    version of the offset znode is not checked: while Kafka has the authority only mirrors are written there.

    A multi fails as a whole if one operation fails (an ACL of one topic, a znode that appeared meanwhile).  So the
    partitions of a failed one are written once more, each in a multi of its own.
    """
    assert offsets, "a write has offsets"
    control = control_check(group, control_version)
    wanted = sorted(offsets)
    [nodes] = yield [GetMany(tuple(paths.offset(group, tp) for tp in wanted))]
    assert isinstance(nodes, list), "a read of many nodes returns a list"
    missing = [tp for tp, node in zip(wanted, nodes, strict=True) if isinstance(node, NoNode)]
    if missing:
        topics = sorted({tp.topic for tp in missing})
        yield [
            Create(paths.offsets(group), acl=acl),
            *(Create(paths.offsets_of_topic(group, topic), acl=acl) for topic in topics),
        ]
    plans: list[tuple[TopicPartition, list[Op]]] = []
    for tp, node in zip(wanted, nodes, strict=True):
        path, data = paths.offset(group, tp), format_offset(offsets[tp])
        if isinstance(node, ZnodeData) and node.data == data:
            continue
        plans.append((tp, [CreateOp(path, data, acl=acl) if tp in missing else SetOp(path, data)]))
    written = 0
    for singly in (False, True):
        chunks = pack_multis(plans, control, one_by_one=singly)
        answers = (yield [multi_of(chunk, control) for chunk in chunks]) if chunks else []
        plans = []
        for chunk, answer in zip(chunks, answers, strict=True):
            if isinstance(answer, MultiOk):
                written += len(chunk)
            else:
                plans += chunk
    return written
