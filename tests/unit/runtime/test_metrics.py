"""Metrics: the numbers alone, and what a whole connector on a world in memory shows under the old names."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import prometheus_client
import pytest

from bridge.testing.fake_environment import FakeEnvironment
from tests.in_memory_fixtures import MakeConnector, run_in_thread, take, wait_until
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk, PartitionTopicInfo
from zkconsumer.observe import metric_names as names
from zkconsumer.observe.metric_names import ROWS, MetricKind
from zkconsumer.observe.metrics import SAMPLES_MAX, Histogram, Meter, Registry, TimerMetric
from zkconsumer.observe.metrics_file import write_metrics
from zkconsumer.observe.prometheus import COUNTERS_SHOWN_AS_ZERO, ConnectorCollector
from zkconsumer.runtime.metrics import LAG_VALID_MS, MemberMetrics
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import RecordCounter, TopicPartition
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import Record, iter_records
from zkconsumer.wire.records_v2 import TALLY_STEP

TOPIC, GROUP = "topic1", "group1"


# --- the numbers ------------------------------------------------------------------------------------------------


def test_a_rate_follows_what_happens_and_forgets_slowly() -> None:
    clock = ManualClock()
    meter = Meter(clock)
    assert meter.values() == {
        "Count": 0, "MeanRate": 0.0, "OneMinuteRate": 0.0, "FiveMinuteRate": 0.0, "FifteenMinuteRate": 0.0
    }  # fmt: skip
    for _ in range(12):
        meter.mark(50)
        clock.move(5_000)
        meter.tick()
    values = meter.values()
    assert values["Count"] == 600
    assert values["MeanRate"] == values["OneMinuteRate"] == pytest.approx(10.0)
    clock.move(60_000)
    meter.tick()
    assert meter.values()["OneMinuteRate"] == pytest.approx(10 / 2.718, rel=0.01), "a minute of nothing"
    assert meter.values()["FifteenMinuteRate"] > 9


def test_ticks_that_come_late_or_twice_do_no_harm() -> None:
    clock = ManualClock()
    often, seldom = Meter(clock), Meter(clock)
    for _ in range(24):
        for meter in (often, seldom):
            meter.mark(10)
        clock.move(5_000)
        often.tick()
        often.tick()
    seldom.tick()
    assert often.values()["OneMinuteRate"] == pytest.approx(seldom.values()["OneMinuteRate"])


def test_a_tally_of_one_thread_counts_in_every_meter_that_adopted_it() -> None:
    one, all_ = Meter(ManualClock()), Meter(ManualClock())
    tally = RecordCounter()
    for meter in (one, all_):
        meter.add_counter(tally)
    all_.mark(2)
    tally.count += 5
    assert (one.count, all_.count) == (5, 7)


def test_percentiles_are_those_of_the_last_values_and_extremes_those_of_all() -> None:
    histogram = Histogram()
    assert histogram.values()["99thPercentile"] == 0
    histogram.update(1_000_000)
    for value in range(1, SAMPLES_MAX + 1):
        histogram.update(value)
    values = histogram.values()
    assert (values["Count"], values["Min"], values["Max"]) == (SAMPLES_MAX + 1, 1, 1_000_000)
    assert values["50thPercentile"] == SAMPLES_MAX // 2 + 1
    assert values["999thPercentile"] == SAMPLES_MAX - 1
    assert values["Mean"] == pytest.approx((1_000_000 + SAMPLES_MAX * (SAMPLES_MAX + 1) / 2) / (SAMPLES_MAX + 1))


def test_a_timer_has_durations_and_rates() -> None:
    clock = ManualClock()
    timer = TimerMetric(clock)
    timer.update(10)
    timer.update(30)
    clock.move(10_000)
    timer.tick()
    values = timer.values()
    assert (values["Count"], values["Mean"], values["Max"], values["MeanRate"]) == (2, 20, 30, 0.2)
    assert values["OneMinuteRate"] == pytest.approx(0.2)


def test_a_registry_gives_the_same_metric_for_the_same_labels_and_names_it_as_jmx_did() -> None:
    registry = Registry(ManualClock(), {"clientId": "c", "groupId": "g"})
    assert registry.meter(names.MESSAGES, "t") is registry.meter(names.MESSAGES, "t")
    registry.meter(names.MESSAGES, "t").mark(3)
    registry.timer(names.FETCH_TIME, "host", "9092").update(7)
    registry.gauge(names.LAG, lambda: {("t", "1"): 5, ("t", "0"): 4})
    beans = registry.mbeans()
    assert beans["kafka.consumer:type=ConsumerTopicMetrics,name=MessagesPerSec,clientId=c,topic=t"]["Count"] == 3
    assert beans["kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=c,topic=t,partition=1"] == {"Value": 5}
    fetches = "kafka.consumer:type=FetchRequestAndResponseMetrics,name=FetchRequestRateAndTimeMs,clientId=c"
    assert beans[f"{fetches},brokerHost=host,brokerPort=9092"]["Mean"] == 7


def test_every_row_has_a_name_of_its_own() -> None:
    assert len({row.pattern for row in ROWS}) == len(ROWS)
    prometheus = [row.prometheus for row in ROWS if row.prometheus]
    assert len(set(prometheus)) == len(prometheus)
    for row in ROWS:
        assert row.prometheus.endswith("_total") == (row.kind is MetricKind.METER and bool(row.prometheus)), row
        is_time = row.kind is MetricKind.TIMER or row is names.LAG_SECONDS
        assert row.prometheus.endswith("_seconds") == (is_time and bool(row.prometheus)), row


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, 1])
def test_records_are_counted_by_the_batch_also_when_somebody_stops_in_the_middle(magic: int, codec: int) -> None:
    stamp = -1 if magic == 0 else 1
    kind = -1 if magic == 0 else 0
    data = b"".join(
        bytes(build_record_set([Record(n, stamp, kind, None, b"v", ()) for n in range(at, at + 5)], magic, codec=codec))
        for at in (0, 5)
    )
    tally = RecordCounter()
    assert len(list(iter_records(data, 2, tally=tally))) == 8
    assert tally.count == 8
    tally = RecordCounter()
    records = iter_records(data, 2, tally=tally)
    assert [next(records).offset for _ in range(5)] == [2, 3, 4, 5, 6]
    del records
    gc.collect()
    assert tally.count == 5


def test_the_records_of_a_long_batch_are_counted_on_the_way() -> None:
    """A program that takes a second for a message and has a thousand in a batch does not stand still."""
    data = bytes(build_record_set([Record(n, 1, 0, None, b"v", ()) for n in range(200)], 2))
    tally = RecordCounter()
    records = iter_records(data, 10, tally=tally)
    seen = []
    for _ in range(150):
        next(records)
        seen.append(tally.count)
    assert seen[-1] >= 150 - TALLY_STEP
    assert all(count <= at + 1 for at, count in enumerate(seen)), "never more than were handed out"
    assert len(list(records)) == 40
    assert tally.count == 190


def test_a_record_that_cannot_be_read_is_not_counted() -> None:
    data = bytearray(build_record_set([Record(n, 1, 0, None, b"v", ()) for n in range(3)], 2))
    data[-1] ^= 1
    tally = RecordCounter()
    with pytest.raises(Exception, match=r"headers|fields|cut off|follow|longer"):
        list(iter_records(bytes(data), check_crcs=False, tally=tally))
    assert tally.count == 2


# --- lag --------------------------------------------------------------------------------------------------------


class Standing:
    """The lag of a member that stands somehow, without its threads."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lease = Lease(self.clock)
        self.infos: list[PartitionTopicInfo] = []
        self.queue = ChunkQueue(1)
        self.registry = Registry(self.clock, {"clientId": "c", "groupId": "g"})
        queues = {("t", "c-0"): self.queue}
        self.metrics = MemberMetrics(
            self.registry,
            self.clock,
            self.lease,
            infos=lambda: self.infos,
            queues=lambda: queues,
            min_fetch_rate=lambda: 0.0,
            queued_bytes=lambda: 0,
        )
        self.metrics.rebalance_started()
        self.metrics.rebalance_completed()
        self.lease.set_until(10**9)

    def partition(self, number: int, consumed: int, high_watermark: int) -> PartitionTopicInfo:
        info = PartitionTopicInfo(TopicPartition("t", number), "c-0", self.queue, offset=consumed)
        info.high_watermark, info.last_response_ms = high_watermark, self.clock.now_ms()
        self.infos.append(info)
        return info

    def value(self, row: names.MetricRow, *labels: str) -> float:
        found = {tuple(s.labels.values())[1:]: s.values["Value"] for s in self.registry.samples() if s.row is row}
        return found[labels]

    @property
    def max_lag(self) -> float:
        return self.value(names.MAX_LAG)


def test_lag_is_counted_from_what_the_program_has_consumed_not_from_what_was_fetched() -> None:
    at = Standing()
    info = at.partition(0, 10, 25)
    info.fetch_offset = 25
    at.partition(1, 7, 7)
    assert at.value(names.LAG, "t", "0") == 15
    assert at.value(names.LAG, "t", "1") == 0
    assert at.max_lag == 15
    info.mark_consumed(25, 0)
    assert at.max_lag == 0


def test_a_member_that_stands_still_does_not_show_a_lag_of_0() -> None:
    at = Standing()
    at.partition(0, 7, 7)
    assert at.max_lag == 0
    at.clock.move(LAG_VALID_MS + 1)
    assert at.value(names.LAG, "t", "0") == at.max_lag == -1, "no broker has answered for long"
    at.infos[0].last_response_ms = at.clock.now_ms()
    assert at.max_lag == 0
    at.infos.clear()
    at.metrics.rebalance_started()
    assert at.max_lag == 0, "a rebalance is no standstill"
    at.clock.move(LAG_VALID_MS + 1)
    assert at.max_lag == -1, "it has waited for its share for long"
    at.metrics.rebalance_completed()
    assert at.max_lag == 0
    at.lease.set_until(at.clock.now_ms() - LAG_VALID_MS - 1)
    assert at.max_lag == -1, "ZooKeeper has not answered for long, so nothing is handed out"


def test_what_is_known_to_be_left_counts_though_the_broker_is_silent() -> None:
    at = Standing()
    at.partition(0, 7, 9)
    at.partition(1, -1, -1)
    at.clock.move(LAG_VALID_MS + 1)
    assert at.value(names.LAG, "t", "0") == at.max_lag == 2
    assert at.value(names.LAG, "t", "1") == -1


# --- the lag in time --------------------------------------------------------------------------------------------


def fetched(at: Standing, info: PartitionTopicInfo, ages_ms: tuple[int, ...], *, magic: int = 2) -> None:
    """Records from the offset of the member on, in the queue of its stream; each one is so many ms old."""
    first, now_ms = info.consumed_offset, at.clock.wall_ms()
    records = [Record(first + n, now_ms - age_ms, 0, None, b"v") for n, age_ms in enumerate(ages_ms)]
    data = build_record_set(records, magic, 1)
    at.queue.offer(FetchedDataChunk(data, info, first, first + len(ages_ms), len(data), info.resets))


def test_the_lag_in_seconds_is_that_of_the_first_record_that_was_not_acknowledged() -> None:
    at = Standing()
    info = at.partition(0, 10, 13)
    fetched(at, info, (9_000, 5_000, 2_000))
    assert at.value(names.LAG_SECONDS, "t", "0", "CreateTime") == 9
    info.mark_consumed(12, 0)
    at.clock.move(500)
    assert at.value(names.LAG_SECONDS, "t", "0", "CreateTime") == 2.5
    info.mark_consumed(13, 0)
    info.last_response_ms = at.clock.now_ms()
    assert at.value(names.LAG_SECONDS, "t", "0", "CreateTime") == 0
    at.clock.move(LAG_VALID_MS + 1)
    assert at.value(names.LAG_SECONDS, "t", "0", "CreateTime") == -1, "no broker has answered for long"


def test_a_lag_in_seconds_that_is_unknown_is_not_0() -> None:
    at = Standing()
    at.partition(0, -1, -1)
    at.partition(1, 5, 9)
    assert at.value(names.LAG_SECONDS, "t", "0", "none") == -1, "no position yet"
    assert at.value(names.LAG_SECONDS, "t", "1", "none") == -1, "nothing was fetched yet"
    at.clock.move(4_000)
    assert at.value(names.LAG_SECONDS, "t", "1", "at-least") == 4


def test_messages_without_timestamps_have_the_time_between_two_reads_of_the_metric() -> None:
    at = Standing()
    info = at.partition(0, 5, 5)
    assert at.value(names.LAG_SECONDS, "t", "0", "none") == 0
    at.clock.move(10_000)
    info.high_watermark, info.last_response_ms = 15, at.clock.now_ms()
    fetched(at, info, (0,) * 10, magic=0)
    assert at.value(names.LAG_SECONDS, "t", "0", "observed") == pytest.approx(9.5)
    info.mark_consumed(14, 0)
    assert at.value(names.LAG_SECONDS, "t", "0", "observed") == pytest.approx(0.5)


def test_a_damaged_record_has_no_time_and_the_other_partitions_have() -> None:
    at = Standing()
    info, other = at.partition(0, 5, 6), at.partition(1, 5, 6)
    at.queue.offer(FetchedDataChunk(b"\0" * 40, info, 5, 6, 40, info.resets))
    fetched(at, other, (3_000,))
    assert at.value(names.LAG_SECONDS, "t", "0", "none") == -1
    assert at.value(names.LAG_SECONDS, "t", "1", "CreateTime") == 3


# --- a whole connector ------------------------------------------------------------------------------------------


def beans(connector: ZookeeperConsumerConnector, name: str) -> dict[str, dict[str, float]]:
    """What the connector shows under this name: the rest of the MBean name -> attributes."""
    found = {}
    for bean, values in connector.metrics()["metrics"].items():
        if f",name={name}," in bean + ",":
            found[bean.partition(f"name={name}")[2].lstrip(",")] = values
    return found


def test_a_connector_that_reads_shows_every_metric_of_the_table(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 2)
    for partition in range(2):
        world.cluster.append(TOPIC, partition, [b"value"] * 5)
    connector = connect(group_id=GROUP, client_id="mine", consumer_id="a")
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    assert len(take(stream, 10)) == 10
    reading = run_in_thread(lambda: stream.iterator().has_next())
    wait_until(lambda: beans(connector, "MaxLag")["clientId=mine"]["Value"] == 0, "all is read")
    connector.commit_offsets()

    assert beans(connector, "OwnedPartitionsCount") == {
        f"clientId=mine,groupId={GROUP}": {"Value": 2},
        f"clientId=mine,groupId={GROUP},topic={TOPIC}": {"Value": 2},
    }
    assert beans(connector, "FetchQueueSize") == {f"clientId=mine,topic={TOPIC},threadId=0": {"Value": 0}}
    messages = beans(connector, "MessagesPerSec")
    assert {name: values["Count"] for name, values in messages.items()} == {
        "clientId=mine": 10,
        f"clientId=mine,topic={TOPIC}": 10,
    }
    sizes = beans(connector, "BytesPerSec")
    assert sizes["clientId=mine"]["Count"] == sizes[f"clientId=mine,topic={TOPIC}"]["Count"] >= 10 * len(b"value")
    assert beans(connector, "ZooKeeperCommitsPerSec")["clientId=mine"]["Count"] == 2
    assert beans(connector, "KafkaCommitsPerSec")["clientId=mine"]["Count"] == 0
    assert beans(connector, "RebalanceRateAndTime")["clientId=mine"]["Count"] >= 1
    lags = beans(connector, "ConsumerLag")
    assert lags == {f"clientId=mine,topic={TOPIC},partition={n}": {"Value": 0} for n in range(2)}
    brokers = {f"clientId=mine,brokerHost={at.host},brokerPort={at.port}" for at in world.cluster.addresses}
    assert set(beans(connector, "RequestsPerSec")) == brokers
    for name in ("FetchRequestRateAndTimeMs", "FetchResponseSize", "FetchRequestThrottleRateAndTimeMs"):
        assert set(beans(connector, name)) == {"clientId=mine", *brokers}
        assert beans(connector, name)["clientId=mine"]["Count"] > 0
    shown = {sample.row for sample in connector.metric_samples()}
    assert shown == set(ROWS)
    assert beans(connector, "yammer-metrics-count")[""]["Value"] > len(ROWS)
    whole = connector.metrics()
    assert (whole["member"], whole["group"], whole["client_id"]) == (f"{GROUP}_a", GROUP, "mine")
    assert whole["counters"]["commits"] == 2
    assert json.loads(json.dumps(whole)) == whole
    world.cluster.append(TOPIC, 0, [b"end"])
    assert reading()


def test_a_program_that_stands_still_shows_what_it_has_not_consumed(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    """The original counts from what was fetched, so a full queue looked like no lag."""
    world.create_topic(TOPIC, 1)
    world.cluster.append(TOPIC, 0, [b"value"] * 100)
    connector = connect(group_id=GROUP)
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    take(stream, 1)
    lag = f"clientId={GROUP}"
    wait_until(lambda: beans(connector, "MaxLag")[lag]["Value"] == 100, "the message in hand counts too")
    assert connector.assignment


def test_the_lag_of_a_partition_goes_with_it(world: FakeEnvironment, connect: MakeConnector) -> None:
    """AbstractFetcherThreadTest.testConsumerLagRemovedWithPartition."""
    world.create_topic(TOPIC, 2)
    for partition in range(2):
        world.cluster.append(TOPIC, partition, [b"value"])
    first = connect(group_id=GROUP, consumer_id="a")
    take(first.create_message_streams({TOPIC: 1})[TOPIC][0], 2)
    lags = [f"clientId={GROUP},topic={TOPIC},partition={number}" for number in range(2)]
    wait_until(lambda: sorted(beans(first, "ConsumerLag")) == lags, "each partition has a lag")
    connect(group_id=GROUP, consumer_id="b").create_message_streams({TOPIC: 1})
    wait_until(lambda: sorted(beans(first, "ConsumerLag")) == lags[:1], "the other one has left")


def test_connectors_of_one_client_id_do_not_touch_each_other(world: FakeEnvironment, connect: MakeConnector) -> None:
    """Closing ``a`` removed the metrics of ``ab``, and those of another ``a``, from the original's registry."""
    world.create_topic(TOPIC, 4)
    members = [connect(group_id=GROUP, client_id=client) for client in ("a", "ab", "a")]
    for member in members:
        member.create_message_streams({TOPIC: 1})
    wait_until(lambda: sorted(len(m.assignment) for m in members) == [1, 1, 2], "they share the topic")
    members[0].close()
    wait_until(lambda: sum(len(m.assignment) for m in members[1:]) == 4, "the others have it all")
    for member, client in zip(members[1:], ("ab", "a"), strict=True):
        owned = beans(member, "OwnedPartitionsCount")
        assert owned[f"clientId={client},groupId={GROUP}"] == {"Value": len(member.assignment)}
    assert beans(members[0], "OwnedPartitionsCount")[f"clientId=a,groupId={GROUP}"] == {"Value": 0}


def test_metrics_leak(world: FakeEnvironment, connect: MakeConnector) -> None:
    """MetricsTest.testMetricsLeak: connectors that come and go leave nothing; here each takes its registry with it."""
    world.create_topic(TOPIC, 1)
    numbers = []
    registries = []
    for _ in range(5):
        connector = connect(group_id=GROUP)
        connector.create_message_streams({TOPIC: 1})
        wait_until(lambda c=connector: beans(c, "RequestsPerSec"), "it fetches")  # type: ignore[misc]
        connector.close()
        numbers.append(len(connector._member.registry))
        registries.append(weakref.ref(connector._member.registry))
    assert len(set(numbers)) == 1
    world.connectors.clear()
    world.stores.clear()
    del connector
    gc.collect()
    assert [registry for registry in registries if registry() is not None] == []


# --- files ------------------------------------------------------------------------------------------------------


def test_a_dump_is_whole_or_not_there(tmp_path: Path, world: FakeEnvironment, connect: MakeConnector) -> None:
    path = tmp_path / "metrics.json"
    connector = connect(group_id=GROUP)
    connector.dump_metrics(path)
    assert json.loads(path.read_text("utf-8"))["group"] == GROUP
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_metrics(path, {"metrics": object()})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside it"
    with pytest.raises(FileNotFoundError):
        connector.dump_metrics(tmp_path / "nowhere" / "metrics.json")


# --- Prometheus -------------------------------------------------------------------------------------------------


def test_prometheus_shows_every_row_with_labels_that_tell_connectors_apart(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 2)
    world.cluster.append(TOPIC, 0, [b"value"] * 3)
    members = [connect(group_id=GROUP, client_id="same", consumer_id=name) for name in ("a", "b")]
    streams = [member.create_message_streams({TOPIC: 1})[TOPIC][0] for member in members]
    wait_until(lambda: all(len(m.assignment) == 1 for m in members), "they share the topic")
    reader = next(s for s in streams if beans_of_partition(members, s) == 0)
    take(reader, 3)
    reader.iterator().acknowledge()
    registry: Any = prometheus_client.CollectorRegistry()
    collector = ConnectorCollector(*members)
    registry.register(collector)
    members[0].commit_offsets()
    members[1].commit_offsets()
    text = prometheus_client.generate_latest(registry).decode()
    families = {family.name for family in registry.collect()}
    expected = {row.prometheus.removesuffix("_total") for row in ROWS if row.prometheus}
    assert expected <= families
    own = f'client_id="same",group="{GROUP}",member="{GROUP}_a"'
    assert f'zkconsumer_owned_partitions{{{own},topic="{TOPIC}"}} 1.0' in text
    assert f'member="{GROUP}_b"' in text
    assert "zkconsumer_count_commits_total" in text
    assert f"zkconsumer_count_commits_failed_total{{{own}}} 0.0" in text, "an alert sees the first one"
    assert 'quantile="0.99"' in text
    assert "zkconsumer_fetch_seconds_sum" in text
    collector.remove(members[1])
    assert f'member="{GROUP}_b"' not in prometheus_client.generate_latest(registry).decode()
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(ConnectorCollector())


def test_every_counter_that_an_alert_watches_is_there_before_it_counts() -> None:
    docs = Path(__file__).parents[3] / "migration_docs"
    rules = (docs.parent / "monitoring" / "zkconsumer-alerts.yml").read_text("utf-8")
    watched = set(re.findall(r"zkconsumer_count_(\w+)_total", rules))
    assert watched
    assert watched <= set(COUNTERS_SHOWN_AS_ZERO)
    counters = (docs / "reference" / "counters.md").read_text("utf-8").partition("\n## ")[0]
    known = set(re.findall(r"(?m)^\| `(\w+)` \|", counters))
    successes = {"commits", "kafka_commits"}
    assert set(COUNTERS_SHOWN_AS_ZERO) == {name for name in known - successes if not name.startswith("spark_")}


def beans_of_partition(members: list[ZookeeperConsumerConnector], stream: Any) -> int:
    """The partition that this stream reads."""
    [number] = [tp.partition for m in members for tp, thread in m.assignment.items() if thread == stream.thread]
    return number


def test_nothing_else_imports_prometheus() -> None:
    code = "import sys, zkconsumer.connector, zkconsumer.cli; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
