"""A coordinator that is slower than its members' commits: the writes in flight, and how long a rebalance waits.

The member's state machine and that of the coordinator group, connected as ``bridge.migration.dual.connector`` does it;
a manual clock, and a coordinator that answers on command.
"""

from __future__ import annotations

from bridge.migration.dual.connector.migration_assignor import MigrationAssignor
from bridge.migration.dual.connector.protocol_downgrade import DowngradingConsumerCoordinator
from bridge.migration.dual.machine import machine_messages as val
from bridge.migration.dual.machine.migrating_member import MigratingMember
from bridge.migration.dual.machine.phase_rules import MembershipSide
from tests.coordinator.client_harness import Member, T
from zkconsumer.kafka.group import commands as do
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.events import Offset
from zkconsumer.member import ownership
from zkconsumer.member.offset_stores import OffsetSource
from zkconsumer.wire.schemas import JOIN_GROUP, OFFSET_COMMIT
from zkconsumer.zk.znode_formats import ControlRecord

PRIVATE = MigrationAssignor("m1", "g_c0")
OURS = T[:2]
INTERVAL_MS, ANSWER_MS = 20, 500
"""Of automatic commits; of the coordinator."""


class Both:
    """One member that reads and commits automatically; it executes its commands to the coordinator's side there."""

    def __init__(self) -> None:
        self.side = Member(PRIVATE, kind=DowngradingConsumerCoordinator, auto_commit=True)
        self.machine = MigratingMember()
        self.side.join(OURS)
        self.hear(val.ControlChanged(ControlRecord("m1", 3, "copied", "zookeeper", "dual")))
        self.hear(val.GenerationChanged(1))
        self.hear(val.SideCommanded(MembershipSide.COORDINATOR, _start(-1)))
        self.hear(val.SideCommanded(MembershipSide.ZOOKEEPER, _start(0)))

    def hear(self, event: val.MigratingMemberEvent) -> None:
        for command in self.machine.handle(event):
            match command:
                case val.WriteToKafka(number, offsets):
                    asked = {tp: Offset(at) for tp, at in offsets.items()}
                    self.tell(ev.CommitAsked(-number, asked, retried=False))
                case ownership.CollectPositions():
                    # A record a millisecond.
                    self.hear(ownership.PositionsCollected(dict.fromkeys(OURS, self.side.now_ms)))
                case val.SendToSide(MembershipSide.COORDINATOR, ownership.PositionsCollected()):
                    self.tell(ownership.PositionsCollected({}))
                case _:
                    pass

    def tell(self, event: ev.Event) -> None:
        self._done(self.side.hear(event))

    def answered(self) -> None:
        """The coordinator accepts the oldest pending commit."""
        self._done(self.side.committed())

    def _done(self, commands: list[do.Command]) -> None:
        for command in commands:
            match command:
                case do.CommitDone(number, error):
                    taken = frozenset[object]() if error else frozenset(OURS)
                    self.hear(val.KafkaWriteFinished(-number, taken))  # type: ignore[arg-type]
                case ownership.CollectPositions():
                    self.hear(val.SideCommanded(MembershipSide.COORDINATOR, ownership.CollectPositions()))
                case _:
                    pass

    def read_for(self, duration_ms: int) -> None:
        """Commit at each interval; the coordinator answers late."""
        until_ms = self.side.now_ms + duration_ms
        while self.side.now_ms < until_ms:
            self._done(self.side.wait(INTERVAL_MS))
            self.hear(val.SideCommanded(MembershipSide.ZOOKEEPER, ownership.CollectPositions()))
            if self.side.now_ms % ANSWER_MS == 0 and self.side.has_open(OFFSET_COMMIT):
                self.answered()


def _start(at: int) -> ownership.StartFetching:
    positions = dict.fromkeys(OURS, at)
    epochs = dict.fromkeys(OURS, 1)
    return ownership.StartFetching(
        positions, dict.fromkeys(OURS, "me-0"), dict.fromkeys(OURS, OffsetSource.NEITHER), epochs
    )


def test_a_rebalance_waits_for_the_one_commit_that_is_under_way() -> None:
    """All members wait for the last one that joins.  Five seconds of queued commits made two minutes of waiting."""
    both = Both()
    both.read_for(5_000 + INTERVAL_MS)
    both.tell(ev.AssignorsOffered((PRIVATE,)))
    waited = 0
    while not both.side.has_open(JOIN_GROUP):
        both.answered()
        waited += 1
    assert waited == 1


def test_offsets_written_to_kafka_are_at_most_one_answer_old() -> None:
    """Where it stood is where it is read again from, when the member dies."""
    both = Both()
    both.read_for(5_000 + INTERVAL_MS)
    both.answered()
    [topic] = both.side.sent(OFFSET_COMMIT).topics
    assert {row.committed_offset for row in topic.partitions} == {both.side.now_ms}
    both.answered()
    assert not both.side.has_open(OFFSET_COMMIT), "nothing was consumed since"
