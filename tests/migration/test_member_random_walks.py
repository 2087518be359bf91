"""A migrating member between two sides and a processor that do anything permitted, in any order, in any phase.

The processor rejects impossible commands, and after every event no partition is read that the active side does not
have: ``MigratingMemberConversation``.  At the end everything that waits gets an answer, once the processor is drained.
"""

from __future__ import annotations

import random

import pytest

from bridge.migration.dual.machine import machine_messages as val
from bridge.migration.dual.machine.migrating_member import MigratingMember
from bridge.migration.dual.machine.phase_rules import MembershipSide, ZooKeeperAssignment
from tests.simulation_seeds import Seeds
from tests.transcripts.migration.migrating_member_conversation import MigratingMemberConversation
from zkconsumer.member import ownership
from zkconsumer.types import TopicPartition

PHASES = ("armed", "ready", "locked", "copied", "switched", "completed", "undoing", "returning", "returned", "undone")
PARTITIONS = tuple(TopicPartition("t", number) for number in range(4))
STEPS = 120
WALKS, NIGHTLY_WALKS = 60, 2_000


class Walk(MigratingMemberConversation):
    """What waits for what: a side for partitions to be drained, the member for its writes and reads."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.waits: dict[MembershipSide, set[TopicPartition]] = {side: set() for side in MembershipSide}
        self.writes: dict[int, set[TopicPartition]] = {}
        self.collections = {MembershipSide.ZOOKEEPER: 0, MembershipSide.COORDINATOR: 0}
        self.asked_of_holder = 0
        self.story: list[str] = []

    def does(self, line: str) -> None:
        self.story.append(line)
        self.story += [f"    {said}" for said in self.handle(line)]

    def _note(self, command: val.MigratingMemberCommand) -> None:
        super()._note(command)
        match command:
            case val.SendToSide(side, ownership.PartitionsDrained(positions)):
                assert positions.keys() <= self.waits[side], "nobody is told of what he did not ask"
                self.waits[side] -= positions.keys()
            case val.SendToSide(MembershipSide.COORDINATOR, ownership.PositionsCollected()):
                self.collections[MembershipSide.COORDINATOR] -= 1
            case val.WriteToKafka(number, offsets):
                self.writes[number] = set(offsets)
            case ownership.CollectPositions():
                self.asked_of_holder += 1
            case _:
                pass

    # --- what may happen now ----------------------------------------------------------------------------------------

    def step(self) -> None:
        tp = self.random.choice(PARTITIONS)
        co, zk = self.waits[MembershipSide.COORDINATOR], self.waits[MembershipSide.ZOOKEEPER]
        may = [f"control {self.random.choice(PHASES)}@{self.random.randrange(3)}", "generation 4"]
        if tp in self.member.partitions.assigned and tp not in co:
            may += [f"co drain {tp}"] * 2
            may += [f"co drop {tp}"]
        elif tp not in self.member.partitions.assigned and tp not in co:
            may += [f"co start {tp}={self.random.choice((-2, -1, 7))}"] * 3
        elif tp in co:
            may += [f"co force-drain {tp}"]
        if tp not in self.member.partitions.owned:
            may += [f"zk start {tp}=5"] * 3
        elif tp in zk:
            may += [f"zk force-drain {tp}"]
        else:
            may += [f"zk drain {tp}", f"zk drop {tp}: lost", f"zookeeper-read {tp}=6"]
        if self.delivers.get(tp) is False:
            may += [f"drained {tp}=9"] * 4
        may += [f"written {number} {tp if tp in of else ''}".strip() for number, of in self.writes.items()]
        may += ["collected t/0=8 t/1=8"] * (2 * bool(self.asked_of_holder))
        may += [f"{word} collect" for word in ("zk", "co")] + [f"kafka-committed {tp}=8", f"kafka-read {tp}=8"]
        self.do(self.random.choice(may))

    def do(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        match word:
            case "co" | "zk":
                side = MembershipSide.COORDINATOR if word == "co" else MembershipSide.ZOOKEEPER
                what, _, names = rest.partition(" ")
                if what == "drain":
                    self.waits[side].add(next(tp for tp in PARTITIONS if str(tp) == names))
                elif what == "collect":
                    self.collections[side] += 1
            case "written":
                del self.writes[int(rest.split()[0])]
            case "collected":
                self.asked_of_holder -= 1
        if line.startswith("zk drop"):
            self.waits[MembershipSide.ZOOKEEPER] = {
                tp for tp in self.waits[MembershipSide.ZOOKEEPER] if str(tp) not in line
            }
        self.does(line)

    def settle(self) -> None:
        """All answer: the processor, Kafka, and ZooKeeper's side, which releases the drained partitions."""
        for _ in range(6):
            for tp, is_live in list(self.delivers.items()):
                if not is_live:
                    self.do(f"drained {tp}=9")
            for number, offsets in list(self.writes.items()):
                self.do(f"written {number} {' '.join(map(str, offsets))}")
            while self.asked_of_holder:
                self.do("collected t/0=8")
            for tp in self._surplus():
                self.do(f"zk drain {tp}")
            for tp in self._surplus():
                self.do(f"zk drop {tp}")

    def idle(self) -> list[TopicPartition]:
        """What is drained although the member keeps it.  Not what the ZooKeeper side, when active, knows."""
        partitions, rules = self.member.partitions, self.member.rules
        keeps_all = rules.zookeeper_assignment is ZooKeeperAssignment.COMPUTED
        return [
            tp
            for tp, is_live in self.delivers.items()
            if not is_live and not partitions[tp].is_answered and (keeps_all or partitions.is_assigned(tp))
        ]

    def _surplus(self) -> list[TopicPartition]:
        """What ZooKeeper's side owns without an assignment, and does not drain; nothing where it computes that."""
        partitions = self.member.partitions
        if self.member.rules.zookeeper_assignment is ZooKeeperAssignment.COMPUTED:
            return []
        return sorted(partitions.owned - partitions.assigned.keys() - self.waits[MembershipSide.ZOOKEEPER])


SEEDS = Seeds("member-walk")


def walk_from(seed: int) -> None:
    walk = Walk(seed)
    try:
        for _ in range(STEPS):
            walk.step()
        walk.settle()
        assert not walk.waits[MembershipSide.COORDINATOR], "the coordinator's group waits for nothing for ever"
        assert not walk.waits[MembershipSide.ZOOKEEPER], "nor does ZooKeeper's"
        assert walk.collections[MembershipSide.COORDINATOR] == 0, "each of its questions is answered once"
        assert not walk.idle(), "a partition that no side gives up is read"
    except BaseException as error:
        error.add_note("\n".join(walk.story[-60:]))
        raise


@pytest.mark.parametrize("seed", SEEDS.first(WALKS))
def test_in_any_order_no_side_gets_an_impossible_command_and_every_side_an_answer(seed: int) -> None:
    SEEDS.live([seed], walk_from)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_more_walks_end_with_every_question_answered() -> None:
    SEEDS.live(SEEDS.new(NIGHTLY_WALKS), walk_from)


@pytest.mark.parametrize("by_itself", [True, False])
def test_the_drained_position_is_committed_to_kafka_only_with_automatic_commits(by_itself: bool) -> None:
    """What the program has not committed shall come again, in both stores."""
    talk = MigratingMemberConversation()
    talk.member = MigratingMember(auto_commit=by_itself)
    for line in ("control copied@3", "generation 4", "co start t/0=-1", "zk start t/0=10", "zk drain t/0"):
        talk.handle(line)
    said = talk.handle("drained t/0=15")
    assert said == (["write 1 to kafka: t/0=15"] if by_itself else ["to zk: drained t/0=15"])
