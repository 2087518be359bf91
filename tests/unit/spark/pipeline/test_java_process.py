"""What a command raises when Spark's JVM ends before it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from subprocess import TimeoutExpired
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JNetworkError

from bridge.spark.pipeline import java_process as module
from bridge.spark.pipeline.java_process import JavaProcessEndedError, java_process
from zkconsumer.errors import UsageError


@dataclass
class Process:
    """``code``: None: it does not end."""

    code: int | None

    def wait(self, timeout_s: float) -> int:
        if self.code is None:
            raise TimeoutExpired("java", timeout_s)
        return self.code


@dataclass
class Session:
    """``state``: what a call to the JVM returns or raises."""

    process: Process | None = None
    state: bool | Exception = False
    stops: int = 0
    server: Any = field(default_factory=lambda: SimpleNamespace(handle_error=lambda *_: None))

    @property
    def sparkContext(self) -> Any:
        gateway = SimpleNamespace() if self.process is None else SimpleNamespace(proc=self.process)
        java_context = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=self._is_stopped))
        return SimpleNamespace(_gateway=gateway, _jsc=java_context, _accumulatorServer=self.server)

    def _is_stopped(self) -> bool:
        if isinstance(self.state, Exception):
            raise self.state
        return self.state

    def stop(self) -> None:
        self.stops += 1
        self._is_stopped()


def used(session: Session) -> Any:
    return java_process(session)  # type: ignore[arg-type]


def test_an_error_while_the_jvm_runs_is_raised_as_it_is_and_the_session_is_stopped() -> None:
    session = Session(Process(None))
    with pytest.raises(UsageError, match="wrong"), used(session):
        raise UsageError("wrong")
    assert session.stops == 1


GONE = (ConnectionRefusedError(111, "refused"), Py4JNetworkError("Answer from Java side is empty"), True)


@pytest.mark.parametrize("state", GONE)
@pytest.mark.parametrize(
    ("process", "words"),
    [
        (
            Process(143),
            "was ended by SIGTERM; send SIGTERM to the command alone, so that it finishes its batch: KillMode",
        ),
        (Process(-15), "was ended by SIGTERM; "),
        (Process(-9), "was ended by SIGKILL; if the kernel's log says that memory was short, "),
        (Process(137), "was ended by SIGKILL; "),
        (Process(3), "has ended with code 3; its log has the reason. "),
        (Process(None), "has stopped; its log has the reason. "),
        (None, "has stopped; its log has the reason. "),
    ],
)
def test_the_error_says_how_the_jvm_ended_and_what_to_do(
    state: Exception | bool, process: Process | None, words: str
) -> None:
    session = Session(process, state)
    with pytest.raises(JavaProcessEndedError) as found, used(session):
        raise Py4JNetworkError("Error while sending or receiving")
    assert str(found.value).startswith(f"Spark's Java process {words}")
    assert str(found.value).endswith("Nothing is lost: repeat the command, and it continues")
    assert found.value.exit_code == 1
    assert session.stops == 0, "each call to it would print or raise another error"


def test_a_jvm_that_ends_after_the_work_is_no_error() -> None:
    session = Session(Process(143))
    with used(session):
        session.state = ConnectionRefusedError(111, "refused")
    assert session.stops == 0

    session = Session(Process(143))
    session.stop = lambda: (_ for _ in ()).throw(Py4JNetworkError("gone"))  # type: ignore[method-assign, assignment]
    with used(session):
        pass


def test_the_server_of_accumulators_reports_what_is_not_the_end_of_the_jvm() -> None:
    reported: list[str] = []
    session = Session(server=SimpleNamespace(handle_error=lambda *_: reported.append(str(sys.exc_info()[1]))))
    with used(session):
        for error in (EOFError("the end"), ConnectionResetError("reset"), ValueError("a defect")):
            try:
                raise error
            except (EOFError, OSError, ValueError):
                session.server.handle_error(None, None)
    assert reported == ["a defect"]


LOGS = f"""
import logging
from {module.__name__} import _mute_py4j
import py4j.java_gateway
_mute_py4j()
_mute_py4j()
exec(compile("import logging; logging.exception('of py4j')", py4j.java_gateway.__file__, "exec"))
logging.getLogger("py4j.clientserver").error("of py4j")
logging.getLogger("kazoo").warning("of kazoo")
logging.getLogger("kazoo").info("info of kazoo")
"""


def test_py4j_logs_nothing_and_other_warnings_are_shown_once() -> None:
    done = subprocess.run([sys.executable, "-c", LOGS], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("", "of kazoo\n")
