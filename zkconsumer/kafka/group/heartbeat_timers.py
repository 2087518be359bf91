"""The three deadlines of a member: its next heartbeat, the end of its session, the program's next call.  Pure.

``Heartbeat`` is Kafka's class of this name without its clock: every method receives the time.

    sent_heartbeat ---> next one in heartbeat.interval.ms
    receive_heartbeat -> session lasts for session.timeout.ms from now
    fail_heartbeat ---> next one after a growing pause
    poll -------------> max.poll.interval.ms count from now, or from when the program received its record
"""

from __future__ import annotations

from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.kafka.net.exponential_backoff import ExponentialBackoff


class Heartbeat:
    """Deadlines in ms; nothing is due before ``reset_timeouts``."""

    def __init__(self, config: GroupMemberConfig, backoff: ExponentialBackoff, now_ms: int) -> None:
        self._config = config
        self._backoff = backoff
        self._attempts = 0
        self.reset_timeouts(now_ms)

    def reset_timeouts(self, now_ms: int) -> None:
        """All deadlines count from now."""
        self.reset_poll_timeout(now_ms)
        self.enable(now_ms)

    def enable(self, now_ms: int) -> None:
        """Heartbeats begin: a generation was joined.  The program's deadline stays: a join is not one of its calls."""
        self.reset_session_timeout(now_ms)
        self.next_heartbeat_ms = now_ms + self._config.heartbeat_interval_ms

    def reset_session_timeout(self, now_ms: int) -> None:
        """The wait for the coordinator, or another one, starts again."""
        self.session_until_ms = now_ms + self._config.session_timeout_ms

    def reset_poll_timeout(self, called_ms: int) -> None:
        """The program called at that time (``poll`` in Kafka)."""
        self.poll_until_ms = called_ms + self._config.max_poll_interval_ms

    def has_called(self, called_ms: int, now_ms: int) -> bool:
        """Whether a program whose last call was at that time counts as alive now."""
        return now_ms - called_ms < self._config.max_poll_interval_ms

    def sent_heartbeat(self, now_ms: int) -> None:
        """A heartbeat was sent."""
        self.next_heartbeat_ms = now_ms + self._config.heartbeat_interval_ms

    def receive_heartbeat(self, now_ms: int) -> None:
        """The coordinator has confirmed that this member is alive."""
        self._attempts = 0
        self.reset_session_timeout(now_ms)

    def fail_heartbeat(self, now_ms: int) -> None:
        """The coordinator may not have received it: retry soon."""
        self.next_heartbeat_ms = now_ms + self._backoff.backoff(self._attempts)
        self._attempts += 1

    def should_heartbeat(self, now_ms: int) -> bool:
        """Whether one is due."""
        return now_ms >= self.next_heartbeat_ms

    def time_to_next_heartbeat(self, now_ms: int) -> int:
        """The time until then, in ms."""
        return max(0, self.next_heartbeat_ms - now_ms)

    def overdue_ms(self, now_ms: int) -> int:
        """How long ago the next heartbeat was due, in ms; a running member sends it almost at once."""
        return max(0, now_ms - self.next_heartbeat_ms)

    def session_timeout_expired(self, now_ms: int) -> bool:
        """Whether the coordinator has not answered for a session timeout."""
        return now_ms >= self.session_until_ms

    def poll_timeout_expired(self, now_ms: int) -> bool:
        """Whether the program has not called for too long."""
        return now_ms >= self.poll_until_ms
