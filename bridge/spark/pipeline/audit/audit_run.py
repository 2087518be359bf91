"""``audit_pipeline``: reads everything that an audit compares.

The order matters while the pipeline runs.  Each fact is read before the one that explains it:

    1  the checkpoint, the group's offsets and claims    a batch that is done there ...
    2  reservations                                      (a commit ends a reservation)
    3  lineages                                          ... is in the sink already; newer ones only add to it
    4  the rows of the sink                              those of the lineages are there; newer ones only add to them
    5  the bounds of the logs                            the lineages end before them
    6  entries of ranges whose counts do not close

In another order a batch that is committed meanwhile would be a gap.  Nothing is written, and no group is joined.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.spark.handoff.claim_administration import list_claims
from bridge.spark.handoff.reconcile_plan import current_of
from bridge.spark.options import AssignedPartitions, SourceOptions, SubscribedTopics, read_options
from bridge.spark.pipeline.audit.audit_buckets import BucketSize, TimeBucket, bucket_starts, time_buckets
from bridge.spark.pipeline.audit.audit_facts import (
    AuditedGroup,
    AuditFacts,
    CountedGroup,
    LogSpan,
    MissingLog,
    PartitionLog,
    QueryClaim,
    StoredRows,
    UnknownLog,
)
from bridge.spark.pipeline.audit.audit_findings import AuditFinding, explain
from bridge.spark.pipeline.audit.audit_report import AuditReport
from bridge.spark.pipeline.audit.checkpoint_positions import read_pipeline_checkpoint
from bridge.spark.pipeline.audit.entry_counts import OffsetCounts
from bridge.spark.pipeline.audit.lineage_totals import LineageTotals
from bridge.spark.pipeline.audit.log_entry_reader import LogEntryReader, ReadLimits
from bridge.spark.pipeline.audit.stored_rows import count_stored_rows
from bridge.spark.pipeline.pipeline_spec import PipelineSpec
from bridge.spark.pipeline.secret_options import options_with_secret_file
from bridge.spark.pipeline.secret_reference import ReadFile
from bridge.spark.pipeline.sinks.sink_choice import open_stored
from zkconsumer.admin.admin_session import CONNECTION_TIMEOUT_MS, AdminDependencies, AdminSession
from zkconsumer.admin.group_offset_stores import GroupOffsetStores
from zkconsumer.admin.log_ranges import NO_SUCH_PARTITION, LogRange, log_ranges
from zkconsumer.base.clock import Clock
from zkconsumer.errors import BrokerUnreachable, PreconditionFailed, UnavailableError
from zkconsumer.types import TopicPartition
from zkconsumer.wire.isolation_level import IsolationLevel
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import owner_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.spark.pipeline.sinks.sink_choice import StoredBatches
    from zkconsumer.admin.offset_lines import OffsetStoreName

BUCKETS_MAX = 60
"""The newest buckets; older times are one bucket."""

_EXACT = ("exact", "end")


@dataclass(frozen=True, slots=True)
class AuditLimits:
    """``log_bytes``: of entries that are fetched.  ``time_limit_ms``: for the sink's rows, and again for entries."""

    log_bytes: int
    time_limit_ms: int


@contextmanager
def pipeline_session(
    spec: PipelineSpec,
    environment: Mapping[str, str],
    read_file: ReadFile,
    dependencies: AdminDependencies | None,
    connect_timeout_ms: int = CONNECTION_TIMEOUT_MS,
) -> Iterator[tuple[AdminSession, SourceOptions]]:
    """A connected session with the servers of a pipeline file, and the options of its source.

    Raises ``SecretUnavailableError``, ``InvalidConfigException``, ``ZkTimeoutException``.
    """
    with tempfile.TemporaryDirectory(prefix="zkconsumer-pipeline-") as folder:
        texts = options_with_secret_file(spec.source.options, Path(folder), environment, read_file)
        options = read_options(texts, is_stream=True)
    session = AdminSession(options.config, dependencies)
    session.start(connect_timeout_ms)
    try:
        yield session, options
    finally:
        session.close()


def audit_pipeline(
    spec: PipelineSpec, session: AdminSession, options: SourceOptions, by: BucketSize | None, limits: AuditLimits
) -> AuditReport:
    """Compares the logs, the lineage and the sink of a pipeline.

    Raises ``BrokerUnreachable`` when no broker answers, ``SinkUnavailableError`` when the sink does not, and
    ``InvalidLineageError``; what is unknown of a single partition, of the group or of the checkpoint is a finding.
    """
    clock = session.clock
    sink = open_stored(spec.sink)
    letters = None if spec.dead_letters is None else open_stored(spec.dead_letters)
    checkpoint = read_pipeline_checkpoint(spec.checkpoint.path)
    group = read_group(session, options, checkpoint.source_query)
    reserved = list(sink.reservations())
    totals = LineageTotals()
    for lineage in sink.lineages():
        totals.add(lineage)
    deadline_ms = clock.now_ms() + limits.time_limit_ms
    expected = None if totals.replacements else totals.counts.rows + totals.replays.rows
    rows = count_stored_rows(sink, expected, deadline_ms, clock)
    dead_rows, stored_dead = None, StoredRows()
    if letters is not None:
        dead_rows, stored_dead = _dead_letters(letters, deadline_ms, clock)
    logs = read_logs(session, options, set(totals.partitions))
    deadline_ms = clock.now_ms() + limits.time_limit_ms
    reader = LogEntryReader(
        session.brokers,
        lambda: session.brokers.leaders(None),
        IsolationLevel.of_setting(options.config.isolation_level),
        ReadLimits(limits.log_bytes, deadline_ms),
        clock,
    )
    facts = AuditFacts(
        totals=totals,
        reserved=reserved,
        logs=logs,
        group=group,
        checkpoint=checkpoint.state,
        skip_offsets=options.skip_offsets,
        counted=_counted(totals, logs, reader.count),
        rows=rows,
        dead_letters=stored_dead,
        dead_letter_rows=dead_rows,
    )
    findings = explain(facts)
    buckets = [] if by is None else _read_buckets(session, facts, findings, by)
    return AuditReport(spec.name, facts, findings, buckets)


def _dead_letters(
    letters: StoredBatches, deadline_ms: int, clock: Clock
) -> tuple[dict[tuple[str, int], int], StoredRows]:
    found = {each.key: each.counts.rows for each in letters.lineages() if each.counts.rows}
    return found, count_stored_rows(letters, sum(found.values()), deadline_ms, clock)


def _counted(
    totals: LineageTotals,
    logs: Mapping[TopicPartition, PartitionLog],
    count: Callable[[TopicPartition, int, int, PartitionLog], tuple[OffsetCounts, str]],
) -> list[CountedGroup]:
    made = []
    for group in totals.groups:
        counts: dict[TopicPartition, OffsetCounts] = {}
        problem = ""
        for tp, pairs in group.ranges.items():
            for first, end in pairs:
                found, why = count(tp, first, end, logs.get(tp, MissingLog()))
                counts[tp] = counts.get(tp, OffsetCounts()) + found
                problem = problem or why
        made.append(CountedGroup(group, counts, problem))
    return made


# --- servers ------------------------------------------------------------------------------------------------------


def read_group(session: AdminSession, options: SourceOptions, source_query: str | None) -> AuditedGroup:
    """The group's offsets, owners, and the claims of the query; with a ``problem`` if ZooKeeper does not answer."""
    group = options.config.group_id
    try:
        stores: list[OffsetStoreName] = ["zookeeper"]
        if options.config.offsets_storage == "kafka":
            stores.append("kafka")
        snapshot = GroupOffsetStores(session, group).read(stores)
        store: OffsetStoreName = stores[-1]
        if snapshot.is_migrated and store == "zookeeper":
            store = "kafka"
            snapshot = GroupOffsetStores(session, group).read(["zookeeper", "kafka"])
        convention = "last-consumed" if options.is_last_consumed and store == "zookeeper" else "next"
        offsets = {}
        for tp, stored in snapshot.offsets_in(store).items():
            if (current := current_of(stored, convention)) is not None:
                offsets[tp] = current
        nodes = session.get_many([paths.owner(group, tp) for tp in offsets])
        owners = {tp: owner_text(nodes[path]) for tp in offsets if (path := paths.owner(group, tp)) in nodes}
        claims = {}
        for claim in () if source_query is None else list_claims(session, group, source_query):
            if claim.latest is not None:
                claims[claim.tp] = QueryClaim(claim.latest.batch, claim.latest.first, claim.latest.end)
        return AuditedGroup(offsets, owners, claims)
    except (UnavailableError, PreconditionFailed) as error:
        return AuditedGroup(problem=str(error))


def read_logs(
    session: AdminSession, options: SourceOptions, known: set[TopicPartition]
) -> dict[TopicPartition, PartitionLog]:
    """The logs of the pipeline's topics, and of ``known`` partitions: those that it has read.

    The metadata of all topics are requested, since a broker before 0.11 creates a topic that is named.  Raises
    ``BrokerUnreachable`` when no broker answers.
    """
    metadata = session.brokers.leaders(None)
    selected = {topic for topic in {tp.topic for tp in metadata.partitions} if _is_selected(options, topic)}
    wanted = {tp for tp in metadata.partitions if tp.topic in selected} | known
    existing = {tp for tp in wanted if tp in metadata.partitions}
    found: dict[TopicPartition, PartitionLog] = {tp: MissingLog() for tp in wanted - existing}
    for tp, log in log_ranges(session.brokers, existing).items():
        if isinstance(log, LogRange):
            found[tp] = LogSpan(log.earliest, log.readable_end)
        else:
            found[tp] = MissingLog() if log == NO_SUCH_PARTITION else UnknownLog(log)
    return found


def _is_selected(options: SourceOptions, topic: str) -> bool:
    selection = options.topic_selection
    assert not isinstance(selection, AssignedPartitions), "in a batch only"
    if isinstance(selection, SubscribedTopics):
        return topic in selection.topics
    return selection.is_topic_allowed(topic, options.config.exclude_internal_topics)


def _read_buckets(
    session: AdminSession, facts: AuditFacts, findings: list[AuditFinding], size: BucketSize
) -> list[TimeBucket]:
    """The buckets of the partitions whose messages have times."""
    spans = {tp: log for tp, log in facts.logs.items() if isinstance(log, LogSpan)}
    bounds: dict[TopicPartition, list[int]] = {tp: [] for tp in spans}
    starts: list[int] = []
    for start_ms in bucket_starts(size, session.clock.wall_ms()):
        if not bounds or len(starts) == BUCKETS_MAX:
            break
        try:
            found = log_ranges(session.brokers, bounds, start_ms)
        except BrokerUnreachable:
            return []
        for tp in list(bounds):
            log = found[tp]
            at = log.for_time if isinstance(log, LogRange) else None
            if at is None or at.kind not in _EXACT:
                del bounds[tp]  # its messages have no times, or its leader does not answer now
            else:
                bounds[tp].append(at.offset)
        starts.append(start_ms)
        if all(at[-1] <= spans[tp].start for tp, at in bounds.items()):
            break
    sorted_bounds = {tp: at[::-1] for tp, at in bounds.items()}
    return time_buckets(facts, findings, sorted_bounds, starts[::-1])
