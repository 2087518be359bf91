"""One member of a group: Kafka's ``MemberMetadata``.  Pure.

What a member said of itself when it joined, what it was given, and the request of it that is parked, if one is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from bridge.coordinator.events import Token

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""(protocol, the member's metadata in it), the one that the member likes best first."""


@dataclass(frozen=True, slots=True)
class DelayedRequest:
    """A request that is answered later, in its version."""

    token: Token
    version: int


@dataclass(slots=True)
class MemberMetadata:
    """``awaiting_join`` and ``awaiting_sync``: what is parked.  ``is_new``: its first rebalance is not done yet."""

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
        """Whether it keeps its place while it restarts (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether a parked request shows that it lives: not that of a new member, whose client may be long gone."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str) -> bytes:
        """Its metadata in a protocol that it supports."""
        return next(metadata for name, metadata in self.supported_protocols if name == protocol)

    def matches(self, protocols: Protocols) -> bool:
        """Whether these are the protocols that are known of it: the same, in the same order, with the same metadata."""
        return self.supported_protocols == protocols

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that it likes best; there must be one that it supports."""
        return next(name for name, _ in self.supported_protocols if name in candidates)
