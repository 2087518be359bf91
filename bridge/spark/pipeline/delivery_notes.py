"""What ``zkconsumer pipeline check`` says of a pipeline that writes to topics: how often a record is there.  Pure."""

from __future__ import annotations

from bridge.spark.pipeline.pipeline_spec import PipelineSpec, TopicTarget

_AGAIN = "after a crash or a failed task what was sent of a batch is sent again"


def delivery_notes(spec: PipelineSpec) -> list[str]:
    """A line for each section that writes at least once; none if everything is written exactly once."""
    notes = []
    if isinstance(spec.sink, TopicTarget):
        place = "the topics of its rows" if spec.sink.topic is None else f"the topic {spec.sink.topic}"
        notes.append(
            f"[sink]: {place}: at least once: {_AGAIN}, with the same header zkconsumer.source (brokers from 0.11 on). "
            f"The offsets of each batch are in {spec.sink.lineage_path}"
        )
    if isinstance(spec.dead_letters, TopicTarget):
        notes.append(
            f"[dead-letters]: the topic {spec.dead_letters.topic}: at least once: {_AGAIN}, with the same key; the "
            f"rows of [sink] are not affected. The offsets of each batch are in {spec.dead_letters.lineage_path}"
        )
    return notes
