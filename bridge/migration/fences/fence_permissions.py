"""Checks, before anything is changed, that this login may change the access lists and has the other permissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.migration.fences.fence_acls import AccessList
from bridge.migration.fences.owner_nodes import is_topic
from bridge.migration.inspect.acl_inspection import missing_permissions
from bridge.migration.inspect.required_permissions import missing_permissions_text
from bridge.migration.steps.step import CheckingStep, StepDone, StepRefused, StepStatus
from zkconsumer.admin.admin_session import unexpected_result_error
from zkconsumer.errors import PreconditionFailed
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    IMPOSSIBLE_VERSION,
    OPEN_ACL,
    PERM_ADMIN,
    BadVersion,
    NoAuth,
    NoNode,
    SetAcl,
)

if TYPE_CHECKING:
    from bridge.migration.inspect.required_permissions import GroupZnodes
    from zkconsumer.admin.admin_session import AdminSession

NAMED_MAX = 1_000
"""How many nodes an error names at most."""

PATH_INDEPENDENT_SCHEMES = frozenset({"world", "digest", "sasl", "ip"})
"""Schemes whose entries a server compares with the login only (``matches`` of ZooKeeper's authentication providers for
them).  Another provider receives the path as well, and may use it."""


def fenced_levels(session: AdminSession, group: str, topics: Sequence[str]) -> list[list[str]]:
    """The nodes to which the lists of a fence belong, existing or not; the upper ones first.

    ``ids``; ``owners`` and ``offsets``; those of each topic, also where the group has none yet; the offset znodes.
    """
    roots = [paths.owners(group), paths.offsets(group)]
    found = {root: {path.rpartition("/")[2] for path in some} for root, some in _below(session, roots).items()}
    # A topic with a node below one of them gets one below the other: otherwise the missing node would have no fence.
    all_topics = {*topics, *(name for names in found.values() for name in names if is_topic(name))}
    of_topics = sorted(f"{root}/{name}" for root in roots for name in {*all_topics, *found.get(root, ())})
    leaves = _below(session, [path for path in of_topics if path.startswith(f"{paths.offsets(group)}/")])
    return [[paths.ids(group)], roots, of_topics, sorted(path for some in leaves.values() for path in some)]


def _below(session: AdminSession, parents: Sequence[str]) -> dict[str, list[str]]:
    listed = session.children_of_many(parents)
    return {path: [f"{path}/{name}" for name in children.names] for path, children in listed.items()}


def paths_without_admin(session: AdminSession, lists: dict[str, AccessList | None]) -> list[str]:
    """The nodes whose lists this login may not change, sorted.

    A list may not show it: it names other logins than the world, and only the server knows which of them is this one.
    Then the function sends the server a change that always fails: for one node of those with the same list, since the
    server decides by the list and the login alone; for each node where an entry has a scheme that may use the path
    too.  Raises ``UnavailableError`` when the server does not answer.
    """
    lacking = [path for path, acl in lists.items() if acl is None]
    nodes_of: dict[AccessList, list[str]] = {}
    for path, acl in lists.items():
        if acl:
            nodes_of.setdefault(acl, []).append(path)
    alike: list[list[str]] = []
    for acl, nodes in nodes_of.items():
        if not any(entry.scheme == "world" and entry.perms & PERM_ADMIN for entry in acl):
            alike += [nodes] if all(entry.scheme in PATH_INDEPENDENT_SCHEMES for entry in acl) else _one_by_one(nodes)
    while alike:
        answers = session.request([SetAcl(nodes[0], OPEN_ACL, IMPOSSIBLE_VERSION) for nodes in alike])
        untouched: list[list[str]] = []
        for nodes, answer in zip(alike, answers, strict=True):
            match answer:
                case NoAuth():
                    lacking += nodes
                case BadVersion():
                    pass
                case NoNode():  # it was deleted since the read; its result does not apply to the others
                    untouched += _one_by_one(nodes[1:])
                case _:
                    raise unexpected_result_error(
                        f"ZooKeeper did not report whether we may change the list of {nodes[0]}", answer
                    )
        alike = untouched
    return sorted(lacking)


def _one_by_one(nodes: Sequence[str]) -> list[list[str]]:
    return [[node] for node in nodes]


def missing_admin_text(lacking: Sequence[str]) -> str:
    """The nodes, and what to do."""
    more = f"\n  and {len(lacking) - NAMED_MAX} more" if len(lacking) > NAMED_MAX else ""
    names = "".join(f"\n  {path}" for path in lacking[:NAMED_MAX])
    return (
        f"this login may not change the access lists of {len(lacking)} nodes:{names}{more}\nGive the login that "
        "created them (--zookeeper-auth), or do not use this fence (--no-acl-fence): then a member that resumes "
        "from a long pause can still write its old offsets"
    )


@dataclass(frozen=True, slots=True)
class CheckAclPermissions(CheckingStep):
    """This login may administer every node that is to be fenced; checked before anything is changed."""

    session: AdminSession
    group: str
    topics: tuple[str, ...]

    name = "the right to change the access lists"

    def describe(self) -> list[str]:
        return ["check the permission to change the access lists"]

    def check(self) -> StepStatus:
        levels = fenced_levels(self.session, self.group, self.topics)
        lacking = paths_without_admin(self.session, self.session.get_acls([path for level in levels for path in level]))
        return StepRefused(PreconditionFailed(missing_admin_text(lacking))) if lacking else StepDone()


@dataclass(frozen=True, slots=True)
class CheckPermissions(CheckingStep):
    """This run's login has the permissions that the steps need; checked before anything is changed.

    ``before``: the lists from before a fence, for a rollback.
    """

    session: AdminSession
    nodes: GroupZnodes
    before: Mapping[str, AccessList] = field(default_factory=dict)

    name = "the rights that the steps need"

    def describe(self) -> list[str]:
        return ["check the permissions to create, write and delete nodes"]

    def check(self) -> StepStatus:
        lacking = missing_permissions(self.session, self.nodes, self.before)
        return StepRefused(PreconditionFailed(missing_permissions_text(lacking))) if lacking else StepDone()
