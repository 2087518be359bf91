"""Reads the facts; the only part of the doctor that sends requests.

    snapshot --> samples of the offsets --> snapshot      ``interval_ms`` apart
    newest batches of each topic, for their codecs
    the coordinator, for a coordinator group of the same name
    each broker, for its supported versions

ZooKeeper must answer.  Every other failure is a sentence in ``GroupFacts.not_known``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from zkconsumer.admin.admin_session import chunks
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS, REQUEST_TIMEOUT_MS
from zkconsumer.admin.coordinator_lookups import OFFSETS_TOPIC, discover_coordinator
from zkconsumer.admin.doctor.facts import COMMIT_INTERVAL_MS, GroupFacts, OffsetSample
from zkconsumer.admin.zookeeper_group_snapshot import ZooKeeperGroupSnapshot, read_group_snapshot
from zkconsumer.base.progress import progress_task
from zkconsumer.base.threads import StopSignal
from zkconsumer.errors import InvalidMessageException, KafkaException, MalformedZnode, UnsupportedCodec
from zkconsumer.kafka.coordinator_groups import CoordinatorGroup, describe_coordinator_group
from zkconsumer.kafka.error_codes import NONE, UNSUPPORTED_COMPRESSION_TYPE
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.compression import CODEC_NAMES
from zkconsumer.wire.entries import codec_of, iter_entries
from zkconsumer.wire.schemas import FETCH
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchPartitionResponse, FetchRequest, FetchTopic
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import parse_offset

if TYPE_CHECKING:
    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.kafka.broker_connection import Connection
    from zkconsumer.kafka.supported_versions import SupportedVersions

SAMPLE_EVERY_MS = 1_000
"""How often the stored offsets are read between the two snapshots."""

SAMPLES_MAX = 120
"""Samples that are kept; with a longer interval the pauses grow."""

CODEC_OFFSETS = 1_000
"""How far before its end a log is read to find codecs."""

CODEC_BYTES_EACH = 64 * 1024
CODEC_PARTITIONS_PER_FETCH = 20
"""Bytes of a partition, and partitions in one Fetch request: about a megabyte for each response."""

CODEC_PARTITIONS_MAX = 400
"""Partitions whose batches are read, spread over the topics."""

TOTAL_LIMIT_FROM = 3


def collect_facts(
    session: AdminSession,
    group: str,
    interval_ms: int,
    commit_interval_ms: int = COMMIT_INTERVAL_MS,
    *,
    stores_in_kafka: bool = False,
    pause: Callable[[int], object] | None = None,
) -> GroupFacts | None:
    """Everything about a group, None when it does not exist.

    Takes ``interval_ms`` and the response times of the servers.  Raises ``InvalidNameError``, and ``UnavailableError``
    when ZooKeeper does not answer.
    """
    wait = pause or StopSignal().wait
    first = read_group_snapshot(session, group)
    if first is None:
        return None
    samples = list(_samples(session, first, interval_ms, wait))
    second = read_group_snapshot(session, group) if interval_ms else first
    if second is None:
        return None
    unknown = list(dict.fromkeys((*first.not_known, *second.not_known)))
    codecs: dict[str, dict[str, str]] = {}
    coordinator_group: CoordinatorGroup | None = None
    old: tuple[str, ...] = ()
    if second.log_ranges:
        codecs = _codecs(session, second, unknown)
        coordinator_group = _coordinator_group(session, second, unknown)
        old = _old_brokers(session, unknown)
    return GroupFacts(
        first,
        second,
        max(session.clock.wall_ms(), _newest_ms(second)),
        tuple(samples),
        codecs,
        coordinator_group,
        old,
        commit_interval_ms,
        stores_in_kafka,
        tuple(unknown),
    )


def _newest_ms(look: ZooKeeperGroupSnapshot) -> int:
    """The newest time in the snapshot: ZooKeeper's clock may be ahead of ours, and is at least here."""
    state = look.state
    stats = [member.stat for member in state.members.values()]
    stats += [owner.stat for owner in state.owners.values()]
    stats += [node.stat for node in state.offsets.values()]
    return max((max(stat.ctime_ms, stat.mtime_ms) for stat in stats), default=0)


def _samples(
    session: AdminSession, first: ZooKeeperGroupSnapshot, interval_ms: int, wait: Callable[[int], object]
) -> Iterator[OffsetSample]:
    """Wait and read the stored offsets meanwhile: an offset that went back may be right again in the second
    snapshot."""
    end_ms = session.clock.now_ms() + interval_ms
    every_ms = max(SAMPLE_EVERY_MS, interval_ms // SAMPLES_MAX)
    group = first.state.group
    where = {paths.offset(group, tp): tp for tp in first.state.offsets}
    with progress_task("watching the offsets", interval_ms // 1000, "s") as task:
        while (left_ms := end_ms - session.clock.now_ms()) > 0:
            task.advance((interval_ms - left_ms) // 1000 - task.done)
            wait(min(every_ms, left_ms))
            found: dict[TopicPartition, tuple[int, int]] = {}
            for path, node in session.get_many(where).items():
                try:
                    found[where[path]] = (parse_offset(node.data), node.stat.version)
                except MalformedZnode:
                    continue
            yield OffsetSample(session.clock.wall_ms(), found)


# --- codecs -----------------------------------------------------------------------------------------------------


def _codecs(session: AdminSession, look: ZooKeeperGroupSnapshot, unknown: list[str]) -> dict[str, dict[str, str]]:
    """Return topic → codec → the position of one batch with it."""
    found: dict[str, dict[str, str]] = {}
    wanted = _partitions_to_sample(look)
    try:
        leaders = session.brokers.leaders({tp.topic for tp in wanted}).with_leader
    except BROKER_REQUEST_ERRORS as error:
        unknown.append(f"the codecs of the topics are not known: {error}")
        return found
    by_leader: dict[BrokerAddress, list[TopicPartition]] = {}
    for tp in wanted:
        if tp in leaders:
            by_leader.setdefault(leaders[tp], []).append(tp)
    with progress_task("reading codecs", sum(map(len, by_leader.values())), "partitions") as task:
        for leader, tps in by_leader.items():
            for some in chunks(tps, CODEC_PARTITIONS_PER_FETCH):
                try:
                    rows = session.brokers.execute(leader, _fetch_request(look, some))
                except BROKER_REQUEST_ERRORS as error:
                    unknown.append(f"the codecs of {len(some)} partitions at {leader} are not known: {error}")
                    break
                for tp, row in rows:
                    for codec, place in _codecs_in(tp, row):
                        found.setdefault(tp.topic, {}).setdefault(codec, place)
                task.advance(len(some))
    return found


def _partitions_to_sample(look: ZooKeeperGroupSnapshot) -> list[TopicPartition]:
    """Partitions with records: first one of every topic, then a second one of each, and so on."""
    with_records = [tp for tp, log in sorted(look.log_ranges.items()) if log.latest > log.earliest]
    rank: dict[str, int] = {}
    ranked: list[tuple[int, TopicPartition]] = []
    for tp in with_records:
        rank[tp.topic] = rank.get(tp.topic, 0) + 1
        ranked.append((rank[tp.topic], tp))
    return [tp for _, tp in sorted(ranked)][:CODEC_PARTITIONS_MAX]


def _fetch_request(
    look: ZooKeeperGroupSnapshot, tps: Sequence[TopicPartition]
) -> Callable[[Connection, SupportedVersions], list[tuple[TopicPartition, FetchPartitionResponse]]]:
    topics: dict[str, list[FetchPartition]] = {}
    for tp in tps:
        log = look.log_ranges[tp]
        row = FetchPartition(
            partition=tp.partition,
            fetch_offset=max(log.earliest, log.latest - CODEC_OFFSETS),
            partition_max_bytes=CODEC_BYTES_EACH,
        )
        topics.setdefault(tp.topic, []).append(row)
    body = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic=topic, partitions=rows) for topic, rows in topics.items()],
    )

    def ask(connection: Connection, ranges: SupportedVersions) -> list[tuple[TopicPartition, FetchPartitionResponse]]:
        response = connection.request(FETCH, ranges.pick(FETCH), body, REQUEST_TIMEOUT_MS)
        return [(TopicPartition(t.topic, p.partition_index), p) for t in response.responses for p in t.partitions]

    return ask


def _codecs_in(tp: TopicPartition, row: FetchPartitionResponse) -> Iterator[tuple[str, str]]:
    if row.error_code == UNSUPPORTED_COMPRESSION_TYPE.code:
        yield "zstd", f"{tp}: the broker answers {UNSUPPORTED_COMPRESSION_TYPE}"
        return
    if row.error_code != NONE.code or row.records is None:
        return
    try:
        for entry in iter_entries(row.records):
            codec = codec_of(row.records, entry)
            yield CODEC_NAMES.get(codec, f"codec {codec}"), f"{tp} at offset {entry.offset}"
    except (InvalidMessageException, UnsupportedCodec):
        return


# --- the coordinator, the brokers -------------------------------------------------------------------------------


def _coordinator_group(
    session: AdminSession, look: ZooKeeperGroupSnapshot, unknown: list[str]
) -> CoordinatorGroup | None:
    if OFFSETS_TOPIC not in look.state.all_topics:
        return None
    group = look.state.group
    try:
        coordinator = discover_coordinator(session.brokers, group)
        return session.brokers.execute(
            coordinator,
            lambda connection, ranges: describe_coordinator_group(connection, ranges, group, REQUEST_TIMEOUT_MS),
        )
    except BROKER_REQUEST_ERRORS as error:
        unknown.append(f"whether consumers have joined a coordinator group {group} is not known: {error}")
        return None


def _old_brokers(session: AdminSession, unknown: list[str]) -> tuple[str, ...]:
    """Brokers that do not support ApiVersions: 0.8 and 0.9."""
    found: list[str] = []
    results = session.brokers.execute_on_each(session.brokers.all(), lambda _, ranges, __: ranges.is_assumed)
    for broker, is_old in results.items():
        if isinstance(is_old, KafkaException):
            unknown.append(f"the release of {broker} is not known: {is_old}")
        elif is_old is True:  # an unreachable broker is already in the list
            found.append(str(broker))
    return tuple(found)
