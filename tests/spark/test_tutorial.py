"""The tutorial "Into Spark" is what it says: its blocks are run, in one shell, and print what the page shows.

Numbers, ids and host names are others each time: a line of the page must be printed up to those.
"""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from tests.fix_sandbox import require_releases
from tests.fix_spark import ROOT, require_spark
from zkconsumer.testing.sandbox import Sandbox

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture: TypeAlias = pytest.CaptureFixture[str]

pytestmark = pytest.mark.real

PAGE = ROOT / "migration_docs" / "tutorial" / "03-into-spark.md"
RUN_TIMEOUT_S = 420
MARK = "@@ block"


@dataclass(frozen=True)
class Block:
    """Commands, and what the page shows below them."""

    commands: str
    shown: str


def blocks() -> list[Block]:
    found = re.findall(r"(?ms)^```sh\n(.*?)^```\n(?:\n```\n(.*?)^```\n)?", PAGE.read_text("utf-8"))
    return [Block(commands, shown) for commands, shown in found]


def programs() -> Iterator[tuple[str, str]]:
    """The files that the page has its reader write."""
    for block in blocks():
        yield from re.findall(r"(?ms)^cat > (\w+\.py) <<'END'\n(.*?)^END$", block.commands)


def plain(line: str) -> str:
    """A line without what is another one each time."""
    line = re.sub(r"(tutorial_\S+) +\S+( +-)", r"\1 HOST\2", line)
    line = re.sub(r"tutorial_\S+", "MEMBER", line)
    line = re.sub(r"\b\d+(\.\d+)*(:\d+)?\b", "N", line)
    return " ".join(line.split())


def test_the_programs_of_the_page_are_python() -> None:
    names = [name for name, text in programs() if compile(text, name, "exec")]
    assert names == ["look.py", "feed.py"]


def test_a_look_at_a_group_prints_what_the_page_shows(
    spark: SparkSession, shared_cluster: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The first program, where the page has come to by then; it finds a session, and makes none."""
    shared_cluster.create_topic("clicks", 4)
    for partition in range(4):
        shared_cluster.produce("clicks", partition, 75)
        shared_cluster.admin.put(f"/consumers/tutorial/offsets/clicks/{partition}", b"25")
    (tmp_path / "look.py").write_text(dict(programs())["look.py"])
    monkeypatch.setattr(sys, "argv", ["look.py", shared_cluster.zookeeper_connect])
    runpy.run_path(str(tmp_path / "look.py"), run_name="__main__")
    [shown] = [block.shown for block in blocks() if "look.py <<" in block.commands]
    assert capsys.readouterr().out.strip() == shown.strip()


@pytest.mark.nightly
@pytest.mark.timeout(RUN_TIMEOUT_S + 60)
@pytest.mark.usefixtures("own_cache")
def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    require_spark()
    require_releases("1.1.1")
    folder = tmp_path / "page"
    folder.mkdir()
    said = run_blocks(folder)
    for number, block in enumerate(blocks()):
        printed = {plain(line) for line in said[number].splitlines()}
        missing = [line for line in block.shown.splitlines() if plain(line) not in printed]
        assert not missing, f"block {number} printed:\n{said[number]}"
    assert len(said) == len(blocks())


def run_blocks(folder: Path) -> list[str]:
    """What each block of the page printed, in one bash."""
    script = "".join(f"echo '{MARK}'\n{block.commands}" for block in blocks()) + f"echo '{MARK}'\n"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    output = folder / "printed.txt"
    with output.open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-c", script], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
        try:
            shell.wait(RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            logs = {log.name: log.read_text(errors="replace")[-2000:] for log in folder.glob("*.log")}
            pytest.fail(f"not over after {RUN_TIMEOUT_S} s; printed:\n{output.read_text()}\n{logs}")
        finally:
            end(shell, folder, environment)
    _, *parts, rest = output.read_text().split(f"{MARK}\n")
    assert rest == ""
    return parts


def end(shell: subprocess.Popen[bytes], folder: Path, environment: dict[str, str]) -> None:
    """Nothing of it stays, whatever happened: jobs, servers, daemons."""
    for command in (["zkconsumer", "sandbox", "down"], ["bash", "-c", "kill $(cat *.pid)"]):
        subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=60, check=False)
    with suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()
