"""The first line of a plan: what applies to the whole group.  Pure; ``plan_json`` has the other lines.

Each access list is written once, under ``acl_lists``, and is referred to by its number.  ``acls`` has the nodes that
belong to no planned partition, and only paths that a fence of this group changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from bridge.migration.control.phases import Strategy
from bridge.migration.inspect.group_snapshot import ClusterIds, GroupSnapshot
from bridge.migration.offsets.provenance import check_migration_id
from bridge.migration.plan import plan_fields as parts
from bridge.migration.plan.decisions import Decisions, ExistingOffsetPolicy, OffsetConvention, OffsetFallback
from bridge.migration.plan.json_object_reader import InvalidJsonError, JsonObjectReader, JsonValue, as_list, as_number
from bridge.migration.plan.migration_plan import MigrationPlan
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zkconsumer.zk.requests import Acl

SCHEMA = "zkconsumer/migration-plan/1"
NAME_CHARS_MAX = 1_000

E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class PlanHeader:
    """A plan and its snapshot, both still without partitions; ``partition_count`` of them follow.  ``acls``: the lists
    by number."""

    plan: MigrationPlan
    snapshot: GroupSnapshot
    partition_count: int
    acls: tuple[tuple[Acl, ...], ...]


def format_plan_header(
    plan: MigrationPlan, lists: Mapping[tuple[Acl, ...], int], paths_of_rows: Iterable[str]
) -> dict[str, JsonValue]:
    """The members of the first line; the nodes ``paths_of_rows`` have their list in a line of their own."""
    seen, own = plan.snapshot, set(paths_of_rows)
    clusters = {"kafka_cluster": seen.clusters.kafka, "zookeeper_cluster": seen.clusters.zookeeper}
    return {
        "schema": SCHEMA,
        "digest": plan.digest,
        "migration_id": plan.migration_id,
        "group": plan.group,
        "strategy": plan.strategy,
        "made_at_ms": plan.made_at_ms,
        "convention": None if plan.convention is None else plan.convention.value,
        "convention_evidence": plan.convention_evidence,
        "refusals": list(plan.refusals),
        "warnings": list(plan.warnings),
        "decisions": _decisions(plan.decisions),
        "seen_at_ms": seen.at_ms,
        "members": [parts.format_member(one) for one in seen.members],
        "missing_topics": list(seen.missing_topics),
        "orphans": [[tp.topic, tp.partition] for tp in seen.offsets_without_partition],
        "odd_nodes": list(seen.unexpected_nodes),
        "acl_lists": [[[one.perms, one.scheme, one.id] for one in acl] for acl in lists],
        "acls": {path: lists[acl] for path, acl in seen.acls.items() if path not in own},
        "no_admin": list(seen.acls_without_admin),
        "lacking": list(seen.missing_permissions),
        "control": None if seen.control is None else parts.format_plan_control(seen.control),
        "control_version": seen.control_version,
        "control_problem": seen.control_error,
        "modern": None if seen.coordinator_group is None else parts.format_coordinator_group(seen.coordinator_group),
        "modern_problem": seen.coordinator_group_error,
        "kafka_problem": seen.kafka_error,
        "brokers": [[one.name, one.supports_groups, one.release] for one in seen.brokers],
        "retention_ms": seen.retention_ms,
        "keeps_by_commit": seen.keeps_by_commit,
        "strategy_in_use": seen.assignment_in_use,
        "legacy_kafka_commits": seen.legacy_kafka_commits,
        "last_writers": list(seen.last_offset_clients),
        "filters": list(seen.topic_filters),
        # Omitted where the ids are unknown: such a plan has the same digest as one of a release without them.
        **{name: known for name, known in clusters.items() if known},
        **{name: text for name, text in _fence_keys(seen).items() if text},
        **({} if seen.convention_before is None else {"convention_before": seen.convention_before.value}),
        "partitions": len(plan.partitions),
    }


def parse_plan_header(members: JsonObjectReader) -> PlanHeader:
    """The first line.  Raises ``InvalidJsonError``."""
    schema = members.text("schema", NAME_CHARS_MAX)
    if schema != SCHEMA:
        raise InvalidJsonError(f"its schema is {schema[:60]!r} and not {SCHEMA!r}: no plan, or another release's")
    group = members.checked("group", paths.check_group)
    digest = members.text("digest", 64)
    lists = tuple(parts.parse_acl(each) for each in members.items("acl_lists"))
    acls = {
        parts.check_fenced_path(group, path): lists[as_number(number, "acls", 0, len(lists) - 1)]
        for path, number in members.take_entries("acls")
    }
    seen = GroupSnapshot(
        group=group,
        at_ms=members.number("seen_at_ms"),
        members=tuple(parts.parse_member(JsonObjectReader(each, "members")) for each in members.items("members")),
        partitions={},
        missing_topics=members.texts("missing_topics"),
        offsets_without_partition=tuple(parts.parse_partition(each, "orphans") for each in members.items("orphans")),
        unexpected_nodes=members.texts("odd_nodes"),
        acls=acls,
        acls_without_admin=members.texts("no_admin"),
        missing_permissions=members.texts("lacking"),
        control=members.nullable("control", lambda name: parts.parse_plan_control(members.take_object(name))),
        control_version=members.nullable("control_version", members.number),
        control_error=members.text("control_problem"),
        coordinator_group=members.nullable(
            "modern", lambda name: parts.parse_coordinator_group(members.take_object(name))
        ),
        coordinator_group_error=members.text("modern_problem"),
        kafka_error=members.text("kafka_problem"),
        brokers=tuple(parts.parse_plan_broker(each) for each in members.items("brokers")),
        retention_ms=members.nullable("retention_ms", members.number),
        keeps_by_commit=members.nullable("keeps_by_commit", members.flag),
        assignment_in_use=members.text("strategy_in_use", NAME_CHARS_MAX),
        legacy_kafka_commits=members.text("legacy_kafka_commits"),
        last_offset_clients=members.texts("last_writers"),
        clusters=ClusterIds(
            members.optional("kafka_cluster", members.text, ""), members.optional("zookeeper_cluster", members.text, "")
        ),
        topic_filters=members.texts("filters"),
        fences_migration_id=members.optional("fences_of", lambda name: members.checked(name, check_migration_id), ""),
        fences_error=members.optional("fences_problem", members.text, ""),
        convention_before=members.optional(
            "convention_before", lambda name: _choice(members, name, OffsetConvention), None
        ),
    )
    plan = MigrationPlan(
        migration_id=members.checked("migration_id", check_migration_id),
        group=group,
        strategy=_strategy(members.text("strategy", NAME_CHARS_MAX)),
        made_at_ms=members.number("made_at_ms"),
        snapshot=seen,
        decisions=_read_decisions(members.take_object("decisions")),
        convention=members.nullable("convention", lambda name: _choice(members, name, OffsetConvention)),
        convention_evidence=members.text("convention_evidence"),
        partitions=(),
        refusals=members.texts("refusals"),
        warnings=members.texts("warnings"),
        digest=digest,
    )
    count = members.number("partitions")
    members.reject_unknown_keys()
    return PlanHeader(plan, seen, count, lists)


def _fence_keys(seen: GroupSnapshot) -> dict[str, str]:
    """Omitted where there are none: such a plan has the same digest as one of a release that did not check."""
    return {"fences_of": seen.fences_migration_id, "fences_problem": seen.fences_error}


def _strategy(word: str) -> Strategy:
    match word:
        case "copy" | "dual":
            return word
    raise InvalidJsonError(f"{word[:50]!r} is no strategy of this release")


def _choice(members: JsonObjectReader, name: str, kind: type[E]) -> E:
    return members.checked(name, kind)


# --- decisions --------------------------------------------------------------------------------------------------


def _decisions(decisions: Decisions) -> dict[str, JsonValue]:
    return {
        "convention": None if decisions.convention is None else decisions.convention.value,
        "missing": decisions.missing.value,
        "out_of_range": decisions.out_of_range.value,
        "existing": decisions.existing.value,
        "use_older": decisions.use_older,
        "acl_fence": decisions.acl_fence,
        "offsets": [[tp.topic, tp.partition, offset] for tp, offset in sorted(decisions.offsets.items())],
        # Omitted without a decision: such a plan has the same digest as one of a release without the option.
        **({} if decisions.offsets_retention_ms is None else {"offsets_retention_ms": decisions.offsets_retention_ms}),
    }


def _read_decisions(members: JsonObjectReader) -> Decisions:
    offsets = {}
    for each in members.items("offsets"):
        topic, partition, offset = as_list(each, "offsets", 3)
        offsets[parts.parse_partition([topic, partition], "offsets")] = as_number(offset, "offsets")
    decisions = Decisions(
        convention=members.nullable("convention", lambda name: _choice(members, name, OffsetConvention)),
        missing=_choice(members, "missing", OffsetFallback),
        out_of_range=_choice(members, "out_of_range", OffsetFallback),
        existing=_choice(members, "existing", ExistingOffsetPolicy),
        use_older=members.flag("use_older"),
        acl_fence=members.flag("acl_fence"),
        offsets=offsets,
        offsets_retention_ms=members.optional("offsets_retention_ms", members.number, None),
    )
    members.reject_unknown_keys()
    return decisions
