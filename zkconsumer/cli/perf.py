"""``zkconsumer perf``: how fast a group member reads; replaces ``kafka-consumer-perf-test --zookeeper`` of Kafka 1.1.

The columns, their separators and their numbers are those of 1.1 (the old consumer's), so scripts can still read them.
Counts differ where Kafka's tool was wrong; see the docstring of ``perf``.
"""

from __future__ import annotations

import itertools
import random
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.base.threads import spawn
from zkconsumer.cli.common import missing_address_error
from zkconsumer.cli.console import log_to_console
from zkconsumer.cli.java_dates import DateFormat, compile_date_format
from zkconsumer.cli.options import ClusterOptions, cluster_options, group_argument, read_settings_file
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import ConsumerTimeoutException, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zkconsumer.streams import KafkaStream

HEADER = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
DETAILED_HEADER = "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
MB = 1024 * 1024

POLL_INTERVAL_MS = 100
"""How often an idle stream checks whether the measurement is over."""

STOP_TIMEOUT_MS = 3_000
RANDOM_GROUPS = 100_000
FINAL_HEALTH_TIMEOUT_MS = 3_000
"""How long the member may take to report why there were fewer messages."""

DEFAULTS = {
    "socket.receive.buffer.bytes": str(2 * MB),
    "fetch.message.max.bytes": str(MB),
    "auto.offset.reset": "smallest",
    "num.consumer.fetchers": "1",
}
"""Defaults of the options of Kafka's tool; here a consumer.config overrides them."""


@dataclass(slots=True)
class StreamStatistics:
    """What one stream has read: in total, and at its last printed row."""

    records: int = 0
    bytes: int = 0
    reported_records: int = 0
    reported_bytes: int = 0
    reported_at_ms: int = 0


class ThroughputTest:
    """Reads streams, one thread each, until the number of records is reached or none arrives for ``timeout_ms``."""

    def __init__(
        self,
        messages: int,
        timeout_ms: int,
        report_every_ms: int,
        date: DateFormat,
        *,
        is_detailed: bool,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.stop = threading.Event()
        self.error: BaseException | None = None
        self.signal: signal.Signals | None = None
        self._messages = messages
        self._timeout_ms = timeout_ms
        self._report_every_ms = report_every_ms
        self._date = date
        self._is_detailed = is_detailed
        self._clock = clock
        self._tickets = itertools.count()
        self._statistics: list[StreamStatistics] = []
        self._printing = threading.Lock()
        self._began_ms = self._last_ms = self._began_wall_ms = 0

    @property
    def records(self) -> int:
        """Records of all streams."""
        return sum(tally.records for tally in self._statistics)

    def run(self, streams: Sequence[KafkaStream[bytes, bytes]]) -> None:
        """Read until the end; called by the main thread, which alone receives signals."""
        self._began_ms = self._last_ms = self._clock.now_ms()
        self._began_wall_ms = self._clock.wall_ms()
        workers = [
            spawn(
                f"perf-{number}",
                lambda _, number=number, stream=stream: self.read(number, stream),  # type: ignore[misc]
                self.on_thread_error,
            )
            for number, stream in enumerate(streams)
        ]
        while not self.stop.wait(POLL_INTERVAL_MS / 1000):
            if self.signal is not None:
                self.stop.set()
        for worker in workers:
            worker.join(STOP_TIMEOUT_MS)

    def read(self, number: int, stream: KafkaStream[bytes, bytes]) -> None:
        """Read one stream to the end of the measurement; runs on its own thread."""
        tally = StreamStatistics(reported_at_ms=self._began_ms)
        self._statistics.append(tally)
        iterator = stream.iterator()
        while not self.stop.is_set():
            try:
                message = next(iterator)
            except ConsumerTimeoutException:
                self._idle()
                continue
            except StopIteration:
                break
            ticket = next(self._tickets)  # atomic in the interpreter: no lock is needed
            if ticket >= self._messages:
                iterator.undeliver()
                break
            now_ms = self._last_ms = self._clock.now_ms()
            tally.records += 1
            tally.bytes += len(message.value or b"")
            if ticket == self._messages - 1:
                self.stop.set()
            if now_ms - tally.reported_at_ms >= self._report_every_ms:
                self._report(number, tally, now_ms)
        iterator.acknowledge()
        self._report(number, tally, self._last_ms)

    def on_thread_error(self, _: str, error: BaseException) -> None:
        """A reading thread ended by an error."""
        self.error = self.error or error
        self.stop.set()

    def on_signal(self, number: int, _: Any) -> None:
        """Only set a flag: this runs in the main thread, which may hold the lock of the event that it would set."""
        self.signal = signal.Signals(number)

    def summary(self) -> str:
        """Return the one row of a run without details.  Its time ends at the last record, before the final timeout."""
        elapsed_ms = self._last_ms - self._began_ms
        count = sum(tally.bytes for tally in self._statistics)
        began, ended = self._date(self._began_wall_ms), self._date(self._began_wall_ms + elapsed_ms)
        return f"{began}, {ended}, {_rates(count, count, self.records, self.records, elapsed_ms)}"

    def _report(self, number: int, tally: StreamStatistics, now_ms: int) -> None:
        if self._is_detailed:
            records, count = tally.records - tally.reported_records, tally.bytes - tally.reported_bytes
            rates = _rates(tally.bytes, count, tally.records, records, now_ms - tally.reported_at_ms)
            at = self._date(self._began_wall_ms + now_ms - self._began_ms)
            with self._printing:
                click.echo(f"{at}, {number}, {rates}")
        tally.reported_records, tally.reported_bytes, tally.reported_at_ms = tally.records, tally.bytes, now_ms

    def _idle(self) -> None:
        if self._clock.now_ms() - self._last_ms >= self._timeout_ms:
            self.stop.set()


def _rates(bytes_in_all: int, bytes_now: int, records_in_all: int, records_now: int, elapsed_ms: int) -> str:
    """Return the four columns of a row; without elapsed time the rates are 0 (Kafka prints NaN and Infinity)."""
    per_s = 1000 / elapsed_ms if elapsed_ms > 0 else 0.0
    return f"{bytes_in_all / MB:.4f}, {bytes_now / MB * per_s:.4f}, {records_in_all}, {records_now * per_s:.4f}"


@click.command()
@group_argument(required=False)
@cluster_options
@click.option("--topic", required=True, help="The topic to read.")
@click.option(
    "--messages", type=click.IntRange(min=1), required=True, help="The number of messages of all threads together."
)
@click.option("--threads", type=click.IntRange(min=1), default=10, show_default=True, help="Streams and their threads.")
@click.option("--fetch-size", type=click.IntRange(min=1), metavar="BYTES", help="fetch.message.max.bytes  [1048576]")
@click.option("--from-latest", is_flag=True, help="If there is no offset, begin at the end, not at the beginning.")
@click.option("--num-fetch-threads", type=click.IntRange(min=1), help="num.consumer.fetchers  [1]")
@click.option("--socket-buffer-size", type=int, metavar="BYTES", help="socket.receive.buffer.bytes  [2097152]")
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    metavar="MS",
    help="End after this time without a message.",
)
@click.option(
    "--show-detailed-stats",
    "is_detailed",
    is_flag=True,
    help="Print a row for each thread and interval, and no summary.",
)
@click.option("--reporting-interval", type=click.IntRange(min=1), default=5_000, show_default=True, metavar="MS")
@click.option("--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", show_default=True, help="As SimpleDateFormat's.")
@click.option("--hide-header", is_flag=True, help="Do not print the names of the columns.")
def perf(
    cluster: ClusterOptions,
    topic: str,
    messages: int,
    group: str | None,
    threads: int,
    fetch_size: int | None,
    from_latest: bool,
    num_fetch_threads: int | None,
    socket_buffer_size: int | None,
    timeout_ms: int,
    is_detailed: bool,
    reporting_interval: int,
    date_format: str,
    hide_header: bool,
) -> None:
    """Measure how fast a member of a ZooKeeper consumer group reads a topic.

    GROUP is group.id of the file, or perf-consumer-NUMBER, if it is not given; options override the file.

    Prints the columns of Kafka 1.1's kafka-consumer-perf-test --zookeeper.  MB are 1048576 bytes of values, without
    keys.  Differences to that tool: --messages is for all threads together, the group is never deleted, settings of
    --consumer.config are not overwritten by defaults, a message without a value counts 0 bytes, the last row of a
    thread shows its last interval, and an error sets the exit code.
    """
    log_to_console()
    date = compile_date_format(date_format)
    options = {
        "zookeeper.connect": cluster.zookeeper,
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "fetch.message.max.bytes": fetch_size,
        "num.consumer.fetchers": num_fetch_threads,
        "socket.receive.buffer.bytes": socket_buffer_size,
        "auto.offset.reset": "largest" if from_latest else None,
    }
    config = _config(
        cluster.config_file, {key: str(value) for key, value in options.items() if value is not None}, timeout_ms
    )
    meter = ThroughputTest(messages, timeout_ms, reporting_interval, date, is_detailed=is_detailed)
    if not hide_header:
        click.echo(DETAILED_HEADER if is_detailed else HEADER)
    before = {number: signal.signal(number, meter.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with ZookeeperConsumerConnector(config) as connector:
            meter.run(connector.create_message_streams({topic: threads})[topic])
            obstacles = [] if meter.records >= messages else connector.reading_problems(FINAL_HEALTH_TIMEOUT_MS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if not is_detailed:
        click.echo(meter.summary())
    if meter.error is not None:
        raise meter.error
    if meter.signal is not None:
        click.echo(f"stopped by {meter.signal.name}", err=True)
    elif meter.records < messages:
        click.echo(f"{meter.records} of {messages} messages: none arrived for {timeout_ms} ms (--timeout)", err=True)
        if obstacles:
            raise UnavailableError(f"not everything could be read: {'; '.join(obstacles)}")


def _config(file: Path | None, options: Mapping[str, str], timeout_ms: int) -> ConsumerConfig:
    """Options override the file, and the file overrides ``DEFAULTS``."""
    settings = {"group.id": f"perf-consumer-{random.randrange(RANDOM_GROUPS)}", **DEFAULTS}
    for key in read_settings_file(file):
        settings.pop(key, None)
    settings |= options
    if file is None and "zookeeper.connect" not in settings:
        raise missing_address_error()
    settings["consumer.timeout.ms"] = str(min(POLL_INTERVAL_MS, timeout_ms))
    return ConsumerConfig.from_files(file, settings)
