"""What a history is allowed: limits of redelivery and tolerances of time.  Pure.

The limits count records that a new ownership of a partition delivers although the previous one had delivered them
already, *without* a kill, pause or expiry as the reason.  ``None`` = as many as the committed offset explains: each of
them is named and counted, and none may be below the lowest offset that the new owner can have read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits and tolerances; a ``policy`` line changes the named fields."""

    ours_to_ours: int | None = 0
    """Records delivered again in one transfer between members of ours."""

    ours_to_scala: int | None = None
    """Ours to Scala: the Scala consumer reads the offset before it acquires; 0 if ``release.settle.ms`` prevents it."""

    scala_to_ours: int | None = None
    """Scala to ours: records that the Scala consumer delivers after its last commit."""

    scala_to_scala: int | None = None
    """Between Scala members, or from one to itself over a rebalance."""

    observer_delay_ms: int = 250
    """How late the observer's lines may be; they are never early."""

    scala_print_delay_ms: int = 100
    """How late a Scala member's ``handed`` may be: its commit counts a record that its program has not yet written."""

    scala_read_window_ms: int = 3_000
    """How long before its acquisition a Scala member can have read the offset from which it starts."""

    zombie_window_ms: int = 10_000
    """How long after it resumes a Scala member may write old offsets."""

    in_hand_at_pause: int = 1
    """Records whose lines a stream of ours may write after its process resumes: they were returned before the pause."""

    zookeeper_plus: int = 0
    """Added to ZooKeeper's value to get the next offset: 1 where it stores the last one (``last``)."""

    acl_fence: int = 1
    """0: fenced without access lists (``--no-acl-fence``), which do not block the offset write of a Scala member."""

    @classmethod
    def check_changes(cls, found: Mapping[str, object]) -> dict[str, int | None]:
        """The changes of a ``policy`` line; raises ``ValueError``."""
        may_be_none = {f.name: "None" in str(f.type) for f in fields(cls)}
        changes: dict[str, int | None] = {}
        for name, value in found.items():
            if name not in may_be_none:
                raise ValueError(f"policy has no field {name!r}")
            if value is None and may_be_none[name]:
                changes[name] = None
            elif type(value) is int and value >= 0:
                changes[name] = value
            else:
                raise ValueError(f"policy {name} cannot be {value!r}")
        return changes

    def changed(self, changes: Mapping[str, int | None]) -> Self:
        """This policy with some fields changed."""
        return replace(self, **self.check_changes(changes))  # type: ignore[arg-type]  # checked by name above

    def limit(self, pair: str) -> int | None:
        """The limit of a transfer: ``ours_to_scala`` and so on."""
        limits = {
            "ours_to_ours": self.ours_to_ours,
            "ours_to_scala": self.ours_to_scala,
            "scala_to_ours": self.scala_to_ours,
            "scala_to_scala": self.scala_to_scala,
        }
        return limits[pair]
