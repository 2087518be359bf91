"""The Java process (JVM) of a Spark session in this process: what to raise if it has ended.

    JVM ends --> each call to it raises Py4JError, or OSError from the next connection
                 --java_process--> JavaProcessEndedError: how it ended, and what the operator does

SIGTERM ends the JVM, too, if it goes to each process of a service or of a process group: ``KillMode=control-group`` is
the default of systemd, and timeout(1) signals its group.  The kernel ends it with SIGKILL if there is no memory left.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from zkconsumer.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql.classic.session import SparkSession

END_WAIT_S = 10.0
"""How long a JVM that has stopped its Spark context may take to its end."""

SHELL_SIGNAL_BASE = 128
"""A JVM that a signal ends in order exits with this number and that of the signal."""

NO_CALL: tuple[type[BaseException], ...] = (Py4JError, OSError)
"""What a call to a JVM that has ended raises."""


class JavaProcessEndedError(UnavailableError):
    """Spark's JVM ended before the command did.  Nothing is lost; the command continues when it is repeated."""


@contextmanager
def java_process(session: SparkSession) -> Iterator[None]:
    """Stops the session at the end.  Raises ``JavaProcessEndedError`` instead of an error that follows from the end of
    the JVM."""
    context: Any = session.sparkContext
    process = getattr(context._gateway, "proc", None)
    _mute_accumulators(context)
    _mute_py4j()
    try:
        yield
    except Exception as error:
        if _runs(context):
            raise
        raise JavaProcessEndedError(_end_text(process)) from error
    finally:
        with suppress(*NO_CALL):
            if _runs(context):
                session.stop()


def _runs(context: Any) -> bool:
    """Whether the JVM answers, and its Spark context is not stopped."""
    try:
        return not context._jsc.sc().isStopped()
    except NO_CALL:
        return False


def _end_text(process: Any) -> str:
    """How the JVM ended, what the operator does."""
    code = None
    if process is not None:  # else spark-submit has started the JVM, and the JVM this program
        with suppress(TimeoutExpired):
            code = process.wait(END_WAIT_S)
    if code is None:
        how, action = "has stopped", "its log has the reason"
    elif code in (-signal.SIGTERM, SHELL_SIGNAL_BASE + signal.SIGTERM):
        how = "was ended by SIGTERM"
        action = (
            "send SIGTERM to the command alone, so that it finishes its batch: KillMode=mixed in a unit of systemd, "
            "timeout --foreground"
        )
    elif code in (-signal.SIGKILL, SHELL_SIGNAL_BASE + signal.SIGKILL):
        how = "was ended by SIGKILL"
        action = (
            "if the kernel's log says that memory was short, give the machine more, or Spark less (spark.driver.memory)"
        )
    else:
        how, action = f"has ended with code {code}", "its log has the reason"
    return f"Spark's Java process {how}; {action}. Nothing is lost: repeat the command, and it continues"


def _mute_accumulators(context: Any) -> None:
    """pyspark's server of accumulators prints a trace when the JVM ends."""
    server = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    report = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], (EOFError, OSError)):
            report(request, client_address)

    server.handle_error = handle_error


def _mute_py4j() -> None:
    """py4j logs the errors that it raises, some by a function of ``logging`` that gives the root logger a handler."""
    logging.getLogger("py4j").propagate = False
    root = logging.getLogger()
    if not root.handlers and logging.lastResort is not None:
        root.addHandler(logging.lastResort)  # as without any handler
    root.addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"
