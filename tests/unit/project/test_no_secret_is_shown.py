"""No password is in a text: ``repr``, errors with their traceback, logs, JSON, plans; wherever a user writes it.

Every setting that takes a secret or an address is found in the tables and tried, with values that are right and with
values that hold a password where none belongs.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from bridge.broker.listeners import BrokerListener, read_listener, with_advertised
from bridge.broker.server_settings import BrokerServerSettings
from bridge.client.config import CoordinatorConsumerConfig
from bridge.spark.option_table import SOURCE_OPTIONS as SPARK_SETTINGS
from bridge.spark.options import read_options
from zkconsumer.admin.admin_session import tools_config
from zkconsumer.cli.main import main
from zkconsumer.config import SETTINGS, ConsumerConfig
from zkconsumer.config_def import Setting, mask_user, unmasked
from zkconsumer.config_tables.jaas import PLAIN_MODULE
from zkconsumer.errors import ZkConsumerError
from zkconsumer.kafka.broker_security import connection_factory_from_config
from zkconsumer.kafka.group.group_member_config import GROUP_SETTINGS as GROUP_SETTINGS
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.zk.zk_security import zk_security_of

S = "hunter2secret"
BASE = {"group.id": "g", "zookeeper.connect": "z:2181"}
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
TABLES = {**SETTINGS, **GROUP_SETTINGS, **SPARK_SETTINGS}

ADDRESSES = {"zookeeper.connect", "bootstrap.servers", "metrics.listen"}
SECRETS = {"sasl.password", "sasl.jaas.config", "ssl.key.password", "zookeeper.ssl.keystore.password"}
LOGINS = {"zookeeper.auth"}

IN_ADDRESSES = (
    f"u:{S}@h:2181", f"{S}@h:2181", f"u:{S}@h", f"h1:1,u:{S}@h2:2,h3:3", f"u:{S}@h1:1,v:{S}@h2:2", f"u:{S}/x@h:2181",
    f"u:{S}/@h:2181/chroot", f"u:x/{S}@h:2181", f"u:{S}@h:2181/a//b", f"zk://u:{S}@h:2181", f"u:{S}@h:99999",
    f" u:{S}@h:2181 ", f"u:p@{S}@h:1", f"@{S}@",
)  # fmt: skip
IN_LOGINS = (
    f"digest:u:{S}", f"sasl-digest-md5:u:{S}", f"digest::{S}", f"digest:u:{S}/x", f"digest:u:x:{S}", S, f"u:{S}",
    f"super:{S}", f"auth:u:{S}", f"plain:{S}", f" digest:u:{S} ",
)  # fmt: skip
JAAS = f'{PLAIN_MODULE} required username="u" password="{S}";'
IN_SECRETS: Mapping[str, tuple[str, ...]] = {
    "sasl.password": (S,),
    "sasl.jaas.config": (JAAS, JAAS[:-2], JAAS.replace("Plain", "Plan"), JAAS.replace("username", "usernam"), S),
    "ssl.key.password": (S,),
    "zookeeper.ssl.keystore.password": (S,),
}
BESIDE: tuple[dict[str, object], ...] = (
    {}, SASL, {**SASL, "sasl.username": "u"}, {**SASL, "sasl.mechanism": "NOPE"},
    {"security.protocol": "SSL", "ssl.keystore.location": "/nonexistent"},
    {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.keystore.location": "/etc/passwd"},
    {"zookeeper.set.acl": "true"}, {"no.such.key": "1"},
)  # fmt: skip
"""What else is set: the same value makes other texts then."""


def values_of(key: str) -> tuple[object, ...]:
    if key in ADDRESSES:
        texts: tuple[object, ...] = IN_ADDRESSES
    elif key in LOGINS:
        texts = IN_LOGINS
    else:
        texts = IN_SECRETS[key]
    return (*texts, [texts[0]], {"a": texts[0]}, str(texts[0]).encode())


class Texts(logging.Handler):
    """Everything that is said while something is tried."""

    def __init__(self) -> None:
        super().__init__(level=0)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record))

    def look_at(self, *things: object) -> None:
        for thing in things:
            self.said += [repr(thing), str(thing)]

    def try_(self, *actions: Callable[[], object]) -> None:
        """What each gives, or the error with everything that a traceback shows."""
        for action in actions:
            try:
                self.look_at(action())
            except (ZkConsumerError, ValueError) as error:
                self.said.append("".join(traceback.format_exception(error)))

    def check(self) -> None:
        assert [text for text in self.said if S in text] == []
        self.said.clear()


@pytest.fixture
def texts() -> Iterator[Texts]:
    made, root = Texts(), logging.getLogger()
    level = root.level
    root.addHandler(made)
    root.setLevel(1)
    yield made
    root.removeHandler(made)
    root.setLevel(level)


# --- which settings there are -------------------------------------------------------------------------------------


def test_each_setting_that_takes_a_secret_or_an_address_is_here_and_hides_it() -> None:
    """A new one is found by its name, or by what it takes, and must be marked in its table."""

    def named(*words: str) -> set[str]:
        return {key for key in TABLES if any(word in key for word in words)}

    assert {key for key, setting in TABLES.items() if "HOST:PORT" in setting.allowed} == ADDRESSES
    assert {key for key, setting in TABLES.items() if setting.mask is mask_user} == ADDRESSES
    assert {key for key, setting in TABLES.items() if setting.is_secret} == SECRETS
    assert {key for key, setting in TABLES.items() if setting.mask not in (unmasked, mask_user)} == LOGINS
    suspects = named("password", "secret", "auth", "jaas", "token", "credential", "connect", "servers", "listen", "key")
    harmless = {
        "zookeeper.connection.timeout.ms", "ssl.key.location", "ssl.keystore.location", "ssl.keystore.type",
        "zookeeper.ssl.keystore.location", "zookeeper.ssl.keystore.type", "rebalance.listener.timeout.ms",
        "key.deserializer", "consumer.connector",
    }  # fmt: skip
    assert suspects - harmless == ADDRESSES | SECRETS | LOGINS


@pytest.mark.parametrize("key", sorted(ADDRESSES | LOGINS | SECRETS))
def test_what_is_shown_of_a_value_holds_no_password(key: str) -> None:
    setting: Setting[Any] = TABLES[key]
    for value in values_of(key):
        assert S not in setting.masked(value)


def test_what_is_no_secret_is_shown() -> None:
    assert mask_user("z1:2181,z2:2181/kafka") == "z1:2181,z2:2181/kafka"
    assert mask_user("u:p@z1:2181/kafka") == "[hidden]@z1:2181/kafka"
    auth = SETTINGS["zookeeper.auth"]
    for shown in ("digest:/run/secrets/zk", "digest:./a:b", "sasl-gssapi", "sasl-gssapi:me/host@REALM"):
        assert auth.masked(shown) == shown
        assert ConsumerConfig(group_id="g", zookeeper_connect="z", zookeeper_auth=shown).zookeeper_auth == shown
    assert auth.masked("digest:u:p") == "digest:[hidden]"
    made = ConsumerConfig(
        group_id="g", zookeeper_connect="z1:1,z2:2/kafka@home", security_protocol="SASL_SSL", sasl_mechanism="PLAIN",
        sasl_username="u", sasl_password=S,
    )  # fmt: skip
    assert "zookeeper_connect='[hidden]@home'" in repr(made), "a chroot may have an @, and anything may be before it"
    assert "sasl_password=[hidden]" in repr(made)


# --- configurations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted((ADDRESSES | LOGINS | SECRETS) & SETTINGS.keys()))
def test_no_configuration_shows_one(key: str, texts: Texts, tmp_path: Path) -> None:
    attribute = SETTINGS[key].attribute
    file = tmp_path / "consumer.properties"
    for value in values_of(key):
        for beside in BESIDE:
            given = {**BASE, **beside, key: value}
            file.write_text("".join(f"{name}={text}\n" for name, text in given.items()), "latin-1")
            by_name = {SETTINGS[name].attribute: text for name, text in given.items() if name in SETTINGS}

            def used(given: Mapping[str, object] = given) -> object:
                config = ConsumerConfig.from_properties(given)
                texts.look_at(config, config.ignored, [row for row in config.describe() if row.key == key])
                texts.try_(lambda: connection_factory_from_config(config, None), lambda: zk_security_of(config))
                texts.try_(lambda: config.with_overrides({"client.id": "a b"}))
                return config

            texts.try_(
                used,
                lambda given=by_name: ConsumerConfig(**given),  # type: ignore[misc]
                lambda: ConsumerConfig.from_properties(file),
                lambda: ConsumerConfig.from_properties(file.read_text("latin-1")),
                lambda: ConsumerConfig.from_files(file, {}),
                lambda value=value: ConsumerConfig.from_files(None, {**BASE, attribute: value}),  # type: ignore[misc]
                lambda value=value: ConsumerConfig.from_properties(BASE).with_overrides({key: value}),  # type: ignore[misc]
                lambda given=given: CoordinatorConsumerConfig.from_properties(given),  # type: ignore[misc]
                lambda value=value: GroupMemberConfig({"group.id": "g", key: value}),  # type: ignore[misc]
                lambda: tools_config("z:2181", file),
            )
        texts.check()


def test_a_password_in_an_address_or_a_login_is_refused_and_says_what_to_do() -> None:
    for key, words in (
        (
            "zookeeper.connect", "zookeeper.connect=[hidden]@h:2181: an address must not contain a user or a password; "
            "set a login at ZooKeeper with zookeeper.auth, one at brokers with sasl.username and sasl.password; set "
            "it to HOST:PORT",
        ),
        ("bootstrap.servers", "bootstrap.servers=[hidden]@h:2181: an address must not contain a user or a password"),
    ):  # fmt: skip
        with pytest.raises(ZkConsumerError, match="a problem") as refused:
            ConsumerConfig.from_properties({**BASE, key: f"u:{S}@h:2181"})
        assert words in str(refused.value)
    with pytest.raises(ZkConsumerError, match="a problem") as refused:
        ConsumerConfig.from_properties({**BASE, "zookeeper.auth": f"digest:u:{S}"})
    assert "zookeeper.auth=digest:[hidden]: the value must be the name of a file, and it is user and password: " in str(
        refused.value
    )


@pytest.mark.parametrize("key", sorted(ADDRESSES | LOGINS | SECRETS))
def test_no_option_of_a_spark_query_shows_one(key: str, texts: Texts) -> None:
    for value in values_of(key):
        for name in (key, f"kafka.{key}", f"zk.{key}"):
            options = {"subscribe": "t", "group.id": "g", "zookeeper.connect": "z:2181", name: str(value)}
            for is_stream in (True, False):
                texts.try_(lambda given=options, stream=is_stream: read_options(given, is_stream=stream))  # type: ignore[misc]
        texts.check()


def test_no_setting_of_the_development_broker_shows_one(texts: Texts) -> None:
    for value in IN_ADDRESSES:
        texts.try_(
            lambda value=value: read_listener(f"PLAINTEXT://{value}"),  # type: ignore[misc]
            lambda value=value: read_listener(value),  # type: ignore[misc]
            lambda value=value: with_advertised([BrokerListener("A", "PLAINTEXT", "h", 1)], [f"A://{value}"]),  # type: ignore[misc]
            lambda value=value: BrokerServerSettings(zookeeper=value).check(),  # type: ignore[misc]
        )
    texts.look_at(BrokerServerSettings(users={"u": S}))
    texts.check()


# --- commands -----------------------------------------------------------------------------------------------------

TAKES = {
    "--zookeeper": f"u:{S}@z:2181/chroot", "--bootstrap-server": f"u:{S}@h:9092",
    "--zookeeper-auth": f"digest:u:{S}", "--listener": f"PLAINTEXT://u:{S}@h:1", "--advertise": f"PLAINTEXT://u:{S}@h:1",
}  # fmt: skip


def leaves(command: click.Command, name: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from leaves(found, (*name, each))
    else:
        yield name, command


def required_of(command: click.Command, folder: Path) -> list[str]:
    """Something for each parameter that must be given."""
    words: list[str] = []
    for one in command.params:
        if not one.required:
            continue
        path = folder / "given"
        path.write_text("{}")
        text = str(path) if isinstance(one.type, click.Path | click.File) else "t"
        if isinstance(one.type, click.Choice):
            text = str(one.type.choices[0])
        words += [text] if isinstance(one, click.Argument) else [one.opts[-1], text]
    return words


LEAVES = {
    f"{' '.join(name)} {option}": (name, option)
    for name, command in leaves(main)
    for option in TAKES
    if any(option in one.opts for one in command.params) and name != ("sandbox", "up")  # a version
}


def test_the_commands_take_addresses() -> None:
    assert len(LEAVES) > 40
    assert {option for _, option in LEAVES.values()} == set(TAKES)


@pytest.mark.parametrize("what", sorted(LEAVES))
@pytest.mark.parametrize("output", ["table", "json"])
def test_no_command_shows_one(
    what: str, output: str, texts: Texts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, option = LEAVES[what]
    monkeypatch.chdir(tmp_path)
    command = dict(leaves(main))[name]
    options = {opt for one in command.params for opt in one.opts}
    words = [*name, *required_of(command, tmp_path), option, TAKES[option]]
    if option not in ("--zookeeper", "--listener") and "--zookeeper" in options and what != "broker --advertise":
        words += ["--zookeeper", "127.0.0.1:1"]
    if output == "json" and "-o" in options:
        words += ["-o", "json"]
    if "--execute" in options:
        words.append("--execute")
    done = CliRunner().invoke(main, words, input="g\n")
    assert done.exit_code != 0, "nothing was done with such an address"
    texts.look_at(done.output, done.stderr)
    if done.exception is not None:
        texts.said.append("".join(traceback.format_exception(done.exception)))
    texts.said += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    texts.check()
