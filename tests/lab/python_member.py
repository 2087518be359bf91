"""A member of ours as a process, with the surface of ``ScalaMember``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from zkconsumer.testing.sandbox.child_process import ChildProcess, write_properties
from zkconsumer.testing.sandbox.event_file import JsonEvent
from zkconsumer.testing.sandbox.member_process import TEST_SETTINGS, ZooKeeperMember
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun
from zkconsumer.testing.sandbox.zookeeper_process import ZooKeeperServer

PROGRAM = "tests.lab.member_program"
MIGRATING_PROGRAM = "tests.lab.migrating_program"
"""The same for a migrating member."""

ROOT = Path(__file__).resolve().parents[2]
STACK_DUMP_MS = 500

# The program writes a history for the checker; these are the names of the same events in the Scala member's program.
SCALA_EVENT_NAMES = {"joined": "started", "leaving": "stopping", "left": "stopped"}


def translate_event(line: JsonEvent) -> JsonEvent:
    """A line of a history as an event of the Scala member's program."""
    if line["event"] == "member":
        return line | {"consumer": line.get("consumer_id")}
    if line["event"] == "note":
        word, _, rest = line["text"].partition(" ")
        return {"event": word, "t": line["t"], "error": rest}
    return line | {"event": SCALA_EVENT_NAMES.get(line["event"], line["event"])}


class PythonProcess(ChildProcess):
    """A program of this folder, run by the Python that runs us; it reads commands on its standard input."""

    def __init__(self, run: SandboxRun, kind: str, name: str, module: str, arguments: Sequence[str]) -> None:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        # Python ignores an unknown -X option, and a reaper finds it in the command line.
        words = [sys.executable, "-X", run.marker, "-m", module, *arguments]
        super().__init__(run, kind, name, words, environment={**os.environ, "PYTHONPATH": path})

    def stop(self, timeout_ms: int) -> bool:
        """As for every process; if it has to be killed, it first writes the stacks of its threads to its log."""
        self.resume()
        self.terminate()
        if self.wait(timeout_ms) is not None:
            return True
        self._signal(signal.SIGUSR1)
        self.wait(STACK_DUMP_MS)
        self.kill()
        return False


class PythonMember(ZooKeeperMember):
    """Give ``topics`` (name -> threads), or one of ``whitelist`` and ``blacklist`` with ``streams``.

    ``settings`` are the consumer's own; nothing runs before ``start``.

    ``handle_ms`` is the time that one message takes, ``commit_every`` calls ``commit_offsets()`` after so many
    messages of a stream.  ``out.log`` in its folder is a history that ``zkconsumer check`` reads; the member is called
    ``history_name`` there.  ``program``: whose member it is.
    """

    def __init__(
        self,
        zookeeper: ZooKeeperServer,
        group: str,
        topics: Mapping[str, int] | None = None,
        *,
        chroot: str = "",
        name: str = "ours-0",
        history_name: str | None = None,
        whitelist: str | None = None,
        blacklist: str | None = None,
        streams: int = 1,
        consumer_id: str | None = None,
        settings: Mapping[str, str] | None = None,
        handle_ms: int = 0,
        commit_every: int | None = None,
        program: str = PROGRAM,
    ) -> None:
        super().__init__(zookeeper, group, chroot, name)
        assert (topics is not None) + (whitelist is not None) + (blacklist is not None) == 1, "what is to be consumed?"
        self._wanted = [word for topic, threads in (topics or {}).items() for word in ("--topic", f"{topic}:{threads}")]
        for option, pattern in (("--whitelist", whitelist), ("--blacklist", blacklist)):
            if pattern is not None:
                self._wanted += [option, pattern, "--streams", str(streams)]
        self.settings = {
            **TEST_SETTINGS,
            "group.id": group,
            "zookeeper.connect": zookeeper.connect_string(chroot),
            **({"consumer.id": consumer_id} if consumer_id is not None else {}),
            **(settings or {}),
        }
        self._history_name = history_name or name
        self._handle_ms = handle_ms
        self._commit_every = commit_every
        self._program = program

    def log_lines(self, word: str) -> list[str]:
        """The lines of its log that hold this word (an event's name, as a rule)."""
        return [line for line in self.process.log_text().splitlines() if word in line]

    def _launch(self) -> ChildProcess:
        config = write_properties(self.settings, self.zookeeper.run.root / self.name / "member.properties")
        arguments = [str(config), *self._wanted, "--name", self._history_name, "--handle-ms", str(self._handle_ms)]
        if self._commit_every is not None:
            arguments += ["--commit-every", str(self._commit_every)]
        return PythonProcess(self.zookeeper.run, "member", self.name, self._program, arguments)

    def _translate(self, line: JsonEvent) -> JsonEvent:
        return translate_event(line)
