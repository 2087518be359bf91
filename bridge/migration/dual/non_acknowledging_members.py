"""Members of the coordinator group that acknowledge no phase and are not registered in ZooKeeper: Spark queries.  Pure.

    switched     they join, and offer the protocols of the members
    returning    they leave before the comparison; members take their partitions back

A Spark query follows the control znode.  It acknowledges nothing, because the migration waits for it only to leave.  In
the migration's protocol its name distinguishes it: the names of other members are single components of a path.
"""

from __future__ import annotations

from bridge.migration.control.phases import Phase

PHASES_ALLOWING_NON_ACKNOWLEDGING = frozenset({Phase.SWITCHED, Phase.COMPLETED})
"""Phases in which a Spark query may be a member."""

_PREFIX = "guest/"


def non_acknowledging_name(consumer: str) -> str:
    """The name of a Spark query in the coordinator group, instead of a member's consumer id."""
    return f"{_PREFIX}{consumer}"


def is_non_acknowledging_name(name: str) -> bool:
    """Whether a name in the migration's protocol is that of a Spark query."""
    return name.startswith(_PREFIX)


def consumer_of_non_acknowledging(name: str) -> str:
    """The consumer id in the name."""
    return name.removeprefix(_PREFIX)
