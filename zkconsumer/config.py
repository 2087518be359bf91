"""The settings of a consumer: one table, read from old files as they stand.  Pure but for the reading of a file.

``ConsumerConfig`` below is the table.  Each entry is a ``Setting``: the key of the original, type, unit, what is
allowed, default and a sentence; the attribute has the key's name with underscores.  The reference page is made from
it (``render_reference``), and so is every message: all problems of a configuration are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, Self

from zkconsumer.errors import InvalidConfigException
from zkconsumer.foreign_keys import families, successor_of, why_ignored
from zkconsumer.properties import decode_properties, parse_properties
from zkconsumer.settings import (
    INT_MIN,
    JAVA_BLANKS,
    SameAs,
    Setting,
    boolean,
    check_connect,
    check_consumer_id,
    check_group,
    check_name,
    choice,
    integer,
    optional_text,
    text,
)

_SHOWN_CHARS_MAX = 100


class Row(NamedTuple):
    """One setting as the reference page shows it; all in words."""

    key: str
    attribute: str
    type: str
    unit: str
    allowed: str
    default: str
    sentence: str
    is_ours: bool


# --- the table ----------------------------------------------------------------------------------------------------


class ConsumerConfig:
    """The settings of one consumer.

    ``ConsumerConfig(group_id="g", zookeeper_connect="zk1:2181,zk2:2181/kafka", auto_offset_reset="smallest")`` takes
    attributes; ``ConsumerConfig.from_properties("consumer.properties")`` reads an old file.  Both raise
    ``InvalidConfigException`` with a line for each problem.  A configuration does not change.

    ``values``: every key of the table -> value.  ``given``: the keys that were set.  ``ignored``: keys in a file
    that belong to other programs, or have no effect -> why; worth a warning each.
    """

    __slots__ = ("given", "ignored", "values")

    values: Mapping[str, Any]
    given: frozenset[str]
    ignored: Mapping[str, str]

    # The group.

    group_id = text(
        "group.id", ...,
        "The group: its members share the partitions. All members, and only they, have the same.",
        check_group, "letters, digits, '.', '_' and '-' of ASCII; not empty",
    )
    consumer_id = optional_text(
        "consumer.id",
        "Takes the place of the generated part of the member's id, which is `<group.id>_<consumer.id>` then. "
        "Two members of a group cannot have the same.",
        check_consumer_id, "any text that can be part of a path in ZooKeeper",
    )
    client_id = text(
        "client.id", SameAs("group.id"), "Told to brokers with every request; names this program in their logs.",
        check_name, "letters, digits, '.', '_' and '-' of ASCII",
    )
    partition_assignment_strategy = choice(
        "partition.assignment.strategy", ("range", "roundrobin"),
        "How partitions are shared out. It stands nowhere in ZooKeeper: all members of a group must be set alike. "
        "(0.8.2 took any other word for range.)",
        {
            "org.apache.kafka.clients.consumer.RangeAssignor": "range",
            "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
        },
    )
    exclude_internal_topics = boolean(
        "exclude.internal.topics", True,
        "Whether topic filters pass over `__consumer_offsets` and `__transaction_state`. It is applied to the "
        "filters of all members, so all of them must be set alike.",
    )

    # ZooKeeper.

    zookeeper_connect = text(
        "zookeeper.connect", ...,
        "The ZooKeeper servers, and the chroot of the Kafka cluster behind the last of them.",
        check_connect, "HOST:PORT[,HOST:PORT…][/CHROOT]",
    )
    zookeeper_session_timeout_ms = integer(
        "zookeeper.session.timeout.ms", 6000,
        "How long ZooKeeper waits for a silent member before it gives its partitions to the others; asked for, the "
        "server has its own limits. This member stops handing out messages after two thirds of it.",
        unit="ms", low=1,
    )
    zookeeper_connection_timeout_ms = integer(
        "zookeeper.connection.timeout.ms", SameAs("zookeeper.session.timeout.ms"),
        "How long the constructor waits for the first connection to ZooKeeper.", unit="ms", low=1,
    )
    zookeeper_sync_time_ms = integer(
        "zookeeper.sync.time.ms", 2000, "Is the default of `rebalance.backoff.ms`, and nothing else.", unit="ms"
    )

    # Rebalance.

    rebalance_max_retries = integer(
        "rebalance.max.retries", 4,
        "With `rebalance.backoff.ms`: how long `create_message_streams` waits for the first full share (at least "
        "two session time-outs). The attempts go on afterwards.",
        unit="attempts", low=1,
    )
    rebalance_backoff_ms = integer(
        "rebalance.backoff.ms", SameAs("zookeeper.sync.time.ms"), "The pause after a failed attempt; it grows.",
        unit="ms",
    )

    # Fetching.

    socket_timeout_ms = integer(
        "socket.timeout.ms", 30_000,
        "How long a broker may take to accept a connection or to answer. At least `fetch.wait.max.ms`.",
        unit="ms", low=1,
    )
    socket_receive_buffer_bytes = integer(
        "socket.receive.buffer.bytes", 64 * 1024,
        "The receive buffer of sockets to brokers; 0 and less leave it to the system.", unit="bytes", low=INT_MIN,
    )
    fetch_message_max_bytes = integer(
        "fetch.message.max.bytes", 1024 * 1024,
        "How many bytes are asked for of one partition at a time; the largest message must fit.",
        unit="bytes", low=1,
    )
    fetch_max_bytes = integer(
        "fetch.max.bytes", 50 * 1024 * 1024,
        "How many bytes are asked for of one broker at a time, all partitions together. (The original has the key "
        "from 0.10.1 on, and does not use it.)",
        unit="bytes", low=1,
    )
    fetch_min_bytes = integer(
        "fetch.min.bytes", 1, "How many bytes a broker waits for, for at most `fetch.wait.max.ms`.", unit="bytes"
    )
    fetch_wait_max_ms = integer(
        "fetch.wait.max.ms", 100, "How long a broker may wait for `fetch.min.bytes`.", unit="ms"
    )
    num_consumer_fetchers = integer(
        "num.consumer.fetchers", 1, "Fetch threads for each broker.", unit="threads", low=1
    )
    queued_max_message_chunks = integer(
        "queued.max.message.chunks", 2,
        "How many fetched chunks, of up to `fetch.message.max.bytes` each, wait in front of one stream.",
        unit="chunks", low=1,
    )
    refresh_leader_backoff_ms = integer(
        "refresh.leader.backoff.ms", 200, "The pause before looking for new leaders, and after a failed fetch.",
        unit="ms",
    )
    auto_offset_reset = choice(
        "auto.offset.reset", ("largest", "smallest"),
        "Where to begin when there is no offset, or none that the broker still has: `largest` is the end, "
        "`smallest` the beginning.",
        {"latest": "largest", "earliest": "smallest", "none": "nothing: largest or smallest must be chosen"},
    )
    consumer_timeout_ms = integer(
        "consumer.timeout.ms", -1,
        "How long an iterator waits for a message before it raises `ConsumerTimeoutException`; less than 0: for ever.",
        unit="ms", low=INT_MIN,
    )

    # Offsets.

    auto_commit_enable = boolean(
        "auto.commit.enable", True,
        "Whether offsets are committed every `auto.commit.interval.ms`, in rebalances and at the end.",
    )
    auto_commit_interval_ms = integer(
        "auto.commit.interval.ms", 60_000, "The time between two automatic commits.", unit="ms", low=1
    )
    offsets_storage = choice(
        "offsets.storage", ("zookeeper", "kafka"),
        "Where offsets are kept. `kafka` is known but not available in this version, with dual commit or without.",
        folded=True,
    )
    dual_commit_enabled = boolean(
        "dual.commit.enabled", False,
        "Only with `offsets.storage=kafka`, whose default for it is true: commit to ZooKeeper as well.",
    )
    offsets_channel_backoff_ms = integer(
        "offsets.channel.backoff.ms", 1000, "The pause before a failed commit is tried again.", unit="ms"
    )
    offsets_channel_socket_timeout_ms = integer(
        "offsets.channel.socket.timeout.ms", 10_000,
        "The time-out of the connection to the offset manager; only with `offsets.storage=kafka`.",
        unit="ms", low=1,
    )
    offsets_commit_max_retries = integer(
        "offsets.commit.max.retries", 5, "How often a failed commit is tried again.", unit="attempts"
    )

    # Ours.

    rebalance_drain_timeout_ms = integer(
        "rebalance.drain.timeout.ms", 2000,
        "How long the release of a partition waits for the program to finish the message in hand. It must be well "
        "below the 8 s for which an original member goes on trying.",
        unit="ms",
    )
    release_settle_ms = integer(
        "release.settle.ms", 0,
        "How long a partition is still held after its last commit when it is released. More than 0 closes the "
        "window in which an original successor reads the offset before it owns the partition, and costs it one of "
        "its pauses.",
        unit="ms",
    )
    rebalance_debounce_ms = integer(
        "rebalance.debounce.ms", 50,
        "How long after the first change of the group it is read again, so that many changes cost one reading.",
        unit="ms",
    )
    rebalance_fail_fast = boolean(
        "rebalance.fail.fast", False,
        "Whether `create_message_streams` leaves the group and raises `ConsumerRebalanceFailedException` when it "
        "does not get its full share in time. Else it returns the streams and goes on trying.",
    )
    roundrobin_compatibility = choice(
        "roundrobin.compatibility", ("auto", "0.8.2", "0.10.2", "1.0"),
        "As which releases `roundrobin` shares out, those from the named one on: 1.0 deals in another order than "
        "those before, and 0.8.2 to 0.10.1 refuse members that are not alike. `auto` looks at the owners that are "
        "there.",
    )  # fmt: skip

    # --- making one -----------------------------------------------------------------------------------------

    def __init__(self, **settings: object) -> None:
        """Takes attributes of the table by keyword: numbers and booleans as such or as text.

        Raises ``InvalidConfigException`` with a line for each problem.
        """
        known = {setting.attribute: setting.key for setting in SETTINGS.values()}
        given = {known[name]: value for name, value in settings.items() if name in known}
        problems = [_unknown(name, known) for name in settings if name not in known]
        self._fill(given, problems, {})

    @classmethod
    def from_properties(cls, source: str | Path | Mapping[str, object]) -> Self:
        """Reads an old configuration: a file, the text of one, or a mapping of keys to values.

        A ``str`` with a line end or ``=`` in it is text, any other names a file (Latin-1 or UTF-8).  Keys of other
        programs are set aside in ``ignored``; as in releases from 0.9 on, values are trimmed.

        Raises ``InvalidConfigException`` with a line for each problem, also when the file cannot be read.
        """
        config = cls.__new__(cls)
        config._fill(*_sorted_out(_properties(source)))
        return config

    @classmethod
    def from_files(cls, file: str | Path | None, overrides: Mapping[str, object]) -> Self:
        """A file, if any, and settings that win over it; both are checked together.  See ``with_overrides``."""
        given, problems, ignored = _sorted_out(_properties(Path(file)) if file is not None else {})
        known = _known_keys()
        for name, value in overrides.items():
            if name in known:
                given[known[name]] = value
            else:
                problems.append(_unknown(name, known))
        config = cls.__new__(cls)
        config._fill(given, problems, ignored)
        return config

    def with_overrides(self, overrides: Mapping[str, object]) -> Self:
        """Another configuration, with some settings changed; keys or attributes, and no foreign ones.

        Defaults that follow from others are derived anew.  Raises ``InvalidConfigException``.
        """
        known = _known_keys()
        problems = [_unknown(name, known) for name in overrides if name not in known]
        given: dict[str, object] = {key: self.values[key] for key in SETTINGS if key in self.given}
        given |= {known[name]: value for name, value in overrides.items() if name in known}
        config = type(self).__new__(type(self))
        config._fill(given, problems, {key: why for key, why in self.ignored.items() if key not in SETTINGS})
        return config

    @staticmethod
    def describe() -> list[Row]:
        """The table in words, in its order."""
        return [
            Row(
                setting.key, setting.attribute, setting.type, setting.unit, setting.allowed,
                _default_in_words(setting), setting.sentence, setting.key in OURS,
            )
            for setting in SETTINGS.values()
        ]  # fmt: skip

    def _fill(self, given: Mapping[str, object], problems: list[str], ignored: dict[str, str]) -> None:
        values: dict[str, Any] = {}
        for key, setting in SETTINGS.items():
            if key in given:
                raw = given[key]
                try:
                    values[key] = setting.read(raw.strip(JAVA_BLANKS) if isinstance(raw, str) else raw)
                    continue
                except ValueError as e:
                    problems.append(_wrong(setting, raw, str(e)))
            elif setting.default is ...:
                problems.append(_missing(setting, ignored))
            default = setting.default
            values[key] = values.get(default.key) if isinstance(default, SameAs) else default
        problems += _contradictions(values)
        if problems:
            raise InvalidConfigException(_report(problems))
        if values["dual.commit.enabled"]:
            values["dual.commit.enabled"] = False
            ignored["dual.commit.enabled"] = "has no effect while offsets.storage=zookeeper, as in the original"
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "given", frozenset(given))
        object.__setattr__(self, "ignored", ignored)

    # --- looking at one -------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a configuration does not change; with_overrides({…}) makes another")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerConfig) and self.values == other.values

    def __hash__(self) -> int:
        return hash(tuple(self.values.items()))

    def __repr__(self) -> str:
        shown = (f"{SETTINGS[key].attribute}={self.values[key]!r}" for key in SETTINGS if key in self.given)
        return f"ConsumerConfig({', '.join(shown)})"


SETTINGS: dict[str, Setting[Any]] = {
    setting.key: setting for setting in vars(ConsumerConfig).values() if isinstance(setting, Setting)
}
"""Key -> setting, in the order of the table; a default that follows from another stands below it."""

OURS = frozenset(
    {
        "rebalance.drain.timeout.ms", "release.settle.ms", "rebalance.debounce.ms", "rebalance.fail.fast",
        "roundrobin.compatibility",
    }
)  # fmt: skip
"""The keys that the original does not have."""


# --- reading ------------------------------------------------------------------------------------------------------


def _properties(source: str | Path | Mapping[str, object]) -> Mapping[str, object]:
    if isinstance(source, Mapping):
        return source
    if isinstance(source, Path) or not re.search(r"[\r\n=]", source):
        where = f"{source}: "
        try:
            text = decode_properties(Path(source).read_bytes())
        except (OSError, ValueError) as e:
            why = e.strerror if isinstance(e, OSError) else str(e)
            raise InvalidConfigException(f"the configuration file {source} cannot be read: {why}") from e
    else:
        where, text = "", source
    try:
        return parse_properties(text)
    except ValueError as e:
        raise InvalidConfigException(f"{where}{e}") from e


def _sorted_out(properties: Mapping[str, object]) -> tuple[dict[str, object], list[str], dict[str, str]]:
    """What is ours, what nobody knows (as problems), and what is somebody else's (with the reason)."""
    given: dict[str, object] = {}
    problems: list[str] = []
    ignored: dict[str, str] = {}
    for key, value in properties.items():
        if key in SETTINGS:
            given[key] = value
        elif isinstance(key, str) and (why := why_ignored(key)):
            ignored[key] = why
        else:
            problems.append(_unknown(key, {known: known for known in SETTINGS}))
    return given, problems, ignored


def _known_keys() -> dict[str, str]:
    return {key: key for key in SETTINGS} | {setting.attribute: setting.key for setting in SETTINGS.values()}


def _contradictions(values: Mapping[str, Any]) -> list[str]:
    problems: list[str] = []
    if values["socket.timeout.ms"] < values["fetch.wait.max.ms"]:
        problems.append(
            f"socket.timeout.ms={values['socket.timeout.ms']}: must be at least fetch.wait.max.ms="
            f"{values['fetch.wait.max.ms']}, or every idle fetch times out; raise it (releases before 0.9 did not look)"
        )
    if values["offsets.storage"] == "kafka":
        problems.append(
            "offsets.storage=kafka: offsets in Kafka, with dual.commit.enabled or without, are not available in this "
            "version; bring the group's offsets back to ZooKeeper with the original members (dual commit on until "
            "every offset has moved), then set offsets.storage=zookeeper"
        )
    return problems


# --- words --------------------------------------------------------------------------------------------------------


def _report(problems: list[str]) -> str:
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    return "\n  ".join([f"the configuration has {count}:", *problems])


def _wrong(setting: Setting[Any], raw: object, hint: str) -> str:
    shown = raw if isinstance(raw, str) else repr(raw)
    if len(shown) > _SHOWN_CHARS_MAX:
        shown = f"{shown[:_SHOWN_CHARS_MAX]}…"
    unit = f", in {setting.unit}" if setting.unit else ""
    otherwise = "" if setting.default in (..., None) else f", or leave it out (then it is {_default_in_words(setting)})"
    return f"{setting.key}={shown}: {f'{hint}; ' if hint else ''}set it to {setting.allowed}{unit}{otherwise}"


def _missing(setting: Setting[Any], ignored: Mapping[str, str]) -> str:
    old = next((key for key in ignored if successor_of(key) == setting.key), "")
    hint = f" ({old} does not stand for it: it is {ignored[old]})" if old else ""
    return f"{setting.key} is missing: it must be given; allowed is {setting.allowed}{hint}"


def _unknown(name: object, known: Mapping[str, str]) -> str:
    wanted = str(name)
    if why := why_ignored(wanted.replace("_", ".")):
        return f"{wanted} cannot be set: it is {why}"
    if nearest := get_close_matches(wanted.lower(), known, 1):
        return f"{wanted} is not known: did you mean {nearest[0]}?"
    return f"{wanted} is not known: leave it out, or write external.{wanted} if the application reads it"


def _default_in_words(setting: Setting[Any]) -> str:
    match setting.default:
        case SameAs(key):
            return f"that of {key}"
        case bool() as default:
            return str(default).lower()
    return {None: "none", ...: "must be given"}.get(setting.default) or str(setting.default)


# --- the reference page -------------------------------------------------------------------------------------------

_PAGE = """\
# Settings

<!-- Generated: python -c 'from zkconsumer.config import render_reference as r; print(r(), end="")' -->

`ConsumerConfig.from_properties("consumer.properties")` reads the files of the original as they stand;
`ConsumerConfig(group_id="g", zookeeper_connect="zk1:2181/kafka")` takes the same settings by keyword, with `_` for
`.`. All problems are told at once.

## Settings of the original

As in 0.8 to 1.1, with the same defaults. Integers and booleans are trimmed; booleans are exactly `true` or `false`.

{original}

## Settings of this program

{ours}

## Keys that are set aside

One file often serves several programs. These keys are accepted and have no effect; `ConsumerConfig.ignored` names
them. Any other unknown key is an error that names the nearest known one: the original only logged it.

{foreign}

## How files are read

As `java.util.Properties` reads them: `#` and `!` begin comments; key and value are parted by `=`, `:` or a blank; a
backslash at the end of a line joins the next one; `\\t`, `\\n`, `\\r`, `\\f` and `\\uXXXX` are escapes; of two equal
keys the later counts. A file that is not UTF-8 is taken for Latin-1.
"""


def render_reference() -> str:
    """The page ``migration_docs/reference/config.md``, which is committed with the code that changes it."""
    rows = ConsumerConfig.describe()
    return _PAGE.format(
        original=_table([row for row in rows if not row.is_ours]),
        ours=_table([row for row in rows if row.is_ours]),
        foreign="\n".join(["| keys | why |", "|---|---|", *(f"| {keys} | {why} |" for keys, why in families())]),
    )


def _table(rows: list[Row]) -> str:
    lines = ["| key | type | allowed | default | meaning |", "|---|---|---|---|---|"]
    for row in rows:
        type_ = f"{row.type}, {row.unit}" if row.unit else row.type
        lines.append(f"| `{row.key}` | {type_} | {row.allowed} | {row.default} | {row.sentence} |")
    return "\n".join(lines)
