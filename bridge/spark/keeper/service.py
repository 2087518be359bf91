"""What each call of a query does: a membership, a holder that lends, and the claims, in one process.

Calls come one after the other on the keeper's main thread.  What touches the group runs on the membership's own thread
(``Turns``), so that a step of a call is whole: nothing of the group can happen in its middle.  Every wait ends at the
call's deadline (``until_ms``), or when the query is gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from functools import partial

from bridge.spark.claims import Claimant, ClaimReport, OnRewind, claim, stands
from bridge.spark.keeper.metrics import MetricsServer, render
from bridge.spark.keeper.opening import MakeStore, Opened
from bridge.spark.keeper.seek import seek
from bridge.spark.keeper.settings import LISTEN_NOWHERE, KeeperSettings
from bridge.spark.keeper.takeover import not_alone, threads_for
from bridge.spark.keeper.turns import ANSWER_RESERVE_MS, POLL_MS, WRITE_RESERVE_MS, Turns
from bridge.spark.membership import (
    NO_OFFSET,
    Claimed,
    CommitMode,
    Ended,
    Holding,
    Refused,
    Stand,
    Taken,
    Wanted,
)
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.core import events as ev
from zkconsumer.core.events import StoredOffset
from zkconsumer.core.stores import Stores
from zkconsumer.errors import (
    ConsumerRebalanceFailedException,
    UsageError,
    WorldError,
)
from zkconsumer.kafka.connection import Connect
from zkconsumer.kafka.offsets_channel import Fetched
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.procedures import Procedure
from zkconsumer.zk.registration import format_registration, registration_of
from zkconsumer.zk.requests import SetData

NOT_HELD = "this query does not hold the partition"

log = logging.getLogger("zkconsumer.keeper")


class Service:
    """``open`` first, ``leave`` last; the calls in between as ``GroupMembership`` describes them."""

    def __init__(
        self,
        settings: KeeperSettings,
        *,
        clock: Clock = SYSTEM_CLOCK,
        make_store: MakeStore | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._opened = Opened(settings, clock, make_store, connect)
        self._membership = self._opened.membership
        self._holder = self._opened.holder
        self._turns = Turns(self._opened, clock)
        self._lending = self._holder.lending
        self._meters = self._opened.meters
        self._counters = self._opened.counters
        self._stores = self._membership.group.settings.stores
        self._metrics: MetricsServer | None = None
        self._has_lent = False
        self._is_closed = False

    def open(self) -> None:
        """Become a member; raises what ``Opened.join`` raises, and ``UsageError`` for ``metrics.listen``."""
        if self._settings.metrics_listen != LISTEN_NOWHERE:
            listen, died = self._settings.metrics_listen, self._membership.thread_died
            self._metrics = MetricsServer(listen, self._rendered, died)
            log.info("keeper-metrics listen=%s port=%d", self._settings.metrics_listen, self._metrics.port)
        self._opened.join(self._turns.pause)

    def stop_waiting(self) -> None:
        """The query is gone: whatever waits here goes on at once.  From any thread."""
        self._turns.gone.set()
        self._holder.end(None)

    def leave(self) -> bool:
        """Give everything back, end the session and every thread; True when nothing is left behind."""
        if self._is_closed:
            return True
        self._holder.is_over = True
        self._membership.control.call(self._holder.let_go)
        left = not self._opened.is_started or self._membership.leave()
        return self.abandon() and left

    def abandon(self) -> bool:
        """End the session, which takes owner nodes and registration with it, and every thread: the quickest way out.

        There is nothing to be committed: what had ended was written when it ended.
        """
        self._is_closed = True
        clean = self._membership.close()
        if self._metrics is not None:
            self._metrics.close()
        return clean

    # --- the calls ----------------------------------------------------------------------------------------------

    def begin_batch(self, ended: Mapping[TopicPartition, Ended], wait_ms: int, until_ms: int) -> Holding:
        self._check()
        to_write = self._turns.on_group(partial(self._holder.ended, ended), until_ms)
        if to_write:
            self._write(to_write, until_ms)
        self._wait_for_share(min(wait_ms, self._turns.left_ms(until_ms)))
        self._check()
        holding = self._turns.on_group(self._lend, until_ms)
        self._check_hopeless(holding)
        self._check_alone(holding)
        return holding

    def planned(self, partitions: Collection[TopicPartition], until_ms: int) -> None:
        self._check()
        self._turns.on_group(partial(self._holder.planned, partitions), until_ms)

    def stands(self, partitions: Collection[TopicPartition], query: str, until_ms: int) -> dict[TopicPartition, Stand]:
        self._check()
        wanted = list(partitions)
        found: dict[TopicPartition, Stand] = dict.fromkeys(wanted, Stand(NO_OFFSET, None))
        if self._stores.in_zookeeper:
            group, turns = self._opened.group, self._turns
            look = partial(turns.run, lambda: stands(group, query, wanted, self._births()), until_ms)
            found = turns.again(lambda: look().result(), until_ms)
        if self._stores.in_kafka and self._settings.mode is not CommitMode.CLAIM:
            in_kafka = self._in_kafka(wanted, until_ms)
            found = {tp: Stand(max(stand.offset, in_kafka[tp]), stand.claimed) for tp, stand in found.items()}
        return found

    def claim(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, Wanted], until_ms: int
    ) -> dict[TopicPartition, Claimed]:
        self._check()
        if self._settings.mode is not CommitMode.CLAIM:
            raise UsageError(f"group.offsets.commit={self._settings.mode.value} claims nothing")
        self._wait_for_share(self._turns.left_ms(until_ms) - WRITE_RESERVE_MS)
        self._check()
        report = self._turns.again(lambda: self._claim(query, batch, ranges, until_ms), until_ms)
        self._count_claims(ranges, report)
        if self._stores is Stores.BOTH:
            held = self._turns.on_group(lambda: set(self._lending.epochs), until_ms)
            taken = {tp: one.end for tp, one in report.answers.items() if isinstance(one, Taken) and tp in held}
            self._membership.commit_later(taken)
        return report.answers

    def seek(self, offsets: Mapping[TopicPartition, int], until_ms: int) -> dict[TopicPartition, str]:
        self._check()
        if self._settings.mode is CommitMode.NONE:
            return dict.fromkeys(offsets, "group.offsets.commit=none writes nothing")
        if self._stores.in_zookeeper:
            refused = self._turns.again(lambda: self._seek_in_zookeeper(offsets, until_ms), until_ms)
        else:
            refused = self._turns.on_group(lambda: self._seek_nowhere(offsets), until_ms)
        if self._stores.in_kafka:
            told = {tp: offset for tp, offset in offsets.items() if tp not in refused}
            not_told = self._membership.commit(told, self._turns.left_ms(until_ms))
            refused |= {tp: str(why) for tp, why in not_told.items()}
        return refused

    def brokers(self) -> list[BrokerAddress]:
        self._check()
        return self._opened.brokers()

    def observe(self) -> dict[str, int]:
        """Counters and gauges, by name; works also after the membership has failed."""
        lending = self._lending
        gauges = {
            "owned_partitions": len(lending),
            "lent_partitions": len(lending.lent),
            "leaving_partitions": len(lending.leaving),
            "share_is_whole": int(self._meters.is_whole),
            "rebalances": self._meters.rebalances,
        }
        return self._counters.snapshot() | gauges

    # --- steps --------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self._turns.check()

    def _check_hopeless(self, holding: Holding) -> None:
        """What only a person can change is an error, and no query that stands still."""
        group = self._membership.group
        if not holding.is_settled and (why := group.withdrawn or group.assignment_refused):
            words = f"this query cannot be a member of group {self._opened.group}: {why}"
            raise ConsumerRebalanceFailedException(words)
        missing = () if group.view is None else sorted(group.view.missing & set(self._settings.topics))
        if not self._has_lent and missing:
            words = f"there is no topic {missing[0]!r}: create it, or correct the topics that are subscribed to"
            raise UsageError(words)
        self._has_lent = self._has_lent or holding.is_settled

    def _wait_for_share(self, timeout_ms: int) -> None:
        until_ms = self._clock.now_ms() + timeout_ms
        while not (self._meters.is_whole and self._opened.lease.holds):
            left_ms = until_ms - self._clock.now_ms()
            if left_ms <= 0 or self._holder.is_over:
                return
            self._holder.wait(lambda: self._meters.is_whole and self._opened.lease.holds, min(left_ms, POLL_MS))

    def _lend(self) -> Holding:
        group = self._membership.group
        sizes = group.view.topics if group.view is not None else {}
        is_settled = self._meters.is_whole and self._opened.lease.holds
        topics = {topic: len(sizes.get(topic, ())) for topic in sorted(group.own_topics)}
        return Holding(self._holder.lend(), is_settled, self._meters.rebalances, topics)

    def _write(self, ended: Mapping[TopicPartition, int], until_ms: int) -> None:
        """What cannot be written now is written with the next commit, while the partition is ours."""
        refused = self._membership.commit(ended, self._turns.left_ms(until_ms) - ANSWER_RESERVE_MS)
        if refused:
            self._counters.add("spark_offsets_not_written", len(refused))
            tp, why = next(iter(sorted(refused.items())))
            log.warning("spark-offsets-not-written partitions=%d first=%s why=%r", len(refused), tp, str(why))

    def _claim(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, Wanted], until_ms: int
    ) -> ClaimReport:
        """What is being claimed is not given back before its last write has its answer, however late that comes."""

        def made() -> Procedure[ClaimReport]:
            session_id, held = self._turns.session_id(), self._lending.begin_claim(ranges)
            claimant = Claimant(
                self._opened.group, query, self._settings.run, session_id, held, self._membership.group.control_version,
                OnRewind(self._settings.on_rewind), self._births(), self._opened.security.acl, self._clock.wall_ms(),
            )  # fmt: skip
            try:
                report = yield from claim(claimant, batch, ranges)
                self._placed(report.stored, held)
            finally:
                self._holder.end_claim(held)
            return report

        report = self._turns.run(made, until_ms)
        report.result()
        return report

    def _seek_in_zookeeper(self, offsets: Mapping[TopicPartition, int], until_ms: int) -> dict[TopicPartition, str]:
        """The same of a seek; gives back what was not written."""
        opened = self._opened

        def made() -> Procedure[dict[TopicPartition, str]]:
            session_id, held = self._turns.session_id(), self._lending.begin_claim(offsets)
            threads, version = self._lending.threads, self._membership.group.control_version
            wanted = {tp: offsets[tp] for tp in held}
            refused = dict.fromkeys(offsets.keys() - held.keys(), NOT_HELD)
            if not wanted:
                return refused
            try:
                stored, why = yield from seek(opened.group, session_id, wanted, threads, version, opened.security.acl)
                self._placed(stored, held)
            finally:
                self._holder.end_claim(held)
            return refused | why

        return self._turns.run(made, until_ms)

    def _seek_nowhere(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """With offsets in Kafka alone: what is known of the stored ones counts no more, and the commit follows."""
        held = {tp: epoch for tp, epoch in self._lending.epochs.items() if tp in offsets}
        for tp, epoch in held.items():
            self._lending.stands_at(tp, epoch, offsets[tp])
        self._membership.control.feed(ev.OffsetsPlaced(dict.fromkeys(held, StoredOffset())))
        return dict.fromkeys(offsets.keys() - held.keys(), NOT_HELD)

    def _placed(self, stored: Mapping[TopicPartition, StoredOffset], epochs: Mapping[TopicPartition, int]) -> None:
        """On the group's thread: where the group stands now, as far as the ownership is still the same."""
        ours = {tp: one for tp, one in stored.items() if self._lending.stands_at(tp, epochs.get(tp, 0), one.offset)}
        if ours:
            self._membership.control.feed(ev.OffsetsPlaced(ours))

    def _in_kafka(self, partitions: list[TopicPartition], until_ms: int) -> dict[TopicPartition, int]:
        """What the coordinator keeps; raises ``WorldError`` when it does not tell."""
        channel = self._membership.channel
        assert channel is not None, "asked only where Kafka keeps offsets"
        answers: list[Fetched] = []
        settled = threading.Event()

        def done(fetched: Fetched) -> None:
            answers.append(fetched)
            settled.set()

        channel.fetch(partitions, self._turns.left_ms(until_ms) - ANSWER_RESERVE_MS, done)
        self._turns.wait_for(settled, until_ms, "the group's coordinator")
        failed = answers[0].failed
        if failed:
            tp, why = next(iter(sorted(failed.items())))
            raise WorldError(f"the group's coordinator does not tell the offset of {tp}: {why}")
        return dict(answers[0].offsets)

    def _count_claims(self, ranges: Mapping[TopicPartition, Wanted], report: ClaimReport) -> None:
        refused = {tp: one.why for tp, one in report.answers.items() if isinstance(one, Refused)}
        taken = {tp: one for tp, one in report.answers.items() if isinstance(one, Taken)}
        narrowed = [tp for tp, one in taken.items() if (one.first, one.end) != (ranges[tp].first, ranges[tp].end)]
        self._counters.add("spark_claims_taken", len(taken) - len(narrowed))
        self._counters.add("spark_claims_narrowed", len(narrowed))
        self._counters.add("spark_claims_refused", len(refused))
        self._counters.add("spark_rewinds_ignored", len(report.rewound))
        for tp in narrowed:
            log.info("spark-claim-narrowed partition=%s wanted=%s taken=%s", tp, ranges[tp], taken[tp])
        for tp, why in refused.items():
            log.info("spark-claim-refused partition=%s why=%r", tp, why)
        for tp, (found, claimed) in report.rewound.items():
            log.warning("spark-group-rewound partition=%s found=%d claimed=%d: written over", tp, found, claimed)

    # --- takeover -----------------------------------------------------------------------------------------------

    def _check_alone(self, holding: Holding) -> None:
        """Raises ``GroupNotExclusive``; asks for more threads when a topic has outgrown them."""
        if not self._settings.is_takeover:
            return
        group, view = self._membership.group, self._membership.group.view
        others = () if view is None else [name for name in view.members if name != self._settings.consumer_id]
        if others:
            raise not_alone(self._opened.group, others)
        if not holding.is_settled and group.refused:
            raise not_alone(self._opened.group, {f"{tp} ({why})" for tp, why in group.refused.items()})
        if holding.is_settled and (threads := threads_for(holding.topics)) > self._opened.threads:
            self._grow(threads)

    def _grow(self, threads: int) -> None:
        log.info("takeover-grown threads=%d before=%d", threads, self._opened.threads)
        self._opened.threads = threads
        subscription = self._settings.subscription(threads)
        self._membership.join(subscription)
        data = format_registration(registration_of(subscription, str(self._clock.wall_ms())))
        path = paths.registration(self._opened.group, self._settings.consumer_id)
        changed = ev.GroupChanged("our own registration")
        control = self._membership.control
        self._opened.store.submit(self._turns.session_id(), [SetData(path, data)], lambda _: control.post(changed))

    # --- threads and deadlines ----------------------------------------------------------------------------------

    def _births(self) -> Mapping[str, int]:
        """Which offsets do not count because their topic is younger."""
        view = self._membership.group.view
        return view.births if view is not None and self._opened.config.offsets_older_than_topic == "ignore" else {}

    def _rendered(self) -> str:
        return render(self._opened.group, self._settings.consumer_id, self.observe())
