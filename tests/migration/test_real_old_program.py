"""An unchanged program of the old API moves to the coordinator by its configuration alone, and loses no message."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.migration.real_group import RealGroup
from tests.sandbox_fixtures import Clusters
from zkconsumer.testing.sandbox import wait_until

pytestmark = [pytest.mark.real]

PROGRAM = Path(__file__).with_name("old_program.py")
TIMEOUT_MS = 60_000


class OldProgram:
    """A run of the program with these lines in its configuration."""

    def __init__(self, moving: RealGroup, name: str, *lines: str) -> None:
        sandbox = moving.sandbox
        file = moving.folder / f"{name}.properties"
        old = [
            f"group.id={moving.group}", f"zookeeper.connect={sandbox.zookeeper_connect}", "auto.offset.reset=smallest",
            "auto.commit.interval.ms=1000",
        ]  # fmt: skip
        file.write_text("\n".join([*old, *lines]), "utf-8")
        self._output = moving.folder / f"{name}.out"
        with self._output.open("wb") as out:
            self.process = subprocess.Popen([sys.executable, PROGRAM, file, moving.topic], stdout=out)

    @property
    def messages(self) -> list[tuple[int, int]]:
        """Partition and offset of each message that it has printed."""
        lines = self._output.read_text("utf-8").splitlines()
        return [(int(partition), int(offset)) for partition, offset in map(str.split, lines)]

    def wait_messages(self, count: int) -> None:
        """Until it has read so many messages."""
        wait_until(lambda: len(self.messages) >= count, f"{count} messages, not {len(self.messages)}", TIMEOUT_MS)

    def stop(self) -> list[tuple[int, int]]:
        """As an operator does, with SIGTERM; its messages."""
        self.process.terminate()
        assert self.process.wait(TIMEOUT_MS / 1000) == 0
        return self.messages


@contextmanager
def run(moving: RealGroup, name: str, *lines: str) -> Iterator[OldProgram]:
    program = OldProgram(moving, name, *lines)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.wait()


@pytest.mark.timeout(240)
def test_a_program_moves_by_configuration(clusters: Clusters, names: tuple[str, str], tmp_path: Path) -> None:
    moving = RealGroup(clusters.get("3.9.1"), *names, 4, tmp_path)
    brokers = f"bootstrap.servers={moving.sandbox.bootstrap}"
    moving.produce(40)
    with run(moving, "zookeeper") as program:
        program.wait_messages(40)
        before = program.stop()
    moving.produce(40)
    with run(moving, "migrating", "consumer.connector=migrating", brokers) as program:
        program.wait_messages(40)
        moving.migrate("apply", moving.plan("--strategy", "dual", "--offset-convention", "next"), "--execute")
        moving.produce(40)
        program.wait_messages(80)
        meanwhile = program.stop()
    moving.produce(40)
    with run(moving, "coordinator", "consumer.connector=coordinator", brokers, "session.timeout.ms=10000") as program:
        program.wait_messages(40)
        after = program.stop()
    everything = {(partition, offset) for partition, end in moving.ends().items() for offset in range(end)}
    assert Counter([*before, *meanwhile, *after]) == Counter(everything)
    assert (len(before), len(meanwhile), len(after)) == (40, 80, 40)
