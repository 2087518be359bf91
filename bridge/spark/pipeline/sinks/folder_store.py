"""``FolderStore``: the operations on a folder that a commit by manifest needs; and a folder of the local file system.

    publish(source, target)   ``target`` becomes the file ``source`` if no ``target`` exists: complete, or not at all
    fill(path, data)          writes into a file that exists and is empty: a removed file is never created again
    move(source, target)      atomic; one of two movers of the same file gets ``FileNotFoundError``

These hold for a local file system with hard links (ext4, XFS, APFS, NFS) and for HDFS (``hadoop_folder_store``).  An
object store has no such ``publish``: S3 has a conditional put, which not every client and configuration uses, and a
``move`` there copies.

A local file is durable before ``publish`` and ``fill`` return: the data, and the names in their folders, are synced.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Protocol

import pyarrow.parquet as pq

from bridge.spark.pipeline.sinks.sink import SinkUnavailableError
from zkconsumer.errors import PreconditionFailed


class DamagedFileError(PreconditionFailed):
    """A file of a table is not a complete parquet file; the operator must restore it."""


class FolderStore(Protocol):
    """A folder.  Paths are relative to it, with ``/``.

    Errors: ``FileNotFoundError`` and ``FileExistsError`` where a method names them, else ``SinkUnavailableError``.
    """

    def uri(self, path: str) -> str:
        """The place of a file or folder, for Spark."""

    def create_empty(self, path: str) -> None:
        """Creates an empty file, and the folders above it."""

    def fill(self, path: str, data: bytes) -> None:
        """Writes into an existing, empty file.  ``FileNotFoundError``: it was moved or removed."""

    def publish(self, source: str, target: str) -> None:
        """Gives the file ``source`` the name ``target``; it may keep the name ``source``.  ``FileExistsError``: there
        is a ``target``.  ``FileNotFoundError``: there is no ``source``."""

    def move(self, source: str, target: str) -> None:
        """Renames a file; creates the folders above ``target``, which must not exist.  ``FileNotFoundError``."""

    def read(self, path: str) -> bytes:
        """The content of a file.  ``FileNotFoundError``."""

    def names(self, folder: str) -> list[str]:
        """The names of the files and folders in a folder, sorted; none if it does not exist."""

    def data_files(self, folder: str) -> list[tuple[str, int]]:
        """Path relative to ``folder`` and bytes of each file below it, sorted; without names that begin with ``_`` or
        ``.``, which readers ignore."""

    def parquet_rows(self, path: str) -> int:
        """The number of rows in the footer of a parquet file.  ``FileNotFoundError``; ``DamagedFileError``."""

    def sync(self, paths: list[str]) -> None:
        """Makes files that another process has written durable, with their names.  ``FileNotFoundError``."""

    def remove(self, path: str) -> None:
        """Removes a file, if it exists."""

    def remove_tree(self, folder: str) -> bool:
        """Removes a folder with its content, if it exists.  False: files remain, since a process writes there."""

    def access_problem(self) -> str | None:
        """Why this process cannot write here, or None; changes nothing."""


class LocalFolderStore:
    """A folder of the local file system; all processes that use it, executors too, must see the same folder."""

    def __init__(self, root: str) -> None:
        self._root = Path(os.path.abspath(root))

    def uri(self, path: str) -> str:
        return f"file://{self._root / path}"

    def create_empty(self, path: str) -> None:
        file = self._root / path
        try:
            _make_folder(file.parent)
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            _sync_folder(file.parent)
        except OSError as error:
            raise _unavailable(error, file) from error

    def fill(self, path: str, data: bytes) -> None:
        file = self._root / path
        try:
            with open(os.open(file, os.O_WRONLY), "wb") as output:
                assert os.fstat(output.fileno()).st_size == 0, f"{path} is filled once"
                output.write(data)
                output.flush()
                os.fsync(output.fileno())
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unavailable(error, file) from error

    def publish(self, source: str, target: str) -> None:
        file = self._root / target
        try:
            _make_folder(file.parent)
            os.link(self._root / source, file)
            _sync_folder(file.parent)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            raise _unavailable(error, file, " (the file system must have hard links)") from error

    def move(self, source: str, target: str) -> None:
        file = self._root / target
        try:
            _make_folder(file.parent)
            os.rename(self._root / source, file)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unavailable(error, file) from error

    def read(self, path: str) -> bytes:
        file = self._root / path
        try:
            return file.read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unavailable(error, file) from error

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable(error, self._root / folder) from error

    def data_files(self, folder: str) -> list[tuple[str, int]]:
        top = self._root / folder
        found: list[tuple[str, int]] = []
        try:
            for place, folders, names in os.walk(top):
                folders[:] = [name for name in folders if name[0] not in "_."]
                for name in names:
                    if name[0] not in "_.":
                        file = Path(place, name)
                        found.append((file.relative_to(top).as_posix(), file.stat().st_size))
        except OSError as error:
            raise _unavailable(error, top) from error
        return sorted(found)

    def parquet_rows(self, path: str) -> int:
        file = self._root / path
        try:
            return int(pq.read_metadata(file).num_rows)
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise _unavailable(error, file) from error
            # pyarrow raises an OSError without a number for a footer that it cannot decode.
            raise DamagedFileError(f"{file}: {str(error).strip()}; the operator must restore it") from error

    def sync(self, paths: list[str]) -> None:
        try:
            for path in paths:
                _sync(self._root / path)
            for folder in {(self._root / path).parent for path in paths}:
                _sync_folder(folder)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unavailable(error, self._root) from error

    def remove(self, path: str) -> None:
        try:
            (self._root / path).unlink(missing_ok=True)
        except OSError as error:
            raise _unavailable(error, self._root / path) from error

    def remove_tree(self, folder: str) -> bool:
        shutil.rmtree(self._root / folder, ignore_errors=True)
        return not (self._root / folder).exists()

    def access_problem(self) -> str | None:
        place = next(each for each in (self._root, *self._root.parents) if each.exists())
        if not place.is_dir():
            return f"{place} is a file; choose another folder"
        if not os.access(place, os.W_OK | os.X_OK):
            return f"this user cannot write to the folder {place}; the operator must permit it"
        return None


def _make_folder(folder: Path) -> None:
    """Creates a folder and those above it, durable."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        _sync_folder(each.parent)


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_sync_folder = _sync


def _unavailable(error: OSError, place: Path, hint: str = "") -> SinkUnavailableError:
    why = error.strerror or type(error).__name__
    return SinkUnavailableError(f"{place}: {why}{hint}; the operator must repair the access to this folder")
