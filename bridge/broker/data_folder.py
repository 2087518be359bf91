"""The directory of a broker: one process at a time, and only files of the broker.

DIR/broker.lock        locked while a broker runs
DIR/catalogue.json     what exists
DIR/topics/NAME-ID/P/  the segments of partition P; a directory that the catalogue does not name is deleted
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from bridge.broker.log.segment_files import SyncPolicy, make_folder
from bridge.broker.log.storage import remove_folder
from zkconsumer.errors import PreconditionFailed

LOCK, CATALOGUE, TOPICS = "broker.lock", "catalogue.json", "topics"
_KNOWN_NAMES = frozenset({LOCK, CATALOGUE, TOPICS, "catalogue.draft"})


class DataFolder:
    """Locked until ``unlock``.  ``PreconditionFailed``: it is in use, has other files, or cannot be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            make_folder(path, SyncPolicy.EVERY_APPEND)
            unknown_names = sorted(child.name for child in path.iterdir() if child.name not in _KNOWN_NAMES)
            if unknown_names:
                raise PreconditionFailed(
                    f"{path} contains {', '.join(unknown_names[:3])}, which this broker did not make; give an empty "
                    "directory, or one that this broker has made"
                )
            topics = path / TOPICS
            if topics.is_dir() and any(topics.iterdir()) and not self.catalogue.exists():
                # A broker writes its catalogue before its first topic.
                raise PreconditionFailed(
                    f"{path} contains {TOPICS} without {CATALOGUE}, so what is in {TOPICS} would be deleted; restore "
                    f"{CATALOGUE} from a copy, or give another directory"
                )
            self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise PreconditionFailed(f"{path} cannot be used as the broker's directory: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(self._lock, 20).decode("ascii", "replace").strip()
            os.close(self._lock)
            raise PreconditionFailed(
                f"{path} is in use by another broker (process {owner or 'unknown'}); stop it, or take another directory"
            ) from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)

    @property
    def catalogue(self) -> Path:
        """The path of the catalogue."""
        return self.path / CATALOGUE

    def partition(self, topic: str, topic_id: bytes, partition: int) -> Path:
        """The path of a partition's segments."""
        return self.path / TOPICS / topic_folder_name(topic, topic_id) / str(partition)

    def remove_topic(self, topic: str, topic_id: bytes) -> None:
        """Delete all records of a topic."""
        remove_folder(self.path / TOPICS / topic_folder_name(topic, topic_id))

    def remove_unlisted_topics(self, known: set[str]) -> None:
        """Delete the remains of topics whose deletion was interrupted; ``known`` are names of directories."""
        topics = self.path / TOPICS
        for child in topics.iterdir() if topics.is_dir() else ():
            if child.name not in known:
                remove_folder(child)

    def unlock(self) -> None:
        """Release the lock, so that another broker can use the directory."""
        os.close(self._lock)


def topic_folder_name(topic: str, topic_id: bytes) -> str:
    """A topic that is created again has another directory, so that no old record can reappear."""
    return f"{topic}-{topic_id.hex()}"
