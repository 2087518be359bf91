"""Runs the group coordinator of one node: the state machine decides, this module executes its commands.

request --> Request --.                    .--> reply to the caller
timer fired ----------+--> GroupCoordinator+--> append to __consumer_offsets, then the event Appended
moved, loaded --------'      (pure)        +--> read a partition, then the event Loaded
                                           '--> timers
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from bridge.broker.client_connection import CLOSE_CONNECTION
from bridge.broker.timers import Scheduler, Timers
from bridge.broker.topic_store import OFFSETS_TOPIC, TopicStore
from bridge.coordinator.api_request import ApiRequest
from bridge.coordinator.commands import (
    Append,
    CancelGroupTimer,
    Command,
    LoadPartition,
    LogGroupEvent,
    SendResponse,
    SetGroupTimer,
)
from bridge.coordinator.events import (
    AppendCompleted,
    CoordinatorRecord,
    Elected,
    Event,
    GroupTimerFired,
    PartitionLoaded,
    RequestReceived,
    Resigned,
    ShutDown,
    Token,
    TopicsDeleted,
)
from bridge.coordinator.group_log_lines import level_of, text_of
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.kafka.error_codes import (
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_SERVER_ERROR,
)
from zkconsumer.wire.entries import Record

LOAD_RETRY_MS = 1_000
"""The delay before an unreadable partition is read again."""

_log = logging.getLogger(__name__)


class CoordinatorStateMachine(Protocol):
    """``bridge.coordinator.GroupCoordinator``."""

    out: list[Command]
    """The commands of the present or last event; also if ``handle`` raised."""

    def handle(self, event: Event, now_ms: int) -> list[Command]:
        """The commands to execute now."""


class CoordinatorRuntime:
    """The groups of one node.  ``on_append`` is called with partitions of the offsets topic that have grown."""

    def __init__(
        self,
        node_id: int,
        machine: CoordinatorStateMachine,
        topics: TopicStore,
        scheduler: Scheduler,
        on_append: Callable[[str, int, int], None],
    ) -> None:
        self._node_id = node_id
        self.machine = machine
        self._topics = topics
        self._scheduler = scheduler
        self._on_offsets_append = on_append
        self._timers = Timers(scheduler, lambda key, deadline_ms: self.handle(GroupTimerFired(key, deadline_ms)))
        self._pending_requests: dict[Token, tuple[ApiRequest, Callable[[Any], None]]] = {}
        self._events: deque[Event] = deque()
        self._is_handling = False
        self._next_token = 1
        self.loading_ms = 0

    def submit(self, call: ApiRequest, body: Any, reply: Callable[[Any], None]) -> None:
        """Submit a request to the state machine; ``reply`` is called with the response."""
        token = self._next_token
        self._next_token += 1
        self._pending_requests[token] = call, reply
        self.handle(RequestReceived(token, call.api.key, call.version, body, call.client_id, call.client_host))

    def elect(self, partition: int, epoch: int, loading_ms: int = 0) -> None:
        """This node leads the partition now; its groups are unknown until ``loading_ms`` have passed."""
        self.loading_ms = loading_ms
        self.handle(Elected(partition, epoch))

    def resign(self, partition: int, epoch: int) -> None:
        """Another node leads the partition now."""
        self.handle(Resigned(partition, epoch))

    def topics_deleted(self, topics: frozenset[str]) -> None:
        """Delete the offsets for these topics too."""
        self.handle(TopicsDeleted(topics))

    def shut_down(self) -> None:
        """Answer waiting requests, and cancel all timers."""
        self.handle(ShutDown())
        self._timers.cancel_all()

    def handle(self, event: Event) -> None:
        """Process events one after the other; an event that a command causes is queued after the waiting ones.

        A bug of ours ends here, with its text in the log.  Commands that were decided before it are executed, because
        the machine continues from there: appends for which it waits are made, others are answered.  The caller's
        connection ends.
        """
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                self._handle_one(self._events.popleft())
        finally:
            self._is_handling = False

    def _handle_one(self, event: Event) -> None:
        has_failed = False
        try:
            commands = self.machine.handle(event, self._scheduler.now_ms())
        except Exception:  # noqa: BLE001 (see above)
            _log.exception("event-failed node=%d event=%s", self._node_id, type(event).__name__)
            has_failed, commands = True, self.machine.out
        for command in commands:
            try:
                self._execute(command)
            except Exception:  # noqa: BLE001 (one failing response must not cost the others theirs)
                _log.exception("command-failed node=%d command=%s", self._node_id, type(command).__name__)
                if isinstance(command, Append):
                    # The machine waits for it, and members wait for the machine.
                    self._events.append(AppendCompleted(command.token, UNKNOWN_SERVER_ERROR.code))
        if has_failed and isinstance(event, RequestReceived) and event.token in self._pending_requests:
            call, _ = self._pending_requests.pop(event.token)
            call.reply(CLOSE_CONNECTION)

    def _execute(self, command: Command) -> None:
        match command:
            case SendResponse(token, body):
                _, reply = self._pending_requests.pop(token)
                reply(body)
            case Append(partition, epoch, records, token):
                self._events.append(self._append(partition, epoch, records, token))
            case LoadPartition(partition, epoch):
                self._scheduler.call_in(self.loading_ms, lambda: self._load(partition, epoch))
            case SetGroupTimer(key, deadline_ms):
                self._timers.set(key, deadline_ms)
            case CancelGroupTimer(key):
                self._timers.cancel(key)
            case LogGroupEvent():
                level = logging.getLevelNamesMapping()[level_of(command)]
                if _log.isEnabledFor(level):
                    name, _, rest = text_of(command).partition(" ")
                    _log.log(level, "%s %s", name, rest)

    def _append(
        self, partition: int, epoch: int, records: tuple[CoordinatorRecord, ...], token: Token
    ) -> AppendCompleted:
        led = self._topics.partition(OFFSETS_TOPIC, partition)
        if led is None or led.leader != self._node_id or led.leader_epoch != epoch:
            return AppendCompleted(token, NOT_LEADER_OR_FOLLOWER.code)
        wall_ms = self._scheduler.now_ms()
        batch = [Record(at, wall_ms, 0, record.key, record.value) for at, record in enumerate(records)]
        size = sum(len(record.key) + len(record.value or b"") for record in records)
        if size > led.log.settings.validation_rules.message_bytes_max:
            return AppendCompleted(token, MESSAGE_TOO_LARGE.code)
        try:
            stored = led.log.append_records(batch, epoch, wall_ms)
        except OSError as error:
            _log.error("offset-append-failed partition=%d error=%s", partition, error)
            return AppendCompleted(token, KAFKA_STORAGE_ERROR.code)
        self._on_offsets_append(OFFSETS_TOPIC, partition, size)
        return AppendCompleted(token, 0, stored.first_offset)

    def _load(self, partition: int, epoch: int) -> None:
        led = self._topics.partition(OFFSETS_TOPIC, partition)
        if led is None or led.leader_epoch != epoch:
            return
        # As after compaction, in the order of the log: the log grows with every commit, its keys do not.
        newest: dict[bytes, tuple[int, CoordinatorRecord]] = {}
        try:
            for record in led.log.records():
                key = record.key or b""
                newest.pop(key, None)
                if record.value is not None:
                    newest[key] = record.offset, CoordinatorRecord(key, record.value)
        except OSError as error:
            # The groups are unknown now, which differs from "no offsets": they stay in the loading state.
            _log.error(
                "offset-log-unreadable partition=%d error=%s: read again in %d ms", partition, error, LOAD_RETRY_MS
            )
            self._scheduler.call_in(LOAD_RETRY_MS, lambda: self._load(partition, epoch))
            return
        except (InvalidMessageException, UnsupportedCodec) as error:
            # Kafka treats the records before the damage as complete, so members begin at older offsets, or at an end of
            # their topics.  It is not read again here: the same bytes would be damaged the next time as well.
            words = "its groups answer 14; stop the broker, and restore the partition's files from a copy"
            _log.error("offset-log-unreadable partition=%d error=%s: %s", partition, error, words)
            return
        self.handle(PartitionLoaded(partition, epoch, list(newest.values())))
