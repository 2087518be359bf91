"""The shell of a node's coordinator: what it reads, and what a mistake of the machine costs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.broker.client_connection import CLOSE_CONNECTION
from bridge.broker.coordinator_runtime import CoordinatorRuntime
from bridge.coordinator.api_request import ApiRequest
from bridge.coordinator.commands import Append, Command, LoadPartition, SendResponse
from bridge.coordinator.events import (
    AppendCompleted,
    CoordinatorRecord,
    Elected,
    Event,
    PartitionLoaded,
    RequestReceived,
)
from bridge.testing import EmbeddedBroker
from tests.broker.raw_client import RawClient
from zkconsumer.wire.entries import Record
from zkconsumer.wire.schemas import HEARTBEAT


@dataclass
class FakeMachine:
    """Replies to each request, and fails at the one that is ``bad`` behind what it has said already."""

    bad: object = None
    out: list[Command] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def handle(self, event: Event, now_ms: int) -> list[Command]:
        self.events.append(event)
        self.out = out = []
        match event:
            case RequestReceived(token, body="append"):
                out += [Append(0, 0, (CoordinatorRecord(b"k", b"v"),), token)]
            case RequestReceived(token, body=body):
                out += [SendResponse(1, "the first, after all")] if body == self.bad else [SendResponse(token, body)]
            case Elected(partition, epoch):
                out += [LoadPartition(partition, epoch)]
        if isinstance(event, RequestReceived) and event.body == self.bad:
            raise ValueError("a mistake of ours")
        return out


class World:
    """Groups over a log of one partition; ``told`` has what clients are told, by client."""

    def __init__(self, machine: FakeMachine, records: list[Record] | None = None) -> None:
        self.told: list[tuple[str, Any]] = []
        log = SimpleNamespace(records=lambda: iter(records or []))
        led = SimpleNamespace(leader=0, leader_epoch=0, log=log)
        scheduler = SimpleNamespace(now_ms=lambda: 0, call_in=lambda delay_ms, action: action())
        self.groups = CoordinatorRuntime(
            0, machine, cast("Any", SimpleNamespace(partition=lambda *_: led)), cast("Any", scheduler), lambda *_: None
        )

    def ask(self, client: str, body: object, then: object = None) -> None:
        def reply(answer: Any) -> None:
            self.told.append((client, answer))
            if isinstance(then, Exception):
                raise then
            if then is not None:
                self.ask("behind", then)

        self.groups.submit(ApiRequest(HEARTBEAT, 0, body, client, "", "", "", reply), body, reply)


@pytest.mark.parametrize("nested", [False, True])
def test_who_asks_what_a_mistake_of_ours_fails_at_is_hung_up_on_and_others_are_answered(
    nested: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What was decided before the mistake stands, since the machine has gone on from it."""
    machine = FakeMachine(bad="bad")
    world = World(machine)
    world.groups._pending_requests[1] = cast("Any", (None, lambda body: world.told.append(("parked", body))))
    world.groups._next_token = 2
    if nested:
        world.ask("good", "good", then="bad")
    else:
        world.ask("behind", "bad")
    expected = [("parked", "the first, after all"), ("behind", CLOSE_CONNECTION)]
    assert world.told == ([("good", "good"), *expected] if nested else expected)
    assert not world.groups._pending_requests
    assert "event-failed node=0 event=Request" in caplog.text
    world.ask("next", "next")
    assert world.told[-1] == ("next", "next")


def test_an_answer_that_cannot_be_given_costs_nobody_else_theirs(caplog: pytest.LogCaptureFixture) -> None:
    world = World(FakeMachine())
    world.ask("bad", "answer", then=ValueError("a mistake of ours"))
    world.ask("good", "answer")
    assert world.told == [("bad", "answer"), ("good", "answer")]
    assert "command-failed node=0 command=SendResponse" in caplog.text


def test_an_append_that_fails_by_a_mistake_of_ours_is_settled(caplog: pytest.LogCaptureFixture) -> None:
    """The log of the world above takes no records; a group that waits for ever answers nobody."""
    machine = FakeMachine()
    World(machine).ask("one", "append")
    assert machine.events[-1] == AppendCompleted(1, -1)
    assert "command-failed node=0 command=Append" in caplog.text


def test_of_a_log_only_what_a_compaction_would_leave_is_held() -> None:
    """It grows with every commit, and is never compacted here."""
    at = iter(range(100))
    log = [Record(next(at), 0, 0, key, value) for key, value in [(b"a", b"1"), (b"b", b"1")] * 3]
    log += [Record(next(at), 0, 0, b"a", b"2"), Record(next(at), 0, 0, b"b", None), Record(next(at), 0, 0, b"c", b"1")]
    machine = FakeMachine()
    World(machine, log).groups.elect(0, 0)
    assert machine.events[-1] == PartitionLoaded(
        0, 0, [(6, CoordinatorRecord(b"a", b"2")), (8, CoordinatorRecord(b"c", b"1"))]
    )


def test_offsets_behind_damage_are_not_told_to_be_what_stands_before_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A member that is told of an older offset reads again what others have done; one that is told to wait, waits."""
    few = {"offsets.topic.num.partitions": "1"}
    with EmbeddedBroker(data_dir=tmp_path, nodes=2, properties=few) as broker:
        broker.create_topic("t")
        broker.move_coordinator("g", 0)
        home, other = (RawClient(address) for address in broker.addresses())
        with home, other:
            while home.commit("g", "t", 0, 5):
                time.sleep(0.01)
            assert home.commit("g", "t", 0, 6) == 0
            [log] = tmp_path.glob("topics/__consumer_offsets-*/0/*.log")
            data = bytearray(log.read_bytes())
            data[-3] ^= 1
            log.write_bytes(data)
            broker.move_coordinator("g", 1)
            deadline = time.monotonic() + 30
            while "offset-log-unreadable" not in caplog.text and time.monotonic() < deadline:
                time.sleep(0.01)
            assert other.committed("g", "t", 0) == (-1, 14)
    assert "restore the partition's files from a copy" in caplog.text
