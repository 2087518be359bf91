"""What a broker knows besides the logs: its name, its topics, who leads what, which producer ids were given out.

On disk it is one JSON file that is replaced as a whole: after a crash it is the one before or the one after.  What is
not in it does not exist, so a topic is there from the moment in which the file was replaced, and gone likewise.
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
    """Who leads a partition (−1: nobody) in which epoch, and who keeps it."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """One topic; ``config`` as it was given."""

    topic_id: bytes
    partitions: tuple[PartitionEntry, ...]
    config: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything.  ``next_producer_id``: none from here on was given out."""

    cluster_id: str
    topics: dict[str, TopicEntry] = field(default_factory=dict)
    next_producer_id: int = 0


class CatalogueStore(Protocol):
    """Where the catalogue is kept."""

    def load(self) -> Catalogue | None:
        """What was saved last."""

    def save(self, catalogue: Catalogue) -> None:
        """Keep it; ``OSError``: the one before is kept."""


class MemoryCatalogueStore:
    """For a broker in memory."""

    def load(self) -> Catalogue | None:
        return None

    def save(self, catalogue: Catalogue) -> None:
        """It is gone with the process, as the logs are."""


class CatalogueFile:
    """The JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Catalogue | None:
        """``PreconditionFailed``: the file is there and cannot be read."""
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
                f"{self._path} is no catalogue of this broker ({type(error).__name__}: {error}); restore it, or start "
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
    """As JSON has it."""
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
    """From JSON.  ``ValueError``, ``KeyError``, ``TypeError``: it is something else."""
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
