"""Owners, offsets, and the control znode."""

from __future__ import annotations

import pytest

from zkconsumer.errors import InternalError, MalformedZnode
from zkconsumer.zk.znode_formats import (
    ControlRecord,
    consumer_of,
    format_control,
    format_offset,
    format_owner,
    parse_control,
    parse_offset,
    parse_owner,
)


def test_an_owner_is_the_thread_id_and_nothing_else() -> None:
    thread = "g1_host-1416246370000-55ddbc44-0"
    assert format_owner(thread) == thread.encode()
    assert parse_owner(thread.encode()) == thread


def test_an_owner_that_is_not_utf_8_is_still_somebody() -> None:
    assert parse_owner(b"x\xff-0") == "x\ufffd-0"


def test_an_owner_of_a_megabyte_is_nobody() -> None:
    with pytest.raises(MalformedZnode):
        parse_owner(b"x" * 1_000_000)


def test_the_consumer_of_a_thread_is_cut_at_the_last_dash() -> None:
    assert consumer_of("g1_host-1416246370000-55ddbc44-12") == "g1_host-1416246370000-55ddbc44"
    assert consumer_of("fenced") == "fenced"
    assert consumer_of("") == ""


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"0", 0),
        (b"17", 17),
        (b"007", 7),
        (b"+5", 5),
        (b"-1", -1),
        (b"-0", 0),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"0" * 100_000 + b"5", 5),
    ],
)
def test_an_offset_is_read_as_java_reads_a_long(data: bytes, offset: int) -> None:
    assert parse_offset(data) == offset


def test_a_negative_offset_is_read_and_means_none() -> None:
    assert parse_offset(b"-5") < 0


def test_an_offset_is_written_as_plain_decimal() -> None:
    assert format_offset(0) == b"0"
    assert format_offset(2**63 - 1) == b"9223372036854775807"


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_what_is_no_offset_is_never_written(offset: int) -> None:
    with pytest.raises(InternalError):
        format_offset(offset)


CONTROL = ControlRecord("m-1", 4, "fenced", "zookeeper", "copy")


def test_the_control_znode_is_json_in_a_fixed_order_and_reads_back() -> None:
    data = format_control(CONTROL)
    assert data == b'{"id":"m-1","epoch":4,"phase":"fenced","authority":"zookeeper","strategy":"copy"}'
    assert parse_control(data) == CONTROL


def test_a_later_releases_keys_in_the_control_znode_are_let_pass() -> None:
    assert parse_control(format_control(CONTROL)[:-1] + b',"acls":{"a":[1]}}') == CONTROL


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"m-1"', b"1"),
        (b'"m-1"', b'""'),
        (b":4", b":-1"),
        (b":4", b":true"),
        (b":4", b":4.0"),
        (b":4", b":9223372036854775808"),
        (b":4", b":99999999999999999999999"),
        (b'"fenced"', b"null"),
        (b'"zookeeper"', b'"mars"'),
        (b'"zookeeper"', b"null"),
        (b'"copy"', b"[]"),
        (b"{", b""),
        (b"m-1", b"\xff"),
    ],
)
def test_a_control_znode_that_does_not_say_where_the_authority_is_is_malformed(old: bytes, new: bytes) -> None:
    with pytest.raises(MalformedZnode):
        parse_control(format_control(CONTROL).replace(old, new, 1))


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"[" * 100_000, b" " * 1_048_577])
def test_a_control_znode_that_is_no_object_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedZnode):
        parse_control(data)
