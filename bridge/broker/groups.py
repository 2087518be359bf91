"""One node's group coordinator at work: the machine decides, and here its commands are carried out.

ask --> Request --.                        .--> reply to whoever asked
timer fired ------+--> GroupCoordinator ---+--> append to __consumer_offsets, and say Appended
moved, loaded ----'      (pure)            +--> read a partition, and say Loaded
                                           '--> timers
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from bridge.broker.timers import Scheduler, Timers
from bridge.broker.topics import OFFSETS_TOPIC, Topics
from bridge.coordinator.calls import Call
from bridge.coordinator.commands import Append, CancelTimer, Command, Load, Note, Reply, SetTimer
from bridge.coordinator.events import (
    Appended,
    Elected,
    Event,
    Loaded,
    LogRecord,
    Request,
    Resigned,
    ShutDown,
    TimerFired,
    Token,
    TopicsDeleted,
)
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.kafka.error_codes import KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE, NOT_LEADER_OR_FOLLOWER
from zkconsumer.wire.entries import Record

LOAD_AGAIN_MS = 1_000
"""How long until a partition that could not be read is read again."""

_log = logging.getLogger(__name__)


class Machine(Protocol):
    """``bridge.coordinator.GroupCoordinator``."""

    def handle(self, event: Event, now_ms: int) -> list[Command]:
        """What is to be done now."""


class Groups:
    """The groups of one node.  ``appended`` is told of partitions of the offsets topic that have grown."""

    def __init__(
        self,
        node_id: int,
        machine: Machine,
        topics: Topics,
        scheduler: Scheduler,
        appended: Callable[[str, int, int], None],
    ) -> None:
        self._node_id = node_id
        self._machine = machine
        self._topics = topics
        self._scheduler = scheduler
        self._appended = appended
        self._timers = Timers(scheduler, lambda key, deadline_ms: self.handle(TimerFired(key, deadline_ms)))
        self._waiting: dict[Token, Callable[[Any], None]] = {}
        self._events: deque[Event] = deque()
        self._is_handling = False
        self._next_token = 1
        self.loading_ms = 0

    def ask(self, call: Call, body: Any, reply: Callable[[Any], None]) -> None:
        """Give a request to the machine; ``reply`` is called with its answer."""
        token = self._next_token
        self._next_token += 1
        self._waiting[token] = reply
        self.handle(Request(token, call.api.key, call.version, body, call.client_id, call.client_host))

    def elect(self, partition: int, epoch: int, loading_ms: int = 0) -> None:
        """This node leads the partition now; its groups are not known before ``loading_ms`` have passed."""
        self.loading_ms = loading_ms
        self.handle(Elected(partition, epoch))

    def resign(self, partition: int, epoch: int) -> None:
        """Another node leads the partition now."""
        self.handle(Resigned(partition, epoch))

    def topics_deleted(self, topics: frozenset[str]) -> None:
        """What was stored for these goes too."""
        self.handle(TopicsDeleted(topics))

    def shut_down(self) -> None:
        """What is parked is answered, and nothing fires any more."""
        self.handle(ShutDown())
        self._timers.cancel_all()

    def handle(self, event: Event) -> None:
        """Events one after the other; what a command brings about comes behind what is waiting already."""
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                for command in self._machine.handle(self._events.popleft(), self._scheduler.now_ms()):
                    self._perform(command)
        finally:
            self._is_handling = False

    def _perform(self, command: Command) -> None:
        match command:
            case Reply(token, body):
                self._waiting.pop(token)(body)
            case Append(partition, epoch, records, token):
                self._events.append(self._append(partition, epoch, records, token))
            case Load(partition, epoch):
                self._scheduler.call_in(self.loading_ms, lambda: self._load(partition, epoch))
            case SetTimer(key, deadline_ms):
                self._timers.set(key, deadline_ms)
            case CancelTimer(key):
                self._timers.cancel(key)
            case Note(what, fields):
                # Fifty partitions without a group say nothing to whoever wants to see what groups do.
                level = logging.DEBUG if what == "partition_loaded" and ("groups", 0) in fields else logging.INFO
                _log.log(level, "%s %s", what, " ".join(f"{name}={value}" for name, value in fields))

    def _append(self, partition: int, epoch: int, records: tuple[LogRecord, ...], token: Token) -> Appended:
        led = self._topics.partition(OFFSETS_TOPIC, partition)
        if led is None or led.leader != self._node_id or led.leader_epoch != epoch:
            return Appended(token, NOT_LEADER_OR_FOLLOWER.code)
        wall_ms = self._scheduler.now_ms()
        batch = [Record(at, wall_ms, 0, record.key, record.value) for at, record in enumerate(records)]
        size = sum(len(record.key) + len(record.value or b"") for record in records)
        if size > led.log.settings.rules.message_bytes_max:
            return Appended(token, MESSAGE_TOO_LARGE.code)
        try:
            stored = led.log.append_records(batch, epoch, wall_ms)
        except OSError as error:
            _log.error("offsets_not_stored partition=%d error=%s", partition, error)
            return Appended(token, KAFKA_STORAGE_ERROR.code)
        self._appended(OFFSETS_TOPIC, partition, size)
        return Appended(token, 0, stored.first_offset)

    def _load(self, partition: int, epoch: int) -> None:
        led = self._topics.partition(OFFSETS_TOPIC, partition)
        if led is None or led.leader_epoch != epoch:
            return
        records: list[tuple[int, LogRecord]] = []
        try:
            for record in led.log.records():
                records.append((record.offset, LogRecord(record.key or b"", record.value)))  # noqa: PERF401 (see below)
        except OSError as error:
            # Nothing is known of the groups now, which is not the same as no offsets: they go on loading.
            _log.error("offsets_not_read partition=%d error=%s: read again in %d ms", partition, error, LOAD_AGAIN_MS)
            self._scheduler.call_in(LOAD_AGAIN_MS, lambda: self._load(partition, epoch))
            return
        except (InvalidMessageException, UnsupportedCodec) as error:
            # What was read before stands; the machine is told of it, so that the partition does not load for ever.
            _log.error("offsets_not_read partition=%d error=%s", partition, error)
        self.handle(Loaded(partition, epoch, records))
