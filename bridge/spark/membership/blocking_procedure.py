"""Runs a procedure on the calling thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from zkconsumer.zk.store import submit_and_wait

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.zk.group_procedures import Procedure
    from zkconsumer.zk.requests import Result
    from zkconsumer.zk.store import ZkStore

T = TypeVar("T")

ANSWER_RESERVE_MS = 500
"""The part of a call's time that is reserved for its answer."""

STEP_TIMEOUT_MIN_MS = 500
"""The time of a step that a call's deadline must not interrupt."""


def run_blocking(store: ZkStore, session_id: int, procedure: Procedure[T], until_ms: int, clock: Clock) -> T:
    """Run the procedure to its end in that session, on the calling thread.

    Raises the errors of the procedure, and ``ZkTimeoutException`` when ZooKeeper does not answer.
    """
    results: list[Result] | None = None
    while True:
        try:
            requests = next(procedure) if results is None else procedure.send(results)
        except StopIteration as end:
            found: T = end.value
            return found
        assert isinstance(requests, list), "such a procedure sends requests only to ZooKeeper"
        left_ms = max(STEP_TIMEOUT_MIN_MS, until_ms - clock.now_ms() - ANSWER_RESERVE_MS)
        results = submit_and_wait(store, requests, left_ms, session_id)
