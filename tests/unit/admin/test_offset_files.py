"""``admin.offset_files``: three formats, and everything that may be wrong with a file."""

from __future__ import annotations

import pytest

from zkconsumer.admin import offset_files
from zkconsumer.admin.offset_files import (
    ExportedOffset,
    FileOffset,
    OffsetFileError,
    OffsetFileFormat,
    format_file,
    parse_file,
)
from zkconsumer.admin.offset_plan import offsets_of_group
from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition

T0, T1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
LONG = 2**63 - 1
TWO = [ExportedOffset("g1", T1, 17), ExportedOffset("g1", T0, 42, changed_ms=1_000), ExportedOffset("a", T0, 1)]

ZK = "/consumers/a/offsets/clicks/0:1\n/consumers/g1/offsets/clicks/0:42\n/consumers/g1/offsets/clicks/1:17\n"
CSV = "a,clicks,0,1\ng1,clicks,0,42\ng1,clicks,1,17\n"
JSON = (
    '{"schema":"zkconsumer/offsets/1","store":"kafka","offset_convention":"next","exported_ms":5,"offsets":3}\n'
    '{"group":"a","topic":"clicks","partition":0,"offset":1}\n'
    '{"group":"g1","topic":"clicks","partition":0,"offset":42,"changed_ms":1000}\n'
    '{"group":"g1","topic":"clicks","partition":1,"offset":17}\n'
)


def values(text: str, format_: OffsetFileFormat | None = None) -> list[tuple[str | None, str, int]]:
    return [(each.group, str(each.tp), each.offset) for each in parse_file(text.encode(), format_).offsets]


def why(text: str, format_: OffsetFileFormat | None = None) -> str:
    with pytest.raises(OffsetFileError) as raised:
        parse_file(text.encode(), format_)
    return str(raised.value)


@pytest.mark.parametrize(
    ("format_", "text"), [(OffsetFileFormat.ZK, ZK), (OffsetFileFormat.CSV, CSV), (OffsetFileFormat.JSON, JSON)]
)
def test_what_is_written_is_sorted_and_read_again(format_: OffsetFileFormat, text: str) -> None:
    assert format_file(format_, TWO, store="kafka", exported_ms=5) == text
    parsed = parse_file(text.encode())
    assert parsed.format is format_
    assert parsed.groups == ["a", "g1"]
    assert parsed.remarks == ()
    assert values(text) == [("a", "clicks/0", 1), ("g1", "clicks/0", 42), ("g1", "clicks/1", 17)]
    assert (parsed.store, parsed.convention) == (
        ("kafka", "next") if format_ is OffsetFileFormat.JSON else (None, None)
    )


def test_csv_of_one_group_has_no_group_as_kafka_consumer_groups_reads_it() -> None:
    text = format_file(OffsetFileFormat.CSV, TWO[:2], store="zookeeper", exported_ms=5)
    assert text == "clicks,0,42\nclicks,1,17\n"
    assert parse_file(text.encode()).offsets == (FileOffset(None, T0, 42, 1), FileOffset(None, T1, 17, 2))


def test_csv_of_kafka_consumer_groups_may_have_quotes_and_blanks() -> None:
    assert values('"a-topic-of-more-than-24-chars",0,42\n') == [(None, "a-topic-of-more-than-24-chars/0", 42)]
    assert values(" clicks , 0 , 42 \n") == [(None, "clicks/0", 42)]
    assert values("clicks,007,+42\n") == [(None, "clicks/7", 42)], "as Java reads numbers"


def test_windows_line_ends_and_a_byte_order_mark_are_taken_and_remarked() -> None:
    parsed = parse_file(("\ufeff" + CSV.replace("\n", "\r\n")).encode())
    assert [each.offset for each in parsed.offsets] == [1, 42, 17]
    assert len(parsed.remarks) == 2


def test_empty_lines_at_the_end_are_none() -> None:
    assert values(ZK + "\n  \n") == values(ZK)


def test_an_empty_line_in_the_middle_is_refused_because_the_original_stops_there() -> None:
    first, rest = ZK.split("\n", 1)
    assert why(f"{first}\n\n{rest}") == (
        "line 2: it is empty, but 2 lines follow: Kafka's import silently stops here; delete the empty line"
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("/consumers/g1/offsets/clicks/0", "no colon in '/consumers/g1/offsets/clicks/0'"),
        ("/consumers/g1/offsets/clicks:7", "is not the path of an offset"),
        ("/kafka/consumers/g1/offsets/clicks/0:7", "is not the path of an offset"),
        ("/consumers/g1/owners/clicks/0:7", "is not the path of an offset"),
        ("/consumers/g1/offsets/../0:7", "topic '..' is not a name"),
        ("/consumers/../offsets/clicks/0:7", "group id '..' is not a name"),
        ("/consumers//offsets/clicks/0:7", "group id '' is not a name"),
        ("/consumers/g1/offsets/cl\u0000cks/0:7", "may contain only letters, digits"),
        ("/consumers/g1/offsets/clicks/3-0:285038193", "the format of Kafka 0.7"),
        ("/consumers/g1/offsets/clicks/00:7", "'00' is not a partition number"),
        ("/consumers/g1/offsets/clicks/-1:7", "'-1' is not a partition number"),
        ("/consumers/g1/offsets/clicks/4294967296:7", "'4294967296' is not a partition number"),
        ("/consumers/g1/offsets/clicks/0:", "'' is not a valid offset"),
        ("/consumers/g1/offsets/clicks/0:null", "'null' is not a valid offset"),
        ("/consumers/g1/offsets/clicks/0: 7", "' 7' is not a valid offset"),
        ("/consumers/g1/offsets/clicks/0:7:8", "'7:8' is not a valid offset"),
        ("/consumers/g1/offsets/clicks/0:1.5", "'1.5' is not a valid offset"),
        ("/consumers/g1/offsets/clicks/0:٣", "is not a valid offset"),
        ("/consumers/g1/offsets/clicks/0:-1", "offset -1 is negative"),
        (f"/consumers/g1/offsets/clicks/0:{LONG + 1}", f"is larger than {LONG}"),
        (f"/consumers/g1/offsets/clicks/0:{'9' * 3_000}", "is not a valid offset"),
        ("/consumers/g1/offsets/clicks/0:" + "9" * 5_000, "it has 5031 characters, at most 4000 are read"),
    ],
)
def test_a_line_of_the_originals_format_that_cannot_be_used_says_why(line: str, problem: str) -> None:
    said = why(f"{ZK}{line}\n")
    assert said.startswith("line 4: ")
    assert problem in said


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("clicks,0", "2 columns, the first line has 3"),
        ("g1,clicks,0,7", "4 columns, the first line has 3"),
        ("clicks;0;7", "1 columns, the first line has 3"),
        ("clicks,zero,7", "'zero' is not a valid partition number"),
        ("clicks,-1,7", "partition -1 is not between"),
        ("clicks,0,-7", "offset -7 is negative"),
        ("cl icks,0,7", "may contain only letters, digits"),
        (",0,7", "topic '' is not a name"),
    ],
)
def test_a_line_of_csv_that_cannot_be_used_says_why(line: str, problem: str) -> None:
    assert problem in why(f"views,0,1\n{line}\n")


def test_csv_with_another_number_of_columns_is_refused() -> None:
    assert "5 columns: expected" in why("a,b,c,d,e\n")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "it is not JSON (Expecting"),
        ("[" * 3_000, "it is not JSON"),
        ("[1]", "it is not a JSON object"),
        ("{} {}", "it is not JSON (Extra data at character 3)"),
        ('{"group":"g1","group":"g2"}', "it contains a name twice"),
        ('{"group":1,"topic":"t","partition":0,"offset":1}', "group and topic must be texts"),
        ('{"group":"g","topic":"t","partition":true,"offset":1}', "partition is missing, or not an integer"),
        ('{"group":"g","topic":"t","partition":0,"offset":1.0}', "offset is missing, or not an integer"),
        ('{"group":"g","topic":"t","partition":0,"offset":NaN}', "NaN is not JSON"),
        ('{"group":"g","topic":"t","partition":0,"offset":"1"}', "offset is missing, or not an integer"),
        ('{"group":"g","topic":"t","partition":0}', "offset is missing, or not an integer"),
        ('{"group":"","topic":"t","partition":0,"offset":1}', "group id '' is not a name"),
        ('{"group":"\\ud800","topic":"t","partition":0,"offset":1}', "has half of a surrogate pair"),
    ],
)
def test_a_line_of_json_that_cannot_be_used_says_why(line: str, problem: str) -> None:
    head = JSON.split("\n")[0].replace('"offsets":3', '"offsets":1')
    said = why(f"{head}\n{line}\n")
    assert said.startswith("line 2: ")
    assert problem in said


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ('"schema":"zkconsumer/offsets/2"', "schema is 'zkconsumer/offsets/2': this program reads"),
        ('"store":"etcd"', "store is 'etcd'"),
        ('"offset_convention":"current"', "offset_convention is 'current'"),
        ('"offsets":-3', "offsets must be the number of lines"),
        ('"offsets":4', "it announces 4 offsets but 3 lines follow: the file was cut off"),
    ],
)
def test_a_head_that_says_something_else_is_refused(wrong: str, problem: str) -> None:
    key = wrong.partition(":")[0]
    head, rest = JSON.split("\n", 1)
    changed = ",".join(wrong if part.removeprefix("{").startswith(key) else part for part in head.split(","))
    changed = changed if changed.startswith("{") else "{" + changed
    changed = changed if changed.endswith("}") else changed + "}"
    assert problem in why(f"{changed}\n{rest}")


def test_a_file_that_was_cut_off_is_noticed() -> None:
    assert "it announces 3 offsets but 2 lines follow" in why(JSON.rsplit("\n", 2)[0] + "\n")
    assert "it announces 3 offsets but 1 line follows" in why(JSON.rsplit("\n", 3)[0] + "\n")


def test_a_second_line_about_a_partition_is_refused_unless_it_says_the_same() -> None:
    same = parse_file((CSV + "g1,clicks,0,42\n").encode())
    assert len(same.offsets) == 3
    assert same.remarks == ("line 4: clicks/0 is already in line 2, with the same offset",)
    assert why(CSV + "g1,clicks,0,43\n") == "line 4: clicks/0 is already in line 2, with 42 and not 43"


def test_every_problem_is_listed_but_not_a_hundred() -> None:
    said = why("clicks,0,1\n" + "clicks,x,1\n" * 99)
    assert said.startswith("99 lines cannot be used:\n  line 2: ")
    assert said.endswith("and 79 more")
    assert said.count("\n") == 21


@pytest.mark.parametrize(("data", "problem"), [(b"", "the file is empty"), (b"\n\n", "the file is empty")])
def test_an_empty_file_is_not_taken_for_nothing_to_do(data: bytes, problem: str) -> None:
    with pytest.raises(OffsetFileError, match=problem):
        parse_file(data)


def test_bytes_that_are_no_text_are_named_by_their_line() -> None:
    with pytest.raises(OffsetFileError, match="line 2: not UTF-8"):
        parse_file(b"clicks,0,1\n\xff\xfe\x00")


def test_a_first_line_of_no_format_is_named() -> None:
    assert why("hello\n").startswith("line 1: 'hello' matches no format")
    assert why("\x1b[31mred\n").startswith("line 1: '\\x1b[31mred' matches no format")


def test_a_format_that_was_named_is_not_guessed() -> None:
    assert "not JSON" in why(CSV, OffsetFileFormat.JSON)


def test_files_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_files, "OFFSETS_MAX", 2)
    assert why(CSV) == "the file has 3 lines, at most 2 are read"
    monkeypatch.setattr(offset_files, "FILE_BYTES_MAX", 10)
    assert "bytes, at most 10 are read" in why(CSV)


# --- which offsets are meant ------------------------------------------------------------------------------------


def test_offsets_of_every_group_of_a_file_or_of_one() -> None:
    parsed = parse_file(ZK.encode())
    assert offsets_of_group(parsed, None, None) == ({"a": {T0: 1}, "g1": {T0: 42, T1: 17}}, [])
    only, remarks = offsets_of_group(parsed, "g1", None)
    assert only == {"g1": {T0: 42, T1: 17}}
    assert remarks == ["1 offsets of other groups in the file are ignored"]


def test_a_file_without_groups_needs_one_and_a_group_that_is_not_in_it_is_refused() -> None:
    with pytest.raises(UsageError, match="--group"):
        offsets_of_group(parse_file(b"clicks,0,1\n"), None, None)
    assert offsets_of_group(parse_file(b"clicks,0,1\n"), "g1", None)[0] == {"g1": {T0: 1}}
    with pytest.raises(UsageError, match="no offsets of group b; it has those of a, g1"):
        offsets_of_group(parse_file(CSV.encode()), "b", None)


def test_last_offsets_are_shifted_to_the_next_and_that_is_said() -> None:
    offsets, remarks = offsets_of_group(parse_file(b"clicks,0,41\n"), "g1", "last")
    assert offsets == {"g1": {T0: 42}}
    assert remarks == ["the file has the last offset read: the next one is written, which is 1 more"]
    with pytest.raises(UsageError, match=f"there is no offset after {LONG}"):
        offsets_of_group(parse_file(f"clicks,0,{LONG}\n".encode()), "g1", "last")


def test_a_json_file_says_its_convention_itself_and_may_not_be_contradicted() -> None:
    last = parse_file(JSON.replace('"next"', '"last"').encode())
    assert offsets_of_group(last, "a", None)[0] == {"a": {T0: 2}}
    with pytest.raises(UsageError, match="'last', but --offset-convention is 'next'"):
        offsets_of_group(last, "a", "next")
