"""Archives of the classes that Java programs load: a server that starts with one needs a third less CPU.

    first run of a program    the JVM writes the names of its classes; they are stored when the run has ended
    next process              the archive is made from these names, and the JVM uses it (JEP 310 of Java 10)
    every later start         the JVM uses it

A process that starts again makes no archive: others wait for it, and it would be absent for half a minute longer.

Only if ``$ZKCONSUMER_CLASS_ARCHIVES`` is 1: an archive has 20 to 40 MB, and each release has several programs.  The
tests set it, since they start hundreds of servers.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from zkconsumer.testing.sandbox import cache

log = logging.getLogger("zkconsumer.sandbox")

ENABLED = "ZKCONSUMER_CLASS_ARCHIVES"
NO_WARNINGS = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""What the JVM writes to its standard output about classes that it does not store, or about an archive that it does
not use; a test may read that output.
"""

MAKE_TIMEOUT_S = 120
ARCHIVES_MAX = 60
"""Archives that are kept, those that were made last."""


@dataclass(frozen=True, slots=True)
class JavaProgram:
    """What an archive is of: it is not used with another Java or class path.

    ``class_path``: jars, and folders with ``/*``; a JVM makes no archive of folders with classes.
    """

    java: str
    class_path: str
    main: str

    @property
    def archive(self) -> Path:
        """The file, which need not exist."""
        files = [Path(self.java), *(file for word in self.class_path.split(":") for file in _files_of(word))]
        stats = [(str(file), os.stat(file).st_mtime_ns, os.stat(file).st_size) for file in files]
        key = hashlib.sha256(repr((stats, self.class_path, self.main)).encode()).hexdigest()[:16]
        return cache.folder("class-archives") / f"{self.main.rpartition('.')[2]}-{key}.jsa"


def _files_of(word: str) -> list[Path]:
    path = Path(word)
    return sorted(path.parent.glob("*.jar")) if path.name == "*" else [path]


def start_options(program: JavaProgram, names: Path, *, may_make: bool = True) -> tuple[str, ...]:
    """Options of a JVM: to use the archive, or to write the names of its classes into the file ``names``.

    ``may_make``: make the archive now if there is none and its names are stored, which takes several seconds of CPU.
    """
    if os.environ.get(ENABLED) != "1":
        return ()
    archive = program.archive
    if not archive.exists() and not (may_make and _make(program, archive)):
        return (f"-XX:DumpLoadedClassList={names}", *NO_WARNINGS)
    return (f"-XX:SharedArchiveFile={archive}", *NO_WARNINGS)


def store_names(program: JavaProgram, names: Path) -> None:
    """Store what a JVM that has ended wrote, if it wrote something."""
    with suppress(FileNotFoundError):
        whole, _, _ = names.read_text().rpartition("\n")  # of the last line a killed JVM may have written a part
        names.unlink()
        stored = program.archive.with_suffix(".classes")
        if not stored.exists():
            new = stored.with_suffix(f".{os.getpid()}")
            new.write_text(f"{whole}\n")
            new.replace(stored)


def _make(program: JavaProgram, archive: Path) -> bool:
    """Make the archive; False if no run has stored its classes, or if Java could not make it."""
    stored = archive.with_suffix(".classes")
    if not stored.exists():
        return False
    with cache.lock(archive.parent / "lock"):
        if archive.exists():
            return True
        new = archive.with_suffix(".new")
        command = [program.java, "-Xshare:dump", f"-XX:SharedClassListFile={stored}", f"-XX:SharedArchiveFile={new}"]
        done = subprocess.run(
            [*command, "-cp", program.class_path],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=MAKE_TIMEOUT_S, check=False,
        )  # fmt: skip
        stored.unlink(missing_ok=True)
        if done.returncode != 0:
            log.warning("class-archive-failed program=%s output=%s", program.main, done.stdout[-2000:])
            return False
        new.replace(archive)
        for old in sorted(archive.parent.glob("*.jsa"), key=lambda each: each.stat().st_mtime_ns)[:-ARCHIVES_MAX]:
            old.unlink()  # a JVM that uses it continues, and one that starts with its name starts without an archive
    return True
