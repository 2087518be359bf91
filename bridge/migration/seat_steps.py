"""The steps about the modern group: members of ours are asked to leave it, nobody is in it, the seat is taken, left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.authority import TRIES_MAX
from bridge.migration.control import LEAVE
from bridge.migration.errors import PartlyDone, VerificationFailed
from bridge.migration.phases import Phase
from bridge.migration.step import Done, Refused, Standing, Todo, Waiting
from zkconsumer.admin.session import words_of
from zkconsumer.errors import PreconditionFailed, WorldError
from zkconsumer.zk import paths
from zkconsumer.zk.requests import CreateOp, Delete, Get, MultiFailed, MultiOk, Node, NodeExists

if TYPE_CHECKING:
    from bridge.migration.authority import Authority
    from bridge.migration.seat import Seat


@dataclass(frozen=True, slots=True)
class AskToLeave:
    """Members of ours leave the modern group by themselves, as long as this run lasts; others must be stopped."""

    authority: Authority

    name = "members of ours are asked to leave"
    changes = False
    """Ephemeral: it is gone with the session, and they come back."""

    def describe(self) -> list[str]:
        return [f"hold {self._path}: Spark queries on this group step aside, and wait"]

    @property
    def _path(self) -> str:
        return paths.control_child(self.authority.group, LEAVE)

    def check(self) -> Standing:
        [there] = self.authority.session.ask([Get(self._path)])
        if isinstance(there, Node) and there.stat.ephemeral_owner == self.authority.session.session_id:
            return Done()
        return Todo()

    def do(self) -> None:
        for _ in range(TRIES_MAX):
            # That of a run that died may stand until its session ends, and would then be missing.
            self.authority.session.ask([Delete(self._path)])
            held = self.authority.require(Phase.SWITCHED)
            match self.authority.transact(held, [CreateOp(self._path, b"", ephemeral=True)]):
                case MultiOk():
                    return
                case MultiFailed(_, _, NodeExists()) | None:
                    if isinstance(self.check(), Done):
                        return
                case MultiFailed(_, _, error):
                    raise WorldError(f"{self._path} cannot be made: {words_of(error)}")
        raise WorldError(f"{self._path} was not made: the connection broke again and again. Run it again")


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
class SeatHolds:
    """The coordinator hears us, and has let nobody in since we sat down: asked now, however lately it was."""

    seat: Seat

    name = "the seat holds"
    changes = False

    def describe(self) -> list[str]:
        """See ``Step``."""
        return [f"ask the coordinator whether the seat in the modern group {self.seat.group} is still ours"]

    def check(self) -> Standing:
        """See ``Step``."""
        if self.seat.sitting is None:  # in a dry run nobody sits
            return Todo()
        try:
            self.seat.beat()
        except (VerificationFailed, PartlyDone) as error:
            return Refused(error)
        return Done()

    def do(self) -> None:
        """See ``Step``: there is nothing to do.  ``Bug``: we do not sit."""
        self.seat.beat()


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
