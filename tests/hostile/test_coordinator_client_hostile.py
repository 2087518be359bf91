"""A broker that answers anything, against the machine of a member: an error of ours or none, and never too much.

The answers are valid on the wire and mean nothing, or nearly something: that is what gets through the decoder.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest

from bridge.client.assignors import CooperativeStickyAssignor, RangeAssignor, RoundRobinAssignor
from tests.hostile.fuzzed_frames import Frames
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import ZkConsumerError
from zkconsumer.kafka.group import commands as do
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.consumer_coordinator import ConsumerCoordinator
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.member import ownership
from zkconsumer.types import TopicPartition
from zkconsumer.wire import consumer_protocol
from zkconsumer.wire.request_frames import encode_request
from zkconsumer.wire.schemas import APIS, FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, SYNC_GROUP, Api
from zkconsumer.wire.schemas.find_coordinator import Coordinator, FindCoordinatorResponse
from zkconsumer.wire.schemas.heartbeat import HeartbeatResponse
from zkconsumer.wire.schemas.join_group import JoinGroupMember, JoinGroupResponse
from zkconsumer.wire.schemas.sync_group import SyncGroupResponse

SEED = int(os.environ.get("ZKCONSUMER_FUZZ_SEED", "20160523"))
LIVES_IN_CI, CI_MS, NIGHT_MS = 100, 8_000, 120_000
STEPS_A_LIFE = 300
COMMANDS_MAX = 60
"""For one event; a member of a few partitions has no reason to want more."""

WAITING_MAX = 40
"""Requests on their way: as many as the program has asked for, and a few of the member's own."""

ERRORS = [-1, *[0] * 50, 14, 15, 16, 22, 23, 24, 25, 26, 27, 30, 79, 81, 82, 88, 1_000]
PARTITIONS = [TopicPartition(topic, number) for topic in ("t", "u") for number in range(3)]


class Life:
    """One member, and a world that means it no good."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.frames = Frames(self.rng, ["g", "t", "u", "m-1", "m-2", "range", "cooperative-sticky"])
        self.now_ms = 1_000
        cooperative = self.rng.random() < 0.4
        assignors = [CooperativeStickyAssignor()] if cooperative else [RangeAssignor(), RoundRobinAssignor()]
        self.machine = ConsumerCoordinator(_config(self.rng), assignors, self.rng.random, self.now_ms)
        self.waiting: list[do.Send] = []
        self.calls: list[int] = []
        self.timers: dict[ev.TimerKind, int] = {}
        self.is_stopped = False
        self.number = 0
        self.seen: Counter[str] = Counter()
        self.hear(ev.Subscribed(frozenset({"t", "u"})))
        self.hear(ev.MetadataUpdated({"t": 3, "u": 3}))

    def live(self) -> None:
        for _ in range(STEPS_A_LIFE):
            self.now_ms += self.rng.choice([0, 1, 10, 100, 100, 1_000, 1_000, 12_000])
            self.hear(self.event())
            if self.is_stopped:
                return

    def hear(self, event: ev.Event) -> None:
        commands = self.machine.handle(event, self.now_ms)
        assert len(commands) <= COMMANDS_MAX, (event, commands)
        for command in commands:
            self.execute(command)
        assert len(self.waiting) <= WAITING_MAX + self.number, self.waiting

    def execute(self, command: do.Command) -> None:
        self.seen[type(command).__name__] += 1
        match command:
            case do.Send(api_key=key, body=body, version_most=most):
                api = APIS[key]
                encode_request(api, min(api.highest, most, 9), 1, "fuzz", body)  # what it wants can be written
                self.waiting.append(command)
            case do.DisconnectCoordinator(node):
                self.disconnect(node)
            case do.SetMemberTimer(kind, deadline_ms):
                self.timers[kind] = deadline_ms
            case do.CancelMemberTimer(kind):
                self.timers.pop(kind, None)
            case do.Invoke(number):
                self.calls.append(number)
            case ownership.CollectPositions():
                self.hear(ownership.PositionsCollected(dict.fromkeys(self.machine.assigned, 7)))
            case do.Raise(error):
                assert isinstance(error, ZkConsumerError), error
            case do.MemberStopped():
                self.is_stopped = True
            case _:
                pass

    def disconnect(self, node: int) -> None:
        """What is on its way there has no answer any more."""
        for sent in [one for one in self.waiting if one.node == node]:
            if sent in self.waiting:
                self.waiting.remove(sent)
                self.hear(ev.RequestFailed(sent.request, ev.Failure.DISCONNECTED))

    # --- what happens -------------------------------------------------------------------------------------------

    def event(self) -> ev.Event:
        rng = self.rng
        due = [(kind, at) for kind, at in self.timers.items() if at <= self.now_ms]
        if due and rng.random() < 0.7:
            kind, at = rng.choice(due)
            self.timers.pop(kind)
            return ev.MemberTimerFired(kind, at)
        if self.calls and rng.random() < 0.5:
            error = ValueError("the program's own") if rng.random() < 0.1 else None
            return ev.CallbackDone(self.calls.pop(0), error=error)
        if self.waiting and rng.random() < 0.8:
            return self.answer(self.waiting.pop(rng.randrange(len(self.waiting))))
        return self.happening()

    def happening(self) -> ev.Event:
        rng = self.rng
        if rng.random() < 0.1:
            node = rng.randint(0, 2)
            self.disconnect(node)
            return ev.Disconnected(node)
        offsets = {tp: ev.Offset(rng.randint(0, 9)) for tp in rng.sample(PARTITIONS, 2)}
        self.number += 1
        return rng.choice(
            [
                ev.Polled(), ev.Polled(), ev.Polled(), ev.Polled(),
                ev.CommitAsked(self.number, offsets, rng.random() < 0.5),
                ev.FetchAsked(self.number, frozenset(offsets)),
                ev.MetadataUpdated({"t": rng.randint(0, 4)} if rng.random() < 0.5 else {"t": 3, "u": 3}),
                ev.RejoinAsked("x" * 300),
                ev.Subscribed(frozenset(rng.sample(["t", "u", "none"], 2))),
                ev.Responded(99_999, HeartbeatResponse()),
                ev.CallbackDone(99_999),
                *([ev.Unsubscribed(), ev.Closed(timeout_ms=5_000)] if rng.random() < 0.05 else []),
            ]
        )  # fmt: skip

    def answer(self, sent: do.Send) -> ev.Event:
        if self.rng.random() < 0.05:
            failure = self.rng.choice([*ev.Failure])
            if failure in (ev.Failure.DISCONNECTED, ev.Failure.TIMED_OUT) and sent.node is not None:
                self.disconnect(sent.node)
            return ev.RequestFailed(sent.request, failure)
        api = APIS[sent.api_key]
        body = self.likely(api, sent.body) if self.rng.random() < 0.9 else None
        if body is None:
            body = self.frames.message(api.response, min(9, self.rng.randint(api.lowest, api.highest)))
        return ev.Responded(sent.request, body)

    def likely(self, api: Api[Any, Any], asked: Any) -> Any:
        """Nearly what a broker says."""
        rng, error = self.rng, self.rng.choice(ERRORS)
        if api is FIND_COORDINATOR:
            keys = [*asked.coordinator_keys, asked.key]
            rows = [Coordinator(key=key, node_id=1, host="h", port=9_092, error_code=error) for key in keys]
            return FindCoordinatorResponse(node_id=1, host="h", port=9_092, error_code=error, coordinators=rows[:1])
        if api is JOIN_GROUP:
            me = asked.member_id or "m-1" if rng.random() < 0.9 else ""
            metadata = [*[each.metadata for each in asked.protocols[:1]] * 8, b"", rng.randbytes(20)]
            members = [JoinGroupMember(member_id=one, metadata=rng.choice(metadata)) for one in (me, "m-2")]
            return JoinGroupResponse(
                error_code=error,
                generation_id=rng.choice([1, 2, 3, -1]),
                protocol_type=rng.choice([*["consumer"] * 8, None, "connect"]),
                protocol_name=asked.protocols[0].name if asked.protocols else "range",
                leader=rng.choice([me, "m-2"]),
                member_id=me,
                members=rng.choice([members, members, []]),
            )
        if api is SYNC_GROUP:
            share = consumer_protocol.Assignment(tuple(rng.sample(PARTITIONS, rng.randint(0, 4))))
            data = rng.choice([*[consumer_protocol.encode_assignment(share)] * 6, b"", rng.randbytes(12)])
            return SyncGroupResponse(
                error_code=error, protocol_type="consumer", protocol_name=asked.protocol_name, assignment=data
            )
        return HeartbeatResponse(error_code=error) if api is HEARTBEAT else None


def _config(rng: random.Random) -> GroupMemberConfig:
    return GroupMemberConfig({"group.id": "g"} | ({"group.instance.id": "i-1"} if rng.random() < 0.3 else {}))


def live_many(duration_ms: int, seed: int) -> Counter[str]:
    """Lives one after the other; gives what was wanted in them."""
    end_ms = SYSTEM_CLOCK.now_ms() + duration_ms
    total: Counter[str] = Counter()
    while SYSTEM_CLOCK.now_ms() < end_ms or total["lives"] < LIVES_IN_CI:
        life = Life(seed + total["lives"])
        try:
            life.live()
        except Exception as error:
            raise AssertionError(f"seed {seed + total['lives']} at {life.now_ms} ms: {error!r}") from error
        total += life.seen
        total["lives"] += 1
    return total


@pytest.mark.fuzz
@pytest.mark.timeout(120)
def test_a_member_survives_brokers_that_answer_anything() -> None:
    seen = live_many(CI_MS, SEED)
    print(dict(seen))
    assert seen["StartPartitions"] > 50, "some of it got through to a share"
    assert seen["Raise"] > 10


@pytest.mark.nightly
@pytest.mark.fuzz
@pytest.mark.timeout(400)
def test_a_member_survives_brokers_that_answer_anything_for_two_minutes() -> None:
    live_many(NIGHT_MS, int.from_bytes(os.urandom(4), "big") if "ZKCONSUMER_FUZZ_SEED" not in os.environ else SEED)


def test_the_address_of_a_coordinator_may_be_anything() -> None:
    life = Life(SEED)
    life.hear(ev.Polled())
    asked = next(sent for sent in life.waiting if sent.api_key == FIND_COORDINATOR.key)
    rows = [Coordinator(key="g", node_id=-5, host="", port=-1)]
    life.hear(ev.Responded(asked.request, FindCoordinatorResponse(node_id=-5, port=-1, coordinators=rows)))
    life.live()
