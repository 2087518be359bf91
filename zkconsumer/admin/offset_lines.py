"""One line of a file of offsets, in each of the three formats.  Pure.  See ``offset_files``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from zkconsumer.errors import InvalidNameError
from zkconsumer.strict_json import read_json_object
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.java_json import Json
from zkconsumer.zk.znode_formats import INT64_MAX

SCHEMA = "zkconsumer/offsets/1"

OffsetFileConvention: TypeAlias = Literal["next", "last"]
"""``next``: the next offset to read, as in Kafka.  ``last``: the last offset that was read."""

OffsetStoreName: TypeAlias = Literal["zookeeper", "kafka"]

STORES_BY_OPTION: Mapping[str, tuple[OffsetStoreName, ...]] = {
    "zookeeper": ("zookeeper",),
    "kafka": ("kafka",),
    "both": ("zookeeper", "kafka"),
}
"""The value of ``--store`` -> the stores that it selects, in the order in which they are written."""


class OffsetLineError(Exception):
    """A line cannot be used; the text is the reason.  Caught within ``admin``."""


ParsedOffset: TypeAlias = "tuple[str | None, TopicPartition, int]"
"""Group (None where the format has none), partition, offset."""

LineParser: TypeAlias = "Callable[[str], ParsedOffset]"

_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DIGITS_MAX = 40


def parse_zk_line(line: str) -> ParsedOffset:
    """A line of ExportZkOffsets.  Raises ``OffsetLineError``."""
    path, colon, number = line.partition(":")
    if not colon:
        raise OffsetLineError(f"no colon in {quoted_text(line)}: expected /consumers/G/offsets/T/P:N")
    match path.split("/"):
        case ["", "consumers", group, "offsets", topic, partition]:
            pass
        case _:
            raise OffsetLineError(
                f"{quoted_text(path)} is not the path of an offset: expected /consumers/G/offsets/T/P, below the chroot"
            )
    if re.fullmatch(r"[0-9]+-[0-9]+", partition):
        raise OffsetLineError(
            f"{quoted_text(partition)} is a broker and a partition, the format of Kafka 0.7, which is invalid since 0.8"
        )
    if paths.partition_number(partition) is None:
        raise OffsetLineError(f"{quoted_text(partition)} is not a partition number")
    return _group(group), _tp(topic, int(partition)), _offset(number)


def parse_csv_line(line: str, columns: int) -> ParsedOffset:
    """A line of kafka-consumer-groups with this number of columns.  Raises ``OffsetLineError``."""
    cells = [_cell(cell) for cell in line.split(",")]
    if len(cells) != columns:
        raise OffsetLineError(f"{len(cells)} columns, the first line has {columns}")
    match cells:
        case [group, topic, partition, offset]:
            return _any_group(group), _tp(topic, _partition(partition)), _offset(offset)
        case [topic, partition, offset]:
            return None, _tp(topic, _partition(partition)), _offset(offset)
    raise OffsetLineError(f"{len(cells)} columns: expected topic,partition,offset or group,topic,partition,offset")


def _cell(cell: str) -> str:
    """kafka-consumer-groups quotes names of more than 24 characters (from 2.3 on) and strips blanks (up to 2.2)."""
    cell = cell.strip()
    return cell[1:-1] if len(cell) >= 2 and cell[0] == cell[-1] == '"' else cell


def parse_json_line(line: str) -> ParsedOffset:
    """A line of our format after the first one.  Raises ``OffsetLineError``."""
    members = _object(line)
    group = members.get("group")
    if not isinstance(group, str):
        raise OffsetLineError("group and topic must be texts")
    return _any_group(group), *offset_of_members(members)


def offset_of_members(members: Mapping[str, Json]) -> tuple[TopicPartition, int]:
    """The ``topic``, ``partition`` and ``offset`` of a JSON object.  Raises ``OffsetLineError``."""
    topic, partition, offset = (members.get(key) for key in ("topic", "partition", "offset"))
    if not isinstance(topic, str):
        raise OffsetLineError("group and topic must be texts" if "group" in members else "topic must be a text")
    for key, number in (("partition", partition), ("offset", offset)):
        if type(number) is not int:
            raise OffsetLineError(f"{key} is missing, or not an integer of 64 bits")
    assert isinstance(partition, int), "checked above"
    assert isinstance(offset, int), "checked above"
    return _tp(topic, partition), _in_range(offset)


def _group(name: str) -> str:
    try:
        return paths.check_group(name)
    except InvalidNameError as error:
        raise OffsetLineError(str(error)) from None


def _any_group(name: str) -> str:
    """Brokers accept any name.  Who writes the offsets to ZooKeeper checks it there."""
    if not name:
        raise OffsetLineError(f"group id {name!r} is not a name")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise OffsetLineError(f"group id {quoted_text(name)} has half of a surrogate pair") from None
    return name


def _tp(topic: str, partition: int) -> TopicPartition:
    try:
        paths.check_topic(topic)
    except InvalidNameError as error:
        raise OffsetLineError(str(error)) from None
    if not 0 <= partition <= paths.PARTITION_MAX:
        raise OffsetLineError(f"partition {partition} is not between 0 and {paths.PARTITION_MAX}")
    return TopicPartition(topic, partition)


def _partition(text: str) -> int:
    return _number(text, "partition number")


def _offset(text: str) -> int:
    return _in_range(_number(text, "offset"))


def _number(text: str, what: str) -> int:
    if _NUMBER.fullmatch(text) is None or len(text) > _DIGITS_MAX:
        raise OffsetLineError(f"{quoted_text(text)} is not a valid {what}")
    return int(text)


def _in_range(offset: int) -> int:
    if offset < 0:
        raise OffsetLineError(f"offset {offset} is negative, so the partition has no offset: delete the line")
    if offset > INT64_MAX:
        raise OffsetLineError(f"offset {offset} is larger than {INT64_MAX}")
    return offset


# --- the head of a json file ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetFileHeader:
    store: OffsetStoreName
    convention: OffsetFileConvention
    count: int


def parse_header(line: str) -> OffsetFileHeader:
    """The first line of a json file.  Raises ``OffsetLineError``."""
    members = _object(line)
    schema = members.get("schema")
    if schema != SCHEMA:
        raise OffsetLineError(f"schema is {quoted_text(str(schema))}: this program reads {SCHEMA!r}")
    count = members.get("offsets")
    if type(count) is not int or count < 0:
        raise OffsetLineError("offsets must be the number of lines that follow")
    store, convention = members.get("store"), members.get("offset_convention")
    match store:
        case "zookeeper" | "kafka":
            pass
        case _:
            raise OffsetLineError(f"store is {quoted_text(str(store))}: expected zookeeper or kafka")
    match convention:
        case "next" | "last":
            return OffsetFileHeader(store, convention, count)
    raise OffsetLineError(f"offset_convention is {quoted_text(str(convention))}: expected next or last")


def _object(line: str) -> dict[str, Json]:
    try:
        return read_json_object(line)
    except ValueError as error:
        raise OffsetLineError(str(error)) from None


def quoted_text(text: str) -> str:
    """Shorten a text to fit on a line, and escape control characters for the terminal."""
    return ascii(text if len(text) <= 60 else f"{text[:60]}…")
