"""One group: Kafka's ``GroupMetadata``.  Pure.

Numbers that are needed for each request are counters: how many members have joined, and how many support a protocol.
The methods with the note *visits every member* need a time that grows with the group; a rebalance calls each of them a
constant number of times.

``stored`` has the state that is in the log, and only ``replay`` writes it.  The rest is lost with the broker.  That is
acceptable: a member without an answer repeats its request.
"""

from __future__ import annotations

from collections import Counter

from bridge.coordinator.consumer_subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from bridge.coordinator.continuations import DeliverAssignment
from bridge.coordinator.delayed_join import AnyDelayedJoin
from bridge.coordinator.group_state import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    VALID_PREVIOUS_STATES,
    GroupState,
)
from bridge.coordinator.member_metadata import DelayedRequest, MemberMetadata, Protocols
from bridge.coordinator.pending_offset_commits import PendingOffsetCommits
from bridge.coordinator.stored_state import StoredGroup, StoredGroupState
from zkconsumer.errors import InternalError

__all__ = ["COMPLETING_REBALANCE", "DEAD", "EMPTY", "PREPARING_REBALANCE", "STABLE", "GroupMetadata", "GroupState"]


class GroupMetadata:
    """One group; ``members`` are in the order of their joins, and the first of them leads when there is no other
    leader."""

    def __init__(self, group_id: str, now_ms: int, stored: StoredGroupState | None = None) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.previous_state = EMPTY
        self.current_state_timestamp: int | None = now_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, MemberMetadata] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: set[str] = set()
        self.pending_sync_members: dict[str, None] = {}
        self.num_members_awaiting_join = 0
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None
        self.delayed_join: AnyDelayedJoin | None = None
        self.stored = stored or StoredGroupState()
        self.pending_offset_commits = PendingOffsetCommits()
        self.pending_assignment: DeliverAssignment | None = None
        self._supported_protocols: Counter[str] = Counter()

    @classmethod
    def load_group(cls, group_id: str, stored: StoredGroupState, now_ms: int) -> GroupMetadata:
        """The group of the log: stable if it has members, empty if it has none, or only offsets."""
        group = cls(group_id, now_ms, stored)
        value = stored.group
        if value is None:
            return group
        group.generation_id = value.generation_id
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol_name
        group.current_state_timestamp = value.current_state_timestamp
        for known in value.members:
            member = MemberMetadata(
                member_id=known.member_id,
                group_instance_id=known.group_instance_id,
                client_id=known.client_id,
                client_host=known.client_host,
                rebalance_timeout_ms=known.rebalance_timeout,
                session_timeout_ms=known.session_timeout,
                protocol_type=value.protocol_type,
                supported_protocols=((value.protocol_name or "", known.subscription),),
                assignment=known.assignment,
            )
            group.add(member)
        group.leader_id = value.leader
        group.state = STABLE if value.members else EMPTY
        group.subscribed_topics = group.compute_subscribed_topics()
        return group

    # --- states ------------------------------------------------------------------------------------------------------

    def is_(self, *states: GroupState) -> bool:
        """Whether it is in one of these."""
        return self.state in states

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state as ``group_state`` allows; raises ``InternalError`` for any other change."""
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise InternalError(f"group {self.group_id} cannot change from {self.state.value} to {state.value}")
        self.previous_state, self.state = self.state, state
        self.current_state_timestamp = now_ms

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance can begin; during a rebalance it cannot."""
        return self.state in VALID_PREVIOUS_STATES[PREPARING_REBALANCE]

    # --- members -----------------------------------------------------------------------------------------------------

    def has(self, member_id: str) -> bool:
        """Whether this is a member."""
        return member_id in self.members

    def get(self, member_id: str) -> MemberMetadata:
        """An existing member."""
        return self.members[member_id]

    @property
    def size(self) -> int:
        """The number of members, without pending ones."""
        return len(self.members)

    def is_leader(self, member_id: str) -> bool:
        """Whether this member is the leader."""
        return self.leader_id == member_id

    def add(self, member: MemberMetadata, parked: DelayedRequest | None = None) -> None:
        """Add a new member, that of a pending id, or one of the log; the first defines the group's protocol type."""
        if member.group_instance_id is not None:
            if member.group_instance_id in self.static_members:
                raise InternalError(f"static member {member.group_instance_id} is in group {self.group_id} already")
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.set_awaiting_join(member, parked)
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, or a pending one; no effect for an unknown id."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.awaiting_join is not None:
                self.num_members_awaiting_join -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync_members.pop(member_id, None)

    def replace_static_member(self, group_instance_id: str, old_member_id: str, new_member_id: str) -> MemberMetadata:
        """The member under its new id, as the last in order; the caller has answered its parked requests."""
        member = self.members.get(old_member_id)
        if member is None:
            raise InternalError(f"group {self.group_id} has no member {old_member_id} to replace")
        assert member.awaiting_join is None, "the parked requests of the old process are answered first"
        assert member.awaiting_sync is None, "the parked requests of the old process are answered first"
        del self.members[old_member_id]
        member.member_id = new_member_id
        self.members[new_member_id] = member
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        self.static_members[group_instance_id] = new_member_id
        if old_member_id in self.pending_sync_members:
            del self.pending_sync_members[old_member_id]
            self.pending_sync_members[new_member_id] = None
        return member

    def update_member(
        self, member: MemberMetadata, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """Store the protocols and time-outs of a member's latest JoinGroup."""
        self._count_protocols(member, -1)
        member.supported_protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def set_awaiting_join(self, member: MemberMetadata, parked: DelayedRequest | None) -> DelayedRequest | None:
        """Set the member's parked JoinGroup (None: it has none any more); return the one before."""
        before, member.awaiting_join = member.awaiting_join, parked
        self.num_members_awaiting_join += (parked is not None) - (before is not None)
        return before

    def current_static_member_id(self, group_instance_id: str) -> str | None:
        """The current member id of a static member."""
        return self.static_members.get(group_instance_id)

    def maybe_elect_new_joined_leader(self) -> bool:
        """Whether a joined member leads: the leader, or else the first that joined (visits members until then)."""
        if self.leader_id is None:
            return False
        if self.get(self.leader_id).awaiting_join is None:
            joined = next((m.member_id for m in self.members.values() if m.awaiting_join is not None), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    # --- joining -----------------------------------------------------------------------------------------------------

    @property
    def has_all_members_joined(self) -> bool:
        """Whether all members have joined, including pending ones."""
        return len(self.members) == self.num_members_awaiting_join and not self.pending_members

    def not_yet_rejoined_members(self) -> list[MemberMetadata]:
        """Members without a parked JoinGroup; visits every member, unless there are none such."""
        if len(self.members) == self.num_members_awaiting_join:
            return []
        return [member for member in self.members.values() if member.awaiting_join is None]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The maximum over all members; visits every member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def init_next_generation(self, now_ms: int) -> None:
        """Start the next generation: select the protocol; the members then wait for the leader's assignment.

        A group without members becomes EMPTY.
        """
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY, now_ms)
        self.pending_sync_members.clear()
        self.new_member_added = False

    # --- protocols ---------------------------------------------------------------------------------------------------

    @property
    def is_consumer_group(self) -> bool:
        """Whether its members are consumers, and not Connect workers or others."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def supports_protocols(self, protocol_type: str, protocols: Protocols, *, may_be_empty_type: bool = False) -> bool:
        """Whether a member with these can join: all members support one of them.

        ``may_be_empty_type``: an empty group accepts any protocol type (before 1.0).
        """
        if self.is_(EMPTY):
            return bool(protocols) and (may_be_empty_type or protocol_type != "")
        counts = self._supported_protocols
        return self.protocol_type == protocol_type and any(counts[name] == len(self.members) for name, _ in protocols)

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that all members support; visits every member.

        With equal votes that of the member that joined first.  Kafka does not define that.
        """
        if not self.members:
            raise InternalError(f"group {self.group_id} has no members that could choose a protocol")
        candidates = {name for name, count in self._supported_protocols.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether a member reads it; true where that is not known."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """The topics that consumers read, None where that cannot be known; visits every member."""
        if not self.is_consumer_group:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        return subscribed_topics(member.metadata(self.protocol_name) for member in self.members.values())

    def _count_protocols(self, member: MemberMetadata, by: int) -> None:
        # A name that a member lists twice counts once: otherwise no other member could ever join.
        for name in {name for name, _ in member.supported_protocols}:
            self._supported_protocols[name] += by
            if not self._supported_protocols[name]:
                del self._supported_protocols[name]

    # --- the written record ------------------------------------------------------------------------------------------

    def apply_assignments(self, written: StoredGroup) -> None:
        """Set the members' assignments from the record that was written; visits every member."""
        for known in written.members:
            if known.member_id in self.members:
                self.members[known.member_id].assignment = known.assignment

    def clear_assignments(self) -> None:
        """Remove all assignments; visits every member."""
        for member in self.members.values():
            member.assignment = b""
