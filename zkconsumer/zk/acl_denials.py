"""Requests that ZooKeeper denied (``NoAuth``): which node's ACL denied them, and which users it allows.

The ACL of the *parent* denies a create or a delete, the node's own ACL a write.  The ACL is read only after a denial.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zkconsumer.zk.requests import (
    PERM_CREATE,
    PERM_DELETE,
    PERM_READ,
    PERM_WRITE,
    Acl,
    CheckOp,
    Create,
    CreateOp,
    Delete,
    DeleteOp,
    GetAcl,
    Op,
    Request,
    Result,
    SetOp,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

DENIAL_NAMES_MAX = 5
_VERBS = {PERM_CREATE: "make nodes below", PERM_DELETE: "delete nodes below", PERM_WRITE: "write", PERM_READ: "read"}


@dataclass(frozen=True, slots=True)
class AclDenial:
    """One node whose ACL denied a request; ``message`` is empty until the ACL was read."""

    path: str
    perm: int
    message: str = ""


def denial_of(refused: Op | Create | Delete) -> AclDenial:
    """The node whose ACL denied this request."""
    parent = refused.path.rpartition("/")[0] or "/"
    match refused:
        case CreateOp() | Create():
            return AclDenial(parent, PERM_CREATE)
        case DeleteOp() | Delete():
            return AclDenial(parent, PERM_DELETE)
        case SetOp():
            return AclDenial(refused.path, PERM_WRITE)
        case CheckOp():
            return AclDenial(refused.path, PERM_READ)


@dataclass(slots=True)
class DenialCollector:
    """The denials of one procedure; ``by_path``: path -> denial."""

    by_path: dict[str, AclDenial] = field(default_factory=dict)

    def add(self, refused: Op | Create | Delete) -> None:
        """Add a request that failed with ``NoAuth``."""
        denial = denial_of(refused)
        self.by_path.setdefault(denial.path, denial)

    def nearest_to(self, path: str) -> AclDenial | None:
        """The denial of this node, or else of its nearest ancestor; None without one."""
        while path:
            if path in self.by_path:
                return self.by_path[path]
            path = path.rpartition("/")[0]
        return None

    def read_acls(self) -> Generator[list[Request], list[Result], None]:
        """Read the ACLs that were not read yet: one round, or none without denials."""
        unexplained = [denial for denial in self.by_path.values() if not denial.message]
        if not unexplained:
            return
        answers = yield [GetAcl(denial.path) for denial in unexplained]
        for denial, answer in zip(unexplained, answers, strict=True):
            self.by_path[denial.path] = AclDenial(denial.path, denial.perm, _words(denial, answer))


def _words(denial: AclDenial, answer: Result) -> str:
    verb = _VERBS[denial.perm]
    if not isinstance(answer, tuple):
        return f"NoAuth: we may not {verb} {denial.path}, and its access control list cannot be read"
    names = _names([entry for entry in answer if isinstance(entry, Acl) and entry.perms & denial.perm])
    return f"NoAuth: only {names} may {verb} {denial.path}" if names else f"NoAuth: no user may {verb} {denial.path}"


def _names(entries: Sequence[Acl]) -> str:
    """Schemes and ids of ACL entries, without password hashes."""
    names = [
        f"{entry.scheme}:{entry.id.partition(':')[0] if entry.scheme == 'digest' else entry.id}" for entry in entries
    ]
    return ", ".join(names[:DENIAL_NAMES_MAX]) + (
        f" and {len(names) - DENIAL_NAMES_MAX} more" if len(names) > DENIAL_NAMES_MAX else ""
    )
