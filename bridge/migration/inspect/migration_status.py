"""Reads the status of a migration; changes nothing.

The journal entries are intentions; the control znode and the two stores decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_layout import ABORT_CHILD, PLAN_PIECE_PREFIX
from bridge.migration.control.control_pieces import has_pieces
from bridge.migration.control.control_znode import ControlZnode, MigrationLock, VersionedControl
from bridge.migration.control.journal import JournalContents, JournalEntry, read_journal
from bridge.migration.control.phases import ENDED, FORWARD, Phase
from bridge.migration.dual.participants import Participants, pending_conditions, read_participants_by_id
from bridge.migration.fences.fence_record import parse_fence_record
from bridge.migration.fences.owner_nodes import read_owner_nodes
from bridge.migration.inspect.copied_offsets import (
    PHASES_WITH_COPIED_OFFSETS,
    CopiedOffsetsStatus,
    read_copied_offsets_status,
)
from bridge.migration.placeholder.placeholder_member import PlaceholderMember
from zkconsumer.admin.coordinator_client import CoordinatorRetryPolicy
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.admin.zookeeper_offset_writes import registered_members
from zkconsumer.errors import ZkConsumerError
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.types import TopicPartition
    from zkconsumer.zk.requests import ZnodeData

STATUS_RETRY_POLICY = CoordinatorRetryPolicy(unreachable_attempts_max=1, min_duration_ms=5_000)
"""How long to wait for an unavailable coordinator: the user waits for the status, so brokers are searched for once."""

PLACEHOLDER_ENTRY = "ended, and the seat stays"
"""The journal entry with the end of the placeholder's session; stored, so its text does not change."""


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """The status that was read.

    ``control`` None: no control znode, so no migration is active; ``group_exists`` False: ZooKeeper has no such group
    either.  ``placeholder``: the placeholder member of this migration; None while there is none, and while it is not
    known (``coordinator_error`` contains the reason).  ``placeholder_until_ms``: when its session ends as the last run
    wrote it, by the wall clock.  ``fences``: owner nodes that are fences of this migration; ``owned_partitions``: those
    of members.
    """

    group: str
    at_ms: int
    control: VersionedControl | None
    lock: MigrationLock | None = None
    abort_requested: bool = False
    registered: tuple[str, ...] = ()
    fences: int = 0
    owned_partitions: int = 0
    placeholder: str | None = None
    placeholder_until_ms: int | None = None
    coordinator_members: str = ""
    coordinator_error: str = ""
    participants: Participants | None = None
    """Of ``dual``: the participants and their acknowledgements."""
    has_stored_plan: bool = True
    """False: the first run was cut off before the plan was beside the control znode; only its file has it."""
    journal: tuple[JournalEntry, ...] = ()
    journal_error: str = ""
    group_exists: bool = True
    copied: CopiedOffsetsStatus | None = None
    """From ``copied`` to ``switched``: what Kafka has of the copied offsets."""

    @property
    def not_known(self) -> tuple[str, ...]:
        """One sentence for each value that could not be read; its field is empty or zero, which is not the value."""
        found = []
        if self.coordinator_error:
            found.append(f"the members of the coordinator group {self.group} are not known: {self.coordinator_error}")
        if self.copied is not None and self.copied.error and self.copied.error != self.coordinator_error:
            found.append(f"it is not known whether Kafka still has the copied offsets: {self.copied.error}")
        if self.journal_error:
            found.append(f"the journal cannot be read: {self.journal_error}")
        return tuple(found)

    @property
    def is_over(self) -> bool:
        """Whether no migration is active."""
        return self.control is None or self.control.phase in ENDED

    @property
    def waiting_for(self) -> list[str]:
        """Of ``dual``: the members for which the phase waits, each as text."""
        return [] if self.participants is None else pending_conditions(self.participants)

    @property
    def next_commands(self) -> list[str]:
        """The commands that continue the migration, the most likely first; without the cluster's address."""
        back = f"zkconsumer migrate rollback {self.group} --execute"
        if self.control is None:
            return [f"zkconsumer migrate plan {self.group} -f {self.group}.plan"]
        phase = self.control.phase
        if phase is Phase.COMPLETED:
            lift = [f"zkconsumer migrate complete {self.group} --remove-fences"] if self.fences else []
            return [f"zkconsumer groups describe {self.group}", *lift]
        if phase is Phase.UNDONE:
            return [f"zkconsumer migrate plan {self.group} -f {self.group}.plan"]
        if self.lock is not None:
            return [f"zkconsumer migrate status {self.group} --watch", f"zkconsumer migrate abort {self.group}"]
        if phase is Phase.SWITCHED and not self.control.control.is_confirmed:
            return [f"zkconsumer migrate apply --resume {self.group} --execute", back]
        if phase is Phase.SWITCHED and self.copied is not None and self.copied.lost:
            return [back, f"zkconsumer offsets diff {self.group}"]
        if phase is Phase.SWITCHED:
            return [f"zkconsumer migrate complete {self.group}", back]
        if not self.has_stored_plan:
            return [f"zkconsumer migrate apply {self.group}.plan --execute", back]
        if phase in FORWARD[self.control.strategy]:
            return [f"zkconsumer migrate apply --resume {self.group} --execute", back]
        return [back]


def read_migration_status(
    session: AdminSession, group: str, copied: CopiedOffsetsStatus | None = None
) -> MigrationStatus:
    """Read the status.  Raises ``PreconditionFailed`` for a control znode that cannot be read, ``UnavailableError``.

    ``copied``: the result of a recent read of the copied offsets, which are then not read again: there may be many.
    """
    at_ms = session.clock.wall_ms()
    held = ControlZnode(session, group, "").read()
    if held is None:
        return MigrationStatus(group, at_ms, None, group_exists=session.get(paths.group_root(group)) is not None)
    migration_id = held.control.migration_id
    nodes = read_owner_nodes(session, group)
    marks = [parse_fence_record(node.data) for node in nodes.values() if not node.stat.ephemeral_owner]
    entries = read_journal(session, group)
    told = entries.latest(PLACEHOLDER_ENTRY)
    placeholder, others, problem = _coordinator_group_members(session, group, migration_id)
    abort = session.get(paths.control_child(group, ABORT_CHILD))
    roster = None
    if held.strategy == "dual":
        roster, problem = _read_participants(session, held, group, nodes, problem)
        others = "; ".join(
            [*roster.unknown_members, *(f"{name}, a Spark query" for name in roster.non_acknowledging_members)]
        )
    if problem and copied is None:
        copied = CopiedOffsetsStatus(error=problem)  # another question would search for the coordinator as long again
    return MigrationStatus(
        group=group,
        at_ms=at_ms,
        control=held,
        lock=ControlZnode(session, group, migration_id).read_lock(),
        abort_requested=abort is not None and bool(abort.data),
        registered=tuple(registered_members(session, group)),
        fences=sum(mark is not None and mark.migration_id == migration_id for mark in marks),
        owned_partitions=sum(bool(node.stat.ephemeral_owner) for node in nodes.values()),
        placeholder=placeholder,
        placeholder_until_ms=_placeholder_until_ms(told),
        coordinator_members=others,
        coordinator_error=problem,
        participants=roster,
        has_stored_plan=held.phase is not Phase.PLANNED or has_pieces(session, group, PLAN_PIECE_PREFIX),
        journal=entries.entries,
        journal_error=entries.error,
        copied=_copied(session, group, held, entries, copied),
    )


def _copied(
    session: AdminSession,
    group: str,
    held: VersionedControl,
    entries: JournalContents,
    known: CopiedOffsetsStatus | None,
) -> CopiedOffsetsStatus | None:
    if held.phase not in PHASES_WITH_COPIED_OFFSETS:
        return None
    return read_copied_offsets_status(session, group, entries, STATUS_RETRY_POLICY) if known is None else known


def _read_participants(
    session: AdminSession, held: VersionedControl, group: str, nodes: Mapping[TopicPartition, ZnodeData], problem: str
) -> tuple[Participants, str]:
    """All participants, and why the members of the coordinator group are not known (``problem``, if already known)."""
    followers = read_participants_by_id(session, group, lambda: nodes)
    if problem:
        return Participants(held.control, followers, None), problem
    try:
        return Participants(
            held.control, followers, KafkaOffsetAdmin(session, group, patience=STATUS_RETRY_POLICY).coordinator_group()
        ), ""
    except ZkConsumerError as error:
        return Participants(held.control, followers, None), str(error)


def _placeholder_until_ms(told: JournalEntry | None) -> int | None:
    text = "" if told is None else told.facts.get("until_ms", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _coordinator_group_members(session: AdminSession, group: str, migration_id: str) -> tuple[str | None, str, str]:
    """The placeholder member of the migration, the other members of the coordinator group, and why they are unknown."""
    try:
        found = PlaceholderMember(session, group, migration_id, patience=STATUS_RETRY_POLICY).read_occupants()
    except ZkConsumerError as error:
        return None, "", str(error)
    ours = found.placeholders[0] if found.placeholders else None
    return None if ours is None else f"{ours.member_id} at {ours.host}", found.names if found.others else "", ""
