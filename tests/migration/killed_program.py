"""``zkconsumer`` as a process that kills (SIGKILL) or stops (SIGSTOP) itself at a place that a test names.

    python -m tests.migration.killed_program step|before|behind|stop N migrate apply ...

    step      after the N-th step was executed, before the next is checked
    before    before the N-th write of either store is sent
    behind    after the N-th write was executed, before the process receives the answer
    stop      before the N-th step is executed; SIGCONT lets it continue

Writes of both stores are counted together.  A process that is not killed prints how many there were: ``writes N``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from bridge.migration.steps.step import MigrationStep
from bridge.migration.steps.step_executors import ApplyExecutor
from tests.migration.migration_write_faults import KAFKA_WRITES
from tests.migration.step_write_faults import is_write
from zkconsumer.cli.main import main
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.wire.schemas import Api
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.requests import Request, Result


def die(*_: object) -> None:
    """As kill -9 does it."""
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


class Counter:
    """Counts up to the place."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen = 0

    def count(self) -> bool:
        """Whether this is the one."""
        self.seen += 1
        return self.seen == self.at


def die_behind_steps(counter: Counter) -> None:
    """After the step."""
    perform = ApplyExecutor.execute

    def performed(self: ApplyExecutor, step: MigrationStep) -> None:
        perform(self, step)
        if counter.count():
            die()

    ApplyExecutor.execute = performed  # type: ignore[method-assign]


def stop_before_steps(counter: Counter) -> None:
    """Before the step, which is printed by then."""
    perform = ApplyExecutor.execute

    def performed(self: ApplyExecutor, step: MigrationStep) -> None:
        if counter.count():
            os.kill(os.getpid(), signal.SIGSTOP)
        perform(self, step)

    ApplyExecutor.execute = performed  # type: ignore[method-assign]


def die_at_writes(counter: Counter, how: str) -> None:
    """Before or after the write."""
    submit, ask = KazooStore.submit, BlockingConnection.request
    is_behind = how == "behind"

    def submitted(
        self: KazooStore, session_id: int | None, requests: Sequence[Request], done: Callable[[list[Result]], None]
    ) -> None:
        for index, request in enumerate(requests):
            if is_write(request) and counter.count():
                sent = requests[: index + is_behind]
                if not sent:
                    die()
                submit(self, session_id, sent, die)
                return
        submit(self, session_id, requests, done)

    def asked(self: BlockingConnection, api: Api[Any, Any], version: int, body: Any, *rest: Any, **how: Any) -> Any:
        is_it = api in KAFKA_WRITES and counter.count()
        if is_it and not is_behind:
            die()
        answer = ask(self, api, version, body, *rest, **how)
        if is_it:
            die()
        return answer

    KazooStore.submit = submitted  # type: ignore[method-assign]
    BlockingConnection.request = asked  # type: ignore[method-assign]


if __name__ == "__main__":
    where, at, *words = sys.argv[1:]
    counted = Counter(int(at))
    if where == "step":
        die_behind_steps(counted)
    elif where == "stop":
        stop_before_steps(counted)
    else:
        die_at_writes(counted, where)
    try:
        main(words)
    finally:
        print(f"writes {counted.seen}", file=sys.stderr)
