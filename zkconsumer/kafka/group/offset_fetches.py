"""Fetches committed offsets of partitions, with retries until a deadline.  Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from zkconsumer.errors import ZkConsumerError
from zkconsumer.kafka.error_codes import error_code
from zkconsumer.kafka.group.commands import FetchDone
from zkconsumer.kafka.group.coordinator_discovery import error_without_answer
from zkconsumer.kafka.group.error_policy import OFFSET_FETCH as FETCH_TABLE
from zkconsumer.kafka.group.error_policy import UNSTABLE_OFFSET_COMMIT, ErrorAction, error_action, error_from_code
from zkconsumer.kafka.group.errors import OffsetFetchFailed
from zkconsumer.kafka.group.events import Failure, FetchAsked, Offset, RequestFailed
from zkconsumer.kafka.group.group_member import GroupMemberBase
from zkconsumer.kafka.group.kafka_text_forms import error_message, partition_text, partitions_text
from zkconsumer.kafka.group.pending_commands import RequestKind, SentRequest
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import OFFSET_FETCH
from zkconsumer.wire.schemas.offset_fetch import BATCHED_FROM, OffsetFetchRequest, OffsetFetchResponse, OffsetFetchTopic

VERSION_MOST = BATCHED_FROM - 1
"""The request names one group: the form that every broker from 0.9 to 4.x supports."""

NOTHING_COMMITTED = -1


@dataclass(slots=True)
class _PendingOffsetFetch:
    """One request until it is answered."""

    number: int
    partitions: frozenset[TopicPartition]
    until_ms: int
    attempts: int = 0
    retry_at_ms: int = 0
    is_in_flight: bool = False
    last: ZkConsumerError | None = None


class OffsetFetches:
    """The open requests, by number.

    ``require_stable`` is requested first (2.5, KIP-447): the request then waits for an offset of an open transaction.
    An older broker does not support the field, and receives the request without it.
    """

    def __init__(self, member: GroupMemberBase) -> None:
        self._member = member
        self._open: dict[int, _PendingOffsetFetch] = {}
        self._requires_stable = True

    @property
    def is_idle(self) -> bool:
        """Whether no request is open."""
        return not self._open

    @property
    def retry_at_ms(self) -> int | None:
        """When the next of them is retried, or fails; in ms."""
        waiting = [fetch for fetch in self._open.values() if not fetch.is_in_flight]
        return min((fetch.retry_at_ms or fetch.until_ms for fetch in waiting), default=None)

    def ask(self, event: FetchAsked) -> None:
        """Add a request for the committed offsets of these."""
        if not event.partitions:
            self._member.pending_commands.add(FetchDone(event.number, {}))
            return
        until_ms = self._member.pending_commands.now_ms + self._member.config.default_api_timeout_ms
        self._open[event.number] = _PendingOffsetFetch(event.number, event.partitions, until_ms)

    def advance(self) -> None:
        """Send the requests that can be sent now."""
        member = self._member
        now_ms = member.pending_commands.now_ms
        for fetch in [fetch for fetch in self._open.values() if not fetch.is_in_flight]:
            if member.failure is not None:
                self._done(fetch, {}, member.failure)
            elif now_ms >= fetch.until_ms:
                self._done(fetch, {}, self._too_late(fetch))
            elif now_ms < fetch.retry_at_ms:
                continue
            elif member.coordinator_discovery.ensure_coordinator_ready():
                self._send(fetch)
            elif member.coordinator_discovery.fatal is not None:
                self._done(fetch, {}, member.coordinator_discovery.fatal)

    def give_up(self) -> None:
        """Fail all open requests."""
        self._member.pending_commands.give_up(RequestKind.OFFSET_FETCH)
        for fetch in list(self._open.values()):
            self._done(fetch, {}, self._too_late(fetch))

    def _too_late(self, fetch: _PendingOffsetFetch) -> ZkConsumerError:
        error = OffsetFetchFailed(
            f"the coordinator of group {self._member.config.group_id} did not return committed offsets in time"
            + (f": {fetch.last}" if fetch.last else "")
        )
        error.__cause__ = fetch.last
        return error

    def _send(self, fetch: _PendingOffsetFetch) -> None:
        member = self._member
        assert member.coordinator_discovery.coordinator is not None, "a request needs a known coordinator"
        fetch.is_in_flight = True
        fetch.attempts += 1
        member.pending_commands.log_event(
            "fetching-committed-offsets",
            f"Fetching committed offsets for partitions: [{partitions_text(fetch.partitions)}]",
            partitions=len(fetch.partitions),
        )
        body = OffsetFetchRequest(
            group_id=member.config.group_id,
            topics=_by_topic(fetch.partitions),
            require_stable=self._requires_stable,
        )
        member.pending_commands.send(
            SentRequest(
                RequestKind.OFFSET_FETCH, member.generation, member.coordinator_discovery.incarnation, fetch.number
            ),
            member.coordinator_discovery.coordinator.id,
            OFFSET_FETCH.key,
            body=body,
            timeout_ms=member.config.request_timeout_ms,
            version_most=VERSION_MOST,
        )

    # --- answers --------------------------------------------------------------------------------------------------

    def answered(self, sent: SentRequest, body: OffsetFetchResponse) -> None:
        """Process the coordinator's answer to one of them."""
        fetch = self._open[sent.number]
        fetch.is_in_flight = False
        group = self._member.config.group_id
        if body.error_code != 0:
            self._member.pending_commands.log_event(
                "committed-offsets-refused",
                f"Offset fetch failed: {error_message(body.error_code)}",
                error=str(error_code(body.error_code)),
            )
            self._react(fetch, body.error_code, error_from_code(body.error_code, group, "OffsetFetch"))
            return
        found: dict[TopicPartition, Offset | None] = {}
        refused: ZkConsumerError | None = None
        self._log_errors(body)
        for topic in body.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                if row.error_code != 0:
                    refused = error_from_code(row.error_code, group, f"OffsetFetch of {tp}")
                    if error_action(FETCH_TABLE, row.error_code) is not ErrorAction.RAISE:
                        self._react(fetch, row.error_code, refused)
                        return
                elif tp in fetch.partitions:
                    is_none = row.committed_offset <= NOTHING_COMMITTED
                    if is_none:
                        self._member.pending_commands.log_event(
                            "committed-offset-missing",
                            f"Found no committed offset for partition {partition_text(tp)}",
                            partition=str(tp),
                        )
                    found[tp] = (
                        None if is_none
                        else Offset(row.committed_offset, row.committed_leader_epoch, row.metadata or "")
                    )  # fmt: skip
        if refused is not None:
            self._done(fetch, {}, refused)
        elif len(found) < len(fetch.partitions):
            silent = min(fetch.partitions - found.keys())
            self._done(fetch, {}, OffsetFetchFailed(f"the coordinator's answer does not contain {silent}"))
        else:
            self._done(fetch, found, None)

    def _log_errors(self, body: OffsetFetchResponse) -> None:
        """Log the errors of partitions."""
        unstable: list[TopicPartition] = []
        for topic in body.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                if row.error_code == UNSTABLE_OFFSET_COMMIT:
                    unstable.append(tp)
                if row.error_code != 0:
                    self._member.pending_commands.log_event(
                        "committed-offsets-refused",
                        f"Failed to fetch offset for partition {partition_text(tp)}: {error_message(row.error_code)}",
                        error=str(error_code(row.error_code)),
                    )
        if unstable:
            self._member.pending_commands.log_event(
                "committed-offsets-unstable",
                "The following partitions still have unstable offsets which are not cleared on the broker side: "
                f"[{partitions_text(unstable)}], this could be either transactional offsets waiting for completion, or "
                "normal offsets waiting for replication after appending to local log",
                partitions=len(unstable),
            )

    def _react(self, fetch: _PendingOffsetFetch, code: int, error: ZkConsumerError) -> None:
        what = error_action(FETCH_TABLE, code)
        if what is ErrorAction.FIND_COORDINATOR:
            self._member.coordinator_discovery.mark_coordinator_unknown(f"error response {error_code(code).name}")
        if what is not ErrorAction.RAISE or error_code(code).is_retriable:
            self._retry(fetch, error)
        else:
            self._done(fetch, {}, error)

    def failed(self, sent: SentRequest, event: RequestFailed) -> None:
        """One of them has no answer."""
        fetch = self._open[sent.number]
        fetch.is_in_flight = False
        error = error_without_answer(event, self._member.config.group_id, RequestKind.OFFSET_FETCH)
        if event.failure is Failure.UNSUPPORTED and self._requires_stable:
            self._requires_stable = False
            fetch.retry_at_ms = 0
        elif event.error is not None or event.failure is Failure.UNSUPPORTED:
            self._done(fetch, {}, error)
        else:
            self._retry(fetch, error)

    def _retry(self, fetch: _PendingOffsetFetch, error: ZkConsumerError) -> None:
        fetch.last = error
        pause_ms = self._member.backoff.backoff(fetch.attempts - 1)
        fetch.retry_at_ms = min(self._member.pending_commands.now_ms + pause_ms, fetch.until_ms)

    def _done(
        self, fetch: _PendingOffsetFetch, offsets: dict[TopicPartition, Offset | None], error: ZkConsumerError | None
    ) -> None:
        del self._open[fetch.number]
        self._member.pending_commands.add(FetchDone(fetch.number, offsets, error))


def _by_topic(partitions: Collection[TopicPartition]) -> list[OffsetFetchTopic]:
    topics: dict[str, OffsetFetchTopic] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, OffsetFetchTopic(name=tp.topic, partition_indexes=[])).partition_indexes.append(
            tp.partition
        )
    return list(topics.values())
