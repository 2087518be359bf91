"""The options of ``format("zkconsumer")``, in tables.  Pure.

``SOURCE_OPTIONS`` are the source's own, with the names and the meaning of Spark's Kafka source where it has them.
``GROUP_OPTIONS`` and ``BROKER_OPTIONS`` contain the settings of ``ConsumerConfig`` that are options too, with their
option names.  ``IGNORED_OPTIONS`` (no effect) and ``UNSUPPORTED_OPTIONS`` (rejected) are options of other programs,
each with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from bridge.spark.decode.offset_ranges import OnCorruptRecord
from bridge.spark.group_membership import CommitMode
from bridge.spark.offset_range_limits import (
    OFFSET_MAX,
    parse_offsets,
    parse_partitions,
    parse_skip_offsets,
    parse_times,
)
from zkconsumer.base.name_suggestions import did_you_mean
from zkconsumer.config import SETTINGS
from zkconsumer.config_def import (
    USER_IN_ADDRESS_ERROR,
    Setting,
    SettingOutcome,
    SettingsTable,
    boolean,
    integer,
    mask_user,
    optional_text,
    outcome_of_value,
    text,
)
from zkconsumer.config_tables.broker_connection_settings import BrokerConnectionSettings
from zkconsumer.config_tables.transaction_settings import TransactionSettings
from zkconsumer.config_tables.zookeeper_security import ZooKeeperLoginSettings, ZooKeeperSecuritySettings
from zkconsumer.errors import InvalidNameError
from zkconsumer.member.topic_count import THREADS_PER_TOPIC_MAX
from zkconsumer.other_client_keys import (
    JAVA_CLIENT_KEYS_WITHOUT_EFFECT,
    JAVA_SECURITY_KEYS,
    SECURITY_KEYS_NOT_IGNORED,
    why_ignored,
)
from zkconsumer.zk.paths import check_topic

ALL_THREADS = "all"
PARTITIONS_MAX = 1_000_000

_TIMES_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _one_of(key: str, words: tuple[str, ...], sentence: str) -> Setting[str]:
    """One of some words, in any case; the first is the default."""
    by_lower = {word.lower(): word for word in words}

    def check(given: str) -> str:
        if given.lower() not in by_lower:
            raise ValueError
        return by_lower[given.lower()]

    return text(key, words[0], sentence, check, " or ".join(words))


def _flag(key: str, default: bool, sentence: str) -> Setting[bool]:
    """As Spark reads it: in any case."""
    made = boolean(key, default, sentence)
    read = made.parse
    made.parse = lambda given: read(given.lower() if isinstance(given, str) else given)
    return made


def _number(key: str, sentence: str, *, unit: str, high: int = OFFSET_MAX) -> Setting[int | None]:
    """A number that need not be given."""
    made: Setting[Any] = integer(key, 1, sentence, unit=unit, low=1, high=high)
    made.default = None
    return made


def _json(key: str, sentence: str, check: Callable[[str], object], allowed: str) -> Setting[str | None]:
    def checked(given: str) -> str:
        check(given)
        return given

    return optional_text(key, sentence, checked, allowed)


def _time(key: str, sentence: str) -> Setting[int | None]:
    made: Setting[Any] = integer(key, 0, sentence, unit="ms since 1970", low=0, high=OFFSET_MAX)
    made.default = None
    return made


def topics_of(given: str) -> tuple[str, ...]:
    """The topics of ``subscribe``."""
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    if not names:
        raise ValueError("it names no topic")
    for name in names:
        checked_topic(name)
    return names


def checked_topic(name: str) -> str:
    """The name of a topic.  ``ValueError``: no topic can have it."""
    try:
        return check_topic(name)
    except InvalidNameError as error:
        raise ValueError(str(error)) from None


def threads_of(given: str) -> dict[str, int]:
    """The topics of ``topics``, each with its threads: ``orders:2,refunds:1`` or JSON ``{"orders": 2}``."""
    pairs = re.sub(r"^\{|\}$|[\"'\s]", "", given)
    made: dict[str, int] = {}
    for pair in filter(None, pairs.split(",")):
        found = re.fullmatch(r"([A-Za-z0-9._-]+)[:=]([0-9]{1,6})", pair)
        if found is None or not 1 <= int(found[2]) <= THREADS_PER_TOPIC_MAX or found[1] in made:
            raise ValueError(f"{pair!r} is not TOPIC:THREADS")
        made[found[1]] = int(found[2])
    if not made:
        raise ValueError("it names no topic")
    return made


def _check_threads(given: str) -> str:
    if given.lower() == ALL_THREADS:
        return ALL_THREADS
    if not re.fullmatch("[0-9]{1,6}", given) or not 1 <= int(given) <= THREADS_PER_TOPIC_MAX:
        raise ValueError
    return str(int(given))


def _check_starting(given: str) -> str:
    return _word_or_offsets(given, ("group", "earliest", "latest"))


def _check_ending(given: str) -> str:
    if given.lower() == "earliest":
        raise ValueError("a batch cannot end where the log begins")
    return _word_or_offsets(given, ("latest",))


def _word_or_offsets(given: str, words: tuple[str, ...]) -> str:
    """One of the words in any case, or offsets as JSON."""
    if given.lower() in words:
        return given.lower()
    if not given.startswith("{"):
        raise ValueError(f"it is neither a known word nor JSON{did_you_mean(given.lower(), words)}")
    parse_offsets(given)
    return given


def _check_delay(given: str) -> str:
    delay_ms(given)
    return given


def delay_ms(given: str) -> int:
    """Spark's texts for a time: a number and ms, s, m, min, h or d; without a unit in ms."""
    found = re.fullmatch(r"([0-9]{1,12})\s*([a-z]*)", given.strip().lower())
    if found is None or found[2] not in _TIMES_MS:
        raise ValueError
    return int(found[1]) * _TIMES_MS[found[2]]


def _check_listen(given: str) -> str:
    if "@" in given:
        raise ValueError(USER_IN_ADDRESS_ERROR)
    host, _, port = given.rpartition(":")
    if not host or re.search(r"[\s/]", host) or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise ValueError
    return given


def _not_empty(given: str) -> str:
    if not given:
        raise ValueError
    return given


class SourceOptionTable(SettingsTable):
    """The source's own options."""

    __slots__ = ()

    # Topics and partitions.

    subscribe = optional_text(
        "subscribe", "The topics.", lambda given: ",".join(topics_of(given)), "names of topics with commas in between"
    )
    subscribe_pattern = optional_text(
        "subscribePattern",
        "The topics whose whole name this Java regular expression matches, now or later: a white list of the group.",
        _not_empty, "a regular expression",
    )  # fmt: skip
    subscribe_blacklist = optional_text(
        "subscribe.blacklist",
        "All topics but those whose whole name this Java regular expression matches: a black list of the group.",
        _not_empty, "a regular expression",
    )  # fmt: skip
    topics = _json(
        "topics",
        "The topics and their threads, as in the old `KafkaUtils.createStream`. Replaces `subscribe` and "
        "`consumer.threads`.",
        threads_of, '`orders:2,refunds:1` or `{"orders": 2, "refunds": 1}`',
    )  # fmt: skip
    assign = _json(
        "assign",
        "Exactly these partitions. A member of a group cannot choose its partitions: they depend on the number of "
        "members and threads, so a stream has no such option.",
        parse_partitions, '`{"orders": [0, 1]}`',
    )  # fmt: skip
    consumer_threads = text(
        "consumer.threads", "1",
        "The number of threads that this query counts for in the assignment: with the strategy `range` its weight. "
        "`all`: exclusive: as many as there are partitions, and no other member may be in the group.",
        _check_threads, f"a number from 1 to {THREADS_PER_TOPIC_MAX}, or all",
    )  # fmt: skip

    # Where a new query begins, and where a batch ends.

    starting_offsets = text(
        "startingOffsets", "group",
        "Where a new query begins (a query with a checkpoint continues from it). `group`: at the group's offset; a "
        "partition without an offset begins where `auto.offset.reset` says. A batch without `group.id` begins at "
        "`earliest`. JSON must name every subscribed partition, with -2 for earliest and -1 for latest.",
        _check_starting, 'group, earliest, latest or `{"orders": {"0": 23, "1": -2}}`',
    )  # fmt: skip
    starting_timestamp = _time(
        "startingTimestamp",
        "A new query begins with the first record at or after this time. Takes precedence over "
        "`startingOffsetsByTimestamp` and `startingOffsets`.",
    )
    starting_by_timestamp = _json(
        "startingOffsetsByTimestamp",
        "The same, with a time for each subscribed partition. Takes precedence over `startingOffsets`.",
        parse_times, '`{"orders": {"0": 1700000000000}}`',
    )  # fmt: skip
    starting_strategy = _one_of(
        "startingOffsetsByTimestampStrategy", ("error", "latest"),
        "What to do for a partition without a record at or after the time: fail, or begin at the end.",
    )  # fmt: skip
    ending_offsets = text(
        "endingOffsets", "latest", "Where a batch ends; JSON as in `startingOffsets`, without -2.", _check_ending,
        'latest or `{"orders": {"0": 50, "1": -1}}`',
    )  # fmt: skip
    ending_timestamp = _time(
        "endingTimestamp",
        "A batch ends before the first record at or after this time; where there is none, at the end. Takes precedence "
        "over `endingOffsetsByTimestamp` and `endingOffsets`.",
    )
    ending_by_timestamp = _json(
        "endingOffsetsByTimestamp",
        "The same, with a time for each partition. Takes precedence over `endingOffsets`.",
        parse_times, '`{"orders": {"0": 1700000000000}}`',
    )  # fmt: skip

    # The group's offsets.

    group_offsets_commit = _one_of(
        "group.offsets.commit", (CommitMode.AFTER_BATCH.value, CommitMode.CLAIM.value, CommitMode.NONE.value),
        "When the query commits the group's offsets. `afterBatch`: once a batch is in Spark's commit log; after a "
        "crash another member may get one batch of a partition again. `claim`: before a batch is read, on condition "
        "that they equal the beginning of the batch; no record is read twice. `none`: never.",
    )  # fmt: skip
    on_group_rewind = _one_of(
        "onGroupRewind", ("ignore", "follow", "fail"),
        "What to do when the group's offset is before this query's own latest claim, because an operator set it back. "
        "`ignore`: continue after the claim; `follow`: read from the group's offset again; `fail`: fail. "
        "Only with `group.offsets.commit=claim`.",
    )  # fmt: skip
    zk_offset_convention = _one_of(
        "zk.offset.convention", ("next", "last-consumed"),
        "What a number in the group's offsets means: the next offset to read, or the last one that was read, as the "
        "`ReliableKafkaReceiver` of Spark 1 and 2 wrote it. Only for reading with `startingOffsets=group` where a new "
        "query begins; the query always writes the next offset.",
    )  # fmt: skip

    # How much at a time.

    max_offsets_per_trigger = _number(
        "maxOffsetsPerTrigger",
        "The most offsets in one batch, divided among the partitions in proportion to their available offsets.",
        unit="offsets",
    )  # fmt: skip
    min_offsets_per_trigger = _number(
        "minOffsetsPerTrigger",
        "A batch waits for this number of available offsets, at most for `maxTriggerDelay`.",
        unit="offsets",
    )  # fmt: skip
    max_trigger_delay = text(
        "maxTriggerDelay", "15m", "How long a batch waits for `minOffsetsPerTrigger`.", _check_delay,
        "a number and ms, s, m, h or d",
    )  # fmt: skip
    max_bytes_per_trigger = _number(
        "maxBytesPerTrigger",
        "The approximate limit of bytes in one batch, as in the log (compressed). The mean size of a record is sampled "
        "for each topic by an occasional fetch. If `maxOffsetsPerTrigger` is set too, the smaller limit applies.",
        unit="bytes",
    )  # fmt: skip
    min_partitions = _number(
        "minPartitions", "The approximate minimum of tasks: large ranges are split.", unit="tasks", high=PARTITIONS_MAX
    )
    max_records_per_partition = _number(
        "maxRecordsPerPartition", "No task gets more offsets than this.", unit="offsets"
    )

    # Reading.

    fail_on_data_loss = _flag(
        "failOnDataLoss", True,
        "Whether the query fails when records that it must read are no longer in the log. If not, it continues at the "
        "beginning of the log, with a warning.",
    )  # fmt: skip
    skip_offsets = _json(
        "skipOffsets",
        "Offsets that are not read: for each partition the ranges [first, end), without `end`, like Spark's ranges. "
        "For records that cannot be read, and for gaps that no broker proves; see "
        "[Offsets that cannot be read](#offsets-that-cannot-be-read).",
        parse_skip_offsets, '`{"orders": {"0": [[1000, 1500], [9000, 9001]]}}`',
    )  # fmt: skip
    on_corrupt_record = _one_of(
        "onCorruptRecord", tuple(each.value for each in OnCorruptRecord),
        "What to do with records in the log that cannot be decoded (a wrong checksum, a damaged header, an unknown "
        "codec), when a second fetch over a new connection gave the same bytes. `fail`: fail; `skip`: pass over their "
        "offsets, with a warning in the log of the executor; `deadLetter`: the same, and a row for each range of "
        "offsets; see [Corrupt records](#corrupt-records).",
    )  # fmt: skip
    include_headers = _flag("includeHeaders", False, "Whether there is a column `headers`.")
    include_is_utf8 = _flag(
        "includeIsUtf8", False,
        "Whether there are columns `keyIsUtf8` and `valueIsUtf8`: whether a key or a value is UTF-8. This costs less "
        "than `is_valid_utf8` in SQL.",
    )  # fmt: skip
    consumer_config = optional_text(
        "consumer.config",
        "A properties file of an old consumer, on the driver: its settings apply where no option is given. "
        "Passwords in it do not appear in Spark's plans and pages.",
        _not_empty, "the path of a file",
    )  # fmt: skip
    batch_ranges_path = optional_text(
        "batchRangesPath",
        "A folder on the driver. Before a batch is read, its offsets are written there as `QUERY-N.json`, with `claim` "
        "those that were claimed: for programs that store the ranges of a batch with its rows in `foreachBatch`.",
        _not_empty, "the path of a folder",
    )  # fmt: skip
    metrics_listen = optional_text(
        "metrics.listen", "Where the query's membership serves its metrics, in the text format of Prometheus.",
        _check_listen, "HOST:PORT",
    )  # fmt: skip
    metrics_listen.mask = mask_user


SOURCE_OPTIONS: dict[str, Setting[Any]] = {
    setting.key: setting for setting in vars(SourceOptionTable).values() if isinstance(setting, Setting)
}

BATCH_ONLY = ("assign", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

STREAM_ONLY = (
    "consumer.threads", "group.offsets.commit", "onGroupRewind", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger", "metrics.listen", "batchRangesPath",
)  # fmt: skip
"""In a batch these are ignored with a warning."""

KAFKA_PREFIX = "kafka."

_WITHOUT_PREFIX = (
    "group.id", "consumer.id", "client.id", "partition.assignment.strategy", "exclude.internal.topics",
    "roundrobin.compatibility",
    "zookeeper.connect", "zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms", "zookeeper.sync.time.ms",
    "auto.offset.reset", "offsets.storage", "dual.commit.enabled", "offsets.channel.backoff.ms",
    "offsets.channel.socket.timeout.ms", "offsets.commit.max.retries", "offsets.older.than.topic",
    "new.partitions.from.beginning",
    "rebalance.max.retries", "rebalance.backoff.ms", "rebalance.debounce.ms", "rebalance.drain.timeout.ms",
    "rebalance.offsets.timeout.ms", "release.settle.ms", "socket.timeout.ms",
)  # fmt: skip


def _keys_of(*tables: type[SettingsTable]) -> list[str]:
    return [setting.key for table in tables for setting in vars(table).values() if isinstance(setting, Setting)]


GROUP_OPTIONS: dict[str, str] = {
    key: key for key in [*_WITHOUT_PREFIX, *_keys_of(ZooKeeperSecuritySettings, ZooKeeperLoginSettings)]
}
"""Options that are settings of a member under the same name: option -> key of ``ConsumerConfig``."""

BROKER_OPTIONS: dict[str, str] = {
    KAFKA_PREFIX + key: key for key in _keys_of(BrokerConnectionSettings, TransactionSettings)
}
"""Options that are settings of the reader from brokers: option -> key of ``ConsumerConfig``."""

_FETCHER = "tunes the fetcher threads of a consumer; a task of Spark reads one range with a fetcher of its own"
_COMMIT = "group.offsets.commit defines when the group's offsets are committed"
_TIME_OUT = "socket.timeout.ms is the limit for an answer of a broker"
_MEMBERSHIP = (
    "a query keeps its membership by zookeeper.session.timeout.ms while ZooKeeper keeps the group, and by 10000 ms of "
    "its own once a coordinator does"
)
_METRICS = "the query's progress has its metrics; see metrics.listen"
_LOGIN = (
    "the JVM's login; users and passwords are kafka.sasl.jaas.config, or kafka.sasl.username and kafka.sasl.password"
)


def with_option_names(words: str) -> str:
    """A sentence on settings of brokers, with the names that these have as options."""
    keys = "|".join(
        re.escape(option.removeprefix(KAFKA_PREFIX)) for option in sorted(BROKER_OPTIONS, key=len, reverse=True)
    )
    return re.sub(rf"(?<![\w.])({keys})(?![\w.])", lambda found: KAFKA_PREFIX + found[1], words)


IGNORED_OPTIONS: dict[str, str] = {
    **dict.fromkeys(
        (
            "fetch.message.max.bytes", "fetch.max.bytes", "fetch.min.bytes", "fetch.wait.max.ms",
            "num.consumer.fetchers", "queued.max.message.chunks", "queued.max.bytes", "fetch.pause.ms",
            "refresh.leader.backoff.ms", "consumer.timeout.ms", "socket.receive.buffer.bytes", "kafka.fetch.max.bytes",
            "kafka.fetch.max.wait.ms", "kafka.fetch.min.bytes", "kafka.max.partition.fetch.bytes",
            "kafka.receive.buffer.bytes",
        ),
        _FETCHER,
    ),
    **dict.fromkeys(("auto.commit.enable", "auto.commit.interval.ms", "kafka.auto.commit.interval.ms"), _COMMIT),
    **dict.fromkeys(
        ("rebalance.fail.fast", "rebalance.listener.timeout.ms", "health.socket"),
        "belongs to a connector's program; Spark supervises the query",
    ),
    **dict.fromkeys(
        ("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
        "tunes the Java consumer of Spark's own Kafka source; here every wait has its own limit",
    ),
    "groupIdPrefix": "names the throw-away group of Spark's own Kafka source; here group.id is the group",
    **dict.fromkeys(("kafka.heartbeat.interval.ms", "kafka.session.timeout.ms"), _MEMBERSHIP),
    **dict.fromkeys(
        (
            "kafka.default.api.timeout.ms", "kafka.request.timeout.ms", "kafka.socket.connection.setup.timeout.max.ms",
            "kafka.socket.connection.setup.timeout.ms",
        ),
        _TIME_OUT,
    ),
    **dict.fromkeys(
        (
            "kafka.reconnect.backoff.max.ms", "kafka.reconnect.backoff.ms", "kafka.retry.backoff.max.ms",
            "kafka.retry.backoff.ms",
        ),
        "a task asks a broker that does not answer again after pauses of its own",
    ),
    "kafka.client.rack": "records are fetched from leaders, and the group is divided without regard to racks",
    "kafka.group.instance.id": "a query that is started again finds its place by its checkpoint",
    "kafka.group.protocol": "ZooKeeper keeps the group, or a coordinator by the classic protocol",
    "kafka.group.remote.assignor": "the members of the group divide it, by partition.assignment.strategy",
    "kafka.internal.leave.group.on.close": "a query that ends always leaves its group",
    "kafka.max.poll.interval.ms": "a batch may take as long as it takes: Spark watches the query",
    "kafka.max.poll.records": "maxRecordsPerPartition and maxOffsetsPerTrigger limit how much is read at a time",
    **{
        KAFKA_PREFIX + key: _METRICS if "connector.metrics()" in why else why
        for key, why in JAVA_CLIENT_KEYS_WITHOUT_EFFECT.items()
    },
    **{
        KAFKA_PREFIX + key: _LOGIN if key.startswith(("sasl.login.", "sasl.client.")) else with_option_names(why)
        for key, why in JAVA_SECURITY_KEYS.items()
        if key not in SECURITY_KEYS_NOT_IGNORED
    },
}  # fmt: skip
"""Options that have no effect, and why; a warning each."""

UNSUPPORTED_OPTIONS: dict[str, str] = {
    "kafka.group.id": "the group is the option group.id, without the prefix kafka.: the query becomes a member of it",
    "kafka.client.id": "it is the option client.id, without the prefix kafka.",
    **{
        KAFKA_PREFIX + key: f"it is the option {key}, without the prefix kafka."
        for key in ("exclude.internal.topics", "partition.assignment.strategy")
    },
    "kafka.auto.offset.reset": "the source stores the positions: set startingOffsets, and auto.offset.reset for "
    "partitions where the group has no offset",
    "kafka.enable.auto.commit": _COMMIT,
    "kafka.key.deserializer": "keys come as bytes: use functions of the DataFrame on the column",
    "kafka.value.deserializer": "values come as bytes: use functions of the DataFrame on the column",
    "kafka.interceptor.classes": "a class of the JVM, which would change records where Spark does not see it",
    **{KAFKA_PREFIX + key: with_option_names(JAVA_SECURITY_KEYS[key]) for key in SECURITY_KEYS_NOT_IGNORED},
    "path": "load() takes no path here: the topics are the option subscribe",
}
"""Options that cannot be given, and why."""


OPTION_ALIASES_OF_CREATE_STREAM: dict[str, str] = {
    "zkquorum": "zookeeper.connect",
    "zk.connect": "zookeeper.connect",
    "zookeeper": "zookeeper.connect",
    "groupid": "group.id",
    "group": "group.id",
    "consumergroup": "group.id",
    "topic": "subscribe",
    "topicmap": "topics",
    "metadata.broker.list": "kafka.bootstrap.servers",
    "brokers": "kafka.bootstrap.servers",
}
"""The names of options as parameters of ``KafkaUtils.createStream`` and ``createDirectStream``
(spark-streaming-kafka 0-8), in Kafka 0.7 and on command lines, in lower case."""


def ignored_reason(option: str) -> str:
    """Why an option of another program has no effect; "" for an unknown one."""
    if option in IGNORED_OPTIONS:
        return IGNORED_OPTIONS[option]
    if option.startswith(KAFKA_PREFIX):
        bare = option.removeprefix(KAFKA_PREFIX)
        if bare not in SETTINGS and why_ignored(bare):
            return "tunes the Java consumer, or another program"
    return ""


def unprefixed_key_reason(option: str) -> str:
    """The error for an option that Kafka's consumer has and this source does not; "" for another one."""
    why = UNSUPPORTED_OPTIONS.get(KAFKA_PREFIX + option) or IGNORED_OPTIONS.get(KAFKA_PREFIX + option)
    return f"is a setting of Kafka's own consumer: {why}; leave {option} out" if why else ""


def outcome_of(option: str, value: str = "") -> SettingOutcome:
    """The effect of this option; ``value``: its value in another program."""
    key = GROUP_OPTIONS.get(option) or BROKER_OPTIONS.get(option)
    if key is not None:
        return outcome_of_value(SETTINGS[key], value)
    if option in SOURCE_OPTIONS:
        return SettingOutcome.effective()
    if option in UNSUPPORTED_OPTIONS:
        return SettingOutcome.rejected(UNSUPPORTED_OPTIONS[option])
    if why := ignored_reason(option):
        return SettingOutcome.ignored(why)
    if KAFKA_PREFIX + option in BROKER_OPTIONS:
        return SettingOutcome.rejected(f"it is the option `{KAFKA_PREFIX}{option}`")
    return SettingOutcome.rejected(
        UNSUPPORTED_OPTIONS.get(KAFKA_PREFIX + option)
        or IGNORED_OPTIONS.get(KAFKA_PREFIX + option)
        or "it is not known"
    )
