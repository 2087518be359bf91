"""Checkpoints of Spark queries, as Spark 4.3 writes them."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridge.spark.group_membership import CommitMode
from bridge.spark.source.stream_offset import BatchOffsets, encode
from zkconsumer.types import TopicPartition

QUERY = "5c1e0f0a111142228333944455556666"
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1795271372423,"conf":{"spark.sql.shuffle.partitions":"2"}}'
COMMIT = '{"nextBatchWatermarkMs":0}'
CHUNK_BYTES = 512


def envelope(
    batch: int,
    first: Mapping[int, int],
    end: Mapping[int, int],
    group: str = "g1",
    topic: str = "clicks",
    query: str = QUERY,
    *,
    mode: CommitMode = CommitMode.AFTER_BATCH,
) -> dict[str, Any]:
    """The end of a batch of ``format("zkconsumer")``."""
    at = {partition: TopicPartition(topic, partition) for partition in {*first, *end}}
    return encode(
        BatchOffsets(
            group,
            query,
            batch,
            {at[partition]: offset for partition, offset in first.items()},
            {at[partition]: offset for partition, offset in end.items()},
            {at[partition]: 77 for partition in first},
            mode=mode,
        )
    )


def kafka(end: Mapping[int, int], topic: str = "clicks") -> dict[str, Any]:
    """The end of a batch of ``format("kafka")``."""
    return {topic: {str(partition): offset for partition, offset in end.items()}}


class CheckpointFolder:
    """A folder of a query; every file with its checksums, as on a local disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("metadata", '{"id":"11111111-2222-3333-4444-555555555555"}')
        (root / "sources" / "0").mkdir(parents=True)

    def logged(self, number: int, *lines: object, version: str = "v1") -> None:
        """Batch ``number`` is in the offset log: a line a source."""
        texts = [line if isinstance(line, str) else json.dumps(line, separators=(",", ":")) for line in lines]
        self.write(f"offsets/{number}", "\n".join([version, METADATA, *texts]))

    def done(self, number: int, *lines: object, version: str = "v1") -> None:
        """Batch ``number`` is in both logs."""
        self.logged(number, *lines, version=version)
        self.write(f"commits/{number}", f"v1\n{COMMIT}")

    def write(self, name: str, text: str | bytes, *, checksums: bool = True) -> None:
        """A file, and its checksums or none."""
        data = text if isinstance(text, bytes) else text.encode()
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        crc = file.with_name(f".{file.name}.crc")
        crc.unlink(missing_ok=True)
        if checksums:
            sums = [zlib.crc32(data[at : at + CHUNK_BYTES]) for at in range(0, len(data), CHUNK_BYTES)]
            crc.write_bytes(b"crc\0" + struct.pack(f">i{len(sums)}I", CHUNK_BYTES, *sums))
