"""The cache folder: keeps downloaded and compiled files; incomplete ones are never visible.

$ZKCONSUMER_CACHE (else ~/.cache/zkconsumer)
    kafka/<release>/    jars of one release, complete.json written last
    classes/<...>/      compiled helper programs, a jar each
    class-archives/     classes as a JVM maps them into its memory, if $ZKCONSUMER_CLASS_ARCHIVES is 1
    runs/<id>/          one for each sandbox that runs, or was killed before it could clean up
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox.waiting import wait_until

LOCK_TIMEOUT_MS = 600_000  # as long as the other process may need for one download


def root() -> Path:
    """The folder itself; read from the environment at each call, so that tests can use another one."""
    named = os.environ.get("ZKCONSUMER_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "zkconsumer"


def folder(*names: str) -> Path:
    """A folder of the cache, made if need be."""
    path = root().joinpath(*names)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SandboxError(f"the cache folder {path} cannot be made ({error}); set ZKCONSUMER_CACHE") from error
    return path


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Excludes other processes (and threads); the system releases it when the process that locked it dies."""
    with path.open("w") as file:
        wait_until(lambda: _try_lock(file.fileno()), f"another process holds {path}", LOCK_TIMEOUT_MS)
        yield


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside ``target`` that takes its name, in one step, if the block ends without an error."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        _replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace(made: Path, target: Path) -> None:
    old = made.with_name(made.name + "-old")
    try:
        if target.exists():
            target.rename(old)
        made.rename(target)
    except OSError:
        # Another process stored the same thing at this moment; if not, the reader of the target reports it.
        if not target.exists():
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
