"""Executes the commands of ``member``: one small function for each command.

``ZooKeeperExecutor`` runs the procedures of ``zk`` and turns their results into events; the ``PartitionProcessor``
starts and stops partitions; ``KafkaOffsetStore`` fetches and commits offsets at the group coordinator, if they are
stored in Kafka.  None of them decides or blocks: the answers arrive as events.
"""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args

from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member import ownership
from zkconsumer.member.events import AcquireResult, StoredOffset, WriteOutcome, ZooKeeperWriteResult
from zkconsumer.runtime.member_observer import ZOOKEEPER_STORE
from zkconsumer.zk import conditional_writes, paths
from zkconsumer.zk.acl_denials import DenialCollector
from zkconsumer.zk.group_procedures import (
    AcquireOwnershipProcedure,
    AwaitExternal,
    deregister_member,
    list_owners,
    read_positions,
    register_member,
)
from zkconsumer.zk.member_registration import format_registration, registration_of
from zkconsumer.zk.owner_list_cache import OwnerListCache
from zkconsumer.zk.requests import (
    Exists,
    SetData,
    StoreError,
    WatchFired,
    ZnodeData,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zkconsumer.base.clock import Clock
    from zkconsumer.base.delivery_lease import Lease
    from zkconsumer.member.group_view import GroupView, TopicSubscription
    from zkconsumer.member.ownership import PartitionProcessor
    from zkconsumer.observe.counters import Counters
    from zkconsumer.runtime.kafka_offset_store import KafkaOffsetStore
    from zkconsumer.runtime.listener_calls import ListenerCalls
    from zkconsumer.runtime.member_authorization import MemberAuthorization
    from zkconsumer.runtime.member_event_loop import CommandHandlers, MemberEventLoop
    from zkconsumer.runtime.member_observer import MemberObserver
    from zkconsumer.types import TopicPartition
    from zkconsumer.zk.group_procedures import Procedure
    from zkconsumer.zk.group_reader import GroupReader
    from zkconsumer.zk.requests import Result, StoreEvent
    from zkconsumer.zk.store import ZkStore

T = TypeVar("T")

HOST_LOOKUP_TIMEOUT_MS = 1_000
HOST_UNKNOWN = "unknown: no server answers the four-letter word cons"

log = logging.getLogger("zkconsumer.group")


@dataclass(eq=False, repr=False)
class ZooKeeperExecutor:
    """Registers, reads, acquires, commits and releases in ZooKeeper, for one member of one group."""

    group: str
    member: str
    store: ZkStore
    _: KW_ONLY
    reader: GroupReader
    control: MemberEventLoop
    clock: Clock
    observing: MemberObserver
    rights: MemberAuthorization

    def __post_init__(self) -> None:
        self._hosts: dict[int, str] = {}
        self._ids = paths.ids(self.group)
        self._owners = paths.owners(self.group)
        self._control_path = paths.control(self.group)
        self._owner_lists = OwnerListCache()

    # --- events of the store ------------------------------------------------------------------------------------

    def on_store_event(self, event: StoreEvent) -> None:
        """Called on kazoo's thread: only queues the event."""
        self.control.call_soon(partial(self._store_event, event))

    def _store_event(self, event: StoreEvent) -> None:
        self.observing.session_changed(event)
        if isinstance(event, WatchFired):
            self._watch_fired(event.path)
            return
        # Each of them ends the watches that were set before.
        self.reader.clear()
        self._owner_lists.clear()
        self.control.handle_event(event)

    def _watch_fired(self, path: str) -> None:
        self.reader.invalidate(path)
        parent, _, name = path.rpartition("/")
        if parent == self._owners:
            self._owner_lists.invalidate(name)
            self.control.handle_event(ev.OwnersChanged(name))
        elif path in (self._ids, self._control_path, paths.BROKER_TOPICS) or paths.topic_of(path) is not None:
            self.control.handle_event(ev.GroupChanged(path, is_control=path == self._control_path))

    # --- commands -----------------------------------------------------------------------------------------------

    def probe_session(self, command: do.ProbeSession) -> None:
        """Send a cheap read; the lease counts from the time before it is sent."""
        sent_at_ms = self.clock.now_ms()

        def answered(results: list[Result]) -> None:
            if not isinstance(results[0], StoreError):
                self.control.submit(ev.SessionAnswered(command.session_id, sent_at_ms))

        self.store.submit(command.session_id, [Exists(paths.registration(self.group, self.member))], answered)

    def register(self, command: do.Register) -> None:
        wall_ms = self.clock.wall_ms()
        data = format_registration(registration_of(command.subscription, str(wall_ms)))

        def finish(held: ZnodeData | StoreError | None) -> ev.Event:
            if held is None:
                return ev.Registered(command.ticket)
            if isinstance(held, ZnodeData):
                age_ms = max(0, self.clock.wall_ms() - held.stat.ctime_ms)
                session_id = held.stat.ephemeral_owner
                return ev.RegistrationConflict(command.ticket, session_id, age_ms, self._host_of(session_id))
            return ev.RegistrationFailed(command.ticket, f"{type(held).__name__} {held.path}")

        self._run_and_handle(
            register_member(self.group, self.member, data, command.session_id), command.session_id, finish
        )

    def rewrite_registration(self, subscription: TopicSubscription) -> None:
        """Write this subscription into our registration; from any thread."""
        data = format_registration(registration_of(subscription, str(self.clock.wall_ms())))
        path, session_id = paths.registration(self.group, self.member), self.store.session_id or 0
        changed = ev.GroupChanged("our own registration")
        self.store.submit(session_id, [SetData(path, data)], lambda _: self.control.submit(changed))

    def _host_of(self, session_id: int) -> str:
        """The host of the session that uses our id, or "unknown" until it is found; asks the servers once."""
        if session_id not in self._hosts:
            self._hosts[session_id] = "unknown"

            def look(_: StopSignal) -> None:
                self._hosts[session_id] = self.store.host_of(session_id, HOST_LOOKUP_TIMEOUT_MS) or HOST_UNKNOWN

            spawn(f"{self.member}-who-is-it", look, lambda *_: None)
        return self._hosts[session_id]

    def deregister(self, command: do.Deregister) -> None:
        def finish(error: StoreError | None) -> ev.Event:
            why = "" if error is None else f"{type(error).__name__} {error.path}"
            return ev.Deregistered(command.ticket, why)

        self._run_and_handle(deregister_member(self.group, self.member, command.session_id), command.session_id, finish)

    def read_group(self, command: do.ReadGroup) -> None:
        def finish(view: GroupView | str) -> ev.Event:
            if isinstance(view, str):
                return ev.GroupReadFailed(command.ticket, view)
            return ev.GroupRead(command.ticket, view)

        procedure = self.reader.read(
            command.subscription,
            whole_group=command.whole_group,
            with_owners=command.with_owners,
            owners_max=command.owners_max,
        )
        self._run_and_handle(procedure, command.session_id, finish)

    def list_owners(self, command: do.ListOwners) -> None:
        def finish(owned: Mapping[str, frozenset[int]]) -> ev.Event:
            return ev.OwnersListed(command.ticket, owned)

        procedure = list_owners(
            self.group, command.topics, command.own_partitions, command.session_id, self._owner_lists
        )
        self._run_and_handle(procedure, command.session_id, finish)

    def acquire_ownership(self, command: do.AcquireOwnership) -> None:
        claims = AcquireOwnershipProcedure(
            self.group,
            command.session_id,
            command.owners,
            control_version=command.control_version,
            acl=self.rights.acl,
            owner_lists=self._owner_lists,
        )

        def finish(_: None) -> ev.Event:
            self.rights.on_acquired(claims)
            unsettled = {tp: AcquireResult(WriteOutcome.FAILED, why="not tried") for tp in command.owners}
            return ev.AcquireOwnershipCompleted(command.ticket, unsettled | claims.results, frozenset(claims.unwatched))

        self._run_and_handle(
            claims.run(look_first=command.list_owners_first, look_closely=command.identify_owners),
            command.session_id,
            finish,
        )

    def read_positions(self, command: do.ReadPositions) -> None:
        def finish(
            found: tuple[dict[TopicPartition, StoredOffset], dict[TopicPartition, str]],
        ) -> ev.Event:
            return ev.PositionsRead(command.ticket, *found)

        self._run_and_handle(read_positions(self.group, command.partitions), command.session_id, finish)

    def commit(self, command: do.CommitToZooKeeper) -> None:
        write = partial(conditional_writes.commit_partitions, self.group, command.session_id, command.offsets)
        asked = {tp: of.offset for tp, of in command.offsets.items()}
        self._write_offsets(command, asked, write, ev.CommitToZooKeeperCompleted)

    def release_ownership(self, command: do.ReleaseOwnership) -> None:
        write = partial(conditional_writes.release_partitions, self.group, command.session_id, command.partitions)
        asked = {tp: part.offset for tp, part in command.partitions.items()}
        self._write_offsets(command, asked, write, ev.ReleaseOwnershipCompleted)

    def _write_offsets(
        self,
        command: do.CommitToZooKeeper | do.ReleaseOwnership,
        asked: Mapping[TopicPartition, int | None],
        write: Callable[..., Procedure[dict[TopicPartition, ZooKeeperWriteResult]]],
        completed: Callable[[int, dict[TopicPartition, ZooKeeperWriteResult]], ev.Event],
    ) -> None:
        denials = DenialCollector()

        def finish(results: dict[TopicPartition, ZooKeeperWriteResult]) -> ev.Event:
            self.rights.report_denials(denials)
            self.observing.commit_completed(ZOOKEEPER_STORE, asked, results)
            return completed(command.ticket, results)

        procedure = write(control_version=command.control_version, acl=self.rights.acl, denials=denials)
        self._run_and_handle(procedure, command.session_id, finish)

    def _run_and_handle(self, procedure: Procedure[T], session_id: int, finish: Callable[[T], ev.Event]) -> None:
        self.run_procedure(procedure, session_id, lambda result: self.control.handle_event(finish(result)))

    def run_procedure(self, procedure: Procedure[T], session_id: int, then: Callable[[T], None]) -> None:
        """Run a procedure, one batch of requests at a time; every step, and ``then``, runs on the control thread."""

        def step(results: Any) -> None:
            try:
                requests = procedure.send(results)
            except StopIteration as end:
                then(end.value)
                return
            if isinstance(requests, AwaitExternal):
                requests.start(lambda: self.control.call_soon(partial(step, [])))
            elif requests:
                self.store.submit(session_id, requests, lambda answers: self.control.call_soon(partial(step, answers)))
            else:
                step([])

        self.control.call_soon(partial(step, None))


class MembershipCallbacks(Protocol):
    """Results for which the program waits; the membership implements it."""

    def commit_completed(self, command: do.CompleteCommit) -> None:
        """A call of ``commit_offsets`` is complete."""

    def assignment_complete(self, command: do.AnnounceAssignment) -> None:
        """The member owns all partitions of its assignment."""

    def left(self, command: do.AnnounceLeft) -> None:
        """The member has left the group."""

    def control_changed(self, command: do.AnnounceControl) -> None:
        """The group's control znode was read and has changed."""

    def failed(self, command: do.Fail) -> None:
        """The member cannot continue."""


def command_handlers(
    member: str,
    zookeeper: ZooKeeperExecutor,
    kafka: KafkaOffsetStore | None,
    *,
    processor: PartitionProcessor,
    lease: Lease,
    listener: ListenerCalls,
    counters: Counters,
    callbacks: MembershipCallbacks,
) -> CommandHandlers:
    """The function that executes each command; results for the program go through ``callbacks``."""

    def log_event(command: do.LogEvent) -> None:
        log.log(logging.getLevelName(command.level), "%s member=%s %s", command.name, member, command.message)

    handlers: dict[type, Callable[[Any], None]] = {
        do.ProbeSession: zookeeper.probe_session,
        do.Register: zookeeper.register,
        do.Deregister: zookeeper.deregister,
        do.ReadGroup: zookeeper.read_group,
        do.ListOwners: zookeeper.list_owners,
        do.AcquireOwnership: zookeeper.acquire_ownership,
        do.ReadPositions: zookeeper.read_positions,
        do.CommitToZooKeeper: zookeeper.commit,
        do.ReleaseOwnership: zookeeper.release_ownership,
        do.SetLease: lambda command: lease.set_until(command.until_ms),
        **dict.fromkeys(get_args(ownership.PartitionCommand), processor.execute),
        do.CallBeforeReleasing: listener.call_before_releasing,
        do.CallBeforeStarting: listener.call_before_starting,
        do.CallPartitionsLost: listener.call_partitions_lost,
        do.LogEvent: log_event,
        do.IncrementCounter: lambda command: counters.add(command.name, command.amount),
        do.CompleteCommit: callbacks.commit_completed,
        do.AnnounceAssignment: callbacks.assignment_complete,
        do.AnnounceLeft: callbacks.left,
        do.AnnounceControl: callbacks.control_changed,
        do.Fail: callbacks.failed,
    }
    if kafka is not None:
        handlers |= {
            do.FetchOffsets: kafka.fetch,
            do.CommitToKafka: kafka.commit,
            do.CancelKafkaRequest: kafka.cancel,
        }
    return handlers
