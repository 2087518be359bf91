"""The records of ``__consumer_offsets`` as the coordinator's values.  Pure.

``zkconsumer.wire.group_records`` encodes and decodes their bytes.  Here a field that a version lacks gets its default:
no expiry, no leader epoch, the session timeout as the rebalance timeout.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from bridge.coordinator.events import CoordinatorRecord
from zkconsumer.types import TopicPartition
from zkconsumer.wire import group_records as wire
from zkconsumer.wire.primitives import MalformedMessage

T = TypeVar("T")

_MARKER_KEY = struct.Struct(">hh")
_ABORT, _COMMIT = 0, 1


class UnreadableRecordError(Exception):
    """Why a record of the log is ignored; internal."""


@dataclass(frozen=True, slots=True)
class StoredOffsetValue:
    """One committed offset: the next record to read.  ``expire_timestamp`` None: the broker's retention."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group as it is in the log.  ``current_state_timestamp`` None: not in the record (before 2.1)."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    current_state_timestamp: int | None
    members: tuple[wire.GroupMetadataMember, ...]


@dataclass(frozen=True, slots=True)
class StoredGroupKey:
    """The record is of a group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class StoredOffsetKey:
    """The record is of an offset."""

    group_id: str
    partition: TopicPartition


StoredRecordKey: TypeAlias = StoredGroupKey | StoredOffsetKey

# --- writing -----------------------------------------------------------------------------------------------------


def offset_record(group_id: str, at: TopicPartition, value: StoredOffsetValue, version: int) -> CoordinatorRecord:
    """An offset in this version, or in the one that has a field for its expiry."""
    expires = value.expire_timestamp
    body = wire.OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp,
        expire_timestamp=wire.NO_TIMESTAMP if expires is None else expires,
    )
    written = version if expires is None else wire.EXPIRING_VALUE_VERSION
    return CoordinatorRecord(_offset_key(group_id, at), wire.write_offset_value(body, written))


def offset_tombstone(group_id: str, at: TopicPartition) -> CoordinatorRecord:
    """Deletes the offset."""
    return CoordinatorRecord(_offset_key(group_id, at), None)


def group_record(group_id: str, value: StoredGroup, version: int) -> CoordinatorRecord:
    """A group in this version; fields that the version does not have are lost."""
    since = value.current_state_timestamp
    body = wire.GroupMetadataValue(
        protocol_type=value.protocol_type,
        generation=value.generation_id,
        protocol=value.protocol_name,
        leader=value.leader,
        current_state_timestamp=wire.NO_TIMESTAMP if since is None else since,
        members=list(value.members),
    )
    return CoordinatorRecord(_group_key(group_id), wire.write_group_value(body, version))


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Deletes the group."""
    return CoordinatorRecord(_group_key(group_id), None)


def _offset_key(group_id: str, at: TopicPartition) -> bytes:
    return wire.write_key(wire.OffsetCommitKey(group_id, at.topic, at.partition))


def _group_key(group_id: str) -> bytes:
    return wire.write_key(wire.GroupMetadataKey(group_id))


# --- reading -----------------------------------------------------------------------------------------------------


def _parse(read: Callable[[bytes], T], data: bytes) -> T:
    try:
        return read(data)
    except MalformedMessage as error:
        raise UnreadableRecordError(str(error)) from error


def read_key(data: bytes) -> StoredRecordKey:
    """Parses the key of a record; ``UnreadableRecordError``: an unknown kind."""
    key = _parse(wire.read_key, data)
    match key:
        case wire.GroupMetadataKey(group):
            return StoredGroupKey(group)
        case wire.OffsetCommitKey(group, topic, partition):
            return StoredOffsetKey(group, TopicPartition(topic, partition))
        case wire.UnknownRecordKey(version):
            raise UnreadableRecordError(f"key version {version} is not supported")


def read_offset_value(data: bytes) -> StoredOffsetValue:
    """Parses the value for a ``StoredOffsetKey``; ``UnreadableRecordError``."""
    body = _parse(wire.read_offset_value, data)
    expires = body.expire_timestamp
    return StoredOffsetValue(
        offset=body.offset,
        leader_epoch=body.leader_epoch,
        metadata=body.metadata,
        commit_timestamp=body.commit_timestamp,
        expire_timestamp=None if expires == wire.NO_TIMESTAMP else expires,
    )


def read_group_value(data: bytes) -> StoredGroup:
    """Parses the value for a ``StoredGroupKey``; ``UnreadableRecordError``."""
    body = _parse(wire.read_group_value, data)
    since = body.current_state_timestamp
    for member in body.members:
        if member.rebalance_timeout < 0:
            member.rebalance_timeout = member.session_timeout
    return StoredGroup(
        protocol_type=body.protocol_type,
        generation_id=body.generation,
        protocol_name=body.protocol,
        leader=body.leader,
        current_state_timestamp=None if since == wire.NO_TIMESTAMP else since,
        members=tuple(body.members),
    )


def is_commit_marker(key: bytes) -> bool:
    """Whether a control record commits its transaction; ``UnreadableRecordError``: its key is invalid."""
    if len(key) < _MARKER_KEY.size:
        raise UnreadableRecordError(f"a control record's key has {len(key)} bytes, not {_MARKER_KEY.size}")
    _, kind = _MARKER_KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):
        raise UnreadableRecordError(f"control record type {kind} is not supported")
    return bool(kind == _COMMIT)
