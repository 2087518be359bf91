"""A Spark query and an original member in one group, in any order, with crashes and lost answers at every step.

The query is modelled as Spark runs it: a batch is planned and logged, claimed, read, put into the sink, and entered in
the commit log; after a crash the last logged batch is run again if it is not in the commit log.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.spark.claims import OnRewind, claim, next_position
from bridge.spark.group_membership import NO_OFFSET, ClaimedRange, RangeToClaim
from tests.spark_claim_sessions import GROUP, claimant, epochs, run_stands
from tests.zk_procedure_fixtures import ProcedureSession
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create, Delete, Multi, NoNode, SetData

PARTITIONS = [TopicPartition("clicks", number) for number in range(2)]
BATCH_RECORDS_MAX = 5


@dataclass
class Scala:
    """What an original member knows of a partition: it owns it or not, and writes its position when it pleases."""

    is_owner: bool = False
    position: int = 0
    has_read: set[int] = field(default_factory=set)


@dataclass
class Batch:
    number: int
    ranges: dict[TopicPartition, RangeToClaim]


class World:
    """Both, on one ZooKeeper.  The names of the methods without ``_`` are the steps."""

    def __init__(self, on_rewind: OnRewind, *, has_late_writes: bool) -> None:
        self.server = FakeZooKeeper()
        for path in (paths.ids(GROUP), paths.owners_of_topic(GROUP, "clicks"), paths.offsets_of_topic(GROUP, "clicks")):
            self.server.ensure(path)
        self.on_rewind, self.has_late_writes = on_rewind, has_late_writes
        self.scala_session = ProcedureSession(self.server)
        self.scala = {tp: Scala() for tp in PARTITIONS}
        self.log_end = dict.fromkeys(PARTITIONS, 0)
        self.query: ProcedureSession | None = None
        self.lives = 0
        self.is_losing = False
        self.logged: list[Batch] = []
        self.committed = -1
        self.sink: dict[int, dict[TopicPartition, range]] = {}
        self.high: dict[TopicPartition, int] = dict.fromkeys(PARTITIONS, 0)
        """The largest offset that the group ever had."""

    # --- the log and the original member ------------------------------------------------------------------------

    def produce(self, tp: TopicPartition) -> None:
        self.log_end[tp] += 3

    def scala_takes(self, tp: TopicPartition) -> None:
        [made] = self.scala_session.ask([Create(paths.owner(GROUP, tp), b"g1_scala-0", ephemeral=True)], None)
        if isinstance(made, str):
            self.scala[tp].is_owner, self.scala[tp].position = True, max(0, self._offset(tp))

    def scala_reads(self, tp: TopicPartition) -> None:
        scala = self.scala[tp]
        if scala.is_owner and scala.position < self.log_end[tp]:
            scala.has_read.add(scala.position)
            scala.position += 1

    def scala_writes(self, tp: TopicPartition) -> None:
        """While it owns the partition; or, late, when it does not any more."""
        if self.scala[tp].is_owner or (self.has_late_writes and self.scala[tp].has_read):
            self._write(tp, self.scala[tp].position)

    def scala_leaves(self, tp: TopicPartition) -> None:
        if self.scala[tp].is_owner:
            self._write(tp, self.scala[tp].position)
            self.scala_dies(tp)

    def scala_dies(self, tp: TopicPartition) -> None:
        """Without a commit: what it read since is read again, which is its own window and not the query's."""
        if self.scala[tp].is_owner:
            self.scala_session.ask([Delete(paths.owner(GROUP, tp))], None)
            scala = self.scala[tp]
            scala.is_owner = False
            if not self.has_late_writes:
                scala.has_read -= set(range(max(0, self._offset(tp)), scala.position))

    def _write(self, tp: TopicPartition, offset: int) -> None:
        [done] = self.scala_session.ask([SetData(paths.offset(GROUP, tp), b"%d" % offset)], None)
        if isinstance(done, NoNode):
            self.scala_session.ask([Create(paths.offset(GROUP, tp), b"%d" % offset)], None)
        self.high[tp] = max(self.high[tp], offset)

    def _offset(self, tp: TopicPartition) -> int:
        data = self.server.data(paths.offset(GROUP, tp))
        return NO_OFFSET if data is None else int(data)

    # --- the query ----------------------------------------------------------------------------------------------

    def query_takes(self, tp: TopicPartition) -> None:
        if self.query is None:
            self.query = ProcedureSession(self.server)
            self.lives += 1
        if self.server.data(paths.owner(GROUP, tp)) is None:
            self.query.claim(tp)

    def query_gives_back(self, tp: TopicPartition) -> None:
        if self.query is not None and tp in epochs(self.query, [tp]):
            self.query.ask([Delete(paths.owner(GROUP, tp))], None)

    def query_crashes(self, _: TopicPartition) -> None:
        if self.query is not None:
            self.query.store.close(1_000)
            self.query = None

    def query_runs_a_batch(self, _: TopicPartition, at_most: str = "all of it") -> None:
        """Up to the step after which it crashes; the last batch again when it is not in the commit log."""
        if self.query is None:
            return
        if self.committed == len(self.logged) - 1:
            self._plan(self.query)
        batch = self.logged[-1] if self.logged else None
        if batch is None or self.committed == batch.number or at_most == "plan":
            return self.query_crashes(_) if at_most == "plan" else None
        taken = self._claim(self.query, batch, at_most)
        if taken is None or at_most == "claim":
            return self.query_crashes(_)
        assert self.sink.setdefault(batch.number, taken) == taken, "a replay gives the sink what it gave it before"
        if at_most == "sink":
            return self.query_crashes(_)
        self.committed = batch.number

    def plan_and_crash(self, tp: TopicPartition) -> None:
        self.query_runs_a_batch(tp, "plan")

    def claim_and_crash(self, tp: TopicPartition) -> None:
        self.query_runs_a_batch(tp, "claim")

    def sink_and_crash(self, tp: TopicPartition) -> None:
        self.query_runs_a_batch(tp, "sink")

    def lose_the_answer(self, tp: TopicPartition) -> None:
        self.query_runs_a_batch(tp, "lost")

    def lose_the_request(self, tp: TopicPartition) -> None:
        self.query_runs_a_batch(tp, "not done")

    def scala_takes_over_in_the_middle(self, tp: TopicPartition) -> None:
        """A batch is planned and logged; then an original member takes a partition, reads, and gives it back or not."""
        if self.query is None or self.committed != len(self.logged) - 1:
            return
        self._plan(self.query)
        self.query_gives_back(tp)
        self.scala_takes(tp)
        self.scala_reads(tp)
        self.scala_writes(tp)

    def _plan(self, query: ProcedureSession) -> None:
        held = epochs(query, PARTITIONS)
        stands = run_stands(query, *held).result()
        ranges = {}
        for tp, epoch in held.items():
            first = next_position(stands[tp], self.on_rewind)
            assert isinstance(first, int)
            first = max(first, 0)
            end = min(self.log_end[tp], first + BATCH_RECORDS_MAX)
            if first < end:
                ranges[tp] = RangeToClaim(first, end, epoch)
        if ranges:
            self.logged.append(Batch(len(self.logged), ranges))

    def _claim(self, query: ProcedureSession, batch: Batch, fault: str) -> dict[TopicPartition, range] | None:
        before = {tp: self._offset(tp) for tp in PARTITIONS}
        if fault in ("lost", "not done"):
            self._lose(query, is_done=fault == "lost")
        by = claimant(query, epochs(query, PARTITIONS), on_rewind=self.on_rewind, run=f"{self.lives}")
        try:
            answers = query.run(claim(by, batch.number, batch.ranges)).result()
        except ZkTimeoutException:
            return None
        finally:
            self.is_losing = False
        taken = {tp: range(one.first, one.end) for tp, one in answers.items() if isinstance(one, ClaimedRange)}
        for tp, records in taken.items():
            if self._offset(tp) != before[tp] and not self.has_late_writes:
                assert records.start >= self.high[tp], "what the group has committed is not claimed again"
                assert self._offset(tp) == records.stop
            self.high[tp] = max(self.high[tp], self._offset(tp))
        return taken

    def _lose(self, query: ProcedureSession, *, is_done: bool) -> None:
        """The next multi's answer, or the multi itself; nothing, when the claim needs none."""
        self.is_losing = True
        self.server.lose_connection_on_next(
            lambda each: self.is_losing and isinstance(each, Multi), is_done=is_done, store=query.store
        )

    # --- at the end ---------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """The original member leaves; the query takes everything, and reads until there is nothing to read."""
        for tp in PARTITIONS:
            self.scala_leaves(tp)
            self.query_takes(tp)
        for _ in range(100):
            before = len(self.logged), self.committed
            self.query_runs_a_batch(PARTITIONS[0])
            if (len(self.logged), self.committed) == before:
                break

    def check(self) -> None:
        for tp in PARTITIONS:
            ours = [offset for batch in self.sink.values() for offset in batch.get(tp, ())]
            if self.on_rewind is OnRewind.IGNORE:
                assert len(ours) == len(set(ours)), "the query read a record twice"
            if not self.has_late_writes:
                assert not set(ours) & self.scala[tp].has_read, "both read a record"
            assert set(ours) | self.scala[tp].has_read == set(range(self.log_end[tp])), "a record was skipped"


STEPS = [name for name in vars(World) if not name.startswith("_") and name not in ("settle", "check")]


@pytest.mark.parametrize(
    ("on_rewind", "has_late_writes"),
    [(OnRewind.IGNORE, False), (OnRewind.FAIL, False), (OnRewind.IGNORE, True), (OnRewind.FOLLOW, True)],
    ids=["in-peace", "in-peace-fail", "late-writes-ignore", "late-writes-follow"],
)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(PARTITIONS)), min_size=5, max_size=60))
@settings(max_examples=60, deadline=None)
def test_no_record_is_read_twice_or_skipped(
    on_rewind: OnRewind, has_late_writes: bool, steps: list[tuple[str, TopicPartition]]
) -> None:
    world = World(on_rewind, has_late_writes=has_late_writes)
    for tp in PARTITIONS:
        world.produce(tp)
        world.query_takes(tp)
    for name, tp in steps:
        getattr(world, name)(tp)
    world.settle()
    world.check()
