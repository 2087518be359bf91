"""The calls that pass the drain of a partition through a member with two memberships: at most eight.

A hop is one call, or one entry in a queue, that passes ``Drain`` on from the membership that decides it, or
``PartitionsDrained`` back to that membership.  Calls inside of one state machine count once; the two ends (the control
thread of the membership, the stream fetcher) are not hops.  ``migration_docs/explanation/architecture.md`` has the
same path.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from tests.migration.migrating_connectors import EPOCHS, TOPIC, Dual, dual, wait_until
from zkconsumer.member.ownership import Drain, PartitionsDrained

__all__ = ["dual"]

HOPS_MAX = 8
PATH = [
    "SidePartitionProcessor.execute",
    "MigratingMembership.handle_event",
    "MigratingMember.handle",
    "StreamFetcher.execute",
    "MigratingEventLoop.submit",
    "MigratingMembership.handle_event",
    "MigratingMember.handle",
    "EventLoop.submit",
]
ENDS = (
    "MemberEventLoop.", "MemberStateMachine.", "MemberObserver.", "CoordinatorEventLoop.", "AssignmentExecutor.",
    "StreamFetcher._", "MigratingPartitions.", "SideArbiter.", "PartitionReleaser.",
)  # fmt: skip
"""The two ends, and the rest of the pure state machine."""


class DrainCalls:
    """The calls of product code that receive the values of a drain, in their order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._lock = threading.Lock()

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """For ``threading.setprofile``."""
        code = frame.f_code
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if event != "call" or package not in ("zkconsumer", "bridge") or code.co_name == "__init__":
            return
        values = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
        parts = [getattr(value, name, None) for value in values for name in ("command", "event")]
        if any(isinstance(value, Drain | PartitionsDrained) for value in (*values, *parts)):
            with self._lock:
                self.names.append(code.co_qualname)


@contextmanager
def recorded_threads() -> Iterator[DrainCalls]:
    """The calls of all threads that start inside."""
    calls = DrainCalls()
    threading.setprofile(calls.profile)
    try:
        yield calls
    finally:
        threading.setprofile(None)
        sys.setprofile(None)


@pytest.mark.parametrize("phase", ["planned", "switched"])
def test_a_drain_of_a_migrating_member_takes_at_most_eight_hops(dual: Dual, phase: str) -> None:
    """In phase ``planned`` the side in ZooKeeper is active, in phase ``switched`` the side at the coordinator."""
    with recorded_threads() as calls:
        first = dual.member("a")
        first.create_message_streams({TOPIC: 1})
        for each in EPOCHS:
            dual.move(each)
            if each == phase:
                break
        wait_until(lambda: len(first.assignment) == dual.partitions, "all partitions")
        calls.names.clear()
        threading.setprofile(None)
        dual.member("b").create_message_streams({TOPIC: 1})
        wait_until(lambda: len(first.assignment) == dual.partitions // 2, "its half")
        wait_until(lambda: PATH[-1] in calls.names, "the membership has the answer")
    path = [name for name in calls.names if not name.startswith(ENDS)]
    assert path == PATH
    assert len(path) <= HOPS_MAX
