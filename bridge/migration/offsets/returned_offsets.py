"""Records the offsets that a rollback left in Kafka, so that the next plan recognises them.

    rollback   StoreReturnedOffsets: /zkconsumer/groups/G/returned-0000 and on, before the fences are removed
    plan       read_ended_migration: those values, and what the stored numbers mean

The members of the coordinator's group committed offsets without our provenance.  ``rollback`` writes these offsets to
ZooKeeper and leaves them in Kafka.  Then the old members continue, and the two stores differ.  For the next plan such a
value in Kafka is no position of an application: ZooKeeper had it first, and has the authority.  That is true for
exactly the values that are recorded here, offset and metadata; another value was committed later, and the plan asks for
a decision (``--existing``).

Only a value that ZooKeeper has too is recorded, so it does not matter which client commits to Kafka while the record is
written, or before an interrupted run writes it.

``CreateControlZnode`` deletes the record with the other pieces.  From then on the new plan contains the part of it that
it needs (``PartitionSnapshot.is_returned``).  If that migration is undone before it was switched, the next plan reads
it there: meanwhile only the migration's own copies were committed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.migration.control.control_layout import RETURNED_PIECE_PREFIX, phase_of, returned_piece_name
from bridge.migration.control.control_pieces import (
    DamagedPiecesError,
    pack,
    read_pieces,
    store_child,
    unpack,
    update_child,
)
from bridge.migration.control.control_znode import VersionedControl
from bridge.migration.control.phases import ENDED, Phase
from bridge.migration.offsets.offset_copies import zookeeper_offset_for
from bridge.migration.offsets.provenance import check_migration_id
from bridge.migration.plan.decisions import OffsetConvention
from bridge.migration.plan.json_object_reader import InvalidJsonError, JsonObjectReader, as_list, as_number, as_text
from bridge.migration.steps.migration_context import read_effective_plan
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepStatus
from zkconsumer.errors import PreconditionFailed, ZkReadNotAuthorized
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import DeleteOp

if TYPE_CHECKING:
    from bridge.migration.inspect.group_snapshot import CommittedOffset
    from bridge.migration.plan.migration_plan import MigrationPlan
    from bridge.migration.steps.migration_context import MigrationContext
    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.admin.zookeeper_group import OffsetNode
    from zkconsumer.zk.znode_formats import ControlRecord

SCHEMA = "zkconsumer.migration.returned/1"
TEXT_CHARS_MAX = 300
INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class EndedMigration:
    """What is known of the migration that the control znode names, once it has ended.

    ``convention``: its offset convention; None: it read and wrote no offset, or that is not known.
    ``returned``: the values in Kafka that its rollback found, or the one before it, as returned by ``fingerprint``.
    """

    convention: OffsetConvention | None = None
    returned: Mapping[TopicPartition, tuple[int, str]] = field(default_factory=dict)

    def has_returned(self, tp: TopicPartition, value: CommittedOffset | None) -> bool:
        """Whether Kafka still has the value that the rollback found."""
        return value is not None and self.returned.get(tp) == fingerprint(value)


NO_ENDED_MIGRATION = EndedMigration()


def fingerprint(value: CommittedOffset) -> tuple[int, str]:
    """An offset, and the SHA-256 of its metadata (empty without metadata), which may be an application's secret."""
    return value.offset, hashlib.sha256(value.metadata.encode()).hexdigest() if value.metadata else ""


# --- the record ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReturnedOffsetsRecord:
    """The contents of the pieces; ``migration_id``: the migration."""

    migration_id: str
    ended: EndedMigration


def format_returned_record(migration_id: str, ended: EndedMigration) -> bytes:
    """The text of the pieces."""
    rows = [[tp.topic, tp.partition, offset, digest] for tp, (offset, digest) in sorted(ended.returned.items())]
    convention = None if ended.convention is None else ended.convention.value
    members = {"schema": SCHEMA, "migration_id": migration_id, "convention": convention, "offsets": rows}
    return json.dumps(members, separators=(",", ":")).encode()


def parse_returned_record(text: bytes) -> ReturnedOffsetsRecord:
    """Parse ``format_returned_record``'s text.  Raises ``InvalidJsonError``."""
    try:
        members = JsonObjectReader.parse(text.decode("ascii"), "the record")
    except UnicodeDecodeError as error:
        raise InvalidJsonError("the record: not ASCII") from error
    if members.text("schema", TEXT_CHARS_MAX) != SCHEMA:
        raise members.error("another schema")
    migration_id = members.checked("migration_id", check_migration_id)
    convention = members.nullable("convention", lambda name: members.checked(name, OffsetConvention))
    returned: dict[TopicPartition, tuple[int, str]] = {}
    for each in members.items("offsets"):
        topic, number, offset, digest = as_list(each, "offsets", 4)
        tp = TopicPartition(as_text(topic, "offsets", TEXT_CHARS_MAX), as_number(number, "offsets", 0, INT32_MAX))
        returned[tp] = as_number(offset, "offsets"), as_text(digest, "offsets", TEXT_CHARS_MAX)
    members.reject_unknown_keys()
    return ReturnedOffsetsRecord(migration_id, EndedMigration(convention, returned))


def read_returned_record(session: AdminSession, group: str) -> ReturnedOffsetsRecord | None:
    """The record beside the control znode; None: there is none.  Raises ``DamagedPiecesError`` for an incomplete
    one.
    """
    pieces = read_pieces(session, group, RETURNED_PIECE_PREFIX)
    if not pieces:
        return None
    try:
        return parse_returned_record(unpack(list(pieces.values())))
    except InvalidJsonError as error:
        raise DamagedPiecesError(str(error)) from error


# --- for the next plan --------------------------------------------------------------------------------------------


def read_ended_migration(session: AdminSession, group: str, control: ControlRecord | None) -> EndedMigration:
    """What is known of the previous migration.

    Nothing while a migration is active, and where its data cannot be read: then the plan asks.
    """
    if control is None or not control.is_over:
        return NO_ENDED_MIGRATION
    try:
        record = read_returned_record(session, group)
        if phase_of(control) is Phase.UNDONE and record is not None and record.migration_id == control.migration_id:
            return record.ended
        plan = read_effective_plan(session, group)
    except (DamagedPiecesError, ZkReadNotAuthorized, PreconditionFailed):
        return NO_ENDED_MIGRATION
    if plan.migration_id != control.migration_id:
        return NO_ENDED_MIGRATION
    return _of_plan(plan, phase_of(control))


def _of_plan(plan: MigrationPlan, phase: Phase) -> EndedMigration:
    """Of a migration without a rollback from Kafka: it was undone before its switch, or is completed.

    Where no offset was stored, the plan's convention is only a default.
    """
    assert phase in ENDED, "only ended migrations are read"
    seen = plan.snapshot.partitions
    has_stored = any(one.stored is not None and not one.is_older_than_topic for one in seen.values())
    returned = {tp: fingerprint(one.kafka) for tp, one in seen.items() if one.is_returned and one.kafka is not None}
    return EndedMigration(plan.convention if has_stored else None, returned if phase is Phase.UNDONE else {})


# --- the step -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreReturnedOffsets:
    """Stores beside the control znode which values of Kafka were written to ZooKeeper, in phase ``returned``."""

    context: MigrationContext

    name = "record Kafka's offsets that ZooKeeper has now"
    changes = True

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"write to {paths.control(self.context.group)} which offsets of Kafka the next plan need not ask about"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        authority = self.context.control_znode
        held = authority.check_phase(Phase.RETURNED)
        if isinstance(held, StepRefused) or self.context.plan.convention is None:
            return held if isinstance(held, StepRefused) else StepDone()  # without a plan nothing was moved
        if not isinstance(held, VersionedControl):
            return StepPending()
        try:
            record = read_returned_record(authority.session, authority.group)
        except DamagedPiecesError:
            return StepPending()  # a run was interrupted between two pieces
        return StepDone() if record is not None and record.migration_id == authority.migration_id else StepPending()

    def do(self) -> None:
        """See ``MigrationStep``.  Raises as ``store_child`` does."""
        authority, stores, convention = self.context.control_znode, self.context.stores, self.context.plan.convention
        assert convention is not None, "there is nothing to do without a plan"
        found = returned_offsets(stores.read_kafka(), stores.read_zookeeper(), convention)
        pieces = pack(format_returned_record(authority.migration_id, EndedMigration(convention, found)))
        wanted = {returned_piece_name(number): piece for number, piece in enumerate(pieces)}
        there = read_pieces(authority.session, authority.group, RETURNED_PIECE_PREFIX)
        for name in [name for name in there if name not in wanted]:
            update_child(authority, name, lambda path, _: DeleteOp(path), lambda data: data is None, Phase.RETURNED)
        for name, piece in wanted.items():
            store_child(authority, name, piece, Phase.RETURNED)


def returned_offsets(
    kafka: Mapping[TopicPartition, CommittedOffset],
    nodes: Mapping[TopicPartition, OffsetNode],
    convention: OffsetConvention,
) -> dict[TopicPartition, tuple[int, str]]:
    """The values that a client committed, and that ZooKeeper has too.

    Values with a provenance are recognised by it, as long as no client overwrites them.
    """
    found = {}
    for tp, value in kafka.items():
        stored = zookeeper_offset_for(value.offset, convention)
        node = nodes.get(tp)
        if value.provenance is None and stored is not None and node is not None and node.offset == stored:
            found[tp] = fingerprint(value)
    return found
