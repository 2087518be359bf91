"""What the page of ``zkconsumer web`` costs: its CPU, and when viewers see a change, on a real ZooKeeper and broker.

    python bench/web.py [--seconds 30] [--groups 500] [--partitions 100]

Prints the CPU of the page's process in percent of a core while ten viewers show one group, the time from a written
offset to its event at the last of them, and apart from these the list: the time until the first document of a page
that has just begun to read, and its CPU every 30 s while a viewer shows it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from statistics import median

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bridge.web.cluster_watcher import LIST_INTERVAL_MS
from tests.web.stored_groups import STORED_OFFSET, make_groups
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.waiting import pause_ms
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import SetData

START = "from zkconsumer.cli.main import main; main()"
VIEWERS = 10
CHANGES = 10
SHOWN, TOPIC = "shown", "clicks"
PARTITIONS_OF_A_GROUP = 20
LIST_TIMEOUT_S = 120
LIST_READS = 3


class BenchViewer:
    """Reads the events of the group; ``seen`` has the newest offset of partition 0."""

    def __init__(self, address: str) -> None:
        self.seen = threading.Condition()
        self.offset = -1
        self._stream = urllib.request.urlopen(f"{address}events/group?name={SHOWN}", timeout=60)
        threading.Thread(target=self._run, daemon=True).start()  # until the page ends

    def wait_for(self, offset: int) -> None:
        with self.seen:
            assert self.seen.wait_for(lambda: self.offset == offset, 60), f"offset {offset} was not seen"

    def _run(self) -> None:
        with suppress(OSError, HTTPException):
            self._read()

    def _read(self) -> None:
        name = ""
        for line in self._stream:
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: ") and name in ("group", "group-patch"):
                data = json.loads(line[6:])
                rows = data["changed"] if name == "group-patch" else (data["document"] or {"rows": []})["rows"]
                for row in rows:
                    if row["partition"] == 0:
                        with self.seen:
                            self.offset = row["current_offset"]
                            self.seen.notify_all()


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=100)
    given = parser.parse_args()
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        sandbox.start_broker("1.1.1")
        sandbox.create_topic(TOPIC, given.partitions)
        for partition in range(given.partitions):
            sandbox.produce(TOPIC, partition, 10)
        with AdminSession.open(sandbox.zookeeper_connect) as session:
            numbers = range(1, given.groups)
            many = {f"group-{number:04d}": PARTITIONS_OF_A_GROUP for number in numbers}
            make_groups(session, TOPIC, {SHOWN: given.partitions} | many)
            with page_of(sandbox) as (address, process):
                measure_group(session, address, process, given.seconds)
        with page_of(sandbox) as (address, process):
            measure_list(address, process)


@contextmanager
def page_of(sandbox: Sandbox) -> Iterator[tuple[str, psutil.Process]]:
    """A new page: its address and process."""
    words = ["web", "--port", "0", "--zookeeper", sandbox.zookeeper_connect]
    with subprocess.Popen([sys.executable, "-c", START, *words], stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        try:
            yield page.stdout.readline().strip(), psutil.Process(page.pid)
        finally:
            page.terminate()


def measure_group(session: AdminSession, address: str, process: psutil.Process, seconds: int) -> None:
    viewers = [BenchViewer(address) for _ in range(VIEWERS)]
    for viewer in viewers:
        viewer.wait_for(STORED_OFFSET)
    pause_ms(5_000)
    before = cpu_s(process)
    pause_ms(seconds * 1000)
    print(f"group, {VIEWERS} viewers: {(cpu_s(process) - before) / seconds:.1%} of a core")
    times = []
    for number in range(CHANGES):
        pause_ms(300 + 70 * number)
        began_ms = SYSTEM_CLOCK.now_ms()
        session.request([SetData(paths.offset(SHOWN, TopicPartition(TOPIC, 0)), b"%d" % (6 + number % 2), -1)])
        for viewer in viewers:
            viewer.wait_for(6 + number % 2)
        times.append(SYSTEM_CLOCK.now_ms() - began_ms)
    print(f"change to event at all viewers: median {median(times):.0f} ms, most {max(times)} ms")


def measure_list(address: str, process: psutil.Process) -> None:
    """Of a page that reads nothing else."""
    began_ms = SYSTEM_CLOCK.now_ms()
    with urllib.request.urlopen(f"{address}?format=json", timeout=LIST_TIMEOUT_S) as answer:
        groups = len(json.load(answer)["groups"])
    print(f"list of {groups} groups: the first document after {SYSTEM_CLOCK.now_ms() - began_ms} ms")
    with urllib.request.urlopen(f"{address}events/list", timeout=LIST_TIMEOUT_S):
        pause_ms(LIST_INTERVAL_MS // 2)
        before = cpu_s(process)
        pause_ms(LIST_READS * LIST_INTERVAL_MS)
        used_s = (cpu_s(process) - before) / LIST_READS
    share = used_s * 1000 / LIST_INTERVAL_MS
    print(f"list of {groups} groups, every {LIST_INTERVAL_MS // 1000} s: {used_s:.2f} s of CPU, {share:.1%} of a core")


if __name__ == "__main__":
    main()
