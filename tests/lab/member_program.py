"""A member of ours as a process of its own, which writes down what it does in the words of ``testing.checker``.

    python -m tests.lab.member_program FILE.properties --topic clicks:2 [--topic …]
    python -m tests.lab.member_program FILE.properties --whitelist 'clicks.*' [--streams 2]

One thread a stream.  Every line is written before its thread asks for the next record, so the history of a process
that was killed lacks nothing.  ``claimed`` and ``released`` are taken from ZooKeeper's answers and not from the
member's own opinion, so that the judge can hold the one against the other.

Standard input: "stop" (as SIGTERM does: a clean close), "commit" (``commit_offsets()``).  Its end means that whoever
started this is gone: the process ends at once, without closing anything.

SIGUSR1 writes where every thread stands to standard error.

Exit codes: 0 closed, 3 the consumer could not start or a stream ended with an error, 137 the end of the input.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from zkconsumer.base.threads import StopSignal, WorkerThread, spawn
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import ConsumerTimeoutException, OffsetsNotCommitted, ZkConsumerError
from zkconsumer.member.topic_filter import Blacklist, TopicFilter, Whitelist
from zkconsumer.properties import decode_properties, parse_properties
from zkconsumer.testing.checker import (
    CommitCalled,
    DrainTimedOut,
    HistoryNote,
    HistoryWriter,
    Joined,
    Leaving,
    Left,
    MemberAcquiredPartition,
    MemberDeclared,
    MemberReleasedPartition,
    RecordConsumed,
)
from zkconsumer.zk import paths
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.requests import CreateOp, DeleteOp, Multi, MultiOk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from zkconsumer.connector_base import ConsumerConnector
    from zkconsumer.streams import KafkaStream
    from zkconsumer.types import TopicPartition
    from zkconsumer.zk.requests import Request, Result, StoreEvent
    from zkconsumer.zk.store import ZkStore

ProgramSettings: TypeAlias = "Mapping[str, str]"
ConnectorFactory: TypeAlias = "Callable[[ProgramSettings, MemberEventLog], ConsumerConnector[Any]]"
"""Make the connector; it writes claims down if it knows them."""

EXIT_FAILED = 3
EXIT_ORPHANED = 137
JOIN_TIMEOUT_MS = 5_000

# What ``HistoryNote`` texts of this program begin with; the checker does not read them, ``PythonMember`` does.
CONNECTED, FAILED, COMMITTED, UNKNOWN_COMMAND = "connected", "failed", "committed", "misunderstood"


class MemberEventLog:
    """What this member did, line by line, and which record each of its threads has in hand."""

    def __init__(self, member: str, writer: HistoryWriter) -> None:
        self.member = member
        self._writer = writer
        self._unacknowledged: dict[int, tuple[str, int]] = {}

    def now_ms(self) -> int:
        return self._writer.now_ms()

    def note(self, word: str, rest: str = "") -> None:
        """A line for people, and for ``PythonMember``."""
        self._writer.write(HistoryNote(self.now_ms(), f"{word} {rest}".strip()))

    def declared(self, consumer_id: str, streams: int) -> None:
        self._writer.write(MemberDeclared(self.now_ms(), self.member, "ours", os.getpid(), consumer_id, streams))

    def joined(self) -> None:
        self._writer.write(Joined(self.now_ms(), self.member))

    def leaving(self) -> None:
        self._writer.write(Leaving(self.now_ms(), self.member))

    def left(self) -> None:
        self._writer.write(Left(self.now_ms(), self.member))

    def commit_called(self) -> None:
        self._writer.write(CommitCalled(self.now_ms(), self.member))

    def delivered(self, thread: int, topic: str, partition: int, offset: int) -> None:
        """A record was returned to this thread."""
        self._unacknowledged[thread] = (topic, partition)
        self._writer.delivered(self.member, topic, partition, offset)

    def consumed(self, thread: int, topic: str, partition: int, offset: int) -> None:
        """This thread is about to ask for the next record."""
        self._writer.write(RecordConsumed(self.now_ms(), self.member, topic, partition, offset))
        self._unacknowledged.pop(thread, None)

    def acquired(self, tp: TopicPartition) -> None:
        self._writer.write(MemberAcquiredPartition(self.now_ms(), self.member, tp.topic, tp.partition))

    def released(self, tp: TopicPartition, *, keeps_it: bool) -> None:
        """An owner node of ours is gone; ``keeps_it``: for another thread of this member."""
        if (tp.topic, tp.partition) in list(self._unacknowledged.values()):
            self._writer.write(DrainTimedOut(self.now_ms(), self.member, tp.topic, tp.partition))
        if not keeps_it:
            self._writer.write(MemberReleasedPartition(self.now_ms(), self.member, tp.topic, tp.partition))


class EventLoggingStore:
    """A ``ZkStore`` that writes claims and releases down when ZooKeeper has answered, before the member acts on it."""

    def __init__(self, store: ZkStore, diary: MemberEventLog, group: str) -> None:
        self._store = store
        self._diary = diary
        self._owners = paths.owners(group) + "/"

    def submit(self, session_id: int | None, requests: Sequence[Request], done: Callable[[list[Result]], None]) -> None:
        def look_and_pass_on(results: list[Result]) -> None:
            for request, result in zip(requests, results, strict=True):
                if isinstance(request, Multi) and isinstance(result, MultiOk):
                    self._log_owner_changes(request)
            done(results)

        self._store.submit(session_id, requests, look_and_pass_on)

    def _log_owner_changes(self, multi: Multi) -> None:
        owners = [op for op in multi.ops if op.path.startswith(self._owners)]
        deleted = {op.path for op in owners if isinstance(op, DeleteOp)}
        created = {op.path for op in owners if isinstance(op, CreateOp)}
        for path in sorted(deleted | created):
            tp = paths.partition_of(path)
            if tp is None:
                continue
            if path in deleted:
                self._diary.released(tp, keeps_it=path in created)
            else:
                self._diary.acquired(tp)

    # --- passed on as it is -------------------------------------------------------------------------------------

    @property
    def session_id(self) -> int | None:
        return self._store.session_id

    @property
    def negotiated_timeout_ms(self) -> int:
        return self._store.negotiated_timeout_ms

    @property
    def packets_sent(self) -> int:
        return self._store.packets_sent

    def listen(self, on_event: Callable[[StoreEvent], None]) -> None:
        self._store.listen(on_event)

    def start(self, timeout_ms: int) -> None:
        self._store.start(timeout_ms)

    def host_of(self, session_id: int, timeout_ms: int) -> str | None:
        return self._store.host_of(session_id, timeout_ms)

    def close(self, timeout_ms: int) -> bool:
        return self._store.close(timeout_ms)


class FilteredSubscription(NamedTuple):
    """A filter instead of topics, and how many streams."""

    topic_filter: TopicFilter
    streams: int


def zookeeper_connector(settings: ProgramSettings, diary: MemberEventLog) -> ConsumerConnector[Any]:
    """A member of ZooKeeper's group, whose claims are written down."""
    config = ConsumerConfig.from_properties(settings)

    def make_store(hosts: str, timeout_ms: int) -> ZkStore:
        return EventLoggingStore(KazooStore(hosts, timeout_ms), diary, config.group_id)

    return ZookeeperConsumerConnector(config, store=make_store)


class MemberProgram:
    """The member: its connector, a thread a stream, and one that obeys."""

    def __init__(
        self, diary: MemberEventLog, connect: ConnectorFactory, *, handle_ms: int, commit_every: int | None
    ) -> None:
        self._diary = diary
        self._connect = connect
        self._handle_ms = handle_ms
        self._commit_every = commit_every
        # A pipe and not an event: a signal is handled in the main thread, which may hold the event's lock just then.
        self._waits, self._wakes = os.pipe()
        self._failed = False
        self._connector: ConsumerConnector[Any] | None = None

    def run(self, settings: ProgramSettings, wanted: dict[str, int] | FilteredSubscription) -> int:
        """Join, read until told to stop, leave; gives the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._end())
        spawn("member-input", self._read_commands, self._died)
        try:
            readers = self._start(settings, wanted)
        except ZkConsumerError as error:
            self._fail(error)
            return EXIT_FAILED
        os.read(self._waits, 1)
        self._stop(readers)
        return EXIT_FAILED if self._failed else 0

    def _start(self, settings: ProgramSettings, wanted: dict[str, int] | FilteredSubscription) -> list[WorkerThread]:
        connector = self._connector = self._connect(settings, self._diary)
        count = wanted.streams if isinstance(wanted, FilteredSubscription) else sum(wanted.values())
        self._diary.declared(connector.consumer_id, max(1, count))
        self._diary.note(CONNECTED, connector.consumer_id)
        if isinstance(wanted, FilteredSubscription):
            rows = connector.create_message_streams_by_filter(wanted.topic_filter, wanted.streams)
        else:
            rows = [stream for row in connector.create_message_streams(wanted).values() for stream in row]
        self._diary.joined()
        return [spawn(f"reader-{n}", self._reader(n, stream), self._died) for n, stream in enumerate(rows)]

    def _stop(self, readers: Sequence[WorkerThread]) -> None:
        assert self._connector is not None, "only what was started is stopped"
        self._diary.leaving()
        self._connector.close()
        for reader in readers:
            reader.join(JOIN_TIMEOUT_MS)
        self._diary.left()

    def _reader(self, number: int, stream: KafkaStream[Any, Any]) -> Callable[[StopSignal], None]:
        def read(stop: StopSignal) -> None:
            iterator = stream.iterator()
            count = 0
            while True:
                try:
                    message = next(iterator)
                except ConsumerTimeoutException:
                    continue
                except StopIteration:
                    return
                place = message.topic, message.partition, message.offset
                self._diary.delivered(number, *place)
                if self._handle_ms:
                    stop.wait(self._handle_ms)
                count += 1
                if self._commit_every is not None and count % self._commit_every == 0:
                    self._commit()
                self._diary.consumed(number, *place)

        return read

    def _commit(self) -> None:
        assert self._connector is not None, "only what was started commits"
        self._diary.commit_called()
        try:
            self._connector.commit_offsets()
        except OffsetsNotCommitted as error:
            # What was not written is handed out again elsewhere; the history shows whether it was.
            self._diary.note("not-committed", str(error))

    def _read_commands(self, _: StopSignal) -> None:
        for line in sys.stdin:
            match line.strip():
                case "stop":
                    self._end()
                case "commit" if self._connector is not None:
                    self._commit()
                    self._diary.note(COMMITTED)
                case other:
                    self._diary.note(UNKNOWN_COMMAND, other)
        os._exit(EXIT_ORPHANED)

    def _end(self) -> None:
        os.write(self._wakes, b".")

    def _died(self, name: str, error: BaseException) -> None:
        logging.getLogger(__name__).error("thread-ended name=%s", name, exc_info=error)
        self._fail(error)
        self._end()

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        self._diary.note(FAILED, f"{type(error).__name__}: {error}")


def parse_topic_threads(text: str) -> tuple[str, int]:
    """``name:threads``, or ``name`` for one."""
    name, colon, threads = text.rpartition(":")
    return (name, int(threads)) if colon else (text, 1)


def main(arguments: Sequence[str] | None = None, connect: ConnectorFactory = zookeeper_connector) -> int:
    """The program with this connector; gives its exit code."""
    parser = argparse.ArgumentParser(prog="member_program", description="A member of a group that tells what it does.")
    parser.add_argument("file", type=Path, help="the consumer's settings")
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--topic", action="append", type=parse_topic_threads, metavar="NAME[:THREADS]")
    wanted.add_argument("--whitelist", type=Whitelist, metavar="PATTERN")
    wanted.add_argument("--blacklist", type=Blacklist, metavar="PATTERN")
    parser.add_argument("--streams", type=int, default=1, help="of a filter")
    parser.add_argument("--name", default="member", help="its name in the history")
    parser.add_argument("--history", type=Path, default=Path("/dev/stdout"), help="where the lines go")
    parser.add_argument("--handle-ms", type=int, default=0, help="the time that a message takes to process")
    parser.add_argument("--commit-every", type=int, help="commit_offsets() after so many messages of a stream")
    parser.add_argument("-v", "--verbose", action="store_true")
    given = parser.parse_args(arguments)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if given.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    faulthandler.register(signal.SIGUSR1)
    with HistoryWriter(given.history) as writer:
        diary = MemberEventLog(given.name, writer)
        program = MemberProgram(diary, connect, handle_ms=given.handle_ms, commit_every=given.commit_every)
        topic_filter = given.whitelist or given.blacklist
        subscription = dict(given.topic) if given.topic else FilteredSubscription(topic_filter, given.streams)
        return program.run(parse_properties(decode_properties(given.file.read_bytes())), subscription)


if __name__ == "__main__":
    sys.exit(main())
