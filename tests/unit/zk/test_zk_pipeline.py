"""Requests on their way, without a server: the test is the connection's thread."""

from __future__ import annotations

import struct

import pytest

from zkconsumer.zk.packets import Opcode
from zkconsumer.zk.pipeline import (
    GET_MANY_PATHS_MAX,
    MULTI_READ_FAILURES_MAX,
    REFILL_PACKETS,
    WINDOW_PACKETS,
    PacketSlot,
    Pipeline,
)
from zkconsumer.zk.requests import (
    ConnectionLost,
    Delete,
    Exists,
    Get,
    GetMany,
    GetManyAcls,
    ManyAclsResult,
    NoNode,
    Request,
    Result,
    SessionEnded,
    SetData,
    ZnodeAcl,
)

A, B = 1, 2
STAT = bytes(68)


class Bench:
    """A pipeline, what was settled, and the slots that were taken out."""

    def __init__(self, session_id: int | None = A) -> None:
        self.pipeline = Pipeline("/k")
        self.settled: list[list[Result]] = []
        if session_id is not None:
            self.pipeline.begin_session(session_id)

    def ask(self, *requests: Request, session_id: int | None = A) -> None:
        self.pipeline.submit(session_id, requests, self.settled.append)

    def take(self, *, has_multi_read: bool = True) -> list[PacketSlot]:
        slots = []
        while (slot := self.pipeline.next_slot(has_multi_read=has_multi_read)) is not None:
            slots.append(slot)
        return slots


def many(count: int, data: bytes = b"", found: bool = True) -> bytes:
    one = struct.pack("!i?i", 4, False, 0) + struct.pack("!i", len(data)) + data + STAT
    none = struct.pack("!i?ii", -1, False, -101, -101)
    return (one if found else none) * count + struct.pack("!i?i", -1, True, -1)


def test_a_batch_settles_once_with_its_results_in_the_order_of_its_requests() -> None:
    bench = Bench()
    bench.ask(Delete("/a"), Exists("/b"))
    first, second = bench.take()
    assert (first.opcode, first.body) == (Opcode.DELETE, b"\0\0\0\4/k/a\xff\xff\xff\xff")
    second.on_response(-101, b"", 0)
    assert bench.settled == []
    first.on_response(0, b"", 0)
    assert bench.settled == [[None, None]]
    assert bench.pipeline.packets_sent == 2


def test_a_batch_of_nothing_settles_at_once() -> None:
    bench = Bench()
    bench.ask()
    assert bench.settled == [[]]


def test_no_more_packets_are_handed_over_than_the_connection_can_be_told_of() -> None:
    bench = Bench()
    for _ in range(3):
        bench.ask(*[Delete("/a")] * WINDOW_PACKETS)
    slots = bench.take()
    assert len(slots) == WINDOW_PACKETS
    for slot in slots:
        slot.on_response(0, b"", 0)
    assert len(bench.take()) == WINDOW_PACKETS


def test_a_full_window_is_filled_again_when_half_of_it_was_answered() -> None:
    """Packets that are sent one by one cost a system call each."""
    bench = Bench()
    bench.ask(*[Delete("/a")] * (2 * WINDOW_PACKETS))
    slots = bench.take()
    for slot in slots[: WINDOW_PACKETS - REFILL_PACKETS]:
        assert bench.take() == []
        slot.on_response(0, b"", 0)
    assert len(bench.take()) == WINDOW_PACKETS - REFILL_PACKETS


def test_what_is_for_another_session_is_refused_and_never_handed_over() -> None:
    bench = Bench()
    bench.ask(Delete("/a"), session_id=B)
    assert bench.settled == [[SessionEnded("/a")]]
    assert bench.take() == []


def test_before_the_first_session_only_what_is_for_any_waits() -> None:
    bench = Bench(None)
    bench.ask(Delete("/a"), session_id=A)
    bench.ask(Delete("/b"), session_id=None)
    assert bench.settled == [[SessionEnded("/a")]]
    bench.pipeline.begin_session(A)
    assert [slot.request for slot in bench.take()] == [Delete("/b")]


def test_a_broken_connection_leaves_everything_submitted_before_unknown_also_what_was_not_sent() -> None:
    bench = Bench()
    bench.ask(*[Delete("/a")] * (WINDOW_PACKETS + 5))
    bench.ask(GetMany(("/b", "/c")))
    slots = bench.take()
    bench.pipeline.on_connection_lost()
    assert bench.settled == [
        [ConnectionLost("/a")] * (WINDOW_PACKETS + 5),
        [[ConnectionLost("/b"), ConnectionLost("/c")]],
    ]
    slots[0].on_response(0, b"", 0)
    slots[1].on_failure(is_session_over=True)
    assert len(bench.settled) == 2, "what is settled stays so"
    assert bench.take() == []


def test_the_end_of_a_session_refuses_what_waits_for_it_and_keeps_what_may_run_in_any() -> None:
    bench = Bench()
    bench.ask(Delete("/a"))
    bench.ask(Delete("/b"), session_id=None)
    bench.pipeline.end_session()
    assert bench.settled == [[SessionEnded("/a")]]
    bench.ask(Delete("/c"))
    assert bench.settled[1:] == [[SessionEnded("/c")]]
    bench.pipeline.begin_session(B)
    assert [slot.request for slot in bench.take()] == [Delete("/b")]


def test_closing_refuses_what_waits_and_lets_answers_under_way_come() -> None:
    bench = Bench()
    bench.ask(*[Delete("/a")] * (WINDOW_PACKETS + 1))
    slots = bench.take()
    bench.ask(Exists("/b"))
    bench.pipeline.close()
    bench.ask(Exists("/c"))
    assert bench.settled == [[SessionEnded("/b")], [SessionEnded("/c")]]
    for slot in slots[:-1]:
        slot.on_response(0, b"", 0)
    bench.pipeline.fail_in_flight()
    assert bench.settled[2] == [None] * (WINDOW_PACKETS - 1) + [SessionEnded("/a")] * 2
    assert bench.pipeline.session_id is None


def test_a_connection_that_breaks_while_closing_leaves_session_gone() -> None:
    bench = Bench()
    bench.ask(Delete("/a"))
    [slot] = bench.take()
    bench.pipeline.close()
    slot.on_failure(is_session_over=False)
    assert bench.settled == [[SessionEnded("/a")]]


def test_a_callback_that_raises_is_reported_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()

    def bad(_: list[Result]) -> None:
        raise LookupError("of the test")

    bench.pipeline.submit(A, [Delete("/a")], bad)
    bench.ask(Delete("/b"))
    for slot in bench.take():
        slot.on_response(0, b"", 0)
    assert bench.settled == [[None]]
    assert "of the test" in caplog.text


def test_bytes_that_are_no_answer_leave_the_outcome_unknown(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.ask(SetData("/a", b""))
    bench.take()[0].on_response(0, b"short", 0)
    assert bench.settled == [[ConnectionLost("/a")]]
    assert "zookeeper-response-malformed" in caplog.text


# --- many nodes -------------------------------------------------------------------------------------------------


def test_many_nodes_are_one_packet_where_the_server_can() -> None:
    bench = Bench()
    bench.ask(GetMany(("/a", "/b")), GetMany(()))
    [slot] = bench.take()
    assert slot.opcode == Opcode.MULTI_READ
    slot.on_response(0, many(2, found=False), 0)
    assert bench.settled == [[[NoNode("/a"), NoNode("/b")], []]]


def test_many_nodes_are_one_packet_each_where_the_server_cannot() -> None:
    bench = Bench()
    bench.ask(GetMany(("/a", "/b")))
    slots = bench.take(has_multi_read=False)
    assert [slot.request for slot in slots] == [Get("/a"), Get("/b")]
    for slot in reversed(slots):
        slot.on_response(-101, b"", 0)
    assert bench.settled == [[[NoNode("/a"), NoNode("/b")]]]


@pytest.mark.parametrize("has_multi_read", [True, False])
def test_lists_are_a_packet_each_on_every_server(has_multi_read: bool) -> None:
    bench = Bench()
    bench.ask(GetManyAcls(("/a", "/b", "/c")), GetManyAcls(()), Delete("/d"))
    slots = bench.take(has_multi_read=has_multi_read)
    assert [slot.opcode for slot in slots] == [Opcode.GET_ACL] * 3 + [Opcode.DELETE]
    slots[3].on_response(0, b"", 0)
    slots[2].on_failure(is_session_over=False)
    slots[0].on_response(-101, b"", 0)
    assert bench.settled == []
    slots[1].on_response(0, struct.pack("!i", 0) + STAT, 0)
    [[read, nothing, none]] = bench.settled
    assert isinstance(read, ManyAclsResult)
    first, second, third = read.found
    assert (first, third) == (NoNode("/a"), ConnectionLost("/c"))
    assert isinstance(second, ZnodeAcl)
    assert (second.acl, nothing, none) == ((), ManyAclsResult([]), None)
    assert bench.pipeline.packets_sent == 4


def test_a_connection_that_ends_over_lists_leaves_each_of_them_unknown() -> None:
    bench = Bench()
    bench.ask(GetManyAcls(tuple(f"/{number}" for number in range(WINDOW_PACKETS + 1))))
    slots = bench.take()
    slots[0].on_response(-101, b"", 0)
    assert not bench.pipeline.on_connection_lost()
    lost = [ConnectionLost(f"/{number}") for number in range(1, WINDOW_PACKETS + 1)]
    assert bench.settled == [[ManyAclsResult([NoNode("/0"), *lost])]]


def test_too_many_nodes_are_cut() -> None:
    bench = Bench()
    paths = tuple(f"/{number}" for number in range(2 * GET_MANY_PATHS_MAX + 1))
    bench.ask(GetMany(paths))
    slots = bench.take()
    assert [len(slot.request.paths) for slot in slots] == [1_000, 1_000, 1]  # type: ignore[union-attr]
    for slot in reversed(slots):
        slot.on_response(0, many(len(slot.request.paths), found=False), 0)  # type: ignore[union-attr]
    assert bench.settled == [[[NoNode(path) for path in paths]]]


def test_paths_too_long_for_one_packet_are_cut() -> None:
    bench = Bench()
    bench.ask(GetMany(("/" + "x" * 400_000,) * 5))
    assert [len(slot.request.paths) for slot in bench.take()] == [2, 2, 1]  # type: ignore[union-attr]


def test_after_long_answers_fewer_nodes_are_asked_for_at_once() -> None:
    bench = Bench()
    bench.ask(GetMany(("/a",) * 4))
    bench.take()[0].on_response(0, many(4, b"x" * 300_000), 0)
    bench.ask(GetMany(("/a",) * 5))
    assert [len(slot.request.paths) for slot in bench.take()] == [2, 2, 1]  # type: ignore[union-attr]


def test_a_multi_read_that_a_server_refuses_as_a_whole_is_asked_one_by_one() -> None:
    bench = Bench()
    bench.ask(GetMany(("/a", "/b")), Delete("/c"))
    whole, delete = bench.take()
    whole.on_response(-5, b"", 0)
    singles = bench.take()
    assert [slot.request for slot in singles] == [Get("/a"), Get("/b")]
    for slot in [*singles, delete]:
        slot.on_response(-101, b"", 0)
    assert bench.settled == [[[NoNode("/a"), NoNode("/b")], NoNode("/c")]]


def test_connections_that_end_over_a_multi_read_end_its_use() -> None:
    bench = Bench()
    for _ in range(MULTI_READ_FAILURES_MAX):
        bench.ask(GetMany(("/a", "/b")))
        [slot] = bench.take()
        slot.on_failure(is_session_over=False)
        assert bench.pipeline.on_connection_lost()
    bench.ask(GetMany(("/a", "/b")))
    assert len(bench.take()) == 2


def test_a_connection_that_ends_over_something_else_says_nothing_about_multi_read() -> None:
    bench = Bench()
    bench.ask(Delete("/a"), GetMany(("/a", "/b")))
    for slot in bench.take():
        slot.on_failure(is_session_over=False)
        bench.pipeline.on_connection_lost()
        break
    assert not bench.pipeline.on_connection_lost()
    bench.ask(GetMany(("/a", "/b")))
    assert len(bench.take()) == 1


def test_a_multi_read_that_was_answered_clears_the_doubt() -> None:
    bench = Bench()
    for _ in range(3 * MULTI_READ_FAILURES_MAX):
        bench.ask(GetMany(("/a",)))
        bench.take()[0].on_failure(is_session_over=False)
        assert bench.pipeline.on_connection_lost()
        bench.ask(GetMany(("/a",)))
        [slot] = bench.take()
        assert slot.opcode == Opcode.MULTI_READ
        slot.on_response(0, many(1, found=False), 0)
