"""``GroupLab``: members of ours and Scala members in one group, changes one after another, and one check at the end.

    with GroupLab(sandbox, "group", {"clicks": 16}, folder=tmp_path, strategy="range") as lab:
        lab.load("clicks", per_second=500)
        with lab.change("the first member joins"):
            lab.start_ours("ours-1")
        with lab.change("a Scala consumer joins"):
            lab.start_scala("scala-1", "1.1.1")
        with lab.change("ours-1 is killed"):
            lab.kill("ours-1")
        lab.finish()

After each change the group must become stable: the registered members are the expected ones, and the owners equal the
assignment that members of ours compute from the registrations, read as znode bytes.  ``finish`` waits until everything
was delivered, merges the lines of all programs into one history, and checks it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.lab import history_files
from tests.lab.group_observer import GroupObserver
from tests.lab.python_member import PythonMember
from zkconsumer.errors import MalformedZnode, SandboxError
from zkconsumer.member.assignment_planner import ZooKeeperAssignmentPlanner
from zkconsumer.member.group_view import GroupView, TopicSubscription
from zkconsumer.testing.checker import (
    AssignmentExpected,
    Continued,
    FullReadExpected,
    HistoryEvent,
    HistoryNote,
    HistoryWriter,
    Killed,
    Leaving,
    Left,
    LogRangeReported,
    MemberDeclared,
    Paused,
    Policy,
    PolicyChanged,
    Verdict,
    check_history,
    read_history,
)
from zkconsumer.testing.sandbox import MemberProcess, Sandbox, ScalaMember, wait_until
from zkconsumer.types import TopicPartition
from zkconsumer.zk.kafka_znodes import parse_topic
from zkconsumer.zk.member_registration import parse_registration

SETTLE_TIMEOUT_MS = 30_000
STABLE_MS = 400
"""For how long nothing may move before the group counts as settled."""

DRAIN_TIMEOUT_MS = 60_000
DELETE_TIMEOUT_MS = 30_000
STOP_TIMEOUT_MS = 20_000
DIFFERENCES_SHOWN_MAX = 6
SESSION_WORDS = ("ession", "xpired", "state changed", "reconnect")
SESSION_LINES_MAX = 30
LAST_LINES = 8


@dataclass(frozen=True, slots=True)
class ChangeTiming:
    """The time of a change of the group: until every partition had its one correct owner again."""

    what: str
    from_command_ms: int
    from_ids_ms: int
    """From the last change among the registrations; -1 when there was none."""

    def __str__(self) -> str:
        ids = f"{self.from_ids_ms / 1000:6.2f} s after ids changed" if self.from_ids_ms >= 0 else "ids did not change"
        return f"{self.what:<44} {self.from_command_ms / 1000:6.2f} s after the command, {ids}"


class GroupLab:
    """One group on a running sandbox.

    ``topics``: name -> partitions; created if they do not exist.  ``strategy`` and ``compatibility`` are those of the
    *Scala* members; members of ours get the strategy, and detect the rest.  ``ours`` and ``scala`` are settings for all
    members of a kind, ``policy`` that of the checker.  ``folder``: where the history is stored.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        group: str,
        topics: Mapping[str, int],
        *,
        folder: Path,
        strategy: str = "range",
        compatibility: str = "0.10.2",
        ours: Mapping[str, str] | None = None,
        scala: Mapping[str, str] | None = None,
        policy: Mapping[str, int | None] | None = None,
    ) -> None:
        self.sandbox = sandbox
        self.group = group
        self.topics = dict(topics)
        self.folder = folder
        self.members: dict[str, MemberProcess] = {}
        self.changes: list[ChangeTiming] = []
        self.verdict: Verdict | None = None
        self._strategy = strategy
        self._compatibility = compatibility
        self._ours = {"partition.assignment.strategy": strategy, **(ours or {})}
        self._scala = {"partition.assignment.strategy": strategy, **(scala or {})}
        self._expected: set[str] = set()
        self._left_members: set[str] = set()
        self._foreign_registrations: set[str] = set()
        self._is_loading = False
        self._deleted: set[tuple[str, int]] = set()
        folder.mkdir(parents=True, exist_ok=True)
        self._own_lines = folder / "lab.jsonl"
        self._own_lines.unlink(missing_ok=True)
        self._writer = HistoryWriter(self._own_lines)
        self._began_ms = self._now_ms()
        self._policy = dict(policy or {})
        for topic, partitions in self.topics.items():
            if not sandbox.admin.exists(f"/brokers/topics/{topic}"):
                sandbox.create_topic(topic, partitions)
        self.observer = GroupObserver(sandbox.zookeeper_connect, group, self.topics, self._writer, self)

    def __enter__(self) -> GroupLab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(keep_logs=kind is not None)

    def close(self, *, keep_logs: bool = False) -> None:
        """End all processes, in the quickest way."""
        if self._is_loading:
            with suppress(SandboxError):  # a test that failed may have taken the broker away
                self.halt()
        for member in self.members.values():
            member.close()
        self.observer.close()
        self._writer.close()
        if keep_logs:
            self._keep_logs()

    # --- calls of the observer ----------------------------------------------------------------------------------

    def name_of(self, consumer_id: str) -> str | None:
        name = consumer_id.removeprefix(f"{self.group}_")
        return name if name in self.members else None

    def is_expected_to_leave(self, consumer_id: str) -> bool:
        return self.name_of(consumer_id) in self._left_members

    def returns_by_acquiring(self, consumer_id: str) -> bool:
        return isinstance(self.members.get(self.name_of(consumer_id) or ""), ScalaMember)

    # --- changes ------------------------------------------------------------------------------------------------

    def start_ours(
        self,
        name: str,
        threads: int | Mapping[str, int] = 1,
        *,
        whitelist: str | None = None,
        settings: Mapping[str, str] | None = None,
        handle_ms: int = 0,
        commit_every: int | None = None,
    ) -> PythonMember:
        """A member of ours; ``threads``: for each topic, or of which topics how many; of a white list, its streams."""
        member = PythonMember(
            self.sandbox.zookeeper,
            self.group,
            self._threads(threads) if whitelist is None else None,
            whitelist=whitelist,
            streams=_streams(threads),
            chroot=self.sandbox.chroot,
            name=self._process_name(name),
            history_name=name,
            consumer_id=name,
            settings={**self._ours, **(settings or {})},
            handle_ms=handle_ms,
            commit_every=commit_every,
        )
        self._start(name, member)
        return member

    def start_scala(
        self,
        name: str,
        release: str,
        threads: int | Mapping[str, int] = 1,
        *,
        whitelist: str | None = None,
        settings: Mapping[str, str] | None = None,
        **others: Any,
    ) -> ScalaMember:
        """A Scala consumer; ``threads`` and ``whitelist`` as of ours, ``others`` as ``ScalaMember`` takes them."""
        wanted = self._threads(threads)
        count = max(1, sum(wanted.values())) if whitelist is None else _streams(threads)
        member = ScalaMember(
            release,
            self.sandbox.zookeeper,
            self.group,
            wanted if whitelist is None else None,
            whitelist=whitelist,
            streams=count,
            chroot=self.sandbox.chroot,
            name=self._process_name(name),
            consumer_id=name,
            settings={**self._scala, **(settings or {})},
            **others,
        )
        known = MemberDeclared(self._now_ms(), name, "scala", None, f"{self.group}_{name}", count)
        self._write(known)
        self._start(name, member)
        return member

    def leave(self, name: str) -> None:
        """A clean ``close()``, or ``shutdown()``; waits until the process has ended."""
        member = self.members[name]
        self._expect_leave(name)
        if isinstance(member, ScalaMember):
            self._write(Leaving(self._now_ms(), name))
        is_clean = member.stop(STOP_TIMEOUT_MS)
        if isinstance(member, ScalaMember):
            self._write(Left(self._now_ms(), name, is_clean))
        if not is_clean:
            raise SandboxError(f"{name} did not end within {STOP_TIMEOUT_MS} ms; {member.process.log_end()}")

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._expect_leave(name)
        self.members[name].kill()
        self._write(Killed(self._now_ms(), name))

    def pause(self, name: str) -> None:
        """SIGSTOP.  ``change`` then waits until its session is over."""
        self._write(Paused(self._now_ms(), name))
        self.members[name].pause()
        self._expected.discard(name)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._write(Continued(self._now_ms(), name))
        self.members[name].resume()
        self._expected.add(name)

    def create(self, topic: str, partitions: int) -> None:
        """One more topic."""
        self.observer.add_topic(topic, partitions)
        self.sandbox.create_topic(topic, partitions)
        self.topics[topic] = partitions

    def delete(self, topic: str) -> None:
        """Delete a topic, by the broker's own deletion; nothing may have been produced to it."""
        self.sandbox.admin.put(f"/admin/delete_topics/{topic}", b"")
        wait_until(
            lambda: not self.sandbox.admin.exists(f"/brokers/topics/{topic}"), f"{topic} is deleted", DELETE_TIMEOUT_MS
        )
        self._deleted |= {(topic, number) for number in range(self.topics.pop(topic))}

    def grow(self, topic: str, partitions: int) -> None:
        """More partitions for a topic."""
        self.observer.add_topic(topic, partitions)
        self.sandbox.grow_topic(topic, partitions)
        self.topics[topic] = partitions

    def put_foreign_registration(self, consumer_id: str, data: bytes) -> None:
        """A registration that no member of the lab has made; ``remove_foreign_registration`` takes it away."""
        self._foreign_registrations.add(consumer_id)
        self.sandbox.admin.put(f"/consumers/{self.group}/ids/{consumer_id}", data)

    def remove_foreign_registration(self, consumer_id: str) -> None:
        """The end of ``put_foreign_registration``."""
        self.sandbox.admin.delete(f"/consumers/{self.group}/ids/{consumer_id}")
        self._foreign_registrations.discard(consumer_id)

    def note(self, text: str) -> None:
        """Add a line for the reader to the history."""
        self._write(HistoryNote(self._now_ms(), text))

    # --- load ---------------------------------------------------------------------------------------------------

    def load(self, topic: str, per_second: int) -> None:
        """Records for all partitions of the topic, until ``halt``."""
        self._is_loading = True
        self.sandbox.producer.start_rate(topic, self.topics[topic], per_second)

    def halt(self) -> None:
        """End every load of the sandbox."""
        self._is_loading = False
        self.sandbox.producer.stop_rate()

    # --- settling -----------------------------------------------------------------------------------------------

    @contextmanager
    def change(self, what: str, timeout_ms: int = SETTLE_TIMEOUT_MS) -> Iterator[None]:
        """The body is one change; after it the group must become stable."""
        self.note(what)
        began_ms = self._now_ms()
        yield
        self.settle(what, began_ms=began_ms, timeout_ms=timeout_ms)

    def settle(self, what: str, *, began_ms: int | None = None, timeout_ms: int = SETTLE_TIMEOUT_MS) -> ChangeTiming:
        """Wait until members and owners are as they must be, and put that down as a checkpoint."""
        began_ms = self._now_ms() if began_ms is None else began_ms
        try:
            owners = wait_until(self._settled_owners, what, timeout_ms)
        except SandboxError as error:
            raise AssertionError(f"the group did not settle: {error}; {self._differences()}") from error
        assert owners is not None, "it waits for an answer"
        covered_ms = max(self.observer.owners_changed_ms, self.observer.ids_changed_ms)
        ids_ms = self.observer.ids_changed_ms
        change = ChangeTiming(what, max(0, covered_ms - began_ms), covered_ms - ids_ms if ids_ms >= began_ms else -1)
        self.changes.append(change)
        self._write(AssignmentExpected(self._now_ms(), {str(tp): owner for tp, owner in sorted(owners.items())}))
        return change

    def expected_owners(self) -> dict[TopicPartition, str]:
        """The assignment that the registrations give, each as its own member computes it."""
        admin = self.sandbox.admin
        members: dict[str, TopicSubscription] = {}
        for consumer_id in admin.members(self.group):
            data = admin.get(f"/consumers/{self.group}/ids/{consumer_id}")
            if data is not None:
                with suppress(MalformedZnode):  # a registration that no release accepts does not count
                    registration = parse_registration(data)
                    members[consumer_id] = TopicSubscription(registration.pattern, registration.subscription)
        topics: dict[str, tuple[int, ...]] = {}
        for topic in sorted(self.topics):
            data = admin.get(f"/brokers/topics/{topic}")
            if data is not None:
                topics[topic] = parse_topic(data).partitions
        view = GroupView(members, topics)
        owners: dict[TopicPartition, str] = {}
        for consumer_id in members:
            planner = ZooKeeperAssignmentPlanner(
                consumer_id, self._strategy, self._compatibility, exclude_internal_topics=True
            )
            owners |= planner.plan(view).own_partitions
        return owners

    @property
    def owners(self) -> dict[TopicPartition, str]:
        """The owners, as the observer sees them."""
        return {tp: node.owner for tp, node in self.observer.owners.items()}

    def owned_by(self, name: str) -> set[TopicPartition]:
        """The partitions that a member owns."""
        own = f"{self.group}_{name}-"
        return {tp for tp, owner in self.owners.items() if owner.startswith(own) and owner[len(own) :].isdigit()}

    def _expected_ids(self) -> frozenset[str]:
        return frozenset(f"{self.group}_{name}" for name in self._expected) | self._foreign_registrations

    def _settled_owners(self) -> dict[TopicPartition, str] | None:
        for name in self._expected:
            self.members[name].process.check_running()
        if self.observer.ids != self._expected_ids() or self.observer.stable_ms < STABLE_MS:
            return None
        expected = self.expected_owners()
        return expected if self.owners == expected else None

    def _differences(self) -> str:
        ids, expected_ids = self.observer.ids, self._expected_ids()
        if ids != expected_ids:
            return f"registered are {sorted(ids)}, expected {sorted(expected_ids)}"
        owners, expected = self.owners, self.expected_owners()
        wrong = sorted(tp for tp in owners.keys() | expected.keys() if owners.get(tp) != expected.get(tp))
        shown = [f"{tp}: {owners.get(tp)} instead of {expected.get(tp)}" for tp in wrong[:DIFFERENCES_SHOWN_MAX]]
        return f"{len(wrong)} of {len(expected)} owners are wrong: {'; '.join(shown)}"

    # --- the end ------------------------------------------------------------------------------------------------

    def finish(self) -> Verdict:
        """Stop the load, wait until all was delivered, end the members, check the history.

        Raises AssertionError with the text of the verdict, and the path of the history, when anything is wrong.
        """
        self.halt()
        ends = dict.fromkeys(self._deleted, 0)
        ends |= {(topic, number): 0 for topic, partitions in self.topics.items() for number in range(partitions)}
        ends |= history_files.log_end_offsets(self.sandbox.producer.acked, self.topics)
        self.wait_drained(ends)
        self._stop_all()
        for (topic, partition), end in sorted(ends.items()):
            self._write(LogRangeReported(self._now_ms(), topic, partition, 0, end))
        self._write(FullReadExpected(self._now_ms()))
        return self.check()

    def wait_drained(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Wait until every record below these ends was delivered."""
        reached: dict[tuple[str, int], set[int]] = {place: set() for place in ends}
        seen: dict[str, int] = {}

        def left() -> int:
            for name, member in self.members.items():
                handed = member.delivered
                for message in handed[seen.get(name, 0) :]:
                    reached.setdefault((message.topic, message.partition), set()).add(message.offset)
                seen[name] = len(handed)
            return sum(end - len(reached[place]) for place, end in ends.items())

        try:
            wait_until(lambda: left() <= 0, "every record is delivered", DRAIN_TIMEOUT_MS)
        except SandboxError as error:
            missing = {place: end - len(reached[place]) for place, end in ends.items() if end > len(reached[place])}
            raise AssertionError(f"{error}; missing are {missing}; owners: {self.owners}") from error

    def check(self) -> Verdict:
        """Merge the lines that all programs have written so far, and check them.

        The observer's delay is what it measured: it shares the machine with the members, and a busy machine delays it.
        """
        history = self.folder / "history.jsonl"
        delay_ms = max(Policy().observer_delay_ms, self.observer.delay_ms)
        policy = PolicyChanged(self._began_ms, self._policy | {"observer_delay_ms": delay_ms})
        history_files.merge([policy, *self._events()], history)
        verdict = self.verdict = check_history(read_history(history))
        if not verdict.ok:
            self._keep_logs()
            text = history_files.failure_text(verdict, history)
            raise AssertionError(f"{text}\nthe lines of the observer were at most {delay_ms} ms late")
        return verdict

    def report(self) -> str:
        """The times of the changes, and what was delivered again and why."""
        lines = [f"{self.group}:", *(f"  {change}" for change in self.changes)]
        if self.verdict is not None:
            counts = self.verdict.counts
            lines.append(
                f"  {counts.delivered} delivered of {counts.records}, "
                f"ownership transfers {dict(counts.ownership_transfers)}"
            )
            lines.append(f"  duplicates {dict(counts.duplicates)}")
        return "\n".join(lines)

    # --- inside -------------------------------------------------------------------------------------------------

    def _threads(self, threads: int | Mapping[str, int]) -> dict[str, int]:
        return dict.fromkeys(self.topics, threads) if isinstance(threads, int) else dict(threads)

    def _process_name(self, name: str) -> str:
        """The name of its folder: other groups of this sandbox may have members of the same name."""
        return f"{self.group}-{name}"

    def _start(self, name: str, member: MemberProcess) -> None:
        assert name not in self.members, f"{name}: a name must be used once, or the history is ambiguous"
        self.members[name] = member
        self._expected.add(name)
        member.start()

    def _expect_leave(self, name: str) -> None:
        self._expected.discard(name)
        self._left_members.add(name)

    def _stop_all(self) -> None:
        running = {name: member for name, member in self.members.items() if member.is_running()}
        for name, member in running.items():
            self._expect_leave(name)
            member.resume()
            member.terminate()
        for name in running:
            self.leave(name)

    def _events(self) -> Iterator[HistoryEvent]:
        yield from history_files.read_python_output(self._own_lines)
        for name, member in self.members.items():
            path = self._folder_of(member) / "out.log"
            yield from (
                history_files.read_scala_output(path, name)
                if isinstance(member, ScalaMember)
                else history_files.read_python_output(path)
            )

    def _keep_logs(self) -> None:
        """Copy the logs of the members; print what they and ZooKeeper say about sessions, and their last lines."""
        sources = {name: self._folder_of(member) for name, member in self.members.items()}
        sources["zookeeper"] = self.sandbox.run.root / self.sandbox.zookeeper.name
        for name, folder in sources.items():
            for kind in ("log.txt", "out.log"):
                if (folder / kind).exists():
                    shutil.copy(folder / kind, self.folder / f"{name}.{kind}")
            if (folder / "log.txt").exists():
                lines = (folder / "log.txt").read_text(errors="replace").splitlines()
                about = [line for line in lines if any(word in line for word in SESSION_WORDS)]
                print(
                    f"--- {name}: sessions",
                    *about[-SESSION_LINES_MAX:],
                    "--- end of its log",
                    *lines[-LAST_LINES:],
                    sep="\n",
                )

    def _folder_of(self, member: MemberProcess) -> Path:
        return self.sandbox.run.root / member.name

    def _now_ms(self) -> int:
        return self._writer.now_ms()

    def _write(self, event: HistoryEvent) -> None:
        self._writer.write(event)


def _streams(threads: int | Mapping[str, int]) -> int:
    """Of a white list, which has the same number of streams for every topic."""
    return threads if isinstance(threads, int) else max(threads.values(), default=1)
