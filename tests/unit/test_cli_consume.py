"""The parts of ``zkconsumer consume`` that need no server; the rest is in ``tests/real/test_consume_cli.py``."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from zkconsumer.cli.consume import compile_format, parse_topic
from zkconsumer.cli.main import main
from zkconsumer.errors import UsageError

MESSAGE = SimpleNamespace(topic="t", partition=3, offset=42, key=None, value=b"\xff", timestamp=7)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (r"%t\t%p\t%o\t%k\t%v\n", b"t\t3\t42\tnull\t\xff\n"),
        (r"%T %% \\ \0", b"7 % \\ \x00"),
        ("plain é", "plain é".encode()),
    ],
)
def test_a_format_prints_fields_and_escapes(text: str, line: bytes) -> None:
    assert b"".join(part if isinstance(part, bytes) else part(MESSAGE) for part in compile_format(text)) == line


@pytest.mark.parametrize("text", ["%x", "%", r"\q", "\\"])
def test_an_unknown_field_or_escape_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="is not known"):
        compile_format(text)


@pytest.mark.parametrize(("text", "parsed"), [("t", ("t", 1)), ("t:4", ("t", 4))])
def test_a_topic_may_carry_its_threads(text: str, parsed: tuple[str, int]) -> None:
    assert parse_topic(text) == parsed


@pytest.mark.parametrize("text", ["t:", "t:0", "t:-1", "t:two", "t:٣"])
def test_a_wrong_number_of_threads_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a number of threads"):
        parse_topic(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topic", "t", "--topic", "t:2"], "given twice"),
        ([], "give --topic, or one --whitelist, or one --blacklist"),
        (["--topic", "t", "--whitelist", "t"], "give --topic, or one"),
        (["--whitelist", "t", "--blacklist", "t"], "give --topic, or one"),
        (["--topic", "t", "--streams", "2"], "write --topic t:2"),
        (["--whitelist", "*"], "'*' with nothing in front of it to repeat at character 1"),
        (["--blacklist", r"(a)\1"], "at character 4"),
        (["--whitelist", "t", "--streams", "0"], "0 is not in the range"),
        (["--topic", "t", "--group", "g"], "zookeeper.connect"),
        (["--topic", "t", "--zookeeper", "localhost:1"], "group.id"),
        (["--topic", "t", "--set", "novalue"], "KEY=VALUE"),
        (["--topic", "t", "--group", "g", "--set", "fetch.mim.bytes=1"], "fetch.min.bytes"),
        (["--topic", "t", "--config", "/no/such/file"], "/no/such/file"),
    ],
)
def test_a_wrong_call_says_what_to_change_and_exits_with_2(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, ["consume", *arguments])
    assert result.exit_code == 2
    assert words in result.output
