"""An exception at any bytecode of a call, as of a signal handler that raises (Ctrl-C, ``sys.exit`` on SIGTERM).

The exception comes from a trace function, at each opcode of the package and of ``threading`` in turn, or only where
CPython handles signals: after calls and at the start of functions.
"""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import bridge
import zkconsumer

PACKAGES = tuple(f"{Path(package.__file__ or '').parent}/" for package in (zkconsumer, bridge))
"""The folders of the code that is interrupted."""

CALLS_MAX = 40
"""More calls than any program here makes: one that needs more makes no progress."""


class Interrupted(BaseException):
    """What the signal handler raises."""


@functools.cache
def _is_traced(name: str) -> bool:
    return (name.startswith(PACKAGES) and "/testing/" not in name) or name.endswith("/threading.py")


class Trace:
    """Raises at opcode ``at`` of each of ``calls``, or calls ``handler`` there; ``last`` is where it did.

    Calls of the program and their opcodes are counted from 1; ``count`` is what the last of ``calls`` had.
    ``at_signals``, and with a ``handler``: only opcodes count before which CPython handles signals.
    """

    def __init__(self, calls: Sequence[int], at: int, *, at_signals: bool = False) -> None:
        self.calls = calls
        self.at = at
        self.at_signals = at_signals
        self.handler: Callable[[], None] | None = None
        self.call = 0
        self.count = 0
        self.last = ""
        # Kept here as long as this exists: CPython 3.11 once called a trace function that was freed ("'traceback'
        # object is not callable").
        self._on_call = self._trace
        self._steps: dict[int, Callable[[FrameType, str, object], Any]] = {}

    def __enter__(self) -> None:
        self.before = sys.gettrace()
        self.call += 1
        if self.call in self.calls:
            self.count = 0
            sys.settrace(self._on_call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        """A call begins: trace its opcodes, if it is of ours."""
        if not _is_traced(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        end = _end(frame.f_code)
        if end not in self._steps:
            self._steps[end] = self._step_until(end)
        return self._steps[end]

    def _step_until(self, end: int) -> Callable[[FrameType, str, object], Any]:
        """The trace function of a call whose opcodes from ``end`` on do not count."""

        def step(frame: FrameType, event: str, _: object) -> Any:
            if event == "opcode" and frame.f_lasti < end:
                self._count(frame)
            return step

        return step

    def _count(self, frame: FrameType) -> None:
        only_signals = self.at_signals or self.handler is not None
        if only_signals and frame.f_lasti not in _handles_signals(frame.f_code):
            return
        self.count += 1
        if self.count == self.at:
            self.last = (
                f"call {self.call}, {frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {_opcode(frame)}"
            )
            if self.handler is None:
                raise Interrupted
            self.handler()


def _opcode(frame: FrameType) -> str:
    return dis.opname[frame.f_code.co_code[frame.f_lasti]]


@functools.cache
def _end(code: CodeType) -> int:
    """Where the last ``return`` of the method ``next`` begins: what it returns is the program's from there on.

    CPython handles no signal between a step that is no call and a return.  (What runs in C instead, ``__next__``, has
    no bytecode that could be interrupted.)
    """
    if code.co_name != "next":
        return len(code.co_code)
    steps = list(dis.get_instructions(code))
    at = max(i for i, step in enumerate(steps) if step.opname == "RETURN_VALUE")
    return steps[at - 1 if steps[at - 1].opname == "LOAD_FAST" else at].offset


@functools.cache
def _handles_signals(code: CodeType) -> frozenset[int]:
    """Before which opcodes CPython runs signal handlers: after calls, and at the start of a function.

    Not those that have another exception handler than the call, as at the end of a ``with``: CPython's exception is one
    of the call, and that of a trace function one of the next opcode.
    """
    steps = dis.Bytecode(code)

    def handler(offset: int) -> int | None:
        return next((each.target for each in steps.exception_entries if each.start <= offset < each.end), None)

    return frozenset(
        after.offset
        for step, after in itertools.pairwise(steps)
        if step.opname in ("CALL", "RESUME") and handler(step.offset) == handler(after.offset)
    )


def every_opcode(run: Callable[[Trace], None], *, at_signals: bool = False) -> Iterator[Trace]:
    """Run it with an exception at the first opcode of the first call, at the second, and so on for every call."""
    for call in range(1, CALLS_MAX):
        trace = Trace([call], 1, at_signals=at_signals)
        while True:
            run(trace)
            if trace.call < call:
                assert call > 1, "the program has made no call"
                return
            yield trace
            if trace.count < trace.at:
                break
            trace = Trace([call], trace.at + 1, at_signals=at_signals)
