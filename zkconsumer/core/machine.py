"""The shape that every state machine of this package has.

A machine has a state, a table ``(state, event type) -> handler``, and a story: its last lines.  Only ``handle``
assigns the state.  An event that the table does not know is a bug of ours, never bad input: it raises
``InvalidTransition`` with the story, so that a report from a user can be replayed.

A handler says beforehand to which states it may lead (``leads_to``), and ``handle`` holds it to its word; so the
diagrams in the documentation can be drawn from the tables alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from zkconsumer.errors import Bug

if TYPE_CHECKING:
    from enum import Enum

STORY_LINES_MAX = 256


class Line(NamedTuple):
    """One line of a machine's story."""

    before: str
    event: object
    after: str

    def __str__(self) -> str:
        return f"{self.before:<12} {self.event}  ->  {self.after}"


class Arrow(NamedTuple):
    """One way through a table, by names: a row, and the state to which it led."""

    machine: str
    before: str
    event: str
    after: str


class InvalidTransition(Bug):
    """An event arrived in a state that does not expect it."""

    def __init__(self, machine: str, state: str, event: object, story: list[Line]) -> None:
        self.machine = machine
        self.state = state
        self.event = event
        self.history = story
        told = "\n".join(f"  {line}" for line in story)
        super().__init__(f"{machine}: {type(event).__name__} while {state}; its story:\n{told}")


Run: TypeAlias = Callable[[Any, Any], tuple[Any, list[Any]]]


@dataclass(frozen=True, slots=True)
class Handler:
    """What a row of a table does, and the states to which it may lead; none: it stays where it is."""

    run: Run
    target_states: tuple[Enum, ...]


def transitions_to(*states: Enum) -> Callable[[Run], Handler]:
    """Declare to which states a handler may lead."""

    def declare(run: Run) -> Handler:
        return Handler(run, states)

    return declare


stays_in_state = transitions_to()


def go_to(state: Enum) -> Handler:
    """The handler that does nothing but go there."""
    return Handler(lambda _machine, _event: (state, []), (state,))


Table: TypeAlias = Mapping[tuple[Any, type], Handler]


class Machine:
    """A state, a table and a story.  Subclasses give ``INITIAL`` and ``TRANSITIONS``."""

    INITIAL: ClassVar[Enum]
    TRANSITIONS: ClassVar[Table]
    covered_transitions: ClassVar[set[Arrow] | None] = None
    """A test puts a set here to see which ways are taken; nobody else does."""

    def __init__(self) -> None:
        self.state: Any = self.INITIAL
        self.history: deque[Line] = deque(maxlen=STORY_LINES_MAX)

    def handle(self, event: object) -> list[Any]:
        """Take one event in; give back what must now be done, in order."""
        before = self.state
        handler = self.TRANSITIONS.get((before, type(event)))
        if handler is None:
            raise InvalidTransition(type(self).__name__, before.value, event, list(self.history))
        after, commands = handler.run(self, event)
        assert after in (handler.target_states or (before,)), f"a handler led to {after}, which it does not declare"
        self.state = after
        self.history.append(Line(before._value_, event, after._value_))
        if Machine.covered_transitions is not None:
            Machine.covered_transitions.add(Arrow(type(self).__name__, before.value, type(event).__name__, after.value))
        return commands

    def expects(self, event_type: type) -> bool:
        """Whether the table has a row for this event in the present state."""
        return (self.state, event_type) in self.TRANSITIONS
