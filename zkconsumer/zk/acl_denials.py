"""What ZooKeeper refused us for want of rights: which node's access control list stood in the way, and whom it names.

A node that cannot be made or deleted is refused by its *parent's* list, one that cannot be written by its own.  The
list is read only after a refusal, so whoever is refused nothing pays nothing.
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
    """One node whose list does not let us; ``words`` is empty until the list was looked at."""

    path: str
    perm: int
    message: str = ""


def denial_of(refused: Op | Create | Delete) -> AclDenial:
    """The node whose list was asked when this came back with ``NoAuth``."""
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
    """Of one procedure; ``found`` is by path."""

    by_path: dict[str, AclDenial] = field(default_factory=dict)

    def add(self, refused: Op | Create | Delete) -> None:
        """This came back with ``NoAuth``."""
        denial = denial_of(refused)
        self.by_path.setdefault(denial.path, denial)

    def nearest_to(self, path: str) -> AclDenial | None:
        """What stands in the way of a node: the denial of itself, or of the nearest node above it."""
        while path:
            if path in self.by_path:
                return self.by_path[path]
            path = path.rpartition("/")[0]
        return None

    def read_acls(self) -> Generator[list[Request], list[Result], None]:
        """Read the lists that were not looked at yet: one round, and none when nothing was denied."""
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
    return f"NoAuth: only {names} may {verb} {denial.path}" if names else f"NoAuth: nobody may {verb} {denial.path}"


def _names(entries: Sequence[Acl]) -> str:
    """Schemes and ids, without the hashes of passwords."""
    names = [
        f"{entry.scheme}:{entry.id.partition(':')[0] if entry.scheme == 'digest' else entry.id}" for entry in entries
    ]
    return ", ".join(names[:DENIAL_NAMES_MAX]) + (
        f" and {len(names) - DENIAL_NAMES_MAX} more" if len(names) > DENIAL_NAMES_MAX else ""
    )
