"""The options of format("zkconsumer"): what they become, what is refused and in which words, and their page."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from bridge.spark.group_membership import CommitMode
from bridge.spark.offset_range_limits import (
    EarliestOffsetRangeLimit,
    GlobalTimestampRangeLimit,
    GroupOffsetRangeLimit,
    LatestOffsetRangeLimit,
    SpecificOffsetRangeLimit,
    SpecificTimestampRangeLimit,
    check_all_partitions_named,
)
from bridge.spark.option_table import (
    BROKER_OPTIONS,
    GROUP_OPTIONS,
    IGNORED_OPTIONS,
    OPTION_ALIASES_OF_CREATE_STREAM,
    SOURCE_OPTIONS,
    UNSUPPORTED_OPTIONS,
)
from bridge.spark.options import AssignedPartitions, SourceOptions, SubscribedTopics, read_options
from bridge.spark.source.datasource import COLUMNS, ZkConsumerDataSource, columns_of
from tests.generate_docs import kafkas_keys
from tests.reference_pages.spark_option_page import render_options
from zkconsumer.errors import InvalidConfigException
from zkconsumer.member.topic_filter import Blacklist, Whitelist
from zkconsumer.types import TopicPartition

PAGE = Path(__file__).parents[3] / "migration_docs" / "reference" / "spark-options.md"

LEAST = {"zookeeper.connect": "zk:2181/kafka", "group.id": "billing", "subscribe": "orders, refunds"}


def stream(**more: str) -> SourceOptions:
    return read_options({**LEAST, **_named(more)}, is_stream=True)


def batch(**more: str) -> SourceOptions:
    return read_options({**LEAST, **_named(more)}, is_stream=False)


def _named(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", ".").lower(): value for name, value in options.items()}


def problems(options: dict[str, str], *, is_stream: bool = True) -> list[str]:
    with pytest.raises(InvalidConfigException) as caught:
        read_options(options, is_stream=is_stream)
    head, *lines = str(caught.value).split("\n  ")
    assert "spark-options.md" in head
    return lines


def problem(is_stream: bool = True, **more: str) -> str:
    [line] = problems({**LEAST, **_named(more)}, is_stream=is_stream)
    return line


def test_the_least_that_a_stream_needs_and_what_follows_from_it() -> None:
    read = stream()
    assert read.topic_selection == SubscribedTopics(("orders", "refunds"))
    assert (read.config.group_id, read.config.zookeeper_connect) == ("billing", "zk:2181/kafka")
    assert (read.starting_limit, read.commit_mode, read.threads) == (GroupOffsetRangeLimit(), CommitMode.AFTER_BATCH, 1)
    assert (read.max_offsets, read.fail_on_data_loss, read.max_delay_ms) == (None, True, 900_000)
    assert read.warnings == {}


def test_names_come_in_lower_case_as_spark_has_them_and_in_any_other() -> None:
    assert stream(maxOffsetsPerTrigger="10").max_offsets == 10
    read = read_options({**LEAST, "MAXOFFSETSPERTRIGGER": "10", "Group.Offsets.Commit": "CLAIM"}, is_stream=True)
    assert (read.max_offsets, read.commit_mode) == (10, CommitMode.CLAIM)


def test_all_problems_are_told_at_once_and_by_the_names_of_the_options() -> None:
    given = {"group.id": "a/b", "kafka.sasl.password": "hush", "maxoffsetspertriger": "1", "minpartitions": "0"}
    told = problems(given)
    text = "\n".join(told)
    assert "maxoffsetspertriger is not known: did you mean maxOffsetsPerTrigger?" in told
    assert "minPartitions=0: set it to an integer from 1 to 1000000, in tasks" in told
    assert "group.id=a/b" in text
    assert "zookeeper.connect is missing" in text
    assert "no topic is selected: set one of subscribe, subscribePattern, subscribe.blacklist, topics" in text
    # A configuration with a bad key is not looked at further; alone, the contradiction is told.
    assert problem(kafka__sasl__password="hush").startswith("kafka.security.protocol=PLAINTEXT: does not use SASL")
    assert "hush" not in text


def test_a_setting_of_brokers_without_its_prefix_is_led_to_it() -> None:
    assert problem(security__protocol="SSL") == "security.protocol is not known: did you mean kafka.security.protocol?"


@pytest.mark.parametrize("name", sorted(UNSUPPORTED_OPTIONS))
def test_what_is_refused_says_why(name: str) -> None:
    assert problem(**{name.replace(".", "__"): "x"}) == f"{name} cannot be set: {UNSUPPORTED_OPTIONS[name]}"


@pytest.mark.parametrize("name", [*sorted(IGNORED_OPTIONS), "kafka.max.poll.records"])
def test_what_has_no_effect_is_taken_with_a_warning(name: str) -> None:
    read = stream(**{name.replace(".", "__"): "x"})
    assert read.warnings.keys() == {name}
    assert read.warnings[name]


def test_an_option_with_kafkas_prefix_that_kafka_does_not_have_is_refused() -> None:
    assert problem(kafka__no__such__thing="x") == "kafka.no.such.thing is not known: remove it"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"subscribePattern": "orders|re.*"}, Whitelist("orders|re.*")),
        ({"subscribe.blacklist": "test-.*"}, Blacklist("test-.*")),
        ({"topics": "orders:2, refunds:1"}, SubscribedTopics(("orders", "refunds"))),
        ({"topics": '{"orders": 2, "refunds": 1}'}, SubscribedTopics(("orders", "refunds"))),
    ],
)
def test_the_ways_to_say_what_is_read(options: dict[str, str], wanted: object) -> None:
    base = {name: value for name, value in LEAST.items() if name != "subscribe"}
    read = read_options({**base, **options}, is_stream=True)
    assert read.topic_selection == wanted
    assert read.threads == ({"orders": 2, "refunds": 1} if "topics" in options else 1)


def test_partitions_can_be_named_in_a_batch_only() -> None:
    base = {"zookeeper.connect": "zk:1", "group.id": "g", "assign": '{"orders": [1, 0]}'}
    read = read_options(base, is_stream=False)
    assert read.topic_selection == AssignedPartitions((TopicPartition("orders", 0), TopicPartition("orders", 1)))
    told = problems(base)
    assert "assign cannot be set: in a stream the group assigns the partitions; subscribe to the topics" in told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribePattern": "x"}, "subscribe and subscribePattern are set together: set only one of them"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is more than maxOffsetsPerTrigger=4"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay=soon: set it to a number and ms, s, m, h or d"),
        ({"consumer__threads": "many"}, "consumer.threads=many: set it to a number from 1 to 100000, or all"),
        ({"startingOffsets": "erliest"}, "it is neither a known word nor JSON (did you mean earliest?)"),
        ({"startingOffsets": "committed"}, "it is neither a known word nor JSON; set it to group, earliest"),
        ({"startingOffsets": '{"orders": 1'}, "it is not JSON (Expecting"),
        ({"startingOffsets": '{"orders": {"0": 1, "0": 2}}'}, "it contains a name twice"),
        ({"startingOffsets": '{"orders": {"00": 1}}'}, "not a partition number"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "-1 for latest, or -2 for earliest"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "which is not an offset"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "milliseconds since 1970"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"consumer__config": "/no/such/file"}, "/no/such/file cannot be read"),
        ({"kafka__security__protocol": "SASL_SSL", "kafka__sasl__mechanism": "OAUTHBEARER"}, "creates tokens"),
        ({"group__offsets__commit": "always"}, "afterBatch or claim or none"),
        ({"metrics__listen": "9090"}, "metrics.listen=9090: set it to HOST:PORT"),
    ],
)
def test_what_cannot_be_is_explained(options: dict[str, str], words: str) -> None:
    assert words in problem(**options)


def test_the_winner_of_several_starting_points_is_that_of_spark_and_the_others_are_named() -> None:
    read = stream(startingTimestamp="5", startingOffsetsByTimestamp='{"orders": {"0": 7}}', startingOffsets="latest")
    assert read.starting_limit == GlobalTimestampRangeLimit(5)
    why = "has no effect together with startingTimestamp"
    assert read.warnings == {"startingOffsetsByTimestamp": why, "startingOffsets": why}
    assert stream(startingOffsetsByTimestamp='{"orders": {"0": 7}}').starting_limit == SpecificTimestampRangeLimit(
        {TopicPartition("orders", 0): 7}
    )
    assert stream(startingOffsets='{"orders": {"0": -1}}').starting_limit == SpecificOffsetRangeLimit(
        {TopicPartition("orders", 0): -1}
    )


@pytest.mark.parametrize(
    ("text", "wanted_ms"), [("7", 7), ("7ms", 7), ("2s", 2000), ("3m", 180_000), ("3 min", 180_000), ("1d", 86_400_000)]
)
def test_times_are_written_as_in_spark(text: str, wanted_ms: int) -> None:
    assert stream(minOffsetsPerTrigger="1", maxTriggerDelay=text).max_delay_ms == wanted_ms


def test_a_batch_without_a_group_begins_with_the_log_and_with_one_where_it_stands() -> None:
    assert batch().starting_limit == GroupOffsetRangeLimit()
    bare = read_options({"kafka.bootstrap.servers": "b:9092", "subscribe": "orders"}, is_stream=False)
    assert (bare.starting_limit, bare.ending_limit, bare.has_group, bare.has_zookeeper) == (
        EarliestOffsetRangeLimit(),
        LatestOffsetRangeLimit(),
        False,
        False,
    )
    [told] = problems(
        {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "startingOffsets": "group"}, is_stream=False
    )
    assert told == "startingOffsets=group: which group? Set group.id"
    [told] = problems({"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "group.id": "g"}, is_stream=False)
    assert told.startswith("startingOffsets=group: the group is in ZooKeeper")
    [told] = problems({"subscribe": "t"}, is_stream=False)
    assert told.startswith("zookeeper.connect is missing: set it to HOST:PORT")
    assert "kafka.bootstrap.servers" in told


def test_a_batch_cannot_begin_at_the_end_nor_end_at_the_beginning() -> None:
    assert "is empty" in problem(False, startingOffsets="latest")
    assert "orders/0 has -1" in problem(False, startingOffsets='{"orders": {"0": -1}}')
    assert "orders/0 has -2" in problem(False, endingOffsets='{"orders": {"0": -2}}')
    assert "cannot end where the log begins" in problem(False, endingOffsets="earliest")
    assert batch(endingTimestamp="9", endingOffsets="latest").ending_limit == GlobalTimestampRangeLimit(9)
    assert batch(maxOffsetsPerTrigger="9").warnings.keys() == {"maxOffsetsPerTrigger"}


def test_an_old_file_of_settings_holds_where_no_option_is_given(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("zookeeper.connect=zk:1\ngroup.id=old\nauto.offset.reset=smallest\nfetch.size=3\n")
    read = read_options({"subscribe": "t", "consumer.config": str(file), "group.id": "new"}, is_stream=True)
    assert (read.config.zookeeper_connect, read.config.group_id) == ("zk:1", "new")
    assert read.config.auto_offset_reset == "smallest"
    assert (
        read_options({"subscribe": "t", "consumer.config": str(file)}, is_stream=False).starting_limit
        == GroupOffsetRangeLimit()
    )


def test_no_text_shows_a_secret() -> None:
    secret = "hush-hush"
    read = stream(
        kafka__security__protocol="SASL_PLAINTEXT", kafka__sasl__mechanism="PLAIN", kafka__sasl__username="me",
        kafka__sasl__password=secret,
    )  # fmt: skip
    assert secret not in f"{read!r} {read.warnings} {read.given}"
    assert "kafka.sasl.password='[hidden]'" in repr(read)
    again = pickle.loads(pickle.dumps(read))
    assert again.config.sasl_password == secret
    assert secret not in repr(again)


def test_how_often_kafka_is_asked_for_new_partitions_counts_where_zookeeper_does_not_tell() -> None:
    read = stream(kafka__metadata__max__age__ms="1000", kafka__bootstrap__servers="kafka:9092")
    assert (read.config.metadata_max_age_ms, read.warnings) == (1000, {})
    told = stream(kafka__metadata__max__age__ms="1000").warnings
    assert "has no effect without bootstrap.servers" in told["kafka.metadata.max.age.ms"]


def test_offsets_must_name_every_partition_and_no_other() -> None:
    there = [TopicPartition("orders", n) for n in (0, 1)]
    assert check_all_partitions_named("startingOffsets", there, there) == ""
    told = check_all_partitions_named("startingOffsets", [TopicPartition("orders", 0), TopicPartition("x", 0)], there)
    assert "does not name orders/1" in told
    assert "names x/0, which is not subscribed" in told


def test_claims_that_kafka_cannot_keep_are_told_with_the_other_problems() -> None:
    claims = {"group.offsets.commit": "claim", "offsets.storage": "kafka", "dual.commit.enabled": "false"}
    told = problems({**LEAST, **claims, "minPartitions": "0"})
    assert [line.split(" ")[0] for line in told] == ["minPartitions=0:", "group.offsets.commit=claim"]
    assert (
        read_options({**LEAST, **claims, "dual.commit.enabled": "true"}, is_stream=True).commit_mode is CommitMode.CLAIM
    )
    assert read_options({**LEAST, **claims}, is_stream=False).warnings.keys() == {"group.offsets.commit"}


def test_a_topic_that_cannot_be_is_told_by_its_name() -> None:
    assert problem(subscribe="orders,a b").startswith("subscribe=orders,a b: topic 'a b' may contain only letters")
    assert "topic '..' is not a name" in problem(subscribe="..")


def test_no_option_is_in_two_tables() -> None:
    names = [*SOURCE_OPTIONS, *GROUP_OPTIONS, *BROKER_OPTIONS, *IGNORED_OPTIONS, *UNSUPPORTED_OPTIONS]
    assert len({name.lower() for name in names}) == len(names)


def test_the_page_is_that_of_the_tables() -> None:
    assert PAGE.read_text("utf-8") == render_options(kafkas_keys())


# --- the columns ------------------------------------------------------------------------------------------------


def source(**more: str) -> ZkConsumerDataSource:
    return ZkConsumerDataSource({**LEAST, **_named(more)})


def test_the_schema_is_that_of_format_kafka() -> None:
    from bridge.spark.decode.arrow_schema import SCHEMA

    assert source().schema().simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    with_headers = source(includeHeaders="TRUE").schema()
    assert with_headers["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    assert list(COLUMNS) == SCHEMA.names == with_headers.fieldNames()


def test_a_wrong_option_is_told_before_the_query_starts() -> None:
    with pytest.raises(InvalidConfigException, match="did you mean failOnDataLoss"):
        source(failOnDataLos="true").schema()
    # Of a batch only, and right for one.
    assert source(endingOffsets="latest").schema()


def refused_at_load(options: dict[str, str]) -> list[str]:
    with pytest.raises(InvalidConfigException) as caught:
        ZkConsumerDataSource(options).schema()
    head, *lines = str(caught.value).split("\n  ")
    *told, hint = lines
    if hint.startswith("if this is a batch (spark.read), set its end, for example endingOffsets=latest: "):
        lines = told
    assert f"have {'a problem' if len(lines) == 1 else f'{len(lines)} problems'} (" in head
    return lines


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"group.id": None}, ["in a stream: group.id is missing"]),
        ({"group.id": None, "startingOffsets": "earliest"}, ["in a stream: group.id is missing"]),
        ({"zookeeper.connect": None, "startingOffsets": "earliest", "kafka.bootstrap.servers": "b:9092"},
         ["in a stream: zookeeper.connect is missing"]),
        ({"zookeeper.connect": None, "group.id": None},
         ["zookeeper.connect is missing: set it to HOST:PORT", "in a stream: group.id is missing"]),
        ({"subscribe": None, "assign": '{"orders": [0]}'}, ["in a stream: assign cannot be set"]),
        ({"subscribe": None, "assign": "orders:0"},
         ["in a stream: assign cannot be set", "in a batch: assign=orders:0: it is not JSON"]),
    ],
)  # fmt: skip
def test_what_a_stream_lacks_or_cannot_have_is_refused_at_load(changes: dict[str, str | None], told: list[str]) -> None:
    options = {name: value for name, value in {**LEAST, **changes}.items() if value is not None}
    lines = refused_at_load(options)
    assert len(lines) == len(told)
    assert all(line.startswith(words) for line, words in zip(lines, told, strict=True)), lines


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"subscribe": None}, "no topic is selected: set one of subscribe, subscribePattern, subscribe.bl"),
        ({"subscribePattern": "o.*"}, "subscribe and subscribePattern are set together"),
        ({"zookeeper.connect": None}, "zookeeper.connect is missing: set it to HOST:PORT"),
        (
            {"consumer.config": "/no/such/file", "zookeeper.connect": None, "group.id": None},
            "the configuration file /no/",
        ),
    ],
)
def test_a_problem_of_streams_and_batches_alike_is_told_once_and_without_the_way_out_for_a_batch(
    changes: dict[str, str | None], told: str
) -> None:
    options = {name: value for name, value in {**LEAST, **changes}.items() if value is not None}
    with pytest.raises(InvalidConfigException) as caught:
        ZkConsumerDataSource(options).schema()
    head, *lines = str(caught.value).split("\n  ")
    assert "have a problem (" in head
    assert [line[: len(told)] for line in lines] == [told]


@pytest.mark.parametrize("end", ["endingOffsets", "ENDINGTIMESTAMP", "endingoffsetsbytimestamp"])
def test_a_batch_that_says_where_it_ends_needs_nothing_of_a_stream(end: str) -> None:
    value = {"endingoffsets": "latest", "endingtimestamp": "5"}.get(end.lower(), '{"orders": {"0": 5}}')
    assert ZkConsumerDataSource({"kafka.bootstrap.servers": "b:1", "assign": '{"orders": [0]}', end: value}).schema()
    [told] = refused_at_load({"kafka.bootstrap.servers": "b:1", "assign": "orders:0", end: value})
    assert told.startswith("in a batch: assign=orders:0: it is not JSON")


def test_what_is_wrong_in_both_is_said_once() -> None:
    options = {"zookeeper.connect": "zk:1", "subscribe": "t", "startingOffsets": "latest", "failOnDataLos": "true"}
    lines = refused_at_load(options)
    assert lines[0] == "failOnDataLos is not known: did you mean failOnDataLoss?"
    assert lines[1].startswith("in a stream: group.id is missing")
    assert lines[2:] == ["in a batch: startingOffsets=latest: a batch that starts at the end is empty"]
    # Right for a stream: the reader of a batch refuses it.
    assert ZkConsumerDataSource({**LEAST, "startingOffsets": "latest"}).schema()


@pytest.mark.parametrize("name", sorted(OPTION_ALIASES_OF_CREATE_STREAM))
def test_a_parameter_of_an_old_program_is_led_to_its_option(name: str) -> None:
    assert (
        problem(**{name.replace(".", "__"): "x"})
        == f"{name} is not known: its name here is {OPTION_ALIASES_OF_CREATE_STREAM[name]}"
    )
    assert OPTION_ALIASES_OF_CREATE_STREAM[name] in {*SOURCE_OPTIONS, *GROUP_OPTIONS, *BROKER_OPTIONS}


def test_a_narrower_schema_is_honoured_in_its_order_and_a_wrong_one_is_explained() -> None:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    wanted = StructType([StructField("value", COLUMNS["value"]), StructField("key", COLUMNS["key"], nullable=False)])
    assert columns_of(wanted) == ("value", "key")
    wrong = StructType(
        [StructField("value", StringType()), StructField("Offset", LongType()), StructField("when", LongType())]
    )
    with pytest.raises(InvalidConfigException) as caught:
        columns_of(wrong)
    _, *lines = str(caught.value).split("\n  ")
    assert lines == [
        "value: is binary, not string; cast it in the query",
        "Offset: this column does not exist; did you mean offset?",
        "when: this column does not exist",
    ]


def test_columns_and_options_are_told_together() -> None:
    from pyspark.sql.types import StructField, StructType

    there, wrong = (StructType([StructField(name, COLUMNS["value"])]) for name in ("value", "values"))
    for refuse in (
        lambda: source(minPartitions="0").reader(wrong),
        lambda: source(minPartitions="0").streamReader(wrong).initialOffset(),
    ):
        with pytest.raises(InvalidConfigException, match=r"minPartitions=0(.|\n)*values: this column does not exist"):
            refuse()
    for of, schema, told in ((source(), wrong, "values: "), (source(minPartitions="0"), there, "minPartitions=0: ")):
        with pytest.raises(InvalidConfigException) as caught:
            of.reader(schema)
        [_, line] = str(caught.value).split("\n  ")
        assert line.startswith(told)


@pytest.mark.parametrize("given", ["deadLetter", " DEADLETTER "])
def test_a_column_for_corrupt_records_is_there_only_if_the_option_asks_for_it(given: str) -> None:
    schema = source(onCorruptRecord=given, includeHeaders="true").schema()
    assert schema.fieldNames() == [*COLUMNS, "corrupt"]
    assert schema["corrupt"].dataType.simpleString() == "struct<end:bigint,error:string>"
    for other in ("fail", "skip"):
        assert source(onCorruptRecord=other).schema() == source().schema()
    with pytest.raises(InvalidConfigException, match="onCorruptRecord=ignore: set it to fail or skip or deadLetter"):
        source(onCorruptRecord="ignore").schema()


@pytest.mark.parametrize("given", ["true", " TRUE "])
def test_columns_for_utf8_are_there_only_if_the_option_asks_for_them(given: str) -> None:
    schema = source(includeIsUtf8=given, onCorruptRecord="deadLetter", includeHeaders="true").schema()
    assert schema.fieldNames() == [*COLUMNS, "corrupt", "keyIsUtf8", "valueIsUtf8"]
    assert {schema[name].dataType.simpleString() for name in ("keyIsUtf8", "valueIsUtf8")} == {"boolean"}
    assert columns_of(schema, has_corrupt=True, has_utf8=True) == tuple(schema.fieldNames())
    with pytest.raises(InvalidConfigException, match="valueIsUtf8: this column exists with includeIsUtf8=true only"):
        columns_of(schema, has_corrupt=True)
    assert source(includeIsUtf8="false").schema() == source().schema()
    with pytest.raises(InvalidConfigException, match="includeIsUtf8=yes: set it to true or false"):
        source(includeIsUtf8="yes").schema()


def test_a_narrower_schema_must_have_the_column_that_shows_which_rows_are_no_records() -> None:
    from pyspark.sql.types import StructType

    schema = source(onCorruptRecord="deadLetter").schema()
    assert columns_of(schema, has_corrupt=True)[-1] == "corrupt"
    with pytest.raises(InvalidConfigException, match="corrupt: this column exists with onCorruptRecord=deadLetter"):
        columns_of(schema)
    with pytest.raises(InvalidConfigException, match=r"corrupt: is missing; .* which rows are no records"):
        source(onCorruptRecord="deadLetter").reader(StructType([schema["value"]]))
