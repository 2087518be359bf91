"""Writes a file atomically, readable by the user alone (0600).

a temporary file beside it -> fsync -> its name -> fsync of the folder
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: Path, lines: Iterable[str], *, replace: bool) -> None:
    """Write lines of ASCII, each with its end.  ``replace``: an existing file is replaced; without it, it is an error.

    Raises ``FileExistsError`` and every other ``OSError``; then no temporary file remains.
    """
    number, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with open(number, "w", encoding="ascii", newline="\n") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)
        _sync_directory(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _sync_directory(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
