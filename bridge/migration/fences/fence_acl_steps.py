"""The access list fence, which blocks even a member that resumes from a long pause, and its removal.

    ids            no member registers             upper nodes first, so that no client creates nodes below a fenced
    owners, T      no member acquires ownership    node; and ``ids`` before all: when no member can register any more,
    offsets, T, P  no member writes an offset      one more read shows whether one has registered before

The fence is set only while ``ids`` is empty: a live member would keep its owner nodes and stop reading after one try.
Missing nodes are created, or a topic without nodes would be open.  The plan contains the lists from before the fence,
or the step stores them beside the control znode first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bridge.migration.control.acl_policy import WORLD
from bridge.migration.control.control_acls import first_protected_path, login_required_text
from bridge.migration.control.control_znode import TRIES_MAX, ControlZnode
from bridge.migration.control.phases import Phase
from bridge.migration.errors import PartiallyDoneError
from bridge.migration.fences.fence_acl_rules import FenceAclRules, acl_of_parent, blocks_group_logins
from bridge.migration.fences.fence_acls import AccessList, is_fence, is_same_acl, take_over_fence_acls
from bridge.migration.fences.fence_permissions import fenced_levels, missing_admin_text, paths_without_admin
from bridge.migration.fences.fence_removal import FENCE_REMOVAL_PHASES, fence_removal_status
from bridge.migration.fences.late_acls import acls_before_fence, store_late_acls
from bridge.migration.fences.owner_nodes import member_registered_error
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepStatus, StepWaiting
from zkconsumer.admin.admin_session import zk_error_name
from zkconsumer.admin.zookeeper_offset_writes import registered_members
from zkconsumer.errors import PreconditionFailed, UsageError
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Request,
    Result,
    SetAcl,
    StoreError,
    paths_of,
)

ACL_ROUNDS_MAX = 4 * TRIES_MAX
"""How often the step reads the nodes without a fence, or not yet restored: each level of nodes at least once."""

_FENCING = (Phase.FENCING, Phase.RETURNING, Phase.RETURNED)
"""``returned``: while it is not confirmed, and no list was restored yet."""

_FENCED_PHASES = (Phase.FENCED, Phase.COPIED, Phase.VERIFIED, Phase.SWITCHED)


@dataclass(frozen=True, slots=True)
class SetFenceAcls:
    """The lists of a fence on every node of the group.

    ``planned``: the lists in the plan.  ``members_may_delete``: members may still delete their owner nodes.  Without
    it, in phase ``fencing``, the step only removes that permission: no partition has an owner any more.  In phase
    ``returning`` the step sets every list for this run's login.
    """

    control_znode: ControlZnode
    topics: tuple[str, ...]
    planned: Mapping[str, AccessList]
    members_may_delete: bool

    changes = True

    @property
    def name(self) -> str:
        return "access lists" if self.members_may_delete else "access lists: no member deletes owner nodes any more"

    def describe(self) -> list[str]:
        levels = fenced_levels(self.control_znode.session, self.control_znode.group, self.topics)
        return [
            f"change the access lists of {sum(map(len, levels))} nodes, from {levels[0][0]}: the world reads only",
            *self._same_login(),
        ]

    def _same_login(self) -> list[str]:
        if blocks_group_logins(self.control_znode, self.planned):
            return []
        return [
            f"members of the group have the same login as this run ({self.control_znode.acl_policy.login_text}), so "
            "these lists do not block one that resumes from a long pause: the run waits for the longest session instead"
        ]

    def check(self) -> StepStatus:
        held = self.control_znode.check_phase(*_FENCING, *_FENCED_PHASES)
        if isinstance(held, StepRefused):
            return held
        if held is not None and held.phase in _FENCED_PHASES:
            return StepDone()
        members = registered_members(self.control_znode.session, self.control_znode.group)
        if members:
            return StepWaiting(f"{', '.join(members[:5])} to leave ({len(members)} registered)")
        foreign = sorted(path for path, acl in self.planned.items() if is_fence(acl))
        if foreign:
            return StepRefused(
                PreconditionFailed(
                    f"{foreign[0]} and {len(foreign) - 1} more nodes already had the lists of a fence when the plan "
                    "was made, from a migration that was not undone: correct them manually, then make a new plan"
                )
            )
        unfenced = self._unfenced(None if held is None else held.phase)
        there = {path: one.acl for path, one in unfenced.items() if one.acl != ()}
        lacking = paths_without_admin(self.control_znode.session, there)
        if lacking:
            return StepRefused(PartiallyDoneError(f"{missing_admin_text(lacking)}. The completed steps remain"))
        return StepPending() if unfenced else StepDone()

    def do(self) -> None:
        is_first = True
        for _ in range(ACL_ROUNDS_MAX):
            unfenced = self._unfenced(self.control_znode.require_phase(*_FENCING).phase)
            if not unfenced:
                return
            if not self.control_znode.own_acl_entries():
                self.control_znode.require_lock_session()  # raises if the lock was lost: then no login is missing
                raise UsageError("a fence of access lists needs a login: give --zookeeper-auth, or --no-acl-fence")
            self._store_previous_acls(unfenced)
            if self._set(unfenced) and paths.partition_of(next(iter(unfenced))) is not None:
                return  # the lowest level is complete; the check after every step finds what is missing
            if is_first and paths.ids(self.control_znode.group) in unfenced:
                members = registered_members(self.control_znode.session, self.control_znode.group)
                if members:
                    raise member_registered_error(self.control_znode.group, members)
            is_first = False
        raise PartiallyDoneError(
            f"some access lists of group {self.control_znode.group} are not set: nodes are created and deleted, or the "
            "connection broke in every try. The completed steps remain; run the same command again"
        )

    def _levels(self, phase: Phase | None) -> list[list[str]]:
        session, group = self.control_znode.session, self.control_znode.group
        if self.members_may_delete or phase is not Phase.FENCING:
            return fenced_levels(session, group, self.topics)
        listed = session.children(paths.owners(group))
        return [[f"{paths.owners(group)}/{name}" for name in sorted(listed.names if listed else ())]]

    def _unfenced(self, phase: Phase | None) -> dict[str, _UnfencedNode]:
        """The nodes without a fence of the uppermost level that has some, with present and wanted lists."""
        authority = self.control_znode
        identity, wanted = authority.own_acl_entries(), FenceAclRules(authority, self.planned, self.members_may_delete)
        for level in self._levels(phase):
            lists = authority.session.get_acls(level)
            found = {}
            for path in level:
                acl = lists.get(path, ())
                target = wanted.acl_for(path, acl or ())
                if not is_same_acl(acl or (), target, identity):
                    found[path] = _UnfencedNode(acl, target)
            if found:
                return found
        return {}

    def _store_previous_acls(self, unfenced: Mapping[str, _UnfencedNode]) -> None:
        """Store the lists that are no fence, and that neither the plan nor an earlier run contains."""
        known = acls_before_fence(self.control_znode, self.planned)
        late = {
            path: one.acl
            for path, one in unfenced.items()
            if one.acl and not is_fence(one.acl) and (path not in known or set(known[path]) != set(one.acl))
        }
        if not late:
            return
        named = {path: acl for path, acl in late.items() if any(entry.scheme != WORLD for entry in acl)}
        path = None if self.control_znode.acl_policy.is_protected else first_protected_path(named)
        if path is not None:  # every client could read the stored lists
            raise PartiallyDoneError(
                f"{login_required_text(self.control_znode.group, path, named[path])} The completed steps remain: "
                f"roll back (zkconsumer migrate rollback {self.control_znode.group} --execute), and begin again with "
                "that login"
            )
        store_late_acls(self.control_znode, late)

    def _set(self, unfenced: Mapping[str, _UnfencedNode]) -> bool:
        """Set the lists; return whether each of them is certainly set."""
        requests: list[Request] = []
        for path, one in unfenced.items():
            if one.acl == ():
                requests += [*map(Create, paths.parents(path)[:2]), Create(path, acl=one.wanted)]
            else:
                requests.append(SetAcl(path, one.wanted))
        answers = _write_in_lock_session(self.control_znode, requests, NodeExists, NoNode)
        return not any(isinstance(answer, StoreError) for answer in answers)


class _UnfencedNode(NamedTuple):
    """A node without its fence: its present list (``()``: it is missing; None: hidden), and the wanted one."""

    acl: AccessList | None
    wanted: AccessList


@dataclass(frozen=True, slots=True)
class RestoreAcls:
    """Restore every list from before the fence, ``ids`` last; delete empty nodes that were created for the fence.

    The step changes only lists that are a fence, and keeps a list that another client has changed meanwhile.
    """

    control_znode: ControlZnode
    topics: tuple[str, ...]
    planned: Mapping[str, AccessList]

    name = "restore the access lists"
    changes = True

    def describe(self) -> list[str]:
        count = sum(len(fenced) for fenced in self._fenced())
        return [f"restore the access lists of {count} nodes"]

    def check(self) -> StepStatus:
        ended = fence_removal_status(self.control_znode)
        if ended is not None:
            return ended
        return StepPending() if any(self._fenced()) else StepDone()

    def _fenced(self) -> list[list[str]]:
        """The nodes that carry a fence, by level, the lowest first."""
        session = self.control_znode.session
        found = []
        for level in reversed(fenced_levels(session, self.control_znode.group, self.topics)):
            lists = session.get_acls(level)
            found.append([path for path, acl in lists.items() if acl is not None and is_fence(acl)])
        return found

    def do(self) -> None:
        originals = acls_before_fence(self.control_znode, self.planned)
        for _ in range(TRIES_MAX):
            self.control_znode.require_phase(*FENCE_REMOVAL_PHASES)
            levels = self._fenced()
            if not any(levels):
                return
            for level in levels:
                self._restore([path for path in level if path in originals], originals)
                self._remove([path for path in level if path not in originals], originals)
        if any(self._fenced()):
            raise PartiallyDoneError(
                f"some access lists of group {self.control_znode.group} are not restored: the connection broke in "
                "every try. Run the same command again"
            )

    def _restore(self, some: Sequence[str], originals: Mapping[str, AccessList]) -> None:
        lists = {path: originals[path] or acl_of_parent(self.control_znode, path, originals) for path in some}
        _write_in_lock_session(self.control_znode, [SetAcl(path, acl) for path, acl in lists.items()], NoNode)

    def _remove(self, some: Sequence[str], originals: Mapping[str, AccessList]) -> None:
        """Delete nodes that were created for the fence or during it; a node with children gets its parent's list."""
        if not some:
            return
        is_offset = [paths.partition_of(path) is not None for path in some]
        take_over_fence_acls(self.control_znode, sorted({path.rpartition("/")[0] for path in some}))
        removable = [path for path, is_one in zip(some, is_offset, strict=True) if not is_one]
        answers = _write_in_lock_session(self.control_znode, [Delete(path) for path in removable], NoNode, NotEmpty)
        kept = [path for path, answer in zip(removable, answers, strict=True) if isinstance(answer, NotEmpty)]
        offsets = [path for path, is_one in zip(some, is_offset, strict=True) if is_one]
        lists = {path: acl_of_parent(self.control_znode, path, originals) for path in (*kept, *offsets)}
        _write_in_lock_session(self.control_znode, [SetAcl(path, acl) for path, acl in lists.items()], NoNode)


def _write_in_lock_session(
    authority: ControlZnode, requests: Sequence[Request], *passed: type[StoreError]
) -> list[Result]:
    """Execute the operations in the session that has the lock, or none of them.

    The caller reads again what a broken connection left unknown.  Raises ``PartiallyDoneError`` for what is refused.
    """
    answers = authority.write(requests)
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, StoreError) and not isinstance(answer, (ConnectionLost, *passed)):
            [path] = paths_of(request)
            raise PartiallyDoneError(
                f"ZooKeeper refused to change {path}: {zk_error_name(answer)}. The completed steps remain; run the "
                "same command again, with --zookeeper-auth if it needs another login"
            )
    return answers
