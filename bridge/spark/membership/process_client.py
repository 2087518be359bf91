"""``MembershipProcessClient``: the ``GroupMembership`` of a query.  It starts the membership process and sends it the
calls.

The next call detects that the process was killed.  It then starts another one with the same member id, and repeats the
call (every call may be made twice).  The new process has a new membership: the nodes of the old session exist until the
session expires, and the process waits for that.  After ``RESTARTS_MAX`` restarts in ``RESTARTS_WITHIN_MS`` the call
fails.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from bridge.spark.group_membership import BatchAssignment, BatchEnd, ClaimResult, GroupOffset, RangeToClaim
from bridge.spark.membership import pipe_messages as msg
from bridge.spark.membership.process_settings import MembershipProcessSettings
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.errors import ConnectorClosed, ForkedError, UnavailableError, UsageError
from zkconsumer.runtime.membership_config import make_consumer_id
from zkconsumer.types import BrokerAddress, TopicPartition

RESTARTS_MAX = 3
RESTARTS_WITHIN_MS = 600_000

START_MS = 30_000
"""The time for Python to start, in addition to the waits of a member that the settings allow."""

CALL_MS = 15_000
CLAIM_MS = 45_000
"""A claim waits for the assignment of a new membership: until the session of the last one expires."""

COORDINATOR_MS = 30_000
"""More time where the group's coordinator is needed: a group may migrate there at any time."""

CLOSE_MS = 25_000
GRACE_MS = 5_000
"""How long after its own deadline the membership process counts as stuck, and is killed."""

READ_BYTES = 1 << 16

log = logging.getLogger("zkconsumer.membership")


class MembershipProcessClient:
    """See ``GroupMembership``.  No process starts before the first call (or ``start``); one thread, one process."""

    def __init__(self, settings: MembershipProcessSettings, *, clock: Clock = SYSTEM_CLOCK, python: str = "") -> None:
        """``settings.consumer_id`` and ``run`` may be empty: then they are generated, and all restarts use the same.

        Raises the errors of ``MembershipProcessSettings.config``.
        """
        config = settings.config()
        member = settings.consumer_id or make_consumer_id(config.group_id, config.consumer_id, clock)
        self.settings = replace(settings, consumer_id=member, run=settings.run or uuid.uuid4().hex)
        self._clock = clock
        self._python = python or sys.executable
        self._pid = os.getpid()
        self._process: _ChildProcess | None = None
        self._started_ms: list[int] = []
        self._is_closed = False
        self._start_ms = START_MS + config.zookeeper_connection_timeout_ms + COORDINATOR_MS
        self._start_ms += settings.takeover_wait_ms if settings.is_takeover else 0

    def start(self) -> None:
        """Join the group now; raises the error that prevents it."""
        self._running_process()

    # --- GroupMembership ----------------------------------------------------------------------------------------

    def begin_batch(self, ended: Mapping[TopicPartition, BatchEnd], wait_ms: int) -> BatchAssignment:
        args = {"ended": msg.encode_batch_ends(ended), "wait_ms": wait_ms}
        return msg.decode_batch_assignment(self._ask("begin_batch", args, CALL_MS + COORDINATOR_MS + wait_ms))

    def batch_planned(self, partitions: Collection[TopicPartition]) -> None:
        self._ask("batch_planned", {"partitions": msg.encode_partitions(partitions)}, CALL_MS)

    def group_offsets(self, partitions: Collection[TopicPartition], query: str) -> dict[TopicPartition, GroupOffset]:
        args = {"partitions": msg.encode_partitions(partitions), "query": query}
        return msg.decode_group_offsets(self._ask("group_offsets", args, CALL_MS + COORDINATOR_MS))

    def claim(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, RangeToClaim]
    ) -> dict[TopicPartition, ClaimResult]:
        args = {"query": query, "batch": batch, "ranges": msg.encode_ranges_to_claim(ranges)}
        return msg.decode_claim_results(self._ask("claim", args, CLAIM_MS + COORDINATOR_MS))

    def seek(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        return msg.decode_reasons(self._ask("seek", {"offsets": msg.encode_offsets(offsets)}, CALL_MS + COORDINATOR_MS))

    def brokers(self) -> list[BrokerAddress]:
        return msg.decode_brokers(self._ask("brokers", {}, CALL_MS))

    def metrics(self) -> dict[str, int]:
        found = self._ask("metrics", {}, CALL_MS)
        return {str(name): msg.number_of(value) for name, value in found.items()}

    def close(self) -> None:
        if self._is_closed or os.getpid() != self._pid:
            return
        self._is_closed = True
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.ask("close", {}, CLOSE_MS, self._clock)
        except (UnavailableError, _ProcessEnded):
            log.warning(
                "membership-process-close-incomplete group=%s: its nodes are deleted when its session expires",
                self.settings.group,
            )
        finally:
            process.end()

    def __enter__(self) -> MembershipProcessClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the process --------------------------------------------------------------------------------------------

    @property
    def process_pid(self) -> int | None:
        """The id of the running process."""
        return None if self._process is None else self._process.pid

    def _ask(self, name: str, args: dict[str, Any], within_ms: int) -> Any:
        if self._is_closed:
            raise ConnectorClosed(f"the membership of this query in group {self.settings.group} is closed")
        if os.getpid() != self._pid:
            raise ForkedError("this membership belongs to another process, from which this process was forked")
        while True:
            process = self._running_process()
            try:
                return process.ask(name, args, within_ms, self._clock)
            except _ProcessEnded as died:
                self._process_ended(died)

    def _running_process(self) -> _ChildProcess:
        while self._process is None:
            now_ms = self._clock.now_ms()
            self._started_ms = [at_ms for at_ms in self._started_ms if now_ms - at_ms < RESTARTS_WITHIN_MS]
            if len(self._started_ms) > RESTARTS_MAX:
                raise UnavailableError(
                    f"the membership process of group {self.settings.group} ended {len(self._started_ms)} times within "
                    f"{RESTARTS_WITHIN_MS // 60_000} minutes: the lines that begin with "
                    f"membership[{self.settings.group}] on the driver's standard error contain the reason (a process "
                    "that is killed logs none: check the memory of the driver's machine)"
                )
            self._started_ms.append(now_ms)
            process = _ChildProcess(self._python)
            try:
                process.ask("open", self.settings.to_json(), self._start_ms, self._clock)
            except _ProcessEnded as died:
                process.end()
                log.warning(
                    "membership-process-ended group=%s code=%s: before it joined", self.settings.group, died.code
                )
                continue
            except BaseException:
                process.end()
                raise
            self._process = process
        return self._process

    def _process_ended(self, died: _ProcessEnded) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()
        log.warning(
            "membership-process-ended group=%s code=%s: starting another one, which waits until the old session "
            "expires",
            self.settings.group, died.code,
        )  # fmt: skip


class _ProcessEnded(Exception):
    """The membership process ended; ``code`` as of ``subprocess``, None when it was stuck and was killed."""

    def __init__(self, code: int | None) -> None:
        super().__init__(str(code))
        self.code = code


class _ChildProcess:
    """One membership process and the pipes to it."""

    def __init__(self, python: str) -> None:
        """Raises ``UsageError`` when it cannot be started."""
        path = os.pathsep.join(dict.fromkeys(entry or os.getcwd() for entry in sys.path))
        try:
            # Not in our process group, which Spark's daemon kills; and no secrets in the arguments.
            self._popen = subprocess.Popen(
                [python, "-P", "-m", "bridge.spark.membership", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                close_fds=True,
                bufsize=0,
                env={**os.environ, "PYTHONPATH": path},
            )
        except OSError as error:
            raise UsageError(
                f"the membership process cannot be started with {python!r}: {error}; set PYSPARK_PYTHON to a Python "
                "that the driver can run"
            ) from error
        assert self._popen.stdin is not None, "it is a pipe"
        assert self._popen.stdout is not None, "it is a pipe"
        self._in, self._out = self._popen.stdin, self._popen.stdout
        os.set_blocking(self._in.fileno(), False)
        self._rest = b""
        self._asked = 0

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ask(self, name: str, args: dict[str, Any], within_ms: int, clock: Clock) -> Any:
        """Raises ``_ProcessEnded``, the error of the answer, and ``UnavailableError`` for a process that is stuck and
        was killed.
        """
        self._asked += 1
        until_ms = clock.now_ms() + within_ms + GRACE_MS
        self._write(msg.encode(msg.ProcessRequest(self._asked, name, within_ms, args)), until_ms, clock)
        while True:
            answer = msg.decode_process_response(self._line(until_ms, clock))
            if answer.request_id == self._asked:
                break
        if isinstance(answer, msg.ProcessErrorResponse):
            raise answer.error()
        return answer.result

    def end(self) -> None:
        """Close its pipe, so that it leaves the group and ends; kill it when it does not end."""
        for pipe in (self._in, self._out):
            pipe.close()
        try:
            self._popen.wait(GRACE_MS / 1000)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def _write(self, data: bytes, until_ms: int, clock: Clock) -> None:
        left = memoryview(data)
        while left:
            self._ready(self._in.fileno(), select.POLLOUT, until_ms, clock)
            try:
                left = left[os.write(self._in.fileno(), left) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._died() from None

    def _line(self, until_ms: int, clock: Clock) -> bytes:
        while b"\n" not in self._rest:
            self._ready(self._out.fileno(), select.POLLIN, until_ms, clock)
            data = os.read(self._out.fileno(), READ_BYTES)
            if not data or len(self._rest) > msg.LINE_BYTES_MAX:
                raise self._died()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ready(self, fd: int, what: int, until_ms: int, clock: Clock) -> None:
        poll = select.poll()
        poll.register(fd, what)
        if not poll.poll(max(0, until_ms - clock.now_ms())):
            self._popen.kill()
            raise UnavailableError(
                f"the membership process (process {self.pid}) did not answer within its deadline and was killed; the "
                "next call starts another one"
            )

    def _died(self) -> _ProcessEnded:
        try:
            return _ProcessEnded(self._popen.wait(GRACE_MS / 1000))
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return _ProcessEnded(None)
