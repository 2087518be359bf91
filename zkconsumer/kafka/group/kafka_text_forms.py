"""The values in the sentences of Kafka's log, in the form in which Java writes them.  Pure.

A user searches his logs for a text of Kafka's client, often with a value in it (``Successfully joined group with
generation Generation{generationId=3``).  So the sentences of our log lines have Kafka's words, and the values in them
Kafka's form.  Source: the ``toString`` methods of Kafka 3.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from zkconsumer.kafka.error_codes import error_code
from zkconsumer.kafka.group.events import CoordinatorNode, Offset
from zkconsumer.kafka.group.generation import Generation
from zkconsumer.kafka.group.partition_assignor import Assignment
from zkconsumer.types import TopicPartition

COORDINATOR_ID_BASE = 0x7FFFFFFF
"""Java numbers a coordinator's connection ``Integer.MAX_VALUE - id``, apart from the broker's other connection."""

ERROR_MESSAGES = MappingProxyType(
    {
        -1: "The server experienced an unexpected error when processing the request.",
        3: "This server does not host this topic-partition.",
        7: "The request timed out.",
        12: "The metadata field of the offset request was too large.",
        14: "The coordinator is loading and hence can't process requests.",
        15: "The coordinator is not available.",
        16: "This is not the correct coordinator.",
        22: "Specified group generation id is not valid.",
        23: "The group member's supported protocols are incompatible with those of existing members or first group "
        "member tried to join with empty protocol type or empty protocol list.",
        24: "The configured groupId is invalid.",
        25: "The coordinator is not aware of this member.",
        26: "The session timeout is not within the range allowed by the broker (as configured by "
        "group.min.session.timeout.ms and group.max.session.timeout.ms).",
        27: "The group is rebalancing, so a rejoin is needed.",
        28: "The committing offset data size is not valid.",
        29: "Topic authorization failed.",
        30: "Group authorization failed.",
        35: "The version of API is not supported.",
        79: "The group member needs to have a valid member id before actually entering a consumer group.",
        81: "The consumer group has reached its max size.",
        82: "The broker rejected this static consumer since another consumer with the same group.instance.id has "
        "registered with a different member.id.",
        88: "There are unstable offsets that need to be cleared.",
    }
)
"""Error code → the text of ``Errors.message()``, for the errors of a group coordinator."""


def error_message(code: int) -> str:
    """The text of an error code; of one that the table does not have, its name."""
    return ERROR_MESSAGES.get(code) or error_code(code).name


def node_text(node: CoordinatorNode | None) -> str:
    """A coordinator as ``Node.toString``; ``null`` without one."""
    if node is None:
        return "null"
    return f"{node.address.host}:{node.address.port} (id: {COORDINATOR_ID_BASE - node.id} rack: null)"


def generation_text(generation: Generation) -> str:
    """``AbstractCoordinator.Generation.toString``."""
    protocol = "null" if generation.protocol_name is None else generation.protocol_name
    member = generation.member_id
    return f"Generation{{generationId={generation.generation_id}, memberId='{member}', protocol='{protocol}'}}"


def optional_text(value: object) -> str:
    """``Optional.toString``; None is the empty one."""
    return "Optional.empty" if value is None else f"Optional[{value}]"


def boolean_text(value: bool) -> str:
    """``true`` or ``false``."""
    return "true" if value else "false"


def partition_text(tp: TopicPartition) -> str:
    """``TopicPartition.toString``."""
    return f"{tp.topic}-{tp.partition}"


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Partitions with commas between them; in sorted order, where Java has the order of a hash table."""
    return ", ".join(map(partition_text, sorted(partitions)))


def topics_text(topics: Iterable[str]) -> str:
    """A set of topics, in sorted order."""
    return f"[{', '.join(sorted(topics))}]"


def assignment_text(assignment: Assignment) -> str:
    """``ConsumerPartitionAssignor.Assignment.toString``."""
    partitions = ", ".join(map(partition_text, assignment.partitions))
    data = "" if assignment.user_data is None else f", userDataSize={len(assignment.user_data)}"
    return f"Assignment(partitions=[{partitions}]{data})"


def assignments_text(assignments: Mapping[str, Assignment]) -> str:
    """A map from member ids to assignments."""
    return "{" + ", ".join(f"{member}={assignment_text(share)}" for member, share in assignments.items()) + "}"


def offset_text(offset: Offset) -> str:
    """``OffsetAndMetadata.toString``."""
    epoch = "null" if offset.leader_epoch < 0 else offset.leader_epoch
    return f"OffsetAndMetadata{{offset={offset.offset}, leaderEpoch={epoch}, metadata='{offset.metadata}'}}"


def offsets_text(offsets: Mapping[TopicPartition, Offset]) -> str:
    """A map from partitions to offsets, in the order of the partitions."""
    return "{" + ", ".join(f"{partition_text(tp)}={offset_text(at)}" for tp, at in sorted(offsets.items())) + "}"


def position_text(offset: Offset) -> str:
    """``SubscriptionState.FetchPosition.toString`` of a position whose leader is not looked up yet."""
    epoch = optional_text(None if offset.leader_epoch < 0 else offset.leader_epoch)
    leader = "LeaderAndEpoch{leader=Optional.empty, epoch=absent}"
    return f"FetchPosition{{offset={offset.offset}, offsetEpoch={epoch}, currentLeader={leader}}}"
