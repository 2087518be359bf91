"""The formats of all znodes: bytes from and to values.  Pure.  Import all format functions from this module.

    member_registration.py   /consumers/G/ids/C
    kafka_znodes.py          /brokers/ids/N, /brokers/topics/T, …/partitions/P/state
    this module              owner nodes, offset znodes, and the control znode of a migrating group

For any bytes, the result is a value or ``MalformedZnode`` (for a topic always a value), and no other error.
"""

from __future__ import annotations

import json
import re

from zkconsumer.errors import InternalError, MalformedZnode
from zkconsumer.member.group_view import ENDED_PHASES, Authority, ControlRecord
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
    "ENDED_PHASES",
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
"""The beginning of the text in an owner node that is a fence of a migration."""


# --- owners -----------------------------------------------------------------------------------------------------


def format_owner(thread_id: str) -> bytes:
    """The bytes of an owner node: only the thread id."""
    return encode_strict(thread_id)


def parse_owner(data: bytes) -> str:
    """The text of an owner node: a thread id, or any text that another program wrote.

    Raises ``MalformedZnode`` for more than ``OWNER_CHARS_MAX`` bytes.
    """
    if len(data) > OWNER_CHARS_MAX:
        raise MalformedZnode(f"{len(data)} bytes are not a thread id")
    return decode_like_java(data)


_THREAD = re.compile(r"(?P<consumer>.*)-[0-9]{1,10}", re.ASCII | re.DOTALL)


def consumer_of(thread_id: str) -> str:
    """The consumer id in a thread id ``C-N``; the whole text if it has no number of a thread.

    Kafka's old tools always cut at the last ``-``.  kafka-node (HighLevelConsumer, up to 3.0) writes its consumer id,
    ``G_`` and a UUID, without a thread: a cut would leave an id that no member has.
    """
    found = _THREAD.fullmatch(thread_id)
    return found["consumer"] if found else thread_id


# --- offsets ----------------------------------------------------------------------------------------------------

_LONG = re.compile(r"([+-]?)0*([0-9]+)", re.ASCII)
_LONG_DIGITS_MAX = 19


def format_offset(offset: int) -> bytes:
    """The bytes of a stored offset: the *next* offset to read.  Raises ``InternalError`` for an invalid offset."""
    if not 0 <= offset <= INT64_MAX:
        raise InternalError(f"offset {offset} must not be stored")
    return b"%d" % offset


def parse_offset(data: bytes) -> int:
    """Parse a stored offset as Java's ``Long.parseLong`` does; any negative number means that no offset is stored.

    Java also accepts digits of other scripts.  No program writes them, so this function rejects them as damage.
    Raises ``MalformedZnode`` for any text that is not an int64: empty, blanks, a fraction.
    """
    if len(data) < _LONG_DIGITS_MAX and data.isdigit():
        return int(data)  # the usual case, without the cost of a regular expression
    text = decode_like_java(data) if len(data) <= BYTES_MAX else ""
    found = _LONG.fullmatch(text)
    if found is None or len(found[2]) > _LONG_DIGITS_MAX:
        raise MalformedZnode(f"{data[:40]!r} ({len(data)} bytes) is no number")
    offset = int(found[1] + found[2])
    if not INT64_MIN <= offset <= INT64_MAX:
        raise MalformedZnode(f"{offset} is no int64")
    return offset


# --- the control znode ------------------------------------------------------------------------------------------


def placeholder_client_id(migration_id: str) -> str:
    """The client id and protocol name of the placeholder member of a migration."""
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
    """Parse strictly, because a program that cannot determine the authority must stop.  Raises ``MalformedZnode``.

    Unknown keys are ignored, because later releases may add some.
    """
    if len(data) > BYTES_MAX:
        raise MalformedZnode(f"{len(data)} bytes are not a control znode")
    try:
        members = read_jackson_json(decode_strict(data))
    except (JavaJsonError, RecursionError) as exc:
        raise MalformedZnode(f"control znode: {exc}") from exc
    if not isinstance(members, dict):
        raise MalformedZnode("control znode: not a JSON object")
    texts = {key: members.get(key) for key in ("id", "phase", "strategy")}
    for key, text in texts.items():
        if not isinstance(text, str) or not text:
            raise MalformedZnode(f"control znode: {key} is missing, or not text")
    epoch = members.get("epoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch <= INT64_MAX:
        raise MalformedZnode("control znode: epoch is missing, or not an int64")
    authority = _authority(members.get("authority"))
    is_confirmed = members.get("confirmed", True) is not False
    return ControlRecord(str(texts["id"]), epoch, str(texts["phase"]), authority, str(texts["strategy"]), is_confirmed)


def _authority(text: Json) -> Authority:
    match text:
        case "zookeeper" | "kafka":
            return text
    raise MalformedZnode(f"control znode: authority is {str(text)[:40]!r}")
