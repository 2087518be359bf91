"""The files of a Delta table at its newest version, from the files of its log.  Pure.

    _delta_log/00000000000000000020.checkpoint.parquet    everything that counts at version 20
    _delta_log/00000000000000000021.json                  what commit 21 has changed
    _delta_log/_sidecars/*.parquet                        the files of a checkpoint of version 2

    names of the log --log_segment--> checkpoint, later commits --actions--> TableSnapshot

The rules are those of PROTOCOL.md of Delta 4.4 (Action Reconciliation, Checkpoints):

    a data file is named by its path and its deletion vector; of two actions with this name the newer one counts
    the newest protocol counts
    a checkpoint counts if all its parts are there; commits before it are not needed, and Delta removes them
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from bridge.spark.pipeline.sinks.delta_commits import LOG_FOLDER, commit_versions
from zkconsumer.errors import PreconditionFailed

SIDECARS = f"{LOG_FOLDER}/_sidecars"

READER_VERSION_MAX = 3

READER_FEATURES = frozenset(
    {
        "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
        "vacuumProtocolCheck", "variantType", "variantType-preview", "variantShredding", "variantShredding-preview",
    }
)  # fmt: skip
"""Features with which the number of rows is known from the log and the footers of the files: types and names of columns
do not matter, and a deletion vector has the number of its rows in the log."""

_CHECKPOINT_NAME = re.compile(
    r"(?P<version>[0-9]{20})\.checkpoint"
    r"(?:\.(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})|\.(?P<id>[0-9A-Fa-f-]{36}))?\.(?:parquet|json)"
)


class DeltaLogError(PreconditionFailed):
    """The log of a Delta table cannot be read; the operator must restore it, or use a table without this feature."""


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The files of the log that make a version.  ``checkpoint``: names of its parts; empty: there is none.

    ``commits``: the versions after the checkpoint, without a gap.
    """

    version: int
    checkpoint: tuple[str, ...]
    commits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file.  ``path``: relative to the table, or absolute.  ``rows``: of the file, None: the log does not have
    it.  ``deleted``: rows of the file that its deletion vector removes."""

    path: str
    rows: int | None
    deleted: int


@dataclass(slots=True)
class TableSnapshot:
    """What a version of a table has.  Apply the actions of the checkpoint first, then those of the commits in order.

    ``sidecars``: names in ``SIDECARS`` that the checkpoint consists of, too.
    """

    version: int
    where: str
    sidecars: list[str] = field(default_factory=list)
    _files: dict[tuple[str, str], LiveFile] = field(default_factory=dict)

    @property
    def files(self) -> list[LiveFile]:
        """All data files, sorted by path."""
        return sorted(self._files.values(), key=lambda each: each.path)

    def apply(self, name: str, action: Mapping[str, Any]) -> None:
        """One action of the log.  Raises ``DeltaLogError`` for a table that is not understood."""
        match name:
            case "add":
                key = _file_key(action)
                vector = action.get("deletionVector") or {}
                self._files[key] = LiveFile(key[0], _records(action), int(vector.get("cardinality") or 0))
            case "remove":
                self._files.pop(_file_key(action), None)
            case "protocol":
                self._check_protocol(action)
            case "sidecar":
                self.sidecars.append(str(action["path"]))

    def _check_protocol(self, action: Mapping[str, Any]) -> None:
        version = int(action.get("minReaderVersion") or 1)
        unknown = sorted({*(action.get("readerFeatures") or ())} - READER_FEATURES)
        if version > READER_VERSION_MAX or unknown:
            what = f"the feature {unknown[0]}" if unknown else f"the reader version {version}"
            raise DeltaLogError(f"{self.where}: the table has {what}, with which its rows are not counted here")


def log_segment(names: Iterable[str], where: str) -> LogSegment | None:
    """The files of the newest version; None: there is no table.  ``names``: a listing of the log's folder.

    Raises ``DeltaLogError`` if a commit is missing.
    """
    names = list(names)
    checkpoints = _complete_checkpoints(names)
    newest = max(checkpoints, default=-1)
    commits = [version for version in commit_versions(names) if version > newest]
    for expected, version in enumerate(commits, newest + 1):
        if version != expected:
            raise DeltaLogError(
                f"{where}: commit {expected} is missing, and {version} is there; the operator must restore the log"
            )
    if newest < 0 and not commits:
        return None
    return LogSegment(commits[-1] if commits else newest, checkpoints.get(newest, ()), tuple(commits))


def _complete_checkpoints(names: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """Version -> the names of one complete checkpoint."""
    parts: dict[tuple[int, str, str], list[str]] = {}
    for name in sorted(names):
        if (found := _CHECKPOINT_NAME.fullmatch(name)) is not None:
            key = int(found["version"]), found["parts"] or "1", found["id"] or ""
            parts.setdefault(key, []).append(name)
    return {version: tuple(found) for (version, count, _), found in parts.items() if len(found) == int(count)}


def _file_key(action: Mapping[str, Any]) -> tuple[str, str]:
    vector = action.get("deletionVector") or {}
    offset = vector.get("offset")
    at = "" if offset is None else f"@{offset}"
    return unquote(str(action["path"])), f"{vector['storageType']}{vector['pathOrInlineDv']}{at}" if vector else ""


def _records(action: Mapping[str, Any]) -> int | None:
    """The number of rows of an added file, with those that its deletion vector removes."""
    parsed = action.get("stats_parsed")
    if not parsed:
        try:
            parsed = json.loads(action.get("stats") or "{}")
        except ValueError:
            return None
    found = parsed.get("numRecords")
    return None if found is None else int(found)
