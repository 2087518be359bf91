"""Which access lists the nodes of a migration have, and whether a list belongs to this run's login.  Pure.

    the run has a login of its own (``zookeeper.auth``)
        /zkconsumer, /zkconsumer/groups    created with: the login everything, the world READ.  Required: the world has
                                           at most READ; other logins that an administrator added may have more
        /zkconsumer/groups/G               the login everything, the world READ: members watch it and check its version
        plan-*, accepted-*, acls-*         the login everything, and no entry for others: they contain access lists
                                           with digests (hashes of passwords), and everything that the next run does
        returned-*, journal, run, leave    the login everything, the world READ
        members                            the same; the logins of the group CREATE and DELETE, for acknowledgements
        abort                              the same; the logins of the group WRITE.  It exists from the beginning, since
                                           creating it would need CREATE on the control znode; data in it is a request
    the run has no login of its own        everything is open to the world, as the nodes of an unprotected group are

ZooKeeper checks the *parent's* list for the right to create or delete a child.  Any client may have written the data of
a node that was open before.  So lists that differ from these are refused, and no run changes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_layout import ABORT_CHILD, MEMBERS_CHILD, PRIVATE_PIECE_PREFIXES
from zkconsumer.zk.requests import (
    PERM_ADMIN,
    PERM_ALL,
    PERM_CREATE,
    PERM_DELETE,
    PERM_READ,
    PERM_WRITE,
    Acl,
)
from zkconsumer.zk.zk_security import (
    SECURE_ACL,
    DigestLogin,
    SaslDigestMd5Login,
    SaslGssapiLogin,
    ZkLogin,
    ZkSecurity,
    identities,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PRIVATE_ACL = (Acl(PERM_ALL, "auth", ""),)
"""Everything for the login that creates the node, nothing for any other."""

WORLD = "world"
MASKED_DIGEST = ":x"
"""A server shows this instead of a digest's hash to a client that may not administer the node."""

_PERM_LETTERS = (
    (PERM_CREATE, "c"), (PERM_DELETE, "d"), (PERM_READ, "r"), (PERM_WRITE, "w"), (PERM_ADMIN, "a"),
)  # fmt: skip
_GROUP_LOGIN_PERMS = {MEMBERS_CHILD: PERM_READ | PERM_CREATE | PERM_DELETE, ABORT_CHILD: PERM_READ | PERM_WRITE}
"""The rights of others on a child of the control znode; ``PERM_READ`` on each one that is not here."""


@dataclass(frozen=True, slots=True)
class RunAclPolicy:
    """The lists that a run gives the nodes that it creates.  ``login``: its own; None: it has none."""

    login: ZkLogin | None = None

    @property
    def is_protected(self) -> bool:
        """Whether what the run creates belongs to a login that the next run has too."""
        return self.login is not None

    @property
    def acl(self) -> tuple[Acl, ...] | None:
        """Of a node that others may read.  None: open to the world."""
        return SECURE_ACL if self.is_protected else None

    def acl_of_child(self, name: str) -> tuple[Acl, ...] | None:
        """Of a child of the control znode; ``members`` and ``abort`` get the group's logins besides."""
        if self.is_protected and name.startswith(PRIVATE_PIECE_PREFIXES):
            return PRIVATE_ACL
        return self.acl

    def acl_for_group_logins(self, name: str, logins: Iterable[tuple[str, str]]) -> tuple[Acl, ...]:
        """Of ``members`` or ``abort``, for these schemes and ids."""
        return (*SECURE_ACL, *(Acl(_GROUP_LOGIN_PERMS[name], scheme, who) for scheme, who in sorted(logins)))

    @property
    def login_text(self) -> str:
        """The login as text, without a secret."""
        if self.login is None:
            return "no login of its own (no --zookeeper-auth)"
        return ZkSecurity(login=self.login).user_description


def is_open(acl: Sequence[Acl]) -> bool:
    """Whether the world has every right."""
    return any(entry.scheme == WORLD and entry.perms & PERM_ALL == PERM_ALL for entry in acl)


def is_unmasked(acl: Sequence[Acl]) -> bool:
    """Whether the server showed every digest, so that the list can be given to another node."""
    return not any(entry.scheme == "digest" and entry.id.endswith(MASKED_DIGEST) for entry in acl)


def world_perms(acl: Sequence[Acl]) -> int:
    """The permissions of the world."""
    rights = 0
    for entry in acl:
        if entry.scheme == WORLD:
            rights |= entry.perms
    return rights


def matches_login(entry: Acl, login: ZkLogin) -> bool:
    """Whether an entry can only mean this login.

    A server may extend the name of a SASL user (``user/host@REALM``), and only the server knows the user of a ticket
    without a principal.  So any SASL entry matches then, and the server is also asked for the right to administer.
    """
    match login:
        case DigestLogin():
            return (entry.scheme, entry.id) in identities(login)
        case SaslDigestMd5Login(user):
            return entry.scheme == "sasl" and _short(entry.id) == user
        case SaslGssapiLogin(principal):
            return entry.scheme == "sasl" and (principal is None or _short(entry.id) == _short(principal))


def _short(name: str) -> str:
    return name.partition("@")[0].partition("/")[0]


def format_acl(acl: Sequence[Acl]) -> str:
    """A list in the format of ``zkCli.sh``, without the hashes of passwords."""
    return (
        ",".join(f"{_format_acl_id(entry)}:{format_perms(entry.perms)}" for entry in acl)
        or "a list that this run may not see"
    )


def format_acl_logins(acl: Sequence[Acl]) -> str:
    """The logins that a list gives every right, without the hashes of passwords."""
    found = dict.fromkeys(_format_acl_id(entry) for entry in acl if entry.scheme != WORLD and entry.perms == PERM_ALL)
    return ", ".join(found) or "no login"


def format_perms(perms: int) -> str:
    """Rights as ``zkCli.sh`` writes them."""
    return "".join(letter for perm, letter in _PERM_LETTERS if perms & perm)


def _format_acl_id(entry: Acl) -> str:
    if entry.scheme == "digest":
        return f"digest:{entry.id.partition(':')[0]}:..."
    return f"{entry.scheme}:{entry.id}"


# --- the lists of existing nodes --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControlAcls:
    """The lists of a control znode, its parents and its children, by path.

    ``parents``: of the existing ones.  ``control`` None: there is no control znode.  ``children``: by name.
    """

    parents: Mapping[str, tuple[Acl, ...]]
    control: tuple[Acl, ...] | None
    children: Mapping[str, tuple[Acl, ...]]


@dataclass(frozen=True, slots=True)
class AclMismatch:
    """A node that does not belong to the run's login: the list that it has, and the one that it must have."""

    path: str
    actual: str
    required: str


def belongs_to_other_login(found: ControlAcls, access: RunAclPolicy) -> bool:
    """Whether the control znode belongs to a login, and it is not this run's."""
    acl = found.control
    if acl is None or is_open(acl):
        return False
    return access.login is None or not is_owned_by_login(acl, access.login, PERM_READ)


def invalid_acls(found: ControlAcls, access: RunAclPolicy, control_path: str) -> list[AclMismatch]:
    """The nodes whose lists a run with a login refuses; none for a run without one."""
    if access.login is None:
        return []
    wrong = []
    for path, acl in found.parents.items():
        if world_perms(acl) & ~PERM_READ:
            named = ",".join(
                f"{_format_acl_id(entry)}:{format_perms(entry.perms)}" for entry in acl if entry.scheme != WORLD
            )
            wrong.append(AclMismatch(path, format_acl(acl), f"{named or 'auth::cdrwa'},world:anyone:r"))
    if found.control is not None and not is_owned_by_login(found.control, access.login, PERM_READ):
        wrong.append(AclMismatch(control_path, format_acl(found.control), "auth::cdrwa,world:anyone:r"))
    for name, acl in sorted(found.children.items()):
        is_private = name.startswith(PRIVATE_PIECE_PREFIXES)
        others_may = _GROUP_LOGIN_PERMS.get(name, 0 if is_private else PERM_READ)
        owned = [entry for entry in acl if name not in _GROUP_LOGIN_PERMS or entry.perms & ~others_may]
        if not is_owned_by_login(owned, access.login, others_may):
            must_have = "auth::cdrwa" if is_private else "auth::cdrwa,world:anyone:r"
            wrong.append(AclMismatch(f"{control_path}/{name}", format_acl(acl), must_have))
    return wrong


def is_owned_by_login(acl: Sequence[Acl], login: ZkLogin, world_may: int) -> bool:
    """Whether this login, and no other, has more permissions than ``world_may``, which the world has at most."""
    named = [entry for entry in acl if entry.scheme != WORLD]
    return (
        not world_perms(acl) & ~world_may
        and any(entry.perms == PERM_ALL for entry in named)
        and all(entry.scheme == "x509" or matches_login(entry, login) for entry in named)
    )


def group_logins(lists: Iterable[Sequence[Acl]], fenced: Iterable[Sequence[Acl]]) -> set[tuple[str, str]]:
    """The schemes and ids that the members of a group have, by the lists of its nodes.

    A member creates owner nodes or writes offsets.  ``fenced``: lists of a fence, which leave members READ.  The world
    counts as a member only where every list permits it: in a partly protected group the members are those with a login.
    """
    normal = list(lists)
    found = {
        (entry.scheme, entry.id)
        for acl in normal
        for entry in acl
        if entry.scheme != WORLD and entry.perms & (PERM_CREATE | PERM_WRITE)
    }
    found |= {(entry.scheme, entry.id) for acl in fenced for entry in acl if entry.scheme != WORLD}
    if normal and all(world_perms(acl) & (PERM_CREATE | PERM_WRITE) for acl in normal):
        found.add((WORLD, "anyone"))
    return found
