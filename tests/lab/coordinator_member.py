"""A member of a coordinator group as a process: Java of any release from 0.9 on, librdkafka, kafka-python; one
interface.

Each writes a history in the checker's format to ``out.log`` of its folder.  It commits the records that it processed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.lab.python_member import PythonProcess, translate_event
from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox.child_process import (
    ChildProcess,
    JavaCommand,
    JavaProcess,
    write_properties,
)
from zkconsumer.testing.sandbox.event_file import JsonEvent
from zkconsumer.testing.sandbox.member_process import MemberProcess
from zkconsumer.testing.sandbox.reader_process import BYTES_DESERIALIZER
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun

PROGRAM = "tests.lab.coordinator_member_program"
JAVA = "java-"
OURS, OURS_POLL = "ours", "ours-poll"
"""The connector, and ``KafkaConsumer``."""

OUR_PROGRAMS = {OURS: "tests.lab.connector_program", OURS_POLL: "tests.lab.kafka_consumer_program"}
LIBRARIES = ("confluent", "kafka-python", *OUR_PROGRAMS)

COORDINATOR_TEST_SETTINGS = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "metadata.max.age.ms": "2000",
}
"""Defaults of the sandbox where the clients' own are too slow for tests; ``settings`` replaces each of them."""

JAVA_STRATEGIES = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}

CLASSIC_PROTOCOL_SETTINGS = ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms")
"""Settings that clients refuse beside ``group.protocol=consumer``: the coordinator has them there."""

COOPERATIVE_FROM = (2, 4)


class CoordinatorMember(MemberProcess):
    """``client``: ``java-RELEASE``, ``confluent``, ``kafka-python``, ``ours`` or ``ours-poll``.  ``start`` starts it.

    ``settings`` are consumer settings by Kafka's names; ``strategy`` is ``range``, ``roundrobin`` or
    ``cooperative-sticky``.  ``handle_ms`` is the time that one message takes.  ``instance`` makes a static member.
    """

    def __init__(
        self,
        run: SandboxRun,
        client: str,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        *,
        name: str,
        history_name: str | None = None,
        strategy: str = "range",
        instance: str | None = None,
        settings: Mapping[str, str] | None = None,
        handle_ms: int = 0,
        heap_mb: int = 96,
    ) -> None:
        if not client.startswith(JAVA) and client not in LIBRARIES:
            raise SandboxError(f"{client} is no client here; there are {JAVA}RELEASE, {', '.join(LIBRARIES)}")
        super().__init__(run, group, name)
        self.client = client
        self._topics = topics
        self._history_name = history_name or name
        self._handle_ms = handle_ms
        self._heap_mb = heap_mb
        self.settings = {
            **COORDINATOR_TEST_SETTINGS,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": self._history_name,
            "partition.assignment.strategy": strategy,
            **({"group.instance.id": instance} if instance is not None else {}),
            **(settings or {}),
        }
        self._strategy = JAVA_STRATEGIES.get(self.settings["partition.assignment.strategy"], "")
        if self.settings.get("group.protocol") == "consumer":
            for name in CLASSIC_PROTOCOL_SETTINGS:
                del self.settings[name]

    def owned(self) -> set[tuple[str, int]]:
        """The partitions that it owns, by its own report."""
        held: set[tuple[str, int]] = set()
        for event in self.events:
            if event["event"] == "claimed":
                held.add((event["topic"], event["partition"]))
            elif event["event"] == "released":
                held.discard((event["topic"], event["partition"]))
        return held

    def _launch(self) -> ChildProcess:
        if self.client.startswith(JAVA):
            return self._launch_java(self.client.removeprefix(JAVA))
        config = write_properties(self.settings, self.run.root / self.name / "member.properties")
        words = [str(config), "--library", self.client, "--name", self._history_name]
        words += [word for topic in self._topics for word in ("--topic", topic)]
        program = OUR_PROGRAMS.get(self.client, PROGRAM)
        return PythonProcess(self.run, "member", self.name, program, [*words, "--handle-ms", str(self._handle_ms)])

    def _launch_java(self, release: str) -> ChildProcess:
        has_strategy = "partition.assignment.strategy" in self.settings
        own = {
            **({"partition.assignment.strategy": self._strategy} if has_strategy else {}),
            "key.deserializer": BYTES_DESERIALIZER,
            "value.deserializer": BYTES_DESERIALIZER,
            "member.name": self._history_name,
            "member.topics": ",".join(self._topics),
            "member.handle.ms": str(self._handle_ms),
        }
        config = write_properties({**self.settings, **own}, self.run.root / self.name / "member.properties")
        command = JavaCommand(
            release,
            "ModernMember",
            (str(config),),
            programs=("ModernMember", "Poll", "Lines"),
            heap_mb=self._heap_mb,
        )
        return JavaProcess(self.run, "member", self.name, command, reads_commands=True)

    def _translate(self, line: JsonEvent) -> JsonEvent:
        return translate_event(line)
