"""The requests in flight, as InFlightRequestsTest of Kafka requires them."""

from __future__ import annotations

import pytest

from zkconsumer.base.timer import FOREVER_MS
from zkconsumer.kafka.net.client_request import ClientRequest, RequestBuilder
from zkconsumer.kafka.net.in_flight_requests import InFlightRequest, InFlightRequests
from zkconsumer.wire.schemas import METADATA
from zkconsumer.wire.schemas.metadata import MetadataRequest

NODE, OTHER = 0, 1


def request(correlation_id: int, node: int = NODE, sent_ms: int = 0, timeout_ms: int = 100) -> InFlightRequest:
    builder = RequestBuilder(METADATA, MetadataRequest(topics=None))
    return InFlightRequest(ClientRequest(node, builder, correlation_id, sent_ms, timeout_ms), 1, False, sent_ms)


@pytest.fixture
def requests() -> InFlightRequests:
    return InFlightRequests(12)


def test_the_newest_request_can_be_completed(requests: InFlightRequests) -> None:
    requests.add(request(1))
    requests.add(request(2))
    assert requests.count() == requests.count(NODE) == 2
    assert requests.last_sent(NODE).request.correlation_id == 2
    assert requests.complete_last_sent(NODE).request.correlation_id == 2
    assert requests.count() == 1
    assert requests.complete_last_sent(NODE).request.correlation_id == 1
    assert requests.count() == 0
    assert requests.is_empty()
    assert requests.is_empty(NODE)


def test_the_requests_of_a_node_are_cleared_in_their_order(requests: InFlightRequests) -> None:
    for correlation_id in (1, 2):
        requests.add(request(correlation_id))
    requests.add(request(3, OTHER))
    assert [each.request.correlation_id for each in requests.clear_all(NODE)] == [1, 2]
    assert requests.clear_all(NODE) == []
    assert requests.is_empty(NODE)
    assert requests.count() == requests.count(OTHER) == 1


def test_a_node_times_out_when_any_of_its_requests_is_late(requests: InFlightRequests) -> None:
    requests.add(request(1, sent_ms=0, timeout_ms=50))
    requests.add(request(2, OTHER, sent_ms=0, timeout_ms=100))
    requests.add(request(3, OTHER, sent_ms=10, timeout_ms=10))
    assert requests.nodes_with_timed_out_requests(20) == []
    assert requests.time_to_next_timeout_ms(20) == 1
    assert requests.nodes_with_timed_out_requests(21) == [OTHER], "a later request may have less time"
    assert requests.time_to_next_timeout_ms(21) == 0
    requests.clear_all(OTHER)
    assert requests.nodes_with_timed_out_requests(50) == []
    assert requests.time_to_next_timeout_ms(50) == 1
    assert requests.nodes_with_timed_out_requests(51) == [NODE]
    requests.clear_all(NODE)
    assert requests.time_to_next_timeout_ms(51) == FOREVER_MS


def test_the_oldest_request_is_completed_next(requests: InFlightRequests) -> None:
    for correlation_id in (1, 2):
        requests.add(request(correlation_id))
    assert requests.complete_next(NODE).request.correlation_id == 1
    assert requests.count() == 1
    assert requests.complete_next(NODE).request.correlation_id == 2
    assert requests.count() == 0


def test_nothing_completes_next_on_an_idle_node(requests: InFlightRequests) -> None:
    with pytest.raises(KeyError):
        requests.complete_next(NODE)


def test_nothing_was_sent_last_on_an_idle_node(requests: InFlightRequests) -> None:
    with pytest.raises(KeyError):
        requests.complete_last_sent(NODE)
    with pytest.raises(KeyError):
        requests.last_sent(NODE)


def test_the_next_request_waits_until_the_last_one_is_written() -> None:
    requests = InFlightRequests(2)
    assert requests.can_send_more(NODE)
    requests.add(request(1))
    assert not requests.can_send_more(NODE)
    requests.last_sent(NODE).is_written = True
    assert requests.can_send_more(NODE)
    requests.add(request(2))
    requests.last_sent(NODE).is_written = True
    assert not requests.can_send_more(NODE), "two are the most"
    requests.complete_next(NODE)
    assert requests.can_send_more(NODE)
