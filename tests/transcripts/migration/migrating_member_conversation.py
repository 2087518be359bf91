"""Transcripts of a bare ``MigratingMember``.  README.md in this folder describes the language."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from bridge.migration.control.phases import Phase, authority_of
from bridge.migration.dual.machine import machine_messages as val
from bridge.migration.dual.machine.migrating_member import MigratingMember
from bridge.migration.dual.machine.phase_rules import MembershipSide, ZooKeeperAssignment
from tests.transcripts.conversation import BadTranscript
from zkconsumer.errors import MigrationError
from zkconsumer.member import ownership
from zkconsumer.member.offset_stores import OffsetSource
from zkconsumer.types import TopicPartition
from zkconsumer.zk.znode_formats import ControlRecord

SIDES = {"zk": MembershipSide.ZOOKEEPER, "co": MembershipSide.COORDINATOR}
WORDS = {side: word for word, side in SIDES.items()}
THREAD = "me-0"


class MigratingMemberConversation:
    """One member, and the state of its partition processor.  After each event the invariants are checked."""

    def __init__(self) -> None:
        self.member = MigratingMember()
        self.delivers: dict[TopicPartition, bool] = {}
        """Each partition of the processor -> whether its records are delivered; False: it is drained."""

    def set(self, line: str) -> None:
        raise BadTranscript("a migrating member has no settings")

    def handle(self, text: str) -> list[str]:
        word, _, rest = text.partition(" ")
        try:
            commands = self.member.handle(self._event(word, rest.strip()))
        except MigrationError as error:
            return [f"ends: {error}"]
        for command in commands:
            self._note(command)
        self._check()
        return [show(command) for command in commands] or ["(nothing)"]

    def state(self) -> str:
        partitions = self.member.partitions
        parts = [f"phase={self.member.member_phase.value}"]
        named = {"assigned": partitions.assigned, "owned": partitions.owned, "running": partitions.running}
        parts += [f"{name}={','.join(map(str, sorted(which)))}" for name, which in named.items() if which]
        return " ".join(parts)

    # --- invariants -------------------------------------------------------------------------------------------------

    def _note(self, command: val.MigratingMemberCommand) -> None:
        """Change the state of the processor; a command that it cannot execute is an error."""
        match command:
            case ownership.StartFetching(positions):
                assert not positions.keys() & self.delivers.keys(), "started twice"
                self.delivers.update(dict.fromkeys(positions, True))
            case ownership.Drain(partitions):
                assert all(self.delivers[tp] for tp in partitions), "drained twice"
                self.delivers.update(dict.fromkeys(partitions, False))
            case ownership.MoveToThread(threads):
                assert not any(self.delivers[tp] for tp in threads), "moved while its records are delivered"
                self.delivers.update(dict.fromkeys(threads, True))
            case ownership.DropPartitions(partitions):
                for tp in partitions:
                    del self.delivers[tp]
            case _:
                pass

    def _check(self) -> None:
        member = self.member
        assert self.delivers.keys() == member.partitions.running.keys(), (
            "the member has the partitions of the processor"
        )
        if member.rules.active_side is MembershipSide.ZOOKEEPER:
            assert self.delivers.keys() <= member.partitions.owned, "no partition is read without an owner node"
        else:
            live = {tp for tp, is_live in self.delivers.items() if is_live}
            assert live <= member.partitions.assigned.keys(), "no partition is read outside of the assignment"

    # --- inputs ---------------------------------------------------------------------------------------------------

    def _event(self, word: str, rest: str) -> val.MigratingMemberEvent:
        match word:
            case "control":
                return val.ControlChanged(_control(rest))
            case "generation":
                return val.GenerationChanged(int(rest))
            case "zk" | "co":
                return val.SideCommanded(SIDES[word], _command(*rest.partition(" ")[::2]))
            case "drained":
                return ownership.PartitionsDrained(_offsets(rest))
            case "collected":
                return ownership.PositionsCollected(_offsets(rest))
            case "reset":
                [(tp, offset)] = _offsets(rest).items()
                return ownership.OffsetReset(tp, offset)
            case "zookeeper-read":
                return val.ZooKeeperOffsetsRead(_offsets(rest))
            case "commit":
                call, _, names = rest.partition(" ")
                return val.CommitStarted(int(call), frozenset(_names(names)))
            case "committed":
                return val.CommitFinished(int(rest))
            case "written":
                number, _, taken = rest.partition(" ")
                return val.KafkaWriteFinished(int(number), frozenset(_names(taken)))
            case "kafka-committed":
                return val.KafkaCommitted(_offsets(rest))
            case "kafka-read":
                return val.KafkaOffsetsRead(_offsets(rest))
        raise BadTranscript(f"no such input: {word}")


def _control(text: str) -> ControlRecord | None:
    """``locked@3``, ``switched@4 copy`` or ``none``."""
    if text == "none":
        return None
    found = re.fullmatch(r"(?P<phase>\w+)@(?P<epoch>\d+)(?: (?P<strategy>\w+))?", text)
    if found is None:
        raise BadTranscript(f"not a control znode: {text!r}")
    phase = found["phase"]
    authority = authority_of(Phase(phase)) if phase in {each.value for each in Phase} else "zookeeper"
    return ControlRecord("m1", int(found["epoch"]), phase, authority, found["strategy"] or "dual")


def _command(word: str, rest: str) -> ownership.PartitionCommand:
    match word:
        case "start":
            positions = _offsets(rest)
            sources = dict.fromkeys(positions, OffsetSource.NEITHER)
            return ownership.StartFetching(
                positions, dict.fromkeys(positions, THREAD), sources, dict.fromkeys(positions, 1)
            )
        case "drain":
            return ownership.Drain(_names(rest))
        case "force-drain":
            return ownership.ForceDrain(_names(rest))
        case "drop":
            names, _, why = rest.partition(": ")
            return ownership.DropPartitions(_names(names), why or "released")
        case "move":
            threads = {_partition(name): thread for name, _, thread in (item.partition("=") for item in rest.split())}
            return ownership.MoveToThread(threads, dict.fromkeys(threads, 1))
        case "collect":
            return ownership.CollectPositions()
    raise BadTranscript(f"not a command of a side: {word}")


# --- outputs ----------------------------------------------------------------------------------------------------


def show(command: val.MigratingMemberCommand) -> str:
    """A command in one line."""
    match command:
        case val.SendToSide(side, ownership.PartitionsDrained(positions)):
            return f"to {WORDS[side]}: drained {_show(positions)}"
        case val.SendToSide(side, ownership.PositionsCollected(positions)):
            return f"to {WORDS[side]}: collected {_show(positions) or 'nothing'}"
        case val.SendToSide(side, ownership.OffsetReset(tp, offset)):
            return f"to {WORDS[side]}: reset {tp}={offset}"
        case val.SetZooKeeperAssignment(None):
            return f"assignment: {ZooKeeperAssignment.COMPUTED.value}"
        case val.SetZooKeeperAssignment(threads, new):
            came = f" new {' '.join(map(str, sorted(new)))}" if new else ""
            return f"assignment: {_show(threads) or 'empty'}{came}"
        case val.SetCoordinatorProtocols(()):
            return "leave the coordinator group"
        case val.SetCoordinatorProtocols(protocols):
            return f"join with {' '.join(protocols)}"
        case val.WriteToKafka(number, offsets):
            return f"write {number} to kafka: {_show(offsets)}"
        case val.ReadFromKafka(partitions):
            return f"read from kafka: {' '.join(map(str, sorted(partitions)))}"
        case val.MirrorToZooKeeper(offsets):
            return f"mirror {_show(offsets)}"
        case val.WriteAcknowledgement(None):
            return "delete the acknowledgement"
        case val.WriteAcknowledgement(ack):
            words = f"acknowledge {ack.migration_id} {ack.phase}@{ack.epoch} generation={ack.generation}"
            return f"{words} behind={ack.behind}"
        case _:
            return f"processor: {_show_partition_command(command)}"


def _show_partition_command(command: ownership.PartitionCommand) -> str:
    match command:
        case ownership.StartFetching(positions):
            return f"start {_show(positions)}"
        case ownership.Drain(partitions):
            return f"drain {' '.join(map(str, partitions))}"
        case ownership.ForceDrain(partitions):
            return f"force drain {' '.join(map(str, partitions))}"
        case ownership.DropPartitions(partitions, why):
            return f"drop {' '.join(map(str, partitions))}: {why}"
        case ownership.MoveToThread(threads):
            return f"move {_show(threads)}"
        case ownership.CollectPositions():
            return "collect"


def _show(values: Mapping[TopicPartition, object]) -> str:
    return " ".join(f"{tp}={value}" for tp, value in values.items())


def _offsets(text: str) -> dict[TopicPartition, int]:
    return {_partition(name): int(at) for name, _, at in (item.partition("=") for item in shlex.split(text))}


def _names(text: str) -> tuple[TopicPartition, ...]:
    return tuple(_partition(name) for name in text.split())


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("/")
    return TopicPartition(topic, int(number))
