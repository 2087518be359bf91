"""Checks the access lists of the control znode, its parents and its children, and refuses those of another login.

Every command that executes steps does this before it reads the plan there, and again as its first step: a client that
can write below the control znode controls the copied offsets, and the lists that a rollback restores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bridge.migration.control.acl_policy import (
    ControlAcls,
    RunAclPolicy,
    belongs_to_other_login,
    format_acl,
    format_acl_logins,
    group_logins,
    invalid_acls,
    is_open,
    is_unmasked,
)
from bridge.migration.fences.fence_acls import is_fence, is_fence_acl_entry
from bridge.migration.fences.owner_nodes import is_topic
from bridge.migration.steps.step import CheckingStep, StepDone, StepRefused, StepStatus
from zkconsumer.admin.admin_session import unexpected_result_error
from zkconsumer.errors import PreconditionFailed
from zkconsumer.zk import paths
from zkconsumer.zk.requests import IMPOSSIBLE_VERSION, OPEN_ACL, BadVersion, NoAuth, NoNode, SetAcl
from zkconsumer.zk.zk_security import zk_login_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.zk.requests import Acl

NAMED_MAX = 20


def acl_policy_of(session: AdminSession) -> RunAclPolicy:
    """The lists that a run in this session gives its nodes: by the login of the configuration.

    A digest that ``fence_login.open_fence_session`` generates is no login of the run's own: the next run has another.
    """
    return RunAclPolicy(zk_login_of(session.config))


def check_control_acls(session: AdminSession, group: str) -> None:
    """The control znode, its parents and its children are as a run with this session's login leaves them.

    Raises ``PreconditionFailed`` with each node that is not, what it has, and what to do; ``UnavailableError``.
    """
    access = acl_policy_of(session)
    control = paths.control(group)
    parents = paths.parents(control)
    lists = session.get_acls([*parents, control])
    found = ControlAcls(
        _known_acls({path: lists[path] for path in parents if path in lists}), _known_acls(lists).get(control), {}
    )
    if lists.get(control, ()) is None or belongs_to_other_login(found, access):
        raise PreconditionFailed(
            f"{control} belongs to {format_acl_logins(found.control or ())}, and this run has {access.login_text}: "
            f"only the login that began the migration of group {group} can continue it. Nothing was changed. Give that "
            "login with --zookeeper-auth"
        )
    if not access.is_protected:
        return
    if found.control is not None:
        listed = session.children(control)
        names = sorted(listed.names) if listed else []
        of_children = session.get_acls([paths.control_child(group, name) for name in names])
        found = replace(
            found, children=_known_acls({path.rpartition("/")[2]: acl for path, acl in of_children.items()})
        )
    wrong = invalid_acls(found, access, control)
    if wrong:
        shown = "".join(f"\n  {one.path} has {one.actual}" for one in wrong[:NAMED_MAX])
        more = f"\n  and {len(wrong) - NAMED_MAX} more" if len(wrong) > NAMED_MAX else ""
        commands = "".join(f"\n  setAcl {one.path} {one.required}" for one in wrong[:NAMED_MAX])
        raise PreconditionFailed(
            f"{len(wrong)} of the nodes that control group {group} can be changed by others than "
            f"{access.login_text}:"
            f"{shown}{more}\nNothing was changed. Check the data of these nodes; then set these lists with "
            f"zkCli.sh, logged in as that login (addauth), and run the same command again:{commands}"
        )
    if found.control is not None:
        _check_may_administer(session, control, access)


def _known_acls(lists: Mapping[str, tuple[Acl, ...] | None]) -> dict[str, tuple[Acl, ...]]:
    return {path: acl or () for path, acl in lists.items()}


def _check_may_administer(session: AdminSession, path: str, access: RunAclPolicy) -> None:
    """Ask the server, which alone knows the login of this session."""
    [answer] = session.request([SetAcl(path, OPEN_ACL, IMPOSSIBLE_VERSION)])
    if isinstance(answer, NoAuth):
        raise PreconditionFailed(
            f"{path} belongs to another login than this run's ({access.login_text}). Nothing was changed. Give the "
            "login that began the migration with --zookeeper-auth"
        )
    if not isinstance(answer, BadVersion | NoNode):
        raise unexpected_result_error(f"ZooKeeper did not answer whether we may administer {path}", answer)


@dataclass(frozen=True, slots=True)
class CheckControlAcls(CheckingStep):
    """See ``check_control_acls``."""

    session: AdminSession
    group: str

    name = "the control znode belongs to this run's login"

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"check the access lists of {paths.control(self.group)}, of its parents and of its children"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        try:
            check_control_acls(self.session, self.group)
        except PreconditionFailed as error:
            return StepRefused(error)
        return StepDone()


# --- the group --------------------------------------------------------------------------------------------------


def read_group_acls(session: AdminSession, group: str) -> dict[str, tuple[Acl, ...]]:
    """The lists of ``ids``, ``owners``, ``offsets`` and of what each topic has below the latter two, by path."""
    roots = [paths.owners(group), paths.offsets(group)]
    listed = session.children_of_many(roots)
    topics = [f"{root}/{name}" for root, some in listed.items() for name in some.names if is_topic(name)]
    return _known_acls(session.get_acls([paths.ids(group), *roots, *sorted(topics)]))


def read_group_logins(session: AdminSession, group: str) -> set[tuple[str, str]]:
    """The schemes and ids with which the members of a group write owner nodes and offsets.

    Raises ``PreconditionFailed`` where ZooKeeper hides the hash of one.
    """
    lists = {path: acl for path, acl in read_group_acls(session, group).items() if path != paths.ids(group)}
    if not lists:
        lists = _known_acls(session.get_acls([paths.group_root(group)]))
    fenced = [[one for one in acl if not is_fence_acl_entry(one)] for acl in lists.values() if is_fence(acl)]
    found = group_logins([acl for acl in lists.values() if not is_fence(acl)], fenced)
    hidden = [
        path for path, acl in lists.items() if not is_unmasked([one for one in acl if not is_fence_acl_entry(one)])
    ]
    if hidden:
        raise PreconditionFailed(
            f"ZooKeeper does not show the logins of group {group} in the access list of {hidden[0]}, because this run "
            "has no ADMIN permission on it; members and 'zkconsumer migrate abort' need permissions below the control "
            "znode. Use the login of the members, or add ADMIN for this login to that node (--zookeeper-auth)"
        )
    return found


@dataclass(frozen=True, slots=True)
class CheckLoginOfProtectedGroup(CheckingStep):
    """A group with access lists is migrated only by a run that has a login.

    ``planned``: the lists of the plan; empty where it has none, and then the upper nodes of the group are read.
    """

    session: AdminSession
    group: str
    planned: Mapping[str, tuple[Acl, ...]]

    name = "a login where the group has access lists"

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return ["check whether the nodes of the group have access lists, so that the run needs a login"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        if acl_policy_of(self.session).is_protected:
            return StepDone()
        lists = self.planned or read_group_acls(self.session, self.group)
        path = first_protected_path(lists)
        if path is None:
            return StepDone()
        return StepRefused(
            PreconditionFailed(f"{login_required_text(self.group, path, lists[path])} Nothing was changed")
        )


def first_protected_path(lists: Mapping[str, tuple[Acl, ...] | None]) -> str | None:
    """The first path whose list gives the world less than everything, and is no fence."""
    known: dict[tuple[Acl, ...], bool] = {}
    for path, acl in lists.items():
        if acl is not None and not known.setdefault(acl, is_open(acl) or is_fence(acl)):
            return path
    return None


def login_required_text(group: str, path: str, acl: Iterable[Acl]) -> str:
    """The error text for a protected group and a run without a login."""
    return (
        f"group {group} is protected: {path} has the access list {format_acl(tuple(acl))}. Without a login a run would "
        "store its plan and the saved lists where every client can read and change them: give a login with ADMIN "
        "permission on the nodes of the group (--zookeeper-auth)."
    )
