r"""Reads the committed offsets of owned partitions from every offset store of the group; one read at a time.

    read --> ReadPositions (ZooKeeper) --+
         \-> FetchOffsets  (Kafka) ------+--> both answered: each partition starts from the larger offset

Theory of operation
-------------------

*Order.*  The read follows the acquisition, so that it sees the last commit of the former owner.  (The Scala consumer
reads before it creates the owner node, so it may start from an offset before that commit.)  The fetch follows the read
(``defect_28_a_stored_offset_never_decreases.txt``).

*States.*  No read is under way; or one or both stores have not answered (``is_reading``).  Partitions start together,
when every store has answered, since the larger offset is not known before.  The answer decides each partition:

    every store answers with an offset, or none            it is fetched from the larger one
    a store cannot read it                                 ``POSITION_UNREADABLE``: the member keeps it without fetching
    the connection broke before the answer                 it stays ``ACQUIRED``

The next attempt reads the last two again.  An offset that could not be read never counts as "no offset": the reset
policy would skip records or repeat all of them.  With two stores the offset of the other one is not enough, as it may
be the smaller one (``kafka_an_unreadable_offset_znode_stops_only_its_partition.txt``).

*Who waits.*  The attempt: it is complete when all partitions are fetched.  Kafka's answer has a timeout
(``rebalance.offsets.timeout.ms``); the Scala consumer asks again without a limit and blocks every rebalance meanwhile.
ZooKeeper's answer ends with the session, which cancels the read.

*A lost answer.*  It costs an attempt.  A connection to ZooKeeper that breaks leaves partitions without an answer (in
neither map of ``PositionsRead``, ``positions_without_an_answer_are_read_again.txt``).  What Kafka does not answer is in
``failed`` (``defect_32_a_failed_offset_fetch_is_repeated.txt``).

*A loss, a leave, the end of the session.*  A partition that was lost during the read is ignored when the answer
arrives (``an_owner_node_that_is_deleted_before_the_offset_is_read_is_acquired_again.txt``).  It cannot be acquired
again before that: the attempt ends with the answers, and only the next one acquires.  A member that leaves, or whose
session ended, cancels the read; late answers have an old ticket
(``a_leave_during_the_read_of_positions_starts_no_fetch.txt``).
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member import ownership
from zkconsumer.member.log_rate_limiter import LoggedReason
from zkconsumer.member.offset_stores import OffsetSource
from zkconsumer.member.partition_state_machine import NO_POSITION, PositionKnown, PositionUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from zkconsumer.member.commands import Command
    from zkconsumer.member.group_settings import GroupSettings
    from zkconsumer.member.new_partition_tracker import NewPartitionTracker
    from zkconsumer.member.offset_stores import OffsetStoreSelection
    from zkconsumer.member.partition_state_machine import PartitionStateMachine
    from zkconsumer.types import TopicPartition


class PositionReader:
    """One read under way, with the answers so far."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PartitionStateMachine],
        new_ticket: Callable[[], int],
        new_partitions: NewPartitionTracker,
        settings: GroupSettings,
    ) -> None:
        self.is_kafka_unavailable = False
        """Whether Kafka failed for some partition of the last read.  Then the pauses between attempts stay short: the
        partitions are ours, and nothing but the coordinator is missing."""
        self.unsupported = ""
        """Why no broker of the cluster stores offsets (they are older than 0.8.2); "" if brokers do."""
        self._partitions = partitions
        """The member's table; read only, but for the events to its machines."""
        self._new_ticket = new_ticket
        self._new_partitions = new_partitions
        self._stores = settings.offset_stores
        self._timeout_ms = settings.kafka_timeout_ms
        self._requested: tuple[TopicPartition, ...] = ()
        """The partitions of the read under way, or of the last one."""
        self._from_zookeeper: int | ev.PositionsRead | None = None
        """The ticket until the answer has arrived, then the answer; None if no read is under way or it is not asked."""
        self._from_kafka: int | ev.OffsetsFetched | None = None
        """The same for Kafka; at least one of the two is a ticket while a read is under way."""
        self._logged_unreadable: dict[TopicPartition, str] = {}
        """Owned partition -> why its offset is unreadable, as it was logged last."""
        self._logged_kafka_failure = LoggedReason()
        """Cleared by a read in which Kafka answered for all."""

    @property
    def is_reading(self) -> bool:
        """Whether a store has not answered yet."""
        return isinstance(self._from_zookeeper, int) or isinstance(self._from_kafka, int)

    def read(self, partitions: Sequence[TopicPartition], session_id: int) -> list[Command]:
        """Read these; cancels an earlier read."""
        assert partitions, "a read of nothing would wait for an answer"
        assert all(self._partitions[tp].is_owned for tp in partitions), "acquire before reading the position"
        out = self.cancel()
        assert not self.is_reading, "one read at a time"
        self._requested = tuple(partitions)
        if self._stores.uses_zookeeper:
            self._from_zookeeper = self._new_ticket()
            out.append(do.ReadPositions(self._from_zookeeper, session_id, self._requested))
        if self._stores.uses_kafka:
            self._from_kafka = self._new_ticket()
            out.append(do.FetchOffsets(self._from_kafka, session_id, self._requested, self._timeout_ms))
        return out

    def on_result(self, event: ev.PositionsRead | ev.OffsetsFetched) -> list[Command] | None:
        """Process an answer; return the commands, or None if it is outdated or the other store has not answered.

        A store that is not used counts as one without offsets.
        """
        match event:
            case ev.PositionsRead() if event.ticket == self._from_zookeeper:
                self._from_zookeeper = event
            case ev.OffsetsFetched() if event.ticket == self._from_kafka:
                self._from_kafka = event
            case _:
                return None
        stored, fetched = self._from_zookeeper, self._from_kafka
        if isinstance(stored, int) or isinstance(fetched, int):  # the other store has not answered yet
            return None
        self._from_zookeeper = self._from_kafka = None
        stored = stored or ev.PositionsRead(0, dict.fromkeys(self._requested, ev.StoredOffset()), {})
        fetched = fetched or ev.OffsetsFetched(0, dict.fromkeys(self._requested, NO_POSITION), {})
        self.unsupported = fetched.unsupported
        return self._merged(stored, fetched)

    def _merged(self, stored: ev.PositionsRead, fetched: ev.OffsetsFetched) -> list[Command]:
        """Start the partitions that are in both answers, and mark those that one store cannot read.

        An unreadable znode has a log line for each partition, because each must be repaired; a failure of Kafka has one
        for all of them.
        """
        assert not self.is_reading, "every store has answered"
        out: list[Command] = []
        known: dict[TopicPartition, PartitionStateMachine] = {}
        silent: dict[TopicPartition, str] = {}
        for tp in self._requested:
            held = self._partitions.get(tp)  # None when its owner node was deleted meanwhile
            if held is None:
                continue
            if tp in stored.failed:
                held.handle(PositionUnreadable(stored.failed[tp]))
                out += self._log_unreadable(tp, stored.failed[tp])
            elif tp in fetched.failed:
                held.handle(PositionUnreadable(fetched.failed[tp]))
                silent[tp] = fetched.failed[tp]
            elif tp in stored.stored and tp in fetched.offsets:
                held.handle(PositionKnown(stored.stored[tp], fetched.offsets[tp]))
                known[tp] = held
                self._logged_unreadable.pop(tp, None)
        out += self._log_kafka_failures(silent)
        if not known:
            return out
        if self._stores.uses_kafka:
            out.append(_starts_log_event(known, self._stores))
        positions, log_commands = self._new_partitions.start_positions(known)
        threads = {tp: held.thread for tp, held in known.items()}
        sources = {tp: held.source for tp, held in known.items()}
        epochs = {tp: held.czxid for tp, held in known.items()}
        return [*out, *log_commands, ownership.StartFetching(positions, threads, sources, epochs)]

    def cancel(self) -> list[Command]:
        """Ignore the answers of the read under way; ZooKeeper's request cannot be recalled, Kafka's job can."""
        fetching, self._from_zookeeper, self._from_kafka = self._from_kafka, None, None
        return [do.CancelKafkaRequest(fetching)] if isinstance(fetching, int) else []

    def on_ownership_lost(self, tp: TopicPartition) -> None:
        """This member does not own the partition any more."""
        self._logged_unreadable.pop(tp, None)

    def _log_unreadable(self, tp: TopicPartition, why: str) -> list[Command]:
        if self._logged_unreadable.get(tp) == why:
            return []
        self._logged_unreadable[tp] = why
        words = f"partition={tp} reason={why!r}: this member owns it, but does not read it until that is repaired"
        return [do.LogEvent("ERROR", "offset-unreadable", words)]

    def _log_kafka_failures(self, silent: Mapping[TopicPartition, str]) -> list[Command]:
        """Log failed offset fetches once for each reason; reasons that differ only in digits are the same.

        Nothing is logged when no broker stores offsets: the member ends with that error.
        """
        self.is_kafka_unavailable = bool(silent)
        if not silent:
            self._logged_kafka_failure.clear()
            return []
        first, why = next(iter(silent.items()))
        if self.unsupported or not self._logged_kafka_failure.is_new(why):
            return []
        words = f"partitions={len(silent)} first={first} reason={why!r}: not read until Kafka answers"
        return [do.LogEvent("ERROR", "offset-fetch-failed", words)]


def _starts_log_event(known: Mapping[TopicPartition, PartitionStateMachine], stores: OffsetStoreSelection) -> Command:
    """The log command that counts the partitions by the store that their start offset is from.

    ``first_apart`` names one whose stores differ: a commit to one store failed, or a member writes to one store only.
    """
    count = Counter(held.source for held in known.values())
    words = f"partitions={len(known)} kafka={count[OffsetSource.KAFKA]} neither={count[OffsetSource.NEITHER]}"
    if stores.uses_zookeeper:
        words += f" zookeeper={count[OffsetSource.ZOOKEEPER]} both={count[OffsetSource.BOTH]}"
        apart = (tp for tp, held in known.items() if held.source in (OffsetSource.KAFKA, OffsetSource.ZOOKEEPER))
        for tp in islice(apart, 1):
            words += f" first_apart={tp} in_zookeeper={known[tp].stored.offset} in_kafka={known[tp].kafka_offset}"
    return do.LogEvent("INFO", "positions-read", words)
