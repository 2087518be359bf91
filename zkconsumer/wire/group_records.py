"""The records of ``__consumer_offsets``: the groups and offsets that coordinators store.  Pure.

    key     0, 1   group, topic, partition    the value is an offset         OffsetKey
            2      group                      the value is a group           GroupKey
            3 …    (4.0, KIP-848 and later)   passed over by whoever does    UnknownRecordKey
                                              not know them
    value   none                              the key is gone (a tombstone)

    offset  0 (0.8.2)  offset, metadata, commit time     group  0 (0.9)     type, generation, protocol, leader, members
            1 (0.9)    + expiry time                            1 (0.10.1)  + rebalance time-out of each member
            2 (2.1)    as 0                                     2 (2.1)     + time of the last change of state
            3 (2.1)    + leader epoch                           3 (2.3)     + instance id of each member
            4          compact, with tagged fields              4           compact, with tagged fields

Brokers write the version that their inter-broker protocol allows, and 1 for an offset with its own expiry time,
which no later version has.  4.1 writes offsets of version 4, and groups of version 3.  A member's subscription and
assignment stay raw bytes (``consumer_protocol`` reads them, if the group is one of consumers).  Reading is strict,
and raises only ``MalformedMessage``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from zkconsumer.errors import UsageError
from zkconsumer.wire.field_types import NO_UUID, blob, int32, int64, text, uuid
from zkconsumer.wire.primitives import Buffer, MalformedMessage
from zkconsumer.wire.schemas.message_schema import array, f, message
from zkconsumer.wire.versioned import decode_body, encode_versioned, version_of

NO_EPOCH = -1
NO_TIMESTAMP = -1
"""No expiry time: the offset has the broker's retention."""

VALUE_HIGHEST = 4
"""The highest version of both values."""

VALUE_WRITTEN = 3
"""The version to write: brokers from 2.3 on read it."""

EXPIRING_VALUE_VERSION = 1
"""The only version of an offset with an expiry time."""

OFFSET_KEY_WRITTEN = 1
"""0.8.2 wrote 0; the layout is the same."""

GROUP_KEY_VERSION = 2

_FLEXIBLE_FROM = 4
_KEY = "group record key"
_OFFSET = "offset record"
_GROUP = "group record"


@dataclass(frozen=True, slots=True)
class OffsetCommitKey:
    """The key of a group's committed offset for one partition."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    """The key of a group's latest state."""

    group: str


@dataclass(frozen=True, slots=True)
class UnknownRecordKey:
    """A record of an unknown type; to be skipped."""

    version: int


GroupRecordKey: TypeAlias = OffsetCommitKey | GroupMetadataKey | UnknownRecordKey


@message
class OffsetCommitValue:
    """``offset``: of the next record to read.  Times are milliseconds since 1970.

    ``leader_epoch`` −1: unknown.  ``topic_id``: zeros, unless the member committed by the topic's id (4.1 and later).
    """

    offset: int = f(int64)
    leader_epoch: int = f(int32, "3+", default=NO_EPOCH)
    metadata: str = f(text, default="")
    commit_timestamp: int = f(int64)
    expire_timestamp: int = f(int64, "1", default=NO_TIMESTAMP, needed=True)
    topic_id: bytes = f(uuid, "4+", tag=0, default=NO_UUID)


@message
class GroupMetadataMember:
    """One member.  ``rebalance_timeout`` and ``session_timeout`` in milliseconds; −1: not told, take the session's."""

    member_id: str = f(text)
    group_instance_id: str | None = f(text, "3+", nullable="3+", default=None)
    client_id: str = f(text)
    client_host: str = f(text)
    rebalance_timeout: int = f(int32, "1+", default=-1)
    session_timeout: int = f(int32)
    subscription: bytes = f(blob)
    assignment: bytes = f(blob)


@message
class GroupMetadataValue:
    """A group in one generation.  ``protocol`` and ``leader`` None: it has no members."""

    protocol_type: str = f(text)
    generation: int = f(int32)
    protocol: str | None = f(text, nullable="0+", default=None)
    leader: str | None = f(text, nullable="0+", default=None)
    current_state_timestamp: int = f(int64, "2+", default=NO_TIMESTAMP)
    members: list[GroupMetadataMember] = f(array(GroupMetadataMember), default_factory=list)


@message
class _OffsetCommitKeyBody:
    group: str = f(text)
    topic: str = f(text)
    partition: int = f(int32)


@message
class _GroupMetadataKeyBody:
    group: str = f(text)


def read_key(data: Buffer) -> GroupRecordKey:
    """Read the key of a record."""
    version = version_of(_KEY, data)
    if version in (0, 1):
        at = decode_body(_KEY, _OffsetCommitKeyBody, data, version)
        return OffsetCommitKey(at.group, at.topic, at.partition)
    if version == GROUP_KEY_VERSION:
        return GroupMetadataKey(decode_body(_KEY, _GroupMetadataKeyBody, data, version).group)
    if version < 0:
        raise MalformedMessage(_KEY, "version", 0, f"negative version {version}")
    return UnknownRecordKey(version)


def write_key(key: OffsetCommitKey | GroupMetadataKey, version: int | None = None) -> bytes:
    """A record's key.  ``version``: 0 or 1 of an offset's (1), 2 of a group's; ``UsageError`` if a name is too long."""
    if isinstance(key, GroupMetadataKey):
        if version not in (None, GROUP_KEY_VERSION):
            raise UsageError(f"the key of a group has version {GROUP_KEY_VERSION}, not {version}")
        return encode_versioned(_KEY, _GroupMetadataKeyBody(group=key.group), GROUP_KEY_VERSION, GROUP_KEY_VERSION)
    body = _OffsetCommitKeyBody(group=key.group, topic=key.topic, partition=key.partition)
    return encode_versioned(_KEY, body, OFFSET_KEY_WRITTEN if version is None else version, OFFSET_KEY_WRITTEN)


def read_offset_value(data: Buffer) -> OffsetCommitValue:
    """The value of an ``OffsetCommitKey``, of any known version."""
    return decode_body(_OFFSET, OffsetCommitValue, data, _checked_version(_OFFSET, data), flexible_from=_FLEXIBLE_FROM)


def write_offset_value(value: OffsetCommitValue, version: int | None = None) -> bytes:
    """The value behind an ``OffsetCommitKey``; without a ``version`` 1 if it has an expiry time, else 3, as brokers
    write.

    ``UsageError``: it has an expiry time and the version has none, or a value does not fit.  What else the version has
    no place for is left out.
    """
    if version is None:
        version = VALUE_WRITTEN if value.expire_timestamp == NO_TIMESTAMP else EXPIRING_VALUE_VERSION
    return encode_versioned(_OFFSET, value, version, VALUE_HIGHEST, flexible_from=_FLEXIBLE_FROM)


def read_group_value(data: Buffer) -> GroupMetadataValue:
    """The value of a ``GroupMetadataKey``, of any known version."""
    return decode_body(_GROUP, GroupMetadataValue, data, _checked_version(_GROUP, data), flexible_from=_FLEXIBLE_FROM)


def write_group_value(value: GroupMetadataValue, version: int = VALUE_WRITTEN) -> bytes:
    """The value behind a ``GroupMetadataKey``; what the version has no place for is left out.  ``UsageError``."""
    return encode_versioned(_GROUP, value, version, VALUE_HIGHEST, flexible_from=_FLEXIBLE_FROM)


def value_version(data: Buffer) -> int:
    """The version that a value was written in, known here or not."""
    return version_of("record value", data)


def _checked_version(name: str, data: Buffer) -> int:
    version = version_of(name, data)
    if not 0 <= version <= VALUE_HIGHEST:
        raise MalformedMessage(name, "version", 0, f"unknown version {version}, known are 0 to {VALUE_HIGHEST}")
    return version
