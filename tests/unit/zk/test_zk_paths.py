"""Paths and names: everything of the layout, and each danger by its name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zkconsumer.errors import InvalidNameError, MalformedZnode
from zkconsumer.types import TopicPartition
from zkconsumer.utf8 import decode_like_java, decode_strict, encode_strict
from zkconsumer.zk import paths

P = TopicPartition("clicks", 7)

CHECKS: list[Callable[[str], str]] = [paths.check_group, paths.check_topic, paths.check_client_id]
every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


def refuses(check: Callable[[str], str], name: str) -> None:
    with pytest.raises(InvalidNameError):
        check(name)


def test_the_paths_of_a_group_are_those_of_the_original() -> None:
    assert paths.group_root("g1") == "/consumers/g1"
    assert paths.ids("g1") == "/consumers/g1/ids"
    assert paths.registration("g1", "g1_host-1-abc") == "/consumers/g1/ids/g1_host-1-abc"
    assert paths.owners("g1") == "/consumers/g1/owners"
    assert paths.owners_of_topic("g1", "clicks") == "/consumers/g1/owners/clicks"
    assert paths.owner("g1", P) == "/consumers/g1/owners/clicks/7"
    assert paths.offsets("g1") == "/consumers/g1/offsets"
    assert paths.offsets_of_topic("g1", "clicks") == "/consumers/g1/offsets/clicks"
    assert paths.offset("g1", P) == "/consumers/g1/offsets/clicks/7"


def test_the_paths_of_the_brokers_are_those_of_the_original() -> None:
    assert paths.broker(0) == "/brokers/ids/0"
    assert paths.topic("clicks") == "/brokers/topics/clicks"
    assert paths.partition_state(P) == "/brokers/topics/clicks/partitions/7/state"


def test_the_control_node_is_not_below_consumers() -> None:
    assert paths.control("g1") == "/zkconsumer/groups/g1"


def test_parents_come_topmost_first() -> None:
    assert paths.parents(paths.ids("g1")) == ["/consumers", "/consumers/g1"]
    assert paths.parents("/consumers") == []


@pytest.mark.parametrize("path", [paths.owner("g1", P), paths.offset("g1", P), paths.partition_state(P)])
def test_a_path_of_a_partition_is_read_back(path: str) -> None:
    assert paths.partition_of(path) == P


@pytest.mark.parametrize(
    "path",
    [
        "/consumers/g1/ids/x",
        "/consumers/g1/owners/clicks",
        "/consumers/g1/owners/clicks/7/fenced",
        "/consumers/g1/owners/clicks/7x",
        "/consumers/g1/owners/clicks/07",
        "/consumers/g1/owners/clicks/-7",
        "/consumers/g1/owners/clicks/٣",
        "/consumers/g1/owners/clicks/2147483648",
        "/consumers/g1/owners/../7",
        "/consumers/g1/owners//7",
        "",
    ],
)
def test_another_path_is_no_partition(path: str) -> None:
    assert paths.partition_of(path) is None


def test_a_topic_is_read_back_from_its_path_only() -> None:
    assert paths.topic_of("/brokers/topics/clicks") == "clicks"
    for path in ("/brokers/topics", "/brokers/topics/clicks/partitions", "/brokers/topics/", "/brokers/topics/.."):
        assert paths.topic_of(path) is None


# --- the dangers ------------------------------------------------------------------------------------------------


def test_dot_dot_is_refused_as_group_and_topic() -> None:
    refuses(paths.check_group, "..")
    refuses(paths.check_topic, "..")
    refuses(paths.check_consumer_id, "..")


def test_dot_is_refused_as_group_and_topic() -> None:
    refuses(paths.check_group, ".")
    refuses(paths.check_topic, ".")
    refuses(paths.check_consumer_id, ".")


@pytest.mark.parametrize("check", [*CHECKS, paths.check_consumer_id])
def test_a_slash_is_refused(check: Callable[[str], str]) -> None:
    refuses(check, "a/b")


@pytest.mark.parametrize("check", [*CHECKS, paths.check_consumer_id])
def test_a_leading_slash_is_refused(check: Callable[[str], str]) -> None:
    refuses(check, "/a")


@pytest.mark.parametrize("check", [*CHECKS, paths.check_consumer_id])
def test_nul_is_refused(check: Callable[[str], str]) -> None:
    refuses(check, "a\x00")


@pytest.mark.parametrize("check", [*CHECKS, paths.check_consumer_id])
def test_a_newline_is_refused_also_at_the_end(check: Callable[[str], str]) -> None:
    refuses(check, "a\nb")
    refuses(check, "a\n")


def test_250_characters_are_one_too_many_for_a_topic_and_none_for_a_group() -> None:
    assert paths.check_topic("a" * 249)
    refuses(paths.check_topic, "a" * 250)
    assert paths.check_group("a" * 250)
    for check in (paths.check_group, paths.check_client_id, paths.check_consumer_id):
        refuses(check, "a" * 1_001)


@pytest.mark.parametrize("check", [*CHECKS, paths.check_consumer_id])
def test_half_a_surrogate_pair_is_refused(check: Callable[[str], str]) -> None:
    refuses(check, "a\ud800")


@every_check
def test_percent_escapes_are_refused(check: Callable[[str], str]) -> None:
    refuses(check, "%2e%2e")


@every_check
def test_letters_beyond_ascii_are_refused(check: Callable[[str], str]) -> None:
    refuses(check, "é")
    refuses(check, "٣")


def test_the_empty_name_is_refused_except_as_a_client_id() -> None:
    refuses(paths.check_group, "")
    refuses(paths.check_topic, "")
    refuses(paths.check_consumer_id, "")
    assert paths.check_client_id("") == ""


def test_no_path_is_made_of_an_unsafe_name() -> None:
    makes: list[Callable[[], str]] = [
        lambda: paths.ids(".."),
        lambda: paths.control("../x"),
        lambda: paths.registration("g1", "../x"),
        lambda: paths.owner("g1", TopicPartition("..", 0)),
        lambda: paths.owner("g1", TopicPartition("t", -1)),
        lambda: paths.owner("", TopicPartition("t", 0)),
        lambda: paths.owners_of_topic("g1", "a/b"),
        lambda: paths.offset("g1", TopicPartition("t/../u", 0)),
        lambda: paths.offset("g1", TopicPartition("t", 2**31)),
        lambda: paths.offsets_of_topic("g1", ""),
        lambda: paths.broker(-1),
        lambda: paths.topic("a\x00"),
        lambda: paths.partition_state(TopicPartition("t", -1)),
    ]
    for make in makes:
        with pytest.raises(InvalidNameError):
            make()


def test_another_members_odd_consumer_id_is_still_one_node() -> None:
    assert paths.registration("g1", "g1_my host:1%2f") == "/consumers/g1/ids/g1_my host:1%2f"


# --- text -------------------------------------------------------------------------------------------------------


def test_text_is_utf_8() -> None:
    assert encode_strict("é") == b"\xc3\xa9"
    assert decode_strict(b"\xc3\xa9") == "é"


def test_what_is_not_utf_8_is_malformed_here_and_replaced_as_java_does() -> None:
    with pytest.raises(MalformedZnode, match="byte 1 of 2"):
        decode_strict(b"a\xff")
    assert decode_like_java(b"a\xff") == "a\ufffd"


def test_half_a_surrogate_pair_has_no_bytes() -> None:
    with pytest.raises(InvalidNameError):
        encode_strict("\ud800")
