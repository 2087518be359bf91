"""What a broker speaks, asked of brokers of every age."""

from __future__ import annotations

import pytest

from bridge.coordinator.release_features import RELEASES
from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_faults import CloseConnection, Delay, Garbage, Hold
from zkconsumer.errors import BrokerUnreachable, KafkaException
from zkconsumer.kafka import version_negotiation
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.kafka.error_codes import BrokerError
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError, ConnectionFailureReason
from zkconsumer.kafka.supported_versions import ASSUMED_BEFORE_0_10, ASSUMED_FOR_0_9, SupportedVersions, VersionRange
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.wire.request_frames import encode_response
from zkconsumer.wire.schemas import (
    API_VERSIONS,
    FETCH,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    SYNC_GROUP,
)
from zkconsumer.wire.schemas.api_versions import ApiVersion
from zkconsumer.wire.schemas.metadata import MetadataRequest

TIMEOUT_MS = 5_000
SHORT_MS = 20


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait half a second for the silence of 0.9."""
    monkeypatch.setattr(version_negotiation, "NO_RESPONSE_MS", SHORT_MS)


def connected(cluster: FakeCluster) -> Connection:
    return cluster.connect(*cluster.address(0)[1:])


@pytest.mark.parametrize("release", RELEASES)
def test_the_ranges_of_every_release(release: str) -> None:
    ranges = negotiate(connected(FakeCluster(release=release)), TIMEOUT_MS)
    if RELEASES[release].has_api_versions:
        assert dict(ranges.ranges) == RELEASES[release].ranges
        assert not ranges.is_assumed
    else:
        knows_members = RELEASES[release].supports_group_members
        assert ranges is (ASSUMED_FOR_0_9 if knows_members else ASSUMED_BEFORE_0_10)
        assert {ranges.supports(api, 0) for api in (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP)} == {knows_members}
        assert {ranges.pick(api) for api in (PRODUCE, FETCH, LIST_OFFSETS, METADATA)} == {0}


@pytest.mark.parametrize(
    ("release", "asked"),
    [
        ("0.8.2.2", []),  # what it cannot read it closes the connection on
        ("0.9.0.1", []),
        ("0.10.2.2", [0]),
        ("1.1.1", [0]),
        ("3.9.1", [3]),
    ],
)
def test_which_questions_were_understood(release: str, asked: list[int]) -> None:
    cluster = FakeCluster(release=release)
    negotiate(connected(cluster), TIMEOUT_MS)
    assert [seen.version for seen in cluster.requests if seen.api is API_VERSIONS] == asked
    has_probed = [seen.version for seen in cluster.requests if seen.api is LIST_OFFSETS]
    assert has_probed == ([] if asked else [0])


def test_the_connection_is_usable_afterwards() -> None:
    for release in RELEASES:
        connection = connected(FakeCluster(release=release))
        ranges = negotiate(connection, TIMEOUT_MS)
        assert connection.request(METADATA, ranges.pick(METADATA), MetadataRequest(topics=[]), TIMEOUT_MS).brokers


def test_a_version_that_the_broker_offers_is_taken() -> None:
    cluster = FakeCluster(release="3.9.1")
    offered = ApiVersion(api_key=API_VERSIONS.key, min_version=0, max_version=2)
    refusal = API_VERSIONS.response(error_code=35, api_keys=[offered])
    cluster.inject(Garbage(encode_response(API_VERSIONS, 0, 0, refusal)))
    negotiate(connected(cluster), TIMEOUT_MS)
    assert [seen.version for seen in cluster.requests] == [3, 2]


@pytest.mark.parametrize("release", ["3.9.1", "4.1.1"])
def test_a_slow_broker_is_not_taken_for_an_old_one(release: str) -> None:
    """4.1.1 closes the connection on the second question, 3.9.1 answers it."""
    cluster = FakeCluster(release=release)
    cluster.inject(Delay(3 * SHORT_MS), api=API_VERSIONS)
    connection = connected(cluster)
    ranges = negotiate(connection, TIMEOUT_MS)
    assert not ranges.is_assumed
    assert connection.request(METADATA, ranges.pick(METADATA), MetadataRequest(topics=[]), TIMEOUT_MS).brokers


def test_one_connection_that_closes_by_chance_does_not_make_a_broker_old() -> None:
    cluster = FakeCluster(release="3.9.1")
    cluster.inject(CloseConnection())
    assert not negotiate(connected(cluster), TIMEOUT_MS).is_assumed


def test_a_port_that_always_closes_is_no_broker() -> None:
    cluster = FakeCluster(release="3.9.1")
    cluster.inject(CloseConnection(), times=None)
    with pytest.raises(BrokerUnreachable, match="closes the connection on every request"):
        negotiate(connected(cluster), TIMEOUT_MS)


def test_a_broker_that_answers_nothing_is_not_taken_for_an_old_one() -> None:
    cluster = FakeCluster(release="3.9.1")
    cluster.inject(Hold(), times=None)
    with pytest.raises(BrokerConnectionError) as caught:
        negotiate(connected(cluster), SHORT_MS)
    assert caught.value.reason is ConnectionFailureReason.TIMED_OUT


def test_a_broker_that_is_down_is_not_taken_for_an_old_one() -> None:
    cluster = FakeCluster()
    connection = connected(cluster)
    cluster.stop_broker(0)
    with pytest.raises(BrokerConnectionError) as caught:
        negotiate(connection, TIMEOUT_MS)
    assert caught.value.reason is ConnectionFailureReason.REFUSED


def test_a_broker_that_refuses_to_tell_says_why() -> None:
    cluster = FakeCluster()
    cluster.inject(Garbage(encode_response(API_VERSIONS, 3, 0, API_VERSIONS.response(error_code=31, api_keys=[]))))
    with pytest.raises(BrokerError, match=r"ApiVersions: CLUSTER_AUTHORIZATION_FAILED \(31\)") as caught:
        negotiate(connected(cluster), TIMEOUT_MS)
    assert caught.value.code.code == 31


@pytest.mark.parametrize(
    ("there", "at_most", "picked"),
    [
        ((0, 3), None, 3),
        ((0, 99), None, 12),
        ((4, 17), None, 12),
        ((0, 12), 3, 3),
        ((4, 17), 18, 17),
        ((12, 17), None, 12),
    ],
)
def test_the_highest_common_version_is_picked(there: tuple[int, int], at_most: int | None, picked: int) -> None:
    assert SupportedVersions({FETCH.key: VersionRange(*there)}).pick(FETCH, at_most) == picked


@pytest.mark.parametrize(
    ("there", "at_most", "text"),
    [
        ((13, 17), None, "no common version of Fetch: the broker speaks v13 to v17, this program v0 to v12"),
        ((4, 17), 3, "the broker speaks v4 to v17, this program v0 to v3"),
    ],
)
def test_no_common_version_names_both_ranges(there: tuple[int, int], at_most: int | None, text: str) -> None:
    with pytest.raises(KafkaException, match=text):
        SupportedVersions({FETCH.key: VersionRange(*there)}).pick(FETCH, at_most)


def test_an_api_that_the_broker_lacks() -> None:
    ranges = SupportedVersions({FETCH.key: VersionRange(0, 3)})
    with pytest.raises(KafkaException, match=r"the broker does not know Metadata \(API 3\)"):
        ranges.pick(METADATA)
    assert ranges.supports(FETCH, 3)
    assert not ranges.supports(FETCH, 4)
    assert not ranges.supports(METADATA, 0)
