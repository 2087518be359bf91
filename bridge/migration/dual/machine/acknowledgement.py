"""What a member says of where it stands: an ephemeral child of the control znode, named by its consumer id.  Pure.

    /zkconsumer/groups/G/members/<consumer id>      {"id":…,"epoch":…,"phase":…,"generation":…,"behind":…}

It is written once what the phase asks of this member is so, and again when its numbers change.  It goes with the
member's session.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from bridge.migration.control.control_layout import MEMBERS_CHILD
from zkconsumer.errors import MalformedZnode
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import ControlRecord

BYTES_MAX = 1024
INT64_MAX = 2**63 - 1
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A member acts by this phase of this epoch.

    ``generation``: in which one of the coordinator's group it is, -1: in none.  ``behind``: how many of its partitions
    are not yet as the phase wants them (in Kafka what is in ZooKeeper; on the way back: an owner node, and in ZooKeeper
    what Kafka had).
    """

    migration_id: str
    epoch: int
    phase: str
    generation: int
    behind: int

    def matches_control(self, control: ControlRecord) -> bool:
        """Whether it answers this state of the control znode, and no earlier one."""
        return (self.migration_id, self.epoch, self.phase) == (control.migration_id, control.epoch, control.phase)


def acknowledgement_path(group: str, consumer: str) -> str:
    """Where a member's acknowledgement stands.  Raises ``InvalidNameError`` for a name that is none."""
    paths.check_consumer_id(consumer)
    return f"{paths.control(group)}/{MEMBERS_CHILD}/{consumer}"


def format_acknowledgement(acknowledgement: Acknowledgement) -> bytes:
    """The bytes for ZooKeeper: JSON in one line."""
    members = {
        "id": acknowledgement.migration_id,
        "epoch": acknowledgement.epoch,
        "phase": acknowledgement.phase,
        "generation": acknowledgement.generation,
        "behind": acknowledgement.behind,
    }
    return json.dumps(members, separators=(",", ":")).encode("ascii")


def parse_acknowledgement(data: bytes) -> Acknowledgement:
    """Read it strictly: what cannot be read acknowledges nothing.  Raises ``MalformedZnode``.

    Keys that are not known are let pass, for a later release's sake.
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
