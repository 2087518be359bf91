"""The parts of ``zkconsumer consume`` that need no server; the rest is in ``tests/real/test_consume_cli.py``.

Among them the cases of ConsoleConsumerTest for options of the old mode that the command has.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from zkconsumer.cli.console_format import console_format
from zkconsumer.cli.consume import METRICS_INTERVAL_MS, MetricsFileWriter, compile_format, parse_topic
from zkconsumer.cli.main import main
from zkconsumer.errors import UsageError
from zkconsumer.testing.manual_clock import ManualClock

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
    with pytest.raises(UsageError, match="is unknown; the"):
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
        (["--whitelist", "*"], "'*' without an expression before it to repeat at character 1"),
        (["--blacklist", r"(a)\1"], "at character 4"),
        (["--whitelist", ""], "the pattern is empty"),
        (["--blacklist", " "], "the pattern is empty"),
        (["--whitelist", "t", "--streams", "0"], "0 is not in the range"),
        (["--topic", "t", "--group", "g"], "give the address of ZooKeeper: --zookeeper"),
        (["--topic", "t", "--zookeeper", "localhost:1"], "group.id"),
        (["--topic", "t", "--set", "novalue"], "KEY=VALUE"),
        (["--topic", "t", "--zookeeper", "localhost:1", "--set", "fetch.mim.bytes=1"], "fetch.min.bytes"),
        (["--topic", "t", "--config", "/no/such/file"], "/no/such/file"),
    ],
)
def test_a_wrong_call_says_what_to_change_and_exits_with_2(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, ["consume", *arguments])
    assert result.exit_code == 2
    assert words in result.output


# --- as the old console consumer --------------------------------------------------------------------------------

TIMED = SimpleNamespace(key=b"k", value=b"v", timestamp=7, timestamp_type=0)


@pytest.mark.parametrize(
    ("properties", "line"),
    [
        ([], b"v\n"),
        (["print.key=true"], b"k\tv\n"),
        (["print.key=TRUE", "key.separator=:"], b"k:v\n"),
        (["print.key=yes"], b"v\n"),
        (["print.timestamp=true"], b"CreateTime:7\tv\n"),
        (["print.timestamp=true", "print.key=true", "line.separator=|"], b"CreateTime:7\tk\tv|"),
        (["print.key=true", "print.value=false"], b"k\t"),
        (["key.separator=a=b", "print.key=true"], b"ka=bv\n"),
    ],
)
def test_properties_print_as_the_old_formatter_did(properties: list[str], line: bytes) -> None:
    assert b"".join(part if isinstance(part, bytes) else part(TIMED) for part in console_format(properties)) == line


@pytest.mark.parametrize(("kind", "printed"), [(0, b"CreateTime:7"), (1, b"LogAppendTime:7"), (-1, b"NO_TIMESTAMP")])
def test_a_timestamp_says_whose_it_is(kind: int, printed: bytes) -> None:
    message = SimpleNamespace(key=None, value=None, timestamp=7, timestamp_type=kind)
    parts = console_format(["print.timestamp=true", "print.key=true"])
    line = b"".join(part if isinstance(part, bytes) else part(message) for part in parts)
    assert line == printed + b"\tnull\tnull\n"


@pytest.mark.parametrize("text", ["print.keys=true", "print.key", "key.deserializer=org.example.X"])
def test_a_property_that_is_not_known_is_named(text: str) -> None:
    result = CliRunner().invoke(main, ["consume", "--topic", "t", "--property", text])
    assert result.exit_code == 2
    assert text in result.output


def test_the_options_of_the_console_consumer_have_their_old_names_too() -> None:
    old = ["--consumer.config", "/no/such/file", "--consumer-property", "group.id=g"]
    result = CliRunner().invoke(main, ["consume", "--topic", "t", *old])
    assert "/no/such/file" in result.output
    both = ["consume", "--topic", "t", "--property", "print.key=true", "--format", "%v"]
    assert "--format or --property" in CliRunner().invoke(main, both).output


def test_metrics_are_written_when_they_are_due_and_trouble_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr("zkconsumer.cli.consume.SYSTEM_CLOCK", clock)
    path = tmp_path / "metrics.json"
    written: list[Any] = []

    class Connector:
        def dump_metrics(self, to: Path) -> None:
            written.append(to)
            if not (tmp_path / "works").exists():
                raise PermissionError(13, "Permission denied", f"{to}.{len(written)}")

    dump = MetricsFileWriter(Connector(), path)  # type: ignore[arg-type]
    for _ in range(3):
        dump.write_if_due()
        clock.move(METRICS_INTERVAL_MS)
    dump.write_if_due()
    assert written == [path] * 3
    assert capsys.readouterr().err == f"zkconsumer: --metrics {path}: Permission denied\n"
    MetricsFileWriter(Connector(), None).write()  # type: ignore[arg-type]
    assert len(written) == 3
