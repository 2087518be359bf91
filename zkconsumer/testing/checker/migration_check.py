"""The guarantees M1 to M4 and M6 of a migration, checked by the reports of both stores.  Pure.

    M1  the stores accept commits of at most one member   commit_by_non_owner, commit_while_fenced
    M2  at most one member receives records               delivered_while_fenced; ``ownership_check`` has two_owners
    M3  the next owner starts at the last commit          started_at_wrong_offset
    M4  exactly one store has the authority               commit_in_wrong_store, offset_overwritten, stale_epoch,
                                                          authority_moved_unfenced, authority_moved_stale
    M6  a rollback loses nothing                          commit_lost_on_return, fence_not_removed

Only lines of the stores themselves are checked here (``committed`` with ``store``, ``control``, ``fenced``): they are
neither early nor late, so each of these findings is certain.  ``expected_offset`` of a partition is where its next
owner must start: the last commit of a member that the store with the authority accepted, or the plan's decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from zkconsumer.testing.checker import events as h
from zkconsumer.testing.checker.checker_state import CheckerState
from zkconsumer.testing.checker.tracked_partitions import TrackedMember
from zkconsumer.testing.checker.verdict import ALLOWANCE_REASONS
from zkconsumer.types import TopicPartition
from zkconsumer.zk.znode_formats import ENDED_PHASES

STORES: tuple[h.HistoryStore, h.HistoryStore] = ("zookeeper", "kafka")
STORE_NAMES = {"zookeeper": "ZooKeeper", "kafka": "Kafka"}


class ObservedOffset(NamedTuple):
    """An offset (the next one to read), and the position of its line; 0: no line has it."""

    offset: int
    position: int


class LastOwner(NamedTuple):
    """The last owner of a partition, and the line since which; ``has_released``: the line is that of its release."""

    member: str
    position: int
    has_released: bool = False


@dataclass(slots=True)
class PartitionStoreState:
    """The offsets of one partition in both stores, and its fences."""

    fences: dict[h.HistoryStore, int] = field(default_factory=dict)
    stored: dict[h.HistoryStore, ObservedOffset] = field(default_factory=dict)
    expected_offset: ObservedOffset | None = None
    mirrored: ObservedOffset | None = None
    """The last commit of a member, if the store without the authority has it."""
    late: ObservedOffset | None = None
    """A commit of a member to the former store while a move was not confirmed.  That is the wrong store; but the
    tool cannot distinguish it from a commit before the move, and may copy it."""
    target: ObservedOffset | None = None
    last_owner: LastOwner | None = None


class MigrationCheck:
    """Checks what the stores accepted, line by line."""

    def __init__(self, bench: CheckerState) -> None:
        self.authority_changes = 0
        self.control: h.ControlWritten | None = None
        self.last_control = 0
        """The position of its line."""
        self._former_authority: h.HistoryStore | None = None
        """The store that had the authority, while a move is not confirmed.  No fence in ZooKeeper may be removed
        then.
        """
        self._open_at_move: set[TopicPartition] = set()
        """Partitions of such a move that had no fence in one of the stores when it was written."""
        self._bench = bench
        self._standings: dict[TopicPartition, PartitionStoreState] = {}
        self._group_fences: dict[h.HistoryStore, int] = {}
        observed = [event for event in bench.events if isinstance(event, h.OffsetCommitted) and event.store is None]
        self._observed = {TopicPartition(event.topic, event.partition) for event in observed}
        """Partitions whose commits were observed late: their expected offset at a line is not known."""
        for event in bench.events:
            if isinstance(event, h.InitialOffset) and (event.topic, event.partition) not in self._observed:
                standing = self._store_state(event)
                standing.expected_offset = standing.stored["zookeeper"] = ObservedOffset(event.offset, 0)

    @property
    def authority(self) -> h.HistoryStore:
        """The store with the authority at this line."""
        return "zookeeper" if self.control is None else self.control.authority

    @property
    def _is_dual(self) -> bool:
        """Whether the migration is ``dual``: its members write both stores."""
        return self.control is not None and self.control.strategy == "dual"

    def _store_state(self, event: h.PartitionEvent | h.MemberPartitionEvent) -> PartitionStoreState:
        return self._standings.setdefault(TopicPartition(event.topic, event.partition), PartitionStoreState())

    def _fence(self, standing: PartitionStoreState, store: h.HistoryStore) -> int | None:
        """The position of the line with the fence that blocks members from a partition there."""
        return standing.fences.get(store, self._group_fences.get(store))

    # --- fences and targets -------------------------------------------------------------------------------------

    def fenced(self, event: h.Fenced) -> None:
        self._fences_of(event)[event.store] = self._bench.position

    def unfenced(self, event: h.Unfenced) -> None:
        self._fences_of(event).pop(event.store, None)
        if self._former_authority is not None and event.store == "zookeeper":
            whose = None if event.topic is None else TopicPartition(event.topic, event.partition or 0)
            text = "a fence in ZooKeeper was removed before the move of the authority was confirmed"
            self._add_finding("authority_moved_unfenced", text, event, positions=(self.last_control,), tp=whose)

    def _fences_of(self, event: h.Fenced | h.Unfenced) -> dict[h.HistoryStore, int]:
        if event.topic is None and event.partition is None:
            return self._group_fences
        if event.topic is None or event.partition is None:
            raise h.HistoryError(
                self._bench.line_number(), "a fence is of a topic and a partition, or of the whole group"
            )
        return self._standings.setdefault(TopicPartition(event.topic, event.partition), PartitionStoreState()).fences

    def _open(self, standing: PartitionStoreState) -> list[str]:
        """The stores without a fence for a partition."""
        return [STORE_NAMES[store] for store in STORES if self._fence(standing, store) is None]

    def targeted(self, event: h.PlannedKafkaOffset) -> None:
        self._store_state(event).target = ObservedOffset(event.offset, self._bench.position)

    # --- commits ------------------------------------------------------------------------------------------------

    def committed(self, event: h.OffsetCommitted) -> bool:
        """Whether it shows the progress of the group: a copy, or a mirror, does not."""
        if event.store is None:
            return True
        standing, store = self._store_state(event), event.store
        plus = self._bench.policy.zookeeper_plus if store == "zookeeper" else 0
        now = ObservedOffset(event.offset + plus, self._bench.position)
        by = None if event.by is None else self._bench.member(event.by)
        standing.stored[store] = now
        standing.mirrored = now if store != self.authority and (by is None or by.kind != "migrator") else None
        if by is not None and by.kind == "migrator":
            if standing.late is not None and store == self.authority and now.offset == standing.late.offset:
                standing.expected_offset = now
            if store == self.authority and (
                standing.expected_offset is None or now.offset != standing.expected_offset.offset
            ):
                last = "nothing" if standing.expected_offset is None else str(standing.expected_offset.offset)
                text = (
                    f"{by.name} wrote {now.offset} to {STORE_NAMES[store]}, which has the authority; expected: {last}"
                )
                positions = (self.last_control, _line_of(standing.expected_offset))
                self._add_finding("offset_overwritten", text, event, positions=positions, member=by)
            return False
        self._check_writer(event, standing, by)
        if store != self.authority:
            if store == self._former_authority:
                standing.late = now
            self._check_mirror(event, by)
            return False
        standing.expected_offset = now
        return True

    def _check_writer(self, event: h.OffsetCommitted, standing: PartitionStoreState, by: TrackedMember | None) -> None:
        assert event.store is not None
        name = by.name if by is not None else "an unknown client"
        fence, is_scala = self._fence(standing, event.store), by is not None and by.kind == "scala"
        if self._is_dual and event.store != self.authority:
            fence = None  # Its members mirror their commits there; the fence is for other clients.
        if fence is not None:
            text = f"{STORE_NAMES[event.store]} accepted {event.offset} of {name} although it was fenced there"
            is_allowed = is_scala and event.store == "zookeeper" and not self._bench.policy.acl_fence
            code = "scala_zombie" if is_allowed else "commit_while_fenced"
            self._add_finding(code, text, event, positions=(fence,), member=by)
        holder = standing.last_owner
        if holder is None or (name == holder.member) != holder.has_released:
            return  # Without an owner so far, or its own; after a release of another member any client may commit.
        whose = f"{holder.member} had released it" if holder.has_released else f"{holder.member} owned it"
        text = f"{STORE_NAMES[event.store]} accepted {event.offset} of {name} although {whose}"
        code = "scala_zombie" if is_scala else "commit_by_non_owner"
        self._add_finding(code, text, event, positions=(holder.position,), member=by)

    def _check_mirror(self, event: h.OffsetCommitted, by: TrackedMember | None) -> None:
        if self.control is None or (self.control.phase in ENDED_PHASES and self.authority == "zookeeper"):
            return  # No migration is active: commits to the other store are not checked.
        if self._is_dual:
            return  # Its members write both, in an order that changes with the phase.
        assert event.store is not None
        name = by.name if by is not None else "an unknown client"
        text = (
            f"{STORE_NAMES[event.store]} accepted {event.offset} of {name}, and {STORE_NAMES[self.authority]} has the "
            "authority"
        )
        self._add_finding("commit_in_wrong_store", text, event, positions=(self.last_control,), member=by)

    # --- owners -------------------------------------------------------------------------------------------------

    def claimed(self, event: h.MemberAcquiredPartition) -> None:
        standing = self._store_state(event)
        standing.last_owner = LastOwner(event.member, self._bench.position)
        expected = standing.expected_offset
        if event.offset is not None and expected is not None and event.offset != expected.offset:
            text = f"{event.member} starts at {event.offset}, and the expected offset is {expected.offset}"
            by = self._bench.member(event.member)
            self._add_finding("started_at_wrong_offset", text, event, positions=(expected.position,), member=by)

    def released(self, event: h.MemberReleasedPartition) -> None:
        standing = self._store_state(event)
        if standing.last_owner is not None and standing.last_owner.member == event.member:
            standing.last_owner = LastOwner(event.member, self._bench.position, has_released=True)

    def reset(self, event: h.OffsetJumpAllowed) -> None:
        """An owner may start there."""
        standing = self._store_state(event)
        if standing.expected_offset is not None:
            standing.expected_offset = ObservedOffset(event.offset, self._bench.position)

    def delivered(self, event: h.RecordDelivered | h.RecordRangeDelivered) -> None:
        standing = self._standings.get(TopicPartition(event.topic, event.partition))
        fence = None if standing is None else self._fence(standing, self.authority)
        if fence is not None:
            text = f"{event.member} received a record although it was fenced in {STORE_NAMES[self.authority]}"
            by = self._bench.member(event.member)
            self._add_finding("delivered_while_fenced", text, event, positions=(fence,), member=by)

    # --- the control znode --------------------------------------------------------------------------------------

    def control_written(self, event: h.ControlWritten) -> None:
        before, lines = self.control, (self.last_control,)
        authority = self.authority
        if before is not None and before != event:
            if before.migration != event.migration and before.phase not in ENDED_PHASES:
                text = f"migration {event.migration} began over {before.migration}, which is in phase {before.phase}"
                self._add_finding("stale_epoch", text, event, positions=lines)
            elif event.epoch < before.epoch or (event.epoch == before.epoch and event.authority != authority):
                text = f"epoch {event.epoch} in phase {event.phase} follows {before.epoch} in phase {before.phase}"
                self._add_finding("stale_epoch", text, event, positions=lines)
        if event.authority != authority:
            self.authority_changes += 1
            self._former_authority = authority
            self._expect_offsets(event, authority)
        if event.is_confirmed and self._former_authority is not None:
            self._former_authority = None
            self._check_moved(event)
        self.control, self.last_control = event, self._bench.position
        if event.phase == "undone":
            self._check_undone(event)

    def _expect_offsets(self, event: h.ControlWritten, source: h.HistoryStore) -> None:
        """The authority moves away from ``source``: set the offset that the other store must have of each partition.

        That is the last commit that ``source`` accepted, or its stored offset if no member committed.  On the way to
        Kafka a decision of the plan (``target``) that is newer replaces it.  With ``dual`` each member commits to both
        stores, so a larger offset that only the other store has so far counts.  A partition whose commits were observed
        late is left out.
        """
        self._open_at_move = {tp for tp, standing in self._standings.items() if self._open(standing)}
        is_forward = event.authority == "kafka"
        for tp, standing in self._standings.items():
            if tp in self._observed:
                continue
            expected, target = standing.expected_offset, standing.target
            if is_forward and target is not None and (expected is None or expected.position < target.position):
                expected = target
            if expected is None:
                expected = standing.stored.get(source)
            if event.strategy == "dual":
                expected = max((seen for seen in (expected, standing.mirrored) if seen is not None), default=None)
            standing.expected_offset = expected

    def _check_moved(self, event: h.ControlWritten) -> None:
        """When the authority moves from A to B, B must equal A for every partition and every partition is fenced."""
        for tp, standing in self._standings.items():
            open_ = self._open(standing) if tp in self._open_at_move and event.strategy == "copy" else []
            if open_:
                text = f"the authority moved to {STORE_NAMES[event.authority]} without a fence in {' and '.join(open_)}"
                self._add_finding("authority_moved_unfenced", text, event, positions=(), tp=tp)
            standing.late = None
            code = "authority_moved_stale" if event.authority == "kafka" else "commit_lost_on_return"
            self._check_has(event, tp, standing, code)

    def _check_undone(self, event: h.ControlWritten) -> None:
        for tp, standing in self._standings.items():
            self._check_has(event, tp, standing, "commit_lost_on_return")
            for store in STORES:
                fence = self._fence(standing, store)
                if fence is not None:
                    text = f"the migration was undone, and it is still fenced in {STORE_NAMES[store]}"
                    self._add_finding("fence_not_removed", text, event, positions=(fence,), tp=tp)

    def _check_has(self, event: h.ControlWritten, tp: TopicPartition, standing: PartitionStoreState, code: str) -> None:
        expected, has = standing.expected_offset, standing.stored.get(event.authority)
        if expected is None or tp in self._observed or (has is not None and has.offset == expected.offset):
            return
        what = "nothing" if has is None else str(has.offset)
        text = (
            f"{STORE_NAMES[event.authority]} has the authority and {what}, and the expected offset is {expected.offset}"
        )
        self._add_finding(code, text, event, positions=(expected.position, _line_of(has)), tp=tp)

    # --- findings -----------------------------------------------------------------------------------------------

    def _add_finding(
        self,
        code: str,
        text: str,
        event: h.HistoryEvent,
        *,
        positions: tuple[int, ...],
        member: TrackedMember | None = None,
        tp: TopicPartition | None = None,
    ) -> None:
        """``positions``: of earlier lines that show it."""
        bench = self._bench
        spans: tuple[tuple[int, int], ...] = ()
        key: object = bench.position
        match event:
            case h.RecordDelivered():
                key, spans = positions, ((event.offset, event.offset),)
            case h.RecordRangeDelivered():
                key, spans = positions, ((event.first, event.last),)
        members = (member.name,) if member is not None else ()
        book = bench.allowances if code in ALLOWANCE_REASONS else bench.findings
        book.add(
            (key, members),
            code,
            text,
            t=event.t,
            lines=self._lines(positions),
            partition=tp or _partition(event),
            members=members,
            spans=spans,
        )

    def _lines(self, positions: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self._bench.line_number(position) for position in (*positions, self._bench.position) if position)


def _partition(event: h.HistoryEvent) -> TopicPartition | None:
    if isinstance(event, h.PartitionEvent | h.MemberPartitionEvent):
        return TopicPartition(event.topic, event.partition)
    return None


def _line_of(seen: ObservedOffset | None) -> int:
    return 0 if seen is None else seen.position
