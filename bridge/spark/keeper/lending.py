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

from bridge.spark.membership import Ended, Held
from zkconsumer.types import TopicPartition

NOWHERE = -1

Positions: TypeAlias = "dict[TopicPartition, int]"


@dataclass(slots=True)
class _Owned:
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
    is_lent: bool = False
    claims: int = 0
    is_leaving: bool = False
    is_given_up: bool = False
    is_told: bool = False


class Lending:
    """Every method that may bring partitions to rest gives their positions back, each only once."""

    def __init__(self, *, waits: bool) -> None:
        self.waits = waits
        self._owned: dict[TopicPartition, _Owned] = {}
        self._is_over = False

    # --- what the group says ------------------------------------------------------------------------------------

    def start(self, tp: TopicPartition, thread: str, epoch: int, offset: int) -> None:
        """It is ours from here on."""
        self._owned[tp] = _Owned(thread, epoch, offset, max(offset, NOWHERE))

    def drain(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Others wait for these, or another thread of ours does."""
        for tp in partitions:
            self._owned[tp].is_leaving = True
        return self._at_rest()

    def give_up(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Nobody waits for their batch any longer; a claim that is being written is waited for all the same."""
        for tp in partitions:
            if tp in self._owned:
                self._owned[tp].is_given_up = True
        return self._at_rest()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These are not ours any more."""
        for tp in partitions:
            self._owned.pop(tp, None)

    def move(self, tp: TopicPartition, thread: str, epoch: int) -> None:
        """It stays ours under another thread.  A batch that was given up on goes on with it."""
        old = self._owned[tp]
        epochs = {*old.epochs, old.epoch}
        self._owned[tp] = _Owned(thread, epoch, old.position, old.position, epochs, is_lent=old.is_lent)

    # --- what the query says ------------------------------------------------------------------------------------

    def ended(self, ended: Mapping[TopicPartition, Ended]) -> tuple[Positions, Positions]:
        """The batch before is over: what is to be written now, and what is at rest with its end.

        An end counts only under the ownership under which the batch read; nothing is lent any more.
        """
        counts: list[TopicPartition] = []
        for tp, end in ended.items():
            owned = self._owned.get(tp)
            if self.waits and owned is not None and end.epoch in (owned.epoch, *owned.epochs):
                owned.position = max(owned.position, end.offset)
                counts.append(tp)
        for owned in self._owned.values():
            owned.is_lent = False
        to_write = {tp: self._owned[tp].position for tp in counts if not self._owned[tp].is_leaving}
        return to_write, self._at_rest()

    def lend(self) -> dict[TopicPartition, Held]:
        """Everything that nobody waits for, to the batch that is planned now."""
        free = {tp: owned for tp, owned in self._owned.items() if not owned.is_leaving}
        for owned in free.values():
            owned.is_lent = True
        return {tp: Held(owned.epoch, owned.offset) for tp, owned in sorted(free.items())}

    def planned(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The new batch does without the others."""
        wanted = set(partitions)
        for tp, owned in self._owned.items():
            owned.is_lent = owned.is_lent and tp in wanted
        return self._at_rest()

    def begin_claim(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What of these is ours, with its epoch; it is not given back before ``end_claim``."""
        held: dict[TopicPartition, int] = {}
        for tp in partitions:
            owned = self._owned.get(tp)
            if owned is not None and not owned.is_leaving:
                owned.claims += 1
                held[tp] = owned.epoch
        return held

    def end_claim(self, held: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The claim of what ``begin_claim`` gave was written, or not, and nothing of it will be any more."""
        for tp, epoch in held.items():
            owned = self._owned.get(tp)
            if owned is not None and owned.epoch == epoch:
                owned.claims -= 1
        return self._at_rest()

    def stands_at(self, tp: TopicPartition, epoch: int, offset: int) -> bool:
        """The group's offset was put there, by a claim or a seek; False: under an ownership that is over."""
        owned = self._owned.get(tp)
        if owned is None or owned.epoch != epoch:
            return False
        owned.position = owned.offset = offset
        return True

    def over(self) -> dict[TopicPartition, int]:
        """No batch works on anything any more: what leaves from now on is at rest at once."""
        self._is_over = True
        return self._at_rest()

    # --- what can be seen ---------------------------------------------------------------------------------------

    def has(self, tp: TopicPartition, epoch: int) -> bool:
        """Whether it is ours, and still by this ownership, on its way out or not."""
        owned = self._owned.get(tp)
        return owned is not None and owned.epoch == epoch

    @property
    def threads(self) -> dict[TopicPartition, str]:
        """What is ours and not on its way out."""
        return {tp: owned.thread for tp, owned in self._owned.copy().items() if not owned.is_leaving}

    @property
    def epochs(self) -> dict[TopicPartition, int]:
        """The same, with epochs."""
        return {tp: owned.epoch for tp, owned in self._owned.copy().items() if not owned.is_leaving}

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where the group stands in what is ours, as far as we know."""
        return {tp: owned.position for tp, owned in self._owned.items() if not owned.is_leaving and owned.position >= 0}

    @property
    def lent(self) -> set[TopicPartition]:
        """What a batch works on."""
        return {tp for tp, owned in self._owned.copy().items() if owned.is_lent}

    @property
    def leaving(self) -> set[TopicPartition]:
        """What others wait for."""
        return {tp for tp, owned in self._owned.copy().items() if owned.is_leaving}

    def __len__(self) -> int:
        return len(self._owned)

    def _at_rest(self) -> dict[TopicPartition, int]:
        """What leaves and nobody works on, and was not told yet."""
        rested: dict[TopicPartition, int] = {}
        for tp, owned in sorted(self._owned.items()):
            is_waited_for = self.waits and owned.is_lent and not (owned.is_given_up or self._is_over)
            if owned.is_leaving and not owned.is_told and not owned.claims and not is_waited_for:
                owned.is_told = True
                rested[tp] = owned.position
        return rested
