"""How long another session may have the registration znode of our id, before this member gives up.

    conflict --> log once, REGISTER timer --> the create is repeated --> registered: the conflict is over
                                                                    \\-> conflict for longer than a session: error

A process that was killed and started again with the same ``consumer.id`` finds its own old registration, which exists
until the old session expires.  Only another running process keeps it longer.  The two cannot be distinguished by the
znode, so the member waits as long as a session can outlive its process, and then fails with ``ConsumerIdInUse``.  The
Scala consumer of 0.8 waits without end, and later ones fail at once (``ZKCheckedEphemeral``, KAFKA-1387).

An answer proves only what was so when its request was sent: the time of a conflict is measured from request to request.
A process that was stopped for longer than the wait would otherwise take an answer that had lain unread for a proof that
the other session still exists (``a_pause_of_the_process_does_not_count_as_waiting_for_the_consumer_id.txt``).

A failed request (outcome unknown) neither extends nor ends a conflict.  A new session of ours begins anew: the other
session may have ended in between (``a_new_session_restarts_the_wait_for_the_consumer_id.txt``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.member import commands as do

if TYPE_CHECKING:
    from zkconsumer.member.commands import Command
    from zkconsumer.member.events import RegistrationConflict
    from zkconsumer.member.group_settings import GroupSettings

CONFLICT_GRACE_MS = 1_000
"""Added to the session timeout: a server expires a session some time after its timeout."""


class ConsumerIdConflict:
    """The conflict about our id, as long as it lasts."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._since_ms: int | None = None
        """When the first answer of this conflict was handled; None without a conflict."""

    def on_conflict(
        self, event: RegistrationConflict, sent_at_ms: int, now_ms: int, session_timeout_ms: int
    ) -> tuple[list[Command], str]:
        """Another session has our id; return log commands, and the error text if it has had it for too long.

        ``sent_at_ms``: when the create request was sent.  ``session_timeout_ms``: that of our session.  The other
        session may have a longer one than was granted to ours, so the requested timeout counts, too.
        """
        assert sent_at_ms <= now_ms, "an answer follows its request"
        longest_ms = max(session_timeout_ms, self._settings.session_timeout_ms) + CONFLICT_GRACE_MS
        other_session = f"session={event.session_id:#x} host={event.host} age_ms={event.age_ms}"
        out: list[Command] = []
        if self._since_ms is None:
            self._since_ms = now_ms
            words = f"id={self._settings.member_id} {other_session} waiting_ms={longest_ms}"
            out.append(do.LogEvent("WARNING", "consumer-id-in-use", words))
        if sent_at_ms - self._since_ms <= longest_ms:
            return out, ""
        return out, (
            f"the id {self._settings.member_id} is used by another session ({other_session}), which did not end within "
            f"{longest_ms} ms: stop that process, or set another consumer.id for this one (without consumer.id an id "
            "is generated)"
        )

    def end(self) -> None:
        """This member is registered, or its session ended."""
        self._since_ms = None
