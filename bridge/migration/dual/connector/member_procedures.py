"""What a member of both worlds writes to ZooKeeper besides what every member writes there, step by step.

acknowledge   where it stands, for whoever moves the group: an ephemeral child of the control znode
mirror        what Kafka took, while Kafka has the authority: plain offsets behind a check of the control znode
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


def write_acknowledgement(
    group: str, consumer: str, said: Acknowledgement | None, session_id: int, acl: tuple[Acl, ...] | None
) -> Procedure[str]:
    """Write this, or take away what stands there (None); empty when it is done, else why it is not.

    A node that an earlier session of ours left is taken away first: it would go with that session.
    """
    path = acknowledgement_path(group, consumer)
    for _ in range(ACKNOWLEDGE_TRIES_MAX):
        [held] = yield [Get(path)]
        if isinstance(held, StoreError) and not isinstance(held, NoNode):
            return describe_result(held)
        is_ours = isinstance(held, ZnodeData) and held.stat.ephemeral_owner == session_id
        if said is None and not isinstance(held, ZnodeData):
            return ""
        request: Request
        if said is None or (isinstance(held, ZnodeData) and not is_ours):
            request = Delete(path)
        elif is_ours:
            request = SetData(path, format_acknowledgement(said))
        else:
            request = Create(path, format_acknowledgement(said), ephemeral=True, acl=acl)
        [answer] = yield [request]
        if isinstance(answer, NoNode) and isinstance(request, Create):
            yield [Create(paths.control_child(group, MEMBERS_CHILD))]
        elif isinstance(answer, StoreError) and not isinstance(answer, NoNode | NodeExists):
            return describe_result(answer)
        elif not isinstance(answer, StoreError) and (said is None or not isinstance(request, Delete)):
            return ""
    return "it comes and goes"


def write_mirrored_offsets(
    group: str, offsets: Mapping[TopicPartition, int], control_version: int, acl: tuple[Acl, ...] | None
) -> Procedure[int]:
    """Write these; how many were written.  What cannot be written is let be: Kafka has the authority."""
    control = control_check(group, control_version)
    wanted = sorted(offsets)
    [nodes] = yield [GetMany(tuple(paths.offset(group, tp) for tp in wanted))]
    assert isinstance(nodes, list), "reading many gives a list"
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
