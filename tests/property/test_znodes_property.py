"""Znodes under random bytes, random text near JSON, and random values."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zkconsumer.errors import InvalidNameError, MalformedZnode
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.java_json import JavaJsonError, read_jackson_json, read_scala_json
from zkconsumer.zk.znode_formats import (
    ControlRecord,
    Registration,
    consumer_of,
    format_control,
    format_offset,
    format_registration,
    parse_broker,
    parse_control,
    parse_offset,
    parse_owner,
    parse_partition_state,
    parse_registration,
    parse_topic,
)

READERS: list[Callable[[bytes], object]] = [
    parse_registration,
    parse_offset,
    parse_owner,
    parse_topic,
    parse_partition_state,
    parse_control,
    lambda data: parse_broker(0, data),
]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NEAR_JSON = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ":", ",", '"', "\\", "\\u0041", "\\u12", " ", "\n", "\x00", "\x1a", "1", "0", "-", ".",
         "e", "true", "null", "NaN", '"pattern"', '"subscription"', '"static"', '"white_list"', '"t"', "٣", "\ufeff",
         "é"]
    ),
    max_size=30,
).map("".join)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "version": VALUES,
        "subscription": st.dictionaries(TEXT, st.integers(-1, 3) | VALUES, max_size=6) | VALUES,
        "pattern": st.sampled_from(["static", "white_list", "black_list", "x"]) | VALUES,
        "timestamp": VALUES,
        "host": VALUES,
        "port": VALUES,
        "endpoints": st.lists(st.sampled_from(["PLAINTEXT://h:1", "SSL://h:1"]) | VALUES, max_size=3) | VALUES,
        "listener_security_protocol_map": VALUES,
        "partitions": st.dictionaries(st.integers(-2, 9).map(str) | TEXT, VALUES, max_size=3) | VALUES,
        "leader": VALUES,
        "isr": VALUES,
        "id": VALUES,
        "epoch": VALUES,
        "authority": VALUES,
    },
).map(json.dumps)


@given(st.binary(max_size=200) | (NEAR_JSON | OBJECTS | TEXT).map(str.encode))
@example(b'{"pattern":"white_list","subscription":{"\\ud800":1,"b":1,"c":1,"d":1,"e":1}}')
def test_any_bytes_give_a_value_or_malformed_znode(data: bytes) -> None:
    for read in READERS:
        with suppress(MalformedZnode):
            read(data)


@given(NEAR_JSON)
def test_where_both_parsers_take_a_text_they_read_the_same(text: str) -> None:
    try:
        old, strict = read_scala_json(text), read_jackson_json(text)
    except JavaJsonError:
        return
    assert old == strict


@given(VALUES)
def test_proper_json_is_read_by_the_strict_reader_as_any_reader_does(value: object) -> None:
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        return
    if not any(mark in text for mark in (".", "e")) and len(text) < 20:
        assert read_jackson_json(text) == value


@given(
    st.sampled_from(["static", "white_list", "black_list"]),
    st.dictionaries(TEXT, st.integers(1, 1_000), min_size=1, max_size=6),
    st.integers(0, 2**63).map(str),
)
def test_a_registration_that_was_written_is_read_back(pattern: str, counts: dict[str, int], timestamp: str) -> None:
    if pattern != "static":
        counts = dict(list(counts.items())[:1])
    registration = Registration(pattern, counts, timestamp)  # type: ignore[arg-type]
    data = format_registration(registration)
    assert parse_registration(data) == registration
    assert json.loads(data)["subscription"] == counts
    assert read_scala_json(data.decode()) == json.loads(data), "every release reads what we write"


@given(st.integers(0, 2**63 - 1))
def test_an_offset_that_was_written_is_read_back(offset: int) -> None:
    assert parse_offset(format_offset(offset)) == offset


@given(st.text(string.digits + "+- ._ex", max_size=25))
def test_an_offset_is_read_only_when_it_is_a_long(text: str) -> None:
    body = text[1:] if text[:1] in ("+", "-") else text
    is_long = body.isdigit() and -(2**63) <= int(text) < 2**63
    try:
        assert parse_offset(text.encode()) == int(text)
        assert is_long
    except MalformedZnode:
        assert not is_long


@given(TEXT.filter(bool), st.integers(0, 2**63 - 1), TEXT.filter(bool), st.sampled_from(["zookeeper", "kafka"]))
def test_a_control_znode_that_was_written_is_read_back(name: str, epoch: int, phase: str, authority: str) -> None:
    control = ControlRecord(name, epoch, phase, authority, "copy")  # type: ignore[arg-type]
    assert parse_control(format_control(control)) == control


@given(TEXT, st.integers(0, 999))
def test_the_consumer_of_a_thread_is_what_the_thread_was_made_of(consumer: str, number: int) -> None:
    assert consumer_of(f"{consumer}-{number}") == consumer


@given(st.text(max_size=300), st.integers())
@example("..", 0)
@example(".", 0)
def test_no_name_leads_out_of_its_folder(name: str, number: int) -> None:
    folders = {
        paths.ids: 4,
        paths.control: 4,
        paths.topic: 4,
        lambda text: paths.registration("g", text): 5,
        lambda text: paths.owner("g", TopicPartition(text, number)): 6,
        lambda text: paths.offset(text, TopicPartition("t", number)): 6,
    }
    for make, parts in folders.items():
        try:
            path = make(name)  # type: ignore[no-untyped-call]
        except InvalidNameError:
            continue
        assert path.count("/") == parts - 1
        assert not {"", ".", ".."} & set(path.split("/")[1:])
        assert path.startswith(("/consumers/", "/zkconsumer/groups/", "/brokers/topics/"))


@pytest.mark.parametrize("separator", [",", ":"])
def test_a_dangling_separator_is_refused_by_both_parsers(separator: str) -> None:
    for read in (read_scala_json, read_jackson_json):
        with pytest.raises(JavaJsonError):
            read(f'{{"a"{separator}}}')
