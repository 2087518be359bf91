"""``ReadState``: what one reader read last, and how its newest attempt ended.  Pure.

A failed read never removes what was read before: the page shows the last good document with its age, beside the error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

Document: TypeAlias = Mapping[str, Any]
"""A JSON object, as a command prints it."""

READ_SHARE_MAX = 20
"""A reader works for at most one twentieth of the time, 5 % of a core, however large its group is."""


@dataclass(frozen=True, slots=True)
class ReadState:
    """``document``: the last good one, None before the first.  ``read_at_ms``: when it was read, since 1970.

    ``tried_at_ms``: when the newest read ended, in any way.  ``error``: why the newest read failed, "" if it did not.
    ``failed_since_ms``: when the failures began.  ``is_absent``: the newest read found that there is no such group.
    ``revision``: grows with each read that changed anything but the times.
    """

    document: Document | None = None
    read_at_ms: int | None = None
    error: str = ""
    failed_since_ms: int | None = None
    is_absent: bool = False
    revision: int = 0
    tried_at_ms: int | None = None

    def with_document(self, document: Document, now_ms: int) -> ReadState:
        """After a successful read."""
        is_same = self.document == document and not self.error and not self.is_absent
        return ReadState(document, now_ms, revision=self.revision + (not is_same), tried_at_ms=now_ms)

    def with_error(self, error: str, now_ms: int) -> ReadState:
        """After a failed read: the document remains."""
        since_ms = now_ms if self.failed_since_ms is None else self.failed_since_ms
        is_same = error == self.error
        revision = self.revision + (not is_same)
        return replace(self, error=error, failed_since_ms=since_ms, revision=revision, tried_at_ms=now_ms)

    def without_group(self, now_ms: int) -> ReadState:
        """After a read that found no such group.  The last document is dropped: it would show a deleted group."""
        revision = self.revision + (not self.is_absent)
        return ReadState(None, now_ms, is_absent=True, revision=revision, tried_at_ms=now_ms)

    @property
    def is_known(self) -> bool:
        """Whether a read has ended, in any way."""
        return self.document is not None or bool(self.error) or self.is_absent

    def to_json(self) -> dict[str, object]:
        """The state without the document, for the page."""
        return {
            "read_at_ms": self.read_at_ms,
            "error": self.error or None,
            "failed_since_ms": self.failed_since_ms,
            "is_absent": self.is_absent,
        }


def next_read_ms(started_ms: int, ended_ms: int, cpu_ms: int, interval_ms: int) -> int:
    """When to read again: ``interval_ms`` after the start, and later if the read used much CPU.

    Waiting for a server that does not answer is no work, so it delays nothing.
    """
    return max(started_ms + interval_ms, ended_ms + cpu_ms * (READ_SHARE_MAX - 1))
