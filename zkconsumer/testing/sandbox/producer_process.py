"""Records made by a real producer: the one of the release whose jars it runs on, so in that release's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox.child_process import JavaCommand, write_properties
from zkconsumer.testing.sandbox.command_program import CommandProgram, encode_base64
from zkconsumer.testing.sandbox.event_file import JsonEvent
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun

PRODUCE_TIMEOUT_MS = 60_000

SETTINGS = {
    # One request in flight and many tries: acknowledged records are in the order in which they were sent.
    "acks": "all",
    "retries": "1000",
    "retry.backoff.ms": "100",
    "max.in.flight.requests.per.connection": "1",
    "linger.ms": "5",
    "batch.size": "65536",
    "client.id": "sandbox",
}


OF_0_9 = {"request.timeout.ms": "120000"}
"""The producer of 0.9 applies this to batches that wait for a leader, too, and drops them ("Batch Expired"): on a busy
machine 30 s are not enough."""


class ProducedRange(NamedTuple):
    """A range of acknowledged offsets, both ends included."""

    topic: str
    partition: int
    first: int
    last: int


class RecordToSend(NamedTuple):
    """A record as a producer is given it.

    ``timestamp``: ms, or None for the producer's own (0.10 and later); ``headers``: 0.11 and later.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def encode(self) -> str:
        """As ``ProducerProcess.java`` reads it."""
        pair = f"{encode_base64(self.key)}:{encode_base64(self.value)}"
        if self.timestamp is None and not self.headers:
            return pair
        headers = ";".join(f"{encode_base64(name.encode())};{encode_base64(value)}" for name, value in self.headers)
        return f"{pair}:{'-' if self.timestamp is None else self.timestamp}:{headers}"


class ProducerProcess(CommandProgram):
    """A producer that executes commands until it is closed; one command after another."""

    def __init__(
        self,
        run: SandboxRun,
        release: str,
        bootstrap: str,
        *,
        name: str = "load",
        settings: Mapping[str, str] | None = None,
        heap_mb: int = 128,
    ) -> None:
        of_release = OF_0_9 if release.startswith("0.9.") else {}
        given = {**SETTINGS, **of_release, "bootstrap.servers": bootstrap, **(settings or {})}
        config = write_properties(given, run.root / name / "load.properties")
        self._acked: dict[tuple[str, int], list[ProducedRange]] = {}
        self._failures: list[JsonEvent] = []
        super().__init__(
            run,
            "load",
            name,
            JavaCommand(release, "Load", (str(config),), ("Load", "Lines"), heap_mb),
        )

    def produce(
        self,
        topic: str,
        partition: int,
        count: int,
        *,
        size: int = 64,
        codec: str = "none",
        timeout_ms: int = PRODUCE_TIMEOUT_MS,
    ) -> ProducedRange:
        """Sends ``count`` records with values "topic-partition-sequence", filled with blanks up to ``size`` bytes.

        The sequence counts from 0 for each partition; on a fresh partition it is the offset.  Returns when all are
        acknowledged.
        """
        return self._produced(self._execute(f"produce {{}} {topic} {partition} {count} {size} {codec}", timeout_ms))

    def produce_values(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        codec: str = "none",
        timeout_ms: int = PRODUCE_TIMEOUT_MS,
    ) -> ProducedRange:
        """Sends these records as they are."""
        keys = keys if keys is not None else [None] * len(values)
        pairs = ",".join(
            f"{encode_base64(key)}:{encode_base64(value)}" for key, value in zip(keys, values, strict=True)
        )
        return self._produced(self._execute(f"values {{}} {topic} {partition} {codec} {pairs}", timeout_ms))

    def produce_records(
        self, topic: str, partition: int, records: Sequence[RecordToSend], *, codec: str = "none", transaction: str = ""
    ) -> ProducedRange:
        """Sends these records; with ``transaction``, the name given to ``begin``, in it and with its codec."""
        words = ",".join(each.encode() for each in records)
        command = f"values {{}} {topic} {partition} {codec} {words} {transaction}".rstrip()
        return self._produced(self._execute(command, PRODUCE_TIMEOUT_MS))

    def begin(self, transaction: str, *, codec: str = "none") -> None:
        """Begins a transaction (0.11 and later) of the producer with this ``transactional.id``."""
        self._execute(f"begin {{}} {transaction} {codec}", PRODUCE_TIMEOUT_MS)

    def end(self, transaction: str, *, commit: bool) -> None:
        """Commits or aborts it; returns when its markers are written or on the way."""
        self._execute(f"{'commit' if commit else 'abort'} {{}} {transaction}", PRODUCE_TIMEOUT_MS)

    def produce_keyed(
        self,
        topic: str,
        pairs: Sequence[tuple[bytes | None, bytes | None]],
        *,
        codec: str = "none",
        timeout_ms: int = PRODUCE_TIMEOUT_MS,
    ) -> list[ProducedRange]:
        """Sends these keys and values, each to the partition that the producer computes from the key."""
        words = ",".join(f"{encode_base64(key)}:{encode_base64(value)}" for key, value in pairs)
        before = {tp: len(ranges) for tp, ranges in self.acked.items()}
        self._execute(f"keyed {{}} {topic} {codec} {words}", timeout_ms)
        return [one for tp, ranges in sorted(self._acked.items()) for one in ranges[before.get(tp, 0) :]]

    def start_rate(self, topic: str, partitions: int, per_second: int, *, size: int = 64, codec: str = "none") -> None:
        """Sends steadily, in turn to partitions 0 to ``partitions`` - 1, until ``halt``; see ``acked``."""
        self._execute(f"rate {{}} {topic} {partitions} {per_second} {size} {codec}", PRODUCE_TIMEOUT_MS)

    def stop_rate(self, timeout_ms: int = PRODUCE_TIMEOUT_MS) -> None:
        """Stop what ``rate`` started; returns when every record was acknowledged.

        SandboxError if any was rejected since the last call, with the end of the producer's log.
        """
        self._execute("halt {}", timeout_ms)
        failures, self._failures = self._failures, []
        if failures:
            raise SandboxError(
                f"{len(failures)} sends failed, the first: {failures[0]}, the last: {failures[-1]}; "
                f"{self._process.log_end()}"
            )

    def create_topic(self, topic: str, partitions: int, replicas: int = 1) -> None:
        """Through the admin client (producers of 0.11 and later); for brokers without ZooKeeper."""
        self._execute(f"create {{}} {topic} {partitions} {replicas}", PRODUCE_TIMEOUT_MS)

    def grow_topic(self, topic: str, partitions: int) -> None:
        """As ``create_topic``: adds partitions up to so many."""
        self._execute(f"grow {{}} {topic} {partitions}", PRODUCE_TIMEOUT_MS)

    @property
    def acked(self) -> dict[tuple[str, int], list[ProducedRange]]:
        """(topic, partition) -> the ranges that were acknowledged so far, in order."""
        self._read()
        return self._acked

    def acked_offsets(self, topic: str) -> dict[int, set[int]]:
        """Partition -> every offset that was acknowledged so far."""
        return {
            partition: {offset for each in ranges for offset in range(each.first, each.last + 1)}
            for (name, partition), ranges in self.acked.items()
            if name == topic
        }

    def _handle_event(self, event: JsonEvent) -> None:
        if event["event"] == "produced":
            produced = self._produced(event)
            self._acked.setdefault((produced.topic, produced.partition), []).append(produced)
        if event["event"] == "send_failed":
            self._failures.append(event)

    @staticmethod
    def _produced(event: JsonEvent) -> ProducedRange:
        return ProducedRange(event["topic"], event["partition"], event["first"], event["last"])
