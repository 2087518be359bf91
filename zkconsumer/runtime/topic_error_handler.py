"""Handles topics that this user may not read, or whose names the brokers reject.

    Metadata, ListOffsets, Fetch: error 29 or 17 --> the program needs the topic: the member ends with an error
                                                '--> it does not: a log line, repeated rarely

Java's consumer raises both errors from ``poll()``; the Scala consumer logs them and waits forever.  A missing topic
(error 3) is not handled here: the member waits for it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from zkconsumer.kafka.topic_errors import topic_exception_of
from zkconsumer.member.log_rate_limiter import LogRateLimiter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from zkconsumer.base.clock import Clock
    from zkconsumer.errors import UsageError
    from zkconsumer.kafka.error_codes import ErrorCode
    from zkconsumer.runtime.hook_calls import HookCalls

log = logging.getLogger("zkconsumer.topics")


class TopicErrorHandler:
    """Logs the errors, or ends the member with one (``end``).  May be called on any thread."""

    def __init__(self, member: str, clock: Clock, hooks: HookCalls, end: Callable[[UsageError], None]) -> None:
        self._member = member
        self._clock = clock
        self._hooks = hooks
        self._end = end
        self._reminders = LogRateLimiter()
        self._has_ended = False
        self._lock = threading.Lock()

    def on_topic_errors(self, errors: Mapping[str, ErrorCode], needed: Collection[str]) -> None:
        """Handle topics that brokers reject: those in ``needed`` end the member, the others are logged."""
        fatal = {topic: error for topic, error in errors.items() if topic in needed}
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = bool(fatal)
            ignored = {topic: error for topic, error in errors.items() if topic not in needed}
            due = self._reminders.select_due(ignored, self._clock.now_ms())
        for topic in due:
            words = f"topic={topic} reason={str(ignored[topic])!r}"
            log.warning("topic-ignored member=%s %s: it is not read; the other topics are", self._member, words)
            self._hooks.call("warning_logged", "WARNING", "topic-ignored", words)
        if fatal:
            self._end(topic_exception_of(fatal))
