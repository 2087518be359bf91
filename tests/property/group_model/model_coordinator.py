"""The broker that keeps a group's offsets, and the thread of each process that asks it.

A commit looks at the owner nodes and writes in one moment: the time of one request, in which a real one can be
overtaken, is left out here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member.events import KafkaCommitResult, WriteOutcome
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from tests.property.group_model.model_process import Process
    from tests.property.group_model.simulation import World

ATTEMPT_MS = 10_000
PAUSE_MS = 200


class Coordinator:
    """Its store, and whether it can be reached."""

    def __init__(self, world: World) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.away_until_ms = 0
        self.random = Random(world.seed)
        self._world = world

    @property
    def is_away(self) -> bool:
        return self._world.now_ms < self.away_until_ms

    def fault(self) -> None:
        """It goes away for a while, or not."""
        if self.random.random() < self._world.weather.coordinator:
            self.away_until_ms = self._world.now_ms + self.random.choice([300, 2000, 4000, 12_000])
            self._world.tell("world", f"the coordinator is away for {self.away_until_ms - self._world.now_ms} ms")

    def is_unlucky(self) -> bool:
        return self.random.random() < self._world.weather.refusals


@dataclass(eq=False)
class Job:
    """What was asked; ``run`` gives the answer, or None to be run again after a pause."""

    ticket: int
    deadline_ms: int
    run: Callable[[], ev.Event | None]
    give_up: Callable[[], ev.Event]
    is_cancelled: bool = False


class Channel:
    """One thing after the other, as the real channel does it."""

    def __init__(self, world: World, process: Process, coordinator: Coordinator) -> None:
        self._world = world
        self._process = process
        self._coordinator = coordinator
        self._jobs: deque[Job] = deque()

    def fetch(self, command: do.FetchOffsets) -> None:
        there = self._coordinator

        def run() -> ev.Event:
            failed = {tp: "bad luck" for tp in command.partitions if there.is_unlucky()}
            offsets = {tp: there.offsets.get(tp, -1) for tp in command.partitions if tp not in failed}
            return ev.OffsetsFetched(command.ticket, offsets, failed)

        def give_up() -> ev.Event:
            self._world.sometimes.add("the coordinator does not tell offsets in time")
            return ev.OffsetsFetched(command.ticket, {}, dict.fromkeys(command.partitions, "it is away"))

        self._add(Job(command.ticket, self._world.now_ms + command.timeout_ms, run, give_up))

    def commit(self, command: do.CommitToKafka) -> None:
        attempts = command.attempts
        results: dict[TopicPartition, KafkaCommitResult] = {}

        def run() -> ev.Event | None:
            nonlocal attempts
            attempts -= 1
            for tp, offset in command.offsets.items():
                if tp not in results or results[tp].outcome in (WriteOutcome.FAILED, WriteOutcome.UNKNOWN):
                    was_unsure = tp in results and results[tp].outcome is WriteOutcome.UNKNOWN
                    results[tp] = self._commit(command.session_id, tp, offset)
                    if was_unsure and results[tp].outcome is WriteOutcome.FAILED:
                        results[tp] = replace(results[tp], outcome=WriteOutcome.UNKNOWN)
            again = any(one.outcome in (WriteOutcome.FAILED, WriteOutcome.UNKNOWN) for one in results.values())
            return None if again and attempts > 0 else ev.CommitToKafkaCompleted(command.ticket, dict(results))

        def give_up() -> ev.Event:
            away = KafkaCommitResult(WriteOutcome.FAILED, "it is away")
            return ev.CommitToKafkaCompleted(command.ticket, dict.fromkeys(command.offsets, away) | results)

        self._add(Job(command.ticket, self._world.now_ms + attempts * ATTEMPT_MS, run, give_up))

    def _commit(self, session_id: int, tp: TopicPartition, offset: int) -> KafkaCommitResult:
        world, there = self._world, self._coordinator
        node = world.server.owners.get(tp)
        if not world.server.sessions[session_id].is_alive or node is None or node.session_id != session_id:
            return KafkaCommitResult(WriteOutcome.NOT_OWNER, "the owner node is not ours")
        if there.is_unlucky() or world.now_ms >= self._process.lease_until_ms:
            return KafkaCommitResult(WriteOutcome.FAILED, "bad luck")
        world.check_write(tp, there.offsets.get(tp, -1), offset)
        there.offsets[tp] = offset
        if there.is_unlucky():
            world.sometimes.add("the answer to a commit to Kafka is lost")
            return KafkaCommitResult(WriteOutcome.UNKNOWN, "the answer was lost")
        return KafkaCommitResult(WriteOutcome.DONE)

    def cancel(self, command: do.CancelKafkaRequest) -> None:
        for job in self._jobs:
            job.is_cancelled |= job.ticket == command.cancelled_ticket

    def _add(self, job: Job) -> None:
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._world.at(self._world.now_ms + self._world.delay(), self._go_on)

    def _go_on(self) -> None:
        world, process = self._world, self._process
        while self._jobs and self._jobs[0].is_cancelled:
            self._jobs.popleft()
        if not self._jobs or process.is_dead:
            return
        if process.is_paused:
            process.when_awake(self._go_on)
            return
        job = self._jobs[0]
        answer = None if self._coordinator.is_away else job.run()
        if answer is None and world.now_ms >= job.deadline_ms:
            answer = job.give_up()
        if answer is None:
            world.at(world.now_ms + PAUSE_MS, self._go_on)
            return
        self._jobs.popleft()
        settled = answer
        world.at(world.now_ms + world.delay(), lambda: self._answer(job, settled))
        if self._jobs:
            world.at(world.now_ms + world.delay(), self._go_on)

    def _answer(self, job: Job, answer: ev.Event) -> None:
        if not job.is_cancelled and not self._process.is_dead:
            self._process.enqueue(lambda: self._process.feed(answer))
