"""A group's offsets in Kafka's own store, read and written by a tool, over a ``CoordinatorClient``.

Nothing is asked of a cluster that has no ``__consumer_offsets`` yet: the first question about a group makes that
topic, and a tool that only looks must not.

There is no condition to bind a commit to, as a znode's version is one: what was planned is compared with what is stored
right before each batch.  While a modern group of the name has members, brokers refuse (25) whatever is not theirs, so
there the broker itself stands guard; original members that store in Kafka are looked for in ZooKeeper's ``ids`` then,
where the tool knows a ZooKeeper.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from zkconsumer.admin.admin_session import AdminSession, chunks
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS, REQUEST_TIMEOUT_MS
from zkconsumer.admin.coordinator_client import CoordinatorClient, CoordinatorRetryPolicy
from zkconsumer.admin.coordinator_lookups import OFFSETS_TOPIC
from zkconsumer.admin.zookeeper_group import read_topics
from zkconsumer.admin.zookeeper_offset_writes import members_registered_text, registered_members
from zkconsumer.errors import KafkaException
from zkconsumer.kafka.coordinator_groups import DEAD, CoordinatorGroup, delete_group, describe_coordinator_group
from zkconsumer.kafka.error_codes import GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC, NONE, ErrorCode
from zkconsumer.kafka.error_codes import UNKNOWN_MEMBER_ID as MEMBERS_ARE_ALIVE
from zkconsumer.kafka.group_offsets import (
    COORDINATOR_LOADING_ERRORS,
    COORDINATOR_MOVED_ERRORS,
    OffsetAndMetadata,
    OffsetFetchResult,
    commit_offsets,
    delete_offsets,
    fetch_offsets,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import DELETE_GROUPS, OFFSET_DELETE, OFFSET_FETCH
from zkconsumer.wire.schemas.offset_fetch import ALL_TOPICS_IS_NULL_FROM
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from zkconsumer.admin.admin_session import AnySession
    from zkconsumer.admin.zookeeper_offset_writes import StoreWriteReport
    from zkconsumer.kafka.broker_connection import Connection
    from zkconsumer.kafka.version_negotiation import SupportedVersions

OFFSETS_PER_COMMIT_MAX = 1_000
"""Offsets in one commit: a broker writes them as one batch of at most a megabyte, and a name may be long (249)."""

OFFSETS_PER_DELETE_MAX = 5_000
"""Offsets in one question to forget them."""

T = TypeVar("T")


class KafkaOffsetAdmin:
    """One group's offsets in Kafka's own store.  One thread.

    Methods raise ``BrokerUnreachable`` when no broker answers, and ``KafkaException`` when the brokers are too old
    (before 0.8.2) or refuse.
    """

    def __init__(
        self,
        session: AnySession,
        group: str,
        pause: Callable[[int], object] | None = None,
        patience: CoordinatorRetryPolicy | None = None,
    ) -> None:
        self._session = session
        self._group = paths.check_group(group) if isinstance(session, AdminSession) else group
        self._coordinator = CoordinatorClient(session, group, pause, patience)
        self._exists = False

    def exists(self) -> bool:
        """Whether this cluster has an offset store at all; asks whoever has the topics."""
        # Where the brokers tell of topics, that is the whole cluster's metadata; and what is there once stays.
        self._exists = self._exists or OFFSETS_TOPIC in read_topics(self._session, [OFFSETS_TOPIC])
        return self._exists

    def read_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Everything that is stored for the group, sorted.

        Brokers before 0.10.2 cannot list it, so every partition of the cluster is asked for there; what is stored
        for deleted topics is not found.
        """
        if not self.exists():
            return {}
        if self._execute(_can_list):
            found = self._fetched(None)
        else:
            found = self.read_some(self._all_partitions())
        return {tp: found[tp] for tp in sorted(found)}

    def read_some(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is stored for these partitions."""
        return self._fetched(sorted(partitions)) if partitions and self.exists() else {}

    def write_offsets(
        self,
        offsets: Mapping[TopicPartition, int],
        known: Mapping[TopicPartition, int | None],
        report: StoreWriteReport,
    ) -> None:
        """Commit, as somebody who is no member; ``report`` says how far, until the first thing that stands in the way.

        ``known``: what the plan saw, None where nothing was stored; what changed since is not written over.
        """
        for some in chunks(list(offsets), OFFSETS_PER_COMMIT_MAX):
            if self._check_unchanged(some, known, report):
                return
            batch = {tp: OffsetAndMetadata(offsets[tp]) for tp in some}
            commit = partial(commit_offsets, group=self._group, offsets=batch, timeout_ms=REQUEST_TIMEOUT_MS)
            self._write_batch(some, report, commit, done={NONE})
            if report.stopped_by:
                return

    def coordinator_group(self) -> CoordinatorGroup:
        """The modern group of this name.  Brokers before 0.9 have none, and close the connection:
        ``BROKER_REQUEST_ERRORS``.
        """
        if not self.exists():
            return CoordinatorGroup(DEAD)
        return self._execute(partial(describe_coordinator_group, group=self._group, timeout_ms=REQUEST_TIMEOUT_MS))

    def zookeeper_members(self) -> list[str]:
        """Who is registered in ZooKeeper now; nobody can be seen there with brokers alone."""
        return registered_members(self._session, self._group) if isinstance(self._session, AdminSession) else []

    def can_delete(self) -> bool:
        """Whether the brokers can forget single offsets (from 2.4 on)."""
        return self._execute(_can_delete)

    def delete(
        self,
        partitions: Sequence[TopicPartition],
        known: Mapping[TopicPartition, int | None],
        report: StoreWriteReport,
    ) -> None:
        """Forget what is stored for these partitions; ``report`` and ``known`` as in ``write``."""
        for some in chunks(partitions, OFFSETS_PER_DELETE_MAX):
            if self._check_unchanged(some, known, report):
                return
            delete = partial(delete_offsets, group=self._group, partitions=some, timeout_ms=REQUEST_TIMEOUT_MS)
            self._write_batch(some, report, delete, done={NONE, GROUP_ID_NOT_FOUND})
            if report.stopped_by:
                return

    def can_delete_group(self) -> bool:
        """Whether the brokers can forget a whole group (from 1.1 on)."""
        return self._execute(_can_delete_group)

    def delete_group(self) -> ErrorCode:
        """Forget the group and all that it has stored; what the coordinator answers when it is none of "not yet"."""
        return self._execute(partial(delete_group, group=self._group, timeout_ms=REQUEST_TIMEOUT_MS))

    def _fetched(self, partitions: Collection[TopicPartition] | None) -> dict[TopicPartition, OffsetAndMetadata]:
        question = partial(fetch_offsets, group=self._group, partitions=partitions, timeout_ms=REQUEST_TIMEOUT_MS)
        return _stored_offsets(self._execute(question))

    # --- writing ------------------------------------------------------------------------------------------------

    def _check_unchanged(
        self, some: Sequence[TopicPartition], known: Mapping[TopicPartition, int | None], report: StoreWriteReport
    ) -> bool:
        """Whether a batch must not be sent: an original member came, or an offset is not what the plan saw."""
        members = self.zookeeper_members()
        if members:
            report.stopped_by = members_registered_text(members)
            return True
        stored = self.read_some(some)
        for tp in some:
            found = stored[tp].offset if tp in stored else None
            if found != known.get(tp):
                report.stopped_by = f"the offset of {tp} was changed by somebody else after it was read"
                return True
        return False

    def _write_batch(
        self,
        some: Sequence[TopicPartition],
        report: StoreWriteReport,
        write: Callable[[Connection, SupportedVersions], dict[TopicPartition, ErrorCode]],
        *,
        done: set[ErrorCode],
    ) -> None:
        """One batch.  The same offset may be stored twice, so what was lost on the way is simply sent again."""
        report.unknown = list(some)
        try:
            outcome = self._execute(write)
        except BROKER_REQUEST_ERRORS as error:
            report.stopped_by = str(error)
            return
        report.unknown = []
        report.written += [tp for tp in some if outcome[tp] in done]
        refused = [tp for tp in some if outcome[tp] not in done]
        if refused:
            report.stopped_by = _rejection_text(refused[0], outcome[refused[0]], len(refused))

    # --- asking -------------------------------------------------------------------------------------------------

    def _execute(self, question: Callable[[Connection, SupportedVersions], T]) -> T:
        """The coordinator's answer that is none of "not me" and "not yet"."""
        return self._coordinator.execute(question, _retriable_error)

    def _all_partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic, number)
            for topic, state in read_topics(self._session).items()
            for number in (state.partitions if topic != OFFSETS_TOPIC else ())
        ]


def _can_list(_: Connection, ranges: SupportedVersions) -> bool:
    return ranges.pick(OFFSET_FETCH) >= ALL_TOPICS_IS_NULL_FROM


def _can_delete(_: Connection, ranges: SupportedVersions) -> bool:
    return ranges.supports(OFFSET_DELETE, 0)


def _can_delete_group(_: Connection, ranges: SupportedVersions) -> bool:
    return ranges.supports(DELETE_GROUPS, 0)


def _stored_offsets(answer: OffsetFetchResult) -> dict[TopicPartition, OffsetAndMetadata]:
    if answer.error != NONE:
        raise KafkaException(f"the coordinator refuses to tell the group's offsets: {answer.error}")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, stored in answer.partitions.items():
        if isinstance(stored, ErrorCode):
            raise KafkaException(f"the coordinator does not tell the offset of {tp}: {stored}")
        if stored is not None and stored.offset >= 0:
            found[tp] = stored
    return found


def _retriable_error(answer: object) -> ErrorCode | None:
    """An error after which the same question is asked again."""
    if isinstance(answer, OffsetFetchResult):
        return answer.error if answer.error in COORDINATOR_MOVED_ERRORS | COORDINATOR_LOADING_ERRORS else None
    if isinstance(answer, ErrorCode):
        return answer if answer in COORDINATOR_MOVED_ERRORS | COORDINATOR_LOADING_ERRORS else None
    if isinstance(answer, dict):
        return next(
            (error for error in answer.values() if error in COORDINATOR_MOVED_ERRORS | COORDINATOR_LOADING_ERRORS), None
        )
    return None


def _rejection_text(tp: TopicPartition, error: ErrorCode, count: int) -> str:
    if error == MEMBERS_ARE_ALIVE:
        return f"a modern group of this name has members, and only they may commit ({error})"
    if error == GROUP_SUBSCRIBED_TO_TOPIC:
        return f"members of the group are reading {tp.topic} ({error})"
    return f"the coordinator answers {error} for {tp}" + (f" and {count - 1} more" if count > 1 else "")
