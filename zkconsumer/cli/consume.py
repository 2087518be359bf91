"""``zkconsumer consume``: reads topics as a member of a ZooKeeper group, and prints the messages.

Each message is written before the next one is requested, so every committed message has been printed, whatever ends
the program: a signal, a closed pipe, ``--max-messages``.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.cli.common import EXIT_FAILED, missing_address_error
from zkconsumer.cli.console import log_to_console, print_error
from zkconsumer.cli.console_format import console_format
from zkconsumer.cli.options import ClusterOptions, cluster_options, group_argument
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import ConsumerTimeoutException, UnavailableError, UsageError
from zkconsumer.member.topic_count import THREADS_PER_TOPIC_MAX
from zkconsumer.member.topic_filter import Blacklist, Whitelist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from zkconsumer.streams import KafkaStream, MessageAndMetadata

DEFAULT_FORMAT = r"%t\t%p\t%o\t%k\t%v\n"
POLL_INTERVAL_MS = 100
"""How often an idle stream checks whether the program should end."""

STOP_TIMEOUT_MS = 3_000
METRICS_INTERVAL_MS = 10_000
FINAL_HEALTH_TIMEOUT_MS = 3_000
"""How long the member may take at the end to report what it could not read."""

FIELDS = {
    "t": lambda m: m.topic.encode(),
    "p": lambda m: b"%d" % m.partition,
    "o": lambda m: b"%d" % m.offset,
    "T": lambda m: b"%d" % m.timestamp,
    "k": lambda m: b"null" if m.key is None else m.key,
    "v": lambda m: b"null" if m.value is None else m.value,
    "%": lambda _: b"%",
}
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}


def compile_format(text: str) -> list[Any]:
    """The parts of a format: bytes to print unchanged, or a function of the message."""
    parts: list[Any] = []
    characters: Iterator[str] = iter(text)
    for character in characters:
        if character == "%":
            field = next(characters, "")
            if field not in FIELDS or not field:
                raise UsageError(f"--format: %{field} is unknown; the fields are %t %p %o %k %v %T and %%")
            parts.append(FIELDS[field])
        elif character == "\\":
            escape = next(characters, "")
            if escape not in ESCAPES:
                raise UsageError(f"--format: \\{escape} is unknown; the escapes are \\t \\n \\r \\0 and \\\\")
            parts.append(ESCAPES[escape].encode())
        else:
            parts.append(character.encode())
    return parts


def parse_topic(text: str) -> tuple[str, int]:
    """``T`` or ``T:threads``."""
    topic, colon, threads = text.partition(":")
    if not colon:
        return topic, 1
    if not threads.isascii() or not threads.isdigit() or int(threads) < 1:
        raise UsageError(f"--topic {text}: {threads!r} is not a number of threads; write TOPIC or TOPIC:2")
    return topic, int(threads)


class Printer:
    """Prints the messages of the streams until a stop is requested; one thread a stream, one message at a time."""

    def __init__(self, parts: list[Any], max_messages: int | None, timeout_ms: int | None) -> None:
        self.stop = threading.Event()
        self.signal: signal.Signals | None = None
        self.printed = 0
        self.error: BaseException | None = None
        self.stop_reason = ""
        self.is_output_closed = False
        self.is_output_blocked = False
        """A thread still writes to standard output, although a stop was requested."""
        self._parts = parts
        self._max_messages = max_messages
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._last_ms = SYSTEM_CLOCK.now_ms()

    def print_stream(self, stream: KafkaStream[bytes, bytes], _: StopSignal) -> None:
        """Print one stream; runs on its own thread."""
        iterator = stream.iterator()
        try:
            while not self.stop.is_set():
                try:
                    message = next(iterator)
                except ConsumerTimeoutException:
                    self._idle()
                    continue
                if not self._print(message):
                    iterator.undeliver()
                    return
        except StopIteration:
            self.request_stop("")
        except BrokenPipeError:
            iterator.undeliver()
            self.is_output_closed = True
            self.request_stop("the output was closed")
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except Exception as error:  # noqa: BLE001 (the thread ends here; the main thread raises the error)
            self.error = self.error or error
            self.request_stop("")
        else:
            iterator.acknowledge()

    def on_thread_error(self, _: str, error: BaseException) -> None:
        """A thread ended with an error that is not an ``Exception``."""
        self.error = self.error or error
        self.request_stop("")

    def request_stop(self, why: str) -> None:
        """Stop every stream; the first reason counts."""
        self.stop_reason = self.stop_reason or why
        self.stop.set()

    def on_signal(self, number: int, _: Any) -> None:
        """Only set a flag: this runs in the main thread, which may hold the lock of the event that it would set."""
        self.signal = signal.Signals(number)

    def wait(self, timeout_ms: int) -> bool:
        """Wait until a stop is requested, and return whether it is; the main thread calls this repeatedly."""
        if self.signal is not None:
            self.request_stop(f"stopped by {self.signal.name}")
        return self.stop.wait(timeout_ms / 1000)

    def reading_problems(self, connector: ZookeeperConsumerConnector) -> list[str]:
        """Why messages may be missing in the output; empty after ``max_messages`` and after the output was closed."""
        if self.printed == self._max_messages or self.error is not None or self.is_output_closed:
            return []
        return connector.reading_problems(FINAL_HEALTH_TIMEOUT_MS)

    def _print(self, message: MessageAndMetadata[bytes, bytes]) -> bool:
        with self._lock:
            if self._max_messages is not None and self.printed >= self._max_messages:
                return False
            line = b"".join(part if isinstance(part, bytes) else part(message) for part in self._parts)
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            self.printed += 1
            self._last_ms = SYSTEM_CLOCK.now_ms()
            if self.printed == self._max_messages:
                self.request_stop("")
        return True

    def _idle(self) -> None:
        if self._timeout_ms is not None and SYSTEM_CLOCK.now_ms() - self._last_ms >= self._timeout_ms:
            self.request_stop(f"no message for {self._timeout_ms} ms")


@click.command()
@group_argument(required=False)
@cluster_options
@click.option("--topic", "topics", multiple=True, metavar="T[:THREADS]", help="A topic's name; may be repeated.")
@click.option("--whitelist", metavar="R", help="Instead of --topic: every topic that matches this Java pattern.")
@click.option("--blacklist", metavar="R", help="Instead of --topic: every topic that does not match it.")
@click.option(
    "--streams",
    type=click.IntRange(1, THREADS_PER_TOPIC_MAX),
    metavar="N",
    help="Streams of a white or black list; 1 if not given.",
)
@click.option(
    "--set",
    "--consumer-property",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="One setting; wins over the file.",
)
@click.option("--from-beginning", is_flag=True, help="If there is no offset, begin at the smallest one.")
@click.option("--max-messages", type=click.IntRange(min=1), metavar="N", help="Leave after N messages.")
@click.option("--timeout-ms", type=click.IntRange(min=0), metavar="N", help="Leave after N ms without a message.")
@click.option(
    "--format",
    "output_format",
    default=DEFAULT_FORMAT,
    show_default=True,
    metavar="TEXT",
    help="%t topic, %p partition, %o offset, %k key, %v value, %T timestamp.",
)
@click.option(
    "--metrics",
    "metrics_file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the metrics to this file, as JSON, every 10 s and at the end.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="Instead of --format, as in the old console consumer: print.timestamp, print.key, print.value, "
    "key.separator, line.separator.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log the events of the group to standard error.")
def consume(
    cluster: ClusterOptions,
    group: str | None,
    topics: Sequence[str],
    whitelist: str | None,
    blacklist: str | None,
    streams: int | None,
    settings: Sequence[str],
    from_beginning: bool,
    max_messages: int | None,
    timeout_ms: int | None,
    output_format: str,
    metrics_file: Path | None,
    properties: Sequence[str],
    verbose: bool,
) -> None:
    """Read topics as a member of a ZooKeeper consumer group, together with any Scala consumers, and print the messages.

    A --topic is an exact name; for the old console consumer it was a pattern, in which a "." matches any character.
    Patterns are Java's: commas separate alternatives, blanks are removed, and ".*" matches all topics.

    Offsets are committed as auto.commit.enable says, and at the end: on --max-messages, --timeout-ms, Ctrl-C, SIGTERM
    and when the output is closed, the member releases its partitions and leaves the group.

    The command waits for topics and brokers that do not exist yet, and logs which ones. Exit codes: 0 done, 1 not
    everything could be read, because at the end a topic does not exist, a broker does not answer or a partition has no
    leader; or standard output takes nothing at the end.
    """
    log_to_console(logging.INFO if verbose else logging.WARNING)
    if properties and output_format != DEFAULT_FORMAT:
        raise UsageError("give --format or --property, not both: each sets the format of a line")
    parts = console_format(properties) if properties else compile_format(output_format)
    printer = Printer(parts, max_messages, timeout_ms)
    wanted = _stream_factory(topics, whitelist, blacklist, streams)
    config = _config(cluster, group, settings, from_beginning=from_beginning)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, printer.on_signal)
    connector = ZookeeperConsumerConnector(config)
    dump = MetricsFileWriter(connector, metrics_file)
    obstacles: list[str] = []
    try:
        dump.write()
        if not printer.wait(0):
            _print_all(wanted(connector), printer, dump)
            obstacles = printer.reading_problems(connector)
    finally:
        connector.close()
        dump.write()
    messages = "message" if printer.printed == 1 else "messages"
    click.echo(
        f"{printer.stop_reason + '; ' if printer.stop_reason else ''}printed {printer.printed} {messages}", err=True
    )
    if printer.is_output_blocked:
        print_error(
            "standard output takes nothing: the message that was being printed may be cut off, and is not committed"
        )
        # Python would flush standard output, and wait for the thread that writes there.
        os._exit(EXIT_FAILED)
    if printer.error is not None:
        raise printer.error
    if obstacles:
        raise UnavailableError(f"not everything could be read: {'; '.join(obstacles)}")


def _stream_factory(
    topics: Sequence[str], whitelist: str | None, blacklist: str | None, streams: int | None
) -> Callable[[ZookeeperConsumerConnector], list[KafkaStream[bytes, bytes]]]:
    """Return a function that creates the streams of a connector; it checks the options before any connection."""
    given = [bool(topics), whitelist is not None, blacklist is not None]
    if sum(given) != 1:
        raise UsageError("give --topic, or one --whitelist, or one --blacklist")
    if topics:
        if streams is not None:
            raise UsageError(f"--streams needs --whitelist or --blacklist; write --topic {topics[0]}:{streams}")
        threads: dict[str, int] = {}
        for text in topics:
            topic, count = parse_topic(text)
            if topic in threads:
                raise UsageError(f"--topic {topic} is given twice; write {topic}:2 for two threads")
            threads[topic] = count
        return lambda connector: [s for row in connector.create_message_streams(threads).values() for s in row]
    topic_filter = Blacklist(blacklist or "") if whitelist is None else Whitelist(whitelist)
    if not topic_filter.regex:
        raise UsageError("the pattern is empty; for all topics use --whitelist '.*'")
    return lambda connector: connector.create_message_streams_by_filter(topic_filter, streams or 1)


class MetricsFileWriter:
    """Writes the metrics of a connector to a file, if one is given; a write error is printed once."""

    def __init__(self, connector: ZookeeperConsumerConnector, path: Path | None) -> None:
        self._connector = connector
        self._path = path
        self._due_ms = SYSTEM_CLOCK.now_ms() + METRICS_INTERVAL_MS
        self._reported_error = ""

    def write_if_due(self) -> None:
        """Write, at most once every ``METRICS_INTERVAL_MS``."""
        if SYSTEM_CLOCK.now_ms() >= self._due_ms:
            self._due_ms += METRICS_INTERVAL_MS
            self.write()

    def write(self) -> None:
        if self._path is None:
            return
        try:
            self._connector.dump_metrics(self._path)
        except OSError as error:
            why = error.strerror or type(error).__name__
            if why != self._reported_error:
                print_error(f"--metrics {self._path}: {why}")
            self._reported_error = why


def _print_all(streams: Sequence[KafkaStream[bytes, bytes]], printer: Printer, dump: MetricsFileWriter) -> None:
    workers = [
        spawn(
            f"print-{stream}",
            lambda stop, stream=stream: printer.print_stream(stream, stop),  # type: ignore[misc]
            printer.on_thread_error,
        )
        for stream in streams
    ]
    while not printer.wait(POLL_INTERVAL_MS):
        dump.write_if_due()
    deadline_ms = SYSTEM_CLOCK.now_ms() + STOP_TIMEOUT_MS
    ended = [worker.join(max(0, deadline_ms - SYSTEM_CLOCK.now_ms())) for worker in workers]
    printer.is_output_blocked = not all(ended)


def _config(
    cluster: ClusterOptions, group: str | None, settings: Sequence[str], *, from_beginning: bool
) -> ConsumerConfig:
    overrides: dict[str, str] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text}: write KEY=VALUE")
        overrides[key.strip()] = value
    options = {
        "zookeeper.connect": cluster.zookeeper,
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
    }
    overrides |= {key: value for key, value in options.items() if value is not None}
    if from_beginning:
        overrides["auto.offset.reset"] = "smallest"
    if cluster.config_file is None and "zookeeper.connect" not in overrides:
        raise missing_address_error()
    overrides["consumer.timeout.ms"] = str(POLL_INTERVAL_MS)
    return ConsumerConfig.from_files(cluster.config_file, overrides)
