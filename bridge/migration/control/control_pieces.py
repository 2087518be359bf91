"""Stores a text that is too long for one znode, such as the plan: gzip, split into children of the control znode.

    text --gzip--> plan-0000 plan-0001 ...     each at most ``CHILD_BYTES_MAX``, each written with a check of the
                                               control znode; read back and compared before a fence is set

An incomplete set of pieces gives no text, so the run after an interrupted one writes them again.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_layout import CHILD_BYTES_MAX, PLAN_PIECE_PREFIX, plan_piece_name
from bridge.migration.control.control_znode import TRIES_MAX, ControlZnode, VersionedControl, connection_lost_error
from bridge.migration.control.phases import Phase
from bridge.migration.errors import VerificationError
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepStatus
from zkconsumer.admin.admin_session import zk_error_name
from zkconsumer.errors import PreconditionFailed, UnavailableError
from zkconsumer.zk import paths
from zkconsumer.zk.requests import CreateOp, DeleteOp, MultiFailed, Op, SetOp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zkconsumer.admin.admin_session import AdminSession

TEXT_BYTES_MAX = 256 * 1024 * 1024
"""The maximum size of a text, unpacked.  A plan of 100,000 partitions is far smaller; the limit protects our memory
from a znode of another client."""

PIECES_MAX = 10_000
_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS


class DamagedPiecesError(Exception):
    """The pieces do not contain a complete text; the message is the reason."""


def pack(text: bytes) -> list[bytes]:
    """The pieces of a text, the same for the same text."""
    packed = gzip.compress(text, mtime=0)
    return [packed[at : at + CHILD_BYTES_MAX] for at in range(0, len(packed), CHILD_BYTES_MAX)]


def unpack(pieces: Sequence[bytes]) -> bytes:
    """The text of its pieces, in their order.  Raises ``DamagedPiecesError``."""
    reader = zlib.decompressobj(_GZIP_WINDOW_BITS)
    text = b""
    try:
        text = reader.decompress(b"".join(pieces), TEXT_BYTES_MAX + 1)
    except zlib.error as error:
        raise DamagedPiecesError(f"no gzip: {error}") from error
    if len(text) > TEXT_BYTES_MAX:
        raise DamagedPiecesError(f"more than {TEXT_BYTES_MAX} bytes")
    if not reader.eof or reader.unused_data:
        raise DamagedPiecesError("a piece is missing, or there is one too many")
    return text


def read_pieces(session: AdminSession, group: str, prefix: str) -> dict[str, bytes]:
    """Name -> bytes of the children ``<prefix>NNNN`` of the control znode, in the order of their numbers."""
    listed = session.children(paths.control(group))
    names = sorted(name for name in (listed.names if listed else ()) if _is_piece(name, prefix))
    found = session.get_many(paths.control_child(group, name) for name in names[:PIECES_MAX])
    return {path.rpartition("/")[2]: node.data for path, node in found.items()}


def _is_piece(name: str, prefix: str) -> bool:
    number = name.removeprefix(prefix)
    return name.startswith(prefix) and len(number) == 4 and number.isascii() and number.isdigit()


def has_pieces(session: AdminSession, group: str, prefix: str) -> bool:
    """Whether such children exist; it needs no permission to read them."""
    listed = session.children(paths.control(group))
    return any(_is_piece(name, prefix) for name in (listed.names if listed else ()))


def read_plan_text(session: AdminSession, group: str) -> bytes:
    """The text of the stored plan.  Raises ``PreconditionFailed`` when there is no complete one."""
    pieces = read_pieces(session, group, PLAN_PIECE_PREFIX)
    if not pieces and session.get(paths.control(group)) is None:
        raise PreconditionFailed(
            f"group {group} is not migrating, and has no plan in {paths.control(group)}. Make one: zkconsumer migrate "
            f"plan {group}"
        )
    if not pieces:
        raise PreconditionFailed(
            f"{paths.control(group)} has no plan: the first run ended before it wrote the plan, or another client "
            f"deleted it. Continue with its file: zkconsumer migrate apply {group}.plan --execute. Or undo: zkconsumer "
            f"migrate rollback {group} --execute"
        )
    try:
        return unpack(list(pieces.values()))
    except DamagedPiecesError as error:
        raise PreconditionFailed(
            f"the plan at {paths.control(group)} cannot be read ({error}); continue with the plan's file: "
            f"zkconsumer migrate apply {group}.plan --execute"
        ) from error


@dataclass(frozen=True, slots=True)
class StorePlan:
    """Store the plan beside the control znode, so that any machine can continue.  ``text``: the bytes of its file."""

    control_znode: ControlZnode
    text: bytes

    name = "store the plan"
    changes = True

    def describe(self) -> list[str]:
        count = len(pack(self.text))
        return [f"write the plan to {paths.control(self.control_znode.group)}, {count} piece{'s' if count > 1 else ''}"]

    def check(self) -> StepStatus:
        held = self.control_znode.check_phase(*Phase)
        if not isinstance(held, VersionedControl):
            return held or StepPending()
        pieces = read_pieces(self.control_znode.session, self.control_znode.group, PLAN_PIECE_PREFIX)
        try:
            kept: bytes | None = unpack(list(pieces.values())) if pieces else None
            damage = "it is not there"
        except DamagedPiecesError as error:
            kept, damage = None, str(error)
        if kept is None:
            return StepPending() if held.phase is Phase.PLANNED else StepRefused(self._damaged_error(held, damage))
        if _digest(kept) == _digest(self.text):
            return StepDone()
        return StepRefused(
            PreconditionFailed(
                f"migration {self.control_znode.migration_id} of group {self.control_znode.group} began with another "
                "plan than this file. Continue with that plan: "
                f"zkconsumer migrate apply --resume {self.control_znode.group} --execute"
            )
        )

    def _damaged_error(self, held: VersionedControl, why: str) -> VerificationError:
        return VerificationError(
            f"the plan of migration {self.control_znode.migration_id} (phase {held.phase.value}) at "
            f"{paths.control(self.control_znode.group)} is damaged ({why}): another client writes there; stop it"
        )

    def do(self) -> None:
        wanted = {plan_piece_name(number): piece for number, piece in enumerate(pack(self.text))}
        found = read_pieces(self.control_znode.session, self.control_znode.group, PLAN_PIECE_PREFIX)
        for name in [name for name in found if name not in wanted]:
            update_child(self.control_znode, name, lambda path, _: DeleteOp(path), lambda data: data is None)
        for name, piece in wanted.items():
            if found.get(name) != piece:
                store_child(self.control_znode, name, piece, Phase.PLANNED)


def store_child(authority: ControlZnode, name: str, data: bytes, *phases: Phase) -> None:
    """Create or set a child of the control znode, with the access list for its name.  Raises as ``update_child``."""

    def op(path: str, before: bytes | None) -> Op:
        return (
            CreateOp(path, data, acl=authority.acl_policy.acl_of_child(name)) if before is None else SetOp(path, data)
        )

    update_child(authority, name, op, lambda found: found == data, *phases)


def update_child(
    authority: ControlZnode,
    name: str,
    op: Callable[[str, bytes | None], Op],
    is_done: Callable[[bytes | None], bool],
    *phases: Phase,
) -> None:
    """Read a child, and write it unless ``is_done`` accepts its data.

    A write that failed, or whose result is unknown, is repeated from a new read.  ``op`` receives the path and the
    current data (None: the child does not exist), and returns the write.  Raises ``PartiallyDoneError`` when the
    migration is not in one of ``phases`` (none given: in any), ``UnavailableError``.
    """
    path = paths.control_child(authority.group, name)
    answer: object = None
    for _ in range(TRIES_MAX):
        held = authority.require_phase(*(phases or Phase))
        node = authority.session.get(path)
        before = None if node is None else node.data
        if is_done(before):
            return
        answer = authority.transact(held, [op(path, before)])
        if answer is not None and not isinstance(answer, MultiFailed):
            return
    if isinstance(answer, MultiFailed):
        raise UnavailableError(f"{path} was not written: {zk_error_name(answer.error)}. Run it again")
    raise connection_lost_error(path)


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
