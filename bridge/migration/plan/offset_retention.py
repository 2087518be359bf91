"""How long Kafka keeps the offsets that a migration copies.  Pure.

before 2.1    a time after each commit: the commit may contain the time (OffsetCommit v2 to v4), and ours does
2.1 and on    a time after the last member has left (KIP-211): ours contains no time.  A broker obeys a time there, and
              then the offset of an idle partition expires in the first moment without members after it
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from zkconsumer.admin.text_format import duration_text

if TYPE_CHECKING:
    from bridge.migration.inspect.group_snapshot import GroupSnapshot
    from bridge.migration.plan.decisions import Decisions

DEFAULT_RETENTION_MS = 30 * 86_400_000
"""How long brokers before 2.1 are to keep the copied offsets, without a decision and if they keep none longer."""

_LAST_MS = 253_402_300_799_000
"""The last second of the year 9999."""


def effective_retention_ms(seen: GroupSnapshot, decisions: Decisions) -> int:
    """How long brokers before 2.1 are to keep the copied offsets: the decision, else the longer of 30 days and the
    brokers' setting."""
    decided = decisions.offsets_retention_ms
    return max(DEFAULT_RETENTION_MS, seen.retention_ms or 0) if decided is None else decided


def broker_retention_text(seen: GroupSnapshot) -> str:
    """How long the brokers keep an offset by their own setting, as text."""
    return "a day before Kafka 2.0, a week later" if seen.retention_ms is None else duration_text(seen.retention_ms)


def retention_warnings(seen: GroupSnapshot, decisions: Decisions) -> Iterator[str]:
    """Until when the new members must have started, and how long their commits are kept."""
    own = broker_retention_text(seen)
    if seen.keeps_by_commit:
        kept_ms = effective_retention_ms(seen, decisions)
        yield (
            f"these brokers (before 2.1) keep an offset for {own} from its commit (offsets.retention.minutes), also "
            f"while the group has members. The copied offsets are committed for {duration_text(kept_ms)} "
            "(--offsets-retention), "
            f"now until {_utc(seen.at_ms + kept_ms)}: start the new members within that time. What they commit then is "
            f"kept for {own} again: an idle partition whose client does not commit again loses its position then"
        )
        return
    if decisions.offsets_retention_ms is not None and seen.keeps_by_commit is False:
        yield (
            "--offsets-retention is not sent to these brokers (2.1 and later): they keep offsets as long as the group "
            "has members, and an offset with an end of its own would be lost in a moment without any"
        )
    when = "" if seen.retention_ms is None else f", copied now until {_utc(seen.at_ms + seen.retention_ms)}"
    yield (
        f"Kafka keeps the offsets of a group without members for {own} (offsets.retention.minutes){when}: start the "
        "new members within that time"
    )


def _utc(ms: int) -> str:
    return datetime.fromtimestamp(min(ms, _LAST_MS) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
