"""A page of the documentation is run as it stands: its shell blocks, in one bash, and what they print.

Numbers, ids, times and host names are others each time: a line of the page must be printed up to those.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = "…"
"""A line of a page that stands for those that it does not show."""

_MARK = "@@ block"


@dataclass(frozen=True)
class Block:
    """Commands, and what the page shows below them."""

    commands: str
    shown: str


def blocks(page: Path) -> list[Block]:
    """Each block of shell commands, with the plain block that follows it at once."""
    found = re.findall(r"(?ms)^```sh\n(.*?)^```\n(?:\n```\n(.*?)^```\n)?", page.read_text("utf-8"))
    return [Block(commands, shown) for commands, shown in found]


def plain(line: str) -> str:
    """A line without what is another one each time."""
    line = re.sub(r"(tutorial_\S+) +\S+( +-)", r"\1 HOST\2", line)
    line = re.sub(r"tutorial_\S+", "MEMBER", line)
    line = re.sub(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", line)
    line = re.sub(r"\b[0-9a-f]{12}(…|[0-9a-f]{52}\b)", "DIGEST", line)
    line = re.sub(r"\b[0-9a-f]{12}(-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?\b", "ID", line)
    line = re.sub(r"\b\d+(\.\d+)*(:\d+)?\b", "N", line)
    return " ".join(line.split())


def check_page(page: Path, folder: Path, timeout_s: float) -> None:
    """Run the blocks of a page in an empty folder; every line that the page shows must be printed by its block."""
    said = run_blocks(page, folder, timeout_s)
    for number, block in enumerate(blocks(page)):
        printed = {plain(line) for line in said[number].splitlines()}
        shown = [line for line in block.shown.splitlines() if line not in ("", LEFT_OUT)]
        missing = [line for line in shown if plain(line) not in printed]
        assert not missing, f"block {number} printed:\n{said[number]}"
    assert len(said) == len(blocks(page))


def run_blocks(page: Path, folder: Path, timeout_s: float) -> list[str]:
    """What each block printed, in one bash."""
    script = "".join(f"echo '{_MARK}'\n{block.commands}" for block in blocks(page)) + f"echo '{_MARK}'\n"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    output = folder / "printed.txt"
    with output.open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-c", script], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
        try:
            shell.wait(timeout_s)
        except subprocess.TimeoutExpired:
            logs = {log.name: log.read_text(errors="replace")[-2000:] for log in folder.glob("*.log")}
            pytest.fail(f"not over after {timeout_s} s; printed:\n{output.read_text()}\n{logs}")
        finally:
            _end(shell, folder, environment)
    _, *parts, rest = output.read_text().split(f"{_MARK}\n")
    assert rest == ""
    return parts


def _end(shell: subprocess.Popen[bytes], folder: Path, environment: dict[str, str]) -> None:
    """Nothing of it stays, whatever happened: jobs, servers, daemons."""
    for command in (["zkconsumer", "sandbox", "down"], ["bash", "-c", "kill $(cat *.pid)"]):
        subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=60, check=False)
    with suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()
