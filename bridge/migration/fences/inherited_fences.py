"""Takes over the fences of a completed migration in the next one.

    plan     contains whose fences exist; the access lists from before those fences replace the present ones
    apply    StoreInheritedAcls: those lists beside the control znode, before ``CreateControlZnode`` deletes the plan
             then this migration sets its own fences, as if there were none

The old plan and its access lists are beside the control znode until the next migration begins.  A plan without the
lists from before the fences could not restore them, and the group would stay closed to old members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_pieces import read_plan_text
from bridge.migration.control.control_znode import ControlZnode, VersionedControl
from bridge.migration.control.phases import Phase
from bridge.migration.fences.fence_acls import is_fence
from bridge.migration.fences.fence_record import parse_fence_record
from bridge.migration.fences.late_acls import read_late_acls, store_late_acls
from bridge.migration.plan.plan_file import plan_from_bytes
from bridge.migration.steps.step import StepDone, StepPending, StepStatus
from zkconsumer.admin.text_format import count_text
from zkconsumer.errors import ZkConsumerError
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from bridge.migration.fences.fence_acls import AccessList
    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.admin.zookeeper_group import ZooKeeperGroup


@dataclass(frozen=True, slots=True)
class InheritedFences:
    """``migration_id``: the completed migration whose fences exist; empty: there are none.

    ``lists``: every access list as it is without a fence; a node that was created for the fence has none.
    ``error``: why that is not known, or why this plan cannot take the fences over; without a period at the end.
    """

    migration_id: str
    acls: Mapping[str, AccessList]
    error: str = ""


def read_inherited_fences(
    session: AdminSession, state: ZooKeeperGroup, lists: Mapping[str, AccessList] | None
) -> InheritedFences:
    """The fences that a completed migration left.  ``lists``: the present lists of the group's nodes; None: not read.

    Raises ``UnavailableError`` when ZooKeeper does not answer.
    """
    control = state.control
    if control is None or control.phase != Phase.COMPLETED.value:
        return InheritedFences("", lists or {})
    fixed = [owner.thread.encode(errors="replace") for owner in state.owners.values() if owner.kind == "persistent"]
    is_marked = any(
        mark.migration_id == control.migration_id for mark in map(parse_fence_record, fixed) if mark is not None
    )
    looked = session.get_acls([paths.ids(state.group)]) if lists is None else lists
    fenced = [path for path, acl in looked.items() if acl is not None and is_fence(acl)]
    if not fenced:
        return InheritedFences(control.migration_id if is_marked else "", lists or {})
    if lists is None:
        problem = f"the access lists of that fence exist ({fenced[0]} and others), and this plan changes no lists"
        return InheritedFences(control.migration_id, {}, problem)
    try:
        before = _acls_before(session, state.group, control.migration_id)
    except ZkConsumerError as error:
        problem = f"the access lists of {count_text(len(fenced), 'node')} before the fence are not known: {error}"
        return InheritedFences(control.migration_id, lists, problem)
    found = {path: before.get(path) if path in fenced else acl for path, acl in lists.items()}
    return InheritedFences(control.migration_id, {path: acl for path, acl in found.items() if acl is not None})


def _acls_before(session: AdminSession, group: str, migration_id: str) -> dict[str, AccessList]:
    planned = plan_from_bytes(read_plan_text(session, group)).snapshot.acls
    return {**planned, **read_late_acls(ControlZnode(session, group, migration_id))}


@dataclass(frozen=True, slots=True)
class StoreInheritedAcls:
    """Stores the access lists from before the fences beside the control znode; ``CreateControlZnode`` keeps them there.

    ``completed_control_znode``: the completed migration, read in the session of this run.  ``lists``: as in the new
    plan.
    """

    completed_control_znode: ControlZnode
    acls: Mapping[str, AccessList]

    name = "store the access lists of before the fences"
    changes = True

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        control = paths.control(self.completed_control_znode.group)
        return [f"write {count_text(len(self.acls), 'access list')} to {control}, for a rollback"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        held = self.completed_control_znode.check_phase(Phase.COMPLETED)
        if not isinstance(held, VersionedControl):
            return held or StepPending()
        return StepPending() if self._unstored() else StepDone()

    def do(self) -> None:
        """See ``MigrationStep``.  Raises ``PartiallyDoneError`` when another migration began meanwhile."""
        self.completed_control_znode.require_phase(Phase.COMPLETED)
        store_late_acls(self.completed_control_znode, self._unstored())

    def _unstored(self) -> dict[str, AccessList]:
        known = read_late_acls(self.completed_control_znode)
        return {path: acl for path, acl in self.acls.items() if known.get(path) != acl}
