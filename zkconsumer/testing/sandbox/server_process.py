"""The common part of ZooKeeper and brokers: a port, data on disk, and a restart on both.

                 start                        stop, kill
    never up ------------> up  <--> paused ---------------> down
                           ^                                  |
                           `------------ start, restart ------'

The first start may take another port when it is in use; later starts keep the port, because clients use it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox.child_process import JavaCommand, JavaProcess
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun
from zkconsumer.testing.sandbox.waiting import HOST, free_port, wait_until

PORT_TRIES_MAX = 5
PORT_TAKEN_TEXTS = ("Address already in use", "BindException", "seems to be in use by another process")


class ServerProcess(ABC):
    """A ZooKeeper or a broker; the names of the signals are those of ``JavaProcess``."""

    kind: str
    start_timeout_ms = 60_000
    stop_timeout_ms = 15_000

    def __init__(self, run: SandboxRun, name: str, *, outlives_parent: bool = False) -> None:
        self.run = run
        self.name = name
        self.port = 0
        self.start_ms = 0  # how long the latest start took
        self._outlives_parent = outlives_parent
        self._process: JavaProcess | None = None

    @property
    def address(self) -> str:
        """host:port."""
        return f"{HOST}:{self.port}"

    @property
    def process(self) -> JavaProcess:
        """The running process; SandboxError if it was never started, or was stopped."""
        if self._process is None:
            raise SandboxError(f"{self.name} is not running")
        return self._process

    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running()

    def start(self) -> None:
        """Returns when the server answers; SandboxError quotes its log if it does not in time."""
        assert not self.is_running(), f"{self.name} runs already"
        for _ in range(PORT_TRIES_MAX):
            port = self.port or free_port()
            try:
                self._start_on(port)
            except _PortInUseError:
                continue
            self.port = port
            return
        raise SandboxError(f"{self.name} found its port taken {PORT_TRIES_MAX} times; {self.log_end()}")

    def stop(self) -> bool:
        """SIGTERM, then SIGKILL after ``stop_timeout_ms``; True if SIGTERM was enough, or it was down."""
        if self._process is None:
            return True
        process, self._process = self._process, None
        return process.stop(self.stop_timeout_ms)

    def kill(self) -> None:
        """SIGKILL."""
        process, self._process = self.process, None
        process.kill()

    def pause(self) -> None:
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def restart(self, *, kill: bool = False) -> None:
        """Down (gracefully, or with SIGKILL), and up again on the same port and data."""
        if kill and self._process is not None:
            self.kill()
        self.stop()
        self.start()

    def log_end(self) -> str:
        """The end of the latest process's log, for error texts."""
        log = self.run.root / self.name / "log.txt"
        lines = log.read_text(errors="replace").splitlines()[-25:] if log.exists() else []
        return f"the end of {log}:\n" + "\n".join(lines)

    @abstractmethod
    def command(self, port: int) -> JavaCommand:
        """Write the configuration for ``port`` and return the command."""

    @abstractmethod
    def is_up(self, port: int) -> bool:
        """Whether the server answers as it should."""

    def _start_on(self, port: int) -> None:
        began_ms = SYSTEM_CLOCK.now_ms()
        process = JavaProcess(
            self.run, self.kind, self.name, self.command(port), ends_with_parent=not self._outlives_parent
        )
        self._process = process

        def is_up() -> bool:
            process.check_running()
            return self.is_up(port)

        try:
            wait_until(is_up, f"{self.name} answers on {HOST}:{port}", self.start_timeout_ms)
        except SandboxError as error:
            self._process = None
            process.stop(timeout_ms=0)
            log = process.log_text()
            if any(text in log for text in PORT_TAKEN_TEXTS):
                raise _PortInUseError from error
            raise SandboxError(f"{self.name} did not start: {error}; {process.log_end()}") from error
        self.start_ms = SYSTEM_CLOCK.now_ms() - began_ms


class _PortInUseError(Exception):
    """Another process listens on the port."""
