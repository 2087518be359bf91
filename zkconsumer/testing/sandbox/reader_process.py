"""The records of a partition as the consumer of a release reads them: Java's, and Scala's for 0.8.2."""

from __future__ import annotations

from typing import NamedTuple

from zkconsumer.testing.sandbox.artifacts import artifact_set
from zkconsumer.testing.sandbox.child_process import JavaCommand, write_properties
from zkconsumer.testing.sandbox.command_program import CommandProgram, decode_base64
from zkconsumer.testing.sandbox.event_file import JsonEvent
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun
from zkconsumer.wire.entries import Record

JAVA_FROM = (0, 10)
"""The consumer of 0.9 has no timestamps, and is not used here."""

READ_TIMEOUT_MS = 60_000

BYTES_DESERIALIZER = "org.apache.kafka.common.serialization.ByteArrayDeserializer"

SETTINGS = {
    "auto.offset.reset": "none",
    "enable.auto.commit": "false",
    "fetch.max.wait.ms": "50",
    "key.deserializer": BYTES_DESERIALIZER,
    "value.deserializer": BYTES_DESERIALIZER,
}

TIMESTAMP_TYPES = {"NO_TIMESTAMP_TYPE": -1, "CREATE_TIME": 0, "LOG_APPEND_TIME": 1}


class ReadResult(NamedTuple):
    """The delivered records, in order, and why the next one was rejected; None: none was."""

    records: list[Record]
    error: str | None


class ReaderProcess(CommandProgram):
    """A consumer that reads on command until it is closed."""

    def __init__(
        self, run: SandboxRun, release: str, bootstrap: str, *, name: str = "reader", heap_mb: int = 128
    ) -> None:
        config = write_properties({**SETTINGS, "bootstrap.servers": bootstrap}, run.root / name / "reader.properties")
        is_java = artifact_set(release).version >= JAVA_FROM
        program, more = ("Reader", ("Poll", "Lines")) if is_java else ("ScalaReader", ("Lines",))
        self._records: list[Record] = []
        super().__init__(run, "reader", name, JavaCommand(release, program, (str(config),), (program, *more), heap_mb))

    def read(self, topic: str, until: int, *, isolation: str = "read_uncommitted") -> ReadResult:
        """Partition 0 from offset 0 on, until the consumer's position is ``until``, or it refuses a record.

        ``until`` must be the offset after a delivered record: control batches at the end are not passed.
        """
        answer = self._execute(f"read {{}} {topic} {until} {isolation}", READ_TIMEOUT_MS)
        found, self._records = self._records, []
        return ReadResult(found, answer["error"])

    def _handle_event(self, event: JsonEvent) -> None:
        if event["event"] == "record":
            words = event["headers"].split(";") if event["headers"] else []
            names = [(decode_base64(name) or b"").decode() for name in words[::2]]
            headers = tuple(zip(names, map(decode_base64, words[1::2]), strict=True))
            stamp = event["timestamp"], TIMESTAMP_TYPES[event["type"]]
            fields = decode_base64(event["key"]), decode_base64(event["value"])
            self._records.append(Record(event["offset"], *stamp, *fields, headers))
