"""The broker's state besides the logs: its cluster id, its topics, the leaders, and the used producer ids.

On disk it is one JSON file that is replaced as a whole, so a crash leaves either the old or the new one.  A topic
exists from the moment in which the file that names it replaces the old one, and is deleted in the same way.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bridge.broker.log.segment_files import sync_folder
from zkconsumer.errors import PreconditionFailed

CATALOGUE_VERSION = 1


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """The leader of a partition (−1: none), its epoch, and the replicas."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """One topic; ``config`` as given."""

    topic_id: bytes
    partitions: tuple[PartitionEntry, ...]
    config: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The whole state.  ``next_producer_id``: this one and all later ones are unused."""

    cluster_id: str
    topics: dict[str, TopicEntry] = field(default_factory=dict)
    next_producer_id: int = 0


class CatalogueStore(Protocol):
    """Stores the catalogue."""

    def load(self) -> Catalogue | None:
        """The last saved catalogue."""

    def save(self, catalogue: Catalogue) -> None:
        """Save it; ``OSError``: the previous one is kept."""


class MemoryCatalogueStore:
    """For a broker in memory."""

    def load(self) -> Catalogue | None:
        return None

    def save(self, catalogue: Catalogue) -> None:
        """Nothing to do: it ends with the process, like the logs."""


class CatalogueFile:
    """The JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Catalogue | None:
        """``PreconditionFailed``: the file exists and cannot be read."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise PreconditionFailed(f"{self._path} cannot be read: {error}") from error
        try:
            return decode_catalogue(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PreconditionFailed(
                f"{self._path} is not a broker catalogue ({type(error).__name__}: {error}); restore it, or start "
                "with an empty directory"
            ) from error

    def save(self, catalogue: Catalogue) -> None:
        draft = self._path.with_suffix(".draft")
        with draft.open("w", encoding="utf-8") as file:
            json.dump(encode_catalogue(catalogue), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
        sync_folder(self._path.parent)


def encode_catalogue(catalogue: Catalogue) -> dict[str, Any]:
    """The JSON form."""
    return {
        "version": CATALOGUE_VERSION,
        "cluster_id": catalogue.cluster_id,
        "next_producer_id": catalogue.next_producer_id,
        "topics": {
            name: {
                "id": entry.topic_id.hex(),
                "config": entry.config,
                "partitions": [
                    [partition.leader, partition.leader_epoch, list(partition.replicas)]
                    for partition in entry.partitions
                ],
            }
            for name, entry in catalogue.topics.items()
        },
    }


def decode_catalogue(document: dict[str, Any]) -> Catalogue:
    """Parse the JSON form.  ``ValueError``, ``KeyError``, ``TypeError``: it is not a catalogue."""
    if document["version"] != CATALOGUE_VERSION:
        raise ValueError(f"version {document['version']}, known is {CATALOGUE_VERSION}")
    topics = {
        str(name): TopicEntry(
            bytes.fromhex(row["id"]),
            tuple(PartitionEntry(int(at), int(epoch), tuple(map(int, kept))) for at, epoch, kept in row["partitions"]),
            {str(key): str(value) for key, value in row["config"].items()},
        )
        for name, row in document["topics"].items()
    }
    return Catalogue(str(document["cluster_id"]), topics, int(document["next_producer_id"]))
