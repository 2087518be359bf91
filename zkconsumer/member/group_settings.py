"""The settings that the decisions of a member depend on; ``runtime.membership_config`` makes them.  Only values."""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.member.offset_stores import OffsetStoreSelection


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings that decisions depend on; times in ms."""

    member_id: str
    rebalance_backoff_ms: int = 2000
    debounce_ms: int = 50
    drain_timeout_ms: int = 2000
    release_settle_ms: int = 0
    auto_commit: bool = True
    auto_commit_interval_ms: int = 60_000
    diagnose_after_ms: int = 12_000
    session_timeout_ms: int = 6000
    listener_timeout_ms: int = 5000
    offset_stores: OffsetStoreSelection = OffsetStoreSelection.ZOOKEEPER
    kafka_timeout_ms: int = 2500
    kafka_close_timeout_ms: int = 7500
    kafka_close_attempts: int = 6
    new_from_beginning: bool = True
    ignores_older_offsets: bool = False
    follows_control_znode: bool = False
    """True for migrating members: the member continues when Kafka has the authority, and emits ``AnnounceControl``;
    the caller decides what to do."""
