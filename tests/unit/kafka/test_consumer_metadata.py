"""``ConsumerMetadata``: which topics a consumer requests and keeps (Kafka's ConsumerMetadataTest)."""

from __future__ import annotations

import re

import pytest

from tests.metadata_responses import metadata_response, metadata_update, partition_row, topic_row, update_now
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.fetch.subscription_state import SubscriptionState
from zkconsumer.kafka.metadata.consumer_metadata import ConsumerMetadata
from zkconsumer.kafka.metadata.metadata_request_builder import MetadataRequestBuilder
from zkconsumer.types import TopicPartition

OFFSETS = "__consumer_offsets"


@pytest.fixture
def subscription() -> SubscriptionState:
    return SubscriptionState(OffsetResetStrategy.EARLIEST)


def consumer_metadata(subscription: SubscriptionState, *, include_internal_topics: bool = False) -> ConsumerMetadata:
    return ConsumerMetadata(
        50,
        50_000,
        subscription,
        include_internal_topics=include_internal_topics,
        allow_auto_topic_creation=False,
    )


@pytest.mark.parametrize(
    ("include_internal", "expected"),
    [(False, {"__matching_topic"}), (True, {"__matching_topic", OFFSETS})],
    ids=["exclude.internal.topics=true", "exclude.internal.topics=false"],
)
def test_a_pattern_requests_all_topics_and_keeps_those_that_match(
    subscription: SubscriptionState, include_internal: bool, expected: set[str]
) -> None:
    subscription.subscribe_pattern(re.compile("__.*"))
    metadata = consumer_metadata(subscription, include_internal_topics=include_internal)
    assert metadata.new_metadata_request_builder().is_all_topics
    topics = (topic_row(name, partition_row(0)) for name in (OFFSETS, "__matching_topic", "non_matching_topic"))
    update_now(metadata, metadata_response(*topics))
    assert metadata.fetch().topics == expected


def check_topics(subscription: SubscriptionState, *expected: str) -> None:
    metadata = consumer_metadata(subscription)
    request = metadata.new_metadata_request_builder()
    assert request == MetadataRequestBuilder(tuple(sorted(expected)), allow_auto_topic_creation=False)
    topics = (topic_row(name, partition_row(0)) for name in (*expected, "other"))
    update_now(metadata, metadata_response(*topics))
    assert metadata.fetch().topics == set(expected)


def test_the_topics_of_assigned_partitions_are_requested_and_kept(subscription: SubscriptionState) -> None:
    subscription.assign_from_user([TopicPartition(topic, 0) for topic in ("foo", "bar", OFFSETS)])
    check_topics(subscription, "foo", "bar", OFFSETS)
    subscription.assign_from_user([TopicPartition(topic, 0) for topic in ("baz", OFFSETS)])
    check_topics(subscription, "baz", OFFSETS)


def test_the_topics_of_the_subscription_and_of_the_led_group_are_requested_and_kept(
    subscription: SubscriptionState,
) -> None:
    subscription.subscribe({"foo", "bar", OFFSETS})
    subscription.group_subscribe({"baz", "foo", "bar", OFFSETS})
    check_topics(subscription, "foo", "bar", "baz", OFFSETS)
    subscription.reset_group_subscription()
    check_topics(subscription, "foo", "bar", OFFSETS)


def test_transient_topics_are_kept_until_they_are_cleared(subscription: SubscriptionState) -> None:
    topic_ids = {"foo": b"f" * 16, "bar": b"b" * 16}
    subscription.subscribe({"foo"})
    metadata = consumer_metadata(subscription)
    update_now(metadata, metadata_update({"foo": 1}, topic_ids=topic_ids))
    assert metadata.topic_id("foo") == topic_ids["foo"]
    metadata.add_transient_topics({"foo"})
    assert not metadata.update_requested, "its metadata is there"
    metadata.add_transient_topics({"bar"})
    assert metadata.update_requested
    assert metadata.time_to_next_update(0) == 0

    update_now(metadata, metadata_update({"foo": 1, "bar": 1}, topic_ids=topic_ids))
    assert not metadata.update_requested
    assert metadata.fetch().topics == {"foo", "bar"}
    assert {topic: metadata.topic_id(topic) for topic in topic_ids} == topic_ids

    metadata.clear_transient_topics()
    update_now(metadata, metadata_update({"foo": 1, "bar": 1}, topic_ids=topic_ids))
    assert metadata.fetch().topics == {"foo"}
    assert (metadata.topic_id("foo"), metadata.topic_id("bar")) == (topic_ids["foo"], None)


def test_the_epochs_of_a_topic_that_is_not_needed_any_more_are_forgotten(subscription: SubscriptionState) -> None:
    tp = TopicPartition("foo", 0)
    subscription.subscribe({"foo", "bar"})
    metadata = consumer_metadata(subscription)
    update_now(metadata, metadata_update({"foo": 1, "bar": 1}, epoch=10))
    subscription.subscribe({"bar"})
    update_now(metadata, metadata_update({"bar": 1}, epoch=10))
    assert metadata.last_seen_leader_epoch(tp) is None
    assert metadata.last_seen_leader_epoch(TopicPartition("bar", 0)) == 10
