"""A group's offsets in Kafka's own store, read and written by a tool with a ``CoordinatorClient``.

No request is sent to a cluster without ``__consumer_offsets``: the first request for a group creates that topic, and a
tool that only reads must not create it.

A commit has no condition like the version of a znode, so the plan is compared with the stored offsets right before each
batch.  While the coordinator group of this name has members, brokers reject (25) commits of other clients.  Scala
consumers that store in Kafka are found in ZooKeeper's ``ids``, if the tool has a ZooKeeper.
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
from zkconsumer.base.progress import progress_task
from zkconsumer.errors import KafkaException
from zkconsumer.kafka.coordinator_groups import DEAD, CoordinatorGroup, delete_group, describe_coordinator_group
from zkconsumer.kafka.error_codes import GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC, NONE, ErrorCode
from zkconsumer.kafka.error_codes import UNKNOWN_MEMBER_ID as MEMBERS_ARE_ALIVE
from zkconsumer.kafka.group_offsets import (
    COORDINATOR_LOADING_ERRORS,
    COORDINATOR_MOVED_ERRORS,
    OffsetFetchResult,
    commit_offsets,
    delete_offsets,
    fetch_offsets,
)
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import DELETE_GROUPS, OFFSET_DELETE, OFFSET_FETCH
from zkconsumer.wire.schemas.offset_fetch import ALL_TOPICS_IS_NULL_FROM
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from zkconsumer.admin.admin_session import AnySession
    from zkconsumer.admin.zookeeper_offset_writes import StoreWriteReport
    from zkconsumer.kafka.broker_connection import Connection
    from zkconsumer.kafka.supported_versions import SupportedVersions

OFFSETS_PER_COMMIT_MAX = 1_000
"""Offsets in one commit: a broker writes them as one batch of at most a megabyte, and a name may be long (249)."""

OFFSETS_PER_DELETE_MAX = 5_000
"""Offsets in one request to delete them."""

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
        """Whether this cluster has an offset store at all."""
        # If topics come from the brokers, this reads the metadata of the whole cluster; the topic is never deleted.
        self._exists = self._exists or OFFSETS_TOPIC in read_topics(self._session, [OFFSETS_TOPIC])
        return self._exists

    def read_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """All stored offsets of the group, sorted.

        Brokers before 0.10.2 cannot list them, so every partition of the cluster is requested there; offsets of deleted
        topics are not found.
        """
        if not self.exists():
            return {}
        if self._execute(lambda _, ranges: ranges.pick(OFFSET_FETCH) >= ALL_TOPICS_IS_NULL_FROM):
            found = self._fetched(None)
        else:
            found = self.read_some(self._all_partitions())
        return {tp: found[tp] for tp in sorted(found)}

    def read_some(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The stored offsets of these partitions."""
        return self._fetched(sorted(partitions)) if partitions and self.exists() else {}

    def write_offsets(
        self,
        offsets: Mapping[TopicPartition, int],
        known: Mapping[TopicPartition, int | None],
        report: StoreWriteReport,
    ) -> None:
        """Commit as a client that is not a member, until one commit fails; ``report`` has the progress.

        ``known``: the offsets in the plan, None if there was none; an offset that has changed since is not overwritten.
        """
        with progress_task("writing to Kafka", len(offsets), "offsets") as task:
            for some in chunks(list(offsets), OFFSETS_PER_COMMIT_MAX):
                if self._check_unchanged(some, known, report):
                    return
                batch = {tp: OffsetAndMetadata(offsets[tp]) for tp in some}
                commit = partial(commit_offsets, group=self._group, offsets=batch, timeout_ms=REQUEST_TIMEOUT_MS)
                self._write_batch(some, report, commit, done={NONE})
                if report.stopped_by:
                    return
                task.advance(len(some))

    def coordinator_group(self) -> CoordinatorGroup:
        """The coordinator group of this name.  Brokers before 0.9 have none, and close the connection:
        ``BROKER_REQUEST_ERRORS``.
        """
        if not self.exists():
            return CoordinatorGroup(DEAD)
        return self._execute(partial(describe_coordinator_group, group=self._group, timeout_ms=REQUEST_TIMEOUT_MS))

    def zookeeper_members(self) -> list[str]:
        """Members that are registered in ZooKeeper now; with brokers only they are not visible."""
        return registered_members(self._session, self._group) if isinstance(self._session, AdminSession) else []

    def can_delete(self) -> bool:
        """Whether the brokers can delete single offsets (from 2.4 on)."""
        return self._execute(lambda _, ranges: ranges.supports(OFFSET_DELETE, 0))

    def delete(
        self,
        partitions: Sequence[TopicPartition],
        known: Mapping[TopicPartition, int | None],
        report: StoreWriteReport,
    ) -> None:
        """Delete the stored offsets of these partitions; ``report`` and ``known`` as in ``write``."""
        for some in chunks(partitions, OFFSETS_PER_DELETE_MAX):
            if self._check_unchanged(some, known, report):
                return
            delete = partial(delete_offsets, group=self._group, partitions=some, timeout_ms=REQUEST_TIMEOUT_MS)
            self._write_batch(some, report, delete, done={NONE, GROUP_ID_NOT_FOUND})
            if report.stopped_by:
                return

    def can_delete_group(self) -> bool:
        """Whether the brokers can delete a whole group (from 1.1 on)."""
        return self._execute(lambda _, ranges: ranges.supports(DELETE_GROUPS, 0))

    def delete_group(self) -> ErrorCode:
        """Delete the group and its offsets; returns the coordinator's answer, once it is not "loading" any more."""
        return self._execute(partial(delete_group, group=self._group, timeout_ms=REQUEST_TIMEOUT_MS))

    def _fetched(self, partitions: Collection[TopicPartition] | None) -> dict[TopicPartition, OffsetAndMetadata]:
        question = partial(fetch_offsets, group=self._group, partitions=partitions, timeout_ms=REQUEST_TIMEOUT_MS)
        return _stored_offsets(self._execute(question))

    # --- writing ------------------------------------------------------------------------------------------------

    def _check_unchanged(
        self, some: Sequence[TopicPartition], known: Mapping[TopicPartition, int | None], report: StoreWriteReport
    ) -> bool:
        """Whether a batch must not be sent: a Scala consumer has joined, or an offset differs from the plan."""
        members = self.zookeeper_members()
        if members:
            report.stopped_by = members_registered_text(members)
            return True
        stored = self.read_some(some)
        for tp in some:
            found = stored[tp].offset if tp in stored else None
            if found != known.get(tp):
                report.stopped_by = f"the offset of {tp} was changed by another program after it was read"
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
        """Send one batch.

        A repeated commit of the same offset is harmless, so after a lost answer it is sent again.
        """
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
        """Return the coordinator's answer, once it is neither "not coordinator" nor "loading"."""
        return self._coordinator.execute(question, retriable_error)

    def _all_partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic, number)
            for topic, state in read_topics(self._session).items()
            for number in (state.partitions if topic != OFFSETS_TOPIC else ())
        ]


def _stored_offsets(answer: OffsetFetchResult) -> dict[TopicPartition, OffsetAndMetadata]:
    if answer.error != NONE:
        raise KafkaException(f"the coordinator refuses to return the group's offsets: {answer.error}")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, stored in answer.partitions.items():
        if isinstance(stored, ErrorCode):
            raise KafkaException(f"the coordinator does not return the offset of {tp}: {stored}")
        if stored is not None and stored.offset >= 0:
            found[tp] = stored
    return found


def retriable_error(answer: object) -> ErrorCode | None:
    """The error in an answer after which the same request is repeated."""
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
        return f"the coordinator group of this name has members, and only they may commit ({error})"
    if error == GROUP_SUBSCRIBED_TO_TOPIC:
        return f"members of the group are reading {tp.topic} ({error})"
    return f"the coordinator answers {error} for {tp}" + (f" and {count - 1} more" if count > 1 else "")
