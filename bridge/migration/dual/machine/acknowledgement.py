"""The acknowledgement of a phase: an ephemeral child of the control znode, named by the member's consumer id.  Pure.

    /zkconsumer/groups/G/members/<consumer id>      {"id":…,"epoch":…,"phase":…,"generation":…,"behind":…}

A member writes it once it has done what the phase requires, and again when its numbers change.  It is deleted with the
member's session.

Who waits: the tool that moves the group writes the next phase only when each registered member has an acknowledgement
of the present phase and epoch, and ``behind`` is 0 (``participants.pending_conditions``).  It compares names, never
counts: a member that died and one that was started meanwhile are two members.  So three rules make a phase safe:

    written late, deleted early   a member takes an acknowledgement back as soon as it is not true any more.  The tool
                                  may wait too long, but it never continues too early.
    the epoch is part of it       after a rollback a group has the same phase again.  An acknowledgement that a paused
                                  member wrote before does not match the new epoch.
    ephemeral                     a dead member is not waited for; a paused one loses its acknowledgement with its
                                  session
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from bridge.migration.control.control_layout import MEMBERS_CHILD
from zkconsumer.errors import MalformedZnode
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import ControlRecord

BYTES_MAX = 1024
"""The longest acknowledgement that is parsed: any client may write the node, and the tool reads all of them at once."""

INT64_MAX = 2**63 - 1
NO_GENERATION = -1
"""The member is not in the coordinator group."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A member follows this phase of this epoch.

    ``generation``: that of the coordinator group, -1 if the member is not in it.  ``behind``: how many partitions do
    not meet the requirements of the phase yet (Kafka has the offset of ZooKeeper; in a rollback: an owner node
    exists, and ZooKeeper has the offset of Kafka).
    """

    migration_id: str
    epoch: int
    phase: str
    generation: int
    behind: int

    def matches_control(self, control: ControlRecord) -> bool:
        """Whether it acknowledges this state of the control znode, and not an earlier one."""
        return (self.migration_id, self.epoch, self.phase) == (control.migration_id, control.epoch, control.phase)


def acknowledgement_path(group: str, consumer: str) -> str:
    """The path of a member's acknowledgement.  Raises ``InvalidNameError`` for an invalid consumer id."""
    paths.check_consumer_id(consumer)
    return f"{paths.control(group)}/{MEMBERS_CHILD}/{consumer}"


def format_acknowledgement(acknowledgement: Acknowledgement) -> bytes:
    """The bytes for ZooKeeper: JSON in one line.  They are stored, so a test compares them."""
    assert acknowledgement.generation >= NO_GENERATION, "a generation is a number of the coordinator, or -1"
    assert acknowledgement.behind >= 0, "a number of partitions"
    members = {
        "id": acknowledgement.migration_id,
        "epoch": acknowledgement.epoch,
        "phase": acknowledgement.phase,
        "generation": acknowledgement.generation,
        "behind": acknowledgement.behind,
    }
    return json.dumps(members, separators=(",", ":")).encode("ascii")


def parse_acknowledgement(data: bytes) -> Acknowledgement:
    """Parse it strictly: a malformed node acknowledges nothing.  Raises ``MalformedZnode``.

    Unknown keys are ignored, because a later release may have written them.  ``phase`` is not compared with the phases
    of this release, for the same reason; ``matches_control`` compares it with the control znode.
    """
    if len(data) > BYTES_MAX:
        raise MalformedZnode(f"{len(data)} bytes are no acknowledgement")
    try:
        members = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise MalformedZnode(f"acknowledgement: {error}") from error
    if not isinstance(members, dict):
        raise MalformedZnode("acknowledgement: not a JSON object")
    for key in ("id", "phase"):
        if not isinstance(members.get(key), str) or not members[key]:
            raise MalformedZnode(f"acknowledgement: {key} is missing, or no text")
    for key, low in (("epoch", 0), ("generation", NO_GENERATION), ("behind", 0)):
        number = members.get(key)
        if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= INT64_MAX:
            raise MalformedZnode(f"acknowledgement: {key} is missing, or no number from {low} on")
    return Acknowledgement(members["id"], members["epoch"], members["phase"], members["generation"], members["behind"])
