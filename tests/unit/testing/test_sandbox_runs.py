"""Which processes of a sandbox count as running."""

from __future__ import annotations

import os

import pytest

from zkconsumer.testing.sandbox import sandbox_runs


def this_process(marker: str) -> sandbox_runs.ProcessRecord:
    pid = os.getpid()
    started = sandbox_runs.start_time(pid)
    assert started is not None
    return sandbox_runs.ProcessRecord(pid, started, "tool", "test", marker)


def test_a_process_is_known_by_its_start_and_its_command_line() -> None:
    marker = sandbox_runs.command_line(os.getpid())
    assert this_process(marker).is_alive()
    assert not this_process(f"{marker} and more").is_alive()
    assert not sandbox_runs.ProcessRecord(os.getpid(), "0", "tool", "test", marker).is_alive()


def test_a_process_that_is_ending_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has freed its memory, and so its command line; it is not waited for, and its ports may be in use."""
    record = this_process("marker")
    monkeypatch.setattr(sandbox_runs, "command_line", lambda pid: "")
    assert record.is_alive()
