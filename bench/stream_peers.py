"""The peers of ``bench/streams.py``: their commands and settings.

Settings are data; each peer has a function that adds the settings of the connection.  A peer whose programs or packages
are not installed raises ``NotRun`` with the reason.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stream_process import Command
from stream_results import AS_OURS, BEST, BEST_BUT_500

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import cache, ensure_artifact_set
from zkconsumer.testing.sandbox.certificates import PASSWORD, Certificates
from zkconsumer.testing.sandbox.java import compiled, find_jdk

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "bench" / "peers"
SCALA, JAVA = "1.1.1", "3.9.1"
GO_BUILD_S = 600
GO_SOURCES = ("go.mod", "go.sum", "main.go")
NO_EXTENSIONS = "ZKCONSUMER_NO_EXTENSIONS"
FAST_CODECS = ("isal", "zstandard")
"""The packages of the extra ``[fast]``; without them the product decompresses with cramjam."""

MB = str(1 << 20)
LOG4J = """\
log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d{ISO8601} %p %c{1} %m%n
"""


class NotRun(Exception):
    """Why a peer is not measured."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout of this project, and the Python that runs it."""

    root: Path
    python: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """The addresses of the servers.  ``certificates``: the cell uses TLS, and ``bootstrap`` is that listener."""

    bootstrap: str
    zookeeper: str
    certificates: Certificates | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """The input of a peer's command."""

    settings_file: Path
    folder: Path
    before: Checkout | None


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer.  ``columns``: name of a column -> settings.  ``environment``: variables of its process, which are
    settings, too.  ``is_jvm``: it is measured after a warm-up.
    """

    title: str
    difference: str
    columns: Mapping[str, Mapping[str, str]]
    reach: Callable[[Cluster], dict[str, str]]
    command: Callable[[Start], Command]
    is_jvm: bool = False
    is_slow: bool = False
    checkout: Callable[[Start], Checkout] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


# --- ours -----------------------------------------------------------------------------------------------------------


def _reach_ours(cluster: Cluster) -> dict[str, str]:
    settings = {"zookeeper.connect": cluster.zookeeper}
    if cluster.certificates is not None:
        settings |= {"security.protocol": "SSL", "ssl.truststore.location": str(cluster.certificates.ca)}
    return settings


def _reach_poll(cluster: Cluster) -> dict[str, str]:
    settings = {"bootstrap.servers": cluster.bootstrap}
    if cluster.certificates is not None:
        settings |= {"security.protocol": "SSL", "ssl.truststore.location": str(cluster.certificates.ca)}
    return settings


def _here(_: Start) -> Checkout:
    return Checkout(ROOT, sys.executable)


def _before(start: Start) -> Checkout:
    if start.before is None:
        raise NotRun("pass --before PATH, a second checkout")
    return start.before


KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 30)}
"""glibc keeps the memory of a closed consumer for the next one, as a JVM keeps its heap: each page of new memory costs
a page fault.  A program whose consumer stays open has the faults once, with or without this."""


def _ours(
    kind: str, checkout: Callable[[Start], Checkout], *, has_extensions: bool = True, blocked: tuple[str, ...] = ()
) -> Callable[[Start], Command]:
    def command(start: Start) -> Command:
        where = checkout(start)
        missing = [name for name in FAST_CODECS if not blocked and not _has_package(where.python, name)]
        if missing:
            raise NotRun(f"{' and '.join(missing)} not installed (extra [fast])")
        words = (where.python, str(PEERS / "ours.py"), str(start.settings_file), kind, *blocked)
        return Command(words, {"PYTHONPATH": str(where.root), NO_EXTENSIONS: "" if has_extensions else "1"})

    return command


def _no_consumer(start: Start) -> Command:
    words = (sys.executable, str(PEERS / "no_consumer.py"), str(start.settings_file))
    return Command(words, {"PYTHONPATH": str(ROOT), NO_EXTENSIONS: ""})


def _has_package(python: str, name: str) -> bool:
    if python == sys.executable:
        return importlib.util.find_spec(name) is not None
    return subprocess.run([python, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0


OURS_BEST = {"fetch.message.max.bytes": str(2 << 20), "socket.receive.buffer.bytes": "-1"}


def _peer_of_ours(
    title: str,
    difference: str,
    command: Callable[[Start], Command],
    *,
    checkout: Callable[[Start], Checkout] = _here,
    is_slow: bool = False,
) -> Peer:
    return Peer(
        title, difference, {BEST: OURS_BEST, AS_OURS: {}}, _reach_ours, command, is_slow=is_slow, checkout=checkout
    )


# --- JVMs -----------------------------------------------------------------------------------------------------------


def _reach_scala(cluster: Cluster) -> dict[str, str]:
    return {"zookeeper.connect": cluster.zookeeper}


def _reach_java(cluster: Cluster) -> dict[str, str]:
    settings = {"bootstrap.servers": cluster.bootstrap}
    if cluster.certificates is not None:
        settings |= {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(cluster.certificates.truststore),
            "ssl.truststore.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
        }
    return settings


def _java(release: str, program: str) -> Callable[[Start], Command]:
    def command(start: Start) -> Command:
        try:
            jars = ensure_artifact_set(release)
            classes = compiled((program, "BenchPeer"), jars, PEERS)
            java = find_jdk().java
        except SandboxError as error:
            raise NotRun(str(error)) from error
        log = start.folder / "log4j.properties"
        log.write_text(LOG4J)
        words = (java, *JVM_OPTIONS, f"-Dlog4j.configuration=file:{log}", "-cp", f"{classes}:{jars}/*", program)
        return Command((*words, str(start.settings_file)))

    return command


JVM_OPTIONS = ("-Xms512m", "-Xmx512m", "-XX:+UseParallelGC")
"""The collector with the least CPU per message, of the three that suit two cores (Serial, Parallel, G1)."""


# --- others ---------------------------------------------------------------------------------------------------------


def _reach_confluent(cluster: Cluster) -> dict[str, str]:
    settings = {"bootstrap.servers": cluster.bootstrap}
    if cluster.certificates is not None:
        settings |= {"security.protocol": "SSL", "ssl.ca.location": str(cluster.certificates.ca)}
    return settings


def _confluent(start: Start) -> Command:
    if importlib.util.find_spec("confluent_kafka") is None:
        raise NotRun("the package confluent-kafka is not installed: pip install '.[bench]' in a clone")
    return Command((sys.executable, str(PEERS / "confluent.py"), str(start.settings_file)))


def _reach_franz(cluster: Cluster) -> dict[str, str]:
    settings = {"bootstrap.servers": cluster.bootstrap}
    if cluster.certificates is not None:
        settings["ssl.ca.location"] = str(cluster.certificates.ca)
    return settings


def _franz(start: Start) -> Command:
    return Command((str(franz_program()), str(start.settings_file)))


def franz_program() -> Path:
    """The compiled peer of franz-go, from the cache or built.  Raises ``NotRun`` without Go, or if the build fails."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise NotRun("PATH has no 'go': install Go (the version is in bench/peers/franz/go.mod)")
    digest = hashlib.sha256()
    for name in GO_SOURCES:
        digest.update((PEERS / "franz" / name).read_bytes())
    target = cache.folder("programs") / f"franz-{digest.hexdigest()[:16]}"
    if not target.is_dir():
        with cache.atomic_folder(target) as building:
            words = [go, "build", "-o", str(building / "franz"), "."]
            try:
                done = subprocess.run(
                    words, cwd=PEERS / "franz", capture_output=True, text=True, timeout=GO_BUILD_S, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise NotRun(f"Go did not build the peer: {error}") from error
            if done.returncode != 0:
                last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
                raise NotRun(f"Go did not build the peer: {last}")
    return target / "franz"


def _reach_kafka_python(cluster: Cluster) -> dict[str, str]:
    settings = {"bootstrap_servers": cluster.bootstrap}
    if cluster.certificates is not None:
        settings |= {"security_protocol": "SSL", "ssl_cafile": str(cluster.certificates.ca)}
    return settings


def _kafka_python(blocked: tuple[str, ...]) -> Callable[[Start], Command]:
    def command(start: Start) -> Command:
        if importlib.util.find_spec("kafka") is None:
            raise NotRun("the package kafka-python is not installed: pip install '.[bench]' in a clone")
        return Command((sys.executable, str(PEERS / "kafka_python.py"), str(start.settings_file), *blocked))

    return command


# --- settings -------------------------------------------------------------------------------------------------------

# The defaults of zkconsumer as settings of each peer: fetches of 1 MiB from a partition, answers after at most 100 ms,
# a receive buffer of 64 KiB, two queued chunks, a commit per minute.
JAVA_AS_OURS = {
    "max.partition.fetch.bytes": MB,
    "fetch.max.wait.ms": "100",
    "receive.buffer.bytes": "65536",
    "auto.commit.interval.ms": "60000",
}
JAVA_BEST = {
    "max.partition.fetch.bytes": str(4 << 20),
    "receive.buffer.bytes": MB,
    "max.poll.records": "5000",
    "auto.commit.interval.ms": "60000",
}
POLL_BEST = {
    "max.partition.fetch.bytes": str(20 << 20),
    "receive.buffer.bytes": str(4 << 20),
    "max.poll.records": "5000",
    "auto.commit.interval.ms": "60000",
}


def _poll_columns(best: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
    return {BEST: best, AS_OURS: JAVA_AS_OURS, BEST_BUT_500: {**best, "max.poll.records": "500"}}


CONFLUENT_AS_OURS = {
    "fetch.message.max.bytes": MB,
    "fetch.wait.max.ms": "100",
    "socket.receive.buffer.bytes": "65536",
    "auto.commit.interval.ms": "60000",
    "queued.max.messages.kbytes": "8192",
    "fetch.queue.backoff.ms": "100",
}
CONFLUENT_BEST = {
    "fetch.message.max.bytes": str(4 << 20),
    "queued.min.messages": "20000",
    "fetch.queue.backoff.ms": "100",
    "auto.commit.interval.ms": "60000",
}
FRANZ_AS_OURS = {"max.partition.fetch.bytes": MB, "fetch.max.wait.ms": "100", "auto.commit.interval.ms": "60000"}
FRANZ_BEST = {"pools": "records", "gogc": "400", "auto.commit.interval.ms": "60000"}
KAFKA_PYTHON_AS_OURS = {
    "max_partition_fetch_bytes": MB,
    "fetch_max_wait_ms": "100",
    "receive_buffer_bytes": "65536",
    "auto_commit_interval_ms": "60000",
}
KAFKA_PYTHON_BEST = {"max_partition_fetch_bytes": str(4 << 20), "max_poll_records": "5000"}

TRIED = """\
- Scala: 1, 4 and 8 MiB of a partition; receive buffers of 64 KiB and 1 MiB; 2, 4 and 10 chunks; the collectors Serial
  and Parallel.
- Java: 1, 4, 8 and 16 MiB of a partition; receive buffers of 64 KiB, 1 MiB, 4 MiB and the system's; 500, 5,000 and
  20,000 records a poll; the collectors Serial, Parallel and G1.
- confluent-kafka: 1 and 4 MiB of a partition; 20,000, 100,000 and 200,000 messages queued; receive buffers of 1 MiB and
  the system's; 100 ms and 1 s (its default, with which it mostly waits here) before the next fetch while its queue is
  full.
- franz-go: 1 and 4 MiB of a partition; with and without `pools`; `GOGC` 100 and 400.
- kafka-python: 1 and 4 MiB of a partition; receive buffers of 64 KiB and the system's; 500 and 5,000 records a poll.
- zkconsumer: 1, 2 and 4 MiB of a partition; receive buffers of 64 KiB, 1 MiB and the system's.
- zkconsumer KafkaConsumer: 1 to 10, 12, 16, 20, 24 and 32 MiB of a partition; 16 to 128 MiB of a response; receive
  buffers of 64 KiB, 1, 2, 3, 4 and 8 MiB, and the system's.  Without the two variables of glibc, which keep freed
  memory, a response of more than 32 MiB is new memory of the system, with a page fault for each 4 KiB: then the best
  are 8 MiB of a partition and 28 MiB of a response.
"""
"""The settings from which the best were selected: those with the least CPU per message at 100 B, v2."""

_CONFLUENT = "librdkafka decodes on its own threads and queues each message; C code makes lists of 500 messages"
_KAFKA_PYTHON = "all in Python; reads a topic with a tenth of the messages"

PEER_TABLE: Mapping[str, Peer] = {
    "ours": _peer_of_ours(
        "zkconsumer",
        "a complete member of a ZooKeeper group: lease and ownership are checked before each message",
        _ours("messages", _here, blocked=FAST_CODECS),
    ),
    "ours-batches": _peer_of_ours(
        "zkconsumer `batches()`",
        "the same, but offsets and values are summed as buffers, without an object for each message",
        _ours("batches", _here, blocked=FAST_CODECS),
    ),
    "ours-fast": _peer_of_ours(
        "zkconsumer with `[fast]`",
        "the same as the first, with the packages isal and zstandard",
        _ours("messages", _here),
    ),
    "ours-python": _peer_of_ours(
        "zkconsumer without extensions",
        "the same as the first with `ZKCONSUMER_NO_EXTENSIONS=1`; reads a topic of a tenth of the messages",
        _ours("messages", _here, has_extensions=False, blocked=FAST_CODECS),
        is_slow=True,
    ),
    "ours-poll": Peer(
        "zkconsumer KafkaConsumer",
        "`poll()` in a group of the coordinator with automatic commits; key, value and offset of each record",
        _poll_columns(POLL_BEST),
        _reach_poll,
        _ours("poll", _here, blocked=FAST_CODECS),
        checkout=_here,
        environment=KEPT_MEMORY,
    ),
    "no-consumer": Peer(
        "no consumer",
        "the least that a consumer in Python needs: a blocking socket, the decoder of zkconsumer and the loop of "
        "`poll()`; no group, commits, fetch sessions or time-outs",
        _poll_columns(POLL_BEST),
        _reach_poll,
        _no_consumer,
        environment=KEPT_MEMORY,
    ),
    "before": _peer_of_ours(
        "zkconsumer before",
        "the second checkout, with its extensions",
        _ours("messages", _before, blocked=FAST_CODECS),
        checkout=_before,
    ),
    "before-python": _peer_of_ours(
        "zkconsumer before, without extensions",
        "the second checkout with `ZKCONSUMER_NO_EXTENSIONS=1`; reads a topic of a tenth of the messages",
        _ours("messages", _before, has_extensions=False, blocked=FAST_CODECS),
        checkout=_before,
        is_slow=True,
    ),
    "scala": Peer(
        f"Scala consumer {SCALA}",
        "uses Fetch v3, so the broker converts format 2 to format 1 for it, at the broker's cost; offsets in "
        "ZooKeeper",
        {
            BEST: {"queued.max.message.chunks": "10", "socket.receive.buffer.bytes": MB},
            AS_OURS: {},
        },
        _reach_scala,
        _java(SCALA, "ScalaPeer"),
        is_jvm=True,
    ),
    "java": Peer(
        f"Java KafkaConsumer {JAVA}",
        "decodes on the program's thread, a list of records at a time; offsets in Kafka",
        _poll_columns(JAVA_BEST),
        _reach_java,
        _java(JAVA, "JavaPeer"),
        is_jvm=True,
    ),
    "confluent-crc": Peer(
        "confluent-kafka, `check.crcs`",
        f"{_CONFLUENT}; checksums are verified",
        {column: {**each, "check.crcs": "true"} for column, each in
         ((BEST, CONFLUENT_BEST), (AS_OURS, CONFLUENT_AS_OURS))},
        _reach_confluent,
        _confluent,
    ),
    "confluent": Peer(
        "confluent-kafka",
        f"{_CONFLUENT}; checksums are *not* verified, its default",
        {column: {**each, "check.crcs": "false"} for column, each in
         ((BEST, CONFLUENT_BEST), (AS_OURS, CONFLUENT_AS_OURS))},
        _reach_confluent,
        _confluent,
    ),
    "franz-go": Peer(
        "franz-go",
        "in Go; keys and values are slices of the received bytes; the receive buffer is the system's; with its best "
        "settings slices of records are reused (`pools`), and the garbage collector waits for 400 % (`gogc`)",
        {BEST: FRANZ_BEST, AS_OURS: FRANZ_AS_OURS},
        _reach_franz,
        _franz,
    ),
    "kafka-python": Peer(
        "kafka-python",
        f"{_KAFKA_PYTHON}; checksums of format 2 in Python",
        {BEST: KAFKA_PYTHON_BEST, AS_OURS: KAFKA_PYTHON_AS_OURS},
        _reach_kafka_python,
        _kafka_python(("crc32c",)),
        is_slow=True,
    ),
    "kafka-python-crc32c": Peer(
        "kafka-python with `crc32c`",
        f"{_KAFKA_PYTHON}; checksums of format 2 by the package crc32c",
        {BEST: KAFKA_PYTHON_BEST, AS_OURS: KAFKA_PYTHON_AS_OURS},
        _reach_kafka_python,
        _kafka_python(()),
        is_slow=True,
    ),
}  # fmt: skip


def checkout_of(path: Path) -> Checkout:
    """The second checkout.  Raises ``SystemExit`` if it is not a checkout, or has no virtual environment."""
    root = path.resolve()
    if not (root / "zkconsumer" / "__init__.py").is_file():
        raise SystemExit(f"--before {path}: it contains no zkconsumer; pass a checkout of this project")
    for place in (root / ".venv", root / "venv", root.parent / "venv"):
        python = place / "bin" / "python"
        if os.access(python, os.X_OK):
            return Checkout(root, str(python))
    raise SystemExit(
        f"--before {path}: it has no virtual environment; create one there: python3 -m venv .venv, "
        "then .venv/bin/pip install -e '.[test]'"
    )


def commit_of(root: Path) -> str:
    """The commit of a checkout, followed by + if files were changed."""
    words = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
