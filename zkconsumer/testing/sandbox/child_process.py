"""One process, Java's or Python's: start, check, signal, stop.

                start                 stop, kill
    (nothing) --------> running <--> paused --------> ended
                           `--- ends itself --------------^

Every process leads its own session, so that neither Ctrl-C nor a closed terminal reaches it by accident, and a signal
from here reaches its child processes too.  A process that must not outlive us reads a pipe that we keep open
(``Guard.java``).
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import artifacts, java
from zkconsumer.testing.sandbox.class_archive import JavaProgram, start_options, store_names
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun

KILL_TIMEOUT_S = 10
LOG_LINES_QUOTED = 25

_LOG4J = """\
log4j.rootLogger=INFO, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d{ISO8601} %p %c{1} %m (%t)%n
log4j.logger.org.apache.kafka.clients=WARN
log4j.logger.org.apache.kafka.common=WARN
"""
_LOG4J2 = """\
rootLogger.level=info
rootLogger.appenderRef.err.ref=err
appender.err.type=Console
appender.err.name=err
appender.err.target=SYSTEM_ERR
appender.err.layout.type=PatternLayout
appender.err.layout.pattern=%d{ISO8601} %p %c{1} %m (%t)%n
"""


@dataclass(frozen=True, slots=True)
class JavaCommand:
    """The program: a main class of a release's jars, or programs that are compiled against them.

    ``programs``: the names of their sources in the folder ``sources``, without ``.java``; they are before the jars.
    ``jar``: is used with its own class path instead of the jars of a release of Kafka; ``release`` is its release.
    """

    release: str
    main: str
    arguments: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    heap_mb: int = 128
    options: tuple[str, ...] = ()
    sources: Path = java.SOURCES
    jar: Path | None = None


@dataclass(frozen=True, slots=True)
class ProcessFiles:
    """Where a process writes."""

    out: Path
    log: Path

    @classmethod
    def of(cls, folder: Path) -> ProcessFiles:
        """Those of the process whose folder this is."""
        return cls(folder / "out.log", folder / "log.txt")


class ChildProcess:
    """A process with a folder, a record in its run, and, if ``has_input``, a pipe that we hold at its standard input.

    ``run.marker`` must be a word of ``arguments``.  ``environment``: its variables; None: ours.
    """

    def __init__(
        self,
        run: SandboxRun,
        kind: str,
        name: str,
        arguments: Sequence[str],
        *,
        has_input: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._run = run
        folder = _folder(run, name)
        self.files = ProcessFiles.of(folder)
        stdin = subprocess.PIPE if has_input else subprocess.DEVNULL
        with self.files.out.open("ab") as out, self.files.log.open("ab") as log:
            self._log_start = self.files.log.stat().st_size
            self._popen = subprocess.Popen(
                arguments, stdin=stdin, stdout=out, stderr=log, cwd=folder, env=environment, start_new_session=True
            )
        self._record = run.record(self.pid, kind, name)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def is_running(self) -> bool:
        """Whether the process exists; a paused one does."""
        return self._popen.poll() is None

    def check_running(self) -> None:
        """Raises SandboxError, with the end of the log, if the process has ended."""
        code = self._popen.poll()
        if code is not None:
            self._forget()
            raise SandboxError(f"{self.name} ended with code {code}; {self.log_end()}")

    def write_line(self, line: str) -> None:
        """A line on the standard input of a talking process."""
        assert self._popen.stdin is not None, "only talking processes are spoken to"
        try:
            self._popen.stdin.write(line.encode() + b"\n")
            self._popen.stdin.flush()
        except OSError as error:
            raise SandboxError(f"{self.name} no longer listens; {self.log_end()}") from error

    def close_input(self, text: str = "") -> None:
        """Some last text on the standard input of a talking process, and its end."""
        assert self._popen.stdin is not None, "only talking processes are spoken to"
        with suppress(OSError):  # it may have ended without reading
            self._popen.stdin.write(text.encode())
            self._popen.stdin.close()

    def pause(self) -> None:
        """SIGSTOP: the process pauses with all its connections open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until the process has ended."""
        self._signal(signal.SIGKILL)
        self._popen.wait(KILL_TIMEOUT_S)
        self._forget()

    def terminate(self) -> None:
        """SIGTERM only; a paused process hears it when it is resumed."""
        self._signal(signal.SIGTERM)

    def wait(self, timeout_ms: int) -> int | None:
        """The exit code, or None if the process still runs after ``timeout_ms``."""
        try:
            code = self._popen.wait(timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            return None
        self._forget()
        return code

    def stop(self, timeout_ms: int) -> bool:
        """SIGTERM, patience, SIGKILL; False if it had to be killed."""
        self.resume()
        self.terminate()
        if self.wait(timeout_ms) is not None:
            return True
        self.kill()
        return False

    def log_text(self) -> str:
        """The log of this process."""
        with self.files.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def log_end(self, lines: int = LOG_LINES_QUOTED) -> str:
        """The end of the log as part of an error text."""
        last = "\n".join(self.log_text().splitlines()[-lines:])
        return f"the end of {self.files.log}:\n{last}"

    def _signal(self, number: signal.Signals) -> None:
        # Not a signal to the bare id: after the process was waited for, another process may have that id.
        if self._popen.poll() is None and self._record is not None:
            self._record.signal(number)

    def _forget(self) -> None:
        self._run.forget(self.pid)
        if self._popen.stdin is not None:
            with suppress(OSError):
                self._popen.stdin.close()


class JavaProcess(ChildProcess):
    """A process that was started from a JavaCommand.

    ``ends_with_parent`` is for servers that do not read their standard input: they end when we do.  ``reads_commands``
    is for programs of ours that take commands there.
    """

    def __init__(
        self,
        run: SandboxRun,
        kind: str,
        name: str,
        command: JavaCommand,
        *,
        ends_with_parent: bool = True,
        reads_commands: bool = False,
    ) -> None:
        folder = _folder(run, name)
        path, words = _program_words(command, ends_with_parent=ends_with_parent and not reads_commands)
        self._program = JavaProgram(java.find_jdk().java, ":".join(path), command.main)
        self._class_names = folder / "class-names.txt"
        starts_again = ProcessFiles.of(folder).log.exists()
        arguments = [
            self._program.java,
            run.marker,
            f"-Xmx{command.heap_mb}m",
            *java.FAST_START,
            *start_options(self._program, self._class_names, may_make=not starts_again),
            *_logging_options(folder, command),
            *command.options,
            "-cp",
            self._program.class_path,
            *words,
        ]
        super().__init__(run, kind, name, arguments, has_input=ends_with_parent or reads_commands)

    def _forget(self) -> None:
        super()._forget()
        store_names(self._program, self._class_names)


def _folder(run: SandboxRun, name: str) -> Path:
    folder = run.root / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _program_words(command: JavaCommand, *, ends_with_parent: bool) -> tuple[list[str], list[str]]:
    """The class path, without symbolic links, and the words after the options."""
    if command.jar is not None:
        assert not command.programs, "programs are compiled against the jars of a release"
        path = [str(command.jar)]
    else:
        jars = artifacts.ensure_artifact_set(command.release)
        path = [f"{jars.resolve()}/*"]
        if command.programs:
            path.insert(0, str(java.compiled(command.programs, jars, command.sources).resolve()))
    words = [command.main, *command.arguments]
    if ends_with_parent:
        path.append(str(java.compiled(("Guard",), None).resolve()))
        words.insert(0, "Guard")
    return path, words


def _logging_options(folder: Path, command: JavaCommand) -> list[str]:
    return [] if command.jar is not None else [_logging_option(folder, artifacts.artifact_set(command.release))]


def _logging_option(folder: Path, wanted: artifacts.ArtifactSet) -> str:
    if wanted.has_log4j2:
        config = folder / "log4j2.properties"
        config.write_text(_LOG4J2)
        return f"-Dlog4j2.configurationFile=file:{config}"
    config = folder / "log4j.properties"
    config.write_text(_LOG4J)
    return f"-Dlog4j.configuration=file:{config}"


def write_properties(settings: dict[str, str], path: Path) -> Path:
    """Writes a Java properties file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{key}={_escaped(value)}\n" for key, value in settings.items()]
    path.write_text("".join(lines), encoding="ascii")
    return path


def _escaped(value: str) -> str:
    return "".join(
        "\\\\" if char == "\\" else char if " " <= char <= "~" else "".join(f"\\u{unit:04x}" for unit in _utf16(char))
        for char in value
    )


def _utf16(char: str) -> Sequence[int]:
    data = char.encode("utf-16-be")
    return [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]
