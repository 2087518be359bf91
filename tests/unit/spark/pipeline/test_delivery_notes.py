"""What ``zkconsumer pipeline check`` says of topics."""

from __future__ import annotations

from dataclasses import replace

from bridge.spark.pipeline.delivery_notes import delivery_notes
from bridge.spark.pipeline.pipeline_file import parse_pipeline
from bridge.spark.pipeline.pipeline_spec import TopicTarget

FILE = """
[source]
"zookeeper.connect" = "zk:2181"
"group.id" = "clicks"
subscribe = "clicks"
[sink]
format = "parquet"
path = "/data/rows"
[checkpoint]
path = "/data/checkpoint"
"""
SPEC = parse_pipeline(FILE, "clicks.toml")
TARGET = TopicTarget("rows", {}, "none", "all", "/c-lineage/sink", holds_dead_letters=False)


def test_a_pipeline_without_topics_has_no_note() -> None:
    assert delivery_notes(SPEC) == []


def test_each_section_with_a_topic_is_at_least_once_and_has_its_lineage_named() -> None:
    letters = TopicTarget("dead", {}, "none", "all", "/c-lineage/dead-letters", holds_dead_letters=True)
    [rows, dead] = delivery_notes(replace(SPEC, sink=TARGET, dead_letters=letters))
    assert rows.startswith("[sink]: the topic rows: at least once: after a crash or a failed task")
    assert rows.endswith("The offsets of each batch are in /c-lineage/sink")
    assert dead.startswith("[dead-letters]: the topic dead: at least once: ")
    assert dead.endswith(
        "the rows of [sink] are not affected. The offsets of each batch are in /c-lineage/dead-letters"
    )


def test_rows_with_topics_of_their_own_are_named_so() -> None:
    [note] = delivery_notes(replace(SPEC, sink=replace(TARGET, topic=None)))
    assert note.startswith("[sink]: the topics of its rows: at least once: ")
