"""Groups as a look would have seen them, for tests of what is decided from that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bridge.migration.conventions import READ_WITHIN_MS
from bridge.migration.decisions import Decisions, OffsetConvention
from bridge.migration.plan import Plan
from bridge.migration.seen import (
    Clusters,
    KafkaValue,
    LastEntry,
    Seen,
    SeenBroker,
    SeenMember,
    SeenOwner,
    SeenPartition,
)
from bridge.migration.targets import make_plan
from zkconsumer.admin.log_ranges import LogRange
from zkconsumer.kafka.modern_groups import ModernGroup, ModernMember
from zkconsumer.types import TopicPartition
from zkconsumer.zk.requests import OPEN_ACL, Acl
from zkconsumer.zk.znodes import Control

WRITTEN_MS = 1_416_246_370_000
LOG = LogRange(10, 100)
READ = LastEntry(True, WRITTEN_MS - READ_WITHIN_MS)
BROKERS = (SeenBroker("b1:9092", True, "from 3.9.1 on"),)


def tp(partition: int = 0, topic: str = "clicks") -> TopicPartition:
    return TopicPartition(topic, partition)


def partition(number: int = 0, stored: int | None = 42, **more: Any) -> SeenPartition:
    """A partition of clicks; with an offset that shows nothing unless told otherwise."""
    node = {} if stored is None and "problem" not in more else {"version": 3, "written_ms": WRITTEN_MS}
    return SeenPartition(tp(number), stored, **(node | {"log": LOG} | more))


def at_end(number: int = 0, **more: Any) -> SeenPartition:
    return partition(number, LOG.latest, **more)


def one_short(number: int = 0, last: LastEntry | None = READ, **more: Any) -> SeenPartition:
    """It stands on the newest record, which was there when the offset was stored."""
    return partition(number, LOG.latest - 1, last=last, **more)


def seen(*partitions: SeenPartition, **more: Any) -> Seen:
    """A group at rest: nobody in it, a young broker, no modern group."""
    found = {one.tp: one for one in partitions or (at_end(),)}
    return Seen(
        **({
            "group": "g1", "at_ms": WRITTEN_MS, "members": (), "partitions": found, "modern": ModernGroup("Dead"),
            "brokers": BROKERS, "retention_ms": 604_800_000, "keeps_by_commit": False,
        } | more)
    )  # fmt: skip


def plan(*partitions: SeenPartition, strategy: Any = "copy", decisions: Decisions | None = None, **more: Any) -> Plan:
    return make_plan(
        seen(*partitions, **more), decisions or Decisions(), migration_id="m1", strategy=strategy, made_at_ms=WRITTEN_MS
    )


def member(name: str = "g1_a", kind: str = "zkconsumer", **more: Any) -> SeenMember:
    return replace(SeenMember(name, kind, "host", "static", {"clicks": 1}), **more)


def rich_plan() -> Plan:
    """Every field of a plan is something else than its default."""
    own = (Acl(31, "digest", "us:aGFzaA=="), Acl(1, "world", "anyone"))
    root = "/consumers/g1"
    acls = {f"{root}/{name}": OPEN_ACL for name in ("ids", "owners", "offsets", "owners/clicks", "offsets/clicks/0")}
    acls |= {f"{root}/offsets/clicks": own, f"{root}/offsets/clicks/1": own, f"{root}/offsets/clicks/7": own}
    return plan(
        at_end(
            0, is_ours=True, owner=SeenOwner("g1_a-0", "zkconsumer"), kafka=KafkaValue(90, "x\u00e9\U0001f600"),
            is_returned=True,
        ),
        one_short(1, LastEntry(False), is_older=True),
        partition(2, None, problem="b'x' (1 bytes) is no number"),
        partition(3, None, log="nobody leads it"),
        partition(4, 5),
        members=(member(), member("g1_b", "scala", host=None, pattern="white_list", problem="odd")),
        missing_topics=("gone",),
        orphans=(tp(7), TopicPartition("gone", 0)),
        odd_nodes=(f"{root}/offsets/a b",),
        acls=acls,
        no_admin=(f"{root}/offsets/clicks",),
        control=Control("m0", 4, "undone", "zookeeper", "dual"),
        control_version=7,
        control_problem="?",
        modern=ModernGroup(
            "Stable", "consumer", (ModernMember("m-1", "c", "/h", "i", ("clicks",), (tp(1),), "p"),), "range"
        ),
        modern_problem="told",
        kafka_problem="away",
        brokers=(*BROKERS, SeenBroker("b2:9092", False, "before 0.9"), SeenBroker("b3:9092", None, "away")),
        retention_ms=60_000,
        keeps_by_commit=True,
        strategy_in_use="range",
        legacy_kafka_commits="it shows",
        last_writers=(f"{root}/api/rebalance",),
        filters=("white_list 'clicks|views'",),
        clusters=Clusters("kafka-id", "zookeeper-id"),
        convention_before=OffsetConvention.NEXT,
        decisions=Decisions(offsets={tp(4): 50}, use_older=True, acl_fence=False),
    )
