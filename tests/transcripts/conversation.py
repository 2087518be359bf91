"""Transcripts of a bare ``MemberStateMachine``: read a transcript, run its inputs, and write its outputs again.

A transcript is a text file.  A line that begins with ``>`` is an input; a line that is indented by two spaces is a
command of the machine; a line that begins with ``=`` shows the state at that point.  People write the inputs and the
comments; the outputs and states are generated.  README.md in this folder describes the language.

After every event the invariants are checked (``tests.property.group_model.member_invariants``), and that every write
names the current session.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.property.group_model import member_invariants
from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member import ownership
from zkconsumer.member.assignment_planner import ZooKeeperAssignmentPlanner
from zkconsumer.member.events import (
    AcquireResult,
    KafkaCommitResult,
    MemberTimer,
    StoredOffset,
    WriteOutcome,
    ZooKeeperWriteResult,
)
from zkconsumer.member.group_settings import GroupSettings
from zkconsumer.member.group_view import ControlRecord, GroupView, TopicSubscription
from zkconsumer.member.member_state_machine import MemberStateMachine
from zkconsumer.member.offset_stores import OffsetStoreSelection
from zkconsumer.types import TopicPartition

HERE = Path(__file__).parent
ME = "me"
CZXID_FIRST = 100
NOTE_LINES_MAX = 30
OUTCOMES = {
    "conflict": WriteOutcome.CONFLICT,
    "not-ours": WriteOutcome.NOT_OWNER,
    "failed": WriteOutcome.FAILED,
    "unknown": WriteOutcome.UNKNOWN,
}
SETTINGS = {
    "member": "member_id",
    "backoff": "rebalance_backoff_ms",
    "debounce": "debounce_ms",
    "drain": "drain_timeout_ms",
    "settle": "release_settle_ms",
    "auto-commit": "auto_commit",
    "commit-interval": "auto_commit_interval_ms",
    "diagnose": "diagnose_after_ms",
    "session-timeout": "session_timeout_ms",
    "listener": "listener_timeout_ms",
    "new-from-beginning": "new_from_beginning",
    "ignore-older-offsets": "ignores_older_offsets",
    "stores": "offset_stores",
    "kafka-timeout": "kafka_timeout_ms",
    "kafka-close-timeout": "kafka_close_timeout_ms",
    "kafka-close-attempts": "kafka_close_attempts",
    "follows-control": "follows_control_znode",
}
READERS: dict[str, Callable[[str], Any]] = {"member": str, "stores": OffsetStoreSelection}


class BadTranscript(Exception):
    """A line of a transcript cannot be understood."""


class Conversation(Protocol):
    """A machine that runs the inputs of a transcript."""

    def set(self, line: str) -> None: ...
    def handle(self, text: str) -> list[str]: ...
    def state(self) -> str: ...


def transcripts(folder: Path = HERE) -> list[Path]:
    """Every transcript of a folder, in the order of their names."""
    return sorted(folder.glob("*.txt"))


def compare(path: Path, generated: str, *, rewrites: bool) -> None:
    """Fail if a transcript differs from its generated text, or write that text."""
    if rewrites:
        path.write_text(generated, encoding="utf-8")
        return
    found = path.read_text(encoding="utf-8")
    if found != generated:
        lines = difflib.unified_diff(
            found.splitlines(), generated.splitlines(), path.name, "generated now", lineterm=""
        )
        pytest.fail("\n".join(lines), pytrace=False)


def rewritten(path: Path, conversation: Conversation | None = None) -> str:
    """The text of the transcript: its inputs and comments, with generated outputs and states."""
    conversation = conversation or MemberConversation()
    lines: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            if line.startswith("  "):
                continue
            if line.startswith("="):
                lines.append(f"= {conversation.state()}")
                continue
            lines.append(line)
            if line.startswith(">"):
                lines += [f"  {answer}" for answer in conversation.handle(line[1:].strip())]
            elif line.startswith("settings "):
                conversation.set(line)
            elif line.strip() and not line.startswith("#"):
                raise BadTranscript("a line is an input (>), a state (=), a comment (#), settings, or empty")
        except Exception as error:
            error.add_note(f"{path.name}, line {number}, after:\n" + "\n".join(lines[-NOTE_LINES_MAX:]))
            raise
    return "\n".join(lines) + "\n"


@dataclass
class MemberConversation:
    """One ``MemberStateMachine``, its clock, its timers and its open requests."""

    settings: dict[str, Any] = field(default_factory=dict)
    strategy: str = "range"
    compatibility: str = "auto"
    now_ms: int = 0

    def __post_init__(self) -> None:
        self._machine: MemberStateMachine | None = None
        self._timers: dict[MemberTimer, int] = {}
        self._asked: dict[type, list[Any]] = {}
        self._czxid = CZXID_FIRST
        self._calls = 0
        self._last_session = 0

    @property
    def machine(self) -> MemberStateMachine:
        """The machine; it is made at the first input."""
        if self._machine is None:
            settings = GroupSettings(**({"member_id": ME} | self.settings))
            planner = ZooKeeperAssignmentPlanner(
                settings.member_id, self.strategy, self.compatibility, exclude_internal_topics=True
            )
            self._machine = MemberStateMachine(settings, planner)
            if "listener_timeout_ms" in self.settings:
                self._machine.handle(ev.ListenerSet(), self.now_ms)
        return self._machine

    # --- the lines of a transcript ------------------------------------------------------------------------------

    def set(self, line: str) -> None:
        """``settings name=value …``, before the first input."""
        if self._machine is not None:
            raise BadTranscript("settings must be before the first input")
        for name, value in _pairs(shlex.split(line)[1:]):
            if name in ("strategy", "compatibility"):
                setattr(self, name, value)
            elif name in SETTINGS:
                self.settings[SETTINGS[name]] = READERS.get(name, _number_or_flag)(value)
            else:
                raise BadTranscript(f"no such setting: {name}")

    def handle(self, text: str) -> list[str]:
        """Run one input and return the commands, one a line."""
        word, _, rest = text.partition(" ")
        if word == "at":
            self.now_ms = int(rest)
            return []
        if word == "already":
            self._already(rest)
            return ["..."]
        commands = [line for event in self._events(word, rest.strip()) for line in self._handle(event)]
        return commands or ["(nothing)"]

    def state(self) -> str:
        """The state of every machine, in one line."""
        machine = self.machine
        by_state: dict[str, list[TopicPartition]] = {}
        for tp, held in sorted(machine.partitions.items()):
            by_state.setdefault(held.state.value, []).append(tp)
        parts = [f"session={machine.session.state.value}", f"membership={machine.membership.state.value}"]
        parts.append(f"rebalance={machine.rebalance.state.value}")
        parts += [f"{state}={','.join(map(str, tps))}" for state, tps in by_state.items()]
        if machine.has_failed:
            parts.append("failed")
        return " ".join(parts)

    # --- the machine --------------------------------------------------------------------------------------------

    def _handle(self, event: ev.Event) -> list[str]:
        commands = self.machine.handle(event, self.now_ms)
        member_invariants.check_invariants(self.machine)
        member_invariants.check_command_order(commands)
        return [show(command) for command in commands if self._note(command)]

    def _note(self, command: do.Command) -> bool:
        """Record the open requests and the timers; False for a command that changes nothing and is not shown."""
        session_id = getattr(command, "session_id", None)
        if session_id is not None:
            assert self.machine.session.live is not None, f"decided without a session: {command}"
            assert self.machine.session.live.session_id == session_id, f"decided in another session: {command}"
        if getattr(command, "ticket", 0):
            self._asked.setdefault(type(command), []).append(command)
        if isinstance(command, do.StartTimer):
            self._timers[command.timer] = self.now_ms + command.delay_ms
        elif isinstance(command, do.StopTimer):
            return self._timers.pop(command.timer, None) is not None
        return True

    def _answered(self, kind: type) -> Any:
        """The oldest open request of this kind."""
        if not self._asked.get(kind):
            raise BadTranscript(f"no {kind.__name__} waits for an answer")
        return self._asked[kind].pop(0)

    def _already(self, text: str) -> None:
        """All steps until the member owns its assignment, not shown.

        ``already <view>``, then the committed offsets: ``at 10@3`` in ZooKeeper, ``at 10@3 kafka 12`` in both stores,
        ``at kafka 12`` in Kafka alone.
        """
        view, _, offsets = text.partition(" at ")
        found = re.fullmatch(r"(?P<znode>\S+@\S+)?(?: ?kafka (?P<kafka>\d+))?", offsets)
        if found is None:
            raise BadTranscript(f"not committed offsets: {offsets!r}")
        at, in_kafka = found["znode"] or "", found["kafka"] or ""
        member = self.machine.settings.member_id
        members = self._view(view).members
        self.handle("connected")
        self.handle(f"join {_show_subscription(members[member])}")
        self.handle("answered sent=0")
        self.handle(f"view {view}")
        self.handle("registered")
        self.handle(f"view {view}")
        if self._asked.get(do.CallBeforeReleasing):
            self.handle("returned")
        self.handle("acquired")
        if self._asked.get(do.CallBeforeStarting):
            self.handle("returned")
        if self._asked.get(do.ReadPositions):
            self.handle(f"positions {f'*={at}' if at else ''}")
        if self._asked.get(do.FetchOffsets):
            self.handle(f"fetched {f'*={in_kafka}' if in_kafka else ''}")

    # --- inputs -------------------------------------------------------------------------------------------------

    def _events(self, word: str, rest: str) -> Iterator[ev.Event]:
        stale = rest.split(" ")[0] == "stale"
        if stale:
            rest = rest.partition(" ")[2]
        handler: Callable[[str], ev.Event] | None = getattr(self, f"_on_{word.replace('-', '_')}", None)
        if handler is None:
            raise BadTranscript(f"no such input: {word}")
        if stale:
            asked = {kind: list(commands) for kind, commands in self._asked.items()}
            event = handler(rest)
            self._asked = asked
            yield type(event)(**{**_fields(event), "ticket": -1})
        else:
            yield handler(rest)

    def _on_connected(self, rest: str) -> ev.Event:
        given = dict(_pairs(rest.split()))
        live = self.machine.session.live
        self._last_session = int(given.get("session", live.session_id if live else self._last_session + 1))
        return ev.SessionConnected(self._last_session, int(given.get("timeout", 6000)))

    def _on_suspended(self, _: str) -> ev.Event:
        return ev.SessionSuspended()

    def _on_lost(self, rest: str) -> ev.Event:
        calls = (do.CallBeforeReleasing, do.CallBeforeStarting)
        self._asked = {kind: asked for kind, asked in self._asked.items() if kind in calls}
        return ev.SessionLost(int(dict(_pairs(rest.split())).get("session", self._last_session)))

    def _on_closed(self, _: str) -> ev.Event:
        return ev.SessionClosed()

    def _on_ended(self, rest: str) -> ev.Event:
        return ev.MembershipEnded(rest)

    def _on_answered(self, rest: str) -> ev.Event:
        given = dict(_pairs(rest.split()))
        return ev.SessionAnswered(int(given.get("session", self._last_session)), int(given.get("sent", self.now_ms)))

    def _on_join(self, rest: str) -> ev.Event:
        return ev.JoinRequested(_subscription(rest.replace(" ", ",")))

    def _on_assignment(self, rest: str) -> ev.Event:
        """``assignment t/0=me-0 [new t/0]``, ``assignment empty``, or ``assignment computed``: no external one."""
        threads, _, new = rest.partition(" new ")
        if threads == "computed":
            return ev.ExternalAssignmentSet(None)
        given = {} if threads == "empty" else {_partition(name): thread for name, thread in _pairs(threads.split())}
        return ev.ExternalAssignmentSet(given, frozenset(_partition(name) for name in new.split()))

    def _on_leave(self, _: str) -> ev.Event:
        return ev.LeaveRequested()

    def _on_registered(self, _: str) -> ev.Event:
        return ev.Registered(self._answered(do.Register).ticket)

    def _on_held_by(self, rest: str) -> ev.Event:
        given = dict(_pairs(rest.split()))
        ticket = self._answered(do.Register).ticket
        return ev.RegistrationConflict(
            ticket, int(given["session"]), int(given.get("age", 0)), given.get("host", "other")
        )

    def _on_not_registered(self, rest: str) -> ev.Event:
        return ev.RegistrationFailed(self._answered(do.Register).ticket, rest)

    def _on_deregistered(self, _: str) -> ev.Event:
        return ev.Deregistered(self._answered(do.Deregister).ticket)

    def _on_not_deregistered(self, rest: str) -> ev.Event:
        return ev.Deregistered(self._answered(do.Deregister).ticket, rest)

    def _on_group_changed(self, rest: str) -> ev.Event:
        return ev.GroupChanged(rest or "ids", is_control=rest == "control")

    def _on_owners_changed(self, rest: str) -> ev.Event:
        return ev.OwnersChanged(rest)

    def _on_view(self, rest: str) -> ev.Event:
        return ev.GroupRead(self._answered(do.ReadGroup).ticket, self._view(rest))

    def _on_unreadable(self, rest: str) -> ev.Event:
        return ev.GroupReadFailed(self._answered(do.ReadGroup).ticket, rest)

    def _on_owners(self, rest: str) -> ev.Event:
        command = self._answered(do.ListOwners)
        owned = {topic: frozenset(_numbers(numbers)) for topic, numbers in _pairs(rest.split())}
        return ev.OwnersListed(command.ticket, owned)

    def _on_acquired(self, rest: str) -> ev.Event:
        command = self._answered(do.AcquireOwnership)
        items = dict(_pairs(shlex.split(rest)))
        unwatched = frozenset(filter(None, items.pop("unwatched", "").split(",")))
        given = self._per_partition(items, command.owners)
        results: dict[TopicPartition, AcquireResult] = {}
        for tp in command.owners:
            kind, _, why = given.get(tp, "done").partition(":")
            if kind in OUTCOMES:
                results[tp] = AcquireResult(OUTCOMES[kind], why=why or "another member owns it")
            else:
                self._czxid += 1
                results[tp] = AcquireResult(WriteOutcome.DONE, self._czxid)
        return ev.AcquireOwnershipCompleted(command.ticket, results, unwatched)

    def _on_positions(self, rest: str) -> ev.Event:
        command = self._answered(do.ReadPositions)
        given = self._per_partition(dict(_pairs(shlex.split(rest))), command.partitions)
        stored: dict[TopicPartition, StoredOffset] = {}
        failed: dict[TopicPartition, str] = {}
        for tp in command.partitions:
            text = given.get(tp, "none")
            if text == "unanswered":
                continue
            if text.startswith("!"):
                failed[tp] = text[1:]
            else:
                stored[tp] = _stored(text)
        return ev.PositionsRead(command.ticket, stored, failed)

    def _on_released(self, rest: str) -> ev.Event:
        command = self._answered(do.ReleaseOwnership)
        given = self._per_partition(dict(_pairs(shlex.split(rest))), command.partitions)
        results: dict[TopicPartition, ZooKeeperWriteResult] = {}
        for tp, part in command.partitions.items():
            written = _written(given.get(tp, "done"), part.offset, part.stored)
            handed_over = written.outcome is WriteOutcome.DONE and part.next_owner is not None
            results[tp] = replace(written, is_thread_changed=handed_over, czxid=command.ticket if handed_over else 0)
        return ev.ReleaseOwnershipCompleted(command.ticket, results)

    def _on_committed(self, rest: str) -> ev.Event:
        command = self._answered(do.CommitToZooKeeper)
        given = self._per_partition(dict(_pairs(shlex.split(rest))), command.offsets)
        results = {tp: _written(given.get(tp, "done"), of.offset, of.stored) for tp, of in command.offsets.items()}
        return ev.CommitToZooKeeperCompleted(command.ticket, results)

    def _on_returned(self, _: str) -> ev.Event:
        return self._listener_came_back("")

    def _on_raised(self, rest: str) -> ev.Event:
        return self._listener_came_back(rest)

    def _listener_came_back(self, why: str) -> ev.Event:
        """The listener is called once at a time, so the input does not name the call."""
        for kind, call in ((do.CallBeforeReleasing, "before_releasing"), (do.CallBeforeStarting, "before_starting")):
            if self._asked.get(kind):
                return ev.ListenerReturned(self._answered(kind).ticket, call, why)
        raise BadTranscript("the listener was not called")

    def _on_fetched(self, rest: str) -> ev.Event:
        command = self._answered(do.FetchOffsets)
        items = dict(_pairs(shlex.split(rest)))
        unsupported = items.pop("unsupported", "")
        given = self._per_partition(items, command.partitions)
        texts = {tp: f"!{unsupported}" if unsupported else given.get(tp, "none") for tp in command.partitions}
        offsets = {tp: -1 if text == "none" else int(text) for tp, text in texts.items() if not text.startswith("!")}
        failed = {tp: text[1:] for tp, text in texts.items() if text.startswith("!")}
        return ev.OffsetsFetched(command.ticket, offsets, failed, unsupported)

    def _on_kafka_committed(self, rest: str) -> ev.Event:
        command = self._answered(do.CommitToKafka)
        given = self._per_partition(dict(_pairs(shlex.split(rest))), command.offsets)
        results = {tp: _written_to_kafka(given.get(tp, "done")) for tp in command.offsets}
        return ev.CommitToKafkaCompleted(command.ticket, results)

    def _on_drained(self, rest: str) -> ev.Event:
        return ownership.PartitionsDrained(_positions(rest))

    def _on_consumed(self, rest: str) -> ev.Event:
        return ownership.PositionsCollected(_positions(rest))

    def _on_commit(self, rest: str) -> ev.Event:
        self._calls += 1
        positions, _, within_ms = rest.partition(" within ")
        until_ms = self.now_ms + int(within_ms) if within_ms else None
        return ev.CommitRequested(self._calls, _positions(positions), until_ms)

    def _on_reset(self, rest: str) -> ev.Event:
        [(tp, offset)] = _positions(rest).items()
        return ownership.OffsetReset(tp, offset)

    def _on_timer(self, rest: str) -> ev.Event:
        """The timer must run; the clock moves to the time at which it is due.  ``late`` fires one that was stopped."""
        name, _, late = rest.partition(" ")
        timer = MemberTimer(name)
        if late != "late":
            if timer not in self._timers:
                raise BadTranscript(f"the timer {name} does not run; running: {[t.value for t in self._timers]}")
            self.now_ms = max(self.now_ms, self._timers.pop(timer))
        return ev.TimerFired(timer)

    # --- values -------------------------------------------------------------------------------------------------

    def _view(self, text: str) -> GroupView:
        """``me{t:2} bad{white_list=a.*:1} | t=0..3 u=0,1 | owners t/0=me-0 | control zookeeper@4:fenced | …``"""
        head, *parts = (part.strip() for part in text.split(" | "))
        members: dict[str, TopicSubscription] = {}
        for item in shlex.split(head):
            name, _, inside = item.partition("{")
            members[name] = _subscription(inside.removesuffix("}"))
        topics: dict[str, tuple[int, ...]] = {}
        more: dict[str, Any] = {}
        for part in parts:
            word, _, rest = part.partition(" ")
            match word:
                case "owners":
                    more["owners"] = {_partition(name): thread for name, thread in _pairs(rest.split())}
                case "control":
                    authority, version, phase = re.split("[@:]", rest)
                    more["control"] = ControlRecord("", 0, phase, "kafka" if authority == "kafka" else "zookeeper", "")
                    more["control_version"] = int(version)
                case "invalid":
                    more["ignored_registrations"] = dict(_pairs(shlex.split(rest)))
                case "czxids":
                    more["topic_czxids"] = {topic: int(zxid) for topic, zxid in _pairs(rest.split())}
                case "missing":
                    more["missing_topics"] = frozenset(rest.split())
                case _:
                    topics |= {topic: tuple(_numbers(numbers)) for topic, numbers in _pairs(part.split())}
        if any(wanted.pattern != "static" for wanted in members.values()):
            more["all_topics"] = tuple(topics)
        return GroupView(members, topics, **more)

    def _per_partition(self, given: Mapping[str, str], asked: Any) -> dict[TopicPartition, str]:
        """The result of each partition; ``*`` is the result of those that are not named."""
        named = {_partition(name): text for name, text in given.items() if name != "*"}
        strangers = sorted(tp for tp in named if tp not in asked)
        if strangers:
            raise BadTranscript(f"not in the request: {', '.join(map(str, strangers))}")
        return (dict.fromkeys(asked, given["*"]) if "*" in given else {}) | named


# --- commands, one line each ------------------------------------------------------------------------------------


def show(command: do.Command) -> str:
    """A command in one line."""
    match command:
        case do.StartTimer(timer, delay_ms):
            return f"start timer {timer.value} {delay_ms}"
        case do.StopTimer(timer):
            return f"stop timer {timer.value}"
        case do.SetLease(until_ms):
            return f"lease until {until_ms}" if until_ms else "no lease"
        case do.LogEvent(level, name, words):
            return f"log {level} {name}: {' / '.join(words.splitlines())}"
        case do.IncrementCounter(name, by):
            return f"count {name} {by}"
        case do.ProbeSession():
            return "probe"
        case do.Register(subscription=subscription):
            return f"register {_show_subscription(subscription)}"
        case do.Deregister():
            return "deregister"
        case do.ReadGroup(subscription=own, whole_group=whole, with_owners=owners):
            wanted = f"{own.pattern}={','.join(own.topics)}" if own.is_filter else ",".join(own.topics)
            return f"read group {wanted}{' whole-group' if whole else ''}{' with-owners' if owners else ''}"
        case do.ListOwners(topics=topics):
            return f"list owners {','.join(topics)}"
        case do.ReadPositions(partitions=partitions):
            return f"read positions {_names(partitions)}"
        case do.FetchOffsets(partitions=partitions, timeout_ms=timeout_ms):
            return f"fetch offsets {_names(partitions)} within {timeout_ms}"
        case do.CommitToKafka(offsets=offsets, attempts=attempts):
            words = [f"{tp}={offset}" for tp, offset in offsets.items()]
            request = f"commit to kafka {' '.join(words)}{f' in {attempts} attempts' if attempts > 1 else ''}"
            return "; ".join([request, *_control(command)])
        case do.CancelKafkaRequest():
            return "cancel kafka"
        case do.AcquireOwnership():
            flags = [name for name in ("list_owners_first", "identify_owners") if getattr(command, name)]
            words = [f"{tp}={thread}" for tp, thread in command.owners.items()]
            return " ".join(["acquire", *words, *(f.replace("_", "-") for f in flags), *_control(command)])
        case do.ReleaseOwnership():
            words = [_show_release(tp, part) for tp, part in command.partitions.items()]
            return "; ".join(["release " + words[0], *words[1:], *_control(command)])
        case do.CommitToZooKeeper():
            words = [f"{tp} {of.stored.offset}->{of.offset}" for tp, of in command.offsets.items()]
            return "; ".join(["commit " + words[0], *words[1:], *_control(command)])
        case ownership.Drain(partitions):
            return f"drain {_names(partitions)}"
        case ownership.ForceDrain(partitions):
            return f"force drain {_names(partitions)}"
        case ownership.DropPartitions(partitions, why):
            return f"drop {_names(partitions)}: {why}"
        case ownership.StartFetching(positions, threads):
            return "fetch " + " ".join(f"{tp}@{at}>{threads[tp]}" for tp, at in positions.items())
        case ownership.MoveToThread(threads):
            return "move " + " ".join(f"{tp}>{thread}" for tp, thread in threads.items())
        case ownership.CollectPositions():
            return "collect positions"
        case do.CallBeforeReleasing(partitions=partitions):
            return f"call before releasing {_names(partitions) or 'nothing'}"
        case do.CallBeforeStarting(assignment=assignment):
            return "call before starting " + " ".join(f"{tp}>{thread}" for tp, thread in assignment.items())
        case do.CallPartitionsLost(partitions):
            return f"call lost {_names(partitions)}"
        case do.CompleteCommit(call, refused):
            reasons = "; ".join(f"{tp}: {why}" for tp, why in refused.items())
            return f"answer commit {call}: {f'not written: {reasons}' if reasons else 'written'}"
        case do.AnnounceAssignment(partitions):
            return f"announce assignment: {partitions}"
        case do.AnnounceLeft(not_released):
            return f"left{', not released: ' + _names(not_released) if not_released else ''}"
        case do.AnnounceControl(None):
            return "control znode: none"
        case do.AnnounceControl(control, version):
            return f"control znode: {control.authority}@{version}:{control.phase}"
        case do.Fail(kind, words):
            return f"FAIL {kind}: {' / '.join(words.splitlines())}"


def _show_release(tp: TopicPartition, part: do.PartitionToRelease) -> str:
    words = [str(tp)]
    if part.verify_owner:
        words.append("(if it is ours)")
    if part.offset is not None:
        words.append(f"{part.stored.offset}->{part.offset}")
    if part.next_owner is not None:
        words.append(f"to {part.next_owner}")
    return " ".join(words)


def _control(command: do.AcquireOwnership | do.ReleaseOwnership | do.CommitToZooKeeper | do.CommitToKafka) -> list[str]:
    return [] if command.control_version is None else [f"control@{command.control_version}"]


def _names(partitions: Any) -> str:
    return " ".join(map(str, partitions))


# --- small parsers ----------------------------------------------------------------------------------------------


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (word.partition("=") for word in words)]


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("/")
    if not topic or not number.isdigit():
        raise BadTranscript(f"not a partition: {name!r}")
    return TopicPartition(topic, int(number))


def _numbers(text: str) -> Iterator[int]:
    """``0..3`` or ``0,1,5`` or nothing."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("..")
        yield from range(int(first), int(last or first) + 1)


def _count(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition(":")
    return name, int(number)


def _subscription(text: str) -> TopicSubscription:
    """``t1:2,t2:1``, or ``white_list=PATTERN:1``."""
    kind, is_list, pattern = text.partition("=")
    if is_list and kind in ("white_list", "black_list"):
        return TopicSubscription(kind, dict([_count(pattern)]))
    return TopicSubscription("static", dict(_count(of) for of in text.split(",") if of))


def _show_subscription(subscription: TopicSubscription, between: str = " ") -> str:
    words = between.join(f"{topic}:{n}" for topic, n in subscription.topics.items())
    return f"{subscription.pattern}={words}" if subscription.is_filter else words


def _stored(text: str) -> StoredOffset:
    """``none``, or ``10@3``: offset and znode version, and perhaps ``10@3!77``: written in that transaction."""
    if text == "none":
        return StoredOffset()
    text, _, zxid = text.partition("!")
    offset, _, version = text.partition("@")
    return StoredOffset(int(offset), int(version or 0), written_zxid=int(zxid or 0))


def _written(text: str, offset: int | None, stored: StoredOffset) -> ZooKeeperWriteResult:
    """``done``, ``rewound:3`` (a 3 was found and replaced), ``kept:20@9`` (was larger already), or an outcome."""
    kind, _, rest = text.partition(":")
    if kind in OUTCOMES:
        return ZooKeeperWriteResult(OUTCOMES[kind], stored, rest or kind)
    if kind == "kept":
        return ZooKeeperWriteResult(WriteOutcome.DONE, _stored(rest))
    after = stored if offset is None else StoredOffset(offset, stored.version + 1)
    if kind == "done":
        return ZooKeeperWriteResult(WriteOutcome.DONE, after)
    if kind == "rewound":
        return ZooKeeperWriteResult(WriteOutcome.DONE, after, rewound_from=int(rest))
    raise BadTranscript(f"not an outcome: {text!r}")


def _written_to_kafka(text: str) -> KafkaCommitResult:
    """``done``, ``final:why``, ``active-group:why``, or an outcome."""
    kind, _, why = text.partition(":")
    if kind == "done":
        return KafkaCommitResult(WriteOutcome.DONE)
    if kind in ("final", "active-group"):
        return KafkaCommitResult(
            WriteOutcome.FAILED, why or kind, is_permanent=True, is_coordinator_group_active=kind == "active-group"
        )
    if kind in OUTCOMES:
        return KafkaCommitResult(OUTCOMES[kind], why or kind)
    raise BadTranscript(f"not an outcome: {text!r}")


def _positions(text: str) -> dict[TopicPartition, int]:
    return {_partition(name): int(offset) for name, offset in _pairs(text.split())}


def _number_or_flag(value: str) -> int | bool:
    return value == "yes" if value in ("yes", "no") else int(value)


def _fields(event: ev.Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in type(event).__slots__}
