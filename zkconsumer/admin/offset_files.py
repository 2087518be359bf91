"""Files of offsets, in three formats.  Pure: bytes in, values out, and back.

    zk      /consumers/G/offsets/T/P:N     what ExportZkOffsets writes and ImportZkOffsets reads (0.8.2 to 1.1)
    csv     T,P,N  or  G,T,P,N             kafka-consumer-groups --reset-offsets --from-file and --export (0.11 on; the
                                           form with the group from 2.3 on)
    json    one JSON object a line: the first describes the file, each other one is an offset

A file is accepted whole or not at all: every problem is listed with its line.  Kafka's ImportZkOffsets silently stops
at the first empty line, uses the last of two lines about one partition, and writes any text after the colon to any
path; here each of these is rejected.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from zkconsumer.admin.offset_lines import (
    SCHEMA,
    LineParser,
    OffsetFileConvention,
    OffsetFileHeader,
    OffsetLineError,
    OffsetStoreName,
    parse_csv_line,
    parse_header,
    parse_json_line,
    parse_zk_line,
    quoted_text,
)
from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.java_json import Json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE_BYTES_MAX = 256 * 1024 * 1024
LINE_CHARS_MAX = 4_000
OFFSETS_MAX = 1_000_000
"""The maximum that is read: ten times the largest group that was ever tested, with the longest names."""

PROBLEMS_SHOWN_MAX = 20

_CSV_GROUP = re.compile(r'[^\s/{",]([^\r\n",]*[^\s",])?')


class OffsetFileFormat(Enum):
    """The format of a file."""

    ZK = "zk"
    CSV = "csv"
    JSON = "json"


class OffsetFileError(UsageError):
    """A file of offsets cannot be used; the text lists every problem with its line."""


@dataclass(frozen=True, slots=True)
class FileOffset:
    """One offset of a file.  ``group`` is None if the format has none."""

    group: str | None
    tp: TopicPartition
    offset: int
    line: int


@dataclass(frozen=True, slots=True)
class OffsetFile:
    """A file that was read.  ``store`` and ``convention`` as the file names them, None if its format has none."""

    format: OffsetFileFormat
    offsets: tuple[FileOffset, ...]
    store: OffsetStoreName | None = None
    convention: OffsetFileConvention | None = None
    remarks: tuple[str, ...] = ()

    @property
    def groups(self) -> list[str]:
        """The groups that the file names, sorted."""
        return sorted({each.group for each in self.offsets if each.group is not None})


@dataclass(frozen=True, slots=True)
class ExportedOffset:
    """One offset to write to a file.  ``changed_ms``: when it was stored, milliseconds since 1970, if known."""

    group: str
    tp: TopicPartition
    offset: int
    changed_ms: int | None = None


# --- writing ----------------------------------------------------------------------------------------------------


def can_name_group(format_: OffsetFileFormat, group: str, *, with_group: bool) -> bool:
    """Whether a file of this format can have the offsets of a group that brokers coordinate.

    ``with_group``: whether csv has the group in the first column.
    """
    match format_:
        case OffsetFileFormat.ZK:
            return paths.is_group(group)
        case OffsetFileFormat.CSV:
            return not with_group or (group.isprintable() and _CSV_GROUP.fullmatch(group) is not None)
        case OffsetFileFormat.JSON:
            return True


def format_file(
    format_: OffsetFileFormat,
    offsets: list[ExportedOffset],
    *,
    store: OffsetStoreName,
    exported_ms: int,
    with_group: bool | None = None,
) -> str:
    """The text of a file, sorted by group, topic and partition.

    ``with_group``: whether csv has the group in the first column; None: only if there is more than one group.
    """
    rows = sorted(offsets, key=lambda each: (each.group, each.tp))
    match format_:
        case OffsetFileFormat.ZK:
            lines = [f"{paths.offset(each.group, each.tp)}:{each.offset}" for each in rows]
        case OffsetFileFormat.CSV:
            has_group = len({each.group for each in rows}) > 1 if with_group is None else with_group
            lines = [_csv_line(each, has_group) for each in rows]
        case OffsetFileFormat.JSON:
            lines = [_json_line(_head(len(rows), store, exported_ms)), *(_json_line(_members(each)) for each in rows)]
    return "".join(f"{line}\n" for line in lines)


def _csv_line(each: ExportedOffset, has_group: bool) -> str:
    line = f"{each.tp.topic},{each.tp.partition},{each.offset}"
    return f"{each.group},{line}" if has_group else line


def _head(count: int, store: OffsetStoreName, exported_ms: int) -> dict[str, Json]:
    head: dict[str, Json] = {"schema": SCHEMA, "store": store, "offset_convention": "next"}
    return head | {"exported_ms": exported_ms, "offsets": count}


def _members(each: ExportedOffset) -> dict[str, Json]:
    members: dict[str, Json] = {
        "group": each.group,
        "topic": each.tp.topic,
        "partition": each.tp.partition,
        "offset": each.offset,
    }
    return members if each.changed_ms is None else members | {"changed_ms": each.changed_ms}


def _json_line(members: Mapping[str, Json]) -> str:
    return json.dumps(members, separators=(",", ":"))


# --- reading ----------------------------------------------------------------------------------------------------


def parse_file(data: bytes, format_: OffsetFileFormat | None = None) -> OffsetFile:
    """Read a file; ``format_`` None: detect it from the first line.

    A byte order mark and the line ends of Windows are accepted, with a remark.  Raises ``OffsetFileError``.
    """
    if len(data) > FILE_BYTES_MAX:
        raise OffsetFileError(f"the file has {len(data)} bytes, at most {FILE_BYTES_MAX} are read")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise OffsetFileError(f"line {line}: not UTF-8: is this a file of offsets?") from error
    remarks = []
    if text.startswith("\ufeff"):
        text = text[1:]
        remarks.append("the file begins with a byte order mark, which Kafka's tools do not accept")
    if "\r\n" in text:
        remarks.append("the lines end as on Windows")
    reading = _OffsetFileParser(_lines(text), remarks)
    if not reading.lines:
        raise OffsetFileError("the file is empty, so there is nothing to do; was it cut off?")
    return reading.read(format_ or _detect_format(reading.lines[0]))


def _lines(text: str) -> list[str]:
    """The lines without their ends, and without empty lines at the end."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _detect_format(first: str) -> OffsetFileFormat:
    if first.startswith("/"):
        return OffsetFileFormat.ZK
    if first.lstrip().startswith("{"):
        return OffsetFileFormat.JSON
    if "," in first:
        return OffsetFileFormat.CSV
    raise OffsetFileError(
        f"line 1: {quoted_text(first)} matches no format: zk has /consumers/G/offsets/T/P:N, csv has T,P,N or "
        "G,T,P,N, json has one object a line"
    )


@dataclass(slots=True)
class _OffsetFileParser:
    """The parser of one file."""

    lines: list[str]
    remarks: list[str]
    problems: list[str] = field(default_factory=list)
    offsets: dict[tuple[str | None, TopicPartition], FileOffset] = field(default_factory=dict)

    def read(self, format_: OffsetFileFormat) -> OffsetFile:
        if len(self.lines) > OFFSETS_MAX:
            raise OffsetFileError(f"the file has {len(self.lines)} lines, at most {OFFSETS_MAX} are read")
        head: OffsetFileHeader | None = None
        match format_:
            case OffsetFileFormat.ZK:
                self._read_lines(enumerate(self.lines, start=1), parse_zk_line)
            case OffsetFileFormat.CSV:
                columns = self.lines[0].count(",") + 1
                self._read_lines(enumerate(self.lines, start=1), lambda line: parse_csv_line(line, columns))
            case OffsetFileFormat.JSON:
                head = self._read_head()
                self._read_lines(enumerate(self.lines[1:], start=2), parse_json_line)
                self._compare_count(head)
        if self.problems:
            raise OffsetFileError(_problems_text(self.problems))
        store, convention = (head.store, head.convention) if head else (None, None)
        return OffsetFile(format_, tuple(self.offsets.values()), store, convention, tuple(self.remarks))

    def _read_lines(self, numbered: Iterator[tuple[int, str]], read: LineParser) -> None:
        for number, line in numbered:
            try:
                self._add(number, *read(_checked(line, number, len(self.lines))))
            except OffsetLineError as wrong:
                self.problems.append(f"line {number}: {wrong}")

    def _add(self, number: int, group: str | None, tp: TopicPartition, offset: int) -> None:
        known = self.offsets.setdefault((group, tp), FileOffset(group, tp, offset, number))
        if known.line == number:
            return
        if known.offset != offset:
            raise OffsetLineError(f"{tp} is already in line {known.line}, with {known.offset} and not {offset}")
        self.remarks.append(f"line {number}: {tp} is already in line {known.line}, with the same offset")

    def _read_head(self) -> OffsetFileHeader | None:
        try:
            return parse_header(self.lines[0])
        except OffsetLineError as wrong:
            self.problems.append(f"line 1: {wrong}")
            return None

    def _compare_count(self, head: OffsetFileHeader | None) -> None:
        if head is not None and head.count != len(self.lines) - 1:
            self.problems.append(
                f"line 1: it announces {head.count} offsets but {_lines_follow(len(self.lines) - 1)}: the file was cut "
                "off, or lines were deleted (then correct the number)"
            )


def _lines_follow(count: int) -> str:
    return "1 line follows" if count == 1 else f"{count} lines follow"


def _checked(line: str, number: int, count: int) -> str:
    if not line.strip():
        raise OffsetLineError(
            f"it is empty, but {_lines_follow(count - number)}: Kafka's import silently stops here; "
            "delete the empty line"
        )
    if len(line) > LINE_CHARS_MAX:
        raise OffsetLineError(f"it has {len(line)} characters, at most {LINE_CHARS_MAX} are read")
    return line


def _problems_text(problems: list[str]) -> str:
    more = len(problems) - PROBLEMS_SHOWN_MAX
    shown = [*problems[:PROBLEMS_SHOWN_MAX], *([f"and {more} more"] if more > 0 else [])]
    return shown[0] if len(shown) == 1 else "\n  ".join([f"{len(problems)} lines cannot be used:", *shown])
