"""``complete``: the end of a migration that was switched.  What the old group was is kept in a file first.

    the archive is written and read back · owner fences away · access lists back · completed

Of ``dual``, members act by ``switched`` before, and behind it by ``completed``: they are members like any others then.

With ``--keep-fence`` the fences stay, and old members stay locked out.  The offset znodes stay either way, as they were
at the cut-over; ``zkconsumer groups delete`` takes them away, and ``zkconsumer migrate restore`` brings back what the
archive has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bridge.migration.archive import WriteArchive
from bridge.migration.control_steps import ControlTo, HoldRun
from bridge.migration.dual.following import MembersFollow
from bridge.migration.fences.acls import RestoreLists
from bridge.migration.fences.lifting import LiftOwnerFences
from bridge.migration.phases import Phase
from bridge.migration.seat_steps import LeaveSeat
from zkconsumer.errors import PreconditionFailed

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.migration.moving import Moving
    from bridge.migration.step import Step


def check_can_be_completed(group: str, migration_id: str, phase: Phase | None) -> None:
    """Raises ``PreconditionFailed`` in any phase but ``switched`` and ``completed``."""
    if phase not in (Phase.SWITCHED, Phase.COMPLETED):
        where = "has not begun" if phase is None else f"is in phase {phase.value}"
        raise PreconditionFailed(
            f"migration {migration_id} of group {group} {where}, and only one that is switched can be completed. What "
            f"comes next: zkconsumer migrate status {group}"
        )


def complete_steps(moving: Moving, archive: Path, *, keep_fence: bool) -> Iterator[Step]:
    """The steps from where the migration stands.  Each is carried out before the next is asked for."""
    authority, phase = moving.authority, moving.phase
    is_dual = moving.plan.strategy == "dual"
    if phase is Phase.COMPLETED:
        if is_dual:
            yield MembersFollow(authority, moving.stores, Phase.COMPLETED)
        return
    check_can_be_completed(moving.group, authority.migration_id, phase)
    yield HoldRun(authority, moving.who)
    yield LeaveSeat(moving.seat)
    if is_dual:
        yield MembersFollow(authority, moving.stores, Phase.SWITCHED)
    yield WriteArchive(authority, moving.plan.seen.acls, archive)
    if not keep_fence:
        yield LiftOwnerFences(authority, moving.nodes_before)
        if moving.plan.changes_lists:
            yield RestoreLists(authority, moving.topics, moving.plan.seen.acls)
    yield ControlTo(authority, Phase.COMPLETED)
    if is_dual:
        yield MembersFollow(authority, moving.stores, Phase.COMPLETED)
