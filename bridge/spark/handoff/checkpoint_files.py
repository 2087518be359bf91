"""Reads Kafka's offsets in a query's checkpoint: of our source, and of Spark's own ``format("kafka")``.

    metadata          {"id": "..."}                    the query, as Spark names it
    offsets/N         v1, metadata, a line a source    written before batch N runs
    commits/N         v1, metadata                     written when the sink has batch N
    .N.crc            Hadoop's checksums, beside each file that was written to a local disk

So batch N is done when it is in both, and a batch that is only in ``offsets`` runs again at the next start.  A line
is ``-`` for a source without an offset.  With ``spark.sql.streaming.offsetLog.formatVersion=2`` (Spark 4.3)
the header is ``v2``, and each line begins with the name of its source and a colon.

This module writes nothing and guesses nothing: a truncated file, or one that Spark would reject, is an error.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from bridge.spark.source.stream_offset import BatchOffsets, ForeignCheckpoint, decode
from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import INT64_MAX

FILE_BYTES_MAX = 64 * 1024 * 1024
"""The maximum number of bytes of one file: an offset of a million partitions has a third of it."""

OFFSET_LOG_VERSION_MAX = 2
COMMIT_LOG_VERSION_MAX = 3
"""The version that Spark 4.3 writes."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_HEADER = re.compile(r"v([0-9]{1,9})")
_CRC_MAGIC = b"crc\0"
_NO_OFFSET_YET = "-"

_Offsets: TypeAlias = Mapping[TopicPartition, int]


class BadCheckpoint(UsageError):
    """A checkpoint cannot be read, or is not the expected one; the text names the file, and what to do."""


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """One source's end of one batch: the next offset of each partition.  ``stream_offset`` None:
    ``format("kafka")``.
    """

    source: str
    offsets: _Offsets
    stream_offset: BatchOffsets | None = None


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """Batch ``number`` of Spark's own count.  ``other_sources``: sources without offsets of Kafka."""

    number: int
    sources: tuple[SourceOffsets, ...]
    other_sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """``committed``: the last batch that is done.  ``pending``: later batches that were begun, oldest first."""

    folder: Path
    query_id: str
    committed: LoggedBatch | None
    pending: tuple[LoggedBatch, ...]


# --- the folder -------------------------------------------------------------------------------------------------


def read_checkpoint(folder: str | Path) -> SparkCheckpoint:
    """Read the checkpoint in a local folder, or at a ``file:`` URI.  Raises ``BadCheckpoint``."""
    root = local_path(folder)
    if not root.is_dir():
        raise BadCheckpoint(f"the folder {root} does not exist; give the checkpointLocation of the query")
    query_id = _query_id(root)
    offsets, commits = _numbers(root / "offsets"), _numbers(root / "commits")
    done = sorted(set(offsets) & set(commits))
    last = done[-1] if done else -1
    if commits and max(commits) > last:
        raise BadCheckpoint(
            f"{root}: commits/{max(commits)} exists but offsets/{max(commits)} does not: files are missing, so it is "
            "not known what the query has done; copy the complete checkpoint"
        )
    for number in done[-1:]:
        _header(_read(root / "commits" / str(number)), root / "commits" / str(number), COMMIT_LOG_VERSION_MAX)
    pending = tuple(_batch(root, number) for number in sorted(offsets) if number > last)
    return SparkCheckpoint(root, query_id, _batch(root, last) if done else None, pending)


def local_path(folder: str | Path) -> Path:
    """The folder that a path or a ``file:`` URI names.  Raises ``BadCheckpoint`` for one that is not on this
    machine."""
    text = str(folder)
    try:
        parts = urlsplit(text)
    except ValueError:  # not a URI, for example a path with brackets
        return Path(text)
    if not parts.scheme or ("://" not in text and parts.scheme != "file"):
        return Path(text)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise BadCheckpoint(
            f"{text} is not on this machine: copy offsets, commits and metadata of it here, and name the copy "
            f"(hadoop fs -copyToLocal {text} checkpoint)"
        )
    return Path(unquote(parts.path))


def _query_id(root: Path) -> str:
    file = root / "metadata"
    if not file.is_file():
        inside = " (it contains batches of a source; give the folder above)" if (root / "0").exists() else ""
        raise BadCheckpoint(f"{root} has no file metadata, so it is not the checkpoint of a query{inside}")
    try:
        query_id = json.loads(_text(_read(file), file))["id"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadCheckpoint(f"{file} cannot be read as Spark writes it; is it truncated?") from error
    return str(query_id)


def _numbers(folder: Path) -> list[int]:
    """The batches of a log; other names (checksums, files that are being written) are ignored."""
    try:
        return [int(file.name) for file in folder.iterdir() if _NUMBER.fullmatch(file.name) and file.is_file()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadCheckpoint(f"{folder} cannot be read: {error.strerror}") from error


def _read(file: Path) -> bytes:
    """The bytes of a file, checked against its checksums if it has some."""
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
        crc = file.with_name(f".{file.name}.crc")
        sums = crc.read_bytes() if crc.is_file() else None
    except OSError as error:
        raise BadCheckpoint(f"{file} cannot be read: {error.strerror}") from error
    if len(data) > FILE_BYTES_MAX:
        raise BadCheckpoint(f"{file} has more than {FILE_BYTES_MAX} bytes; it is not a log of offsets")
    if sums is not None and not _agrees(data, sums):
        raise BadCheckpoint(
            f"{file} does not match its checksums in {crc.name}: it is truncated, or was edited (then delete "
            f"{crc.name}, as Spark requires too)"
        )
    return data


def _agrees(data: bytes, sums: bytes) -> bool:
    """Hadoop's ``ChecksumFileSystem``: a magic number, the bytes per chunk, and a CRC-32 for each chunk."""
    if sums[:4] != _CRC_MAGIC or len(sums) < 8:
        return True  # an unknown kind of checksum
    [chunk] = struct.unpack(">i", sums[4:8])
    if chunk <= 0:
        return False
    expected = [zlib.crc32(data[at : at + chunk]) for at in range(0, len(data), chunk)]
    return sums[8:] == struct.pack(f">{len(expected)}I", *expected)


def _text(data: bytes, file: Path) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        start = data[:4].hex(" ")
        raise BadCheckpoint(
            f"{file} is not text (it begins with {start}); if it was compressed when it was copied, unpack it"
        ) from error


# --- the log of offsets -----------------------------------------------------------------------------------------


def _batch(root: Path, number: int) -> LoggedBatch:
    file = root / "offsets" / str(number)
    return parse_batch(number, _read(file), file)


def _header(data: bytes, file: Path, version_max: int) -> tuple[int, list[str]]:
    """The version of a log's file, and its lines after the version."""
    header, *lines = _text(data, file).split("\n")
    found = _HEADER.fullmatch(header)
    if found is None:
        raise BadCheckpoint(f"{file} begins with {header[:40]!r} and no version: it is empty, truncated, or not a log")
    version = int(found[1])
    if not 1 <= version <= version_max:
        raise BadCheckpoint(
            f"{file} has version {version}, but this release supports up to {version_max}: a newer Spark wrote it; "
            "upgrade zkconsumer"
        )
    return version, lines


def parse_batch(number: int, data: bytes, file: Path) -> LoggedBatch:
    """Parses a file of ``offsets``.  Raises ``BadCheckpoint``."""
    version, lines = _header(data, file, OFFSET_LOG_VERSION_MAX)
    if len(lines) > 2 and not lines[-1]:
        lines.pop()  # an editor's last newline; Spark writes none
    if len(lines) < 2 or not all(lines):
        raise BadCheckpoint(f"{file} lacks the line of a source: it is truncated")
    sources: list[SourceOffsets] = []
    others: list[str] = []
    for index, line in enumerate(lines[1:]):
        name, text = (str(index), line) if version == 1 else _named(line, file)
        if text == _NO_OFFSET_YET:
            continue
        found = _source(name, text, file)
        if found is None:
            others.append(name)
        else:
            sources.append(found)
    return LoggedBatch(number, tuple(sources), tuple(others))


def _named(line: str, file: Path) -> tuple[str, str]:
    name, colon, text = line.partition(":")
    if not colon:
        raise BadCheckpoint(f"{file}: a line without the name of its source: {line[:40]!r}; it is truncated")
    return name, text


def _source(name: str, text: str, file: Path) -> SourceOffsets | None:
    """The offsets of one source; None when they are not Kafka's."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith(("{", "[")):
            raise BadCheckpoint(
                f"{file}: the offset of source {name} is truncated, or not JSON: {text[:60]!r}"
            ) from error
        return None
    if not isinstance(value, dict):
        return None
    where = f"{file}, source {name}"
    if "v" in value and "n" in value:
        return _ours(name, value, where)
    if value and all(isinstance(each, dict) and all(map(_NUMBER.fullmatch, each)) for each in value.values()):
        return SourceOffsets(name, _offsets(value, where))
    return None


def _ours(name: str, value: dict[str, Any], where: str) -> SourceOffsets | None:
    """An offset of ``format("zkconsumer")``, of any group; None before its first batch."""
    try:
        ours = decode(value, str(value.get("g")))
    except ForeignCheckpoint as error:
        raise BadCheckpoint(f"{where}: {error}") from error
    return None if ours is None else SourceOffsets(name, ours.end, ours)


def _offsets(value: object, where: str) -> dict[TopicPartition, int]:
    """``{"topic": {"0": 5}}``."""
    found: dict[TopicPartition, int] = {}
    for topic, partitions in value.items() if isinstance(value, dict) else (("", None),):
        if not isinstance(partitions, dict):
            raise BadCheckpoint(f'{where}: expected {{"topic": {{"0": offset}}}}, found {str(value)[:60]}')
        for partition, offset in partitions.items():
            number = paths.partition_number(partition)
            if number is None or type(offset) is not int or not 0 <= offset <= INT64_MAX:
                raise BadCheckpoint(f"{where}: {topic} {partition!r}: {str(offset)[:40]} is not an offset")
            found[TopicPartition(paths.check_topic(topic), number)] = offset
    return found
