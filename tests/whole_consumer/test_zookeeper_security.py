"""Members of ours on a ZooKeeper with SASL, digest and TLS, alone and beside original members with JAAS."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.generate_docs import ROOT
from tests.sandbox_fixtures import require_zookeeper
from tests.secured_zookeeper_fixtures import PASSWORD, USER, Secured
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector
from zkconsumer.errors import ConsumerTimeoutException, ZkAuthenticationFailed, ZkNotAuthorized, ZkTimeoutException
from zkconsumer.testing.sandbox import Sandbox, wait_until
from zkconsumer.zk import paths
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.requests import Acl, GetAcl
from zkconsumer.zk.store import submit_and_wait

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

ALICES = {Acl(31, "sasl", USER), Acl(1, "world", "anyone")}
PARTITIONS = 4
PATIENCE_MS = 20_000
SHORT_MS = 1_000
SAYS_WITHIN_S = 10

Make = Callable[..., ZookeeperConsumerConnector]


@pytest.fixture
def connector(secured: Secured) -> Iterator[Make]:
    """Makes connectors, and closes them."""
    made: list[ZookeeperConsumerConnector] = []

    def make(connect: str, group: str, **settings: Any) -> ZookeeperConsumerConnector:
        defaults = {
            "zookeeper_session_timeout_ms": 4_000,
            "zookeeper_connection_timeout_ms": PATIENCE_MS,
            "auto_offset_reset": "smallest",
            "consumer_timeout_ms": 200,
            "rebalance_backoff_ms": 300,
        }
        config = ConsumerConfig(zookeeper_connect=connect, group_id=group, **{**defaults, **settings})
        made.append(ZookeeperConsumerConnector(config))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def topic(secured: Secured, fresh_name: str) -> str:
    secured.cluster.create_topic(fresh_name, PARTITIONS)
    for partition in range(PARTITIONS):
        secured.cluster.produce(fresh_name, partition, 5)
    return fresh_name


def sasl(secured: Secured, password: str = PASSWORD) -> dict[str, Any]:
    return {"zookeeper_auth": f"sasl-digest-md5:{secured.secret(password, f'{USER}:{password}')}"}


def lists(connect: str, *nodes: str) -> list[set[Acl]]:
    """The access control lists, as somebody without a login sees them."""
    store = KazooStore(connect, 4_000)
    store.start(PATIENCE_MS)
    answers = submit_and_wait(store, [GetAcl(node) for node in nodes], PATIENCE_MS)
    store.close(1_000)
    return [set(answer) if isinstance(answer, tuple) else {answer} for answer in answers]  # type: ignore[misc]


def read(stream: Any, count: int, patience_ms: int = PATIENCE_MS) -> int:
    """So many records, or as many as come in time."""
    end_s, got = time.monotonic() + patience_ms / 1000, 0
    while got < count and time.monotonic() < end_s:
        try:
            next(stream.iterator())
            got += 1
        except ConsumerTimeoutException:
            continue
    return got


# --- SASL -----------------------------------------------------------------------------------------------------------


def test_an_original_member_with_jaas_and_ours_take_each_others_partitions(
    secured: Secured, connector: Make, topic: str
) -> None:
    """What each of them makes is the user's alone, and so can be claimed and committed by the other."""
    ours = connector(secured.plain, topic, **sasl(secured), zookeeper_set_acl=True, auto_commit_interval_ms=300)
    [stream] = ours.create_message_streams({topic: 1})[topic]
    assert read(stream, 5 * PARTITIONS) == 5 * PARTITIONS
    ours.commit_offsets()
    tree = [paths.owners(topic), paths.owners_of_topic(topic, topic), paths.offsets_of_topic(topic, topic)]
    leaves = [f"{paths.owners_of_topic(topic, topic)}/0", f"{paths.offsets_of_topic(topic, topic)}/0"]
    assert lists(secured.plain, *tree, *leaves) == [ALICES] * 5
    [ids, mine] = lists(secured.plain, paths.ids(topic), paths.registration(topic, ours.consumer_id))
    assert ids == mine == {Acl(31, "world", "anyone")}, "the registration is always open"

    theirs = secured.cluster.start_member("0.10.2.2", topic, {topic: 1}, options=(secured.jaas,))
    wait_until(lambda: len(ours.assignment) == PARTITIONS // 2, "they share", PATIENCE_MS)
    for partition in range(PARTITIONS):
        secured.cluster.produce(topic, partition, 5)
    theirs.wait_delivered(5 * PARTITIONS // 2)
    assert read(stream, 5 * PARTITIONS // 2) == 5 * PARTITIONS // 2
    theirs.stop()
    wait_until(lambda: len(ours.assignment) == PARTITIONS, "ours has taken all of them back", PATIENCE_MS)
    ours.commit_offsets()
    assert secured.cluster.admin.offsets(topic, topic) == dict.fromkeys(range(PARTITIONS), 10)
    assert read(stream, 1, SHORT_MS) == 0, "what they committed is not read again"


def test_a_member_without_the_right_leaves_at_once_and_the_others_go_on(
    secured: Secured, connector: Make, topic: str
) -> None:
    """Defect 57: an original member without SASL stays, claims nothing, and its share is read by nobody."""
    ours = connector(secured.plain, topic, **sasl(secured), zookeeper_set_acl=True)
    [stream] = ours.create_message_streams({topic: 1})[topic]
    assert read(stream, 1) == 1
    began_s = time.monotonic()
    with pytest.raises(ZkNotAuthorized) as caught:
        connector(secured.plain, topic).create_message_streams({topic: 1})
    assert time.monotonic() - began_s < SAYS_WITHIN_S
    where = paths.owners_of_topic(topic, topic)
    assert f"only sasl:{USER} may make nodes below {where}" in str(caught.value)
    assert "we are an anonymous user (zookeeper.auth is not set)" in str(caught.value)
    wait_until(lambda: secured.cluster.admin.members(topic) == [ours.consumer_id], "it has left", PATIENCE_MS)
    wait_until(lambda: len(ours.assignment) == PARTITIONS, "all of them are read again", PATIENCE_MS)


def test_a_wrong_password_is_told_at_once(secured: Secured, connector: Make) -> None:
    began_s = time.monotonic()
    with pytest.raises(ZkAuthenticationFailed, match=f"ZooKeeper refused sasl:{USER} at .*user or password is wrong"):
        connector(secured.plain, "g", **sasl(secured, "wrong"))
    assert time.monotonic() - began_s < SAYS_WITHIN_S


# --- digest ---------------------------------------------------------------------------------------------------------


def owned_by_digest(cluster: Sandbox, connector: Make, folder: Secured, connect: str, topic: str) -> None:
    """A group whose nodes are its user's alone, and one who has the password wrong."""
    right = {"zookeeper_auth": f"digest:{folder.secret('right', 'bob:s:cret')}", "zookeeper_set_acl": True}
    wrong = {**right, "zookeeper_auth": f"digest:{folder.secret('false', 'bob:other')}"}
    ours = connector(connect, topic, **right)
    [stream] = ours.create_message_streams({topic: 1})[topic]
    assert read(stream, 1) == 1
    ours.commit_offsets()
    [owners, offsets] = lists(connect, paths.owners_of_topic(topic, topic), paths.offsets_of_topic(topic, topic))
    assert owners == offsets
    assert {(entry.perms, entry.scheme, entry.id.partition(":")[0]) for entry in owners} == {
        (31, "digest", "bob"), (1, "world", "anyone"),
    }  # fmt: skip
    with pytest.raises(ZkNotAuthorized, match="only digest:bob may make nodes below"):
        connector(connect, topic, **wrong).create_message_streams({topic: 1})
    again = connector(connect, topic, **right)
    again.create_message_streams({topic: 1})
    assert len(again.assignment) == len(ours.assignment) == PARTITIONS // 2


def test_a_group_may_belong_to_a_digest_user(secured: Secured, connector: Make, topic: str) -> None:
    owned_by_digest(secured.cluster, connector, secured, secured.plain, topic)


@pytest.mark.nightly
def test_a_group_may_belong_to_a_digest_user_on_an_old_server(
    secured: Secured, connector: Make, fresh_name: str
) -> None:
    require_zookeeper("3.4.6")
    with Sandbox() as old:
        old.start_zookeeper("3.4.6")
        old.start_broker("0.8.2.2", chroot="/kafka")
        old.create_topic(fresh_name, PARTITIONS)
        for partition in range(PARTITIONS):
            old.produce(fresh_name, partition, 5)
        owned_by_digest(old, connector, secured, old.zookeeper_connect, fresh_name)


# --- TLS ------------------------------------------------------------------------------------------------------------


def test_everything_works_over_tls(secured: Secured, connector: Make, topic: str) -> None:
    tls = {"zookeeper_ssl_client_enable": True, "zookeeper_ssl_truststore_location": secured.authority}
    ours = connector(secured.tls, topic, **tls, **sasl(secured), zookeeper_set_acl=True)
    [stream] = ours.create_message_streams({topic: 1})[topic]
    assert read(stream, 5 * PARTITIONS) == 5 * PARTITIONS
    ours.commit_offsets()
    assert secured.cluster.admin.offsets(topic, topic) == dict.fromkeys(range(PARTITIONS), 5)
    other = connector(secured.tls.replace("127.0.0.1", "localhost"), topic, **tls, **sasl(secured))
    other.create_message_streams({topic: 1})
    assert len(other.assignment) == PARTITIONS // 2
    assert ours.store.host_of(other.store.session_id, 2_000) == "127.0.0.1"


def test_tls_that_does_not_fit_says_what_to_change(secured: Secured, connector: Make) -> None:
    on = {"zookeeper_ssl_client_enable": True, "zookeeper_connection_timeout_ms": SHORT_MS}
    stranger = str(ROOT / "tests/data/tls/other-ca.pem")
    for connect, settings, says in (
        (secured.tls, {**on, "zookeeper_ssl_truststore_location": stranger}, "its certificate is not accepted"),
        (secured.plain, {**on, "zookeeper_ssl_truststore_location": secured.authority}, "is it a TLS port, and"),
        (secured.tls, {"zookeeper_connection_timeout_ms": SHORT_MS}, "set zookeeper.ssl.client.enable=true"),
    ):
        began_s = time.monotonic()
        with pytest.raises(ZkTimeoutException) as caught:
            connector(connect, "g", **settings)
        assert says in str(caught.value)
        assert time.monotonic() - began_s < SAYS_WITHIN_S
