"""The coordinator's side of a member of both worlds: a membership that tells what happens, and does what it is told.

    MigratingMembership --offer, write, read--> CoordinatorSide
                        <--told: generation, commits that Kafka took, answers to write and read--

``told`` may be called on this side's control thread only; it never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from bridge.client import commands as cmd
from bridge.client import events as cev
from bridge.client.commit_calls import commit_said
from bridge.client.membership import CoordinatorMembership
from bridge.migration.connector.keeping import KeepingCoordinator
from bridge.migration.connector.readings import Readings
from bridge.migration.connector.urgent_writes import UrgentWrites
from bridge.migration.member import values as val
from bridge.migration.member.acknowledgement import NO_GENERATION
from zkconsumer.core.events import Outcome
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from bridge.client.assignor import ConsumerPartitionAssignor
    from bridge.client.consumer_coordinator import ConsumerCoordinator
    from bridge.client.runtime import Answer, ClientControl
    from bridge.migration.connector.gates import SideListener
    from zkconsumer.base.threads import OnDeath
    from zkconsumer.core.events import KafkaWritten
    from zkconsumer.errors import ZkConsumerError

UNKNOWN = -1

AGAIN_MS = 50
"""How soon is tried again what the group refused because it forms anew."""


class CoordinatorSide(CoordinatorMembership):
    """A ``CoordinatorMembership`` whose protocols can change while it is in the group."""

    _MACHINE: ClassVar[type[ConsumerCoordinator]] = KeepingCoordinator

    def __init__(
        self,
        *what: Any,
        told: Callable[[val.Event], None],
        on_share: Callable[[], None],
        make_listener: Callable[[str, ClientControl, OnDeath], SideListener],
        **how: Any,
    ) -> None:
        self._told = told
        self._on_share = on_share
        self._listener_of = make_listener
        super().__init__(*what, **how)
        self._writes = UrgentWrites(
            # The numbers of these commits are negative: the program's own commits have positive numbers.
            lambda number, offsets: self.control.tell(cev.CommitAsked(-number, offsets, retried=False)),
            lambda number, taken: told(val.WrittenToKafka(number, taken)),
            self._clock,
        )
        self._readings = Readings(
            lambda: self._questions.open().number,
            lambda number, partitions: self.control.tell(cev.FetchAsked(number, partitions)),
            lambda offsets: told(val.KafkaRead(offsets)),
            self._clock,
        )
        self.every(AGAIN_MS, self._try_again)

    def _make_listener(self) -> SideListener:
        self.listens = self._listener_of(self.id, self.control, self.thread_died)
        return self.listens

    # --- what it is told, on any thread -------------------------------------------------------------------------

    def offer(self, assignors: Sequence[ConsumerPartitionAssignor]) -> None:
        """The group may divide by these from now on."""
        self.control.post(cev.AssignorsOffered(tuple(assignors)))

    def write(self, number: int, offsets: Mapping[TopicPartition, cev.Offset], *, is_urgent: bool) -> None:
        """Commit these once; ``WrittenToKafka`` with the number is told.

        ``is_urgent``: tried again while the group forms anew, for half the time that partitions are waited for that
        leave.
        """
        patience_ms = self._settings.limits.drain_ms // 2 if is_urgent else 0
        self.control.call(lambda: self._writes.write(number, offsets, patience_ms))

    def read(self, partitions: frozenset[TopicPartition]) -> None:
        """Ask what is committed of these until it is known; ``KafkaRead`` is told."""
        self.control.call(lambda: self._readings.read(partitions))

    def end_with(self, error: ZkConsumerError) -> None:
        """The member ends."""
        self._end(error)

    # --- what is repeated, and what came of it ------------------------------------------------------------------

    def _try_again(self) -> None:
        self._writes.try_again()
        if self.failure is None and not self.handing.is_closing:
            self._readings.look(self.handing.held)

    def commit_done(self, command: cmd.CommitDone) -> None:
        """See ``Concerned``."""
        if command.number > 0:
            super().commit_done(command)
        else:
            self._writes.answered(-command.number, command)

    def fetched(self, command: cmd.FetchDone) -> None:
        """See ``Concerned``."""
        super().fetched(command)
        found = {tp: UNKNOWN if at is None else at.offset for tp, at in command.offsets.items()}
        is_ours = self._readings.answered(command.number, None if command.error else found)
        if is_ours and command.error is not None and self.failure is None and not self.handing.is_closing:
            self.raised(cmd.Raise(command.error, is_fatal=False))

    # --- what it tells ------------------------------------------------------------------------------------------

    def share_held(self) -> None:
        """See ``CoordinatorMembership``."""
        super().share_held()
        self._on_share()

    def noted(self, command: cmd.Note) -> None:
        """See ``Concerned``."""
        super().noted(command)
        match command.what:
            case "assigned":
                self._told(val.GenerationSeen(self.machine.generation.generation_id))
            case "generation-reset":
                self._told(val.GenerationSeen(NO_GENERATION))
            case _:
                pass

    def answered(self, answer: Answer) -> None:
        """See ``Concerned``."""
        super().answered(answer)
        said = commit_said(answer)
        if said is not None:
            taken = _taken(*said)
            if taken:
                self._told(val.KafkaTook(taken))


def _taken(
    asked: Mapping[TopicPartition, int | None], results: Mapping[TopicPartition, KafkaWritten]
) -> dict[TopicPartition, int]:
    return {
        tp: offset
        for tp, offset in asked.items()
        if offset is not None and tp in results and results[tp].outcome is Outcome.DONE
    }
