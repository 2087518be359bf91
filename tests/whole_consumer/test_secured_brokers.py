"""Members on real brokers with TLS and SASL; each fault with the error that names it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.broker_security_cases import CASES, Case, Place, attempt, judge, unsecured_token
from tests.lab.python_member import PythonMember
from tests.sandbox_fixtures import require_releases
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import (
    AuthenticationException,
    SaslAuthenticationException,
    SecurityProtocolMismatch,
    SslAuthenticationException,
)
from zkconsumer.testing.sandbox import Sandbox, SandboxSecurity, wait_until, zookeeper_release
from zkconsumer.testing.sandbox.waiting import HOST

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

RELEASE = "3.9.1"
RECORDS = 50
DEADLINE_MS = 20_000
IN_TIME_MS = 10_000


@dataclass(frozen=True)
class Secured:
    """A cluster and its ways in."""

    sandbox: Sandbox
    security: SandboxSecurity

    def config(self, group: str, settings: dict[str, str]) -> ConsumerConfig:
        return ConsumerConfig.from_properties(
            {
                "group.id": group,
                "zookeeper.connect": self.sandbox.zookeeper_connect,
                "auto.offset.reset": "smallest",
                "consumer.timeout.ms": str(DEADLINE_MS),
                **settings,
            }
        )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Secured]:
    """A broker in ZooKeeper mode with every listener."""
    require_releases(RELEASE, zookeeper_release("3.8"))
    with Sandbox() as sandbox:
        security = SandboxSecurity()
        sandbox.start_zookeeper()
        sandbox.start_broker(RELEASE, chroot="/kafka", security=security)
        yield Secured(sandbox, security)


def test_a_member_over_sasl_ssl_reads_and_commits(cluster: Secured, fresh_name: str) -> None:
    cluster.sandbox.create_topic(fresh_name, 2)
    for partition in range(2):
        cluster.sandbox.produce(fresh_name, partition, RECORDS)
    config = cluster.config(fresh_name, cluster.security.settings("SASL_SSL", "SCRAM-SHA-512"))
    with ZookeeperConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({fresh_name: 1})[fresh_name]
        read = iter(stream)
        seen = Counter((m.partition, m.offset) for m in (next(read) for _ in range(2 * RECORDS)))
    assert seen == Counter((partition, offset) for partition in range(2) for offset in range(RECORDS))
    assert cluster.sandbox.admin.offsets(fresh_name, fresh_name) == {0: RECORDS, 1: RECORDS}


@pytest.mark.parametrize("fault", ["password", "authority", "port"])
def test_each_fault_is_told_in_time_and_by_name(cluster: Secured, fresh_name: str, fault: str) -> None:
    security = cluster.security
    settings, kind, words = {
        "password": (
            security.settings("SASL_SSL", "SCRAM-SHA-512") | {"sasl.password": "wrong"},
            SaslAuthenticationException,
            "the broker does not accept the user or the password",
        ),
        "authority": (
            security.settings("SSL") | {"ssl.truststore.location": str(security.certificates.other_ca)},
            SslAuthenticationException,
            "from an unknown authority",
        ),
        "port": (
            {"bootstrap.servers": security.address("SSL")},
            SecurityProtocolMismatch,
            "this port speaks SSL, and security.protocol is PLAINTEXT",
        ),
    }[fault]
    with ZookeeperConsumerConnector(cluster.config(fresh_name, settings)) as connector:
        began_ms = SYSTEM_CLOCK.now_ms()
        with pytest.raises(AuthenticationException, match=words) as told:
            connector.create_message_streams({fresh_name: 1})
        assert SYSTEM_CLOCK.now_ms() - began_ms < IN_TIME_MS
    assert type(told.value) is kind
    assert cluster.sandbox.admin.members(fresh_name) == []


# --- nightly --------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_ours_over_sasl_ssl_beside_an_original_over_plaintext(cluster: Secured, fresh_name: str) -> None:
    require_releases("1.1.1")
    sandbox, group, topic = cluster.sandbox, fresh_name, fresh_name
    sandbox.create_topic(topic, 4)
    theirs = sandbox.start_member("1.1.1", group, {topic: 1}, consumer_id="theirs")
    ours = PythonMember(
        sandbox.zookeeper, group, {topic: 1}, chroot=sandbox.chroot, consumer_id="ours",
        settings={"auto.offset.reset": "smallest"} | cluster.security.settings("SASL_SSL", "SCRAM-SHA-512"),
    )  # fmt: skip
    ours.start()
    try:
        wait_until(
            lambda: (
                Counter(sandbox.admin.owners(group, topic).values()) == {f"{group}_ours-0": 2, f"{group}_theirs-0": 2}
            ),
            "they share",
            DEADLINE_MS,
        )
        for partition in range(4):
            sandbox.produce(topic, partition, RECORDS)
        wait_until(lambda: len(ours.delivered) + len(theirs.delivered) >= 4 * RECORDS, "all is read", DEADLINE_MS)
    finally:
        ours.stop()
        theirs.stop()
    handed = Counter((each.partition, each.offset) for each in [*ours.delivered, *theirs.delivered])
    assert handed == Counter((partition, offset) for partition in range(4) for offset in range(RECORDS))


def place_of(security: SandboxSecurity, plaintext: int) -> Place:
    files = security.certificates
    return Place(
        lambda listener: (HOST, plaintext if listener == "PLAINTEXT" else security.port(listener)),
        files.ca, files.other_ca, files.client, unsecured_token,
    )  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("case", [case for case in CASES if "mechanisms" not in case.change], ids=str)
def test_a_real_broker_lets_in_and_refuses_as_the_fake_one(cluster: Secured, case: Case) -> None:
    judge(case, attempt(case, place_of(cluster.security, cluster.sandbox.brokers[0].port)))


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("release", ["0.10.2.2", "0.11.0.3", "1.1.1", "2.0.1", "4.1.1"])
def test_brokers_of_every_age_let_in_and_refuse(release: str) -> None:
    """0.10 and 0.11 take the mechanism's messages bare, and close the connection on a wrong password."""
    require_releases(release, zookeeper_release("3.8"))
    has_words = release >= "1" or not release.startswith("0")
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512") + (("OAUTHBEARER",) if has_words and release > "2" else ())
    with Sandbox() as sandbox:
        security = SandboxSecurity(mechanisms=mechanisms)
        if release == "4.1.1":
            broker = sandbox.start_kraft_broker(release, security=security)
        else:
            sandbox.start_zookeeper()
            broker = sandbox.start_broker(release, chroot="/kafka", security=security)
        place = place_of(security, broker.port)
        wrong: list[str] = []
        for case in CASES:
            if "mechanisms" in case.change or case.mechanism not in (None, *mechanisms):
                continue
            came = attempt(case, place)
            try:
                if case.error is SaslAuthenticationException and not has_words:
                    assert isinstance(came, SaslAuthenticationException)
                    assert "closed the connection during the" in str(came)
                elif case.name.startswith("no certificate of ours") and release != "4.1.1":
                    # Old brokers on a new Java end the handshake with a message that says nothing.
                    assert release.startswith("0.10") or isinstance(came, SslAuthenticationException)
                    assert came is None or "ssl.keystore.location" in str(came)
                else:
                    judge(case, came)
            except AssertionError as error:
                wrong.append(f"{case}: {error}")
    assert wrong == []


@pytest.mark.nightly
@pytest.mark.parametrize("keystore", ["wrong_host", "expired"])
def test_a_certificate_of_another_host_or_of_yesterday(keystore: str) -> None:
    require_releases(RELEASE, zookeeper_release("3.8"))
    words = {"wrong_host": "is not for 127.0.0.1", "expired": "has expired"}[keystore]
    case = Case(keystore, "SSL", "SSL", None, {}, SslAuthenticationException, words)
    with Sandbox() as sandbox:
        security = SandboxSecurity()
        security.keystore = getattr(security.certificates, keystore)
        sandbox.start_zookeeper()
        broker = sandbox.start_broker(RELEASE, chroot="/kafka", security=security)
        judge(case, attempt(case, place_of(security, broker.port)))
        unchecked = Case(
            keystore, "SSL", "SSL", None, {"ssl.endpoint.identification.algorithm": ""},
            None if keystore == "wrong_host" else SslAuthenticationException, words,
        )  # fmt: skip
        judge(unchecked, attempt(unchecked, place_of(security, broker.port)))


@pytest.mark.nightly
def test_logins_that_end_are_renewed_without_a_pause(fresh_name: str, caplog: pytest.LogCaptureFixture) -> None:
    require_releases(RELEASE, zookeeper_release("3.8"))
    with Sandbox() as sandbox:
        security = SandboxSecurity(broker_settings={"connections.max.reauth.ms": "2500"})
        sandbox.start_zookeeper()
        sandbox.start_broker(RELEASE, chroot="/kafka", security=security)
        secured = Secured(sandbox, security)
        sandbox.create_topic(fresh_name, 1)
        config = secured.config(fresh_name, security.settings("SASL_SSL", "SCRAM-SHA-256"))
        with ZookeeperConsumerConnector(config) as connector:
            [stream] = connector.create_message_streams({fresh_name: 1})[fresh_name]
            read = iter(stream)
            until_ms = SYSTEM_CLOCK.now_ms() + 10_000
            while SYSTEM_CLOCK.now_ms() < until_ms:
                sandbox.produce(fresh_name, 0, 1)
                next(read)
    assert "fetch-failed" not in caplog.text
