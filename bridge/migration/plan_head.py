"""The first line of a plan: what holds for the whole group.  Pure; ``plan_json`` has the other lines.

Access lists are written once each, under ``acl_lists``, and named by their number.  ``acls`` has the nodes that are no
planned partition's, and takes no path outside what a fence of this group changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from bridge.migration import plan_parts as parts
from bridge.migration.decisions import Decisions, Existing, Fallback, OffsetConvention
from bridge.migration.json_members import Json, Members, Wrong, as_list, as_number
from bridge.migration.phases import Strategy
from bridge.migration.plan import Plan
from bridge.migration.provenance import check_migration_id
from bridge.migration.seen import Clusters, Seen
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zkconsumer.zk.requests import Acl

SCHEMA = "zkconsumer/migration-plan/1"
NAME_CHARS_MAX = 1_000

E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class Head:
    """A plan and what was seen, both still without partitions; ``count`` of them follow.  ``lists``: by number."""

    plan: Plan
    seen: Seen
    count: int
    lists: tuple[tuple[Acl, ...], ...]


def written_head(plan: Plan, lists: Mapping[tuple[Acl, ...], int], elsewhere: Iterable[str]) -> dict[str, Json]:
    """The members of the first line; the nodes ``elsewhere`` have their list in a line of their own."""
    seen, own = plan.seen, set(elsewhere)
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
        "members": [parts.member(one) for one in seen.members],
        "missing_topics": list(seen.missing_topics),
        "orphans": [[tp.topic, tp.partition] for tp in seen.orphans],
        "odd_nodes": list(seen.odd_nodes),
        "acl_lists": [[[one.perms, one.scheme, one.id] for one in acl] for acl in lists],
        "acls": {path: lists[acl] for path, acl in seen.acls.items() if path not in own},
        "no_admin": list(seen.no_admin),
        "lacking": list(seen.lacking),
        "control": None if seen.control is None else parts.control(seen.control),
        "control_version": seen.control_version,
        "control_problem": seen.control_problem,
        "modern": None if seen.modern is None else parts.modern(seen.modern),
        "modern_problem": seen.modern_problem,
        "kafka_problem": seen.kafka_problem,
        "brokers": [[one.name, one.has_groups, one.words] for one in seen.brokers],
        "retention_ms": seen.retention_ms,
        "keeps_by_commit": seen.keeps_by_commit,
        "strategy_in_use": seen.strategy_in_use,
        "legacy_kafka_commits": seen.legacy_kafka_commits,
        "last_writers": list(seen.last_writers),
        "filters": list(seen.filters),
        # Left out where nobody told: such a plan has the same digest as one of a release that did not ask.
        **{name: known for name, known in clusters.items() if known},
        **{name: text for name, text in _left_fences(seen).items() if text},
        **({} if seen.convention_before is None else {"convention_before": seen.convention_before.value}),
        "partitions": len(plan.partitions),
    }


def read_head(members: Members) -> Head:
    """The first line.  Raises ``Wrong``."""
    schema = members.text("schema", NAME_CHARS_MAX)
    if schema != SCHEMA:
        raise Wrong(f"its schema is {schema[:60]!r} and not {SCHEMA!r}: no plan, or another release's")
    group = members.checked("group", paths.check_group)
    digest = members.text("digest", 64)
    lists = tuple(parts.acl(each) for each in members.items("acl_lists"))
    acls = {
        parts.fenced(group, path): lists[as_number(number, "acls", 0, len(lists) - 1)]
        for path, number in members.each("acls")
    }
    seen = Seen(
        group=group,
        at_ms=members.number("seen_at_ms"),
        members=tuple(parts.read_member(Members(each, "members")) for each in members.items("members")),
        partitions={},
        missing_topics=members.texts("missing_topics"),
        orphans=tuple(parts.tp(each, "orphans") for each in members.items("orphans")),
        odd_nodes=members.texts("odd_nodes"),
        acls=acls,
        no_admin=members.texts("no_admin"),
        lacking=members.texts("lacking"),
        control=members.or_none("control", lambda name: parts.read_control(members.inside(name))),
        control_version=members.or_none("control_version", members.number),
        control_problem=members.text("control_problem"),
        modern=members.or_none("modern", lambda name: parts.read_modern(members.inside(name))),
        modern_problem=members.text("modern_problem"),
        kafka_problem=members.text("kafka_problem"),
        brokers=tuple(parts.broker(each) for each in members.items("brokers")),
        retention_ms=members.or_none("retention_ms", members.number),
        keeps_by_commit=members.or_none("keeps_by_commit", members.flag),
        strategy_in_use=members.text("strategy_in_use", NAME_CHARS_MAX),
        legacy_kafka_commits=members.text("legacy_kafka_commits"),
        last_writers=members.texts("last_writers"),
        clusters=Clusters(
            members.optional("kafka_cluster", members.text, ""), members.optional("zookeeper_cluster", members.text, "")
        ),
        filters=members.texts("filters"),
        fences_of=members.optional("fences_of", lambda name: members.checked(name, check_migration_id), ""),
        fences_problem=members.optional("fences_problem", members.text, ""),
        convention_before=members.optional(
            "convention_before", lambda name: _choice(members, name, OffsetConvention), None
        ),
    )
    plan = Plan(
        migration_id=members.checked("migration_id", check_migration_id),
        group=group,
        strategy=_strategy(members.text("strategy", NAME_CHARS_MAX)),
        made_at_ms=members.number("made_at_ms"),
        seen=seen,
        decisions=_read_decisions(members.inside("decisions")),
        convention=members.or_none("convention", lambda name: _choice(members, name, OffsetConvention)),
        convention_evidence=members.text("convention_evidence"),
        partitions=(),
        refusals=members.texts("refusals"),
        warnings=members.texts("warnings"),
        digest=digest,
    )
    count = members.number("partitions")
    members.end()
    return Head(plan, seen, count, lists)


def _left_fences(seen: Seen) -> dict[str, str]:
    """Left out where there are none: such a plan has the same digest as one of a release that did not look."""
    return {"fences_of": seen.fences_of, "fences_problem": seen.fences_problem}


def _strategy(word: str) -> Strategy:
    match word:
        case "copy" | "dual":
            return word
    raise Wrong(f"{word[:50]!r} is no strategy of this release")


def _choice(members: Members, name: str, kind: type[E]) -> E:
    return members.checked(name, kind)


# --- decisions --------------------------------------------------------------------------------------------------


def _decisions(decisions: Decisions) -> dict[str, Json]:
    return {
        "convention": None if decisions.convention is None else decisions.convention.value,
        "missing": decisions.missing.value,
        "out_of_range": decisions.out_of_range.value,
        "existing": decisions.existing.value,
        "use_older": decisions.use_older,
        "acl_fence": decisions.acl_fence,
        "offsets": [[tp.topic, tp.partition, offset] for tp, offset in sorted(decisions.offsets.items())],
        # Left out where it was not decided: such a plan has the same digest as one of a release without the option.
        **({} if decisions.offsets_retention_ms is None else {"offsets_retention_ms": decisions.offsets_retention_ms}),
    }


def _read_decisions(members: Members) -> Decisions:
    offsets = {}
    for each in members.items("offsets"):
        topic, partition, offset = as_list(each, "offsets", 3)
        offsets[parts.tp([topic, partition], "offsets")] = as_number(offset, "offsets")
    decisions = Decisions(
        convention=members.or_none("convention", lambda name: _choice(members, name, OffsetConvention)),
        missing=_choice(members, "missing", Fallback),
        out_of_range=_choice(members, "out_of_range", Fallback),
        existing=_choice(members, "existing", Existing),
        use_older=members.flag("use_older"),
        acl_fence=members.flag("acl_fence"),
        offsets=offsets,
        offsets_retention_ms=members.optional("offsets_retention_ms", members.number, None),
    )
    members.end()
    return decisions
