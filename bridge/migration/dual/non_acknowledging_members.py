"""Guests of a group that moves with its members in it: members of the coordinator's group, and of no other.  Pure.

    switched     they come, and offer what the members do
    returning    they leave before anything is compared; members take their share back

A guest is a Spark query.  It follows the control znode, and acknowledges nothing, because nobody waits for it but to
leave.  By the private protocol it is told from a stranger: the names of members are single components of a path.
"""

from __future__ import annotations

from bridge.migration.control.phases import Phase

PHASES_ALLOWING_NON_ACKNOWLEDGING = frozenset({Phase.SWITCHED, Phase.COMPLETED})
"""Phases in which a guest may be there."""

_PREFIX = "guest/"


def non_acknowledging_name(consumer: str) -> str:
    """The name of a Spark query in the coordinator group, in the place of a member's consumer id."""
    return f"{_PREFIX}{consumer}"


def is_non_acknowledging_name(name: str) -> bool:
    """Whether a name that was said there is a guest's."""
    return name.startswith(_PREFIX)


def consumer_of_non_acknowledging(name: str) -> str:
    """Its consumer id."""
    return name.removeprefix(_PREFIX)
