"""Formats the participants of a ``dual`` migration for ``zkconsumer migrate status``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.migration.dual.machine.acknowledgement import NO_GENERATION
from zkconsumer.admin.text_format import count_text

if TYPE_CHECKING:
    from bridge.migration.dual.participants import Participant, Participants


def participant_line(one: Participant, roster: Participants) -> str:
    """One participant as one line."""
    if one.error:
        return f"{one.consumer_id}: its acknowledgement cannot be read, {one.error}"
    if one.acknowledgement is None:
        kind = (
            "a Scala consumer"
            if one.is_scala_consumer
            else "a member that cannot migrate, or one that has just started"
        )
        return f"{one.consumer_id}: no acknowledgement ({kind})"
    said = one.acknowledgement
    generation = "in no generation" if said.generation == NO_GENERATION else f"generation {said.generation}"
    behind = f", {count_text(said.behind, 'partition')} behind" if said.behind else ""
    late = "" if one.consumer_id in roster.acknowledged else ", late"
    gone = "" if one.is_registered else ", not registered"
    return f"{one.consumer_id}: {said.phase}, epoch {said.epoch}, {generation}{behind}{late}{gone}"


def participants_json(roster: Participants) -> list[dict[str, object]]:
    """The participants for ``-o json``."""
    return [
        {
            "consumer_id": one.consumer_id,
            "registered": one.is_registered,
            "scala_consumer": one.is_scala_consumer,
            "acknowledged": one.consumer_id in roster.acknowledged,
            "in_coordinator_group": one.consumer_id in roster.in_coordinator_group,
            "phase": None if one.acknowledgement is None else one.acknowledgement.phase,
            "epoch": None if one.acknowledgement is None else one.acknowledgement.epoch,
            "generation": None if one.acknowledgement is None else one.acknowledgement.generation,
            "partitions_behind": None if one.acknowledgement is None else one.acknowledgement.behind,
            "error": one.error or None,
        }
        for one in roster.by_consumer_id.values()
    ]
