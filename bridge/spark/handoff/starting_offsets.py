"""``starting_offsets``: lets Spark's own Kafka source continue from a group's offsets.  Needs no pyspark.

    offsets = starting_offsets("zk1:2181/kafka", "etl", ["clicks"])
    spark.readStream.format("kafka").option("subscribe", "clicks").option("startingOffsets", offsets)

Call it once, for a new checkpoint.  It only reads: an active member would continue with the same records, so a group
with members is refused.  It does not prevent members from starting later: stop them permanently before.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

from bridge.spark.source.offset_selection import (
    GroupStartingOffsets,
    MissingOffsetPolicy,
    OffsetStore,
    OutOfRangePolicy,
    StoredOffsetConvention,
    check_against_logs,
    resolve_storage,
    select_offsets,
    topic_names,
)
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.admin.group_offset_stores import GroupOffsetsSnapshot, GroupOffsetStores
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.admin.text_format import list_text, registered_text
from zkconsumer.admin.zookeeper_group_snapshot import configured_storage
from zkconsumer.errors import PreconditionFailed, UnavailableError, UsageError
from zkconsumer.zk import paths

log = logging.getLogger("zkconsumer.spark")

NEAR_NAMES_MAX = 3


def starting_offsets(
    zookeeper: str | None,
    group: str,
    topics: str | Iterable[str] | None = None,
    *,
    config_file: str | Path | None = None,
    convention: StoredOffsetConvention = "next",
    store: OffsetStore = "auto",
    missing: MissingOffsetPolicy = "earliest",
    out_of_range: OutOfRangePolicy = "refuse",
    allow_members: bool = False,
    dependencies: AdminDependencies | None = None,
) -> str:
    """The group's offsets, as JSON for the option ``startingOffsets`` of ``format("kafka")``.

    ``topics``: those that ``subscribe`` names; None: every topic of which the group has an offset.  Every partition of
    each is in the JSON; ``missing`` decides for one without an offset.

    ``zookeeper`` is host:port/chroot and overrides ``config_file``, which may have all settings of a consumer's file
    (access rights, TLS, ``offsets.storage``, ``bootstrap.servers``).  ``store``, ``convention``: see
    ``bridge.spark.source.offset_selection``. ``out_of_range``: an offset that the log does not contain (any more) is
    refused, or replaced by ``earliest`` or ``latest``, or kept: Spark then fails, or skips with
    ``failOnDataLoss=false``.  The result is logged.

    Raises ``UsageError`` for a group or topic that does not exist, ``PreconditionFailed`` while members are registered
    (unless ``allow_members``: they continue to read and Spark reads the same records), and for a decision that the
    caller must make; ``UnavailableError`` when ZooKeeper, or a broker that is needed, does not answer.
    """
    file = None if config_file is None else Path(config_file)
    with AdminSession.open(zookeeper, file, dependencies) as session:
        starts = read_starts(
            session,
            group,
            topics,
            convention=convention,
            store=store,
            missing=missing,
            out_of_range=out_of_range,
            allow_members=allow_members,
        )
    for remark in starts.remarks:
        log.warning("starting-offsets group=%s remark=%r", starts.group, remark)
    return starts.to_json()


def read_starts(
    session: AdminSession,
    group: str,
    topics: str | Iterable[str] | None = None,
    *,
    convention: StoredOffsetConvention = "next",
    store: OffsetStore = "auto",
    missing: MissingOffsetPolicy = "earliest",
    out_of_range: OutOfRangePolicy = "refuse",
    allow_members: bool = False,
) -> GroupStartingOffsets:
    """The same as values, with an open session."""
    _check(convention=convention, store=store, missing=missing, out_of_range=out_of_range)
    if convention == "last-consumed" and store == "kafka":
        raise UsageError("convention='last-consumed' is about offsets in ZooKeeper; store='kafka' has the next ones")
    stores = GroupOffsetStores(session, group)
    seen = stores.read(["kafka"] if store in ("kafka", "both") else ["zookeeper"], include_kafka=store == "auto")
    if not seen.kafka:
        _refuse_unknown(session, group)
    if seen.members and not allow_members:
        raise PreconditionFailed(
            f"{registered_text(len(seen.members))} in group {group} ({list_text(seen.members)}) and would continue "
            "with "
            'the records that Spark reads: stop them first, or read as another member with format("zkconsumer")'
        )
    storage = resolve_storage(store, configured_storage(session), seen)
    if seen.kafka_problem and storage in ("kafka", "dual"):
        raise UnavailableError(
            f"group {group} has its offsets in Kafka, but Kafka did not return them: {seen.kafka_problem}"
        )
    partitions = _partitions(stores, seen, topic_names(topics))
    found = select_offsets(seen, partitions, storage, convention=convention, missing=missing)
    logs = stores.log_ranges([tp for tp, start in found.partitions.items() if start.offset >= 0])
    return check_against_logs(found, logs, out_of_range)


def _check(**given: str) -> None:
    """Values that the options do not allow; a caller without a type checker may pass them."""
    words = {
        "convention": StoredOffsetConvention,
        "store": OffsetStore,
        "missing": MissingOffsetPolicy,
        "out_of_range": OutOfRangePolicy,
    }
    for name, value in given.items():
        known = get_args(words[name])
        if value not in known:
            raise UsageError(f"{name}={value!r}: expected one of {', '.join(map(repr, known))}")


def _refuse_unknown(session: AdminSession, group: str) -> None:
    """Raises ``UsageError`` for a group that does not exist in either store."""
    if session.get(paths.group_root(group)) is not None or KafkaOffsetAdmin(session, group).read_offsets():
        return
    listed = session.children(paths.CONSUMERS)
    near = difflib.get_close_matches(group, listed.names if listed else [], NEAR_NAMES_MAX)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; zkconsumer groups list shows the existing groups"
    raise UsageError(f"group {group} does not exist at {session.config.zookeeper_connect}{hint}")


def _partitions(
    stores: GroupOffsetStores, seen: GroupOffsetsSnapshot, names: list[str] | None
) -> dict[str, tuple[int, ...]]:
    """Topic → its partitions.  A deleted topic that the caller did not name is omitted and logged."""
    stored = {tp.topic for tp in (*seen.zookeeper, *(seen.kafka or ()))}
    if names is None and not stored:
        raise UsageError(f"group {seen.group} has no offsets: name the topics that Spark reads")
    wanted = sorted(stored) if names is None else [paths.check_topic(name) for name in names]
    topics = stores.topics(wanted)
    gone = [name for name in wanted if name not in topics]
    if gone and (names is not None or not topics):
        raise UsageError(f"no such topic: {list_text(gone)}; correct topics, or create them")
    if gone:
        log.warning("starting-topics-missing group=%s topics=%r: omitted", seen.group, list_text(gone))
    for name, topic in topics.items():
        if topic.problem:
            raise UnavailableError(
                f"the znode of topic {name} cannot be read ({topic.problem}): find out which program wrote it"
            )
    return {name: topic.partitions for name, topic in topics.items()}
