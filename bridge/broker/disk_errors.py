"""Appends of producers that the disk refuses: told when it begins and when it ends, and not once for each of them."""

from __future__ import annotations

import logging
from pathlib import Path

_log = logging.getLogger(__name__)


class DiskErrorLogger:
    """For the broker's thread alone.  ``folder``: where the records are; None: in memory, which refuses nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._partitions: set[tuple[str, int]] = set()
        self._refused = 0

    def append_failed(self, topic: str, partition: int, error: OSError) -> None:
        """An append was refused, and nothing of it was stored."""
        if not self._partitions:
            _log.error(
                "disk-write-failed directory=%s topic=%s partition=%d error=%s: producers are told 56 until it "
                "takes them again; make room, or mend what the error names",
                self._folder, topic, partition, error.strerror or error,
            )  # fmt: skip
        self._partitions.add((topic, partition))
        self._refused += 1

    def append_succeeded(self, topic: str, partition: int) -> None:
        """An append was stored.  Only a partition that was refused shows that the trouble is over."""
        if (topic, partition) in self._partitions:
            _log.warning("disk-write-recovered directory=%s appends_refused=%d", self._folder, self._refused)
            self._partitions.clear()
            self._refused = 0
