"""What must hold of group coordinators whatever happens; the numbers are those of the specification.

I1   a partition of a generation belongs to one member            told by who was answered a SyncGroup
I2   the generation in the log never goes back
I3   once faults stop, every living member is stable, in one generation
I4   an offset that was acknowledged never goes back
I5   then every partition is read by one member
I6   whoever joins or syncs is answered, or its connection ends
I7   what a coordinator keeps is what its log says
I8   nobody is waited for who is not there, and everybody who is there is
I9   a static member id that was fenced once is never answered well again
I10  nothing is answered twice
I11  groups go only the ways that there are                       (``transition_to`` raises)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bridge.coordinator.events import CoordinatorRecord
from bridge.coordinator.group_coordinator import GroupCoordinator
from bridge.coordinator.group_metadata import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE, GroupMetadata
from bridge.coordinator.records import (
    StoredGroupKey,
    StoredOffsetKey,
    UnreadableRecordError,
    read_group_value,
    read_key,
    read_offset_value,
)
from bridge.coordinator.stored_state import StoredPartition
from zkconsumer.types import TopicPartition


class Violation(AssertionError):
    """Something that must hold does not."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)


@dataclass
class Checker:
    """What was seen so far."""

    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    last_generation: int = 0
    acknowledged: dict[TopicPartition, int] = field(default_factory=dict)
    fenced: set[str] = field(default_factory=set)
    answered: set[tuple[int, int]] = field(default_factory=set)

    # --- what members see --------------------------------------------------------------------------------------------

    def answer(self, broker: int, token: int) -> None:
        """I10."""
        require((broker, token) not in self.answered, f"I10: request {token} was answered twice")
        self.answered.add((broker, token))

    def told(self, member_id: str, error: int) -> None:
        """I9: of requests that name a static member by its id."""
        if error == 82:
            self.fenced.add(member_id)
        require(error != 0 or member_id not in self.fenced, f"I9: {member_id} was fenced, and is answered well")

    def assigned(self, who: str, generation: int, partitions: Iterable[int]) -> None:
        """I1; ``who``: a member id, or the instance of a static member."""
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), who)
            require(owner == who, f"I1: partition {partition} of generation {generation} is {owner}'s and {who}'s")

    def committed(self, offsets: dict[TopicPartition, int]) -> None:
        """An OffsetCommit was answered well."""
        for at, offset in offsets.items():
            self.acknowledged[at] = max(offset, self.acknowledged.get(at, -1))

    # --- what the log sees -------------------------------------------------------------------------------------------

    def written(self, record: CoordinatorRecord) -> None:
        """I2, I4: a record was acknowledged."""
        try:
            key = read_key(record.key)
        except UnreadableRecordError as error:
            raise Violation("the coordinator wrote what nobody can read") from error
        if record.value is None:
            return
        if isinstance(key, StoredGroupKey):
            generation = read_group_value(record.value).generation_id
            require(generation >= self.last_generation, f"I2: generation {generation} after {self.last_generation}")
            self.last_generation = generation
        elif isinstance(key, StoredOffsetKey):
            offset = read_offset_value(record.value).offset
            known = self.acknowledged.get(key.partition, -1)
            require(offset >= known, f"I4: {key.partition} goes from {known} back to {offset}")

    # --- what a coordinator keeps ------------------------------------------------------------------------------------

    def coordinator(self, at: GroupCoordinator, log: list[tuple[int, CoordinatorRecord]], partition: int) -> None:
        """I4, I7, I8, for a coordinator that leads, and whose appends ``log`` holds as far as they were settled."""
        said = StoredPartition()
        for offset, record in log:
            said.replay(offset, record)
        said.drop_empty()
        kept = {group: state for group, state in at.manager.stored[partition].groups.items() if not state.is_empty}
        require(kept == said.groups, "I7: the coordinator keeps something else than its log says")
        for group in at.manager.current_groups():
            if at.partition_for(group.group_id) != partition:
                continue
            require(group.stored is at.manager.stored[partition].groups.get(group.group_id), "I7: a group of its own")
            self._stable_as_written(group)
            _timers(at, group)
        for at_partition, offset in self.acknowledged.items():
            found = [state.offsets.get(at_partition) for state in kept.values()]
            held = max((commit.value.offset for commit in found if commit is not None), default=-1)
            require(held >= offset, f"I4: {at_partition} was acknowledged at {offset}, and is {held}")

    def _stable_as_written(self, group: GroupMetadata) -> None:
        written = group.stored.group
        is_busy = any(member.awaiting_join is not None for member in group.members.values())
        if not group.is_(STABLE) or is_busy:
            return
        require(written is not None, "I7: a stable group was not written")
        assert written is not None
        require(written.generation_id == group.generation_id, "I7: a stable group was written in another generation")
        parts = {member.member_id: member.assignment for member in written.members}
        live = {member.member_id: member.assignment for member in group.members.values()}
        require(parts == live, "I7: members have something else than was written")


def _timers(at: GroupCoordinator, group: GroupMetadata) -> None:
    """I8."""
    if group.is_(DEAD):
        return
    mine = [key for key in at.purgatory.keys() if len(key) > 1 and key[1] == group.group_id]  # noqa: SIM118
    watched = {key[2] for key in mine if key[0] == "heartbeat"}
    known = {*group.members, *group.pending_members}
    require(watched <= known, f"I8: {watched - known} are waited for, and are no members")
    silent = {member.member_id for member in group.members.values() if not member.has_satisfied_heartbeat}
    silent |= group.pending_members
    require(silent <= watched, f"I8: nobody waits for {silent - watched}")
    require((("join", group.group_id) in mine) == group.is_(PREPARING_REBALANCE), "I8: the wait for joins")
    may_sync = group.is_(COMPLETING_REBALANCE, STABLE) and bool(group.pending_sync_members)
    require((("sync", group.group_id) in mine) == may_sync, "I8: the wait for syncs")
    require(set(group.pending_sync_members) <= set(group.members), "I8: a sync of nobody is waited for")
    waiting = sum(member.awaiting_join is not None for member in group.members.values())
    require(waiting == group.num_members_awaiting_join, "I8: the count of those that have joined is wrong")
