"""The keys of Kafka's own consumer in the configuration of a coordinator group's member: the effect of each.  Pure.

    it has an effect   the same key (``client.id``), another one (``SPELLINGS``), or a setting of the group
    it is an error     it would change the meaning, and is not supported (``UNSUPPORTED_KEYS``)
    it is ignored      it has no meaning here, and a warning explains what applies instead (``_NO_EFFECT``)

``ConsumerConfig`` has tables of its own for a ZooKeeper member (``zkconsumer.other_client_keys``); no text here names a
setting of ZooKeeper.
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
"""Kafka's key -> the Scala consumer's key with the same meaning."""


class UnsupportedKey(NamedTuple):
    """``supported_value``: the value of the behaviour that always applies; any other value is an error."""

    supported_value: str
    why: str


UNSUPPORTED_KEYS: dict[str, UnsupportedKey] = {
    "interceptor.classes": UnsupportedKey(
        "",
        "it names classes of the JVM, which would see and change every record; remove it, and do their work in the "
        "program",
    ),
    "group.protocol": UnsupportedKey("classic", "this member supports only the classic protocol; remove it"),
    "internal.leave.group.on.close": UnsupportedKey(
        "true",
        "a member that is closed leaves its group; remove it, or set group.instance.id, with which a member stays",
    ),
    **{key: UnsupportedKey("", f"{JAVA_SECURITY_KEYS[key]}, and remove {key}") for key in SECURITY_KEYS_NOT_IGNORED},
}

_NO_EFFECT: dict[str, str] = {
    "group.remote.assignor": "the leader of the group computes the assignment, by partition.assignment.strategy",
    "key.deserializer": "a class of the JVM; give create_message_streams a key_decoder, or keys are bytes",
    "max.poll.records": "a stream delivers one record at a time; queued.max.message.chunks limits the queue before it",
    "reconnect.backoff.max.ms": "set refresh.leader.backoff.ms instead",
    "reconnect.backoff.ms": "set refresh.leader.backoff.ms instead",
    "socket.connection.setup.timeout.max.ms": "socket.timeout.ms is the limit for a connection",
    "socket.connection.setup.timeout.ms": "socket.timeout.ms is the limit for a connection",
    "value.deserializer": "a class of the JVM; give create_message_streams a value_decoder, or values are bytes",
}

_OF_ZOOKEEPER = ("zk.", "zookeeper.")

_PACKAGE = "org.apache.kafka.clients.consumer."
_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_CLASSES = {kind.__name__: name for name, kind in ASSIGNORS.items()}


def why_unsupported(key: str, value: object) -> str:
    """Why this key is an error with this value; "" when it is not an error."""
    return UNSUPPORTED_KEYS[key].why if key in UNSUPPORTED_KEYS and not is_only_supported_value(key, value) else ""


def is_only_supported_value(key: str, value: object) -> bool:
    """Whether this value of the key is the behaviour that always applies."""
    word = str(value).strip(JAVA_BLANKS).lower()
    return key in UNSUPPORTED_KEYS and word == UNSUPPORTED_KEYS[key].supported_value


def why_ignored(key: str) -> str:
    """Why this key has no effect; "" for one that is not known."""
    if key in _NO_EFFECT:
        return java_client_key_text(_NO_EFFECT[key])
    why = why_ignored_by_all_members(key)
    if key.startswith(_OF_ZOOKEEPER) and why:
        return "a setting of ZooKeeper's client; it does not apply to a coordinator"
    return why


# --- settings of the Scala consumer that also accept Kafka's values ---------------------------------------------------


def auto_offset_reset_setting() -> Setting[str]:
    """``auto.offset.reset``, with the values of both consumers; the result is the old value, or ``none``."""
    words = {"latest": "largest", "earliest": "smallest", "largest": "largest", "smallest": "smallest", "none": "none"}

    def check(given: str) -> str:
        if given not in words:
            raise ValueError
        return words[given]

    return text(
        "auto.offset.reset", "largest",
        "Where to begin when there is no offset, or none that the broker still has: `latest` (or `largest`) is the "
        "end, `earliest` (or `smallest`) the beginning; with `none` the streams raise `NoOffsetForPartitionException` "
        "or `OffsetOutOfRangeException`, and the member leaves its group.",
        check, "latest, earliest or none (or the old values largest or smallest)",
    )  # fmt: skip


def partition_assignment_strategy_setting() -> Setting[str]:
    """``partition.assignment.strategy``: names, Java's classes or import paths, in order of preference.

    The result are names and import paths.
    """

    def check(given: str) -> str:
        names = assignor_names(given)
        if not names or len(set(names)) < len(names):
            raise ValueError("name each assignor once, and at least one")
        return ",".join(names)

    return text(
        "partition.assignment.strategy", "range",
        "How the group is assigned: assignors by name or by Java's class, or your own as `package.module:ClassName`, "
        "in order of preference. All members must have one in common.",
        check, f"{', '.join(ASSIGNORS)} or package.module:ClassName, with commas in between",
    )  # fmt: skip


def assignor_names(given: str) -> list[str]:
    """The assignors of a list: names, also for Java's classes, and import paths.  ``ValueError`` for another word."""
    words = [word.strip(JAVA_BLANKS) for word in given.split(",")]
    return [_name_of(word) for word in words if word]


def _name_of(word: str) -> str:
    if word in ASSIGNORS or _IMPORT_PATH.fullmatch(word):
        return word
    name = _CLASSES.get(word.removeprefix(_PACKAGE))
    if name is None:
        hint = "a class of the JVM" if re.fullmatch(r"[\w$]+(\.[\w$]+)+", word) else "not known"
        raise ValueError(f"{word} is {hint}; name an assignor of your own as package.module:ClassName")
    return name
