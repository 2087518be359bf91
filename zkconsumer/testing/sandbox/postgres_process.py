"""``run_postgres``: a PostgreSQL server in a folder of its own, on a free port of the loopback interface.

The server refuses to run as root, so root starts it as the user ``postgres`` or ``nobody``.  It ends with this process,
however that ends: a shell beside it waits for the end of its standard input.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox.waiting import HOST, free_port, wait_until

USER, DATABASE = "pipeline", "postgres"
PASSWORD = "a 'secret' \\ text"

START_TIMEOUT_MS = 60_000
INIT_TIMEOUT_S = 100
STOP_TIMEOUT_S = 20
STARTS_MAX = 3

USERS = ("postgres", "nobody")

NO_SERVER = "there is no PostgreSQL server: apt-get install postgresql"

UNTIL_INPUT_ENDS = """
exec 3<&0
"$@" </dev/null & server=$!
(cat <&3 >/dev/null; kill -INT $server) & watch=$!
wait $server; code=$?
kill $watch
exit $code
"""
"""Runs a server until it ends or the standard input does, which is also the end of the process of the tests."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A server that runs; ``password_file`` contains the password of ``USER``."""

    port: int
    password_file: Path
    log: Path


def find_postgres() -> Path | None:
    """The folder of ``initdb`` and ``postgres``; Debian has it outside of PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: int(each.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    folders += [Path(on_path).resolve().parent] if on_path is not None else []
    return next((each for each in folders if (each / "initdb").exists() and (each / "postgres").exists()), None)


def missing_for_postgres() -> str | None:
    """Why a server cannot be started here, as a sentence, or None."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed: pip install '.[postgres]'"
    if find_postgres() is None:
        return NO_SERVER
    return None


def _other_user() -> pwd.struct_passwd | None:
    """The user of the server; None: that of this process."""
    if os.geteuid() != 0:
        return None
    users = {each.pw_name: each for each in pwd.getpwall()}
    return next(users[name] for name in USERS if name in users)


@contextmanager
def run_postgres() -> Iterator[PostgresServer]:
    """A server until the end of the block.  ``SandboxError``: ``missing_for_postgres`` has the reason, or it does not
    start."""
    programs = find_postgres()
    if programs is None:
        raise SandboxError(missing_for_postgres() or NO_SERVER)
    user = _other_user()
    with tempfile.TemporaryDirectory(prefix="zkc-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        password_file = folder / "password"
        password_file.write_text(PASSWORD)
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
            os.chown(password_file, user.pw_uid, user.pw_gid)
        who: dict[str, Any] = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        with (folder / "log").open("ab") as log:
            subprocess.run(
                [programs / "initdb", "-D", folder / "data", "-U", USER, "-A", "scram-sha-256", "--pwfile",
                 password_file, "-E", "UTF8", "--locale=C", "--no-sync"],
                check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, timeout=INIT_TIMEOUT_S, **who,
            )  # fmt: skip
            process, port = _start(programs, folder, log, who)
        assert process.stdin is not None
        try:
            yield PostgresServer(port, password_file, folder / "log")
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(STOP_TIMEOUT_S)


def _start(programs: Path, folder: Path, log: IO[bytes], who: dict[str, Any]) -> tuple[subprocess.Popen[bytes], int]:
    """Starts the server; on another port if a program took the first one."""
    for left in reversed(range(STARTS_MAX)):
        port = free_port()
        process = subprocess.Popen(
            ["sh", "-c", UNTIL_INPUT_ENDS, "sh", programs / "postgres", "-D", folder / "data", "-k", folder,
             "-p", str(port), "-c", f"listen_addresses={HOST}", "-c", "fsync=off", "-c", "max_connections=40"],
            stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder, start_new_session=True, **who,
        )  # fmt: skip
        ready = [programs / "pg_isready", "-q", "-h", HOST, "-p", str(port)]

        def has_decided(process: subprocess.Popen[bytes] = process, ready: list[Any] = ready) -> bool:
            return process.poll() is not None or subprocess.run(ready, check=False).returncode == 0

        wait_until(has_decided, f"PostgreSQL on port {port}", START_TIMEOUT_MS, poll_ms=200)
        if process.poll() is None:
            return process, port
        if not left:
            break
    raise SandboxError(f"PostgreSQL ends at its start: {(folder / 'log').read_text()[-2_000:]}")
