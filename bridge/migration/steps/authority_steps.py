"""The steps that move the authority of a group without members, and that confirm the move.

    heartbeat -> phase written, not confirmed -> heartbeat in the same generation -> confirmed -> fences, hooks, ...
                                                        |
               refused, or not asked: the stores are compared again -> confirmed

No write to ZooKeeper can depend on the state of Kafka.  A process that is paused between its last heartbeat and its
write may write the phase after the coordinator has removed its placeholder member, and after a client committed there.
So the write alone proves nothing, and ``ControlRecord.is_confirmed`` is False after it.  A heartbeat that the
coordinator answers after the write, in the generation of the heartbeat before it, proves that no other client was in
the group at the moment of the write.  Until then no step runs that depends on the move.

A run that finds a move that is not confirmed, its own or an earlier one, compares instead:

    returned   it writes Kafka's offsets to ZooKeeper again where they differ; the fences block old members
    switched   every offset in Kafka must be one that this migration committed.  For another one it cannot decide
               whether it was committed before or after the move: it names that offset and never overwrites it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bridge.migration.control.control_steps import AdvancePhase
from bridge.migration.control.control_znode import VersionedControl
from bridge.migration.control.phases import Phase
from bridge.migration.errors import (
    AuthorityMoveUnconfirmedError,
    ControlWriteUnknownError,
    PartiallyDoneError,
    VerificationError,
)
from bridge.migration.offsets.offset_copies import copies_of, format_differences, kafka_differences
from bridge.migration.placeholder.placeholder_steps import JoinPlaceholder
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepStatus

if TYPE_CHECKING:
    from bridge.migration.control.control_znode import ControlZnode
    from bridge.migration.offsets.offset_copies import OffsetCopy
    from bridge.migration.offsets.offset_copy_steps import OffsetStores
    from bridge.migration.placeholder.placeholder_member import PlaceholderMember
    from bridge.migration.steps.migration_context import MigrationContext
    from bridge.migration.steps.step import MigrationStep


def authority_move_steps(moving: MigrationContext, phase: Phase) -> Iterator[MigrationStep]:
    """``switched`` or ``returned`` is written once, and confirmed."""
    yield MoveAuthority(moving.control_znode, moving.placeholder, phase)
    yield ConfirmAuthorityMove(moving.control_znode, moving.placeholder, phase)


def confirm_switch_steps(moving: MigrationContext, *, accept_drift: bool = False) -> Iterator[MigrationStep]:
    """The first steps of a run that finds phase ``switched`` not confirmed; none in any other phase.

    ``accept_drift``: the operator accepts the offsets that other clients committed.
    """
    if moving.is_confirmed or moving.phase is not Phase.SWITCHED:
        return
    if not moving.placeholder.read_occupants().others:  # members may be there: Kafka has the authority
        yield JoinPlaceholder(moving.placeholder, had_placeholder=False)
    yield CheckForeignCommits(moving.stores, copies_of(moving.plan), accept_drift)
    yield ConfirmAuthorityMove(moving.control_znode, moving.placeholder, Phase.SWITCHED)


@dataclass(frozen=True, slots=True)
class MoveAuthority:
    """Move the authority: one heartbeat of the placeholder member, then one write of the phase."""

    control_znode: ControlZnode
    placeholder: PlaceholderMember
    phase: Phase

    changes = True

    @property
    def name(self) -> str:
        """See ``MigrationStep``."""
        return self._write.name

    @property
    def _write(self) -> AdvancePhase:
        return AdvancePhase(self.control_znode, self.phase)

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [
            f"check with the coordinator that the placeholder member is still in group {self.placeholder.group}",
            *self._write.describe(),
        ]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        return self._write.check()

    def do(self) -> None:
        """See ``MigrationStep``.  Raises ``ControlWriteUnknownError``, and what ``PlaceholderMember.heartbeat``
        raises.
        """
        self.placeholder.heartbeat()
        self._write.write(is_confirmed=False)


@dataclass(frozen=True, slots=True)
class ConfirmAuthorityMove:
    """Confirm the move in the control znode: no client can have committed to Kafka unnoticed before it.

    The step follows ``MoveAuthority`` or a comparison.  The placeholder must still be in the generation of that moment.
    """

    control_znode: ControlZnode
    placeholder: PlaceholderMember
    phase: Phase

    changes = True

    @property
    def name(self) -> str:
        """See ``MigrationStep``."""
        return f"confirm {self.phase.value}"

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [
            f"check with the coordinator that the placeholder member is still in group {self.placeholder.group}, and "
            f"write that {self.phase.value} is confirmed"
        ]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        held = self.control_znode.check_phase(self.phase)
        if not isinstance(held, VersionedControl):
            return held or StepPending()
        return StepDone() if held.control.is_confirmed else StepPending()

    def do(self) -> None:
        """See ``MigrationStep``.  Raises ``AuthorityMoveUnconfirmedError`` when the heartbeat is refused,
        ``ControlWriteUnknownError``.
        """
        held = self.control_znode.require_phase(self.phase)
        if self.phase is Phase.RETURNED or self.placeholder.joined is not None:
            self._heartbeat()
        if not self.control_znode.write_control(held, replace(held.control, is_confirmed=True)):
            raise ControlWriteUnknownError(
                f"it is not known whether {self.phase.value} was confirmed: the run checks it again"
            )

    def _heartbeat(self) -> None:
        try:
            self.placeholder.heartbeat()
        except (PartiallyDoneError, VerificationError) as error:
            raise AuthorityMoveUnconfirmedError(
                f"{error}\nSo another client may have committed for group {self.placeholder.group} before the write of "
                f"phase {self.phase.value}: the next step compares the stores again"
            ) from error


@dataclass(frozen=True, slots=True)
class CheckForeignCommits:
    """Every offset in Kafka is the one that this migration committed, so no other client committed before the move.

    ``accept_foreign``: accept offsets that other clients committed.
    """

    stores: OffsetStores
    copies: Sequence[OffsetCopy]
    accept_foreign: bool

    name = "compare Kafka's offsets with those that were copied"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"read {len(self.copies)} offsets from Kafka: each must be one that this migration committed"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        authority = self.stores.control_znode
        held = authority.check_phase(Phase.SWITCHED)
        if not isinstance(held, VersionedControl):
            return held or StepPending()
        if self.accept_foreign:
            return StepDone()
        found = self.stores.read_kafka([copy.tp for copy in self.copies])
        # The move incremented the epoch: the copies have the epoch before it.
        differences = kafka_differences(self.copies, found, authority.migration_id, held.control.epoch - 1)
        if not differences:
            return StepDone()
        group = authority.group
        return StepRefused(
            VerificationError(
                f"Kafka has the authority of group {group}, and the coordinator does not confirm that the placeholder "
                f"member was still in the group at the move. Another client committed, before or after the move: "
                f"{format_differences(differences)}. No offset was overwritten, and the fences against old members "
                "remain. Find and stop that client. To continue with the offsets that Kafka has: zkconsumer migrate "
                f"apply --resume {group} --execute --accept-drift. If they are wrong, do that too, then correct them "
                f"in Kafka ('zkconsumer offsets set') before you start members or roll back"
            )
        )

    def do(self) -> None:
        """See ``MigrationStep``: there is nothing to do; raises when the migration is in another phase."""
        self.stores.control_znode.require_phase(Phase.SWITCHED)
