"""``TopicFinder``: reads the existing topics from Kafka's Metadata on a thread of its own.

    request_topics(names, done) --known--> done at once, and a request after it
                                '-unknown-> a request now --> done
    every metadata.max.age.ms, and when a leader is missing: a request --> on_change, if something changed

ZooKeeper sends a watch event for a change; Kafka must be polled.  And a response contains only what one broker knows.
So a known topic that is missing in a response counts as deleted only after ``MISSING_RESPONSES_MIN`` responses in
a row, and the partitions of a topic never become fewer, unless the topic has another id: then it was deleted and
created again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zkconsumer.base.threads import OnDemandThread, StopSignal, spawn
from zkconsumer.errors import AuthenticationException, ConnectorClosed, UnavailableError
from zkconsumer.kafka.bootstrap_client import NoBrokerAvailableError
from zkconsumer.kafka.metadata_client import TopicDescription, fetch_topics
from zkconsumer.wire.field_types import NO_UUID

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.bootstrap_client import BootstrapClient
    from zkconsumer.kafka.error_codes import ErrorCode
    from zkconsumer.types import BrokerAddress

MISSING_RESPONSES_MIN = 3
"""A known topic counts as deleted after this number of responses in a row without it."""

RETRY_POLL_MS = 1_000
"""The delay of the next request after a response without a known topic, or when no broker answered."""

MISSING_POLL_MS = 2_000
"""The interval of requests, at most, while a requested topic does not exist."""

FRESH_RESPONSE_MS = 1_000
"""A response of this age is as good as a new one."""

METADATA_TIMEOUT_MS = 8_000
"""How long brokers are asked, one after the other, before the round starts again."""

TOPIC_REQUEST_TIMEOUT_MS = 30_000
"""How long a request waits for brokers that do not answer before ``done`` reports it."""

log = logging.getLogger("zkconsumer.topics")


@dataclass(slots=True)
class _KnownTopic:
    """``partitions`` None: the topic does not exist.

    ``generation`` grows when a topic is created again; ``missing_responses``: responses in a row without a topic that
    existed; ``former_id``: of the topic that this one replaced; ``refusal``: the error, if the last response had
    nothing else.
    """

    partitions: tuple[int, ...] | None
    topic_id: bytes
    incarnation: int = 0
    missing_responses: int = 0
    former_id: bytes = b""
    final_error: ErrorCode | None = None
    racks: Mapping[int, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _TopicRequest:
    """A caller that waits for these topics (None: all topics)."""

    since_ms: int
    names: frozenset[str] | None
    done: Callable[[str], None]


class TopicFinder(OnDemandThread):
    """Every method may be called from any thread; callbacks come on the finder's thread, or at once on the caller's.

    ``watches_racks``: whether a change of the replicas' racks counts as a change.
    """

    def __init__(
        self,
        name: str,
        brokers: BootstrapClient,
        max_age_ms: int,
        clock: Clock,
        *,
        watches_racks: bool = False,
        on_brokers: Callable[[Iterable[BrokerAddress]], None],
        on_change: Callable[[], None],
        on_authentication_error: Callable[[AuthenticationException], None],
        on_thread_error: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__()
        self._name = name
        self._brokers = brokers
        self._max_age_ms = max_age_ms
        self._clock = clock
        self._watches_racks = watches_racks
        self._on_brokers = on_brokers
        self._on_change = on_change
        self._on_authentication_error = on_authentication_error
        self._on_thread_error = on_thread_error
        # All of these under the lock.
        self._known: dict[str, _KnownTopic] = {}
        self._knows_all = False
        self._wants_all = False
        self._wanted: frozenset[str] = frozenset()
        self._waiting: list[_TopicRequest] = []
        self._answered_at_ms: int | None = None
        self._due_ms: int | None = None
        self._has_logged_failure = False

    # --- requests -----------------------------------------------------------------------------------------------

    def request_topics(self, names: Iterable[str] | None, done: Callable[[str], None]) -> None:
        """Call ``done("")`` once these topics (None: all) are known, or ``done(why)`` after
        ``TOPIC_REQUEST_TIMEOUT_MS``.

        The present names replace those of earlier calls; after one call for all topics, every later change is
        reported.
        """
        with self._changed:
            if names is None:
                self._wants_all = True
                is_known = self._knows_all
                waiting = _TopicRequest(self._clock.now_ms(), None, done)
            else:
                self._wanted = frozenset(names)
                is_known = all(name in self._known for name in self._wanted)
                waiting = _TopicRequest(self._clock.now_ms(), self._wanted, done)
            if is_known:
                if self._answered_at_ms is None or self._clock.now_ms() - self._answered_at_ms > FRESH_RESPONSE_MS:
                    self._schedule_request()
            else:
                self._waiting.append(waiting)
                self._schedule_request()
        if is_known:
            done("")

    def partitions(self, topic: str) -> tuple[int, ...] | None:
        """The partitions of a topic, as far as they are known; None: the topic is missing."""
        with self._changed:
            known = self._known.get(topic)
            return None if known is None else known.partitions

    def is_known(self, topic: str) -> bool:
        """Whether brokers have answered a request for this topic; a missing topic may not have been requested."""
        with self._changed:
            return topic in self._known

    def rejected(self, topics: Iterable[str]) -> dict[str, ErrorCode]:
        """Those of these topics that brokers rejected in their last response, and the errors
        (``metadata_client.FINAL_TOPIC_ERRORS``).
        """
        with self._changed:
            found = {topic: self._known[topic].final_error for topic in topics if topic in self._known}
        return {topic: refusal for topic, refusal in found.items() if refusal is not None}

    def racks(self, topic: str) -> Mapping[int, frozenset[str]]:
        """Partition -> the racks of its replicas, from the latest response; empty if brokers have none."""
        with self._changed:
            known = self._known.get(topic)
            return {} if known is None else known.racks

    def incarnation(self, topic: str) -> int:
        """How often the topic was created while it was known here."""
        with self._changed:
            known = self._known.get(topic)
            return 0 if known is None else known.incarnation

    def all_topics(self) -> tuple[str, ...]:
        """The names of all known topics, sorted."""
        with self._changed:
            return tuple(sorted(name for name, known in self._known.items() if known.partitions is not None))

    def refresh(self) -> None:
        """Something does not match the known topics: send a request soon."""
        with self._changed:
            now_ms = self._clock.now_ms()
            if self._answered_at_ms is None or now_ms - self._answered_at_ms > FRESH_RESPONSE_MS:
                self._schedule_request()
            else:
                self._due_ms = min(self._due_ms or now_ms + FRESH_RESPONSE_MS, now_ms + FRESH_RESPONSE_MS)
                self._changed.notify_all()

    def _schedule_request(self) -> None:
        """Called with the lock held."""
        self._due_ms = self._clock.now_ms()
        if self._worker is None and not self._is_closed:
            name = f"{self._name}-topic-finder-thread"
            self._worker = spawn(name, self._run, self._on_thread_error, wake=self._wake)
        self._changed.notify_all()

    def _wake(self) -> None:
        self._brokers.interrupt()
        with self._changed:
            self._changed.notify_all()

    # --- the thread ---------------------------------------------------------------------------------------------

    def _run(self, stop: StopSignal) -> None:
        while not stop.is_set():
            with self._changed:
                if stop.is_set():  # it may have been set before there was a thread to wake
                    return
                wait_ms = None if self._due_ms is None else self._due_ms - self._clock.now_ms()
                if wait_ms is None or wait_ms > 0:
                    self._changed.wait(None if wait_ms is None else wait_ms / 1000)
                    continue
                self._due_ms = None
                waiting, self._waiting = self._waiting, []
                asked = self._wanted.union(*(each.names for each in waiting if each.names is not None))
                names = None if self._wants_all else sorted(asked)
            self._request_metadata(names, waiting, stop)

    def _request_metadata(self, names: list[str] | None, waiting: list[_TopicRequest], stop: StopSignal) -> None:
        try:
            described, brokers = self._brokers.execute(
                lambda connection, ranges, timeout_ms: fetch_topics(connection, ranges, names, timeout_ms),
                stop.is_set,
                total_timeout_ms=METADATA_TIMEOUT_MS,
            )
        except ConnectorClosed:
            return
        except UnavailableError as error:
            self._handle_failure(error, waiting)
            return
        self._on_brokers(brokers)
        with self._changed:
            has_changed = self._apply_response(described, names)
            first = self._answered_at_ms is None
            self._answered_at_ms = self._clock.now_ms()
            self._has_logged_failure = False
            self._schedule_next(is_answered=True)
        for each in waiting:
            each.done("")
        if has_changed and not first:
            self._on_change()

    def _handle_failure(self, error: UnavailableError, waiting: list[_TopicRequest]) -> None:
        with self._changed:
            now_ms = self._clock.now_ms()
            self._waiting += [each for each in waiting if now_ms - each.since_ms < TOPIC_REQUEST_TIMEOUT_MS]
            self._schedule_next(is_answered=False)
            has_answered = self._answered_at_ms is not None
            # The text names the broker that was asked last, which differs each time.
            is_news, self._has_logged_failure = not self._has_logged_failure, True
        if isinstance(error, NoBrokerAvailableError) and error.authentication_error is not None and not has_answered:
            self._on_authentication_error(error.authentication_error)
        if is_news:
            log.warning("topic-lookup-failed reason=%r", str(error))
        for each in waiting:
            if now_ms - each.since_ms >= TOPIC_REQUEST_TIMEOUT_MS:
                each.done(str(error))

    def _schedule_next(self, *, is_answered: bool) -> None:
        """Set the time of the next request; called with the lock held."""
        pause_ms = self._max_age_ms
        if not is_answered or any(known.missing_responses for known in self._known.values()):
            pause_ms = min(pause_ms, RETRY_POLL_MS)
        elif any(self._known[name].partitions is None for name in self._wanted if name in self._known):
            pause_ms = min(pause_ms, MISSING_POLL_MS)
        due_ms = self._clock.now_ms() + pause_ms
        self._due_ms = due_ms if self._due_ms is None else min(self._due_ms, due_ms)

    # --- responses ----------------------------------------------------------------------------------------------

    def _apply_response(self, described: Mapping[str, TopicDescription], names: Collection[str] | None) -> bool:
        """Store a response; returns whether something changed.  Called with the lock held."""
        wanted = set(described) | set(self._known) | self._wanted if names is None else set(names)
        has_changed = False
        for name in wanted:
            has_changed |= self._apply_topic(name, described.get(name))
        self._knows_all |= names is None
        # Nothing reports a change of topics that are not requested any more; deleted ones are kept only for requests.
        kept = self._wanted | (wanted if names is not None else {n for n, k in self._known.items() if k.partitions})
        self._known = {name: known for name, known in self._known.items() if name in kept or known.missing_responses}
        return has_changed

    def _apply_topic(self, name: str, described: TopicDescription | None) -> bool:
        before = self._known.get(name) or _KnownTopic(None, b"")
        is_first = name not in self._known
        self._known[name] = before
        refusal_before, before.final_error = before.final_error, None if described is None else described.final_error
        if before.final_error is not None:
            return before.final_error != refusal_before
        if described is None or described.is_unknown:
            if before.partitions is None:
                return False
            before.missing_responses += 1
            if before.missing_responses >= MISSING_RESPONSES_MIN:
                self._known[name] = _KnownTopic(None, b"", before.incarnation, former_id=before.former_id)
                return True
            return False
        if described.error is not None and not described.partitions:
            # It exists, but this broker cannot return more about it now.
            return False
        if described.topic_id != NO_UUID and described.topic_id == before.former_id:
            # This broker has not learned yet that it was deleted and created again; a topic's id is never used again.
            return False
        partitions, generation, former_id = described.partitions, before.incarnation, before.former_id
        # Brokers before 2.8 return no id.  In a cluster that is being upgraded some do and some do not.
        topic_id = before.topic_id if described.topic_id == NO_UUID else described.topic_id
        is_same = topic_id == before.topic_id or before.topic_id in (b"", NO_UUID)
        racks = described.racks or before.racks  # a broker before 0.10 returns none
        if before.partitions is not None and is_same:
            partitions = tuple(sorted({*before.partitions, *partitions}))
            racks = {**before.racks, **described.racks}
        elif not is_first:
            generation += 1
            former_id = former_id if is_same else before.topic_id
        self._known[name] = _KnownTopic(partitions, topic_id, generation, former_id=former_id, racks=racks)
        if self._watches_racks and racks != before.racks:
            return True
        return is_first or (before.partitions, before.incarnation) != (partitions, generation)
