"""A consumer of another library as a process, which writes an event log for ``testing.checker``.

    python -m tests.lab.coordinator_member_program FILE.properties --library confluent|kafka-python --topic
    clicks

It corresponds to ``java/ModernMember.java``: the settings have Kafka's names.  It commits what it has processed, at
every interval, before partitions are revoked, and at the end.

Standard input: "stop" (like SIGTERM: a clean close), "commit".  At the end of the input the starting process has ended,
and this process ends at once.  Exit codes: 0 closed, 3 failed, 137 the end of the input.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.properties import decode_properties, parse_properties
from zkconsumer.testing.checker import (
    Expired,
    HistoryNote,
    HistoryWriter,
    Joined,
    Leaving,
    Left,
    MemberAcquiredPartition,
    MemberDeclared,
    MemberReleasedPartition,
    RecordDelivered,
)
from zkconsumer.testing.sandbox.waiting import pause_ms

EXIT_FAILED = 3
EXIT_ORPHANED = 137
POLL_MS = 50
COMMIT_MS = 5_000
RECONNECT_MAX_MS = 1_000
"""The default of the Java client.  That of kafka-python, 30 s, is longer than a session: after the restart of a broker
the member may be out of its group for half a minute.
"""

NOT_A_MEMBER = frozenset({
    "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID",  # librdkafka
    "CommitFailedError", "UnknownMemberIdError", "IllegalGenerationError",  # kafka-python
})  # fmt: skip
"""What libraries call the errors with which the coordinator rejects a commit of a member that it has removed."""

COOPERATIVE = "cooperative-sticky"
"""The only strategy of kafka-python with which a member keeps partitions while it joins again."""

PartitionId = tuple[str, int]
RecordPosition = tuple[str, int, int]
"""Topic, partition, offset."""


class ClientLibrary(Protocol):
    """What the program needs of a client library."""

    def subscribe(self, topics: Sequence[str], diary: CoordinatorMemberEventLog) -> None:
        """Join; ``diary`` receives assignments."""

    def poll(self) -> Iterable[RecordPosition]:
        """Records that arrived within ``POLL_MS``."""

    def commit(self, offsets: dict[PartitionId, int]) -> bool:
        """Commit; returns whether it succeeded.  Raises what the library raises."""

    def close(self) -> None:
        """Leave."""


class CoordinatorMemberEventLog:
    """The events of this member, line by line, and its processed but uncommitted offsets."""

    def __init__(self, name: str, writer: HistoryWriter) -> None:
        self.name = name
        self.processed: dict[PartitionId, int] = {}
        self.library: ClientLibrary | None = None
        self._writer = writer
        self._owned: set[PartitionId] = set()
        self._has_joined = False

    @property
    def owned(self) -> frozenset[PartitionId]:
        """The partitions that it owns, by its assignment events."""
        return frozenset(self._owned)

    def now_ms(self) -> int:
        return self._writer.now_ms()

    def note(self, text: str) -> None:
        self._writer.write(HistoryNote(self.now_ms(), text))

    def declared(self) -> None:
        self._writer.write(MemberDeclared(self.now_ms(), self.name, "ours", os.getpid()))

    def delivered(self, record: RecordPosition) -> None:
        self._writer.write(RecordDelivered(self.now_ms(), self.name, *record))

    def assigned(self, places: Iterable[PartitionId]) -> None:
        """These partitions were assigned."""
        for place in places:
            self._owned.add(place)
            self._writer.write(MemberAcquiredPartition(self.now_ms(), self.name, *place))
        if not self._has_joined:
            self._has_joined = True
            self._writer.write(Joined(self.now_ms(), self.name))
        self.note(f"assigned {len(self._owned)}")

    def revoked(self, places: Iterable[PartitionId]) -> None:
        """These partitions are revoked; their next owner waits until this returns."""
        self.commit(before_release=True)
        self.release(places)

    def lost(self, places: Iterable[PartitionId]) -> None:
        """These partitions may already have another owner."""
        places = list(places)
        self.note(f"lost {len(places)}")
        self._writer.write(Expired(self.now_ms(), self.name))
        self.release(places)

    def release(self, places: Iterable[PartitionId]) -> None:
        for place in places:
            self.processed.pop(place, None)
            if place in self._owned:
                self._owned.discard(place)
                self._writer.write(MemberReleasedPartition(self.now_ms(), self.name, *place))

    def commit(self, *, before_release: bool = False) -> None:
        """Commit the processed offsets; see ``committing``."""
        assert self.library is not None, "it polls"
        with self.committing(before_release=before_release) as offsets:
            if offsets and not self.library.commit(offsets):
                offsets.clear()

    @contextmanager
    def committing(self, *, before_release: bool = False) -> Iterator[dict[PartitionId, int]]:
        """Yields the processed offsets to commit; an error is logged and not raised, as the next try may succeed.

        Offsets that remain in the dictionary count as committed.  ``before_release``: this is the last commit of these
        partitions.  An error that says that the coordinator removed the member then ends the member's session.  At any
        other time the member keeps its partitions until the library calls ``lost``: older libraries raise the same
        error in each rebalance.
        """
        offsets = dict(self.processed)
        try:
            yield offsets
        except Exception as error:  # noqa: BLE001 (each library has errors of its own)
            self.note(f"not-committed {type(error).__name__}: {error}")
            if before_release and _error_name(error) in NOT_A_MEMBER:
                # The session ended during the callback, so the library does not call ``lost``.
                self._writer.write(Expired(self.now_ms(), self.name))
            return
        for place, offset in offsets.items():
            if self.processed.get(place) == offset:
                del self.processed[place]

    def leaving(self) -> None:
        self._writer.write(Leaving(self.now_ms(), self.name))

    def left(self) -> None:
        self.release(list(self._owned))
        self._writer.write(Left(self.now_ms(), self.name))


def _error_name(error: Exception) -> str:
    """Kafka's name of the error in an exception of librdkafka; of another one, the name of its class."""
    name = getattr(error.args[0] if error.args else None, "name", None)
    return str(name()) if callable(name) else type(error).__name__


class ConfluentLibrary:
    """librdkafka."""

    def __init__(self, settings: dict[str, str]) -> None:
        import confluent_kafka

        self._errors = confluent_kafka.KafkaError
        self._exception = confluent_kafka.KafkaException
        self._place = confluent_kafka.TopicPartition
        self._consumer = confluent_kafka.Consumer(settings)
        self._is_giving_up = False
        self._diary: CoordinatorMemberEventLog | None = None

    def subscribe(self, topics: Sequence[str], diary: CoordinatorMemberEventLog) -> None:
        self._diary = diary

        def places(partitions: Any) -> list[PartitionId]:
            return [(each.topic, each.partition) for each in partitions]

        def revoked(_: object, partitions: Any) -> None:
            self._is_giving_up = True
            diary.revoked(places(partitions))
            self._is_giving_up = False

        self._consumer.subscribe(
            list(topics),
            on_assign=lambda _, partitions: diary.assigned(places(partitions)),
            on_revoke=revoked,
            on_lost=lambda _, partitions: diary.lost(places(partitions)),
        )

    def poll(self) -> Iterable[RecordPosition]:
        message = self._consumer.poll(POLL_MS / 1000)
        if message is None:
            return
        if message.error() is not None:
            assert self._diary is not None, "it subscribed before it polls"
            self._diary.note(f"told {message.error().name()}")
            return
        yield message.topic(), message.partition(), message.offset()

    def commit(self, offsets: dict[PartitionId, int]) -> bool:
        wanted = [self._place(*place, offset) for place, offset in offsets.items()]
        if not self._is_giving_up:
            # A commit that waits never ends when the coordinator goes away and the session is over meanwhile (2.16).
            self._consumer.commit(offsets=wanted, asynchronous=True)
            return False
        for told in self._consumer.commit(offsets=wanted, asynchronous=False):
            if told.error is not None:
                raise self._exception(told.error)
        return True

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonLibrary:
    """kafka-python."""

    STRATEGIES = {  # noqa: RUF012 (a table)
        "range": "kafka.coordinator.assignors.range.RangePartitionAssignor",
        "roundrobin": "kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor",
        COOPERATIVE: "kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor",
    }
    NUMBERS = ("session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "metadata.max.age.ms")

    def __init__(self, settings: dict[str, str]) -> None:
        import importlib

        import kafka

        strategy = settings["partition.assignment.strategy"]
        self._is_eager = strategy != COOPERATIVE
        module, _, name = self.STRATEGIES[strategy].rpartition(".")
        self._kafka = kafka
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=settings["bootstrap.servers"].split(","),
            group_id=settings["group.id"],
            client_id=settings.get("client.id", "kafka-python"),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            reconnect_backoff_max_ms=RECONNECT_MAX_MS,
            partition_assignment_strategy=[getattr(importlib.import_module(module), name)],
            **{key.replace(".", "_"): int(settings[key]) for key in self.NUMBERS if key in settings},
            **({"api_version": _version(settings["api.version"])} if "api.version" in settings else {}),
            **({"group_instance_id": settings["group.instance.id"]} if "group.instance.id" in settings else {}),
        )

    def subscribe(self, topics: Sequence[str], diary: CoordinatorMemberEventLog) -> None:
        coordinator, subscription = self._consumer._coordinator, self._consumer._subscription
        is_eager = self._is_eager

        async def commit(offsets: dict[PartitionId, int]) -> None:
            # A listener runs on the library's own thread, where its blocking commit refuses to be called (3.0).
            await coordinator._commit_offsets_sync_async(self._stored(offsets), timeout_ms=COMMIT_MS)

        class Listener(self._kafka.AsyncConsumerRebalanceListener):  # type: ignore[misc, name-defined]
            async def on_partitions_assigned(self, assigned: Any) -> None:
                # An OffsetFetch that timed out stays here.  Its late response would count for a later assignment of the
                # same partitions, although another member has committed meanwhile (3.0.12; Java checks the generation).
                coordinator._offset_fetch_futures.clear()
                diary.assigned([(each.topic, each.partition) for each in assigned])

            async def on_partitions_revoked(self, revoked: Any) -> None:
                with diary.committing(before_release=True) as offsets:
                    if offsets:
                        await commit(offsets)
                diary.release([(each.topic, each.partition) for each in revoked])
                if is_eager:
                    # They stay assigned until the next assignment, and a partition of both keeps its position.  But if
                    # the group rebalances again before this member has the assignment between the two, another member
                    # reads that partition meanwhile (3.0.12; Java forgets the assignment here).
                    subscription.assign_from_subscribed([])

            async def on_partitions_lost(self, lost: Any) -> None:
                diary.lost([(each.topic, each.partition) for each in lost])

        self._consumer.subscribe(topics=list(topics), listener=Listener())

    def poll(self) -> Iterable[RecordPosition]:
        for place, records in self._consumer.poll(timeout_ms=POLL_MS).items():
            yield from ((place.topic, place.partition, record.offset) for record in records)

    def commit(self, offsets: dict[PartitionId, int]) -> bool:
        self._consumer.commit(self._stored(offsets))
        return True

    def _stored(self, offsets: dict[PartitionId, int]) -> dict[Any, Any]:
        place, stored = self._kafka.TopicPartition, self._kafka.OffsetAndMetadata
        return {place(*where): stored(offset, "", -1) for where, offset in offsets.items()}

    def close(self) -> None:
        self._consumer.close()


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


LIBRARIES: dict[str, Callable[[dict[str, str]], ClientLibrary]] = {
    "confluent": ConfluentLibrary,
    "kafka-python": KafkaPythonLibrary,
}


class CoordinatorMemberProgram:
    """The member: it polls until it is stopped."""

    def __init__(
        self, library: ClientLibrary, diary: CoordinatorMemberEventLog, *, handle_ms: int, commit_ms: int
    ) -> None:
        self._library = library
        self._diary = diary
        self._handle_ms = handle_ms
        self._commit_ms = commit_ms
        self._is_stopping = False
        self._is_commit_asked = False
        diary.library = library

    def run(self, topics: Sequence[str]) -> int:
        """Join, read until stopped, leave; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._end())
        spawn("member-input", self._read_commands, lambda *_: self._end())
        self._diary.declared()
        try:
            self._library.subscribe(topics, self._diary)
            self._read()
            self._diary.leaving()
            self._diary.commit()
            self._library.close()
        except Exception as error:
            logging.getLogger(__name__).exception("failed")
            self._diary.note(f"failed {type(error).__name__}: {error}")
            return EXIT_FAILED
        self._diary.left()
        return 0

    def _read(self) -> None:
        committed_ms = SYSTEM_CLOCK.now_ms()
        while not self._is_stopping:
            for record in self._library.poll():
                self._diary.delivered(record)
                if self._handle_ms:
                    pause_ms(self._handle_ms)
                self._diary.processed[record[:2]] = record[2] + 1
            if self._is_commit_asked:
                self._is_commit_asked = False
                self._diary.commit()
                self._diary.note("committed")
            if SYSTEM_CLOCK.now_ms() - committed_ms >= self._commit_ms:
                committed_ms = SYSTEM_CLOCK.now_ms()
                self._diary.commit()

    def _read_commands(self, _: StopSignal) -> None:
        for line in sys.stdin:
            match line.strip():
                case "stop":
                    self._end()
                case "commit":
                    self._is_commit_asked = True
                case other:
                    self._diary.note(f"misunderstood {other}")
        os._exit(EXIT_ORPHANED)

    def _end(self) -> None:
        self._is_stopping = True


def run_program(
    libraries: Mapping[str, Callable[[dict[str, str]], ClientLibrary]], arguments: Sequence[str] | None
) -> int:
    """Run the program with these libraries; returns its exit code."""
    parser = argparse.ArgumentParser(prog="modern_program", description="A modern member that tells what it does.")
    parser.add_argument("file", type=Path, help="the consumer's settings")
    parser.add_argument("--library", choices=[*libraries], required=True)
    parser.add_argument("--topic", action="append", required=True)
    parser.add_argument("--name", default="member", help="its name in the history")
    parser.add_argument("--handle-ms", type=int, default=0, help="the time that a message takes to process")
    parser.add_argument("--commit-ms", type=int, default=300, help="how often what was processed is committed")
    given = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    faulthandler.register(signal.SIGUSR1)
    settings = parse_properties(decode_properties(given.file.read_bytes()))
    with HistoryWriter(Path("/dev/stdout")) as writer:
        diary = CoordinatorMemberEventLog(given.name, writer)
        library = libraries[given.library](settings)
        program = CoordinatorMemberProgram(library, diary, handle_ms=given.handle_ms, commit_ms=given.commit_ms)
        return program.run(given.topic)


if __name__ == "__main__":
    sys.exit(run_program(LIBRARIES, None))
