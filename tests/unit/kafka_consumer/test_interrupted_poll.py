"""An exception of a signal handler anywhere in ``poll`` (Ctrl-C, ``sys.exit`` on SIGTERM): no record is lost.

The program closes the consumer then.
"""

from __future__ import annotations

from tests.interruptions import CALLS_MAX, Interrupted, Trace, every_opcode
from tests.kafka_consumer_fixtures import TP0, TP1, ScriptedConsumer
from zkconsumer.types import TopicPartition

COUNT = 5
PARTITIONS = TP0, TP1


class Program:
    """Reads two partitions, two records in each call, and closes at the end and after an exception."""

    def __init__(self) -> None:
        self.scripted = ScriptedConsumer(max_poll_records=2)
        self.scripted.join(*PARTITIONS)
        for tp in PARTITIONS:
            self.scripted.append(tp, COUNT)
        self.got: dict[TopicPartition, list[int]] = {tp: [] for tp in PARTITIONS}

    @property
    def count(self) -> int:
        return sum(map(len, self.got.values()))

    def run(self, trace: Trace) -> None:
        try:
            self._read(trace)
        except Interrupted:
            pass
        finally:
            self.scripted.consumer.close()

    def _read(self, trace: Trace) -> None:
        for _ in range(CALLS_MAX):
            if self.count == COUNT * len(PARTITIONS):
                return
            with trace:
                records = self.scripted.consumer.poll(0)
            for record in records:
                self.got[TopicPartition(record.topic, record.partition)].append(record.offset)
            self.scripted.clock.move(1)

    def check(self, where: str) -> None:
        """The committed offsets are those of what the program has, which has no gap and nothing twice."""
        committed = self.scripted.cluster.committed
        for tp, found in self.got.items():
            assert found == list(range(len(found))), f"{where}: {tp}"
            assert committed.get(tp, 0) == len(found), f"{where}: {tp}, the program has {found}"


def test_a_program_that_closes_after_an_exception_in_poll_commits_what_it_has() -> None:
    programs: list[Program] = []

    def run(trace: Trace) -> None:
        programs.append(Program())
        programs[-1].run(trace)

    for trace in every_opcode(run, at_signals=True):
        programs[-1].check(trace.last)
    assert {program.count for program in programs} >= {0, 2, 4, 5, 7, 9, 10}
