"""The nodes that a migrating member keeps up to date in ZooKeeper: its acknowledgement, and the mirrored offsets.

One write of each at a time; changes that come meanwhile are written next.  All of it runs on the control thread of the
ZooKeeper side.

    idle --set, add, or a new session--> writing --done--> idle, or writing again if there is something newer

Why one at a time: requests of one session are executed in order, but each write first reads.  Two procedures at once
could overtake each other, and the older content would stay.

When an answer is lost, or the session ends during a write: the procedure ends with an error.  The acknowledgement is
written again by the next ``write``, which ``MigratingMembership`` calls at each tick.  Mirrored offsets are lost; a
rollback reads Kafka (``test_in_a_rollback_offsets_that_were_not_mirrored_are_requested_until_kafka_answers``).  A
process that was paused longer than its session has no acknowledgement any more, and writes it again in the next session
(``test_an_acknowledgement_comes_again_with_the_next_session``).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bridge.migration.dual.connector.member_procedures import write_acknowledgement, write_mirrored_offsets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.migration.dual.machine.acknowledgement import Acknowledgement
    from zkconsumer.runtime.zookeeper_membership import ZooKeeperMembership
    from zkconsumer.types import TopicPartition
    from zkconsumer.zk.requests import Acl

log = logging.getLogger("zkconsumer.member")


class AcknowledgementWriter:
    """Writes the acknowledgement in the present session, again in each new session, and until a write succeeds."""

    def __init__(self, side: ZooKeeperMembership, group: str, acl: tuple[Acl, ...] | None) -> None:
        self._side = side
        self._group = group
        self._acl = acl
        self._wanted: Acknowledgement | None = None
        """The latest one of the machine; None: the znode must not exist."""
        self._written: tuple[int, Acknowledgement | None] | None = None
        """Session and content of the last successful write; None before it and after a failure, whose outcome is not
        known."""
        self._is_writing = False
        """Whether a write is in progress: another one could overtake it."""
        self._has_written = False
        """Whether a write was ever started.  Before that this member has nothing to delete."""
        self._last_error = ""
        """"" after a success; an error is logged once, not at each repetition."""

    def set(self, acknowledgement: Acknowledgement | None) -> None:
        """Write this one, or delete it (None)."""
        self._wanted = acknowledgement
        self.write()

    def write(self) -> None:
        """Write it, unless it is written already, or a write is in progress.  Called periodically.

        A member that never migrated writes nothing, so it needs no right to the control znode.
        """
        session_id = self._side.session_id
        if self._is_writing or session_id is None or not (self._has_written or self._wanted):
            return
        wanted = self._wanted
        if self._written == (session_id, wanted):
            return
        self._is_writing = self._has_written = True

        def then(why: str) -> None:
            """The write has ended, in this session or with it.  A failure is repeated by the next tick, not here: an
            error that stays would be repeated without a pause."""
            assert self._is_writing, "one write at a time"
            self._is_writing = False
            self._written = None if why else (session_id, wanted)
            if why and why != self._last_error:
                log.warning("acknowledgement-write-failed member=%s reason=%r: tried again", self._side.id, why)
            self._last_error = why
            if not why and wanted != self._wanted:
                self.write()

        self._side.run_procedure(
            write_acknowledgement(self._group, self._side.id, wanted, session_id, self._acl), session_id, then
        )


class OffsetMirror:
    """Writes the offsets that Kafka accepted to ZooKeeper, the latest of each partition; failures are ignored."""

    def __init__(self, side: ZooKeeperMembership, group: str, acl: tuple[Acl, ...] | None) -> None:
        self._side = side
        self._group = group
        self._acl = acl
        self._waiting: dict[TopicPartition, int] = {}
        """The latest offset of each partition that is written next.  Without a session or a control znode they are
        discarded: the next commit mirrors a newer one."""
        self._is_writing = False
        """Whether a write is in progress."""

    def add(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write these, after the write in progress; a newer offset of a partition replaces one that waits."""
        assert offsets, "something was accepted"
        self._waiting.update(offsets)
        self._write()

    def _write(self) -> None:
        version, session_id = self._side.control_version, self._side.session_id
        if self._is_writing or not self._waiting:
            return
        offsets, self._waiting = self._waiting, {}
        if version is None or session_id is None:
            return
        self._is_writing = True

        def then(written: int) -> None:
            assert self._is_writing, "one write at a time"
            self._is_writing = False
            self._side.counters.add("offsets_mirrored", written)
            self._write()

        self._side.run_procedure(write_mirrored_offsets(self._group, offsets, version, self._acl), session_id, then)
