"""The differences between the group coordinators of Kafka's releases, as a table.  Pure.

A row is a property and its values: each is valid from the release beside it on.  ``behaviour_of("1.1.1")`` returns one
column of the table.  The values of 0.9.0.1, 0.10.2.2, 0.11.0.3, 1.1.1, 2.0.1, 3.9.1 and 4.1.1 were observed on those
brokers; the releases in between are those of the change in Kafka's source.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bridge.coordinator.config import GroupCoordinatorConfig
from bridge.coordinator.errors import Errors
from zkconsumer.errors import UsageError

NEWEST_RELEASE = "4.1.1"
OLDEST_RELEASE = "0.9.0.1"
COLUMNS = ("0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.0.1", "2.8.2", "3.6.0", "3.9.1", "4.1.1")
"""One release of each kind, oldest first."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One column.

    ``has_empty_state``: a group without members stays, until its offsets are deleted.  Without: it is deleted at once,
    with a tombstone, and its remaining offsets belong to no group.
    ``has_initial_delay``: a member that joins an empty group waits for others (KIP-134).
    ``extends_delay_of_emptied_group``: also in a group that has had generations.
    ``limits_new_members``: a new member whose client does not return while its JoinGroup is parked is removed after
    five minutes, members without an id are given one first (KIP-394), and ``group.max.size`` applies (KIP-389).
    ``times_out_syncs``: a member that does not send SyncGroup within the rebalance timeout is removed (KAFKA-12487).
    ``checks_coordinator_first``: the order of the checks, see ``GroupCoordinator``.
    ``heartbeat_while_completing``: the answer to a member that has joined and waits for its assignment.
    ``heartbeat_checks_state_first``: a group that is not stable answers 27 to every client.
    ``dead_group_error``: the answer of a group that is being deleted.
    ``commit_checks_state_first``: a group that waits for its leader answers 27 to every commit.
    ``unknown_group_commit_error``: from OffsetCommit v9 on, the answer to a member of a group that does not exist.
    ``rejects_empty_protocol_type``: JoinGroup must name one.
    ``join_error_generation``: the generation in the answer to a JoinGroup that is rejected.
    ``completing_state_name``: the name in DescribeGroups.
    ``describes_committed_only``: a group is described once it has a record in the log.
    ``writes_new_groups``: a record without members is written when a group is created.
    ``group_value_version``, ``offset_value_version``: the versions of written records.
    ``always_writes_expiry``: each offset has its expiry, and expires whether its group has members or not (before
    KIP-211).
    ``group_max_session_timeout_ms``, ``offsets_retention_minutes``: defaults.
    """

    has_empty_state: bool
    has_initial_delay: bool
    extends_delay_of_emptied_group: bool
    limits_new_members: bool
    times_out_syncs: bool
    checks_coordinator_first: bool
    heartbeat_while_completing: Errors
    heartbeat_checks_state_first: bool
    dead_group_error: Errors
    commit_checks_state_first: bool
    unknown_group_commit_error: Errors
    rejects_empty_protocol_type: bool
    join_error_generation: int
    completing_state_name: str
    describes_committed_only: bool
    writes_new_groups: bool
    group_value_version: int
    offset_value_version: int
    always_writes_expiry: bool
    group_max_session_timeout_ms: int
    offsets_retention_minutes: int

    def default_config(self) -> GroupCoordinatorConfig:
        """The defaults of the release, where they differ."""
        return GroupCoordinatorConfig(
            group_max_session_timeout_ms=self.group_max_session_timeout_ms,
            offsets_retention_minutes=self.offsets_retention_minutes,
        )


ROWS: MappingProxyType[str, dict[str, Any]] = MappingProxyType(
    {
        "has_empty_state": {"0.9": False, "0.10.2": True},
        "has_initial_delay": {"0.9": False, "0.11": True},
        "extends_delay_of_emptied_group": {"0.9": False, "4.0": True},
        "limits_new_members": {"0.9": False, "2.2": True},
        "times_out_syncs": {"0.9": False, "2.8.1": True},
        "checks_coordinator_first": {"0.9": True, "2.0": False},
        "heartbeat_while_completing": {"0.9": Errors.REBALANCE_IN_PROGRESS, "2.7": Errors.NONE},
        "heartbeat_checks_state_first": {"0.9": True, "0.10": False},
        "dead_group_error": {"0.9": Errors.UNKNOWN_MEMBER_ID, "2.3": Errors.COORDINATOR_NOT_AVAILABLE},
        "commit_checks_state_first": {"0.9": True, "2.4": False},
        "unknown_group_commit_error": {"0.9": Errors.ILLEGAL_GENERATION, "4.0": Errors.GROUP_ID_NOT_FOUND},
        "rejects_empty_protocol_type": {"0.9": False, "1.0": True},
        "join_error_generation": {"0.9": 0, "2.2": -1},
        "completing_state_name": {"0.9": "AwaitingSync", "1.0": "CompletingRebalance"},
        "describes_committed_only": {"0.9": False, "4.0": True},
        "writes_new_groups": {"0.9": False, "4.0": True},
        "group_value_version": {"0.9": 0, "0.10.1": 1, "2.1": 2, "2.3": 3},
        "offset_value_version": {"0.9": 1, "2.1": 3, "4.1": 4},
        "always_writes_expiry": {"0.9": True, "2.1": False},
        "group_max_session_timeout_ms": {"0.9": 30_000, "0.10.1": 300_000, "2.3": 1_800_000},
        "offsets_retention_minutes": {"0.9": 1_440, "2.0": 10_080},
    }
)
"""Field of ``Behaviour`` → release from which on → answer; releases in ascending order."""


def behaviour_of(release: str = NEWEST_RELEASE) -> Behaviour:
    """The column of a release: ``0.9.0.1`` or later, also only the first numbers of one (``2.8``).

    Raises ``UsageError`` for an invalid release, or one before the group coordinator (0.9).
    """
    asked = _numbers(release)
    if asked < (0, 9):
        raise UsageError(f"release {release} has no group coordinator: name {OLDEST_RELEASE} or a later one")
    answers = {
        row: [answer for since, answer in steps.items() if _numbers(since) <= asked][-1] for row, steps in ROWS.items()
    }
    return Behaviour(**answers)


def _numbers(release: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in release.split("."))
    except ValueError as error:
        raise UsageError(f"{release!r} is not a release: name one as {NEWEST_RELEASE}") from error
