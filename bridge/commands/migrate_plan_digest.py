"""Checks ``--plan-digest``: ``apply --resume`` reads the plan from ZooKeeper, so the operator confirms its digest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from zkconsumer.admin.text_format import count_text
from zkconsumer.cli.console import print_message
from zkconsumer.errors import PreconditionFailed, UsageError
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from bridge.migration.plan.migration_plan import MigrationPlan

STARTS_SHOWN_MAX = 20

DIGEST_CHARS = 64


def check_plan_digest(plan: MigrationPlan, given: str | None, again: str, *, do_it: bool) -> None:
    """Allow the execution of a plan from ZooKeeper only with its digest.

    Prints the plan's decisions when the digest is missing.  ``again``: the command with the digest.  Raises
    ``PreconditionFailed`` without the digest, or with another one; a dry run needs none.
    """
    if given is not None and (len(given) != DIGEST_CHARS or not given.isascii() or not given.isalnum()):
        raise UsageError(f"--plan-digest is the {DIGEST_CHARS} digits that 'zkconsumer migrate plan' printed")
    if given == plan.digest:
        return
    for line in plan_summary(plan):
        print_message(line)
    where = paths.control(plan.group)
    if given is not None:
        raise PreconditionFailed(
            f"the plan in {where} has the digest {plan.digest}, not {given}: it is another plan, or it was altered. "
            "Nothing was changed. Continue with the file of the plan that you made (zkconsumer migrate apply "
            f"{plan.group}.plan --execute)"
        )
    if do_it:
        raise PreconditionFailed(
            f"this plan comes from {where}, and any client with write permission there can alter it. Nothing was "
            "changed. Compare its digest with the output of 'zkconsumer migrate plan', or check the plan above; then "
            f"confirm it: {again}"
        )


def plan_summary(plan: MigrationPlan) -> list[str]:
    """The decisions of a plan, without its access lists."""
    decisions = plan.decisions
    made = datetime.fromtimestamp(plan.made_at_ms / 1_000, UTC)
    convention = "not known" if plan.convention is None else plan.convention.value
    lines = [
        f"Plan of group {plan.group}: migration {plan.migration_id}, strategy {plan.strategy}, made "
        f"{made:%Y-%m-%d %H:%M:%S} UTC, digest {plan.digest}",
        f"Decisions: offset convention {convention} ({plan.convention_evidence}), --missing {decisions.missing.value}, "
        f"--out-of-range {decisions.out_of_range.value}, --existing {decisions.existing.value}, --older-than-topic "
        f"{'use' if decisions.use_older else 'refuse'}, {'with' if plan.uses_acl_fence else 'without'} access lists as "
        "a fence",
    ]
    lines += [f"  --offset {tp.topic}:{tp.partition}={offset}" for tp, offset in sorted(decisions.offsets.items())]
    shown = sorted(plan.partitions, key=lambda row: (row.why == "copied", row.tp))
    lines.append(f"Start offsets of {count_text(len(shown), 'partition')}, first those that are not copied:")
    lines += [
        f"  {row.tp}: {'none' if row.stored is None else row.stored} stored, starts at {row.target} ({row.why})"
        for row in shown[:STARTS_SHOWN_MAX]
    ]
    more = len(shown) - STARTS_SHOWN_MAX
    return [*lines, *([f"  and {more} more"] if more > 0 else [])]
