"""Selects the offsets of a query's progress that belong to a group.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bridge.spark.monitoring.query_lag import Lag, SourceProgress
from zkconsumer.types import TopicPartition

DESCRIPTIONS_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class SelectedOffsets:
    """``offsets``: the next offset of each partition; ``none_reason``: why there is none, empty when there are some."""

    offsets: Mapping[TopicPartition, int]
    none_reason: str = ""


def choose_source(lag: Lag, topics: frozenset[str] | None, description: str | None) -> SelectedOffsets:
    """The offsets of the selected source: ``description`` is a part of Spark's description of it, ``topics`` are those
    of the group.  Where several sources read one partition, the smallest offset counts.
    """
    if any(source.format == "zkconsumer" for source in lag.sources) and not _kafka(lag):
        return SelectedOffsets(
            {}, 'it reads format("zkconsumer"), which moves the group\'s offsets itself (group.offsets.commit)'
        )
    sources = [source for source in _kafka(lag) if description is None or description in source.description]
    sources = [source for source in sources if topics is None or source.topics & topics]
    if not sources:
        there = [source.description for source in _kafka(lag)]
        shown = ", ".join(there[:DESCRIPTIONS_SHOWN_MAX]) or "none"
        return SelectedOffsets({}, f'no source of format("kafka") in it matches; it has {shown}')
    if len(sources) > 1 and topics is None:
        shown = ", ".join(source.description for source in sources[:DESCRIPTIONS_SHOWN_MAX])
        return SelectedOffsets(
            {}, f"it has several sources ({shown}): select the group's source with topics= or source="
        )
    found: dict[TopicPartition, int] = {}
    for source in sources:
        for tp, offset in source.end.items():
            if topics is None or tp.topic in topics:
                found[tp] = min(offset, found.get(tp, offset))
    return SelectedOffsets(found)


def _kafka(lag: Lag) -> list[SourceProgress]:
    return [source for source in lag.sources if source.format == "kafka"]
