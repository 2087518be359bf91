"""The state that the steps of one run have in common.

open_migration         session, plan -> MigrationContext
read_effective_plan    the effective plan: the one that was accepted with its drift, else the one that the first run
                       stored
"""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_layout import ACCEPTED_PIECE_PREFIX
from bridge.migration.control.control_pieces import DamagedPiecesError, read_pieces, read_plan_text, unpack
from bridge.migration.control.control_znode import ControlZnode
from bridge.migration.control.journal import Journal
from bridge.migration.control.phases import Phase, has_reached
from bridge.migration.inspect.required_permissions import GroupZnodes
from bridge.migration.offsets.offset_copy_steps import COPY_PHASES, CopyToKafka, OffsetStores
from bridge.migration.placeholder.placeholder_member import PLACEHOLDER_RETRY_POLICY, PlaceholderMember
from bridge.migration.plan.accepted_plan import accepted_plan_error
from bridge.migration.plan.plan_file import plan_from_bytes
from bridge.migration.steps.step import StepDone, StepPending, StepStatus
from zkconsumer.admin.zookeeper_offset_writes import NO_ZNODE_VERSION
from zkconsumer.errors import PreconditionFailed
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.migration.offsets.offset_copies import OffsetCopy
    from bridge.migration.plan.migration_plan import MigrationPlan
    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.admin.coordinator_client import CoordinatorRetryPolicy


@dataclass(slots=True)
class MigrationContext:
    """The shared state of the steps of one run.  ``plan`` is the effective one; a step that accepts drift replaces
    it.
    """

    control_znode: ControlZnode
    plan: MigrationPlan
    placeholder: PlaceholderMember
    stores: OffsetStores
    caller: str

    @property
    def session(self) -> AdminSession:
        """The session with both stores."""
        return self.control_znode.session

    @property
    def group(self) -> str:
        """The group that migrates."""
        return self.control_znode.group

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics in the plan."""
        return tuple(self.plan.snapshot.topics)

    @property
    def phase(self) -> Phase | None:
        """The phase of this migration; None while it has not begun."""
        held = self.control_znode.read()
        if held is None or held.control.migration_id != self.control_znode.migration_id:
            return None
        return held.phase

    @property
    def is_confirmed(self) -> bool:
        """Whether no move of the authority waits for its confirmation (``authority_steps``)."""
        held = self.control_znode.read()
        is_ours = held is not None and held.control.migration_id == self.control_znode.migration_id
        return held is None or not is_ours or held.control.is_confirmed

    def has_reached(self, wanted: Phase) -> bool:
        """Whether the migration, on its way forward, is in that phase or a later one."""
        phase = self.phase
        return phase is not None and has_reached(self.plan.strategy, phase, wanted)

    @property
    def znodes(self) -> GroupZnodes:
        """The znodes that the steps read or change."""
        offsets = [row.tp for row in self.plan.partitions if row.version != NO_ZNODE_VERSION]
        return GroupZnodes(self.group, self.topics, offsets, self.plan.uses_acl_fence)

    @property
    def parents_to_keep(self) -> frozenset[str]:
        """The parents of owner nodes that remain when the fences are removed: those that existed, or may have existed,
        when the plan was made."""
        if self.plan.uses_acl_fence:
            return frozenset(self.plan.snapshot.acls)
        # Without access lists a plan does not contain which existed: they remain, as Scala consumers leave them.
        return frozenset(
            {paths.owners(self.group), *(paths.owners_of_topic(self.group, topic) for topic in self.topics)}
        )


def open_migration(
    session: AdminSession,
    plan: MigrationPlan,
    who: str,
    *,
    pause: Callable[[int], object] | None = None,
    patience: CoordinatorRetryPolicy = PLACEHOLDER_RETRY_POLICY,
) -> MigrationContext:
    """Sends no request yet.  ``pause`` and ``patience``: how to wait for the brokers."""
    authority = ControlZnode(session, plan.group, plan.migration_id)
    authority.fence_migration_ids |= {plan.snapshot.fences_migration_id} - {""}
    placeholder = PlaceholderMember(
        session, plan.group, plan.migration_id, plan.snapshot.topics,
        pause=pause, patience=patience, check_run=authority.check_lock,
    )  # fmt: skip
    stores = OffsetStores(authority, placeholder, pause=pause, patience=patience)
    return MigrationContext(authority, plan, placeholder, stores, who)


def read_accepted_plan(session: AdminSession, first: MigrationPlan) -> MigrationPlan | None:
    """The plan that was accepted with its drift; None: there is none, or the run that accepted it was interrupted.

    ``first``: the plan that the operator knows.  Raises ``PreconditionFailed`` for one that does not follow from it.
    """
    group = first.group
    pieces = read_pieces(session, group, ACCEPTED_PIECE_PREFIX)
    if not pieces:
        return None
    try:
        accepted = plan_from_bytes(unpack(list(pieces.values())))
    except DamagedPiecesError:
        return None
    problem = accepted_plan_error(first, accepted)
    if problem:
        names = ", ".join(paths.control_child(group, name) for name in pieces)
        raise PreconditionFailed(
            f"the plan that was accepted with its drift ({names}) does not follow from the first one: {problem}. "
            "Another client wrote it, so it is not executed. Find the client with write permission, delete these "
            f"nodes, and run zkconsumer migrate apply --resume {group} again, with --accept-drift if it reports drift"
        )
    return accepted


def read_effective_plan(session: AdminSession, group: str) -> MigrationPlan:
    """The effective plan.  Raises ``PreconditionFailed`` (``InvalidPlanFileError`` too) when no complete one is
    stored.
    """
    first = plan_from_bytes(read_plan_text(session, group))
    return read_accepted_plan(session, first) or first


def copy_to_kafka_step(moving: MigrationContext, copies: Sequence[OffsetCopy], *phases: Phase) -> CopyToKafka:
    """The step that commits these offsets, with the plan's retention and a journal entry.  ``phases``: in which it may
    run."""
    journal = Journal(moving.control_znode, moving.caller)
    return CopyToKafka(moving.stores, copies, phases or COPY_PHASES, moving.plan.offsets_retention_ms, journal)


def caller_description() -> str:
    """User, host and process of this run, for the lock and the journal."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no name for this user id
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}, process {os.getpid()}"


@dataclass(slots=True)
class AppendJournal:
    """Append a journal entry before the action that it announces."""

    context: MigrationContext
    entry: str
    facts: dict[str, str]
    _is_done: bool = False

    changes = True

    @property
    def name(self) -> str:
        """See ``MigrationStep``."""
        return f"journal: {self.entry}"

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"write into the journal: {self.entry}"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``: one entry a run."""
        return StepDone() if self._is_done else StepPending()

    def do(self) -> None:
        """See ``MigrationStep``."""
        Journal(self.context.control_znode, self.context.caller).append(self.entry, self.facts)
        self._is_done = True
