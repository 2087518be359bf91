"""Which partitions are ours, which of them a batch works on, and which others wait for.  Pure.

    start --> held --lend--> lent --the batch ended, or does without it--> held
                |              |
              drain          drain
                v              v
            at rest        leaving --the batch ended, was given up on, or its mode does not wait--> at rest

``waits``: whether a partition that a batch works on is given back only when the batch has ended (``afterBatch``).  In
the other modes it is at rest at once: its offset stands at the end of the batch already (``claim``), or is never
written (``none``).  While a claim is being written its partitions wait in every mode.

A partition at rest has a *position*: where the group's offset may be put when it is given back, -1 for nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.spark.group_membership import BatchEnd, LeasedPartition
from zkconsumer.types import TopicPartition

UNSET_POSITION = -1

DrainedPositions: TypeAlias = "dict[TopicPartition, int]"


@dataclass(slots=True)
class _OwnedPartition:
    """``offset``: where the group stood when this epoch began, or was put since; ``position``: where it stands as
    far as we know.

    ``epochs``: what this ownership was called before, while nobody else had it in between.  ``claims``: how many are
    being written.
    """

    thread: str
    epoch: int
    offset: int
    position: int
    epochs: set[int] = field(default_factory=set)
    is_leased: bool = False
    claims_in_progress: int = 0
    is_draining: bool = False
    is_drain_abandoned: bool = False
    is_reported: bool = False


class BatchLeases:
    """Every method that may bring partitions to rest gives their positions back, each only once."""

    def __init__(self, *, waits_for_batch: bool) -> None:
        self.waits_for_batch = waits_for_batch
        self._owned: dict[TopicPartition, _OwnedPartition] = {}
        self._is_query_ended = False

    # --- what the group says ------------------------------------------------------------------------------------

    def add(self, tp: TopicPartition, thread: str, epoch: int, offset: int) -> None:
        """It is ours from here on."""
        self._owned[tp] = _OwnedPartition(thread, epoch, offset, max(offset, UNSET_POSITION))

    def drain(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Others wait for these, or another thread of ours does."""
        for tp in partitions:
            self._owned[tp].is_draining = True
        return self._newly_drained()

    def abandon_drain(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Nobody waits for their batch any longer; a claim that is being written is waited for all the same."""
        for tp in partitions:
            if tp in self._owned:
                self._owned[tp].is_drain_abandoned = True
        return self._newly_drained()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These are not ours any more."""
        for tp in partitions:
            self._owned.pop(tp, None)

    def change_thread(self, tp: TopicPartition, thread: str, epoch: int) -> None:
        """It stays ours under another thread.  A batch that was given up on goes on with it."""
        old = self._owned[tp]
        epochs = {*old.epochs, old.epoch}
        self._owned[tp] = _OwnedPartition(thread, epoch, old.position, old.position, epochs, is_leased=old.is_leased)

    # --- what the query says ------------------------------------------------------------------------------------

    def end_batch(self, ended: Mapping[TopicPartition, BatchEnd]) -> tuple[DrainedPositions, DrainedPositions]:
        """The batch before is over: what is to be written now, and what is at rest with its end.

        An end counts only under the ownership under which the batch read; nothing is lent any more.
        """
        counts: list[TopicPartition] = []
        for tp, end in ended.items():
            owned = self._owned.get(tp)
            if self.waits_for_batch and owned is not None and end.epoch in (owned.epoch, *owned.epochs):
                owned.position = max(owned.position, end.offset)
                counts.append(tp)
        for owned in self._owned.values():
            owned.is_leased = False
        to_write = {tp: self._owned[tp].position for tp in counts if not self._owned[tp].is_draining}
        return to_write, self._newly_drained()

    def lease_all(self) -> dict[TopicPartition, LeasedPartition]:
        """Everything that nobody waits for, to the batch that is planned now."""
        free = {tp: owned for tp, owned in self._owned.items() if not owned.is_draining}
        for owned in free.values():
            owned.is_leased = True
        return {tp: LeasedPartition(owned.epoch, owned.offset) for tp, owned in sorted(free.items())}

    def keep_planned(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The new batch does without the others."""
        wanted = set(partitions)
        for tp, owned in self._owned.items():
            owned.is_leased = owned.is_leased and tp in wanted
        return self._newly_drained()

    def begin_claim(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What of these is ours, with its epoch; it is not given back before ``end_claim``."""
        held: dict[TopicPartition, int] = {}
        for tp in partitions:
            owned = self._owned.get(tp)
            if owned is not None and not owned.is_draining:
                owned.claims_in_progress += 1
                held[tp] = owned.epoch
        return held

    def end_claim(self, held: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The claim of what ``begin_claim`` gave was written, or not, and nothing of it will be any more."""
        for tp, epoch in held.items():
            owned = self._owned.get(tp)
            if owned is not None and owned.epoch == epoch:
                owned.claims_in_progress -= 1
        return self._newly_drained()

    def set_group_offset(self, tp: TopicPartition, epoch: int, offset: int) -> bool:
        """The group's offset was put there, by a claim or a seek; False: under an ownership that is over."""
        owned = self._owned.get(tp)
        if owned is None or owned.epoch != epoch:
            return False
        owned.position = owned.offset = offset
        return True

    def end_query(self) -> dict[TopicPartition, int]:
        """No batch works on anything any more: what leaves from now on is at rest at once."""
        self._is_query_ended = True
        return self._newly_drained()

    # --- what can be seen ---------------------------------------------------------------------------------------

    def has(self, tp: TopicPartition, epoch: int) -> bool:
        """Whether it is ours, and still by this ownership, on its way out or not."""
        owned = self._owned.get(tp)
        return owned is not None and owned.epoch == epoch

    @property
    def threads(self) -> dict[TopicPartition, str]:
        """What is ours and not on its way out."""
        return {tp: owned.thread for tp, owned in self._owned.copy().items() if not owned.is_draining}

    @property
    def epochs(self) -> dict[TopicPartition, int]:
        """The same, with epochs."""
        return {tp: owned.epoch for tp, owned in self._owned.copy().items() if not owned.is_draining}

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where the group stands in what is ours, as far as we know."""
        return {
            tp: owned.position for tp, owned in self._owned.items() if not owned.is_draining and owned.position >= 0
        }

    @property
    def leased(self) -> set[TopicPartition]:
        """What a batch works on."""
        return {tp for tp, owned in self._owned.copy().items() if owned.is_leased}

    @property
    def draining(self) -> set[TopicPartition]:
        """What others wait for."""
        return {tp for tp, owned in self._owned.copy().items() if owned.is_draining}

    def __len__(self) -> int:
        return len(self._owned)

    def _newly_drained(self) -> dict[TopicPartition, int]:
        """What leaves and nobody works on, and was not told yet."""
        drained: dict[TopicPartition, int] = {}
        for tp, owned in sorted(self._owned.items()):
            is_waited_for = (
                self.waits_for_batch and owned.is_leased and not (owned.is_drain_abandoned or self._is_query_ended)
            )
            if owned.is_draining and not owned.is_reported and not owned.claims_in_progress and not is_waited_for:
                owned.is_reported = True
                drained[tp] = owned.position
        return drained
