"""The main loop of the membership process: requests on standard input, answers on standard output, log on standard
error.

    pipe --lines--> reader thread --inbox--> main thread: one call after the other --> pipe
                         |
                         `-- end of the pipe, or the parent has ended --> every wait ends, leave the group, exit

Spark kills the query's process without notice when the query ends, so the end of the pipe is the notice.  A fork of
that process may have inherited the other end of the pipe and keep it open.  So this process also watches the parent: by
a descriptor that becomes readable when the parent ends (Linux 5.3), else by its process id, every ``PARENT_CHECK_MS``.
"""

from __future__ import annotations

import logging
import os
import queue
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from bridge.spark.membership import pipe_messages as msg
from bridge.spark.membership.process_settings import MembershipProcessSettings
from bridge.spark.membership.query_membership import QueryMembership
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.errors import InternalError, ZkConsumerError

PARENT_CHECK_MS = 500
READ_BYTES = 1 << 16
WRITE_WAIT_MS = 200

EXIT_OK, EXIT_BROKEN = 0, 70

log = logging.getLogger("zkconsumer.membership")


class ParentPipe:
    """This process's ends of the two pipes; calls ``on_end`` once, when no process has the other ends open."""

    def __init__(self, parent: int) -> None:
        """Redirects standard output to standard error: text that is printed by mistake must not reach the query."""
        self._in, self._out = os.dup(0), os.dup(1)
        os.dup2(2, 1)
        os.set_blocking(self._out, False)
        self._parent = parent
        self._poll = select.poll()
        self._poll.register(self._in, select.POLLIN)
        try:
            self._parent_fd = os.pidfd_open(parent) if hasattr(os, "pidfd_open") else -1
        except OSError:
            self._parent_fd = -1
        if self._parent_fd >= 0:
            self._poll.register(self._parent_fd, select.POLLIN)
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_out, False)
        self._poll.register(self._wake_in, select.POLLIN)
        self._rest = b""
        self.is_over = False

    def lines(self) -> list[bytes] | None:
        """The received lines, at least one; None: the query has ended."""
        while True:
            ready = {fd for fd, _ in self._poll.poll(PARENT_CHECK_MS)}
            if os.getppid() != self._parent or self._parent_fd in ready or self._wake_in in ready:
                return None
            if self._in not in ready:
                continue
            data = os.read(self._in, READ_BYTES)
            if not data or len(self._rest) + len(data) > msg.LINE_BYTES_MAX:
                return None
            *lines, self._rest = (self._rest + data).split(b"\n") if b"\n" in data else [self._rest + data]
            if lines:
                return lines

    def wake(self) -> None:
        """``lines`` returns None from now on.  For a signal handler: it takes no lock."""
        with suppress(BlockingIOError):
            os.write(self._wake_out, b"\0")

    def write(self, data: bytes) -> None:
        """Send an answer; ignored when the query has ended."""
        left = memoryview(data)
        writable = select.poll()
        writable.register(self._out, select.POLLOUT)
        while left and not self.is_over:
            try:
                if writable.poll(WRITE_WAIT_MS):
                    left = left[os.write(self._out, left) :]
            except BlockingIOError:
                continue
            except OSError:
                return


class MembershipProcess:
    """Answers calls until the query ends."""

    def __init__(self, pipe: ParentPipe) -> None:
        self._pipe = pipe
        self._inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._membership: QueryMembership | None = None
        self._is_member = False
        self._end_reason = "the query has ended"

    def run(self) -> int:
        """Run until the query ends; returns the exit code."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        spawn("membership-pipe", self._read, lambda name, error: self._query_gone(f"{name}: {error!r}"))
        try:
            while (line := self._inbox.get()) is not None:
                if self._answer(line):
                    break
        finally:
            if self._membership is not None:
                self._leave(self._membership.abandon)
        return EXIT_OK

    def _read(self, stop: StopSignal) -> None:
        while (lines := self._pipe.lines()) is not None:
            for line in lines:
                self._inbox.put(line)
        self._query_gone(self._end_reason)

    def _on_sigterm(self, *_: object) -> None:
        """Runs between two steps of the main thread, which may hold the lock of an event that the end sets: so the
        reader thread ends the query."""
        self._end_reason = "SIGTERM was received"
        self._pipe.wake()

    def _query_gone(self, why: str) -> None:
        if not self._pipe.is_over:
            self._pipe.is_over = True
            if self._is_member:
                log.info("membership-process-leaving reason=%r", why)
        if self._membership is not None:
            self._membership.stop_waiting()
        self._inbox.put(None)

    def _leave(self, leave: Callable[[], bool]) -> None:
        self._membership = None
        began_ms = SYSTEM_CLOCK.now_ms()
        clean = leave()
        if self._is_member:
            log.info("membership-process-left clean=%s took_ms=%d", clean, SYSTEM_CLOCK.now_ms() - began_ms)

    def _answer(self, line: bytes) -> bool:
        """Handle one call; True: it was the last one."""
        call = msg.decode_process_request(line)
        try:
            result = self._handle(call)
        except ZkConsumerError as error:
            self._pipe.write(msg.encode(msg.ProcessErrorResponse.of(call.request_id, error)))
            return call.name == "open"
        self._pipe.write(msg.encode(msg.ProcessResponse(call.request_id, result)))
        return call.name == "close"

    def _handle(self, call: msg.ProcessRequest) -> object:
        args, until_ms = call.args, SYSTEM_CLOCK.now_ms() + call.within_ms
        if call.name == "open":
            return self._open(MembershipProcessSettings.from_json(args))
        service = self._membership
        if service is None:
            raise InternalError(f"{call.name} was called before open")
        match call.name:
            case "begin_batch":
                ended, wait_ms = msg.decode_batch_ends(args["ended"]), msg.number_of(args["wait_ms"])
                return msg.encode_batch_assignment(service.begin_batch(ended, wait_ms, until_ms))
            case "batch_planned":
                service.planned(msg.decode_partitions(args["partitions"]), until_ms)
                return None
            case "group_offsets":
                partitions = msg.decode_partitions(args["partitions"])
                return msg.encode_group_offsets(service.group_offsets(partitions, str(args["query"]), until_ms))
            case "claim":
                ranges = msg.decode_ranges_to_claim(args["ranges"])
                batch = msg.number_of(args["batch"])
                return msg.encode_claim_results(service.claim(str(args["query"]), batch, ranges, until_ms))
            case "seek":
                return msg.encode_reasons(service.seek(msg.decode_offsets(args["offsets"]), until_ms))
            case "brokers":
                return msg.encode_brokers(service.brokers())
            case "metrics":
                return service.observe()
            case "close":
                self._leave(service.leave)
                return None
        raise InternalError(f"{call.name} is not a known call")

    def _open(self, settings: MembershipProcessSettings) -> object:
        configure_process_logging(settings.group, settings.log_level)
        self._membership = service = QueryMembership(settings)
        if self._pipe.is_over:
            service.stop_waiting()
        service.open()
        self._is_member = True
        return {"member": settings.consumer_id, "pid": os.getpid()}


def configure_process_logging(group: str, level: str) -> None:
    """Every line names the group of its membership process: several queries use one standard error."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    name = group.replace("%", "%%")
    handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s membership[{name}] %(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(level)
    logging.getLogger("kazoo").setLevel(logging.WARNING)


def main(parent: int) -> int:
    """Run a membership process for this parent process; a fatal error is logged to standard error."""
    configure_process_logging("?", "INFO")
    try:
        return MembershipProcess(ParentPipe(parent)).run()
    except Exception:
        log.exception("membership-process-failed")
        return EXIT_BROKEN
