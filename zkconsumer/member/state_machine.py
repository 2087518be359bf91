"""The shape that every state machine of this package has.

A machine has a state, a table ``(state, event type) -> handler``, and a story: its last lines.  Only ``handle``
assigns the state.  An event that the table does not know is a bug of ours, never bad input: it raises
``InvalidTransition`` with the story, so that a report from a user can be replayed.

A handler says beforehand to which states it may lead (``transitions_to``), and ``handle`` holds it to its word; so the
diagrams in the documentation can be drawn from the tables alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from zkconsumer.errors import InternalError

if TYPE_CHECKING:
    from enum import Enum

HISTORY_LINES_MAX = 256


class TransitionRecord(NamedTuple):
    """One line of a machine's story."""

    before: str
    event: object
    after: str

    def __str__(self) -> str:
        return f"{self.before:<12} {self.event}  ->  {self.after}"


class CoveredTransition(NamedTuple):
    """One way through a table, by names: a row, and the state to which it led."""

    machine: str
    before: str
    event: str
    after: str


class InvalidTransition(InternalError):
    """An event arrived in a state that does not expect it."""

    def __init__(self, machine: str, state: str, event: object, story: list[TransitionRecord]) -> None:
        self.machine = machine
        self.state = state
        self.event = event
        self.history = story
        told = "\n".join(f"  {line}" for line in story)
        super().__init__(f"{machine}: {type(event).__name__} while {state}; its story:\n{told}")


TransitionFunction: TypeAlias = Callable[[Any, Any], tuple[Any, list[Any]]]


@dataclass(frozen=True, slots=True)
class Transition:
    """What a row of a table does, and the states to which it may lead; none: it stays where it is."""

    run: TransitionFunction
    target_states: tuple[Enum, ...]


def transitions_to(*states: Enum) -> Callable[[TransitionFunction], Transition]:
    """Declare to which states a handler may lead."""

    def declare(run: TransitionFunction) -> Transition:
        return Transition(run, states)

    return declare


stays_in_state = transitions_to()


def go_to(state: Enum) -> Transition:
    """The handler that does nothing but go there."""
    return Transition(lambda _machine, _event: (state, []), (state,))


TransitionTable: TypeAlias = Mapping[tuple[Any, type], Transition]


class StateMachine:
    """A state, a table and a story.  Subclasses give ``INITIAL`` and ``TRANSITIONS``."""

    INITIAL: ClassVar[Enum]
    TRANSITIONS: ClassVar[TransitionTable]
    covered_transitions: ClassVar[set[CoveredTransition] | None] = None
    """A test puts a set here to see which ways are taken; nobody else does."""

    def __init__(self) -> None:
        self.state: Any = self.INITIAL
        self.history: deque[TransitionRecord] = deque(maxlen=HISTORY_LINES_MAX)

    def handle(self, event: object) -> list[Any]:
        """Take one event in; give back what must now be done, in order."""
        before = self.state
        handler = self.TRANSITIONS.get((before, type(event)))
        if handler is None:
            raise InvalidTransition(type(self).__name__, before.value, event, list(self.history))
        after, commands = handler.run(self, event)
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
