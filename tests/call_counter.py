"""Counts work instead of seconds, so that a test of a bound does not depend on how busy the machine is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


class TooManyCalls(Exception):
    """The action called more functions than allowed, and was stopped there."""


def calls_of(action: Callable[[], object], calls_max: int) -> int:
    """How many Python functions ``action`` calls (a generator that is resumed counts, a function in C does not).

    ``TooManyCalls`` as soon as there are more than ``calls_max``: what would run for minutes fails at once.
    """
    calls = 0

    def count(_frame: object, event: str, _what: object) -> None:
        nonlocal calls
        calls += event == "call"
        if calls > calls_max:
            raise TooManyCalls(f"more than {calls_max} calls")

    _run_with_profile(action, count)
    return calls


def functions_called(action: Callable[[], object]) -> frozenset[tuple[str, str]]:
    """File and qualified name of the Python functions that ``action`` calls in this thread."""
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _what: object) -> None:
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    _run_with_profile(action, note)
    return frozenset(called)


def _run_with_profile(action: Callable[[], object], profile: Callable[[FrameType, str, object], None]) -> None:
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(before)
