"""A Java program of ours that executes commands from its standard input and answers each with an event of the same
id.
"""

from __future__ import annotations

import base64
import threading

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox.child_process import JavaCommand, JavaProcess
from zkconsumer.testing.sandbox.event_file import EventFile, JsonEvent
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun
from zkconsumer.testing.sandbox.waiting import wait_until

START_TIMEOUT_MS = 30_000


class CommandProgram:
    """Runs until it is closed; commands go one after the other, also those of several threads."""

    def __init__(self, run: SandboxRun, kind: str, name: str, command: JavaCommand) -> None:
        self._file = EventFile(run.root / name / "out.log")
        self._process = JavaProcess(run, kind, name, command, reads_commands=True)
        self._reading = threading.Lock()
        self._asking = threading.Lock()
        self._last_id = 0
        self._answers: dict[str, JsonEvent] = {}
        self._started = False
        self._wait(lambda: self._started, "starts", START_TIMEOUT_MS)

    def is_running(self) -> bool:
        return self._process.is_running()

    def close(self) -> None:
        """End the process at once; what is not acknowledged may be lost."""
        if self._process.is_running():
            self._process.kill()

    def _handle_event(self, event: JsonEvent) -> None:
        """Handle an event that is no answer, or before it is used as one."""

    def _execute(self, command: str, timeout_ms: int) -> JsonEvent:
        with self._asking:
            self._last_id += 1
            name = str(self._last_id)
            self._process.write_line(command.format(name))
            self._wait(lambda: name in self._answers, command.split(" ")[0], timeout_ms)
        answer = self._answers.pop(name)
        if answer["event"] == "failed":
            raise SandboxError(f"'{command[:80]}' failed: {answer['error']}; {self._process.log_end()}")
        return answer

    def _wait(self, condition: object, what: str, timeout_ms: int) -> None:
        assert callable(condition), "a condition is asked again and again"

        def check() -> bool:
            self._read()
            if condition():
                return True
            self._process.check_running()
            return False

        try:
            wait_until(check, f"{self._process.name}: {what}", timeout_ms, poll_ms=5)
        except SandboxError as error:
            raise SandboxError(f"{error}; {self._process.log_end()}") from error

    def _read(self) -> None:
        with self._reading:
            for event in self._file.read_new():
                self._handle_event(event)
                if event["event"] == "started":
                    self._started = True
                if event.get("id") is not None:
                    self._answers[event["id"]] = event


def encode_base64(data: bytes | None) -> str:
    """Bytes as our Java programs read and write them."""
    return "~" if data is None else base64.b64encode(data).decode()


def decode_base64(text: str) -> bytes | None:
    """The bytes that ``word`` encoded."""
    return None if text == "~" else base64.b64decode(text)
