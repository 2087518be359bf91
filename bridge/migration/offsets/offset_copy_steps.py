"""Copies offsets to Kafka as the only member of the group, and back to ZooKeeper with checks of the control znode.

Both steps can be interrupted anywhere and run again: they do not write a correct offset again, and never overwrite an
offset of another client.  Commits to Kafka carry the placeholder member's generation, so the coordinator rejects those
of an outdated run; every multi to ZooKeeper checks the version of the control znode.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.phases import Phase
from bridge.migration.errors import PartiallyDoneError, VerificationError
from bridge.migration.inspect.group_snapshot import CommittedOffset
from bridge.migration.offsets.offset_copies import (
    OffsetCopy,
    format_differences,
    pending_and_drifted,
    pending_zookeeper_writes,
)
from bridge.migration.placeholder.placeholder_member import PLACEHOLDER_RETRY_POLICY
from bridge.migration.plan.offset_retention import DEFAULT_RETENTION_MS
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepStatus
from zkconsumer.admin.admin_session import chunks
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.admin.zookeeper_group import OffsetNode, read_offsets
from zkconsumer.admin.zookeeper_offset_writes import OffsetWrite
from zkconsumer.kafka.error_codes import (
    INVALID_COMMIT_OFFSET_SIZE,
    MESSAGE_TOO_LARGE,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode,
)
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from bridge.migration.control.control_znode import ControlZnode
    from bridge.migration.control.journal import Journal
    from bridge.migration.placeholder.placeholder_member import PlaceholderMember
    from bridge.migration.plan.decisions import OffsetConvention
    from zkconsumer.admin.coordinator_client import CoordinatorRetryPolicy
    from zkconsumer.kafka.coordinator_groups import CoordinatorGroup
    from zkconsumer.kafka.group.generation import Generation
    from zkconsumer.types import TopicPartition
    from zkconsumer.zk.requests import Acl

BATCH_BYTES_MAX = 512 * 1024
"""Of the records that one commit becomes: a broker writes them as one batch, by default of at most a megabyte."""

RECORD_OVERHEAD_BYTES = 80
"""The size of such a record without the names and the metadata, in the largest of the formats (0.9 to 4.1)."""

RETURN_BATCH_SIZE = 10_000
"""Offsets that are written to ZooKeeper between two heartbeats of the placeholder member."""

REJECTED_SHOWN_MAX = 10

COPY_PHASES = (Phase.FENCED, Phase.COPIED, Phase.VERIFIED)
"""Phases in which this migration wrote Kafka's values, and ZooKeeper's do not change."""

COPIED_JOURNAL_ENTRY, RETENTION_FACT = "offsets are committed to Kafka", "retention_ms"
"""The journal entry before a commit, and its key for how long brokers before 2.1 are to keep the offsets."""

_TOO_LARGE_CODES = frozenset({INVALID_COMMIT_OFFSET_SIZE, MESSAGE_TOO_LARGE})


class OffsetStores:
    """Reads both stores of a group for the steps.  One thread."""

    def __init__(
        self,
        authority: ControlZnode,
        placeholder: PlaceholderMember,
        *,
        pause: Callable[[int], object] | None = None,
        patience: CoordinatorRetryPolicy = PLACEHOLDER_RETRY_POLICY,
    ) -> None:
        self.control_znode = authority
        self.placeholder = placeholder
        self.group = authority.group
        self._kafka = KafkaOffsetAdmin(authority.session, authority.group, pause, patience)

    def is_in_phase(self, *phases: Phase) -> bool:
        """Whether the control znode is this migration's, and in one of these phases; False in a dry run."""
        held = self.control_znode.read()
        return (
            held is not None and held.control.migration_id == self.control_znode.migration_id and held.phase in phases
        )

    def read_kafka(self, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, CommittedOffset]:
        """The offsets in Kafka of these partitions; None: of every partition of the group."""
        self.placeholder.heartbeat_if_due()
        found = self._kafka.read_offsets() if partitions is None else self._kafka.read_some(partitions)
        return {tp: CommittedOffset(stored.offset, stored.metadata) for tp, stored in found.items()}

    def read_coordinator_group(self) -> CoordinatorGroup | None:
        """The coordinator group with its members; None where it is not known."""
        return self._kafka.coordinator_group()

    def read_zookeeper(self) -> Mapping[TopicPartition, OffsetNode]:
        """Every offset znode of the group."""
        self.placeholder.heartbeat_if_due()
        return read_offsets(self.control_znode.session, self.control_znode.group)[0]


@dataclass(slots=True)
class CopyToKafka:
    """Kafka has a value of this migration for every partition.

    The step does not write a correct value of this migration and this epoch again; it does write one of an older epoch.
    It does not overwrite the value of another client that differs from the plan: that ends the run (exit code 5).
    """

    stores: OffsetStores
    copies: Sequence[OffsetCopy]
    phases: tuple[Phase, ...] = COPY_PHASES
    """The phases in which the step may run."""
    retention_ms: int = DEFAULT_RETENTION_MS
    """How long brokers before 2.1 keep the offsets, from the commit on."""
    journal: Journal | None = None
    """Where the step notes the commit before it, so that the end of the retention is known; None: nowhere."""
    _last_check: tuple[Generation, int, list[OffsetCopy]] | None = None
    """The generation, the epoch and the missing copies of the last check."""

    name = "commit the offsets to Kafka"
    changes = True

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        lines = [f"commit {len(self.copies)} offsets of group {self.stores.group} to Kafka, as its only member:"]
        return lines + [f"  {copy.tp}  {copy.offset}" for copy in self.copies]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        if not self.stores.is_in_phase(*self.phases):
            return StepPending()
        try:
            epoch, left = self._pending()
        except VerificationError as error:
            return StepRefused(error)
        sitting = self.stores.placeholder.joined
        self._last_check = None if sitting is None else (sitting.generation, epoch, left)
        return StepPending() if left else StepDone()

    def do(self) -> None:
        """See ``MigrationStep``.  Raises ``PartiallyDoneError`` with the partitions that the brokers reject; the others
        are done.
        """
        placeholder, looked = self.stores.placeholder, self._last_check
        self._last_check = None
        # Only this generation can commit: a value that was read in it does not change until we write.
        placeholder.heartbeat()
        assert placeholder.joined is not None, (
            "the coordinator answered the heartbeat, so the placeholder member has joined"
        )
        epoch = self.stores.control_znode.require_phase(*self.phases).control.epoch
        if looked is None or looked[:2] != (placeholder.joined.generation, epoch):
            epoch, left = self._pending()
        else:
            left = looked[2]
        if left and self.journal is not None:
            self.journal.append(COPIED_JOURNAL_ENTRY, {RETENTION_FACT: str(self.retention_ms)})
        refused = self._commit(left, epoch)
        if refused:
            raise PartiallyDoneError(_rejected_text(refused))

    def _pending(self) -> tuple[int, list[OffsetCopy]]:
        """The epoch, and the missing copies.  Raises ``VerificationError`` for what another client wrote."""
        authority = self.stores.control_znode
        epoch = authority.require_phase(*self.phases).control.epoch
        found = self.stores.read_kafka([copy.tp for copy in self.copies])
        left, drift = pending_and_drifted(self.copies, found, authority.migration_id, epoch)
        if drift:
            raise VerificationError(
                f"another client committed for group {self.stores.group} since the plan was made: "
                f"{format_differences(drift)}. None of these offsets was overwritten. Find and stop that client; then "
                "roll back, and plan again"
            )
        return epoch, left

    def _commit(self, copies: Sequence[OffsetCopy], epoch: int) -> dict[TopicPartition, ErrorCode]:
        """Commit everything, batch by batch; returns the rejected partitions with their error codes."""
        rest = deque(copies)
        bytes_max = BATCH_BYTES_MAX
        refused: dict[TopicPartition, ErrorCode] = {}
        while rest:
            batch, size = self._batch(rest, bytes_max, epoch)
            outcome = self.stores.placeholder.commit(batch, self.retention_ms)
            if len(batch) > 1 and _TOO_LARGE_CODES & set(outcome.values()):
                bytes_max = size // 2
                continue
            refused |= {tp: code for tp, code in outcome.items() if code != NONE}
            for _ in batch:
                rest.popleft()
        return refused

    def _batch(
        self, rest: deque[OffsetCopy], bytes_max: int, epoch: int
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], int]:
        """The first copies, as many as one commit takes, at least one; and their bytes."""
        batch: dict[TopicPartition, OffsetAndMetadata] = {}
        size = 0
        for copy in rest:
            metadata = copy.metadata(self.stores.control_znode.migration_id, epoch)
            names = len(self.stores.group) + len(copy.tp.topic)
            size += RECORD_OVERHEAD_BYTES + names + len(metadata)
            if batch and size > bytes_max:
                return batch, size
            batch[copy.tp] = OffsetAndMetadata(copy.offset, metadata)
        return batch, size


@dataclass(frozen=True, slots=True)
class CopyToZooKeeper:
    """ZooKeeper has the offsets of Kafka, in the group's own convention; others are not changed.

    ``acl``: the access list of the fence, for the znodes that are created; None: open to the world.
    """

    stores: OffsetStores
    convention: OffsetConvention
    acl: tuple[Acl, ...] | None = None
    phase: Phase = Phase.RETURNING
    """The phase in which the step runs: ``returned`` while it is not confirmed."""

    name = "write Kafka's offsets to ZooKeeper"
    changes = True

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"write Kafka's offsets of group {self.stores.group} to {paths.offsets(self.stores.group)}"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        if not self.stores.is_in_phase(self.phase):
            return StepPending()
        if not self._pending():
            return StepDone()
        if self.stores.placeholder.joined is not None:
            try:
                self.stores.placeholder.heartbeat()  # a difference after a write: another client committed
            except (VerificationError, PartiallyDoneError) as error:
                return StepRefused(error)
        return StepPending()

    def do(self) -> None:
        """See ``MigrationStep``.  Raises ``PartiallyDoneError`` when a write fails; the fences remain."""
        authority, placeholder = self.stores.control_znode, self.stores.placeholder
        held = authority.require_phase(self.phase)
        placeholder.heartbeat()
        for some in chunks(self._pending(), RETURN_BATCH_SIZE):
            placeholder.heartbeat_if_due()
            stopped_by = authority.write_offsets(held, some, self.acl)
            if stopped_by:
                raise PartiallyDoneError(
                    f"only a part of the offsets of group {authority.group} is written to ZooKeeper, so start no "
                    f"member: {stopped_by}. Remove the cause, then run the same command again"
                )

    def _pending(self) -> list[OffsetWrite]:
        return pending_zookeeper_writes(self.stores.read_kafka(), self.stores.read_zookeeper(), self.convention)


def _rejected_text(refused: Mapping[TopicPartition, ErrorCode]) -> str:
    by_code: dict[ErrorCode, list[TopicPartition]] = {}
    for tp, code in refused.items():
        by_code.setdefault(code, []).append(tp)
    told = []
    for code, partitions in by_code.items():
        more = len(partitions) - REJECTED_SHOWN_MAX
        names = ", ".join(map(str, partitions[:REJECTED_SHOWN_MAX])) + (f" and {more} more" if more > 0 else "")
        told.append(f"{names}: {code}; {_commit_error_remedy(code)}")
    return f"{'. '.join(told)}. The others are committed; then run the same command again, or roll back"


def _commit_error_remedy(code: ErrorCode) -> str:
    if code == UNKNOWN_TOPIC_OR_PARTITION:
        return "there is no such partition: if the topic was deleted, roll back and plan again"
    if code == OFFSET_METADATA_TOO_LARGE:
        return "raise offset.metadata.max.bytes of the brokers to 256 at least"
    if code == TOPIC_AUTHORIZATION_FAILED:
        return "allow this user READ on these topics"
    if code in _TOO_LARGE_CODES:
        return "raise max.message.bytes of __consumer_offsets to 4096 at least"
    return "read the logs of the brokers"
