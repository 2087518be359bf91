"""``live_positions``: the next offset that the live query of a pipeline reads of each partition; with its checkpoint.

The answer is a lower bound: everything below it was read by the query, or by another member of the group, and the query
never plans it again.  Since positions only grow, the bound holds later, too.

    in a batch that was begun and is not done     the first offset of that batch
    owned in the last batch                       its end; or the group's offset, if that is smaller (a refused claim:
                                                  the end of the batch was not reached)
    not owned then                                the group's offset, where the query will begin, or 0
        with group.offsets.commit=afterBatch      that, or the end of the last batch that had the partition, the larger
        with group.offsets.commit=none            the end of the last batch that had the partition
        of a query that has not begun a batch     0, unless it begins at the group's offset

With ``claim`` the query moves the group's offset *before* it reads, but after it has written the batch to its
checkpoint.  So the group's offsets must be read first and the checkpoint after them: then a claim that is visible in
the group's offsets is a batch that is visible in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bridge.spark.group_membership import CommitMode
from bridge.spark.handoff.checkpoint_files import BadCheckpoint, parse_batch
from bridge.spark.pipeline.sinks.folder_store import FolderStore
from bridge.spark.source.stream_offset import BatchOffsets
from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class LiveQueryBatches:
    """What the checkpoint of a query has.  ``done``: the newest batch in the commit log; ``begun``: later batches."""

    done: BatchOffsets | None
    begun: tuple[BatchOffsets, ...]


def read_live_query(store: FolderStore) -> LiveQueryBatches | None:
    """The batches in a checkpoint; None: there is none, so no query has ever begun.

    ``store``: the folder of the checkpoint.  Raises ``BadCheckpoint``, ``SinkUnavailableError``.
    """
    try:
        store.read("metadata")
    except FileNotFoundError:
        return None
    # A batch that ends between the two lists counts as begun, which is the safe side.
    commits, offsets = set(_numbers(store, "commits")), set(_numbers(store, "offsets"))
    last = max(commits & offsets, default=-1)
    if commits and max(commits) > last:
        raise BadCheckpoint(
            f"{store.uri('commits')}: batch {max(commits)} is done, and its file in offsets is missing: restore the "
            "checkpoint, nothing was written"
        )
    done = _offsets_of(store, last) if last >= 0 else None
    begun = [_offsets_of(store, number) for number in sorted(offsets) if number > last]
    return LiveQueryBatches(done, tuple(each for each in begun if each is not None))


def live_positions(
    live: LiveQueryBatches,
    group_offsets: Mapping[TopicPartition, int],
    partitions: Iterable[TopicPartition],
    *,
    begins_at_group: bool,
) -> dict[TopicPartition, int]:
    """The position of each of these partitions.

    ``group_offsets``: those that the group has, read before the checkpoint.  ``begins_at_group``: where the query
    begins without a checkpoint (``startingOffsets=group``).
    """
    return {tp: _position(live, group_offsets.get(tp), tp, begins_at_group=begins_at_group) for tp in partitions}


def _position(live: LiveQueryBatches, group_offset: int | None, tp: TopicPartition, *, begins_at_group: bool) -> int:
    newest = live.begun[-1] if live.begun else live.done
    if newest is None:
        return (group_offset or 0) if begins_at_group else 0
    found = [each.first[tp] for each in live.begun if tp in each.first]
    if not found and tp in newest.claims:
        found = [newest.end[tp]]
    if not found:
        ended = newest.end.get(tp)
        if newest.mode is CommitMode.CLAIM or ended is None:
            return group_offset or 0
        return ended if newest.mode is CommitMode.NONE else max(ended, group_offset or 0)
    if newest.mode is CommitMode.CLAIM and group_offset is not None:
        found.append(group_offset)
    return min(found)


def _numbers(store: FolderStore, folder: str) -> list[int]:
    return [int(name) for name in store.names(folder) if name.isascii() and name.isdecimal()]


def _offsets_of(store: FolderStore, number: int) -> BatchOffsets | None:
    """The offsets of batch ``number``; None: the source had no offset yet."""
    path = f"offsets/{number}"
    batch = parse_batch(number, store.read(path), Path(store.uri(path)))
    found = [each.stream_offset for each in batch.sources if each.stream_offset is not None]
    if batch.other_sources or len(found) != len(batch.sources):
        raise BadCheckpoint(
            f"{store.uri(path)} has offsets of another source; the checkpoint is not that of this pipeline"
        )
    return found[0] if found else None
