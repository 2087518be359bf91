"""The commits of one member: what is written when, one write at a time.

A commit is decided from consumed positions and from what the offset znodes are known to hold.  While one is under
way its partitions are not released (``in_flight``), because a release writes the same znodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.core import commands as do
from zkconsumer.core.events import Outcome
from zkconsumer.core.partition import PartitionState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zkconsumer.core.commands import Command
    from zkconsumer.core.events import CommitSettled, CommitWanted, Written
    from zkconsumer.core.partition import Partition
    from zkconsumer.types import TopicPartition

NOT_OURS = "the partition is not ours any more"
COMMITTABLE = (PartitionState.FETCHING, PartitionState.DRAINING, PartitionState.DRAINED)


class Commits:
    """At most one commit under way, and the calls that wait for theirs."""

    def __init__(self, partitions: Mapping[TopicPartition, Partition], new_ticket: Callable[[], int]) -> None:
        self.in_flight: dict[TopicPartition, int] = {}
        """What is being written -> how often it had been reset when that was decided."""
        self.calls: list[CommitWanted] = []
        self._partitions = partitions
        self._new_ticket = new_ticket
        self._ticket = 0
        self._call: CommitWanted | None = None
        self._refused: dict[TopicPartition, str] = {}
        self._said_rewound = False

    @property
    def is_busy(self) -> bool:
        """Whether a commit is under way."""
        return bool(self._ticket)

    def send(
        self,
        positions: Mapping[TopicPartition, int],
        session_id: int,
        control_version: int | None,
        call: CommitWanted | None = None,
    ) -> list[Command]:
        """Write what is new in these consumed positions."""
        assert not self._ticket, "one commit at a time: the next one needs the versions that this one makes"
        refused: dict[TopicPartition, str] = {}
        offsets: dict[TopicPartition, do.CommitOf] = {}
        for tp, position in sorted(positions.items()):
            held = self._partitions.get(tp)
            if held is None or not held.is_owned:
                refused[tp] = NOT_OURS
                continue
            offset = held.offset_to_commit(position)
            if offset is None:
                continue
            if held.state in COMMITTABLE:
                offsets[tp] = do.CommitOf(offset, held.stored, held.thread)
            else:
                refused[tp] = NOT_OURS
        if not offsets:
            return [] if call is None else [do.CompleteCommit(call.call, refused)]
        self._ticket = self._new_ticket()
        self._call, self._refused = call, refused
        self.in_flight = {tp: self._partitions[tp].resets for tp in offsets}
        return [do.Commit(self._ticket, session_id, offsets, control_version)]

    def settled(self, event: CommitSettled) -> tuple[list[Command], list[TopicPartition]]:
        """Take the answer in; gives back the commands, and the partitions that turned out not to be ours."""
        if event.ticket != self._ticket:
            return [], []
        self._ticket = 0
        written_after, self.in_flight = self.in_flight, {}
        out: list[Command] = []
        lost: list[TopicPartition] = []
        done = 0
        for tp, written in sorted(event.results.items()):
            out += self.rewound(tp, written)
            held = self._partitions.get(tp)
            if written.outcome is Outcome.DONE:
                done += 1
                if held is not None:
                    held.wrote(written.stored, written_after[tp])
                continue
            self._refused[tp] = written.why
            if written.outcome is Outcome.NOT_OURS:
                lost.append(tp)
            elif written.outcome is Outcome.FAILED:
                out.append(do.Tell("ERROR", "commit-failed", f"partition={tp} why={written.why!r}"))
        counted = (("commits", done), ("commits_failed", len(event.results) - done))
        out += [do.Count(name, by) for name, by in counted if by]
        if self._call is not None:
            out.append(do.CompleteCommit(self._call.call, self._refused))
        self._call = None
        return out, lost

    def forget(self, why: str) -> list[Command]:
        """The session is gone: nothing of this may be written any more, and whoever waits is told."""
        calls = [] if self._call is None else [self._call]
        calls += self.calls
        self.calls, self._call, self._ticket, self.in_flight = [], None, 0, {}
        return [do.CompleteCommit(call.call, dict.fromkeys(call.positions, why)) for call in calls]

    def rewound(self, tp: TopicPartition, written: Written) -> list[Command]:
        """Count, and say once, that somebody who is not the owner had written a smaller offset."""
        if written.rewound_from is None:
            return []
        out: list[Command] = [do.Count("offsets_reasserted")]
        if not self._said_rewound:
            self._said_rewound = True
            words = (
                f"partition={tp} found={written.rewound_from} written_again={written.stored.offset}: somebody who does "
                "not own the partition wrote it (an original member that was paused does so when it wakes)"
            )
            out.append(do.Tell("WARNING", "offset-rewound", words))
        return out
