"""Bytes of every znode, from and to values.  Pure.  The front door: import from here.

    registration.py   /consumers/G/ids/C, the hard one
    brokers.py        /brokers/ids/N, /brokers/topics/T, …/partitions/P/state
    here              owners, offsets, and the control znode of a group on the move

Any bytes give a value or ``MalformedZnode`` (a topic: always a value), and nothing else.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from zkconsumer.errors import InternalError, MalformedZnode
from zkconsumer.utf8 import decode_like_java, decode_strict, encode_strict
from zkconsumer.zk.java_json import BYTES_MAX, JavaJsonError, Json, read_jackson_json
from zkconsumer.zk.kafka_znodes import (
    BrokerRegistration,
    LeaderIsrAndControllerEpoch,
    TopicZnode,
    parse_broker,
    parse_partition_state,
    parse_topic,
)
from zkconsumer.zk.member_registration import (
    STREAMS_MAX,
    Registration,
    SubscriptionPattern,
    format_registration,
    parse_registration,
)

__all__ = [
    "STREAMS_MAX",
    "Authority",
    "BrokerRegistration",
    "ControlRecord",
    "LeaderIsrAndControllerEpoch",
    "Registration",
    "SubscriptionPattern",
    "TopicZnode",
    "consumer_of",
    "format_control",
    "format_offset",
    "format_owner",
    "format_registration",
    "parse_broker",
    "parse_control",
    "parse_offset",
    "parse_owner",
    "parse_partition_state",
    "parse_registration",
    "parse_topic",
]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
OWNER_CHARS_MAX = 10_000

FENCE_OWNER_PREFIX = "zkconsumer-migrate:"
"""How the text of an owner node begins that is a migration's fence."""


# --- owners -----------------------------------------------------------------------------------------------------


def format_owner(thread_id: str) -> bytes:
    """The bytes of a claim: the thread id and nothing else."""
    return encode_strict(thread_id)


def parse_owner(data: bytes) -> str:
    """Whose claim it is: a thread id, or whatever somebody put there.  Raises ``MalformedZnode`` for a novel."""
    if len(data) > OWNER_CHARS_MAX:
        raise MalformedZnode(f"{len(data)} bytes are no thread id")
    return decode_like_java(data)


def consumer_of(thread_id: str) -> str:
    """The consumer id of a thread id: cut at the last ``-``, as old tools do.  Without one, the whole text."""
    head, dash, _ = thread_id.rpartition("-")
    return head if dash else thread_id


# --- offsets ----------------------------------------------------------------------------------------------------

_LONG = re.compile(r"([+-]?)0*([0-9]+)", re.ASCII)
_LONG_DIGITS_MAX = 19


def format_offset(offset: int) -> bytes:
    """The bytes of a stored offset: the *next* one to read.  Raises ``InternalError`` for what must never be stored."""
    if not 0 <= offset <= INT64_MAX:
        raise InternalError(f"offset {offset} must not be stored")
    return b"%d" % offset


def parse_offset(data: bytes) -> int:
    """A stored offset, as Java's ``Long.parseLong`` reads it; any negative number means that there is none.

    Java also takes the digits of other scripts.  Nothing writes them, so they are taken for damage here.
    Raises ``MalformedZnode`` for what is no int64: empty, blanks, a fraction.
    """
    if len(data) < _LONG_DIGITS_MAX and data.isdigit():
        return int(data)  # as nearly all of them are
    text = decode_like_java(data) if len(data) <= BYTES_MAX else ""
    found = _LONG.fullmatch(text)
    if found is None or len(found[2]) > _LONG_DIGITS_MAX:
        raise MalformedZnode(f"{data[:40]!r} ({len(data)} bytes) is no number")
    offset = int(found[1] + found[2])
    if not INT64_MIN <= offset <= INT64_MAX:
        raise MalformedZnode(f"{offset} is no int64")
    return offset


# --- the control znode ------------------------------------------------------------------------------------------

Authority: TypeAlias = Literal["zookeeper", "kafka"]

ENDED_PHASES = frozenset({"completed", "undone"})
"""The group moved and stays there, or it did not and everything is as before."""


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """Where a group's authority is, once it began to move (``/zkconsumer/groups/G``).

    ``migration_id`` names the migration, ``epoch`` grows with every change of authority or fence, ``phase`` and
    ``strategy`` are the migration's words.  The znode's *version* is what commits of ours are bound to.
    """

    migration_id: str
    epoch: int
    phase: str
    authority: Authority
    strategy: str
    is_confirmed: bool = True
    """False from a write that moves the authority of a group without members until it is known that no member of the
    coordinator's group committed before that write.  Nothing that depends on the move happens meanwhile."""

    @property
    def is_over(self) -> bool:
        """Whether the migration has ended.  A phase that is not known here counts as under way."""
        return self.phase in ENDED_PHASES


def placeholder_client_id(migration_id: str) -> str:
    """The client id and protocol of the member that keeps the coordinator's group empty while a group is copied."""
    return f"zkconsumer-{migration_id}"


def format_control(control: ControlRecord) -> bytes:
    """The bytes for ZooKeeper: JSON in one line, keys in a fixed order."""
    members = {
        "id": control.migration_id,
        "epoch": control.epoch,
        "phase": control.phase,
        "authority": control.authority,
        "strategy": control.strategy,
        **({} if control.is_confirmed else {"confirmed": False}),
    }
    return encode_strict(json.dumps(members, ensure_ascii=True, separators=(",", ":")))


def parse_control(data: bytes) -> ControlRecord:
    """Read it strictly: a program that cannot tell where the authority is must stop.  Raises ``MalformedZnode``.

    Keys that are not known are let pass, for a later release's sake.
    """
    if len(data) > BYTES_MAX:
        raise MalformedZnode(f"{len(data)} bytes are no control znode")
    try:
        members = read_jackson_json(decode_strict(data))
    except (JavaJsonError, RecursionError) as exc:
        raise MalformedZnode(f"control znode: {exc}") from exc
    if not isinstance(members, dict):
        raise MalformedZnode("control znode: not a JSON object")
    texts = {key: members.get(key) for key in ("id", "phase", "strategy")}
    for key, text in texts.items():
        if not isinstance(text, str) or not text:
            raise MalformedZnode(f"control znode: {key} is missing, or no text")
    epoch = members.get("epoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch <= INT64_MAX:
        raise MalformedZnode("control znode: epoch is missing, or no int64")
    authority = _authority(members.get("authority"))
    is_confirmed = members.get("confirmed", True) is not False
    return ControlRecord(str(texts["id"]), epoch, str(texts["phase"]), authority, str(texts["strategy"]), is_confirmed)


def _authority(text: Json) -> Authority:
    match text:
        case "zookeeper" | "kafka":
            return text
    raise MalformedZnode(f"control znode: authority is {str(text)[:40]!r}")
