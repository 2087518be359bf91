"""Every partition of a group in one hand: taking them, writing as their owner, noticing who else comes.

A thin shell around a ``GroupMembership`` of ``consumer.threads=all``, which may be asked by one thread at a time: the
projector's writes and the looks of a takeover take turns here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bridge.spark.membership import Ended, GroupMembership, Holding
from zkconsumer.errors import GroupNotExclusive, OffsetsNotCommitted, WorldError

if TYPE_CHECKING:
    from zkconsumer.types import TopicPartition

log = logging.getLogger("zkconsumer.spark")

SHARE_WAIT_MS = 10_000
"""How long claiming every partition may take, once nobody else is there."""

RECORD_OF_NOBODY = "takeover"
"""Stands for the query where the group's offsets are read; no such query claims anything."""

SOMEBODY_WAITS = "somebody joined the group and waits for its partitions"


class GroupOwner:
    """An ``OffsetSink`` for the projectors of a takeover.  From any thread.

    ``is_reading``: while it is so, nothing is written once somebody waits for partitions.  A write gives them to them,
    and the query may be in the middle of its next batch: it is stopped first.
    """

    def __init__(self, group: str, membership: GroupMembership) -> None:
        self._group = group
        self._membership: GroupMembership | None = membership
        self._asking = threading.Lock()
        self._epochs: dict[TopicPartition, int] = {}
        self._stood: dict[TopicPartition, int] = {}
        self._broken: GroupNotExclusive | None = None
        self.is_reading = True

    @property
    def partitions(self) -> int:
        """How many are held, or were held last."""
        return len(self._epochs)

    def take(self) -> None:
        """Wait until every partition of every topic is held; raises ``GroupNotExclusive`` when one cannot be."""
        with self._asking:
            membership = self._joined()
            holding = membership.begin_batch({}, SHARE_WAIT_MS)
            wanted = sum(holding.topics.values())
            missing = wanted - len(holding.partitions)
            if missing or not holding.is_settled:
                raise GroupNotExclusive(
                    f"{missing} of {wanted} partitions of group {self._group} could not be taken within "
                    f"{SHARE_WAIT_MS} ms: zkconsumer groups doctor {self._group} shows whose owner nodes are in the way"
                )
            self._lend(membership, holding)

    def look(self) -> bool:
        """Whether everything is ours, and nobody waits for it.  Raises why the membership cannot go on."""
        with self._asking:
            membership = self._joined()
            if self._broken is not None:
                raise self._broken
            membership.planned(list(self._epochs))
            seen = membership.observe()
        return seen.get("owned_partitions", 0) >= len(self._epochs) and not seen.get("leaving_partitions", 0)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See ``OffsetSink``.  Raises ``GroupNotExclusive`` for what could not be written before others came."""
        with self._asking:
            membership = self._joined()
            if self.is_reading and membership.observe().get("leaving_partitions", 0):
                raise GroupNotExclusive(f"group {self._group}: {SOMEBODY_WAITS}; the query is stopped first")
            held = {tp: offset for tp, offset in offsets.items() if tp in self._epochs}
            # Also what will turn out not to be written: an answer may be lost, and the write done.
            self._stood |= {tp: max(offset, self._stood.get(tp, offset)) for tp, offset in held.items()}
            lost: GroupNotExclusive | None = None
            try:
                self._end(membership, held)
            except GroupNotExclusive as error:
                lost = error  # What ended is given back with its end: that may be all that was wanted.
            stands = membership.stands(list(held), RECORD_OF_NOBODY)
        behind = {tp: stands[tp].offset for tp, offset in held.items() if stands[tp].offset < offset}
        refused = dict.fromkeys(offsets.keys() - held.keys(), "it is not held yet")
        refused |= {tp: f"the group stands at {offset}" for tp, offset in behind.items()}
        if refused:
            raise lost or OffsetsNotCommitted(refused)

    def close(self) -> None:
        """Of an ``OffsetSink``: nothing; the takeover gives the group back."""

    def give_back(self) -> None:
        """Leave the group; may be called twice."""
        with self._asking:
            membership, self._membership = self._membership, None
            if membership is not None:
                membership.close()
                log.info("takeover-given-back group=%s", self._group)

    # --- with the lock held -------------------------------------------------------------------------------------

    def _joined(self) -> GroupMembership:
        if self._membership is None:
            raise WorldError(f"the takeover of group {self._group} is over")
        return self._membership

    def _end(self, membership: GroupMembership, offsets: Mapping[TopicPartition, int]) -> None:
        epochs = dict(self._epochs)
        holding = membership.begin_batch({tp: Ended(epochs[tp], offset) for tp, offset in offsets.items()}, 0)
        self._lend(membership, holding)
        new = {tp: offset for tp, offset in offsets.items() if self._epochs.get(tp, epochs[tp]) != epochs[tp]}
        if new:
            # A new session of ours, and nobody was there in between: the ends are written under the new epochs.
            ended = {tp: Ended(self._epochs[tp], offset) for tp, offset in new.items()}
            self._lend(membership, membership.begin_batch(ended, 0))

    def _lend(self, membership: GroupMembership, holding: Holding) -> None:
        """All of it is in use until the next word: nothing is given away in the middle of a batch.

        An ownership that is new begins where the group stands.  When that is not where we left it, somebody was there.
        """
        for tp, one in holding.partitions.items():
            if one.epoch != self._epochs.get(tp):
                left = self._stood.get(tp)
                if left is not None and one.offset > left and self._broken is None:
                    self._broken = GroupNotExclusive(
                        f"the takeover of group {self._group} is over: our session with ZooKeeper had ended, and "
                        f"meanwhile somebody moved {tp} to {one.offset}, beyond {left}. What the query read since then "
                        "may have been read by others, too; start a query anew from where the group stands"
                    )
                self._epochs[tp] = one.epoch
                self._stood[tp] = max(one.offset, left or one.offset)
        membership.planned(list(holding.partitions))
        if self._broken is not None:
            raise self._broken
