"""ZooKeeper's packets, byte for byte, and any bytes for an answer."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.zk.frame_buffer import FRAME_BYTES_MAX, FrameBuffer
from zkconsumer.zk.packets import MalformedResponseError, Opcode, decode, decode_event, encode, store_error_of
from zkconsumer.zk.requests import (
    Acl,
    BadVersion,
    CheckOp,
    ChildNames,
    Children,
    ConnectionLost,
    Create,
    CreateOp,
    Delete,
    DeleteOp,
    Exists,
    Get,
    GetAcl,
    GetMany,
    GetManyAcls,
    ManyAclsResult,
    Multi,
    MultiFailed,
    MultiOk,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    OtherError,
    Request,
    SessionEnded,
    SetAcl,
    SetData,
    SetOp,
    Stat,
    WatchFired,
    ZnodeAcl,
    ZnodeData,
)

STAT = Stat(
    czxid=1,
    mzxid=2,
    version=5,
    cversion=6,
    pzxid=11,
    ephemeral_owner=8,
    num_children=10,
    data_length=9,
    ctime_ms=3,
    mtime_ms=4,
    aversion=7,
)
STAT_BYTES = struct.pack("!qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)


def string(text: str) -> bytes:
    return struct.pack("!i", len(text.encode())) + text.encode()


def header(kind: int, is_end: bool = False, error: int = 0) -> bytes:
    return struct.pack("!i?i", kind, is_end, error)


END = header(-1, True, -1)
OPEN = struct.pack("!ii", 1, 31) + string("world") + string("anyone")
ALICE, WORLD = Acl(31, "digest", "alice:hash"), Acl(1, "world", "anyone")
LISTED = b"".join(
    [struct.pack("!i", 2), struct.pack("!i", 31), string("digest"), string("alice:hash"),
     struct.pack("!i", 1), string("world"), string("anyone")]
)  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "opcode", "body"),
    [
        (Get("/a"), 4, string("/k/a") + b"\0"),
        (Get("/a", watch=True), 4, string("/k/a") + b"\1"),
        (Get("/"), 4, string("/k") + b"\0"),
        (Exists("/é"), 3, string("/k/é") + b"\0"),
        (Children("/a", watch=True), 12, string("/k/a") + b"\1"),
        (Create("/a", b"xy"), 1, string("/k/a") + string("xy") + OPEN + struct.pack("!i", 0)),
        (Create("/a", ephemeral=True), 1, string("/k/a") + string("") + OPEN + struct.pack("!i", 1)),
        (
            Create("/a", acl=(Acl(1, "digest", "u:x"),)),
            1,
            string("/k/a") + string("") + struct.pack("!ii", 1, 1) + string("digest") + string("u:x") + bytes(4),
        ),
        (
            SetAcl("/a", (Acl(17, "world", "anyone"),), 3),
            7,
            string("/k/a") + struct.pack("!ii", 1, 17) + string("world") + string("anyone") + struct.pack("!i", 3),
        ),
        (SetData("/a", b"x", 3), 5, string("/k/a") + string("x") + struct.pack("!i", 3)),
        (Delete("/a"), 2, string("/k/a") + struct.pack("!i", -1)),
        (GetAcl("/a"), 6, string("/k/a")),
        (GetManyAcls(("/a",)), 6, string("/k/a")),
        (
            GetMany(("/a", "/b")),
            22,
            header(4, error=-1) + string("/k/a") + b"\0" + header(4, error=-1) + string("/k/b") + b"\0" + END,
        ),
        (
            Multi((CheckOp("/a", 1), DeleteOp("/b"), SetOp("/c", b"x"))),
            14,
            header(13, error=-1)
            + string("/k/a")
            + struct.pack("!i", 1)
            + header(2, error=-1)
            + string("/k/b")
            + struct.pack("!i", -1)
            + header(5, error=-1)
            + string("/k/c")
            + string("x")
            + struct.pack("!i", -1)
            + END,
        ),
    ],
)
def test_a_request_is_written_below_the_chroot(request_: Request, opcode: int, body: bytes) -> None:
    assert encode(request_, "/k") == (opcode, body)


def test_without_a_chroot_the_root_is_the_root() -> None:
    assert encode(Get("/"), "") == (Opcode.GET_DATA, string("/") + b"\0")


def test_a_member_of_a_multi_is_written_as_when_it_stands_alone() -> None:
    op, alone = CreateOp("/a", b"x", ephemeral=True), Create("/a", b"x", ephemeral=True)
    assert encode(Multi((op,)), "/k")[1] == header(1, error=-1) + encode(alone, "/k")[1] + END


@pytest.mark.parametrize(
    ("request_", "answer", "result"),
    [
        (Get("/a"), string("xy") + STAT_BYTES, ZnodeData(b"xy", STAT)),
        (Get("/a"), struct.pack("!i", -1) + STAT_BYTES, ZnodeData(b"", STAT)),
        (Exists("/a"), STAT_BYTES, STAT),
        (SetData("/a", b""), STAT_BYTES, STAT),
        (SetAcl("/a", ()), STAT_BYTES, STAT),
        (Children("/a"), struct.pack("!i", 2) + string("b") + string("a") + STAT_BYTES, ChildNames(["b", "a"], STAT)),
        (Children("/a"), struct.pack("!i", -1) + STAT_BYTES, ChildNames([], STAT)),
        (Create("/a"), string("/k/a"), "/a"),
        (Delete("/a"), b"", None),
        (
            GetMany(("/a", "/b", "/c")),
            header(4) + string("x") + STAT_BYTES + header(-1, error=-101) + struct.pack("!i", -101) + header(4)
            + string("") + STAT_BYTES + END,
            [ZnodeData(b"x", STAT), NoNode("/b"), ZnodeData(b"", STAT)],
        ),
        (GetMany(()), END, []),
        (GetAcl("/a"), LISTED + STAT_BYTES, (ALICE, WORLD)),
        (GetManyAcls(("/a",)), LISTED + STAT_BYTES, ManyAclsResult([ZnodeAcl((ALICE, WORLD), STAT)])),
        (GetManyAcls(("/a",)), struct.pack("!i", -1) + STAT_BYTES, ManyAclsResult([ZnodeAcl((), STAT)])),
        (
            Multi((CreateOp("/a"), SetOp("/a", b""), DeleteOp("/b"), CheckOp("/c"))),
            header(1) + string("/k/a") + header(5) + STAT_BYTES + header(2) + header(13) + END,
            MultiOk(("/a", STAT, None, None)),
        ),
        (
            Multi((CreateOp("/a"), CheckOp("/b", 1), DeleteOp("/c"))),
            b"".join(header(-1, error=code) + struct.pack("!i", code) for code in (0, -103, -2)) + END,
            MultiFailed("/b", 1, BadVersion("/b")),
        ),
    ],
)  # fmt: skip
def test_an_answer_is_read(request_: Request, answer: bytes, result: object) -> None:
    assert decode(request_, 0, b"head" + answer, 4) == result


def test_an_error_is_a_value() -> None:
    assert decode(Get("/a"), -101, b"", 0) == NoNode("/a")
    assert decode(Exists("/a"), -101, b"", 0) is None
    assert decode(Exists("/a"), -4, b"", 0) == ConnectionLost("/a")
    assert decode(GetMany(("/a", "/b")), -112, b"", 0) == [SessionEnded("/a"), SessionEnded("/b")]
    assert decode(GetManyAcls(("/a",)), -102, b"", 0) == ManyAclsResult([NoAuth("/a")])
    assert decode(Multi((CheckOp("/a"), CheckOp("/b"))), -102, b"", 0) == NoAuth("/a")


def test_no_packet_asks_for_the_lists_of_several_nodes() -> None:
    with pytest.raises(ValueError, match="2 access control lists"):
        encode(GetManyAcls(("/a", "/b")), "")


def test_equal_lists_are_one_object() -> None:
    """Of a hundred thousand nodes most have the same."""
    first, second = (decode(GetAcl("/a"), 0, LISTED + stat, 0) for stat in (STAT_BYTES, bytes(68)))
    assert first == (ALICE, WORLD)
    assert first is second


@pytest.mark.parametrize(
    "answer", [LISTED, LISTED + b"more" + STAT_BYTES, LISTED[:-2] + STAT_BYTES, struct.pack("!i", 9) + STAT_BYTES, b""]
)
def test_a_list_is_all_that_stands_before_the_stat(answer: bytes) -> None:
    for request in (GetAcl("/a"), GetManyAcls(("/a",))):
        with pytest.raises(MalformedResponseError):
            decode(request, 0, answer, 0)


def test_error_codes_have_names_also_those_that_do_not_exist_yet() -> None:
    assert store_error_of(-110, "/a") == NodeExists("/a")
    assert store_error_of(-111, "/a") == NotEmpty("/a")
    assert store_error_of(-127, "/a") == OtherError("/a", "Throttled", -127)
    assert store_error_of(-999, "/a") == OtherError("/a", "Unknown", -999)


@pytest.mark.parametrize(("code", "kind"), [(1, "created"), (2, "deleted"), (3, "data"), (4, "children")])
def test_a_watch_event_is_read_below_the_chroot(code: int, kind: str) -> None:
    event = decode_event("/k", struct.pack("!ii", code, 3) + string("/k/a"), 0)
    assert isinstance(event, WatchFired)
    assert (event.path, event.kind) == ("/a", kind)


def test_an_event_about_the_session_or_of_an_unknown_kind_is_none() -> None:
    for code in (-1, 5, 99):
        assert decode_event("", struct.pack("!ii", code, 3) + string("/a"), 0) is None
    assert decode_event("", struct.pack("!iii", -1, 3, -1), 0) is None


REQUESTS: list[Request] = [
    Get("/a"),
    Exists("/a"),
    Children("/a"),
    GetMany(("/a", "/b")),
    GetAcl("/a"),
    GetManyAcls(("/a",)),
    Create("/a"),
    SetData("/a", b""),
    Delete("/a"),
    Multi((CreateOp("/a"), SetOp("/a", b""), DeleteOp("/b"), CheckOp("/c"))),
]


@given(st.sampled_from(REQUESTS), st.integers(-130, 1), st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_malformed(request_: Request, error: int, answer: bytes) -> None:
    try:
        decode(request_, error, answer, 0)
        decode_event("/k", answer, 0)
    except MalformedResponseError as exc:
        assert str(exc)  # noqa: PT017


@pytest.mark.parametrize("count", [2**31 - 1, 1_000])
def test_a_count_of_names_beyond_the_bytes_is_malformed_at_once(count: int) -> None:
    with pytest.raises(MalformedResponseError):
        decode(Children("/a"), 0, struct.pack("!i", count), 0)


def test_an_answer_with_fewer_results_than_operations_is_malformed() -> None:
    with pytest.raises(MalformedResponseError):
        decode(Multi((CheckOp("/a"), CheckOp("/b"))), 0, header(13) + END, 0)
    with pytest.raises(MalformedResponseError):
        decode(Multi((CheckOp("/a"),)), 0, header(-1) + bytes(4) + END, 0)


@pytest.mark.parametrize("size", [1, 2, 5, 7, 1_000])
def test_frames_are_whole_packets_however_the_bytes_come(size: int) -> None:
    packets = [b"", b"a", b"bc" * 40, b"d"]
    stream = b"".join(struct.pack("!i", len(packet)) + packet for packet in packets)
    frames, found = FrameBuffer(), []
    for at in range(0, len(stream), size):
        frames.add(stream[at : at + size])
        while (frame := frames.next()) is not None:
            found.append(frame)
    assert found == packets


def test_what_stands_before_a_length_that_cannot_be_is_given() -> None:
    frames = FrameBuffer()
    frames.add(struct.pack("!i", 1) + b"a" + struct.pack("!i", FRAME_BYTES_MAX + 1))
    assert frames.next() == b"a"
    with pytest.raises(MalformedResponseError, match="a frame of"):
        frames.next()
