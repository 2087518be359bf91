"""``zkconsumer perf`` on a world in memory: its columns are those of Kafka 1.1, its numbers are right."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from bridge.testing.fake_faults import CorruptRecords
from bridge.testing.fake_releases import NEWEST
from tests.in_memory_fixtures import MakeWorld, take
from zkconsumer.cli import perf as module
from zkconsumer.cli.java_dates import compile_date_format
from zkconsumer.cli.main import main
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition

TOPIC = "t"
HEADER = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
NUMBERS = r"(\d+\.\d{4}), (\d+\.\d{4}), (\d+), (\d+\.\d{4})"
ROW = re.compile(rf"{TIME}, {TIME}, {NUMBERS}")
DETAILED_ROW = re.compile(rf"{TIME}, (\d+), {NUMBERS}")
VALUE_BYTES = 1024


@pytest.fixture
def world(make_world: MakeWorld, request: pytest.FixtureRequest) -> FakeEnvironment:
    """Of another release where a test says so."""
    return make_world(2, release=getattr(request, "param", NEWEST))


@pytest.fixture
def configs(world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> list[ConsumerConfig]:
    """The command runs on the world of the test; gives the configurations that it made."""
    made: list[ConsumerConfig] = []

    def connector(config: ConsumerConfig) -> ZookeeperConsumerConnector:
        made.append(config)
        return world.connector(**{key.replace(".", "_"): config.values[key] for key in config.given})

    monkeypatch.setattr(module, "ZookeeperConsumerConnector", connector)
    world.create_topic(TOPIC, 2)
    return made


def perf(*words: str, messages: int = 100) -> Result:
    arguments = ["perf", "--zookeeper", ADDRESS, "--topic", TOPIC, "--messages", str(messages), *words]
    return CliRunner().invoke(main, arguments)


def fill(world: FakeEnvironment, each: int, value: bytes | None = b"x" * VALUE_BYTES) -> None:
    for partition in range(2):
        world.cluster.append(TOPIC, partition, [value] * each)


# --- rows ---------------------------------------------------------------------------------------------------------


def test_the_header_and_the_row_are_those_of_the_original(world: FakeEnvironment, configs: list[Any]) -> None:
    fill(world, 512)
    done = perf(messages=1024)
    assert done.exit_code == 0, done.output
    header, row = done.stdout.splitlines()
    assert header == HEADER
    matched = ROW.fullmatch(row)
    assert matched is not None, row
    assert (matched[1], matched[3]) == ("1.0000", "1024")
    assert done.stderr == ""


def test_messages_are_those_of_all_threads_together(world: FakeEnvironment, configs: list[Any]) -> None:
    """The original reads so many in each of its ten threads."""
    fill(world, 300)
    done = perf("--group", "g", "--threads", "2", "--hide-header", messages=400)
    matched = ROW.fullmatch(done.stdout.strip())
    assert matched is not None, done.output
    assert matched[3] == "400"
    assert sum(world.offsets("g", TOPIC).values()) == 400, "what was not counted is not consumed"


def test_details_are_a_row_a_thread_and_no_summary(world: FakeEnvironment, configs: list[Any]) -> None:
    fill(world, 50)
    done = perf("--show-detailed-stats", "--threads", "3")
    header, *rows = done.stdout.splitlines()
    assert header == "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
    matched = [DETAILED_ROW.fullmatch(row) for row in rows]
    assert all(matched), rows
    assert sorted(int(each[1]) for each in matched if each) == [0, 1, 2]
    assert sum(int(each[4]) for each in matched if each) == 100


def test_an_interval_has_its_own_rates_and_the_last_one_too(
    world: FakeEnvironment, configs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original's last row takes the records of the last interval over the time since the start."""
    clock = SteppingClock()
    monkeypatch.setattr(module, "SYSTEM_CLOCK", clock)
    meter = module.ThroughputTest(100, 1_000, 40, compile_date_format("s:SSS"), is_detailed=True, clock=clock)
    fill(world, 50)
    connector = world.connector(group_id="g", auto_offset_reset="smallest")
    lines: list[str] = []
    monkeypatch.setattr(module.click, "echo", lines.append)
    meter.run(connector.create_message_streams({TOPIC: 1})[TOPIC])
    # A record a millisecond: a row after each 40 ms, the last one for the remaining 20 records in 20 ms.
    assert [line.split(", ", 2)[2].split(", ")[2:] for line in lines] == [
        ["40", "1000.0000"],
        ["80", "1000.0000"],
        ["100", "1000.0000"],
    ]
    assert lines[-1].startswith("0:100, 0, 0.0977, 0.9766, "), lines[-1]


class SteppingClock:
    """A millisecond later at each look."""

    def __init__(self) -> None:
        self._now_ms = -1

    def now_ms(self) -> int:
        self._now_ms += 1
        return self._now_ms

    def wall_ms(self) -> int:
        return 0


def test_too_few_messages_end_the_run_and_the_waiting_does_not_count(
    world: FakeEnvironment, configs: list[Any]
) -> None:
    fill(world, 10)
    done = perf("--timeout", "3000")
    assert done.exit_code == 0
    assert "20 of 100 messages: none arrived for 3000 ms" in done.stderr
    matched = re.fullmatch(rf"({TIME}), ({TIME}), {NUMBERS}", done.stdout.splitlines()[1])
    assert matched is not None
    seconds = [int(matched[n][-6:-4]) + int(matched[n][-3:]) / 1000 for n in (1, 2)]
    # The bound is the waiting itself: reading 20 messages takes some milliseconds, or a second on a busy machine.
    assert (seconds[1] - seconds[0]) % 60 < 3


def test_nothing_to_read_has_rates_of_zero(configs: list[Any]) -> None:
    done = perf("--timeout", "50")
    assert done.stdout.splitlines()[1].endswith(", 0.0000, 0.0000, 0, 0.0000"), done.output


def test_a_message_without_a_value_counts_no_bytes(world: FakeEnvironment, configs: list[Any]) -> None:
    """It ends a thread of the original."""
    fill(world, 50, value=None)
    done = perf()
    assert ", 0.0000, 0.0000, 100, " in done.stdout, done.output


@pytest.mark.parametrize("world", ["0.9.0.1"], indirect=True)
def test_an_error_in_a_stream_is_told_by_the_exit_code(world: FakeEnvironment, configs: list[Any]) -> None:
    """The original prints a trace and exits with 0."""
    for partition in range(2):
        world.cluster.append(TOPIC, partition, [b"x" * 5_000])
        world.cluster.inject(CorruptRecords(TopicPartition(TOPIC, partition), at=-1), times=None)
    done = perf("--timeout", "2000")
    assert done.exit_code == 1, done.output
    assert "checksum" in done.stderr


# --- options ------------------------------------------------------------------------------------------------------


def test_the_group_is_kept(world: FakeEnvironment, configs: list[Any]) -> None:
    """0.8.2 deletes /consumers/<group> first."""
    fill(world, 60)
    with world.connector(group_id="g", auto_offset_reset="smallest", consumer_timeout_ms=10_000) as connector:
        take(connector.create_message_streams({TOPIC: 1})[TOPIC][0], 100)
    done = perf("--group", "g", "--hide-header", messages=20)
    assert ", 20, " in done.stdout, done.output
    assert world.offsets("g", TOPIC) == {0: 60, 1: 60}


def test_defaults_are_those_of_the_original(configs: list[ConsumerConfig]) -> None:
    perf("--timeout", "50")
    [config] = configs
    assert re.fullmatch(r"perf-consumer-\d{1,5}", config.group_id)
    assert config.socket_receive_buffer_bytes == 2 * 1024 * 1024
    assert config.fetch_message_max_bytes == 1024 * 1024
    assert config.auto_offset_reset == "smallest"


def test_a_file_wins_over_defaults_and_options_over_the_file(configs: list[ConsumerConfig], tmp_path: Path) -> None:
    """In the original the defaults of the options overwrite the file, its group.id too."""
    file = tmp_path / "consumer.properties"
    file.write_text("group.id=from-file\nfetch.message.max.bytes=7000\nauto.offset.reset=largest\n")
    perf("--config", str(file), "--timeout", "50", "--fetch-size", "8000")
    [config] = configs
    assert (config.group_id, config.fetch_message_max_bytes, config.auto_offset_reset) == ("from-file", 8000, "largest")


def test_options_reach_their_settings(configs: list[ConsumerConfig]) -> None:
    perf("--from-latest", "--num-fetch-threads", "2", "--socket-buffer-size", "9000", "--timeout", "50")
    [config] = configs
    assert (config.auto_offset_reset, config.num_consumer_fetchers) == ("largest", 2)
    assert config.socket_receive_buffer_bytes == 9000


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--date-format", "QQ"], "'QQ', which is not supported"),
        (["--date-format", "'x"], "a quote that does not end"),
        (["--reporting-interval", "0"], "--reporting-interval"),
        (["--consumer.config", "/no/such/file"], "/no/such/file"),
        (["--threads", "0"], "--threads"),
    ],
)
def test_a_wrong_call_exits_with_2(words: list[str], says: str) -> None:
    done = perf(*words)
    assert done.exit_code == 2
    assert says in done.output


# --- dates --------------------------------------------------------------------------------------------------------


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


# As printed by java.text.SimpleDateFormat of Java 17, in English.
@pytest.mark.parametrize(
    ("ms", "pattern", "text"),
    [
        (1416246370005, "yyyy-MM-dd HH:mm:ss:SSS", "2014-11-17 12:46:10:005"),
        (1416246370005, "y yy yyy yyyyy", "2014 14 2014 02014"),
        (1416246370005, "S SS SSS SSSSSS", "5 05 005 000005"),
        (1782950709123, "M MM MMM MMMM MMMMM", "7 07 Jul July July"),
        (1782950709123, "d dd ddd D DDD u uu", "1 01 001 182 182 3 03"),
        (1782950709123, "E EE EEE EEEE a aa G", "Wed Wed Wed Wednesday PM PM AD"),
        (0, "H HH k kk K KK h hh m mm s ss", "19 19 19 19 7 07 7 07 0 00 0 00"),
        (951782400000, "HH 'o''clock' '' 'at' , :/.-", "19 o'clock ' at , :/.-"),
        (1782950709123, "z Z X XX XXX", "EDT -0400 -04 -0400 -04:00"),
        (0, "z Z yyyy年", "EST -0500 1969年"),
    ],
)
def test_dates_are_those_of_java(new_york: None, ms: int, pattern: str, text: str) -> None:
    assert compile_date_format(pattern)(ms) == text


@pytest.mark.parametrize("pattern", ["Q", "L", "Y", "w", "W", "F", "zzzz", "XXXX", "'"])
def test_letters_that_are_not_known_are_named(pattern: str) -> None:
    with pytest.raises(UsageError):
        compile_date_format(pattern)
