"""The rules of the placeholder member: who is in the group, the meaning of error codes, its subscription.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkconsumer.wire.consumer_protocol import Subscription, encode_subscription

if TYPE_CHECKING:
    from collections.abc import Collection

    from zkconsumer.kafka.coordinator_groups import CoordinatorGroup, CoordinatorGroupMember

PLACEHOLDER_SESSION_TIMEOUTS_MS = (1_800_000, 300_000, 30_000)
"""What brokers allow at most as they are shipped: from 2.3 on, from 0.10.1 on, in 0.9."""

MEMBERSHIP_LOST_CODES = frozenset({22, 25, 27, 69, 82, 113})
"""Codes that tell a member that it is none, or not in this generation: 69 and 113 from OffsetCommit v9 on (4.0)."""

SUBSCRIPTION_BYTES_MAX = 64 * 1024
"""Of the topics' names that a seat says it reads: the coordinator writes them into one record."""

NAMES_SHOWN_MAX = 5

UPGRADE_BLOCKING_USER_DATA = b"zkconsumer: on the move"
"""Beside the share of a seat, and of the members of a group that moves with them in it.

A client of the new protocol (KIP-848) that comes makes a group of its kind out of ours and is let in, whatever protocol
name we have: but not where a member's share has bytes of its assignor's, since these would be lost (KAFKA-18134, 4.0;
``ConsumerGroup.fromClassicGroup``).  It is told error 69 then.  Brokers of any release pass them on unread, and tools
pass them over.
"""

SESSION_MARGIN_MS = 10_000
"""By how much the session of a seat must be longer than that of the run with ZooKeeper: a run that is paused has lost
its ``run``, and the next run has had time to come, before the coordinator lets anybody into the group."""

SHORT_ZOOKEEPER_SESSION_MS = 10_000
"""What a run asks ZooKeeper for where the brokers allow a seat no long session: 0.9 allows 30 s."""

INCONSISTENT_GROUP_PROTOCOL = 23
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
UNSUPPORTED_VERSION = 35
GROUP_MAX_SIZE_REACHED = 81


@dataclass(frozen=True, slots=True)
class GroupOccupants:
    """The members of the coordinator group: placeholder members of one migration, and texts for all others."""

    placeholders: tuple[CoordinatorGroupMember, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def names(self) -> str:
        """The other members; the first of them by name."""
        shown = ", ".join(self.others[:NAMES_SHOWN_MAX])
        more = len(self.others) - NAMES_SHOWN_MAX
        return f"{shown} and {more} more" if more > 0 else shown


def occupants_of(group: CoordinatorGroup, name: str) -> GroupOccupants:
    """Who is there; ``name`` is a seat's client id and instance id, which coordinators tell in every state."""
    ours = tuple(member for member in group.members if name in (member.client_id, member.instance_id))
    others = tuple(
        f"{member.instance_id or member.member_id} ({member.client_id}, {member.host})"
        for member in group.members
        if member not in ours
    )
    if not group.members and group.has_members:
        return GroupOccupants((), (f"a member that the coordinator does not name (group state {group.state})",))
    return GroupOccupants(ours, others)


def join_error_remedy(code: int, group: str) -> str:
    """What to do about a code that no retry resolves; empty for the others."""
    match code:
        case 24:
            return f"the brokers reject {group!r} as the name of a coordinator group, so it cannot be migrated"
        case 26:
            return (
                f"the brokers allow no session of {PLACEHOLDER_SESSION_TIMEOUTS_MS[-1] // 1000} s: raise their "
                f"group.max.session.timeout.ms to {PLACEHOLDER_SESSION_TIMEOUTS_MS[-1]} at least"
            )
        case 30:
            return f"the brokers' ACLs do not let this user join the group: allow it READ and DESCRIBE on Group:{group}"
        case 35:
            return "the brokers are too old for coordinator groups: upgrade them to 0.9 or later"
        case 81:
            return f"group.max.size of the brokers does not allow a member in group {group}: increase it"
    return ""


def placeholder_subscription(topics: Collection[str]) -> bytes:
    """A seat's metadata: it reads the topics of the group, so brokers keep their offsets, and let nobody delete them.

    Version 0, which every broker and tool reads; names beyond ``SUBSCRIPTION_BYTES_MAX`` are left out.
    """
    said: list[str] = []
    size = 0
    for topic in sorted(topics):
        size += len(topic) + 2
        if size > SUBSCRIPTION_BYTES_MAX:
            break
        said.append(topic)
    return encode_subscription(Subscription(tuple(said)), version=0)
