"""Snapshots of groups, for tests of the decisions that depend on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bridge.migration.inspect.group_snapshot import (
    BrokerSnapshot,
    ClusterIds,
    CommittedOffset,
    GroupSnapshot,
    LastLogEntry,
    OwnerSnapshot,
    PartitionSnapshot,
    RegistrationSnapshot,
)
from bridge.migration.plan.decisions import Decisions, OffsetConvention
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.plan.offset_convention import READ_WITHIN_MS
from bridge.migration.plan.start_offsets import make_plan
from zkconsumer.admin.log_ranges import LogRange
from zkconsumer.kafka.coordinator_groups import CoordinatorGroup, CoordinatorGroupMember
from zkconsumer.types import TopicPartition
from zkconsumer.zk.requests import OPEN_ACL, Acl
from zkconsumer.zk.znode_formats import ControlRecord

WRITTEN_MS = 1_416_246_370_000
LOG = LogRange(10, 100)
READ = LastLogEntry(True, WRITTEN_MS - READ_WITHIN_MS)
BROKERS = (BrokerSnapshot("b1:9092", True, "from 3.9.1 on"),)


def tp(partition: int = 0, topic: str = "clicks") -> TopicPartition:
    return TopicPartition(topic, partition)


def partition(number: int = 0, stored: int | None = 42, **more: Any) -> PartitionSnapshot:
    """A partition of clicks; by default with an offset that is no evidence."""
    node = {} if stored is None and "error" not in more else {"version": 3, "written_ms": WRITTEN_MS}
    return PartitionSnapshot(tp(number), stored, **(node | {"log": LOG} | more))


def at_end(number: int = 0, **more: Any) -> PartitionSnapshot:
    return partition(number, LOG.latest, **more)


def one_short(number: int = 0, last: LastLogEntry | None = READ, **more: Any) -> PartitionSnapshot:
    """Its offset is that of the newest record, which existed when the offset was stored."""
    return partition(number, LOG.latest - 1, last_entry=last, **more)


def seen(*partitions: PartitionSnapshot, **more: Any) -> GroupSnapshot:
    """A group without members, with a new broker and without a coordinator group."""
    found = {one.tp: one for one in partitions or (at_end(),)}
    return GroupSnapshot(
        **(
            {
                "group": "g1",
                "at_ms": WRITTEN_MS,
                "members": (),
                "partitions": found,
                "coordinator_group": CoordinatorGroup("Dead"),
                "brokers": BROKERS,
                "retention_ms": 604_800_000,
                "keeps_by_commit": False,
            }
            | more
        )
    )


def plan(
    *partitions: PartitionSnapshot, strategy: Any = "copy", decisions: Decisions | None = None, **more: Any
) -> MigrationPlan:
    return make_plan(
        seen(*partitions, **more), decisions or Decisions(), migration_id="m1", strategy=strategy, made_at_ms=WRITTEN_MS
    )


def member(name: str = "g1_a", kind: str = "zkconsumer", **more: Any) -> RegistrationSnapshot:
    return replace(RegistrationSnapshot(name, kind, "host", "static", {"clicks": 1}), **more)


def rich_plan() -> MigrationPlan:
    """Every field of a plan is something else than its default."""
    own = (Acl(31, "digest", "us:aGFzaA=="), Acl(1, "world", "anyone"))
    root = "/consumers/g1"
    acls = {f"{root}/{name}": OPEN_ACL for name in ("ids", "owners", "offsets", "owners/clicks", "offsets/clicks/0")}
    acls |= {f"{root}/offsets/clicks": own, f"{root}/offsets/clicks/1": own, f"{root}/offsets/clicks/7": own}
    return plan(
        at_end(
            0,
            is_written_by_owner=True,
            owner=OwnerSnapshot("g1_a-0", "zkconsumer"),
            kafka=CommittedOffset(90, "x\u00e9\U0001f600"),
            is_returned=True,
        ),
        one_short(1, LastLogEntry(False), is_older_than_topic=True),
        partition(2, None, error="b'x' (1 bytes) is no number"),
        partition(3, None, log="nobody leads it"),
        partition(4, 5),
        members=(member(), member("g1_b", "scala", host=None, pattern="white_list", error="odd")),
        missing_topics=("gone",),
        offsets_without_partition=(tp(7), TopicPartition("gone", 0)),
        unexpected_nodes=(f"{root}/offsets/a b",),
        acls=acls,
        acls_without_admin=(f"{root}/offsets/clicks",),
        control=ControlRecord("m0", 4, "undone", "zookeeper", "dual"),
        control_version=7,
        control_error="?",
        coordinator_group=CoordinatorGroup(
            "Stable", "consumer", (CoordinatorGroupMember("m-1", "c", "/h", "i", ("clicks",), (tp(1),), "p"),), "range"
        ),
        coordinator_group_error="told",
        kafka_error="away",
        brokers=(*BROKERS, BrokerSnapshot("b2:9092", False, "before 0.9"), BrokerSnapshot("b3:9092", None, "away")),
        retention_ms=60_000,
        keeps_by_commit=True,
        assignment_in_use="range",
        legacy_kafka_commits="it shows",
        last_offset_clients=(f"{root}/api/rebalance",),
        topic_filters=("white_list 'clicks|views'",),
        clusters=ClusterIds("kafka-id", "zookeeper-id"),
        convention_before=OffsetConvention.NEXT,
        decisions=Decisions(offsets={tp(4): 50}, use_older=True, acl_fence=False),
    )
