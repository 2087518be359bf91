"""The coordinator's side of a member of both worlds: a membership that tells what happens, and does what it is told.

    MigratingMembership --offer, write, read--> CoordinatorSide
                        <--told: generation, commits that Kafka took, answers to write and read--

``on_event`` may be called on this side's control thread only; it never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from bridge.client import commands as cmd
from bridge.client import events as cev
from bridge.client.commit_calls import commit_results
from bridge.client.coordinator_membership import CoordinatorMembership
from bridge.migration.dual.connector.committed_offset_reader import CommittedOffsetReader
from bridge.migration.dual.connector.protocol_downgrade import DowngradingConsumerCoordinator
from bridge.migration.dual.connector.urgent_writes import UrgentWrites
from bridge.migration.dual.machine import machine_messages as val
from bridge.migration.dual.machine.acknowledgement import NO_GENERATION
from zkconsumer.member.events import WriteOutcome
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from bridge.client.consumer_coordinator import ConsumerCoordinator
    from bridge.client.coordinator_event_loop import CoordinatorEventLoop, NetworkAnswer
    from bridge.migration.dual.connector.active_side_filters import ActiveSideListener
    from zkconsumer.base.threads import OnThreadError
    from zkconsumer.errors import ZkConsumerError
    from zkconsumer.member.events import KafkaCommitResult

NO_COMMITTED_OFFSET = -1

SIDE_RETRY_INTERVAL_MS = 50
"""How soon is tried again what the group refused because it forms anew."""


class CoordinatorSide(CoordinatorMembership):
    """A ``CoordinatorMembership`` whose protocols can change while it is in the group."""

    _MACHINE: ClassVar[type[ConsumerCoordinator]] = DowngradingConsumerCoordinator

    def __init__(
        self,
        *what: Any,
        on_event: Callable[[val.MigratingMemberEvent], None],
        on_assignment: Callable[[], None],
        make_listener: Callable[[str, CoordinatorEventLoop, OnThreadError], ActiveSideListener],
        **how: Any,
    ) -> None:
        self._on_event = on_event
        self._on_assignment = on_assignment
        self._create_listener = make_listener
        super().__init__(*what, **how)
        self._writes = UrgentWrites(
            # The numbers of these commits are negative: the program's own commits have positive numbers.
            lambda number, offsets: self.event_loop.dispatch(cev.CommitAsked(-number, offsets, retried=False)),
            lambda number, taken: on_event(val.KafkaWriteFinished(number, taken)),
            self._clock,
        )
        self._offset_reader = CommittedOffsetReader(
            lambda: self._questions.open().number,
            lambda number, partitions: self.event_loop.dispatch(cev.FetchAsked(number, partitions)),
            lambda offsets: on_event(val.KafkaOffsetsRead(offsets)),
            self._clock,
        )
        self.every(SIDE_RETRY_INTERVAL_MS, self._retry_pending)

    def _make_listener(self) -> ActiveSideListener:
        self.side_listener = self._create_listener(self.id, self.event_loop, self.thread_died)
        return self.side_listener

    # --- what it is told, on any thread -------------------------------------------------------------------------

    def write_offsets(self, number: int, offsets: Mapping[TopicPartition, cev.Offset], *, is_urgent: bool) -> None:
        """Commit these once; ``KafkaWriteFinished`` with the number is told.

        ``is_urgent``: tried again while the group forms anew, for half the time that partitions are waited for that
        leave.
        """
        patience_ms = self._settings.limits.drain_ms // 2 if is_urgent else 0
        self.event_loop.call_soon(lambda: self._writes.write(number, offsets, patience_ms))

    def read_offsets(self, partitions: frozenset[TopicPartition]) -> None:
        """Ask what is committed of these until it is known; ``KafkaOffsetsRead`` is told."""
        self.event_loop.call_soon(lambda: self._offset_reader.read(partitions))

    def fail(self, error: ZkConsumerError) -> None:
        """The member ends."""
        self._end(error)

    # --- what is repeated, and what came of it ------------------------------------------------------------------

    def _retry_pending(self) -> None:
        self._writes.retry()
        if self.failure is None and not self.assignment_executor.is_closing:
            self._offset_reader.poll(self.assignment_executor.running)

    def commit_done(self, command: cmd.CommitDone) -> None:
        """See ``MachineObserver``."""
        if command.number > 0:
            super().commit_done(command)
        else:
            self._writes.handle_response(-command.number, command)

    def fetched(self, command: cmd.FetchDone) -> None:
        """See ``MachineObserver``."""
        super().fetched(command)
        found = {tp: NO_COMMITTED_OFFSET if at is None else at.offset for tp, at in command.offsets.items()}
        is_ours = self._offset_reader.handle_response(command.number, None if command.error else found)
        if is_ours and command.error is not None and self.failure is None and not self.assignment_executor.is_closing:
            self.raised(cmd.Raise(command.error, is_fatal=False))

    # --- what it tells ------------------------------------------------------------------------------------------

    def assignment_complete(self) -> None:
        """See ``CoordinatorMembership``."""
        super().assignment_complete()
        self._on_assignment()

    def noted(self, command: cmd.LogMemberEvent) -> None:
        """See ``MachineObserver``."""
        super().noted(command)
        match command.name:
            case "assigned":
                self._on_event(val.GenerationChanged(self.machine.generation.generation_id))
            case "generation-reset":
                self._on_event(val.GenerationChanged(NO_GENERATION))
            case _:
                pass

    def answered(self, answer: NetworkAnswer) -> None:
        """See ``MachineObserver``."""
        super().answered(answer)
        said = commit_results(answer)
        if said is not None:
            taken = _committed_offsets(*said)
            if taken:
                self._on_event(val.KafkaCommitted(taken))


def _committed_offsets(
    asked: Mapping[TopicPartition, int | None], results: Mapping[TopicPartition, KafkaCommitResult]
) -> dict[TopicPartition, int]:
    return {
        tp: offset
        for tp, offset in asked.items()
        if offset is not None and tp in results and results[tp].outcome is WriteOutcome.DONE
    }
