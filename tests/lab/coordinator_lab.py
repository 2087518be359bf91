"""``CoordinatorGroupLab``: members of several client libraries in one coordinator group, changes one after another,
and one check of the history.

    with CoordinatorGroupLab(run, bootstrap, load, "group", {"clicks": 6}, folder=tmp_path) as lab:
        lab.load("clicks", per_second=300)
        with lab.change("a Java consumer joins"):
            lab.start("java-1", "java-3.9.1")
        with lab.change("librdkafka joins"):
            lab.start("c-1", "confluent")
        lab.finish()

The counterpart of ``GroupLab`` for groups that a broker coordinates.  After each change exactly one of the expected
members must own each partition, by the members' own reports, and each must own its part; at the end every record was
delivered, and none again without a reason.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from tests.lab import history_files
from tests.lab.coordinator_member import CoordinatorMember
from zkconsumer.errors import SandboxError
from zkconsumer.testing.checker import (
    FullReadExpected,
    HistoryEvent,
    HistoryNote,
    HistoryWriter,
    Killed,
    LogRangeReported,
    PolicyChanged,
    Verdict,
    check_history,
    read_history,
)
from zkconsumer.testing.sandbox import wait_until
from zkconsumer.testing.sandbox.producer_process import ProducerProcess
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun

SETTLE_TIMEOUT_MS = 45_000
DRAIN_TIMEOUT_MS = 60_000
STOP_TIMEOUT_MS = 20_000

NO_REDELIVERY_POLICY: Mapping[str, int | None] = {"ours_to_ours": 0}
"""No record is delivered again when a member leaves or a partition moves: processed records were committed."""


class CoordinatorGroupLab:
    """One group on brokers that run already, with topics that exist.

    ``topics``: name -> partitions.  ``load`` produces.  ``strategy`` is that of all members.  ``policy``: that of the
    checker.  ``folder``: where the history is stored.
    """

    def __init__(
        self,
        run: SandboxRun,
        bootstrap: str,
        load: ProducerProcess,
        group: str,
        topics: Mapping[str, int],
        *,
        folder: Path,
        strategy: str = "range",
        policy: Mapping[str, int | None] = NO_REDELIVERY_POLICY,
    ) -> None:
        self.group = group
        self.topics = dict(topics)
        self.folder = folder
        self.members: dict[str, CoordinatorMember] = {}
        self.verdict: Verdict | None = None
        self._run = run
        self._bootstrap = bootstrap
        self._load = load
        self._strategy = strategy
        self._expected: set[str] = set()
        self._is_loading = False
        folder.mkdir(parents=True, exist_ok=True)
        self._own_lines = folder / "lab.jsonl"
        self._writer = HistoryWriter(self._own_lines)
        self._write(PolicyChanged(self._now_ms(), dict(policy)))

    def __enter__(self) -> CoordinatorGroupLab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_loading:
            with suppress(SandboxError):  # a test that failed may have taken the broker away
                self.halt()
        for member in self.members.values():
            member.close()
        self._writer.close()
        if kind is not None:
            self._keep_logs()

    # --- changes ------------------------------------------------------------------------------------------------

    def start(
        self,
        name: str,
        client: str,
        *,
        instance: str | None = None,
        settings: Mapping[str, str] | None = None,
        handle_ms: int = 0,
    ) -> CoordinatorMember:
        """Start a member of this client library; ``change`` then waits until it owns its part."""
        assert name not in self.members, f"{name}: a name must be used once, or the history is ambiguous"
        member = self.members[name] = CoordinatorMember(
            self._run,
            client,
            self._bootstrap,
            self.group,
            [*self.topics],
            name=f"{self.group}-{name}",
            history_name=name,
            strategy=self._strategy,
            instance=instance,
            settings=settings,
            handle_ms=handle_ms,
        )
        self._expected.add(name)
        member.start(wait=False)
        return member

    def leave(self, name: str) -> None:
        """A clean ``close()``; waits until the process has ended."""
        self._expected.discard(name)
        member = self.members[name]
        if not member.stop(STOP_TIMEOUT_MS):
            raise SandboxError(f"{name} did not end within {STOP_TIMEOUT_MS} ms; {member.process.log_end()}")

    def kill(self, name: str) -> None:
        """SIGKILL: the coordinator finds out when the session is over."""
        self._expected.discard(name)
        self.members[name].kill()
        self._write(Killed(self._now_ms(), name))

    def note(self, text: str) -> None:
        """Add a line for the reader to the history."""
        self._write(HistoryNote(self._now_ms(), text))

    def load(self, topic: str, per_second: int) -> None:
        """Records for all partitions of the topic, until ``halt``."""
        self._is_loading = True
        self._load.start_rate(topic, self.topics[topic], per_second)

    def halt(self) -> None:
        """End the load."""
        self._is_loading = False
        self._load.stop_rate()

    @contextmanager
    def change(self, what: str, timeout_ms: int = SETTLE_TIMEOUT_MS) -> Iterator[None]:
        """The body is one change; after it the group must become stable."""
        self.note(what)
        yield
        try:
            wait_until(self._is_settled, what, timeout_ms)
        except SandboxError as error:
            held = self.owned_partitions()
            without = [name for name, places in held.items() if not places] or [*held]
            logs = "\n".join(f"{name}: {self.members[name].process.log_end()}" for name in without)
            raise AssertionError(f"the group did not settle: {error}; {held}\n{logs}") from error

    def owned_partitions(self) -> dict[str, set[tuple[str, int]]]:
        """Member -> the partitions that it reports as owned."""
        return {name: self.members[name].owned() for name in sorted(self._expected)}

    def _is_settled(self) -> bool:
        for name in self._expected:
            self.members[name].process.check_running()
        held = self.owned_partitions()
        counts = Counter(place for places in held.values() for place in places)
        wanted = {(topic, number) for topic, partitions in self.topics.items() for number in range(partitions)}
        return set(counts) == wanted and set(counts.values()) <= {1} and all(held.values())

    # --- the end ------------------------------------------------------------------------------------------------

    def finish(self) -> Verdict:
        """Stop the load, wait until all was delivered, end the members, check the history.

        Raises AssertionError with the text of the verdict, and the path of the history, when anything is wrong.
        """
        self.halt()
        ends = {(topic, number): 0 for topic, partitions in self.topics.items() for number in range(partitions)}
        ends |= history_files.log_end_offsets(self._load.acked, self.topics)
        self._wait_drained(ends)
        for name in sorted(self._expected):
            self.leave(name)
        for (topic, partition), end in sorted(ends.items()):
            self._write(LogRangeReported(self._now_ms(), topic, partition, 0, end))
        self._write(FullReadExpected(self._now_ms()))
        history = self.folder / "history.jsonl"
        history_files.merge(self._events(), history)
        verdict = self.verdict = check_history(read_history(history))
        if not verdict.ok:
            raise AssertionError(history_files.failure_text(verdict, history))
        return verdict

    def report(self) -> str:
        """What was delivered, and what was delivered again and why."""
        if self.verdict is None:
            return f"{self.group}: not judged"
        counts = self.verdict.counts
        return f"{self.group}: {counts.delivered} delivered of {counts.records}, duplicates {dict(counts.duplicates)}"

    def _wait_drained(self, ends: Mapping[tuple[str, int], int]) -> None:
        def missing() -> dict[tuple[str, int], int]:
            seen: dict[tuple[str, int], set[int]] = {place: set() for place in ends}
            for member in self.members.values():
                for message in member.delivered:
                    seen[message.topic, message.partition].add(message.offset)
            return {place: end - len(seen[place]) for place, end in ends.items() if end > len(seen[place])}

        try:
            wait_until(lambda: not missing(), "every record is delivered", DRAIN_TIMEOUT_MS, poll_ms=100)
        except SandboxError as error:
            raise AssertionError(f"{error}; missing are {missing()}; {self.owned_partitions()}") from error

    def _events(self) -> Iterator[HistoryEvent]:
        yield from history_files.read_python_output(self._own_lines)
        for member in self.members.values():
            yield from history_files.read_python_output(self._run.root / member.name / "out.log")

    def _keep_logs(self) -> None:
        for name, member in self.members.items():
            for kind in ("log.txt", "out.log"):
                source = self._run.root / member.name / kind
                if source.exists():
                    shutil.copy(source, self.folder / f"{name}.{kind}")

    def _now_ms(self) -> int:
        return self._writer.now_ms()

    def _write(self, event: HistoryEvent) -> None:
        self._writer.write(event)
