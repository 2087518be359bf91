"""Subscriptions, and the thread ids that follow from them."""

from __future__ import annotations

import pytest

from zkconsumer.errors import InvalidTopicFilter, MalformedZnode
from zkconsumer.member.topic_count import (
    THREADS_PER_TOPIC_MAX,
    ConsumerThreadId,
    StaticTopicCount,
    WildcardTopicCount,
    construct_topic_count,
    make_consumer_thread_ids_per_topic,
    make_thread_id,
)
from zkconsumer.member.topic_filter import Blacklist, PatternNotEvaluable, Whitelist
from zkconsumer.zk.znode_formats import STREAMS_MAX, Registration, format_registration, parse_registration


def texts(ids: dict[str, tuple[ConsumerThreadId, ...]]) -> dict[str, list[str]]:
    return {topic: list(map(str, threads)) for topic, threads in ids.items()}


def test_a_static_subscription_has_its_threads_whether_the_topic_exists_or_not() -> None:
    count = construct_topic_count("g_c", "static", {"t1": 2, "gone": 1})
    assert count == StaticTopicCount("g_c", {"t1": 2, "gone": 1})
    assert texts(count.get_consumer_thread_ids_per_topic()) == {"t1": ["g_c-0", "g_c-1"], "gone": ["g_c-0"]}
    assert count.get_topic_count_map() == {"t1": 2, "gone": 1}
    assert count.pattern == "static"


def test_an_empty_subscription_is_legal() -> None:
    assert construct_topic_count("g_c", "static", {}).get_consumer_thread_ids_per_topic() == {}


def test_a_filter_takes_what_it_allows_of_the_topics_there_are() -> None:
    topics = ["clicks", "views", "__consumer_offsets", "__transaction_state"]
    white = construct_topic_count("g_c", "white_list", {"c.*|__.*": 2})
    assert white == WildcardTopicCount("g_c", Whitelist("c.*|__.*"), 2)
    assert texts(white.get_consumer_thread_ids_per_topic(topics)) == {"clicks": ["g_c-0", "g_c-1"]}
    assert set(white.get_consumer_thread_ids_per_topic(topics, exclude_internal_topics=False)) == {
        "clicks", "__consumer_offsets", "__transaction_state",
    }  # fmt: skip
    black = construct_topic_count("g_c", "black_list", {"c.*": 1})
    assert black == WildcardTopicCount("g_c", Blacklist("c.*"), 1)
    assert texts(black.get_consumer_thread_ids_per_topic(topics)) == {"views": ["g_c-0"]}
    assert (white.pattern, black.pattern) == ("white_list", "black_list")


def test_any_other_pattern_means_static_as_in_the_original() -> None:
    assert construct_topic_count("g_c", "whitelist", {"t": 1}) == StaticTopicCount("g_c", {"t": 1})


def test_a_filter_without_a_key_subscribes_to_nothing() -> None:
    assert construct_topic_count("g_c", "white_list", {}) == StaticTopicCount("g_c", {})


def test_of_several_filters_the_first_of_scalas_map_counts() -> None:
    few = construct_topic_count("g_c", "white_list", {"b": 2, "a": 1})
    assert few.get_topic_count_map() == {"b": 2}
    # In Scala's hash trie "e" comes first of these five, whatever the order of insertion.
    many = construct_topic_count("g_c", "white_list", {"b": 2, "a": 1, "c": 3, "d": 4, "e": 5})
    turned = construct_topic_count("g_c", "white_list", {"e": 5, "d": 4, "c": 3, "a": 1, "b": 2})
    assert many.get_topic_count_map() == turned.get_topic_count_map() == {"e": 5}


def test_a_filter_is_normalised_again_when_it_is_read() -> None:
    assert construct_topic_count("g_c", "white_list", {'" a,b "': 1}).get_topic_count_map() == {"a|b": 1}


def test_filters_that_no_java_compiles_and_filters_that_are_not_known_here_differ() -> None:
    with pytest.raises(InvalidTopicFilter):
        construct_topic_count("g_c", "white_list", {"(": 1})
    with pytest.raises(PatternNotEvaluable) as unknown:
        construct_topic_count("g_c", "white_list", {r"(a)\1": 1})
    assert not isinstance(unknown.value, InvalidTopicFilter)


@pytest.mark.parametrize("count", [0, -1, THREADS_PER_TOPIC_MAX + 1, 2**31 - 1])
def test_a_number_of_threads_that_cannot_be_names_the_member(count: int) -> None:
    static = construct_topic_count("g_bad", "static", {"t": count})
    with pytest.raises(MalformedZnode, match=rf"g_bad asks for {count} threads for 't'"):
        static.get_consumer_thread_ids_per_topic()
    white = construct_topic_count("g_bad", "white_list", {"t": count})
    assert white.get_consumer_thread_ids_per_topic(["other"]) == {}, "as long as no topic matches, nobody minds"
    with pytest.raises(MalformedZnode):
        white.get_consumer_thread_ids_per_topic(["t"])


def test_what_the_reader_of_registrations_takes_is_not_too_much_here() -> None:
    assert THREADS_PER_TOPIC_MAX >= STREAMS_MAX


def test_thread_ids_are_numbered_from_0_without_padding() -> None:
    assert make_thread_id("g_c", 10) == "g_c-10"
    ids = make_consumer_thread_ids_per_topic("g_c", {"t": 12})["t"]
    assert [str(i) for i in ids][9:] == ["g_c-9", "g_c-10", "g_c-11"]
    assert [str(i) for i in sorted(ids)][:4] == ["g_c-0", "g_c-1", "g_c-10", "g_c-11"]


@pytest.mark.parametrize(
    ("regex", "escaped"),
    [
        ('-"-', r"-\"-"),
        (r"-\-", r"-\\-"),
        ("-/-", r"-\/-"),
        (r"-\\-", r"-\\\\-"),
        (r"-\.-", r"-\\.-"),
        ("-\b-", r"-\b-"),
        ("-\f-", r"-\f-"),
        ("-\n-", r"-\n-"),
        ("-\r-", r"-\r-"),
        ("-\t-", r"-\t-"),
        ("-\0-", r"-\u0000-"),
        ("-\x1f-", r"-\u001f-"),
        ("-\x7f-", r"-\u007f-"),
        ("-\x9f-", r"-\u009f-"),
    ],
)
def test_a_filter_is_escaped_once_on_its_way_through_zookeeper(regex: str, escaped: str) -> None:
    """TopicFilterTest.testWildcardTopicCountGetTopicCountMapEscapeJson."""
    topic_filter = object.__new__(Whitelist)
    topic_filter.regex = regex  # Some of these are literals of a pattern that is not evaluated.
    written = WildcardTopicCount("g_c", topic_filter, 1)
    data = format_registration(Registration("white_list", written.get_topic_count_map(), timestamp="1"))
    assert f'"subscription":{{"{escaped}":1}}'.encode() in data
    assert dict(parse_registration(data).subscription) == {regex: 1}
