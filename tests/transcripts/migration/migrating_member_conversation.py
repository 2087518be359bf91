"""Conversations with a bare ``MigratingMember``: what a transcript of this folder says and hears."""

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


class MemberTalk:
    """One member; after each event what must always hold is checked."""

    def __init__(self) -> None:
        self.member = MigratingMember()
        self.told: dict[TopicPartition, bool] = {}
        """What the holder works on -> whether it hands records out of it."""

    def set(self, line: str) -> None:
        raise BadTranscript("a member of both worlds has no settings")

    def hear(self, text: str) -> list[str]:
        word, _, rest = text.partition(" ")
        try:
            said = self.member.handle(self._event(word, rest.strip()))
        except MigrationError as error:
            return [f"ends: {error}"]
        for command in said:
            self._note(command)
        self._check()
        return [show(command) for command in said] or ["(nothing)"]

    def state(self) -> str:
        partitions = self.member.partitions
        parts = [f"phase={self.member.member_phase.value}"]
        named = {"given": partitions.assigned, "locked": partitions.owned, "running": partitions.running}
        parts += [f"{name}={','.join(map(str, sorted(which)))}" for name, which in named.items() if which]
        return " ".join(parts)

    # --- what must always hold ------------------------------------------------------------------------------------

    def _note(self, command: val.MigratingMemberCommand) -> None:
        """The holder of these conversations: it refuses what a holder cannot do."""
        match command:
            case ownership.StartFetching(positions):
                assert not positions.keys() & self.told.keys(), "started twice"
                self.told.update(dict.fromkeys(positions, True))
            case ownership.Drain(partitions):
                assert all(self.told[tp] for tp in partitions), "drained twice"
                self.told.update(dict.fromkeys(partitions, False))
            case ownership.MoveToThread(threads):
                assert not any(self.told[tp] for tp in threads), "moved while it is handed out"
                self.told.update(dict.fromkeys(threads, True))
            case ownership.DropPartitions(partitions):
                for tp in partitions:
                    del self.told[tp]
            case _:
                pass

    def _check(self) -> None:
        member = self.member
        assert self.told.keys() == member.partitions.running.keys(), "it is known what the holder works on"
        if member.rules.active_side is MembershipSide.ZOOKEEPER:
            assert self.told.keys() <= member.partitions.owned, "nothing is read without our owner node"
        else:
            live = {tp for tp, is_live in self.told.items() if is_live}
            assert live <= member.partitions.assigned.keys(), "nothing is read that the generation does not give"

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
            case "looked":
                return val.ZooKeeperOffsetsRead(_offsets(rest))
            case "commit":
                call, _, names = rest.partition(" ")
                return val.CommitStarted(int(call), frozenset(_names(names)))
            case "committed":
                return val.CommitFinished(int(rest))
            case "written":
                number, _, taken = rest.partition(" ")
                return val.KafkaWriteFinished(int(number), frozenset(_names(taken)))
            case "took":
                return val.KafkaCommitted(_offsets(rest))
            case "read":
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
        case "give-up":
            return ownership.ForceDrain(_names(rest))
        case "drop":
            names, _, why = rest.partition(": ")
            return ownership.DropPartitions(_names(names), why or "released")
        case "move":
            threads = {_partition(name): thread for name, _, thread in (item.partition("=") for item in rest.split())}
            return ownership.MoveToThread(threads, dict.fromkeys(threads, 1))
        case "collect":
            return ownership.CollectPositions()
    raise BadTranscript(f"a side does not tell {word}")


# --- outputs ----------------------------------------------------------------------------------------------------


def show(command: val.MigratingMemberCommand) -> str:
    """A command in one line."""
    match command:
        case val.SendToSide(side, ownership.PartitionsDrained(positions)):
            return f"say {WORDS[side]} drained {_show(positions)}"
        case val.SendToSide(side, ownership.PositionsCollected(positions)):
            return f"say {WORDS[side]} collected {_show(positions) or 'nothing'}"
        case val.SendToSide(side, ownership.OffsetReset(tp, offset)):
            return f"say {WORDS[side]} reset {tp}={offset}"
        case val.SetZooKeeperAssignment(None):
            return f"share: {ZooKeeperAssignment.COMPUTED.value}"
        case val.SetZooKeeperAssignment(threads, new):
            came = f" new {' '.join(map(str, sorted(new)))}" if new else ""
            return f"share: {_show(threads) or 'nothing'}{came}"
        case val.SetCoordinatorProtocols(()):
            return "leave the coordinator's group"
        case val.SetCoordinatorProtocols(protocols):
            return f"join with {' '.join(protocols)}"
        case val.WriteToKafka(number, offsets):
            return f"write {number} to kafka: {_show(offsets)}"
        case val.ReadFromKafka(partitions):
            return f"read from kafka: {' '.join(map(str, sorted(partitions)))}"
        case val.MirrorToZooKeeper(offsets):
            return f"mirror {_show(offsets)}"
        case val.WriteAcknowledgement(None):
            return "take the acknowledgement back"
        case val.WriteAcknowledgement(said):
            told = f"acknowledge {said.migration_id} {said.phase}@{said.epoch} generation={said.generation}"
            return f"{told} behind={said.behind}"
        case _:
            return f"holder: {_show_told(command)}"


def _show_told(command: ownership.PartitionCommand) -> str:
    match command:
        case ownership.StartFetching(positions):
            return f"start {_show(positions)}"
        case ownership.Drain(partitions):
            return f"drain {' '.join(map(str, partitions))}"
        case ownership.ForceDrain(partitions):
            return f"give up drain {' '.join(map(str, partitions))}"
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
