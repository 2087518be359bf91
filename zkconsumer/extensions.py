"""Loads the compiled modules of the package; Python modules replace a missing one, and are slower.

A compiled module is missing if the package was installed without a C compiler, or from a zip that was made on such a
machine.  If ``ZKCONSUMER_NO_EXTENSIONS`` is set and not empty, none of them is loaded: use it to find out whether one
of them causes a problem.

Python cannot load a compiled module from a zip (Spark's ``addPyFile`` and ``addArtifacts`` send one).  So the file is
copied into a folder of this user, and loaded from there:

    <temporary folder>/zkconsumer-<uid>/<digest of the content>-<file>

No other user (except root) may determine which code is loaded.  Another user can create that folder first: as its
owner, as a link, or writable for all.  Then it is not used; a folder with a random name is created and removed later.
The folder is opened once, without following links, and the checks, the write and the load use this descriptor.  So it
has no effect if another user replaces the folder, which is possible if the temporary folder has no sticky bit.  An
existing file is used if it is a regular file of this user, no other user can write it, and its content is equal to the
file in the zip.
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
"""The environment variable that disables all compiled modules."""

PACKAGE_ROOT = Path(__file__).resolve().parents[1]
"""The folder, or the zip, that contains the package."""

EXTENSION_MODULES = (
    "zkconsumer.base._arrow",
    "zkconsumer.base._consumer_records",
    "zkconsumer.base._delivery",
    "zkconsumer.base._sockets",
    "zkconsumer.wire._records",
)
"""All compiled modules."""

IN_USE = "in use"
"""The text of ``status`` for a loaded module."""

OPEN_DESCRIPTORS = Path("/proc/self/fd")
"""In Linux, the folder with the open descriptors of this process; in other systems a folder is opened by its name."""

_missing: dict[str, str] = {}
_loaded: dict[str, ModuleType] = {}


def load(name: str) -> ModuleType | None:
    """Load the compiled module ``name``, one of ``EXTENSION_MODULES``; None without it, see ``missing_reason``."""
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
    """Why ``load`` returned None; "" if it did not."""
    return _missing.get(name, "")


def status() -> dict[str, str]:
    """Compiled module -> ``IN_USE``, or why it is not in use.  Loads the modules that were not loaded yet."""
    for name in EXTENSION_MODULES:
        if name not in _loaded and name not in _missing:
            load(name)
    return {name: IN_USE if name in _loaded else f"not in use: {_missing[name]}" for name in EXTENSION_MODULES}


# --- from a zip ---------------------------------------------------------------------------------------------------


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
    assert spec is not None, "a loader is passed"
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
    raise ImportError(f"{PACKAGE_ROOT} does not contain it for this system and this Python")


@contextmanager
def _private_folder() -> Iterator[tuple[Path, int]]:
    """A folder that only this user can write, and its descriptor.  Raises ``OSError`` if none can be created."""
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
    """Open the folder.  Raises ``OSError`` for a link, and for a folder that another user owns or can write."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    if _is_private(opened):
        return opened
    os.close(opened)
    raise PermissionError(f"{folder} belongs to another user, or another user can write it")


def _is_private(opened: int) -> bool:
    found = os.fstat(opened)
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _holds(folder: int, file: str, content: bytes) -> bool:
    """Whether the file exists with this content, and no other user can change it."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return False
    with open(opened, "rb") as read:
        is_ours = stat.S_ISREG(os.fstat(opened).st_mode) and _is_private(opened)
        return is_ours and read.read() == content


def _write(folder: int, file: str, content: bytes) -> None:
    """Write the file atomically, so that another process never loads an incomplete file."""
    beside = f"{file}-{os.urandom(8).hex()}"
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder), "wb") as written:
            written.write(content)
        os.replace(beside, file, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
