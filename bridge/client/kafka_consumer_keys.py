"""The keys of Kafka's own consumer in the configuration of a coordinator's member: what becomes of each.  Pure.

    it acts       the same key (``client.id``), another one (``SPELLINGS``), or a setting of the group
    it is an error   it would change the meaning, and cannot be done (``UNSUPPORTED_KEYS``)
    it is named   it has no meaning here, and a warning says what is so instead (``_NO_EFFECT``)

``ConsumerConfig`` has tables of its own for a member that ZooKeeper keeps (``zkconsumer.other_client_keys``); no
sentence here names a setting of ZooKeeper.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from bridge.client.assignors import ASSIGNORS
from zkconsumer.config_def import JAVA_BLANKS, Setting, text
from zkconsumer.other_client_keys import (
    JAVA_SECURITY_KEYS,
    SECURITY_KEYS_NOT_IGNORED,
    java_client_key_text,
    why_ignored_by_all_members,
)

SPELLINGS: dict[str, str] = {
    "enable.auto.commit": "auto.commit.enable",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
}
"""Kafka's key -> the old consumer's key, which means the same."""


class UnsupportedKey(NamedTuple):
    """``is_only_supported_value``: the value that says what is so in any case; with another one the key is an error."""

    supported_value: str
    why: str


UNSUPPORTED_KEYS: dict[str, UnsupportedKey] = {
    "isolation.level": UnsupportedKey(
        "read_uncommitted",
        "only read_uncommitted can be done: all records are handed out, those of aborted transactions too; leave it "
        "out where producers use no transactions, and read these topics with Kafka's own consumer where they do",
    ),
    "interceptor.classes": UnsupportedKey(
        "",
        "it names classes of the JVM, which would see and change every record; leave it out, and do their work in the "
        "program",
    ),
    "group.protocol": UnsupportedKey("classic", "this member speaks the protocol classic alone; leave it out"),
    "internal.leave.group.on.close": UnsupportedKey(
        "true",
        "a member that is closed leaves its group; leave it out, or set group.instance.id, with which a member stays",
    ),
    **{key: UnsupportedKey("", f"{JAVA_SECURITY_KEYS[key]}, and leave {key} out") for key in SECURITY_KEYS_NOT_IGNORED},
}

_NO_EFFECT: dict[str, str] = {
    "group.remote.assignor": "the leader of the group divides it, by partition.assignment.strategy",
    "key.deserializer": "a class of the JVM; give create_message_streams a key_decoder, or keys are bytes",
    "max.poll.records": "a stream gives one record at a time; queued.max.message.chunks says how much waits in front "
    "of it",
    "reconnect.backoff.max.ms": "set refresh.leader.backoff.ms in its place",
    "reconnect.backoff.ms": "set refresh.leader.backoff.ms in its place",
    "socket.connection.setup.timeout.max.ms": "socket.timeout.ms is the limit for a connection",
    "socket.connection.setup.timeout.ms": "socket.timeout.ms is the limit for a connection",
    "value.deserializer": "a class of the JVM; give create_message_streams a value_decoder, or values are bytes",
}

_OF_ZOOKEEPER = ("zk.", "zookeeper.")

_PACKAGE = "org.apache.kafka.clients.consumer."
_CLASSES = {kind.__name__: name for name, kind in ASSIGNORS.items()}


def why_unsupported(key: str, value: object) -> str:
    """Why this key is an error with this value; "" when it is none."""
    return UNSUPPORTED_KEYS[key].why if key in UNSUPPORTED_KEYS and not is_only_supported_value(key, value) else ""


def is_only_supported_value(key: str, value: object) -> bool:
    """Whether this key, with this value, says what is so in any case."""
    word = str(value).strip(JAVA_BLANKS).lower()
    return key in UNSUPPORTED_KEYS and word == UNSUPPORTED_KEYS[key].supported_value


def why_ignored(key: str) -> str:
    """Why this key has no effect; "" for one that is not known."""
    if key in _NO_EFFECT:
        return java_client_key_text(_NO_EFFECT[key])
    why = why_ignored_by_all_members(key)
    return "a setting of ZooKeeper's client; it says nothing of a coordinator" if _is_zookeepers(key) and why else why


def _is_zookeepers(key: str) -> bool:
    return key.startswith(_OF_ZOOKEEPER)


# --- settings of the old consumer that take Kafka's own words ---------------------------------------------------------


def auto_offset_reset_setting() -> Setting[str]:
    """``auto.offset.reset``, in both kinds of words; the value is the old one."""
    words = {"latest": "largest", "earliest": "smallest", "largest": "largest", "smallest": "smallest"}

    def check(given: str) -> str:
        if given not in words:
            is_none = given == "none"
            raise ValueError("a member here raises no error where there is no offset" if is_none else "")
        return words[given]

    return text(
        "auto.offset.reset", "largest",
        "Where to begin when there is no offset, or none that the broker still has: `latest` (or `largest`) is the "
        "end, `earliest` (or `smallest`) the beginning.",
        check, "latest or earliest (or, in the old words, largest or smallest)",
    )  # fmt: skip


def partition_assignment_strategy_setting() -> Setting[str]:
    """``partition.assignment.strategy``: names or Java's classes, the best first; the value are names."""

    def check(given: str) -> str:
        names = assignor_names(given)
        if not names or len(set(names)) < len(names):
            raise ValueError("each assignor is named once, and one at least")
        return ",".join(names)

    return text(
        "partition.assignment.strategy", "range",
        "How the group is divided: assignors by name or by Java's class, the best first. All members must have one in "
        "common.",
        check, f"{', '.join(ASSIGNORS)}, with commas in between",
    )  # fmt: skip


def assignor_names(given: str) -> list[str]:
    """The assignors of a list, by name or by Java's class; ``ValueError`` for a word that is neither."""
    words = [word.strip(JAVA_BLANKS) for word in given.split(",")]
    return [_name_of(word) for word in words if word]


def _name_of(word: str) -> str:
    if word in ASSIGNORS:
        return word
    name = _CLASSES.get(word.removeprefix(_PACKAGE))
    if name is None:
        hint = "a class of the JVM" if re.fullmatch(r"[\w$]+(\.[\w$]+)+", word) else "not known"
        raise ValueError(f"{word} is {hint}; give the connector an assignor of your own as assignors=[…]")
    return name
