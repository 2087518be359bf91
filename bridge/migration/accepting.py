"""Whether the group is what the plan was made from: looked at before anything is changed, and again behind the fences.

    before   nobody is registered: offsets that differ make the plan stale (exit code 4, nothing was changed)
    behind   every start is computed again from what is there and the plan's decisions, and must be the plan's;
             drift ends the run, or is accepted: planned anew with the same decisions, and kept beside the plan
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bridge.migration.control import accepted_piece
from bridge.migration.drift import Difference, drift_lines, drift_of, not_told
from bridge.migration.errors import PartlyDone, PlanIsStale, VerificationFailed, group_is_gone
from bridge.migration.look import look_at_group
from bridge.migration.mover import COPYING
from bridge.migration.pieces import keep_child, pack
from bridge.migration.plan_file import plan_bytes
from bridge.migration.plan_json import digest_of
from bridge.migration.step import Done, Refused, Standing, Todo, Waiting
from bridge.migration.targets import follows, planned
from zkconsumer.admin.stores import members_of
from zkconsumer.errors import BrokerUnreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.migration.copies import Copy
    from bridge.migration.moving import Moving
    from bridge.migration.plan import Plan, PlannedPartition
    from bridge.migration.seen import Seen, SeenPartition
    from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class PlanHolds:
    """Nothing has moved since the plan was made, as far as that can hold: members that are registered go on committing.

    ``accept_drift``: whatever has moved is looked at behind the fences.
    """

    moving: Moving
    accept_drift: bool

    name = "the plan holds"
    changes = False

    def describe(self) -> list[str]:
        """See ``Step``."""
        return ["look whether the offsets are what the plan saw"]

    def check(self) -> Standing:
        """See ``Step``."""
        session, group, plan = self.moving.session, self.moving.group, self.moving.plan
        if self.accept_drift or members_of(session, group):
            return Done()
        seen = look_at_group(session, group, with_acls=False)
        if seen is None:
            return Refused(group_is_gone(group))
        untold = not_told(seen)
        if untold:
            return Waiting(f"brokers to tell {untold}")
        # A topic that nobody has stored anything for is the group's only as long as somebody subscribes to it.
        there = replace(plan, partitions=tuple(row for row in plan.partitions if row.tp in seen.partitions))
        found = drift_of(there, seen)
        if not found:
            return Done()
        return Refused(
            PlanIsStale(
                f"group {group} is not what the plan was made from:{_list(found)}\nPlan again (zkconsumer migrate plan "
                f"{group}), or give --accept-drift to carry over what is there, with the plan's decisions"
            )
        )

    def do(self) -> None:
        """There is nothing to do."""


@dataclass(frozen=True, slots=True)
class AcceptDrift:
    """Behind the fences: the group is as the plan that counts says, or what differs was accepted and kept.

    ``has_sat``: the seat was taken by an earlier run, so a value of somebody else in Kafka is an interference.
    """

    moving: Moving
    accept: bool
    has_sat: bool

    name = "the offsets are what the plan saw"
    changes = True

    def describe(self) -> list[str]:
        """See ``Step``."""
        return ["read the offsets again: " + ("what moved is planned anew" if self.accept else "what moved stops it")]

    def check(self) -> Standing:
        """See ``Step``."""
        if not self.moving.stores.is_in(*COPYING):
            return Todo()
        seen, found = self._look()
        untold = not_told(seen)
        if untold:
            return Waiting(f"brokers to tell {untold}")
        altered = self._altered(seen, found)
        if altered:
            return Refused(altered)
        if not found:
            return Done()
        if self.moving.seat.sitting is not None:
            try:
                self.moving.seat.beat()  # who has lost the seat has met somebody, and not an old plan
            except (VerificationFailed, PartlyDone) as error:
                return Refused(error)
        if self.accept:
            return Todo() if not self._refused(seen, found) else Refused(self._not_planned(seen, found))
        group = self.moving.group
        foreign = [one.tp for one in found if self._is_foreign(seen, one.tp)]
        if foreign and self.has_sat:
            return Refused(
                VerificationFailed(
                    f"somebody else committed to Kafka while group {group} was being moved:{_list(found)}\nNothing of "
                    "it was written over. Find out who did; then roll back, or give --accept-drift to take what is "
                    "there with the plan's decisions"
                )
            )
        return Refused(
            PartlyDone(
                f"group {group} is not what the plan was made from:{_list(found)}\nNothing of it was written to Kafka. "
                f"Look at each; then go on with: zkconsumer migrate apply --resume {group} --execute --accept-drift. "
                f"Or go back: zkconsumer migrate rollback {group} --execute"
            )
        )

    def do(self) -> None:
        """See ``Step``."""
        seen, found = self._look()
        untold = not_told(seen)
        if untold:
            raise BrokerUnreachable(f"brokers do not tell {untold}")
        accepted = self._anew(seen, found)
        for number, piece in enumerate(pack(plan_bytes(accepted))):
            keep_child(self.moving.authority, accepted_piece(number), piece, *COPYING)
        self.moving.plan = accepted

    def _look(self) -> tuple[Seen, list[Difference]]:
        self.moving.seat.beat_if_due()
        group = self.moving.group
        seen = look_at_group(self.moving.session, group, with_acls=False)
        if seen is None:
            raise PartlyDone(f"/consumers/{group} is gone. Go back: zkconsumer migrate rollback {group} --execute")
        return seen, drift_of(self.moving.plan, seen)

    def _altered(self, seen: Seen, found: list[Difference]) -> VerificationFailed | None:
        drifted = {one.tp for one in found}
        return altered(self.moving.plan, seen, [row for row in self.moving.plan.partitions if row.tp not in drifted])

    def _is_foreign(self, seen: Seen, tp: TopicPartition) -> bool:
        now, before = seen.partitions.get(tp), self.moving.plan.seen.partitions.get(tp)
        value = None if now is None else now.kafka
        if value is None or value == (None if before is None else before.kafka):
            return False
        return value.provenance is None or not value.provenance.is_of(self.moving.plan.migration_id)

    def _anew(self, seen: Seen, found: list[Difference]) -> Plan:
        plan = self.moving.plan
        moved = {one.tp for one in found}
        rows: list[PlannedPartition] = [row for row in plan.partitions if row.tp not in moved]
        partitions: dict[TopicPartition, SeenPartition] = {row.tp: plan.seen.partitions[row.tp] for row in rows}
        for tp in sorted(moved & seen.partitions.keys()):
            now = before_us(plan, seen.partitions[tp])
            partitions[tp] = now
            rows.append(planned(now, plan.convention, plan.decisions))
        rows.sort(key=lambda row: row.tp)
        ordered = {tp: partitions[tp] for tp in sorted(partitions)}
        anew = replace(plan, seen=replace(plan.seen, partitions=ordered), partitions=tuple(rows), digest="")
        return replace(anew, digest=digest_of(anew))

    def _refused(self, seen: Seen, found: list[Difference]) -> list[PlannedPartition]:
        return [row for row in self._anew(seen, found).partitions if row.refusal]

    def _not_planned(self, seen: Seen, found: list[Difference]) -> PartlyDone:
        rows = self._refused(seen, found)
        shown = "".join(f"\n  {row.tp}: {row.refusal}" for row in rows[:20])
        more = f"\n  and {len(rows) - 20} more" if len(rows) > 20 else ""
        return PartlyDone(
            f"what moved since the plan cannot be accepted with its decisions:{shown}{more}\nGo back, and plan again: "
            f"zkconsumer migrate rollback {self.moving.group} --execute"
        )


@dataclass(frozen=True, slots=True)
class StartsFollow:
    """Where members stay: what the tool commits for partitions that no member carries over follows from the plan."""

    moving: Moving
    copies: Sequence[Copy]

    name = "the starts follow from the decisions"
    changes = False

    def describe(self) -> list[str]:
        """See ``Step``."""
        return ["compute each start again from what is there and the plan's decisions"]

    def check(self) -> Standing:
        """See ``Step``."""
        plan, group = self.moving.plan, self.moving.group
        seen = look_at_group(self.moving.session, group, with_acls=False)
        if seen is None:
            return Done()  # nothing is left to be carried over
        untold = not_told(seen)
        if untold:
            return Waiting(f"brokers to tell {untold}")
        planned_for = {copy.tp: (copy.offset, copy.version) for copy in self.copies}
        rows = [
            row
            for row in plan.partitions
            if row.tp in seen.partitions and planned_for.get(row.tp) == (row.target, row.version)
        ]
        wrong = altered(plan, seen, rows)
        return Refused(wrong) if wrong else Done()

    def do(self) -> None:
        """There is nothing to do."""


def altered(plan: Plan, seen: Seen, rows: Sequence[PlannedPartition]) -> VerificationFailed | None:
    """What to raise when the starts of these rows do not follow from the plan's decisions and from what is there."""
    why = {row.tp: follows(row, before_us(plan, seen.partitions[row.tp]), plan) for row in rows}
    wrong = [Difference(tp, words) for tp, words in why.items() if words]
    if not wrong:
        return None
    return VerificationFailed(
        f"the plan of group {plan.group} was altered, or made by another release: its starts do not follow from its "
        f"decisions and from what is there:{_list(wrong)}\nThis run wrote nothing to Kafka. Go back, and plan again: "
        f"zkconsumer migrate rollback {plan.group} --execute"
    )


def before_us(plan: Plan, now: SeenPartition) -> SeenPartition:
    """A value that this migration wrote to Kafka is no position: the value of before counts.

    So does what the plan knew of a value that is still there.
    """
    whose = None if now.kafka is None else now.kafka.provenance
    before = plan.seen.partitions.get(now.tp)
    kafka = None if before is None else before.kafka
    if now.kafka != kafka and (whose is None or not whose.is_of(plan.migration_id)):
        return now
    return replace(now, kafka=kafka, is_returned=before is not None and before.is_returned)


def _list(found: list[Difference]) -> str:
    return "".join(f"\n  {line}" for line in drift_lines(found))
