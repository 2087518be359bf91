"""The state of each partition of a migrating member: its table of transitions, and answers that arrive late."""

from __future__ import annotations

import pytest

from bridge.migration.dual.machine import migrating_partitions as machine
from bridge.migration.dual.machine.migrating_partitions import MigratingPartition, MigratingPartitions, ProcessingState
from bridge.migration.dual.machine.phase_rules import MembershipSide
from tests.transcripts.migration.migrating_member_conversation import MigratingMemberConversation
from zkconsumer.member import ownership
from zkconsumer.member.offset_stores import OffsetSource
from zkconsumer.member.state_machine import InvalidTransition
from zkconsumer.types import TopicPartition

TP = TopicPartition("t", 0)
PATHS: dict[ProcessingState, tuple[object, ...]] = {
    ProcessingState.IDLE: (),
    ProcessingState.RUNNING: (machine.ProcessingStarted("me-0"),),
    ProcessingState.DRAINING: (machine.ProcessingStarted("me-0"), machine.DrainRequested()),
    ProcessingState.DRAINED: (
        machine.ProcessingStarted("me-0"),
        machine.DrainRequested(),
        machine.PartitionDrained(7),
    ),
    ProcessingState.AWAITING_KAFKA: (
        machine.ProcessingStarted("me-0"),
        machine.DrainRequested(),
        machine.PartitionDrained(7),
        machine.KafkaWriteAwaited(1, commits_position=True),
    ),
}
"""State -> the events that lead to it."""

EVENTS = (
    machine.ProcessingStarted("me-1"),
    machine.DrainRequested(),
    machine.PartitionDrained(8),
    machine.KafkaWriteAwaited(2, commits_position=False),
    machine.KafkaWaitEnded(),
    machine.ProcessingResumed("me-1"),
    machine.ProcessingStopped(),
)


def in_state(state: ProcessingState) -> MigratingPartition:
    one = MigratingPartition()
    one.waiting_sides.add(MembershipSide.ZOOKEEPER)
    for event in PATHS[state]:
        one.handle(event)
    assert one.state is state
    return one


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("state", ProcessingState, ids=lambda state: state.name)
def test_each_state_has_exactly_the_values_that_belong_to_it(state: ProcessingState, event: object) -> None:
    one = in_state(state)
    if not one.expects(type(event)):
        with pytest.raises(InvalidTransition):
            one.handle(event)
    else:
        one.handle(event)
    assert (one.thread == "") == (one.state is ProcessingState.IDLE)
    assert (one.position >= 0) == (one.state in (ProcessingState.DRAINED, ProcessingState.AWAITING_KAFKA))
    assert (one.awaited_write > 0) == (one.state is ProcessingState.AWAITING_KAFKA)
    assert not one.commits_position or one.state is ProcessingState.AWAITING_KAFKA


def test_a_partition_that_is_running_is_not_started_again_and_the_others_of_the_command_are() -> None:
    told: list[ownership.PartitionCommand] = []
    partitions = MigratingPartitions(told.append)
    both = (TP, TopicPartition("t", 1))

    def start(tps: tuple[TopicPartition, ...]) -> ownership.StartFetching:
        return ownership.StartFetching(
            dict.fromkeys(tps, 5),
            dict.fromkeys(tps, "me-0"),
            dict.fromkeys(tps, OffsetSource.KAFKA),
            dict.fromkeys(tps, 1),
        )

    partitions.start(start(both[:1]))
    partitions.start(start(both))
    assert told == [start(both[:1]), start(both[1:])]
    assert partitions.running == dict.fromkeys(both, "me-0")


def test_a_partition_that_no_side_has_leaves_the_table() -> None:
    talk = MigratingMemberConversation()
    for line in (
        "control locked@3",
        "generation 4",
        "co start t/0=-2",
        "zk start t/0=5",
        "co drain t/0",
        "zk drain t/0",
    ):
        talk.handle(line)
    assert TP in talk.member.partitions
    for line in ("drained t/0=6", "zk drop t/0"):
        talk.handle(line)
    assert TP in talk.member.partitions, "it was announced as new, and the coordinator side has not dropped it"
    talk.handle("co drop t/0")
    assert TP not in talk.member.partitions


@pytest.mark.parametrize(
    ("phase", "taken"), [("copied", "t/0"), ("copied", ""), ("locked", "t/0")], ids=["own", "rejected", "other"]
)
def test_an_answer_of_kafka_about_an_earlier_ownership_does_not_end_a_drain(phase: str, taken: str) -> None:
    """The partition is acquired again while the write of its last release is in flight.  A release at that moment would
    commit the old position, while the program still has a record."""
    talk = MigratingMemberConversation()
    for line in (f"control {phase}@3", "generation 4", "co start t/0=-1", "zk start t/0=5", "zookeeper-read t/0=5"):
        talk.handle(line)
    talk.handle("zk drain t/0")
    said = talk.handle("drained t/0=9")
    assert said == (["write 2 to kafka: t/0=9"] if phase == "copied" else ["(nothing)"])
    assert talk.handle("zk force-drain t/0")[0].startswith("to zk: drained t/0=")
    talk.handle("zk drop t/0")
    talk.handle("zk start t/0=9")
    talk.handle("zk drain t/0")
    for number in (1, 2) if phase == "copied" else (1,):
        heard = talk.handle(f"written {number} {taken}".strip())
        assert not [line for line in heard if "drained" in line], heard
    assert talk.member.partitions[TP].state is ProcessingState.DRAINING
    last = talk.handle("drained t/0=10") + (talk.handle("written 3 t/0") if phase == "copied" else [])
    assert "to zk: drained t/0=10" in last


def heard_last(*lines: str) -> list[str]:
    """What the member says to the last of these lines."""
    talk = MigratingMemberConversation()
    return [talk.handle(line) for line in lines][-1]


@pytest.mark.parametrize(
    ("side", "before"),
    [
        ("zk", ("zk start t/0=5",)),
        ("zk", ("control ready@2", "generation 4", "co start t/0=-1", "zk start t/0=5")),
        ("co", ("control switched@5", "generation 4", "co start t/0=5")),
    ],
    ids=["zookeeper only", "ready", "switched"],
)
def test_a_late_acknowledgement_does_not_resume_a_partition_that_is_being_released(
    side: str, before: tuple[str, ...]
) -> None:
    """After ForceDrain the processor reports the partition, and again when the program acknowledges its record."""
    released = (*before, f"{side} drain t/0", f"{side} force-drain t/0", "drained t/0=7")
    assert f"to {side}: drained t/0=7" in heard_last(*released)
    assert heard_last(*released, "drained t/0=8") == ["(nothing)"]
    assert "processor: move t/0=me-0" in heard_last(*released, "drained t/0=8", f"{side} move t/0=me-0")


def test_a_partition_continues_that_the_coordinator_side_gave_up_and_received_again() -> None:
    """The ZooKeeper side has not reacted to the first assignment, so it never drains the partition."""
    lines = ("control locked@2", "generation 4", "co start t/0=-1", "zk start t/0=5", "co drain t/0", "drained t/0=7")
    given_up = (*lines, "co force-drain t/0")
    assert "to co: drained t/0=-1" in heard_last(*given_up)
    assert "processor: move t/0=me-0" in heard_last(*given_up, "co drop t/0", "co start t/0=-1")


def test_a_partition_that_was_drained_for_the_passive_side_is_read_from_kafka_when_it_moves() -> None:
    """The switch came between the drain and the move of the coordinator side, so the processor has no position."""
    lines = ("control ready@2", "generation 4", "co start t/0=-1", "co drain t/0", "control switched@5")
    assert heard_last(*lines, "co move t/0=me-1") == ["read from kafka: t/0"]


def test_an_answer_of_kafka_about_an_earlier_ownership_is_not_kafkas_offset() -> None:
    """The session ends while an automatic commit is on its way to Kafka.  Another member owns the partition meanwhile,
    and brings Kafka to ZooKeeper's offset, 10.  Kafka is first: ZooKeeper must not get the 16 that Kafka lacks."""
    talk = MigratingMemberConversation()
    for line in ("control copied@3", "generation 4", "co start t/0=-1", "zk start t/0=10", "zookeeper-read t/0=10"):
        talk.handle(line)
    assert talk.handle("written 1 t/0") == ["acknowledge m1 copied@3 generation=4 behind=0"]
    talk.handle("zk collect")
    assert talk.handle("collected t/0=16") == ["write 2 to kafka: t/0=16"]
    talk.handle("zk drop t/0: the ZooKeeper session expired")
    talk.handle("zk start t/0=10")
    assert "to zk: collected t/0=16" not in talk.handle("written 2 t/0")
    assert talk.handle("zookeeper-read t/0=10") == ["write 3 to kafka: t/0=10"]
    talk.handle("written 3 t/0")
    talk.handle("zk collect")
    assert talk.handle("collected t/0=16") == ["write 4 to kafka: t/0=16"]


def test_the_position_of_a_partition_that_was_dropped_since_the_question_is_not_written_to_kafka() -> None:
    """The session ends between the question of an automatic commit and its answer: another member may own it now."""
    lines = ("control copied@3", "generation 4", "co start t/0=-1 t/1=-1", "zk start t/0=5 t/1=5", "zk collect")
    asked = (*lines, "zk drop t/0: the ZooKeeper session expired")
    assert heard_last(*asked, "collected t/0=8 t/1=8") == ["write 1 to kafka: t/1=8"]
