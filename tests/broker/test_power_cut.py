"""What ``SyncPolicy.EVERY_APPEND`` promises: whatever was acknowledged can be found again after a power cut.

A disk is played that forgets the names of files whose directory was not synchronised, as POSIX allows.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.broker.catalogue import Catalogue, CatalogueFile
from bridge.broker.data_folder import DataFolder
from bridge.broker.log.log_validator import RecordValidationRules
from bridge.broker.log.partition_log import LogSettings, PartitionLog
from bridge.broker.log.segment_files import OpenFiles, SyncPolicy
from bridge.broker.log.storage import DiskStorage
from zkconsumer.wire.entries import Record


class ForgetfulDisk:
    """``survives``: whether each name on the way to a path would be there after a power cut."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._kept: dict[Path, set[str]] = {}
        fsync = os.fsync

        def watched(descriptor: int) -> None:
            fsync(descriptor)
            at = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if at.is_dir():
                self._kept[at] = set(os.listdir(at))

        monkeypatch.setattr(os, "fsync", watched)

    def survives(self, path: Path) -> bool:
        ways = [path, *path.parents]
        return all(at.name in self._kept.get(at.parent, ()) for at in ways[: ways.index(self._root)])


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ForgetfulDisk:
    return ForgetfulDisk(tmp_path, monkeypatch)


def log_in(folder: Path, policy: SyncPolicy) -> PartitionLog:
    settings = LogSettings(RecordValidationRules(2, 1_000_000), segment_bytes=200)
    return PartitionLog("t-0", DiskStorage(folder, OpenFiles(policy)), settings, lambda words: None)


def append(log: PartitionLog) -> None:
    log.append_records([Record(0, 1_000, 0, None, b"x" * 100)], 0, 1_000)


def test_every_segment_that_was_acknowledged_is_found_after_a_power_cut(tmp_path: Path, disk: ForgetfulDisk) -> None:
    folder = tmp_path / "topics" / "t-1" / "0"
    log = log_in(folder, SyncPolicy.EVERY_APPEND)
    for count in range(1, 4):
        append(log)
        segments = list(folder.iterdir())
        assert len(segments) == count
        assert all(map(disk.survives, segments))


def test_who_leaves_it_to_the_system_synchronises_no_directory(tmp_path: Path, disk: ForgetfulDisk) -> None:
    append(log_in(tmp_path / "0", SyncPolicy.SYSTEM))
    assert not disk.survives(tmp_path / "0")


def test_the_broker_s_directory_and_its_catalogue_are_found_after_a_power_cut(
    tmp_path: Path, disk: ForgetfulDisk
) -> None:
    folder = DataFolder(tmp_path / "a" / "b")
    CatalogueFile(folder.catalogue).save(Catalogue("c"))
    folder.unlock()
    assert disk.survives(folder.catalogue)
