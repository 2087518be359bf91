"""One peer of ``bench/streams.py`` as a process that executes commands; ``peers/protocol.py`` defines the lines."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

START_S = 300
STOP_S = 20
CPU_TOLERANCE = 0.02
"""The maximum difference between the CPU times that the peer and the system report: ticks, and the time of reading."""
CPU_TOLERANCE_S = 0.1


class PeerFailed(Exception):
    """A peer could not be started, or could not execute a command; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Command:
    """The command line of a peer; ``environment`` is added to this process's environment."""

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


class PeerProcess:
    """A running peer.  ``about``: the peer's description of itself.  Raises ``PeerFailed`` if it cannot be started."""

    def __init__(self, name: str, command: Command, folder: Path) -> None:
        self._name = name
        self._lines: queue.Queue[str | None] = queue.Queue()
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "log.txt"
        try:
            with self._log.open("wb") as log:
                self._popen = subprocess.Popen(
                    command.words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=folder,
                    env={**os.environ, **command.environment},
                    text=True,
                    # Only the benchmark receives Ctrl-C; it ends its peers by closing their input.
                    start_new_session=True,
                )
        except OSError as error:
            raise PeerFailed(f"{command.words[0]} cannot be started: {error}") from error
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.about: dict[str, Any] = self._answer(START_S)["ready"]
        except PeerFailed:
            self.close()
            raise

    def ask(self, words: Sequence[object], timeout_s: float) -> dict[str, Any]:
        """The answer to one command.  Raises ``PeerFailed``; after a timeout the process cannot be used any more."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(" ".join(map(str, words)) + "\n")
            self._popen.stdin.flush()
        except OSError as error:
            raise PeerFailed(f"it ended: {self._end_of_log()}") from error
        answer = self._answer(timeout_s)
        self._check_cpu(answer["cpu_s"])
        return answer

    def close(self) -> None:
        """End it."""
        with suppress(OSError):
            if self._popen.stdin is not None:
                self._popen.stdin.close()
        try:
            self._popen.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        """The next line that is JSON; some libraries print other lines."""
        while True:
            try:
                line = self._lines.get(timeout=timeout_s)
            except queue.Empty:
                raise PeerFailed(f"no answer within {timeout_s:.0f} s: {self._end_of_log()}") from None
            if line is None:
                raise PeerFailed(f"it ended: {self._end_of_log()}")
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                if "failed" in answer:
                    raise PeerFailed(str(answer["failed"]))
                return answer

    def _check_cpu(self, own_s: float) -> None:
        """Check that the peer does not report more CPU time than the system, and that it has no child process."""
        process = psutil.Process(self._popen.pid)
        times = process.cpu_times()
        seen_s = times.user + times.system + times.children_user + times.children_system
        if seen_s < own_s * (1 - CPU_TOLERANCE) - CPU_TOLERANCE_S:
            raise PeerFailed(f"it reports {own_s:.2f} s of CPU, and the system reports {seen_s:.2f} s")
        children = process.children(recursive=True)
        if children:
            raise PeerFailed(f"it started processes whose CPU is not counted: {[child.name() for child in children]}")

    def _end_of_log(self) -> str:
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][-300:] if lines else "it wrote nothing to its log"
