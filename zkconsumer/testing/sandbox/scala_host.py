"""Many Scala consumers in one JVM: for tests of many groups at once, where a JVM for each member would be too much.

host = ScalaHost(sandbox.run, "1.1.1")
host.start("a", group, topic, zookeeper_connect, allowed=0)
host.allow("a", 20)                # reads twenty messages and pauses
host.stop("a")                     # a clean shutdown(), which commits
host.handed(topic)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox.child_process import JavaCommand, JavaProcess, write_properties
from zkconsumer.testing.sandbox.event_file import EventFile
from zkconsumer.testing.sandbox.member_process import START_TIMEOUT_MS, STOP_TIMEOUT_MS, TEST_SETTINGS, DeliveredMessage
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun
from zkconsumer.testing.sandbox.waiting import wait_until

UNLIMITED = 1_000_000_000


class ScalaHost:
    """A JVM with the jars of ``release``, and the members that were started in it; names are used once."""

    def __init__(self, run: SandboxRun, release: str, *, heap_mb: int = 192) -> None:
        self._run = run
        self._name = f"scala-host-{release}"
        command = JavaCommand(release, "ScalaHost", programs=("ScalaHost", "Lines"), heap_mb=heap_mb)
        self._file = EventFile(run.root / self._name / "out.log")
        self._process = JavaProcess(run, "member", self._name, command, reads_commands=True)
        self._numbers: dict[str, int] = {}
        self._events: dict[str, dict[str, str]] = defaultdict(dict)
        self._handed: dict[str, list[DeliveredMessage]] = defaultdict(list)

    def start(
        self,
        name: str,
        group: str,
        topic: str,
        connect: str,
        *,
        streams: int = 1,
        allowed: int = UNLIMITED,
        handle_ms: int = 0,
        consumer_id: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Joins ``group`` below ``connect`` (with its chroot) and does not wait; see ``wait_started``.

        ``allowed``: how many messages it may read until ``allow`` is called; ``handle_ms``: how long each takes.
        """
        assert name not in self._numbers, f"there was a member {name} already"
        self._numbers[name] = len(self._numbers)
        wanted = {
            **TEST_SETTINGS,
            "group.id": group,
            "zookeeper.connect": connect,
            "consumer.id": consumer_id or name,
            **(settings or {}),
        }
        file = write_properties(wanted, self._run.root / self._name / f"{name}.properties")
        self._process.write_line(f"start {name} {self._numbers[name]} {topic} {streams} {allowed} {handle_ms} {file}")

    def allow(self, name: str, count: int = UNLIMITED) -> None:
        """It may read so many messages more; call with ``UNLIMITED`` at most once a member."""
        self._process.write_line(f"allow {name} {count}")

    def stop(self, *names: str, timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """A clean ``shutdown()`` of these, all at once; waits until it has returned."""
        for name in names:
            self._process.write_line(f"stop {name}")
        for name in names:
            self._wait(name, "stopped", timeout_ms)

    def wait_started(self, *names: str, timeout_ms: int = START_TIMEOUT_MS) -> None:
        """Until their streams exist; SandboxError if one was refused."""
        for name in names:
            self._wait(name, "started", timeout_ms)

    def delivered(self, topic: str) -> list[DeliveredMessage]:
        """The records of this topic that the members received, in order; ``thread`` is the member's ``number``."""
        self._read()
        return self._handed[topic]

    def number(self, name: str) -> int:
        """How many members were started before this one."""
        return self._numbers[name]

    def kill(self) -> None:
        """SIGKILL: all members at once; their sessions live on until they time out."""
        self._process.kill()

    def close(self) -> None:
        """Ends the JVM in the quickest way."""
        if self._process.is_running():
            self._process.kill()

    def _wait(self, name: str, event: str, timeout_ms: int) -> None:
        def check() -> bool:
            self._read()
            if "failed" in self._events[name]:
                raise SandboxError(f"{name} failed: {self._events[name]['failed']}; {self._process.log_end()}")
            self._process.check_running()
            return event in self._events[name]

        try:
            wait_until(check, f"{name} in {self._name}: {event}", timeout_ms)
        except SandboxError as error:
            raise SandboxError(f"{error}; {self._process.log_end()}") from error

    def _read(self) -> None:
        for event in self._file.read_new():
            if event["event"] == "handed":
                place = event["topic"], event["partition"], event["offset"]
                self._handed[event["topic"]].append(DeliveredMessage(*place, event["thread"], event["t"]))
            elif "member" in event:
                self._events[event["member"]][event["event"]] = str(event.get("error", ""))
