"""Brokers of 0.9 are asked what they speak once at most: the question harms their other clients."""

from __future__ import annotations

import pytest

from bridge.testing.fake_cluster import FakeCluster
from tests.in_memory_fixtures import PATIENT, MakeConnector, MakeWorld, take
from zkconsumer.config import ConsumerConfig
from zkconsumer.kafka import api_versions_deny_list, version_negotiation
from zkconsumer.kafka.api_versions_deny_list import (
    API_VERSIONS_DENY_LIST,
    DENY_LIST_ENTRIES_MAX,
    ENTRY_TTL_MS,
    ApiVersionsDenyList,
)
from zkconsumer.kafka.bootstrap_brokers import BootstrapBrokers
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.kafka.broker_security import BrokerSecurity, SecureConnectionFactory, broker_security_from_config
from zkconsumer.kafka.supported_versions import ASSUMED_FOR_0_9
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.runtime.broker_access import REGISTRATIONS_MAX_AGE_MS, RegisteredBootstrapBrokers
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import BrokerAddress
from zkconsumer.wire.schemas import LIST_OFFSETS
from zkconsumer.zk import paths

TIMEOUT_MS = 5_000


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait half a second for the silence of 0.9."""
    monkeypatch.setattr(version_negotiation, "NO_RESPONSE_MS", 20)


def connected(cluster: FakeCluster) -> Connection:
    return cluster.connect(*cluster.address(0)[1:])


def times_asked(cluster: FakeCluster) -> int:
    """Each question to a broker of 0.9 is followed by one that it knows."""
    return sum(seen.api is LIST_OFFSETS for seen in cluster.requests)


def test_who_passed_over_the_question_once_is_not_asked_by_the_next_connection() -> None:
    cluster = FakeCluster(release="0.9.0.1")
    assert [negotiate(connected(cluster), TIMEOUT_MS) for _ in range(3)] == [ASSUMED_FOR_0_9] * 3
    assert times_asked(cluster) == 1


def test_who_answers_is_asked_by_each_connection() -> None:
    """It may be of another release after a restart."""
    cluster = FakeCluster(release="1.1.1")
    for _ in range(2):
        assert not negotiate(connected(cluster), TIMEOUT_MS).is_assumed
    assert not API_VERSIONS_DENY_LIST.contains(*cluster.address(0)[1:])


def test_a_registration_of_0_9_is_enough() -> None:
    cluster = FakeCluster(release="0.9.0.1")
    API_VERSIONS_DENY_LIST.update_from_registration(*cluster.address(0)[1:], version=2)
    assert negotiate(connected(cluster), TIMEOUT_MS) is ASSUMED_FOR_0_9
    assert times_asked(cluster) == 0


@pytest.mark.parametrize("version", [1, 3, 4, 5])
def test_another_registration_takes_back_what_was_known(version: int) -> None:
    API_VERSIONS_DENY_LIST.add("broker", 9092)
    API_VERSIONS_DENY_LIST.update_from_registration("broker", 9092, version)
    assert not API_VERSIONS_DENY_LIST.contains("broker", 9092)


def test_it_is_forgotten_after_a_while() -> None:
    clock = ManualClock()
    known = ApiVersionsDenyList(clock)
    known.add("broker", 9092)
    clock.move(ENTRY_TTL_MS - 1)
    assert known.contains("broker", 9092)
    assert not known.contains("broker", 9093)
    clock.move(1)
    assert not known.contains("broker", 9092)


def test_addresses_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_versions_deny_list, "DENY_LIST_ENTRIES_MAX", 3)
    known = ApiVersionsDenyList()
    for port in (1, 2, 3, 1, 4):
        known.add("broker", port)
    assert [port for port in (1, 2, 3, 4) if known.contains("broker", port)] == [1, 3, 4]
    assert DENY_LIST_ENTRIES_MAX > 3


def test_nobody_is_asked_where_the_configuration_says_so() -> None:
    cluster = FakeCluster(release="0.9.0.1")
    _, host, port = cluster.address(0)
    config = ConsumerConfig(zookeeper_connect="zk:2181", group_id="g", api_version_request=False)
    connect = SecureConnectionFactory(broker_security_from_config(config), socket=cluster.transport)
    assert negotiate(connect(host, port), TIMEOUT_MS) is ASSUMED_FOR_0_9
    assert times_asked(cluster) == 0


def test_another_process_is_told() -> None:
    known, other = BrokerAddress(0, "old", 9092), BrokerAddress(1, "new", 9092)
    API_VERSIONS_DENY_LIST.add(known.host, known.port)
    assert not BrokerSecurity().for_brokers([other, known]).negotiates_versions
    assert BrokerSecurity().for_brokers([other]).negotiates_versions
    assert not BrokerSecurity(negotiates_versions=False).for_brokers([other]).negotiates_versions


def test_members_learn_it_from_zookeeper(make_world: MakeWorld, connect: MakeConnector) -> None:
    world = make_world(release="0.9.0.1")
    world.create_topic("clicks")
    world.cluster.append("clicks", 0, [b"read"])
    [stream] = connect(on=world, **PATIENT).create_message_streams({"clicks": 1})["clicks"]
    assert [message.value for message in take(stream, 1)] == [b"read"]
    assert not [seen for seen in world.cluster.requests if seen.api is LIST_OFFSETS and not seen.body.topics]


def test_a_member_with_bootstrap_servers_reads_the_registrations_first(
    make_world: MakeWorld, connect: MakeConnector
) -> None:
    """A migrating member has ZooKeeper and ``bootstrap.servers``."""
    world = make_world(release="0.9.0.1")
    world.create_topic("clicks")
    world.cluster.append("clicks", 0, [b"read"])
    _, host, port = world.cluster.address(0)
    config = {**PATIENT, "bootstrap_servers": f"{host}:{port}"}
    [stream] = connect(on=world, **config).create_message_streams({"clicks": 1})["clicks"]
    assert [message.value for message in take(stream, 1)] == [b"read"]
    assert not [seen for seen in world.cluster.requests if seen.api is LIST_OFFSETS and not seen.body.topics]


def test_one_registered_broker_of_0_9_is_enough_for_a_bootstrap_address_with_another_name() -> None:
    zookeeper, clock = FakeZooKeeper(), ManualClock()
    zookeeper.ensure(paths.broker(0), b'{"host":"old.internal","port":9092,"version":2}')
    zookeeper.ensure(paths.broker(1), b'{"host":"new.internal","port":9092,"version":4}')
    session = FakeZkStore(zookeeper, "", 6_000, None)
    session.start(TIMEOUT_MS)
    bootstrap = BootstrapBrokers("alias:9092,new.internal:9092")
    brokers = RegisteredBootstrapBrokers(bootstrap, session, TIMEOUT_MS, "PLAINTEXT", clock)
    assert [broker.host for broker in brokers.brokers()] == ["alias", "new.internal"]
    hosts = ["alias", "old.internal", "new.internal"]
    assert [API_VERSIONS_DENY_LIST.contains(host, 9092) for host in hosts] == [True, True, False]


def test_registrations_are_read_again_after_a_minute_also_when_zookeeper_did_not_answer() -> None:
    zookeeper, clock = FakeZooKeeper(), ManualClock()
    zookeeper.ensure(paths.broker(0), b'{"host":"old","port":9092,"version":2}')
    session = FakeZkStore(zookeeper, "", 6_000, None)
    brokers = RegisteredBootstrapBrokers(BootstrapBrokers("old:9092"), session, 20, "PLAINTEXT", clock)
    assert brokers.brokers(), "the session is not started, and a group that has moved needs no ZooKeeper"
    assert not API_VERSIONS_DENY_LIST.contains("old", 9092)
    session.start(TIMEOUT_MS)
    clock.move(REGISTRATIONS_MAX_AGE_MS - 1)
    brokers.brokers()
    assert not API_VERSIONS_DENY_LIST.contains("old", 9092)
    clock.move(1)
    brokers.brokers()
    assert API_VERSIONS_DENY_LIST.contains("old", 9092)
