"""Reads the checkpoint of a pipeline without Spark; only one on this machine can be read."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.spark.handoff.checkpoint_files import BadCheckpoint, LoggedBatch, local_path, read_checkpoint
from bridge.spark.pipeline.audit.audit_facts import AuditedCheckpoint, PlannedBatch
from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class PipelineCheckpoint:
    """``source_query``: the id under which the source claims; None: it has not planned a batch yet."""

    state: AuditedCheckpoint
    source_query: str | None = None


def read_pipeline_checkpoint(path: str) -> PipelineCheckpoint:
    """The state of the checkpoint in this folder; never raises for one that cannot be read: see ``problem``."""
    try:
        folder = local_path(path)
        if not (folder / "metadata").exists() and not any((folder / "offsets").glob("[0-9]*")):
            # Spark creates the folders of a new checkpoint before it writes the id of the query.
            return PipelineCheckpoint(AuditedCheckpoint())
        found = read_checkpoint(path)
    except (BadCheckpoint, OSError) as error:
        return PipelineCheckpoint(AuditedCheckpoint(problem=str(error)))
    source_query = None
    positions: dict[TopicPartition, int] = {}
    for logged in (found.committed, *found.pending):
        for source in () if logged is None else logged.sources:
            if source.stream_offset is not None:
                source_query = source.stream_offset.query
    for source in () if found.committed is None else found.committed.sources:
        positions.update(source.offsets)
    state = AuditedCheckpoint(
        query=found.query_id,
        done=None if found.committed is None else found.committed.number,
        positions=positions,
        pending=[_planned(each) for each in found.pending],
    )
    return PipelineCheckpoint(state, source_query)


def _planned(logged: LoggedBatch) -> PlannedBatch:
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for source in logged.sources:
        planned = source.stream_offset
        for tp, first in () if planned is None else planned.first.items():
            if planned is not None and first < planned.end[tp]:
                ranges[tp] = first, planned.end[tp]
    return PlannedBatch(logged.number, ranges)
