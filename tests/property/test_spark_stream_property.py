"""Whatever happens between Spark, the group and a peer: the union of what they read is the log, and more."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.spark.group_membership import CommitMode
from bridge.spark.options import read_options
from bridge.spark.source.dependencies import SourceDependencies
from bridge.spark.source.fault_injection import FaultPoint
from bridge.spark.source.micro_batch_plan import LogBounds
from bridge.spark.source.stream_reader import ZkConsumerStreamReader
from tests.fake_spark_group import FakeLogReader, FakeMembership, FakeScalaMember, FakeSparkGroup
from tests.micro_batch_engine import CRASH_POINTS, FakeSparkCheckpoint, MicroBatchEngine
from zkconsumer.types import TopicPartition

PARTITIONS = [TopicPartition("t", n) for n in range(3)]
BATCH = 6
"""``maxOffsetsPerTrigger`` of the query; one partition can have all of it."""

actions = st.one_of(
    st.tuples(st.just("produce"), st.sampled_from(PARTITIONS), st.integers(1, 9)),
    st.tuples(st.just("to_query"), st.sampled_from(PARTITIONS), st.just(0)),
    st.tuples(st.just("to_peer"), st.sampled_from(PARTITIONS), st.just(0)),
    st.tuples(st.just("peer_reads"), st.sampled_from(PARTITIONS), st.integers(1, 5)),
    st.tuples(st.just("session_expires"), st.sampled_from(PARTITIONS), st.just(0)),
)
steps = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(CRASH_POINTS), st.lists(actions, max_size=3), max_size=3),
        st.lists(actions, max_size=3),
        st.one_of(st.none(), st.none(), st.sampled_from(CRASH_POINTS)),
    ),
    max_size=12,
)


class World:
    """A query and a peer in one group; ``group``: where it stands at first, in every partition."""

    def __init__(self, mode: CommitMode, group: int | None = None, **options: str) -> None:
        self.mode = mode
        self.options = read_options(
            {
                "zookeeper.connect": "zk:1", "group.id": "g", "subscribe": "t", "group.offsets.commit": mode.value,
                "maxOffsetsPerTrigger": str(BATCH), "auto.offset.reset": "smallest", **options,
            },
            is_stream=True,
        )  # fmt: skip
        self.group = FakeSparkGroup({"t": len(PARTITIONS)})
        if group is not None:
            self.group.offsets.update(dict.fromkeys(PARTITIONS, group))
        self.logs = FakeLogReader({tp: LogBounds(0, 5) for tp in PARTITIONS})
        self.peer = FakeScalaMember(self.group, "peer")
        self.checkpoint = FakeSparkCheckpoint()
        self.runs = 0
        self.crashes = 0
        self.group.assign(dict.fromkeys(PARTITIONS, "query"))
        self.engine = self.start()

    @property
    def log(self) -> set[tuple[TopicPartition, int]]:
        """Every record."""
        return {(tp, offset) for tp, log in self.logs.ranges.items() for offset in range(log.first, log.end)}

    def start(self) -> MicroBatchEngine:
        self.runs += 1
        doors = SourceDependencies(
            membership=lambda _: FakeMembership(self.group, "query", self.mode),
            logs=lambda *_: self.logs,
            pause=lambda _: None,
            new_query=lambda: f"{self.runs:032x}",
            fault_point=lambda _: FaultPoint(),
        )
        return MicroBatchEngine(lambda: ZkConsumerStreamReader(self.options, ("value",), doors), self.checkpoint)

    def crash(self) -> None:
        self.crashes += 1
        self.group.remove_member("query")
        self.group.rebalance()
        self.engine = self.start()

    def act(self, action: tuple[Any, ...]) -> None:
        what, tp, count = action
        match what:
            case "produce":
                self.logs.append(tp, count)
            case "to_query":
                self.group.assign({tp: "query"})
            case "to_peer":
                self.group.assign({tp: "peer"})
            case "session_expires":
                member = self.group.members.get("query")
                if isinstance(member, FakeMembership):
                    self.crashes += 1
                    member.expire_session()
            case "peer_reads":
                self.peer.read(self.logs, count)

    def step(self, inside: dict[str, list[Any]], crash_at: str | None) -> None:
        for point in self.engine.trigger():
            for action in inside.get(point, ()):
                self.act(action)
            if point == crash_at:
                self.crash()
                return

    def finish(self) -> None:
        """Everything falls to the query, which reads to the end; idle triggers do the rest."""
        self.group.assign(dict.fromkeys(PARTITIONS, "query"))
        self.engine.run()
        self.group.rebalance()
        self.engine.run()


def judge(world: World) -> None:
    sink, peer = Counter(world.checkpoint.rows), Counter(world.peer.output)
    log = world.log
    assert max(sink.values(), default=1) == 1, "the sink has nothing twice"
    assert set(sink) | set(peer) == log, "all is read"
    if world.mode is CommitMode.NONE:
        return
    if world.mode is CommitMode.CLAIM:
        assert not set(sink) & set(peer), "nothing is read by both"
        assert max(peer.values(), default=1) == 1
    twice = Counter(tp for tp, _ in (sink + peer) - Counter(log))
    assert all(count <= BATCH * world.crashes for count in twice.values()), "a batch of a partition for each crash"
    stands: dict[TopicPartition, int] = {}
    for tp, offset in world.group.history:
        assert offset >= stands.get(tp, 0), "the group's offset never goes back"
        stands[tp] = offset
    for tp, log_of in world.logs.ranges.items():
        assert world.group.offsets.get(tp, 0) == log_of.end, "the group stands where reading ended"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(list(CommitMode)), steps)
def test_the_union_is_the_log_and_the_sink_has_nothing_twice(mode: CommitMode, script: Any) -> None:
    world = World(mode)
    for inside, between, crash_at in script:
        world.step(inside, crash_at)
        for action in between:
            world.act(action)
    world.finish()
    judge(world)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([CommitMode.CLAIM, CommitMode.AFTER_BATCH]), steps)
def test_a_query_that_begins_before_its_group_passes_over_nothing(mode: CommitMode, script: Any) -> None:
    world = World(mode, group=4, startingOffsets="earliest", **{"auto.offset.reset": "largest"})
    for inside, between, crash_at in script:
        world.step(inside, crash_at)
        for action in between:
            world.act(action)
    world.finish()
    sink, log = Counter(world.checkpoint.rows), world.log
    assert max(sink.values(), default=1) == 1, "the sink has nothing twice"
    assert set(sink) | set(world.peer.output) == log, "all is read"
