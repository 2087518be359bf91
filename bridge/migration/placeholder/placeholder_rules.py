"""The rules of the placeholder member: who is in the group, the meaning of error codes, its subscription.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkconsumer.wire.consumer_protocol import Subscription, encode_subscription

if TYPE_CHECKING:
    from collections.abc import Collection

    from zkconsumer.kafka.coordinator_groups import CoordinatorGroup, CoordinatorGroupMember

PLACEHOLDER_SESSION_TIMEOUTS_MS = (1_800_000, 300_000, 30_000)
"""The longest session timeouts that brokers allow by default: from 2.3 on, from 0.10.1 on, in 0.9."""

MEMBERSHIP_LOST_CODES = frozenset({22, 25, 27, 69, 82, 113})
"""Error codes for a client that is no member, or not of this generation: 69 and 113 from OffsetCommit v9 on (4.0)."""

SUBSCRIPTION_BYTES_MAX = 64 * 1024
"""The limit for the topic names in a placeholder's subscription: the coordinator writes them into one record."""

NAMES_SHOWN_MAX = 5

UPGRADE_BLOCKING_USER_DATA = b"zkconsumer: on the move"
"""The user data in the assignment of a placeholder, and of the members of a migrating group.

A client of the consumer protocol (KIP-848) that joins converts a classic group and is admitted, whatever protocol the
placeholder has: except where a member's assignment contains user data of its assignor, since these would be lost
(KAFKA-18134, 4.0; ``ConsumerGroup.fromClassicGroup``).  Then it gets error 69.  Brokers of any release forward these
bytes unread, and tools ignore them.
"""

SESSION_MARGIN_MS = 10_000
"""The session of a placeholder must be longer than that of the run with ZooKeeper by this: then a paused run has lost
its lock, and the next run has had time to start, before the coordinator admits another client."""

SHORT_ZOOKEEPER_SESSION_MS = 10_000
"""The session timeout for ZooKeeper where the brokers allow a placeholder no long session: 0.9 allows 30 s."""

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
    """The members of the group; ``name``: a placeholder's client id and instance id, which coordinators return in
    every state."""
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
    """A placeholder's metadata: it reads the topics of the group, so brokers keep their offsets, and let no client
    delete them.

    Version 0, which every broker and tool reads; names beyond ``SUBSCRIPTION_BYTES_MAX`` are omitted.
    """
    said: list[str] = []
    size = 0
    for topic in sorted(topics):
        size += len(topic) + 2
        if size > SUBSCRIPTION_BYTES_MAX:
            break
        said.append(topic)
    return encode_subscription(Subscription(tuple(said)), version=0)
