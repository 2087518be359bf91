"""The rebalance listener of a program in the model world: quick mostly, now and then too slow, now and then it raises.

Checked with every call: it is never called while it runs, the two calls take turns, what is given back was named, and
what is fetched anew is in the assignment that it was told.  What is dropped without a release is reported as lost,
once, and nothing else is.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.property.group_model.fault_profile import FaultProfile
from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member import ownership
from zkconsumer.member.membership_state_machine import MembershipState
from zkconsumer.member.partition_releaser import DROP_REASON_RELEASED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.property.group_model.model_process import Process
    from zkconsumer.member.topic_count import ConsumerThreadId
    from zkconsumer.types import TopicPartition

RAISES = 0.15
TOO_SLOW = 0.05
TOO_SLOW_MS = 7_000


class ModelListener:
    """One program's listener; its dice are its own, so that histories without listeners stay what they were."""

    def __init__(self, process: Process, seed: int) -> None:
        self.told: Mapping[TopicPartition, ConsumerThreadId] | None = None
        self.is_given_up = False
        """Whether the member has stopped waiting for the call that runs."""
        self._process = process
        self._random = Random(seed)
        self._is_running = self._may_start = self._was_skipped = False
        self._named: set[TopicPartition] = set()
        self._taken_for_ours: set[TopicPartition] = set()
        self._unreported: set[TopicPartition] = set()
        """What was lost, and not reported yet."""

    @property
    def is_out_of_it(self) -> bool:
        """Whether things may happen that it was not told of: it is or was late, or the program is closing."""
        return self._is_running or self._was_skipped or self._process.group.is_leaving

    def skipped(self) -> None:
        """The group goes on without it, because it is late."""
        assert self._is_running, "it could have been called"
        self._was_skipped = True

    def call(self, command: do.CallBeforeReleasing | do.CallBeforeStarting) -> None:
        assert not self._is_running, "it is called while it runs"
        assert not self._unreported, f"the loss of {self._unreported} was not reported"
        assert not self._process.group.is_leaving, "it is called by a program that closes"
        world, process = self._process.world, self._process
        is_fair = world.weather == FaultProfile()
        raises = not is_fair and self._random.random() < RAISES
        takes_ms = TOO_SLOW_MS if not is_fair and self._random.random() < TOO_SLOW else self._random.randint(1, 80)
        self._is_running, self.is_given_up = True, False
        if isinstance(command, do.CallBeforeReleasing):
            call = "before_releasing_partitions"
            self._named |= set(command.partitions)
            streams = [process.streams[tp] for tp in command.partitions if tp in process.streams]
            assert not any(stream.is_live for stream in streams), "what leaves is drained before it is told"
        else:
            call = "before_starting_fetchers"
            assert self._may_start, "a start without a release before it"
            self.told, self._was_skipped = command.assignment, False
            member = process.group.settings.member_id
            self._taken_for_ours = {tp for tp, thread in command.assignment.items() if thread.consumer_id == member}

        def back() -> None:
            self._is_running = False
            # An error that comes too late, or that of a member that must leave the group, keeps nobody: it was told.
            is_too_late = self.is_given_up or process.group.membership.state is MembershipState.LEAVING
            if not raises or is_too_late:
                self._may_start = isinstance(command, do.CallBeforeReleasing)
                self._taken_for_ours -= set(command.partitions) if self._may_start else set()
            world.sometimes.add(f"a listener {'raises' if raises else 'is too slow' if takes_ms > 5000 else 'returns'}")
            process.feed(ev.ListenerReturned(command.ticket, call, "it raised" if raises else ""))

        world.at(world.now_ms + takes_ms, lambda: process.enqueue(back))

    def check_release(self, command: do.ReleaseOwnership) -> None:
        """What is given back was named, unless it was never read."""
        if self.is_out_of_it:
            return
        unnamed = {tp for tp in command.partitions if tp in self._process.streams} - self._named
        assert not unnamed, f"given back without a word: {unnamed}"

    def dropped(self, command: ownership.DropPartitions) -> None:
        """When they come back they must be named again; what is lost must be reported at once."""
        self._named -= set(command.partitions)
        if command.why != DROP_REASON_RELEASED and not self.is_out_of_it:
            self._unreported |= set(command.partitions) & self._taken_for_ours

    def lost(self, command: do.CallPartitionsLost) -> None:
        assert not self._process.group.is_leaving, "it is called by a program that closes"
        assert set(command.partitions) <= self._taken_for_ours, "a start named them, and no release"
        self._taken_for_ours -= set(command.partitions)
        self._unreported -= set(command.partitions)
        self._process.world.sometimes.add("a loss is reported to a listener")

    def check_start(self, command: ownership.StartFetching) -> None:
        """What is read anew was told, with its thread."""
        is_in = self._process.group.membership.state is MembershipState.REGISTERED
        if not self.is_out_of_it and is_in:
            told = {tp: str((self.told or {}).get(tp)) for tp in command.threads}
            assert told == dict(command.threads), f"it was told {told}"
