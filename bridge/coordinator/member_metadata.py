"""One member of a group: Kafka's ``MemberMetadata``.  Pure.

The data of a member's last JoinGroup, its assignment, and its parked request, if it has one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from bridge.coordinator.events import Token

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""(protocol, the member's metadata in it), in the member's order of preference."""


@dataclass(frozen=True, slots=True)
class DelayedRequest:
    """A request that is answered later, in its version."""

    token: Token
    version: int


@dataclass(slots=True)
class MemberMetadata:
    """``awaiting_join`` and ``awaiting_sync``: parked requests.  ``is_new``: its first rebalance is not done yet."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    supported_protocols: Protocols
    assignment: bytes = b""
    awaiting_join: DelayedRequest | None = None
    awaiting_sync: DelayedRequest | None = None
    is_new: bool = False

    @property
    def is_static_member(self) -> bool:
        """Whether it stays a member during a restart (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether a parked request proves that it is alive: not for a new member, whose client may have ended."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str) -> bytes:
        """Its metadata in a protocol that it supports."""
        return next(metadata for name, metadata in self.supported_protocols if name == protocol)

    def matches(self, protocols: Protocols) -> bool:
        """Whether these are its known protocols: the same, in the same order, with the same metadata."""
        return self.supported_protocols == protocols

    def vote(self, candidates: Collection[str]) -> str:
        """The first candidate in its order of preference; it must support one."""
        return next(name for name, _ in self.supported_protocols if name in candidates)
