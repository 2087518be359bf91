"""Files of offsets: what is written is read again, and no bytes give a traceback."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from zkconsumer.admin.offset_files import ExportedOffset, OffsetFileError, OffsetFileFormat, format_file, parse_file
from zkconsumer.admin.offset_plan import offsets_of_group
from zkconsumer.admin.offset_targets import parse_datetime, parse_duration, parse_scope
from zkconsumer.errors import UsageError, ZkConsumerError
from zkconsumer.types import TopicPartition

NAMES = st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,30}", fullmatch=True)
PARTITIONS = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(0, 2**63 - 1)
GROUPS = st.dictionaries(NAMES, st.dictionaries(st.builds(TopicPartition, NAMES, PARTITIONS), OFFSETS, min_size=1),
                         min_size=1, max_size=4)  # fmt: skip

NEARLY = st.lists(
    st.sampled_from(["/consumers/", "g1", "/offsets/", "clicks", "/0", ":", "42", ",", "-1", "{", "}", '"', "offset",
                     "9" * 30, "\n", "\r\n", "\ufeff", " ", "\x00", "é", '{"schema":"zkconsumer/offsets/1"', "null"]),
    max_size=40,
).map("".join)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(groups=GROUPS, format_=st.sampled_from(OffsetFileFormat), windows=st.booleans(), marked=st.booleans())
def test_what_is_written_is_read_again(
    groups: dict[str, dict[TopicPartition, int]], format_: OffsetFileFormat, windows: bool, marked: bool
) -> None:
    exported = [
        ExportedOffset(group, tp, offset) for group, offsets in groups.items() for tp, offset in offsets.items()
    ]
    text = format_file(format_, exported, store="zookeeper", exported_ms=0, with_group=True)
    text = text.replace("\n", "\r\n") if windows else text
    parsed = parse_file(("\ufeff" + text if marked else text).encode())
    assert parsed.format is format_
    assert offsets_of_group(parsed, None, None)[0] == groups
    assert len(parsed.remarks) == windows + marked


@settings(max_examples=500, deadline=None)
@given(data=st.binary(max_size=200) | NEARLY.map(str.encode), format_=st.none() | st.sampled_from(OffsetFileFormat))
def test_any_bytes_are_a_file_or_refused(data: bytes, format_: OffsetFileFormat | None) -> None:
    try:
        parsed = parse_file(data, format_)
    except OffsetFileError as error:
        odd = [char for char in str(error) if not char.isprintable() and char != "\n"]
        if odd:
            raise AssertionError(f"a terminal might obey {odd}") from error
        return
    for each in parsed.offsets:
        assert 0 <= each.offset < 2**63
        assert 0 <= each.tp.partition < 2**31
        assert each.line >= 1
    with contextlib.suppress(UsageError):
        offsets_of_group(parsed, "g1", "last")


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=30) | st.text("P0123456789DTHMS.-:+Z", max_size=30))
def test_any_text_is_a_time_a_duration_a_scope_or_refused(text: str) -> None:
    for parse in (parse_datetime, parse_duration):
        with contextlib.suppress(UsageError):
            assert isinstance(parse(text), int)
    with contextlib.suppress(ZkConsumerError):
        parse_scope([text])
