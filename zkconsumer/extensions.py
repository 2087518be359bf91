"""Loads the compiled modules of the package; without one the Python modules do the same, more slowly.

A compiled module is missing where the package was installed without a C compiler, or from a zip that was made on such
a machine.  ``ZKCONSUMER_NO_EXTENSIONS`` (set to anything but nothing) leaves all of them out: to find out whether one
of them causes a problem.

Python cannot load a compiled module out of a zip (Spark's ``addPyFile`` and ``addArtifacts`` send one).  So the file is
copied into a folder that only this user can write, named by the digest of the file, and loaded from there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat
import sys
import tempfile
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from pathlib import Path
from types import ModuleType

SWITCH = "ZKCONSUMER_NO_EXTENSIONS"
"""The environment variable that leaves all compiled modules out."""

ROOT = Path(__file__).resolve().parents[1]
"""The folder, or the zip, that holds the package."""

NAMES = ("zkconsumer.base._delivery", "zkconsumer.wire._records")
"""Every compiled module."""

_missing: dict[str, str] = {}
_loaded: dict[str, ModuleType] = {}


def load(name: str) -> ModuleType | None:
    """The compiled module ``name``, one of ``NAMES``; None where it is missing, and ``why_missing`` says why."""
    if os.environ.get(SWITCH):
        _missing[name] = f"the environment variable {SWITCH} is set"
        return None
    try:
        found = _from_zip(name) if ROOT.is_file() else import_module(name)
    except (ImportError, OSError) as error:
        _missing[name] = f"it cannot be loaded: {error}"
        return None
    _loaded[name] = found
    return found


def why_missing(name: str) -> str:
    """Why ``load`` gave None; empty where it did not."""
    return _missing.get(name, "")


def status() -> dict[str, str]:
    """Compiled module -> ``in use``, or why it is not.  Loads what was not loaded yet."""
    for name in NAMES:
        if name not in _loaded and name not in _missing:
            load(name)
    return {name: "in use" if name in _loaded else f"not in use: {_missing[name]}" for name in NAMES}


# --- out of a zip -------------------------------------------------------------------------------------------------


def _from_zip(name: str) -> ModuleType:
    content, file = _file_in_zip(name)
    path = _unpacked(content, file)
    loader = ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None, "the loader is given"
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
    return module


def _file_in_zip(name: str) -> tuple[bytes, str]:
    from zipfile import BadZipFile, ZipFile

    folder, _, stem = name.replace(".", "/").rpartition("/")
    try:
        with ZipFile(ROOT) as archive:
            members = set(archive.namelist())
            for suffix in EXTENSION_SUFFIXES:
                if f"{folder}/{stem}{suffix}" in members:
                    return archive.read(f"{folder}/{stem}{suffix}"), stem + suffix
    except BadZipFile as error:
        raise ImportError(f"{ROOT} cannot be read: {error}") from error
    raise ImportError(f"{ROOT} does not hold it for this system and this Python")


def _unpacked(content: bytes, file: str) -> Path:
    """The file with this content in a folder of this user's; its content is compared when it is there already."""
    digest = hashlib.sha256(content).hexdigest()
    shared = Path(tempfile.gettempdir()) / f"zkconsumer-{os.getuid()}"
    for folder in (shared, None):
        if folder is None:
            home = Path(tempfile.mkdtemp(prefix="zkconsumer-"))
        elif _is_private(folder):
            home = folder
        else:
            continue
        path = home / f"{digest[:32]}-{file}"
        try:
            if path.is_symlink() or not path.exists():
                _write(path, content)
            if hashlib.sha256(path.read_bytes()).hexdigest() == digest:
                return path
        except OSError as error:
            if folder is None:
                raise ImportError(f"{path} cannot be written: {error}") from error
    raise ImportError(f"{shared} holds another {file} under its name: remove that folder")


def _is_private(folder: Path) -> bool:
    """Whether the folder, made if it was not there, belongs to this user and only this user can write it."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return is_ours and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _write(path: Path, content: bytes) -> None:
    """In one step, so that another process never loads half a file."""
    handle, beside = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise
