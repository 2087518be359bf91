"""The steps about the modern group: nobody is in it, the seat is taken, the seat is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.errors import PartlyDone, VerificationFailed
from bridge.migration.step import Done, Refused, Standing, Todo, Waiting
from zkconsumer.errors import PreconditionFailed

if TYPE_CHECKING:
    from bridge.migration.seat import Seat


@dataclass(frozen=True, slots=True)
class NoModernMembers:
    """Nobody but a seat of this migration is in the modern group, which is waited for; and we might sit there."""

    seat: Seat

    name = "nobody is in the modern group"
    changes = False

    def describe(self) -> list[str]:
        """See ``Step``."""
        return [f"wait until the modern group {self.seat.group} has no members"]

    def check(self) -> Standing:
        """See ``Step``."""
        found = self.seat.look()
        if found.others:
            return Waiting(f"{found.names} to leave the modern group")
        problem = self.seat.problem()
        return Refused(PreconditionFailed(f"{problem}. Nothing was changed")) if problem else Done()

    def do(self) -> None:
        """Never called: one waits for others."""
        raise AssertionError("there is nothing to do but to wait")


@dataclass(frozen=True, slots=True)
class TakeSeat:
    """We sit in the modern group (K5).

    ``has_sat``: the control znode says that the seat was taken before.  Then a member of somebody else is an
    interference and ends the run (exit code 5), while before it is only waited for.
    """

    seat: Seat
    has_sat: bool

    name = "take the seat in the modern group"
    changes = True

    def describe(self) -> list[str]:
        """See ``Step``."""
        return [f"join the modern group {self.seat.group} as {self.seat.name}, so that nobody else can join or commit"]

    def check(self) -> Standing:
        """See ``Step``."""
        try:
            if self.seat.sitting is not None:
                self.seat.beat()
                return Done()
            found = self.seat.look()
        except (VerificationFailed, PartlyDone) as error:
            return Refused(error)
        if not found.others:
            return Todo()
        if not self.has_sat:
            return Waiting(f"{found.names} to leave the modern group")
        return Refused(
            VerificationFailed(
                f"the seat in group {self.seat.group} ended, and {found.names} came since: stop it, and find out who "
                "started it; then run the same command again: it compares every offset before it goes on"
            )
        )

    def do(self) -> None:
        """See ``Step``."""
        self.seat.sit()


@dataclass(frozen=True, slots=True)
class LeaveSeat:
    """No seat of this migration is in the modern group."""

    seat: Seat

    name = "leave the seat in the modern group"
    changes = True

    def describe(self) -> list[str]:
        """See ``Step``."""
        return [f"leave the modern group {self.seat.group}, so that others can join"]

    def check(self) -> Standing:
        """See ``Step``."""
        return Todo() if self.seat.look().ours else Done()

    def do(self) -> None:
        """See ``Step``."""
        self.seat.leave()
