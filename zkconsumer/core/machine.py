"""The shape that every state machine of this package has.

A machine has a state, a table ``(state, event type) -> handler``, and a story: its last lines.  Only ``handle``
assigns the state.  An event that the table does not know is a bug of ours, never bad input: it raises
``InvalidTransition`` with the story, so that a report from a user can be replayed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from zkconsumer.errors import Bug

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from enum import Enum

STORY_LINES_MAX = 256


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a machine's story."""

    before: str
    event: object
    after: str

    def __str__(self) -> str:
        return f"{self.before:<12} {self.event}  ->  {self.after}"


class InvalidTransition(Bug):
    """An event arrived in a state that does not expect it."""

    def __init__(self, machine: str, state: str, event: object, story: list[Line]) -> None:
        self.machine = machine
        self.state = state
        self.event = event
        self.story = story
        told = "\n".join(f"  {line}" for line in story)
        super().__init__(f"{machine}: {type(event).__name__} while {state}; its story:\n{told}")


class Machine:
    """A state, a table and a story.  Subclasses give ``INITIAL`` and ``TRANSITIONS``."""

    INITIAL: ClassVar[Enum]
    TRANSITIONS: ClassVar[Mapping[tuple[Any, type], Callable[[Any, Any], tuple[Any, list[Any]]]]]
    rows_hit: ClassVar[set[tuple[str, str, str]]] = set()

    def __init__(self) -> None:
        self.state: Any = self.INITIAL
        self.story: deque[Line] = deque(maxlen=STORY_LINES_MAX)

    def handle(self, event: object) -> list[Any]:
        """Take one event in; give back what must now be done, in order."""
        before = self.state
        handler = self.TRANSITIONS.get((before, type(event)))
        if handler is None:
            raise InvalidTransition(type(self).__name__, before.value, event, list(self.story))
        self.state, commands = handler(self, event)
        self.story.append(Line(before.value, event, self.state.value))
        self.rows_hit.add((type(self).__name__, before.value, type(event).__name__))
        return commands

    def expects(self, event_type: type) -> bool:
        """Whether the table has a row for this event in the present state."""
        return (self.state, event_type) in self.TRANSITIONS
