"""The commits of a Delta table's log, as files: which of them has a batch of a pipeline.  Pure.

    <table>/_delta_log/00000000000000000007.json     commit 7: one action of JSON in each line

A batch is one commit with these actions (PROTOCOL.md of Delta):

    commitInfo.userMetadata    the lineage (``lineage.to_json``)
    txn.appId, txn.version     the query id and the batch id; Delta commits a pair once
    add                        the files of the rows

A text that looks like a lineage counts only beside the ``txn`` of its key: it may be a copy in another commit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from bridge.spark.pipeline.lineage import BatchLineage, InvalidLineageError, from_json, to_json

LOG_FOLDER = "_delta_log"

_COMMIT_NAME = re.compile(r"([0-9]{20})\.json")
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
_OTHER_ACTIONS = ('{"remove"', '{"cdc"', '{"metaData"')
"""The beginnings of lines that need not be parsed; they can be long."""


@dataclass(frozen=True, slots=True)
class DeltaBatch:
    """A commit that is a batch.  ``files``: those of its rows in the table's folder, relative to it."""

    lineage: BatchLineage
    files: tuple[str, ...]


def commit_path(version: int) -> str:
    """The file of a commit, relative to the table."""
    return f"{LOG_FOLDER}/{version:020}.json"


def is_outside(path: str) -> bool:
    """Whether a data file is not in the table's folder: its path is absolute."""
    return _ABSOLUTE.match(path) is not None


def commit_versions(names: Iterable[str]) -> list[int]:
    """The versions of the commits in a listing of the log, sorted."""
    return sorted(int(found[1]) for name in names if (found := _COMMIT_NAME.fullmatch(name)) is not None)


REPLACE_WHERE = "replaceWhere"
"""Delta's option: in the same commit the rows of a condition are deleted."""


def batch_options(lineage: BatchLineage, replaced: str = "") -> Mapping[str, str]:
    """The options of Delta's writer for the one commit of a batch.

    ``mergeSchema``: a setting of the session cannot change the table's columns.  ``replaced``: the condition of the
    rows that the commit deletes.
    """
    return ({REPLACE_WHERE: replaced} if replaced else {}) | {
        "txnAppId": lineage.query,
        "txnVersion": str(lineage.batch),
        "userMetadata": to_json(lineage),
        "mergeSchema": "false",
    }


def parse_commit(data: bytes, where: str) -> DeltaBatch | None:
    """The batch of a commit; None: the commit is not one.  ``where``: the place, for the error.

    Raises ``InvalidLineageError`` if the commit cannot be read.
    """
    metadata, transactions, files = None, set(), []
    for name, action in commit_actions(data, where, _OTHER_ACTIONS):
        if name == "commitInfo":
            metadata = action.get("userMetadata")
        elif name == "txn":
            transactions.add((action.get("appId"), action.get("version")))
        elif name == "add":
            files.append(unquote(str(action.get("path"))))
    if not transactions or not isinstance(metadata, str) or not _is_lineage(metadata):
        return None
    lineage = from_json(metadata, where)
    if lineage.key not in transactions:
        return None
    return DeltaBatch(lineage, tuple(path for path in files if not is_outside(path)))


def commit_actions(data: bytes, where: str, others: tuple[str, ...] = ()) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The actions of a commit with their names.  ``where``: the place, for the error.  ``others``: the beginnings of
    lines that are left out.  Raises ``InvalidLineageError``.
    """
    for line in data.decode("utf-8", "replace").split("\n"):
        if not line.strip() or line.startswith(others):
            continue
        try:
            action = json.loads(line)
        except ValueError as error:
            raise InvalidLineageError(
                f"{where}: a line is not JSON ({error}); the operator must repair the log of the Delta table"
            ) from error
        if isinstance(action, dict):
            yield from ((name, value) for name, value in action.items() if isinstance(value, dict))


def _is_lineage(text: str) -> bool:
    """Whether a pipeline wrote this text; other programs write any text."""
    try:
        members = json.loads(text)
    except ValueError:
        return False
    return isinstance(members, dict) and {"version", "kind", "query", "batch", "ranges"} <= members.keys()
