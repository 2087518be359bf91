"""What is logged about a view of the group: ignored registrations, missing topics, the topics of a filter.

``MemberStateMachine`` calls it with each view.  Nothing here affects a decision.  What was logged is kept when a
session ends: the next session would log the same again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member.events import MemberTimer
from zkconsumer.member.log_rate_limiter import LOG_REPEAT_MS, LogRateLimiter
from zkconsumer.member.topic_messages import filter_topics_message, missing_topic_message

if TYPE_CHECKING:
    from zkconsumer.member.commands import Command
    from zkconsumer.member.group_view import GroupView, TopicSubscription


class GroupViewLog:
    """The log commands about views, and what they have reported."""

    def __init__(self) -> None:
        self.missing_topics: frozenset[str] = frozenset()
        """The subscribed topics that did not exist in the last view; the repeat timer runs if there are any."""
        self._missing_due = LogRateLimiter()
        self._logged_ignored: set[str] = set()
        """The invalid registrations of the last view: each of them was logged once since it became invalid."""
        self._logged_topics: frozenset[str] | None = None
        """The topics of the filter that were logged last; None: nothing was logged yet."""

    def on_view(self, view: GroupView, subscription: TopicSubscription | None, now_ms: int) -> list[Command]:
        """Log each invalid registration once, and again only if it was valid in between; log missing topics."""
        out: list[Command] = []
        for member, why in view.ignored_registrations.items():
            if member not in self._logged_ignored:
                out.append(do.IncrementCounter("registrations_ignored"))
                out.append(do.LogEvent("WARNING", "registration-ignored", f"registration={member} reason={why!r}"))
        self._logged_ignored = set(view.ignored_registrations)
        named = {} if subscription is None or subscription.is_filter else subscription.topics
        self.missing_topics = frozenset(topic for topic in view.missing_topics if topic in named)
        return [*out, *self.on_repeat_timer(now_ms)]

    def on_repeat_timer(self, now_ms: int) -> list[Command]:
        """Log the missing topics, and repeat the log while they are missing."""
        due = self._missing_due.select_due(self.missing_topics, now_ms)
        out: list[Command] = [do.LogEvent("WARNING", "topic-missing", missing_topic_message(topic)) for topic in due]
        return [*out, do.StartTimer(MemberTimer.MISSING_TOPICS, LOG_REPEAT_MS)] if self.missing_topics else out

    def on_filter_topics(self, subscription: TopicSubscription, topics: frozenset[str]) -> list[Command]:
        """Log the topics that the filter matches: in the first view, and when they have changed."""
        if not subscription.is_filter or topics == self._logged_topics:
            return []
        words = filter_topics_message(self._logged_topics or frozenset(), topics)
        self._logged_topics = topics
        if not topics:
            return [do.LogEvent("WARNING", "filter-topics-changed", words)]
        return [do.LogEvent("INFO", "filter-topics-changed", words)]
