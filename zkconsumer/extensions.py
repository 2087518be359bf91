"""Loads the compiled modules of the package; without one the Python modules do the same, more slowly.

A compiled module is missing where the package was installed without a C compiler, or from a zip that was made on such
a machine.  ``ZKCONSUMER_NO_EXTENSIONS`` (set to anything but nothing) leaves all of them out: to find out whether one
of them causes a problem.

Python cannot load a compiled module out of a zip (Spark's ``addPyFile`` and ``addArtifacts`` send one).  So the file is
copied into a folder of this user, and loaded from there:

    <temporary folder>/zkconsumer-<uid>/<digest of the content>-<file>

No other user (but root) may be able to choose what is loaded.  Other users can make that folder first: as theirs, as a
link, or with rights for all to write.  Then it is left alone, and a folder whose name cannot be guessed is made and
removed again.  The folder is opened once, without following links.  What was opened is judged, written and loaded from,
so it makes no difference if another user puts another folder in its place, as they can where the temporary folder has
no sticky bit.  A file that is there already is used when it is a regular file of this user, others cannot write it, and
it has exactly the content that the zip has.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from pathlib import Path
from types import ModuleType

DISABLE_VARIABLE = "ZKCONSUMER_NO_EXTENSIONS"
"""The environment variable that leaves all compiled modules out."""

PACKAGE_ROOT = Path(__file__).resolve().parents[1]
"""The folder, or the zip, that holds the package."""

EXTENSION_MODULES = ("zkconsumer.base._arrow", "zkconsumer.base._delivery", "zkconsumer.wire._records")
"""Every compiled module."""

IN_USE = "in use"
"""What ``status`` says of a module that is loaded."""

OPEN_DESCRIPTORS = Path("/proc/self/fd")
"""Where Linux shows the folders that this process has open; elsewhere a folder is found by its name."""

_missing: dict[str, str] = {}
_loaded: dict[str, ModuleType] = {}


def load(name: str) -> ModuleType | None:
    """The compiled module ``name``, one of ``EXTENSION_MODULES``; None where it is missing, and ``missing_reason`` says
    why.
    """
    if os.environ.get(DISABLE_VARIABLE):
        _missing[name] = f"the environment variable {DISABLE_VARIABLE} is set"
        return None
    try:
        found = _from_zip(name) if PACKAGE_ROOT.is_file() else import_module(name)
    except (ImportError, OSError) as error:
        _missing[name] = f"it cannot be loaded: {error}"
        return None
    _loaded[name] = found
    return found


def missing_reason(name: str) -> str:
    """Why ``load`` gave None; empty where it did not."""
    return _missing.get(name, "")


def status() -> dict[str, str]:
    """Compiled module -> ``IN_USE``, or why it is not.  Loads what was not loaded yet."""
    for name in EXTENSION_MODULES:
        if name not in _loaded and name not in _missing:
            load(name)
    return {name: IN_USE if name in _loaded else f"not in use: {_missing[name]}" for name in EXTENSION_MODULES}


# --- out of a zip -------------------------------------------------------------------------------------------------


def _from_zip(name: str) -> ModuleType:
    content, file = _file_in_zip(name)
    file = f"{hashlib.sha256(content).hexdigest()[:32]}-{file}"
    with _private_folder() as (folder, opened):
        if not _holds(opened, file, content):
            _write(opened, file, content)
        path = OPEN_DESCRIPTORS / str(opened) / file
        module = _load(name, path if path.exists() else folder / file)
        module.__file__ = str(folder / file)
    sys.modules[name] = module
    return module


def _load(name: str, path: Path) -> ModuleType:
    loader = ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None, "the loader is given"
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _file_in_zip(name: str) -> tuple[bytes, str]:
    from zipfile import BadZipFile, ZipFile

    folder, _, stem = name.replace(".", "/").rpartition("/")
    try:
        with ZipFile(PACKAGE_ROOT) as archive:
            members = set(archive.namelist())
            for suffix in EXTENSION_SUFFIXES:
                if f"{folder}/{stem}{suffix}" in members:
                    return archive.read(f"{folder}/{stem}{suffix}"), stem + suffix
    except BadZipFile as error:
        raise ImportError(f"{PACKAGE_ROOT} cannot be read: {error}") from error
    raise ImportError(f"{PACKAGE_ROOT} does not hold it for this system and this Python")


@contextmanager
def _private_folder() -> Iterator[tuple[Path, int]]:
    """A folder that only this user can write, and its descriptor; ``OSError`` where there can be none."""
    kept = Path(tempfile.gettempdir()) / f"zkconsumer-{os.geteuid()}"
    with suppress(FileExistsError):
        os.mkdir(kept, 0o700)
    try:
        opened = _open_private(kept)
    except OSError:
        with tempfile.TemporaryDirectory(prefix="zkconsumer-") as made:
            opened = _open_private(Path(made))
            try:
                yield Path(made), opened
            finally:
                os.close(opened)
        return
    try:
        yield kept, opened
    finally:
        os.close(opened)


def _open_private(folder: Path) -> int:
    """Its descriptor; ``OSError`` for a link, and for a folder of another user or that another user can write."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    if _is_private(opened):
        return opened
    os.close(opened)
    raise PermissionError(f"{folder} belongs to another user, or another user can write it")


def _is_private(opened: int) -> bool:
    found = os.fstat(opened)
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _holds(folder: int, file: str, content: bytes) -> bool:
    """Whether the file is there, with this content, and no other user can change it."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return False
    with open(opened, "rb") as read:
        is_ours = stat.S_ISREG(os.fstat(opened).st_mode) and _is_private(opened)
        return is_ours and read.read() == content


def _write(folder: int, file: str, content: bytes) -> None:
    """In one step, so that another process never loads half a file."""
    beside = f"{file}-{os.urandom(8).hex()}"
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder), "wb") as written:
            written.write(content)
        os.replace(beside, file, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
