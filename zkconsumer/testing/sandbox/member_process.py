"""A member of a group as a process: the common part, and the Scala consumer of any release.

MemberProcess <-- ZooKeeperMember <-- ScalaMember
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypedDict

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox.artifacts import artifact_set
from zkconsumer.testing.sandbox.child_process import ChildProcess, JavaCommand, JavaProcess, write_properties
from zkconsumer.testing.sandbox.event_file import EventFile, JsonEvent
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun
from zkconsumer.testing.sandbox.waiting import wait_until
from zkconsumer.testing.sandbox.zookeeper_process import ZooKeeperServer

START_TIMEOUT_MS = 60_000
STOP_TIMEOUT_MS = 20_000

TEST_SETTINGS = {
    "auto.offset.reset": "smallest",
    "auto.commit.interval.ms": "1000",
    "zookeeper.session.timeout.ms": "4000",
    "zookeeper.connection.timeout.ms": "15000",
    "rebalance.backoff.ms": "1000",
    "rebalance.max.retries": "10",
}
"""Defaults of the sandbox where the Scala consumer's are too slow for tests; ``settings`` replaces each of them."""


THREAD_UNKNOWN = -1


class DeliveredMessage(NamedTuple):
    """One message that ``next()`` returned: where it stood, to which stream of its topic, when (wall clock).

    Members of ours do not report the stream: ``THREAD_UNKNOWN``.
    """

    topic: str
    partition: int
    offset: int
    thread: int
    t_ms: int
    value: str | None = None


class MemberProcess(ABC):
    """One member that can be started, watched, signalled and stopped.  Nothing runs before ``start``."""

    def __init__(self, run: SandboxRun, group: str, name: str) -> None:
        self.run = run
        self.group = group
        self.name = name
        self.consumer_id: str | None = None
        self.settings: dict[str, str] = {}
        self._process: ChildProcess | None = None
        self._file: EventFile | None = None
        self._reading = threading.Lock()
        self._events: list[JsonEvent] = []
        self._handed: list[DeliveredMessage] = []

    @abstractmethod
    def _launch(self) -> ChildProcess:
        """Start the program; its standard output goes to ``out.log`` in the member's folder."""

    def _translate(self, line: JsonEvent) -> JsonEvent:
        """Convert one line of the program to the events of the Scala member's program; most are the same."""
        return line

    # --- life ---

    @property
    def process(self) -> ChildProcess:
        if self._process is None:
            raise SandboxError(f"{self.name} was never started")
        return self._process

    def start(self, *, wait: bool = True) -> None:
        """Starts the process; with ``wait``, returns when the streams exist, that is, when the first rebalance is over.

        May be called again after the end; ``events`` and ``handed`` are then those of the new process.
        """
        assert not self.is_running(), f"{self.name} runs already"
        # The caller may keep the lists of an earlier process of this name.
        self._events, self._handed, self.consumer_id = [], [], None
        self._file = EventFile(self.run.root / self.name / "out.log")
        self._process = self._launch()
        if wait:
            self.wait_started()

    def stop(self, timeout_ms: int = STOP_TIMEOUT_MS) -> bool:
        """A clean ``shutdown()``; False if the member had to be killed."""
        self.resume()
        return self.process.stop(timeout_ms)

    def terminate(self) -> None:
        """Asks for a clean ``shutdown()`` and does not wait."""
        self.process.terminate()

    def commit(self, timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """``commitOffsets()``, and waits until it has returned."""
        before = self.count("committed")
        self.process.write_line("commit")
        self.wait_for(lambda: self.count("committed") > before, timeout_ms, "commitOffsets() returns")

    def mbeans(self, timeout_ms: int = STOP_TIMEOUT_MS) -> dict[str, set[str]]:
        """The MBeans of a Scala consumer, as they are now: name -> the names of its attributes."""
        before, told = len(self.events), self.count("mbeans_told")
        self.process.write_line("mbeans")
        self.wait_for(lambda: self.count("mbeans_told") > told, timeout_ms, "tells its MBeans")
        found = [event for event in self.events[before:] if event["event"] == "mbean"]
        return {str(event["name"]): set(str(event["attributes"]).split()) for event in found}

    def kill(self) -> None:
        """SIGKILL: its session lives on in ZooKeeper until it times out."""
        self.process.kill()

    def pause(self) -> None:
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running()

    def close(self) -> None:
        """Ends the process in the quickest way."""
        if self.is_running():
            self.process.kill()

    # --- what it did ---

    @property
    def events(self) -> list[JsonEvent]:
        """Everything but messages, in order."""
        self._read()
        return self._events

    @property
    def delivered(self) -> list[DeliveredMessage]:
        """Every message so far, in order."""
        self._read()
        return self._handed

    def count(self, event: str) -> int:
        """How many events of this name there were."""
        return sum(each["event"] == event for each in self.events)

    def offsets(self) -> dict[tuple[str, int], list[int]]:
        """(topic, partition) -> the delivered offsets, in order."""
        found: dict[tuple[str, int], list[int]] = {}
        for message in self.delivered:
            found.setdefault((message.topic, message.partition), []).append(message.offset)
        return found

    # --- waiting ---

    def wait_for(self, condition: Callable[[], object], timeout_ms: int, what: str = "its condition") -> None:
        """Waits until ``condition`` is true; SandboxError quotes the log if it is not, or if the member ended."""

        def check() -> bool:
            if condition():
                return True
            self.process.check_running()
            # Lines that it wrote at its end count too.
            return bool(condition())

        try:
            wait_until(check, f"{self.name}: {what}", timeout_ms)
        except SandboxError as error:
            last = self.events[-5:]
            raise SandboxError(f"{error}; its last events: {last}; {self.process.log_end()}") from error

    def wait_started(self, timeout_ms: int = START_TIMEOUT_MS) -> None:
        """Until the streams exist; SandboxError if the consumer refused to make them."""
        self.wait_for(lambda: self.count("started") or self.count("failed"), timeout_ms, "starts")
        failed = [event for event in self.events if event["event"] == "failed"]
        if failed:
            raise SandboxError(f"{self.name} failed: {failed[0]['error']}; {self.process.log_end()}")

    def wait_delivered(self, count: int, timeout_ms: int = 30_000) -> list[DeliveredMessage]:
        """Wait until at least ``count`` messages were delivered."""
        self.wait_for(lambda: len(self.delivered) >= count, timeout_ms, f"{count} messages")
        return self.delivered

    def _read(self) -> None:
        if self._file is None:
            return
        with self._reading:
            for event in map(self._translate, self._file.read_new()):
                if event["event"] == "handed":
                    place = event["topic"], event["partition"], event["offset"]
                    thread = event.get("thread", THREAD_UNKNOWN)
                    self._handed.append(DeliveredMessage(*place, thread, event["t"], event.get("value")))
                    continue
                self._events.append(event)
                self.consumer_id = event.get("consumer") or self.consumer_id


class ZooKeeperMember(MemberProcess):
    """A member of a group that ZooKeeper holds."""

    def __init__(self, zookeeper: ZooKeeperServer, group: str, chroot: str, name: str) -> None:
        super().__init__(zookeeper.run, group, name)
        self.zookeeper = zookeeper
        self.chroot = chroot

    def wait_registered(self, timeout_ms: int = START_TIMEOUT_MS) -> str:
        """Wait until its registration exists in ZooKeeper; returns the consumer id."""
        admin = self.zookeeper.admin(self.chroot)
        self.wait_for(lambda: self.events and self.consumer_id, timeout_ms, "connects")
        assert self.consumer_id is not None, "just waited for it"
        self.wait_for(lambda: self.consumer_id in admin.members(self.group), timeout_ms, "registers")
        return self.consumer_id


class ScalaMemberOptions(TypedDict, total=False):
    """The options of ``ScalaMember`` that ``Sandbox.start_member`` passes on."""

    whitelist: str | None
    blacklist: str | None
    streams: int
    consumer_id: str | None
    settings: Mapping[str, str] | None
    listener: bool
    values: bool
    handle_ms: int
    options: tuple[str, ...]


class ScalaMember(ZooKeeperMember):
    """Give ``topics`` (name -> threads), or one of ``whitelist`` and ``blacklist`` (a Java regular expression).

    ``settings`` are the consumer's own.  ``listener`` reports releases and claims (from 0.9 on), ``values`` keeps the
    values of the messages, ``handle_ms`` is the time that one message takes.  ``ignores_start_errors``: it stays in the
    group when its streams could not be made, as programs do that pass over the error.  Nothing runs before ``start``.
    ``options`` go to its Java.
    """

    def __init__(
        self,
        release: str,
        zookeeper: ZooKeeperServer,
        group: str,
        topics: Mapping[str, int] | None = None,
        *,
        chroot: str = "",
        name: str = "member-0",
        whitelist: str | None = None,
        blacklist: str | None = None,
        streams: int = 1,
        consumer_id: str | None = None,
        settings: Mapping[str, str] | None = None,
        listener: bool = False,
        values: bool = False,
        handle_ms: int = 0,
        heap_mb: int = 128,
        ignores_start_errors: bool = False,
        options: tuple[str, ...] = (),
    ) -> None:
        if not artifact_set(release).has_scala_consumer:
            raise SandboxError(f"Kafka {release} has no Scala consumer; 1.1.1 is the last that has")
        assert (topics is not None) + (whitelist is not None) + (blacklist is not None) == 1, "what is to be consumed?"
        super().__init__(zookeeper, group, chroot, name)
        self.release = release
        self._heap_mb = heap_mb
        self._options = options
        self.settings = {
            **TEST_SETTINGS,
            "group.id": group,
            "zookeeper.connect": zookeeper.connect_string(chroot),
            **({"consumer.id": consumer_id} if consumer_id is not None else {}),
            **(settings or {}),
        }
        self._own = {
            **({"member.topics": ",".join(f"{t}:{n}" for t, n in topics.items())} if topics is not None else {}),
            **({"member.whitelist": whitelist} if whitelist is not None else {}),
            **({"member.blacklist": blacklist} if blacklist is not None else {}),
            "member.streams": str(streams),
            "member.listener": str(listener).lower(),
            "member.values": str(values).lower(),
            "member.handle.ms": str(handle_ms),
            "member.survives": str(ignores_start_errors).lower(),
        }

    def _launch(self) -> ChildProcess:
        config = write_properties(
            {**self.settings, **self._own}, self.zookeeper.run.root / self.name / "member.properties"
        )
        command = JavaCommand(
            self.release,
            "ScalaMember",
            (str(config),),
            programs=("ScalaMember", "Lines"),
            heap_mb=self._heap_mb,
            options=self._options,
        )
        return JavaProcess(self.zookeeper.run, "member", self.name, command, reads_commands=True)
