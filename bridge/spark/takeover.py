"""``exclusive_takeover``: Spark's own kafka source reads a group alone, and the owner nodes say so to everybody.

    with exclusive_takeover("zk1:2181/kafka", "etl", "clicks") as takeover:
        stream = spark.readStream.format("kafka").option("startingOffsets", takeover.starting_offsets()) ...
        run_available_now(stream.writeStream ..., takeover.projector())

    waiting --nobody else is there--> held --somebody joined, or silence--> lost     queries are stopped, then
                                       '--the block ends--> given back               what they ended is written

That source is no member of anything, so nobody would know of it.  A keeper process (``bridge.spark.keeper``) holds
every owner node meanwhile: an original member that is started finds all partitions taken.  It is noticed within
``LOOK_MS``; the queries are stopped, what they finished is written, and everything is given to it.  It waits for that
as for any slow member, so queries should stop within ``rebalance.drain.timeout.ms`` (6 s): what is not over by then is
given away where the last write stands, and is read again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from bridge.spark.keeper.client import KeeperClient
from bridge.spark.keeper.settings import ALL_THREADS, KeeperSettings
from bridge.spark.membership import CommitMode, GroupMembership
from bridge.spark.owner import GroupOwner
from bridge.spark.starting import read_starts, refuse_unknown, told
from bridge.spark.starts import topic_names
from zkconsumer.admin.session import AdminSession
from zkconsumer.admin.stores import members_of
from zkconsumer.admin.words import registered, some
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import StopSignal, Worker, spawn
from zkconsumer.config import ConsumerConfig
from zkconsumer.core.view import STATIC
from zkconsumer.errors import GroupNotExclusive, UsageError, WorldError, ZkConsumerError
from zkconsumer.properties import decode_properties, parse_properties
from zkconsumer.runtime.from_config import make_consumer_id

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from bridge.spark.projector import GroupOffsetProjector, ProjectedStore

log = logging.getLogger("zkconsumer.spark")

WAIT_S = 10.0
"""How long others may take to go; a member that was killed lasts as long as its session (6 s by default)."""

SILENCE_S = 30.0
"""How long ZooKeeper, or the keeper, may be silent before the queries are stopped."""

LOOK_MS = 500
"""Between two looks at who is in the group."""

LAST_EVENT_MS = 5_000
"""How long a stopped query's last event is waited for, and then its offsets: whoever joined waits meanwhile."""

STOP_TIMEOUT_MS = 60_000
"""How long a look that is under way, or the stopping of queries, may take when the takeover ends."""

OFFSETS: dict[str, dict[str, str]] = {
    "zookeeper": {"offsets.storage": "zookeeper"},
    "kafka": {"offsets.storage": "kafka", "dual.commit.enabled": "false"},
    "both": {"offsets.storage": "kafka", "dual.commit.enabled": "true"},
}


def exclusive_takeover(
    zookeeper: str | None,
    group: str,
    topics: str | Iterable[str],
    *,
    wait_s: float = WAIT_S,
    silence_s: float = SILENCE_S,
    store: ProjectedStore = "zookeeper",
    config_file: str | Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> ExclusiveTakeover:
    """A takeover that begins with its ``with`` block.

    ``topics``: all that the query reads.  ``wait_s``: how long to wait for other members to go.  ``silence_s``: after
    so long without a word of ZooKeeper the query is stopped: others may have been let in by then.  ``store``: where
    offsets are written.  ``config_file`` and ``settings``: as of a consumer (security, time-outs).

    Raises ``UsageError`` for what is no setting, group or topic.
    """
    if store not in OFFSETS:
        raise UsageError(f"store={store!r}: expected one of {', '.join(map(repr, OFFSETS))}")
    names = topic_names(topics)
    if names is None:
        raise UsageError("name the topics that the query reads: every partition of them is to be held")
    file = None if config_file is None else Path(config_file)
    own = {**(settings or {}), "group.id": group, **OFFSETS[store]}
    if zookeeper is not None:
        own["zookeeper.connect"] = zookeeper
    config = ConsumerConfig.from_files(file, own)
    of_file = {} if file is None else parse_properties(decode_properties(file.read_bytes()))
    # Made here and not by the keeper: whoever looks at the group has to know which member is ours.
    member = make_consumer_id(config.group_id, config.consumer_id, SYSTEM_CLOCK)
    keeper = KeeperSettings(
        {**of_file, **own}, STATIC, tuple(names), member, ALL_THREADS, mode=CommitMode.AFTER_BATCH, takeover_wait_ms=0
    )
    return ExclusiveTakeover(
        group,
        names,
        member,
        lambda: KeeperClient(keeper),
        lambda: AdminSession.open(zookeeper, file),
        wait_ms=round(wait_s * 1000),
        silence_ms=round(silence_s * 1000),
    )


class ExclusiveTakeover:
    """See ``exclusive_takeover``."""

    def __init__(
        self,
        group: str,
        topics: list[str],
        member: str,
        join: Callable[[], GroupMembership],
        open_session: Callable[[], AdminSession],
        *,
        wait_ms: int,
        silence_ms: int,
        look_ms: int = LOOK_MS,
    ) -> None:
        """Begins nothing.  ``join`` makes the membership, under the id ``member``."""
        self.group = group
        self.topics = topics
        self.member = member
        self._join = join
        self._open_session = open_session
        self._wait_ms = wait_ms
        self._silence_ms = silence_ms
        self._look_ms = look_ms
        self._lock = threading.Lock()
        self._owner: GroupOwner | None = None
        self._loss: ZkConsumerError | None = None
        self._queries: dict[str, StreamingQuery] = {}
        self._projectors: list[GroupOffsetProjector] = []
        self._watcher: Worker | None = None

    # --- the block ----------------------------------------------------------------------------------------------

    def __enter__(self) -> ExclusiveTakeover:
        """Wait until nobody else is in the group, and take every partition.

        Raises ``GroupNotExclusive`` that names who is there, ``UsageError`` for a group that does not exist, and what
        joining can raise.
        """
        with self._open_session() as session:
            refuse_unknown(session, self.group)
            self._wait_alone(session)
        owner = GroupOwner(self.group, self._join())
        try:
            owner.take()
        except BaseException:
            owner.give_back()
            raise
        self._owner = owner
        log.info("takeover-held group=%s partitions=%d member=%s", self.group, owner.partitions, self.member)
        self._watcher = spawn(f"takeover-{self.group}", self._watch, self._died)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop what still reads, write what ended, and give everything back.

        Raises why the takeover was lost, if it was, and ``OffsetsNotCommitted`` for what could not be written; behind
        an error of the block they are notes.
        """
        assert self._watcher is not None, "the block was entered"
        self._watcher.stop(STOP_TIMEOUT_MS)
        trouble = self._loss or self._wind_up()
        for projector in self._projectors:
            projector.end()
        if trouble is not None and error is None:
            raise trouble
        if trouble is not None and error is not None and trouble is not error:
            error.add_note(f"And besides: {trouble}")

    # --- for the query ------------------------------------------------------------------------------------------

    @property
    def loss(self) -> ZkConsumerError | None:
        """Why the takeover ended before its block did, if it did."""
        return self._loss

    def check(self) -> None:
        """Raises why the takeover was lost, if it was."""
        if self._loss is not None:
            raise self._loss

    def starting_offsets(self, **how: Any) -> str:
        """As ``bridge.spark.starting_offsets``, with its keywords, while nobody else can move them.

        Raises what that raises, and why the takeover was lost.
        """
        with self._open_session() as session:
            starts = read_starts(session, self.group, self.topics, ours=self.member, **how)
        self.check()
        return told(starts)

    def projector(self, *, query: str | None = None, source: str | None = None) -> GroupOffsetProjector:
        """A projector that writes as the owner of the partitions, and ends with the takeover.

        The query that it follows is watched.  ``query``, ``source``: as of ``GroupOffsetProjector``.
        """
        from bridge.spark.projector import GroupOffsetProjector

        if self._owner is None:
            raise UsageError("the takeover has not begun: ask for its projector inside the with block")
        made = GroupOffsetProjector(
            None, self.group, self.topics, query=query, source=source, sink=self._owner, guard=self
        )
        self._projectors.append(made)
        return made

    def watch(self, query: StreamingQuery) -> None:
        """Stop this query when the takeover is lost; ``check``, and the end of the block, then say why.

        A query that comes too late is stopped at once.
        """
        with self._lock:
            self._queries[str(query.runId)] = query
            is_lost = self._loss is not None
        if is_lost:
            query.stop()

    # --- taking, and keeping ------------------------------------------------------------------------------------

    def _wait_alone(self, session: AdminSession) -> None:
        pause = StopSignal()
        give_up_ms = SYSTEM_CLOCK.now_ms() + self._wait_ms
        is_told = False
        while others := self._others(session):
            if SYSTEM_CLOCK.now_ms() >= give_up_ms:
                raise GroupNotExclusive(
                    f"{registered(len(others))} in group {self.group} after {self._wait_ms} ms ({some(others)}): stop "
                    f"them (zkconsumer groups describe {self.group} shows where they run), or read beside them with "
                    'format("zkconsumer")'
                )
            if not is_told:
                is_told = True
                log.info("takeover-waits group=%s others=%r", self.group, some(others))
            pause.wait(self._look_ms)

    def _others(self, session: AdminSession) -> list[str]:
        return [name for name in members_of(session, self.group) if name != self.member]

    def _watch(self, stop: StopSignal) -> None:
        session: AdminSession | None = None
        sure_ms = SYSTEM_CLOCK.now_ms()
        try:
            while not stop.wait(self._look_ms):
                why = "not every partition is held"
                try:
                    session = session or self._open_session()
                    if self._is_ours(session):
                        sure_ms = SYSTEM_CLOCK.now_ms()
                        continue
                except WorldError as error:
                    why = str(error)
                    if session is not None:
                        session.close()
                    session = None
                except ZkConsumerError as error:
                    self._lost(error)
                    return
                silent_ms = SYSTEM_CLOCK.now_ms() - sure_ms
                if silent_ms > self._silence_ms:
                    self._lost(
                        WorldError(
                            f"for {silent_ms} ms nobody knew whether group {self.group} is still ours ({why}); others "
                            "may have been let in, so the query was stopped. Start it again when ZooKeeper answers"
                        )
                    )
                    return
        finally:
            if session is not None:
                session.close()

    def _is_ours(self, session: AdminSession) -> bool:
        """Whether that is certain.  Raises ``GroupNotExclusive`` when it is not, and why it can never be again."""
        others = self._others(session)
        if others:
            raise GroupNotExclusive(
                f"the takeover of group {self.group} is over: {some(others)} joined it and gets the partitions. The "
                "query was stopped after its last batch, and the group goes on from there"
            )
        assert self._owner is not None, "the watcher is started behind it"
        return self._owner.look()

    # --- the end ------------------------------------------------------------------------------------------------

    def _lost(self, loss: ZkConsumerError) -> None:
        log.error("takeover-lost group=%s why=%r", self.group, str(loss))
        with self._lock:
            self._loss = loss
        trouble = self._wind_up()
        if trouble is not None:
            log.error("takeover-not-written group=%s why=%r", self.group, str(trouble))

    def _wind_up(self) -> ZkConsumerError | None:
        """Stop first, then write what ended, then give back: so nobody reads what a query has finished.

        Gives back why something could not be written.
        """
        assert self._owner is not None, "the block was entered"
        with self._lock:
            queries = list(self._queries.items())
        for run_id, query in queries:
            try:
                if query.isActive:
                    log.warning("takeover-query-stopped group=%s run=%s", self.group, run_id)
                    query.stop()
            except Exception as error:  # noqa: BLE001 (whatever Spark raises: the others are stopped all the same)
                log.error("takeover-query-runs-on group=%s run=%s error=%r: stop it", self.group, run_id, error)
        self._owner.is_reading = False
        trouble: ZkConsumerError | None = None
        for projector in self._projectors:
            for run_id, _ in queries:
                projector.await_end(run_id, LAST_EVENT_MS)
            try:
                projector.settle(LAST_EVENT_MS)
            except ZkConsumerError as error:
                trouble = error
        self._owner.give_back()
        return trouble

    def _died(self, name: str, error: BaseException) -> None:
        """A query that nobody watches must not go on."""
        self._lost(WorldError(f"{name} died, so group {self.group} is watched no more: {error!r}"))
