"""How ``zkconsumer migrate status`` shows the members of a group that moves with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.migration.member.acknowledgement import NO_GENERATION
from zkconsumer.admin.words import count_of

if TYPE_CHECKING:
    from bridge.migration.dual.roster import Follower, Roster


def words_of_member(one: Follower, roster: Roster) -> str:
    """One member in a line."""
    if one.problem:
        return f"{one.consumer}: what it acknowledges cannot be read, {one.problem}"
    if one.said is None:
        kind = "an original member" if one.is_original else "no member that can follow, or one that only just started"
        return f"{one.consumer}: says nothing ({kind})"
    said = one.said
    generation = "in no generation" if said.generation == NO_GENERATION else f"generation {said.generation}"
    behind = f", {count_of(said.behind, 'partition')} behind" if said.behind else ""
    late = "" if one.consumer in roster.acknowledged else ", late"
    gone = "" if one.is_registered else ", not registered"
    return f"{one.consumer}: {said.phase}, epoch {said.epoch}, {generation}{behind}{late}{gone}"


def members_json(roster: Roster) -> list[dict[str, object]]:
    """The same for programs."""
    return [
        {
            "consumer_id": one.consumer,
            "registered": one.is_registered,
            "original": one.is_original,
            "acknowledged": one.consumer in roster.acknowledged,
            "in_group": one.consumer in roster.joined,
            "phase": None if one.said is None else one.said.phase,
            "epoch": None if one.said is None else one.said.epoch,
            "generation": None if one.said is None else one.said.generation,
            "behind": None if one.said is None else one.said.behind,
            "problem": one.problem or None,
        }
        for one in roster.followers.values()
    ]
