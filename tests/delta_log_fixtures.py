"""A Delta table that is written without Spark: its data files, its commits, and a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.spark.pipeline.lineage import BatchLineage, to_json
from bridge.spark.pipeline.sinks.delta_commits import LOG_FOLDER, commit_path
from bridge.spark.pipeline.sinks.delta_snapshot import SIDECARS
from bridge.spark.pipeline.sinks.folder_store import LocalFolderStore
from bridge.spark.pipeline.sinks.lineage_archive import LineageArchive

VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}


class DeltaTableFiles:
    """The table in ``path``.  ``live``: path -> the add action of each live file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = -1
        self.live: dict[str, dict[str, Any]] = {}
        self.protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
        (path / LOG_FOLDER).mkdir(parents=True)
        self.commit({"protocol": self.protocol}, {"metaData": {"id": "t"}})

    def commit(self, *actions: Mapping[str, Any]) -> None:
        """One more commit."""
        self.version += 1
        text = "".join(f"{json.dumps(each)}\n" for each in ({"commitInfo": {}}, *actions))
        (self.path / commit_path(self.version)).write_text(text)

    def file(self, rows: int, name: str = "") -> dict[str, Any]:
        """A data file that no commit has yet; its add action."""
        name = name or f"part-{self.version + 1}-{len(self.live)} a.parquet"
        pq.write_table(pa.table({"n": list(range(rows))}), self.path / name)
        path = name.replace(" ", "%20")
        self.live[path] = {"path": path, "stats": json.dumps({"numRecords": rows}), "dataChange": True}
        return self.live[path]

    def batch(self, lineage: BatchLineage, *, is_copied: bool = True) -> Path:
        """A commit of a pipeline; the file of its rows."""
        add = self.file(lineage.counts.rows)
        self.commit(
            {"commitInfo": {"userMetadata": to_json(lineage)}},
            {"txn": {"appId": lineage.query, "version": lineage.batch}},
            {"add": add},
        )
        if is_copied:
            LineageArchive(LocalFolderStore(str(self.path))).update()
        return self.path / add["path"].replace("%20", " ")

    def optimize(self) -> None:
        """All rows in one file; the others are not live any more."""
        old = list(self.live.values())
        self.live.clear()
        rows = sum(json.loads(each["stats"])["numRecords"] for each in old)
        self.commit(*({"remove": {"path": each["path"]}} for each in old), {"add": self.file(rows, "all.parquet")})

    def vacuum(self) -> None:
        """Removes the files that are not live."""
        for file in self.path.glob("*.parquet"):
            if file.name.replace(" ", "%20") not in self.live:
                file.unlink()

    def delete(self, rows: int) -> None:
        """A deletion vector removes rows of the first file."""
        add = next(iter(self.live.values()))
        new = {**add, "deletionVector": {**VECTOR, "cardinality": rows}}
        self.live[add["path"]] = new
        self.protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
        self.commit({"protocol": self.protocol}, {"remove": {"path": add["path"]}}, {"add": new})

    def checkpoint(self, parts: int = 1, *, in_sidecars: bool = False) -> None:
        """Of the newest version."""
        rows: list[dict[str, Any]] = [{"add": each} for each in self.live.values()]
        stem = f"{self.path / LOG_FOLDER}/{self.version:020}.checkpoint"
        if in_sidecars:
            (self.path / SIDECARS).mkdir(exist_ok=True)
            pq.write_table(pa.Table.from_pylist(rows), self.path / SIDECARS / "side.parquet")
            actions = [{"protocol": self.protocol}, {"sidecar": {"path": "side.parquet"}}]
            Path(f"{stem}.{'0' * 36}.json").write_text("".join(f"{json.dumps(each)}\n" for each in actions))
            return
        rows.append({"protocol": self.protocol})
        names = ["add", "protocol"]
        for part in range(parts):
            chosen = [{name: each.get(name) for name in names} for each in rows[part::parts]]
            suffix = f".{part + 1:010}.{parts:010}" if parts > 1 else ""
            pq.write_table(pa.Table.from_pylist(chosen), f"{stem}{suffix}.parquet")

    def clean_up(self) -> None:
        """Removes the commits that the newest version's checkpoint has, as Delta does after its retention."""
        for version in range(self.version + 1):
            (self.path / commit_path(version)).unlink()
