"""Runs Kafka's command-line tools, and any other main class of a release."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox.child_process import JavaCommand, JavaProcess
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun

TOOL_TIMEOUT_MS = 60_000

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Exit code of a tool, its output, and its standard error (which contains its log)."""

    code: int
    out: str
    err: str


def run_tool(
    run: SandboxRun,
    release: str,
    main: str,
    arguments: Sequence[str | Path] = (),
    *,
    stdin: str = "",
    timeout_ms: int = TOOL_TIMEOUT_MS,
    heap_mb: int = 128,
) -> ToolResult:
    """Runs, for example, ``kafka.tools.ConsumerOffsetChecker`` to its end, whatever its exit code.

    Raises SandboxError if it has not ended after ``timeout_ms``; it is killed then.
    """
    name = f"tool-{next(_numbers)}-{main.rpartition('.')[2]}"
    command = JavaCommand(release, main, tuple(str(word) for word in arguments), heap_mb=heap_mb)
    process = JavaProcess(run, "tool", name, command, reads_commands=True)
    process.close_input(stdin)
    code = process.wait(timeout_ms)
    out = process.files.out.read_text(errors="replace")
    if code is None:
        process.kill()
        raise SandboxError(
            f"{main} did not end within {timeout_ms} ms; it printed:\n{out[-2000:]}\n{process.log_end()}"
        )
    return ToolResult(code, out, process.log_text())
