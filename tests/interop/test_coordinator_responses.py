"""The coordinator in an embedded broker and real ones of the same release: the same requests get the same answers.

The requests are those in which releases differ, in versions that every release supports; the answers are error codes,
generations and states.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from bridge.testing import EmbeddedBroker
from tests.broker.raw_client import SUBSCRIPTION, TIMEOUT_MS, RawClient
from tests.sandbox_fixtures import require_releases, require_zookeeper
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.types import BrokerAddress
from zkconsumer.wire.schemas import DESCRIBE_GROUPS, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT, SYNC_GROUP
from zkconsumer.wire.schemas.describe_groups import DescribeGroupsRequest
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest
from zkconsumer.wire.schemas.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from zkconsumer.wire.schemas.sync_group import SyncGroupAssignment, SyncGroupRequest

KRAFT = ("4.1.1",)
RELEASES = ("0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.0.1", "3.9.1", "4.1.1")
SHORT = ("3.9.1",)
"""Those of every run; the others are nightly."""

DELAY_MS = 1_000
SETTINGS = {"group.initial.rebalance.delay.ms": str(DELAY_MS), "group.min.session.timeout.ms": "1000"}
SESSION_MS = 10_000
MEMBER_ID_REQUIRED_SINCE = (2, 2)

pytestmark = pytest.mark.real


@dataclass
class Asker:
    """Questions of version 0 (OffsetCommit: 2) to one broker."""

    talk: RawClient
    address: BrokerAddress

    def join(self, group: str, member: str = "", **words: Any) -> Any:
        version = words.pop("version", 0)
        body = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=words.get("session_ms", SESSION_MS),
            rebalance_timeout_ms=SESSION_MS if version else -1,
            member_id=member,
            protocol_type=words.get("protocol_type", "consumer"),
            protocols=[JoinGroupProtocol(name=name, metadata=SUBSCRIPTION) for name in words.get("names", ("range",))],
        )
        return self.talk.ask(JOIN_GROUP, version, body)

    def parked_join(self, group: str, member: str = "", version: int = 0) -> Callable[[], Any]:
        """A JoinGroup on a connection of its own; the answer, with the seconds that it took, when it is asked for."""
        answers: list[tuple[Any, float]] = []

        def ask() -> None:
            started = time.monotonic()
            with RawClient(self.address) as talk:
                answer = Asker(talk, self.address).join(group, member, version=version)
            answers.append((answer, time.monotonic() - started))

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()

        def wait() -> Any:
            thread.join(TIMEOUT_MS / 1_000)
            return answers[0]

        return wait

    def sync(self, group: str, generation: int, member: str) -> int:
        row = SyncGroupAssignment(member_id=member, assignment=b"")
        body = SyncGroupRequest(group_id=group, generation_id=generation, member_id=member, assignments=[row])
        return int(self.talk.ask(SYNC_GROUP, 0, body).error_code)

    def heartbeat(self, group: str, generation: int, member: str) -> int:
        body = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
        return int(self.talk.ask(HEARTBEAT, 0, body).error_code)

    def leave(self, group: str, member: str) -> int:
        return int(self.talk.ask(LEAVE_GROUP, 0, LeaveGroupRequest(group_id=group, member_id=member)).error_code)

    def commit(self, group: str, generation: int = -1, member: str = "", partition: int = 0) -> int:
        row = OffsetCommitPartition(partition_index=partition, committed_offset=1)
        body = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[OffsetCommitTopic(name="t", partitions=[row])],
        )
        return int(self.talk.ask(OFFSET_COMMIT, 2, body).topics[0].partitions[0].error_code)

    def state(self, group: str) -> str:
        found = self.talk.ask(DESCRIBE_GROUPS, 0, DescribeGroupsRequest(groups=[group])).groups[0]
        return f"{found.group_state}/{found.protocol_type}/{found.protocol_data}/{len(found.members)}"


def answers(address: BrokerAddress, release: tuple[int, ...]) -> dict[str, Any]:
    """All requests, and their answers."""
    said: dict[str, Any] = {}
    with RawClient(address) as talk:
        ask = Asker(talk, address)
        _wait_until_ready(ask)
        said["unknown group"] = (
            ask.heartbeat("nothing", 1, "m"),
            ask.sync("nothing", 1, "m"),
            ask.leave("nothing", "m"),
            ask.join("nothing", "m").error_code,
            ask.commit("nothing", 1, "m"),
            ask.state("nothing"),
        )
        said["empty name"] = (ask.join("").error_code, ask.heartbeat("", 1, "m"), ask.state(""))
        short, long = ask.join("g0", session_ms=10), ask.join("g0", session_ms=2**31 - 1)
        said["sessions"] = (short.error_code, short.generation_id, long.error_code)
        first = ask.join("g1")
        me, generation = first.member_id, first.generation_id
        said["joined"] = (first.error_code, generation, first.protocol_name, first.leader == me, len(first.members))
        said["completing"] = (
            ask.state("g1"),
            ask.heartbeat("g1", generation, me),
            ask.heartbeat("g1", generation + 1, me),
            ask.heartbeat("g1", generation, "nobody"),
            ask.commit("g1", generation, me),
            ask.commit("g1", -1, ""),
            ask.commit("g1", generation, "nobody"),
            ask.sync("g1", generation + 1, me),
            ask.sync("g1", generation, "nobody"),
        )
        said["stable"] = (
            ask.sync("g1", generation, me),
            ask.state("g1"),
            ask.heartbeat("g1", generation, me),
            ask.heartbeat("g1", generation + 1, me),
            ask.heartbeat("g1", generation, "nobody"),
            ask.commit("g1", generation, me),
            ask.commit("g1", -1, me),
            ask.commit("g1", -1, ""),
            ask.commit("g1", generation, me, partition=7),
            ask.join("g1", protocol_type="other").error_code,
            ask.join("g1", names=("other",)).error_code,
            ask.join("g1", "nobody").error_code,
        )
        other = ask.parked_join("g1")
        time.sleep(0.3)
        said["preparing"] = (
            ask.state("g1"),
            ask.heartbeat("g1", generation, me),
            ask.heartbeat("g1", generation, "nobody"),
            ask.commit("g1", generation, me),
            ask.sync("g1", generation, me),
        )
        again = ask.join("g1", me)
        joined, _ = other()
        said["second"] = (again.error_code, again.generation_id, joined.error_code, len(again.members))
        said["leaving"] = (ask.leave("g1", "nobody"), ask.leave("g1", joined.member_id), ask.leave("g1", me))
        time.sleep(0.3)
        said["emptied"] = (
            ask.state("g1"),
            ask.commit("g1", again.generation_id, me),
            ask.commit("g1", -1, ""),
            ask.heartbeat("g1", again.generation_id, me),
            ask.join("g1", me).error_code,
        )
        refilled = ask.join("g1")
        said["refilled"] = (refilled.error_code, refilled.generation_id)
        said["offsets alone"] = (ask.commit("g2"), ask.state("g2"))
        if release >= (1, 0):
            said["empty protocols"] = (
                ask.join("g3", protocol_type="").error_code,
                ask.join("g3", names=()).error_code,
            )
        if release >= MEMBER_ID_REQUIRED_SINCE:
            said["leave during the initial delay"] = _leave_during_the_initial_delay(ask)
    return said


def _leave_during_the_initial_delay(ask: Asker) -> Any:
    """Two members wait, and one of them leaves: is the other answered before the delay is over?"""
    ids = [ask.join("g4", version=4).member_id for _ in range(2)]
    waits = [ask.parked_join("g4", member, 4) for member in ids]
    time.sleep(DELAY_MS / 4_000)
    left = ask.leave("g4", ids[1])
    (gone, _), (stays, seconds) = waits[1](), waits[0]()
    return left, gone.error_code, stays.error_code, stays.generation_id, seconds < DELAY_MS / 1_000


def _wait_until_ready(ask: Asker) -> None:
    """Until the offsets topic is there, and its partitions are loaded."""
    ends = time.monotonic() + 60
    for group in ("nothing", "", "g0", "g1", "g2", "g3", "g4"):
        while ask.heartbeat(group or "x", 1, "m") in (14, 15, 16):
            ask.talk.find_coordinator(group or "x", version=0)
            assert time.monotonic() < ends, "the broker is not ready within a minute"
            time.sleep(0.2)


@pytest.fixture(params=[name if name in SHORT else pytest.param(name, marks=pytest.mark.nightly) for name in RELEASES])
def real(request: pytest.FixtureRequest) -> Iterator[tuple[str, BrokerAddress]]:
    """A release, and where a real broker of it answers."""
    name: str = request.param
    require_releases(name)
    require_zookeeper()
    settings = SETTINGS if name >= "0.11" and name != "0.9.0.1" else {"group.min.session.timeout.ms": "1000"}
    settings = {**settings, "offsets.topic.num.partitions": "5"}
    with Sandbox() as sandbox:
        if name in KRAFT:
            broker = sandbox.start_kraft_broker(name, settings=settings)
        else:
            sandbox.start_zookeeper()
            broker = sandbox.start_broker(name, settings=settings)
        sandbox.create_topic("t")
        host, _, port = broker.address.partition(":")
        yield name, BrokerAddress(0, host, int(port))


def test_a_real_broker_gives_the_same_answer(real: tuple[str, BrokerAddress]) -> None:
    name, address = real
    release = tuple(map(int, name.split(".")))
    properties = {**SETTINGS, "offsets.topic.num.partitions": "5"}
    with EmbeddedBroker(release=name, properties=properties) as ours:
        ours.create_topic("t")
        assert answers(ours.addresses()[0], release) == answers(address, release)
