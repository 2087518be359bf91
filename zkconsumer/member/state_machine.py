"""The base class of every state machine of this package.

A machine has a state, a table ``(state, event type) -> handler``, and a history: its last transitions.  Only
``handle`` assigns the state.  An event without a row in the table is a bug in this package, never bad input: it raises
``InvalidTransition`` with the history, so that a report from a user can be replayed.

A handler declares to which states it may lead (``transitions_to``), and ``handle`` checks it; so the diagrams in the
documentation are drawn from the tables alone.

A handler may change attributes of its machine, but must not call ``handle``: it runs before the new state is assigned.
If it raises, the state is the old one.  Commands are returned, not executed, so that an event is complete before
anything outside of the machine can react to it.

A machine does not filter late events.  ``MemberStateMachine`` compares the ticket or the session of an answer first, so
a row exists only for what can happen in a state.  ``test_state_machine_coverage.py`` requires that a transcript takes
every row and every declared transition: a row that no sequence of events reaches is removed.  An event that is ignored
on purpose has a row that stays in its state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from zkconsumer.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import Enum

HISTORY_LINES_MAX = 256
"""The transitions that a machine remembers for ``InvalidTransition``; a busy session has one for each answer."""


@dataclass(frozen=True)
class MachineEvent:
    """An event without fields: a subclass is one by its type alone, and needs no decorator."""


class TransitionRecord(NamedTuple):
    """One line of a machine's history."""

    before: str
    event: object
    after: str

    def __str__(self) -> str:
        return f"{self.before:<12} {self.event}  ->  {self.after}"


class CoveredTransition(NamedTuple):
    """One transition by names: the row of the table, and the state to which it led."""

    machine: str
    before: str
    event: str
    after: str


class InvalidTransition(InternalError):
    """An event arrived in a state whose table has no row for it.

    It ends the membership: the state of the group is not known any more, and the session's end releases everything.
    """

    def __init__(self, machine: str, state: str, event: object, history: list[TransitionRecord]) -> None:
        self.machine = machine
        self.state = state
        self.event = event
        self.history = history
        lines = "\n".join(f"  {line}" for line in history)
        super().__init__(f"{machine}: {type(event).__name__} while {state}; its history:\n{lines}")


TransitionFunction: TypeAlias = Callable[[Any, Any], tuple[Any, list[Any]]]


@dataclass(frozen=True, slots=True)
class Transition:
    """The handler of a row, and the states to which it may lead; empty: the state stays."""

    run: TransitionFunction
    target_states: tuple[Enum, ...]


def transitions_to(*states: Enum) -> Callable[[TransitionFunction], Transition]:
    """Declare to which states a handler may lead."""

    def declare(run: TransitionFunction) -> Transition:
        return Transition(run, states)

    return declare


def rows_for(states: Iterable[Enum], event: type, handler: Transition) -> dict[tuple[Enum, type], Transition]:
    """The rows of an event that all these states handle in the same way."""
    return {(state, event): handler for state in states}


def go_to(state: Enum) -> Transition:
    """A handler that only changes the state, without commands."""
    return Transition(lambda _machine, _event: (state, []), (state,))


TransitionTable: TypeAlias = Mapping[tuple[Any, type], Transition]


class StateMachine:
    """A state, a table and a history.  Subclasses define ``INITIAL`` and ``TRANSITIONS``."""

    INITIAL: ClassVar[Enum]
    TRANSITIONS: ClassVar[TransitionTable]
    covered_transitions: ClassVar[set[CoveredTransition] | None] = None
    """Only tests set this: the set collects the transitions that were taken."""

    def __init__(self) -> None:
        self.state: Any = self.INITIAL
        """Always a member of the enum of ``INITIAL``; assigned only by ``handle``."""
        self.history: deque[TransitionRecord] = deque(maxlen=HISTORY_LINES_MAX)
        """The transitions that were completed, oldest first; the last one led to the present state."""

    def handle(self, event: object) -> list[Any]:
        """Process one event; return the commands to execute, in order.

        Raises ``InvalidTransition`` without a change when the table has no row.  A subclass that extends it checks the
        invariant between the state and its attributes at the end.
        """
        before = self.state
        handler = self.TRANSITIONS.get((before, type(event)))
        if handler is None:
            raise InvalidTransition(type(self).__name__, before.value, event, list(self.history))
        after, commands = handler.run(self, event)
        assert self.state is before, "a handler returns the new state, and does not handle another event"
        assert after in (handler.target_states or (before,)), f"a handler led to {after}, which it does not declare"
        self.state = after
        self.history.append(TransitionRecord(before._value_, event, after._value_))
        if StateMachine.covered_transitions is not None:
            StateMachine.covered_transitions.add(
                CoveredTransition(type(self).__name__, before.value, type(event).__name__, after.value)
            )
        return commands

    def expects(self, event_type: type) -> bool:
        """Whether the table has a row for this event in the present state."""
        return (self.state, event_type) in self.TRANSITIONS
