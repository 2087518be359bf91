r"""The registration of a member, the znode that the whole group reads at every rebalance.  Pure.

    {"version":1,"subscription":{"topic1":2,"topic2":1},"pattern":"static","timestamp":"1416246370000"}

It is written byte for byte as 0.8.2 to 1.0.0 write it, each character escaped once.  It is read as *any* release reads
it.  A registration that no release accepts stops Scala consumers; our members ignore it.  A registration that some
releases accept counts for those, so it must count here, too: otherwise the members would compute different assignments
permanently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from zkconsumer.errors import InternalError, MalformedZnode
from zkconsumer.member.scala_maps import immutable_map_order
from zkconsumer.utf8 import encode_strict
from zkconsumer.zk.java_json import (
    INT32_MAX,
    JavaJsonError,
    Json,
    JsonReaderKind,
    UnparsedNumber,
    is_int32,
    read_object,
)

if TYPE_CHECKING:
    from zkconsumer.member.group_view import TopicSubscription

# The parsers of ``zk.java_json``: "old" is that of releases up to 0.11, "strict" that of releases from 1.0 on,
# "doubled" the second attempt of releases from 1.0.1 on, which parse the text again with every backslash doubled.

SubscriptionPattern: TypeAlias = Literal["static", "white_list", "black_list"]

WRITTEN_VERSION: Final = 1

STREAMS_MAX = 100_000
"""The maximum number of streams of one member, for all topics together.  The Scala consumer creates an object for each
until its heap is full; a count of 2**31 - 1 must not exhaust our memory."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The content of a registration.

    ``subscription``: topic (``static``) or the one regular expression (lists) -> number of streams, at least 1, in
    the order of the document.  Another program wrote the topic: check it before it is used in a path.
    No member reads ``version`` and ``timestamp``; they are None when they are missing or of another type.
    """

    pattern: SubscriptionPattern
    subscription: Mapping[str, int]
    timestamp: str | None = None
    version: int | None = WRITTEN_VERSION


def registration_of(subscription: TopicSubscription, timestamp: str) -> Registration:
    """The registration of a member with this subscription; ``timestamp`` in ms since the epoch, as text."""
    match subscription.pattern:
        case "white_list" | "black_list" | "static" as pattern:
            return Registration(pattern, dict(subscription.topics), timestamp)
    raise InternalError(f"no release writes the pattern kind {subscription.pattern!r}")


def format_registration(registration: Registration) -> bytes:
    """The bytes for ZooKeeper.

    Raises ``InvalidNameError`` for text that cannot be encoded as UTF-8, ``InternalError`` for a count that would stop
    the whole group.
    """
    for topic, count in registration.subscription.items():
        if not 1 <= count <= INT32_MAX:
            raise InternalError(
                f"{count} streams for {topic!r} must not reach ZooKeeper: every member would fail on it"
            )
    topics = ",".join(f"{_quoted(topic)}:{count}" for topic, count in registration.subscription.items())
    return encode_strict(
        f'{{"version":{WRITTEN_VERSION},"subscription":{{{topics}}},'
        f'"pattern":{_quoted(registration.pattern)},"timestamp":{_quoted(registration.timestamp or "0")}}}'
    )


def parse_registration(data: bytes) -> Registration:
    """Read any member's registration.  Raises ``MalformedZnode``, with the reasons, when no release accepts it."""
    return read_object(data, _registration)


_PYKAFKA_ID = re.compile(r".+:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL)
_TOPIC_ALONE = re.compile(rb"[a-zA-Z0-9._-]+")


def is_pykafka_registration(consumer_id: str, data: bytes) -> bool:
    """Whether pykafka's BalancedConsumer wrote it (2.8): the node ``HOST:UUID`` has only the name of the topic.

    Such a member sees only members of pykafka.  Its owner nodes are ``owners/T/BROKER-PARTITION`` (in Python 3:
    ``owners/b'T'/…``), so it reads partitions that other members own.
    """
    return _PYKAFKA_ID.fullmatch(consumer_id) is not None and _TOPIC_ALONE.fullmatch(data) is not None


def incompatible_releases(data: bytes) -> dict[str, str]:
    """The releases that reject a registration which others accept: releases → reason, both as text.

    Each member of those releases fails in every rebalance while the node exists.  Raises ``MalformedZnode`` when no
    release accepts it.
    """
    parse_registration(data)
    reasons = {reader: _reason(data, reader) for reader in ("old", "strict", "doubled")}
    found: dict[str, str] = {}
    if reasons["old"]:
        found["up to 0.11"] = reasons["old"]
    if reasons["strict"]:
        found["1.0.0" if not reasons["doubled"] else "from 1.0 on"] = reasons["strict"]
    return found


def _reason(data: bytes, wanted: str) -> str:
    """Why the parser ``wanted``, or the check of what it has read, rejects the data; empty if neither does."""
    own: list[str] = []

    def decode(members: dict[str, Json], reader: JsonReaderKind) -> Registration:
        if reader != wanted:
            raise JavaJsonError("not asked")
        try:
            return _registration(members, reader)
        except JavaJsonError as refused:
            own.append(str(refused))
            raise

    try:
        read_object(data, decode)
    except MalformedZnode as error:
        return own[0] if own else str(error)
    return ""


# --- writing ----------------------------------------------------------------------------------------------------

_ESCAPED = {
    **{chr(code): f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0))},
    '"': '\\"',
    "\\": "\\\\",
    "/": "\\/",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_ESCAPES = str.maketrans(_ESCAPED)


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


# --- reading ----------------------------------------------------------------------------------------------------


def _registration(members: dict[str, Json], reader: JsonReaderKind) -> Registration:
    """The registration as the releases with this parser read it; raises ``JavaJsonError`` if they reject it.

    An empty list is read as ``static`` without topics.  Of a list with several expressions, releases use one.
    """
    pattern = _pattern(members, reader)
    subscription = members.get("subscription")
    if not isinstance(subscription, dict):
        raise JavaJsonError("subscription is missing, or not a JSON object")
    is_list = pattern != "static" and bool(subscription)
    if is_list and len(subscription) > 1:
        if reader != "old" and not all(is_int32(count) for count in subscription.values()):
            raise JavaJsonError("a number of streams is not an int32")
        first = immutable_map_order(subscription)[0]  # the head of Scala's map: up to four keys, the first written
        subscription = {first: subscription[first]}
    return Registration(pattern if is_list else "static", _counts(subscription), _timestamp(members), _version(members))


def _pattern(members: dict[str, Json], reader: JsonReaderKind) -> SubscriptionPattern:
    pattern = members.get("pattern")
    match pattern:
        case "white_list" | "black_list":
            return pattern
        case str():
            return "static"
    # Up to 0.11 the cast of null to String succeeds, and the result is none of the two list kinds.
    if pattern is None and "pattern" in members and reader == "old":
        return "static"
    raise JavaJsonError("pattern is missing, or not a JSON string")


def _counts(subscription: dict[str, Json]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for topic, count in subscription.items():
        if not isinstance(count, int) or not is_int32(count):
            raise JavaJsonError(f"the number of streams for {topic[:200]!r} is not an int32")
        if count < 1:
            raise JavaJsonError(f"{count} streams for {topic[:200]!r}: must be at least 1")
        counts[topic] = count
    if sum(counts.values()) > STREAMS_MAX:
        raise JavaJsonError(f"{sum(counts.values())} streams, at most {STREAMS_MAX} are read")
    return counts


def _version(members: dict[str, Json]) -> int | None:
    version = members.get("version")
    return version if isinstance(version, int) and not isinstance(version, bool) else None


def _timestamp(members: dict[str, Json]) -> str | None:
    match members.get("timestamp"):
        case str(text) | UnparsedNumber(text):
            return text
        case int(number) if not isinstance(number, bool):
            return str(number)
    return None
