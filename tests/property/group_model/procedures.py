"""What members do in ZooKeeper, each step one round trip: what the procedures of ``zk`` come to in the end.

An operation is done on the server at one moment; None comes back when its answer was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeAlias

from tests.property.group_model.zookeeper import Connection, Server
from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member.events import AcquireResult, StoredOffset, WriteOutcome, ZooKeeperWriteResult
from zkconsumer.member.group_view import GroupView, TopicSubscription
from zkconsumer.types import TopicPartition

Procedure: TypeAlias = "Generator[Callable[[Connection], Any], Any, ev.Event]"


class Procedures:
    """The procedures on one server.  ``check_write`` is told of each offset before it is written (found, written)."""

    def __init__(
        self,
        server: Server,
        is_unlucky: Callable[[], bool],
        check_write: Callable[[TopicPartition, int, int], None],
    ) -> None:
        self.server = server
        self._is_unlucky = is_unlucky
        self._check_write = check_write

    def register(self, name: str, command: do.Register) -> Procedure:
        def operation(connection: Connection) -> tuple[int, ...]:
            held = self.server.registrations.get(name)
            if held is not None:
                return (held[0],)
            self.server.registrations[name] = (connection.session_id, command.subscription)
            self.server.fire("ids")
            return (connection.session_id,)

        result = yield operation
        if result is None:
            return ev.RegistrationFailed(command.ticket, "the answer was lost")
        if result[0] == command.session_id:
            return ev.Registered(command.ticket)
        return ev.RegistrationConflict(command.ticket, result[0], 0, "another process")

    def deregister(self, name: str, command: do.Deregister) -> Procedure:
        def operation(connection: Connection) -> bool:
            held = self.server.registrations.get(name)
            if held is not None and held[0] == connection.session_id:
                del self.server.registrations[name]
                self.server.fire("ids")
            return True

        result = yield operation
        return ev.Deregistered(command.ticket, "" if result else "the answer was lost")

    def read_group(self, command: do.ReadGroup) -> Procedure:
        lost = ev.GroupReadFailed(command.ticket, "the answer was lost")

        def list_members(connection: Connection) -> list[str]:
            self.server.watch("ids", connection)
            return list(self.server.registrations)

        def read_members(_: Connection) -> dict[str, TopicSubscription]:
            registrations = self.server.registrations
            return {name: registrations[name][1] for name in names if name in registrations}

        def read_topics(connection: Connection) -> dict[str, tuple[int, ...]]:
            for topic in wanted:
                self.server.watch(f"topic:{topic}", connection)
            known = self.server.topics
            return {topic: tuple(range(known[topic])) for topic in wanted if topic in known}

        def read_owners(_: Connection) -> dict[TopicPartition, str]:
            return {tp: node.thread for tp, node in self.server.owners.items()}

        names = yield list_members
        if names is None:
            return lost
        members = yield read_members
        if members is None:
            return lost
        wanted = set(command.subscription.topics)
        if command.whole_group:
            wanted |= {topic for m in members.values() if m.pattern == "static" for topic in m.topics}
        topics = yield read_topics
        if topics is None:
            return lost
        owners = None
        if command.with_owners:
            owners = yield read_owners
            if owners is None:
                return lost
        return ev.GroupRead(command.ticket, GroupView(members, topics, owners=owners, all_topics=tuple(topics)))

    def list_owners(self, command: do.ListOwners) -> Procedure:
        result = yield lambda connection: self._owned(command.topics, connection, command.own_partitions)
        return ev.OwnersListed(command.ticket, result or {})

    def _owned(
        self, topics: Iterable[str], connection: Connection, mine: Sequence[TopicPartition] = ()
    ) -> dict[str, frozenset[int]]:
        """Which partitions have an owner node; of ``mine``, a node of this session."""
        owned: dict[str, set[int]] = {topic: set() for topic in topics}
        for topic in topics:
            self.server.watch(f"owners:{topic}", connection)
        for tp, node in self.server.owners.items():
            if tp.topic in owned and (tp not in mine or node.session_id == connection.session_id):
                owned[tp.topic].add(tp.partition)
        return {topic: frozenset(numbers) for topic, numbers in owned.items()}

    def claim(self, command: do.AcquireOwnership) -> Procedure:
        results: dict[TopicPartition, AcquireResult] = {}
        unwatched: frozenset[str] = frozenset()
        topics = sorted({tp.topic for tp in command.owners})
        if command.list_owners_first:
            taken = yield lambda connection: self._owned(topics, connection)
            if taken is None:
                taken, unwatched = {}, frozenset(topics)
            for tp in command.owners:
                if tp.partition in taken.get(tp.topic, ()):
                    results[tp] = AcquireResult(WriteOutcome.CONFLICT, why="another member owns it")

        def create(connection: Connection) -> dict[TopicPartition, AcquireResult]:
            made: dict[TopicPartition, AcquireResult] = {}
            for tp, thread in command.owners.items():
                if tp in results:
                    continue
                if tp in self.server.owners:
                    made[tp] = AcquireResult(WriteOutcome.CONFLICT, why="somebody was faster in the same moment")
                elif self._is_unlucky():
                    made[tp] = AcquireResult(WriteOutcome.FAILED, why="bad luck")
                else:
                    made[tp] = AcquireResult(
                        WriteOutcome.DONE, self.server.create_owner(tp, connection.session_id, thread).czxid
                    )
            return made

        made = yield create
        if made is None:
            unsettled = [tp for tp in command.owners if tp not in results]
            made = dict.fromkeys(unsettled, AcquireResult(WriteOutcome.UNKNOWN, why="the answer was lost"))
        return ev.AcquireOwnershipCompleted(command.ticket, results | made, unwatched)

    def read_positions(self, command: do.ReadPositions) -> Procedure:
        def operation(_: Connection) -> tuple[dict[TopicPartition, StoredOffset], dict[TopicPartition, str]]:
            failed = {tp: "bad luck" for tp in command.partitions if self._is_unlucky()}
            read = {tp: self.server.offsets.get(tp, StoredOffset()) for tp in command.partitions if tp not in failed}
            return read, failed

        stored, failed = (yield operation) or ({}, {})
        return ev.PositionsRead(command.ticket, stored, failed)

    def commit(self, command: do.CommitToZooKeeper) -> Procedure:
        def operation(connection: Connection) -> dict[TopicPartition, ZooKeeperWriteResult]:
            return {
                tp: self._write(
                    tp, connection, of.offset, of.stored, releases=False, next_owner=None, is_reset=of.is_reset
                )
                for tp, of in command.offsets.items()
            }

        results = yield operation
        if results is None:
            results = {
                tp: ZooKeeperWriteResult(WriteOutcome.UNKNOWN, of.stored, "lost") for tp, of in command.offsets.items()
            }
        return ev.CommitToZooKeeperCompleted(command.ticket, results)

    def release(self, command: do.ReleaseOwnership) -> Procedure:
        def operation(connection: Connection) -> dict[TopicPartition, ZooKeeperWriteResult]:
            return {
                tp: self._write(
                    tp, connection, of.offset, of.stored, releases=True, next_owner=of.next_owner, is_reset=of.is_reset
                )
                for tp, of in command.partitions.items()
            }

        results = yield operation
        if results is None:
            results = {
                tp: ZooKeeperWriteResult(WriteOutcome.UNKNOWN, of.stored, "lost")
                for tp, of in command.partitions.items()
            }
        return ev.ReleaseOwnershipCompleted(command.ticket, results)

    def _write(
        self,
        tp: TopicPartition,
        connection: Connection,
        offset: int | None,
        known: StoredOffset,
        *,
        releases: bool,
        next_owner: str | None,
        is_reset: bool,
    ) -> ZooKeeperWriteResult:
        """What the procedures of ``zk.writes`` come to in the end, for one partition."""
        node = self.server.owners.get(tp)
        if node is None or node.session_id != connection.session_id:
            return ZooKeeperWriteResult(WriteOutcome.NOT_OWNER, known, "the owner node is not ours")
        if self._is_unlucky():
            return ZooKeeperWriteResult(WriteOutcome.FAILED, known, "bad luck")
        found = self.server.offsets.get(tp, StoredOffset())
        stored, rewound_from = known, None
        is_kept = found.offset == offset or (offset is not None and found.offset > offset and not is_reset)
        if found != known and is_kept:
            stored = found
        elif offset is not None:
            rewound_from = found.offset if found != known and found.offset < known.offset else None
            self._check_write(tp, found.offset, offset)
            stored = self.server.offsets[tp] = StoredOffset(offset, found.version + 1)
        czxid = 0
        if releases:
            self.server.delete_owner(tp)
            if next_owner is not None:
                czxid = self.server.create_owner(tp, connection.session_id, next_owner).czxid
        return ZooKeeperWriteResult(
            WriteOutcome.DONE, stored, "", rewound_from, releases and next_owner is not None, czxid
        )
