"""Tracks which partitions are ours, which of them a batch leases, and for which other members wait.  Pure.

    start --> owned --lease--> leased --the batch ended, or does not use it--> owned
                |                |
              drain            drain
                v                v
            drained          leaving --the batch ended, the drain was abandoned, or its mode does not wait--> drained

``waits``: whether a leased partition is released only when the batch has ended (``afterBatch``).  In the other modes it
is drained at once: its committed offset is the end of the batch already (``claim``), or is never committed (``none``).
While a claim is being written, its partitions wait in every mode.

A drained partition has a *position*: the offset to commit before the release, -1 for none.
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
    """``offset``: the group's offset when this epoch began, or as committed since; ``position``: the group's offset as
    far as we know.

    ``epochs``: earlier epochs of this ownership, between which no other member owned the partition.
    ``claims_in_progress``: how many claims are being written.
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
    """Every method that may drain partitions returns their positions, each only once."""

    def __init__(self, *, waits_for_batch: bool) -> None:
        self.waits_for_batch = waits_for_batch
        self._owned: dict[TopicPartition, _OwnedPartition] = {}
        self._is_query_ended = False

    # --- calls of the membership ------------------------------------------------------------------------------------

    def add(self, tp: TopicPartition, thread: str, epoch: int, offset: int) -> None:
        """We own the partition from now on."""
        self._owned[tp] = _OwnedPartition(thread, epoch, offset, max(offset, UNSET_POSITION))

    def drain(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Other members, or another thread of ours, wait for these."""
        for tp in partitions:
            self._owned[tp].is_draining = True
        return self._newly_drained()

    def abandon_drain(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The drain no longer waits for the batch; it still waits for a claim that is being written."""
        for tp in partitions:
            if tp in self._owned:
                self._owned[tp].is_drain_abandoned = True
        return self._newly_drained()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """We no longer own these."""
        for tp in partitions:
            self._owned.pop(tp, None)

    def change_thread(self, tp: TopicPartition, thread: str, epoch: int) -> None:
        """The partition stays ours under another thread.  A batch whose drain was abandoned continues with it."""
        old = self._owned[tp]
        epochs = {*old.epochs, old.epoch}
        self._owned[tp] = _OwnedPartition(thread, epoch, old.position, old.position, epochs, is_leased=old.is_leased)

    # --- calls of the query -----------------------------------------------------------------------------------------

    def end_batch(self, ended: Mapping[TopicPartition, BatchEnd]) -> tuple[DrainedPositions, DrainedPositions]:
        """The last batch has ended: returns the offsets to commit now, and the drained partitions with their ends.

        An end counts only under the ownership under which the batch read; no partition is leased any more.
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
        """Lease every partition for which no other member waits to the batch that is planned now."""
        free = {tp: owned for tp, owned in self._owned.items() if not owned.is_draining}
        for owned in free.values():
            owned.is_leased = True
        return {tp: LeasedPartition(owned.epoch, owned.offset) for tp, owned in sorted(free.items())}

    def keep_planned(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The new batch does not use the others."""
        wanted = set(partitions)
        for tp, owned in self._owned.items():
            owned.is_leased = owned.is_leased and tp in wanted
        return self._newly_drained()

    def begin_claim(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Those of these that we own, with their epochs; they are not released before ``end_claim``."""
        held: dict[TopicPartition, int] = {}
        for tp in partitions:
            owned = self._owned.get(tp)
            if owned is not None and not owned.is_draining:
                owned.claims_in_progress += 1
                held[tp] = owned.epoch
        return held

    def end_claim(self, held: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The claim of the partitions that ``begin_claim`` returned is finished: no more writes of it follow."""
        for tp, epoch in held.items():
            owned = self._owned.get(tp)
            if owned is not None and owned.epoch == epoch:
                owned.claims_in_progress -= 1
        return self._newly_drained()

    def set_group_offset(self, tp: TopicPartition, epoch: int, offset: int) -> bool:
        """A claim or a seek has set the group's offset; False: under an ownership that has ended."""
        owned = self._owned.get(tp)
        if owned is None or owned.epoch != epoch:
            return False
        owned.position = owned.offset = offset
        return True

    def end_query(self) -> dict[TopicPartition, int]:
        """No batch leases any partition: a partition that leaves from now on is drained at once."""
        self._is_query_ended = True
        return self._newly_drained()

    # --- queries ----------------------------------------------------------------------------------------------------

    def has(self, tp: TopicPartition, epoch: int) -> bool:
        """Whether we own it, still by this ownership, also while it drains."""
        owned = self._owned.get(tp)
        return owned is not None and owned.epoch == epoch

    @property
    def threads(self) -> dict[TopicPartition, str]:
        """The partitions that we own and that do not drain."""
        return {tp: owned.thread for tp, owned in self._owned.copy().items() if not owned.is_draining}

    @property
    def epochs(self) -> dict[TopicPartition, int]:
        """The same, with epochs."""
        return {tp: owned.epoch for tp, owned in self._owned.copy().items() if not owned.is_draining}

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The group's offsets of our partitions, as far as we know."""
        return {
            tp: owned.position for tp, owned in self._owned.items() if not owned.is_draining and owned.position >= 0
        }

    @property
    def leased(self) -> set[TopicPartition]:
        """The partitions that a batch leases."""
        return {tp for tp, owned in self._owned.copy().items() if owned.is_leased}

    @property
    def draining(self) -> set[TopicPartition]:
        """The partitions for which others wait."""
        return {tp for tp, owned in self._owned.copy().items() if owned.is_draining}

    def __len__(self) -> int:
        return len(self._owned)

    def _newly_drained(self) -> dict[TopicPartition, int]:
        """Drained partitions that were not returned before."""
        drained: dict[TopicPartition, int] = {}
        for tp, owned in sorted(self._owned.items()):
            is_waited_for = (
                self.waits_for_batch and owned.is_leased and not (owned.is_drain_abandoned or self._is_query_ended)
            )
            if owned.is_draining and not owned.is_reported and not owned.claims_in_progress and not is_waited_for:
                owned.is_reported = True
                drained[tp] = owned.position
        return drained
