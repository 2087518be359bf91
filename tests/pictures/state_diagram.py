"""The diagram of a state machine: states below each other, other transitions as buses on both sides.  Pure.

A transition to the next state is an arrow down.  Any other leaves its state at the side, right when it leads down and
left when it leads up, and joins the vertical line of its target: each target has one line on a side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.pictures.svg_picture import SvgPicture, width_of

_STEP = 20
"""Pixels between two transitions at one side of a state."""
_GAP, _MARGIN, _LANE = 46, 16, 14


@dataclass
class _Side:
    """The transitions at one side of the states; positions are indices of states."""

    labels: dict[tuple[int, int], str] = field(default_factory=dict)
    """(from, to) -> label."""

    def leaving(self, state: int) -> list[int]:
        """The targets in the order in which their lines leave the state: the outermost line first."""
        return sorted(after for before, after in self.labels if before == state)

    def targets(self) -> list[int]:
        return sorted({after for _, after in self.labels})

    def places(self, state: int) -> int:
        return len(self.leaving(state)) + (state in self.targets())

    def width(self, text_width: float = 0.0) -> float:
        """Labels, or other texts of this width, and the vertical lines beyond them."""
        wide = max([text_width, *map(width_of, self.labels.values())])
        return wide + 20 + _LANE * len(self.targets()) if wide else 0.0


@dataclass(frozen=True)
class StateDiagram:
    """What to draw.  ``arrows``: (state, next state) -> label.  ``kinds``: state -> class of its colour."""

    title: str
    states: Sequence[str]
    arrows: Mapping[tuple[str, str], str]
    start: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[tuple[str, str]] = ()
    """What the colours mean: (class, text)."""

    def render(self) -> str:
        """The text of the SVG file."""
        order = {state: number for number, state in enumerate(self.states)}
        down, up, straight = _Side(), _Side(), dict[int, str]()
        for (before, after), label in self.arrows.items():
            first, second = order[before], order[after]
            if second == first + 1:
                straight[first] = label
            else:
                (down if second > first else up).labels[first, second] = label
        heights = [max(34, _STEP * (1 + max(down.places(i), up.places(i)))) for i in range(len(self.states))]
        tops = [60 + sum(heights[:i]) + _GAP * i for i in range(len(heights))]
        box = max(110.0, 24 + max(map(width_of, self.states)))
        left = _MARGIN + up.width()
        right_width = down.width(max(map(width_of, straight.values()), default=0.0) - box / 2)
        height = tops[-1] + heights[-1] + _MARGIN + 24 * len(self.notes)
        picture = SvgPicture(left + box + right_width + _MARGIN, height, self.title)
        middle = left + box / 2
        picture.dot(middle, 16, 6)
        picture.line([(middle, 22), (middle, tops[0] - 2)])
        picture.text(middle + 8, 42, self.start, "small")
        for state, top, tall in zip(self.states, tops, heights, strict=True):
            picture.labelled_box((left, top, box, tall), [state], self.kinds.get(state, "plain"))
        for number, label in straight.items():
            bottom = tops[number] + heights[number]
            picture.line([(middle, bottom), (middle, tops[number + 1] - 2)])
            picture.text(middle + 8, bottom + _GAP / 2 + 2, label, "small")
        _draw_side(picture, down, tops, (left + box, 1), right_width)
        _draw_side(picture, up, tops, (left, -1), up.width())
        for number, (kind, text) in enumerate(self.notes):
            y = tops[-1] + heights[-1] + 14 + 24 * number
            picture.box(_MARGIN, y, 16, 16, kind)
            picture.text(_MARGIN + 24, y + 12, text, "small")
        return picture.render()


def _draw_side(picture: SvgPicture, side: _Side, tops: Sequence[float], edge: tuple[float, int], width: float) -> None:
    """``edge``: the x of the states' edge at this side, and 1 for the right side or -1 for the left one."""
    x, direction = edge
    targets = side.targets()
    for number, target in enumerate(targets):
        lane = x + direction * (width - _LANE * (number if direction > 0 else len(targets) - 1 - number))
        sources = [before for before, after in side.labels if after == target]
        ports = {}
        for source in sources:
            place = side.leaving(source).index(target) + (source in targets)
            ports[source] = tops[source] + _STEP * (place + 1)
        arrival = tops[target] + _STEP
        ends = [*ports.values(), arrival]
        picture.line([(lane, min(ends)), (lane, max(ends))], has_tip=False)
        picture.line([(lane, arrival), (x + 2 * direction, arrival)])
        for source, y in ports.items():
            picture.line([(x, y), (lane, y)], has_tip=False)
            picture.text(
                x + 8 * direction, y - 4, side.labels[source, target], "small" if direction > 0 else "small end"
            )
            if y not in (min(ends), max(ends)):
                picture.dot(lane, y)
