"""A broker that is killed at any append, and started again, stands by everything that it had acknowledged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bridge.testing import EmbeddedBroker
from tests.broker.raw_client import RawClient, idempotent
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.types import BrokerAddress

FEW = {"offsets.topic.num.partitions": "2"}


@dataclass
class Acknowledged:
    """What the broker had said yes to."""

    values: list[bytes] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    offset: int | None = None
    producer_ids: list[int] = field(default_factory=list)
    last_batch: tuple[bytes, int] | None = None
    member: tuple[int, str] | None = None

    def copy(self) -> Acknowledged:
        return Acknowledged(
            list(self.values), list(self.topics), self.offset, list(self.producer_ids), self.last_batch, self.member
        )


def scenario(talk: RawClient, yes: Acknowledged) -> None:
    """A bit of everything; what was acknowledged is written down at once."""
    talk.metadata("t")
    yes.topics.append("t")
    producer = talk.producer_id()
    yes.producer_ids.append(producer)
    for sequence in range(3):
        value = b"value %d" % sequence
        batch = idempotent(producer, sequence, value)
        stored = talk.produce("t", 0, records=batch)
        assert stored.error_code == 0
        yes.values.append(value)
        yes.last_batch = batch, stored.base_offset
    while talk.find_coordinator("g").error_code:
        pass
    member = talk.join("g")
    assert member.error_code == 0, member
    assert talk.sync("g", member.generation_id, member.member_id, {member.member_id: b"share"}).error_code == 0
    yes.member = member.generation_id, member.member_id
    for offset in (1, 2):
        assert talk.commit("g", "t", 0, offset, member.generation_id, member.member_id) == 0
        yes.offset = offset
    talk.metadata("u")
    yes.topics.append("u")
    assert talk.produce("u", 0, b"of u").error_code == 0


def check(broker: EmbeddedBroker, yes: Acknowledged) -> None:
    """The broker stands by it."""
    with RawClient(broker.addresses()[0]) as talk:
        known = [topic.name for topic in talk.metadata(*yes.topics, creates=False).topics if topic.error_code == 0]
        assert known == yes.topics
        if yes.values:
            assert talk.values("t", 0)[: len(yes.values)] == yes.values
        assert talk.producer_id() not in yes.producer_ids
        if yes.last_batch is not None:
            again = talk.produce("t", 0, records=yes.last_batch[0])
            assert (again.error_code, again.base_offset) == (0, yes.last_batch[1]), "it was stored once"
        if yes.member is not None:
            while talk.find_coordinator("g").error_code:
                pass
            while (code := talk.heartbeat("g", *yes.member)) == 14:
                pass
            assert code == 0, "the member did not notice"
            assert talk.sync("g", *yes.member, {}).assignment == b"share"
            if yes.offset is not None:
                offset, code = talk.committed("g", "t", 0)
                assert code == 0
                assert offset >= yes.offset
                assert talk.commit("g", "t", 0, 7, *yes.member) == 0


def test_whatever_was_acknowledged_is_there_after_a_kill_at_any_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory as a kill would leave it, at every write: before it, in the middle of it, and behind it."""
    yes = Acknowledged()
    snapshots: list[tuple[Path, Acknowledged]] = []
    lock = threading.Lock()
    pwrite = os.pwrite

    def snapshot() -> None:
        folder = tmp_path / f"snapshot-{len(snapshots)}"
        shutil.copytree(tmp_path / "data", folder)
        snapshots.append((folder, yes.copy()))

    def watched(descriptor: int, data: bytes, position: int) -> int:
        if "broker.lock" in os.readlink(f"/proc/self/fd/{descriptor}"):
            return pwrite(descriptor, data, position)
        with lock:
            snapshot()
            pwrite(descriptor, bytes(data)[: len(data) // 2], position)
            snapshot()
            written = pwrite(descriptor, data, position)
            snapshot()
        return written

    with EmbeddedBroker(data_dir=tmp_path / "data", properties=FEW) as broker, RawClient(broker.addresses()[0]) as talk:
        monkeypatch.setattr(os, "pwrite", watched)
        scenario(talk, yes)
        monkeypatch.undo()
    assert len(snapshots) >= 3 * 7
    for folder, acknowledged in snapshots:
        with EmbeddedBroker(data_dir=folder, properties=FEW) as restarted:
            check(restarted, acknowledged)


PROGRAM = """
import os, signal, sys
from pathlib import Path
from bridge.testing import EmbeddedBroker
kill_at, pwrite, count = int(sys.argv[2]), os.pwrite, 0
def deadly(descriptor, data, position):
    global count
    count += 1
    if count == kill_at:
        pwrite(descriptor, bytes(data)[: len(data) // 2], position)
        os.kill(os.getpid(), signal.SIGKILL)
    return pwrite(descriptor, data, position)
broker = EmbeddedBroker(data_dir=Path(sys.argv[1]), properties={"offsets.topic.num.partitions": "2"}).start()
os.pwrite = deadly
print(broker.bootstrap, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kill_at", [2, 5])
def test_a_process_that_kills_itself_in_the_middle_of_a_write(kill_at: int, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent.parent)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data"), str(kill_at)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    yes = Acknowledged()
    try:
        assert process.stdout is not None
        host, port = process.stdout.readline().strip().split(":")
        with RawClient(BrokerAddress(0, host, int(port))) as talk, pytest.raises(BrokerUnreachable):
            scenario(talk, yes)
        assert process.wait(10) == -signal.SIGKILL
    finally:
        process.kill()
        process.communicate(timeout=10)
    assert len(yes.values) == min(kill_at - 1, 3)
    with EmbeddedBroker(data_dir=tmp_path / "data", properties=FEW) as restarted:
        check(restarted, yes)
