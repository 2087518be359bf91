"""A Spark session for each kind of source, each with a separate JVM and separate Python processes.

    python spark_sessions.py SOCKET FOLDER ROOT JAR ...    started by ``sessions``; SOCKET is an open file descriptor

In a common session, the sources would use the same Python workers and the same JVM heap.  Then one source would pay for
the leftovers of another (threads of librdkafka, code that the JVM optimized for another source), which does not happen
in a program.  The source of a second checkout also has its own Python.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from spark_runs import ROOT, Source, session

P = ParamSpec("P")
R = TypeVar("R")

END_S = 60


class Sessions:
    """``run`` executes a function in the session of a source; the other sessions are idle meanwhile."""

    def __init__(self, connections: Mapping[tuple[str, bool], Connection]) -> None:
        self._connections = connections

    def run(self, source: Source, work: Callable[Concatenate[Any, P], R], *rest: P.args, **named: P.kwargs) -> R:
        """Call ``work(spark, *rest, **named)``, a function of a module of this directory.  Raises ``SystemExit`` if it
        raises."""
        connection = self._connections[source.format, source.is_before]
        connection.send((work, rest, named))
        try:
            is_done, result = connection.recv()
        except EOFError:
            raise SystemExit(f"the Spark session of {source.name} ended") from None
        if not is_done:
            raise SystemExit(f"{source.name}: {result}")
        return result  # type: ignore[no-any-return]


def import_problem(_: Any, module: str) -> str:
    """Why the process of a session cannot import a module of this directory; empty: it can."""
    try:
        import_module(module)
    except ImportError as error:
        return str(error)
    return ""


@contextmanager
def sessions(
    sources: tuple[Source, ...],
    folder: Path,
    jars: list[Path],
    before: tuple[Path, str] | None = None,
    *,
    homes: Mapping[str, Path] | None = None,
) -> Iterator[Sessions]:
    """One session for each format of the sources; all end with the context.  ``before``: the second checkout and its
    Python.  ``homes``: SPARK_HOME by format, where it is not the one of pyspark."""
    with ExitStack() as stack:
        made = {}
        for name, is_before in sorted({(source.format, source.is_before) for source in sources}):
            root, python = before if is_before and before is not None else (ROOT, sys.executable)
            place = folder / (f"{name}-before" if is_before else name)
            home = (homes or {}).get(name)
            own = {} if home is None else {"SPARK_HOME": str(home)}
            made[name, is_before] = stack.enter_context(_process(place, jars, root, python, own))
        yield Sessions(made)


@contextmanager
def _process(folder: Path, jars: list[Path], root: Path, python: str, own: Mapping[str, str]) -> Iterator[Connection]:
    folder.mkdir(parents=True, exist_ok=True)
    ours, theirs = socket.socketpair()
    with theirs:
        words = [python, __file__, str(theirs.fileno()), str(folder), str(root), *map(str, jars)]
        path = os.pathsep.join([str(root), str(ROOT / "bench")])
        environment = {**os.environ, "PYTHONPATH": path, **own}
        # Python workers of Spark import from their working directory first: it must not be one of the checkouts.
        process = subprocess.Popen(words, cwd=folder, env=environment, pass_fds=[theirs.fileno()])
    try:
        with Connection(ours.detach()) as connection:
            # One after the other: JVMs that start at the same time slow each other down.
            try:
                connection.recv()
            except EOFError:
                raise SystemExit(f"a Spark session with {python} did not start") from None
            yield connection
    finally:
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        process.kill()
        process.wait()


def main() -> None:
    number, folder, root, *jars = sys.argv[1:]
    import bridge

    if not Path(bridge.__file__).resolve().is_relative_to(root):
        raise SystemExit(f"{bridge.__file__} was imported, which is not in {root}")
    with (
        Connection(int(number)) as connection,
        session(Path(folder), list(map(Path, jars)), Path(root)) as spark,
        suppress(EOFError),
    ):
        connection.send("ready")
        while True:
            work, rest, named = connection.recv()
            try:
                answer = True, work(spark, *rest, **named)
            except (Exception, SystemExit) as error:  # noqa: BLE001
                # As text: exceptions from Java cannot be pickled.
                answer = False, f"{type(error).__name__}: {error}"
            connection.send(answer)


if __name__ == "__main__":
    main()
