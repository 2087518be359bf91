"""Transcripts of a bare ``ConsumerCoordinator``.  README.md in this folder describes the language."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from typing import Any

from tests.coordinator.client_harness import CooperativeDealer, Dealer, Member, group_member
from tests.transcripts.conversation import BadTranscript
from zkconsumer.kafka.group import commands as do
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.events import Failure, Offset
from zkconsumer.kafka.group.pending_commands import RequestKind
from zkconsumer.member import ownership
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import decode_assignment, decode_subscription
from zkconsumer.wire.schemas import APIS, HEARTBEAT, OFFSET_COMMIT
from zkconsumer.wire.schemas.heartbeat import HeartbeatResponse

ASSIGNORS = {"eager": Dealer, "cooperative": CooperativeDealer}
API_OF = {what: next(api for api in APIS.values() if api.name == what.value) for what in RequestKind}


class CoordinatorClientConversation:
    """One ``ConsumerCoordinator``, its clock and its open requests."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}
        self._assignor = "eager"
        self._made: Member | None = None

    @property
    def member(self) -> Member:
        if self._made is None:
            self._made = Member(ASSIGNORS[self._assignor](), **self._settings)
        return self._made

    def set(self, line: str) -> None:
        """``settings name=value …``, before the first input."""
        if self._made is not None:
            raise BadTranscript("settings must be before the first input")
        for name, value in _pairs(shlex.split(line)[1:]):
            match name:
                case "protocol":
                    self._assignor = value
                case "auto-commit":
                    self._settings["auto_commit"] = value == "true"
                case _:
                    self._settings[name.replace(".", "_")] = int(value) if value.isdigit() else value

    def handle(self, text: str) -> list[str]:
        """Run one input and return the commands, one a line."""
        word, *rest = shlex.split(text)
        handler: Callable[[list[str]], list[do.Command]] | None = getattr(self, f"_on_{word.replace('-', '_')}", None)
        if handler is None:
            raise BadTranscript(f"no such input: {word}")
        return [line for command in handler(rest) if (line := show(command))] or ["(nothing)"]

    def state(self) -> str:
        """The state of the member, in one line."""
        machine = self.member.machine
        coordinator = machine.coordinator_discovery.coordinator
        words = [
            machine.state.name,
            f"step={machine.step.value}",
            f"generation={machine.generation.generation_id}",
            f"member={machine.generation.member_id or '-'}",
            f"coordinator={coordinator.id if coordinator else '-'}",
            f"rejoin_needed={str(machine.rejoin_needed).lower()}",
            f"rejoin_needed_or_pending={str(machine.rejoin_needed_or_pending()).lower()}",
        ]
        return " ".join([*words, *(["assigned=" + _show(machine.assigned)] if machine.assigned else [])])

    # --- inputs ---------------------------------------------------------------------------------------------------

    def _on_subscribed(self, topics: list[str]) -> list[do.Command]:
        return self.member.subscribe(*topics)

    def _on_metadata(self, counts: list[str]) -> list[do.Command]:
        known = {topic: int(count) for topic, count in _pairs(counts)}
        return self.member.hear(ev.MetadataUpdated(known, frozenset(known)))

    def _on_polled(self, words: list[str]) -> list[do.Command]:
        given = dict(_pairs(words))
        return self.member.poll(int(given["busy-since"]) if given else None, given.get("stream", ""))

    def _on_found(self, words: list[str]) -> list[do.Command]:
        given = dict(_pairs(words))
        return self.member.find(int(given.get("node", 1)), int(given.get("error", 0)))

    def _on_joined(self, words: list[str]) -> list[do.Command]:
        given = dict(_pairs(words))
        member = given.get("member", "me")
        fields: dict[str, Any] = {"skip_assignment": True} if given.get("skip") == "true" else {}
        if "members" in given:
            fields["members"] = [
                group_member(name, *topics.split("+"))
                for name, _, topics in (row.partition(":") for row in given["members"].split(","))
            ]
        return self.member.joined(int(given.get("generation", 1)), member, given.get("leader", "leader"), **fields)

    def _on_join_refused(self, words: list[str]) -> list[do.Command]:
        return self.member.join_refused(int(words[0]), *words[1:])

    def _on_synced(self, words: list[str]) -> list[do.Command]:
        return self.member.synced(_partitions(words))

    def _on_sync_refused(self, words: list[str]) -> list[do.Command]:
        return self.member.synced(error=int(words[0]))

    def _on_heartbeat_answered(self, words: list[str]) -> list[do.Command]:
        return self.member.answer(HEARTBEAT, HeartbeatResponse(error_code=int(words[0]) if words else 0))

    def _on_committed(self, words: list[str]) -> list[do.Command]:
        return self.member.committed(int(words[0]) if words else 0)

    def _on_left(self, _: list[str]) -> list[do.Command]:
        return self.member.left()

    def _on_positions(self, words: list[str]) -> list[do.Command]:
        return self.member.hear(ownership.PositionsCollected({tp: at.offset for tp, at in _offsets(words).items()}))

    def _on_commit(self, words: list[str]) -> list[do.Command]:
        offsets = _offsets(word for word in words if "=" in word)
        return self.member.hear(ev.CommitAsked(1, offsets, "retried" in words))

    def _on_returned(self, _: list[str]) -> list[do.Command]:
        return self.member.returned()

    def _on_disconnected(self, words: list[str]) -> list[do.Command]:
        return self.member.disconnect(int(words[0]) if words else 1)

    def _on_timed_out(self, words: list[str]) -> list[do.Command]:
        return self.member.fail(API_OF[RequestKind(words[0])], Failure.TIMED_OUT)

    def _on_unsubscribed(self, _: list[str]) -> list[do.Command]:
        return self.member.hear(ev.Unsubscribed())

    def _on_closed(self, _: list[str]) -> list[do.Command]:
        return self.member.hear(ev.Closed())

    def _on_at(self, words: list[str]) -> list[do.Command]:
        return self.member.wait(int(words[0]) - self.member.now_ms)


# --- commands, one line each ----------------------------------------------------------------------------------------


def show(command: do.Command) -> str:
    """A command in one line; timers are not shown."""
    match command:
        case do.Send():
            return f"send {_show_request(command)}"
        case do.ConnectCoordinator(node):
            return f"connect {node.id}"
        case do.DisconnectCoordinator(node):
            return f"disconnect {node}"
        case do.Invoke(_, callback, partitions):
            return f"call {callback.value} {_show(partitions)}".rstrip()
        case ownership.Drain(partitions):
            return f"drain {_show(partitions)}"
        case do.StartPartitions(partitions, generation, new):
            return f"start {_show(partitions)} in generation {generation}{f', new {_show(new)}' if new else ''}"
        case ownership.CollectPositions():
            return "collect positions"
        case do.CommitDone(_, error, refused):
            return f"commit done{_show_error(error)}{' refused ' + _show(refused) if refused else ''}"
        case do.NeedMetadata(topics):
            return f"metadata of {' '.join(sorted(topics or ()))}"
        case do.Raise(error, is_fatal):
            return f"raise{' fatal' if is_fatal else ''} {type(error).__name__}"
        case do.MemberStopped():
            return "stopped"
        case do.LogMemberEvent(what, fields, sentence):
            name = f"{what}: {sentence}" if sentence else what
            return f"log {name} {' '.join(f'{key}={value}' for key, value in fields if value != '')}".rstrip()
        case _:
            return ""


def _show_error(error: Exception | None) -> str:
    return f": {type(error).__name__}" if error else ""


def _show_request(send: do.Send) -> str:
    api, body = APIS[send.api_key], send.body
    words: list[str] = [api.name]
    for field in ("member_id", "generation_id", "generation_id_or_member_epoch", "group_instance_id", "reason"):
        value = getattr(body, field, None)
        if value not in (None, ""):
            words.append(f"{field.partition('_id')[0].replace('_or_member_epoch', '')}={_quoted(value)}")
    if hasattr(body, "protocols"):
        owned = decode_subscription(body.protocols[0].metadata).owned_partitions
        words += [f"owned={_show(owned)}"] if owned else []
    if hasattr(body, "assignments"):
        words += [f"{row.member_id}:{_show(decode_assignment(row.assignment).partitions)}" for row in body.assignments]
    if hasattr(body, "members"):
        words += [f"member={row.member_id} reason={_quoted(row.reason)}" for row in body.members]
    if api is OFFSET_COMMIT:
        words += [
            f"{topic.name}/{row.partition_index}={row.committed_offset}"
            for topic in body.topics
            for row in topic.partitions
        ]
    return " ".join(words) + ("" if send.node is None else f" to {send.node}")


def _quoted(value: object) -> str:
    return f"'{value}'" if " " in str(value) else str(value)


def _show(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, sorted(partitions)))


def _pairs(words: Iterable[str]) -> list[tuple[str, str]]:
    pairs = []
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise BadTranscript(f"{word!r} is not name=value")
        pairs.append((name, value))
    return pairs


def _partition(word: str) -> TopicPartition:
    found = re.fullmatch(r"(\w+)/(\d+)", word)
    if not found:
        raise BadTranscript(f"{word!r} is not topic/partition")
    return TopicPartition(found[1], int(found[2]))


def _partitions(words: Iterable[str]) -> list[TopicPartition]:
    return [_partition(word) for word in words]


def _offsets(words: Iterable[str]) -> dict[TopicPartition, Offset]:
    return {_partition(name): Offset(int(value)) for name, value in _pairs(words)}
