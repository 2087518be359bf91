"""The metadata of topics for ``partitions_for`` and ``list_topics``, as FetcherTest of Kafka requires it."""

from __future__ import annotations

import pytest

from tests.metadata_responses import metadata_response, metadata_update, partition_row, topic_row
from tests.poll_fetcher_fixtures import TOPIC, TP0, PollFetcher
from zkconsumer.errors import InvalidTopicException, TimeoutException, TopicAuthorizationException, WakeupException
from zkconsumer.kafka.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    POLICY_VIOLATION,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    ErrorCode,
)
from zkconsumer.kafka.metadata.metadata_request_builder import MetadataRequestBuilder
from zkconsumer.wire.schemas.metadata import MetadataResponse

ONE_TOPIC = MetadataRequestBuilder((TOPIC,))
GOOD = metadata_update({TOPIC: 4})


def failing(error: ErrorCode) -> MetadataResponse:
    return metadata_update(errors={TOPIC: error})


@pytest.fixture
def made() -> PollFetcher:
    found = PollFetcher()
    found.assign(TP0)
    return found


def test_all_topics_are_returned_with_their_partitions(made: PollFetcher) -> None:
    made.kafka.prepare(GOOD)
    found = made.fetcher.get_all_topic_metadata(made.timer(5000))
    assert {topic: len(partitions) for topic, partitions in found.items()} == {TOPIC: 4}


def test_the_request_is_repeated_after_a_disconnect(made: PollFetcher) -> None:
    made.kafka.prepare(None, was_disconnected=True)
    made.kafka.prepare(GOOD)
    assert list(made.fetcher.get_all_topic_metadata(made.timer(5000))) == [TOPIC]


def test_without_a_response_it_ends_with_its_timer(made: PollFetcher) -> None:
    with pytest.raises(TimeoutException, match="50 ms"):
        made.fetcher.get_all_topic_metadata(made.timer(50))


def test_without_a_usable_node_it_ends_with_its_timer(made: PollFetcher) -> None:
    made.kafka.backoff(0, 10_000)
    with pytest.raises(TimeoutException):
        made.fetcher.get_all_topic_metadata(made.timer(500))


def test_a_missing_permission_is_raised(made: PollFetcher) -> None:
    made.kafka.prepare(failing(TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(TopicAuthorizationException) as raised:
        made.fetcher.get_all_topic_metadata(made.timer(10))
    assert raised.value.unauthorized_topics == {TOPIC}


def test_an_invalid_topic_is_raised(made: PollFetcher) -> None:
    made.kafka.prepare(failing(INVALID_TOPIC_EXCEPTION))
    with pytest.raises(InvalidTopicException):
        made.fetcher.get_topic_metadata(ONE_TOPIC, made.timer(5000))


def test_an_unexpected_error_is_raised(made: PollFetcher) -> None:
    made.kafka.prepare(failing(POLICY_VIOLATION))
    with pytest.raises(BrokerError, match="POLICY_VIOLATION"):
        made.fetcher.get_topic_metadata(ONE_TOPIC, made.timer(5000))


def test_a_topic_that_does_not_exist_is_not_in_the_result(made: PollFetcher) -> None:
    made.kafka.prepare(failing(UNKNOWN_TOPIC_OR_PARTITION))
    assert made.fetcher.get_topic_metadata(ONE_TOPIC, made.timer(5000)) == {}


def test_the_request_is_repeated_while_a_topic_has_no_leaders_yet(made: PollFetcher) -> None:
    made.kafka.prepare(failing(LEADER_NOT_AVAILABLE))
    made.kafka.prepare(GOOD)
    before_ms = made.clock.now_ms()
    assert TOPIC in made.fetcher.get_topic_metadata(ONE_TOPIC, made.timer(5000))
    assert made.clock.now_ms() - before_ms >= 100, "retry.backoff.ms lies between the requests"


def test_partitions_without_a_leader_are_returned(made: PollFetcher) -> None:
    rows = [partition_row(index, leader_id=-1, error_code=LEADER_NOT_AVAILABLE.code) for index in range(4)]
    made.kafka.prepare(metadata_response(topic_row(TOPIC, *rows)))
    found = made.fetcher.get_topic_metadata(MetadataRequestBuilder((TOPIC,), False), made.timer(5000))
    assert [partition.leader for partition in found[TOPIC]] == [None] * 4


def test_no_topics_need_no_request(made: PollFetcher) -> None:
    assert made.fetcher.get_topic_metadata(MetadataRequestBuilder(()), made.timer(0)) == {}


def test_a_wakeup_ends_the_wait_between_two_requests(made: PollFetcher) -> None:
    made.kafka.prepare(failing(LEADER_NOT_AVAILABLE), check=lambda body: made.network.wakeup())
    with pytest.raises(WakeupException):
        made.fetcher.get_topic_metadata(ONE_TOPIC, made.timer(5000))
