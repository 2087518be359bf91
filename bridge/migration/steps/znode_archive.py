"""Archives the znodes of a group in a file before a migration is completed, and restores them from it.

    line 1     the schema, the group, the migration, when, how many nodes
    others     one znode each, parents first: path, data (base64), access list, the session of an ephemeral one
    last       SHA-256 of everything above

The file is written atomically, readable by the user alone (0600): access lists contain hashes of passwords.
``restore_znodes`` creates the missing persistent nodes and changes no existing one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from bridge.migration.errors import PartiallyDoneError
from bridge.migration.fences.fence_acl_rules import acl_of_parent
from bridge.migration.fences.fence_acls import is_fence
from bridge.migration.fences.fence_record import parse_fence_record
from bridge.migration.fences.late_acls import acls_before_fence
from bridge.migration.plan.atomic_file import write_atomically
from bridge.migration.plan.json_object_reader import InvalidJsonError, JsonObjectReader, as_list, as_number, as_text
from bridge.migration.steps.step import StepDone, StepPending, StepStatus
from zkconsumer.admin.admin_session import read_not_authorized_error, zk_error_name
from zkconsumer.errors import PreconditionFailed, UnavailableError
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Acl, Create, NodeExists, StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.migration.control.control_znode import ControlZnode
    from bridge.migration.fences.fence_acls import AccessList
    from zkconsumer.admin.admin_session import AdminSession

SCHEMA = "zkconsumer.migration.archive/1"
FILE_BYTES_MAX = 1024 * 1024 * 1024
NODES_MAX = 2_000_000


class InvalidArchiveError(PreconditionFailed):
    """A file is no archive of a group's znodes, or was altered; use the file as ``complete`` wrote it."""


@dataclass(frozen=True, slots=True)
class ArchivedNode:
    """One znode.  ``session`` is 0 for a persistent one."""

    path: str
    data: bytes
    acl: tuple[Acl, ...]
    session: int = 0


@dataclass(frozen=True, slots=True)
class ZnodeArchive:
    """A group's znodes, parents first."""

    group: str
    migration_id: str
    at_ms: int
    nodes: tuple[ArchivedNode, ...]


def read_group_znodes(session: AdminSession, group: str) -> tuple[ArchivedNode, ...]:
    """``/consumers/G`` and everything below it.  Raises ``UnavailableError`` when ZooKeeper does not answer."""
    level = [paths.group_root(group)]
    found: list[ArchivedNode] = []
    while level:
        nodes = session.get_many(level)
        there = [path for path in level if path in nodes]
        lists = session.get_acls(there)
        found += [
            ArchivedNode(path, nodes[path].data, acl, nodes[path].stat.ephemeral_owner)
            for path, acl in lists.items()
            if acl is not None
        ]
        refused = [path for path, acl in lists.items() if acl is None]
        if refused:
            raise read_not_authorized_error(refused)
        if len(found) > NODES_MAX:
            raise UnavailableError(
                f"{paths.group_root(group)} has more than {NODES_MAX} nodes: this is no consumer group"
            )
        below = session.children_of_many(path for path in there if nodes[path].stat.num_children)
        level = [f"{path}/{name}" for path, children in below.items() for name in sorted(children.names)]
    return tuple(found)


# --- the file ---------------------------------------------------------------------------------------------------


def archive_lines(archive: ZnodeArchive) -> Iterator[str]:
    """The lines of the file, each with its end; ASCII."""
    digest = hashlib.sha256()
    head: dict[str, object] = {
        "schema": SCHEMA,
        "group": archive.group,
        "migration_id": archive.migration_id,
        "at_ms": archive.at_ms,
        "nodes": len(archive.nodes),
    }
    rows: Iterator[dict[str, object]] = (
        {
            "path": node.path,
            "data": base64.b64encode(node.data).decode(),
            "acl": [[one.perms, one.scheme, one.id] for one in node.acl],
            "session": node.session,
        }
        for node in archive.nodes
    )
    for value in (head, *rows):
        line = json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n"
        digest.update(line.encode())
        yield line
    yield json.dumps({"sha256": digest.hexdigest()}) + "\n"


def write_archive(path: Path, archive: ZnodeArchive) -> None:
    """Write it so that the file exists completely or not at all.

    Raises ``PreconditionFailed`` when the file exists already, ``UnavailableError`` when it cannot be written.
    """
    try:
        write_atomically(path, archive_lines(archive), replace=False)
    except FileExistsError as error:
        raise PreconditionFailed(f"{path} exists: name another file for the archive, with --archive") from error
    except OSError as error:
        raise UnavailableError(f"the archive cannot be written to {path}: {error.strerror or error}") from error


def read_archive(path: Path) -> ZnodeArchive:
    """The archive in a file.  Raises ``InvalidArchiveError``."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidArchiveError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return parse_archive(data)
    except InvalidJsonError as error:
        raise InvalidArchiveError(f"{path}: {error}") from error


def parse_archive(data: bytes) -> ZnodeArchive:
    """The archive in these bytes.  Raises ``InvalidJsonError`` for anything else."""
    if len(data) > FILE_BYTES_MAX:
        raise InvalidJsonError(f"more than {FILE_BYTES_MAX} bytes: this is no archive")
    body, _, last = data.removesuffix(b"\n").rpartition(b"\n")
    try:
        lines, trailer = body.decode("ascii").split("\n"), last.decode("ascii")
    except UnicodeDecodeError as error:
        raise InvalidJsonError("not ASCII: this is no archive") from error
    members = JsonObjectReader.parse(trailer, "the last line")
    if members.text("sha256") != hashlib.sha256(body + b"\n").hexdigest():
        raise InvalidJsonError("it was altered: the digest in its last line differs")
    head = JsonObjectReader.parse(lines[0], "line 1")
    if head.text("schema") != SCHEMA:
        raise InvalidJsonError("line 1: no archive of this release")
    group = head.checked("group", paths.check_group)
    migration_id, at_ms, count = head.text("migration_id", 64), head.number("at_ms"), head.number("nodes")
    head.reject_unknown_keys()
    if count != len(lines) - 1:
        raise InvalidJsonError(f"{count} nodes are announced, and {len(lines) - 1} follow")
    root = paths.group_root(group)
    nodes = tuple(_node(JsonObjectReader.parse(line, f"line {n}"), root) for n, line in enumerate(lines[1:], start=2))
    return ZnodeArchive(group, migration_id, at_ms, nodes)


def _node(members: JsonObjectReader, root: str) -> ArchivedNode:
    path = members.text("path")
    parts = path.removeprefix(root).split("/")
    if not (path == root or path.startswith(f"{root}/")) or any(part in ("", ".", "..") for part in parts[1:]):
        raise members.error(f"{path[:200]!r} is no node of the group")
    try:
        data = base64.b64decode(members.text("data", 2_000_000), validate=True)
    except binascii.Error as error:
        raise members.error(f"its data are no base64: {error}") from error
    acl = []
    for entry in members.items("acl"):
        perms, scheme, name = as_list(entry, path, 3)
        acl.append(Acl(as_number(perms, path, 0, 31), as_text(scheme, path, 1_000), as_text(name, path, 10_000)))
    session = members.number("session", -(2**63))
    members.reject_unknown_keys()
    return ArchivedNode(path, data, tuple(acl), session)


# --- the step, and the restore ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteArchive:
    """Writes the group's znodes to a file, with the access lists from before the fence.

    ``planned``: those lists in the plan.  An existing file of this migration counts: an earlier run wrote it, and may
    have removed fences since.
    """

    control_znode: ControlZnode
    planned: Mapping[str, AccessList]
    path: Path

    name = "archive the znodes of the group"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"write every znode of {paths.group_root(self.control_znode.group)} to {self.path}"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        return StepDone() if self.path.exists() and self._is_ours() else StepPending()

    def _is_ours(self) -> bool:
        try:
            archive = read_archive(self.path)
        except InvalidArchiveError:
            return False
        return (archive.group, archive.migration_id) == (self.control_znode.group, self.control_znode.migration_id)

    def do(self) -> None:
        """See ``MigrationStep``."""
        authority, before = self.control_znode, acls_before_fence(self.control_znode, self.planned)
        nodes = tuple(
            replace(node, acl=before.get(node.path) or acl_of_parent(authority, node.path, before))
            if is_fence(node.acl)
            else node
            for node in read_group_znodes(authority.session, authority.group)
        )
        at_ms = authority.session.clock.wall_ms()
        write_archive(self.path, ZnodeArchive(authority.group, authority.migration_id, at_ms, nodes))


def restore_znodes(session: AdminSession, archive: ZnodeArchive) -> list[str]:
    """Create the missing persistent nodes, with their data and lists; returns the paths of the created ones.

    Ephemeral nodes belong to sessions that have ended, and the fences belong to the ended migration; neither are
    created.  Raises ``PartiallyDoneError`` for a node that cannot be created; a repeated call continues with it.
    """
    session.request([Create(path) for path in paths.parents(paths.group_root(archive.group))])
    made: list[str] = []
    for _, level in groupby(restorable_znodes(archive), key=lambda node: node.path.count("/")):
        nodes = list(level)
        answers = session.request([Create(node.path, node.data, acl=node.acl) for node in nodes])
        made += [node.path for node, answer in zip(nodes, answers, strict=True) if not isinstance(answer, StoreError)]
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, StoreError) and not isinstance(answer, NodeExists):
                raise PartiallyDoneError(
                    f"{node.path} cannot be created ({zk_error_name(answer)}); {len(made)} nodes were created. Remove "
                    "the cause, then run the same command again"
                )
    return made


def restorable_znodes(archive: ZnodeArchive) -> list[ArchivedNode]:
    """The nodes that ``restore_znodes`` creates if missing: no ephemeral nodes, no fences; parents first."""
    return [node for node in archive.nodes if not node.session and not _is_fence(node)]


def missing_znodes(session: AdminSession, archive: ZnodeArchive) -> list[str]:
    """The paths that ``restore_znodes`` would create now."""
    wanted = [node.path for node in restorable_znodes(archive)]
    there = session.get_many(wanted)
    return [path for path in wanted if path not in there]


def _is_fence(node: ArchivedNode) -> bool:
    parent = node.path.rpartition("/")[0]
    return parse_fence_record(node.data) is not None or (node.path.endswith("/fenced") and "/owners/" in parent)
