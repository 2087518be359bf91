"""Offsets in JSON znodes, as Storm's KafkaSpout and kafka-spark-consumer (up to 1.0.9) write them.

    ROOT/ID/partition_P             Storm (storm-kafka 0.9 to 1.2): zkRoot and id of SpoutConfig
    ROOT/ID/T/partition_P           Storm with a topic wildcard; kafka-spark-consumer: the next offset to receive
    ROOT/ID/T/processed/partition_P kafka-spark-consumer: the last offset that was processed

    {"topology":{"id":"…","name":"…"},"offset":42,"partition":0,"broker":{"host":"…","port":9092},"topic":"clicks"}

Kafka's consumers do not read these nodes, and no group of Kafka has them.  ``zkconsumer offsets export --json-znodes``
writes them to a file as the offsets of a group, which ``zkconsumer offsets import`` reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zkconsumer.admin.offset_lines import OffsetLineError, offset_of_members, quoted_text
from zkconsumer.errors import UsageError
from zkconsumer.strict_json import read_json_object

if TYPE_CHECKING:
    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.types import TopicPartition

_PARTITION_NAME = re.compile(r"partition_(0|[1-9][0-9]{0,9})", re.ASCII)
_PATH = re.compile(r"(/[^/\x00-\x1f\x7f]+)+")
DATA_BYTES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class JsonOffsetZnodes:
    """The offsets that were read, as the nodes have them; ``problems``: the other nodes, with the reason, as text."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def parse_json_offset(name: str, data: bytes) -> tuple[TopicPartition, int]:
    """The partition and the offset in the node ``partition_P``.

    Raises ``OffsetLineError``, also if the node's name and its content name different partitions.
    """
    if len(data) > DATA_BYTES_MAX:
        raise OffsetLineError(f"{len(data)} bytes are not an offset")
    try:
        members = read_json_object(data.decode("utf-8"))
    except ValueError as error:
        raise OffsetLineError(str(error)) from None
    tp, offset = offset_of_members(members)
    if name != f"partition_{tp.partition}":
        raise OffsetLineError(f"it has partition {tp.partition}")
    return tp, offset


def read_json_offset_znodes(session: AdminSession, path: str) -> JsonOffsetZnodes:
    """Read the nodes ``partition_P`` below this path, or, if it has none, below each of its children.

    Raises ``UsageError`` if it is no path of a node, if it does not exist, or if two nodes below it have offsets of one
    partition; ``UnavailableError`` when ZooKeeper does not answer.
    """
    if _PATH.fullmatch(path) is None:
        raise UsageError(f"{quoted_text(path)} is not a path such as /kafkastorm/clicks-spout")
    listed = session.children(path)
    if listed is None:
        raise UsageError(f"there is no znode {path}: is the chroot right? The path begins below it")
    folders = {path: listed.names}
    if not any(map(_is_partition, listed.names)):
        children = session.children_of_many(f"{path}/{name}" for name in sorted(listed.names))
        folders = {child: found.names for child, found in children.items()}
    nodes = [f"{at}/{name}" for at, names in folders.items() for name in sorted(names) if _is_partition(name)]
    found = JsonOffsetZnodes()
    for node, read in session.get_many(nodes).items():
        try:
            tp, offset = parse_json_offset(node.rpartition("/")[2], read.data)
        except OffsetLineError as error:
            found.problems.append(f"{node}: skipped: {error}")
            continue
        if tp in found.offsets:
            raise UsageError(f"{node} and another node have offsets of {tp}: give the path of one spout or one topic")
        found.offsets[tp] = offset
    return found


def _is_partition(name: str) -> bool:
    return _PARTITION_NAME.fullmatch(name) is not None
