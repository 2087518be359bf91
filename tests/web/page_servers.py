"""The servers that the browser tests share: a ZooKeeper, a broker, one page; each test has its own topic and group."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from bridge.spark.group_membership import CommitMode, RangeToClaim
from bridge.spark.membership.process_settings import MembershipProcessSettings
from bridge.spark.membership.zookeeper_batch_membership import ZooKeeperBatchMembership
from tests.lab.python_member import MIGRATING_PROGRAM, PythonMember
from tests.web.browser_fixtures import START, ShownPage, web_command
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.coordinator_lookups import discover_coordinator
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.member.group_view import STATIC_SUBSCRIPTION
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.member_process import ScalaMember
from zkconsumer.testing.sandbox.waiting import wait_until

RELEASE = "1.1.1"
PARTITIONS, RECORDS = 4, 25
WAIT_MS = 60_000
MEMBER_SETTINGS = {"auto.offset.reset": "smallest", "auto.commit.interval.ms": "500"}


@dataclass
class PageServers:
    """``address``: the page of ``sandbox``."""

    sandbox: Sandbox
    address: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def names(self) -> tuple[str, str]:
        """A group and a topic for one test; the topic has ``RECORDS`` records in each of ``PARTITIONS`` partitions."""
        number = next(self._numbers)
        group, topic = f"billing-{number}", f"clicks-{number}"
        self.sandbox.create_topic(topic, PARTITIONS)
        for partition in range(PARTITIONS):
            self.sandbox.produce(topic, partition, RECORDS)
        return group, topic

    def scala_member(self, group: str, topic: str) -> ScalaMember:
        """A member that has read and committed everything."""
        member = self.sandbox.start_member(RELEASE, group, {topic: 1}, settings=MEMBER_SETTINGS)
        member.wait_delivered(PARTITIONS * RECORDS)
        stored = dict.fromkeys(range(PARTITIONS), RECORDS)
        wait_until(lambda: self.sandbox.admin.offsets(group, topic) == stored, "the member has committed", WAIT_MS)
        return member

    @contextmanager
    def migrating_members(self, group: str, topic: str, count: int) -> Iterator[None]:
        """Members that can stay in the group while it migrates."""
        address = {"bootstrap.servers": self.sandbox.bootstrap}
        settings = {**MEMBER_SETTINGS, **address, "heartbeat.interval.ms": "300"}
        with ExitStack() as stack:
            for number in range(count):
                member = PythonMember(
                    self.sandbox.zookeeper, group, {topic: 1}, chroot=self.sandbox.chroot, name=f"{group}-{number}",
                    settings=settings, program=MIGRATING_PROGRAM,
                )  # fmt: skip
                stack.callback(member.close)
                member.start()
            yield

    @contextmanager
    def query(self, group: str, topic: str, query: str) -> Iterator[str]:
        """The membership of a Spark query that has claimed a record of each partition, without Spark; its member id."""
        given = {"group.id": group, "zookeeper.connect": self.sandbox.zookeeper_connect}
        name = f"{group}_query"
        settings = MembershipProcessSettings(given, STATIC_SUBSCRIPTION, (topic,), name, mode=CommitMode.CLAIM)
        member = ZooKeeperBatchMembership(settings)
        member.open()
        try:
            until_ms = SYSTEM_CLOCK.now_ms() + WAIT_MS
            batch = member.begin_batch({}, WAIT_MS, until_ms)
            ranges = {tp: RangeToClaim(0, 1, leased.epoch) for tp, leased in batch.partitions.items()}
            assert len(ranges) == PARTITIONS
            member.claim(query, 0, ranges, until_ms)
            yield name
        finally:
            member.leave()
            member.stop_waiting()

    @contextmanager
    def our_member(self, group: str, topic: str) -> Iterator[subprocess.Popen[bytes]]:
        """``zkconsumer consume`` until the end of the block."""
        words = ["consume", "--zookeeper", self.sandbox.zookeeper_connect, "--group", group, "--topic", topic]
        process = subprocess.Popen([sys.executable, "-c", START, *words], stdout=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)

    def run(self, *words: str, codes: Sequence[int] = (0,)) -> str:
        """What a command prints."""
        command = [sys.executable, "-c", START, *words, "--zookeeper", self.sandbox.zookeeper_connect]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout

    def document(self, *words: str) -> Any:
        """The document that a command prints; the code is 1 if a part of it is not known."""
        return json.loads(self.run(*words, "-o", "json", codes=(0, 1)))


@contextmanager
def page_servers() -> Iterator[PageServers]:
    """All of it; Kafka's offsets are on the broker 0."""
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        sandbox.start_broker(RELEASE)
        with AdminSession.open(sandbox.zookeeper_connect) as session:
            discover_coordinator(session.brokers, "any")
        with web_command("web", "--port", "0", "--zookeeper", sandbox.zookeeper_connect) as address:
            yield PageServers(sandbox, address)


def page_shows(page: ShownPage, phase: str, authority: str) -> None:
    """Wait until the panel of the migration shows this phase as the current one, and this authority."""
    page.wait_until(f"(document.querySelector('.phases [aria-current=step]') || {{}}).textContent === '{phase}'")
    page.wait_until(f"document.querySelector('.plain').textContent.includes('Authority{authority}')")


def move_texts(status: Any) -> list[str]:
    """What the panel of a migration must show of the document of ``migrate status``."""
    members = [
        f"{one['phase']}, epoch {one['epoch']}, "
        + (f"generation {one['generation']}" if one["generation"] >= 0 else "in no generation")
        for one in status["members"]
    ]
    return [
        f"{status['migration_id']}, strategy {status['strategy']}, epoch {status['epoch']}",
        *(one["consumer_id"] for one in status["members"]),
        *members,
        *status["waiting_for"],
        *status["next_steps"],
        *(entry["what"] for entry in status["journal"]),
    ]
