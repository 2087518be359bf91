"""The first offset of each leader epoch of a partition (0.11, KIP-101).  Pure.

Batches of format 2 contain the epoch of the leader that stored them, so this state is computed from the log.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEnd(NamedTuple):
    """An epoch, and the first offset that belongs to a later one."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Epochs and their first offsets, both increasing."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def assign(self, epoch: int, first_offset: int) -> None:
        """A batch of this epoch was stored."""
        if epoch >= 0 and (not self._epochs or epoch > self._epochs[-1]):
            self._epochs.append(epoch)
            self._starts.append(first_offset)

    def end_offset_for(self, epoch: int, leader_epoch: int, log_end: int) -> EpochEnd:
        """The end offset for a reader that has read up to ``epoch``, as OffsetForLeaderEpoch answers it.

        ``leader_epoch``: the current one, whose end is that of the log.  A newer one is unknown here.
        """
        if epoch == leader_epoch:
            return EpochEnd(epoch, log_end)
        if epoch > leader_epoch or epoch < 0 or not self._epochs:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        after = bisect_right(self._epochs, epoch)
        if after == 0:
            return EpochEnd(epoch, self._starts[0])
        end = self._starts[after] if after < len(self._starts) else log_end
        return EpochEnd(self._epochs[after - 1], end)
