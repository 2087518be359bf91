"""Logging in at ZooKeeper, TLS files and access control lists: settings, words, secrets; no server."""

from __future__ import annotations

import hashlib
import logging
import secrets
import ssl
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionDropped

from bridge.testing.fake_environment import FakeEnvironment
from tests.in_memory_fixtures import MakeConnector, take, wait_until
from tests.zk_procedure_fixtures import GROUP, ProcedureSession
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import InvalidConfigException, UsageError, ZkNotAuthorized
from zkconsumer.member.commands import OffsetToCommit, PartitionToRelease
from zkconsumer.member.events import StoredOffset, WriteOutcome
from zkconsumer.testing.fake_zookeeper import FakeZkStore, FakeZooKeeper
from zkconsumer.types import TopicPartition
from zkconsumer.zk import conditional_writes, paths
from zkconsumer.zk.acl_denials import DenialCollector
from zkconsumer.zk.group_procedures import ROUNDS_MAX, AcquireOwnershipProcedure
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.requests import OPEN_ACL, Acl, Create, CreateOp, GetAcl, Multi, Request
from zkconsumer.zk.zk_login import AUTH_XID, SASL_ROUNDS_MAX, LoginPacket, ZkLoginError, check_libraries, log_in
from zkconsumer.zk.zk_sasl import ZkDigestMd5Mechanism, ZkSaslError
from zkconsumer.zk.zk_security import (
    NO_SECURITY,
    SECURE_ACL,
    DigestLogin,
    SaslDigestMd5Login,
    SaslGssapiLogin,
    ZkSecurity,
    zk_security_of,
)

TOPIC = "clicks"
FOUR = [TopicPartition(TOPIC, number) for number in range(4)]
THREAD = f"{GROUP}_a-0"
ALICE = DigestLogin("alice", "hush-hush")
TO_ALICE_ALONE = (Acl(31, "digest", "alice:SwsldW48nZu/VvfuVoYDm3iJvOo="), Acl(1, "world", "anyone"))


def config(**settings: Any) -> ConsumerConfig:
    return ConsumerConfig(group_id="g", zookeeper_connect="h:1", **settings)


def secret(tmp_path: Path, content: bytes, mode: int = 0o600) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return path


# --- settings -------------------------------------------------------------------------------------------------------


def test_nothing_set_is_open_and_plain() -> None:
    assert zk_security_of(config()) == NO_SECURITY
    assert NO_SECURITY.user_description == "an anonymous user (zookeeper.auth is not set)"


@pytest.mark.parametrize(
    ("setting", "login", "who"),
    [
        ("digest:{}", DigestLogin("alice", "hush:hush"), "digest user 'alice'"),
        ("sasl-digest-md5:{}", SaslDigestMd5Login("alice", "hush:hush"), "sasl:alice"),
        ("sasl-gssapi", SaslGssapiLogin(None), "sasl (Kerberos)"),
        ("sasl-gssapi:a@R", SaslGssapiLogin("a@R"), "sasl:a@R"),
    ],
)
def test_every_form_of_login(tmp_path: Path, setting: str, login: Any, who: str) -> None:
    path = secret(tmp_path, b"alice:hush:hush\r\n")
    security = zk_security_of(config(zookeeper_auth=setting.format(path)))
    assert (security.login, security.user_description) == (login, who)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("digest", "the file that contains user:password is missing"),
        ("alice:secret", "'alice' is not a supported login"),
        ("kerberos:alice", "'kerberos' is not a supported login"),
        ("kerberos", r"zookeeper\.auth=\[hidden\]: this is not a supported login"),
        ("sasl-gssapi:", "is not a supported login"),
    ],
)
def test_a_login_that_is_none_is_refused(setting: str, says: str) -> None:
    with pytest.raises(InvalidConfigException, match=says):
        config(zookeeper_auth=setting)


@pytest.mark.parametrize(
    "content", [b"", b"alice", b":secret", b"alice:", b"a:b\nc:d\n", b"a:\xff\xfe", b"a:" + b"x" * 5_000]
)
def test_a_file_that_holds_no_user_and_password_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    path = secret(tmp_path, content)
    with pytest.raises(InvalidConfigException, match="must contain one line, user:password") as caught:
        zk_security_of(config(zookeeper_auth=f"digest:{path}"))
    assert "secret" not in str(caught.value).replace(str(path), "")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigException, match="no-such-file cannot be read: No such file"):
        zk_security_of(config(zookeeper_auth=f"digest:{tmp_path}/no-such-file"))


def test_a_secret_that_others_may_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = secret(tmp_path, b"alice:hush-hush", 0o644)
    zk_security_of(config(zookeeper_auth=f"digest:{path}"))
    assert f"password-file-readable path={path} mode=644" in caplog.text
    caplog.clear()
    path.chmod(0o600)
    zk_security_of(config(zookeeper_auth=f"digest:{path}"))
    assert caplog.text == ""


@pytest.mark.parametrize("login", [ALICE, SaslDigestMd5Login("alice", "hush-hush")])
def test_a_password_is_in_no_text(login: DigestLogin | SaslDigestMd5Login) -> None:
    texts = [
        repr(login),
        repr(ZkSecurity(login)),
        ZkSecurity(login).user_description,
        repr(LoginPacket(100, b"alice:hush-hush")),
    ]
    assert "hush" not in "".join(texts)


def test_lists_need_a_login() -> None:
    with pytest.raises(InvalidConfigException, match="the nodes would have no owner"):
        config(zookeeper_set_acl=True)
    given = config(
        zookeeper_set_acl=True, zookeeper_ssl_client_enable=True, zookeeper_ssl_keystore_location="a certificate"
    )
    assert given.zookeeper_set_acl, "a client certificate is a login too"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"zookeeper_ssl_truststore_location": "x"}, "has no effect without zookeeper.ssl.client.enable=true"),
        ({"zookeeper_ssl_truststore_type": "JKS"}, "only PEM is supported"),
        (
            {"zookeeper_ssl_client_enable": True, "zookeeper_ssl_keystore_password": "x"},
            "zookeeper.ssl.keystore.location is missing",
        ),
        ({"zookeeper_ssl_endpoint_identification_algorithm": "maybe"}, "https, or empty"),
    ],
)
def test_tls_settings_that_do_not_fit_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidConfigException, match=says):
        config(**settings)


def test_hosts_are_checked_unless_it_is_said_otherwise() -> None:
    context = zk_security_of(config(zookeeper_ssl_client_enable=True)).tls
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    context = zk_security_of(
        config(zookeeper_ssl_client_enable=True, zookeeper_ssl_endpoint_identification_algorithm="")
    ).tls
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xfe\xed\xfe\xed\x00", "a Java keystore .* convert it with: keytool"),
        (b"\x30\x82\x01\x00", "a Java keystore .* convert it with: keytool"),
        (b"hello", "contains no certificate"),
        (None, "cannot be read: No such file"),
    ],
)
@pytest.mark.parametrize("kind", ["truststore", "keystore"])
def test_a_store_that_cannot_be_read_says_what_to_do(
    tmp_path: Path, kind: str, content: bytes | None, says: str
) -> None:
    path = tmp_path / "store"
    if content is not None:
        path.write_bytes(content)
    given = config(zookeeper_ssl_client_enable=True, **{f"zookeeper_ssl_{kind}_location": str(path)})
    with pytest.raises(InvalidConfigException, match=f"zookeeper.ssl.{kind}.location=.*{says}"):
        zk_security_of(given)


# --- logging in -----------------------------------------------------------------------------------------------------


class Server:
    """Answers packets of the login from a script, and keeps them."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.heard: list[tuple[int, int, bytes]] = []

    def submit(self, packet: LoginPacket, xid: int) -> None:
        self.heard.append((packet.type, xid, packet.serialize()))

    def read(self) -> tuple[Any, bytes, int]:
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        xid, error, token = answer
        return SimpleNamespace(xid=xid, err=error, zxid=0), struct.pack("!i", len(token)) + token, 0

    def log_in(self, login: Any) -> None:
        log_in(login, "host", self.submit, self.read)


def test_digest_is_one_packet() -> None:
    server = Server((AUTH_XID, 0, b""))
    server.log_in(ALICE)
    [(opcode, xid, body)] = server.heard
    assert (opcode, xid) == (100, -4)
    assert body == b"\0\0\0\0" + b"\0\0\0\x06digest" + b"\0\0\0\x0falice:hush-hush"


CHALLENGE = b'realm="zk-sasl-md5",nonce="abc",charset=utf-8,algorithm=md5-sess'


def test_sasl_speaks_as_the_user_to_the_name_that_zookeeper_has_there() -> None:
    server = Server((1, 0, CHALLENGE), (2, -115, b""))
    with pytest.raises(ZkLoginError, match=r"error -115.: user or password is wrong"):
        server.log_in(SaslDigestMd5Login("alice", "hush-hush"))
    first, second = server.heard
    assert first == (102, 1, b"\0\0\0\0")
    assert b'username="alice"' in second[2]
    assert b'digest-uri="zookeeper/zk-sasl-md5"' in second[2]
    assert b"hush" not in second[2]


@pytest.mark.parametrize(
    ("login", "script", "error", "says"),
    [
        (ALICE, [(AUTH_XID, -115, b"")], ZkLoginError, "rejects logins of the scheme digest"),
        (ALICE, [(7, 0, b"")], ConnectionDropped, "an answer to request 7"),
        (SaslDigestMd5Login("a", "b"), [(1, 0, b"")], ZkLoginError, "it is not configured for SASL"),
        (
            SaslDigestMd5Login("a", "b"),
            [ConnectionDropped("x")],
            ZkLoginError,
            "closed the connection during the SASL login",
        ),
        (SaslDigestMd5Login("a", "b"), [(9, 0, CHALLENGE)], ConnectionDropped, "an answer to request 9 instead of 1"),
        (SaslDigestMd5Login("a", "b"), [(1, 0, b"\xff\0garbage")], ZkLoginError, "failed in this client"),
        (
            SaslDigestMd5Login("a", "b"),
            [(1, 0, CHALLENGE), (2, 0, b"rspauth=forged")],
            ZkLoginError,
            "failed in this client",
        ),
    ],
)
def test_a_login_that_fails_says_why(login: Any, script: list[Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Server(*script).log_in(login)


def test_a_server_that_goes_on_for_ever_is_left(kerberos: dict[str, Any]) -> None:
    kerberos["is_endless"] = True
    server = Server(*((xid, 0, b"more") for xid in range(1, 50)))
    with pytest.raises(ZkLoginError, match=f"did not end within {SASL_ROUNDS_MAX} packets"):
        server.log_in(SaslGssapiLogin())
    assert len(server.heard) == SASL_ROUNDS_MAX


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    check_libraries(None)
    check_libraries(ALICE)
    check_libraries(SaslDigestMd5Login("a", "b"))
    with pytest.raises(UsageError, match=r"pip install 'gssapi>=1.8'"):
        check_libraries(SaslGssapiLogin())


# --- DIGEST-MD5 ---------------------------------------------------------------------------------------------------


def fields_of(message: bytes) -> dict[str, str]:
    return dict(field.split("=", 1) for field in message.decode().split(","))


def test_the_example_of_rfc_2831_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 4, the exchange with an IMAP server."""
    monkeypatch.setattr(secrets, "token_hex", lambda _: "OA6MHXh6VqTrRk")
    login = ZkDigestMd5Mechanism("imap", "elwood.innosoft.com", "chris", "secret")
    assert login.process(None) == b""
    said = login.process(
        b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
    )
    assert fields_of(said)["response"] == "d388dad90d4bbd760a152321f2143af7"
    assert not login.is_complete
    assert login.process(b"rspauth=ea40f60335c427b5527b84dbabcdfffd") == b""
    assert login.is_complete


def test_a_user_with_quotes_is_written_so_that_it_can_be_read() -> None:
    login = ZkDigestMd5Mechanism("zookeeper", "h", 'a"l\\ice', "p")
    said = login.process(b'realm="r\\"x",nonce="n",algorithm=md5-sess')
    assert fields_of(said)["username"] == r'"a\"l\\ice"'
    assert fields_of(said)["realm"] == r'"r\"x"'


@pytest.mark.parametrize(
    ("password", "written"),
    [("sécret", "sécret".encode("iso-8859-1")), ("пароль", "пароль".encode())],
    ids=["ISO 8859-1", "UTF-8"],
)
def test_a_password_beyond_ascii_is_hashed_as_java_does(
    password: str, written: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "c")
    said = ZkDigestMd5Mechanism("zookeeper", "h", "u", password).process(b'realm="r",nonce="n",algorithm=md5-sess')
    secret = hashlib.md5(hashlib.md5(b"u:r:" + written).digest() + b":n:c").hexdigest()
    what = hashlib.md5(b"AUTHENTICATE:zookeeper/h").hexdigest()
    assert fields_of(said)["response"] == hashlib.md5(f"{secret}:n:00000001:c:auth:{what}".encode()).hexdigest()


@pytest.mark.parametrize(
    ("challenge", "says"),
    [
        (b'realm="r",algorithm=md5-sess', "no nonce"),
        (b'nonce="n"', "another algorithm"),
        (b'nonce="n",algorithm=md5-sess,qop="auth-int,auth-conf"', "requires a security layer"),
        (b'nonce="n', "not a list of fields"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_challenge_that_cannot_be_answered_is_refused(challenge: bytes, says: str) -> None:
    with pytest.raises(ZkSaslError, match=says):
        ZkDigestMd5Mechanism("zookeeper", "h", "u", "p").process(challenge)


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    login = ZkDigestMd5Mechanism("zookeeper", "h", "u", "p")
    login.process(b'nonce="n",algorithm=md5-sess')
    with pytest.raises(ZkSaslError, match="did not prove"):
        login.process(b"rspauth=" + b"0" * 32)
    assert not login.is_complete


# --- Kerberos, without a KDC --------------------------------------------------------------------------------------


def test_kerberos_takes_as_many_packets_as_it_needs(kerberos: dict[str, Any]) -> None:
    server = Server((1, 0, b"AP-REP"), (2, 0, b"wrapped offer"), (3, 0, b""))
    server.log_in(SaslGssapiLogin("alice@REALM"))
    assert kerberos["names"] == ["service:zookeeper@host"]
    assert kerberos["creds"] == "initiate as principal:alice@REALM"
    tokens = [body[4:] for _, _, body in server.heard]
    assert tokens == [b"AP-REQ", b"", b"wrapped \x01\x00\x00\x00"]


@pytest.mark.parametrize(
    ("change", "says"),
    [({"ticket": False}, "check the ticket with klist"), ({"offer": b"\6\0\1\0"}, "requires a security layer")],
)
def test_a_kerberos_login_that_fails_says_why(change: dict[str, Any], says: str, kerberos: dict[str, Any]) -> None:
    kerberos.update(change)
    with pytest.raises(ZkLoginError, match=f"failed in this client: .*{says}"):
        Server((1, 0, b"AP-REP"), (2, 0, b"wrapped offer")).log_in(SaslGssapiLogin())


def test_a_login_that_is_refused_later_is_told_once_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    """A password that was changed under a running member: it waits for a person, and the log is not filled."""
    store = KazooStore("127.0.0.1:1", 4_000, security=ZkSecurity(SaslDigestMd5Login("alice", "hush-hush")))
    store._on_login_failed("h:1: before the first session")
    words = "ZooKeeper refused sasl:alice at h:1: before the first session; correct zookeeper.auth"
    assert str(store._start_error) == words
    assert caplog.text == ""
    for reason in ("h:1: wrong", "h:1: wrong", "h:2: wrong"):
        store._on_login_failed(reason)
    store.close(100)
    told = [record.getMessage() for record in caplog.records]
    assert [words.partition(":")[0] for words in told] == ["zookeeper-authentication-failed who='sasl"] * 2
    assert "hush" not in caplog.text


# --- lists on what is made ------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> FakeZooKeeper:
    made = FakeZooKeeper()
    made.ensure(paths.group_root(GROUP))
    return made


class Alice(ProcedureSession):
    """Logged in."""

    def __init__(self, server: FakeZooKeeper, login: Any = ALICE) -> None:
        self.server = server
        self.store = FakeZkStore(server, login=login)
        self.store.listen(lambda _: None)
        self.store.start(5_000)
        self.rounds: list[list[Request]] = []

    def claims(
        self, *partitions: TopicPartition, acl: tuple[Acl, ...] | None = SECURE_ACL
    ) -> AcquireOwnershipProcedure:
        claims = AcquireOwnershipProcedure(
            GROUP, self.session_id, dict.fromkeys(partitions, THREAD), control_version=None, acl=acl
        )
        self.run(claims.run(look_first=False, look_closely=False))
        return claims

    def acl(self, path: str) -> Any:
        return self.ask([GetAcl(path)], None)[0]


def creates(rounds: list[list[Request]]) -> list[Create | CreateOp]:
    flat = [op for requests in rounds for request in requests for op in getattr(request, "ops", (request,))]
    return [op for op in flat if isinstance(op, Create | CreateOp)]


def test_owners_and_offsets_and_their_parents_get_the_list_and_cost_no_packet_more(server: FakeZooKeeper) -> None:
    other = FakeZooKeeper()
    other.ensure(paths.group_root(GROUP))
    alice, plain = Alice(server), Alice(other)
    rounds = []
    for party, acl in ((alice, SECURE_ACL), (plain, None)):
        sent = []
        assert all(each.outcome is WriteOutcome.DONE for each in party.claims(*FOUR, acl=acl).results.values())
        sent += party.rounds
        wanted = {tp: OffsetToCommit(5, StoredOffset()) for tp in FOUR}
        party.run(conditional_writes.commit_partitions(GROUP, party.session_id, wanted, control_version=None, acl=acl))
        sent += party.rounds
        handed = {FOUR[0]: PartitionToRelease(None, StoredOffset(5, 0), f"{GROUP}_a-1")}
        party.run(conditional_writes.release_partitions(GROUP, party.session_id, handed, control_version=None, acl=acl))
        sent += party.rounds
        rounds.append(sent)
    assert [len(requests) for requests in rounds[0]] == [len(requests) for requests in rounds[1]]
    made = creates(rounds[0])
    assert {each.acl for each in made} == {SECURE_ACL}
    assert {each.acl for each in creates(rounds[1])} == {None}
    nodes = {each.path for each in made}
    assert nodes == {
        paths.owners(GROUP), paths.owners_of_topic(GROUP, TOPIC), paths.offsets(GROUP),
        paths.offsets_of_topic(GROUP, TOPIC), *(paths.owner(GROUP, tp) for tp in FOUR),
        *(paths.offset(GROUP, tp) for tp in FOUR),
    }  # fmt: skip
    for node in nodes:
        assert alice.acl(node) == TO_ALICE_ALONE
        assert plain.acl(node) == OPEN_ACL


def test_who_holds_the_list_is_named_and_other_topics_are_claimed(server: FakeZooKeeper) -> None:
    free = TopicPartition("other", 0)
    server.ensure(paths.owners_of_topic(GROUP, "other"))
    Alice(server).claims(FOUR[0])
    claims = Alice(server, None).claims(*FOUR[1:], free, acl=None)
    assert claims.results[free].outcome is WriteOutcome.DONE
    where = paths.owners_of_topic(GROUP, TOPIC)
    words = f"NoAuth: only digest:alice may make nodes below {where}"
    assert {(claims.results[tp].outcome, claims.results[tp].why) for tp in FOUR[1:]} == {(WriteOutcome.FAILED, words)}
    assert list(claims.denials.by_path) == [where]


def test_parents_that_may_not_be_made_are_named(server: FakeZooKeeper) -> None:
    alice, bob = Alice(server), Alice(server, DigestLogin("bob", "b"))
    alice.ask([Create(paths.owners(GROUP), acl=SECURE_ACL)], None)
    claims = bob.claims(*FOUR)
    assert claims.results[FOUR[0]].why == f"NoAuth: only digest:alice may make nodes below {paths.owners(GROUP)}"


def test_nothing_is_asked_of_lists_while_nothing_is_denied(server: FakeZooKeeper) -> None:
    party = Alice(server)
    party.claims(*FOUR)
    assert not any(isinstance(request, GetAcl) for requests in party.rounds for request in requests)


@pytest.mark.parametrize("is_topic_there", [True, False])
def test_a_partition_whose_offset_may_not_be_written_is_given_back_all_the_same(
    server: FakeZooKeeper, is_topic_there: bool
) -> None:
    """Or it would be held, and read by nobody, until this member ends."""
    alice, plain = Alice(server), Alice(server, None)
    alice.ask([Create(paths.offsets(GROUP), acl=SECURE_ACL)], None)
    if is_topic_there:
        alice.ask([Create(paths.offsets_of_topic(GROUP, TOPIC), acl=SECURE_ACL)], None)
    plain.claims(*FOUR, acl=None)
    denials = DenialCollector()
    parts = {tp: PartitionToRelease(5, StoredOffset()) for tp in FOUR}
    results = plain.run(
        conditional_writes.release_partitions(
            GROUP, plain.session_id, parts, control_version=None, acl=None, denials=denials
        )
    )
    assert {each.outcome for each in results.values()} == {WriteOutcome.DONE}
    assert [server.data(paths.owner(GROUP, tp)) for tp in FOUR] == [None] * 4
    [denial] = denials.by_path.values()
    assert denial.message.startswith("NoAuth: only digest:alice may make nodes below /consumers/g1/offsets")


def test_many_offsets_that_may_not_be_written_are_given_back_in_one_round_more(server: FakeZooKeeper) -> None:
    alice, plain = Alice(server), Alice(server, None)
    plain.claims(*FOUR, acl=None)
    alice.ask([Create(paths.offsets(GROUP)), Create(paths.offsets_of_topic(GROUP, TOPIC))], None)
    alice.ask([Create(paths.offset(GROUP, tp), b"1", acl=SECURE_ACL) for tp in FOUR], None)
    parts = {tp: PartitionToRelease(5, StoredOffset(1, 0)) for tp in FOUR}
    results = plain.run(conditional_writes.release_partitions(GROUP, plain.session_id, parts, control_version=None))
    assert {each.outcome for each in results.values()} == {WriteOutcome.DONE}
    assert len([requests for requests in plain.rounds if isinstance(requests[0], Multi)]) <= ROUNDS_MAX + 1
    commits = {tp: OffsetToCommit(9, StoredOffset(1, 0)) for tp in FOUR}
    plain.claims(*FOUR, acl=None)
    refused = plain.run(conditional_writes.commit_partitions(GROUP, plain.session_id, commits, control_version=None))
    assert {each.outcome for each in refused.values()} == {WriteOutcome.FAILED}
    assert refused[FOUR[2]].why == f"NoAuth: only digest:alice may write {paths.offset(GROUP, FOUR[2])}"


# --- members --------------------------------------------------------------------------------------------------------


@pytest.fixture
def alices(world: FakeEnvironment, connect: MakeConnector, tmp_path: Path) -> Callable[..., Any]:
    """Makes connectors of Alice, whose nodes are hers."""
    path = secret(tmp_path, b"alice:hush-hush")
    return lambda **settings: connect(group_id="g", zookeeper_auth=f"digest:{path}", zookeeper_set_acl=True, **settings)


def test_a_group_of_one_user_works_and_who_may_nothing_leaves_at_once(
    world: FakeEnvironment, connect: MakeConnector, alices: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.create_topic(TOPIC, 4)
    for partition in range(4):
        world.cluster.append(TOPIC, partition, [b"x"])
    first, second = alices(consumer_id="a"), alices(consumer_id="b")
    [stream] = first.create_message_streams({TOPIC: 1})[TOPIC]
    take(stream, 4)
    second.create_message_streams({TOPIC: 1})
    assert len(first.assignment) == len(second.assignment) == 2
    with pytest.raises(ZkNotAuthorized, match="only digest:alice may make nodes below /consumers/g/owners/clicks"):
        connect(group_id="g", consumer_id="c").create_message_streams({TOPIC: 1})
    wait_until(lambda: len(first.assignment) + len(second.assignment) == 4, "all of them are read again")
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("not-authorized")]
    assert len(told) == 1
    assert "path=/consumers/g/owners/clicks who='an anonymous user (zookeeper.auth is not set)'" in told[0]
    assert "hush" not in caplog.text


def test_a_member_that_holds_something_goes_on_and_the_denied_topic_is_told(
    world: FakeEnvironment, connect: MakeConnector, alices: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    world.create_topic("free", 1)
    world.create_topic("hers", 1)
    hers = alices(consumer_id="a")
    hers.create_message_streams({"hers": 1})
    hers.close()
    world.zookeeper.ensure(paths.owners_of_topic("g", "free"))
    world.zookeeper.set_acl(paths.owners("g"), OPEN_ACL)
    ours = connect(group_id="g", rebalance_backoff_ms=20, rebalance_max_retries=1, zookeeper_session_timeout_ms=300)
    ours.create_message_streams({"free": 1, "hers": 1})
    assert list(ours.assignment) == [TopicPartition("free", 0)]
    assert "only digest:alice may make nodes below /consumers/g/owners/hers" in caplog.text


def test_an_open_member_may_be_joined_by_everybody(
    world: FakeEnvironment, connect: MakeConnector, alices: Callable[..., Any]
) -> None:
    world.create_topic(TOPIC, 2)
    connect(group_id="g").create_message_streams({TOPIC: 1})
    hers = alices()
    hers.create_message_streams({TOPIC: 1})
    assert len(hers.assignment) == 1
