"""A member of a group on secured brokers: what it reads, and how a refusal reaches the program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from bridge.testing.fake_security import FakeSecurity
from bridge.testing.fake_transport import HOST
from tests.broker_security_cases import PASSWORD, TLS, USER
from zkconsumer import connector_base
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import (
    ConsumerTimeoutException,
    InvalidConfigException,
    SaslAuthenticationException,
    SecurityProtocolMismatch,
)
from zkconsumer.kafka.bootstrap_client import BootstrapClient
from zkconsumer.kafka.broker_security import SecureConnectionFactory, broker_security_from_config
from zkconsumer.runtime import broker_access as runtime_brokers
from zkconsumer.runtime.broker_access import check_brokers
from zkconsumer.testing.sandbox.waiting import wait_until
from zkconsumer.zk import paths

DEADLINE_MS = 30_000
"""Only what does not happen takes so long."""
SETTINGS = {
    "security_protocol": "SASL_SSL",
    "ssl_truststore_location": str(TLS / "ca.pem"),
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_username": USER,
    "sasl_password": PASSWORD,
}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEnvironment]:
    """One broker with a topic of ten records, whose only listener is SASL_SSL."""
    with FakeEnvironment() as made:
        made.cluster.security = FakeSecurity("SASL_SSL", certificate=TLS / "broker.pem", users={USER: PASSWORD})
        address = made.cluster.address(0)
        node = {
            "listener_security_protocol_map": {"INSIDE": "SASL_SSL"},
            "endpoints": [f"INSIDE://{address.host}:{address.port}"],
            "host": None,
            "port": -1,
            "version": 4,
        }
        made.zookeeper.ensure(paths.broker(0), json.dumps(node).encode())
        made.create_topic("clicks", 2)
        made.cluster.append("clicks", 0, [b"%d" % n for n in range(5)])
        made.cluster.append("clicks", 1, [b"%d" % n for n in range(5)])

        def connect_in_memory(config: ConsumerConfig, *_: object) -> SecureConnectionFactory:
            return SecureConnectionFactory(broker_security_from_config(config), socket=made.cluster.transport)

        monkeypatch.setattr(runtime_brokers, "connection_factory_from_config", connect_in_memory)
        yield made


def connector(world: FakeEnvironment, *, secured: bool = True, **changes: Any) -> ZookeeperConsumerConnector:
    settings = {
        "group_id": "g1",
        "zookeeper_connect": ADDRESS,
        "auto_offset_reset": "smallest",
        "consumer_timeout_ms": DEADLINE_MS,
        "refresh_leader_backoff_ms": 10,
    }
    config = ConsumerConfig(**(settings | (SETTINGS if secured else {}) | changes))
    made = ZookeeperConsumerConnector(config, store=world.store)
    world.connectors.append(made)
    return made


def test_a_member_reads_through_the_listener_of_its_protocol(world: FakeEnvironment) -> None:
    [stream] = connector(world).create_message_streams({"clicks": 1})["clicks"]
    read = iter(stream)
    assert len([next(read) for _ in range(10)]) == 10
    security = world.cluster.security
    assert security is not None
    assert set(security.logins) == {USER}


def test_a_member_that_brokers_refuse_registers_nothing(world: FakeEnvironment) -> None:
    member = connector(world, sasl_password="wrong")
    with pytest.raises(SaslAuthenticationException, match="does not accept the user or the password") as refused:
        member.create_message_streams({"clicks": 1})
    assert "wrong" not in str(refused.value)
    assert world.zookeeper.data(paths.ids("g1")) is None


def test_a_refusal_before_anything_was_read_ends_every_stream(world: FakeEnvironment) -> None:
    """Brokers were down when the member joined; the first one that comes up refuses it."""
    world.cluster.stop_broker(0)
    member = connector(world, sasl_password="wrong")
    streams = member.create_message_streams({"clicks": 2})["clicks"]
    world.cluster.start_broker(0)
    for stream in streams:
        with pytest.raises(SaslAuthenticationException, match="does not accept the user or the password"):
            next(iter(stream))
    with pytest.raises(SaslAuthenticationException):
        member.commit_offsets()


def test_a_login_that_was_accepted_once_is_tried_again(world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has just started may not know its users yet."""
    security = world.cluster.security
    assert security is not None
    member = connector(world, consumer_timeout_ms=500)

    def check_and_forget(brokers: BootstrapClient) -> None:
        check_brokers(brokers)
        security.users[USER] = "not loaded yet"

    monkeypatch.setattr(connector_base, "check_brokers", check_and_forget)
    [stream] = member.create_message_streams({"clicks": 1})["clicks"]
    with pytest.raises(ConsumerTimeoutException):
        next(iter(stream))
    security.users[USER] = PASSWORD

    def reads() -> bool:
        with suppress(ConsumerTimeoutException):
            return next(iter(stream)).topic == "clicks"
        return False

    wait_until(reads, "it reads", DEADLINE_MS)


def test_a_refusal_after_something_was_read_is_said_and_tried_again(
    world: FakeEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    [stream] = connector(world).create_message_streams({"clicks": 1})["clicks"]
    read = iter(stream)
    assert len([next(read) for _ in range(10)]) == 10
    security = world.cluster.security
    assert security is not None
    security.users[USER] = "changed"
    world.cluster.stop_broker(0)
    wait_until(lambda: "fetch-failed" in caplog.text, "the member notices", DEADLINE_MS)
    world.cluster.start_broker(0)
    world.cluster.append("clicks", 0, [b"late"])
    seen = len(security.logins)
    wait_until(lambda: "does not accept the user" in caplog.text, "the refusal is said", DEADLINE_MS)
    security.users[USER] = PASSWORD
    assert next(read).value == b"late"
    assert len(security.logins) > seen


def test_a_broker_without_such_a_listener_is_passed_over_and_named(
    world: FakeEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    node = {"endpoints": ["PLAINTEXT://elsewhere.fake.invalid:1"], "host": HOST, "port": 1, "version": 4}
    world.zookeeper.ensure(paths.broker(7), json.dumps(node).encode())
    [stream] = connector(world).create_message_streams({"clicks": 1})["clicks"]
    assert next(iter(stream)).topic == "clicks"
    assert "broker-endpoint-missing broker=7 reason=\"no SASL_SSL endpoint among ['PLAINTEXT://" in caplog.text


def test_plaintext_to_a_secured_port_ends_the_member_with_the_reason(world: FakeEnvironment) -> None:
    """ZooKeeper says PLAINTEXT, but the port does not speak it: nothing looked at brokers before the member joined."""
    address = world.cluster.address(0)
    node = {"host": address.host, "port": address.port, "version": 1}
    world.zookeeper.ensure(paths.broker(0), json.dumps(node).encode())
    [stream] = connector(world, secured=False).create_message_streams({"clicks": 1})["clicks"]
    with pytest.raises(SecurityProtocolMismatch, match="this port speaks SASL_SSL, and security"):
        next(iter(stream))


def test_certificates_that_cannot_be_read_are_told_by_the_constructor(world: FakeEnvironment) -> None:
    with pytest.raises(InvalidConfigException, match=r"nowhere\.pem"):
        ZookeeperConsumerConnector(
            ConsumerConfig(
                group_id="g",
                zookeeper_connect=ADDRESS,
                security_protocol="SSL",
                ssl_ca_location="/nowhere.pem",
            ),
            store=world.store,
        )
