"""The discovery of API versions, one response at a time; ``test_version_negotiation`` has brokers of each release."""

from __future__ import annotations

import pytest

from zkconsumer.kafka.error_codes import BrokerError
from zkconsumer.kafka.net.api_versions_discovery import ApiVersionsDiscovery, DiscoveryRequest
from zkconsumer.kafka.supported_versions import ASSUMED_BEFORE_0_10, ASSUMED_FOR_0_9, SupportedVersions
from zkconsumer.wire.schemas import API_VERSIONS, LIST_OFFSETS, METADATA
from zkconsumer.wire.schemas.api_versions import ApiVersion, ApiVersionsResponse
from zkconsumer.wire.schemas.list_offsets import ListOffsetsResponse

ANSWER = ApiVersionsResponse(api_keys=[ApiVersion(api_key=METADATA.key, min_version=0, max_version=4)])
REJECTED = ApiVersionsResponse(error_code=35, api_keys=[])
PROBED = ListOffsetsResponse(topics=[])


@pytest.fixture
def discovery() -> ApiVersionsDiscovery:
    return ApiVersionsDiscovery("broker:9092")


def asked(outcome: object) -> tuple[str, int]:
    assert isinstance(outcome, DiscoveryRequest)
    return outcome.api.name, outcome.version


def test_the_newest_version_is_asked_first_and_may_be_ignored(discovery: ApiVersionsDiscovery) -> None:
    assert asked(discovery.begin()) == ("ApiVersions", 3)
    assert discovery.may_be_silent
    found = discovery.on_response(API_VERSIONS, 3, ANSWER)
    assert isinstance(found, SupportedVersions)
    assert found.pick(METADATA) == 4


def test_only_the_probe_that_is_answered_alone_means_0_9(discovery: ApiVersionsDiscovery) -> None:
    discovery.begin()
    assert asked(discovery.on_silence()) == ("ListOffsets", 0)
    assert not discovery.may_be_silent, "one probe a connection"
    assert discovery.on_response(LIST_OFFSETS, 0, PROBED) is ASSUMED_FOR_0_9


def test_a_broker_that_rejects_the_version_after_the_probe_was_sent_has_api_versions(
    discovery: ApiVersionsDiscovery,
) -> None:
    discovery.begin()
    discovery.on_silence()
    assert asked(discovery.on_response(API_VERSIONS, 3, REJECTED)) == ("ApiVersions", 0)
    assert discovery.on_response(LIST_OFFSETS, 0, PROBED) is None
    found = discovery.on_response(API_VERSIONS, 0, ANSWER)
    assert isinstance(found, SupportedVersions)
    assert not found.is_assumed


def test_a_rejection_by_a_broker_that_then_closes_is_not_taken_for_0_8(discovery: ApiVersionsDiscovery) -> None:
    discovery.begin()
    discovery.on_response(API_VERSIONS, 3, REJECTED)
    assert discovery.on_closed()
    assert asked(discovery.begin()) == ("ApiVersions", 0)


def test_a_rejection_of_version_0_is_an_error(discovery: ApiVersionsDiscovery) -> None:
    discovery.begin()
    with pytest.raises(BrokerError, match="broker:9092: ApiVersions: UNSUPPORTED_VERSION"):
        discovery.on_response(API_VERSIONS, 0, REJECTED)


def test_connections_that_are_closed_lead_to_older_requests_and_then_back(discovery: ApiVersionsDiscovery) -> None:
    seen = []
    for makes_sense in (True, True, False, True):
        seen.append(asked(discovery.begin()))
        assert discovery.on_closed() == makes_sense
    assert seen == [("ApiVersions", 3), ("ApiVersions", 0), ("ListOffsets", 0), ("ApiVersions", 3)]


def test_a_broker_that_answers_only_list_offsets_is_one_of_0_8(discovery: ApiVersionsDiscovery) -> None:
    discovery.on_closed()
    discovery.on_closed()
    discovery.begin()
    assert not discovery.may_be_silent
    assert discovery.on_response(LIST_OFFSETS, 0, PROBED) is ASSUMED_BEFORE_0_10


def test_what_was_found_before_the_probe_closed_the_connection_is_kept(discovery: ApiVersionsDiscovery) -> None:
    discovery.begin()
    discovery.on_silence()
    assert discovery.on_response(API_VERSIONS, 3, ANSWER) is None
    assert discovery.on_closed()
    assert isinstance(discovery.begin(), SupportedVersions)
