"""``max.poll.interval.ms``: how a member of a coordinator's group looks at its program; the clock is moved by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from bridge.client.coordinator_event_loop import POLL_INTERVAL_MS, CoordinatorEventLoop, NetworkAnswer
from bridge.migration.dual.connector.side_processors import SidePartitionProcessor
from bridge.migration.dual.machine.phase_rules import MembershipSide
from tests.coordinator.client_harness import HEARTBEAT_MS, SESSION_MS, Dealer, T, coordinator
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.kafka.group import commands as cmd
from zkconsumer.kafka.group import events as cev
from zkconsumer.kafka.group.commands import Callback
from zkconsumer.kafka.group.consumer_coordinator import ConsumerCoordinator
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.kafka.group.partition_assignor import Assignment
from zkconsumer.member.ownership import BusyStream
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.wire.consumer_protocol import encode_assignment
from zkconsumer.wire.schemas import APIS, FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from zkconsumer.wire.schemas.heartbeat import HeartbeatResponse
from zkconsumer.wire.schemas.join_group import JoinGroupResponse
from zkconsumer.wire.schemas.leave_group import LeaveGroupResponse
from zkconsumer.wire.schemas.sync_group import SyncGroupResponse

LIMIT_MS = 60_000


class Table:
    """A control thread without a thread; the coordinator answers at once, and tests say what the program does."""

    def __init__(self, limit_ms: int = LIMIT_MS, **settings: object) -> None:
        given: dict[str, object] = {
            "group.id": "g",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "max.poll.interval.ms": limit_ms,
            "enable.auto.commit": False,
        }
        self.clock = ManualClock(0)
        self.machine = ConsumerCoordinator(
            GroupMemberConfig({**given, **settings}), [Dealer()], lambda: 0.5, self.clock.now_ms()
        )
        self.control = CoordinatorEventLoop(self.machine, SESSION_MS, Lease(self.clock), self.clock)
        self.processor = SimpleNamespace(busy_stream=None)
        self.sent: list[str] = []
        self.lost: list[int] = []
        self.notes: list[dict[str, object]] = []
        self.control._network = cast("Any", SimpleNamespace(execute=self._send))
        self.control._concerned = cast(
            "Any", SimpleNamespace(answered=lambda _: None, needs_metadata=lambda _: None, noted=self._noted)
        )
        self.control._handing = cast(
            "Any",
            SimpleNamespace(
                processor=self.processor, drain=lambda _: None, start_fetching=lambda _: None, invoke=self._invoke
            ),
        )
        self.control.call_every(POLL_INTERVAL_MS, lambda: self.control.dispatch(self.control._poll_program()))
        self.control.dispatch(cev.Subscribed(frozenset("t")))

    def _send(self, command: cmd.Send | cmd.ConnectCoordinator | cmd.DisconnectCoordinator) -> None:
        if not isinstance(command, cmd.Send):
            return
        bodies = {
            FIND_COORDINATOR.key: coordinator(),
            JOIN_GROUP.key: JoinGroupResponse(
                generation_id=1, member_id="me", leader="other", members=[], protocol_name="dealer"
            ),
            SYNC_GROUP.key: SyncGroupResponse(assignment=encode_assignment(Assignment((T[0],)))),
            HEARTBEAT.key: HeartbeatResponse(),
            LEAVE_GROUP.key: LeaveGroupResponse(),
        }
        self.sent.append(APIS[command.api_key].name)
        answer = cev.Responded(command.request, bodies[command.api_key])
        self.control.handle_event(NetworkAnswer(answer, command, self.clock.now_ms()))

    def _invoke(self, command: cmd.Invoke) -> None:
        if command.callback is Callback.LOST:
            self.lost.append(self.clock.now_ms())
        self.control.dispatch(cev.CallbackDone(command.number))

    def _noted(self, note: cmd.LogMemberEvent) -> None:
        if note.name == "poll-timeout-expired":
            self.notes.append(dict(note.fields))

    def wait(self, delay_ms: int, *, looks: bool = True) -> None:
        """Let time pass; timers fire at their time.  Without ``looks`` the regular look at the program is late."""
        until_ms = self.clock.now_ms() + delay_ms
        while True:
            due = [*self.control._timers.values(), *(self.control._periodic_due_ms if looks else ())]
            next_ms = min(due, default=until_ms + 1)
            if next_ms > until_ms:
                break
            self.clock.move(max(0, next_ms - self.clock.now_ms()))
            self.control._fire_timers()
            if looks:
                self.control._run_periodic_actions()
        self.clock.move(until_ms - self.clock.now_ms())

    def gets_a_record(self, stream: str = "g-0") -> None:
        self.processor.busy_stream = BusyStream(self.clock.now_ms(), stream)

    def asks_for_the_next(self) -> None:
        self.processor.busy_stream = None

    @property
    def is_member(self) -> bool:
        return self.machine.generation.has_member_id and bool(self.machine.assigned)


def test_a_program_that_waits_for_records_is_alive_however_long_it_waits() -> None:
    table = Table()
    table.wait(20 * LIMIT_MS)
    assert table.is_member
    assert "LeaveGroup" not in table.sent


def test_with_a_limit_shorter_than_the_pause_between_two_looks_a_program_that_waits_is_alive() -> None:
    table = Table(limit_ms=POLL_INTERVAL_MS // 10)
    table.wait(30 * POLL_INTERVAL_MS, looks=False)
    assert table.is_member
    assert "LeaveGroup" not in table.sent


def test_a_member_leaves_at_the_limit_and_joins_again_when_its_program_asks_on() -> None:
    table = Table()
    table.wait(5_300)
    table.gets_a_record("g-1")
    table.wait(LIMIT_MS - 1)
    assert table.is_member
    table.wait(1)
    assert table.lost == [5_300 + LIMIT_MS], "to the millisecond, whenever the program was looked at"
    assert table.sent.count("LeaveGroup") == 1
    [note] = table.notes
    assert note["stream"] == "g-1"
    assert "max.poll.interval.ms=60000" in str(note["reason"])
    table.wait(10 * LIMIT_MS)
    assert not table.is_member, "nothing is tried while the program works on"
    assert table.sent.count("JoinGroup") == 1
    table.asks_for_the_next()
    table.wait(POLL_INTERVAL_MS)
    assert table.is_member
    assert table.sent.count("JoinGroup") == 2


def test_a_program_that_gets_one_record_after_the_other_stays_though_each_takes_long() -> None:
    table = Table()
    for _ in range(10):
        table.gets_a_record()
        table.wait(LIMIT_MS - 1)
        assert table.is_member
    assert table.lost == []


def test_what_the_program_did_just_before_the_limit_counts() -> None:
    """It asked on after the last look: the look that the deadline causes sees it."""
    table = Table()
    table.gets_a_record()
    table.wait(LIMIT_MS - 1)
    table.asks_for_the_next()
    table.wait(1, looks=False)
    assert table.is_member
    table.gets_a_record()
    table.wait(LIMIT_MS - 1, looks=False)
    assert table.is_member
    table.wait(1, looks=False)
    assert not table.is_member


def test_a_process_that_was_paused_while_its_program_waited_does_not_leave() -> None:
    table = Table()
    table.wait(HEARTBEAT_MS)
    table.clock.move(10 * LIMIT_MS)
    table.wait(2 * HEARTBEAT_MS)
    assert table.is_member
    assert "LeaveGroup" not in table.sent


def test_a_static_member_sends_no_heartbeats_and_does_not_leave() -> None:
    table = Table(**{"group.instance.id": "one"})
    table.wait(1)
    table.gets_a_record()
    table.wait(LIMIT_MS)
    assert table.lost == [1 + LIMIT_MS]
    assert "sends no heartbeats" in str(table.notes[0]["reason"])
    before = table.sent.count("Heartbeat")
    table.wait(10 * SESSION_MS)
    assert table.sent.count("Heartbeat") == before
    assert "LeaveGroup" not in table.sent
    table.asks_for_the_next()
    table.wait(POLL_INTERVAL_MS)
    assert table.is_member


def test_of_a_member_that_is_moved_the_program_counts_for_the_side_that_holds_and_from_when_it_holds() -> None:
    streams: Any = SimpleNamespace(busy_stream=BusyStream(1_000, "g-0"))
    since: dict[str, int | None] = {"ms": None}
    side = SidePartitionProcessor(
        MembershipSide.COORDINATOR, streams, lambda _: None, lambda _: None, lambda: since["ms"]
    )
    assert side.busy_stream is None, "ZooKeeper's side holds, and sets no limit"
    since["ms"] = 5_000
    assert side.busy_stream == BusyStream(5_000, "g-0"), "what came before counts for nothing"
    streams.busy_stream = BusyStream(7_000, "g-0")
    assert side.busy_stream == BusyStream(7_000, "g-0")
    streams.busy_stream = None
    assert side.busy_stream is None
