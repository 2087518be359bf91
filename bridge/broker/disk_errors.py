"""Logs failed appends of producers: once when the disk starts to fail and once when it recovers, not for each
append."""

from __future__ import annotations

import logging
from pathlib import Path

_log = logging.getLogger(__name__)


class DiskErrorLogger:
    """For the broker's thread alone.  ``folder``: where the records are; None: in memory, which never fails."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._partitions: set[tuple[str, int]] = set()
        self._refused = 0

    def append_failed(self, topic: str, partition: int, error: OSError) -> None:
        """An append failed, and nothing of it was stored."""
        if not self._partitions:
            _log.error(
                "disk-write-failed directory=%s topic=%s partition=%d error=%s: producers get error 56 until writes "
                "succeed again; free disk space, or repair what the error names",
                self._folder, topic, partition, error.strerror or error,
            )  # fmt: skip
        self._partitions.add((topic, partition))
        self._refused += 1

    def append_succeeded(self, topic: str, partition: int) -> None:
        """An append was stored.  Only a partition whose append failed shows that the disk has recovered."""
        if (topic, partition) in self._partitions:
            _log.warning("disk-write-recovered directory=%s appends_refused=%d", self._folder, self._refused)
            self._partitions.clear()
            self._refused = 0
