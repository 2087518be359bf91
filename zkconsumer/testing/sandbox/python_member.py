"""A member of ours as a process, with the surface of ``ScalaMember``."""

from __future__ import annotations

from collections.abc import Mapping

from zkconsumer.testing.sandbox.child_process import ChildProcess, PythonProcess, write_properties
from zkconsumer.testing.sandbox.event_file import JsonEvent
from zkconsumer.testing.sandbox.member_process import TEST_SETTINGS, ZooKeeperMember
from zkconsumer.testing.sandbox.zookeeper_process import ZooKeeperServer

PROGRAM = "zkconsumer.testing.member_program"
MIGRATING_PROGRAM = "bridge.testing.migrating_program"
"""The same of a member that can be moved: started by its name, nothing of it is imported here."""

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
