"""Parses the options of a query: from Spark's case-insensitive map of texts to values for the source.  Pure, except
that it reads the file that ``consumer.config`` names.

One error reports all problems, except settings of the group and of the connection to brokers that contradict each
other: these are checked when each of them is valid.  The tables of ``option_table`` have the known options.
``ConsumerConfig`` parses the settings of the group and of the connection to brokers, and its sentences name the options
of this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

from bridge.spark.decode.offset_ranges import OnCorruptRecord, SkipOffsets
from bridge.spark.group_membership import CommitMode
from bridge.spark.membership.process_settings import claims_unsupported_reason
from bridge.spark.offset_range_limits import (
    EarliestOffsetRangeLimit,
    EndingLimit,
    GlobalTimestampRangeLimit,
    GroupOffsetRangeLimit,
    LatestOffsetRangeLimit,
    SpecificOffsetRangeLimit,
    SpecificTimestampRangeLimit,
    StartingLimit,
    format_partition_list,
    parse_offsets,
    parse_partitions,
    parse_skip_offsets,
    parse_times,
)
from bridge.spark.option_table import (
    ALL_THREADS,
    BATCH_ONLY,
    BROKER_OPTIONS,
    GROUP_OPTIONS,
    IGNORED_OPTIONS,
    KAFKA_PREFIX,
    OPTION_ALIASES_OF_CREATE_STREAM,
    SOURCE_OPTIONS,
    STREAM_ONLY,
    UNSUPPORTED_OPTIONS,
    delay_ms,
    ignored_reason,
    threads_of,
    topics_of,
    unprefixed_key_reason,
    with_option_names,
)
from zkconsumer.config import SETTINGS, ConsumerConfig
from zkconsumer.config_def import JAVA_BLANKS, Setting
from zkconsumer.errors import InvalidConfigException, ZkConsumerError
from zkconsumer.member.topic_filter import Blacklist, Whitelist
from zkconsumer.properties import decode_properties, parse_properties
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, TopicPartition

UNSET_GROUP = "zkconsumer-spark-batch"
UNSET_ZOOKEEPER = "zookeeper.invalid:2181"
"""Placeholders in the configuration of a batch without a group, or without ZooKeeper; no connection uses them."""

PAGE = "migration_docs/reference/spark-options.md"

_SHOWN_CHARS_MAX = 100


@dataclass(frozen=True, slots=True)
class SubscribedTopics:
    """These topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AssignedPartitions:
    """These partitions; in a batch."""

    partitions: tuple[TopicPartition, ...]


TopicSelection: TypeAlias = SubscribedTopics | AssignedPartitions | Whitelist | Blacklist


@dataclass(frozen=True, slots=True, repr=False)
class SourceOptions:
    """The options of a query.  Shows no secret; can be pickled, and contains the secrets then.

    ``config``: the group, ZooKeeper and the connection to brokers.  ``has_group``, ``has_zookeeper``: whether they were
    given; a stream always has both.  ``threads``: of every topic, or of each; None: exclusive takeover.  ``warnings``:
    given options without effect -> why.
    """

    config: ConsumerConfig
    has_group: bool
    has_zookeeper: bool
    topic_selection: TopicSelection
    threads: int | Mapping[str, int] | None
    starting_limit: StartingLimit
    ending_limit: EndingLimit
    fail_on_late_timestamp: bool
    commit_mode: CommitMode
    on_group_rewind: str
    is_last_consumed: bool
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    max_bytes: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    skip_offsets: SkipOffsets
    on_corrupt_record: OnCorruptRecord
    include_headers: bool
    metrics_listen: str | None
    batch_ranges_path: str | None
    given: tuple[tuple[str, str], ...]
    warnings: Mapping[str, str]

    def __repr__(self) -> str:
        return f"SourceOptions({', '.join(f'{name}={value!r}' for name, value in self.given)})"


def read_options(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Parses the options of a stream or of a batch, as Spark passes them.

    Raises ``InvalidConfigException`` with a line for each problem.
    """
    return _OptionsReader(options, is_stream).read()


def check_options_at_load(options: Mapping[str, str]) -> None:
    """Checks the options at ``.load()``, where Spark does not report whether they are of a stream or of a batch.

    Options with an end are checked as those of a batch, since a stream has no end; others as those of a stream.  So an
    option that a stream lacks is reported here, and not after the start of the query.  A batch with an option that a
    stream cannot have (``assign``), or without one that a stream needs (``group.id``, ``zookeeper.connect``), therefore
    must set its end.
    Raises ``InvalidConfigException``.
    """
    in_stream, in_batch = (option_problems(options, is_stream=kind) for kind in (True, False))
    in_both = [problem for problem in in_stream if problem in in_batch]
    only_in_stream = [f"in a stream: {problem}" for problem in in_stream if problem not in in_both]
    only_in_batch = [f"in a batch: {problem}" for problem in in_batch if problem not in in_both]
    if _SHOW_A_BATCH & {OPTION_NAMES.get(name.lower()) for name in options}:
        if in_batch:
            raise InvalidConfigException(problems_report(in_both + only_in_batch))
    elif in_stream:
        hint = [_IF_A_BATCH] if only_in_stream else []
        raise InvalidConfigException(problems_report(in_both + only_in_stream + only_in_batch + hint))


def wants_headers(options: Mapping[str, str]) -> bool:
    """Only ``includeHeaders``, for a schema before the other options are parsed; False for an invalid text."""
    return _lower_text(options, "includeHeaders") == "true"


def wants_utf8_columns(options: Mapping[str, str]) -> bool:
    """Only ``includeIsUtf8``; False for an invalid text."""
    return _lower_text(options, "includeIsUtf8") == "true"


def wants_corrupt_column(options: Mapping[str, str]) -> bool:
    """Only whether ``onCorruptRecord`` is ``deadLetter``; False for an invalid text."""
    return _lower_text(options, "onCorruptRecord") == OnCorruptRecord.DEAD_LETTER.value.lower()


def _lower_text(options: Mapping[str, str], name: str) -> str:
    """An option in lower case, without blanks around it; empty if it is not set."""
    given = {each.lower(): value for each, value in options.items()}.get(name.lower(), "")
    return given.strip(JAVA_BLANKS).lower()


OPTION_NAMES: dict[str, str] = {
    name.lower(): name
    for name in (*SOURCE_OPTIONS, *GROUP_OPTIONS, *BROKER_OPTIONS, *IGNORED_OPTIONS, *UNSUPPORTED_OPTIONS)
}
"""Lower-case names, as Spark passes them -> names as they are written."""

_SHOW_A_BATCH = {name for name in BATCH_ONLY if name != "assign"}

_IF_A_BATCH = (
    "if this is a batch (spark.read), set its end, for example endingOffsets=latest: only a batch has an end, "
    "and only a batch may have assign, or no group.id or zookeeper.connect"
)

_NO_SERVERS = (
    "zookeeper.connect is missing: set it to HOST:PORT[,HOST:PORT…][/CHROOT] (a batch can have kafka.bootstrap.servers "
    "instead)"
)

_SHOWN_AS: dict[str, str] = {key: option for option, key in BROKER_OPTIONS.items()}


class _OptionsReader:
    """Parses one map; collects problems."""

    def __init__(self, options: Mapping[str, str], is_stream: bool) -> None:
        self._is_stream = is_stream
        self._problems: list[str] = []
        self._warnings: dict[str, str] = {}
        self._own: dict[str, Any] = {}
        self._consumer: dict[str, str] = {}
        self._shown: list[tuple[str, str]] = []
        self._has_servers = True  # unless neither an option nor a file names any
        for name, value in options.items():
            self._take(OPTION_NAMES.get(name.lower(), name), str(value).strip(JAVA_BLANKS))
        self._values = {key: self._own.get(key, setting.default) for key, setting in SOURCE_OPTIONS.items()}

    def read(self) -> SourceOptions:
        subscribed = self._subscribed()
        self._check_skipped(subscribed)
        config = self._config()
        self._check_together(config)
        starting, ending = self._starting(config), self._ending()
        if self._problems:
            raise InvalidConfigException(problems_report(self._problems))
        assert config is not None, "otherwise there is a problem"
        assert subscribed is not None, "otherwise there is a problem"
        own = self._values
        return SourceOptions(
            config=config,
            has_group=config.group_id != UNSET_GROUP,
            has_zookeeper=config.zookeeper_connect != UNSET_ZOOKEEPER,
            topic_selection=subscribed,
            threads=self._threads(),
            starting_limit=starting,
            ending_limit=ending,
            fail_on_late_timestamp=own["startingOffsetsByTimestampStrategy"] == "error",
            commit_mode=CommitMode(own["group.offsets.commit"]),
            on_group_rewind=own["onGroupRewind"],
            is_last_consumed=own["zk.offset.convention"] == "last-consumed",
            max_offsets=own["maxOffsetsPerTrigger"],
            min_offsets=own["minOffsetsPerTrigger"],
            max_delay_ms=delay_ms(own["maxTriggerDelay"]),
            max_bytes=own["maxBytesPerTrigger"],
            min_partitions=own["minPartitions"],
            max_records_per_partition=own["maxRecordsPerPartition"],
            fail_on_data_loss=own["failOnDataLoss"],
            skip_offsets=self._skip_offsets(),
            on_corrupt_record=OnCorruptRecord(own["onCorruptRecord"]),
            include_headers=own["includeHeaders"],
            metrics_listen=own["metrics.listen"],
            batch_ranges_path=own["batchRangesPath"],
            given=tuple(self._shown),
            warnings=dict(self._warnings),
        )

    # --- one option -------------------------------------------------------------------------------------------

    def _take(self, name: str, value: str) -> None:
        if name in SOURCE_OPTIONS:
            self._shown.append((name, SOURCE_OPTIONS[name].masked(value)))
            self._take_own(SOURCE_OPTIONS[name], value)
        elif name in GROUP_OPTIONS or name in BROKER_OPTIONS:
            key = GROUP_OPTIONS.get(name) or BROKER_OPTIONS[name]
            self._consumer[key] = value
            self._shown.append((name, SETTINGS[key].masked(value)))
        elif name in UNSUPPORTED_OPTIONS:
            self._problems.append(f"{name} cannot be set: {UNSUPPORTED_OPTIONS[name]}")
        elif why := ignored_reason(name):
            self._warnings[name] = why
        else:
            self._problems.append(_unknown(name))

    def _take_own(self, setting: Setting[Any], value: str) -> None:
        stream_option = self._is_stream and setting.key in BATCH_ONLY
        if stream_option:
            why = (
                "in a stream the group assigns the partitions; subscribe to the topics"
                if setting.key == "assign"
                else "a stream has no end; it is an option of spark.read"
            )
            self._problems.append(f"{setting.key} cannot be set: {why}")
        elif not self._is_stream and setting.key in STREAM_ONLY:
            self._warnings[setting.key] = "applies to streams; a batch is no member of the group and has no triggers"
        try:
            self._own[setting.key] = setting.parse(value)
        except ValueError as error:
            hint = f"{error}; " if str(error) else ""
            unit = f", in {setting.unit}" if setting.unit else ""
            default = "" if setting.default is None else f", or remove it (the default is {_shown(setting.default)})"
            shown = setting.masked(value)
            shown = shown if len(shown) <= _SHOWN_CHARS_MAX else f"{shown[:_SHOWN_CHARS_MAX]}…"
            if not stream_option:
                self._problems.append(f"{setting.key}={shown}: {hint}set it to {setting.allowed}{unit}{default}")

    # --- combinations -----------------------------------------------------------------------------------------

    def _subscribed(self) -> TopicSelection | None:
        given = {name for name, _ in self._shown}
        ways = ("subscribe", "subscribePattern", "subscribe.blacklist", "topics")
        tried = [way for way in (ways if self._is_stream else (*ways, "assign")) if way in given]
        if len(tried) > 1:
            self._problems.append(f"{' and '.join(tried)} are set together: set only one of them")
        elif not tried and "assign" not in given:  # in a stream assign is reported as another problem
            self._problems.append(f"no topic is selected: set one of {', '.join(ways)}, or in a batch assign")
        if len(tried) != 1 or tried[0] not in self._own:
            return None
        [way] = tried
        value = self._own[way]
        try:
            match way:
                case "subscribe":
                    return SubscribedTopics(topics_of(value))
                case "topics":
                    if "consumer.threads" in self._own:
                        self._problems.append("topics and consumer.threads: topics has the threads; remove one")
                    return SubscribedTopics(tuple(threads_of(value)))
                case "subscribePattern":
                    return Whitelist(value)
                case "subscribe.blacklist":
                    return Blacklist(value)
        except ZkConsumerError as error:
            self._problems.append(f"{way}={value}: {error}")
            return None
        return AssignedPartitions(parse_partitions(value))

    def _threads(self) -> int | Mapping[str, int] | None:
        if "topics" in self._own:
            return threads_of(self._own["topics"])
        threads = self._values["consumer.threads"]
        return None if threads == ALL_THREADS else int(threads)

    def _config(self) -> ConsumerConfig | None:
        """The file and the options, parsed together; a batch gets placeholders for settings that it does not need."""
        file = self._own.get("consumer.config")
        overrides = dict(self._consumer)
        in_file = _keys_in(file)
        if in_file is not None:
            given = overrides.keys() | in_file
            self._has_servers = bool({"zookeeper.connect", "bootstrap.servers"} & given)
            if not self._has_servers:
                self._problems.append(_NO_SERVERS)
            if "zookeeper.connect" not in given and not (self._is_stream and self._has_servers):
                overrides["zookeeper.connect"] = UNSET_ZOOKEEPER
            if "group.id" not in given and not self._is_stream:
                overrides["group.id"] = UNSET_GROUP
        try:
            config = ConsumerConfig.from_files(Path(file) if file else None, overrides)
        except InvalidConfigException as error:
            self._problems += [with_option_names(line) for line in problem_lines(error)]
            return None
        self._problems += login_problems(config, "query")
        for key, why in config.ignored.items():
            if key in self._consumer:
                self._warnings[_SHOWN_AS.get(key, key)] = why
        return config

    def _skip_offsets(self) -> SkipOffsets:
        text = self._own.get("skipOffsets")
        return {} if text is None else parse_skip_offsets(text)

    def _check_skipped(self, subscribed: TopicSelection | None) -> None:
        """Named topics and partitions must be read; a pattern may match a topic that does not exist yet."""
        named = self._skip_offsets()
        match subscribed:
            case SubscribedTopics(topics):
                foreign = [tp for tp in named if tp.topic not in topics]
            case AssignedPartitions(partitions):
                foreign = [tp for tp in named if tp not in partitions]
            case _:
                return
        if foreign:
            self._problems.append(
                f"skipOffsets: names {format_partition_list(foreign)}, which this query does not read; correct it, or "
                "remove it"
            )

    def _check_together(self, config: ConsumerConfig | None) -> None:
        own = self._values
        mode = CommitMode(own["group.offsets.commit"])
        if self._is_stream and config is not None and (why := claims_unsupported_reason(mode, config)):
            self._problems.append(why)
        low, high = own["minOffsetsPerTrigger"], own["maxOffsetsPerTrigger"]
        if low is not None and high is not None and low > high:
            self._problems.append(
                f"minOffsetsPerTrigger={low}: is more than maxOffsetsPerTrigger={high}, so no batch could begin"
            )
        if "maxTriggerDelay" in self._own and low is None:
            self._warnings["maxTriggerDelay"] = "has an effect with minOffsetsPerTrigger only"
        if "onGroupRewind" in self._own and own["group.offsets.commit"] != "claim" and self._is_stream:
            self._warnings["onGroupRewind"] = "has an effect with group.offsets.commit=claim only"
        if own["consumer.threads"] == ALL_THREADS and "subscribe.blacklist" in self._own:
            self._problems.append(
                "consumer.threads=all and subscribe.blacklist: an exclusive takeover names its topics, or a pattern of "
                "them"
            )
        if "startingOffsetsByTimestampStrategy" in self._own and not (
            {"startingTimestamp", "startingOffsetsByTimestamp"} & self._own.keys()
        ):
            self._warnings["startingOffsetsByTimestampStrategy"] = "has an effect with a starting time only"

    def _starting(self, config: ConsumerConfig | None) -> StartingLimit:
        own = self._winner("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
        match own:
            case ("startingTimestamp", time_ms):
                return GlobalTimestampRangeLimit(time_ms)
            case ("startingOffsetsByTimestamp", text):
                return SpecificTimestampRangeLimit(parse_times(text))
            case (_, "earliest"):
                return EarliestOffsetRangeLimit()
            case (_, "latest"):
                if not self._is_stream:
                    self._problems.append("startingOffsets=latest: a batch that starts at the end is empty")
                return LatestOffsetRangeLimit()
            case (_, "group"):
                return self._from_group(config)
        offsets = parse_offsets(own[1])
        if not self._is_stream and (late := [tp for tp, offset in offsets.items() if offset == LATEST_TIME]):
            self._problems.append(
                f"startingOffsets: {format_partition_list(late)} has -1, the end of the log, where a batch would be "
                "empty; "
                "name an offset, or -2 for earliest"
            )
        return SpecificOffsetRangeLimit(offsets)

    def _from_group(self, config: ConsumerConfig | None) -> StartingLimit:
        if self._is_stream or config is None:
            return GroupOffsetRangeLimit()
        if config.group_id == UNSET_GROUP:
            if "startingOffsets" in self._own:
                self._problems.append("startingOffsets=group: which group? Set group.id")
            return EarliestOffsetRangeLimit()
        if config.zookeeper_connect == UNSET_ZOOKEEPER and self._has_servers:
            self._problems.append(
                "startingOffsets=group: the group is in ZooKeeper; set zookeeper.connect, or startingOffsets=earliest"
            )
        return GroupOffsetRangeLimit()

    def _ending(self) -> EndingLimit:
        own = self._winner("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
        match own:
            case ("endingTimestamp", time_ms):
                return GlobalTimestampRangeLimit(time_ms)
            case ("endingOffsetsByTimestamp", text):
                return SpecificTimestampRangeLimit(parse_times(text))
            case (_, "latest"):
                return LatestOffsetRangeLimit()
        offsets = parse_offsets(own[1])
        if early := [tp for tp, offset in offsets.items() if offset == EARLIEST_TIME]:
            self._problems.append(
                f"endingOffsets: {format_partition_list(early)} has -2, the beginning of the log; name an offset, or "
                "-1 for latest"
            )
        return SpecificOffsetRangeLimit(offsets)

    def _winner(self, *names: str) -> tuple[str, Any]:
        """The first of several options that was given; a warning names the others.  The last one has a default."""
        given = [name for name in names if name in self._own]
        winner = given[0] if given else names[-1]
        for name in given[1:]:
            self._warnings[name] = f"has no effect together with {winner}"
        return winner, self._values[winner]


# --- texts --------------------------------------------------------------------------------------------------------


def _keys_in(file: str | None) -> set[str] | None:
    """The keys in a file of settings; None if it cannot be read, which ``ConsumerConfig`` reports."""
    try:
        return set(parse_properties(decode_properties(Path(file).read_bytes()))) if file else set()
    except (OSError, ValueError):
        return None


def option_problems(options: Mapping[str, str], *, is_stream: bool) -> list[str]:
    """The problems that ``read_options`` reports, one text each; none for options that can be used."""
    try:
        read_options(options, is_stream=is_stream)
    except InvalidConfigException as error:
        return problem_lines(error)
    return []


def login_problems(config: ConsumerConfig, user: str) -> list[str]:
    """Why options cannot describe the login of a ``user`` (query, sink); none if they can."""
    if config.sasl_mechanism != "OAUTHBEARER":
        return []
    return [
        "kafka.sasl.mechanism=OAUTHBEARER: needs a function that creates tokens, which an option cannot contain; give "
        f"this {user} a user of its own with SCRAM-SHA-512, PLAIN or GSSAPI, or a certificate"
    ]


def problem_lines(error: InvalidConfigException) -> list[str]:
    """The problems in an error of ``problems_report`` or of ``ConsumerConfig``, one text each."""
    lines = str(error).split("\n  ")
    return lines[1:] or lines


def problems_report(problems: list[str]) -> str:
    """The text of the error with these problems."""
    problem_count = len(problems) - problems.count(_IF_A_BATCH)
    count = "a problem" if problem_count == 1 else f"{problem_count} problems"
    return "\n  ".join([f'the options of format("zkconsumer") have {count} (every option: {PAGE}):', *problems])


def _shown(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def _unknown(name: str) -> str:
    if name.lower() in OPTION_ALIASES_OF_CREATE_STREAM:
        return f"{name} is not known: its name here is {OPTION_ALIASES_OF_CREATE_STREAM[name.lower()]}"
    prefixed = (KAFKA_PREFIX + name).lower()
    if prefixed in OPTION_NAMES and OPTION_NAMES[prefixed] in BROKER_OPTIONS:
        return f"{name} is not known: did you mean {OPTION_NAMES[prefixed]}?"
    if why := unprefixed_key_reason(name.lower()):
        return f"{name} {why}"
    if nearest := get_close_matches(name.lower(), OPTION_NAMES, 1):
        return f"{name} is not known: did you mean {OPTION_NAMES[nearest[0]]}?"
    return f"{name} is not known: remove it"
