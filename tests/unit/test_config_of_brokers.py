"""The settings for TLS, SASL and bootstrap servers: what goes together, and what is never shown."""

from __future__ import annotations

import pytest

from zkconsumer.config import SETTINGS, ConsumerConfig
from zkconsumer.config_tables.jaas import parse_jaas
from zkconsumer.errors import InvalidConfigException

PLAIN_LINE = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="al" password="hush;\\"hush";'
SCRAM_LINE = "org.apache.kafka.common.security.scram.ScramLoginModule required\n username=al password='hush' ;"
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def config(settings: dict[str, object]) -> ConsumerConfig:
    return ConsumerConfig.from_properties({"group.id": "g", "zookeeper.connect": "zk1", **settings})


def problems(settings: dict[str, object]) -> list[str]:
    with pytest.raises(InvalidConfigException) as refused:
        config(settings)
    return str(refused.value).split("\n  ")[1:]


def test_user_and_password_are_read_in_either_form() -> None:
    made = config({**SASL, "sasl.username": "al", "sasl.password": "hush"})
    assert (made.sasl_username, made.sasl_password) == ("al", "hush")
    assert parse_jaas(PLAIN_LINE)[1:] == ("al", 'hush;"hush')
    assert parse_jaas(SCRAM_LINE)[1:] == ("al", "hush")
    assert config({**SASL, "sasl.jaas.config": SCRAM_LINE}).sasl_jaas_config == SCRAM_LINE


def test_a_java_file_gives_the_mechanism_in_any_case() -> None:
    made = config({"security.protocol": "sasl_plaintext", "sasl.mechanism": "plain", "sasl.jaas.config": PLAIN_LINE})
    assert (made.security_protocol, made.sasl_mechanism) == ("SASL_PLAINTEXT", "PLAIN")


def test_no_secret_is_shown() -> None:
    secrets = [key for key, setting in SETTINGS.items() if setting.is_secret]
    assert {"sasl.password", "sasl.jaas.config", "ssl.key.password"} <= set(secrets)
    made = config({**SASL, "sasl.username": "al", "sasl.password": "hush"})
    assert "hush" not in repr(made)
    assert "hush" not in repr(parse_jaas(PLAIN_LINE))
    for key in ("sasl.jaas.config", "sasl.password"):
        assert "hush" not in "".join(problems({**SASL, key: ["hush"]}))
    line = 'com.acme.Module required username="al" password="hush";'
    assert "hush" not in "".join(problems({**SASL, "sasl.jaas.config": line}))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", "set sasl.mechanism=GSSAPI"),
        ("org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;", "oauth_token="),
        ('com.acme.Module required username="a" password="b";', "the login module com.acme.Module cannot be used"),
        (PLAIN_LINE[:-1], "not of the form"),
        (PLAIN_LINE.replace("required", "wanted"), "write one of required"),
        (PLAIN_LINE.replace('username="al"', ""), "username is missing"),
        (PLAIN_LINE.replace('username="al"', 'username="al'), "write options"),
        (SCRAM_LINE.replace("required", "required tokenauth=true"), "delegation tokens"),
        ("org.apache.kafka.common.security.plain.PlainLoginModule required ;", "username and password are missing"),
    ],
)
def test_a_line_for_java_that_cannot_be_used_says_why(line: str, words: str) -> None:
    [problem] = [problem for problem in problems({**SASL, "sasl.jaas.config": line}) if "jaas" in problem]
    assert problem.startswith("sasl.jaas.config=[hidden]: ")
    assert words in problem


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        ({"security.protocol": "SASL_SSL"}, ["sasl.mechanism is missing"]),
        (SASL, ["sasl.username is missing", "sasl.password is missing"]),
        ({**SASL, "sasl.password": "p"}, ["sasl.username is missing"]),
        ({**SASL, "sasl.username": "u"}, ["sasl.password is missing"]),
        ({**SASL, "sasl.username": "u", "sasl.jaas.config": SCRAM_LINE}, ["sasl.jaas.config and sasl.username"]),
        (
            {**SASL, "sasl.jaas.config": PLAIN_LINE},
            ["sasl.jaas.config: contains org.apache.kafka.common.security.plain"],
        ),
        ({**SASL, "sasl.mechanism": "GSSAPI", "sasl.password": "p"}, ["sasl.mechanism=GSSAPI: has no user"]),
        ({**SASL, "sasl.mechanism": "DIGEST-MD5"}, ["sasl.mechanism=DIGEST-MD5: set it to PLAIN or SCRAM-SHA-256"]),
        ({"sasl.username": "u"}, ["security.protocol=PLAINTEXT: does not use SASL, so sasl.username would"]),
        ({"ssl.ca.location": "/ca.pem"}, ["security.protocol=PLAINTEXT: does not use TLS, so ssl.ca.location would"]),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/a", "ssl.truststore.location": "/b"},
            ["ssl.truststore.location and ssl.ca.location: set only one"],
        ),
        ({"security.protocol": "SSL", "ssl.key.location": "/k"}, ["ssl.certificate.location and ssl.key.location"]),
        ({"security.protocol": "SSL", "ssl.key.password": "p"}, ["ssl.key.password: no private key is set"]),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, ["ssl.truststore.type=JKS: a Java keystore"]),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1"}, ["ssl.enabled.protocols=TLSv1: 'TLSv1' is"]),
        ({"security.protocol": "TLS"}, ["security.protocol=TLS: set it to PLAINTEXT or SSL or"]),
        ({"bootstrap.servers": "b"}, ["bootstrap.servers=b: 'b' is not HOST:PORT"]),
        ({"bootstrap.servers": "b:0"}, ["bootstrap.servers=b:0: 'b:0' has no port"]),
        ({"bootstrap.servers": " , "}, ["bootstrap.servers= , : it contains no broker"]),
    ],
)
def test_what_does_not_go_together_is_told_all_at_once(settings: dict[str, object], starts: list[str]) -> None:
    told = problems(settings)
    assert len(told) == len(starts), told
    for problem, start in zip(told, starts, strict=True):
        assert problem.startswith(start)


def test_a_misspelt_key_is_not_passed_over() -> None:
    assert problems({"sasl.pasword": "p"}) == ["sasl.pasword is not known: did you mean sasl.password?"]


def test_what_has_no_effect_is_named_and_set_aside() -> None:
    made = config({**SASL, "sasl.username": "u", "sasl.password": "p", "sasl.kerberos.service.name": "kafka"})
    assert "only has an effect with sasl.mechanism=GSSAPI" in made.ignored["sasl.kerberos.service.name"]
    assert config({"metadata.max.age.ms": 5000, "bootstrap.servers": "b:9092"}).ignored == {}


def test_addresses_are_trimmed_and_may_be_ipv6() -> None:
    assert config({"bootstrap.servers": " b1:9092 ,[::1]:9093,, "}).bootstrap_servers == "b1:9092,[::1]:9093"
