"""The lag of a query, from Spark's progress: for Spark's own Kafka source and for ours.  Pure.

    {"sources": [{"endOffset": {"t": {"0": 9}}, "latestOffset": {"t": {"0": 12}}}]}             format("kafka")
    {"sources": [{"endOffset": {"v": 1, "to": …, "claims": …}, "latestOffset": {"t": …}}]}      format("zkconsumer")

The JVM source computes ``minOffsetsBehindLatest``, ``avgOffsetsBehindLatest`` and ``maxOffsetsBehindLatest`` itself
(Spark 3.1 to 4.2).  A Python source (4.2, 4.3) can neither add metrics to its progress nor describe itself there:
Spark takes ``metrics`` from streams that implement ``ReportsSourceMetrics`` and ``description`` from ``toString()``.
Its own ``PythonMicroBatchStream…`` has neither and asks Python for neither.  So both are computed here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from bridge.spark.source.stream_offset import VERSION, Stats
from zkconsumer.errors import UsageError
from zkconsumer.observe.lag_time import CaughtUp, KnownLagTime, LagTime
from zkconsumer.observe.lag_trend import UNKNOWN_CATCH_UP, CatchUp
from zkconsumer.types import TopicPartition

Format: TypeAlias = Literal["kafka", "zkconsumer"]

TOPICS_SHOWN_MAX = 5
"""The maximum number of topics in a description."""

PROGRESS_CHARS_MAX = 64_000_000
"""A longer text is not parsed (it would name a million partitions)."""


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source of a query that reads Kafka, after a batch.

    ``description``: Spark's; for ``format("zkconsumer")`` its group and topics, as in ``zkconsumer[etl: clicks]``.
    ``end``: the next offset of each partition, at the end of the batch; ``latest``: the end of the log when the batch
    was planned, empty when Spark does not have it (with ``Trigger.AvailableNow``: the end of this run).
    ``owned``: the partitions of the query; for ``format("kafka")`` all that it reads.  ``group`` is empty there.
    """

    number: int
    description: str
    format: Format
    end: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    owned: frozenset[TopicPartition]
    group: str = ""
    stats: Stats = field(default_factory=Stats)

    @property
    def topics(self) -> frozenset[str]:
        """The topics that it has read."""
        return frozenset(tp.topic for tp in self.end)

    @property
    def offsets_behind_latest(self) -> dict[TopicPartition, int]:
        """Records between the query and the end of the log; below zero when the log was truncated since."""
        known = sorted(self.owned & self.end.keys() & self.latest.keys())
        return {tp: self.latest[tp] - self.end[tp] for tp in known}


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a query after a batch.  ``name`` is None for a query without one.

    ``sources`` are those that read Kafka; a query may have none.
    """

    query_id: str
    run_id: str
    name: str | None
    batch: int
    timestamp: str
    sources: tuple[SourceProgress, ...]
    lag_times: Mapping[tuple[int, TopicPartition], LagTime] = field(default_factory=dict)
    """Source number and partition -> the lag in time when the batch began; empty unless a listener observed the query.
    """

    catch_up: CatchUp = UNKNOWN_CATCH_UP
    """Whether the query catches up, all of its partitions together."""

    @property
    def seconds_behind_latest(self) -> dict[tuple[int, TopicPartition], float]:
        """The known lags in seconds, 0 where everything was read; partitions with an unknown one are missing."""
        found: dict[tuple[int, TopicPartition], float] = {}
        for key, each in self.lag_times.items():
            if isinstance(each, CaughtUp):
                found[key] = 0
            elif isinstance(each, KnownLagTime):
                found[key] = each.lag_ms / 1000
        return found

    @property
    def offsets_behind_latest(self) -> list[tuple[SourceProgress, TopicPartition, int]]:
        """Every partition of every source with a known lag."""
        return [(source, tp, behind) for source in self.sources for tp, behind in source.offsets_behind_latest.items()]

    @property
    def metrics(self) -> dict[str, int | float]:
        """The JVM's names and ours; unknown values are missing.

        ``groupLag``: the sum over the partitions of this query (without those of other members: ``zkconsumer lag``).
        ``rebalances``, ``lostOffsets``, ``skippedOffsets``: counted by ``format("zkconsumer")`` since the query began;
        ``skippedOffsets`` does not contain the latest batch.  ``waitingForMigration``: the number of its sources that
        own no partition because their group is being migrated.  ``pythonDecoder``: the number of its sources whose
        planning process has no compiled decoder, so that their records are decoded slowly in Python.

        ``maxSecondsBehindLatest``: the largest lag in seconds, only if that of each partition is known;
        ``secondsNotKnownPartitions``: how many are not.  ``caughtUpInSeconds``: only while the query catches up.
        """
        found: dict[str, int | float] = {}
        numbers = [behind for _, _, behind in self.offsets_behind_latest]
        if numbers:
            found["minOffsetsBehindLatest"] = min(numbers)
            found["avgOffsetsBehindLatest"] = sum(numbers) / len(numbers)
            found["maxOffsetsBehindLatest"] = max(numbers)
            found["groupLag"] = sum(numbers)
        if self.lag_times:
            seconds = self.seconds_behind_latest
            if len(seconds) == len(self.lag_times):
                found["maxSecondsBehindLatest"] = max(seconds.values())
            found["secondsNotKnownPartitions"] = len(self.lag_times) - len(seconds)
        if self.catch_up.in_ms is not None:
            found["caughtUpInSeconds"] = self.catch_up.in_ms / 1000
        if self.sources:
            found["ownedPartitions"] = sum(len(source.owned) for source in self.sources)
        ours = [source.stats for source in self.sources if source.format == "zkconsumer"]
        if ours:
            found["rebalances"] = sum(stats.rebalances for stats in ours)
            found["lostOffsets"] = sum(stats.lost_offsets for stats in ours)
            found["skippedOffsets"] = sum(stats.skipped_offsets for stats in ours)
            found["waitingForMigration"] = sum(stats.waiting_for_migration for stats in ours)
            found["pythonDecoder"] = sum(stats.python_decoder for stats in ours)
        return found


def lag(progress: Mapping[str, Any] | str | bytes | None) -> Lag:
    """The lag of the query after the batch of this progress.

    ``progress``: a ``StreamingQueryProgress`` (``query.lastProgress``, ``event.progress``), a dict, or its JSON.
    Raises ``UsageError`` for other values, and for None: ``query.lastProgress`` is None before the first batch.
    """
    read = _mapping(progress)
    try:
        sources = read["sources"]
        heads = [str(read[name]) for name in ("id", "runId", "timestamp")]
        batch = int(read["batchId"])
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"this is no progress of a streaming query ({error!r}); give query.lastProgress") from error
    name = read.get("name")
    found = tuple(_sources(sources if isinstance(sources, list | tuple) else []))
    return Lag(heads[0], heads[1], None if name is None else str(name), batch, heads[2], found)


def _mapping(progress: Mapping[str, Any] | str | bytes | None) -> Mapping[str, Any]:
    if progress is None:
        raise UsageError("there is no progress yet: query.lastProgress is None before the first batch is over")
    if isinstance(progress, Mapping):
        return progress
    if not isinstance(progress, str | bytes) or len(progress) > PROGRESS_CHARS_MAX:
        raise UsageError("this is no progress of a streaming query; give query.lastProgress, or its JSON")
    try:
        read = json.loads(progress)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"this is not JSON of a query's progress: {error}") from error
    if not isinstance(read, Mapping):
        raise UsageError("this JSON is no progress of a streaming query; give query.lastProgress.json")
    return read


def _sources(sources: list[Any] | tuple[Any, ...]) -> Iterator[SourceProgress]:
    """Those that read Kafka."""
    for number, source in enumerate(sources):
        if not isinstance(source, Mapping):
            continue
        end = _offset(source.get("endOffset")) or _offset(source.get("startOffset"))
        latest = kafka_offsets(_offset(source.get("latestOffset"))) or {}
        if is_ours(end):
            yield _ours(number, end, latest)
        elif (offsets := kafka_offsets(end)) is not None:
            description = str(source.get("description", ""))
            yield SourceProgress(number, description, "kafka", offsets, latest, frozenset(offsets))


def _offset(value: Any) -> Any:
    """An offset as Spark reports it: JSON as text, or as values.  None without one."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None  # pyspark converts a missing offset to "None".


def is_ours(offset: Any) -> bool:
    """Whether an offset is one of ``format("zkconsumer")``: see ``bridge.spark.source.stream_offset``."""
    return isinstance(offset, Mapping) and "v" in offset and "n" in offset


def _ours(number: int, offset: Mapping[str, Any], latest: Mapping[TopicPartition, int]) -> SourceProgress:
    if offset["v"] != VERSION:
        raise UsageError(
            f"source {number} was written by another release (version {offset['v']!r} of its offsets, this release "
            f"reads {VERSION}): read it with the release that runs the query"
        )
    statistics = offset.get("s")
    stats = statistics if isinstance(statistics, Mapping) else {}
    counts = [stats.get(name, 0) for name in ("rebalances", "lostOffsets", "skippedOffsets")]
    rebalances, lost, skipped = (count if isinstance(count, int) else 0 for count in counts)
    end, group = kafka_offsets(offset.get("to")) or {}, str(offset.get("g", ""))
    return SourceProgress(
        number=number,
        description=_described(group, {tp.topic for tp in end} or {tp.topic for tp in latest}),
        format="zkconsumer",
        end=end,
        latest=latest,
        owned=frozenset(kafka_offsets(offset.get("claims")) or ()),
        group=group,
        stats=Stats(rebalances, lost, stats.get("waits") is True, skipped, stats.get("pythonDecoder") is True),
    )


def _described(group: str, topics: Collection[str]) -> str:
    shown = ", ".join(sorted(topics)[:TOPICS_SHOWN_MAX])
    more = len(topics) - TOPICS_SHOWN_MAX
    return f"zkconsumer[{group}{f': {shown}' if shown else ''}{f' and {more} more' if more > 0 else ''}]"


def kafka_offsets(offset: Any) -> dict[TopicPartition, int] | None:
    """``{"t": {"0": 9}}`` as values; None for the offset of another source."""
    if not isinstance(offset, Mapping) or not offset:
        return None
    found: dict[TopicPartition, int] = {}
    for topic, partitions in offset.items():
        if not isinstance(topic, str) or not isinstance(partitions, Mapping):
            return None
        for number, next_offset in partitions.items():
            is_number = isinstance(number, str) and number.isascii() and number.isdigit()
            if not is_number or not isinstance(next_offset, int) or isinstance(next_offset, bool):
                return None
            found[TopicPartition(topic, int(number))] = next_offset
    return found
